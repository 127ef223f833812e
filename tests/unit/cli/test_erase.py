"""`headwater erase`: what it asks, says and exits with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

import headwater as hw
from headwater.cli import confirmation
from headwater.cli import erase as command
from headwater.cli.exit_codes import ExitCode
from headwater.lake import catalog_check
from headwater.lake.catalog_check import CheckedProperty
from headwater.lake.runner import InProcess
from tests.unit.cli.topics import SETTINGS, rows_of

PASSED = (CheckedProperty("raced", True, "one winner", 0.1),)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A topic that lands; the catalog is believed, because its check takes seconds, and no process is started."""
    monkeypatch.setattr(catalog_check, "check_catalog", lambda *_: PASSED)
    monkeypatch.setattr("headwater.lake.landing.LocalProcesses", _Here)
    with hw.open(tmp_path / "data", settings=SETTINGS) as log:
        log.topic("people", {"name": str}, table="crm.people").append([{"name": "ann"}, {"name": "bob"}])
    return tmp_path / "data"


class _Here(InProcess):
    def close(self) -> None:
        """Nothing was started."""


def run(data: Path, *arguments: str, given: str | None = None) -> Result:
    app = typer.Typer()
    app.command("erase")(command.erase)
    return CliRunner().invoke(app, list(arguments), env={"HEADWATER_DATA": str(data)}, input=given)


ASKED = ("people", "--where", "name = 'bob'", "--reason", "request 12")


def test_rows_are_erased_and_the_receipt_is_named(data: Path) -> None:
    result = run(data, *ASKED, "--yes")

    assert result.exit_code == ExitCode.DONE
    first, second = result.stdout.splitlines()
    assert first.startswith("people: 1 row erased; 1 data file and 1 segment made again, 1 snapshot and ")
    assert second.startswith("receipt ") and second.endswith(" is in the ledger")
    assert rows_of(data, "people") == [{"name": "ann"}]
    assert run(data, *ASKED, "--yes").stdout == "people: no row to erase.\n"


def test_a_dry_run_changes_nothing(data: Path) -> None:
    result = run(data, *ASKED, "--dry-run")
    told = json.loads(run(data, *ASKED, "--dry-run", "--json").stdout)

    assert (result.exit_code, result.stdout) == (0, "people: 1 row would be erased; nothing was changed.\n")
    assert (told["command"], told["outcome"], told["rows"], told["offsets"]) == ("erase", "dry-run", 1, [[0, 1, 1]])
    assert len(rows_of(data, "people")) == 2


@pytest.mark.parametrize(("answer", "code", "rows"), [("y\n", ExitCode.DONE, 1), ("n\n", 3, 2), ("", 3, 2)])
def test_on_a_terminal_it_asks(data: Path, monkeypatch: pytest.MonkeyPatch, answer: str, code: int, rows: int) -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    class System:
        stdin = Terminal()

    monkeypatch.setattr(confirmation, "sys", System())

    result = run(data, *ASKED, given=answer)

    assert result.exit_code == code and "Erase them, for good?" in result.stderr
    assert len(rows_of(data, "people")) == rows


def test_without_a_terminal_it_must_be_confirmed(data: Path) -> None:
    result = run(data, *ASKED)

    assert result.exit_code == ExitCode.USAGE and "give --yes" in result.stderr
    assert len(rows_of(data, "people")) == 2


def test_what_is_left_is_said_and_the_exit_code_says_try_again(data: Path) -> None:
    _land_and_tag(data)

    result = run(data, *ASKED, "--yes")

    assert result.exit_code == ExitCode.TRY_AGAIN
    assert "not yet: crm.people: snapshot" in result.stderr and "the tag 'keep'" in result.stderr
    _drop_tag(data)
    told: dict[str, Any] = json.loads(run(data, *ASKED, "--yes", "--json").stdout)
    assert told["outcome"] == "complete" and len(told["finished"]) == 1


def test_an_erasure_that_is_finished_by_another_is_named(data: Path) -> None:
    _land_and_tag(data)
    run(data, *ASKED, "--yes")
    _drop_tag(data)

    result = run(data, "people", "--where", "name = 'zoe'", "--reason", "x", "--yes")

    assert result.exit_code == 0 and "an erasure that had not been finished is now: " in result.stdout


def test_a_condition_that_cannot_be_used_and_a_topic_that_is_not_there_are_refused(data: Path) -> None:
    wrong = run(data, "people", "--where", "nome = 'bob'", "--reason", "x", "--yes")
    unknown = run(data, "peple", "--where", "name = 'bob'", "--reason", "x", "--yes")

    assert wrong.exit_code == unknown.exit_code == ExitCode.USAGE
    assert "cannot be used" in wrong.stderr and "did you mean people?" in unknown.stderr


def _land_and_tag(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        log.land()
        table = log._beside().place.connect().catalog.load_table("crm.people")
        head = table.current_snapshot()
        assert head is not None
        table.manage_snapshots().create_tag(head.snapshot_id, "keep").commit()


def _drop_tag(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        table = log._beside().place.connect().catalog.load_table("crm.people")
        table.manage_snapshots().remove_tag("keep").commit()
