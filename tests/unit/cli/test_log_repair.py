"""`headwater log repair`: it says what would be lost, asks, does it, and looks again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headwater.cli import log_repair
from headwater.cli.exit_codes import ExitCode
from headwater.log.repair import RepairResult
from tests.unit.cli.logs import (
    LAST_LSN,
    append_one,
    cut_the_newest,
    damage_a_sealed_segment,
    flip_a_byte,
    make_log,
    open_at,
    run,
    segment_files,
    tear_the_tail,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_log(tmp_path / "data")


@pytest.fixture
def damaged(data: Path) -> Path:
    return damage_a_sealed_segment(data)


def content_of(data: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (data / "log").iterdir()}


@pytest.fixture
def on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runner's stdin is no terminal; the command believes that it is."""

    class Terminal:
        def isatty(self) -> bool:
            return True

    class System:
        stdin = Terminal()

    monkeypatch.setattr(log_repair, "sys", System())


def test_a_healthy_log_needs_nothing(data: Path) -> None:
    before = content_of(data)

    result = run("log", "repair", data)

    assert result.exit_code == ExitCode.DONE
    assert "nothing to repair" in result.stdout
    assert content_of(data) == before


def test_a_torn_tail_needs_nothing(data: Path) -> None:
    tear_the_tail(data)

    assert run("log", "repair", data).exit_code == ExitCode.DONE


def test_a_dry_run_says_what_would_be_lost_and_changes_nothing(damaged: Path) -> None:
    before = content_of(damaged)

    result = run("log", "repair", damaged, "--dry-run")

    assert result.exit_code == ExitCode.DONE
    assert "LSN 2 to 3: the body does not match its checksum" in result.stdout
    assert "2 LSNs in all" in result.stdout
    assert "kept aside" in result.stdout
    assert f"headwater log repair {damaged}" in result.stdout
    assert content_of(damaged) == before


def test_without_a_terminal_and_without_yes_it_refuses(damaged: Path) -> None:
    before = content_of(damaged)

    result = run("log", "repair", damaged)

    assert result.exit_code == ExitCode.USAGE
    assert "--yes" in result.stderr
    assert content_of(damaged) == before


def test_json_without_yes_refuses_and_tells_the_plan(damaged: Path) -> None:
    before = content_of(damaged)

    result = run("log", "repair", damaged, "--json")

    told = json.loads(result.stdout)
    assert result.exit_code == ExitCode.USAGE
    assert (told["version"], told["needed"], told["done"]) == (1, True, False)
    assert [(each["first_lsn"], each["last_lsn"]) for each in told["lost"]] == [(2, 3)]
    assert content_of(damaged) == before


def test_yes_mends_it_and_keeps_the_damaged_bytes(damaged: Path) -> None:
    before = content_of(damaged)
    name = segment_files(damaged)[0].name

    result = run("log", "repair", damaged, "--yes")

    after = content_of(damaged)
    assert result.exit_code == ExitCode.DONE
    assert result.stdout.splitlines()[-1].startswith("MENDED")
    assert after[f"{name}.damaged"] == before[name]
    assert run("log", "verify", damaged).exit_code == ExitCode.DONE


def test_a_mended_log_goes_on_and_keeps_every_other_frame(damaged: Path) -> None:
    run("log", "repair", damaged, "--yes")

    with open_at(damaged) as log:
        append_one(log)
        seen = [frame.header.lsn for frame in log.read()]

    # LSN 3 is the gap for 2 and 3; behind the last come the claim's epoch and the two new frames.
    assert seen == [1, *range(3, LAST_LSN + 4)]


def test_json_with_yes_says_what_was_made_and_what_is_kept(damaged: Path) -> None:
    result = run("log", "repair", damaged, "--yes", "--json")

    told = json.loads(result.stdout)
    assert result.exit_code == ExitCode.DONE
    assert (told["version"], told["command"], told["done"], told["verified"]) == (1, "log repair", True, True)
    assert "00000000000000000001.1.seg" in told["made"]
    assert "00000000000000000001.0.seg.damaged" in told["aside"]


@pytest.mark.usefixtures("on_a_terminal")
def test_on_a_terminal_it_asks_and_a_yes_mends(damaged: Path) -> None:
    result = run("log", "repair", damaged, keys="y\n")

    assert result.exit_code == ExitCode.DONE
    assert "lose these LSNs for good?" in result.stderr
    assert "MENDED" in result.stdout


@pytest.mark.usefixtures("on_a_terminal")
@pytest.mark.parametrize("keys", ["n\n", "\n", ""])
def test_on_a_terminal_anything_but_a_yes_changes_nothing(damaged: Path, keys: str) -> None:
    before = content_of(damaged)

    result = run("log", "repair", damaged, keys=keys)

    assert result.exit_code == ExitCode.HALTED
    assert "Nothing was changed" in result.stdout
    assert content_of(damaged) == before


def test_rows_cut_from_the_end_are_declared_lost(data: Path) -> None:
    cut_the_newest(data)

    result = run("log", "repair", data, "--yes")

    assert result.exit_code == ExitCode.DONE
    assert f"LSN {LAST_LSN - 1} to {LAST_LSN}: " in result.stdout
    assert run("log", "verify", data).exit_code == ExitCode.DONE


def test_a_wrong_index_is_mended_without_a_loss(data: Path) -> None:
    flip_a_byte(segment_files(data)[0].with_suffix(".idx"), 100)

    result = run("log", "repair", data, "--yes")

    assert result.exit_code == ExitCode.DONE
    assert "No LSN would be lost." in result.stdout
    assert run("log", "verify", data).exit_code == ExitCode.DONE


def test_what_it_cannot_mend_it_refuses_by_name(data: Path) -> None:
    other = make_log(data.parent / "other")
    shutil.copy(segment_files(other)[1], segment_files(data)[1])
    before = content_of(data)

    people = run("log", "repair", data, "--yes")
    programs = run("log", "repair", data, "--yes", "--json")

    assert people.exit_code == programs.exit_code == ExitCode.HALTED
    assert "ForeignLog" in people.stdout
    assert "ForeignLog" in [each["name"] for each in json.loads(programs.stdout)["refusals"]]
    assert content_of(data) == before


def test_a_log_with_an_owner_is_left_alone_and_the_owner_is_named(data: Path) -> None:
    # Rot in a sealed segment is not seen by its owner, who goes on.
    with open_at(data) as owner:
        append_one(owner)
        damage_a_sealed_segment(data)
        before = content_of(data)

        people = run("log", "repair", data, "--yes")
        programs = run("log", "repair", data, "--yes", "--json")

        assert people.exit_code == programs.exit_code == ExitCode.TRY_AGAIN
        assert "LogLocked: the log is owned by pid " in people.stderr
        assert json.loads(programs.stdout)["error"]["name"] == "LogLocked"
        assert content_of(data) == before


def test_a_log_start_declares_a_missing_beginning_lost(data: Path) -> None:
    segment_files(data)[0].unlink()

    without = run("log", "repair", data)
    with_start = run("log", "repair", data, "--log-start", "1", "--dry-run")

    assert without.exit_code == ExitCode.DONE
    assert "nothing to repair" in without.stdout
    assert "LSN 1 to 7" in with_start.stdout
    assert f"headwater log repair {data} --log-start 1" in with_start.stdout


def test_a_repair_that_did_not_help_is_not_called_done(damaged: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_repair, "carry_out", lambda *args, **kwargs: RepairResult([], []))

    result = run("log", "repair", damaged, "--yes")

    assert result.exit_code == ExitCode.HALTED
    assert "STILL THERE" in result.stdout
    assert "MENDED" not in result.stdout
