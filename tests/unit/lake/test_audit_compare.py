"""One block, offset by offset."""

from __future__ import annotations

import numpy as np

from headwater.lake.audit_compare import BlockOwed, compare_block, runs_of
from headwater.lake.audit_measure import BlockRows, joined
from headwater.lake.audit_plan import Owed


def rows(*offsets: int, lsn: int = 1) -> BlockRows:
    return BlockRows(np.full(len(offsets), lsn), np.array(offsets, np.int64), np.array(offsets, np.uint64))


def landing(first: int, last: int, lsn_to: int = 1) -> Owed:
    return Owed(lsn_to - 1, lsn_to, last - first + 1, 0, None, (), ((0, first, last),))


def owed(*landings: Owed, count: int | None = None, free: tuple[tuple[int, int], ...] = ()) -> BlockOwed:
    return BlockOwed((0, 0), landings, (), count, free)


def test_where_rows_were_compacted_away_before_they_landed_the_count_is_told() -> None:
    """Seven of ten offsets landed, and nobody knows which."""
    whole = compare_block(owed(landing(0, 9), count=7), rows(0, 1, 2, 3, 4, 5, 9))
    less = compare_block(owed(landing(0, 9), count=7), rows(0, 1, 2, 3, 9))

    assert not whole.found
    assert less.missing_of == 2 and less.missing.tolist() == [4, 5, 6, 7, 8]


def test_rows_of_lsns_whose_offsets_nobody_knows_are_neither_missing_nor_extra() -> None:
    found = compare_block(owed(landing(0, 1), free=((5, 6),)), joined([rows(0, 1), rows(7, 8, lsn=6)]))

    assert not found.found
    assert compare_block(owed(landing(0, 1)), joined([rows(0, 1), rows(7, lsn=6)])).extra.tolist() == [7]


def test_a_block_that_differs_and_that_the_log_does_not_speak_for_is_altered_somewhere() -> None:
    first, second = landing(0, 2), landing(3, 5, lsn_to=2)
    said = [(rows(0, 1, 2, 3, 4, 5), rows(0, 1, 2))]

    half = compare_block(owed(first, second), rows(0, 1, 2, 3, 4, 5), log=said, witnessed=[first], differs=True)
    whole = compare_block(owed(first), rows(0, 1, 2), log=said, witnessed=[first], differs=True)

    assert half.altered_somewhere == (0, 0, 5) and half.found
    assert not whole.found, "what differs is not the table"


def test_offsets_as_runs() -> None:
    assert runs_of(np.array([1, 2, 3, 7, 9, 10])) == [(1, 3), (7, 7), (9, 10)]
    assert runs_of(np.array([], np.int64)) == []
