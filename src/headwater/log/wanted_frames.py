"""Which frames a read of one topic looks into."""

from __future__ import annotations

from collections.abc import Callable

from headwater.frames.bodies import unpack_gap
from headwater.frames.frame import Header, Kind

_DATA, _SPARSE, _GAP = int(Kind.DATA), int(Kind.SPARSE), int(Kind.GAP)


def stands_for(header: Header, body: memoryview, lsn: int) -> bool:
    """Is it a gap with this LSN in it?"""
    if header.kind != Kind.GAP:
        return False
    gap = unpack_gap(body)
    return gap is not None and gap.first_lsn <= lsn <= gap.last_lsn


def is_wanted_for(topic_number: int) -> Callable[[Header], bool]:
    """What a scan for a topic must look into: its rows, and gaps, which say in their bodies where they begin."""
    return lambda header: header.kind == _GAP or has_rows_of(header, topic_number)


def has_rows_of(header: Header, topic_number: int) -> bool:
    kind = header.kind
    return header.topic_number == topic_number and (kind == _DATA or kind == _SPARSE)
