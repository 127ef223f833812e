"""Scans of a real log with real tables: the same rows whether they are in the log, in the table, or in both."""

from __future__ import annotations

import datetime
import decimal
import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

import headwater as hw
from headwater.errors import Closed, InvalidRequest, LandingHalted
from headwater.lake.scan import Scan
from headwater.settings import LogSettings
from tests.unit.lake.delete_files import add_delete_file
from tests.unit.lake.keyed_tables import STATE, Keyed, keyed
from tests.unit.lake.small_lakes import SETTINGS, SmallLake, lakes
from tests.unit.topics.small_engines import engine_of

BEFORE_1970 = datetime.datetime(1969, 1, 1, microsecond=1, tzinfo=datetime.UTC)
NEW_YEAR = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path)


def xs(scan: Scan) -> list[int]:
    """The values of x; that as many rows are counted is looked at too."""
    found = sorted(scan.to_arrow()["x"].to_pylist())
    assert scan.count() == len(scan) == len(found)
    scan.close()
    return found


def orders(lake: SmallLake, **given: Any) -> list[int]:
    return xs(lake.log["orders"].scan(**given))


# ------------------------------------------------------------------------------------------- table and tail as one


def test_rows_are_seen_once_while_they_go_from_the_log_into_the_table(lake: SmallLake) -> None:
    lake.topic("orders")
    assert orders(lake) == []
    lake.append("orders", 3)
    assert orders(lake) == [0, 1, 2]
    lake.round()
    assert orders(lake) == [0, 1, 2]
    lake.append("orders", 2)
    assert orders(lake) == [0, 1, 2, 3, 4]
    lake.round()
    lake.append("orders", 1)

    scan = lake.log["orders"].scan()

    assert xs(scan) == [0, 1, 2, 3, 4, 5]
    assert len(scan.plan.tables) == 1 and scan.plan.tail[0] == scan.plan.tables[0].lsn_to


def test_a_topic_without_a_table_is_read_from_the_log(lake: SmallLake) -> None:
    lake.log.topic("plain", {"x": int})
    lake.log["plain"].append([{"x": 1}, {"x": 2}])

    assert xs(lake.log["plain"].scan()) == [1, 2]
    assert xs(lake.log["plain"].scan(where="x > 1")) == [2]


def test_a_log_in_memory_can_be_scanned_and_cut() -> None:
    with hw.open(":memory:") as log:
        log.topic("plain", {"x": int})
        log.topic("keyed", {"k": int, "v": str}, key="k")
        log["plain"].append([{"x": 1}])
        log["keyed"].upsert([{"k": 1, "v": "a"}, {"k": 2, "v": "b"}])
        cut = log.cut()
        log["plain"].append([{"x": 2}])
        log["keyed"].upsert([{"k": 1, "v": "c"}])
        log["keyed"].delete([{"k": 2}])

        assert xs(log["plain"].scan()) == [1, 2]
        assert xs(log["plain"].scan(as_of=cut)) == [1]
        assert log["keyed"].scan().to_pylist() == [{"k": 1, "v": "c"}]
        assert sorted(row["v"] for row in log["keyed"].scan(as_of=cut).to_pylist()) == ["a", "b"]


def test_rows_that_were_in_the_table_before_the_topic_are_shown_with_null_for_what_only_a_log_gives(
    lake: SmallLake,
) -> None:
    lake.topic("orders")
    tables = lake.place.connect()
    tables.catalog.create_namespace("lake")
    schema = pa.schema([pa.field("x", pa.int64())])
    tables.catalog.create_table("lake.orders", schema=schema).append(pa.table({"x": [-1, -2]}, schema=schema))
    tables.close()
    lake.append("orders", 2)
    cut = lake.log.cut("orders")
    assert orders(lake) == [-2, -1, 0, 1]
    lake.round()
    lake.append("orders", 1)

    assert orders(lake) == [-2, -1, 0, 1, 2]
    assert orders(lake, as_of=cut) == [-2, -1, 0, 1]
    assert orders(lake, where="_hw_lsn is null") == [-2, -1]
    with lake.native() as table:
        table.overwrite(table.scan().to_arrow())
    assert orders(lake, as_of=cut) == [-2, -1, 0, 1]
    lake.expire_all_but_head()
    assert orders(lake, as_of=cut) == [-2, -1, 0, 1]


