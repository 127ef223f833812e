"""A segment file, read: its header, and a scan of its frames.

PROMISE  A scan yields only valid frames, in order, and says where and why it stopped.
         It never allocates more than a chunk, or one frame of at most 64 MiB.
NOT HERE The chain over frames: chain.py.  What a stop means: recovery.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from headwater.errors import CorruptData
from headwater.frames.frame import (
    MAGIC,
    UNIT_BYTES,
    Header,
    Kind,
    NoFrame,
    check_body,
    decode_header,
    salt_crc,
)
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, SegmentHeader, decode_segment_frame
from headwater.storage.files import File

_HEADER_BYTES_MAX = 255 * UNIT_BYTES


@dataclass(frozen=True)
class Stop:
    """Where a scan found no further valid frame, and why."""

    position: int
    reason: NoFrame


@dataclass(frozen=True)
class Opening:
    """The beginning of a segment, decoded."""

    header: SegmentHeader
    chain: int
    salted: int
    data: bytes
    """The 256 bytes themselves."""


def read_opening(file: File) -> Opening | NoFrame:
    """What the segment says of itself, or why it says nothing."""
    data = bytearray(SEGMENT_FRAME_BYTES)
    got = file.read_into(0, memoryview(data))
    decoded = decode_segment_frame(memoryview(data)[:got])
    if isinstance(decoded, NoFrame):
        return decoded
    header, chain = decoded
    return Opening(header, chain, salt_crc(header.salt), bytes(data))


def opening_of(data: bytes) -> Opening:
    """The same from the bytes of a segment frame that has just been packed."""
    decoded = decode_segment_frame(memoryview(data))
    assert not isinstance(decoded, NoFrame)
    header, chain = decoded
    return Opening(header, chain, salt_crc(header.salt), data)


Memory = Callable[[int], memoryview]
"""Where bodies go that are kept: so many bytes that can be written, whatever they hold."""


def cleared_memory(size: int) -> memoryview:
    """New bytes of Python's."""
    return memoryview(bytearray(size))


class Scan:
    """The valid frames of a file from `start` to `end`: (position, header, stored body).

    The bodies are good only until the next one is asked for; with `memory` each chunk is memory of its own, of that
    kind, and the bodies may be kept.

    A frame that is not `wanted` comes with an empty body: its header has been checked, its body has not, and is
    not even read where it goes on behind the chunk.
    """

    def __init__(
        self,
        file: File,
        start: int,
        end: int,
        salted: int,
        *,
        chunk_bytes: int,
        memory: Memory | None = None,
        wanted: Callable[[Header], bool] | None = None,
    ) -> None:
        assert start % UNIT_BYTES == 0
        self._file = file
        self._start = start
        self._end = end
        self._salted = salted
        # At least the longest header that the format allows, so that one read always holds a header.
        self._chunk_bytes = max(chunk_bytes, _HEADER_BYTES_MAX)
        self._memory = memory
        self._buffer = memoryview(b"")
        self._wanted = wanted
        self.stop = Stop(start, NoFrame.END)
        """Where and why it stopped: true once the iteration is over."""

    def __iter__(self) -> Iterator[tuple[int, Header, memoryview]]:
        position = base = self._start
        view = memoryview(b"")
        salted = self._salted
        is_wanted = self._wanted
        size = 0
        while True:
            at = position - base
            header = decode_header(view, at, salted) if len(view) - at >= UNIT_BYTES else NoFrame.SHORT
            if not isinstance(header, NoFrame):
                body_size = header.body_size
                start = header.header_units * UNIT_BYTES
                size = start + body_size + header.padding_size
                if is_wanted is not None and not is_wanted(header) and position + size <= self._end:
                    yield position, header, view[:0]
                    position += size
                    size = 0
                    continue
                if at + size <= len(view):
                    broken = check_body(header, view, at)
                    if broken is not None:
                        self.stop = Stop(position, broken)
                        return
                    start += at
                    yield position, header, view[start : start + body_size]
                    position += size
                    continue
            elif header is not NoFrame.SHORT:
                self.stop = Stop(position, header)
                return
            # The frame goes on behind what has been read: read from its beginning, if there is more.
            wanted = min(self._next_read_bytes(size), self._end - position)
            if at == 0 and wanted <= len(view):
                self.stop = Stop(position, self._why_short(header, view))
                return
            view = memoryview(b"")
            view = self._read(position, wanted)
            if len(view) < wanted:
                self._end = position + len(view)
            base = position

    def _next_read_bytes(self, frame_bytes: int) -> int:
        """A chunk, cut where frames as long as this one, the last that was read, would end: a frame that is read
        only in part is read again."""
        if frame_bytes > self._chunk_bytes:
            return frame_bytes
        rest = self._chunk_bytes % frame_bytes if frame_bytes else 0
        return max(self._chunk_bytes - rest, _HEADER_BYTES_MAX)

    def _read(self, position: int, wanted: int) -> memoryview:
        if self._memory is not None:
            buffer = self._memory(wanted)
        else:
            if wanted > len(self._buffer):
                self._buffer = cleared_memory(wanted)
            buffer = self._buffer[:wanted]
        return buffer[: self._file.read_into(position, buffer)]

    @staticmethod
    def _why_short(header: Header | NoFrame, view: memoryview) -> NoFrame:
        if isinstance(header, NoFrame) and not any(view):
            return NoFrame.END
        return NoFrame.SHORT


