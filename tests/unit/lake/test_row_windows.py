"""Windows of LSNs: all of a range, in order, and none much larger than it should be."""

from __future__ import annotations

from random import Random

import pytest

from headwater.lake.row_windows import FIRST_BYTES, FileShare, windows


@pytest.mark.parametrize("seed", range(50))
def test_windows_are_the_whole_range_in_order_whatever_the_files_are(seed: int) -> None:
    random = Random(seed)
    files = [
        FileShare(low, low + random.randrange(200), random.randrange(10_000))
        for low in (random.randrange(1, 1_000) for _ in range(random.randrange(6)))
    ]
    lsn_from = random.randrange(500)
    lsn_to = lsn_from + random.randrange(1, 900)

    found = list(windows(files, lsn_from, lsn_to, window_bytes=random.randrange(1, 5_000)))

    assert found[0][0] == lsn_from and found[-1][1] == lsn_to
    assert all(low < high for low, high in found)
    assert [high for _, high in found[:-1]] == [low for low, _ in found[1:]]


def test_files_that_overlap_are_read_a_part_at_a_time() -> None:
    files = [FileShare(1, 100, 1_000), FileShare(1, 100, 1_000)]

    assert list(windows(files, 0, 100, window_bytes=500)) == [(0, 25), (25, 50), (50, 75), (75, 100)]


def test_a_frame_that_is_larger_than_a_window_is_a_window() -> None:
    assert list(windows([FileShare(5, 5, 10_000)], 4, 6, window_bytes=10)) == [(4, 5), (5, 6)]


def test_the_first_window_is_small_and_the_next_ones_are_larger() -> None:
    files = [FileShare(1, 1_000, FIRST_BYTES * 1_000)]

    assert list(windows(files, 0, 10)) == [(0, 1), (1, 3), (3, 7), (7, 10)]
