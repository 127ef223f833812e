"""What a view asks of an open log: how far it is durable, what it still holds, and pins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import PinExpired
from headwater.ids import Lsn
from headwater.lake.source import EngineSource
from headwater.log.pins import Pin
from headwater.topics.engine import Engine

SNAPSHOTS = "snapshots "
"""How the note of a pin begins that names snapshots of tables."""

SNAPSHOTS_PER_PIN = 3
"""The note of a pin is short: docs/formats/pins.md."""


@dataclass(frozen=True)
class Pins:
    """All the pins of one reader."""

    pins: tuple[Pin, ...]

    def release(self) -> None:
        for pin in self.pins:
            pin.release()


class EngineViewSource(EngineSource):
    def __init__(self, engine: Engine, directory: str) -> None:
        super().__init__(engine, directory)
        self._engine = engine

    def hold(self, lsn: int | None, snapshots: Sequence[int] = ()) -> Pins:
        """Hold the log from this LSN on, all of it where none is given; the pins' notes name the snapshots."""
        held: list[Pin] = []
        for first in range(0, max(len(snapshots), 1), SNAPSHOTS_PER_PIN):
            named = ",".join(str(each) for each in snapshots[first : first + SNAPSHOTS_PER_PIN])
            held.append(self._pin(lsn, SNAPSHOTS + named if named else ""))
        return Pins(tuple(held))

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
