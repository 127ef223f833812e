"""Rows as lines of JSON: values that JSON, or Python, has no word for."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest
from headwater.server.http_reads import lines_of_batch


def test_rows_are_lines() -> None:
    batch = pa.RecordBatch.from_pydict({"id": [1, 2], "note": ["größe", None]})

    assert [json.loads(line) for line in lines_of_batch(batch).splitlines()] == [
        {"id": 1, "note": "größe"},
        {"id": 2, "note": None},
    ]


def test_no_rows_are_no_lines() -> None:
    assert lines_of_batch(pa.RecordBatch.from_pydict({"id": pa.array([], pa.int64())})) == b""


@pytest.mark.parametrize(
    "column",
    [
        pa.array([(1 << 62)], pa.timestamp("us", "UTC")),
        pa.array([-(1 << 62)], pa.timestamp("us")),
        pa.array([(1 << 31) - 1], pa.date32()),
        pa.array([[1 << 62]], pa.list_(pa.timestamp("us", "UTC"))),
    ],
    ids=str,
)
def test_a_moment_that_no_datetime_can_say_is_refused_by_its_column(column: pa.Array) -> None:
    with pytest.raises(InvalidRequest, match="column=at"):
        lines_of_batch(pa.RecordBatch.from_arrays([column], names=["at"]))
