"""A lost log from its lake: what is served again, what goes on, and what becomes of a restore that dies."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import Halted, InvalidRequest, LandingHalted, LogLocked, LostSegment, Unavailable
from headwater.lake import taking_over
from headwater.lake.from_lake import LSNS_APART, restore_log
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.ledger_records import Merged, Restored
from headwater.lake.restore_plan import PLAN, RestorePlan
from headwater.lake.shape import table_shape
from headwater.lake.tables import CommitRefused, CommitUncertain, Staged, TableShape
from headwater.lake.taking_over import TakingOver
from headwater.storage.disk import DiskFiles
from tests.unit.lake.lost_logs import PARTS, LostLog, orders_and_customers
from tests.unit.lake.small_lakes import SETTINGS
from tests.unit.topics.small_engines import engine_of

N = LSNS_APART


@pytest.fixture
def lost(tmp_path: Path) -> LostLog:
    found = LostLog(tmp_path)
    orders_and_customers(found)
    return found


def values(log: hw.Log, name: str = "orders", column: str = "x") -> list[Any]:
    return sorted(log[name].scan().to_arrow()[column].to_pylist())


# ------------------------------------------------------------------------------------------------- what comes back


def test_everything_that_had_landed_is_served_again_and_new_rows_come_after_it(lost: LostLog) -> None:
    with lost.open() as log:
        before = {topic.name: topic for topic in engine_of(log).metadata().topics.values()}
    lost.lose()

    report = lost.restore()

    assert [(topic.name, topic.rows, topic.next_offsets) for topic in report.topics] == [
        ("orders", 11, {0: 10, 1: 1}),
        ("customers", 3, {0: 3}),
    ]
    assert (report.first_lsn, report.continued, report.passed_over) == (N, False, {})
    with lost.open() as log:
        assert values(log) == list(range(11))
        assert values(log, "customers", "id") == [2]
        for name in ("orders", "customers"):
            topic = log._engine.topic(name)
            assert topic == before[name]
        told = log["orders"].append([{"x": 100}], partition=0)
        assert (told.offsets[0].first, told.lsn > N) == (10, True)
        log["customers"].upsert([{"id": 3, "name": "c"}])
        assert values(log) == [*range(11), 100]


def test_new_landings_go_on_where_the_tables_end(lost: LostLog) -> None:
    lost.lose()
    report = lost.restore()

    with lost.open() as log:
        log["orders"].append([{"x": 100}, {"x": 101}])
        log["customers"].upsert([{"id": 3, "name": "c"}])
        landed = lost.land(log)

        assert {each.topic: (each.outcome, each.verified) for each in landed} == {
            "orders": ("landed", True),
            "customers": ("landed", True),
        }
        assert values(log) == [*range(11), 100, 101]
        assert values(log, "customers", "id") == [2, 3]
    for table in ("lake.orders", "crm.customers_changes"):
        marks = lost.marks(table)
        assert all(later.lsn_from == earlier.lsn_to for earlier, later in pairwise(marks)), "L1"
        assert [mark.log_id == report.log_id for mark in marks] == [False, False, True, True]
        assert (marks[2].rows, marks[2].lsn_to, marks[2].chain) == (0, N - 1, "")


def test_the_ledger_begins_with_what_was_taken_over(lost: LostLog) -> None:
    lost.lose()

    report = lost.restore()

    records = lost.ledger()
    assert all(isinstance(record, Restored) for record in records)
    orders = next(record for record in records if isinstance(record, Restored) and record.topic == "orders")
    assert (orders.rows, orders.lsn_to, orders.log_id_before) == (11, N - 1, report.log_ids_before[0])
    assert orders.digest is not None and orders.digest.rows == 11
    assert [column.name for column in orders.columns][:2] == ["x", "_hw_shard"]
    assert orders.offsets == ((0, 0, 9), (1, 0, 0))
    assert orders.lsn_before == report.topics[0].landed_lsn
    with closing(lost.known()) as ledger:
        known = ledger.state().topic(orders.topic_id)
        assert (known.landed_lsn, known.verified_lsn) == (N - 1, N - 1)


def test_an_audit_compares_with_what_the_tables_held_when_they_were_taken_over(lost: LostLog) -> None:
    with closing(lost.tables()) as tables:
        # Before the loss, by its owner: a restored log does not miss it.
        tables.catalog.load_table("lake.orders").delete("x == 4")
    lost.lose()
    report = lost.restore()
    assert (report.topics[0].rows, report.topics[0].next_offsets) == (10, {0: 10, 1: 1})

    with lost.open() as log:
        log["orders"].append([{"x": 100}], partition=0)
        lost.land(log)
        assert [(each.topic, each.passed) for each in log.audit(full=True).topics] == [
            ("customers", True),
            ("orders", True),
        ]
        with closing(lost.tables()) as tables:
            tables.catalog.load_table("lake.orders").delete("x == 7")
        found = log.audit("orders", full=True)

    assert not found.passed
    assert "7" in str(found)


def test_a_restored_log_that_is_lost_again_is_restored_again(lost: LostLog) -> None:
    lost.lose()
    lost.restore()
    with lost.open() as log:
        log["orders"].append([{"x": 100}], partition=0)
        lost.land(log)
    lost.lose()

    report = lost.restore()

    assert report.first_lsn == 2 * N
    assert len(report.log_ids_before) == 2
    with lost.open() as log:
        assert values(log) == [*range(11), 100]
        assert log["orders"].append([{"x": 101}], partition=0).offsets[0].first == 11


def test_a_restored_log_that_is_lost_before_it_landed_anything_gives_no_lsn_out_again(lost: LostLog) -> None:
    lost.lose()
    lost.restore()
    with lost.open() as log:
        assert N < log["orders"].append([{"x": 100}]).lsn < 2 * N
    lost.lose()

    assert lost.restore().first_lsn == 2 * N


def test_the_state_of_a_keyed_topic_is_taken_over_at_its_own_lsn(lost: LostLog) -> None:
    from headwater.lake.merging import Merging

    def merge(log: hw.Log) -> None:
        """What Spark would do, for changes that are all of new keys."""
        assert log._lake is not None
        topic = log._engine.topic("customers")
        merging = Merging(lost.place.connect, log._lake.ledger, clock=lost.clock, entropy=lost.entropy)
        plan = merging.begin(topic, "copy-on-write")
        assert plan is not None
        merging.branch(plan, "copy-on-write")
        with closing(lost.tables()) as tables:
            between = f"_hw_lsn > {plan.lsn_from} and _hw_lsn <= {plan.lsn_to}"
            rows = tables.catalog.load_table(plan.changes).scan(between).to_arrow()
            mark = plan.mark(rows.num_rows, max(rows["_hw_lsn"].to_pylist()))
            state = tables.catalog.load_table(plan.table)
            state.append(rows.select(plan.columns), snapshot_properties=mark.summary(), branch=plan.branch)
        merging.finish(plan, mark)

    with lost.open() as log:
        log.topic("keys", schema={"id": int}, key="id", table="crm.keys").upsert([{"id": 7}])
        log["customers"].upsert([{"id": 8, "name": "h"}])
        lost.land(log)
        merge(log)
    merged_lsn = lost.marks("crm.customers")[-1].lsn_to
    lost.lose()

    report = lost.restore()

    customers = next(topic for topic in report.topics if topic.name == "customers")
    assert customers.state_table == "crm.customers"
    stamp = lost.marks("crm.customers")[-1]
    assert (stamp.log_id, stamp.lsn_from, stamp.lsn_to) == (report.log_id, merged_lsn, merged_lsn)
    (merged,) = [record for record in lost.ledger() if isinstance(record, Merged)]
    assert (merged.table, merged.lsn_to) == ("crm.customers", merged_lsn)
    with lost.open() as log:
        log["customers"].upsert([{"id": 9, "name": "i"}])
        lost.land(log, "customers")
        merge(log)
        assert lost.marks("crm.customers")[-1].lsn_from == merged_lsn
        assert 9 in values(log, "customers", "id")


def test_named_groups_read_on_after_what_has_landed(lost: LostLog) -> None:
    lost.lose()

    lost.restore(groups=["billing", "billing"])

    with lost.open() as log:
        log["orders"].append([{"x": 100}], partition=0)
        with log.consumer("orders", group="billing", timeout_s=0.01) as consumer:
            assert [row["x"] for batch in consumer for row in batch.to_pylist()] == [100]


def test_rows_of_an_owner_are_no_rows_of_the_log(lost: LostLog) -> None:
    with closing(lost.tables()) as tables:
        table = tables.catalog.load_table("lake.orders")
        row = table.scan(row_filter="x == 0").to_arrow()
        names = row.column_names
        zero = row.set_column(names.index("_hw_lsn"), row.schema.field("_hw_lsn"), [[0]])
        table.append(zero.set_column(names.index("_hw_offset"), row.schema.field("_hw_offset"), [[99]]))
    lost.lose()

    report = lost.restore()

    assert (report.topics[0].rows, report.topics[0].next_offsets) == (11, {0: 10, 1: 1})


def test_tables_that_no_log_has_landed_in_are_left_alone(lost: LostLog) -> None:
    with lost.open() as log:
        log.restore("orders", as_of=hw.Lsn(log._engine.durable_lsn()), to="lake.copy")
    before = lost.state("lake.copy")
    lost.lose()

    report = lost.restore()

    assert (len(report.topics), report.passed_over) == (2, {})
    assert lost.state("lake.copy") == before


def test_every_schema_version_comes_back(lost: LostLog) -> None:
    with lost.open() as log:
        log["orders"].alter(schema={"x": int, "note": str | None})
        log["orders"].append([{"x": 20, "note": "new"}], partition=0)
        lost.land(log)
    lost.lose()

    report = lost.restore()

    assert report.topics[0].schema_versions == 2
    with lost.open() as log:
        assert {row["x"]: row["note"] for row in log["orders"].scan().to_pylist()}[20] == "new"


def test_a_topic_gets_as_many_partitions_as_its_rows_have(lost: LostLog) -> None:
    # An owner has moved a row to a partition that the topic does not have.
    with closing(lost.tables()) as tables:
        table = tables.catalog.load_table("lake.orders")
        row = table.scan(row_filter="x == 0").to_arrow()
        place = row.column_names.index("_hw_partition")
        table.append(row.set_column(place, row.schema.field("_hw_partition"), pa.array([4], pa.int32())))
    lost.lose()

    report = lost.restore()

    assert (report.rows, report.topics[0].partitions, report.topics[0].next_offsets[4]) == (15, 5, 1)


def test_topic_numbers_that_were_given_out_are_not_given_out_again(lost: LostLog) -> None:
    with lost.open() as log:
        log.delete_topic("customers", force=True)
        late = log.topic("late", schema={"x": int}, table="lake.late")
        late.append([{"x": 1}])
        lost.land(log)
        number = log._engine.topic("late").number
    with closing(lost.tables()) as tables:
        tables.catalog.drop_table("crm.customers_changes")
    lost.lose()

    lost.restore()

    with lost.open() as log:
        assert log._engine.topic("late").number == number
        log.topic("new", schema={"x": int})
        assert log._engine.topic("new").number == number + 1


# ------------------------------------------------------------------------------------------------------ which log


def test_several_logs_in_one_catalog_are_told_apart_by_name(lost: LostLog, tmp_path: Path) -> None:
    with lost.open(tmp_path / "other") as log:
        log.topic("others", schema={"x": int}, table="other.others").append([{"x": 1}])
        lost.land(log)
    own = lost.marks("lake.orders")[0].log_id
    other = lost.marks("other.others")[0].log_id
    lost.lose()

    with pytest.raises(InvalidRequest, match="--log-id") as refused:
        lost.restore()
    assert own in str(refused.value) and other in str(refused.value) and "other.others" in str(refused.value)
    with pytest.raises(InvalidRequest, match="no table of the catalog bears a mark of the log"):
        lost.restore(log_id="00")
    assert [topic.name for topic in lost.restore(log_id=own, dry_run=True).topics] == ["orders", "customers"]
    assert [topic.name for topic in lost.restore(namespaces=["other"], dry_run=True).topics] == ["others"]

    lost.restore(log_id=own)

    assert lost.marks("other.others")[-1].log_id == other


def test_a_catalog_without_a_landing_has_nothing_to_restore_from(tmp_path: Path) -> None:
    empty = LostLog(tmp_path)
    with closing(empty.tables()) as tables:
        tables.catalog.create_namespace("lake.deep")

    with pytest.raises(InvalidRequest, match="nothing to restore from"):
        empty.restore()
    with pytest.raises(Unavailable, match="cannot be listed"):
        empty.restore(namespaces=["nowhere"])


def test_tables_that_bring_no_topic_back_are_named(lost: LostLog) -> None:
    with lost.open() as log:
        for name in ("silent", "renamed", "replaced"):
            log.topic(name, schema={"x": int}, table=f"lake.{name}").append([{"x": 1}])
        lost.land(log)
        log.delete_topic("replaced")
        log.topic("replaced", schema={"x": int}, table="lake.replacing").append([{"x": 2}])
        log.topic("emptied", schema={"x": int}, table="lake.emptied").append([{"x": 1}])
        last = log._engine.topic("emptied").number
        lost.land(log)
    lost.change_properties("lake.silent", topic=None)
    with closing(lost.tables()) as tables:
        tables.catalog.rename_table("lake.renamed", "lake.other")
        emptied = tables.catalog.load_table("lake.emptied")
        properties = {"headwater.topic": emptied.properties["headwater.topic"]}
        properties["headwater.landed.main"] = emptied.properties["headwater.landed.main"]
        tables.catalog.drop_table("lake.emptied")
        tables.catalog.create_table("lake.emptied", emptied.schema(), properties=properties)
    lost.lose()

    report = lost.restore()

    assert {table: why.split(":")[0] for table, why in report.passed_over.items()} == {
        "lake.silent": "it does not say of which topic it is",
        "lake.other": "it says that it is 'lake.renamed'",
        "lake.replaced": "a later topic has the name of its own, 'replaced'",
        "lake.emptied": "nothing is landed in it any more",
    }
    assert next(topic.table for topic in report.topics if topic.name == "replaced") == "lake.replacing"
    with lost.open() as log:
        log.topic("new", schema={"x": int})
        assert log._engine.topic("new").number == last + 1, "also a number that only they know is not given out again"


def test_a_state_table_without_its_changes_brings_no_topic_back(lost: LostLog) -> None:
    with closing(lost.tables()) as tables:
        tables.catalog.rename_table("crm.customers_changes", "crm.customers")
        tables.catalog.drop_table("lake.orders")
    lost.lose()

    with pytest.raises(InvalidRequest, match=r"its changes, 'crm\.customers_changes', are not there"):
        lost.restore()


def test_a_number_that_two_topics_have_is_given_anew(lost: LostLog) -> None:
    lost.lose()
    lost.restore(namespaces=["lake"])
    with lost.open() as log:
        # The number of customers, of which this log knows nothing.
        log.topic("others", schema={"x": int}, table="lake.others").append([{"x": 1}])
        assert log._engine.topic("others").number == 2
        lost.land(log)
    lost.lose()

    report = lost.restore()

    assert sorted(topic.name for topic in report.topics) == ["customers", "orders", "others"]
    with lost.open() as log:
        assert len({topic.number for topic in engine_of(log).metadata().topics.values()}) == 3
        assert values(log, "others") == [1]


def unproven(lost: LostLog, name: str) -> None:
    """The property is of another history than the rows show, and the table's own snapshots are gone."""
    with closing(lost.tables()) as tables:
        table = tables.catalog.load_table(name)
        old = table.properties["headwater.landed.main"].replace('"max-row-lsn": ', '"max-row-lsn": 9')
        table.append(table.scan().to_arrow())
        table = tables.catalog.load_table(name)
        head = table.current_snapshot()
        assert head is not None
        gone = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != head.snapshot_id]
        table.maintenance.expire_snapshots().by_ids(gone).commit()
    lost.change_properties(name, **{"landed.main": old})


