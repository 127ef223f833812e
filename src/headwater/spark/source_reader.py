"""Reading a topic in Spark: the plan is made once, where the query is planned; workers read bytes of segments.

PROMISE  Readers hold no state: a Spark partition names its segment's file, the byte runs and the rows that are wanted
         of them, so a task that is tried again, here or elsewhere, reads the same rows.
         Where a rewrite has replaced a file since, the worker looks up where the same LSNs lie now.
COLUMNS  Spark 4.1 asks a Python data source for all its columns: what is not needed is left out by the option
         `columns`, or by `.schema(...)`, before it is decoded for Spark.
FILTERS  A reader that takes filters fails every query while `spark.sql.python.filterPushdown.enabled` is false, so
         there are two, and source.py chooses.
NOT HERE Which bytes: source_log.py, source_pieces.py.  Views: source_view.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.errors import InvalidRequest
from headwater.lake.shape import SYSTEM_COLUMNS, table_shape
from headwater.lake.where import condition
from headwater.metadata.operations import TopicRecord
from headwater.spark.source_filters import all_of, arrow_condition
from headwater.spark.source_log import OpenTopic
from headwater.spark.source_options import SourceOptions
from headwater.spark.source_pieces import Piece
from headwater.spark.source_rows import Shape, read_piece

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter


# Columns ----------------------------------------------------------------------------------------------------------


def topic_columns(topic: TopicRecord, options: SourceOptions) -> pa.Schema:
    """What a query gives, in the types that the topic's table has: all columns, or those that were asked for."""
    full = table_shape(topic).schema
    if options.columns is None:
        hidden = () if options.system_columns else SYSTEM_COLUMNS.names
        return pa.schema([each for each in full if each.name not in hidden])
    unknown = [name for name in options.columns if name not in full.names]
    if unknown:
        raise InvalidRequest(
            f"{topic.name!r} has no column {unknown[0]!r}; it has {', '.join(full.names)}", column=unknown[0]
        )
    return pa.schema([full.field(name) for name in options.columns])


def shape_of(topic: TopicRecord, options: SourceOptions, schema: StructType) -> Shape:
    """What reading needs to know; InvalidRequest where Spark's schema, given by `.schema(...)`, is not the topic's."""
    full = table_shape(topic).schema
    columns = to_arrow_schema(schema)
    for each in columns:
        if each.name not in full.names:
            raise InvalidRequest(
                f"{topic.name!r} has no column {each.name!r}; it has {', '.join(full.names)}", column=each.name
            )
    needed = {"_hw_partition", "_hw_offset", *columns.names}
    where = None
    if options.where is not None:
        where = condition(options.where, full)
        needed |= where.columns
    read = pa.schema([each for each in full if each.name in needed])
    return Shape(columns, read, where.expression if where is not None else None)


# Spark's side -----------------------------------------------------------------------------------------------------


class TopicPartition(InputPartition):
    """Pieces, as Spark carries them to a worker."""

    def __init__(self, pieces: tuple[Piece, ...], shape: Shape) -> None:
        self.pieces = pieces
        self.shape = shape


def read_partition(partition: Any, name: str) -> Iterator[pa.RecordBatch]:
    """What a worker does; Spark gives it no partition where there is nothing to read."""
    if partition is not None:
        for piece in partition.pieces:
            yield from read_piece(piece, name, partition.shape)


class TopicReader(DataSourceReader):
    """`spark.read`: the rows between two positions, as they are when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        options.check_for_batch()
        self._options = options
        self._schema = schema
        self._pushed: list[pc.Expression] = []

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with OpenTopic(options.directory, options.topic) as topic:
            end = topic.end(options.end)
            start = topic.start(options.start)
            topic.check_not_forgotten(start, fail=options.fail_on_data_loss)
            shape = shape_of(topic.record, options, self._schema)
            pieces = topic.pieces(start, end, partitions_min=options.min_partitions)
        shape = replace(
            shape, condition=all_of([each for each in (shape.condition, *self._pushed) if each is not None])
        )
        return [TopicPartition(each, shape) for each in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self._options.topic)


class FilteringTopicReader(TopicReader):
    """The same, where Spark gives its filters to Python data sources."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        columns = to_arrow_schema(self._schema)
        for each in filters:
            known = arrow_condition(each, columns)
            if known is None:
                yield each
            else:
                self._pushed.append(known)
