"""What a reader says where durable bytes are not what an index or the chain says they are."""

from __future__ import annotations

from headwater.errors import CorruptData, ForeignLog, Halted
from headwater.frames.frame import Header, NoFrame
from headwater.log.chain import ChainBreak
from headwater.log.mark import Mark
from headwater.log.segments import FoundSegments, damaged, lost


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


def why_not_up_to(mark: Mark | None, found: FoundSegments, log_start: int) -> Halted | None:
    """What is wrong where the segment that the mark names is not there to be read."""
    newest = found.newest_name
    if newest is None and (mark is None or mark.durable_lsn == 0):
        return lost(log_start, log_start) if log_start > 1 else None
    if mark is None:
        return None
    if newest is None or mark.segment > newest.first_lsn:
        return lost(mark.segment, mark.durable_lsn)
    if mark.segment == newest.first_lsn and isinstance(found.newest_opening, NoFrame):
        # A segment is there, with its header, before the mark moves to it.
        return damaged(newest, newest.first_lsn, 0, found.newest_opening)
    return None


def check_mark(found: FoundSegments, mark: Mark | None) -> None:
    if mark is not None and found.log_id is not None and mark.log_id != found.log_id:
        raise ForeignLog(
            "the mark belongs to another log: its directory was mixed with this one; put this log's files back from a "
            "copy",
            mark=mark.log_id.hex(),
            segments=found.log_id.hex(),
        )