def test_a_table_whose_mark_cannot_be_told_halts_the_restore_of_its_own_log_alone(
    lost: LostLog, tmp_path: Path
) -> None:
    with lost.open(tmp_path / "other") as log:
        log.topic("others", schema={"x": int}, table="other.others").append([{"x": 1}])
        lost.land(log)
    own = lost.marks("lake.orders")[0].log_id
    unproven(lost, "other.others")
    lost.lose()

    with pytest.raises(LandingHalted, match=r"other\.others"):
        lost.restore(namespaces=["other"])

    assert lost.restore(log_id=own).rows == 14


# ------------------------------------------------------------------------------------------------------- refusals


def test_a_directory_that_holds_a_log_is_refused(lost: LostLog) -> None:
    with pytest.raises(InvalidRequest, match="holds a log, or what is left of one"):
        lost.restore()

    assert not (lost.folder / PLAN).exists()


def test_a_dry_run_makes_nothing_and_touches_no_table(lost: LostLog) -> None:
    lost.lose()
    before = lost.marks("lake.orders")

    report = lost.restore(dry_run=True)

    assert report.dry_run and [topic.rows for topic in report.topics] == [None, None]
    assert str(report).startswith("Would restore orders, customers: ")
    assert lost.marks("lake.orders") == before
    assert list(lost.folder.iterdir()) == []


