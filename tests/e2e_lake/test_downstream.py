"""Somebody streams from a landed table with Spark's own Iceberg source: every row once, whatever we do to the table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest

import headwater as hw
from headwater.lake.upkeep import UpkeepSettings
from tests.lake_spark.sessions import PYSPARK_SOCKETS, session_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = PYSPARK_SOCKETS
TABLE = "headwater.sales.orders"
UPKEEP = UpkeepSettings(small_files_min=3, snapshots_kept=5, readers_s=0.0)


def stream(spark: SparkSession, folder: Path) -> StreamingQuery:
    """A stream of the table into Parquet files, from where its checkpoint says.

    Not with `availableNow`: that asks Iceberg 1.12 for the very first snapshot that the stream ever read, and fails
    once that one has expired, however far the stream has come since.
    """
    rows = spark.readStream.format("iceberg").load(TABLE)
    writer = rows.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(processingTime="0 seconds").start(str(folder / "rows"))


def run(spark: SparkSession, folder: Path) -> None:
    """Start it, let it read what there is, and stop it."""
    query = stream(spark, folder)
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def streamed(spark: SparkSession, folder: Path) -> pa.Table:
    return spark.read.parquet(str(folder / "rows")).toArrow()


def assert_same_rows(found: pa.Table, expected: pa.Table) -> None:
    columns = ", ".join(f'"{name}"' for name in expected.schema.names)
    with duckdb.connect() as duck:
        duck.execute("SET TimeZone = 'UTC'")
        duck.register("found", found)
        duck.register("expected", expected)
        for one, other in (("found", "expected"), ("expected", "found")):
            sql = f"SELECT {columns} FROM {one} EXCEPT ALL SELECT {columns} FROM {other}"
            only: list[Any] = duck.execute(sql).fetchmany(3)
            assert not only, f"only in {one}: {only}"


@pytest.mark.timeout(600)
def test_an_iceberg_stream_reads_every_landed_row_once_over_landings_stamps_and_compactions(tmp_path: Path) -> None:
    with hw.open(tmp_path / "data") as log:
        topic = log.topic("orders", schema={"id": int, "note": str}, table="sales.orders", partitions=2)
        config = {name: value for name, value in log.spark_config().items() if name.startswith("spark.sql.catalog.")}
        spark = session_on(**{name.replace(".", "__"): value for name, value in config.items()})

        def land(first: int) -> None:
            topic.append([{"id": first + each, "note": f"note {each}"} for each in range(100)])
            assert log.land().rows == 100

        for each in range(3):
            land(each * 100)
        running = stream(spark, tmp_path / "running")
        try:
            running.processAllAvailable()
            run(spark, tmp_path / "restarted")

            for each in range(3, 5):
                land(each * 100)
            kept = log.maintain(spark=spark, settings=UPKEEP)["sales.orders"]
            land(500)
            running.processAllAvailable()
        finally:
            running.stop()
        run(spark, tmp_path / "restarted")
        expected = topic.read(system_columns=True).to_arrow()

    assert (kept.compacted_files >= 5, kept.stamped) == (True, True), kept
    assert expected.num_rows == 600
    history = spark.sql(f"SELECT operation FROM {TABLE}.snapshots ORDER BY committed_at").collect()
    assert [row.operation for row in history][-3:] == ["replace", "append", "append"], "compaction, stamp, landing"
    assert_same_rows(streamed(spark, tmp_path / "running"), expected)
    assert_same_rows(streamed(spark, tmp_path / "restarted"), expected)
