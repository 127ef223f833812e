"""Frames of rows: a body is one Arrow IPC record batch message of the topic's own columns.

DATA     the columns of the frame's schema version, in order; offsets are dense from the header's base offset.
SPARSE   the same columns and `_hw_offset` (int64) behind them: the offset of each row that is left.

READER   The schema is not in the body: it is that of the topic's version in the header, and a schema frame before it
         in the same segment carries it.  docs/formats/rows.md.
NOT HERE Whether rows fit: rows.py.  Which rows a sparse frame keeps: compaction.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.errors import CorruptData
from headwater.frames.codecs import decode_body
from headwater.frames.frame import Header, Kind, payload

OFFSET_COLUMN = "_hw_offset"
_OFFSET_FIELD = pa.field(OFFSET_COLUMN, pa.int64(), nullable=False)


@dataclass(frozen=True)
class FrameRows:
    """The rows of one frame."""

    batch: pa.RecordBatch
    offsets: pa.Array | None
    """The offset of each row; None where they are dense from the frame's base offset."""


def arrow_memory(size: int) -> memoryview:
    """Memory of Arrow's for a frame that is read, as its arrays lie in it and are often kept for a while.

    Its pool gives out again what was let go of.  New memory of Python's is cleared first and comes from the kernel page
    by page, which took 3.5 times as long as the reading where forty frames of 1 MB were kept.
    """
    return memoryview(pa.allocate_buffer(size)).cast("B")


def concat(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch of them all; a single one as it lies, uncopied."""
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def encode_batch(batch: pa.RecordBatch) -> memoryview:
    """The body of a data frame."""
    return memoryview(batch.serialize()).cast("B")


def encode_sparse(batch: pa.RecordBatch, offsets: pa.Array) -> bytes:
    """The body of a sparse frame, without the chain value that a rewrite puts behind it."""
    return bytes(memoryview(batch.append_column(_OFFSET_FIELD, offsets).serialize()))


def decode_rows(header: Header, body: memoryview, schema: pa.Schema) -> FrameRows:
    """The rows of a data or sparse frame, in the schema of its version."""
    raw = decode_body(header.codec, payload(header, body))
    sparse = header.kind == Kind.SPARSE
    stored = schema.append(_OFFSET_FIELD) if sparse else schema
    try:
        batch = pa.ipc.read_record_batch(pa.py_buffer(raw), stored)
    except (pa.ArrowException, OSError, EOFError) as error:
        raise CorruptData(f"rows that Arrow does not read: {error}", lsn=header.lsn) from error
    if batch.num_rows != header.row_count:
        raise CorruptData(
            "a frame with another number of rows than its header says",
            lsn=header.lsn,
            rows=batch.num_rows,
            row_count=header.row_count,
        )
    if not sparse:
        return FrameRows(batch, None)
    return FrameRows(batch.select(schema.names), batch.column(OFFSET_COLUMN))
