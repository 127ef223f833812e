"""Spark's digest of a table is Python's, for every type: the query of digest_sql.py on real Spark and real Iceberg."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import DecimalType, DoubleType, IcebergType, IntegerType, LongType

from headwater.errors import InvalidRequest
from headwater.lake.digest import digest_of
from headwater.lake.digest_sql import digest_of_rows, sql_expression, sql_query
from headwater.lake.work import Column, Digest
from tests.lake_spark.sessions import SqliteLake, session_on
from tests.unit.lake import plain_digest
from tests.unit.lake.digest_columns import SYSTEM, array_of, table_of
from tests.unit.lake.test_digest import TYPES, values_on_the_page, vectors

# py4j and pyiceberg's SQLite leave connections to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")

SEED = 5
DAY_US = 86_400_000_000
# What Spark can show of time: from year 1 to year 9999.
TIME_MIN_US, TIME_MAX_US = -62_135_596_800_000_000, 253_402_300_799_999_999

PLAIN: dict[str, tuple[pa.DataType, list[Any]]] = {
    "boolean": (pa.bool_(), [True, False]),
    "int": (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31)]),
    "long": (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63), 0x9E3779B97F4A7C15 - 2**64]),
    "float": (
        pa.float32(),
        [0.0, -0.0, 1.5, float("nan"), float("inf"), -float("inf"), struct.unpack("<f", b"\1\0\0\0")[0]],
    ),
    "double": (
        pa.float64(),
        [0.0, -0.0, 0.1, float("nan"), float("inf"), -float("inf"), 5e-324, 1.7976931348623157e308],
    ),
    "string": (pa.string(), ["", "a", "Zürich", "\0", "𝄞 clef", "x" * 31, "x" * 32, "x" * 33, "y" * 1000]),
    "binary": (pa.binary(), [b"", b"\0", b"\xff" * 7, bytes(range(256))]),
    "fixed": (pa.binary(5), [bytes(5), b"\xff" * 5, b"abcde"]),
    "uuid": (pa.uuid(), [bytes(16), b"\xff" * 16, bytes(range(16))]),
    "date": (pa.date32(), [0, -1, 20_772, -719_162, 2_932_896, -141_428]),
    "timestamp": (
        pa.timestamp("us"),
        # In New York two of these hours are missing, or there twice.
        [0, -1, 1, TIME_MIN_US, TIME_MAX_US, 1_773_023_400_000_000, 1_793_498_400_000_000, DAY_US - 1, -DAY_US],
    ),
    "timestamptz": (pa.timestamp("us", "UTC"), [0, -1, 1, TIME_MIN_US, TIME_MAX_US, 1_794_721_800_123_456]),
    "decimal_9": (pa.decimal128(9, 2), [0, 1, -1, 10**9 - 1, -(10**9) + 1]),
    "decimal_18": (pa.decimal128(18, 0), [0, 1, -1, 10**18 - 1, -(10**18) + 1]),
    "decimal_19": (pa.decimal128(19, 4), [0, 1, -1, 127, 128, -128, -129, 10**19 - 1, -(10**19) + 1]),
    "decimal_38": (pa.decimal128(38, 10), [0, 255, 256, -256, 2**63, -(2**63) - 1, 10**38 - 1, -(10**38) + 1]),
}
PAIR = pa.struct([("a b", pa.int32()), ("`", pa.float32())])
NESTED: dict[str, tuple[pa.DataType, list[Any]]] = {
    "struct": (PAIR, [(1, -0.0), (None, None), (-1, float("nan"))]),
    "list": (pa.list_(pa.int32()), [[], [1], [1, 2], [2, 1], [None], [None, None]]),
    "list_of_lists": (
        pa.list_(pa.list_(pa.float64())),
        [[], [[]], [[], [-0.0]], [None, [None]], [[float("nan"), 1.5]]],
    ),
    "list_of_structs": (pa.list_(PAIR), [[], [(1, 1.5)], [None, (None, None)], [(2, 0.0), (1, 0.0)]]),
    "map": (
        pa.map_(pa.string(), pa.binary()),
        [[], [("a", b"1")], [("b", None), ("a", b"")], [("a", b""), ("b", None)]],
    ),
    "map_of_lists": (
        pa.map_(pa.date32(), pa.list_(pa.decimal128(20, 2))),
        [[(0, [])], [(0, None), (1, [1, None])], [(-1, [-(10**20) + 1])]],
    ),
    "deep": (
        pa.struct(
            [("l", pa.list_(pa.map_(pa.int32(), pa.struct([("t", pa.timestamp("us")), ("u", pa.list_(pa.bool_()))]))))]
        ),
        [([],), ([[(1, (0, [True, None]))]],), (None,), ([None, [], [(2, None), (1, (-1, None))]],)],
    ),
}
EVERY = PLAIN | NESTED


def rows_of(columns: dict[str, tuple[pa.DataType, list[Any]]], count: int, seed: int = SEED) -> list[tuple[Any, ...]]:
    """Every value of every column at least once, with nulls between, over three partitions and some blocks."""
    drawn = random.Random(seed)
    decks = []
    for _, values in columns.values():
        deck = [*values, None, *drawn.choices([*values, None], k=count)][:count]
        drawn.shuffle(deck)
        decks.append(deck)
    system = [(0, 10 + n // 7, n % 3, 65_500 + n, 1_794_721_800_000_000 + n) for n in range(count)]
    return [(*own, *behind) for own, behind in zip(zip(*decks, strict=True), system, strict=True)]


def table_with(columns: dict[str, tuple[pa.DataType, list[Any]]], rows: Sequence[Sequence[Any]]) -> pa.Table:
    rows_in_arrow = table_of([type_ for type_, _ in columns.values()], rows)
    return rows_in_arrow.rename_columns([*columns, *SYSTEM.names])


def columns_of(schema: Schema) -> list[Column]:
    return [Column(field.field_id, field.name, spelled(field.field_type)) for field in schema.fields]


def spelled(type_: IcebergType) -> str:
    return str(type_) if type_.is_primitive else type_.model_dump_json()


@pytest.fixture
def lake(tmp_path: Path) -> SqliteLake:
    return SqliteLake(tmp_path)


@pytest.fixture
def catalog(lake: SqliteLake) -> Catalog:
    made = load_catalog(**lake.pyiceberg_properties)
    made.create_namespace("t")
    return made


def landed(lake: SqliteLake, catalog: Catalog, rows: pa.Table, name: str = "t.rows") -> Table:
    """A table of these rows.  pyiceberg's own append makes an empty list of a null one that holds structs."""
    table = catalog.create_table(name, rows.schema)
    file = lake.folder / f"{name}.parquet"
    pq.write_table(rows, file)
    table.add_files([f"file://{file}"])
    return table


