"""A log behind a server, as the lake and Spark ask it (lake/source.py).

PROMISE  It plans and reads as one does who has the log on a disk: what the server has to say of a segment are the
         shares of the topics that the principal may read or land, and nothing of others.
RUNS     Ranges of a segment are cut by LSN, because where bytes lie is the server's own affair; a range goes to the
         server with the ids of its topics (frames.py).
NOT HERE The ledger: ledger.py.  Pins: pins.py.  What is landed, and how: headwater.lake.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.client.connection import Connection
from headwater.client.frames import frames_of
from headwater.client.ledger import ServedLedger
from headwater.client.pins import ClientPins
from headwater.client.positions import ServedPositions
from headwater.errors import UnknownTopic
from headwater.ids import Lsn
from headwater.lake.lag import Waiting
from headwater.lake.log_rows import log_rows
from headwater.lake.plan import PlannedRange, SegmentContent
from headwater.lake.source import Hold, PlacedRuns
from headwater.log.device import TopicInSegment
from headwater.metadata.operations import TopicRecord
from headwater.protocol.calls import DURABLE_LSN, FIND_TOPIC, NamedTopic, Nothing
from headwater.protocol.codec import pack
from headwater.protocol.lake_calls import (
    CHAIN_AT,
    FIND_TIME,
    HOLDS_ALL,
    LAKE_TOPICS,
    LET_GO,
    NEXT_WRITE,
    PINNED,
    ROWS_BETWEEN,
    SEGMENTS,
    WAITING,
    AtLsn,
    AtTime,
    LandedTopic,
    TopicRange,
    WireSegment,
)

if TYPE_CHECKING:
    from headwater.lake.reading import ReadRows
    from headwater.lake.work import LandWork


class ServedSource:
    """OpenLog over a connection.  Safe for threads."""

    def __init__(self, connection: Connection, *, owns_connection: bool = False) -> None:
        self._connection = connection
        self._owns_connection = owns_connection
        self._ids: dict[int, bytes] = {}
        self._seen: dict[str, SegmentContent] = {}
        """The segments of the last look, by name."""
        self._pins = ClientPins(connection)
        self.ledger = ServedLedger(connection)

    @property
    def directory(self) -> str:
        return self._connection.address.text

    @property
    def shard(self) -> int:
        return self._connection.hello.shard

    @property
    def log_id(self) -> str:
        return self._connection.hello.log_id

    # Topics ------------------------------------------------------------------------------------

    def topics(self) -> Sequence[TopicRecord]:
        return self._known(self._connection.call(LAKE_TOPICS, Nothing()))

    def topic(self, name: str) -> TopicRecord:
        return self._known([self._connection.call(FIND_TOPIC, NamedTopic(name))])[0]

    def _known(self, topics: list[TopicRecord]) -> list[TopicRecord]:
        self._ids.update({topic.number: topic.topic_id for topic in topics})
        return topics

    def _id(self, number: int) -> bytes:
        if number not in self._ids:
            self.topics()
        if number not in self._ids:
            raise UnknownTopic("the topic was deleted", topic_number=number)
        return self._ids[number]

    # What there is -----------------------------------------------------------------------------

    def durable_lsn(self) -> int:
        return self._connection.call(DURABLE_LSN, Nothing())

    def segments(self) -> list[SegmentContent]:
        found = [_content(each) for each in self._connection.call(SEGMENTS, Nothing())]
        self._seen = {each.name: each for each in found}
        return found

    def runs(self, planned: PlannedRange, item_bytes: int) -> list[PlacedRuns]:
        lsns = planned.lsn_to - planned.lsn_from
        pieces = min(max(1, round(planned.bytes / item_bytes)), lsns)
        ids = pack({number: self._id(number) for number in planned.topics})
        edges = [planned.lsn_from + lsns * each // pieces for each in range(pieces + 1)]
        return [PlacedRuns(planned.segment, ((low, high),), ids) for low, high in pairwise(edges)]

    def read(self, work: LandWork, columns: Mapping[int, pa.Schema]) -> ReadRows:
        from headwater.lake.reading import read_rows

        return read_rows(work, columns, partial(frames_of, self._connection))

    def bytes_of(self, planned: PlannedRange) -> int:
        segment = self._seen.get(planned.segment)
        if segment is None:
            return planned.bytes
        wanted = sum(segment.topics[number].bytes for number in planned.topics if number in segment.topics)
        part = (planned.lsn_to - planned.lsn_from) / (segment.last_lsn - segment.first_lsn + 1)
        return max(round(wanted * part), 1)

    def rows_between(self, topic_number: int, lsn_from: int, lsn_to: int) -> int:
        return self._connection.call(ROWS_BETWEEN, TopicRange(self._id(topic_number), lsn_from, lsn_to))

    def holds_all(self, topic_number: int, lsn_from: int, lsn_to: int) -> bool:
        return self._connection.call(HOLDS_ALL, TopicRange(self._id(topic_number), lsn_from, lsn_to))

    def chain_at(self, lsn: int) -> str:
        return self._connection.call(CHAIN_AT, AtLsn(lsn))

    def next_write(self, lsn: int) -> tuple[int, int] | None:
        found = self._connection.call(NEXT_WRITE, AtLsn(lsn))
        return None if found is None else (found.lsn, found.write_lsn)

    def find_time(self, time_us: int) -> int | None:
        return self._connection.call(FIND_TIME, AtTime(time_us))

    def waiting(self, topic: TopicRecord, landed_lsn: int) -> Waiting:
        return self._connection.call(WAITING, LandedTopic(topic.topic_id, landed_lsn))

    def tail(self, topic: TopicRecord, columns: pa.Schema, lsn_from: int, lsn_to: int) -> pa.Table:
        self._known([topic])
        return pa.concat_tables([columns.empty_table(), *log_rows(self, topic, columns, lsn_from, lsn_to)])

    def positions(self, topic: str) -> ServedPositions:
        return ServedPositions(self._connection, self.topic(topic))

    # Holding and letting go --------------------------------------------------------------------

    def hold(self, lsn: int | None, snapshots: Sequence[int] = ()) -> Hold:
        return self._pins.hold(lsn, snapshots)

    def pinned(self) -> frozenset[int]:
        found = self._connection.call(PINNED, Nothing())
        return frozenset(found)

    def let_go(self) -> str:
        return self._connection.call(LET_GO, Nothing())

    def close(self) -> None:
        """Let go of what is held; twice is nothing."""
        self._pins.close()
        if self._owns_connection:
            self._connection.close()


def _content(wire: WireSegment) -> SegmentContent:
    return SegmentContent(
        wire.name,
        wire.first_lsn,
        wire.last_lsn,
        sum(each.bytes for each in wire.shares),
        wire.sealed,
        {each.number: TopicInSegment(each.frames, each.bytes, each.rows, Lsn(each.last_lsn)) for each in wire.shares},
    )
