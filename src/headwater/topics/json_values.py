"""How a value of a column is written in JSON, and read from it.

column               in JSON
bool, numbers        as they are; NaN and the infinities as "NaN", "Infinity", "-Infinity"
decimal              a string, "9.50", so that no reader makes a float of it; a number is read too
string               a string
binary               a string where the bytes are UTF-8, else {"$base64": "..."}; both are read
timestamp            ISO 8601 with six places: "2026-11-15T02:55:13.889000Z"; without Z where the column has no zone.
                     Read: any ISO 8601 time; one without a zone is UTC
date                 "2026-11-15"
list, struct         an array, an object
map                  an object where its keys are strings, else an array of pairs; both are read

PROMISE  What `to_json` writes `from_json` reads back, equal.
LAZY     pyarrow is imported when a value is looked at: the command line starts without it.
NOT HERE Refusing: `from_json` leaves a value that does not fit as it is, and the topic's door says what is wrong.
"""

from __future__ import annotations

import base64
import binascii
import math
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

BASE64 = "$base64"
NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def to_json(value: object, type_: pa.DataType) -> object:
    """The value as `json.dumps` takes it."""
    from pyarrow import types

    if value is None:
        return None
    if isinstance(value, list) and types.is_map(type_):
        pairs = [(to_json(key, type_.key_type), to_json(item, type_.item_type)) for key, item in value]
        keys = [key for key, _ in pairs]
        as_object = all(isinstance(key, str) for key in keys) and len(set(map(str, keys))) == len(keys)
        return dict(pairs) if as_object else [list(pair) for pair in pairs]
    if isinstance(value, list):
        return [to_json(each, type_.value_type) for each in value]
    if isinstance(value, dict):
        return {name: to_json(each, type_.field(name).type) for name, each in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return next(name for name, stands_for in NOT_FINITE.items() if repr(stands_for) == repr(value))
    if isinstance(value, bytes):
        return bytes_to_json(value)
    if isinstance(value, datetime):
        in_utc = value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)
        return in_utc.isoformat(timespec="microseconds") + ("" if value.tzinfo is None else "Z")
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal) else value


def bytes_to_json(value: bytes) -> object:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {BASE64: base64.b64encode(value).decode()}


def from_json(value: object, type_: pa.DataType) -> object:
    """A value of a JSON document, as Arrow takes one for this type.  Numbers with a point arrive as Decimal."""
    from pyarrow import types

    if value is None:
        return None
    if types.is_map(type_):
        return _map(value, type_)
    if types.is_list(type_) and isinstance(value, list):
        return [from_json(each, type_.value_type) for each in value]
    if types.is_struct(type_) and isinstance(value, dict):
        known = {type_.field(number).name: type_.field(number).type for number in range(type_.num_fields)}
        return {name: from_json(each, known[name]) if name in known else plain(each) for name, each in value.items()}
    if types.is_timestamp(type_) and isinstance(value, str):
        return _moment(value, zoned=type_.tz is not None)
    if types.is_date(type_) and isinstance(value, str):
        return _date(value)
    if types.is_decimal(type_) and isinstance(value, str | int | Decimal) and not isinstance(value, bool):
        return _decimal(value)
    if types.is_binary(type_) or types.is_fixed_size_binary(type_):
        return bytes_from_json(value)
    if types.is_floating(type_) and isinstance(value, str):
        return NOT_FINITE.get(value, value)
    return plain(value)


def plain(value: object) -> object:
    """A value of no known type: what `json.loads` alone would have given."""
    return float(value) if isinstance(value, Decimal) else value


def bytes_from_json(value: object) -> object:
    if isinstance(value, str):
        return value.encode(errors="surrogatepass")
    if isinstance(value, dict) and set(value) == {BASE64} and isinstance(value[BASE64], str):
        try:
            return base64.b64decode(value[BASE64], validate=True)
        except binascii.Error:
            return value
    return value


def _map(value: object, type_: pa.DataType) -> object:
    pairs: list[object] = []
    if isinstance(value, dict):
        pairs = [list(pair) for pair in value.items()]
    elif isinstance(value, list):
        pairs = value
    read = []
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            return value
        read.append((from_json(pair[0], type_.key_type), from_json(pair[1], type_.item_type)))
    return read if isinstance(value, dict | list) else value


def _moment(value: str, *, zoned: bool) -> object:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return value
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment if zoned else moment.astimezone(UTC).replace(tzinfo=None)


def _date(value: str) -> object:
    try:
        return date.fromisoformat(value)
    except ValueError:
        return value


def _decimal(value: str | int | Decimal) -> object:
    try:
        return Decimal(value)
    except InvalidOperation:
        return value
