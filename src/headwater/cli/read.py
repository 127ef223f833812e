"""`headwater read TOPIC`: the rows of a topic, from one place to another, or as they come."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.data_directory import AsJson, CatalogOption, DataOption, open_topics
from headwater.cli.exit_codes import ExitCode
from headwater.cli.failures import exit_codes
from headwater.cli.output import results
from headwater.cli.read_range import parse_place
from headwater.cli.row_output import JsonOutput, OutputFormat, format_of, one_object, open_output, say_how_many
from headwater.cli.topic_lookup import topic_named
from headwater.cli.topic_show import Name
from headwater.clock import SystemClock
from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    from headwater.topics.reading import Rows

COMMAND = "read"

Start = Annotated[
    str,
    typer.Option(
        "--start",
        metavar="PLACE",
        help="earliest, latest, lsn:7, an offset with --partition, offsets by partition (0:17,1:3), 15min (ago), or "
        "2026-11-15T02:55:13Z.",
    ),
]
Stop = Annotated[
    str | None,
    typer.Option(
        "--stop", metavar="PLACE", help="End before this. Without it: what is durable now.", show_default=False
    ),
]
Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=0, metavar="N", help="At most so many rows.", show_default=False)
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for more rows, until Ctrl-C.")]
Partition = Annotated[
    int | None, typer.Option("--partition", min=0, metavar="N", help="Of this partition alone.", show_default=False)
]
Columns = Annotated[
    str | None,
    typer.Option("--columns", metavar="NAMES", help="Only these columns, with commas between.", show_default=False),
]
FormatOption = Annotated[
    OutputFormat | None,
    typer.Option(
        "--format",
        metavar="NAME",
        help="table, ndjson, csv, or parquet to a file. By default a table on a terminal, and ndjson into a pipe.",
        show_default=False,
    ),
]
OutputFile = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", dir_okay=False, metavar="FILE", show_default=False,
        help="Into a new file: .ndjson, .csv or .parquet.",
    ),
]  # fmt: skip
SystemColumns = Annotated[
    bool, typer.Option("--system-columns", help="Also _hw_lsn, _hw_partition, _hw_offset and _hw_time.")
]


def read(
    topic: Name,
    data: DataOption = None,
    start: Start = "earliest",
    stop: Stop = None,
    limit: Limit = None,
    follow: Follow = False,
    partition: Partition = None,
    columns: Columns = None,
    format_: FormatOption = None,
    output: OutputFile = None,
    system_columns: SystemColumns = False,
    catalog: CatalogOption = None,
    as_json: AsJson = False,
) -> None:
    """Read rows of a topic, in the order of the log. It may run beside the log's owner.

    Rows that the log has let go of are read from the topic's table. Rows of a keyed topic are changes: `_hw_op` is U
    where a row was upserted, and D where it was deleted.

    Exit code 0: done; a follower ended by Ctrl-C too. 2: another call is needed. 3: the log is halted. 75: try again,
    or nobody reads the output.
    """
    rows = 0
    with exit_codes(as_json=as_json, command=COMMAND), open_topics(data, catalog=catalog) as log:
        if as_json and (follow or output is not None or format_ is not None):
            raise InvalidRequest("--json is one object on stdout: without --follow, --output and --format")
        source = topic_named(log, topic)
        clock = SystemClock()
        console = results()
        chosen = OutputFormat.NDJSON if as_json else format_of(format_, output, console)
        # Where to begin is looked up before anything is printed or made, so that a wrong place leaves no file behind.
        found: Rows = source.read(
            start=parse_place(start, partition, clock),
            stop=parse_place(stop, partition, clock) if stop is not None else None,
            limit=limit,
            follow=follow,
            partition=partition,
            columns=[name.strip() for name in columns.split(",")] if columns else None,
            system_columns=system_columns,
        )
        sink = (
            JsonOutput({"command": COMMAND, "topic": topic})
            if as_json
            else open_output(chosen, output, console, found.schema)
        )
        try:
            with one_object(sink):
                for batch in found:
                    sink.write(batch)
                    rows += batch.num_rows
        except KeyboardInterrupt:
            if not follow:
                raise typer.Exit(ExitCode.INTERRUPTED) from None
        sink.end()
        say_how_many(rows, chosen, output)
