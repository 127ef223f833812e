"""What a caller hands to the log, and what the log answers.

A Draft is a frame before it has a place: its kind, its stored body, and whose rows it holds.
A list of drafts is one write: durable and visible together, or not at all.
The body's checksum is made here, in the caller's thread, so that whoever holds the baton
does not have to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.errors import InvalidRequest, TooLarge
from headwater.frames.frame import (
    BODY_SIZE_BYTES_MAX,
    SKIPPABLE_KIND_FIRST,
    WRITE_FRAMES_MAX,
    Codec,
    Flag,
    Kind,
    body_crc,
    frame_size,
)
from headwater.ids import Lsn, Offset
from headwater.settings import LogSettings
from headwater.storage.files import Buffer

_MADE_BY_THE_LOG = frozenset({Kind.SEGMENT, Kind.EPOCH, Kind.GAP, Kind.SPARSE})
_FLAGS_FOR_CALLERS = int(Flag.TRANSACTION | Flag.TOMBSTONES)


@dataclass(slots=True)
class Draft:
    """A frame to be: rows of one partition, or a record of the log's users."""

    kind: int
    body: Buffer
    topic_number: int = 0
    partition: int = 0
    row_count: int = 0
    schema_version: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    sequence: int = 0
    flags: int = 0
    codec: int = Codec.NONE
    time_min_us: int | None = None
    """Of the topic's declared time column; None: the append time."""
    time_max_us: int | None = None
    body_size: int = field(init=False)
    body_crc: int = field(init=False)
    frame_size: int = field(init=False)

    def __post_init__(self) -> None:
        # A memoryview of anything but bytes would count items here and bytes on the disk.
        size = self.body.nbytes if isinstance(self.body, memoryview) else len(self.body)
        if size > BODY_SIZE_BYTES_MAX:
            raise TooLarge(
                "the body of a frame is above the limit: split the rows into several frames of one write",
                body_bytes=size,
                limit_bytes=BODY_SIZE_BYTES_MAX,
            )
        self.body_size = size
        self.body_crc = body_crc(self.body)
        self.frame_size = frame_size(size)


class Receipt(NamedTuple):
    """The answer to one write: it is durable, and this is where."""

    first_lsn: Lsn
    last_lsn: Lsn
    base_offsets: tuple[Offset, ...]
    """One a draft; 0 where the draft has no rows of a topic."""
    append_time_us: int


def check_write(drafts: Sequence[Draft], settings: LogSettings) -> int:
    """Refuse what the format or the settings do not allow, before anything is written.

    Returns the bytes that the write will take in the segment.
    """
    if not drafts:
        raise InvalidRequest("a write has at least one frame")
    if len(drafts) > WRITE_FRAMES_MAX:
        raise TooLarge("a write has too many frames: split it", frames=len(drafts), limit=WRITE_FRAMES_MAX)
    body_bytes = 0
    frame_bytes = 0
    for draft in drafts:
        if draft.kind in _MADE_BY_THE_LOG or not (draft.kind in Kind._value2member_map_ or _skippable(draft.kind)):
            raise InvalidRequest("a frame of this kind cannot be appended", kind=draft.kind)
        if draft.flags & ~_FLAGS_FOR_CALLERS:
            raise InvalidRequest("a frame with these flags cannot be appended", flags=draft.flags)
        body_bytes += draft.body_size
        frame_bytes += draft.frame_size
    if body_bytes > settings.write_body_bytes_max:
        raise TooLarge(
            "the bodies of a write are above the limit: use several writes, which are not atomic together",
            body_bytes=body_bytes,
            limit_bytes=settings.write_body_bytes_max,
        )
    return frame_bytes


def _skippable(kind: int) -> bool:
    return SKIPPABLE_KIND_FIRST <= kind <= 255