def test_the_lost_log_cannot_land_any_more_when_it_turns_up_again(lost: LostLog, tmp_path: Path) -> None:
    lost.lose(kept=tmp_path / "copy")
    lost.restore()

    with lost.open(tmp_path / "copy") as old:
        report = lost.land(old)

    assert {each.topic: (each.outcome, each.cause) for each in report} == {
        "orders": ("halted", "foreign-mark"),
        "customers": ("nothing", ""),
    }


def without_offsets(lost: LostLog) -> None:
    with (
        closing(lost.tables()) as tables,
        tables.catalog.load_table("crm.customers_changes").update_schema(allow_incompatible_changes=True) as change,
    ):
        change.delete_column("_hw_offset")


def test_a_table_that_lost_a_column_of_ours_halts_before_any_table_is_touched(lost: LostLog) -> None:
    without_offsets(lost)
    lost.lose()

    for dry_run in (True, False):
        with pytest.raises(LandingHalted, match="_hw_offset"):
            lost.restore(dry_run=dry_run)

    assert len({mark.log_id for mark in lost.marks("lake.orders")}) == 1


def test_a_table_that_loses_a_column_of_ours_meanwhile_halts(lost: LostLog) -> None:
    lost.lose()
    met: list[int] = []

    def commit(tables: IcebergTables, staged: Staged) -> None:
        if not met:
            met.append(1)
            without_offsets(lost)
        tables.commit(staged)

    with pytest.raises(LandingHalted, match="_hw_offset"):
        lost.restoring(connect=lambda: Met(lost, commit)).restore()


