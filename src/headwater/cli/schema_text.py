"""A schema as one line of text, for the command line: `order_id:int64,amount:double,note:string?`.

columns  column ("," column)*            a column is NAME ":" TYPE, and "?" behind it where null is allowed
TYPE     bool int8 int16 int32 int64 uint8 uint16 uint32 float32 double string binary date timestamp
         timestamp[us]                   a time without a zone; `timestamp` is a moment, in UTC
         decimal(precision,scale)  list<TYPE>  map<TYPE,TYPE>  struct<columns>

PROMISE  `schema_text` writes what `parse_schema` reads: what `topic describe` shows can be given to `topic create`.
NOT HERE Which types a topic may have: topics/schema.py; a type is read here and judged there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headwater.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

_OPENING = "<(["
_CLOSING = ">)]"

# Several names for one type are read; the first of each is written.
PLAIN_TYPES: dict[str, str] = {
    "bool": "bool",
    "boolean": "bool",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "int64": "int64",
    "int": "int64",
    "long": "int64",
    "uint8": "uint8",
    "uint16": "uint16",
    "uint32": "uint32",
    "uint64": "uint64",
    "float16": "float16",
    "float32": "float32",
    "double": "double",
    "float64": "double",
    "string": "string",
    "str": "string",
    "binary": "binary",
    "bytes": "binary",
    "date": "date32",
    "date32": "date32",
}
_EXAMPLE = 'for example "order_id:int64,amount:double,note:string?"'


def parse_schema(text: str) -> pa.Schema:
    """The schema that the text writes; InvalidRequest says which column cannot be read."""
    import pyarrow as pa

    return pa.schema(_fields(text))


def parse_columns(text: str) -> dict[str, pa.DataType]:
    """The columns of `--add` and `--widen` by name; whether they may be null is not for them to say."""
    return {field.name: field.type for field in _fields(text)}


def schema_text(schema: pa.Schema) -> str:
    return ",".join(_field_text(schema.field(number)) for number in range(len(schema)))


def type_text(type_: pa.DataType) -> str:
    """The type as `parse_schema` reads it; Arrow's own words for a type that cannot be given here."""
    from pyarrow import types

    if types.is_timestamp(type_):
        return "timestamp" if type_.tz == "UTC" and type_.unit == "us" else str(type_).replace(" ", "")
    if types.is_decimal(type_):
        return f"decimal({type_.precision},{type_.scale})"
    if types.is_map(type_):
        return f"map<{type_text(type_.key_type)},{type_text(type_.item_type)}>"
    if types.is_list(type_):
        return f"list<{type_text(type_.value_type)}>"
    if types.is_struct(type_):
        return f"struct<{','.join(_field_text(type_.field(number)) for number in range(type_.num_fields))}>"
    arrow = {"float": "float32", "halffloat": "float16"}.get(str(type_), str(type_).partition("[")[0])
    return next((name for name, stands_for in PLAIN_TYPES.items() if stands_for == arrow), str(type_))


def _field_text(field: pa.Field) -> str:
    return f"{field.name}:{type_text(field.type)}{'?' if field.nullable else ''}"


def _fields(text: str) -> list[pa.Field]:
    import pyarrow as pa

    fields = []
    for part in _split(text):
        name, colon, type_ = part.partition(":")
        name, type_ = name.strip(), type_.strip()
        if not (name and colon and type_):
            raise InvalidRequest(f"a column is NAME:TYPE, {_EXAMPLE}; this is not one: {part.strip()!r}")
        nullable = type_.endswith("?")
        fields.append(pa.field(name, _type(type_.removesuffix("?").strip(), name), nullable=nullable))
    return fields


def _split(text: str) -> list[str]:
    """The parts between the commas that no bracket encloses."""
    parts, depth, start = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter in _OPENING) - (letter in _CLOSING)
        if depth < 0:
            break
        if letter == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    if depth:
        raise InvalidRequest(f"the brackets of {text!r} do not match")
    return [*parts, text[start:]]


def _type(text: str, column: str) -> pa.DataType:
    import pyarrow as pa

    if text in PLAIN_TYPES:
        return pa.type_for_alias(PLAIN_TYPES[text])
    if text == "timestamp":
        return pa.timestamp("us", "UTC")
    if found := re.fullmatch(r"timestamp\[(s|ms|us|ns)(?:,\s*tz=([^\]]+))?\]", text):
        return pa.timestamp(found[1], found[2])
    if found := re.fullmatch(r"decimal(?:128)?\(\s*(\d+)\s*,\s*(\d+)\s*\)", text):
        return _decimal(int(found[1]), int(found[2]), column)
    if found := re.fullmatch(r"(list|map|struct)<(.*)>", text):
        return _nested(found[1], found[2], column)
    hint = "; say float32 or double" if text == "float" else ""
    raise InvalidRequest(f"column {column!r} has a type that is not known here: {text!r}{hint or '; ' + _EXAMPLE}")


def _decimal(precision: int, scale: int, column: str) -> pa.DataType:
    import pyarrow as pa

    if not (1 <= precision <= 38 and scale <= precision):
        raise InvalidRequest(f"column {column!r}: decimal(p,s) has 1 <= p <= 38 and s <= p, not ({precision},{scale})")
    return pa.decimal128(precision, scale)


def _nested(kind: str, inside: str, column: str) -> pa.DataType:
    import pyarrow as pa

    if kind == "struct":
        return pa.struct(_fields(inside))
    parts = [_type(part.strip().removesuffix("?"), column) for part in _split(inside)]
    wanted = {"list": 1, "map": 2}[kind]
    if len(parts) != wanted:
        raise InvalidRequest(f"column {column!r}: {kind}<...> takes {wanted} of types, not {len(parts)}")
    return pa.list_(parts[0]) if kind == "list" else pa.map_(parts[0], parts[1])
