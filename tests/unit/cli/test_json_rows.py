"""Rows as NDJSON, out and in again: every kind of value, both ways of reading, and lines that are no rows."""

from __future__ import annotations

import io
import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.cli import ndjson_input
from headwater.cli.input_source import Block, Source
from headwater.cli.ndjson_output import ndjson
from headwater.cli.row_chunk import Chunk
from headwater.cli.schema_text import parse_schema
from headwater.topics.json_values import from_json, to_json

MOMENT = datetime(2026, 11, 15, 2, 55, 13, 889_000, tzinfo=UTC)
EVERY_KIND = parse_schema(
    "a:int64,b:double?,c:string?,d:timestamp?,e:timestamp[us]?,f:decimal(10,2)?,g:binary?,h:map<string,binary>?,"
    "i:list<date>?,j:struct<x:int32?,y:timestamp?>?,k:date?,l:bool?,m:float32?,n:map<int64,string>?"
)
FULL = {
    "a": 1,
    "b": 9.0,
    "c": 'a "quote", a \\, a\ttab, a\nline, é, \u2028',
    "d": MOMENT,
    "e": MOMENT.replace(tzinfo=None),
    "f": Decimal("9.50"),
    "g": b"\xff\x00",
    "h": [("trace", b"7"), ("raw", b"\xfe")],
    "i": [date(2026, 11, 15), None],
    "j": {"x": 1, "y": MOMENT},
    "k": date(2026, 11, 15),
    "l": True,
    "m": 0.5,
    "n": [(7, "seven")],
}


def batch_of(rows: list[dict[str, object]], schema: pa.Schema = EVERY_KIND) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema)


def read(text: bytes, schema: pa.Schema) -> list[Chunk]:
    return list(ndjson_input.read_chunks(Source(io.BytesIO(text)), schema))


def rows_of(chunk: Chunk, schema: pa.Schema) -> list[dict[str, object]]:
    """The rows of a chunk, whichever way it was read, with every column of the schema."""
    rows = pa.RecordBatch.from_pylist(chunk.rows, schema) if isinstance(chunk.rows, list) else chunk.rows
    return [{name: row.get(name) for name in schema.names} for row in rows.to_pylist()]


def test_every_kind_of_value_is_written_and_read_back_equal() -> None:
    batch = batch_of([FULL, {"a": 2}])

    (chunk,) = read(bytes(ndjson(batch)), EVERY_KIND)

    assert rows_of(chunk, EVERY_KIND) == batch.to_pylist()


def test_values_look_as_the_table_says() -> None:
    told = json.loads(bytes(ndjson(batch_of([FULL]))))

    assert told["d"] == "2026-11-15T02:55:13.889000Z"
    assert told["e"] == "2026-11-15T02:55:13.889000"
    assert told["f"] == "9.50"
    assert told["g"] == {"$base64": "/wA="}
    assert told["h"] == {"trace": "7", "raw": {"$base64": "/g=="}}
    assert told["n"] == [[7, "seven"]]
    assert '"b":9.0,' in bytes(ndjson(batch_of([FULL]))).decode()


def test_numbers_that_json_has_no_word_for_are_strings() -> None:
    schema = parse_schema("x:double,y:float32")
    rows: list[dict[str, object]] = [{"x": math.inf, "y": -math.inf}, {"x": math.nan, "y": 1.0}]

    text = bytes(ndjson(batch_of(rows, schema)))
    (chunk,) = read(text, schema)

    assert text.decode().splitlines() == ['{"x":"Infinity","y":"-Infinity"}', '{"x":"NaN","y":1.0}']
    back = rows_of(chunk, schema)
    assert back[0] == rows[0]
    assert math.isnan(back[1]["x"])  # type: ignore[arg-type]


@settings(max_examples=50)
@given(st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=5))
def test_any_text_is_a_line_that_json_reads_back(texts: list[str]) -> None:
    batch = pa.record_batch({"text": pa.array(texts)})

    lines = bytes(ndjson(batch)).decode().split("\n")[:-1]

    assert [json.loads(line)["text"] for line in lines] == texts


@settings(max_examples=50)
@given(st.lists(st.binary(), min_size=1, max_size=5))
def test_any_bytes_come_back(values: list[bytes]) -> None:
    schema = parse_schema("value:binary")
    batch = pa.record_batch({"value": pa.array(values)}, schema=schema)

    (chunk,) = read(bytes(ndjson(batch)), schema)

    assert [row["value"] for row in rows_of(chunk, schema)] == values


