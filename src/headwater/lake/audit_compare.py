"""One block of a partition, offset by offset: what is missing, too many, doubled and altered.  Pure.

A block has 65,536 offsets, so each question is one array of so many answers.

PROMISE  An offset is told as missing only if it is owed and not there, and as extra only if it is there and not owed.
         Where it is not known which offsets are owed, because rows were compacted away before they landed and the log
         no longer has the others, the count is told and the block is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headwater.lake.audit_measure import BlockRows, within
from headwater.lake.audit_plan import OffsetRun, Owed, Place, Range
from headwater.lake.digest import BLOCK_BITS

BLOCK_ROWS = 1 << BLOCK_BITS
Mask = npt.NDArray[np.bool_]
_NONE: npt.NDArray[np.int64] = np.empty(0, np.int64)


@dataclass(frozen=True)
class BlockFinding:
    """What is wrong with a block: offsets of its partition."""

    place: Place
    missing: npt.NDArray[np.int64] = field(default_factory=lambda: _NONE)
    extra: npt.NDArray[np.int64] = field(default_factory=lambda: _NONE)
    doubled: npt.NDArray[np.int64] = field(default_factory=lambda: _NONE)
    altered: npt.NDArray[np.int64] = field(default_factory=lambda: _NONE)
    missing_of: int = 0
    """So many rows of this block are missing, and it is not known which: `missing` are all that could be."""
    altered_somewhere: OffsetRun | None = None
    """Some row of these is altered, and without the log it is not known which."""

    @property
    def found(self) -> bool:
        named = len(self.missing) + len(self.extra) + len(self.doubled) + len(self.altered)
        return bool(named or self.altered_somewhere)


@dataclass(frozen=True)
class BlockOwed:
    """What is owed of a block."""

    place: Place
    landings: Sequence[Owed]
    """All of the topic's."""
    erased: Sequence[OffsetRun]
    rows: int | None
    """How many rows, by the ledger; none where it does not say by block."""
    free: Sequence[Range]
    """LSNs whose offsets are not known: their rows are neither missing nor extra."""


def compare_block(
    owed: BlockOwed,
    table: BlockRows,
    *,
    log: Sequence[tuple[BlockRows, BlockRows]] = (),
    witnessed: Sequence[Owed] = (),
    strays: npt.NDArray[np.int64] = _NONE,
    differs: bool = False,
) -> BlockFinding:
    """The findings of a block.  `log` is, for columns of one kind after the other, what the table and what the log has;
    `witnessed` are the landings that the log speaks for; `strays` are offsets of rows with an LSN of no landing;
    `differs`: the digest is not what is owed."""
    base = owed.place[1] << BLOCK_BITS
    spoken = {each.range for each in witnessed}
    expected = _mask(owed.place, (run for each in owed.landings if each.range not in spoken for run in each.offsets))
    for _, rows in log:
        expected[rows.offsets - base] = True
    expected &= ~_mask(owed.place, owed.erased)
    counts = np.bincount(table.offsets - base, minlength=BLOCK_ROWS)
    free = within(table.lsns, sorted(owed.free))
    judged = np.bincount(table.offsets[~free] - base, minlength=BLOCK_ROWS)
    missing = expected & (counts == 0)
    altered = np.zeros(BLOCK_ROWS, bool)
    for rows, said in log:
        altered |= _altered(rows, said, base, counts)
    stray = np.bincount(strays - base, minlength=BLOCK_ROWS)
    # A row with an LSN of no landing stands for the one that is owed if that is not there, and is one too many else.
    changed = expected & (counts == 1) & (stray == 1)
    altered |= changed
    absent = 0
    if owed.rows is not None and owed.rows < int(expected.sum()):
        absent = max(owed.rows - int((expected & (counts > 0)).sum()), 0)
        missing &= absent > 0
    finding = BlockFinding(
        owed.place,
        missing=_offsets(missing, base),
        extra=_offsets((~expected & (judged > 0)) | ((stray > 0) & ~changed), base),
        doubled=_offsets(counts - stray > 1, base),
        altered=_offsets(altered, base),
        missing_of=absent,
    )
    if differs and not finding.found and not _all_spoken_for(owed, spoken):
        places = np.flatnonzero(expected | (counts > 0))
        return BlockFinding(
            owed.place, altered_somewhere=(owed.place[0], base + int(places[0]), base + int(places[-1]))
        )
    return finding


def _altered(rows: BlockRows, said: BlockRows, base: int, counts: npt.NDArray[np.int64]) -> Mask:
    """Offsets whose row in the table has another word than in the log."""
    assert rows.words is not None and said.words is not None
    words = np.zeros(BLOCK_ROWS, np.uint64)
    words[rows.offsets - base] = rows.words
    found = np.zeros(BLOCK_ROWS, bool)
    places = said.offsets - base
    found[places] = words[places] != said.words
    found &= counts == 1
    return found


def _all_spoken_for(owed: BlockOwed, spoken: set[Range]) -> bool:
    """Whether the log had every row of the block: then what differs is not the table."""
    first, last = owed.place[1] << BLOCK_BITS, ((owed.place[1] + 1) << BLOCK_BITS) - 1
    speaks = [
        each.range in spoken
        for each in owed.landings
        for partition, run_first, run_last in each.offsets
        if partition == owed.place[0] and run_first <= last and run_last >= first
    ]
    return bool(speaks) and all(speaks)


def _mask(place: Place, runs: Iterable[OffsetRun]) -> Mask:
    partition, number = place
    base = number << BLOCK_BITS
    found = np.zeros(BLOCK_ROWS, bool)
    for of, first, last in runs:
        if of == partition and first < base + BLOCK_ROWS and last >= base:
            found[max(first - base, 0) : last - base + 1] = True
    return found


def _offsets(mask: Mask, base: int) -> npt.NDArray[np.int64]:
    return np.flatnonzero(mask) + base


def runs_of(offsets: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Sorted offsets as runs from a first to a last."""
    if not len(offsets):
        return []
    breaks = np.flatnonzero(np.diff(offsets) > 1)
    firsts = offsets[np.append(0, breaks + 1)]
    lasts = offsets[np.append(breaks, len(offsets) - 1)]
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))
