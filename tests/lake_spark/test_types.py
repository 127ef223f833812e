"""Every type that a topic may have survives from the log to the table, as Spark, pyiceberg and DuckDB read it; every
other is refused, or cast, at the door."""

from __future__ import annotations

import datetime
import decimal
import functools
import math
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.table import Table

import headwater as hw
from headwater.errors import InvalidRequest
from headwater.lake.digest import digest_of
from headwater.lake.digest_sql import digest_of_rows, sql_query
from headwater.lake.report import TopicLanding
from tests.e2e_lake.same_rows import table_rows
from tests.lake_spark.sessions import SqliteLake, session_on
from tests.lake_spark.test_digest_spark import columns_of

# py4j and pyiceberg's SQLite leave connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

UTC = datetime.UTC
NAN = float("nan")
D = decimal.Decimal
NOON = datetime.datetime.fromisoformat("2026-11-15T12:00:00.123456")
FIRST, LAST = (datetime.datetime.fromisoformat(at) for at in ("0001-01-01", "9999-12-31T23:59:59.999999"))
# It is in no clock of New York, and in every column without a zone.
SKIPPED = datetime.datetime.fromisoformat("2026-03-08T02:30:00")
HALF = pa.array(np.array([0, 1.5, -0.0, np.nan, np.inf, -np.inf, 65504, 6e-8], np.float16))


@dataclass(frozen=True)
class Given:
    """A column as somebody appends it."""

    name: str
    column: pa.Array

    @property
    def values(self) -> list[Any]:
        return [plain(value) for value in self.column.to_pylist()]


def given(name: str, type_: pa.DataType, values: list[Any]) -> Given:
    return Given(name, pa.array(values, type_))


