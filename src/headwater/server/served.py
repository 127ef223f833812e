"""What is served: one log, and the lake beside it, to whoever may have it.

    by_id(principal, topic_id, right)     the topic of this id, if the principal may do this with it
    named(principal, name, right)         the same by its name

Every door (flight.py, http.py) asks here.

PROMISE  Rights are looked up for the topic that was found, at every call, and never for what was sent.  A topic that a
         principal has no right over is UnknownTopic, in the words in which one that is not there is.
NOT HERE What is done with a topic once it was found: calls.py, appends.py, reads.py.
"""

from __future__ import annotations

import threading
from dataclasses import replace

from headwater.errors import Closed, Fenced, HeadwaterError, LogLocked, Poisoned, Unavailable
from headwater.lake.engine_log import EngineLog
from headwater.lake.landing import Lake
from headwater.metadata.operations import TopicRecord
from headwater.protocol.streams import Right
from headwater.server.access import Access, Principal, check, check_known, unknown_topic
from headwater.server.arrivals import Arrivals
from headwater.server.counters import RequestCounters
from headwater.server.first_offsets import FirstOffsets
from headwater.server.pins import ServedPins
from headwater.server.settings import ServerSettings
from headwater.server.streams import Streams
from headwater.topics.answers import Status
from headwater.topics.describing import describe
from headwater.topics.embedded import EmbeddedEngine
from headwater.topics.store_status import StoreWatch


class Served:
    """A log that is served.  Safe for threads."""

    def __init__(
        self,
        engine: EmbeddedEngine,
        lake: Lake | None,
        directory: str,
        settings: ServerSettings,
        access: Access,
        streams: Streams,
        *,
        store: StoreWatch | None = None,
    ) -> None:
        self.engine = engine
        self.lake = lake
        self.directory = directory
        self.settings = settings
        self.streams = streams
        self.calls = RequestCounters()
        """Of Flight, by how they ended."""
        self.stopping = threading.Event()
        """Nothing new is begun any more, and what waits ends."""
        self.arrivals = Arrivals(engine, self.stopping)
        self.first_offsets = FirstOffsets(engine)
        self._access = access
        self._store = store
        self.log = None if lake is None else lake.log_of(engine)
        """The log as the lake asks it."""
        self.pins = ServedPins(self.log, engine.clock) if isinstance(self.log, EngineLog) else None
        self._numbers: tuple[int, dict[bytes, int]] = (-1, {})
        """The journal's LSN, and the numbers of the topics of then by their ids; some may be deleted since."""

    def authenticate(self, authorization: str | None, certificate: str | None) -> Principal:
        """Who asks.  Unavailable where nobody is served: not yet, or not any more."""
        self.check_serving()
        return self._access.authenticate(authorization, certificate)

    def check_serving(self) -> None:
        if self.stopping.is_set():
            raise Unavailable("the server is being stopped: ask another, or this one soon")
        if not self.engine.claimed:
            # Nobody but its owner may answer for a log.
            raise Unavailable("the server stands by: another one serves this log")

    # Topics ------------------------------------------------------------------------------------

    def by_id(self, principal: Principal, topic_id: bytes, right: Right | None) -> TopicRecord:
        """The topic, if the principal has this right over it; any right, where none is named."""
        topic = self._find(topic_id)
        if topic is None:
            raise unknown_topic()
        self._check(principal, right, topic.name, None)
        return topic

    def named(self, principal: Principal, name: str, right: Right | None) -> TopicRecord:
        """The same by its name."""
        topic = self.engine.metadata().topic_named(name)
        if topic is None:
            # The engine says so, and whether a journal was lost.
            topic = self.engine.topic(name)
        self._check(principal, right, topic.name, name)
        return topic

    def known(self, principal: Principal) -> list[TopicRecord]:
        """Every topic that the principal has some right over, by name."""
        topics = self.engine.metadata().topics.values()
        return sorted((each for each in topics if principal.knows(each.name)), key=lambda each: each.name)

    @staticmethod
    def _check(principal: Principal, right: Right | None, topic: str, asked: str | None) -> None:
        if right is None:
            check_known(principal, topic, asked=asked)
        else:
            check(principal, right, topic, asked=asked)

    def _find(self, topic_id: bytes) -> TopicRecord | None:
        state = self.engine.metadata()
        lsn, numbers = self._numbers
        topic = state.topics.get(numbers.get(topic_id, -1))
        if topic is None and lsn != state.lsn:
            numbers = {each.topic_id: each.number for each in state.topics.values()}
            self._numbers = (state.lsn, numbers)
            topic = state.topics.get(numbers.get(topic_id, -1))
        # Ids and numbers are given once, so what the map says of them is never wrong.
        return topic

    # About it ----------------------------------------------------------------------------------

    def status(self) -> Status:
        """What there is at a glance, of every topic."""
        found = describe(self.engine, self.directory)
        if self._store is not None:
            found = replace(found, store=self._store.look(owner_here=found.owner))
        return found if self.lake is None or self.log is None else self.lake.completed(found, self.log)

    @property
    def epoch(self) -> int:
        """Of this owner of the log."""
        return self.engine.shard.log.recovery_report.epoch

    def lost_by(self) -> BaseException | None:
        """Why this process promises nothing any more, if so: a sync failed, or another process took the log over."""
        return self.engine.shard.log.device.poisoned_by or self.engine.journal.log.device.poisoned_by

    def outward(self, error: HeadwaterError) -> HeadwaterError:
        """The error as callers are told.  What is lost or closed here is not theirs to mend: nothing was done, and they
        ask again, here or at another server.  Fenced is of a producer or of a group's member, and never of the log."""
        lost = self.lost_by()
        of_the_log = isinstance(error, Fenced) and isinstance(lost, Fenced) and error.message == lost.message
        if of_the_log or isinstance(error, Poisoned | Closed | LogLocked):
            return Unavailable("this server has no log to serve at the moment: ask another, or this one soon")
        return error

    def close(self) -> None:
        """Let go of what is beside the engine; the engine is closed by whoever opened it."""
        if self.pins is not None:
            self.pins.close()
        if self.log is not None:
            self.log.close()
