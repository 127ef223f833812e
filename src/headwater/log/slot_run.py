"""A segment that lies in slots: which slots, how far, and the index of its frames.

PROMISE  Slots are taken in one by one, each checked whole: every frame's checksums, the chain from frame to frame,
         whole writes only.  An object is written whole or not at all, so what does not fit is damage, never a torn
         tail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headwater.errors import DamagedLog
from headwater.frames.frame import Header, NoFrame, check_body, decode_header
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.log.chain import ChainBreak, ChainEnd, ChainWalker
from headwater.log.index import ActiveIndex
from headwater.log.segment import Opening
from headwater.log.slots import Slot


class SlotRun:
    """One segment in slots, as far as it has been taken in."""

    def __init__(self, opening: Opening, next_offsets: Mapping[int, int], append_time_us: int = 0) -> None:
        self.opening = opening
        self.slots: tuple[tuple[int, int], ...] = ()
        """(slot, bytes of the object) of each, in order."""
        self.fences: tuple[int, ...] = ()
        self.size = SEGMENT_FRAME_BYTES
        self.end = ChainEnd(opening.header.first_lsn, opening.chain, opening.header.epoch, append_time_us)
        self.index = ActiveIndex(opening.header.first_lsn, next_offsets)

    @property
    def first_lsn(self) -> int:
        return self.opening.header.first_lsn

    def took(self, slot: int, object_bytes: int, added_bytes: int, end: ChainEnd, *, fence: bool = False) -> None:
        """A slot whose frames are in the index already."""
        self.slots = (*self.slots, (slot, object_bytes))
        if fence:
            self.fences = (*self.fences, slot)
        self.size += added_bytes
        self.end = end

    def take(self, slot: Slot) -> None:
        """Check a slot that was read, and take it in; DamagedLog where it does not go on with this segment."""
        salted = self.opening.salted
        walker = ChainWalker(self.end)
        found = []
        position = self.size
        for header, body in _frames(slot, salted, walker):
            broken = walker.step(header, body)
            if broken is not None:
                raise _damaged(slot, walker.next_lsn, broken)
            found.append((header, position, body))
            position += header.frame_size
        # Without a frame a slot can only begin a segment: so a roll is written.
        if walker.whole_end.next_lsn != walker.next_lsn or not (found or slot.opens):
            raise _damaged(slot, walker.next_lsn, ChainBreak.WRITE)
        for header, at, body in found:
            self.index.add(header, at, body)
        self.took(slot.number, len(slot.data), position - self.size, walker.whole_end, fence=slot.is_fence)


def _frames(slot: Slot, salted: int, walker: ChainWalker) -> Iterator[tuple[Header, memoryview]]:
    data = slot.frames
    at = 0
    while at < len(data):
        header = decode_header(data, at, salted)
        broken = header if isinstance(header, NoFrame) else check_body(header, data, at)
        if isinstance(header, NoFrame) or broken is not None:
            assert broken is not None
            raise _damaged(slot, walker.next_lsn, broken)
        start = at + header.header_units * 128
        yield header, data[start : start + header.body_size]
        at += header.frame_size


def _damaged(slot: Slot, lsn: int, why: NoFrame | ChainBreak) -> DamagedLog:
    return DamagedLog(
        f"a slot of the log is damaged: {why.value}; run `headwater log verify`", slot=slot.number, lsn=lsn
    )
