"""What a reader says where durable bytes are not what an index or the chain says they are."""

from __future__ import annotations

from headwater.errors import CorruptData
from headwater.frames.frame import Header
from headwater.log.chain import ChainBreak


def unchained(segment: str, position: int, lsn: int) -> CorruptData:
    return CorruptData(
        f"a durable frame cannot be read: {ChainBreak.PREV.value}; run `headwater log verify`",
        segment=segment,
        position=position,
        lsn=lsn,
    )


def misled(segment: str, position: int, lsn: int, header: Header) -> CorruptData:
    return CorruptData(
        "an index leads to another frame than it says; run `headwater log verify`",
        segment=segment,
        position=position,
        lsn=lsn,
        found_lsn=header.lsn,
    )
