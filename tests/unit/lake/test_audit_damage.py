"""Damage of every kind, put by hand into a table, its ledger or its log: an audit finds each and names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.lake.audit_measure import arrow_columns
from headwater.lake.audit_report import TopicAudit
from headwater.lake.digest import digest_of
from headwater.lake.ledger_records import Erased, ErasedPart, Landed, LedgerRecord
from headwater.lake.mark import Mark, mark_in_summary
from headwater.lake.work import Block, Column, Digest
from tests.unit.lake.audited_lakes import (
    AuditedLake,
    audited_lakes,
    of_lsn,
    ranges,
    twice,
    with_value,
    without,
)
from tests.unit.lake.small_lakes import of_kind


@pytest.fixture(params=["with the log", "without the log"])
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[AuditedLake]:
    """Three landings: offsets 0..4 and 5..7 of partition 0, then 0..3 of partition 1."""
    for lake in audited_lakes(tmp_path):
        lake.orders(partitions=2)
        lake.land(5, 3)
        lake.land(4, partition=1)
        lake.forgetful = request.param == "without the log"
        assert lake.audit().passed
        yield lake


def named(told: TopicAudit) -> dict[str, dict[int, tuple[tuple[int, int], ...]]]:
    """Everything that is named by offset."""
    kinds = ("missing", "extra", "doubled", "altered", "altered_blocks")
    return {kind: found for kind in kinds if (found := ranges(told.offsets(kind)))}


def altered(lake: AuditedLake, partition: int, offset: int, block: tuple[int, int]) -> dict[str, Any]:
    """A row that is altered: by its offset where the log can say which it is, else by its block."""
    if lake.forgetful:
        return {"altered_blocks": {partition: (block,)}}
    return {"altered": {partition: ((offset, offset),)}}


def test_a_row_that_is_gone_is_missing(lake: AuditedLake) -> None:
    lake.change(without(6))

    told = lake.audit()

    assert named(told) == {"missing": {0: ((6, 6),)}} and told.differences == 1
    assert bool(told.notes) == lake.forgetful, "whether others are altered too, only the log could tell"
    assert (told.rows, told.owed, told.cause, told.findings) == (11, 12, "", ())


def test_a_row_that_is_there_twice_is_doubled(lake: AuditedLake) -> None:
    lake.change(twice(9))

    assert named(lake.audit()) == {"doubled": {1: ((1, 1),)}}


def test_a_row_with_another_value_is_altered(lake: AuditedLake) -> None:
    lake.change(with_value("name", 2, "another"))

    assert named(lake.audit()) == altered(lake, 0, 2, (0, 7))


def test_a_null_in_place_of_a_value_is_altered(lake: AuditedLake) -> None:
    lake.change(with_value("price", 10, None))

    assert named(lake.audit()) == altered(lake, 1, 2, (0, 3))


def test_an_empty_list_in_place_of_none_is_altered(lake: AuditedLake) -> None:
    lake.change(with_value("tags", 0, []))

    assert named(lake.audit()) == altered(lake, 0, 0, (0, 7))


def test_a_row_in_the_wrong_partition_is_missing_in_one_and_extra_in_the_other(lake: AuditedLake) -> None:
    lake.change(with_value("_hw_partition", 7, 1))

    assert named(lake.audit()) == {"missing": {0: ((7, 7),)}, "extra": {1: ((7, 7),)}}


def test_a_row_in_a_partition_that_the_topic_does_not_have_is_extra(lake: AuditedLake) -> None:
    lake.change(with_value("_hw_partition", 7, 9))

    assert named(lake.audit()) == {"missing": {0: ((7, 7),)}, "extra": {9: ((7, 7),)}}


def test_a_row_with_the_lsn_of_another_landing_is_altered(lake: AuditedLake) -> None:
    lake.change(with_value("_hw_lsn", 2, lake.rows()["_hw_lsn"][5].as_py()))

    assert named(lake.audit()) == altered(lake, 0, 2, (0, 7))


def test_a_row_with_an_lsn_of_no_landing_is_altered(lake: AuditedLake) -> None:
    """It is named without the log: nobody else has such an LSN."""
    lake.change(with_value("_hw_lsn", 2, 1_000))

    assert named(lake.audit()) == {"altered": {0: ((2, 2),)}}


def test_a_landing_that_was_repeated_doubles_its_rows(lake: AuditedLake) -> None:
    rows = lake.rows()
    landing = of_lsn([rows["_hw_lsn"][5].as_py()])(rows)
    with lake.native() as table:
        table.append(landing)

    assert named(lake.audit()) == {"doubled": {0: ((5, 7),)}}


def test_a_landing_that_was_skipped_is_missing(lake: AuditedLake) -> None:
    second = lake.rows()["_hw_lsn"][5].as_py()
    lake.change(lambda rows: of_lsn([lsn for lsn in rows["_hw_lsn"].to_pylist() if lsn != second])(rows))

    assert named(lake.audit()) == {"missing": {0: ((5, 7),)}}


def test_a_range_that_no_landing_had_is_told_and_its_offsets_are_missing(lake: AuditedLake) -> None:
    """The lander passed over it: neither the table nor the ledger has ever had it."""
    lake.land(2)
    second, fourth = (lake.rows()["_hw_lsn"][place].as_py() for place in (5, 13))
    lake.change(lambda rows: of_lsn([lsn for lsn in rows["_hw_lsn"].to_pylist() if lsn != second])(rows))
    lake.expire_all_but_head()
    lake.rewrite_ledger(lambda record: not (isinstance(record, Landed) and record.lsn_to == second))
    assert fourth > second

    told = lake.audit()

    assert named(told) == {"missing": {0: ((5, 7),)}}
    [hole] = told.findings
    assert f"up to lsn {second} are in no landing" in hole


def test_a_foreign_row_is_extra(lake: AuditedLake) -> None:
    lake.change(lambda rows: pa.concat_tables([rows, with_value("_hw_lsn", 0, 0)(rows.slice(0, 1))]))

    assert named(lake.audit()) == {"extra": {0: ((0, 0),)}}


def test_a_row_above_the_landed_lsn_is_extra(lake: AuditedLake) -> None:
    def change(rows: pa.Table) -> pa.Table:
        newer = with_value("_hw_offset", 0, 70_000)(with_value("_hw_lsn", 0, 999)(rows.slice(0, 1)))
        return pa.concat_tables([rows, newer])

    lake.change(change)

    assert named(lake.audit()) == {"extra": {0: ((70_000, 70_000),)}}


def test_a_row_that_its_owner_erased_and_that_a_compaction_brought_back_is_extra(lake: AuditedLake) -> None:
    rows = lake.rows()
    lake.change(without(3))
    erase(lake, rows, 3)
    assert lake.audit().passed and lake.audit().erased == 1

    lake.change(lambda _: rows)

    assert named(lake.audit()) == {"extra": {0: ((3, 3),)}}


def erase(lake: AuditedLake, rows: pa.Table, place: int, done: tuple[str, ...] = ("table",), number: int = 0) -> None:
    """The receipt of an erasure of one row."""
    [landed] = [each for each in of_kind(lake, Landed) if each.lsn_from < rows["_hw_lsn"][place].as_py() <= each.lsn_to]
    with lake.native() as table:
        names = {field.field_id: field.name for field in table.schema().fields}
    columns = [Column(each.field_id, names[each.field_id], each.type) for each in landed.columns]
    row = rows.slice(place, 1).select([column.name for column in columns]).cast(arrow_columns(columns))
    partition, offset = row["_hw_partition"][0].as_py(), row["_hw_offset"][0].as_py()
    lake.ledger.record(
        [
            Erased(
                topic_id=landed.topic_id,
                topic="orders",
                table=landed.table,
                erasure_id=f"e{number}",
                reason="asked to",
                condition_hash="",
                lsn_to=landed.lsn_to,
                rows=1,
                offsets=((partition, offset, offset),),
                parts=(ErasedPart(columns=landed.columns, digest=digest_of(row)),),
                done=done,
                at_us=1,
            )
        ]
    )


def test_a_data_file_that_is_lost_is_named_with_its_landings_and_its_rows_are_missing(lake: AuditedLake) -> None:
    landings = {each.lsn_to: each.commit_id for each in of_kind(lake, Landed)}
    lost = next(path for path in lake.files() if landings[lake.rows()["_hw_lsn"][5].as_py()] in path.name)
    lost.unlink()

    told = lake.audit()

    [file] = told.lost_files
    assert file.path.endswith(lost.name) and file.rows == 3 and len(file.landings) == 1
    assert file.landings[0] in lost.name
    assert named(told) == {"missing": {0: ((5, 7),)}}
    assert not lake.audit(full=False).passed, "also where no snapshot has changed"


def test_a_data_file_that_was_written_over_is_altered(lake: AuditedLake) -> None:
    """Its manifest knows nothing of it: only who reads the rows does."""
    path = max(lake.files(), key=lambda each: pq.read_metadata(each).num_rows)
    stored = pq.read_table(path)
    changed = with_value("x", 1, 77)(stored)
    pq.write_table(changed, path)

    assert named(lake.audit()) == altered(lake, 0, 1, (0, 7))


def test_a_table_that_was_rolled_back_lacks_what_landed_since(lake: AuditedLake) -> None:
    first = next(each.snapshot for each in of_kind(lake, Landed))
    lake.rollback(first)

    told = lake.audit()

    assert named(told) == {"missing": {0: ((5, 7),), 1: ((0, 3),)}}
    [rolled_back] = told.findings
    assert "it was rolled back or replaced" in rolled_back


def test_a_table_that_is_gone_is_halted(lake: AuditedLake) -> None:
    lake.drop()

    told = lake.audit()

    assert (told.cause, told.passed) == ("gap", False) and "with 12 rows" in told.message


def test_a_table_that_was_made_anew_lacks_everything(lake: AuditedLake) -> None:
    with lake.native() as table:
        schema, properties = table.schema(), table.properties
    lake.drop()
    with lake.place.connect().catalog as catalog:
        catalog.create_table("lake.orders", schema, properties=properties)

    told = lake.audit()

    assert named(told) == {"missing": {0: ((0, 7),), 1: ((0, 3),)}}
    assert any("another table" in each for each in told.findings)


def test_a_column_that_names_rows_is_needed(lake: AuditedLake) -> None:
    with lake.native() as table, table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("_hw_offset")

    told = lake.audit()

    assert told.cause == "schema" and "_hw_offset" in told.message


# The ledger ----------------------------------------------------------------------------------------------------------


def alter_ledger(lake: AuditedLake, change: Callable[[Landed], Landed], number: int = 1) -> None:
    """Write one of its landings otherwise."""
    records = lake.records()
    landed = [each for each in records if isinstance(each, Landed)]
    lake.rewrite_ledger(lambda _: False)
    changed: list[LedgerRecord] = [change(each) if each is landed[number] else each for each in records]
    lake.ledger.record(changed)


def test_a_total_that_was_altered_in_the_ledger_is_told_as_the_ledgers(lake: AuditedLake) -> None:
    alter_ledger(lake, lambda landed: msgspec.structs.replace(landed, total="0" * 16))

    told = lake.audit()

    assert any(each.startswith("ledger: it says of the landing") for each in told.findings)


def test_a_block_that_was_altered_in_the_ledger_is_told_as_the_ledgers(lake: AuditedLake) -> None:
    def change(landed: Landed) -> Landed:
        assert landed.digest is not None
        return msgspec.structs.replace(landed, digest=Digest(tuple(Block(0, 0, 3, 7) for _ in landed.digest.blocks)))

    alter_ledger(lake, change)

    told = lake.audit()

    assert any("do not add up" in each for each in told.findings)
    if lake.forgetful:
        assert named(told) == {"altered_blocks": {0: ((0, 7),)}}, "the ledger against the table, and nobody else to ask"
    else:
        assert named(told) == {} and any("neither" in each for each in told.findings), "two against one"


def test_a_landing_that_was_taken_out_of_the_ledger_is_owed_by_its_mark(lake: AuditedLake) -> None:
    """Where the history still shows it, it is compared by its total; its offsets lie between its neighbours'."""
    second = of_kind(lake, Landed)[1]
    lake.rewrite_ledger(lambda record: record != second)
    assert lake.audit().passed

    lake.change(without(6))
    assert named(lake.audit()) == {"missing": {0: ((6, 6),)}} if not lake.forgetful else not lake.audit().passed


# The history ---------------------------------------------------------------------------------------------------------


def test_a_history_in_which_a_landing_does_not_follow_the_one_before_is_told(lake: AuditedLake) -> None:
    """Somebody's careless lander: it lands what is not next."""
    head = lake.state().head()
    assert head is not None
    mark = mark_in_summary(head.summary)
    assert mark is not None
    wrong = Mark(**{**_fields(mark), "lsn_from": mark.lsn_to + 5, "lsn_to": mark.lsn_to + 9, "commit_id": "c"})
    with lake.native() as table:
        table.append(lake.rows().slice(0, 0), snapshot_properties=wrong.summary())

    told = lake.audit()

    assert any(each.startswith("history: the landing c is of rows after") for each in told.findings)


def _fields(mark: Mark) -> dict[str, Any]:
    return {name: getattr(mark, name) for name in Mark.__dataclass_fields__}
