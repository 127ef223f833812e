"""What docs/tutorial.md tells a reader to type, in order, and what it says the reader will see.

    steps_of(text)              every line to type and every file to save, with its section and what is shown below it
    difference(step, seen)      what a terminal showed and the page does not, or None

PROMISE  Only the page says what is typed: nothing of it is written here a second time.
         A `console` block has lines behind `$ ` for a shell and behind `>>> ` for Python, and below each what it shows.
         `<!-- file: NAME -->` above a block is a file to save.  `<!-- numbers: yours -->` above one: no number in it is
         compared.  A line `...` in what is shown stands for any lines.  What differs from run to run is masked.
NOT HERE The terminal: tests/tutorial/terminal.py.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.docs.running import masked

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"

_PIECES = re.compile(
    r"^## (?P<section>[^\n]+)$"
    r"|(?:^<!-- (?P<mark>file|numbers): (?P<value>\S+) -->\n)?^```(?P<language>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"\d[\d,.]*")
_LAG = re.compile(r"(?m)(?<=<ms> )\s*(?:-|<age>, <n> rows?)$")  # of a landing beside a writer
_SPACES = re.compile(r" {2,}")
_OF_THE_SHELL = re.compile(r"^\[\d+\]")  # what bash says of jobs in the background, whenever it comes to it
_AGE = re.compile(r"\d+ (?:ms|s|min)(?=, \d+ rows?\b)")
_PARQUET = re.compile(r"\S+\.parquet")
_READ = re.compile(r"[\d.,]+ k?B of the log in .*? read back in <time>")


@dataclass(frozen=True)
class Step:
    """One thing that a reader does: types a line behind a prompt, or saves a file under its name."""

    section: str
    typed: str
    prompt: str = "$"
    shown: str = ""
    file: str = ""
    any_numbers: bool = False


def steps_of(text: str) -> Iterator[Step]:
    section = ""
    for piece in _PIECES.finditer(text):
        if piece["section"]:
            section = piece["section"]
        elif piece["mark"] == "file":
            yield Step(section, piece["body"], file=piece["value"])
        elif piece["language"] == "console":
            for line in re.finditer(r"^(\$|>>>) (.*)\n((?:(?!\$ |>>> ).*\n)*)", piece["body"], re.MULTILINE):
                yield Step(section, line[2], line[1], line[3], any_numbers=piece["mark"] == "numbers")


def difference(step: Step, seen: str) -> str | None:
    """How what was seen differs from what the page shows below the line; where it shows nothing, nothing is owed."""
    if not step.shown:
        return None
    wanted, found = (_comparable(text, step.any_numbers) for text in (step.shown, seen))
    pattern = re.escape(wanted).replace(re.escape("\n...\n"), r"\n(?:.*\n)*")
    if re.fullmatch(pattern, found):
        return None
    return "\n".join(difflib.unified_diff(wanted.splitlines(), found.splitlines(), "the page", "the terminal", "", ""))


def _comparable(text: str, any_numbers: bool) -> str:
    lines = [line.rstrip() for line in text.splitlines() if not _OF_THE_SHELL.match(line)]
    text = masked("\n".join(lines).strip("\n") + "\n")
    text = _READ.sub("<read>", _PARQUET.sub("<file>", _AGE.sub("<age>", text)))
    if any_numbers:
        text = _LAG.sub("<lag>", _NUMBER.sub("<n>", text))
    return _SPACES.sub("  ", text)
