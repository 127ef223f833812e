"""Parquet: read a row group at a time, from a file that can be seeked in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater.cli.input_source import Source
from headwater.cli.row_chunk import Chunk
from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

CHUNK_BYTES_MAX = 32 * 1024 * 1024
"""Half of what a write may hold: a batch in memory is a little smaller than its body in a frame."""


def read_chunks(source: Source, batch_rows: int) -> Iterator[Chunk]:
    import pyarrow as pa
    from pyarrow import parquet

    if not source.is_file:
        raise InvalidRequest("Parquet is read from its end: give it as a file, not through a pipe")
    try:
        opened = parquet.ParquetFile(source.file)
    except pa.ArrowInvalid as error:
        raise InvalidRequest(f"{source.name} is not a Parquet file: {error}") from error
    first_row = 0
    for batch in opened.iter_batches(batch_size=batch_rows):
        for part in _parts(batch):
            yield Chunk(part, first_row, None)
            first_row += part.num_rows


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces that fit into a write."""
    if batch.nbytes <= CHUNK_BYTES_MAX or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _parts(batch.slice(0, half))
    yield from _parts(batch.slice(half))
