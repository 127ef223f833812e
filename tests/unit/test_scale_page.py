"""docs/scale.md: its tables are what bench/scale.py makes of the figures."""

from __future__ import annotations

import re

import pytest

from bench.scale import PAGE, Load, need, tables, with_tables
from headwater.settings import bucket_settings


def test_the_page_shows_what_the_script_computes() -> None:
    page = PAGE.read_text()

    assert with_tables(page) == page, "run: python -m bench.scale --write"


def test_every_table_of_the_page_with_marks_is_the_scripts() -> None:
    marked = re.findall(r"<!-- (\w+) -->", PAGE.read_text())

    assert marked == list(tables())


@pytest.mark.parametrize("topics", [10, 1_000])
def test_ten_times_the_load_needs_no_more_than_ten_times_of_anything(topics: int) -> None:
    less, more = need(Load(100, topics)), need(Load(1_000, topics))

    assert less.logs < more.logs <= 10 * less.logs
    assert less.puts_per_s < more.puts_per_s <= 10.5 * less.puts_per_s
    assert less.usd < more.usd <= 10.5 * less.usd
    assert less.catalog_commits_per_hour <= more.catalog_commits_per_hour


def test_a_load_of_one_log_is_counted_by_hand() -> None:
    found = need(Load(10, 10))

    # 20 commits a second by the interval; their slots stay, so a segment is an index, a swap of trim and a checkpoint;
    # another checkpoint a minute.
    segments_per_s = 10e6 / bucket_settings().log.segment_size_bytes_max
    assert found.logs == 1
    assert found.commits_per_s == 20
    assert found.catalog_commits_per_hour == 600
    assert found.log_puts_per_s == pytest.approx(20 + 1 + segments_per_s * 3 + 1 / 60)
    assert found.lake_puts_per_s == pytest.approx(10 / 60 * 4)
