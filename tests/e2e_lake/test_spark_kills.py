"""A real Spark driver dies at each of the fourteen points of a landing; whoever lands next makes it whole.

After each death a lander without any memory of it runs; then the table is what the log was, row for row, as another
engine reads it, landings join end to end, and nothing is in flight for ever.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.lake.catalog import catalog_place
from tests.e2e_lake.killed_driver import LATE_S, SETTINGS
from tests.e2e_lake.landers import lander, ledger_in, topics_with_tables
from tests.e2e_lake.same_rows import check_history, compare

ROOT = Path(__file__).resolve().parents[2]
KILLS = int(os.environ.get("HEADWATER_SPARK_KILLS", "14"))
POINTS = [f"P{number % 14 + 1}" for number in range(KILLS)]
LIVES = {"P3"}
"""Here a worker dies and its driver goes on."""


def driver(point: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.e2e_lake.killed_driver", point, str(directory)],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
    )


def append_rows(directory: Path, first: int, count: int = 4000) -> dict[str, pa.Table]:
    """Rows of two topics, a segment after each; returns all that the log holds of both, with offsets."""
    with hw.open(directory, settings=SETTINGS) as log:
        for name in ("orders", "payments"):
            topic = log.topic(name, schema={"id": int, "note": str}, table=f"sales.{name}", partitions=2)
            topic.append([{"id": first + each, "note": f"{name} {each}" * 8} for each in range(count)])
        log._engine.shard.log.roll()
        return {name: log[name].read(system_columns=True).to_arrow() for name in ("orders", "payments")}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_dies_leaves_nothing_that_the_next_lander_does_not_make_whole(point: str, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    append_rows(directory, 0)
    with hw.open(directory, settings=SETTINGS) as log:
        lander(log, catalog_place(None, directory=str(directory))).round(topics_with_tables(log))
    rows = append_rows(directory, 1_000_000)

    ended = driver(point, directory)
    died = ended.returncode == -9
    assert died == (point not in LIVES), ended.stderr[-2000:]
    if point == "P14":
        # The lander that was to make it whole dies too, before it has written down what it found.
        assert driver("P9", directory).returncode == -9
    if point == "P8":
        time.sleep(LATE_S + 1)

    with hw.open(directory, settings=SETTINGS) as log:
        place = catalog_place(None, directory=str(directory))
        report = lander(log, place).round(topics_with_tables(log))
        assert not report.halted and not report.failed, report
        again = lander(log, place).round(topics_with_tables(log))
        assert [each.outcome for each in again] == ["nothing", "nothing"]
        assert all(each.verified for each in again), again
        log.cleanup()
        tables = place.connect()
        for name in ("orders", "payments"):
            state = tables.load(f"sales.{name}")
            assert state is not None
            compare(rows[name], state.native)  # type: ignore[arg-type]
            check_history(state.native)  # type: ignore[arg-type]
            assert ledger_in(str(directory)).state().topic(log[name].topic_id).landed_lsn > 0
        tables.close()