PAIR = pa.struct([("a", pa.int16()), ("b", pa.string())])
KEPT = [
    given("bool", pa.bool_(), [True, False, None]),
    *(
        given(f"int{bits}", getattr(pa, f"int{bits}")(), [0, None, -(2 ** (bits - 1)), 2 ** (bits - 1) - 1])
        for bits in (8, 16, 32, 64)
    ),
    *(given(f"uint{bits}", getattr(pa, f"uint{bits}")(), [0, None, 2**bits - 1]) for bits in (8, 16, 32)),
    Given("float16", HALF),
    given("float32", pa.float32(), [1.5, None, -0.0, NAN, math.inf, -math.inf, 1e-45]),
    given("float64", pa.float64(), [0.1, None, -0.0, NAN, math.inf, -math.inf, 5e-324, 1.7976931348623157e308]),
    given("string", pa.string(), ["", None, "Zürich", "\0", "𝄞", "x" * 5000]),
    given("binary", pa.binary(), [b"", None, b"\0", bytes(range(256))]),
    given("fixed", pa.binary(3), [b"abc", None, b"\0\0\0"]),
    given("date32", pa.date32(), [NOON.date(), None, FIRST.date(), LAST.date(), datetime.date(1582, 10, 14)]),
    given("decimal128_1", pa.decimal128(1, 0), [D(0), None, D(9), D(-9)]),
    given("decimal128_18", pa.decimal128(18, 4), [D("0.0001"), None, D("99999999999999.9999"), D("-1.5")]),
    given("decimal128_38", pa.decimal128(38, 0), [D("9" * 38), None, D("-" + "9" * 38), D(0)]),
    given("decimal128_scale", pa.decimal128(38, 38), [D("0." + "9" * 38), None, D("-0." + "0" * 37 + "1")]),
    given("timestamp_us", pa.timestamp("us"), [NOON, None, FIRST, LAST, SKIPPED]),
    given("timestamp_us_utc", pa.timestamp("us", "UTC"), [NOON, None, FIRST, LAST]),
    given("list", pa.list_(pa.int64()), [[], None, [1], [None, 2]]),
    given("struct", PAIR, [{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
    given("map", pa.map_(pa.string(), pa.int32()), [[], None, [("b", 1), ("a", None)]]),
    given("map_with_a_key_twice", pa.map_(pa.string(), pa.binary()), [[("h", b"1"), ("h", b"2")], None]),
]
CAST = [
    given("large_string", pa.large_string(), ["", None, "a"]),
    given("string_view", pa.string_view(), ["", None, "a longer text than fits a view"]),
    given("large_binary", pa.large_binary(), [b"", None, b"a"]),
    given("binary_view", pa.binary_view(), [b"", None, b"a longer text than fits a view"]),
    Given("dictionary", pa.array(["a", None, "b", "a"]).dictionary_encode()),
    Given("dictionary_int", pa.array([7, None, 7, 8], pa.int16()).dictionary_encode()),
    given("decimal32", pa.decimal32(9, 2), [D("1.25"), None, D("-9999999.99")]),
    given("decimal64", pa.decimal64(18, 2), [D("1.25"), None]),
    given("decimal256", pa.decimal256(38, 2), [D("1.25"), None, D("-" + "9" * 36 + ".99")]),
    given("timestamp_s", pa.timestamp("s"), [NOON.replace(microsecond=0), None]),
    given("timestamp_ms", pa.timestamp("ms"), [NOON.replace(microsecond=123000), None]),
    given("timestamp_ms_utc", pa.timestamp("ms", "UTC"), [NOON.replace(microsecond=123000), None]),
    given("timestamp_s_zone", pa.timestamp("s", "America/New_York"), [NOON.replace(microsecond=0), None]),
    given("timestamp_us_zone", pa.timestamp("us", "+05:30"), [NOON, None]),
    given("timestamp_ns", pa.timestamp("ns"), [NOON, None]),
    given("date64", pa.date64(), [NOON.date(), None]),
    given("large_list", pa.large_list(pa.int8()), [[], None, [1, None]]),
    given("fixed_list", pa.list_(pa.int8(), 2), [[1, None], None, [2, 3]]),
    given("uuid", pa.uuid(), [uuid.UUID(int=5).bytes, None, uuid.UUID(int=2**128 - 1).bytes]),
]
NESTED = [
    given("list_of_uint8", pa.list_(pa.uint8()), [[255, None], None, []]),
    given("list_of_float16", pa.list_(pa.float16()), [[np.float16(1.5)], None]),
    given("list_of_lists", pa.list_(pa.list_(pa.string())), [[[], None, ["a", None]], [], None]),
    given("list_of_large", pa.large_list(pa.large_string()), [["a", None], None]),
    given("list_of_maps", pa.list_(pa.map_(pa.int8(), pa.uint32())), [[[(1, 2**32 - 1)], None, []], None, []]),
    given("list_of_times", pa.list_(pa.timestamp("s", "UTC")), [[NOON.replace(microsecond=0), None], None]),
    given("list_of_decimals", pa.list_(pa.decimal128(20, 2)), [[D("1.25"), None], None]),
    given("struct_of_structs", pa.struct([("s", PAIR), ("n", pa.uint16())]), [{"s": {"a": 1, "b": ""}, "n": 9}, None]),
    given("struct_of_lists", pa.struct([("l", pa.list_(pa.date32()))]), [{"l": [NOON.date()]}, {"l": None}, None]),
    given(
        "map_of_maps", pa.map_(pa.string(), pa.map_(pa.int32(), pa.float32())), [[("k", [(1, 1.5)]), ("l", None)], None]
    ),
    given("map_by_date", pa.map_(pa.date32(), pa.bool_()), [[(NOON.date(), True)], None]),
    given("map_by_map", pa.map_(pa.map_(pa.string(), pa.int8()), pa.int8()), [[([("k", 1)], 1)], None]),
    given("map_by_struct", pa.map_(PAIR, pa.int8()), [[({"a": 1, "b": "x"}, 1)], None]),
    given("map_by_bytes", pa.map_(pa.binary(2), pa.list_(PAIR)), [[(b"ab", [{"a": 1, "b": "x"}])], None]),
]
STRUCTS = [
    given("map_of_structs", pa.map_(pa.string(), PAIR), [[("k", {"a": 1, "b": None}), ("l", None)], None, []]),
    given("list_of_structs", pa.list_(PAIR), [[{"a": 1, "b": "x"}, None], [], None]),
    given("list_in_lists", pa.list_(pa.list_(PAIR)), [[[{"a": 1, "b": "x"}], [], None], None]),
]
EVERY = [*KEPT, *CAST, *NESTED, *STRUCTS]

REFUSED = [
    pa.uint64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
    pa.duration("us"),
    pa.month_day_nano_interval(),
    pa.null(),
    pa.sparse_union([pa.field("a", pa.int8())]),
    pa.dense_union([pa.field("a", pa.int8())]),
    pa.list_view(pa.int8()),
    pa.large_list_view(pa.int8()),
    pa.run_end_encoded(pa.int32(), pa.string()),
    pa.decimal256(39, 0),
    pa.decimal128(5, -2),
    pa.binary(0),
    pa.json_(),
    pa.bool8(),
    pa.opaque(pa.binary(), "point", "maps"),
    pa.fixed_shape_tensor(pa.int8(), [2]),
    pa.struct([]),
]


def plain(value: Any) -> Any:
    """A value as every engine can tell it: what differs is only how Python shows it."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value.hex()
    if isinstance(value, np.floating):
        return plain(float(value))
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if isinstance(value, datetime.datetime):
        return value.astimezone(UTC).isoformat() if value.tzinfo else value.isoformat()
    if isinstance(value, dict):
        return {name: plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return value


# ------------------------------------------------------------------------------------------- into the table, once


@dataclass(frozen=True)
class Landed:
    """A topic with a column of each type, landed; a column with fewer values than others ends in nulls."""

    lake: SqliteLake
    log: hw.Log
    done: TopicLanding
    count: int

    @property
    def table(self) -> Table:
        return load_catalog(**self.lake.pyiceberg_properties).load_table("t.every")

    @functools.cached_property
    def in_the_log(self) -> pa.Table:
        return self.log["every"].read().to_arrow()

    @functools.cached_property
    def in_spark(self) -> pa.Table:
        found: pa.Table = session_on(self.lake).table("lake.t.every").toArrow()
        return found.sort_by("_hw_offset")

    @functools.cached_property
    def in_pyiceberg(self) -> pa.Table:
        return self.table.scan().to_arrow().sort_by("_hw_offset")

    @functools.cached_property
    def in_duckdb(self) -> pa.Table:
        return table_rows(self.table).sort_by("_hw_offset")


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Landed]:
    folder = tmp_path_factory.mktemp("types")
    lake = SqliteLake(folder)
    count = max(len(each.column) for each in EVERY)
    rows = pa.table(
        {
            each.name: pa.concat_arrays([each.column, pa.nulls(count - len(each.column), each.column.type)])
            for each in EVERY
        }
    )
    with hw.open(folder / "log", catalog=lake.pyiceberg_properties) as log:
        log.topic("every", rows.schema, table="t.every").append(rows)
        (done,) = log.land(verify="read-back").topics
        yield Landed(lake, log, done, count)


def test_all_types_land_together_and_are_verified(landed: Landed) -> None:
    done = landed.done

    assert (done.outcome, done.rows, done.verified) == ("landed", landed.count, True), done.message


READERS = ("in_the_log", "in_spark", "in_pyiceberg", "in_duckdb")
# pyiceberg's own reader shows null as empty where a list or map holds structs: apache/iceberg-python#3833.  The files
# are right, as the others show, and the digests of landings do not go through that reader.
SHOWN_AS_EMPTY = {("in_pyiceberg", "list_of_structs"), ("in_pyiceberg", "map_of_structs")}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("each", EVERY, ids=lambda each: each.name)
def test_a_column_of_each_type_survives(landed: Landed, each: Given, reader: str) -> None:
    rows: pa.Table = getattr(landed, reader)

    found = [plain(value) for value in rows.column(each.name).to_pylist()]

    wanted = each.values + [None] * (landed.count - len(each.values))
    if (reader, each.name) in SHOWN_AS_EMPTY:
        wanted = [[] if value is None else value for value in wanted]
    assert found == wanted


def test_the_digest_of_the_landing_is_what_spark_finds_in_the_table(landed: Landed) -> None:
    snapshot = landed.table.current_snapshot()
    assert snapshot is not None and snapshot.summary is not None

    query = sql_query(columns_of(landed.table.schema()), "lake.t.every")
    found = digest_of_rows(session_on(landed.lake).sql(query).collect())

    assert str(found) == snapshot.summary["headwater.digest"]
    assert found.rows == landed.count


TABLE_TYPES = {
    **dict.fromkeys(["int8", "int16", "int32", "uint8", "uint16", "dictionary_int"], "int"),
    **dict.fromkeys(["int64", "uint32"], "long"),
    **dict.fromkeys(["float16", "float32"], "float"),
    **dict.fromkeys(["string", "large_string", "string_view", "dictionary"], "string"),
    **dict.fromkeys(["binary", "large_binary", "binary_view"], "binary"),
    **dict.fromkeys(["date32", "date64"], "date"),
    **dict.fromkeys(["timestamp_us", "timestamp_ns", "timestamp_ms", "timestamp_s"], "timestamp"),
    **dict.fromkeys(["timestamp_us_utc", "timestamp_ms_utc", "timestamp_s_zone", "timestamp_us_zone"], "timestamptz"),
    "bool": "boolean",
    "float64": "double",
    "fixed": "fixed[3]",
    "uuid": "fixed[16]",
    "decimal32": "decimal(9, 2)",
    "decimal64": "decimal(18, 2)",
    "decimal256": "decimal(38, 2)",
    "decimal128_1": "decimal(1, 0)",
    "decimal128_18": "decimal(18, 4)",
    "decimal128_38": "decimal(38, 0)",
    "decimal128_scale": "decimal(38, 38)",
}


def test_the_table_has_the_types_that_its_topic_asks_for(landed: Landed) -> None:
    fields = landed.table.schema().fields

    found = {field.name: str(field.field_type) for field in fields if field.field_type.is_primitive}

    assert {name: type_ for name, type_ in found.items() if not name.startswith("_hw_")} == TABLE_TYPES


def test_every_type_of_arrow_is_kept_cast_or_refused_here() -> None:
    """A type that pyarrow gets one day has no place until somebody has thought about it."""
    ids = {name for name in dir(pa.lib) if name.startswith("Type_")}
    tried = {id_of(each.column.type) for each in EVERY} | {id_of(type_) for type_ in REFUSED}
    never_a_column = {"Type_MAX_ID", "Type_INTERVAL_MONTHS", "Type_INTERVAL_DAY_TIME"}

    assert {name for name in ids if getattr(pa.lib, name) not in tried} <= never_a_column


def id_of(type_: pa.DataType) -> int:
    number: int = type_.id
    return number


# ------------------------------------------------------------------------------------------------------ the door


INSIDE: dict[str, Callable[[pa.DataType], pa.DataType]] = {
    "itself": lambda type_: type_,
    "list": lambda type_: pa.list_(pa.field("item", type_)),
    "struct": lambda type_: pa.struct([("f", type_)]),
    "key": lambda type_: pa.map_(type_, pa.int8()),
    "value": lambda type_: pa.map_(pa.int8(), type_),
}


# A map whose keys are of the null type is no type to pyarrow either.
@pytest.mark.parametrize(
    ("inside", "type_"),
    [(inside, type_) for inside in INSIDE for type_ in REFUSED if (inside, type_) != ("key", pa.null())],
    ids=str,
)
def test_a_column_of_any_other_type_is_refused_by_its_name(tmp_path: Path, inside: str, type_: pa.DataType) -> None:
    schema = pa.schema([("id", pa.int64()), ("price", INSIDE[inside](type_))])

    with hw.open(tmp_path) as log, pytest.raises(InvalidRequest, match="price"):
        log.topic("orders", schema, table="t.orders")


# --------------------------------------------------------------------------------------------- far away, and wider


def test_times_that_python_cannot_tell_land_too(tmp_path: Path) -> None:
    # Iceberg's and Spark's reach 290,000 years; Python's end with 9999, and with them pyiceberg's statistics.
    lake = SqliteLake(tmp_path)
    far = [2**63 - 1, -(2**63), 0, None]
    rows = pa.table(
        {
            "t": pa.array(far, pa.timestamp("us")),
            "z": pa.array(far, pa.timestamp("us", "UTC")),
            "d": pa.array([2**31 - 1, -(2**31), 0, None], pa.date32()),
            "l": pa.array([[far[0]], [far[1]], [], None], pa.list_(pa.timestamp("us"))),
        }
    )

    with hw.open(tmp_path / "log", catalog=lake.pyiceberg_properties) as log:
        log.topic("far", rows.schema, table="t.far").append(rows)
        (done,) = log.land().topics
    assert (done.outcome, done.verified) == ("landed", True), done.message

    table = load_catalog(**lake.pyiceberg_properties).load_table("t.far")
    spark = session_on(lake)
    asked = "SELECT unix_micros(z), unix_date(d), CAST(size(l) AS INT) FROM lake.t.far ORDER BY _hw_offset"
    assert [tuple(row) for row in spark.sql(asked).collect()] == [
        (far[0], 2**31 - 1, 1),
        (far[1], -(2**31), 1),
        (0, 0, 0),
        (None, None, None),
    ]
    found = digest_of_rows(spark.sql(sql_query(columns_of(table.schema()), "lake.t.far")).collect())
    assert found == digest_of(table.scan().to_arrow())
    # Bounds that are not there may not make a reader pass rows by.
    assert spark.sql("SELECT count(*) FROM lake.t.far WHERE z > TIMESTAMP '9999-12-31 00:00:00'").collect()[0][0] == 1
    assert spark.sql("SELECT count(*) FROM lake.t.far WHERE d = DATE '1970-01-01'").collect()[0][0] == 1


WIDER: dict[str, tuple[pa.DataType, Any, pa.DataType, Any]] = {
    "int8_16": (pa.int8(), -128, pa.int16(), 2**15 - 1),
    "int16_32": (pa.int16(), -(2**15), pa.int32(), 2**31 - 1),
    "int32_64": (pa.int32(), -(2**31), pa.int64(), 2**63 - 1),
    "int8_64": (pa.int8(), 127, pa.int64(), -(2**63)),
    "uint8_16": (pa.uint8(), 255, pa.uint16(), 2**16 - 1),
    "uint16_32": (pa.uint16(), 2**16 - 1, pa.uint32(), 2**32 - 1),
    "uint8_int16": (pa.uint8(), 255, pa.int16(), -1),
    "uint32_int64": (pa.uint32(), 2**32 - 1, pa.int64(), -1),
    "float16_32": (pa.float16(), np.float16(1.5), pa.float32(), 2.0**100),
    "float32_64": (pa.float32(), 0.5, pa.float64(), 0.1),
    "float16_64": (pa.float16(), np.float16(-0.0), pa.float64(), NAN),
    "decimal_5_9": (pa.decimal128(5, 2), D("999.99"), pa.decimal128(9, 2), D("-9999999.99")),
    "decimal_18_38": (pa.decimal128(18, 2), D("-1.25"), pa.decimal128(38, 2), D("9" * 36 + ".99")),
    "list": (pa.list_(pa.int8()), [1, None], pa.list_(pa.int64()), [2**40]),
    "map": (pa.map_(pa.string(), pa.float32()), [("a", 0.5)], pa.map_(pa.string(), pa.float64()), [("b", 0.1)]),
    "struct": (
        pa.struct([("a", pa.decimal128(3, 1))]),
        {"a": D("1.5")},
        pa.struct([("a", pa.decimal128(20, 1)), ("new", pa.string())]),
        {"a": D("-1.5"), "new": "x"},
    ),
}


def test_columns_that_were_widened_hold_old_rows_and_new(tmp_path: Path) -> None:
    lake = SqliteLake(tmp_path)
    before = pa.table({name: pa.array([value, None], type_) for name, (type_, value, _, _) in WIDER.items()})
    after = pa.table({name: pa.array([value, None], type_) for name, (_, _, type_, value) in WIDER.items()})
    after = after.append_column("added", pa.array(["x", None]))

    with hw.open(tmp_path / "log", catalog=lake.pyiceberg_properties) as log:
        topic = log.topic("wider", before.schema, table="t.wider")
        topic.append(before)
        (first,) = log.land().topics
        topic.alter(schema=after.schema)
        topic.append(after)
        (second,) = log.land().topics
        in_the_log = topic.read().to_arrow()
    assert (first.outcome, second.outcome) == ("landed", "landed"), second.message
    assert first.verified and second.verified

    table = load_catalog(**lake.pyiceberg_properties).load_table("t.wider")
    spark = session_on(lake)
    in_spark = spark.table("lake.t.wider").toArrow().sort_by("_hw_offset")
    in_pyiceberg = table.scan().to_arrow().sort_by("_hw_offset")
    for rows in (in_the_log, in_spark, in_pyiceberg, table_rows(table).sort_by("_hw_offset")):
        for name, (_, old, _, new) in WIDER.items():
            # A map is told as pairs, and a field that came later is null in the rows before it.
            wanted = [plain(old), None, plain(new), None]
            if name == "struct":
                wanted[0] = {"a": D("1.5"), "new": None}
            assert [plain(value) for value in rows.column(name).to_pylist()] == wanted, name
        assert rows.column("added").to_pylist() == [None, None, "x", None]

    # Each landing has the digest of its rows in the types that the table had then.
    for snapshot in table.snapshots():
        assert snapshot.summary is not None and snapshot.schema_id is not None
        mark = snapshot.summary.additional_properties
        lsns = f"_hw_lsn > {mark['headwater.lsn-from']} AND _hw_lsn <= {mark['headwater.lsn-to']}"
        query = sql_query(columns_of(table.schemas()[snapshot.schema_id]), "lake.t.wider", where=lsns)
        assert str(digest_of_rows(spark.sql(query).collect())) == mark["headwater.digest"]
