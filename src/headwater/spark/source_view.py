"""`read=view`: table and tail as one, through the data source: planned once, workers read data files and segments.

    spark.read.format("headwater").option("uri", "data/").option("topic", "orders").option("read", "view").load()

PROMISE  All partitions of a query are of one cut.  A Spark partition names its data files, with their deletes and the
         way to them, or its segment's bytes: a task that is tried again reads the same rows.
KEYED    The latest row of each key is found in one task: for a topic of any size use `topic.scan().to_spark(spark)`.
PIN      The cut is held while the query is planned; planning ends in a process that then ends.  What is deleted between
         that and the reading is told by name (Unavailable, Forgotten), and the query is to be run again.
NOT HERE Which snapshots and which LSNs: lake/view_plan.py.  The same by Iceberg's own reader, held: scan.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from headwater.clock import SystemClock, system_entropy
from headwater.lake.file_cache import FileCache, LiveFile
from headwater.lake.landing import Lake
from headwater.lake.latest import latest_rows
from headwater.lake.part_travel import pack_files, unpack_files
from headwater.lake.scan import Scan, Wanted
from headwater.lake.shape import OPERATION_COLUMN, SYSTEM_COLUMNS
from headwater.lake.table_rows import PartReading
from headwater.lake.view import Views
from headwater.lake.view_plan import TablePart
from headwater.lake.where import Condition
from headwater.metadata.operations import TopicRecord
from headwater.spark.source_log import OpenTopic
from headwater.spark.source_options import SourceOptions
from headwater.spark.source_pieces import Piece, TopicPieces
from headwater.spark.source_rows import Shape, as_asked, read_piece
from headwater.topics.schema import unpack_schema

FILES_BYTES = 64 * 1024 * 1024
"""About what one Spark partition reads of data files; a larger file is a partition of its own."""
_ORDER = ("_hw_lsn", "_hw_offset")


def view_columns(topic: TopicRecord, options: SourceOptions) -> pa.Schema:
    """What a query of a view gives, in the types that the topic's table has."""
    names = options.columns
    if names is None and options.system_columns:
        names = (*unpack_schema(topic.schemas[-1]).names, *SYSTEM_COLUMNS.names)
    wanted = Wanted(topic, names, options.where)
    return pa.schema([wanted.lake.field(name) for name in wanted.schema.names])


@dataclass(frozen=True)
class Files:
    """Data files, packed, and how their rows are read."""

    packed: bytes
    read: pa.Schema
    where: Condition | None

    def tables(self) -> Iterator[pa.Table]:
        part, files = unpack_files(self.packed)
        reading = PartReading(part, self.read, self.where)
        for live in files:
            yield from reading.read(live)


class FilesPartition(InputPartition):
    """Data files, as Spark carries them to a worker."""

    def __init__(self, files: Files, columns: pa.Schema) -> None:
        self.files = files
        self.columns = columns

    def batches(self, topic: str) -> Iterator[pa.RecordBatch]:
        for table in self.files.tables():
            yield from as_asked(table, self.columns)


class TailPartition(InputPartition):
    """Bytes of the log."""

    def __init__(self, pieces: tuple[Piece, ...], shape: Shape) -> None:
        self.pieces = pieces
        self.shape = shape

    def batches(self, topic: str) -> Iterator[pa.RecordBatch]:
        for piece in self.pieces:
            yield from read_piece(piece, topic, self.shape)


class KeyedPartition(InputPartition):
    """All of a keyed topic: its state, the changes after it, and the bytes of the log."""

    def __init__(
        self,
        key: tuple[str, ...],
        state: Files | None,
        changes: tuple[Files, ...],
        tail: TailPartition,
        where: Condition | None,
        columns: pa.Schema,
    ) -> None:
        self.key = key
        self.state = state
        self.changes = changes
        self.tail = tail
        self.where = where
        self.columns = columns

    def batches(self, topic: str) -> Iterator[pa.RecordBatch]:
        changes = [table for files in self.changes for table in files.tables()]
        changes.append(pa.Table.from_batches(self.tail.batches(topic), schema=self.tail.shape.columns))
        state = self.state.tables() if self.state is not None else iter(())
        for rows in latest_rows(state, pa.concat_tables(changes), self.key):
            kept = rows.filter(self.where.expression) if self.where is not None else rows
            yield from as_asked(kept, self.columns)


class ViewReader(DataSourceReader):
    """`spark.read` of a view, at the cut of its planning or at the one that was asked for."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with OpenTopic(options.directory, options.topic) as topic:
            lake = Lake(
                None,
                options.directory,
                clock=SystemClock(),
                entropy=system_entropy,
                catalog=options.catalog,
                ledger=topic.ledger,
            )
            views = Views(lake, topic.log)
            try:
                with views.scan(topic.record, self._schema.names, options.where, options.as_of) as scan:
                    return list(_partitions(scan, to_arrow_schema(self._schema)))
            finally:
                views.close()
                lake.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark gives no partition where there is nothing to read.
        if isinstance(partition, FilesPartition | TailPartition | KeyedPartition):
            yield from partition.batches(self._options.topic)


def _partitions(scan: Scan, columns: pa.Schema) -> Iterator[InputPartition]:
    whole, of_key = (_light(each) for each in scan.wanted.conditions)
    pieces = TopicPieces(scan.views.source, scan.topic).between(*scan.plan.tail)
    if scan.topic.key:
        read = scan.wanted.read(*scan.topic.key, *_ORDER, OPERATION_COLUMN.name)
        state = pa.schema([field for field in read if field.name != OPERATION_COLUMN.name])
        base = scan.plan.base
        yield KeyedPartition(
            scan.topic.key,
            _files(scan, base, state, scan.wanted.conditions[0]) if base is not None else None,
            tuple(_files(scan, part, read, scan.wanted.conditions[1]) for part in scan.plan.tables),
            TailPartition(
                tuple(piece for each in pieces for piece in each),
                Shape(read, read, of_key.expression if of_key is not None else None),
            ),
            whole,
            columns,
        )
        return
    read = scan.wanted.read()
    for part in scan.plan.tables:
        for files in _chosen(part, read, scan.wanted.conditions[0], scan.views.cache):
            yield FilesPartition(Files(pack_files(part, files), read, whole), columns)
    shape = Shape(columns, read, whole.expression if whole is not None else None)
    for each in pieces:
        yield TailPartition(each, shape)


def _files(scan: Scan, part: TablePart, read: pa.Schema, where: Condition | None) -> Files:
    """All files of a part."""
    chosen = [live for files in _chosen(part, read, where, scan.views.cache) for live in files]
    return Files(pack_files(part, chosen), read, _light(where))


def _chosen(part: TablePart, read: pa.Schema, where: Condition | None, cache: FileCache) -> Iterator[list[LiveFile]]:
    """The files of a part that may hold such rows, as many together as are not above the size of a partition."""
    files = PartReading(part, read, where).chosen(cache.files(part.state, part.snapshot_id).data)
    return _together(files)


def _together(files: Iterable[LiveFile]) -> Iterator[list[LiveFile]]:
    waiting: list[LiveFile] = []
    total = 0
    for live in files:
        size = int(live.file.file_size_in_bytes)
        if waiting and total + size > FILES_BYTES:
            yield waiting
            waiting, total = [], 0
        waiting.append(live)
        total += size
    if waiting:
        yield waiting


def _light(condition: Condition | None) -> Condition | None:
    """The condition as rows are asked: files have been chosen by its other form already."""
    return None if condition is None else Condition(condition.expression, condition.columns)
