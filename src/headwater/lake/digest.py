"""The digest of rows: how a landing knows that the table holds what the log held (docs/formats/digest.md).

PROMISE  Rows in any order, cut into batches in any way, on any number of workers, have one digest: it is a sum.
         `digest_of` of the rows that are read back from a table equals that of the rows that were written, and
         equals what digest_sql.py's query finds in Spark.
         Blocks are in order and each is there once, so that equal digests are equal values.
NOT HERE The word of a value and of a row: digest_words.py, which needs numpy and polars-hash.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from headwater.errors import InvalidRequest
from headwater.lake.work import Block, Digest

BLOCK_BITS = 16
"""A block is 65,536 offsets of a partition."""

ROWS_AT_ONCE = 64 * 1024
"""Enough that what a call of polars costs by itself is not seen."""

_MODULUS = 1 << 64


def digest_of(rows: pa.Table | pa.RecordBatch) -> Digest:
    """The digest of these rows; their columns, `_hw_partition` and `_hw_offset` among them, in order of field id."""
    try:
        from headwater.lake.digest_words import block_digests
    except ImportError as error:
        raise InvalidRequest(f"a digest needs {error.name}: pip install 'headwater[lake]'") from error

    table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
    batches = [batch for batch in table.to_batches(max_chunksize=ROWS_AT_ONCE) if batch.num_rows]
    return Digest(tuple(Block(*block) for block in block_digests(batches, BLOCK_BITS)))


def combine(digests: Iterable[Digest]) -> Digest:
    """The digest of all their rows together."""
    summed: dict[tuple[int, int], tuple[int, int]] = {}
    for digest in digests:
        for block in digest.blocks:
            rows, total = summed.get((block.partition, block.block), (0, 0))
            summed[block.partition, block.block] = rows + block.rows, (total + block.total) % _MODULUS
    return Digest(tuple(Block(*place, *summed[place]) for place in sorted(summed)))
