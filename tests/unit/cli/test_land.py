"""`headwater land` and `headwater check --catalog`: one round, for people and for programs, and what it exits with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.cli import land as command
from headwater.cli.exit_codes import ExitCode
from headwater.cli.interrupts import Interrupts
from headwater.cli.land import Rounds, exit_code
from headwater.errors import LandingHalted, Unavailable
from headwater.lake import catalog_check
from headwater.lake.catalog_check import CheckedProperty
from headwater.lake.report import LandingReport, TopicLanding
from tests.unit.cli.topics import SETTINGS, run, run_json

PASSED = (CheckedProperty("raced", True, "5 races, one winner each", 0.25),)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two topics with tables and rows, one without; the catalog is believed, because its check takes seconds."""
    monkeypatch.setattr(catalog_check, "check_catalog", lambda *_: PASSED)
    with hw.open(tmp_path / "data", settings=SETTINGS) as log:
        for name in ("orders", "clicks"):
            log.topic(name, {"x": int}, table=f"lake.{name}").append([{"x": number} for number in range(3)])
        log.topic("plain", {"x": int}).append([{"x": 1}])
    return tmp_path / "data"


def test_one_round_lands_everything_and_shows_a_table(data: Path) -> None:
    first, second = run(data, "land"), run(data, "land")

    assert (first.exit_code, second.exit_code) == (ExitCode.DONE, ExitCode.DONE)
    lines = [line.split() for line in first.stdout.splitlines()]
    assert lines[0] == ["TOPIC", "TABLE", "OUTCOME", "ROWS", "LSN", "FILES", "BYTES", "COMMIT", "LAG"]
    assert [line[:4] for line in lines[1:]] == [
        ["clicks", "lake.clicks", "landed", "3"],
        ["orders", "lake.orders", "landed", "3"],
    ]
    assert first.stderr.startswith("6 rows landed; ")
    assert "nothing" in second.stdout and second.stderr.startswith("0 rows landed")


def test_a_program_gets_one_object_with_every_topic(data: Path) -> None:
    told = run_json(data, "land", "orders", "--once", "--verify", "metadata")

    assert (told["rows"], told["cleanup"]) == (3, "nothing to delete yet")
    (topic,) = told["topics"]
    assert (topic["topic"], topic["table"], topic["outcome"], topic["rows"]) == ("orders", "lake.orders", "landed", 3)
    assert topic["verified"] is True and topic["files"] == 1 and isinstance(topic["snapshot"], str)
    assert (topic["lag_rows"], topic["lag_s"], topic["cause"], topic["message"]) == (0, 0.0, "", "")
    assert {"lsn_from", "lsn_to", "bytes", "commit_s", "adopted"} <= topic.keys()


def test_the_status_tells_landed_lsn_lag_and_halts(data: Path) -> None:
    run(data, "land", "orders")
    # A table that somebody has dropped is a gap.
    with hw.open(data, settings=SETTINGS) as log:
        log["orders"].append([{"x": 9}])
        log._beside().place.connect().catalog.drop_table("lake.orders")

    halted = run(data, "land")
    told = run_json(data, "status")
    shown = run(data, "status").stdout

    assert halted.exit_code == ExitCode.HALTED
    assert "orders halted (gap; docs/landing.md says what to do): " in halted.stderr
    clicks, orders = told["landing"]
    assert clicks["halted"] == "" and clicks["landed_lsn"] == clicks["verified_lsn"] > 0
    assert (orders["halted"], orders["lag_rows"]) == ("gap", 1) and orders["lag_s"] > 0
    assert [line.split()[0] for line in shown.splitlines() if "lake.orders" in line] == ["orders", "orders"]
    assert "gap" in shown

    decided = run(data, "land", "--after-rollback", "orders")
    assert decided.exit_code == ExitCode.DONE
    assert run_json(data, "status")["landing"][1]["halted"] == ""


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["nope"], "no topic 'nope'"),
        (["plain"], "'plain' has no table"),
        (["--every", "soon"], "--every"),
        (["--every", "1s", "--json"], "without --every"),
        (["--every", "1s", "--after-rollback", "orders"], "for one round"),
        (["--landed-lsn", "orders"], "TOPIC=LSN"),
        (["--landed-lsn", "orders=x"], "TOPIC=LSN"),
        (["--landed-lsn", "=7"], "TOPIC=LSN"),
        (["--landed-lsn", "plain=7"], "'plain' is not among the topics"),
        (["--freshness", "0s"], "--freshness must be above zero"),
        (["--target-file-size", "big"], "--target-file-size"),
        (["--spark", "local[1]", "--connect", "sc://x"], "not both"),
        (["--catalog", "nowhere"], "no catalog 'nowhere'"),
    ],
)
def test_a_wrong_call_says_how_it_should_be(data: Path, arguments: list[str], why: str) -> None:
    result = run(data, "land", *arguments)

    assert result.exit_code == ExitCode.USAGE, result.stderr
    assert why in result.stderr


def test_the_catalog_may_stand_in_the_settings_file(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headwater.toml").write_text(
        f'data = "data"\n[catalog]\nname = "mine"\ntype = "sql"\nuri = "sqlite:///{tmp_path}/mine.db"\n'
        f'warehouse = "file://{tmp_path}/warehouse"\n'
    )

    assert run(data, "land").exit_code == ExitCode.DONE

    assert (tmp_path / "mine.db").exists() and not (data / "catalog.db").exists()
    (tmp_path / "headwater.toml").write_text("catalog = 7\n")
    assert "a name or a table of properties" in run(data, "land").stderr


