"""`headwater maintain`: what is done without Spark, for people and for programs, and what it exits with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.cli.exit_codes import ExitCode
from headwater.cli.maintain import exit_code
from headwater.lake import catalog_check
from headwater.lake.care import TableUpkeep
from headwater.lake.catalog_check import CheckedProperty
from headwater.lake.maintenance import MaintenanceReport
from headwater.spark.merge import TopicMerge
from tests.unit.cli.topics import SETTINGS, run, run_json

PASSED = (CheckedProperty("raced", True, "one winner", 0.1),)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A topic that has landed; the catalog is believed, because its check takes seconds."""
    monkeypatch.setattr(catalog_check, "check_catalog", lambda *_: PASSED)
    with hw.open(tmp_path / "data", settings=SETTINGS) as log:
        log.topic("orders", {"x": int}, table="lake.orders").append([{"x": 1}])
        log.topic("plain", {"x": int})
        log.land()
    return tmp_path / "data"


def test_tables_are_looked_after_and_what_others_did_is_told(data: Path) -> None:
    assert run(data, "maintain").stdout == "lake.orders: nothing to do\n"
    # Somebody deletes what has landed.
    with hw.open(data, settings=SETTINGS) as log:
        log._beside().place.connect().catalog.load_table("lake.orders").delete("x = 1")

    result = run(data, "maintain")
    told = run_json(data, "maintain", "orders", "--dry-run")

    assert result.exit_code == ExitCode.DONE
    assert "lake.orders: by others: deletes: " in result.stderr
    assert told["dry_run"] is True and told["merges"] == []
    (table,) = told["tables"]
    assert (table["topic"], table["table"], table["cause"]) == ("orders", "lake.orders", "")
    assert table["others"][0].startswith("deletes: ")
    assert {"compacted_files", "expired_snapshots", "removed_files", "orphans", "left", "stamped"} <= table.keys()


def test_a_table_that_holds_less_than_it_should_needs_a_person(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        tables = log._beside().place.connect()
        tables.catalog.drop_table("lake.orders")
        tables.create("lake.orders", _shape(log))

    result = run(data, "maintain")

    assert result.exit_code == ExitCode.HALTED
    assert "holds less than the ledger says" in result.stderr


def _shape(log: hw.Log) -> Any:
    from headwater.lake.shape import table_shape

    return table_shape(log._engine.topic("orders"))


def test_keyed_topics_wait_for_spark_and_that_is_said(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        log.topic("customers", {"id": int}, key="id", table="lake.customers").upsert([{"id": 1}])

    result = run(data, "maintain")

    assert result.exit_code == ExitCode.DONE
    assert "not merged: that needs Spark" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nope"], "no topic 'nope'"),
        (["plain"], "'plain' has no table"),
        (["--spark", "x", "--connect", "y"], "not both"),
    ],
)
def test_a_wrong_call_says_how_it_should_be(data: Path, arguments: list[str], why: str) -> None:
    result = run(data, "maintain", *arguments)

    assert result.exit_code == ExitCode.USAGE and why in result.stderr


def test_a_halt_is_told_before_what_may_succeed_later() -> None:
    def merge(outcome: Any) -> TopicMerge:
        return TopicMerge("t", "lake.t", outcome)

    fine, halted = MaintenanceReport(), MaintenanceReport((TableUpkeep("t", "lake.t", cause="gap"),))
    assert exit_code((), fine) is exit_code((merge("merged"), merge("nothing")), fine) is ExitCode.DONE
    assert exit_code((merge("failed"),), fine) is exit_code((merge("lost"),), fine) is ExitCode.TRY_AGAIN
    assert exit_code((merge("failed"),), halted) is exit_code((merge("halted"),), fine) is ExitCode.HALTED
