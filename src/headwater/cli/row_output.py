"""Rows as `headwater read` gives them out: NDJSON, CSV, Parquet, a table for people, or one JSON object.

PROMISE  Each batch is given out before the next one is read, so memory is flat, and a follower sees rows at once.
NOT HERE How a value looks: json_values.py has the table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import typer
from rich.console import Console

from headwater.cli.failures import code_of, describe, tell
from headwater.cli.ndjson_output import json_texts, ndjson, timestamp_texts
from headwater.cli.output import JSON_VERSION, counted, printable, remarks, say
from headwater.cli.plain_table import COLUMN_CELLS_MIN, GAP, Column, fit, table_lines, widths_of
from headwater.errors import HeadwaterError, InvalidRequest
from headwater.storage.disk import DiskFiles
from headwater.topics.json_values import bytes_to_json

if TYPE_CHECKING:
    import pyarrow as pa

Write = Callable[[memoryview | bytes], object]


class OutputFormat(StrEnum):
    TABLE = "table"
    NDJSON = "ndjson"
    CSV = "csv"
    PARQUET = "parquet"


_SUFFIXES = {
    ".ndjson": OutputFormat.NDJSON,
    ".jsonl": OutputFormat.NDJSON,
    ".json": OutputFormat.NDJSON,
    ".csv": OutputFormat.CSV,
    ".parquet": OutputFormat.PARQUET,
    ".pq": OutputFormat.PARQUET,
}


class Output(Protocol):
    """Takes batches of one schema, then is ended; `end` is not called when reading failed."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def end(self) -> None: ...


@contextmanager
def one_object(sink: Output) -> Iterator[None]:
    """While rows are given out: where they are one JSON object, a failure closes it with the error in it."""
    try:
        yield
    except HeadwaterError as error:
        if not isinstance(sink, JsonOutput):
            raise
        # Rows are out already: the object stays one object.
        sink.end(describe(error))
        tell(error)
        raise typer.Exit(code_of(error)) from error


def say_how_many(rows: int, chosen: OutputFormat, file: Path | None) -> None:
    """For people, beside the rows: how many there were, and where they went."""
    if chosen is OutputFormat.TABLE or file is not None:
        where = f" written to {file}" if file is not None else ""
        say(remarks(), f"{counted(rows, 'row')}{where}", "dim")


def format_of(given: OutputFormat | None, file: Path | None, console: Console) -> OutputFormat:
    """What was asked for; else what the file's name says; else a table on a terminal, and NDJSON into a pipe."""
    if given is not None:
        if given is OutputFormat.PARQUET and file is None:
            raise InvalidRequest("Parquet is written to a file: give --output FILE.parquet")
        if given is OutputFormat.TABLE and file is not None:
            raise InvalidRequest("a table is for a terminal: a file takes ndjson, csv or parquet")
        return given
    if file is None:
        return OutputFormat.TABLE if console.is_terminal else OutputFormat.NDJSON
    found = _SUFFIXES.get(file.suffix.lower())
    if found is None:
        raise InvalidRequest(f"what {file} is to hold cannot be told from its name: give --format ndjson|csv|parquet")
    return found


def open_output(format_: OutputFormat, file: Path | None, console: Console, schema: pa.Schema) -> Output:
    if format_ is OutputFormat.TABLE:
        return TableOutput(console)
    if file is not None and file.exists():
        raise InvalidRequest(f"{file} is there already: give another name, or remove it")
    if format_ is OutputFormat.PARQUET:
        assert file is not None
        return ParquetOutput(file, schema)
    return CsvOutput(file, schema) if format_ is OutputFormat.CSV else NdjsonOutput(file)


class _Bytes:
    """Where bytes go: a new file, or stdout.  A file gets its name when it is whole."""

    def __init__(self, file: Path | None) -> None:
        self._target = file
        self._file = None
        if file is not None:
            import pyarrow as pa

            self._file = pa.OSFile(str(_part(file)), "wb")

    def write(self, data: memoryview | bytes) -> None:
        if self._file is not None:
            self._file.write(data)
        else:
            # Whatever was printed before must come before.
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()

    def close(self) -> None:
        if self._file is not None and self._target is not None:
            self._file.close()
            _finish(self._target)


def _part(file: Path) -> Path:
    return file.with_name(file.name + ".part")


def _finish(file: Path) -> None:
    DiskFiles(file.parent).rename(_part(file).name, file.name)


class NdjsonOutput:
    def __init__(self, file: Path | None) -> None:
        self._bytes = _Bytes(file)

    def write(self, batch: pa.RecordBatch) -> None:
        self._bytes.write(ndjson(batch))

    def end(self) -> None:
        self._bytes.close()