def test_another_restore_in_the_same_directory_is_told_to_wait(lost: LostLog) -> None:
    lost.lose()
    held = DiskFiles(lost.folder).lock("restore.lock", "somebody")

    with pytest.raises(LogLocked, match="another restore"):
        lost.restore()
    held.release()

    assert lost.restore().rows == 14
    assert sorted(path.name for path in lost.folder.iterdir()) == sorted(PARTS)


def test_tables_that_another_restore_takes_over_meanwhile_are_not_taken_from_it(lost: LostLog, tmp_path: Path) -> None:
    lost.lose()

    def meet(tables: IcebergTables, staged: Staged) -> None:
        if not meeting:
            meeting.append(1)
            other = LostLog(tmp_path, seed=2)
            other.folder = tmp_path / "second"
            other.restore()
        IcebergTables.commit(tables, staged)

    meeting: list[int] = []
    with pytest.raises(LandingHalted, match="taken over by another log"):
        lost.restoring(connect=lambda: Met(lost, meet)).restore()


class Met(IcebergTables):
    """A connection whose commits are met."""

    def __init__(self, lost: LostLog, commit: Callable[[IcebergTables, Staged], None]) -> None:
        super().__init__(lost.tables().catalog)
        self._met = commit

    def commit(self, staged: Staged) -> None:
        self._met(IcebergTables(self.catalog), staged)


