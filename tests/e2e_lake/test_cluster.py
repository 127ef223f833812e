"""A standalone cluster of separate processes lands twenty topics; one of its two machines dies half-way."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.e2e_lake.many_topics import check_outcomes, check_tables, fill
from tests.lake_spark.sessions import end_group, standalone_cluster, start_driver

DRIVER = Path(__file__).with_name("land_driver.py")
LANDED_WITHIN_S = 400


def wait_for_a_data_file(driver: subprocess.Popen[str], lake: Path) -> None:
    """Until the first rows are in a file of a table: the work has begun, and most of it is before us."""
    until = time.monotonic() + LANDED_WITHIN_S
    while time.monotonic() < until:
        if any(path.stat().st_size for path in lake.glob("sales/*/data/**/*.parquet")):
            return
        if driver.poll() is not None:
            printed, said = driver.communicate()
            raise AssertionError(f"the driver ended before it wrote a file:\n{printed[-2000:]}\n{said[-6000:]}")
        time.sleep(0.01)
    raise AssertionError("no data file was written")


@pytest.mark.timeout(600)
def test_a_cluster_that_loses_a_worker_half_way_lands_every_row_once(tmp_path: Path, seed: int) -> None:
    directory = tmp_path / "data"
    rows = fill(directory, seed, writes=10)

    with standalone_cluster(tmp_path) as cluster:
        driver = start_driver([DRIVER, directory, json.dumps(cluster.settings)], python=cluster.python)
        try:
            wait_for_a_data_file(driver, directory / "lake")
            cluster.kill_worker(0)
            was_running = driver.poll() is None
            printed, said = driver.communicate(timeout=LANDED_WITHIN_S)
        finally:
            end_group(driver, signal.SIGKILL)

    assert was_running, "the worker died when all was done: more rows are needed"
    assert driver.returncode == 0, said[-6000:]
    check_outcomes(rows, printed)
    check_tables(directory, rows)
