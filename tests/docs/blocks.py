"""The blocks of a page: what each is, what stands directly above it, and what must become of it.

    ```python      a program; those of a page share one session, in order.  What it prints stands in a `text` block
                   directly below
    ```console     commands behind `$ `, and below each what it says (`text` that begins with `$ ` is the same)
    ```sh          commands whose output is not shown: a script, which must end well
    ```json        and toml, yaml, sql, xml, ini, promql: data, which must be read
    ```hexdump     bytes of a format: tests/formats compares them with the golden files
    ```text        what a program printed; else a picture, an error, a line of a log: nothing that could be run
    indented       a picture or a formula, likewise

Directly above a block may stand, for this block alone,

    *Not run here: it needs a cluster.*        a reader sees it too: nothing is done with the block
    <!-- file: dag.py -->                      the block is written to this file, for what comes after it
    <!-- run: background -->                   a script that goes on until the end of the page: a server
    <!-- run: spark -->                        it needs a session of Spark
    <!-- run by: tests/test_examples.py -->    that test runs the same, and names the page or its program
    <!-- first: rows = [...] -->               Python that is run before it, and that a reader does not need

and anywhere `<!-- run: bucket -->`: the page is run with an S3 server behind `s3://bucket/`.

NOT HERE How they are run: tests/docs/running.py.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = {"json", "toml", "yaml", "sql", "xml", "ini"}
COMMANDS = {"headwater", "pip", "python", "curl", "just", "bash", "$", "export", "spark-submit", "uvicorn", "docker"}

_FENCE = re.compile(r"^( *)(```+)([\w-]*)[^`]*$")
_COMMENT = re.compile(r"<!--\s*(file|run by|run|first):\s*(.*?)\s*-->", re.DOTALL)
_NOT_RUN = re.compile(r"\*Not run here: (.+?)\*", re.DOTALL)
_ABOVE = re.compile(r"(?:(?:<!--(?:(?!-->).)*-->|\*Not run here: [^*]+\*)\s*)+\Z", re.DOTALL)


class Kind(StrEnum):
    PROGRAM = "a program"
    COMMANDS = "commands"
    SCRIPT = "a script"
    DATA = "data"
    BYTES = "bytes"
    OUTPUT = "output"
    PICTURE = "a picture"
    UNNAMED = "a block without a language"


@dataclass
class Block:
    """A block of a page."""

    kind: Kind
    language: str
    text: str
    line: int
    begin: int
    """Where its text begins in the page, and where it ends."""
    end: int
    not_run: str = ""
    file: str = ""
    run: set[str] = field(default_factory=set)
    first: str = ""
    run_by: str = ""
    output: Block | None = None
    """Of a program: the block with what it prints."""

    @property
    def is_to_be_run(self) -> bool:
        return not self.not_run and self.kind in (Kind.PROGRAM, Kind.COMMANDS, Kind.SCRIPT)


def pages() -> list[str]:
    """Every page that a reader may take for true, by its path.  Those that are written from the code hold signatures,
    not programs, and are compared with it whole."""
    found = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    found += (ROOT / "deploy").rglob("*.md")
    paths = sorted(path.relative_to(ROOT).as_posix() for path in found)
    return [path for path in paths if not path.startswith("docs/reference/")]


def needs_a_bucket(page: str) -> bool:
    return "<!-- run: bucket -->" in page


def blocks_of(page: str) -> list[Block]:
    """Its blocks, in order."""
    made: list[Block] = []
    lines = page.splitlines(keepends=True)
    at = number = 0
    while number < len(lines):
        fence = _FENCE.match(lines[number].rstrip("\n"))
        if fence:
            last = next(
                (n for n in range(number + 1, len(lines)) if re.fullmatch(rf"{fence[1]}{fence[2]}\s*", lines[n])), None
            )
            assert last is not None, f"line {number + 1}: a block without an end"
            begin = at + len(lines[number])
            text = "".join(lines[number + 1 : last])
            shown = re.sub(rf"^{fence[1]}", "", text, flags=re.MULTILINE)
            made.append(_block(page, fence[3], shown, number + 1, at, (begin, begin + len(text)), made))
            size = last + 1 - number
        elif _begins_indented(lines, number):
            size = _indented(lines, number)
            text = "".join(lines[number : number + size])
            made.append(_block(page, "indented", text, number + 1, at, (at, at + len(text)), made))
        else:
            size = 1
        at += sum(len(line) for line in lines[number : number + size])
        number += size
    return made


def looks_runnable(text: str) -> bool:
    """Whether it could be a command or a program: then it must say so."""
    first = text.split(maxsplit=1)[0] if text.split() else ""
    if first in COMMANDS:
        return True
    try:
        ast.parse("\n".join(line.removeprefix("    ") for line in text.splitlines()))
    except SyntaxError:
        return False
    return True


def _block(
    page: str, language: str, text: str, line: int, above_at: int, place: tuple[int, int], before: list[Block]
) -> Block:
    found = Block(_kind(language, text), language, text, line, *place)
    above = _ABOVE.search(page, 0, above_at)
    for name, value in _COMMENT.findall(above[0] if above else ""):
        if name == "run":
            found.run.add(value)
        elif name == "file":
            found.file = value
        elif name == "run by":
            found.run_by = value
        else:
            found.first = value
    refused = _NOT_RUN.search(above[0]) if above else None
    found.not_run = " ".join(refused[1].split()) if refused else ""
    if found.kind is Kind.PICTURE and language == "text" and before:
        program = before[-1]
        between = page[program.end : above_at]
        if program.kind is Kind.PROGRAM and not between.strip("`\n ") and not found.not_run:
            found.kind = Kind.OUTPUT
            program.output = found
    return found


def _kind(language: str, text: str) -> Kind:
    if language == "python":
        return Kind.PROGRAM
    if language == "console" or (language == "text" and text.startswith("$ ")):
        return Kind.COMMANDS
    if language == "sh":
        return Kind.SCRIPT
    if language in DATA:
        return Kind.DATA
    if language == "hexdump":
        return Kind.BYTES
    if language in ("text", "indented", "diff"):
        return Kind.PICTURE
    return Kind.UNNAMED


def _begins_indented(lines: list[str], number: int) -> bool:
    if not re.match(r" {4,}\S", lines[number]) or (number and lines[number - 1].strip()):
        return False
    before = next((line for line in reversed(lines[:number]) if line.strip()), "")
    return not re.match(r"\s+\S|[-*] |\d+\. ", before)


def _indented(lines: list[str], number: int) -> int:
    end = number
    for at in range(number, len(lines)):
        if lines[at].startswith("    "):
            end = at + 1
        elif lines[at].strip():
            break
    return end - number