def test_both_ways_of_reading_give_equal_rows() -> None:
    schema = parse_schema("a:int64,b:double?,c:string?,d:timestamp?,f:decimal(10,2)?,g:binary?,i:list<int64>?,k:date?")
    line = (
        '{"a":1,"b":2,"c":"x","d":"2026-11-15T04:55:13.889+02:00","f":9.5,"g":"é","i":[1,null],"k":"2026-11-15"}\n'
    ).encode()

    (fast,) = read(line, schema)
    reader = ndjson_input._Reader(schema)
    slow = Chunk([reader._row(line)], 0, None)

    assert not isinstance(fast.rows, list)
    assert rows_of(fast, schema) == rows_of(slow, schema)
    assert rows_of(slow, schema)[0]["d"] == MOMENT


@pytest.mark.parametrize("misfit", [b"", b'{"d":7}\n'], ids=["fast", "slow"])
def test_a_time_without_a_zone_is_utc_and_one_with_a_zone_is_brought_there(misfit: bytes) -> None:
    schema = parse_schema("d:timestamp?,e:timestamp[us]?")
    text = b'{"d":"2026-11-15T02:55:13.889","e":"2026-11-15T04:55:13.889+02:00"}\n' + misfit

    (chunk,) = read(text, schema)

    row = chunk.rows[0] if isinstance(chunk.rows, list) else chunk.rows.to_pylist()[0]
    assert isinstance(chunk.rows, list) == bool(misfit)
    assert row == {"d": MOMENT, "e": MOMENT.replace(tzinfo=None)}


@pytest.mark.parametrize(
    "line",
    [b'{"a":1', b"[1]", b"7", b'{"a":1} {"a":2}', b'{"a":1,"a":2}', b"\xff", b"[" * 100_000],
    ids=["cut", "array", "number", "two", "name twice", "no text", "deep"],
)
def test_a_line_that_is_no_row_is_handed_on_as_text(line: bytes) -> None:
    schema = parse_schema("a:int64")

    (chunk,) = read(b'{"a":1}\n' + line + b"\n", schema)

    assert chunk.rows == [{"a": 1}, line.decode(errors="replace")]
    assert chunk.place_of(1) == "line 2"


def test_a_value_that_does_not_fit_is_left_for_the_door_to_refuse() -> None:
    schema = parse_schema("a:int64,d:timestamp?,f:decimal(10,2)?,g:binary?,h:map<string,binary>?,k:date?")
    line = b'{"a":"x","d":"noon","f":"nine","g":{"$base64":"!"},"h":7,"k":"today","z":1.5}\n'

    (chunk,) = read(line, schema)

    assert chunk.rows == [
        {"a": "x", "d": "noon", "f": "nine", "g": {"$base64": "!"}, "h": 7, "k": "today", "z": 1.5},
    ]


@pytest.mark.parametrize("misfit", [b"", b'{"a":"x"}\n'], ids=["fast", "slow"])
def test_rows_know_their_lines_though_some_lines_are_empty(misfit: bytes) -> None:
    text = b'\n{"a":1}\r\n\r\n  \n{"a":2}\n' + misfit

    (chunk,) = read(text, parse_schema("a:int64"))

    assert isinstance(chunk.rows, list) == bool(misfit)
    assert [chunk.place_of(number) for number in range(2)] == ["line 2", "line 5"]


def test_a_last_line_without_an_end_is_a_row() -> None:
    schema = parse_schema("a:int64")

    first, last = read(b'\xef\xbb\xbf{"a":1}\n{"a":2}', schema)

    assert (rows_of(first, schema), rows_of(last, schema)) == ([{"a": 1}], [{"a": 2}])
    assert (last.first_row, last.place_of(0)) == (1, "line 2")


def test_an_empty_input_has_no_rows() -> None:
    assert read(b"", parse_schema("a:int64")) == []
    assert [chunk.count for chunk in read(b"\n \n", parse_schema("a:int64"))] == [0]


def test_a_slice_of_a_chunk_keeps_its_lines() -> None:
    (chunk,) = read(b'{"a":1}\n\n{"a":2}\n{"a":3}\n', parse_schema("a:int64"))

    part = chunk.slice(1, 2)

    assert (part.count, part.first_row, part.place_of(1)) == (2, 1, "line 4")


def test_a_chunk_without_lines_counts_rows() -> None:
    assert Chunk([1, 2], 10, None).place_of(1) == "row 12"


def test_a_map_with_a_key_that_comes_twice_is_written_as_pairs() -> None:
    type_ = pa.map_(pa.string(), pa.int64())

    told = to_json([("a", 1), ("a", 2)], type_)

    assert told == [["a", 1], ["a", 2]]
    assert from_json(told, type_) == [("a", 1), ("a", 2)]


def test_lines_of_a_later_block_are_counted_from_the_beginning() -> None:
    chunk = ndjson_input._Reader(parse_schema("a:int64")).chunk(Block(b'{"a":1}\n', 41), 40)

    assert chunk.place_of(0) == "line 41"
