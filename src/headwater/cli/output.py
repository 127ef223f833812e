"""How every command speaks: results on stdout, all else on stderr, and JSON as one versioned object.

COLOUR   only on a terminal, and none where NO_COLOR is set and not empty.
WIDTH    On a terminal text is wrapped to its width; into a pipe nothing is wrapped, so that a line stays a line.
NAMES    of files can hold anything: what cannot be printed is shown as an escape (printable).
"""

from __future__ import annotations

import errno
import json
import os
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.text import Text

JSON_VERSION = 1
PROGRESS_FROM_BYTES = 64 * 1024 * 1024
"""Below this a scan is over before a bar could be read."""

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Told = Callable[[int, int], None]
"""Is told how many bytes of how many have been read."""


def results() -> Console:
    """Where a command's results go: stdout."""
    return _console(stderr=False)


def remarks() -> Console:
    """Where all else goes: stderr."""
    return _console(stderr=True)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Rich would end the process with exit code 1, which says FAIL here; failures.py knows better."""
        raise BrokenPipeError(errno.EPIPE, "nobody reads the output")


def _console(*, stderr: bool) -> Console:
    console = _Console(stderr=stderr, markup=False, highlight=False, emoji=False)
    if os.environ.get("NO_COLOR"):
        # Rich alone would leave bold and dim in; whoever asks for no colour wants no escapes.
        console = _Console(stderr=stderr, markup=False, highlight=False, emoji=False, color_system=None)
    return console


def say(console: Console, text: str, style: str = "", *, indent: str = "", first: str = "") -> None:
    """One paragraph: wrapped on a terminal behind `first` and `indent`, else one line.  Escapes nothing."""
    lines = [first + text]
    if console.is_terminal:
        lines = textwrap.wrap(
            text, max(console.width - 1, 40), initial_indent=first, subsequent_indent=indent, break_on_hyphens=False
        )
    for line in lines:
        console.print(Text(line, style=style), soft_wrap=True)


def say_in_colour(console: Console, *parts: tuple[str, str] | str) -> None:
    """One line of differently styled parts, never wrapped."""
    console.print(Text.assemble(*parts), soft_wrap=True)


def emit_json(command: str, content: Mapping[str, object]) -> None:
    """The one object that `--json` puts on stdout."""
    sys.stdout.write(json.dumps({"version": JSON_VERSION, "command": command, **content}, indent=2) + "\n")


class JsonStream:
    """The same object, with one list in it that is written as it comes, so that memory stays flat."""

    def __init__(self, command: str, content: Mapping[str, object], list_name: str) -> None:
        opening = json.dumps({"version": JSON_VERSION, "command": command, **content})
        sys.stdout.write(f"{opening[:-1]}, {json.dumps(list_name)}: [")
        self._separator = "\n"

    def add(self, item: Mapping[str, object]) -> None:
        sys.stdout.write(self._separator + json.dumps(item))
        self._separator = ",\n"

    def end(self, content: Mapping[str, object]) -> None:
        """Close the list and put the rest behind it."""
        assert content
        sys.stdout.write("\n], " + json.dumps(content)[1:] + "\n")


@contextmanager
def progress_bar(what: str) -> Iterator[Told]:
    """A bar on stderr for a long scan, while somebody watches; it is gone when the scan is over."""
    console = remarks()
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    task = bar.add_task(what, total=None)
    started = False

    def told(done_bytes: int, all_bytes: int) -> None:
        nonlocal started
        if not started and all_bytes >= PROGRESS_FROM_BYTES:
            bar.start()
            started = True
        bar.update(task, completed=done_bytes, total=all_bytes)

    try:
        yield told
    finally:
        bar.stop()


def printable(text: str) -> str:
    """The text with everything escaped that could move a cursor, or that cannot be encoded."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def size_text(size_bytes: int) -> str:
    """Decimal, as rates are given."""
    return f"{size_bytes / 1e6:,.1f} MB" if size_bytes >= 1e6 else f"{size_bytes / 1e3:,.1f} kB"


def counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def lsn_range(first: int, last: int) -> str:
    """`5`, `5 to 7`, or a dash where no LSN is meant; a log without a frame says with which it will begin."""
    if not last:
        return "-"
    if first > last:
        return f"none, from {first} on"
    return f"{first}" if first == last else f"{first} to {last}"


@lru_cache(maxsize=16)  # the frames of a commit have one append time
def utc_text(time_us: int) -> str:
    """ISO 8601 in UTC with milliseconds; the bare number where a calendar does not reach."""
    try:
        moment = _UNIX_EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        return f"{time_us} us"
    return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03}Z"
