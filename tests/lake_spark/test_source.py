"""`spark.read.format("headwater")`: the rows of a topic, in a real Spark, beside the log's own reading of them."""

from __future__ import annotations

import datetime
import decimal
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import Forgotten, InvalidRequest
from headwater.settings import KIB, LogSettings
from headwater.spark.source_log import OpenTopic
from headwater.spark.source_options import EARLIEST, LATEST, AtTime, SourceOptions, parse_options
from tests.lake_spark.sessions import PYSPARK_SOCKETS, session_on

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = PYSPARK_SOCKETS

ORDER = {"order_id": int, "amount": float, "region": str}
DAY_S = 86_400.0
SMALL_SEGMENTS = hw.Settings(
    log=LogSettings(
        segment_size_bytes_max=8 * KIB, write_body_bytes_max=8 * KIB, reserve_bytes=0, deletion_grace_s=0.0
    ),
    upkeep_interval_s=0.0,
)
"""A few rows of some size fill a segment, and what may be deleted goes at once."""


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return session_on()


def orders(numbers: range, *, padding: int = 0) -> list[dict[str, Any]]:
    region = "x" * padding
    return [{"order_id": each, "amount": each / 2, "region": region or ("eu", "us")[each % 2]} for each in numbers]


def load(spark: SparkSession, folder: Path, topic: str = "orders", **options: str) -> DataFrame:
    reader = spark.read.format("headwater").option("uri", str(folder)).option("topic", topic)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row.order_id for row in frame.collect())


# Rows -------------------------------------------------------------------------------------------------------------