def valid_headers_after(
    file: File, start: int, end: int, salted: int, *, chunk_bytes: int
) -> Iterator[tuple[int, Header]]:
    """Every header from `start` on that is valid by itself, at any multiple of 128, whatever lies between.

    Used to learn what a broken tail knew.  A body can hold bytes that look like a header, but not
    with this segment's salt in their checksum.
    """
    position = start - start % UNIT_BYTES
    chunk_bytes = max(chunk_bytes - chunk_bytes % UNIT_BYTES, 4 * UNIT_BYTES)
    buffer = bytearray(chunk_bytes)
    while position < end:
        # Two units of overlap would not be enough for headers of many units; those are read where they lie.
        got = file.read_into(position, memoryview(buffer)[: min(chunk_bytes, end - position)])
        if got < UNIT_BYTES:
            return
        at = buffer.find(MAGIC, 0, got)
        while at >= 0:
            if at % UNIT_BYTES == 0:
                header = _header_at(file, position + at, end, salted)
                # A SEGMENT frame is sealed without the salt, so anybody can make one and store it in a body.
                if header is not None and header.kind != Kind.SEGMENT:
                    yield position + at, header
            at = buffer.find(MAGIC, at + 1, got)
        position += got - got % UNIT_BYTES


def _header_at(file: File, position: int, end: int, salted: int) -> Header | None:
    size = min(255 * UNIT_BYTES, end - position)
    data = bytearray(size)
    got = file.read_into(position, memoryview(data))
    header = decode_header(memoryview(data)[:got], 0, salted)
    return None if isinstance(header, NoFrame) else header


def read_frame(file: File, position: int, salted: int, memory: Memory = cleared_memory) -> tuple[Header, memoryview]:
    """The frame at a place where one is known to be; CorruptData where it is not valid."""
    header = read_header(file, position, salted)
    whole = memory(header.frame_size)
    got = file.read_into(position, whole)
    broken = check_body(header, whole[:got], 0)
    if broken is not None:
        raise _corrupt(file, position, broken)
    start = header.header_units * UNIT_BYTES
    return header, whole[start : start + header.body_size]


def read_header(file: File, position: int, salted: int) -> Header:
    """The header of such a frame."""
    data = memoryview(bytearray(UNIT_BYTES))
    got = file.read_into(position, data)
    header = decode_header(data[:got], 0, salted)
    if header is NoFrame.SHORT and got == UNIT_BYTES:
        # A header of several units: read it whole.
        units = data[12]
        data = memoryview(bytearray(units * UNIT_BYTES))
        got = file.read_into(position, data)
        header = decode_header(data[:got], 0, salted)
    if isinstance(header, NoFrame):
        raise _corrupt(file, position, header)
    return header


def _corrupt(file: File, position: int, reason: NoFrame) -> CorruptData:
    return CorruptData(
        f"a frame cannot be read: {reason.value}; run `headwater log verify`", file=file.name, position=position
    )
