"""Rows that do not fit, kept for those who have to find out why.

A rejected row is a row of `<topic>.rejected`: the row as it was sent, as JSON; the reason; and its number in the
request.  JSON because the row fits no schema: that is what is wrong with it.

What JSON has no word for is written as text: bytes in base64, times and dates in ISO 8601, decimals and uuids by
their characters, NaN and the infinities as "nan", "inf", "-inf"; anything else by its repr.

PROMISE  Whatever was sent can be kept: no value makes this fail.
NOT HERE Which rows fit: values.py and rows.py.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import json
import math
import uuid
from collections.abc import Sequence

import pyarrow as pa

from headwater.errors import RefusedRow
from headwater.topics.values import Unreadable, mapping_of, plain

REJECTED_SCHEMA = pa.schema(
    [
        pa.field("row", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
    ]
)


def rejected_batch(rows: Sequence[object], refused: Sequence[RefusedRow]) -> pa.RecordBatch:
    """The refused rows, each with the row that it was."""
    return pa.RecordBatch.from_arrays(
        [
            pa.array([row_as_json(row) for row in rows], pa.string()),
            # A reason may quote what was sent, and that need not be valid text.
            pa.array([each.reason.encode("utf-8", "backslashreplace").decode() for each in refused], pa.string()),
            pa.array([each.number for each in refused], pa.int64()),
        ],
        schema=REJECTED_SCHEMA,
    )


def row_as_json(row: object) -> str:
    """The row as one line of JSON, in ASCII: half of a surrogate pair survives as its escape."""
    return json.dumps(_json_value(row, 0), allow_nan=False)


_DEPTH_MAX = 64  # a row that holds itself has no end; below this its repr is kept


def _json_value(value: object, depth: int) -> object:
    value = plain(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal | uuid.UUID):
        return str(value)
    if isinstance(value, Unreadable):
        return value.text
    if depth < _DEPTH_MAX:
        fields = mapping_of(value)
        if fields is not None:
            return {str(name): _json_value(item, depth + 1) for name, item in fields.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [_json_value(item, depth + 1) for item in value]
    return repr(value)
