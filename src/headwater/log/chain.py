"""What makes frames one log: dense LSNs, each frame naming the one before, whole writes, epochs that never fall.

SEAL     turns drafts into frames that continue a chain.
WALK     follows a chain frame by frame and says at which rule it breaks.  What a break means,
         a torn tail or damage, is recovery's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from headwater.frames.bodies import unpack_gap
from headwater.frames.frame import Flag, Header, Kind, chain_value, seal_header
from headwater.log.drafts import Draft
from headwater.storage.files import Buffer

_GAP, _SEGMENT = int(Kind.GAP), int(Kind.SEGMENT)
_REWRITTEN = int(Flag.REWRITTEN)
_PADDING = [bytes(size) for size in range(128)]


class ChainBreak(Enum):
    """The first rule of the chain that a valid frame breaks."""

    LSN = "its LSN does not follow the one before"
    PREV = "it does not name the frame before it"
    EPOCH = "its epoch is lower than one before it: it was written in an earlier life"
    WRITE = "it does not continue the write before it"
    HEADER = "it is a segment's header, inside a segment"
    GAP = "it is a gap that does not begin where the frame before it ended"


@dataclass(slots=True)
class ChainEnd:
    """Where a chain stands: what its next frame must say."""

    next_lsn: int
    chain: int
    epoch: int
    append_time_us: int


class ChainWalker:
    """Follows frames, and knows the last LSN at which every write was whole."""

    __slots__ = (
        "_floor_after_lsn",
        "_floor_epoch",
        "_gap_first",
        "_open_first",
        "_open_last",
        "append_time_us",
        "chain",
        "epoch",
        "next_lsn",
        "whole_end",
    )

    def __init__(self, end: ChainEnd, *, floor_epoch: int = 0, floor_after_lsn: int = 0) -> None:
        self.next_lsn = end.next_lsn
        self.chain = end.chain
        self.epoch = end.epoch
        self.append_time_us = end.append_time_us
        self.whole_end = end
        # A mark says that from this LSN on only this epoch wrote: what an earlier one left there is stale.
        self._floor_epoch = floor_epoch
        self._floor_after_lsn = floor_after_lsn
        self._open_first = 0
        self._open_last = 0
        self._gap_first = 0

    def step(self, header: Header, body: memoryview) -> ChainBreak | None:
        """Take this frame as the next one, or say why it is not; `whole_end` is new where a write ends."""
        lsn = header.lsn
        if header.prev != self.chain:
            return ChainBreak.PREV
        epoch = header.epoch
        if epoch < self.epoch or (lsn > self._floor_after_lsn and epoch < self._floor_epoch):
            return ChainBreak.EPOCH
        if header.kind == _GAP:
            gap = unpack_gap(body)
            if gap is None or gap.first_lsn != self.next_lsn or gap.last_lsn != lsn or lsn < gap.first_lsn:
                return ChainBreak.GAP
            # Gaps may follow each other: together they are one.
            self._gap_first = self._gap_first or gap.first_lsn
            whole = lsn >= self._open_last
        elif header.kind == _SEGMENT:
            return ChainBreak.HEADER
        else:
            if lsn != self.next_lsn:
                return ChainBreak.LSN
            first = lsn - header.write_index
            last = first + header.write_count - 1
            if self._open_last >= lsn:
                if first != self._open_first or last != self._open_last:
                    return ChainBreak.WRITE
            elif first != lsn and not (self._gap_first and first >= self._gap_first):
                # Frames of a write that are missing at its beginning must lie in the gap right before.
                return ChainBreak.WRITE
            self._open_first = first
            self._open_last = last
            self._gap_first = 0
            whole = lsn == last
        self.next_lsn = lsn + 1
        self.epoch = epoch
        self.append_time_us = max(self.append_time_us, header.append_time_us)
        if header.flags & _REWRITTEN:
            self.chain = chain_value(header, body)
        else:
            self.chain = header.header_crc << 32 | header.body_crc
        if whole:
            self.whole_end = ChainEnd(self.next_lsn, self.chain, epoch, self.append_time_us)
        return None


@dataclass(slots=True)
class Sealed:
    """Frames that continue a chain, as bytes, and what an index wants to know of each."""

    buffers: list[Buffer]
    size: int
    end: ChainEnd
    frames: list[tuple[int, Draft, int]]
    """(position from the start of these bytes, draft, base offset) of each frame."""


def seal_writes(
    writes: Sequence[tuple[Sequence[Draft], Sequence[int]]],
    end: ChainEnd,
    salted: int,
    *,
    durable_lsn: int,
    epoch: int,
    append_time_us: int,
) -> Sealed:
    """Give each draft of each write (drafts, base offsets) its place in the chain."""
    lsn = end.next_lsn
    prev = end.chain
    position = 0
    buffers: list[Buffer] = []
    frames: list[tuple[int, Draft, int]] = []
    for drafts, base_offsets in writes:
        count = len(drafts)
        for index, draft in enumerate(drafts):
            base_offset = base_offsets[index]
            body_size = draft.body_size
            time_min_us = draft.time_min_us
            time_max_us = draft.time_max_us
            # By position: 23 names would take longer than the header itself, for every frame of a log.
            header, header_crc = seal_header(
                salted,
                draft.body_crc,
                draft.kind,
                draft.codec,
                draft.flags,
                body_size,
                lsn,
                prev,
                durable_lsn,
                epoch,
                index,
                count,
                draft.topic_number,
                draft.partition,
                base_offset,
                draft.row_count,
                draft.row_count,
                draft.schema_version,
                draft.producer_epoch,
                draft.producer_id,
                draft.sequence,
                append_time_us,
                append_time_us if time_min_us is None else time_min_us,
                append_time_us if time_max_us is None else time_max_us,
            )
            buffers.append(header)
            if body_size:
                buffers.append(draft.body)
                padding = -body_size % 128
                if padding:
                    buffers.append(_PADDING[padding])
            frames.append((position, draft, base_offset))
            position += draft.frame_size
            prev = header_crc << 32 | draft.body_crc
            lsn += 1
    return Sealed(buffers, position, ChainEnd(lsn, prev, epoch, append_time_us), frames)
