"""`headwater restore` and `headwater log restore --from-lake`: for people and for programs, and what they exit with."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.cli.exit_codes import ExitCode
from headwater.lake.landing import Lake
from headwater.lake.restoring import Contents, LocalCopying
from headwater.lake.work import Digest
from tests.unit.cli.topics import SETTINGS, run, run_json

PARTS = ("log", "journal", "checkpoints", "ledger")


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three rows of orders that have landed, and one that has not."""
    # That a catalog keeps its word is shown elsewhere, and takes seconds.
    monkeypatch.setattr(Lake, "check_catalog_once", lambda _: None)
    folder = tmp_path / "data"
    with hw.open(folder, settings=SETTINGS) as log:
        orders = log.topic("orders", schema={"x": int}, table="lake.orders")
        orders.append([{"x": 1}, {"x": 2}, {"x": 3}])
        assert log.land().rows == 3
        orders.append([{"x": 4}])
    return folder


def lose(data: Path) -> None:
    for part in PARTS:
        shutil.rmtree(data / part)


def rows(data: Path) -> list[int]:
    with hw.open(data, settings=SETTINGS) as log:
        return sorted(log["orders"].scan().to_arrow()["x"].to_pylist())


# ------------------------------------------------------------------------------------------------------- a table


def test_a_table_is_restored_and_compared(data: Path) -> None:
    result = run(data, "restore", "orders", "--as-of", "lsn:3", "--to", "lake.then")

    assert result.exit_code == ExitCode.DONE, result.output
    assert result.stdout.startswith("PASS  3 rows of orders as of lsn 3 in lake.then")


def test_a_program_is_told_what_was_restored(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        cut = str(log.cut("orders"))

    told = run_json(data, "restore", "orders", "--as-of", cut, "--to", "lake.now")

    assert (told["rows"], told["passed"], told["differences"]) == (4, True, [])
    assert told["offsets"] == {"0": [0, 3]} and told["table"] == "lake.now" and told["cut"].startswith("hwcut1.")


def test_a_table_that_reads_back_otherwise_is_a_fail(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LocalCopying, "contents", lambda *_: Contents(Digest()))

    result = run(data, "restore", "orders", "--as-of", "lsn:3", "--to", "lake.then")

    assert result.exit_code == ExitCode.FAIL
    assert "FAIL" in result.stdout and "offsets 0 to 65535: 3 rows were given and 0 are there" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["orders", "--as-of", "lsn:3", "--to", "lake.orders"], "is the table of the topic"),
        (["nothing", "--as-of", "lsn:3", "--to", "lake.then"], "nothing"),
        (["orders", "--as-of", "yesterday", "--to", "lake.then"], "no point to read at"),
    ],
)
def test_another_call_is_needed(data: Path, arguments: list[str], said: str) -> None:
    result = run(data, "restore", *arguments)

    assert result.exit_code == ExitCode.USAGE
    assert said in result.stderr


# --------------------------------------------------------------------------------------------------------- a log


def test_a_lost_log_is_made_again_and_what_is_lost_is_said(data: Path) -> None:
    lose(data)

    result = run(data, "log", "restore", data, "--from-lake", "--group", "billing")

    assert result.exit_code == ExitCode.DONE, result.output
    assert "RESTORED  1 topic in" in result.stdout
    assert "had not landed" in result.stdout and "billing" in result.stdout
    assert rows(data) == [1, 2, 3]


def test_a_program_is_told_what_came_back(data: Path) -> None:
    lose(data)
    first: dict[str, Any] = run_json(data, "log", "restore", data, "--from-lake", "--dry-run")
    assert (first["dry_run"], first["topics"][0]["rows"]) == (True, None)

    told = run_json(data, "log", "restore", data, "--from-lake")

    assert told["first_lsn"] == 1 << 32 and told["log_id"] not in told["log_ids_before"]
    (topic,) = told["topics"]
    assert (topic["name"], topic["rows"], topic["next_offsets"]) == ("orders", 3, {"0": 3})
    assert (told["continued"], told["passed_over"], len(told["lost"]) > 3) == (False, {}, True)


def test_a_dry_run_says_that_nothing_was_made(data: Path) -> None:
    lose(data)

    result = run(data, "log", "restore", data, "--from-lake", "--dry-run")

    assert "Nothing was made, no table was touched. 1 topic would come back." in result.stdout
    assert not (data / "log").exists()


def test_tables_that_bring_no_topic_back_are_shown(data: Path) -> None:
    from headwater.lake.catalog import catalog_place

    lose(data)
    tables = catalog_place(None, directory=str(data)).connect()
    tables.catalog.rename_table("lake.orders", "lake.moved")
    tables.close()

    result = run(data, "log", "restore", data, "--from-lake")

    assert result.exit_code == ExitCode.USAGE
    assert "lake.moved: it says that it is 'lake.orders'" in result.stderr


def test_a_log_that_is_there_is_refused(data: Path) -> None:
    result = run(data, "log", "restore", data, "--from-lake")

    assert result.exit_code == ExitCode.USAGE
    assert "holds a log" in result.stderr
    assert rows(data) == [1, 2, 3, 4]


def test_what_to_restore_from_is_said(data: Path) -> None:
    assert run(data, "log", "restore", data).exit_code == ExitCode.USAGE
