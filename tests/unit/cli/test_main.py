"""The command as a whole: help, version, colours, and what each error becomes."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from pathlib import Path

import pytest

from headwater import errors
from headwater.cli import output
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import CODES, code_of, describe
from headwater.cli.version import formats
from headwater.frames.segment_header import FORMAT
from tests.unit.cli.logs import damage_a_sealed_segment, make_log, run

LEAVES = [
    *(["log", name] for name in ("verify", "dump", "repair", "rebuild")),
    *(["topic", name] for name in ("create", "list", "describe", "alter", "delete", "compact")),
    *(["registry", name] for name in ("ls", "add", "place", "find")),
    ["append"],
    ["read"],
    ["status"],
]
COMMANDS = [[], ["log"], ["topic"], ["registry"], *LEAVES]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command: list[str]) -> None:
    result = run(*command, "--help")

    assert result.exit_code == ExitCode.DONE
    assert "Usage: " in result.stdout


@pytest.mark.parametrize("command", LEAVES, ids=" ".join)
def test_the_help_of_a_command_says_what_its_exit_codes_mean(command: list[str]) -> None:
    assert "Exit code 0: " in run(*command, "--help").stdout


def test_the_command_line_loads_no_pyarrow_until_a_command_needs_it() -> None:
    program = "import sys, headwater.cli.main; assert 'pyarrow' not in sys.modules"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr


def test_the_version_names_the_formats_too() -> None:
    result = run("--version")

    assert result.exit_code == ExitCode.DONE
    first, *others = result.stdout.splitlines()
    assert first.startswith("headwater ") and first.endswith(f", log format {FORMAT}")
    assert [line.split()[:2] for line in others] == [[name, str(number)] for name, (number, _) in formats().items()]


@pytest.mark.parametrize("arguments", [["--version", "--json"], ["--json", "--version"]])
def test_the_version_is_given_to_programs_too(arguments: list[str]) -> None:
    told = json.loads(run(*arguments).stdout)

    assert told["version"] == output.JSON_VERSION and told["command"] == "version"
    assert told["formats"] == {name: number for name, (number, _) in formats().items()}


@pytest.mark.parametrize(
    "arguments",
    [
        ["--json"],
        ["--json", "status"],
        ["log", "look"],
        ["log", "verify"],
        ["log", "dump", ".", "--limit", "0"],
        ["log", "dump", ".", "--from-lsn", "x"],
    ],
)
def test_a_wrong_call_is_exit_code_two(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == ExitCode.USAGE


def test_no_color_leaves_no_escape_on_a_terminal(tmp_path: Path) -> None:
    data = damage_a_sealed_segment(make_log(tmp_path / "data"))
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "100"}

    coloured = run("log", "verify", data, env={**terminal, "NO_COLOR": ""})
    plain = run("log", "verify", data, env={**terminal, "NO_COLOR": "1"})

    assert "\x1b[" in coloured.stdout
    assert "\x1b[" not in plain.stdout


def test_on_a_terminal_no_line_is_wider_than_it(tmp_path: Path) -> None:
    data = damage_a_sealed_segment(make_log(tmp_path / "data"))
    terminal = {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "100"}

    for command in ("verify", "dump"):
        text = run("log", command, data, env=terminal).stdout
        lines = [line for line in text.splitlines() if str(data) not in line]

        assert max(len(line) for line in lines) <= 100


def test_every_error_of_ours_has_its_exit_code() -> None:
    covered = {kind for kind, _ in CODES}

    assert covered == set(errors.HeadwaterError.__subclasses__())


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TooLarge("x"), ExitCode.USAGE),
        (errors.LogLocked("x"), ExitCode.TRY_AGAIN),
        (errors.DamagedLog("x"), ExitCode.HALTED),
        (PermissionError(errno.EACCES, "denied", "f"), ExitCode.USAGE),
        (FileNotFoundError(errno.ENOENT, "gone", "f"), ExitCode.TRY_AGAIN),
        (OSError(errno.ENOSPC, "full", "f"), ExitCode.TRY_AGAIN),
        (OSError(errno.EIO, "broken", "f"), ExitCode.HALTED),
        (OSError("without a number"), ExitCode.HALTED),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_says_what_to_do_next(error: errors.HeadwaterError | OSError, code: ExitCode) -> None:
    told = describe(error)

    assert code_of(error) == told["exit_code"] == code
    assert told["message"]


@pytest.mark.parametrize(
    ("time_us", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_123_456, "2023-11-14T22:13:20.123Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (2**63 - 1, f"{2**63 - 1} us"),
    ],
)
def test_times_are_utc_and_never_fail(time_us: int, text: str) -> None:
    assert output.utc_text(time_us) == text


def test_a_bar_is_shown_for_a_long_scan_on_a_terminal_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    with output.progress_bar("reading") as told:
        told(1, output.PROGRESS_FROM_BYTES - 1)
    short = capsys.readouterr()

    with output.progress_bar("reading") as told:
        told(1, output.PROGRESS_FROM_BYTES)
    long = capsys.readouterr()

    monkeypatch.delenv("FORCE_COLOR")
    with output.progress_bar("reading") as told:
        told(1, output.PROGRESS_FROM_BYTES)
    piped = capsys.readouterr()

    assert (short.out, short.err, long.out, piped.out, piped.err) == ("", "", "", "", "")
    assert "reading" in long.err
