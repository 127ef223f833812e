"""`headwater append TOPIC [FILE]`: rows of a file or a pipe into a topic, a write at a time; or its rejected rows.

PROMISE  What is counted as appended is durable.  When a row is refused, everything before its write has been appended
         and nothing from its write on: the message says how many rows that is, and `--skip-rows` goes on from there.
ORDER    Rows are appended in the input's order; while one write waits for the disk, the next one is read from a file.
         A pipe may be silent for long, so there each write is waited for, and counted, before the next is read.
NOT HERE Whether a row fits: the topic decides, at its door.  Rejected rows: append_rejected.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.append_rejected import Corrected, DryRun, FromRejected, append_rejected
from headwater.cli.completion import topic_names
from headwater.cli.data_directory import AsJson, DataOption, TakeOver, open_topics
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import code_of, describe, exit_codes
from headwater.cli.input_source import Source
from headwater.cli.interrupts import Interrupts
from headwater.cli.output import counted, emit_json, lsn_range, printable, remarks, results, say
from headwater.cli.row_chunk import Chunk
from headwater.cli.row_input import InputFormat, chunks, format_of
from headwater.cli.topic_lookup import topic_named
from headwater.clock import SystemClock
from headwater.errors import HeadwaterError, InvalidRequest, RowsRefused

if TYPE_CHECKING:
    import pyarrow as pa

    from headwater.api import Topic
    from headwater.topics.answers import Appended

COMMAND = "append"
REFUSED_SHOWN = 10
RATE_FROM_ROWS = 1_000
"""Of fewer rows a rate says more about the disk's sync than about how fast rows are taken in."""


class Rejected(StrEnum):
    REFUSE = "refuse"
    KEEP = "keep"


Name = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The topic; it must exist.", show_default=False, autocompletion=topic_names),
]


class Input(typer.FileBinaryRead):
    """A file that typer has opened, or stdin; `--help` shows the name of this class."""


File = Annotated[
    Input,
    typer.Argument(
        metavar="FILE",
        help="NDJSON, CSV or Parquet; .gz, .zst, .bz2 and .lz4 are unpacked. `-`, or nothing: what is piped in.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    InputFormat | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="ndjson, csv or parquet. By default what the name of FILE says; of a pipe: ndjson.",
        show_default=False,
    ),
]
Partition = Annotated[
    int | None,
    typer.Option("--partition", min=0, metavar="N", help="All rows into this partition.", show_default=False),
]
RejectedOption = Annotated[
    Rejected,
    typer.Option(
        "--rejected",
        metavar="HOW",
        help="A row that does not fit: `refuse` ends there; `keep` puts it into TOPIC.rejected, and goes on.",
    ),
]
BatchRows = Annotated[
    int, typer.Option("--batch-rows", min=1, metavar="N", help="At most so many rows in a write, which is one unit.")
]
SkipRows = Annotated[
    int, typer.Option("--skip-rows", min=0, metavar="N", help="Leave out the first N rows, to go on after an error.")
]
NoHeader = Annotated[
    bool, typer.Option("--no-header", help="CSV without a line of names: its columns are the topic's, in order.")
]
Delete = Annotated[
    bool, typer.Option("--delete", help="The rows are keys of a keyed topic: delete what has these keys.")
]