class JsonOutput:
    """The one object of `--json`, with the rows in it."""

    def __init__(self, opening: dict[str, object]) -> None:
        self._bytes = _Bytes(None)
        text = json.dumps({"version": JSON_VERSION, **opening}, ensure_ascii=False)
        self._bytes.write(f'{text[:-1]}, "rows": [\n'.encode())
        self._separator = b""
        self._rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            # No line end stands inside of a row's text: it would be escaped there.
            rows = bytes(ndjson(batch))[:-1].replace(b"\n", b",\n")
            self._bytes.write(self._separator + rows)
            self._separator = b",\n"
            self._rows += batch.num_rows

    def end(self, error: dict[str, object] | None = None) -> None:
        """Close the object, with what ended it too early, if anything did."""
        self._bytes.write(f'\n], "count": {self._rows}, "error": {json.dumps(error)}}}\n'.encode())


class CsvOutput:
    """CSV as `headwater append` reads it: null is an empty cell, nested values are JSON, times are ISO 8601."""

    def __init__(self, file: Path | None, schema: pa.Schema) -> None:
        self._bytes = _Bytes(file)
        self._schema = schema
        self._headed = False

    def write(self, batch: pa.RecordBatch) -> None:
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        columns = [_csv_column(batch.column(number)) for number in range(batch.num_columns)]
        sink = pa.BufferOutputStream()
        arrow_csv.write_csv(
            pa.RecordBatch.from_arrays(columns, names=batch.schema.names),
            sink,
            arrow_csv.WriteOptions(include_header=not self._headed, quoting_style="needed"),
        )
        self._headed = True
        self._bytes.write(memoryview(sink.getvalue()))

    def end(self) -> None:
        import pyarrow as pa

        if not self._headed:
            self.write(pa.RecordBatch.from_pylist([], self._schema))
        self._bytes.close()


def _csv_column(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if types.is_timestamp(kind):
        return timestamp_texts(column)
    if types.is_binary(kind):
        try:
            return column.cast(pa.string())
        except pa.ArrowInvalid:
            return _bytes_cells(column)
    return json_texts(column) if types.is_nested(kind) else column


def _bytes_cells(column: pa.Array) -> pa.Array:
    """Text where the bytes are text, else the JSON that stands for them."""
    import pyarrow as pa

    found = [None if value is None else bytes_to_json(value) for value in column.to_pylist()]
    return pa.array(
        [json.dumps(each, separators=(",", ":")) if isinstance(each, dict) else each for each in found], pa.string()
    )


class ParquetOutput:
    """A file gets its name when it is whole."""

    def __init__(self, file: Path, schema: pa.Schema) -> None:
        from pyarrow import parquet

        self._file = file
        self._writer = parquet.ParquetWriter(_part(file), schema, compression="zstd")

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def end(self) -> None:
        self._writer.close()
        _finish(self._file)


class TableOutput:
    """A table whose widths are those of its first batch: later rows are cut to them."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._columns: list[Column] = []
        self._widths: list[int] = []

    def write(self, batch: pa.RecordBatch) -> None:
        cells = [_cells(batch.column(number)) for number in range(batch.num_columns)]
        rows = list(zip(*cells, strict=True))
        first = not self._columns
        if first:
            self._lay_out(batch.schema, rows)
        shown = len(self._columns)
        lines = table_lines(self._columns, (row[:shown] for row in rows), self._widths, with_heads=first)
        for line in lines:
            self._console.print(line, soft_wrap=True)

    def end(self) -> None:
        """Nothing is left to print."""

    def _lay_out(self, schema: pa.Schema, rows: list[tuple[str, ...]]) -> None:
        from pyarrow import types

        columns = [
            Column(
                printable(field.name),
                right=types.is_integer(field.type) or types.is_floating(field.type) or types.is_decimal(field.type),
                style="dim" if field.name.startswith("_hw_") else "",
            )
            for field in schema
        ]
        widths = widths_of(columns, rows)
        shown = len(columns)
        if self._console.is_terminal:
            shown = _columns_that_fit(columns, widths, self._console.width)
            widths = fit(widths[:shown], columns[:shown], self._console.width)
        if shown < len(columns):
            left_out = ", ".join(column.head for column in columns[shown:])
            say(remarks(), f"left out for want of room: {left_out}; choose by --columns", "dim")
        self._columns, self._widths = columns[:shown], widths[:shown]


def _columns_that_fit(columns: list[Column], widths: list[int], line_cells: int) -> int:
    used = -len(GAP)
    for number, (column, width) in enumerate(zip(columns, widths, strict=True)):
        used += len(GAP) + min(width, max(COLUMN_CELLS_MIN, len(column.head)))
        if used > line_cells:
            return max(number, 1)
    return len(columns)


def _cells(column: pa.Array) -> list[str]:
    """What a person reads: text without quotes, a dash for null."""
    from pyarrow import types

    kind = column.type
    if types.is_string(kind):
        return ["-" if value is None else printable(value) for value in column.to_pylist()]
    texts = json_texts(column).to_pylist()
    if types.is_timestamp(kind):
        # Six zeroes tell a person nothing, and take the room of another column.
        texts = [text and text.replace(".000000", "") for text in texts]
    return ["-" if text is None else printable(text.strip('"')) for text in texts]
