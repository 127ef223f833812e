"""A topic with a column of every type, and rows with the odd values of each."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

NOTES = pa.list_(pa.struct([pa.field("a", pa.int32()), pa.field("s", pa.string())]))
EVERY_TYPE = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("bool", pa.bool_()),
        pa.field("int8", pa.int8()),
        pa.field("int16", pa.int16()),
        pa.field("int32", pa.int32()),
        pa.field("uint8", pa.uint8()),
        pa.field("uint16", pa.uint16()),
        pa.field("uint32", pa.uint32()),
        pa.field("half", pa.float16()),
        pa.field("float", pa.float32()),
        pa.field("double", pa.float64()),
        pa.field("dec", pa.decimal128(5, 2)),
        pa.field("big", pa.decimal128(38, 0)),
        pa.field("text", pa.string()),
        pa.field("bin", pa.binary()),
        pa.field("fixed", pa.binary(4)),
        pa.field("day", pa.date32()),
        pa.field("time", pa.timestamp("us")),
        pa.field("moment", pa.timestamp("us", "UTC")),
        pa.field("notes", NOTES),
        pa.field("lists", pa.list_(pa.list_(pa.int32()))),
        pa.field("map", pa.map_(pa.string(), NOTES)),
        pa.field("deep", pa.struct([pa.field("d", pa.float64()), pa.field("notes", NOTES)])),
        pa.field("pair", pa.struct([pa.field("d", pa.float64())])),
        pa.field("we.ird \"n'ame", pa.string()),
    ]
)

_ODD: list[dict[str, Any]] = [
    {},
    {
        "bool": True, "int8": -128, "int16": -(2**15), "int32": -(2**31), "uint8": 255, "uint16": 65_535,
        "uint32": 2**32 - 1, "half": 1.5, "float": float("nan"), "double": float("nan"), "dec": Decimal("-999.99"),
        "big": Decimal(10**38 - 1), "text": "é\0'\"", "bin": b"\xff\0", "fixed": b"abcd", "day": date(1, 1, 1),
        "time": datetime.fromisoformat("0001-01-01"), "moment": datetime(9999, 12, 31, tzinfo=UTC),
        "notes": [{"a": 1, "s": None}, None], "lists": [[1], None, []], "map": [("k", None), ("j", [None])],
        "deep": {"d": float("nan"), "notes": None}, "pair": {"d": float("nan")}, "we.ird \"n'ame": "x" * 40,
    },
    {
        "bool": False, "int8": 7, "half": float("nan"), "float": float("inf"), "double": -0.0, "dec": Decimal("0.00"),
        "big": Decimal(0), "text": "", "bin": b"", "fixed": b"\0\0\0\0", "day": date(9999, 12, 31),
        "time": datetime.fromisoformat("2026-11-15T01:02:03.000004"), "moment": datetime(1, 1, 1, tzinfo=UTC),
        "notes": [], "lists": [], "map": [], "deep": {"d": 9.0, "notes": []}, "we.ird \"n'ame": "x" * 39 + "y",
    },
    {
        "int8": 0, "int16": 9, "int32": 9, "uint32": 9, "float": 9.0, "double": 9.0, "dec": Decimal("9.00"),
        "big": Decimal(9), "text": "z", "bin": b"z", "day": date(2026, 11, 15), "deep": {"d": None, "notes": None},
    },
]  # fmt: skip


def odd_rows(first_id: int) -> pa.Table:
    """A row of nulls, and rows with what a type has at its ends."""
    rows = [{"id": first_id + place, **row} for place, row in enumerate(_ODD)]
    return pa.Table.from_pylist(rows, schema=EVERY_TYPE)


FILTERS = [
    "bool", "not bool", "int8 > 5", "int16 < 0", "int32 = 9", "uint8 >= 200", "uint32 <> 9",
    "half > 1", "half is null", "float > 5", "float >= 9", "float < 5", "not float < 5", "float = 'nan'::float",
    "double = 0", "double > 8.5", "double <= 'nan'::double", "double in (9, 10)", "double between 1 and 1e300",
    "isnan(double)", "float is not null", "deep.d > 5", "pair.d > 5", "pair.d = 'nan'::double", "deep.d is null",
    "deep is null",
    "dec < 0", "dec = 9", "big > 9", "text > 'a'", "text = ''", "text like 'z%'", "bin = '\\x7A'::blob",
    "bin = ''::blob",
    "fixed is not null", "day > '2000-01-01'", "time < '2000-01-01'", "moment > '2000-01-01 00:00:00+00'",
    "notes is null", "len(notes) = 0", "map is null", "id % 2 = 0 and float > 1", "text is null or double > 1",
    "\"we.ird \"\"n'ame\" = 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxy'",
]  # fmt: skip
"""Of every kind that DuckDB may hand on to whoever reads for it."""
