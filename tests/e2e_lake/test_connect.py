"""The same landing through Spark Connect: the driver has no JVM, and the server does nothing but tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e_lake.many_topics import check_outcomes, check_tables, fill
from tests.lake_spark.sessions import connect_python, connect_server, run_driver

DRIVER = Path(__file__).with_name("land_driver.py")

CHECK = """
import sys
from pyspark.sql import SparkSession
from headwater.errors import InvalidRequest
from headwater.lake.catalog import catalog_place
from headwater.spark.session import check_session, spark_config
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
place = catalog_place(None, directory=sys.argv[2])
for name, value in spark_config(place).items():
    if name.startswith("spark.sql.catalog."):
        spark.conf.set(name, value)
try:
    check_session(spark, place)
except InvalidRequest as error:
    print(error)
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that is started once: each test is a session of its own on it."""
    with connect_server(tmp_path_factory.mktemp("connect")) as found:
        yield found


@pytest.mark.timeout(900)
def test_spark_connect_lands_every_row_once(url: str, tmp_path: Path, seed: int) -> None:
    directory = tmp_path / "data"
    rows = fill(directory, seed)

    driver = run_driver([DRIVER, directory, json.dumps({"remote": url})], python=connect_python())

    assert check_outcomes(rows, driver.stdout).startswith("4.")
    check_tables(directory, rows)


@pytest.mark.timeout(900)
def test_a_connect_session_is_checked_by_its_settings(url: str, tmp_path: Path) -> None:
    driver = run_driver(["-c", CHECK, url, tmp_path], python=connect_python())

    assert "it needs spark.sql.extensions=" in driver.stdout
    assert "spark.sql.catalog" not in driver.stdout, "what is there is not asked for"
