"""`headwater log rebuild`: a lost journal made anew from the log, with what is missing said."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import headwater as hw
from headwater.cli.exit_codes import ExitCode
from tests.unit.cli.logs import flip_a_byte, segment_files
from tests.unit.cli.logs import run as run_log
from tests.unit.cli.topics import SETTINGS, make_topics, rows_of, run, run_json


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Three topics with rows, of which one has two schema versions, one was deleted, and a group has read some."""
    data = make_topics(tmp_path / "data")
    with hw.open(data, settings=SETTINGS) as log:
        log["customers"].upsert([{"id": 1, "name": "Ada"}])
        log["orders"].alter(add={"mail": str}, retention="7d")
        log["orders"].append([{"order_id": 4, "mail": "x@y"}])
        log["raw"].append(b"bytes")
        log.delete_topic("raw")
        consumer = log.consumer("orders", group="billing")
        consumer.poll(max_rows=2, timeout_s=5)
        consumer.commit()
        consumer.close()
    return data


def test_a_lost_journal_is_made_anew_and_every_row_is_read(data: Path, tmp_path: Path) -> None:
    before = {name: rows_of(data, name) for name in ("orders", "customers")}
    shutil.rmtree(data / "journal")
    lost = run(data, "status")

    result = run_log("log", "rebuild", data, "--to", tmp_path / "new")
    shutil.move(tmp_path / "new" / "journal", data / "journal")

    assert lost.exit_code == ExitCode.HALTED and "headwater log rebuild" in lost.stderr
    assert result.exit_code == ExitCode.DONE
    assert "REBUILT" in result.stdout
    assert {name: rows_of(data, name) for name in before} == before
    assert run_log("log", "verify", data).exit_code == ExitCode.DONE


def test_what_comes_back_is_shown_and_what_does_not_is_said(data: Path, tmp_path: Path) -> None:
    result = run_log("log", "rebuild", data, "--to", tmp_path / "new")

    lines = result.stdout.splitlines()
    assert [line.split() for line in lines[:4]] == [
        ["NUMBER", "TOPIC", "ROWS", "PARTITIONS", "SCHEMAS", "KEY"],
        ["1", "orders", "4", "2", "2", "-"],
        ["2", "customers", "1", "1", "1", "id"],
        ["3", "raw", "1", "1", "1", "-"],
    ]
    assert "groups: billing" in lines
    for lost in ("policies", "tables", "deletions"):
        assert f"  - {lost}" in result.stdout
    assert lines[-1].startswith("To use it: mv ")


def test_a_whole_directory_is_made_with_the_log(data: Path, tmp_path: Path) -> None:
    told = run_log("log", "rebuild", data, "--to", tmp_path / "new", "--copy-log")

    with hw.open(tmp_path / "new", settings=SETTINGS) as log:
        log["orders"].append([{"order_id": 5}])
        (group,) = log.groups()

    assert told.exit_code == ExitCode.DONE
    assert f"{tmp_path / 'new'} is a data directory of its own" in told.stdout
    assert rows_of(tmp_path / "new", "orders")[:-1] == rows_of(data, "orders")
    assert (group.group, sum(group.committed.values())) == ("billing", 2)
    assert run_log("log", "verify", tmp_path / "new").exit_code == ExitCode.DONE


def test_a_dry_run_makes_nothing(data: Path, tmp_path: Path) -> None:
    result = run_log("log", "rebuild", data, "--to", tmp_path / "new", "--copy-log", "--dry-run")

    assert result.exit_code == ExitCode.DONE
    assert "Nothing was made." in result.stdout
    assert not (tmp_path / "new").exists()


def test_programs_are_told_one_object(data: Path, tmp_path: Path) -> None:
    told = run_json(data, "log", "rebuild", data, "--to", tmp_path / "new")

    assert [(each["number"], each["name"], each["rows"]) for each in told["topics"]] == [
        (1, "orders", 4),
        (2, "customers", 1),
        (3, "raw", 1),
    ]
    assert (told["log_start"], told["groups"], told["unnamed"], told["log_copied"]) == (1, ["billing"], [], False)
    assert told["lost"]


def test_a_directory_that_is_in_use_is_refused(data: Path) -> None:
    result = run_log("log", "rebuild", data, "--to", data)

    assert result.exit_code == ExitCode.USAGE


def test_a_damaged_log_is_to_be_repaired_first(data: Path, tmp_path: Path) -> None:
    flip_a_byte(segment_files(data)[0], 256 + 10)

    result = run_log("log", "rebuild", data, "--to", tmp_path / "new")

    assert result.exit_code == ExitCode.HALTED
    assert f"headwater log repair {data}" in result.stderr
    assert not (tmp_path / "new").exists()
