"""How a topic's table is to be partitioned, in the words of a caller.

    "region"              by the value itself
    "day(created_at)"     and year, month, hour
    "bucket(16, id)"      by a hash of the value
    "truncate(4, name)"   by its beginning

The system's columns may be named too: "day(_hw_time)" is by the day of the append.

PROMISE  What passes here is a partitioning that Iceberg takes for columns of these types; what does not is an
         InvalidRequest that names the part and says why.
NOT HERE Making a table with it: lake/.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from headwater.errors import InvalidRequest

BY_TIME = ("year", "month", "day", "hour")
BY_WIDTH = ("bucket", "truncate")
WIDTH_MAX = 2**31 - 1

_PART = re.compile(r"(?:([a-z]+)\(\s*(?:([0-9]+)\s*,)?\s*)?([^\s(),]+)\s*(\))?")
_SYSTEM = {
    "_hw_shard": pa.int32(),
    "_hw_lsn": pa.int64(),
    "_hw_partition": pa.int32(),
    "_hw_offset": pa.int64(),
    "_hw_time": pa.timestamp("us", "UTC"),
}


class TablePart(NamedTuple):
    """One part of a partitioning: a transform of a column."""

    transform: str
    """identity, year, month, day, hour, bucket or truncate."""
    column: str
    width: int | None = None
    """Of bucket and truncate."""


def parse_part(text: object) -> TablePart:
    """One part, by its syntax alone."""
    found = _PART.fullmatch(text.strip()) if isinstance(text, str) else None
    if found is None or bool(found[1]) != bool(found[4]):
        raise _refused(text, 'say "region", "day(created_at)", "bucket(16, id)" or "truncate(4, name)"')
    transform, width, column = found[1] or "identity", found[2], found[3]
    if transform in BY_WIDTH:
        if width is None or not 1 <= int(width) <= WIDTH_MAX:
            raise _refused(text, f"{transform} needs a number above zero first: {transform}(16, {column})")
        return TablePart(transform, column, int(width))
    if found[1] and transform not in BY_TIME:
        raise _refused(text, f"there is no {transform!r}; there are {', '.join((*BY_TIME, *BY_WIDTH))}")
    if width is not None:
        raise _refused(text, f"{transform} takes a column and nothing else")
    return TablePart(transform, column)


def checked_parts(given: object, schema: pa.Schema) -> tuple[str, ...]:
    """What was given, as it is kept, once every part of it fits a column of this schema."""
    parts = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, Sequence) else None
    if parts is None:
        raise InvalidRequest(f"partition_by is a text like 'day(created_at)', or several, not {given!r}")
    seen: set[TablePart] = set()
    for text in parts:
        part = parse_part(text)
        if part in seen:
            raise _refused(text, "it is there twice")
        seen.add(part)
        _check_type(text, part, _type_of(text, part.column, schema))
    return tuple(text.strip() for text in parts)


def _type_of(text: str, column: str, schema: pa.Schema) -> pa.DataType:
    if column in _SYSTEM:
        return _SYSTEM[column]
    if schema.get_field_index(column) < 0:
        raise _refused(text, f"there is no column {column!r}")
    return schema.field(column).type


def _check_type(text: str, part: TablePart, type_: pa.DataType) -> None:
    types = pa.types
    timed = types.is_timestamp(type_)
    exact = types.is_integer(type_) or types.is_decimal(type_) or types.is_string(type_) or types.is_binary(type_)
    fits = {
        "identity": not types.is_nested(type_),
        "hour": timed,
        "bucket": exact or timed or types.is_date(type_) or types.is_fixed_size_binary(type_),
        "truncate": exact,
    }.get(part.transform, timed or types.is_date(type_))
    if not fits:
        raise _refused(text, f"{part.transform} does not take the type of {part.column!r}, {type_}")


def _refused(text: object, why: str) -> InvalidRequest:
    return InvalidRequest(f"partition_by {text!r}: {why}")
