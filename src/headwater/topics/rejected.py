"""Rows that do not fit, kept for those who have to find out why.

A rejected row is a row of `<topic>.rejected`: the row as it was sent, as JSON; the reason; and its number in the
request.  JSON because the row fits no schema: that is what is wrong with it.

What JSON has no word for is written as text: bytes in base64, times and dates in ISO 8601, decimals and uuids by
their characters, NaN and the infinities as "nan", "inf", "-inf"; anything else by its repr.  The reason then ends with
what these were, by column, in JSON: '; kept as text: {"at": ["datetime"], "photo": ["bytes"]}'.

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
    kept = [_json_and_kinds(row) for row in rows]
    return pa.RecordBatch.from_arrays(
        [
            pa.array([text for text, _ in kept], pa.string()),
            # A reason may quote what was sent, and that need not be valid text.
            pa.array(
                [
                    each.reason.encode("utf-8", "backslashreplace").decode() + (_KEPT_AS_TEXT + kinds if kinds else "")
                    for each, (_, kinds) in zip(refused, kept, strict=True)
                ],
                pa.string(),
            ),
            pa.array([each.number for each in refused], pa.int64()),
        ],
        schema=REJECTED_SCHEMA,
    )


def row_as_json(row: object) -> str:
    """The row as one line of JSON, in ASCII: half of a surrogate pair survives as its escape."""
    return _json_and_kinds(row)[0]


def kept_as_text(reason: str) -> dict[str, frozenset[str]]:
    """Of a rejected row, by its reason: the columns in which something was turned into text, and what that was."""
    _, mark, kinds = reason.rpartition(_KEPT_AS_TEXT)
    try:
        found = json.loads(kinds) if mark else None
    except ValueError:
        found = None  # the words of somebody's value
    return {name: frozenset(each) for name, each in found.items()} if isinstance(found, dict) else {}


_Kinds = dict[str, set[str]]


def _json_and_kinds(row: object) -> tuple[str, str]:
    """The row as JSON, and as JSON what was turned into text in it; nothing where nothing was."""
    kinds: _Kinds = {}
    text = json.dumps(_json_value(row, 0, kinds, ""), allow_nan=False)
    kinds.pop("", None)  # it was no row
    return text, json.dumps({name: sorted(each) for name, each in sorted(kinds.items())}) if kinds else ""


_DEPTH_MAX = 64  # a row that holds itself has no end; below this its repr is kept
_KEPT_AS_TEXT = "; kept as text: "
OTHER = "other"
"""What JSON has no word for and no text here can bring back."""


def _json_value(value: object, depth: int, kinds: _Kinds, column: str) -> object:
    value = plain(value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(value)
    text, kind = _text(value)
    if text is None and depth < _DEPTH_MAX:
        fields = mapping_of(value)
        if fields is not None:
            if not all(isinstance(name, str) for name in fields):
                kinds.setdefault(column, set()).add(OTHER)
            return {
                str(name): _json_value(item, depth + 1, kinds, column if depth else str(name))
                for name, item in fields.items()
            }
        if isinstance(value, list | tuple | set | frozenset):
            if isinstance(value, set | frozenset):
                kinds.setdefault(column, set()).add(OTHER)
            return [_json_value(item, depth + 1, kinds, column) for item in value]
    kinds.setdefault(column, set()).add(kind)
    return repr(value) if text is None else text


def _text(value: object) -> tuple[str | None, str]:
    """What JSON has no word for, in words of its own, and what it is; None for what is none of this."""
    if isinstance(value, float):
        return repr(float(value)), "float"
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode(), "bytes"
    if isinstance(value, datetime.datetime):
        return value.isoformat(), "datetime"
    if isinstance(value, datetime.date):
        return value.isoformat(), "date"
    if isinstance(value, datetime.time):
        return value.isoformat(), OTHER
    if isinstance(value, decimal.Decimal):
        return str(value), "decimal"
    if isinstance(value, uuid.UUID):
        return str(value), "uuid"
    return (value.text if isinstance(value, Unreadable) else None), OTHER
