"""Rows by partition and offset, as runs: (partition, first offset, last offset), rising and apart.

PROMISE  Equal sets of rows are equal values.  What is asked of many rows is answered for all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Run = tuple[int, int, int]
Numbers = npt.NDArray[np.int64]

PARTITION, OFFSET = "_hw_partition", "_hw_offset"


@dataclass(frozen=True)
class OffsetRuns:
    runs: tuple[Run, ...] = ()

    @classmethod
    def of_rows(cls, rows: pa.Table) -> OffsetRuns:
        """The rows of a table with `_hw_partition` and `_hw_offset`; those that have none are of no topic."""
        partitions, offsets = _numbers(rows, PARTITION), _numbers(rows, OFFSET)
        if not len(offsets):
            return cls()
        order = np.lexsort((offsets, partitions))
        partitions, offsets = partitions[order], offsets[order]
        begins = np.ones(len(offsets), bool)
        begins[1:] = (partitions[1:] != partitions[:-1]) | (offsets[1:] > offsets[:-1] + 1)
        firsts = np.flatnonzero(begins)
        lasts = np.append(firsts[1:], len(offsets)) - 1
        return cls(
            tuple(zip(partitions[firsts].tolist(), offsets[firsts].tolist(), offsets[lasts].tolist(), strict=True))
        )

    @classmethod
    def of(cls, runs: Iterable[Run]) -> OffsetRuns:
        """These runs, which may overlap and come in any order."""
        found: list[Run] = []
        for partition, first, last in sorted(runs):
            if found and found[-1][0] == partition and first <= found[-1][2] + 1:
                found[-1] = partition, found[-1][1], max(found[-1][2], last)
            else:
                found.append((partition, first, last))
        return cls(tuple(found))

    def __bool__(self) -> bool:
        return bool(self.runs)

    def __or__(self, other: OffsetRuns) -> OffsetRuns:
        if not other:
            return self
        return OffsetRuns.of((*self.runs, *other.runs)) if self else other

    @property
    def rows(self) -> int:
        return sum(last - first + 1 for _, first, last in self.runs)

    @cached_property
    def _columns(self) -> tuple[Numbers, Numbers, Numbers]:
        """Partitions, first and last offsets."""
        numbers = np.array(self.runs, np.int64).reshape(-1, 3)
        return numbers[:, 0], numbers[:, 1], numbers[:, 2]

    def holds(self, rows: pa.Table) -> npt.NDArray[np.bool_]:
        """Of each row of a table whether it is among these."""
        partitions, offsets = _numbers(rows, PARTITION, -1), _numbers(rows, OFFSET, -1)
        found = np.zeros(len(offsets), bool)
        of_run, firsts, lasts = self._columns
        for partition in np.unique(of_run).tolist():
            own = of_run == partition
            places = np.searchsorted(firsts[own], offsets, side="right") - 1
            found |= (partitions == partition) & (places >= 0) & (offsets <= lasts[own][places])
        return found

    def reach_into(self, first: int, last: int) -> bool:
        """Whether one of them, of any partition, lies between two offsets, both included."""
        _, firsts, lasts = self._columns
        return bool(((firsts <= last) & (lasts >= first)).any())


def _numbers(rows: pa.Table, name: str, missing: int | None = None) -> Numbers:
    column = rows.column(name)
    column = column.drop_null() if missing is None else column.fill_null(missing)
    return np.asarray(column.cast(pa.int64()).to_numpy(), np.int64)