def append(
    topic: Name,
    file: File = "-",  # type: ignore[assignment]  # typer opens it
    data: DataOption = None,
    format_: FormatOption = None,
    partition: Partition = None,
    rejected: RejectedOption = Rejected.REFUSE,
    batch_rows: BatchRows = 50_000,
    skip_rows: SkipRows = 0,
    no_header: NoHeader = False,
    delete: Delete = False,
    from_rejected: FromRejected = False,
    corrected: Corrected = None,
    dry_run: DryRun = False,
    take_over: TakeOver = False,
    as_json: AsJson = False,
) -> None:
    """Append rows of a file or a pipe to a topic. What is counted as appended is durable.

    NDJSON is one JSON object a line. CSV has a first line of names. Rows of a keyed topic are upserted.

    With `--from-rejected` the rows are those of TOPIC.rejected that fit the topic as it is now, or corrected ones; each
    is appended once, however often this is called.

    Exit code 0: all rows are in the log. 2: a row was refused, or another call is needed; the message says how many
    rows were appended before it. 75: try again. 130: interrupted.
    """
    clock = SystemClock()
    with exit_codes(as_json=as_json, command=COMMAND), open_topics(data, take_over=take_over) as log:
        target = topic_named(log, topic)
        if from_rejected:
            raise typer.Exit(append_rejected(log, target, corrected, dry_run=dry_run, as_json=as_json))
        if corrected is not None or dry_run:
            raise InvalidRequest("--corrected and --dry-run go with --from-rejected")
        source = Source(file)
        if source.is_terminal:
            say(remarks(), "reading NDJSON from the terminal, a JSON object a line; Ctrl-D ends it", "dim")
        schema = _key_schema(target) if delete else target.schema
        found = chunks(
            source,
            format_of(source, format_),
            schema,
            batch_rows=batch_rows,
            skip_rows=skip_rows,
            header=not no_header,
        )
        began_s = clock.monotonic_s()
        loading = Loading(target, _sender(target, partition, rejected, delete=delete), ahead=source.is_file)
        with _bar(source) as told:
            outcome = loading.run(found, told)
        seconds = clock.monotonic_s() - began_s
        if as_json:
            emit_json(COMMAND, _as_content(loading, seconds))
        else:
            _show(loading, seconds, delete=delete)
    raise typer.Exit(outcome)


Sender = Callable[[Chunk], "Future[Appended]"]


def _sender(topic: Topic, partition: int | None, rejected: Rejected, *, delete: bool) -> Sender:
    """How a chunk is sent: appended, which is an upsert where there is a key, or deleted."""
    if not delete:
        return lambda chunk: topic.append_future(chunk.rows, partition=partition, rejected=rejected.value)
    if partition is not None or rejected is Rejected.KEEP:
        raise InvalidRequest("keys are deleted where they are: --delete goes without --partition and --rejected")

    def at_once(chunk: Chunk) -> Future[Appended]:
        done: Future[Appended] = Future()
        done.set_result(topic.delete(chunk.rows))
        return done

    return at_once


def _key_schema(topic: Topic) -> pa.Schema:
    import pyarrow as pa

    if not topic.key:
        raise InvalidRequest(f"{topic.name!r} has no key: its rows cannot be deleted one by one")
    return pa.schema([topic.schema.field(name) for name in topic.key])


@dataclass
class Loading:
    """What has been appended so far, and what ended it."""

    topic: Topic
    send: Sender
    ahead: bool = True
    """The next rows are read while a write is on its way."""
    rows: int = 0
    rejected: int = 0
    writes: int = 0
    first_lsn: int = 0
    lsn: int = 0
    next_row: int = 0
    """How many rows of the input are done, skipped ones too: where to go on."""
    refused: list[tuple[str, str]] = field(default_factory=list)
    error: HeadwaterError | None = None
    interrupted: bool = False
    _waiting: tuple[Chunk, Future[Appended]] | None = None

    def run(self, found: Iterator[Chunk], told: Callable[[int], None]) -> ExitCode:
        """Append all chunks; the exit code."""
        with Interrupts() as interrupts:
            try:
                for chunk in found:
                    # What is sent is counted, whenever Ctrl-C comes: --skip-rows would send it twice otherwise.
                    with interrupts.held():
                        self._settle(told)
                        self._start(chunk)
                        if not self.ahead:
                            self._settle(told)
                self._settle(told)
            except HeadwaterError as error:
                self.error = error
                return code_of(error)
            except KeyboardInterrupt:
                self.interrupted = True
                self._settle(told)
                return ExitCode.INTERRUPTED
        return ExitCode.DONE

    def _start(self, chunk: Chunk) -> None:
        try:
            self._waiting = (chunk, self.send(chunk))
        except RowsRefused as error:
            self._note_refused(chunk, error)
            raise

    def _settle(self, told: Callable[[int], None]) -> None:
        """Wait for the write that is on its way, and count it."""
        if self._waiting is None:
            return
        chunk, future = self._waiting
        try:
            done = future.result()
        except HeadwaterError as error:
            self._waiting = None
            if isinstance(error, RowsRefused):
                self._note_refused(chunk, error)
            raise
        self._waiting = None
        self.rows += done.rows
        self.rejected += done.rejected
        self.writes += 1
        self.first_lsn = self.first_lsn or done.first_lsn
        self.lsn = done.lsn
        self.next_row = chunk.first_row + chunk.count
        told(self.rows)

    def _note_refused(self, chunk: Chunk, error: RowsRefused) -> None:
        self.refused = [(chunk.place_of(row.number), chunk.reason_of(row.number, row.reason)) for row in error.refused]


