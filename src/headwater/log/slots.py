"""A slot: one commit of a log on an object store, as one object.

    bytes      a segment frame of 256 bytes (frames/segment_header.py), then frames
    name       <slot, 20 digits>, dense from 1 but for what a fence makes void; the slot is inside too

OPENS      A slot without CONTINUES opens a segment: its segment frame is the segment's, and its first frame's `prev` is
           that frame's chain value, as at the beginning of a file.
CONTINUES  All others go on with the segment before: the segment frame is only an envelope.  It has that segment's
           salt, in `previous_first_lsn` its first LSN, in `prev` the chain value of the frame before, which the slot's
           first frame names too.
           So the bytes of a segment are those of the slot that opens it, then of each further slot all but its
           envelope: the same bytes, at the same positions, whether they lie in slots or in one object.
FENCE      A slot that an owner claims the log with: one EPOCH frame.  The W - 1 slots after it are void for ever.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import CorruptData
from headwater.frames.frame import UNIT_BYTES, NoFrame, salt_crc
from headwater.frames.segment_header import (
    SEGMENT_FRAME_BYTES,
    SegmentHeader,
    decode_segment_frame,
    pack_segment_frame,
)
from headwater.log.segment import Opening
from headwater.storage.files import Buffer

CONTINUES = 1
FENCE = 2

WINDOW = 8
"""Slots in flight at most, and void after a fence; fixed for a log's life."""

TRIM = "trim"
LEASE = "lease"

_NAME = re.compile(r"\d{20}")
_FLAGS_AT = UNIT_BYTES + 74
"""Of the segment frame (frames/segment_header.py)."""


def slot_name(slot: int) -> str:
    return f"{slot:020}"


def is_slot_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


@dataclass(frozen=True)
class Slot:
    """A slot that was read; its frames have not been checked yet."""

    number: int
    header: SegmentHeader
    opening: Opening
    """Its segment frame, decoded; of a slot that continues, only an envelope."""
    data: bytes

    @property
    def opens(self) -> bool:
        return not self.header.flags & CONTINUES

    @property
    def is_fence(self) -> bool:
        return bool(self.header.flags & FENCE)

    @property
    def frames(self) -> memoryview:
        return memoryview(self.data)[SEGMENT_FRAME_BYTES:]

    @property
    def segment_bytes(self) -> int:
        """What it adds to its segment."""
        return len(self.data) - (0 if self.opens else SEGMENT_FRAME_BYTES)


def pack_slot(header: SegmentHeader, frames: Sequence[Buffer]) -> bytes:
    return b"".join((pack_segment_frame(header), *frames))


def read_slot(number: int, data: bytes) -> Slot:
    """CorruptData where these bytes are not a slot of this number: objects are whole, so that is damage."""
    decoded = decode_segment_frame(memoryview(data)[:SEGMENT_FRAME_BYTES])
    if isinstance(decoded, NoFrame):
        raise CorruptData(f"a slot of the log cannot be read: {decoded.value}; run `headwater log verify`", slot=number)
    header, chain = decoded
    if header.slot != number:
        raise CorruptData("a slot's name is not its own: it was copied; remove the copy", slot=number, says=header.slot)
    opening = Opening(header, chain, salt_crc(header.salt), data[:SEGMENT_FRAME_BYTES])
    return Slot(number, header, opening, data)


def says_fence(data: bytes) -> bool:
    """Whether a slot says that it is a fence; it has not been checked."""
    return len(data) >= SEGMENT_FRAME_BYTES and bool(data[_FLAGS_AT] & FENCE)


def follows(slot: Slot, window: int) -> int:
    """The number of the slot that comes after this one in the log's history."""
    return slot.number + (window if slot.is_fence else 1)
