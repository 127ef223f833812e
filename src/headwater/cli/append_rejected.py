"""`headwater append TOPIC --from-rejected`: rows that were rejected, appended now that they fit or were corrected.

PROMISE  Each is appended once, however often it is called and whatever it dies of.
NOT HERE Which rows fit, and what makes it once: topics/redrive.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headwater.cli.exit_codes import ExitCode
from headwater.cli.input_source import Source
from headwater.cli.output import counted, emit_json, printable, remarks, results, say
from headwater.cli.row_input import InputFormat, chunks
from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    from headwater.api import Log, Topic
    from headwater.topics.redrive import Redriven

COMMAND = "append"
SHOWN = 10
CHUNK_ROWS = 5_000

FromRejected = Annotated[
    bool, typer.Option("--from-rejected", help="The rows of TOPIC.rejected that fit now, once each, in place of FILE.")
]


class CorrectedFile(typer.FileBinaryRead):
    """A file that typer has opened; `--help` shows the name of this class."""


Corrected = Annotated[
    CorrectedFile | None,
    typer.Option(
        "--corrected",
        metavar="FILE",
        help="With --from-rejected: corrected rows as NDJSON, each with the `_hw_partition` and `_hw_offset` of the "
        "rejected one.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="With --from-rejected: only say what would be appended.")]


def append_rejected(
    log: Log, topic: Topic, corrected: CorrectedFile | None, *, dry_run: bool, as_json: bool
) -> ExitCode:
    """Append them, and tell what became of them; the exit code."""
    rows = _rows(topic, corrected) if corrected is not None else None
    done = log.redrive(topic.name, corrected=rows, dry_run=dry_run)
    if as_json:
        emit_json(COMMAND, _as_content(done))
    else:
        _show(done)
    # That some rows still do not fit is no news, unless somebody has just corrected them.
    return ExitCode.USAGE if corrected is not None and done.still_rejected else ExitCode.DONE


def _rows(topic: Topic, file: CorrectedFile) -> Iterator[Mapping[str, Any]]:
    """The rows of the file, in the topic's types."""
    import pyarrow as pa

    from headwater.topics.redrive import OFFSET, PARTITION

    schema = pa.schema([*topic.schema, pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64())])
    for chunk in chunks(Source(file), InputFormat.NDJSON, schema, batch_rows=CHUNK_ROWS, skip_rows=0, header=True):
        rows = chunk.rows if isinstance(chunk.rows, list) else chunk.rows.to_pylist()
        for number, row in enumerate(rows):
            if not isinstance(row, dict):
                raise InvalidRequest(f"{chunk.place_of(number)}: {chunk.reason_of(number, '')}")
            yield row


def _as_content(done: Redriven) -> dict[str, object]:
    return {
        "topic": done.topic,
        "dry_run": done.dry_run,
        "fitted": done.fitted,
        "still_rejected": done.still_rejected,
        "already_taken": done.already_taken,
        "left": done.left,
        "writes": done.writes,
        "refused": [each._asdict() for each in done.refused],
    }


def _show(done: Redriven) -> None:
    name = f"{done.topic}.rejected"
    for each in done.refused[:SHOWN]:
        place = f"{name} partition {each.partition} offset {each.offset}"
        say(remarks(), f"{place}: {printable(each.reason)}", first="  ", indent="    ")
    if done.still_rejected > SHOWN:
        say(remarks(), f"  ... and {done.still_rejected - SHOWN:,} more: --json has the first thousand")
    verb = "would be appended" if done.dry_run else "appended"
    fitted = f"{counted(done.fitted, 'row')} of {name} {verb}"
    say(
        results(),
        f"{done.topic}: {fitted}, {done.still_rejected:,} still rejected, {done.already_taken:,} taken before; "
        f"{done.left:,} left",
    )
