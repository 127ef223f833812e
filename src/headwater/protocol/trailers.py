"""An error at the end of a call: gRPC carries it beside its status, and there is little room there.

LIMIT    Beyond 8 KiB of trailing metadata gRPC drops some of them by chance, and above 16 KiB all: the caller would see
         another error than the one that was raised.  The status' own message is in there too, more than once.
PROMISE  What comes out of `trailer_of` arrives: `unpack(data, Failure)` gives the same kind, and of its text and facts
         what fits.  What is left out is the end of a list or of a text, and a cut text says so.
NOT HERE The answers of a stream of rows: they are messages of their own, and as large as they need to be.
"""

from __future__ import annotations

import msgspec

from headwater.errors import HeadwaterError
from headwater.protocol.codec import pack
from headwater.protocol.failures import Failure, Plain, failure_of

TRAILER_BYTES_MAX = 4_096
_TEXT_BYTES_MAX = 1_024
_FACT_BYTES_MAX = 128
_FACTS_MAX = 10
_CUT = " …"


def trailer_of(error: HeadwaterError) -> bytes:
    """The error as bytes that fit behind a call."""
    failure = failure_of(error)
    data = pack(failure)
    refused = len(failure.refused)
    while len(data) > TRAILER_BYTES_MAX and refused > 3:
        refused //= 2
        failure = msgspec.structs.replace(failure, refused=failure.refused[:refused])
        data = pack(failure)
    return data if len(data) <= TRAILER_BYTES_MAX else pack(_short(failure))


def status_text(error: HeadwaterError) -> str:
    """What gRPC's own status says: for whoever looks at it with another tool."""
    return f"{type(error).__name__}: {_cut(error.message, _FACT_BYTES_MAX)}"


def _short(failure: Failure) -> Failure:
    facts: dict[str, Plain | list[Plain]] = {
        _cut(name, _FACT_BYTES_MAX): _short_fact(value) for name, value in list(failure.facts.items())[:_FACTS_MAX]
    }
    return Failure(
        failure.kinds,
        _cut(failure.message, _TEXT_BYTES_MAX),
        facts,
        topic=_cut(failure.topic, 255),
        refused=tuple((number, _cut(reason, _FACT_BYTES_MAX)) for number, reason in failure.refused[:3]),
        refused_count=failure.refused_count,
        rows=failure.rows,
        cause=_cut(failure.cause, _FACT_BYTES_MAX),
    )


def _short_fact(value: Plain | list[Plain]) -> Plain:
    return _cut(str(value), _FACT_BYTES_MAX) if isinstance(value, str | list) else value


def _cut(text: str, bytes_max: int) -> str:
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= bytes_max:
        return data.decode("utf-8")
    return data[: bytes_max - len(_CUT.encode())].decode("utf-8", "ignore") + _CUT
