"""Erasure over a real log, a real SQLite catalog and real Parquet files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import InvalidRequest, LogLocked
from headwater.lake.stamping import own_standing
from headwater.lake.work import Block, Digest
from tests.unit.lake.delete_files import add_delete_file
from tests.unit.lake.erasable_lakes import SETTINGS, Erasable, people
from tests.unit.lake.erased_balance import check_landings_join, expected_less_erased, held

MARKED = "marked-7f3a9c"
OTHERS = ["ann", "bob", "cleo", "dan", "first"]


# What goes and what stays ------------------------------------------------------------------------


def test_after_an_erasure_no_file_holds_the_value_and_all_other_rows_are_there(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED, "bob")
        lake.land("cleo", MARKED)
        lake.append("dan", MARKED)
        kinds = {path.partition("/")[0] + Path(path).suffix for path in lake.files_with(MARKED)}
        assert {"log.seg", "lake.parquet", "lake.avro"} <= kinds

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "complete"
        assert lake.files_with(MARKED) == []
        assert lake.names() == lake.logged() == OTHERS
        assert (report.rows, report.offsets) == (3, ((0, 2, 2), (0, 5, 5), (0, 7, 7)))
        assert report.rewritten_files == 3 and report.expired_snapshots and report.removed_files
        assert str(report).startswith("people: 3 rows erased; 3 data files and 1 segment made again, ")
        assert lake.log["people"].scan(columns=["name"]).count() == 5
        assert lake.log.audit("people", full=True).passed


def test_the_receipt_says_what_the_audit_must_subtract_and_no_value(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED, "bob")
        lake.log["people"].alter(schema={"id": int, "name": str, "age": int | None})
        lake.log["people"].append([{"id": 7, "name": MARKED, "age": 30}, {"id": 8, "name": "cleo", "age": None}])
        assert expected_less_erased(lake) != {}

        report = lake.erase(f"name = '{MARKED}'", "request 12")

        [receipt] = lake.receipts()
        assert receipt.erasure_id == report.erasure_id
        assert (receipt.topic, receipt.table, receipt.reason, receipt.rows) == ("people", "crm.people", "request 12", 2)
        assert receipt.done == ("table", "snapshots", "log")
        assert sorted(part.digest.rows for part in receipt.parts) == [1, 1]
        assert expected_less_erased(lake) == held(lake) and lake.log.audit("people", full=True).passed
        assert MARKED not in repr(receipt) and len(receipt.condition_hash) == 64


def test_the_landed_lsn_stays_and_the_table_is_landed_into_as_before(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        landed_lsn = lake.lake.ledger.state().topic(lake.record.topic_id.hex()).landed_lsn

        lake.erase(f"name = '{MARKED}'")

        standing = own_standing(lake.lake.place.connect(), lake.state(), lake.record.topic_id.hex())
        assert standing.landed_lsn == landed_lsn
        lake.land("bob")
        check_landings_join(lake)
        assert lake.names() == ["ann", "bob", "first"]


def test_the_mark_stays_proven_when_the_newest_rows_are_erased_and_every_old_snapshot_has_gone(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann")
        lake.land(MARKED)
        lake.erase(f"name = '{MARKED}'")
        table = lake.native()
        table.delete("name = 'first'")
        head = table.refresh().current_snapshot()
        gone = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != head.snapshot_id]
        table.maintenance.expire_snapshots().by_ids(gone).commit()

        lake.land("bob")

        assert lake.names() == ["ann", "bob"]


def test_a_second_call_finds_nothing_more_and_says_so(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        lake.erase(f"name = '{MARKED}'")
        snapshots = set(lake.state().snapshots)

        again = lake.erase(f"name = '{MARKED}'")

        assert (again.outcome, again.rows, again.erasure_id) == ("nothing", 0, "")
        assert str(again) == "people: no row to erase"
        assert set(lake.state().snapshots) == snapshots and len(lake.receipts()) == 1


def test_a_value_between_those_of_a_file_is_not_found_in_it(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", "cleo")

        assert lake.erase("name = 'bob'").outcome == "nothing"


def test_a_dry_run_says_what_would_go_and_changes_nothing(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        lake.append(MARKED)
        before = {path: path.read_bytes() for path in (tmp_path / "data" / "lake").rglob("*") if path.is_file()}

        report = lake.erase(f"name = '{MARKED}'", dry_run=True)

        assert (report.outcome, report.rows) == ("dry-run", 2)
        assert str(report) == "people: 2 rows would be erased"
        assert before == {path: path.read_bytes() for path in (tmp_path / "data" / "lake").rglob("*") if path.is_file()}
        assert lake.receipts() == [] and lake.logged() == ["ann", "first", MARKED, MARKED]


def test_a_condition_may_look_at_the_systems_columns(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", "bob", "cleo")

        report = lake.erase("_hw_partition = 0 and _hw_offset > 1 and _hw_shard < 9")

        assert report.outcome == "complete"
        assert lake.names() == lake.logged() == ["ann", "first"]


def test_a_column_that_the_table_does_not_have_yet_is_null_in_it(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann")
        lake.log["people"].alter(schema={"id": int, "name": str, "age": int | None})

        assert lake.erase("age = 3").outcome == "nothing"
        assert lake.erase("age is null and name = 'ann'").rows == 1
        assert lake.names() == lake.logged() == ["first"]


def test_a_cut_from_before_the_erasure_reads_without_the_erased_rows(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        lake.append("bob", MARKED)
        cut = lake.log.cut("people")
        lake.append("cleo")

        lake.erase(f"name = '{MARKED}'")

        names = lake.log["people"].scan(columns=["name"], as_of=cut).to_arrow()["name"].to_pylist()
        assert sorted(names) == ["ann", "bob", "first"]


# Where rows may lie ------------------------------------------------------------------------------


def test_a_topic_without_a_table_loses_them_in_its_log(tmp_path: Path) -> None:
    with people(tmp_path, table=None) as lake:
        lake.append("ann", MARKED)
        lake.append(MARKED)

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "complete" and report.rows == 2
        assert lake.logged() == ["ann"] and lake.files_with(MARKED) == []
        [receipt] = lake.receipts()
        assert (receipt.table, receipt.parts, receipt.done) == ("", (), ("log",))


def test_other_topics_in_the_same_segments_stay(tmp_path: Path) -> None:
    with people(tmp_path, table=None) as lake:
        lake.log.topic("others", schema={"name": str})
        lake.append("ann", MARKED)
        lake.log["others"].append([{"name": MARKED}])

        lake.erase(f"name = '{MARKED}'")

        assert lake.log["others"].read().to_pylist() == [{"name": MARKED}]
        assert lake.logged() == ["ann"]


def test_a_row_of_another_partition_with_the_same_offset_stays(tmp_path: Path) -> None:
    with people(tmp_path, table=None, partitions=2) as lake:
        topic = lake.log["people"]
        topic.append([{"id": 1, "name": "ann"}], partition=0)
        topic.append([{"id": 2, "name": MARKED}], partition=1)

        lake.erase(f"name = '{MARKED}'")

        assert lake.logged() == ["ann"] and lake.receipts()[0].offsets == ((1, 0, 0),)


def test_rows_that_were_erased_once_are_erased_again_from_frames_that_are_sparse(tmp_path: Path) -> None:
    with people(tmp_path, table=None) as lake:
        lake.append("ann", MARKED, "bob", "cleo")
        lake.erase(f"name = '{MARKED}'")

        lake.erase("name = 'bob'")

        assert lake.logged() == ["ann", "cleo"]
        rows = lake.log["people"].read(system_columns=True).to_arrow()
        assert rows["_hw_offset"].to_pylist() == [0, 3]


def test_rows_that_a_delete_file_hides_go_from_the_data_file_too(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land(MARKED, "ann")
        table = lake.native()
        table.delete("name = 'first'")
        add_delete_file(table.refresh())
        assert lake.names() == ["ann"] and any(path.endswith(".parquet") for path in lake.files_with(MARKED))

        report = lake.erase(f"name = '{MARKED}'")

        assert (report.outcome, report.rows) == ("complete", 1)
        assert lake.names() == ["ann"] and lake.files_with(MARKED) == []
        # Its owner had taken it out without a word: the receipt says that it was meant.
        assert [part.digest.rows for part in lake.receipts()[0].parts] == [1]


def test_rows_that_a_delete_file_hides_do_not_come_back_with_the_file_that_is_made_again(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land(MARKED, "ann", "bob")
        table = lake.native()
        table.delete("name = 'first'")
        add_delete_file(table.refresh(), place=1)

        lake.erase(f"name = '{MARKED}'")

        assert lake.names() == ["bob"]


def test_files_that_say_nothing_of_their_offsets_are_looked_into(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        with lake.native().transaction() as change:
            change.set_properties({"write.metadata.metrics.default": "none"})
        lake.land("ann", MARKED)

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "complete" and lake.names() == ["ann", "first"]
        assert lake.files_with(MARKED) == []


def test_a_row_that_its_owner_deleted_in_the_table_goes_from_the_log_and_from_what_manifests_say(
    tmp_path: Path,
) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        lake.native().delete(f"name = '{MARKED}'")
        assert lake.names() == ["ann", "first"]

        report = lake.erase(f"name = '{MARKED}'")

        assert (report.outcome, report.rows) == ("complete", 1)
        assert lake.files_with(MARKED) == [] and lake.names() == lake.logged() == ["ann", "first"]
        assert expected_less_erased(lake) == held(lake) and lake.log.audit("people", full=True).passed


def test_rows_of_a_landing_are_counted_where_the_tables_owner_has_dropped_one_of_its_columns(tmp_path: Path) -> None:
    with people(tmp_path) as lake:
        lake.land("ann", MARKED)
        with lake.native().update_schema(allow_incompatible_changes=True) as change:
            change.delete_column("id")
        table = lake.native()
        table.overwrite(table.scan().to_arrow())

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "complete" and lake.names() == ["ann", "first"]
        [part] = lake.receipts()[0].parts
        audit = lake.log.audit("people", full=True)
        assert audit.passed, audit
        assert part.digest == Digest((Block(0, 0, 1, 0),)) and "id" in [column.name for column in part.columns]


def test_rows_of_a_landing_before_a_column_was_widened_are_told_apart_from_later_ones_in_the_same_file(
    tmp_path: Path,
) -> None:
    with people(tmp_path, schema={"id": pa.int32(), "name": str}) as lake:
        lake.land("ann", MARKED)
        lake.log["people"].alter(widen={"id": pa.int64()})
        lake.land("bob", MARKED, ids=[2**40, 2**41])
        table = lake.native()
        table.overwrite(table.scan().to_arrow())

        report = lake.erase(f"name = '{MARKED}'")

        assert (report.outcome, report.rows) == ("complete", 2)
        assert all(part.digest.total for part in lake.receipts()[0].parts)
        assert len(lake.receipts()[0].parts) == 2 and lake.names() == ["ann", "bob", "first"]


def test_a_partitioned_table_keeps_its_partitions(tmp_path: Path) -> None:
    with people(tmp_path, partition_by=["id"]) as lake:
        lake.land("ann", MARKED, "bob", ids=[1, 1, 2])

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "complete" and report.rewritten_files == 1
        assert lake.files_with(MARKED) == []
        found = {task.file.partition[0] for task in lake.native().scan().plan_files()}
        assert found == {0, 1, 2} and lake.names() == ["ann", "bob", "first"]


def test_rows_that_were_in_the_table_before_the_topic_are_not_the_topics_to_erase(tmp_path: Path) -> None:
    with people(tmp_path, table=None) as lake:
        catalog = lake.lake.place.connect().catalog
        catalog.create_namespace("crm")
        rows = pa.table({"id": [9, 9], "name": [MARKED, "eve"]})
        catalog.create_table("crm.people", rows.schema).append(rows)
        lake.log["people"].alter(table="crm.people")
        lake.land("ann", MARKED)

        report = lake.erase(f"name = '{MARKED}'")

        assert report.outcome == "incomplete" and report.rows == 1
        assert report.left == ("1 rows that match were in the table before the topic: delete them there",)
        assert lake.names() == ["ann", "eve", MARKED]


# What is refused ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "reason", "message"),
    [("name = 'x'", "  ", "say why"), ("nome = 'x'", "asked", "cannot be used"), ("name =", "asked", "cannot be used")],
)
def test_an_erasure_needs_a_condition_on_columns_that_are_there_and_a_reason(
    tmp_path: Path, where: str, reason: str, message: str
) -> None:
    with people(tmp_path, table=None) as lake, pytest.raises(InvalidRequest, match=message):
        lake.erase(where, reason)


def test_more_runs_than_a_receipt_holds_are_refused_before_anything_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headwater.lake.erasing.RUNS_MAX", 1)
    with people(tmp_path, table=None) as lake:
        lake.append(MARKED, "ann", MARKED)

        with pytest.raises(InvalidRequest, match="2 separate runs"):
            lake.erase(f"name = '{MARKED}'")

        assert lake.receipts() == [] and lake.logged() == ["ann", MARKED, MARKED]


def test_only_the_owner_of_the_log_erases(tmp_path: Path) -> None:
    with people(tmp_path, table=None) as lake:
        lake.append(MARKED)
        with hw.open(lake.folder, settings=SETTINGS) as beside:
            other = Erasable(lake.folder, beside)

            with pytest.raises(LogLocked):
                other.erase(f"name = '{MARKED}'")
