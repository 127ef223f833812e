"""How long a topic keeps its rows, in the words of a caller.

PROMISE  What comes out is a Policy that the journal takes; what does not make sense is InvalidRequest, with the
         argument's name.
NOT HERE Acting on a policy: retention.py and compaction.py.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Literal, cast

from headwater.errors import InvalidRequest
from headwater.metadata.operations import Policy

_UNITS_S: dict[str, float] = {
    "ms": 0.001,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3_600.0,
    "d": 86_400.0,
    "w": 7 * 86_400.0,
}
_UNITS_BYTES = {"": 1, "B": 1}
_UNITS_BYTES |= {f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)}
_UNITS_BYTES |= {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)}
_WITH_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*)")

_CLEANUPS = ("delete", "compact", "both")
FOR_EVER = "forever"


def seconds_of(given: str | float | int | timedelta, name: str = "a duration") -> float:
    """ "90d", "24h", "10min", "30s", "500ms", a timedelta, or a number of seconds: above zero, in seconds."""
    if isinstance(given, timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, str):
        seconds = _seconds_of_text(given, name)
    elif type(given) in {int, float}:
        seconds = float(given)
    else:
        raise InvalidRequest(f'{name} is a text like "7d", a timedelta or a number of seconds, not {given!r}')
    if not math.isfinite(seconds) or seconds <= 0:
        raise InvalidRequest(f"{name} must be above zero and finite, not {given!r}")
    return seconds


def _seconds_of_text(given: str, name: str) -> float:
    found = _WITH_UNIT.fullmatch(given.strip())
    unit = None if found is None else _UNITS_S.get(found[2])
    if found is None or unit is None:
        raise InvalidRequest(f'{name}: {given!r} is no duration: say "90d", "24h", "10min" or "30s"')
    return float(found[1]) * unit


def bytes_of(given: str | int, name: str = "a size") -> int:
    """A number of bytes, or a text like "10GiB" or "500MB": above zero."""
    if type(given) not in {str, int}:
        raise InvalidRequest(f'{name} is a number of bytes or a text like "10GiB", not {given!r}')
    if isinstance(given, str):
        found = _WITH_UNIT.fullmatch(given.strip())
        unit = None if found is None else _UNITS_BYTES.get(found[2])
        if found is None or unit is None:
            raise InvalidRequest(f'{name}: {given!r} is no size: say "10GiB" or "500MB", or a number of bytes')
        given = int(float(found[1]) * unit)
    if given <= 0:
        raise InvalidRequest(f"{name} must be above zero, not {given!r}")
    return given


def policy_of(
    cleanup: str | None = None,
    retention: str | float | int | timedelta | None = None,
    retention_bytes: str | int | None = None,
    tombstones: str | float | int | timedelta | None = None,
    changes_retention: str | float | int | timedelta | None = None,
    *,
    base: Policy = Policy(),  # noqa: B008  (frozen: one for all is right)
) -> Policy:
    """`base`, with what was given put in its place; None leaves a part as it is, "forever" takes a limit away."""
    if cleanup is not None and cleanup not in _CLEANUPS:
        raise InvalidRequest(f"cleanup is one of {', '.join(_CLEANUPS)}, not {cleanup!r}")
    return Policy(
        cleanup=base.cleanup if cleanup is None else cast(Literal["delete", "compact", "both"], cleanup),
        retention_s=_limit(retention, base.retention_s),
        retention_bytes=(
            base.retention_bytes
            if retention_bytes is None
            else None
            if retention_bytes == FOR_EVER
            else bytes_of(retention_bytes, "retention_bytes")
        ),
        tombstones_s=base.tombstones_s if tombstones is None else seconds_of(tombstones, "tombstones"),
        changes_retention_s=(
            base.changes_retention_s
            if changes_retention is None
            else seconds_of(changes_retention, "changes_retention")
        ),
    )


def _limit(given: str | float | int | timedelta | None, present: float | None) -> float | None:
    if given is None:
        return present
    return None if given == FOR_EVER else seconds_of(given, "retention")