EVERY_TYPE: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, None, False]),
    "int8": (pa.int8(), [-128, None, 127]),
    "int16": (pa.int16(), [-(2**15), None, 2**15 - 1]),
    "int32": (pa.int32(), [-(2**31), None, 2**31 - 1]),
    "int64": (pa.int64(), [-(2**63), None, 2**63 - 1]),
    "uint8": (pa.uint8(), [0, None, 255]),
    "uint16": (pa.uint16(), [0, None, 2**16 - 1]),
    "uint32": (pa.uint32(), [0, None, 2**32 - 1]),
    "float16": (pa.float16(), [1.5, None, -0.25]),
    "float32": (pa.float32(), [1.5, None, float("inf")]),
    "float64": (pa.float64(), [1e300, None, -0.0]),
    "decimal": (pa.decimal128(20, 4), [decimal.Decimal("12345.6789"), None, decimal.Decimal("-0.0001")]),
    "string": (pa.string(), ["", None, "grüße"]),
    "binary": (pa.binary(), [b"", None, b"\x00\xff"]),
    "fixed": (pa.binary(4), [b"abcd", None, b"\0\0\0\0"]),
    "date": (pa.date32(), [datetime.date(1969, 12, 31), None, datetime.date(9999, 12, 31)]),
    "naive": (pa.timestamp("us"), [BEFORE_1970.replace(tzinfo=None), None, NEW_YEAR.replace(tzinfo=None)]),
    "aware": (pa.timestamp("us", "UTC"), [BEFORE_1970, None, NEW_YEAR]),
    "list": (pa.list_(pa.int8()), [[1, None], None, []]),
    "structs": (pa.list_(pa.struct([("a", pa.uint16()), ("b", pa.string())])), [[{"a": 1, "b": "x"}, None], None, []]),
    "struct": (
        pa.struct([("a", pa.float16()), ("b", pa.list_(pa.uint32()))]),
        [{"a": 0.5, "b": [7]}, None, {"a": None, "b": None}],
    ),
    "map": (pa.map_(pa.string(), pa.int16()), [[("k", 1), ("l", None)], None, []]),
}


def test_every_type_comes_from_the_table_as_it_comes_from_the_log(lake: SmallLake) -> None:
    schema = pa.schema([pa.field("x", pa.int64()), *(pa.field(name, type_) for name, (type_, _) in EVERY_TYPE.items())])
    lake.log.topic("types", schema, table="lake.types")
    topic = lake.log["types"]
    columns = [[0, 1, 2], *(values for _, values in EVERY_TYPE.values())]
    topic.append(
        pa.table([pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)], schema)
    )
    read = topic.read().to_arrow()
    in_the_log = topic.scan().to_arrow()
    lake.round()

    landed = topic.scan()
    in_the_table = landed.to_arrow()

    assert landed.plan.tail[0] == landed.plan.tail[1], "nothing comes from the log"
    assert in_the_log.schema.equals(read.schema) and in_the_table.schema.equals(read.schema)
    for name in read.column_names:
        assert in_the_log[name].to_pylist() == read[name].to_pylist(), name
        assert in_the_table[name].to_pylist() == read[name].to_pylist(), name


