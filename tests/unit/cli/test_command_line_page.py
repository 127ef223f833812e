"""docs/command-line.md shows what the commands really say: every `$` line of it is run, in order, and compared.

What differs from run to run (times, ids, how long it took) is masked.  `cat FILE` makes a file of what stands below it.
Where the product has changed: `python -m tests.unit.cli.test_command_line_page` writes the page anew.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headwater.cli.main import app

PAGE = Path(__file__).resolve().parents[3] / "docs" / "command-line.md"
TERMINAL = {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "120"}

MASKED = [
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z"), "<time>"),
    (re.compile(r"\b[0-9a-f]{32}\b|\b(?<=log )[0-9a-f]{8}\b"), "<id>"),
    (re.compile(r"in \d+\.\d\d s"), "in <time>"),
    # A landing: what it took, how large its files are, and how wide the columns are for that.
    (re.compile(r"(?m)^TOPIC +TABLE +OUTCOME .*$"), "<heads of a landing>"),
    (re.compile(r" +[\d.]+ k?B +\d+ ms +"), " <bytes> <ms> "),
    (re.compile(r"[\d.,]+ k?B of the log in [\d.]+ s \([\d.,]+ MB/s\), read back in [\d.]+ s"), "<read> in <time>"),
]


@dataclass
class Step:
    """One command of the page, and what stands below it."""

    command: str
    shown: str


def steps_of(page: str) -> Iterator[Step]:
    for block in re.findall(r"```text\n(.*?)```", page, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = part.partition("\n")
            yield Step(command, shown)


def output_of(step: Step) -> str:
    """What the command says in the working directory, stderr and stdout as they come."""
    if step.command.startswith("cat "):
        Path(step.command.split()[1]).write_text(step.shown)
        return step.shown
    before, _, command = step.command.rpartition(" | headwater ") if " | headwater " in step.command else ("", "", "")
    given = subprocess.run(before, shell=True, capture_output=True, check=True).stdout if before else None
    words = shlex.split(command or step.command.removeprefix("headwater "))
    if not command and not step.command.startswith("headwater "):
        return subprocess.run(step.command, shell=True, capture_output=True, check=True, text=True).stdout
    piped = words[-2:] == ["|", "cat"]
    # A bar would leave its escapes: only what is read is shown as on a terminal.
    environment = TERMINAL if words[0] == "read" and not piped else {}
    result = CliRunner().invoke(
        app, words[:-2] if piped else words, input=given, env={"HEADWATER_DATA": "", **environment}
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


def masked(text: str) -> str:
    for pattern, name in MASKED:
        text = pattern.sub(name, text)
    return text


def test_every_command_of_the_page_says_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    steps = list(steps_of(PAGE.read_text()))

    said = [(step.command, masked(output_of(step))) for step in steps]

    assert len(steps) > 15
    assert said == [(step.command, masked(step.shown)) for step in steps]


def write_the_page_anew() -> None:
    page = PAGE.read_text()
    with tempfile.TemporaryDirectory() as directory:
        os.chdir(directory)
        for step in steps_of(page):
            page = page.replace(f"$ {step.command}\n{step.shown}", f"$ {step.command}\n{output_of(step)}", 1)
    PAGE.write_text(page)


if __name__ == "__main__":
    write_the_page_anew()
