"""What the ledger says of erasures; and rows as runs of offsets."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headwater.lake.erasures import Era, combined, eras_of, erasures_of, unfinished
from headwater.lake.ledger_records import Erased, ErasedPart, Landed, LedgerRecord, Restored
from headwater.lake.offset_runs import OffsetRuns
from headwater.lake.work import Block, Column, Digest

PLACES = st.sets(st.tuples(st.integers(0, 2), st.integers(0, 12)))
COLUMNS = (Column(1, "id", "long"),)


def table_of(places: set[tuple[int, int]] | list[tuple[int, int]]) -> pa.Table:
    rows = list(places)
    return pa.table(
        {
            "_hw_partition": pa.array([row[0] for row in rows], pa.int32()),
            "_hw_offset": pa.array([row[1] for row in rows], pa.int64()),
        }
    )


def places_of(runs: OffsetRuns) -> set[tuple[int, int]]:
    return {(partition, each) for partition, first, last in runs.runs for each in range(first, last + 1)}


@given(PLACES, PLACES)
def test_runs_are_the_rows_that_they_were_made_from(some: set[tuple[int, int]], others: set[tuple[int, int]]) -> None:
    runs = OffsetRuns.of_rows(table_of(some))

    assert places_of(runs) == some and runs.rows == len(some) and bool(runs) == bool(some)
    assert runs == OffsetRuns.of([(partition, offset, offset) for partition, offset in some])
    assert places_of(runs | OffsetRuns.of_rows(table_of(others))) == some | others
    everywhere = [(partition, offset) for partition in range(4) for offset in range(14)]
    assert runs.holds(table_of(everywhere)).tolist() == [each in some for each in everywhere]
    assert runs.reach_into(3, 5) == any(3 <= offset <= 5 for _, offset in some)


def test_rows_of_no_topic_are_in_no_run() -> None:
    rows = pa.table({"_hw_partition": pa.array([None, 0], pa.int32()), "_hw_offset": pa.array([None, 4], pa.int64())})

    assert OffsetRuns.of_rows(rows).runs == ((0, 4, 4),)
    assert OffsetRuns(((0, 0, 9),)).holds(rows).tolist() == [False, True]


def receipt(erasure_id: str, *done: str, topic_id: str = "a") -> Erased:
    return Erased(
        topic_id=topic_id,
        topic="people",
        table="crm.people",
        erasure_id=erasure_id,
        reason="asked",
        condition_hash="",
        lsn_to=9,
        rows=1,
        offsets=((0, 1, 1),),
        parts=(),
        done=done,
        at_us=1,
    )


def test_of_an_erasure_the_last_record_counts() -> None:
    records: list[LedgerRecord] = [
        receipt("one"),
        receipt("two"),
        receipt("one", "table"),
        receipt("other", topic_id="b"),
        receipt("one", "table", "log"),
    ]

    found = erasures_of(records, "a")

    assert [(each.erasure_id, each.done) for each in found] == [("one", ("table", "log")), ("two", ())]
    assert [each.erasure_id for each in unfinished(found, ("log", "table"))] == ["two"]


def test_rows_landed_by_landings_or_were_taken_over_with_a_table() -> None:
    landed = Landed(
        topic_id="a",
        topic="people",
        table="crm.people",
        table_uuid="u",
        commit_id="c",
        snapshot=7,
        lsn_from=3,
        lsn_to=5,
        rows=2,
        digest=None,
        total="",
        columns=COLUMNS,
        max_row_lsn=5,
        epoch=1,
        at_us=1,
    )
    restored = Restored(
        topic_id="a",
        topic="people",
        table="crm.people",
        table_uuid="u",
        log_id_before="l",
        snapshot=6,
        lsn_before=2,
        lsn_to=3,
        rows=1,
        digest=None,
        columns=(),
        at_us=1,
    )

    assert eras_of([restored, landed, receipt("one")], "a") == [Era(0, 3, 6, ()), Era(3, 5, 7, COLUMNS)]
    assert eras_of([restored, landed], "b") == []


def test_parts_of_the_same_columns_become_one() -> None:
    one = ErasedPart(columns=COLUMNS, digest=Digest((Block(0, 0, 1, 5),)))
    two = ErasedPart(columns=(), digest=Digest((Block(0, 0, 1, 7),)))
    three = ErasedPart(columns=COLUMNS, digest=Digest((Block(0, 0, 2, 6), Block(1, 0, 1, 1))))

    assert combined([one, two, three]) == (
        ErasedPart(columns=COLUMNS, digest=Digest((Block(0, 0, 3, 11), Block(1, 0, 1, 1)))),
        two,
    )
