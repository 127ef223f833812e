"""Where a read begins, or ends, as it travels: what `topics/positions.py` takes, each form under its own name."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

import msgspec

from headwater.errors import InvalidRequest
from headwater.topics.names import whole_number
from headwater.topics.positions import Lsn, Where, time_of, time_us_of

TIME_US_MIN, TIME_US_MAX = -62_135_596_800_000_000, 253_402_300_799_999_999
"""From the year 1 to the end of 9999: what a datetime can say."""
Number = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


class AtWord(msgspec.Struct, frozen=True, tag="word", forbid_unknown_fields=True):
    """ "earliest", "latest", or a time in ISO's form with its zone."""

    word: Annotated[str, msgspec.Meta(max_length=64)]


class AtTime(msgspec.Struct, frozen=True, tag="time", forbid_unknown_fields=True):
    time_us: Annotated[int, msgspec.Meta(ge=TIME_US_MIN, le=TIME_US_MAX)]
    """Microseconds since 1970, UTC."""


class AtLsn(msgspec.Struct, frozen=True, tag="lsn", forbid_unknown_fields=True):
    lsn: Number


class AtOffset(msgspec.Struct, frozen=True, tag="offset", forbid_unknown_fields=True):
    """Of the partition that the request names."""

    offset: Number


class AtOffsets(msgspec.Struct, frozen=True, tag="offsets", forbid_unknown_fields=True):
    offsets: dict[Number, Number]


WirePlace = AtWord | AtTime | AtLsn | AtOffset | AtOffsets


def wire_place(where: Where) -> WirePlace:
    """How a place travels; what is no place is refused here, in the words of positions.py, or there."""
    if isinstance(where, Lsn):
        return AtLsn(max(int(where), 0))
    if isinstance(where, bool):
        raise InvalidRequest(f"{where!r} is no place to read from")
    if isinstance(where, int):
        return AtOffset(_at_least_0(where))
    if isinstance(where, datetime):
        return AtTime(time_us_of(where))
    if isinstance(where, Mapping):
        return AtOffsets({_at_least_0(each): _at_least_0(at) for each, at in where.items()})
    if isinstance(where, str):
        return AtWord(where[:64])
    raise InvalidRequest(
        f"{where!r} is no place to read from: give 'earliest', 'latest', a time with its zone, hw.Lsn(n), or offsets"
    )


def place_of(wire: WirePlace) -> Where:
    if isinstance(wire, AtLsn):
        return Lsn(wire.lsn)
    if isinstance(wire, AtOffset):
        return wire.offset
    if isinstance(wire, AtTime):
        return time_of(wire.time_us)
    if isinstance(wire, AtOffsets):
        return wire.offsets
    return wire.word


def _at_least_0(number: object) -> int:
    found = whole_number(number, "an offset")
    if found < 0:
        raise InvalidRequest("an offset is at least 0", offset=found)
    return found