# What a script is told ------------------------------------------------------------------------------------------------


def topic(outcome: Any, cause: str = "") -> TopicLanding:
    return TopicLanding("t", "lake.t", outcome, cause=cause, message="why")


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([], ExitCode.DONE),
        (["landed", "nothing"], ExitCode.DONE),
        (["lost", "landed"], ExitCode.DONE),
        (["failed", "landed"], ExitCode.TRY_AGAIN),
        (["failed", "halted"], ExitCode.HALTED),
    ],
)
def test_a_halt_of_one_topic_is_told_before_a_failure_of_another(outcomes: list[str], code: ExitCode) -> None:
    assert exit_code(LandingReport(tuple(topic(outcome) for outcome in outcomes))) is code


class Script:
    """Rounds that end as written down; after the last one somebody says stop."""

    def __init__(self, *rounds: Callable[[], LandingReport]) -> None:
        self.rounds = list(rounds)
        self.done = 0

    def __call__(self) -> LandingReport:
        self.done += 1
        return self.rounds.pop(0)()

    def wait(self, timeout_s: float) -> bool:
        if not self.rounds:
            raise KeyboardInterrupt
        return False


def raising(error: Exception) -> Callable[[], LandingReport]:
    def act() -> LandingReport:
        raise error

    return act


def run_rounds(monkeypatch: pytest.MonkeyPatch, *rounds: Callable[[], LandingReport]) -> tuple[ExitCode, int]:
    script = Script(*rounds)
    monkeypatch.setattr(command, "Event", lambda: script)
    with hw.open(":memory:") as log:
        return Rounds(log, script, as_json=False).run(5.0), script.done


def test_it_goes_on_after_what_may_succeed_later(monkeypatch: pytest.MonkeyPatch) -> None:
    halted, landed = LandingReport((topic("halted", "gap"),)), LandingReport((topic("landed"),))

    assert run_rounds(monkeypatch, lambda: halted, lambda: landed) == (ExitCode.DONE, 2)
    assert run_rounds(monkeypatch, raising(Unavailable("the catalog is away")), lambda: landed) == (ExitCode.DONE, 2)
    assert run_rounds(monkeypatch, lambda: landed, raising(Unavailable("away"))) == (ExitCode.TRY_AGAIN, 2)
    assert run_rounds(monkeypatch, lambda: landed, lambda: halted) == (ExitCode.HALTED, 2)


def test_it_ends_where_a_person_is_needed_for_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LandingHalted):
        run_rounds(monkeypatch, raising(LandingHalted("catalog", "it does not keep its word")), LandingReport)


def test_a_signal_lets_the_round_end_and_a_second_one_abandons_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    interrupts: list[Interrupts] = []
    original = Interrupts.__enter__

    def entered(self: Interrupts) -> Interrupts:
        interrupts.append(self)
        return original(self)

    monkeypatch.setattr(Interrupts, "__enter__", entered)

    def signalled(times: int, then: Callable[[], LandingReport]) -> Callable[[], LandingReport]:
        def act() -> LandingReport:
            for _ in range(times):
                interrupts[-1]._received(15, None)
            return then()

        return act

    landed = LandingReport((topic("landed"),))
    more = [lambda: landed] * 3
    assert run_rounds(monkeypatch, signalled(1, lambda: landed), *more) == (ExitCode.DONE, 1)
    assert run_rounds(monkeypatch, signalled(2, lambda: landed), *more) == (ExitCode.INTERRUPTED, 1)
    assert "abandoned" in capsys.readouterr().err

    def deaf() -> LandingReport:
        # A part of the round takes the signal for an error of its own, as pydantic does.
        with contextlib.suppress(KeyboardInterrupt):
            signalled(2, lambda: landed)()
        return LandingReport((topic("failed"),))

    assert run_rounds(monkeypatch, deaf, *more) == (ExitCode.INTERRUPTED, 1)
    assert run_rounds(monkeypatch, signalled(1, raising(Unavailable("away"))), *more) == (ExitCode.TRY_AGAIN, 1)


# check ----------------------------------------------------------------------------------------------------------------


def test_a_catalog_is_checked_and_each_property_told(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(data, "check", "--catalog")

    assert result.exit_code == ExitCode.DONE
    assert result.stdout == "PASS  raced: 5 races, one winner each (0.2 s)\n"

    failed = (*PASSED, CheckedProperty("late", False, "it was applied", 1.0))
    monkeypatch.setattr(catalog_check, "check_catalog", lambda *_: failed)
    told = run_json(data, "check", "--catalog")
    assert told["passed"] is False
    assert told["properties"][1] == {"name": "late", "passed": False, "detail": "it was applied", "seconds": 1.0}
    result = run(data, "check", "--catalog")
    assert result.exit_code == ExitCode.FAIL and "FAIL  late: it was applied" in result.stdout
    # And a landing is refused.
    assert run(data, "land").exit_code == ExitCode.HALTED


def test_a_catalog_that_nobody_knows_is_another_call(data: Path) -> None:
    assert "no catalog 'nowhere'" in run(data, "check", "--catalog", "nowhere").stderr
