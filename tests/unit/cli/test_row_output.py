"""How rows are given out: a table for people, files that are named when they are whole, one object for programs."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from rich.console import Console

from headwater.cli.row_output import (
    CsvOutput,
    JsonOutput,
    NdjsonOutput,
    OutputFormat,
    ParquetOutput,
    TableOutput,
    format_of,
    open_output,
)
from headwater.cli.schema_text import parse_schema
from headwater.errors import InvalidRequest

SCHEMA = parse_schema("id:int64,note:string?,raw:binary?,tags:list<int64>?")
ROWS = [
    {"id": 1, "note": "first", "raw": b"text", "tags": [1, 2]},
    {"id": 20, "note": "with a\nline", "raw": b"\xff", "tags": None},
]


def batch_of(rows: list[dict[str, object]], schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema)


def terminal(width: int = 80) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    return Console(file=text, width=width, force_terminal=True, color_system=None, legacy_windows=False), text


def test_a_table_shows_each_row_on_one_line() -> None:
    console, text = terminal()

    TableOutput(console).write(batch_of(ROWS))

    assert text.getvalue().splitlines() == [
        "id  note          raw                 tags",
        " 1  first         text                [1,2]",
        '20  with a\\nline  {"$base64":"/w=="}  -',
    ]


def test_a_table_leaves_out_the_places_of_a_whole_second() -> None:
    console, text = terminal()
    rows: list[dict[str, object]] = [{"at": 0}, {"at": 1}, {"at": None}]

    TableOutput(console).write(batch_of(rows, pa.schema([("at", pa.timestamp("us", "UTC"))])))

    assert text.getvalue().splitlines()[1:] == ["1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000001Z", "-"]


def test_later_batches_keep_the_widths_and_have_no_heads() -> None:
    console, text = terminal()
    schema = parse_schema("id:int64,note:string?")
    table = TableOutput(console)

    table.write(batch_of([{"id": 1, "note": "abc"}], schema))
    table.write(batch_of([{"id": 2, "note": "abcdefgh"}], schema))

    assert text.getvalue().splitlines() == ["id  note", " 1  abc", " 2  abc…"]


def test_columns_that_do_not_fit_are_left_out_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    console, text = terminal(40)
    names = [f"column_{number}" for number in range(9)]
    schema = pa.schema([(name, pa.string()) for name in names])

    TableOutput(console).write(batch_of([dict.fromkeys(names, "a long text in every column")], schema))

    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 40
    assert lines[0].split() == names[:4]
    assert "column_4, column_5" in capsys.readouterr().err


def test_a_control_character_cannot_move_the_cursor() -> None:
    console, text = terminal()

    TableOutput(console).write(batch_of([{"id": 1, "note": "\x1b[2J"}]))

    assert "\x1b" not in text.getvalue()


def test_rows_are_one_versioned_object(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    output = JsonOutput({"command": "read", "topic": "orders"})
    output.write(batch_of(ROWS))
    output.write(batch_of([]))
    output.write(batch_of(ROWS))
    output.end()

    told = json.loads(capfdbinary.readouterr().out)
    assert (told["version"], told["command"], told["count"]) == (1, "read", 4)
    assert [row["note"] for row in told["rows"]] == ["first", "with a\nline"] * 2


def test_no_rows_are_an_object_too(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    JsonOutput({"command": "read"}).end()

    assert json.loads(capfdbinary.readouterr().out)["rows"] == []


def test_parquet_has_the_schema_though_it_has_no_rows(tmp_path: Path) -> None:
    output = ParquetOutput(tmp_path / "rows.parquet", SCHEMA)
    before = (tmp_path / "rows.parquet").exists()
    output.end()

    assert not before
    assert parquet.read_table(tmp_path / "rows.parquet").schema == SCHEMA


def test_csv_has_its_names_though_it_has_no_rows(tmp_path: Path) -> None:
    CsvOutput(tmp_path / "rows.csv", SCHEMA).end()

    assert (tmp_path / "rows.csv").read_text() == '"id","note","raw","tags"\n'


def test_csv_names_its_columns_once(tmp_path: Path) -> None:
    output = CsvOutput(tmp_path / "rows.csv", SCHEMA)
    output.write(batch_of(ROWS[:1]))
    output.write(batch_of(ROWS[1:]))
    output.end()

    assert (tmp_path / "rows.csv").read_text() == (
        '"id","note","raw","tags"\n1,"first","text","[1,2]"\n20,"with a\nline","{""$base64"":""/w==""}",\n'
    )


def test_a_file_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "rows.ndjson").write_text("mine")

    with pytest.raises(InvalidRequest):
        open_output(OutputFormat.NDJSON, tmp_path / "rows.ndjson", terminal()[0], SCHEMA)

    assert (tmp_path / "rows.ndjson").read_text() == "mine"


def test_each_format_has_its_output(tmp_path: Path) -> None:
    console = terminal()[0]

    kinds = [
        type(open_output(OutputFormat.TABLE, None, console, SCHEMA)),
        type(open_output(OutputFormat.NDJSON, tmp_path / "a", console, SCHEMA)),
        type(open_output(OutputFormat.CSV, tmp_path / "b", console, SCHEMA)),
        type(open_output(OutputFormat.PARQUET, tmp_path / "c", console, SCHEMA)),
    ]

    assert kinds == [TableOutput, NdjsonOutput, CsvOutput, ParquetOutput]


def test_a_format_is_what_was_asked_or_what_the_place_says() -> None:
    on_a_terminal, in_a_pipe = terminal()[0], Console(file=io.StringIO())

    assert format_of(None, None, on_a_terminal) is OutputFormat.TABLE
    assert format_of(None, None, in_a_pipe) is OutputFormat.NDJSON
    assert format_of(OutputFormat.CSV, None, on_a_terminal) is OutputFormat.CSV
    assert format_of(None, Path("a.parquet"), on_a_terminal) is OutputFormat.PARQUET


@pytest.mark.parametrize(
    ("given", "file"), [(OutputFormat.PARQUET, None), (OutputFormat.TABLE, Path("a.csv")), (None, Path("a.txt"))]
)
def test_a_format_that_cannot_go_there_is_refused(given: OutputFormat | None, file: Path | None) -> None:
    with pytest.raises(InvalidRequest):
        format_of(given, file, terminal()[0])
