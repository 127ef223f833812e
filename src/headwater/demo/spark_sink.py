"""A driver of Spark Structured Streaming, as a process: Iceberg's own sink, with the settings that its docs show.

    python -m headwater.demo.spark_sink DIRECTORY

{"table": NAME}                                            make an empty Iceberg table
{"stream": {"source": .., "checkpoint": .., "table": ..}}  begin a query from a folder of Parquet files into a table
{"catch_up": true}                                         answered when all files that were there have been taken in
{"stop": true}                                             end the query

PROMISE  A query that fails is told as {"trouble": "..."}, and stays ended.
"""

from __future__ import annotations

import os
import queue
import sys
from typing import Any

from headwater.demo.children import Message, tell, until_input_ends
from headwater.demo.rows import ORDERS_SCHEMA
from headwater.lake.catalog import catalog_place
from headwater.spark.session import catalog_table, spark_config

TYPES = {int: "BIGINT", float: "DOUBLE", str: "STRING"}
COLUMNS = ", ".join(f"{name} {TYPES[kind]}" for name, kind in ORDERS_SCHEMA.items())
LOOPBACK = "127.0.0.1"


def session_on(directory: str) -> Any:
    """Spark on this machine, with Iceberg's package and the catalog in the directory."""
    os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings: dict[str, bool | float | int | str | None] = {
        **spark_config(catalog_place(None, directory=directory)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = SparkSession.builder.master("local[2]").appName("headwater-demo").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


class Driver:
    def __init__(self, directory: str) -> None:
        self._spark = session_on(directory)
        self._catalog = catalog_place(None, directory=directory).name
        self._query: Any = None

    def take(self, message: Message) -> None:
        try:
            if "table" in message:
                self._make(message["table"])
            elif "stream" in message:
                self._begin(**message["stream"])
            elif "catch_up" in message:
                self._query.processAllAvailable()
                tell(caught_up=True)
            elif "stop" in message:
                self._query.stop()
                tell(stopped=True)
        except Exception as error:  # noqa: BLE001  whatever Spark raises is what is to be told
            tell(trouble=_first_line(error))

    def _make(self, table: str) -> None:
        namespace = catalog_table(self._catalog, table.partition(".")[0])
        self._spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        self._spark.sql(f"CREATE TABLE {catalog_table(self._catalog, table)} ({COLUMNS}) USING iceberg")
        tell(made=table)

    def _begin(self, source: str, checkpoint: str, table: str) -> None:
        rows = self._spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(source)
        self._query = (
            rows.writeStream.format("iceberg")
            .outputMode("append")
            .option("checkpointLocation", checkpoint)
            .toTable(catalog_table(self._catalog, table))
        )
        tell(begun=table)


def _first_line(error: Exception) -> str:
    for line in str(error).splitlines():
        if line.strip():
            return f"{type(error).__name__}: {line.strip()[:300]}"
    return type(error).__name__


def main() -> None:
    waiting: queue.Queue[Message] = queue.Queue()
    until_input_ends(waiting.put)
    driver = Driver(sys.argv[1])
    tell(ready=True, version=driver._spark.version)
    while True:
        driver.take(waiting.get())


if __name__ == "__main__":
    main()
