"""`spark`: the data source is there; with the argument `session`, a session reads a topic through it."""

from __future__ import annotations

import sys

import pyspark

import headwater as hw
from headwater.spark.source import HeadwaterSource

with hw.open("spark") as log:
    log.topic("orders", schema={"order_id": int}).append([{"order_id": number} for number in range(100)])
    assert "spark.sql.extensions" in log.spark_config()
assert HeadwaterSource.name() == "headwater"
if "session" not in sys.argv:
    print(f"pyspark {pyspark.__version__}, the source and the settings of a session")
    sys.exit()

from pyspark.sql import SparkSession  # noqa: E402  it takes a while

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
try:
    spark.dataSource.register(HeadwaterSource)
    rows = spark.read.format("headwater").option("uri", "spark").option("topic", "orders").load().count()
finally:
    spark.stop()
assert rows == 100, rows
print(f"pyspark {pyspark.__version__}, {rows} rows through a session")
