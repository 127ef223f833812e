"""How a table is read in the order of LSNs though its files overlap: in windows that are small enough to sort.  Pure.

A landing's files follow each other, but a compaction puts rows of many landings into each file, so that no file can be
read to its end before the next one is begun.  A window is a range of LSNs; how many bytes it takes is estimated from
the files' bounds, as if the rows of a file were spread evenly over its LSNs.

PROMISE  The windows are the whole range, in order, each LSN in one of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

FIRST_BYTES = 8 * 1024 * 1024
"""Whoever asks for few rows waits for no more than these."""
WINDOW_BYTES = 128 * 1024 * 1024


class FileShare(NamedTuple):
    """What is known of a file: the LSNs that it may hold, and about how many bytes its rows take in memory."""

    lsn_low: int
    lsn_high: int
    bytes: int


def windows(
    files: Sequence[FileShare],
    lsn_from: int,
    lsn_to: int,
    *,
    window_bytes: int = WINDOW_BYTES,
) -> Iterator[tuple[int, int]]:
    """Ranges, each of rows after its first LSN and up to its second, that together are the range that was given."""
    low = np.array([each.lsn_low for each in files], np.int64)
    high = np.array([each.lsn_high for each in files], np.int64)
    density = np.array([each.bytes for each in files], np.float64) / (high - low + 1)

    def estimate(after: int, up_to: int) -> float:
        lsns = np.minimum(high, up_to) - np.maximum(low, after + 1) + 1
        return float((np.maximum(lsns, 0) * density).sum())

    size = min(FIRST_BYTES, window_bytes)
    while lsn_from < lsn_to:
        near, far = lsn_from + 1, lsn_to
        while near < far:
            middle = (near + far + 1) // 2
            if estimate(lsn_from, middle) <= size:
                near = middle
            else:
                far = middle - 1
        yield lsn_from, near
        lsn_from = near
        size = min(size * 2, window_bytes)