# ----------------------------------------------------------------------------------------------- crashes and races


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("error", [CommitRefused("no"), CommitUncertain("who knows")])
def test_the_outcome_of_a_take_over_is_what_the_table_says(lost: LostLog, error: Exception, applied: bool) -> None:
    lost.lose()
    met: list[int] = []

    def commit(tables: IcebergTables, staged: Staged) -> None:
        met.append(1)
        if len(met) != 1 or applied:
            tables.commit(staged)
        if len(met) == 1:
            raise error

    report = lost.restoring(connect=lambda: Met(lost, commit)).restore()

    assert len(met) == (2 if applied else 3)
    assert [mark.log_id == report.log_id for mark in lost.marks("lake.orders")] == [False, False, True]


def test_what_the_old_log_lands_before_it_is_stamped_comes_back_too(lost: LostLog, tmp_path: Path) -> None:
    lost.lose(kept=tmp_path / "copy")
    met: list[int] = []

    def commit(tables: IcebergTables, staged: Staged) -> None:
        if not met:
            met.append(1)
            with lost.open(tmp_path / "copy") as old:
                assert lost.land(old, "orders").rows == 2
        tables.commit(staged)

    report = lost.restoring(connect=lambda: Met(lost, commit)).restore()

    assert (report.topics[0].rows, report.topics[0].next_offsets) == (13, {0: 12, 1: 1})


