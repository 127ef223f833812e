"""A lander as a program of its own, on a Spark that is told: for the tests of a cluster, of Connect and of Spark 3.5.

    python tests/e2e_lake/land_driver.py DIRECTORY SETTINGS

SETTINGS is JSON: a session's settings, or {"remote": "sc://..."} for Spark Connect.  The last line that it prints is
JSON: Spark's version and, topic by topic, what became of it.
"""

from __future__ import annotations

import json
import sys

import headwater as hw
from headwater.settings import KIB, MIB, LandingSettings, LogSettings

SETTINGS = hw.Settings(
    log=LogSettings(segment_size_bytes_max=1 * MIB, write_body_bytes_max=512 * KIB, reserve_bytes=0),
    landing=LandingSettings(item_bytes=512 * KIB),
    upkeep_interval_s=0,
)
"""Small segments and small items, so that a few megabytes are many tasks."""


def main() -> None:
    directory, given = sys.argv[1], json.loads(sys.argv[2])
    from pyspark.sql import SparkSession

    remote = given.pop("remote", None)
    if remote is not None:
        spark = SparkSession.builder.remote(remote).getOrCreate()
    else:
        builder = SparkSession.builder.appName("headwater-land")
        for name, value in given.items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    with hw.open(directory, settings=SETTINGS) as log:
        report = log.land(spark=spark)
    version = spark.version
    spark.stop()
    topics = {each.topic: {"outcome": each.outcome, "rows": each.rows, "files": each.files} for each in report.topics}
    messages = [each.message for each in report.topics if each.message]
    print(json.dumps({"version": version, "topics": topics, "messages": messages}))


if __name__ == "__main__":
    main()
