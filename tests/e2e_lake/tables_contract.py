"""What every catalog promises to a landing through Tables, as a class of tests.

USE      A module that runs it derives a class, and gives a fixture `place`: a CatalogPlace.  Each test has a namespace
         of its own, so a server that was started once can serve them all.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.update import RemoveSnapshotsUpdate, SetSnapshotRefUpdate
from pyiceberg.transforms import BucketTransform

from headwater.errors import LandingHalted, Unavailable
from headwater.lake.catalog import CatalogPlace
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.mark import MAIN, mark_in_property, mark_in_summary, property_name
from headwater.lake.tables import CommitRefused, Staged
from headwater.lake.work import Column
from headwater.lake.write_target import decode_target
from tests.unit.lake.scratch_tables import (
    ORDERS,
    a_commit_id,
    a_mark,
    change,
    commit_of_another,
    connected,
    land,
    loaded,
    native,
    rows_in,
    shape_of,
    written,
)

ID = pa.field("id", pa.int64(), nullable=False)
NAME = pa.field("name", pa.string())


@pytest.fixture
def name() -> str:
    """A table in a namespace that no other test uses."""
    return f"sales_{a_commit_id().replace('-', '')}_{dt.datetime.now(dt.UTC):%H%M%S%f}.orders"


@pytest.fixture
def tables(place: CatalogPlace) -> Iterator[IcebergTables]:
    with connected(place) as opened:
        yield opened


def staged_landing(tables: IcebergTables, name: str, *, lsn: int, rows: int = 1) -> Staged:
    """A landing of rows on the table as it is now, not sent."""
    state = loaded(tables, name)
    fit = tables.fit(state, ORDERS)
    return tables.stage(state, fit, written(fit, rows, lsn), a_mark(lsn, rows=rows))


def at_once(*calls: Callable[[], object]) -> list[object]:
    """What each returned, or the CommitRefused that it raised; all begin in the same moment."""
    ready = Barrier(len(calls))

    def run(call: Callable[[], object]) -> object:
        ready.wait(30)
        try:
            return call()
        except CommitRefused as refused:
            return refused

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))


class TablesContract:
    """Loading, making, fitting, staging and committing."""

    # Making ------------------------------------------------------------------------------------------------

    def test_a_table_that_is_not_there_is_none(self, tables: IcebergTables, name: str) -> None:
        assert tables.load(name) is None

    def test_a_table_is_made_with_its_namespace_and_its_properties(self, tables: IcebergTables, name: str) -> None:
        made = tables.create(name, ORDERS)

        assert loaded(tables, name).uuid == made.uuid
        assert made.format_version == 2 and made.branches == {} and made.head() is None
        assert native(made).schema().column_names == ORDERS.schema.names
        expected = {key: value for key, value in ORDERS.properties.items() if key != "format-version"}
        assert expected.items() <= made.properties.items()

    def test_of_many_that_make_a_table_at_once_all_get_the_same_one(self, place: CatalogPlace, name: str) -> None:
        connections = [place.connect() for _ in range(4)]
        try:
            made = at_once(*(lambda each=each: each.create(name, ORDERS).uuid for each in connections))
        finally:
            for each in connections:
                each.close()

        assert len(set(made)) == 1

    def test_a_namespace_may_have_levels(self, tables: IcebergTables, name: str) -> None:
        deep = f"{name.partition('.')[0]}.eu.orders"

        tables.create(deep, ORDERS)

        assert loaded(tables, deep).head() is None

    def test_a_table_is_partitioned_as_it_was_asked_for(self, tables: IcebergTables, name: str) -> None:
        shape = shape_of(
            ID,
            NAME,
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("on", pa.date32()),
            pa.field("paid", pa.bool_()),
            partition_by=("bucket(4, id)", "truncate(2, name)", "day(at)", "month(on)", "paid", "hour(_hw_time)"),
        )
        state = tables.create(name, shape)
        parts = [(field.name, str(field.transform)) for field in native(state).spec().fields]
        assert parts == [
            ("id_bucket", "bucket[4]"),
            ("name_trunc", "truncate[2]"),
            ("at_day", "day"),
            ("on_month", "month"),
            ("paid", "identity"),
            ("_hw_time_hour", "hour"),
        ]
        day_us = 86_400_000_000

        days = [dt.date(2026, 1, 31), dt.date(2026, 2, 1)] * 4
        land(tables, name=name, shape=shape, rows=8, at=[0, day_us] * 4, on=days, paid=[True, False, None, True] * 2)

        assert [row["id"] for row in rows_in(tables, name)] == list(range(8))
        state = loaded(tables, name)
        head = state.head()
        assert head is not None and len(tables.added_files(state, head.snapshot_id)) > 2

    # Landing -----------------------------------------------------------------------------------------------

    def test_a_landing_puts_rows_mark_and_property_into_one_commit(self, tables: IcebergTables, name: str) -> None:
        mark = land(tables, name=name, lsn=7, rows=3)

        state = loaded(tables, name)
        head = state.head()
        assert head is not None and head.parent_id is None and head.operation == "append"
        assert mark_in_summary(head.summary) == mark
        told = mark_in_property(state.properties[property_name()])
        assert told.snapshot == head.snapshot_id and told.commit_id == mark.commit_id
        assert len(state.snapshots) == 1
        assert [(row["id"], row["name"], row["_hw_lsn"]) for row in rows_in(tables, name)] == [
            (0, "row 0", 7),
            (1, "row 1", 7),
            (2, "row 2", 7),
        ]

    def test_landings_follow_each_other(self, tables: IcebergTables, name: str) -> None:
        for lsn in range(1, 6):
            land(tables, name=name, lsn=lsn)

        state = loaded(tables, name)
        head = state.head()
        marks = []
        while head is not None:
            marks.append(mark_in_summary(head.summary))
            head = state.snapshots[head.parent_id] if head.parent_id is not None else None
        assert [mark.lsn_to for mark in marks if mark is not None] == [5, 4, 3, 2, 1]
        assert [row["_hw_lsn"] for row in rows_in(tables, name)] == [1, 2, 3, 4, 5]

    def test_a_landing_without_files_is_a_stamp(self, tables: IcebergTables, name: str) -> None:
        first = land(tables, name=name, lsn=1, rows=0)
        land(tables, name=name, lsn=2, rows=2)
        stamp = land(tables, name=name, lsn=3, rows=0)

        state = loaded(tables, name)
        head = state.head()
        assert head is not None and head.operation == "append"
        assert mark_in_summary(head.summary) == stamp and stamp.commit_id != first.commit_id
        assert tables.added_files(state, head.snapshot_id) == []
        assert len(rows_in(tables, name)) == 2

    def test_a_commit_on_a_head_that_has_moved_is_refused(self, tables: IcebergTables, name: str) -> None:
        land(tables, name=name, lsn=1)
        late = staged_landing(tables, name, lsn=2)
        commit_of_another(tables, name=name)
        before = loaded(tables, name)

        with pytest.raises(CommitRefused):
            tables.commit(late)

        assert loaded(tables, name) == before

    def test_the_first_commit_of_a_table_is_refused_when_another_was_faster(
        self, tables: IcebergTables, name: str
    ) -> None:
        tables.create(name, ORDERS)
        late = staged_landing(tables, name, lsn=1)
        land(tables, name=name, lsn=1)

        with pytest.raises(CommitRefused):
            tables.commit(late)

        assert len(rows_in(tables, name)) == 1

    def test_of_three_that_race_one_wins(self, place: CatalogPlace, name: str) -> None:
        connections = [place.connect() for _ in range(3)]
        try:
            connections[0].create(name, ORDERS)
            for lsn in range(1, 6):
                staged = [(each, staged_landing(each, name, lsn=lsn)) for each in connections]

                answers = at_once(*(lambda each=each, mine=mine: each.commit(mine) for each, mine in staged))

                assert sum(answer is None for answer in answers) == 1, answers
                state = loaded(connections[0], name)
                assert sum(mine.snapshot_id in state.snapshots for _, mine in staged) == 1
            assert [row["_hw_lsn"] for row in rows_in(connections[0], name)] == [1, 2, 3, 4, 5]
        finally:
            for each in connections:
                each.close()

    def test_the_same_request_is_applied_once(self, tables: IcebergTables, name: str) -> None:
        land(tables, name=name, lsn=1)
        request = staged_landing(tables, name, lsn=2)

        tables.commit(request)
        with pytest.raises(CommitRefused):
            tables.commit(request)

        assert len(rows_in(tables, name)) == 2

    def test_files_of_a_refused_commit_go_onto_the_new_head(self, tables: IcebergTables, name: str) -> None:
        land(tables, name=name, lsn=1)
        state = loaded(tables, name)
        fit = tables.fit(state, ORDERS)
        files, mark = written(fit, 2, 2), a_mark(2, rows=2)
        late = tables.stage(state, fit, files, mark)
        commit_of_another(tables, name=name)
        with pytest.raises(CommitRefused):
            tables.commit(late)

        again = tables.stage(loaded(tables, name), fit, files, mark)
        tables.commit(again)
        with pytest.raises(CommitRefused):
            tables.commit(late)

        assert again.base != late.base and len(rows_in(tables, name)) == 3

    def test_a_request_outlives_the_connection_that_loaded_the_table(self, place: CatalogPlace, name: str) -> None:
        with connected(place) as first:
            state = first.create(name, ORDERS)
        with connected(place) as second:
            fit = second.fit(state, ORDERS)
            second.commit(second.stage(state, fit, written(fit, 1, 1), a_mark(1, rows=1)))

            assert len(rows_in(second, name)) == 1

    def test_a_closed_connection_opens_again(self, tables: IcebergTables, name: str) -> None:
        land(tables, name=name, lsn=1)
        tables.close()
        tables.close()

        land(tables, name=name, lsn=2)

        assert len(rows_in(tables, name)) == 2

    # What else may change ----------------------------------------------------------------------------------

    def test_a_table_that_was_made_anew_refuses_what_was_meant_for_the_old_one(
        self, tables: IcebergTables, name: str
    ) -> None:
        tables.create(name, ORDERS)
        late = staged_landing(tables, name, lsn=1)
        tables.catalog.drop_table(name)
        tables.create(name, ORDERS)

        with pytest.raises(CommitRefused):
            tables.commit(late)

        assert loaded(tables, name).head() is None

    def test_a_schema_that_has_changed_refuses_files_of_the_old_one(self, tables: IcebergTables, name: str) -> None:
        tables.create(name, ORDERS)
        late = staged_landing(tables, name, lsn=1)
        with native(loaded(tables, name)).update_schema() as update:
            update.add_column("note", native(loaded(tables, name)).schema().find_type("name"))

        with pytest.raises(CommitRefused):
            tables.commit(late)

        assert loaded(tables, name).head() is None

    def test_a_partitioning_that_has_changed_refuses_files_of_the_old_one(
        self, tables: IcebergTables, name: str
    ) -> None:
        tables.create(name, ORDERS)
        late = staged_landing(tables, name, lsn=1)
        with native(loaded(tables, name)).update_spec() as update:
            update.add_field("id", BucketTransform(4), "id_bucket")

        with pytest.raises(CommitRefused):
            tables.commit(late)
        state = loaded(tables, name)
        fit = tables.fit(state, ORDERS)
        tables.commit(tables.stage(state, fit, written(fit, 8, 1), a_mark(1, rows=8)))

        assert len(rows_in(tables, name)) == 8

    def test_new_and_wider_columns_come_in_the_landings_own_commit(self, tables: IcebergTables, name: str) -> None:
        narrow = shape_of(pa.field("id", pa.int32(), nullable=False), pa.field("share", pa.float32()))
        wide = shape_of(
            pa.field("id", pa.int64()),
            pa.field("share", pa.float64()),
            pa.field("tags", pa.list_(pa.struct([pa.field("t", pa.string())]))),
        )
        land(tables, name=name, shape=narrow, lsn=1)
        before = loaded(tables, name)
        snapshots = len(before.snapshots)

        land(tables, name=name, shape=wide, lsn=2, id=[2**40], tags=[[{"t": "a"}, None]])

        after = loaded(tables, name)
        assert len(after.snapshots) == snapshots + 1 and after.schema_id != before.schema_id
        assert not tables.fit(after, wide).changes_schema
        rows = [(row["id"], row["share"], row["tags"]) for row in rows_in(tables, name)]
        assert rows == [(0, 0.0, None), (2**40, 0.0, [{"t": "a"}, None])]

    def test_of_two_landings_that_change_the_schema_one_wins(self, tables: IcebergTables, name: str) -> None:
        land(tables, name=name, lsn=1)
        wider = shape_of(ID, NAME, pa.field("note", pa.string()))
        state = loaded(tables, name)
        fit = tables.fit(state, wider)
        both = [tables.stage(state, fit, written(fit, 1, 2), a_mark(2, rows=1)) for _ in range(2)]

        tables.commit(both[0])
        with pytest.raises(CommitRefused):
            tables.commit(both[1])

        assert len(rows_in(tables, name)) == 2

    def test_a_landing_leaves_the_branchs_retention_as_it_is(self, tables: IcebergTables, name: str) -> None:
        land(tables, name=name, lsn=1)
        head = loaded(tables, name).branches[MAIN]
        kept = {"max-snapshot-age-ms": 3_600_000, "min-snapshots-to-keep": 7}
        change(
            tables,
            SetSnapshotRefUpdate.model_validate({"ref-name": MAIN, "type": "branch", "snapshot-id": head, **kept}),
            name=name,
        )

        land(tables, name=name, lsn=2)

        pointer: SnapshotRef = native(loaded(tables, name)).metadata.refs[MAIN]
        assert pointer.snapshot_id != head
        assert (pointer.max_snapshot_age_ms, pointer.min_snapshots_to_keep) == (3_600_000, 7)

    def test_a_branch_is_landed_on_by_itself(self, tables: IcebergTables, name: str) -> None:
        land(tables, name=name, lsn=1)
        state = loaded(tables, name)
        main = state.branches[MAIN]
        change(
            tables,
            SetSnapshotRefUpdate.model_validate({"ref-name": "audit", "type": "branch", "snapshot-id": main}),
            name=name,
        )
        state = loaded(tables, name)
        fit = tables.fit(state, ORDERS)

        tables.commit(tables.stage(state, fit, written(fit, 1, 5), a_mark(5, rows=1), branch="audit"))

        after = loaded(tables, name)
        assert after.branches[MAIN] == main and after.branches["audit"] != main
        assert mark_in_property(after.properties[property_name("audit")]).lsn_to == 5
        assert (tables.max_row_lsn(after), tables.max_row_lsn(after, "audit")) == (1, 5)

    # Looking -----------------------------------------------------------------------------------------------

    def test_the_newest_row_is_told_from_metadata(self, tables: IcebergTables, name: str) -> None:
        state = tables.create(name, ORDERS)
        assert tables.max_row_lsn(state) == 0
        land(tables, name=name, lsn=3, rows=2)
        land(tables, name=name, lsn=9, rows=2)
        land(tables, name=name, lsn=12, rows=0)

        assert tables.max_row_lsn(loaded(tables, name)) == 9

    def test_the_files_of_a_landing_are_told_by_its_snapshot(self, tables: IcebergTables, name: str) -> None:
        state = tables.create(name, ORDERS)
        fit = tables.fit(state, ORDERS)
        files = written(fit, 2, 1) + written(fit, 2, 1)
        staged = tables.stage(state, fit, files, a_mark(1, rows=4))
        tables.commit(staged)
        land(tables, name=name, lsn=2)

        state = loaded(tables, name)

        assert sorted(tables.added_files(state, staged.snapshot_id)) == sorted(file.path for file in files)
        tables.make_durable(state, staged.snapshot_id)

    def test_the_files_that_may_hold_rows_of_some_lsns_are_told(self, tables: IcebergTables, name: str) -> None:
        state = tables.create(name, ORDERS)
        assert tables.files_between(state, 0, 100) == []
        added = {}
        for lsn in (1, 5, 9):
            land(tables, name=name, lsn=lsn, rows=2)
            state = loaded(tables, name)
            added[lsn] = list(tables.added_files(state, state.branches[MAIN]))

        assert tables.files_between(state, 1, 5) == added[5]
        assert sorted(tables.files_between(state, 0, 9)) == sorted(added[1] + added[5] + added[9])
        assert tables.files_between(state, 9, 20) == []

    def test_a_landing_is_read_back_in_the_types_that_it_was_written_in(self, tables: IcebergTables, name: str) -> None:
        narrow, wide = shape_of(pa.field("id", pa.int32())), shape_of(pa.field("id", pa.int64()), NAME)
        columns = tables.fit(tables.create(name, narrow), narrow).columns
        land(tables, name=name, shape=narrow, lsn=1)
        first = loaded(tables, name).branches[MAIN]
        land(tables, name=name, shape=wide, lsn=2)

        def types(columns: Sequence[Column]) -> list[str]:
            target = decode_target(tables.read_back_target(loaded(tables, name), first, columns))
            return [column.type for column in target.columns]

        as_written = [column.type for column in columns]
        nameless = [Column(column.field_id, "", "") for column in columns]
        assert as_written[0] == "int" and types(columns) == types(nameless) == types(()) == as_written

        change(tables, RemoveSnapshotsUpdate.model_validate({"snapshot-ids": [first]}), name=name)

        assert types(columns) == as_written
        assert types(nameless) == ["long", *as_written[1:]]
        with pytest.raises(LandingHalted, match="no longer in it"):
            types([Column(99, "", "")])

    def test_a_file_that_is_missing_is_not_made_durable(self, tables: IcebergTables, name: str) -> None:
        land(tables, name=name, lsn=1)
        state = loaded(tables, name)
        head = state.branches[MAIN]
        (path,) = tables.added_files(state, head)

        tables.make_durable(state, head, [path])
        with pytest.raises(Unavailable, match="cannot be read"):
            tables.make_durable(state, head, [f"{path}.gone"])

    def test_an_old_table_of_another_form_is_refused_by_name(self, tables: IcebergTables, name: str) -> None:
        state = tables.create(name, ORDERS)

        with pytest.raises(LandingHalted, match="name: it is string in the table and long in the topic") as halted:
            tables.fit(state, shape_of(ID, pa.field("name", pa.int64())))

        assert halted.value.cause == "schema"

    def test_every_type_of_a_topic_survives(self, tables: IcebergTables, name: str) -> None:
        shape = shape_of(
            ID,
            pa.field("i8", pa.int8()),
            pa.field("u32", pa.uint32()),
            pa.field("f16", pa.float16()),
            pa.field("f64", pa.float64()),
            pa.field("b", pa.bool_()),
            pa.field("d", pa.decimal128(38, 10)),
            pa.field("s", pa.string()),
            pa.field("bin", pa.binary()),
            pa.field("fixed", pa.binary(16)),
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("local", pa.timestamp("us")),
            pa.field("list", pa.list_(pa.int16())),
            pa.field("struct", pa.struct([pa.field("a", pa.uint8()), pa.field("b", pa.string())])),
            pa.field("map", pa.map_(pa.string(), pa.int64())),
        )
        at = dt.datetime(2026, 11, 15, 8, 30, 1, 5, dt.UTC)
        values = {
            "i8": -128,
            "u32": 2**32 - 1,
            "f16": 0.5,
            "f64": -1e300,
            "b": True,
            "d": decimal.Decimal("1234567890123456789012345678.0123456789"),
            "s": "é",
            "bin": b"\x00\xff",
            "fixed": b"0123456789abcdef",
            "day": dt.date(1969, 12, 31),
            "at": at,
            "local": at.replace(tzinfo=None),
            "list": [1, None, -3],
            "struct": {"a": 255, "b": None},
            "map": [("x", 1), ("y", None)],
        }

        columns: dict[str, Any] = {key: [value, None] for key, value in values.items()}
        land(tables, name=name, shape=shape, rows=2, **columns)

        full, empty = rows_in(tables, name)
        assert {key: full[key] for key in values} == values
        assert all(empty[key] is None for key in values)