def test_a_catalog_that_never_answers_clearly_is_given_up(lost: LostLog, monkeypatch: pytest.MonkeyPatch) -> None:
    lost.lose()
    monkeypatch.setattr(taking_over, "ATTEMPTS_MAX", 2)

    def commit(tables: IcebergTables, staged: Staged) -> None:
        raise CommitUncertain("who knows")

    with pytest.raises(Unavailable, match="the catalog does not answer"):
        lost.restoring(connect=lambda: Met(lost, commit)).restore()

    assert lost.restore().continued


class Dies(Exception):
    """The process ends here."""


class MortalFiles(DiskFiles):
    """Files of a process that dies before the nth change that it makes."""

    def __init__(self, folder: Path, left: int) -> None:
        super().__init__(folder)
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Dies

    def create(self, name: str) -> Any:
        self._count()
        return super().create(name)

    def rename(self, old: str, new: str) -> None:
        self._count()
        super().rename(old, new)

    def unlink(self, name: str) -> None:
        self._count()
        super().unlink(name)

    def sync_directory(self, directory: str) -> None:
        self._count()
        super().sync_directory(directory)


def test_a_restore_that_dies_anywhere_is_finished_by_the_next_and_nothing_can_be_written_meanwhile(
    lost: LostLog,
) -> None:
    lost.lose()
    died_at = halted = 0
    while True:
        try:
            lost.restoring(files=MortalFiles(lost.folder, died_at)).restore()
            break
        except Dies:
            pass
        begun = list((lost.folder / "log").glob("*.seg"))
        if list((lost.folder / "checkpoints").glob("*.ckpt")) and not begun:
            with pytest.raises(Halted), lost.open() as log:
                log.topic("orders")
            halted += 1
        died_at += 1

    assert died_at > 15 and halted > 3
    ids = {mark.log_id for mark in lost.marks("lake.orders")}
    assert len(ids) == 2, "one old log, one new"
    with lost.open() as log:
        assert values(log) == list(range(11))
        log["orders"].append([{"x": 100}])
        assert lost.land(log).rows == 1
    assert sum(isinstance(record, Restored) for record in lost.ledger()) == 2


