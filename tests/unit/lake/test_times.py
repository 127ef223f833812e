"""The first landed row after a time: by the bounds of files where they tell, by their rows where they do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.clock import SystemClock
from headwater.errors import CutExpired
from headwater.lake.file_cache import LiveFile
from headwater.lake.resolving import FAR_LSN
from headwater.lake.table_rows import PartReading
from headwater.lake.times import oldest_lsn_after
from tests.unit.lake.keyed_tables import CHANGES, keyed
from tests.unit.lake.small_lakes import PLAIN, SmallLake, lakes


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path)


def landed(lake: SmallLake, count: int) -> list[tuple[int, int]]:
    """So many landings of two rows, ten seconds apart: the times and LSNs of all rows."""
    for _ in range(count):
        for _ in range(2):
            lake.clock.advance(10)
            lake.append("orders")
        lake.round()
    with lake.log["orders"].scan(columns=["_hw_time", "_hw_lsn"], where="_hw_lsn > 0") as scan:
        rows = scan.to_arrow()
    times = rows["_hw_time"].cast(pa.int64()).to_pylist()
    return sorted(zip(times, rows["_hw_lsn"].to_pylist(), strict=True))


def after(lake: SmallLake, time_us: int) -> int:
    return oldest_lsn_after(lake.log._viewed(), [lake.record("orders")], time_us)


def test_the_first_landed_row_after_a_time_is_found(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.topic("orders")
    rows = landed(lake, 3)
    read: list[str] = []
    reading = PartReading.read

    def watched(self: PartReading, live: LiveFile) -> list[pa.Table]:
        read.append(live.path)
        return reading(self, live)

    monkeypatch.setattr(PartReading, "read", watched)

    for place, (time_us, lsn) in enumerate(rows):
        assert after(lake, time_us - 1) == lsn
        assert after(lake, time_us) == (rows[place + 1][1] if place < 5 else FAR_LSN)

    assert len(read) == 6, "only a file that lies across the time is read"


def test_a_file_that_says_nothing_of_its_times_is_read(lake: SmallLake) -> None:
    lake.topic("orders")
    [(first, _), (second, lsn)] = landed(lake, 1)
    with lake.native() as table:
        with table.transaction() as change:
            change.set_properties({"write.metadata.metrics.default": "none"})
        rows = table.scan().to_arrow()
        table.overwrite(rows)

    assert after(lake, first) == lsn and after(lake, second) == FAR_LSN


def test_rows_of_the_owner_have_no_time(lake: SmallLake) -> None:
    lake.topic("orders")
    tables = lake.place.connect()
    tables.catalog.create_namespace("lake")
    table = tables.catalog.create_table("lake.orders", schema=PLAIN)
    table.append(pa.table({"x": [-1]}, schema=PLAIN))
    assert after(lake, 0) == FAR_LSN
    rows = landed(lake, 1)
    both = table.refresh().scan().to_arrow()
    table.overwrite(both)
    tables.close()

    assert after(lake, rows[0][0] - 1) == rows[0][1]


def test_a_table_that_is_not_there_or_empty_has_nothing_after_any_time(lake: SmallLake) -> None:
    lake.topic("orders")
    assert after(lake, 0) == FAR_LSN
    tables = lake.place.connect()
    tables.catalog.create_namespace("lake")
    tables.catalog.create_table("lake.orders", schema=PLAIN)
    tables.close()
    assert after(lake, 0) == FAR_LSN


def test_a_time_before_what_the_retention_of_changes_has_left_is_told(tmp_path: Path) -> None:
    with keyed(tmp_path) as customers:
        customers.land((1, "a"))
        early_us = SystemClock().now_us()
        customers.land((2, "b"))
        customers.merge()
        views = customers.log._viewed()
        before = oldest_lsn_after(views, [customers.record], early_us)
        customers.log["customers"].alter(changes_retention=1)
        customers.clock.advance(90)
        assert customers.care(snapshots_kept=1, readers_s=0.0)[CHANGES].forgotten_files
        late_us = SystemClock().now_us()
        customers.land((3, "c"))
        customers.land((4, "d"))

        with pytest.raises(CutExpired, match="past their retention"):
            oldest_lsn_after(views, [customers.record], early_us)
        assert before < FAR_LSN
        with pytest.raises(CutExpired):
            oldest_lsn_after(views, [customers.record], late_us)
        assert oldest_lsn_after(views, [customers.record], SystemClock().now_us()) == FAR_LSN
