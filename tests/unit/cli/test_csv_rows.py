"""Rows as CSV, in and out again: names, quotes, empty cells, and rows that do not fit."""

from __future__ import annotations

import io
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cli import csv_input
from headwater.cli.input_source import Source
from headwater.cli.row_chunk import Chunk
from headwater.cli.row_output import CsvOutput
from headwater.cli.schema_text import parse_schema
from headwater.errors import InvalidRequest

SCHEMA = parse_schema("id:int64,amount:double?,note:string?,at:timestamp?,ok:bool?,price:decimal(10,2)?")
MOMENT = datetime(2026, 11, 15, 2, 55, 13, 889_000, tzinfo=UTC)


def read(text: str | bytes, schema: pa.Schema = SCHEMA, *, header: bool = True) -> list[Chunk]:
    data = text.encode() if isinstance(text, str) else text
    return list(csv_input.read_chunks(Source(io.BytesIO(data)), schema, header=header))


def rows_of(chunks: list[Chunk], schema: pa.Schema = SCHEMA) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for chunk in chunks:
        if isinstance(chunk.rows, list):
            rows += pa.RecordBatch.from_pylist(chunk.rows, schema).to_pylist()
        else:
            rows += [{name: row.get(name) for name in schema.names} for row in chunk.rows.to_pylist()]
    return rows


def test_the_first_line_names_the_columns_in_any_order() -> None:
    (chunk,) = read("amount,id\n9.5,1\n,2\n")

    assert not isinstance(chunk.rows, list)
    assert chunk.rows.to_pylist() == [{"amount": 9.5, "id": 1}, {"amount": None, "id": 2}]


def test_without_such_a_line_columns_are_the_topics_in_order() -> None:
    rows = rows_of(read("1,9.5,x,,,\n", header=False))

    assert rows == [{"id": 1, "amount": 9.5, "note": "x", "at": None, "ok": None, "price": None}]


@pytest.mark.parametrize("first", ["id,colour", "id,id", ""])
def test_a_first_line_that_names_other_columns_is_refused(first: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        read(f"{first}\n1,2\n")

    assert "--no-header" in str(refused.value)
    assert "the topic has id, amount" in str(refused.value)


def test_every_kind_is_read_with_the_topics_types() -> None:
    (chunk,) = read("id,at,ok,price\n1,2026-11-15T02:55:13.889Z,true,9.50\n")

    assert not isinstance(chunk.rows, list)
    assert chunk.rows.to_pylist() == [{"id": 1, "at": MOMENT, "ok": True, "price": Decimal("9.50")}]


def test_both_ways_of_reading_give_equal_rows() -> None:
    lines = '"1",9,"a ""b"", c\nd",2026-11-15T02:55:13.889Z,true,9.5\n2,,"",,0,\n'

    fast = read(lines, header=False)
    slow = read(lines + "x,,,,,\n", header=False)

    assert not isinstance(fast[0].rows, list)
    assert isinstance(slow[0].rows, list)
    assert rows_of(fast) == pa.RecordBatch.from_pylist(slow[0].rows[:-1], SCHEMA).to_pylist()
    assert rows_of(fast)[0]["note"] == 'a "b", c\nd'
    assert (rows_of(fast)[1]["note"], rows_of(fast)[1]["amount"]) == ("", None)


@pytest.mark.parametrize("misfit", ["", "x,\n"], ids=["fast", "slow"])
def test_an_empty_cell_of_a_text_that_may_not_be_null_is_the_empty_text(misfit: str) -> None:
    (chunk,) = read("id,note\n1,\n" + misfit, parse_schema("id:int64,note:string"))

    rows = chunk.rows if isinstance(chunk.rows, list) else chunk.rows.to_pylist()
    assert rows[0] == {"id": 1, "note": ""}


def test_a_row_with_another_number_of_cells_is_handed_on_as_text() -> None:
    (chunk,) = read('id,note\n1,"two\nlines"\n2,b,c\n\n3\n')

    assert chunk.rows == [{"id": 1, "note": "two\nlines"}, "2,b,c", "3"]
    assert [chunk.place_of(number) for number in range(3)] == ["line 2", "line 4", "line 6"]


def test_a_cell_that_does_not_fit_is_left_for_the_door_to_refuse() -> None:
    (chunk,) = read("id,amount,ok\n1_000,much,maybe\n")

    assert chunk.rows == [{"id": "1_000", "amount": "much", "ok": "maybe"}]
    assert chunk.place_of(0) == "line 2"


def test_rows_of_the_fast_way_know_their_lines() -> None:
    (chunk,) = read('id,note\n1,"two\nlines"\n\n2,b\n')

    assert not isinstance(chunk.rows, list)
    assert [chunk.place_of(number) for number in range(2)] == ["line 2", "line 5"]


def test_nested_cells_are_json() -> None:
    schema = parse_schema("id:int64,tags:list<date>?,h:map<string,binary>?")

    (chunk,) = read('id,tags,h\n1,"[""2026-11-15""]","{""a"":""b""}"\n2,[,\n', schema)

    assert chunk.rows == [
        {"id": 1, "tags": [date(2026, 11, 15)], "h": [("a", b"b")]},
        {"id": 2, "tags": "[", "h": None},
    ]


def test_only_a_line_of_names_is_no_row() -> None:
    assert [chunk.count for chunk in read("id,note\n")] == [0]
    assert [chunk.count for chunk in read("id,note")] == [0]


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b"", 0),
        (b"a", 0),
        (b"a\n", 2),
        (b"a\nb", 2),
        (b'"a\nb', 0),
        (b'x\n"a\nb\n', 2),
        (b'"a\n"\nb', 5),
        (b'""\n"', 3),
    ],
)
def test_a_row_ends_at_a_line_end_outside_of_quotes(text: bytes, end: int) -> None:
    assert csv_input.last_row_end(text) == end


CELLS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "note": st.none() | st.text(st.characters(codec="utf-8")),
        "raw": st.none() | st.binary(),
        "at": st.none() | st.integers(-(2**52), 2**52).map(lambda us: MOMENT + timedelta(microseconds=us)),
        "tags": st.none() | st.lists(st.integers(0, 9), max_size=3),
    }
)


@pytest.mark.parametrize("columns", ["id", "id note", "id note raw at", "id note raw at tags"])
@settings(max_examples=25)
@given(rows=st.lists(CELLS, min_size=1, max_size=5))
def test_what_is_written_as_csv_is_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory, columns: str, rows: list[dict[str, object]]
) -> None:
    whole = parse_schema("id:int64,note:string?,raw:binary?,at:timestamp?,tags:list<int64>?")
    schema = pa.schema([whole.field(name) for name in columns.split()])
    batch = pa.RecordBatch.from_pylist(rows, schema)
    file = tmp_path_factory.mktemp("csv") / "rows.csv"

    output = CsvOutput(file, schema)
    output.write(batch)
    output.end()

    assert rows_of(read(file.read_bytes(), schema), schema) == batch.to_pylist()


def test_a_file_gets_its_name_when_it_is_whole(tmp_path: Path) -> None:
    schema = parse_schema("id:int64")
    output = CsvOutput(tmp_path / "rows.csv", schema)
    output.write(pa.RecordBatch.from_pylist([{"id": 1}], schema))
    during = [path.name for path in tmp_path.iterdir()]

    output.end()

    assert during == ["rows.csv.part"]
    assert (tmp_path / "rows.csv").read_text() == '"id"\n1\n'
