"""The frames of a work, from a server: what a landing's task, an audit or a Spark executor reads.

PROMISE  Either all frames come that the work asks for, as many as the server says, or an error does.
NOT HERE Whether they are whole: lake/reading.py checks each, by the checksums that it was written with.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.client.connection import Connection
from headwater.errors import CorruptData, Unavailable
from headwater.lake.work import LandWork
from headwater.protocol.codec import unpack
from headwater.protocol.lake_calls import FramesEnd
from headwater.protocol.streams import FRAME_COLUMN, ReadFrames


def tickets_of(work: LandWork) -> list[ReadFrames]:
    """What is to be asked for: a ticket for each run."""
    ids = unpack(work.slots, dict[int, bytes])
    return [
        ReadFrames(
            work.segment,
            tuple((ids[each.number], max(each.lsn_from, low), min(each.lsn_to, high)) for each in work.topics),
        )
        for low, high in work.runs
    ]


def frames_of(connection: Connection, work: LandWork) -> Iterator[memoryview]:
    """The frame that opens the segment, then those that were asked for, in order."""
    opened = False
    for ticket in tickets_of(work):
        frames = _frames(connection, ticket)
        opening = next(frames)
        if not opened:
            yield opening
            opened = True
        yield from frames


def _frames(connection: Connection, ticket: ReadFrames) -> Iterator[memoryview]:
    count = -1
    end: FramesEnd | None = None
    for batch, beside in connection.get(ticket):
        if batch.schema.names != [FRAME_COLUMN]:
            raise CorruptData("the server sent something else than frames")
        for each in batch.column(0):
            count += 1
            yield memoryview(each.as_buffer())
        if beside is not None:
            end = unpack(beside, FramesEnd)
    if end is None or end.frames != count:
        raise Unavailable("not all frames came that the server had to send: read them again", segment=ticket.segment)