def test_a_scan_has_all_the_forms_that_rows_have(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.round()
    lake.append("orders", 1)
    scan = lake.log["orders"].scan()

    assert sorted(scan.to_pandas()["x"]) == [0, 1, 2]
    assert sorted(scan.to_polars()["x"].to_list()) == [0, 1, 2]
    assert sorted(row["x"] for row in scan.to_pylist()) == [0, 1, 2]
    assert sum(batch.num_rows for batch in scan) == 3
    assert pa.table(scan).num_rows == 3
    assert sorted(scan.to_duckdb().fetchall()) == [(0,), (1,), (2,)]
    assert repr(scan) == f"Scan('orders' at lsn {scan.cut.lsn})"
    assert scan.topic.name == "orders" and scan.views is lake.log._viewed() and scan.wanted.topic == scan.topic


def test_the_tail_has_the_types_of_the_table_and_the_columns_of_the_system(lake: SmallLake) -> None:
    lake.log.topic("small", pa.schema([pa.field("x", pa.uint8())]), table="lake.small")
    lake.log["small"].append([{"x": 7}])

    tail = lake.log["small"].scan().tail()

    assert tail.schema.field("x").type == pa.int32()
    assert tail.column_names == ["x", "_hw_shard", "_hw_lsn", "_hw_partition", "_hw_offset", "_hw_time"]
    [row] = tail.to_pylist()
    assert (row["x"], row["_hw_shard"], row["_hw_partition"], row["_hw_offset"]) == (7, 0, 0, 0)
    lake.round()
    assert lake.log["small"].scan().tail().num_rows == 0


# -------------------------------------------------------------------------------------------- columns and conditions


def test_columns_of_the_system_come_where_they_are_named(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.round()
    lake.append("orders", 1)

    scan = lake.log["orders"].scan(columns=["_hw_offset", "x", "_hw_shard"])

    assert scan.schema.names == ["_hw_offset", "x", "_hw_shard"]
    assert sorted(tuple(row.values()) for row in scan.to_pylist()) == [(0, 0, 0), (1, 1, 0), (2, 2, 0)]
    assert [row["_hw_shard"] for row in lake.log["orders"].scan(columns="_hw_shard").to_pylist()] == [0, 0, 0]


def test_a_condition_holds_for_table_and_tail(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round()
    lake.append("orders", 2)
    lake.append("orders", 1)

    assert orders(lake, where="x > 1") == [2, 3, 4, 5]
    assert orders(lake, where="x = 5") == [5]
    assert orders(lake, where="x > 1 and x < 5", columns=["x"]) == [2, 3, 4]
    assert orders(lake, where="_hw_offset = 4") == [4]
    assert orders(lake, where="x < 2") == [0, 1], "nothing of the tail"
    assert lake.log["orders"].scan(columns=["_hw_lsn"], where="x = 5").to_arrow().num_rows == 1


def test_row_groups_without_a_row_that_is_wanted_make_no_batches(lake: SmallLake) -> None:
    # The first row makes the bounds of its group so wide that the group is read for nothing.
    lake.topic("orders")
    lake.log["orders"].append(pa.table({"x": [10**9, *range(140_000)]}))
    lake.round()

    scan = lake.log["orders"].scan(where="x = 139999")

    assert [batch.num_rows for batch in scan.batches()] == [1]


def test_what_cannot_be_asked_for_is_told_before_anything_is_looked_up(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.before["load"] = lambda _: pytest.fail("a table was looked up")

    with pytest.raises(InvalidRequest, match="has no column 'y'; it has x, _hw_shard"):
        lake.log["orders"].scan(columns=["y"])
    with pytest.raises(InvalidRequest, match="at least one"):
        lake.log["orders"].scan(columns=[])
    with pytest.raises(InvalidRequest, match="cannot be used"):
        lake.log["orders"].scan(where="y > 1")


# --------------------------------------------------------------------------------------------- what owners have done


def test_a_column_that_came_later_is_null_in_older_rows_and_a_widened_one_is_wide(lake: SmallLake) -> None:
    lake.log.topic("orders", pa.schema([pa.field("x", pa.int32())]), table="lake.orders")
    lake.log["orders"].append([{"x": 1}])
    lake.round()
    lake.log["orders"].alter(schema=pa.schema([pa.field("x", pa.int64()), pa.field("note", pa.string())]))
    lake.log["orders"].append([{"x": 2**40, "note": "new"}])

    before = lake.log["orders"].scan().to_pylist()
    lake.round()
    after = lake.log["orders"].scan().to_pylist()

    expected = [{"x": 1, "note": None}, {"x": 2**40, "note": "new"}]
    assert sorted(before, key=lambda row: row["x"]) == sorted(after, key=lambda row: row["x"]) == expected
    assert orders(lake, where="note is null") == [1]


def test_a_column_that_the_owner_dropped_is_named_and_the_others_can_be_read(lake: SmallLake) -> None:
    lake.log.topic("orders", {"x": int, "note": str}, table="lake.orders")
    lake.log["orders"].append([{"x": 1, "note": "a"}])
    lake.round()
    with lake.native() as table, table.update_schema() as update:
        update.delete_column("note")

    assert orders(lake, columns=["x"]) == [1]
    with pytest.raises(InvalidRequest, match="no longer has the column 'note'"):
        lake.log["orders"].scan().to_arrow()


def test_a_column_that_the_owner_renamed_is_the_topics_no_more(lake: SmallLake) -> None:
    # The topic's column is found by its name: what its owner calls otherwise is the owner's.
    lake.log.topic("orders", {"x": int, "note": str}, table="lake.orders")
    lake.log["orders"].append([{"x": 1, "note": "a"}])
    lake.round()
    with lake.native() as table, table.update_schema() as update:
        update.rename_column("note", "remark")

    with pytest.raises(InvalidRequest, match="no longer has the column 'note'"):
        lake.log["orders"].scan().to_arrow()


def test_rows_that_the_owner_deleted_are_gone_and_those_of_its_own_are_there(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 4)
    lake.round()
    with lake.native() as table:
        add_delete_file(table, 1)
        with table.refresh().update_schema() as update:
            update.add_column("remark", StringType())
    lake.foreign_append(x=-5)
    lake.append("orders", 1)

    assert orders(lake) == [-5, 0, 2, 3, 4]


def test_a_table_that_was_rolled_back_is_made_whole_from_the_log_or_nothing_is_shown(tmp_path: Path) -> None:
    log_settings = LogSettings(
        reserve_bytes=0, segment_size_bytes_max=4096, write_body_bytes_max=4096, deletion_grace_s=0.0
    )
    settings = hw.Settings(log=log_settings, journal=SETTINGS.journal, upkeep_interval_s=0, landing=SETTINGS.landing)
    for lake in lakes(tmp_path, settings):
        lake.topic("orders")
        lake.append("orders", 3)
        lake.round()
        first = lake.state().branches["main"]
        for _ in range(8):
            lake.append("orders", 100)
        lake.round()
        everything = list(range(803))
        assert orders(lake) == everything
        lake.rollback(first)
        assert orders(lake) == everything, "the log still has what the table lacks"
        cut = lake.log.cut("orders")

        lake.clock.advance(700)
        lake.log.checkpoint()
        lake.append("orders", 1)
        lake.log.checkpoint()
        assert lake.log.cleanup().deleted

        with pytest.raises(LandingHalted, match="let go of rows"):
            lake.log["orders"].scan()
        with pytest.raises(LandingHalted, match="let go of rows"):
            lake.log["orders"].scan(as_of=cut)


# ------------------------------------------------------------------------------------------------------------- pins


def pins(lake: SmallLake) -> list[str]:
    return [each.holder for each in engine_of(lake.log).pins.read()]


def test_a_scan_holds_what_it_reads_until_it_is_closed(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 1)
    lake.round()
    lake.append("orders", 1)

    scan = lake.log["orders"].scan()

    [pin] = pins(lake)
    head = lake.state().branches["main"]
    assert f"lsn {scan.plan.tail[0] + 1} " in pin and pin.endswith(f"snapshots {head}")
    scan.close()
    scan.close()
    assert pins(lake) == []
    for use in (scan.to_arrow, scan.count, scan.tail, scan.to_duckdb):
        with pytest.raises(Closed, match="scan again"):
            use()


def test_the_pin_of_a_scan_that_nobody_has_any_more_is_gone(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 1)

    scan = lake.log["orders"].scan()
    assert len(pins(lake)) == 1
    del scan
    gc.collect()

    assert pins(lake) == []


def test_the_pin_is_gone_behind_a_with_and_after_a_cut(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 1)

    with lake.log["orders"].scan() as scan:
        assert len(pins(lake)) == 1
    lake.log.cut("orders")

    assert pins(lake) == [] and not scan._let_go.alive


def test_what_a_scan_reads_stays_while_the_log_forgets(tmp_path: Path) -> None:
    settings = hw.Settings(
        log=LogSettings(reserve_bytes=0, segment_size_bytes_max=4096, write_body_bytes_max=4096, deletion_grace_s=0.0),
        journal=SETTINGS.journal,
        upkeep_interval_s=0,
        landing=SETTINGS.landing,
    )
    for lake in lakes(tmp_path, settings):
        lake.topic("orders")
        for _ in range(8):
            lake.append("orders", 100)
        scan = lake.log["orders"].scan()
        lake.round()
        for _ in range(2):
            lake.clock.advance(700)
            lake.append("orders", 1)
            lake.log.checkpoint()

        assert lake.log.cleanup().deleted == ()
        assert xs(scan) == list(range(800))
        assert lake.log.cleanup().deleted
        assert orders(lake) == list(range(802))


# ------------------------------------------------------------------------------------------------------------ keyed


@pytest.fixture
def customers(tmp_path: Path) -> Iterator[Keyed]:
    with keyed(tmp_path) as found:
        yield found


def names(scan: Scan) -> dict[int, str]:
    rows = scan.to_pylist()
    assert scan.count() == len(rows)
    found = {row["id"]: row["name"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


def test_a_keyed_topic_is_its_state_its_changes_and_its_tail(customers: Keyed) -> None:
    topic = customers.topic
    customers.land((1, "a"), (2, "b"), (3, "c"), (4, "d"))
    assert names(topic.scan()) == {1: "a", 2: "b", 3: "c", 4: "d"}
    customers.merge()
    customers.land((2, "landed"), (5, "e"))
    topic.delete([{"id": 4}])
    topic.upsert([{"id": 3, "name": "tail"}])
    topic.upsert([{"id": 3, "name": "newest"}])

    scan = topic.scan()

    assert names(scan) == {1: "a", 2: "landed", 3: "newest", 5: "e"}
    assert scan.plan.base is not None and len(scan.plan.tables) == 1
    assert "_hw_op" in scan.tail().column_names and "_hw_op" not in scan.to_arrow().column_names


def test_a_condition_on_a_keyed_topic_never_shows_what_a_later_change_replaced(customers: Keyed) -> None:
    topic = customers.topic
    customers.land((1, "a"), (2, "b"), (3, "c"))
    customers.merge()
    customers.land((1, "z"), (2, "y"))
    topic.upsert([{"id": 2, "name": "x"}])
    topic.delete([{"id": 3}])

    assert names(topic.scan(where="name = 'a'")) == {}
    assert names(topic.scan(where="name = 'y'")) == {}
    assert names(topic.scan(where="name = 'c'")) == {}
    assert names(topic.scan(where="name >= 'x'")) == {1: "z", 2: "x"}
    assert names(topic.scan(where="id = 2")) == {2: "x"}
    assert names(topic.scan(where="id = 2 and name = 'x'")) == {2: "x"}
    assert names(topic.scan(where="id = 2 and name = 'y'")) == {}
    assert topic.scan(columns=["name"], where="id = 1").to_pylist() == [{"name": "z"}]


def test_a_cut_of_a_keyed_topic_stays_while_it_is_merged_and_its_snapshots_expire(customers: Keyed) -> None:
    topic = customers.topic
    customers.land((1, "a"), (2, "b"))
    customers.merge()
    topic.upsert([{"id": 1, "name": "tail"}])
    cut = customers.log.cut("customers")
    expected = {1: "tail", 2: "b"}
    assert names(topic.scan(as_of=cut)) == expected

    customers.log.land()
    customers.land((3, "later"))
    topic.delete([{"id": 2}])
    assert names(topic.scan(as_of=str(cut))) == expected
    state = customers.pyiceberg(STATE)
    state.append(state.scan("id == 0").to_arrow())
    state.refresh()
    gone = [each.snapshot_id for each in state.snapshots() if each.snapshot_id != state.current_snapshot().snapshot_id]
    state.maintenance.expire_snapshots().by_ids(gone).commit()

    assert names(topic.scan(as_of=cut)) == expected
    assert names(topic.scan()) == {1: "tail", 3: "later"}
