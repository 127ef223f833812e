"""Python classes as schemas: dataclasses, pydantic models, dicts of types.

| annotation | Arrow type |
|---|---|
| str, int, float, bool, bytes | string, int64, float64, bool, binary |
| datetime, date | timestamp in microseconds, UTC; date32 |
| uuid.UUID | string, of its 36 characters |
| Annotated[T, <Arrow type>] | that type; the only way to say a Decimal: its digits are part of the type |
| list[T], tuple[T, ...], Sequence[T] | list |
| dict[K, V], Mapping[K, V] | map |
| a dataclass, a pydantic model | struct |
| Enum, Literal | the type of its values, which must be of one type |
| T | None, Optional[T] | T, nullable |

RULE     A Python type says by itself whether it may be null: it may not, unless it is optional.  An Arrow type, by
         its name too, is nullable as in Arrow, unless it says "not null"; a pa.field says itself.
NOT HERE Which Arrow types a topic takes: schema.py, which brings what comes from here into normal form.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import decimal
import enum
import re
import types
import typing
import uuid
from collections.abc import Mapping

import pyarrow as pa

from headwater.errors import InvalidRequest

_PLAIN: dict[object, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    datetime.datetime: pa.timestamp("us", tz="UTC"),
    datetime.date: pa.date32(),
    uuid.UUID: pa.string(),
}
_LISTS = (list, tuple, collections.abc.Sequence)
_MAPS = (dict, collections.abc.Mapping)

_TIMESTAMP = re.compile(r"timestamp\[(s|ms|us|ns), *(?:tz=)?([^\]]+)\]")
_DECIMAL = re.compile(r"decimal(?:128)?\(([0-9]+), *([0-9]+)\)")
_FIXED_BINARY = re.compile(r"(?:fixed_size_binary|binary)\[([0-9]+)\]")
_NOT_NULL = " not null"


def schema_of_annotations(given: object) -> pa.Schema | None:
    """The schema that a class or a dict of types declares; None if `given` is neither."""
    if isinstance(given, Mapping):
        return pa.schema([_field(str(name), hint, ()) for name, hint in given.items()])
    hints = _hints_of_class(given)
    if hints is None:
        return None
    return pa.schema([_field(name, hint, (given,)) for name, hint in hints.items()])


def type_named(text: str, column: str = "the column") -> pa.DataType:
    """An Arrow type by its name: "int64", "timestamp[us, UTC]", "decimal128(10, 2)", "binary[16]"."""
    text = text.strip()
    if found := _TIMESTAMP.fullmatch(text):
        return pa.timestamp(found[1], tz=found[2].strip())
    try:
        if found := _DECIMAL.fullmatch(text):
            return pa.decimal128(int(found[1]), int(found[2]))
        if found := _FIXED_BINARY.fullmatch(text):
            return pa.binary(int(found[1]))
        return pa.type_for_alias(text)
    except ValueError as error:  # ArrowInvalid is one
        raise InvalidRequest(f"{column}: there is no type named {text!r}") from error


def _hints_of_class(given: object) -> dict[str, object] | None:
    """Names and annotations of a dataclass or a pydantic model, in their order; None for anything else."""
    if not isinstance(given, type):
        return None
    if dataclasses.is_dataclass(given):
        names = [field.name for field in dataclasses.fields(given)]
    elif isinstance(fields := getattr(given, "model_fields", None), Mapping):
        names = list(fields)
    else:
        return None
    try:
        hints = typing.get_type_hints(given, include_extras=True)
    except NameError as error:
        raise InvalidRequest(f"{given.__name__}: an annotation names what cannot be found: {error}") from error
    return {name: hints[name] for name in names}


def _field(name: str, hint: object, inside: tuple[object, ...], column: str = "") -> pa.Field:
    column = column or name
    if isinstance(hint, pa.Field):
        return hint.with_name(name)
    if isinstance(hint, pa.DataType):
        return pa.field(name, hint)
    if isinstance(hint, str):
        text = hint.strip()
        required = text.endswith(_NOT_NULL)
        return pa.field(name, type_named(text.removesuffix(_NOT_NULL), column), nullable=not required)
    type_, nullable = _type(hint, column, inside)
    return pa.field(name, type_, nullable=nullable)


def _type(hint: object, column: str, inside: tuple[object, ...]) -> tuple[pa.DataType, bool]:
    """The Arrow type of an annotation, and whether it is optional.  `inside`: the classes being read."""
    if isinstance(hint, pa.DataType):
        return hint, False  # list[pa.int32()]: an element of it may be null only if it is said to be optional
    if (plain := _PLAIN.get(hint) if isinstance(hint, type) else None) is not None:
        return plain, False
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        said = [extra for extra in arguments[1:] if isinstance(extra, pa.DataType)]
        if not said:
            return _type(arguments[0], column, inside)
        return said[0], types.NoneType in typing.get_args(arguments[0])
    if origin is typing.Union or origin is types.UnionType:
        others = [argument for argument in arguments if argument is not types.NoneType]
        if len(others) == 1:
            return _type(others[0], column, inside)[0], len(others) < len(arguments)
        raise InvalidRequest(f"{column}: a column has one type, not {_name(hint)}")
    if origin is typing.Literal:
        values = [value for value in arguments if value is not None]
        return _type_of_values(values, hint, column), len(values) < len(arguments)
    if origin in _LISTS and origin is not None:
        if (origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis) or len(arguments) == 1:
            return pa.list_(_field("item", arguments[0], inside, f"{column}.item")), False
        raise InvalidRequest(f"{column}: {_name(hint)} is not a list of one type: say list[T] or tuple[T, ...]")
    if origin in _MAPS and origin is not None and len(arguments) == 2:
        key = _field("key", arguments[0], inside, f"{column}.key")
        return pa.map_(key.type, _field("value", arguments[1], inside, f"{column}.value")), False
    if hint is decimal.Decimal:
        raise InvalidRequest(
            f"{column}: a Decimal needs its number of digits: Annotated[Decimal, pa.decimal128(10, 2)]"
        )
    if hasattr(hint, "__supertype__"):  # typing.NewType
        return _type(hint.__supertype__, column, inside)
    if hasattr(hint, "__value__"):  # type X = ..., from Python 3.12
        return _type(hint.__value__, column, inside)
    if isinstance(hint, type) and issubclass(hint, enum.Enum):
        return _type_of_values([member.value for member in hint], hint, column), False
    nested = _hints_of_class(hint)
    if nested is not None:
        if hint in inside:
            raise InvalidRequest(f"{column}: {_name(hint)} holds itself, and a column's type has an end")
        fields = [_field(name, part, (*inside, hint), f"{column}.{name}") for name, part in nested.items()]
        return pa.struct(fields), False
    if hint in {list, tuple, dict}:
        raise InvalidRequest(f"{column}: say what is in it: list[str], dict[str, int]")
    raise InvalidRequest(f"{column}: {_name(hint)} is no type of a column; docs/schemas.md lists them")


def _type_of_values(values: list[object], hint: object, column: str) -> pa.DataType:
    kinds = {type(value) for value in values}
    if len(kinds) == 1 and (plain := _PLAIN.get(kinds.pop())) is not None:
        return plain
    raise InvalidRequest(f"{column}: the values of {_name(hint)} are not of one type that a column can have")


def _name(hint: object) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
