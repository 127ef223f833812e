"""Every message of the protocol, found by its type, and values of each drawn from a seed.

ALL      What the protocol declares: requests and answers of CALLS, tickets, commands, what stands beside batches.
DRAWN    `value_of` makes a value of any of these types within its declared bounds, so a new message is tested as soon
         as it is declared.
"""

from __future__ import annotations

import dataclasses
import random
import types
import typing
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import pyarrow as pa

from headwater.protocol import places, streams
from headwater.protocol.calls import CALLS, Nothing, Request
from headwater.protocol.failures import Failure

SCHEMA = pa.schema([pa.field("order_id", pa.int64(), nullable=False), ("note", pa.string())])
LARGEST = (1 << 63) - 1

REQUESTS: dict[str, Any] = {
    **{f"request of {name}": call.request for name, call in CALLS.items()},
    "Ticket": streams.Ticket,
    "Command": streams.Command,
    "RowsRequest": streams.RowsRequest,
    "WirePlace": places.WirePlace,
}
"""What a client sends."""

ANSWERS: dict[str, Any] = {
    **{f"answer of {name}": call.answer for name, call in CALLS.items()},
    "RowsAnswer": streams.RowsAnswer,
    "ReadTo": streams.ReadTo,
    "Failure": Failure,
}
"""What a server sends."""

ALL: dict[str, Any] = {**REQUESTS, **ANSWERS}


def value_of(kind: Any, chance: random.Random, depth: int = 0) -> Any:
    """A value of this type, within the bounds that the type declares."""
    origin, given = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _bounded(given[0], _bounds(given[1:]), chance, depth)
    if origin in (Union, types.UnionType):
        return value_of(chance.choice(given), chance, depth)
    if origin is Literal:
        return chance.choice(given)
    if origin in (tuple, list, dict):
        return _bounded(kind, {}, chance, depth)
    if kind in (None, type(None)):
        return None
    if isinstance(kind, type) and issubclass(kind, tuple):  # a NamedTuple
        hints = typing.get_type_hints(kind, include_extras=True)
        return kind(*(value_of(each, chance, depth + 1) for each in hints.values()))
    if isinstance(kind, type) and (issubclass(kind, msgspec.Struct) or dataclasses.is_dataclass(kind)):
        hints = typing.get_type_hints(kind, include_extras=True)
        made: Any = kind
        return made(**{name: value_of(each, chance, depth + 1) for name, each in hints.items()})
    return _bounded(kind, {}, chance, depth)


def _bounds(metas: tuple[Any, ...]) -> dict[str, Any]:
    names = ("ge", "le", "min_length", "max_length")
    return {name: getattr(each, name) for each in metas for name in names if getattr(each, name, None) is not None}


def _bounded(kind: Any, bounds: dict[str, Any], chance: random.Random, depth: int) -> Any:
    origin, given = get_origin(kind), get_args(kind)
    shortest = bounds.get("min_length", 0)
    length = min(max(shortest, chance.choice((0, 1, 3))), bounds.get("max_length", LARGEST))
    least, most = bounds.get("ge", -(1 << 63)), bounds.get("le", LARGEST)
    if origin is tuple and (len(given) != 2 or given[1] is not ...):
        return tuple(value_of(each, chance, depth + 1) for each in given)
    if origin is tuple:
        return tuple(value_of(given[0], chance, depth + 1) for _ in range(length))
    if origin is list:
        return [value_of(given[0], chance, depth + 1) for _ in range(length)]
    if origin is dict:
        return {value_of(given[0], chance, depth + 1): value_of(given[1], chance, depth + 1) for _ in range(length)}
    made: dict[Any, Any] = {
        bool: lambda: chance.random() < 0.5,
        int: lambda: chance.choice((least, most, chance.randint(least, most))),
        float: lambda: chance.choice((float(max(least, 0)), 1.5, 1e6)),
        str: lambda: "".join(chance.choices("aé🙂\0 .", k=length)),
        bytes: lambda: chance.randbytes(length),
        datetime: lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randrange(1 << 50)),
        pa.Schema: lambda: SCHEMA,
        Any: lambda: chance.choice((None, 7, "at", [1, [2, {"x": 0.5}]], {"lsn": 1, "file": b"x"}, True)),
    }
    return made[kind]()


__all__ = ["ALL", "ANSWERS", "REQUESTS", "SCHEMA", "Nothing", "Request", "value_of"]
