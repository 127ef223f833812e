"""The same merge through Spark Connect, where a session is cloned rather than made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from tests.lake_spark.sessions import (
    SqliteLake,
    connect_python,
    connect_server,
    run_driver,
)

DRIVER = Path(__file__).with_name("merge_driver.py")


def landed(directory: Path) -> None:
    """Two files of changes, of four keys that came and one that went."""
    with hw.open(directory) as log:
        topic = log.topic("customers", schema={"id": int, "name": str}, key="id", table="crm.customers")
        topic.upsert([{"id": number, "name": "a"} for number in range(4)])
        log.land()
        topic.delete([{"id": 0}])
        log.land()


def check(told: dict[str, Any], version: str) -> None:
    assert told["version"].startswith(version) and told["messages"] == [], told
    assert told["outcomes"] == ["merged", "merged"]
    assert told["state"] == [[1, "a"], [2, "a"], [3, "a"], [5, "e"]]
    assert told["compacted"] == [3, 2]


@pytest.mark.timeout(600)
def test_a_merge_and_upkeep_go_through_spark_connect(tmp_path: Path) -> None:
    landed(tmp_path / "data")
    python = connect_python()

    with connect_server(tmp_path, SqliteLake(tmp_path)) as url:
        done = run_driver([DRIVER, tmp_path / "data", json.dumps({"remote": url})], python=python, timeout_s=400)

    check(json.loads(done.stdout.splitlines()[-1]), "4.")
