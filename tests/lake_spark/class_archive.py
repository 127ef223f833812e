"""An archive of the classes that Spark loads when it starts, so that each JVM of the tests starts in half the time.

    python -m tests.lake_spark.class_archive FILE
    export JDK_JAVA_OPTIONS="-XX:SharedArchiveFile=FILE -Xlog:disable"

A JVM maps the archive rather than unpacks, reads and checks thousands of classes: 4.3 s of CPU for a session and its
first query, 9.3 s without.  A JVM with another class path (Maven, another Spark) says nothing and goes without it.

PROMISE  The file is there when this has ended well.  It fits the jars and the JVM it was made with, and no others.
         And so are Iceberg's package and the drivers: Ivy keeps what it fetches in one folder for all, and on a new
         machine two JVMs of two workers that fetch the same at once spoil it for each other.
NOT HERE Iceberg's classes: Spark loads them itself, and the JVM archives only what its own loader has loaded.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.lake_spark.sessions import settings_of_every_session

WRITTEN_WITHIN_S = 600


def write(file: Path) -> None:
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # Of the driver's JVM alone: the small one that makes its command line must not write the same file.
    os.environ["SPARK_SUBMIT_OPTS"] = f"-XX:ArchiveClassesAtExit={file} -Xlog:disable"
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]")
    for name, value in settings_of_every_session().items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.range(10).createOrReplaceTempView("numbers")
    spark.sql("SELECT id % 2 AS odd, count(*), sum(id) FROM numbers GROUP BY 1 ORDER BY 1").collect()
    spark.range(4).mapInArrow(lambda batches: batches, "id long").toArrow()
    gateway = SparkContext._gateway
    assert gateway is not None
    spark.stop()
    # The JVM ends when its standard input does, and writes the archive then.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(WRITTEN_WITHIN_S)
    if not file.exists():
        raise SystemExit(f"the JVM has not written {file}")


if __name__ == "__main__":
    write(Path(sys.argv[1]).absolute())
