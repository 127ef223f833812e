"""The same landing on Spark 3.5, from an environment of its own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e_lake.many_topics import check_outcomes, check_tables, fill
from tests.lake_spark.sessions import run_driver, spark35_python

DRIVER = Path(__file__).with_name("land_driver.py")


@pytest.mark.timeout(900)
def test_spark_35_lands_every_row_once(tmp_path: Path, seed: int) -> None:
    directory = tmp_path / "data"
    rows = fill(directory, seed)
    # Rows are landed without any of Iceberg's jars: tasks write files with pyiceberg, and the driver commits them.
    settings = {"spark.master": "local[2]", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}

    driver = run_driver([DRIVER, directory, json.dumps(settings)], python=spark35_python())

    assert check_outcomes(rows, driver.stdout).startswith("3.5.")
    check_tables(directory, rows)
