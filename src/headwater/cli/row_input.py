"""Rows from a file or a pipe, as a topic takes them: NDJSON, CSV or Parquet.

A chunk is appended as one write.  Of text, the fast way makes an Arrow batch of a block; a block that does not fit
is read again row by row, so that the topic's door can say which line is wrong, and why.

NOT HERE How each format is read: ndjson_input.py, csv_input.py, parquet_input.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.input_source import Source
from headwater.cli.row_chunk import Chunk
from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa


class InputFormat(StrEnum):
    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


_SUFFIXES = {
    ".ndjson": InputFormat.NDJSON,
    ".jsonl": InputFormat.NDJSON,
    ".json": InputFormat.NDJSON,
    ".csv": InputFormat.CSV,
    ".parquet": InputFormat.PARQUET,
    ".pq": InputFormat.PARQUET,
}
_COMPRESSED = {".gz", ".zst", ".bz2", ".lz4"}


def format_of(source: Source, given: InputFormat | None) -> InputFormat:
    """What was asked for, else what the file's name says; a pipe gives NDJSON."""
    if given is not None:
        return given
    if not source.is_file:
        return InputFormat.NDJSON
    suffixes = [suffix.lower() for suffix in Path(source.name).suffixes]
    while suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    found = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    if found is None:
        raise InvalidRequest(f"what {source.name} holds cannot be told from its name: give --format ndjson|csv|parquet")
    return found


def chunks(
    source: Source, format_: InputFormat, schema: pa.Schema, *, batch_rows: int, skip_rows: int, header: bool
) -> Iterator[Chunk]:
    """The rows of an input from `skip_rows` on, at most `batch_rows` of them in a chunk."""
    from headwater.cli import csv_input, ndjson_input, parquet_input

    if format_ is InputFormat.PARQUET:
        found = parquet_input.read_chunks(source, batch_rows)
    elif format_ is InputFormat.CSV:
        found = csv_input.read_chunks(source, schema, header=header)
    else:
        found = ndjson_input.read_chunks(source, schema)
    for chunk in found:
        start = min(max(skip_rows - chunk.first_row, 0), chunk.count)
        for begin in range(start, chunk.count, batch_rows):
            yield chunk.slice(begin, min(batch_rows, chunk.count - begin))
