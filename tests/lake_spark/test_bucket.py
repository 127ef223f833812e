"""A log in a bucket, from a real Spark: executors open the bucket themselves, by its url and their environment.

A cluster's executors are given that environment by `spark.executorEnv.AWS_ACCESS_KEY_ID` and its like; a local Spark,
which may be older than the server of a test, by its context.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import headwater as hw
from headwater.spark.source import HeadwaterSource
from tests.e2e_objects.bucket_lakes import ORDER, SETTINGS, append_orders
from tests.lake_spark.sessions import PYSPARK_SOCKETS, SqliteLake, local_spark, session_on
from tests.servers.versitygw import S3Server, versitygw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = PYSPARK_SOCKETS


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    workers = local_spark().sparkContext.environment
    with versitygw() as started, started.in_environment():
        workers.update(started.environment)
        yield started
    for name in started.environment:
        del workers[name]


def read(spark: SparkSession, url: str, **options: str) -> DataFrame:
    reader = spark.read.format("headwater").option("uri", url).option("topic", "orders")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load()


def numbers(frame: DataFrame) -> list[int]:
    return sorted(row.id for row in frame.select("id").collect())


@pytest.mark.timeout(300)
def test_rows_in_slots_and_in_segments_are_read_landed_and_viewed(server: S3Server, tmp_path: Path) -> None:
    url, lake = server.url("spark"), SqliteLake(tmp_path)
    spark = session_on(lake)
    spark.dataSource.register(HeadwaterSource)  # so that the processes that plan a query have the environment too
    with hw.open(url, catalog=lake.pyiceberg_properties, settings=SETTINGS) as log:
        topic = log.topic("orders", ORDER, table="sales.orders", partitions=2)
        append_orders(topic, range(3000))

        # Sealed segments, merged, and slots that nobody has sealed yet.
        assert numbers(read(spark, url, minPartitions="2")) == list(range(3000))

        assert log.land(spark=spark)["orders"].rows == 3000
        append_orders(topic, range(3000, 3500))
        seen = read(spark, url, read="view", catalog=json.dumps(lake.pyiceberg_properties), where="id >= 2000")
        assert numbers(seen) == list(range(2000, 3500))
