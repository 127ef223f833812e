"""Rows through Spark's Structured Streaming into Iceberg, from Kafka or from files, as its documentation says.

    Producing(broker).send("events", json_lines(batch))        1 KB of JSON a row, durable when it returns
    rows = json_stream(spark, broker, "events")                the columns of the rows, parsed by `from_json`
    rows = file_stream(spark, folder, columns, files=1)        so many Parquet files are a batch
    query = into_table(rows, table, checkpoint, available_now=True)

PROMISE  Kafka syncs before it acknowledges (`flush.messages=1`), as Headwater does.  A topic has two partitions, so
         that both cores read.  Tables have the properties of a landed one.  Columns may be null: into required ones
         Spark writes at half the rate.  Times are numbers in the JSON, because texts are parsed more slowly.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from bench._kafka import START_S_MAX, Kafka
from bench._kilobyte_rows import TEXT_COLUMNS
from bench._lake import BenchLake
from bench._maven import Jar, jars
from bench.peers._tables import NAMESPACE, PLAIN_PROPERTIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

VERSION = "4.1.3"
TOKENS_VERSION = "4.0.0"
"""Of the classes for delegation tokens, which the source needs to start: 4.1 was not to be had."""
_TOKENS = "spark-token-provider-kafka-0-10_2.13"
_SPARK = "org.apache.spark"
_JARS = (
    Jar(_SPARK, "spark-sql-kafka-0-10_2.13", VERSION, ((_SPARK, _TOKENS), (_SPARK, "spark-tags_2.13"))),
    Jar(_SPARK, _TOKENS, TOKENS_VERSION, (("*", "*"),)),
)
PARTITIONS = 2
FLUSH_S_MAX = 120.0
COLUMNS = "id BIGINT, customer BIGINT, amount DOUBLE, created_at TIMESTAMP, " + ", ".join(
    f"text_{number} STRING" for number in range(TEXT_COLUMNS)
)
IN_JSON = COLUMNS.replace("TIMESTAMP", "BIGINT")


def spark_kafka_jars() -> list[Path]:
    """Spark's Kafka source, and what it needs that Spark has not."""
    return sorted(jars(f"spark-kafka-{VERSION}", _JARS).glob("*.jar"))


def json_lines(batch: pa.RecordBatch) -> list[bytes]:
    """The rows as messages; times in microseconds."""
    place = batch.schema.get_field_index("created_at")
    numbers = batch.set_column(place, "created_at", batch.column(place).cast(pa.int64()))
    return [json.dumps(row, separators=(",", ":")).encode() for row in numbers.to_pylist()]


def create_topic(broker: Kafka, name: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.address})
    wanted = NewTopic(name, PARTITIONS, 1, config={"flush.messages": "1"})
    admin.create_topics([wanted])[name].result(START_S_MAX)


class Producing:
    """A producer that knows how many of its messages were acknowledged."""

    def __init__(self, broker: Kafka) -> None:
        from confluent_kafka import Producer

        self._producer = Producer({"bootstrap.servers": broker.address, "acks": "all", "linger.ms": 0})
        self._acknowledged = 0

    def send(self, topic: str, messages: Sequence[bytes]) -> None:
        """Returns when all of them are durable."""
        begun = self._acknowledged
        for number, message in enumerate(messages):
            while True:
                try:
                    self._producer.produce(topic, message, partition=number % PARTITIONS, on_delivery=self._on_delivery)
                    break
                except BufferError:
                    self._producer.poll(0.1)  # its queue is full
        left = self._producer.flush(FLUSH_S_MAX)
        assert left == 0, f"{left} messages were not acknowledged in {FLUSH_S_MAX:.0f} s"
        assert self._acknowledged - begun == len(messages)

    def _on_delivery(self, error: object, _: object) -> None:
        assert error is None, error
        self._acknowledged += 1


def create_table(own: BenchLake, name: str, columns: str = COLUMNS) -> str:
    """An empty table made by Spark; its full name."""
    properties = ", ".join(f"'{key}' = '{value}'" for key, value in PLAIN_PROPERTIES.items())
    full = f"{own.catalog}.{NAMESPACE}.{name}"
    own.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {own.catalog}.{NAMESPACE}")
    own.spark.sql(f"CREATE TABLE {full} ({columns}) USING iceberg TBLPROPERTIES ({properties})")
    return full


def raw_stream(spark: SparkSession, broker: Kafka, topic: str, **options: str) -> DataFrame:
    """The messages as they are."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.address)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()


def json_stream(spark: SparkSession, broker: Kafka, topic: str, **options: str) -> DataFrame:
    """The rows that the messages are."""
    from pyspark.sql import functions as f

    parsed = raw_stream(spark, broker, topic, **options).select(
        f.from_json(f.col("value").cast("string"), IN_JSON).alias("row")
    )
    return parsed.select("row.*").withColumn("created_at", f.timestamp_micros("created_at"))


def file_stream(spark: SparkSession, folder: Path, columns: str, files: int) -> DataFrame:
    """The rows of a folder's Parquet files, so many files at a time."""
    return spark.readStream.schema(columns).option("maxFilesPerTrigger", files).parquet(str(folder))


def into_table(
    rows: DataFrame, table: str, checkpoint: Path, *, available_now: bool = False, every: str | None = None
) -> StreamingQuery:
    """The query that appends them to the table: all that is there now and no more, at each interval, or always."""
    writer = rows.writeStream.format("iceberg").outputMode("append").option("checkpointLocation", str(checkpoint))
    if available_now:
        writer = writer.trigger(availableNow=True)
    elif every is not None:
        writer = writer.trigger(processingTime=every)
    return writer.toTable(table)