def digest_in_spark(lake: SqliteLake, columns: Sequence[Column], name: str = "t.rows", **settings: str) -> Digest:
    spark = session_on(lake, **settings)
    return digest_of_rows(spark.sql(sql_query(columns, f"{lake.name}.{name}")).collect())


@pytest.mark.parametrize("name", EVERY)
def test_a_column_of_each_type_has_the_same_digest_in_spark(lake: SqliteLake, catalog: Catalog, name: str) -> None:
    columns = {name: EVERY[name]}
    rows = table_with(columns, rows_of(columns, 40))

    table = landed(lake, catalog, rows)

    assert digest_in_spark(lake, columns_of(table.schema())) == digest_of(rows)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kolkata"])
@pytest.mark.parametrize("ansi", ["true", "false"])
def test_neither_the_session_s_zone_nor_ansi_rules_change_it(
    lake: SqliteLake, catalog: Catalog, zone: str, ansi: str
) -> None:
    rows = table_with(EVERY, rows_of(EVERY, 300))
    table = landed(lake, catalog, rows)

    found = digest_in_spark(
        lake, columns_of(table.schema()), spark__sql__session__timeZone=zone, spark__sql__ansi__enabled=ansi
    )

    assert found == digest_of(rows)
    assert len(found.blocks) == 6