def test_spark_reads_every_row_once_and_knows_where_each_came_from(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    with hw.open(tmp_path, settings=SMALL_SEGMENTS) as log:
        topic = log.topic("orders", schema=ORDER, partitions=3)
        other = log.topic("other", schema=ORDER)
        for at in range(0, 300, 10):
            topic.append(orders(range(at, at + 10)), partition=drawn.randrange(3))
            other.append(orders(range(5), padding=100))

        found = load(spark, tmp_path, systemColumns="true").collect()

        expected = topic.read(system_columns=True).to_pylist()
        names = list(expected[0])
        assert sorted((tuple(row[name] for name in names) for row in found), key=lambda row: row[0]) == sorted(
            (_spark_values(row) for row in expected), key=lambda row: row[0]
        )
        assert {row["_hw_shard"] for row in found} == {0}


def _spark_values(row: dict[str, Any]) -> tuple[Any, ...]:
    """As Spark gives them to Python: times without their zone, in the zone of this process."""
    return tuple(
        value.astimezone().replace(tzinfo=None) if isinstance(value, datetime.datetime) else value
        for value in row.values()
    )


def test_a_frame_of_each_row_and_a_frame_of_thousands_are_read_alike(spark: SparkSession, tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=ORDER)
        topic.append(orders(range(100_000)))
        for each in range(100_000, 100_050):
            topic.append(orders(range(each, each + 1)))

    found = load(spark, tmp_path, columns="order_id")

    assert found.columns == ["order_id"]
    assert numbers(found) == list(range(100_050))


def test_a_keyed_topic_gives_its_changes(spark: SparkSession, tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("customers", schema={"id": int, "name": str}, key="id")
        topic.upsert([{"id": 1, "name": "Ann"}, {"id": 2, "name": "Bob"}])
        topic.delete([{"id": 1}])

    found = load(spark, tmp_path, "customers").orderBy("_hw_op", "id").collect()

    assert [tuple(row) for row in found] == [(1, None, "D"), (1, "Ann", "U"), (2, "Bob", "U")]


def test_rows_of_older_schema_versions_come_in_the_newest(spark: SparkSession, tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=pa.schema([("order_id", pa.int32())]))
        topic.append([{"order_id": 1}])
        topic.alter(add={"note": str}, widen={"order_id": pa.int64()})
        topic.append([{"order_id": 2**40, "note": "large"}])

    found = load(spark, tmp_path)

    assert found.schema.simpleString() == "struct<order_id:bigint,note:string>"
    assert sorted(map(tuple, found.collect())) == [(1, None), (2**40, "large")]


def test_every_type_that_a_topic_may_have_comes_through(spark: SparkSession, tmp_path: Path) -> None:
    moment = datetime.datetime.fromisoformat("2026-11-14T10:41:07.123456")
    schema = pa.schema(
        [
            ("b", pa.bool_()),
            ("i8", pa.int8()),
            ("u32", pa.uint32()),
            ("i64", pa.int64()),
            ("f16", pa.float16()),
            ("f64", pa.float64()),
            ("d", pa.decimal128(20, 3)),
            ("s", pa.string()),
            ("raw", pa.binary()),
            ("fixed", pa.binary(3)),
            ("day", pa.date32()),
            ("naive", pa.timestamp("us")),
            ("at", pa.timestamp("ms", "UTC")),
            ("list", pa.list_(pa.int16())),
            ("struct", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
            ("map", pa.map_(pa.string(), pa.float32())),
        ]
    )
    row = {
        "b": True,
        "i8": -8,
        "u32": 2**32 - 1,
        "i64": -(2**60),
        "f16": 0.5,
        "f64": 1e300,
        "d": decimal.Decimal("12345678901234567.891"),
        "s": "é",
        "raw": b"\x00\xff",
        "fixed": b"abc",
        "day": datetime.date(2026, 2, 28),
        "naive": moment,
        "at": datetime.datetime(2026, 11, 14, 10, 41, 7, 123000, tzinfo=datetime.UTC),
        "list": [1, None, 3],
        "struct": {"x": 7, "y": ["a", None]},
        "map": {"k": 1.5},
    }
    with hw.open(tmp_path) as log:
        log.topic("types", schema=schema).append([row, dict.fromkeys(row)])

    found = load(spark, tmp_path, "types")

    assert dict(found.dtypes) == {
        "b": "boolean",
        "i8": "int",
        "u32": "bigint",
        "i64": "bigint",
        "f16": "float",
        "f64": "double",
        "d": "decimal(20,3)",
        "s": "string",
        "raw": "binary",
        "fixed": "binary",
        "day": "date",
        "naive": "timestamp_ntz",
        "at": "timestamp",
        "list": "array<int>",
        "struct": "struct<x:int,y:array<string>>",
        "map": "map<string,float>",
    }
    rows = {each["i64"]: each.asDict(recursive=True) for each in found.collect()}
    expected = {**row, "at": row["at"].astimezone().replace(tzinfo=None)}  # type: ignore[attr-defined]
    assert rows[-(2**60)] == expected
    assert rows[None] == dict.fromkeys(row)


# Which rows -------------------------------------------------------------------------------------------------------


def test_a_query_begins_and_ends_where_its_offsets_say(spark: SparkSession, tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=ORDER, partitions=2)
        topic.append(orders(range(10)), partition=0)
        topic.append(orders(range(100, 110)), partition=1)
        topic.append(orders(range(10, 20)), partition=0)

    middle = load(spark, tmp_path, startingOffsets='{"0": 8, "1": -2}', endingOffsets='{"0": 12, "1": 3}')
    nothing = load(spark, tmp_path, startingOffsets="latest")
    rest = load(spark, tmp_path, startingOffsets='{"0": 15, "1": -1}')

    assert numbers(middle) == [8, 9, 10, 11, 100, 101, 102]
    assert numbers(nothing) == []
    assert numbers(rest) == [15, 16, 17, 18, 19]


def test_a_query_begins_and_ends_at_times(spark: SparkSession, tmp_path: Path) -> None:
    clock = ManualClock()
    with hw.open(tmp_path, clock=clock) as log:
        topic = log.topic("orders", schema=ORDER, partitions=2)
        moments_ms = []
        for each in range(5):
            moments_ms.append(clock.now_us() // 1000)
            topic.append(orders(range(each, each + 1)), partition=each % 2)
            clock.advance(60.0)

    iso = datetime.datetime.fromtimestamp(moments_ms[3] / 1000, datetime.UTC).isoformat()
    between = load(spark, tmp_path, startingTimestamp=str(moments_ms[1]), endingTimestamp=iso)
    after = load(spark, tmp_path, startingTimestamp=str(moments_ms[4] + 1))

    assert numbers(between) == [1, 2]
    assert numbers(after) == []


def test_only_the_columns_and_rows_that_are_asked_for_reach_spark(spark: SparkSession, tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        log.topic("orders", schema=ORDER).append(orders(range(100)))

    by_option = load(spark, tmp_path, columns="region, order_id", where="amount >= 48.5 and region = 'us'")
    reader = spark.read.format("headwater").option("uri", str(tmp_path)).option("topic", "orders")
    by_schema = reader.schema("_hw_offset long, order_id int").load()

    assert by_option.columns == ["region", "order_id"]
    assert numbers(by_option) == [97, 99]
    assert sorted(map(tuple, by_schema.collect())) == [(each, each) for each in range(100)]


def test_there_are_as_many_partitions_as_are_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", schema=ORDER)
        for each in range(64):
            topic.append(orders(range(each * 10, each * 10 + 10)))

    one, many = load(spark, tmp_path), load(spark, tmp_path, minPartitions="7")

    assert one.rdd.getNumPartitions() == 1
    assert 7 <= many.rdd.getNumPartitions() <= 16
    assert numbers(many) == list(range(640))


def test_filters_are_taken_where_the_session_gives_them_and_nothing_breaks_where_not(
    spark: SparkSession, tmp_path: Path
) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic(
            "orders", schema=pa.schema([("order_id", pa.int64()), ("x", pa.float64()), ("s", pa.string())])
        )
        topic.append(
            pa.table({"order_id": [1, 2, 3, 4, None], "x": [1.0, float("nan"), 3.0, 4.0, 5.0], "s": list("abcde")})
        )

    for pushed in ("false", "true", "false"):
        session = session_on(spark__sql__python__filterPushdown__enabled=pushed)
        frame = load(session, tmp_path)
        few = frame.where("order_id in (1, 2, 3) and s >= 'b' and x > 2")
        none = frame.where("order_id is null")

        assert sorted(row.order_id for row in few.collect()) == [2, 3], "NaN is above every number in Spark"
        assert [row.s for row in none.collect()] == ["e"]
        plan = few._jdf.queryExecution().executedPlan().toString()
        assert (">= b" in plan) == (pushed == "false"), "what was taken is not looked at again"


# What is refused, and what is gone ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"topic": "orders"}, "'uri'"),
        ({"uri": "data"}, "'topic'"),
        ({"uri": "gs://bucket", "topic": "t"}, "gs://bucket"),
        ({"uri": "data", "topic": "t", "tokenFile": "x"}, "tokenFile"),
        ({"uri": "data", "topic": "t", "startingOfsets": "latest"}, "startingOfsets"),
        ({"uri": "data", "topic": "t", "startingOffsets": "soon"}, "startingOffsets"),
        ({"uri": "data", "topic": "t", "startingOffsets": '{"0": -3}'}, "startingOffsets"),
        ({"uri": "data", "topic": "t", "startingOffsets": "[]"}, "startingOffsets"),
        ({"uri": "data", "topic": "t", "endingOffsets": "earliest"}, "endingOffsets"),
        ({"uri": "data", "topic": "t", "startingTimestamp": "2026-11-14T10:00:00"}, "startingTimestamp"),
        ({"uri": "data", "topic": "t", "startingTimestamp": "1", "startingOffsets": "latest"}, "startingTimestamp"),
        ({"uri": "data", "topic": "t", "minPartitions": "0"}, "minPartitions"),
        ({"uri": "data", "topic": "t", "maxBytesPerTrigger": "1 t"}, "maxBytesPerTrigger"),
        ({"uri": "data", "topic": "t", "systemColumns": "yes"}, "systemColumns"),
        ({"uri": "data", "topic": "t", "columns": "a, a"}, "'a'"),
        ({"uri": "data", "topic": "t", "path": "data"}, "uri"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_its_name(options: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidRequest, match=named.replace("(", r"\(")):
        parse_options(options)


def test_options_are_read_in_any_case_and_in_their_own_types() -> None:
    given = {
        "URI": "file:///data%20here",
        "TOPIC": "orders",
        "startingtimestamp": "1763116867000",
        "COLUMNS": "a,b",
        "MAXBYTESPERTRIGGER": "64m",
        "failOnDataLoss": "FALSE",
    }

    assert parse_options(given) == SourceOptions(
        "/data here",
        "orders",
        start=AtTime(1763116867000000),
        columns=("a", "b"),
        bytes_per_trigger_max=64 * 2**20,
        fail_on_data_loss=False,
    )
    assert (parse_options({"uri": "d", "topic": "t"}).start, parse_options({"uri": "d", "topic": "t"}).end) == (
        EARLIEST,
        LATEST,
    )


def test_a_query_that_cannot_be_says_why_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    with hw.open(tmp_path / "data") as log:
        log.topic("orders", schema=ORDER, partitions=2).append(orders(range(3)))

    def refusal(topic: str = "orders", folder: str = "data", **options: str) -> str:
        with pytest.raises(Exception, match="headwater") as caught:
            load(spark, tmp_path / folder, topic, **options).collect()
        return str(caught.value)

    assert "there is no topic 'ordres'" in refusal("ordres")
    assert "there is no log" in refusal(folder="nowhere")
    assert not (tmp_path / "nowhere").exists()
    assert "has no column 'price'" in refusal(columns="price")
    assert "cannot be used" in refusal(where="price > 1")
    assert "cannot be used" in refusal(where="amount >")
    assert "says nothing of partition 1" in refusal(startingOffsets='{"0": 1}')
    assert "has no partition 2" in refusal(startingOffsets='{"0": 1, "1": 1, "2": 0}')
    assert "maxBytesPerTrigger is for spark.readStream" in refusal(maxBytesPerTrigger="1m")


def test_offsets_that_the_log_has_forgotten_are_refused_or_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    clock = ManualClock()
    with hw.open(tmp_path, settings=SMALL_SEGMENTS, clock=clock) as log:
        topic = log.topic("orders", schema=ORDER, retention="1d")
        for each in range(30):
            topic.append(orders(range(each, each + 1), padding=1000))
        clock.advance(2 * DAY_S)
        topic.append(orders(range(30, 60)))
        removed = log.cleanup().rows_removed
        assert removed > 10

        with pytest.raises(Exception, match="read them from the table"):
            load(spark, tmp_path, startingOffsets='{"0": 3}').collect()
        assert numbers(load(spark, tmp_path, startingOffsets='{"0": 3}', failOnDataLoss="false")) == list(
            range(removed, 60)
        )
        assert numbers(load(spark, tmp_path)) == list(range(removed, 60))


def test_a_file_that_was_replaced_after_the_plan_is_found_again(tmp_path: Path) -> None:
    from headwater.spark.source_reader import shape_of, topic_columns
    from headwater.spark.source_rows import read_piece, spark_schema

    with hw.open(tmp_path, settings=SMALL_SEGMENTS) as log:
        topic = log.topic("customers", schema={"id": int, "name": str}, key="id", cleanup="compact")
        for each in range(60):
            topic.upsert([{"id": each % 7, "name": f"{each}" + "x" * 500}])
        options = SourceOptions(str(tmp_path), "customers", system_columns=True)
        with OpenTopic(str(tmp_path), "customers") as opened:
            pieces = opened.pieces(opened.start(EARLIEST), opened.latest(), partitions_min=40)
            shape = shape_of(opened.record, options, spark_schema(topic_columns(opened.record, options)))
        before = topic.read(system_columns=True).to_pylist()

        log.compact("customers")
        batches = [batch for (piece,) in pieces for batch in read_piece(piece, "customers", shape)]

        left = topic.read(system_columns=True).to_pylist()
        assert 0 < len(left) < len(before)
        found = pa.Table.from_batches(batches).to_pylist()
        assert [row["_hw_offset"] for row in found] == [row["_hw_offset"] for row in left]


def test_a_file_that_was_deleted_after_the_plan_is_forgotten_by_name(tmp_path: Path) -> None:
    from headwater.spark.source_reader import shape_of, topic_columns
    from headwater.spark.source_rows import read_piece, spark_schema

    clock = ManualClock()
    with hw.open(tmp_path, settings=SMALL_SEGMENTS, clock=clock) as log:
        topic = log.topic("orders", schema=ORDER, retention="1d")
        for each in range(30):
            topic.append(orders(range(each, each + 1), padding=1000))
        options = SourceOptions(str(tmp_path), "orders")
        with OpenTopic(str(tmp_path), "orders") as opened:
            pieces = opened.pieces(opened.start(EARLIEST), opened.latest(), partitions_min=40)
            shape = shape_of(opened.record, options, spark_schema(topic_columns(opened.record, options)))
        clock.advance(2 * DAY_S)
        assert log.cleanup().deleted

        with pytest.raises(Forgotten, match="read them from the table"):
            list(read_piece(pieces[0][0], "orders", shape))
