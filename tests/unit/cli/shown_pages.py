"""Pages that show programs, commands and what they say: run in order, in one directory, and compared.

    ```python      a program: what it prints is shown in a `text` block right behind it, if it prints anything.  Those
                   that speak of Spark are left to a reader; the others share one session, as in a notebook
    ```text        `$ headwater ...`, or another command, and below it what it says; `$ cat FILE` makes the file

What differs from run to run (times, ids, sizes, how long it took) is masked.
Where the product has changed: `python -m tests.unit.cli.shown_pages docs/views.md` writes a page anew.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from headwater.cli.main import app

ROOT = Path(__file__).resolve().parents[3]
TERMINAL = {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "120"}

MASKED = [
    (re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)"), "<time>"),
    (re.compile(r"file:///[^\s,]+"), "<file>"),
    (re.compile(r"hwcut1\.[\w=-]+"), "<cut>"),
    (re.compile(r"\b[0-9a-f]{32}\b|\b(?<=log )[0-9a-f]{8}\b|\b[0-9a-f]{8}-[0-9a-f-]{27}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "<digest>"),
    (re.compile(r"snapshot \d+"), "snapshot <id>"),
    (re.compile(r"in \d+\.\d+ s\b"), "in <time>"),
    (re.compile(r"\d+ s(?=, \d+ rows?\b)"), "<age>"),
    # A landing: what it took, how large its files are, and how wide the columns are for that.
    (re.compile(r"(?m)^TOPIC +TABLE +OUTCOME .*$"), "<heads of a landing>"),
    (re.compile(r" +[\d.]+ k?B +\d+ ms +"), " <bytes> <ms> "),
    (re.compile(r"[\d.,]+ k?B of the log in <time> \([\d.,]+ MB/s\), read back in <time>"), "<read> in <time>"),
]

_BLOCK = re.compile(r"```(python|text)\n(.*?)```", re.DOTALL)
_SAID = re.compile(r"\s*```text\n((?!\$ ).*?)```", re.DOTALL)


@dataclass
class Step:
    """A program or a command of a page, what stands below it, and where."""

    given: str
    shown: str
    begin: int
    end: int
    program: bool = False


def steps_of(page: str) -> Iterator[Step]:
    for block in _BLOCK.finditer(page):
        if block[1] == "python":
            if "spark" not in block[2]:
                said = _SAID.match(page, block.end())
                yield (
                    Step(block[2], said[1], said.start(1), said.end(1), program=True)
                    if said
                    else Step(block[2], "", block.end(), block.end(), program=True)
                )
            continue
        for part in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block[2], re.MULTILINE):
            begin = block.start(2) + part.start(2)
            yield Step(part[1], part[2], begin, begin + len(part[2]))


def output_of(step: Step, session: dict[str, Any]) -> str:
    """What it says in the working directory, stderr and stdout as they come."""
    if step.program:
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(step.given, session)
        return said.getvalue()
    if step.given.startswith("cat "):
        Path(step.given.split()[1]).write_text(step.shown)
        return step.shown
    before, _, command = step.given.rpartition(" | headwater ") if " | headwater " in step.given else ("", "", "")
    given = subprocess.run(before, shell=True, capture_output=True, check=True).stdout if before else None
    words = shlex.split(command or step.given.removeprefix("headwater "))
    if not command and not step.given.startswith("headwater "):
        return subprocess.run(step.given, shell=True, capture_output=True, check=True, text=True).stdout
    piped = words[-2:] == ["|", "cat"]
    # A bar would leave its escapes: only what is read is shown as on a terminal.
    environment = TERMINAL if words[0] in ("read", "query") and not piped else {}
    result = CliRunner().invoke(
        app, words[:-2] if piped else words, input=given, env={"HEADWATER_DATA": "", **environment}
    )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.output


def masked(text: str) -> str:
    for pattern, name in MASKED:
        text = pattern.sub(name, text)
    return text


def said_and_shown(page: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Every step of a page in the working directory: what was said, and what the page shows, masked."""
    session: dict[str, Any] = {"__name__": "__main__"}
    steps = list(steps_of(page))
    said = [(step.given, masked(output_of(step, session))) for step in steps]
    return said, [(step.given, masked(step.shown)) for step in steps]


def written_anew(page: str) -> str:
    session: dict[str, Any] = {"__name__": "__main__"}
    made = []
    at = 0
    for step in steps_of(page):
        # Where a page was made is nobody's business.
        made += [page[at : step.begin], output_of(step, session).replace(str(Path.cwd()), "/srv")]
        at = step.end
    return "".join([*made, page[at:]])


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = (ROOT / name).resolve()
        with tempfile.TemporaryDirectory() as directory:
            os.chdir(directory)
            path.write_text(written_anew(path.read_text()))
