"""The same landing through Spark Connect: the driver has no JVM, and the server does nothing but tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e_lake.many_topics import check_outcomes, check_tables, fill
from tests.lake_spark.sessions import connect_python, connect_server, run_driver

DRIVER = Path(__file__).with_name("land_driver.py")


@pytest.mark.timeout(900)
def test_spark_connect_lands_every_row_once(tmp_path: Path, seed: int) -> None:
    directory = tmp_path / "data"
    rows = fill(directory, seed)
    python = connect_python()

    with connect_server(tmp_path) as url:
        driver = run_driver([DRIVER, directory, json.dumps({"remote": url})], python=python)

    assert check_outcomes(rows, driver.stdout).startswith("4.")
    check_tables(directory, rows)
