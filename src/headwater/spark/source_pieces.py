"""The bytes of a log that hold the rows of a topic between two LSNs, cut for Spark's tasks.

    Piece       exact bytes of one segment, and which of their rows are wanted; a Spark partition has some

PROMISE  The pieces between two LSNs hold every row of the topic that the log has there, once, in LSN order.
         Each can be found again by its LSNs, wherever a rewrite has put its rows since.
NOT HERE Which LSNs: source_log.py for positions, scan.py for the tail of a view.  Reading: source_reader.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from headwater.lake.plan import PlannedRange, plan_landing
from headwater.lake.source import LogSource
from headwater.lake.work import LandWork, TopicWork
from headwater.metadata.operations import TopicRecord

PIECE_BYTES = 32 * 1024 * 1024
"""About what one Spark partition reads: a task holds that much, and its rows, in memory."""
_NO_LIMIT = 1 << 62


@dataclass(frozen=True)
class Piece:
    """Bytes of one segment."""

    work: LandWork
    low: Mapping[int, int] = field(default_factory=dict)
    """By partition, the first offset that is wanted."""
    high: Mapping[int, int] = field(default_factory=dict)
    """By partition, the first offset that is not wanted any more; a partition that is not named has none."""

    bytes: int = 0
    """About how many there are to read."""

    @property
    def topic(self) -> TopicWork:
        return self.work.topics[0]


class PiecesSource(LogSource, Protocol):
    def bytes_of(self, planned: PlannedRange) -> int:
        """About how many bytes a planned range is."""
        ...


class TopicPieces:
    """Where the rows of a topic lie in an open log."""

    def __init__(self, source: PiecesSource, topic: TopicRecord) -> None:
        self._source = source
        self._topic = topic

    def between(
        self,
        lsn_from: int,
        lsn_to: int,
        low: Mapping[int, int] | None = None,
        high: Mapping[int, int] | None = None,
        *,
        partitions_min: int | None = None,
    ) -> list[tuple[Piece, ...]]:
        """The pieces of each Spark partition: rows after one LSN and up to another, of these offsets if some are
        named."""
        planned = list(self._planned(lsn_from, lsn_to))
        size = PIECE_BYTES
        if partitions_min is not None:
            size = max(min(size, sum(each.bytes for each in planned) // partitions_min), 1)
        works = ((self._work(part), self.bytes_of(part)) for each in planned for part in self._cut(each, size))
        found = (Piece(work, low or {}, high or {}, length) for work, length in works if work is not None)
        return list(_together(found, size))

    def again(self, piece: Piece) -> list[Piece]:
        """The same rows where they lie now."""
        works = (self._work(planned) for planned in self._planned(piece.topic.lsn_from, piece.topic.lsn_to))
        return [dataclasses.replace(piece, work=work) for work in works if work is not None]

    def parts(self, lsn_from: int, lsn_to: int, size: int) -> Iterator[PlannedRange]:
        """The ranges between two LSNs, in parts of about this size."""
        for planned in self._planned(lsn_from, lsn_to):
            yield from self._cut(planned, size)

    def bytes_of(self, planned: PlannedRange) -> int:
        return self._source.bytes_of(planned)

    def _planned(self, lsn_from: int, lsn_to: int) -> Iterator[PlannedRange]:
        if lsn_to <= lsn_from:
            return
        plan = plan_landing(
            {self._topic.number: lsn_from},
            self._source.segments(),
            durable_lsn=lsn_to,
            budget_bytes=_NO_LIMIT,
            item_bytes=_NO_LIMIT,
        )
        yield from plan.ranges

    def _cut(self, planned: PlannedRange, size: int) -> Iterator[PlannedRange]:
        """The range in parts of about this size, halved by LSN, so that each part can be found again by its LSNs."""
        if planned.lsn_to - planned.lsn_from <= 1 or self.bytes_of(planned) <= size:
            yield planned
            return
        middle = (planned.lsn_from + planned.lsn_to) // 2
        yield from self._cut(dataclasses.replace(planned, lsn_to=middle), size)
        yield from self._cut(dataclasses.replace(planned, lsn_from=middle), size)

    def _work(self, planned: PlannedRange) -> LandWork | None:
        found = self._source.runs(planned, _NO_LIMIT)
        if not found:
            return None
        assert len(found) == 1
        topic = TopicWork(
            number=self._topic.number,
            commit_id="",
            lsn_from=planned.lsn_from,
            lsn_to=planned.lsn_to,
            schemas=self._topic.schemas,
            target=b"",
            changes=bool(self._topic.key),
        )
        name, runs, slots = found[0]
        return LandWork(self._source.directory, name, runs, self._source.shard, (topic,), slots)


def _together(pieces: Iterable[Piece], size: int) -> Iterator[tuple[Piece, ...]]:
    """Pieces that follow each other, as many as are not above this size; a log of small segments has many."""
    waiting: list[Piece] = []
    total = 0
    for piece in pieces:
        if waiting and total + piece.bytes > size:
            yield tuple(waiting)
            waiting, total = [], 0
        waiting.append(piece)
        total += piece.bytes
    if waiting:
        yield tuple(waiting)
