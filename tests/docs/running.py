"""Runs the blocks of a page in order, in a directory of its own, and says what each printed.

    session = Session(directory)
    with session: said = session.run(page)          pairs of what was said and what the page shows
    python -m tests.docs.running docs/views.md      writes the page anew, with what is said now

As a notebook: programs share their names, may `await`, and print into a text.  Commands of ours run in this process,
others in a shell.  The addresses that pages name stand for real ones: 127.0.0.1:7070 and 7071 for a server that the
page starts, `s3://bucket/` for a bucket of a real S3 server.

PROMISE  What differs from run to run (times, ids, sizes, how long it took) is masked, and nothing else is.
NOT HERE Which blocks there are: tests/docs/blocks.py.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from typer.testing import CliRunner

from headwater.cli.main import app
from tests.docs.blocks import ROOT, Block, Kind, blocks_of, needs_a_bucket
from tests.docs.data_blocks import check_data, check_install, is_install
from tests.servers.headwater import free_ports
from tests.servers.versitygw import versitygw

TERMINAL = {"FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "120"}
SCRIPT_S = 150.0
START_S = 60.0
QUIET_S = 1.5
"""What has no port is taken for started if it has not ended after so long."""

MASKED = [
    (re.compile(r"\d{4}-\d\d-\d\d[T ][\d:.]+(?:Z|\+00:00)"), "<time>"),
    (re.compile(r"file:///[^\s,]+"), "<file>"),
    (re.compile(r"hwcut1\.[\w=-]+"), "<cut>"),
    (re.compile(r"\bhw_[\w-]{40,}"), "<token>"),
    (re.compile(r"\b[0-9a-f]{32}\b|\b(?<=log )[0-9a-f]{8}\b|\b[0-9a-f]{8}-[0-9a-f-]{27}\b"), "<id>"),
    (re.compile(r"\b[0-9a-f]{16}\b"), "<digest>"),
    (re.compile(r"snapshot \d+"), "snapshot <id>"),
    (re.compile(r"in \d+\.\d+ s\b"), "in <time>"),
    (re.compile(r"\(\d+\.\d+ s\)"), "(<time>)"),
    (re.compile(r"\d+ s(?=, \d+ rows?\b)"), "<age>"),
    (re.compile(r"\d+ refused, \d+ without a clear answer"), "<refused>"),
    # A landing: what it took, how large its files are, and how wide the columns are for that.
    (re.compile(r"(?m)^TOPIC +TABLE +OUTCOME .*$"), "<heads of a landing>"),
    (re.compile(r" +[\d.]+ k?B +\d+ ms +"), " <bytes> <ms> "),
    (re.compile(r"[\d.,]+ k?B of the log in <time> \([\d.,]+ MB/s\), read back in <time>"), "<read> in <time>"),
]

_PRINTED = re.compile(r"^ *print\(.*\) +# (.*)$", re.MULTILINE)


@dataclass
class Said:
    """A program or a command of a page, what it said, what the page shows, and where."""

    given: str
    said: str
    shown: str
    begin: int
    end: int


@dataclass
class Session:
    """One page's directory, names and servers."""

    directory: Path
    spark: Any = None
    """Where it is given, blocks that need Spark are run too."""
    main: types.ModuleType = field(default_factory=lambda: types.ModuleType("__main__"))
    """What the page's programs define, where Python looks for the names of a program."""
    _ports: list[int] = field(default_factory=lambda: free_ports(2))
    _bucket: str = ""
    _behind: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Self:
        self._open.enter_context(contextlib.chdir(self.directory))
        before = sys.modules["__main__"]
        self._open.callback(sys.modules.__setitem__, "__main__", before)
        sys.modules["__main__"] = self.main
        if self.spark is not None:
            self.main.__dict__["spark"] = self.spark
        return self

    def __exit__(self, *_: object) -> None:
        for log in [value for value in vars(self.main).values() if type(value).__name__ == "Log"]:
            log.close()
        for process in self._behind:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self._behind:
            process.wait(START_S)
        self._open.close()

    def run(self, page: str) -> list[Said]:
        """Every block of the page that is to be run, and what it said."""
        if needs_a_bucket(page):
            server = self._open.enter_context(versitygw())
            self._open.enter_context(server.in_environment())
            self._bucket = server.url()
        return [said for block in blocks_of(page) for said in self._block(block)]

    def _block(self, block: Block) -> Iterator[Said]:
        if block.not_run or block.run_by or ("spark" in block.run and self.spark is None):
            return
        if block.first:
            self._program(block.first, block.line)
        text = self._real(block.text)
        if block.file:
            place = Path(block.file)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, encoding="utf-8")
            if block.kind is Kind.PROGRAM:
                compile(text, block.file, "exec")
        elif block.kind is Kind.PROGRAM:
            said = self._program(text, block.line)
            at = block.output or Block(Kind.OUTPUT, "", _beside(block.text), 0, block.end, block.end)
            yield Said(block.text, self._as_shown(said), at.text, at.begin, at.end)
        elif block.kind is Kind.COMMANDS:
            for part in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE):
                begin = block.begin + part.start(2)
                said = self._command(self._real(part[1]), part[2])
                said += "\n" * bool(said and not said.endswith("\n"))
                yield Said(part[1], self._as_shown(said), part[2], begin, begin + len(part[2]))
        elif block.kind is Kind.SCRIPT and "background" in block.run:
            self._begin(text)
        elif block.kind is Kind.SCRIPT and is_install(text):
            check_install(text)
        elif block.kind is Kind.SCRIPT:
            self._script(text)
        elif block.kind is Kind.DATA:
            check_data(block.language, text)

    def _program(self, text: str, line: int) -> str:
        """What it prints; a program that awaits has a loop, as in a notebook."""
        code = compile(text, f"line {line} of the page", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            if code.co_flags & inspect.CO_COROUTINE:
                asyncio.run(eval(code, vars(self.main)))
            else:
                exec(code, vars(self.main))
        return said.getvalue()

    def _command(self, given: str, shown: str) -> str:
        """What a command says, stderr and stdout as they come; `cat FILE` makes the file, if there is none."""
        words = shlex.split(given)
        if words[0] == "cat" and not Path(words[1]).exists():
            Path(words[1]).write_text(shown, encoding="utf-8")
            return shown
        before, _, ours = given.rpartition(" | headwater ") if " | headwater " in given else ("", "", "")
        if (not ours and not given.startswith("headwater ")) or any(sign in words for sign in (">", "&&", "||", ";")):
            return self._script(given)
        fed = subprocess.run(before, shell=True, capture_output=True, check=True).stdout if before else None
        words = shlex.split(ours or given.removeprefix("headwater "))
        piped = words[-2:] == ["|", "cat"]
        # A bar would leave its escapes: only what is read is shown as on a terminal.
        environment = TERMINAL if words[0] in ("read", "query") and not piped else {}
        result = CliRunner().invoke(
            app, words[:-2] if piped else words, input=fed, env={"HEADWATER_DATA": "", **environment}
        )
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        return result.output

    def _script(self, text: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SCRIPT_S,
            text=True,
        )
        assert done.returncode == 0, f"{text}\nended with {done.returncode}:\n{done.stdout}"
        return done.stdout

    def _begin(self, text: str) -> None:
        """Start what goes on, and wait until its port answers."""
        ports = [f"--listen 127.0.0.1:{self._ports[0]}"] * ("--listen" not in text)
        ports += [f"--http 127.0.0.1:{self._ports[1]}"] * ("--http" not in text)
        text = re.sub(r"headwater serve \S+", lambda found: " ".join([found[0], *ports]), text)
        output = Path(f"behind-{len(self._behind)}.log")
        with output.open("wb") as log:
            process = subprocess.Popen(
                ["bash", "-euc", text], env=self._environment(), stdout=log, stderr=log, start_new_session=True
            )
        self._behind.append(process)
        wanted = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", text)}
        if not wanted:
            time.sleep(QUIET_S)
            assert process.poll() is None, f"{text}\nended:\n{output.read_text()}"
        end_s = time.monotonic() + START_S
        while not all(_answers(port) for port in wanted):
            assert process.poll() is None, f"{text}\nended:\n{output.read_text()}"
            assert time.monotonic() < end_s, f"{text}\nnothing answers:\n{output.read_text()}"
            time.sleep(0.05)

    def _environment(self) -> dict[str, str]:
        here = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT / "src")}
        return {**os.environ, **here, "HEADWATER_DATA": "", "NO_COLOR": "1"}

    def _real(self, text: str) -> str:
        for named, real in zip((7070, 7071), self._ports, strict=True):
            text = re.sub(rf"\b(?:127\.0\.0\.1|localhost):{named}\b", f"127.0.0.1:{real}", text)
        text = re.sub(r"(?<![\w.])/(?:srv|tmp)/", f"{self.directory.resolve()}/", text)
        return text.replace("s3://bucket", self._bucket) if self._bucket else text

    def _as_shown(self, said: str) -> str:
        for named, real in zip((7070, 7071), self._ports, strict=True):
            said = said.replace(f"127.0.0.1:{real}", f"127.0.0.1:{named}")
        if self._bucket:
            said = said.replace(self._bucket, "s3://bucket")
        # Where a page was run is nobody's business.
        return said.replace(str(self.directory.resolve()), "/srv")


def _beside(program: str) -> str:
    """What a program that has no block of output says it prints, in the comments beside its prints."""
    return "".join(f"{said}\n" for said in _PRINTED.findall(program))


def masked(text: str) -> str:
    for pattern, name in MASKED:
        text = pattern.sub(name, text)
    return text


def said_and_shown(
    page: str, directory: Path, spark: Any = None
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Every step of a page: what was said, and what the page shows, masked."""
    with Session(directory, spark=spark) as session:
        steps = session.run(page)
    return [(each.given, masked(each.said)) for each in steps], [(each.given, masked(each.shown)) for each in steps]


def written_anew(page: str, directory: Path) -> str:
    """The page with what its programs and commands say now, where that is more than a mask would hide."""
    with Session(directory) as session:
        steps = session.run(page)
    made = []
    at = 0
    for step in steps:
        if masked(step.said) == masked(step.shown):
            continue
        made += [page[at : step.begin], step.said]
        at = step.end
    return "".join([*made, page[at:]])


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = (ROOT / name).resolve()
        with tempfile.TemporaryDirectory() as directory:
            path.write_text(written_anew(path.read_text(encoding="utf-8"), Path(directory)), encoding="utf-8")