def _as_content(loading: Loading, seconds: float) -> dict[str, object]:
    return {
        "topic": loading.topic.name,
        "rows": loading.rows,
        "rejected": loading.rejected,
        "writes": loading.writes,
        "first_lsn": loading.first_lsn,
        "lsn": loading.lsn,
        "next_row": loading.next_row,
        "refused": [{"place": place, "reason": reason} for place, reason in loading.refused],
        "error": describe(loading.error) if loading.error is not None else None,
        "interrupted": loading.interrupted,
        "duration_s": round(seconds, 6),
        "rows_per_s": round(loading.rows / seconds) if seconds else 0,
    }


def _show(loading: Loading, seconds: float, *, delete: bool) -> None:
    """One line of summary on stdout; before it, on stderr, what went wrong."""
    name = loading.topic.name
    if loading.refused:
        say(remarks(), f"{counted(len(loading.refused), 'row')} refused by the schema of {name}:", "red")
        for place, reason in loading.refused[:REFUSED_SHOWN]:
            say(remarks(), f"{place}: {printable(reason)}", first="  ", indent="    ")
        if len(loading.refused) > REFUSED_SHOWN:
            say(remarks(), f"  ... and {len(loading.refused) - REFUSED_SHOWN:,} more: --json has all")
        go_on = f" and go on with --skip-rows {loading.next_row}" if loading.next_row else ""
        say(
            remarks(),
            f"Nothing of their write was appended. Mend them{go_on}, or give --rejected keep, which puts them into "
            f"{name}.rejected and goes on.",
        )
    elif loading.error is not None:
        say(remarks(), f"{type(loading.error).__name__}: {printable(str(loading.error))}", "red")
        if loading.next_row:
            say(remarks(), f"The rows before were appended: go on with --skip-rows {loading.next_row}.")
    elif loading.interrupted:
        say(remarks(), f"Interrupted: go on with --skip-rows {loading.next_row}.", "red")
    verb = "deleted" if delete else "appended"
    lsns = f", LSN {lsn_range(loading.first_lsn, loading.lsn)}" if loading.rows or loading.rejected else ""
    rate = f" ({loading.rows / seconds:,.0f} rows/s)" if loading.rows >= RATE_FROM_ROWS and seconds else ""
    kept = f"; {counted(loading.rejected, 'row')} rejected, kept in {name}.rejected" if loading.rejected else ""
    say(results(), f"{name}: {counted(loading.rows, 'row')} {verb} in {seconds:,.2f} s{rate}{lsns}{kept}")


@contextmanager
def _bar(source: Source) -> Iterator[Callable[[int], None]]:
    """A bar on stderr while somebody watches: how far, how many rows, how fast; it is gone at the end."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    console = remarks()
    clock = SystemClock()
    began_s = clock.monotonic_s()
    known = source.size_bytes is not None
    bar = Progress(
        TextColumn("appending"),
        *((BarColumn(), TaskProgressColumn()) if known else ()),
        TextColumn("{task.fields[rows]:,} rows  {task.fields[rate]:,.0f} rows/s"),
        *((TimeRemainingColumn(compact=True),) if known else ()),
        console=console,
        transient=True,
        disable=not console.is_terminal or source.is_terminal,
    )
    task = bar.add_task("", total=source.size_bytes, rows=0, rate=0.0)

    def told(rows: int) -> None:
        passed_s = clock.monotonic_s() - began_s
        bar.update(task, completed=source.done_bytes, rows=rows, rate=rows / passed_s if passed_s else 0.0)

    with bar:
        yield told
