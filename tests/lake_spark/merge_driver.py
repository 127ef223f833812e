"""Merges and upkeep as a program of their own, on a Spark that is told, as Spark Connect needs it.

    python tests/lake_spark/merge_driver.py DIRECTORY SETTINGS

SETTINGS is JSON: a session's settings, or {"remote": "sc://..."} for Spark Connect.  The last line that it prints is
JSON: Spark's version and what became of it.
"""

from __future__ import annotations

import json
import sys

import headwater as hw
from headwater.lake.upkeep import UpkeepSettings


def main() -> None:
    directory, given = sys.argv[1], json.loads(sys.argv[2])
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    remote = given.pop("remote", None)
    for name, value in given.items():
        builder = builder.config(name, value)
    spark = builder.remote(remote).getOrCreate() if remote is not None else builder.getOrCreate()
    with hw.open(directory) as log:
        for name, value in log.spark_config(spark_version=spark.version).items():
            if name.startswith("spark.sql.catalog."):
                spark.conf.set(name, value)
        first = log.merge(spark=spark)
        log.topic("customers").upsert([{"id": 5, "name": "e"}])
        log.land()
        second = log.merge(spark=spark, mode="merge-on-read")
        report = log.maintain(spark=spark, settings=UpkeepSettings(small_files_min=2))
    rows = spark.sql("SELECT id, name FROM headwater.crm.customers ORDER BY id").collect()
    told = {
        "version": spark.version,
        "outcomes": [each.outcome for each in (*first, *second)],
        "messages": [*(each.message for each in (*first, *second) if each.message), *report.left],
        "state": [list(row) for row in rows],
        "compacted": [each.compacted_files for each in report],
    }
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main()
