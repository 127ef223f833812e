"""The data source `format("headwater")`: options in, a schema and readers out.

    spark.read.format("headwater").option("uri", "data/").option("topic", "orders").load()
    spark.readStream.format("headwater").option("uri", "data/").option("topic", "orders").load()

It registers itself, because Spark looks for modules named `pyspark_*` with a `DefaultSource`: pyspark_headwater is one.

NEEDS    Spark 4.0 or later, and this package in the Python of the driver and of the workers.
SCHEMA   The topic's newest, in the types of its table.  Spark holds to it for the whole query: columns that are added
         while a stream runs come after its restart; a column that was widened is cast back, and a value that does not
         fit then stops the query by name.
"""

from __future__ import annotations

import sys
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructType

from headwater.spark.source_log import OpenTopic
from headwater.spark.source_options import SourceOptions, parse_options
from headwater.spark.source_reader import FilteringTopicReader, TopicReader, topic_columns
from headwater.spark.source_rows import spark_schema
from headwater.spark.source_stream import TopicStreamReader
from headwater.spark.source_view import ViewReader, view_columns

_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


class HeadwaterSource(DataSource):
    """A topic of a log."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._given: SourceOptions = parse_options(dict(options))

    @classmethod
    def name(cls) -> str:
        return "headwater"

    def schema(self) -> StructType:
        with OpenTopic(self._given.directory, self._given.topic) as topic:
            columns = view_columns if self._given.view else topic_columns
            return spark_schema(columns(topic.record, self._given))

    def reader(self, schema: StructType) -> DataSourceReader:
        if self._given.view:
            return ViewReader(self._given, schema)
        kind = FilteringTopicReader if filters_are_pushed() else TopicReader
        return kind(self._given, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's name
        return TopicStreamReader(self._given, schema)


def filters_are_pushed() -> bool:
    """Does this session give its filters to Python data sources?  A reader is made in a worker, which knows nothing of
    a session's settings; but Spark has a worker of its own for queries whose filters are to be pushed, and a reader
    that defines `pushFilters` is an error in the other one."""
    return _PUSHING_WORKER in sys.modules
