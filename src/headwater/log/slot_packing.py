"""The slots that an owner writes, as bytes: a fence, the opening of a segment, and what goes on with one."""

from __future__ import annotations

from headwater.clock import Entropy
from headwater.frames.bodies import pack_epoch
from headwater.frames.frame import Kind
from headwater.frames.segment_header import SegmentHeader, pack_segment_frame
from headwater.log.chain import ChainEnd, Sealed, seal_writes
from headwater.log.drafts import Draft
from headwater.log.manifest import Manifest
from headwater.log.segment import Opening, opening_of
from headwater.log.slot_run import SlotRun
from headwater.log.slots import CONTINUES, FENCE, pack_slot
from headwater.log.walk import Walk


def fence(walk: Walk, epoch: int, token: bytes, *, now_us: int, entropy: Entropy, shard: int) -> bytes:
    """The slot that claims the log: it goes on with the segment before, or opens one where there is none."""
    run = walk.runs[-1] if walk.runs else None
    end = walk.end
    # By the log's own time where it has one: whoever claims with a clock that has jumped must still be seen to be ahead
    # of the newest row, and nothing may expire by that clock.
    append_time_us = end.append_time_us + 1 if end.append_time_us else now_us
    header = SegmentHeader(
        log_id=walk.manifest.log_id,
        salt=run.opening.header.salt if run is not None else entropy(8),
        first_lsn=end.next_lsn,
        prev=end.chain,
        epoch=epoch,
        created_us=now_us,
        previous_first_lsn=run.first_lsn if run is not None else _last_first_lsn(walk.manifest),
        slot=walk.next_slot,
        shard=shard,
        flags=FENCE | (CONTINUES if run is not None else 0),
    )
    opening = opening_of(pack_segment_frame(header))
    begins = end if run is not None else ChainEnd(end.next_lsn, opening.chain, epoch, end.append_time_us)
    sealed = seal_writes(
        [([Draft(Kind.EPOCH, pack_epoch(epoch, token))], [0])],
        begins,
        opening.salted,
        durable_lsn=end.next_lsn - 1,
        epoch=epoch,
        append_time_us=append_time_us,
    )
    return pack_slot(header, sealed.buffers)


def next_opening(
    run: SlotRun, end: ChainEnd, epoch: int, slot: int, *, now_us: int, entropy: Entropy, shard: int
) -> Opening:
    """The segment frame with which the segment after this one will begin, in this slot."""
    header = SegmentHeader(
        log_id=run.opening.header.log_id,
        salt=entropy(8),
        first_lsn=end.next_lsn,
        prev=end.chain,
        epoch=epoch,
        created_us=max(now_us, end.append_time_us),
        previous_first_lsn=run.first_lsn,
        slot=slot,
        shard=shard,
    )
    return opening_of(pack_segment_frame(header))


def opening_slot(run: SlotRun, sealed: Sealed) -> bytes:
    return b"".join((run.opening.data, *sealed.buffers))


def continuing_slot(
    run: SlotRun, end: ChainEnd, sealed: Sealed, epoch: int, slot: int, *, now_us: int, shard: int
) -> bytes:
    """Frames that go on where the segment ends."""
    opening = run.opening.header
    envelope = SegmentHeader(
        log_id=opening.log_id,
        salt=opening.salt,
        first_lsn=end.next_lsn,
        prev=end.chain,
        epoch=epoch,
        created_us=now_us,
        previous_first_lsn=run.first_lsn,
        slot=slot,
        shard=shard,
        flags=CONTINUES,
    )
    return pack_slot(envelope, sealed.buffers)


def _last_first_lsn(manifest: Manifest) -> int:
    last = manifest.segments[-1] if manifest.segments else manifest.base
    return last.first_lsn if last is not None else 0
