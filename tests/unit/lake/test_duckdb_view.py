"""Views in DuckDB: the same rows as our own reader's, of every type, whatever is asked of files."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import LongType, StringType

import headwater as hw
from headwater.errors import InvalidRequest
from headwater.lake import duckdb_view
from headwater.lake.duckdb_sql import part_query, sql_type
from headwater.lake.duckdb_view import connect, connect_topics, relation, scans_at_one_cut
from headwater.lake.scan import Scan
from headwater.lake.shape import lake_schema
from headwater.lake.view_plan import TablePart
from tests.unit.lake.delete_files import add_delete_file
from tests.unit.lake.every_type import EVERY_TYPE, FILTERS, NOTES, odd_rows
from tests.unit.lake.small_lakes import SmallLake, lakes
from tests.unit.lake.small_merges import merge_new_keys
from tests.unit.topics.small_engines import engine_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path)


def rows_of(found: Any, schema: pa.Schema) -> list[str]:
    """The rows as text, so that a NaN is a NaN and 0.0 is not -0.0; sorted, for a view has no order."""
    table = found.to_arrow_table() if isinstance(found, duckdb.DuckDBPyRelation) else found.to_arrow()
    return sorted(map(repr, table.cast(lake_schema(schema)).to_pylist()))


def check_same(scan: Scan) -> duckdb.DuckDBPyRelation:
    found = relation(scan)
    assert found.columns == scan.schema.names
    assert rows_of(found, scan.schema) == rows_of(scan, scan.schema)
    return found


def is_scanned_by_duckdb(found: duckdb.DuckDBPyRelation) -> bool:
    return "ICEBERG_SCAN" in found.explain()


# Rows -------------------------------------------------------------------------------------------


def test_every_type_comes_out_as_the_topic_has_it_from_the_table_and_from_the_tail(lake: SmallLake) -> None:
    lake.topic("orders", EVERY_TYPE)
    lake.log["orders"].append(odd_rows(0))
    lake.round()
    lake.log["orders"].append(odd_rows(100))

    found = check_same(lake.log["orders"].scan())

    assert is_scanned_by_duckdb(found)
    assert [str(each) for each in found.types] == [
        "BIGINT", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "UTINYINT", "USMALLINT", "UINTEGER", "FLOAT", "FLOAT",
        "DOUBLE", "DECIMAL(5,2)", "DECIMAL(38,0)", "VARCHAR", "BLOB", "BLOB", "DATE", "TIMESTAMP",
        "TIMESTAMP WITH TIME ZONE", "STRUCT(a INTEGER, s VARCHAR)[]", "INTEGER[][]",
        "MAP(VARCHAR, STRUCT(a INTEGER, s VARCHAR)[])", "STRUCT(d DOUBLE, notes STRUCT(a INTEGER, s VARCHAR)[])",
        "STRUCT(d DOUBLE)", "VARCHAR",
    ]  # fmt: skip


def test_a_filter_that_reaches_files_and_tail_gives_what_it_gives_over_the_rows_themselves(lake: SmallLake) -> None:
    lake.topic("orders", EVERY_TYPE)
    for first in (0, 10):
        # Files of their own, so that the bounds of one rule out what the other holds.
        lake.log["orders"].append(odd_rows(first))
        lake.round()
    lake.log["orders"].append(odd_rows(100))
    found = lake.log["orders"].scan().to_duckdb()
    own_reader = lake.log["orders"].scan(where="id >= 0").to_duckdb()
    with closing(connect()) as plain:
        plain.register("rows", found.to_arrow_table())
        plain.execute("CREATE TABLE held AS SELECT * FROM rows")

        wrong = [
            condition
            for condition in FILTERS
            for asked in (found, own_reader)
            if sorted(asked.filter(condition).project("id").fetchall())
            != plain.execute(f"SELECT id FROM held WHERE {condition} ORDER BY id").fetchall()
        ]

    assert not wrong


def test_columns_and_system_columns_are_those_that_were_asked_for(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.round()
    lake.append("orders", 2)

    found = check_same(lake.log["orders"].scan(columns=["_hw_offset", "x", "_hw_time"]))

    assert "_hw_lsn" not in found.explain()


def test_a_condition_of_the_scan_is_asked_by_our_own_reader(lake: SmallLake) -> None:
    lake.topic("orders", EVERY_TYPE)
    lake.log["orders"].append(odd_rows(0))
    lake.round()

    found = check_same(lake.log["orders"].scan(where="float > 5"))

    assert not is_scanned_by_duckdb(found)
    assert found.count("*").fetchall() == [(2,)]


def test_what_a_delete_file_takes_out_is_out(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round()
    with lake.native() as table:
        add_delete_file(table, place=1)

    found = check_same(lake.log["orders"].scan())

    assert sorted(found.fetchall()) == [(0,), (2,)]


def test_a_topic_of_which_nothing_has_landed_or_that_has_no_table_is_its_tail(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    bare = lake.log.topic("bare", schema={"x": int}, key="x")
    bare.upsert([{"x": 1}, {"x": 2}])
    bare.delete([{"x": 1}])

    assert check_same(lake.log["orders"].scan()).fetchall() == [(0,), (1,)]
    assert check_same(bare.scan()).fetchall() == [(2,)]


# Schemas ----------------------------------------------------------------------------------------


def test_an_older_snapshot_and_the_present_have_the_topics_newest_columns(lake: SmallLake) -> None:
    narrow = pa.schema([pa.field("a", pa.int8()), pa.field("f", pa.float32()), pa.field("d", pa.decimal128(5, 2))])
    lake.topic("orders", narrow)
    lake.log["orders"].append([{"a": 1, "f": 1.5, "d": 1}])
    lake.round()
    cut = lake.log.cut("orders")
    wide = [pa.field("a", pa.int64()), pa.field("f", pa.float64()), pa.field("d", pa.decimal128(20, 2))]
    lake.log["orders"].alter(schema=pa.schema([*wide, pa.field("new", pa.string())]))
    lake.log["orders"].append([{"a": 2**40, "f": 1e300, "d": 10**15, "new": "x"}])

    before_the_landing = check_same(lake.log["orders"].scan())
    lake.round()
    after_it = check_same(lake.log["orders"].scan())
    at_the_cut = check_same(lake.log["orders"].scan(as_of=cut))

    assert all(map(is_scanned_by_duckdb, (before_the_landing, after_it, at_the_cut)))
    assert at_the_cut.fetchall() == [(1, 1.5, 1, None)]


def test_a_nested_column_that_has_changed_since_is_read_by_our_own_reader(lake: SmallLake) -> None:
    lake.topic("orders", pa.schema([pa.field("x", pa.int64()), pa.field("notes", NOTES)]))
    lake.log["orders"].append([{"x": 1, "notes": [{"a": 1, "s": "s"}, None]}, {"x": 2, "notes": None}])
    lake.round()
    cut = lake.log.cut("orders")
    more = pa.list_(pa.struct([*NOTES.value_type, pa.field("more", pa.int32())]))
    lake.log["orders"].alter(schema=pa.schema([pa.field("x", pa.int64()), pa.field("notes", more)]))
    lake.log["orders"].append([{"x": 3, "notes": [{"a": 1, "s": "s", "more": 3}]}])
    lake.round()

    then = check_same(lake.log["orders"].scan(as_of=cut))
    now = check_same(lake.log["orders"].scan())

    assert not is_scanned_by_duckdb(then)
    assert is_scanned_by_duckdb(now)
    assert is_scanned_by_duckdb(relation(lake.log["orders"].scan(columns=["x"], as_of=cut)))


def test_a_column_is_found_by_its_id_whatever_it_was_called_when_the_snapshot_was_made(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 1)
    lake.round()
    with lake.native() as table:
        with table.update_schema() as change:
            change.rename_column("x", "y")
        add_delete_file(table.refresh(), place=9)
        with table.refresh().update_schema() as change:
            change.rename_column("y", "x")

    found = check_same(lake.log["orders"].scan())

    assert found.fetchall() == [(0,)]
    assert is_scanned_by_duckdb(found)


def test_a_column_that_the_owner_dropped_is_named_and_the_others_are_there(lake: SmallLake) -> None:
    lake.topic("orders", {"x": int, "note": str})
    lake.log["orders"].append([{"x": 1, "note": "n"}])
    lake.round()
    with lake.native() as table, table.update_schema() as change:
        change.delete_column("note")

    with pytest.raises(InvalidRequest, match="no longer has the column 'note'"):
        relation(lake.log["orders"].scan())

    assert check_same(lake.log["orders"].scan(columns=["x"])).fetchall() == [(1,)]
    with closing(connect_topics(lake.log._viewed(), [lake.record("orders")], system_columns=False)) as found:
        assert found.sql("SELECT * FROM orders").fetchall() == [(1,)]


# LSNs -------------------------------------------------------------------------------------------


def test_rows_above_the_point_are_not_shown_though_the_snapshot_has_them(lake: SmallLake) -> None:
    lake.topic("orders")
    points = []
    for _ in range(3):
        lake.append("orders", 2)
        points.append(hw.Lsn(engine_of(lake.log).shard.log.durable_lsn()))
    lake.round()

    for place, point in enumerate(points):
        found = check_same(lake.log["orders"].scan(as_of=point))
        assert sorted(found.fetchall()) == [(number,) for number in range(2 * place + 2)]


def test_after_an_older_snapshot_only_what_landed_since_is_read_from_the_head(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.round()
    lake.append("orders", 2)
    cut = lake.log.cut("orders")
    lake.append("orders", 2)
    lake.round()

    found = check_same(lake.log["orders"].scan(as_of=cut))

    assert sorted(found.fetchall()) == [(0,), (1,), (2,), (3,)]
    assert found.explain().count("ICEBERG_SCAN") > 1


@pytest.mark.parametrize("has_lsns", [True, False])
def test_rows_that_were_in_the_table_before_the_topic_are_there_at_every_point(lake: SmallLake, has_lsns: bool) -> None:
    lake.topic("orders")
    with closing(lake.place.connect()) as tables:
        tables.catalog.create_namespace("lake")
        tables.catalog.create_table("lake.orders", schema=pa.schema([pa.field("x", pa.int64())]))
    lake.foreign_append(x=-1)
    lake.append("orders", 2)
    point = hw.Lsn(engine_of(lake.log).shard.log.durable_lsn())
    lake.append("orders", 2)
    if has_lsns:
        lake.round()

    found = check_same(lake.log["orders"].scan(as_of=point))

    assert sorted(found.fetchall()) == [(-1,), (0,), (1,)]


def test_a_snapshot_without_lsns_has_nothing_between_two_of_them(lake: SmallLake) -> None:
    lake.topic("orders")
    with closing(lake.place.connect()) as tables:
        tables.catalog.create_namespace("lake")
        tables.catalog.create_table("lake.orders", schema=pa.schema([pa.field("x", pa.int64())]))
    lake.foreign_append(x=-1)
    state = lake.state("orders")
    (snapshot,) = state.snapshots
    part = TablePart(state, snapshot, 3, 7, whole=False, unmarked=False)

    query = part_query(part, pa.schema([pa.field("x", pa.int64())]))

    assert query is not None
    with closing(connect()) as found:
        assert found.execute(query).fetchall() == []


# Keyed topics -----------------------------------------------------------------------------------


def customers(lake: SmallLake) -> hw.Topic:
    lake.topic("customers", {"id": int, "name": str}, key="id")
    return lake.log["customers"]


def put(lake: SmallLake, topic: hw.Topic, *rows: tuple[int, str]) -> None:
    """Land some upserts."""
    topic.upsert([{"id": number, "name": name} for number, name in rows])
    lake.round()


def test_a_keyed_topic_is_its_state_its_changes_and_its_tail_the_latest_of_each_key(lake: SmallLake) -> None:
    topic = customers(lake)
    put(lake, topic, (1, "a"), (2, "b"), (3, "c"), (4, "d"))
    merge_new_keys(lake, "customers")
    topic.upsert([{"id": 2, "name": "bb"}, {"id": 5, "name": "e"}])
    topic.delete([{"id": 3}, {"id": 5}])
    lake.round()
    topic.upsert([{"id": 4, "name": "dd"}, {"id": 5, "name": "ee"}])
    topic.delete([{"id": 2}])

    found = check_same(topic.scan())

    assert sorted(found.fetchall()) == [(1, "a"), (4, "dd"), (5, "ee")]
    assert check_same(topic.scan(columns=["name", "_hw_lsn"])).count("*").fetchall() == [(3,)]
    assert found.explain().count("ICEBERG_SCAN") > 1
    for key in range(7):
        assert found.filter(f"id = {key}").fetchall() == [row for row in found.fetchall() if row[0] == key]
    # A filter on the key reaches state, changes and tail.
    assert found.filter("id = 77").explain().count("id=77") >= 3


def test_a_keyed_topic_of_two_columns_and_of_no_merge_is_right(lake: SmallLake) -> None:
    topic = lake.log.topic("pairs", schema={"a": bytes, "b": int, "v": float}, key=("a", "b"), table="lake.pairs")
    topic.upsert([{"a": b"x", "b": 1, "v": 1.0}, {"a": b"x", "b": 2, "v": 2.0}, {"a": b"y", "b": 1, "v": 3.0}])
    lake.round()
    topic.delete([{"a": b"x", "b": 1}])

    assert sorted(check_same(topic.scan(columns=["v"])).fetchall()) == [(2.0,), (3.0,)]


def test_a_row_of_a_change_table_that_no_landing_brought_is_no_change(lake: SmallLake) -> None:
    topic = customers(lake)
    put(lake, topic, (1, "a"))
    with lake.native("customers_changes") as table:
        rows = [{"id": 1, "_hw_op": "D"}, {"id": 7, "_hw_op": "U"}]
        table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))

    assert check_same(topic.scan()).fetchall() == [(1, "a")]


@pytest.mark.parametrize("table", ["customers", "customers_changes"])
def test_where_one_part_of_a_keyed_topic_is_not_for_duckdb_none_is(lake: SmallLake, table: str) -> None:
    topic = customers(lake)
    put(lake, topic, (1, "a"))
    merge_new_keys(lake, "customers")
    put(lake, topic, (2, "b"))
    with lake.native(table) as native, native.transaction() as change:
        change.set_properties({"schema.name-mapping.default": "[]"})

    found = check_same(topic.scan())

    assert not is_scanned_by_duckdb(found)
    assert sorted(found.fetchall()) == [(1, "a"), (2, "b")]


# What is left to our own reader -----------------------------------------------------------------


def test_what_iceberg_scan_may_read_is_told_by_the_table_alone(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 1)
    lake.round()
    state = lake.state("orders")
    part = TablePart(state, next(iter(state.snapshots)), 0, 9, whole=True)
    columns = pa.schema([pa.field("x", pa.int64())])
    table = state.native
    assert isinstance(table, Table)

    def moved(where: str) -> TablePart:
        elsewhere = Table(table.name(), table.metadata, where, table.io, table.catalog)
        return replace(part, state=replace(state, native=elsewhere))

    assert part_query(part, columns) is not None
    assert part_query(moved("/a/b.metadata.json"), columns) is not None
    assert part_query(moved("s3://a/b.metadata.json"), columns) is None
    assert part_query(moved("/a/b.gz.metadata.json"), columns) is None
    assert part_query(replace(part, state=replace(state, format_version=3)), columns) is None
    assert part_query(replace(part, snapshot_id=1), columns) is None


def test_a_column_of_uuids_is_read_by_our_own_reader(lake: SmallLake) -> None:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField, UUIDType

    lake.topic("orders")
    with closing(lake.place.connect()) as tables:
        tables.catalog.create_namespace("lake")
        schema = Schema(NestedField(1, "x", LongType()), NestedField(2, "u", UUIDType()))
        table = tables.catalog.create_table("lake.orders", schema=schema)
        table.append(pa.table({"x": [1]}, schema=pa.schema([pa.field("x", pa.int64())])))
    state = lake.state("orders")
    part = TablePart(state, next(iter(state.snapshots)), 0, 9, whole=True)

    assert part_query(part, pa.schema([pa.field("u", pa.binary(16))])) is None
    assert part_query(part, pa.schema([pa.field("x", pa.int64())])) is not None


def test_a_type_that_no_topic_has_is_none_of_duckdbs() -> None:
    assert sql_type(pa.time64("us")) == ""


# Connections and pins ---------------------------------------------------------------------------


def test_what_is_read_is_held_as_long_as_something_in_duckdb_can_read_it(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.round()
    pins = engine_of(lake.log).pins

    found = lake.log["orders"].scan().to_duckdb().filter("x > 0")
    gc.collect()
    assert len(pins.read()) == 1
    assert found.fetchall() == [(1,)]
    del found
    gc.collect()
    assert not pins.read()

    connection = connect_topics(lake.log._viewed(), [lake.record("orders")])
    gc.collect()
    assert len(pins.read()) == 1
    assert connection.sql("SELECT count(*) FROM orders").fetchall() == [(2,)]
    connection.close()
    gc.collect()
    assert not pins.read()


def test_topics_of_a_connection_are_at_one_cut_and_go_by_their_names(lake: SmallLake) -> None:
    for name in ("orders", "web.visits-1"):
        lake.topic(name)
        lake.append(name, 2)
    lake.round()
    cut = lake.log.cut("orders", "web.visits-1")
    with lake.log.transaction() as both:
        both.append("orders", [{"x": 7}])
        both.append("web.visits-1", [{"x": 7}])
    topics = [lake.record("orders"), lake.record("web.visits-1")]

    now = connect_topics(lake.log._viewed(), topics)
    then = connect_topics(lake.log._viewed(), topics, cut)

    for connection, rows in ((now, 3), (then, 2)):
        with closing(connection):
            counts = 'SELECT (SELECT count(*) FROM orders), (SELECT count(_hw_lsn) FROM "web.visits-1")'
            assert connection.sql(counts).fetchall() == [(rows, rows)]
            with pytest.raises(duckdb.CatalogException, match="counts"):
                connection.sql("SELECT * FROM counts")
    assert not engine_of(lake.log).pins.read()


def test_topics_at_one_cut_are_held_until_the_last_of_them_is_let_go_of(lake: SmallLake) -> None:
    for name in ("orders", "visits"):
        lake.topic(name)
        lake.append(name, 1)

    first, second = scans_at_one_cut(lake.log._viewed(), [lake.record("orders"), lake.record("visits")])

    first.close()
    assert len(engine_of(lake.log).pins.read()) == 1
    second.close()
    assert not engine_of(lake.log).pins.read()


def test_where_a_view_cannot_be_made_nothing_stays_held(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 1)
    lake.round()
    with lake.native() as table, table.update_schema() as change:
        change.add_column("other", StringType())
        change.delete_column("x")

    with pytest.raises(InvalidRequest, match="at least one") as refused:
        connect_topics(lake.log._viewed(), [lake.record("orders")], system_columns=False)

    # The error still has all that it passed through in hand: nothing was left to a collection.
    assert refused.value.__traceback__ is not None
    assert not engine_of(lake.log).pins.read()


def test_a_relation_whose_metadata_file_the_table_has_let_go_of_says_so(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.round()
    found = lake.log["orders"].scan().to_duckdb()
    table = lake.state("orders").native
    assert isinstance(table, Table)
    Path(table.metadata_location.removeprefix("file://")).unlink()

    with pytest.raises(duckdb.IOException, match="metadata"):
        found.fetchall()


def test_a_connection_of_the_callers_own_is_used(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.round()
    with closing(duckdb.connect()) as own:
        own.execute("CREATE TABLE names AS SELECT 1 AS x, 'one' AS name")

        found = lake.log["orders"].scan().to_duckdb(own)

        assert found.join(own.table("names"), "x").fetchall() == [(1, "one")]


def test_without_the_packages_the_call_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "duckdb_extension_iceberg", None)
    monkeypatch.delitem(sys.modules, duckdb_view.__name__)

    with pytest.raises(InvalidRequest, match=r"pip install 'headwater\[duckdb\]'"):
        importlib.import_module(duckdb_view.__name__)
