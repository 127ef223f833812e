"""Errors over the wire: each kind of errors.py by its name, one to one.

    failure_of(error)      -> Failure       what is sent
    error_of(failure)      -> HeadwaterError   the same kind, with the same text and facts

PROMISE  A caller catches the same class whether the log is in its own process or behind a server.
         A kind that this version does not know comes as the nearest that it does: the sender names its ancestors.
         Nothing but a HeadwaterError travels: what else goes wrong in a server is its own, and is logged there.
"""

from __future__ import annotations

import inspect
from typing import TypeGuard

import msgspec

from headwater import errors
from headwater.errors import HeadwaterError, LandingHalted, RefusedRow, RowsRefused

Plain = str | int | float | bool | None
REFUSED_ROWS_MAX = 100
"""Refused rows that are told one by one; the rest are counted."""

INT_MIN, INT_MAX = -(1 << 63), (1 << 64) - 1
"""What msgpack holds."""

KINDS: dict[str, type[HeadwaterError]] = {
    name: kind for name, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, HeadwaterError)
}


class Failure(msgspec.Struct, frozen=True):
    """An error, as it travels."""

    kinds: tuple[str, ...]
    """Its class and what it is derived from, the nearest first."""
    message: str
    facts: dict[str, Plain | list[Plain]] = {}
    topic: str = ""
    refused: tuple[tuple[int, str], ...] = ()
    refused_count: int = 0
    rows: int = 0
    cause: str = ""


def failure_of(error: HeadwaterError) -> Failure:
    kinds = tuple(
        each.__name__ for each in type(error).__mro__ if issubclass(each, HeadwaterError) and each.__name__ in KINDS
    )
    facts = {_text(name): _plain(value) for name, value in error.facts.items()}
    if isinstance(error, RowsRefused):
        refused = tuple((each.number, _text(each.reason)) for each in error.refused[:REFUSED_ROWS_MAX])
        return Failure(
            kinds,
            _text(error.message),
            facts,
            topic=_text(error.topic),
            refused=refused,
            refused_count=error.refused_count,
            rows=error.rows,
        )
    cause = error.cause if isinstance(error, LandingHalted) else ""
    return Failure(kinds, _text(error.message), facts, cause=_text(cause))


def error_of(failure: Failure) -> HeadwaterError:
    kind = next((KINDS[name] for name in failure.kinds if name in KINDS), HeadwaterError)
    # No error of ours has facts of these names: they are its own parameters, and only a stranger would send them.
    facts: dict[str, object] = {name: value for name, value in failure.facts.items() if name not in ("self", "message")}
    if kind is RowsRefused:
        refused = [RefusedRow(number, reason) for number, reason in failure.refused]
        return RowsRefused(failure.topic, refused, failure.rows, failure.refused_count)
    if kind is LandingHalted:
        facts.pop("cause", None)
        return LandingHalted(failure.cause, failure.message, **facts)
    return kind(failure.message, **facts)


def _plain(value: object) -> Plain | list[Plain]:
    """As it is, where it can travel as it is; else as it stands in the message, so that the text stays the same."""
    if _travels(value):
        return value
    if isinstance(value, list) and all(_travels(each) for each in value):
        return list(value)
    return _text(str(value))


def _travels(value: object) -> TypeGuard[Plain]:
    if isinstance(value, str):
        return _text(value) == value
    return value is None or isinstance(value, float) or (isinstance(value, int) and INT_MIN <= value <= INT_MAX)


def _text(text: str) -> str:
    """Half a character, which no encoding has, is written as its escape."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
