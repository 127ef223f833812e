"""Frames as they lie in the log, of the topics that were asked for: landings, audits and Spark read by them.

WHAT     The first value is the frame that opens the segment, which says with what salt its frames were sealed; then one
         frame each, header, body and padding, in LSN order.  Beside the last batch stands how many frames there were.
PROMISE  No byte of another topic's frame goes out.  Checksums are those that were written: whoever reads checks them.
         A segment that was rewritten or deleted since it was planned is a Conflict: plan again.
NOT HERE Which segments there are: lake_calls.py.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import pyarrow as pa

from headwater.errors import Conflict
from headwater.frames.frame import Kind, pack_header
from headwater.ids import Lsn
from headwater.log.device import Frame
from headwater.log.frame_log import FrameLog
from headwater.protocol.codec import pack
from headwater.protocol.lake_calls import FramesEnd
from headwater.protocol.streams import FRAME_COLUMN, ReadFrames
from headwater.server.access import Principal
from headwater.server.lake_rights import topic_to_look_at
from headwater.server.reads import PIECE_BYTES, Outgoing
from headwater.server.served import Served

FRAMES_SCHEMA = pa.schema([pa.field(FRAME_COLUMN, pa.large_binary(), nullable=False)])
BY_INDEX_MAX = 8
"""Of so many topics the frames are looked up one by one; of more, the segment is read through."""
_ROWS = (int(Kind.DATA), int(Kind.SPARSE))

Bounds = dict[int, tuple[int, int]]
"""By topic number: after this LSN, up to this one."""


def read_frames(served: Served, principal: Principal, ticket: ReadFrames) -> Outgoing:
    bounds: Bounds = {}
    for topic_id, lsn_from, lsn_to in ticket.topics:
        bounds[topic_to_look_at(served, principal, topic_id).number] = lsn_from, lsn_to
    opening = _opening(served.engine.shard.log, ticket.segment)
    return Outgoing(FRAMES_SCHEMA, _batches(served, principal, ticket.segment, bounds, opening))


def _opening(log: FrameLog, segment: str) -> bytes:
    for each in log.device.view.segments:
        if str(each.name) == segment:
            return each.opening.data
    raise _gone(segment)


def _batches(
    served: Served, principal: Principal, segment: str, bounds: Bounds, opening: bytes
) -> Iterator[tuple[pa.RecordBatch, bytes | None]]:
    waiting, size, count = [opening], 0, 0
    with served.streams.opened(principal):
        for frame in _frames(served.engine.shard.log, bounds):
            if frame.segment != segment:
                raise _gone(segment)
            header = frame.header
            waiting.append(b"".join((pack_header(header), frame.body, bytes(header.padding_size))))
            size += header.frame_size
            count += 1
            if size >= PIECE_BYTES:
                served.streams.moved(principal, size)
                yield _batch(waiting), None
                waiting, size = [], 0
        # What the log has let go of is passed over as it is read: it must have been there to the end.
        _opening(served.engine.shard.log, segment)
        served.streams.moved(principal, size)
        yield _batch(waiting), pack(FramesEnd(count))


def _frames(log: FrameLog, bounds: Bounds) -> Iterator[Frame]:
    """The frames with rows of these topics, in LSN order."""
    wanted = {number: between for number, between in bounds.items() if between[0] < between[1]}
    if len(wanted) <= BY_INDEX_MAX:
        of_each = [log.read_topic(number, Lsn(low + 1), Lsn(high)) for number, (low, high) in wanted.items()]
        yield from heapq.merge(*of_each, key=lambda frame: frame.header.lsn)
        return
    first, last = min(low for low, _ in wanted.values()) + 1, max(high for _, high in wanted.values())
    for frame in log.read(Lsn(first), Lsn(last)):
        header = frame.header
        between = wanted.get(header.topic_number)
        if header.kind in _ROWS and between is not None and between[0] < header.lsn <= between[1]:
            yield frame


def _batch(frames: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(frames, pa.large_binary())], schema=FRAMES_SCHEMA)


def _gone(segment: str) -> Conflict:
    return Conflict("the segment was rewritten or deleted since it was planned: plan again", segment=segment)
