"""Rows that a consumer has already, of many partitions: gathered at once, handed out one partition at a time.

PROMISE  Of each partition the rows from the offset that was asked for, in order; where the first of them is another
         one (compaction or a cleanup left a hole) none, and the partition is read by itself.
ORDER    Partitions come in the order in which they were asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.topics.batches import OFFSET_COLUMN, concat

PARTITION, OFFSET = "_hw_partition", OFFSET_COLUMN
PLACE = [PARTITION, OFFSET]


class Waiting(NamedTuple):
    """Rows of a partition that are next, with their offsets beside them."""

    partition: int
    offset: int
    rows: pa.RecordBatch
    offsets: pa.Int64Array


class Ahead:
    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, asked: Mapping[int, int], batches: Iterable[pa.RecordBatch]) -> set[int]:
        """Take in what came of these offsets; which partitions have rows now."""
        found = {each.partition: each for each in _by_partition(list(batches))}
        fitting = [
            found[number] for number, offset in asked.items() if number in found and found[number].offset == offset
        ]
        self._waiting = deque(fitting)
        return {each.partition for each in fitting}

    def take(self, rows_max: int) -> tuple[int, int, int, pa.RecordBatch] | None:
        """The next partition, at which offset its rows begin and after which they end, and the rows."""
        if not self._waiting:
            return None
        partition, offset, rows, offsets = self._waiting.popleft()
        if rows.num_rows > rows_max:
            left = offsets.slice(rows_max)
            after: int = offsets[rows_max - 1].as_py() + 1
            # Its turn is over, and what is left of it comes after the others.
            self._waiting.append(Waiting(partition, after, rows.slice(rows_max), left))
            return partition, offset, after, rows.slice(0, rows_max)
        return partition, offset, offsets[-1].as_py() + 1, rows

    def drop(self, partition: int) -> None:
        """Its place is another one now."""
        self._waiting = deque(each for each in self._waiting if each.partition != partition)


def _by_partition(batches: list[pa.RecordBatch]) -> list[Waiting]:
    """Each partition's rows, in their order: sorted once, then cut."""
    if not batches:
        return []
    together = concat(batches)
    # Stable, so rows of a partition stay in the order of the log.
    sorted_rows = together.take(pc.sort_indices(together.column(PARTITION)))
    runs = pc.run_end_encode(sorted_rows.column(PARTITION))
    offsets = sorted_rows.column(OFFSET)
    plain = sorted_rows.drop_columns(PLACE)
    ends = [0, *runs.run_ends.to_pylist()]
    return [
        Waiting(number, offsets[begin].as_py(), plain.slice(begin, end - begin), offsets.slice(begin, end - begin))
        for number, (begin, end) in zip(runs.values.to_pylist(), pairwise(ends), strict=True)
    ]
