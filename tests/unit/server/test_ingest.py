"""Rows out of bodies: JSON by the table of values, lines by their numbers, and nothing that fills the memory."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest, TooLarge
from headwater.server.http_errors import UnsupportedMediaType
from headwater.server.ingest import (
    LEVELS_MAX,
    BodyFormat,
    body_format,
    check_levels,
    document_of,
    lines_of,
    rows_of,
)
from headwater.server.settings import ServerLimits
from headwater.topics.rows import to_batch

LIMITS = ServerLimits()


def test_every_kind_of_column_is_read_from_json_as_the_command_line_reads_it() -> None:
    schema = pa.schema(
        [
            ("flag", pa.bool_()),
            ("number", pa.int64()),
            ("share", pa.float64()),
            ("price", pa.decimal128(20, 4)),
            ("text", pa.string()),
            ("data", pa.binary()),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("tags", pa.list_(pa.string())),
            ("place", pa.struct([("x", pa.float64())])),
            ("extra", pa.map_(pa.string(), pa.int64())),
        ]
    )
    body = json.dumps(
        {
            "flag": True,
            "number": 2**53 + 1,
            "share": "NaN",
            "price": 0.1,
            "text": "é",
            "data": {"$base64": "/w=="},
            "at": "2026-11-15T02:55:13.889Z",
            "day": "2026-11-15",
            "tags": ["a"],
            "place": {"x": 1.5},
            "extra": {"k": 1},
        }
    ).encode()

    row = rows_of(body, BodyFormat.JSON, schema, LIMITS)

    (found,) = to_batch(row, schema).batch.to_pylist()
    assert found["share"] != found["share"]
    assert {**found, "share": None} == {
        "flag": True,
        "number": 2**53 + 1,
        "share": None,
        "price": Decimal("0.1000"),
        "text": "é",
        "data": b"\xff",
        "at": datetime.datetime(2026, 11, 15, 2, 55, 13, 889_000, datetime.UTC),
        "day": datetime.date(2026, 11, 15),
        "tags": ["a"],
        "place": {"x": 1.5},
        "extra": [("k", 1)],
    }


def test_a_line_that_is_no_json_keeps_its_number() -> None:
    assert lines_of(b'{"a": 1}\n\n{"a": \n  \n[2]\r\nnull\n') == [{"a": 1}, '{"a": ', [2], None]


@pytest.mark.parametrize(
    ("said", "body", "found"),
    [
        ("application/json", b"7", BodyFormat.JSON),
        ("Application/JSON; charset=utf-8", b"7", BodyFormat.JSON),
        ("application/x-ndjson", b"", BodyFormat.NDJSON),
        ("application/jsonl", b"", BodyFormat.NDJSON),
        ("application/vnd.apache.arrow.stream", b"", BodyFormat.ARROW),
        ("", b" \n{", BodyFormat.JSON),
        ("application/x-www-form-urlencoded", b"[", BodyFormat.JSON),
        ("application/x-www-form-urlencoded", b"a=1", None),
        ("", b"", None),
        ("text/csv", b"{", None),
    ],
)
def test_what_a_body_is_follows_from_its_type_or_its_first_byte(
    said: str, body: bytes, found: BodyFormat | None
) -> None:
    if found is None:
        with pytest.raises(UnsupportedMediaType):
            body_format(said, body)
    else:
        assert body_format(said, body) is found


def test_levels_are_counted_up_to_the_limit() -> None:
    def nested(levels: int) -> object:
        value: object = 1
        for level in range(levels):
            value = [value] if level % 2 else {"a": value}
        return value

    check_levels(1)
    check_levels(nested(LEVELS_MAX))
    with pytest.raises(InvalidRequest, match="too deep"):
        check_levels(nested(LEVELS_MAX + 1))
    with pytest.raises(InvalidRequest, match="too deep"):
        document_of(b"[" * 100_000)


def test_so_many_rows_take_several_requests() -> None:
    limits = ServerLimits(rows_max=2)
    schema = pa.schema([("a", pa.int64())])

    assert len(rows_of(b"{}\n{}", BodyFormat.NDJSON, schema, limits)) == 2  # type: ignore[arg-type]
    with pytest.raises(TooLarge):
        rows_of(b"[{},{},{}]", BodyFormat.JSON, schema, limits)


def test_lines_that_would_fill_the_memory_are_refused_before_they_are_read() -> None:
    with pytest.raises(TooLarge):
        lines_of(b"[" + b"0," * 9_000_000 + b"0]\n")
