"""`spark.read.format("headwater").option("read", "view")`: table and tail as one, through the data source."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import InvalidRequest
from headwater.spark.source_options import SourceOptions, parse_options
from tests.lake_spark.sessions import PYSPARK_SOCKETS, SqliteLake, session_on
from tests.lake_spark.view_lakes import from_arrow, from_spark, in_order, several_from_spark, view_lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = PYSPARK_SOCKETS


def view(spark: SparkSession, folder: Path, topic: str, **options: str) -> DataFrame:
    reader = spark.read.format("headwater").option("uri", str(folder)).option("topic", topic).option("read", "view")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def test_a_view_through_the_data_source_is_the_scan_at_the_same_cut(tmp_path: Path) -> None:
    with view_lake(tmp_path) as lake:
        bare = session_on()  # which knows no catalog: workers read the files themselves
        lake.append(range(10))
        lake.change(dict.fromkeys(range(10), "a"))
        lake.log.land()
        lake.log.merge(spark=lake.spark, mode="merge-on-read")
        lake.change({3: "b", 11: "c"}, gone=[4])
        lake.log.land()
        lake.log.merge(spark=lake.spark, mode="merge-on-read")  # the state has delete files now
        lake.change({5: "d"}, gone=[6])
        lake.log.land()
        early = lake.log.cut("orders", "customers")
        before = [lake.replayed(scan) for scan in lake.scans()]
        moment = datetime.datetime.now(datetime.UTC).isoformat()
        lake.append(range(10, 14))
        lake.change({5: "late"}, gone=[7])

        some = {"columns": "_hw_offset, id", "where": "id > 8 and note like 'x%'"}
        # Each query takes some Python processes to plan it: these ask all that there is to ask.
        found = several_from_spark(
            [
                view(bare, tmp_path, "orders"),
                view(bare, tmp_path, "customers", asOf=str(early)),
                view(bare, tmp_path, "orders", asOf=moment, **some),
                view(bare, tmp_path, "customers", columns="name", where="id < 6 and name != 'b'"),
                view(bare, tmp_path, "orders", asOf=str(early.lsn)),
            ]
        )

        orders = lake.orders.scan(["_hw_offset", "id"], "id > 8 and note like 'x%'", as_of=early)
        customers = lake.customers.scan(["name"], "id < 6 and name != 'b'")
        now = lake.replayed(lake.orders.scan())
        assert found == [now, before[1], from_arrow(orders), from_arrow(customers), before[0]]
        assert all(found) and now != before[0] and lake.replayed(lake.customers.scan()) != before[1]


def test_a_view_reads_tables_of_the_catalog_that_is_named(tmp_path: Path) -> None:
    lake = SqliteLake(tmp_path)
    with hw.open(tmp_path / "data", catalog=lake.pyiceberg_properties) as log:
        topic = log.topic(
            "t", schema=pa.schema([("n", pa.int32()), ("m", pa.map_(pa.string(), pa.int8()))]), table="t.t"
        )
        topic.append([{"n": 1, "m": {"a": 1}}, {"n": 2, "m": None}])
        log.land()
        topic.append([{"n": 3, "m": {}}])

        given = json.dumps(lake.pyiceberg_properties)
        frame = view(session_on(), tmp_path / "data", "t", catalog=given, systemColumns="true")

        system = ["_hw_shard", "_hw_lsn", "_hw_partition", "_hw_offset", "_hw_time"]
        assert frame.dtypes[:2] == [("n", "int"), ("m", "map<string,int>")] and frame.columns[2:] == system
        assert from_spark(frame.drop(*system)) == in_order(
            [{"n": 1, "m": [("a", 1)]}, {"n": 2, "m": None}, {"n": 3, "m": []}]
        )


def test_what_a_view_cannot_do_is_refused_by_name(tmp_path: Path) -> None:
    with view_lake(tmp_path) as lake:
        lake.append(range(3))
        lake.log.land()
        spark = session_on()

        def refusal(topic: str = "orders", **options: str) -> str:
            with pytest.raises(Exception, match="headwater") as caught:
                view(spark, tmp_path, topic, **options).collect()
            return str(caught.value)

        assert "'lately' is no point to read at" in refusal(asOf="lately")
        assert "the log has not come to this point yet" in refusal(asOf="1000")
        assert "has no column 'price'" in refusal(columns="price")
        assert "cannot be used" in refusal(where="price > 1")
        with pytest.raises(Exception, match=r"read=view is for spark\.read"):
            _streamed(spark, tmp_path)


def _streamed(spark: SparkSession, folder: Path) -> None:
    reader = spark.readStream.format("headwater").option("uri", str(folder)).option("topic", "orders")
    query = reader.option("read", "view").load().writeStream.format("noop").start()
    try:
        query.awaitTermination(60)
    finally:
        query.stop()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"read": "all"}, "read=all is not known"),
        ({"asOf": "7"}, "asOf is not for read=log"),
        ({"catalog": "lake"}, "catalog is not for read=log"),
        ({"read": "view", "startingOffsets": "latest"}, "startingOffsets is not for read=view"),
        ({"read": "view", "minPartitions": "3"}, "minPartitions is not for read=view"),
        ({"read": "view", "failOnDataLoss": "false"}, "failOnDataLoss is not for read=view"),
        ({"read": "view", "catalog": "{"}, "catalog is a name, or pyiceberg's properties as JSON"),
    ],
)
def test_options_of_a_view_and_of_the_log_are_told_apart(options: dict[str, str], named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        parse_options({"uri": "data", "topic": "t", **options})


def test_a_point_is_a_number_or_a_text() -> None:
    def as_of(**options: str) -> Any:
        return parse_options({"uri": "/data", "topic": "t", "read": "VIEW", **options}).as_of

    assert (as_of(), as_of(asOf="7"), as_of(ASOF="2026-11-14T10:41:07Z")) == (None, hw.Lsn(7), "2026-11-14T10:41:07Z")
    assert isinstance(as_of(asOf="7"), hw.Lsn) and as_of(asOf="lsn:7") == 7
    assert parse_options({"uri": "/data", "topic": "t", "read": "view", "catalog": "lake"}) == SourceOptions(
        "/data", "t", view=True, catalog="lake"
    )
