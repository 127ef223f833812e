"""`headwater audit`: PASS or FAIL, for people and for programs, and what it exits with."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.audit import audit, exit_code
from headwater.cli.exit_codes import ExitCode
from headwater.lake import catalog_check
from headwater.lake.audit_report import AuditReport, StateAudit, TopicAudit
from headwater.lake.catalog_check import CheckedProperty
from tests.unit.cli.topics import SETTINGS, run, run_json

PASSED = (CheckedProperty("raced", True, "one winner", 0.1),)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A topic that has landed; the catalog is believed, because its check takes seconds."""
    monkeypatch.setattr(catalog_check, "check_catalog", lambda *_: PASSED)
    with hw.open(tmp_path / "data", settings=SETTINGS) as log:
        log.topic("orders", {"x": int}, table="lake.orders").append([{"x": 1}, {"x": 2}])
        log.topic("plain", {"x": int})
        log.land()
    return tmp_path / "data"


def test_a_whole_table_passes_and_the_second_time_little_is_read(data: Path) -> None:
    first = run(data, "audit")
    second = run(data, "audit", "orders")

    assert first.exit_code == second.exit_code == ExitCode.DONE
    assert first.stdout.startswith("PASS  orders: 2 of 2 rows in lake.orders, up to LSN ")
    assert first.stdout.endswith(", all read\n") and "0 read, the others unchanged since they passed" in second.stdout
    assert "1 of 1 topic passed in" in first.stderr
    assert "all read" in run(data, "audit", "--full").stdout


def test_what_differs_is_named_and_it_is_a_fail(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        log._beside().place.connect().catalog.load_table("lake.orders").delete("x = 1")

    told = run(data, "audit")
    as_json = run(data, "audit", "--json")

    assert (told.exit_code, as_json.exit_code) == (ExitCode.FAIL, ExitCode.FAIL)
    lines = told.stdout.splitlines()
    assert lines[0].startswith("FAIL  orders: 1 of 2 rows") and lines[1] == "  partition 0: missing: offset 0"
    (topic,) = run_json(data, "audit")["topics"]
    assert (topic["topic"], topic["passed"], topic["differences"]) == ("orders", False, 1)
    assert topic["partitions"][0]["missing"] == {"count": 1, "ranges": [[0, 0]]}


def test_a_table_that_is_gone_needs_a_person(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        log._beside().place.connect().catalog.drop_table("lake.orders")

    told = run(data, "audit")

    assert told.exit_code == ExitCode.HALTED and told.stdout.startswith("HALTED  orders: ")


def test_where_no_topic_has_a_table_there_is_nothing_to_audit(tmp_path: Path) -> None:
    with hw.open(tmp_path, settings=SETTINGS) as log:
        log.topic("plain", {"x": int})

    told = run(tmp_path, "audit")

    assert (told.exit_code, told.stdout) == (ExitCode.DONE, "") and "no topic has a table" in told.stderr


def test_a_topic_that_is_not_there_is_another_call(data: Path) -> None:
    assert run(data, "audit", "nosuch").exit_code == ExitCode.USAGE


def test_what_a_script_is_told() -> None:
    passed = TopicAudit("a", "t")
    failed = TopicAudit("b", "t", findings=("x",))
    away = TopicAudit("c", "t", cause="unavailable", message="x")
    halted = TopicAudit("d", "t", cause="gap", message="x")

    assert exit_code(AuditReport((passed,))) is ExitCode.DONE
    assert exit_code(AuditReport((passed, failed))) is ExitCode.FAIL
    assert exit_code(AuditReport((passed, away))) is ExitCode.TRY_AGAIN
    assert exit_code(AuditReport((failed, away))) is ExitCode.FAIL
    assert exit_code(AuditReport((failed, away, halted))) is ExitCode.HALTED


def test_what_should_be_known_is_said_beside(capsys: pytest.CaptureFixture[str]) -> None:
    from headwater.cli.audit import show

    state = StateAudit("t", 7, 3, since_lsn=2)
    show(
        AuditReport(
            (
                TopicAudit(
                    "orders",
                    "t_changes",
                    erased=2,
                    unmarked=4,
                    accepted=9,
                    rejected=3,
                    redriven=1,
                    dropped_columns=("note",),
                    notes=("look",),
                    state=state,
                ),
            )
        )
    )

    told = capsys.readouterr()
    assert "2 erased by their owner, 4 beside them not the log's" in told.out
    assert "9 accepted + 3 rejected - 1 of them corrected = 11 sent, 3 keys in t, merged up to 7" in told.out
    assert "orders: look" in told.err and "dropped by the table's owner: note" in told.err
    assert "changes up to lsn 2 are past their retention" in told.err


def test_the_command_stands_alone() -> None:
    import typer

    app = typer.Typer()
    app.command()(audit)
    assert "--full" in CliRunner().invoke(app, ["--help"], env={"COLUMNS": "200"}).stdout
