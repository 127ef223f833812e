"""`headwater query SQL`: a SELECT over topics by their names, run by DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from headwater.cli.as_of import AsOfOption, parse_as_of
from headwater.cli.data_directory import AsJson, CatalogOption, DataOption, open_topics
from headwater.cli.failures import exit_codes
from headwater.cli.output import results
from headwater.cli.read import OutputFile
from headwater.cli.row_output import JsonOutput, OutputFormat, format_of, one_object, open_output, say_how_many
from headwater.clock import SystemClock
from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Collection

    import pyarrow as pa

COMMAND = "query"

Statement = Annotated[
    str,
    typer.Argument(
        metavar="SQL", help='One SELECT. Topics stand in it by name; "web.visits" in quotes.', show_default=False
    ),
]
AsCsv = Annotated[bool, typer.Option("--csv", help="CSV, with a line of heads.")]


def query(
    statement: Statement,
    data: DataOption = None,
    catalog: CatalogOption = None,
    as_of: AsOfOption = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    output: OutputFile = None,
) -> None:
    """Run DuckDB's SQL over topics: table and tail as one, all topics at one cut, the latest row of each key.

    By default a table on a terminal, and NDJSON into a pipe. The columns _hw_lsn, _hw_partition, _hw_offset and
    _hw_time are there where the statement names one of them. Nothing is written, and no other file is read.

    Exit code 0: done. 2: another call is needed, a statement that DuckDB refuses too. 3: the log is halted. 75: try
    again, or nobody reads the output.
    """
    rows = 0
    with exit_codes(as_json=as_json, command=COMMAND), open_topics(data, catalog=catalog) as log:
        if as_json and (as_csv or output is not None):
            raise InvalidRequest("--json is one object on stdout: without --csv and --output")
        console = results()
        given = OutputFormat.NDJSON if as_json else OutputFormat.CSV if as_csv else None
        chosen = format_of(given, output, console)
        with log.query(statement, as_of=parse_as_of(as_of, SystemClock())) as found:
            sink = (
                JsonOutput({"command": COMMAND, "cut": str(found.cut)})
                if as_json
                else open_output(chosen, output, console, found.schema)
            )
            with one_object(sink):
                for batch in found:
                    whole = batch if chosen is OutputFormat.PARQUET else _plain(batch, found.wide_integers)
                    sink.write(whole)
                    rows += batch.num_rows
            sink.end()
        say_how_many(rows, chosen, output)


def _plain(batch: pa.RecordBatch, wide_integers: Collection[int]) -> pa.RecordBatch:
    """Integers of 128 bits, which Arrow has as decimals, as the integers that nearly all of them are."""
    import pyarrow as pa

    for place in wide_integers:
        try:
            narrow = batch.column(place).cast(pa.int64())
        except pa.ArrowInvalid:
            continue  # it is written as a decimal: a text, so that no reader makes a float of it
        batch = batch.set_column(place, pa.field(batch.schema.field(place).name, pa.int64()), narrow)
    return batch