def test_spark_finds_the_words_of_the_page(lake: SqliteLake, catalog: Catalog) -> None:
    # One row, with a column for each value of the page's table; C of one word is the word of a row of that column.
    wanted = [(f"v{n}", TYPES[kind], text, word) for n, (kind, text, word) in enumerate(vectors())]
    values = [array_of(type_, values_on_the_page(type_, text)[-1:]) for _, type_, text, _ in wanted]
    rows = pa.Table.from_arrays(values, schema=pa.schema([(name, type_) for name, type_, _, _ in wanted]))
    columns = columns_of(landed(lake, catalog, rows).schema())

    asked = ", ".join(sql_expression([column]) for column in columns)
    (found,) = session_on(lake).sql(f"SELECT {asked} FROM lake.t.rows").collect()

    assert [word % 2**64 for word in found] == [plain_digest.chain([word]) for _, _, _, word in wanted]


def test_what_spark_writes_has_the_same_digest_when_it_is_read_in_python(lake: SqliteLake, catalog: Catalog) -> None:
    rows = table_with(EVERY, rows_of(EVERY, 100))
    table = landed(lake, catalog, rows)
    spark = session_on(lake)

    spark.sql("CREATE TABLE lake.t.copy USING iceberg AS SELECT * FROM lake.t.rows")

    copy = catalog.load_table("t.copy")
    files = [task.file.file_path.removeprefix("file:") for task in copy.scan().plan_files()]
    read = pa.concat_tables([pq.read_table(file) for file in files])
    # Spark has no uuid and no fixed binary: the copy has text and binary, which have the same words.
    assert digest_of(read.select(rows.column_names)) == digest_of(rows)
    assert digest_in_spark(lake, columns_of(table.schema()), "t.copy") == digest_of(rows)


def test_a_table_that_has_grown_since_has_the_digest_of_the_landing_over_its_rows(
    lake: SqliteLake, catalog: Catalog
) -> None:
    before = {
        "price": PLAIN["decimal_18"],
        "count": PLAIN["int"],
        "weight": PLAIN["float"],
        "pair": (pa.struct([("a", pa.int32()), ("d", pa.decimal128(9, 2))]), [(1, 100), (None, None)]),
    }
    rows = table_with(before, rows_of(before, 30))
    table = landed(lake, catalog, rows)
    columns, digest = columns_of(table.schema()), digest_of(rows)

    with table.update_schema() as update:
        update.update_column("price", DecimalType(30, 0))
        update.update_column("count", LongType())
        update.update_column("weight", DoubleType())
        update.update_column(("pair", "d"), DecimalType(25, 2))
        update.add_column(("pair", "later"), LongType())
        update.add_column("later", IntegerType())
        update.move_first("_hw_time")
    session_on(lake).sql(
        "INSERT INTO lake.t.rows (price, count, _hw_shard, _hw_lsn, _hw_partition, _hw_offset, _hw_time, later) "
        "VALUES (1, 2, 0, 1000, 0, 90000, now(), 3)"
    )

    spark = session_on(lake)
    old = digest_of_rows(spark.sql(sql_query(columns, "lake.t.rows", where="_hw_lsn < 1000")).collect())
    assert old == digest
    now = columns_of(catalog.load_table("t.rows").schema())
    assert digest_in_spark(lake, now).rows == digest.rows + 1
    assert digest_in_spark(lake, now) != digest_in_spark(lake, columns)


def test_columns_count_in_order_of_field_id_and_by_any_name(lake: SqliteLake, catalog: Catalog) -> None:
    names = ["a`b", "select", "x.y", "hw_item0"]
    columns = {name: NESTED["list"] if name == "hw_item0" else PLAIN["int"] for name in names}
    rows = table_with(columns, rows_of(columns, 20))
    in_order = columns_of(landed(lake, catalog, rows).schema())

    assert digest_in_spark(lake, in_order) == digest_in_spark(lake, in_order[::-1]) == digest_of(rows)
    swapped = rows.select([1, 0, *range(2, rows.num_columns)])
    assert digest_of(swapped) != digest_of(rows)


@pytest.mark.parametrize("type_", ["time", "unknown", "timestamp_ns", '{"type":"variant"}', '{"type"', "decimal(3)"])
def test_a_type_without_a_word_is_refused(type_: str) -> None:
    with pytest.raises(InvalidRequest):
        sql_expression([Column(1, "c", type_)])
