"""The rows of pieces of a log, in the columns and types that Spark expects.

PROMISE  Where a rewrite has replaced a file since it was named, the same LSNs are looked up where they lie now.
NEEDS    No data source of Spark's: tasks of Spark 3.5 read by this too.
NOT HERE Which pieces: source_pieces.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from headwater.errors import CorruptData, InvalidRequest
from headwater.lake.reading import read_rows
from headwater.spark.source_log import OpenTopic
from headwater.spark.source_pieces import Piece

BATCH_ROWS = 65_536
_LOOKS_MAX = 3


def spark_schema(columns: pa.Schema) -> StructType:
    return from_arrow_schema(columns, prefer_timestamp_ntz=True)


@dataclass(frozen=True)
class Shape:
    """The columns that Spark is given, and which rows."""

    columns: pa.Schema
    """In the order and the types that Spark expects."""
    read: pa.Schema
    """Those, and what conditions and offsets need besides; in the types of the topic's table."""
    condition: pc.Expression | None = None


def read_piece(piece: Piece, name: str, shape: Shape, looks: int = 0) -> Iterator[pa.RecordBatch]:
    """The wanted rows of a piece."""
    topic = piece.topic
    done = read_rows(piece.work, {topic.number: shape.read})
    if topic.number in done.topics:
        yield from _batches(done.topics[topic.number].rows, piece, shape)
        return
    reason = done.errors[topic.number]
    with OpenTopic(piece.work.directory, name) as log:
        found = log.again(piece)
    if looks >= _LOOKS_MAX or (found and all(each.work.segment == piece.work.segment for each in found)):
        raise CorruptData(f"rows of {name!r} cannot be read: {reason}")
    for each in found:
        yield from read_piece(each, name, shape, looks + 1)


def _batches(rows: pa.Table, piece: Piece, shape: Shape) -> Iterator[pa.RecordBatch]:
    conditions = [*_unwanted(rows, piece), *([shape.condition] if shape.condition is not None else [])]
    for each in conditions:
        rows = rows.filter(each)
    yield from as_asked(rows, shape.columns)


def as_asked(rows: pa.Table, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
    """These columns of rows, in the types that Spark expects."""
    rows = rows.select(columns.names)
    if not rows.schema.equals(columns):
        try:
            rows = rows.cast(columns)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise InvalidRequest(
                f"a value does not fit the column that this query has for it ({error}): the topic's schema has changed "
                "since the query began, or .schema(...) names other types; begin the query again"
            ) from error
    yield from rows.to_batches(max_chunksize=BATCH_ROWS)


def _unwanted(rows: pa.Table, piece: Piece) -> Iterator[pc.Expression]:
    """Conditions that leave out offsets before and behind the query's; there are none for most pieces, which lie inside
    it, so what is looked at first is how far each partition's rows go."""
    if not (piece.low or piece.high):
        return
    seen = rows.group_by("_hw_partition").aggregate([("_hw_offset", "min"), ("_hw_offset", "max")])
    for number, first, last in zip(*(seen.column(each).to_pylist() for each in range(3)), strict=True):
        low, high = piece.low.get(number, 0), piece.high.get(number)
        other = pc.field("_hw_partition") != number
        if first < low:
            yield other | (pc.field("_hw_offset") >= low)
        if high is not None and last >= high:
            yield other | (pc.field("_hw_offset") < high)
