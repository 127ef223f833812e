"""Rows of about 1 KB: two int64, a double, a timestamp and six strings, the same for the same numbers."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

ROWS = 1_000
TEXT_COLUMNS = 6
TEXT_CHARACTERS = 160
START_US = 1_767_225_600_000_000  # 2026-01-01, UTC
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("customer", pa.int64(), nullable=False),
        pa.field("amount", pa.float64(), nullable=False),
        pa.field("created_at", pa.timestamp("us", "UTC"), nullable=False),
        *[pa.field(f"text_{number}", pa.string()) for number in range(TEXT_COLUMNS)],
    ]
)


def kilobyte_rows(first: int, count: int) -> pa.RecordBatch:
    """The rows from this number on; random text, so that nothing is cheaper than it would be for a user."""
    random = np.random.default_rng(first)
    ids = np.arange(first, first + count)
    ends = pa.py_buffer(np.arange(0, (count + 1) * TEXT_CHARACTERS, TEXT_CHARACTERS, dtype=np.int32))

    def text() -> pa.Array:
        characters = random.bytes(count * TEXT_CHARACTERS // 2).hex().encode()
        return pa.Array.from_buffers(pa.string(), count, [None, ends, pa.py_buffer(characters)])

    return pa.record_batch(
        [
            pa.array(ids),
            pa.array(random.integers(0, 1_000_003, count)),
            pa.array(random.random(count) * 100),
            pa.array(START_US + ids * 1_000).cast(pa.timestamp("us", "UTC")),
            *[text() for _ in range(TEXT_COLUMNS)],
        ],
        schema=SCHEMA,
    )


def thousand_rows(seed: int) -> pa.RecordBatch:
    """A batch of about 1 MB; another for another seed."""
    return kilobyte_rows(seed * ROWS, ROWS)
