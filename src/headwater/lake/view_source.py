"""What a view asks of an open log: how far it is durable, what it still holds, and pins.

RELEASE  A scan that nobody has closed lets go of its pins when Python collects it: in any thread, in the middle of
         anything, with any lock held.  On a disk that is one unlink.  In a bucket it is a request, and what makes one
         holds locks: so there a thread of its own does it, soon after.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Event, Thread

from headwater.errors import PinExpired
from headwater.ids import Lsn
from headwater.lake.source import EngineSource
from headwater.log.pins import Pin
from headwater.topics.engine import Engine

SNAPSHOTS = "snapshots "
"""How the note of a pin begins that names snapshots of tables."""

SNAPSHOTS_PER_PIN = 3
"""The note of a pin is short: docs/formats/pins.md."""


logger = logging.getLogger("headwater.lake")


@dataclass(frozen=True)
class Pins:
    """All the pins of one reader."""

    pins: tuple[Pin, ...]
    aside: Releasing | None = None
    """To whom releasing them is left."""

    @property
    def lsn(self) -> int:
        """The log is held from here on."""
        return min(pin.lsn for pin in self.pins)

    def release(self) -> None:
        if self.aside is not None:
            self.aside.leave(self.pins)
            return
        for pin in self.pins:
            pin.release()


class Releasing:
    """A thread that releases pins."""

    def __init__(self) -> None:
        self._waiting: SimpleQueue[tuple[Pin, ...]] = SimpleQueue()
        self._over = Event()
        self._thread = Thread(target=self._work, name="headwater-pins", daemon=True)
        self._thread.start()

    def leave(self, pins: tuple[Pin, ...]) -> None:
        self._waiting.put(pins)
        if self._over.is_set():
            self._release_all()

    def _work(self) -> None:
        while not self._over.is_set():
            self._release(self._waiting.get())

    def _release_all(self) -> None:
        while not self._waiting.empty():
            self._release(self._waiting.get())

    @staticmethod
    def _release(pins: tuple[Pin, ...]) -> None:
        try:
            Pins(pins).release()
        except OSError as error:
            # Nobody renews it any more, so it is passed over soon.
            logger.warning("a pin could not be released: %s", error)

    def close(self) -> None:
        """Return when all that was left to it is released; what comes later is released by whoever brings it."""
        self._over.set()
        self._waiting.put(())
        self._thread.join()
        self._release_all()


class EngineViewSource(EngineSource):
    def __init__(self, engine: Engine, directory: str) -> None:
        super().__init__(engine, directory)
        self._engine = engine
        self._releasing: Releasing | None = None

    def close(self) -> None:
        releasing, self._releasing = self._releasing, None
        if releasing is not None:
            releasing.close()

    def hold(self, lsn: int | None, snapshots: Sequence[int] = ()) -> Pins:
        """Hold the log from this LSN on, all of it where none is given; the pins' notes name the snapshots."""
        held: list[Pin] = []
        if self._releasing is None and self._engine.shard.log.is_on_a_store:
            self._releasing = Releasing()
        for first in range(0, max(len(snapshots), 1), SNAPSHOTS_PER_PIN):
            named = ",".join(str(each) for each in snapshots[first : first + SNAPSHOTS_PER_PIN])
            held.append(self._pin(lsn, SNAPSHOTS + named if named else ""))
        return Pins(tuple(held), self._releasing)

    def _pin(self, lsn: int | None, note: str) -> Pin:
        while True:
            # Of what was gone before there is nothing to hold: the log may begin later than a topic's own tail does.
            first = max(self._log_start(), lsn or 0)
            try:
                return self._engine.pins.hold(Lsn(first), self._log_start, note=note)
            except PinExpired:
                continue  # the log began later between the two looks: hold it from there

    def _log_start(self) -> int:
        return self._engine.metadata().log_start

    def rows_between(self, topic_number: int, lsn_from: int, lsn_to: int) -> int:
        """As the index counts them; frame by frame only where a segment lies half outside."""
        device = self._log.device
        rows = 0
        for segment in self._log.segments():
            if segment.last_lsn <= lsn_from or segment.first_lsn > lsn_to:
                continue
            share = device.topics_in(segment).get(topic_number)
            if share is None or not share.rows or share.last_lsn <= lsn_from:
                continue
            if segment.first_lsn > lsn_from and share.last_lsn <= lsn_to:
                rows += share.rows
            else:
                first, last = max(segment.first_lsn, lsn_from + 1), min(segment.last_lsn, lsn_to)
                rows += super().rows_between(topic_number, first - 1, last)
        return rows