def test_a_second_restore_that_dies_is_finished_here_or_begun_anew_elsewhere(lost: LostLog, tmp_path: Path) -> None:
    # The first took over only a part of the tables, so that the second meets those of two logs.
    lost.lose()
    lost.restore(namespaces=["lake"])
    lost.lose()
    met: list[int] = []

    def commit(tables: IcebergTables, staged: Staged) -> None:
        met.append(1)
        if len(met) > 1:
            raise Dies
        tables.commit(staged)

    with pytest.raises(Dies):
        lost.restoring(connect=lambda: Met(lost, commit)).restore()

    elsewhere = LostLog(tmp_path, seed=9)
    elsewhere.folder = tmp_path / "elsewhere"
    assert len(elsewhere.restore(dry_run=True).log_ids_before) == 3
    report = lost.restore()
    assert report.continued and [topic.rows for topic in report.topics] == [11, 3]
    assert {lost.marks(table)[-1].log_id for table in ("lake.orders", "crm.customers_changes")} == {report.log_id}


def test_a_log_that_was_begun_meanwhile_is_never_cleared(lost: LostLog) -> None:
    lost.lose()
    with pytest.raises(Dies):
        # It dies when the plan is there and the tables are taken over: nothing of a log is.
        lost.restoring(files=MortalFiles(lost.folder, 4)).restore()
    assert (lost.folder / PLAN).exists() and not (lost.folder / "log").exists()
    with lost.open() as log:
        log.topic("mine", schema={"x": int}).append([{"x": 1}])

    with pytest.raises(Halted, match="another log was begun"):
        lost.restore()

    with lost.open() as log:
        assert log["mine"].read().to_pylist() == [{"x": 1}]


def test_a_segment_that_was_cut_short_is_no_log(lost: LostLog) -> None:
    lost.lose()
    with pytest.raises(Dies):
        lost.restoring(files=MortalFiles(lost.folder, 4)).restore()
    (lost.folder / "log").mkdir()
    (lost.folder / "log" / f"{N:020}.0.seg").write_bytes(b"half a header")

    assert lost.restore().rows == 14


def taking(lost: LostLog, first_lsn: int = N) -> TakingOver:
    ids = (lost.marks("lake.orders")[0].log_id,)
    plan = RestorePlan(log_id="ab" * 16, log_ids_before=ids, first_lsn=first_lsn, begun_us=1)
    return TakingOver(lost.place.connect, plan, clock=lost.clock, entropy=lost.entropy)


def shape(lost: LostLog) -> TableShape:
    with lost.open() as log:
        return table_shape(log._engine.topic("orders"))


def test_a_table_that_is_gone_when_it_is_to_be_taken_over_halts(lost: LostLog) -> None:
    taker, wanted = taking(lost), shape(lost)
    with closing(lost.tables()) as tables:
        tables.catalog.drop_table("lake.orders")

    with pytest.raises(LandingHalted, match="is gone"):
        taker.take("lake.orders", wanted)


def test_a_table_that_no_longer_knows_its_mark_when_it_is_to_be_taken_over_halts(lost: LostLog) -> None:
    taker, wanted = taking(lost), shape(lost)
    unproven(lost, "lake.orders")

    with pytest.raises(LandingHalted, match="audit the table"):
        taker.take("lake.orders", wanted)


def test_a_table_that_has_landed_beyond_the_new_logs_beginning_halts(lost: LostLog) -> None:
    with pytest.raises(LandingHalted, match="begin anew"):
        taking(lost, first_lsn=2).take("lake.orders", shape(lost))


def test_a_plan_that_cannot_be_read_is_damage(lost: LostLog) -> None:
    lost.lose()
    (lost.folder / PLAN).write_text("{")

    with pytest.raises(hw.errors.CorruptData, match=r"restore\.json"):
        lost.restore()


def test_a_log_without_its_checkpoint_halts(lost: LostLog) -> None:
    lost.lose()
    lost.restore()
    for path in (lost.folder / "log").iterdir():
        path.unlink()

    with pytest.raises(LostSegment), lost.open() as log:
        log.topic("orders")


def test_the_front_door_takes_a_directory_and_a_catalog(lost: LostLog) -> None:
    lost.lose()
    catalog = {"name": lost.place.name, **lost.place.properties}

    report = restore_log(str(lost.folder), catalog=catalog, settings=SETTINGS)

    assert (report.directory, report.rows) == (str(lost.folder), 14)
    assert str(report) == f"Restored orders, customers: log {report.log_id} from lsn {N} on, in {lost.folder}"
