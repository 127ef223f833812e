"""A segment that was planned to be read, opened wherever it lies: a file, or slots of an object store.

    pack_slots      which slots hold a segment, as a plan carries it to whoever reads; nothing: it is a file
    open_segment    the segment, to be read by position

PROMISE  The same bytes at the same positions, whether they lie in slots or, merged since, in one object: a segment
         that is merged while it is read is read on from there.  One that is in neither any more, rewritten or
         deleted, is FileNotFoundError, as on a disk.
READS    A read asks for what it needs of each slot, never for less than READ_BYTES_MIN if there is so much, and keeps
         what it got last: a scan that goes on in the middle of a slot does not ask for it again.  With `readers` the
         slots of one read are asked for side by side.
         A store that does not answer is asked again for about PATIENCE_S.
NOT HERE What the bytes are: frames carry their own checksums.  The form of slots: slots.py.
"""

from __future__ import annotations

import struct
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import cast

from headwater.errors import Closed, CorruptData
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.log.slots import slot_name
from headwater.storage.files import File, Files, ShortRead
from headwater.storage.objects import Objects, StoreUnsure

READ_BYTES_MIN = 256 * 1024
READERS = 8
"""Slots that a plan's reader asks for side by side."""
PATIENCE_S = 10.0
_WAIT_S = 0.02
_SLOT = struct.Struct("<QI")

PlacedSlots = Sequence[tuple[int, int]]
"""(slot, bytes of the object) of each slot of a segment, in order."""


def pack_slots(slots: PlacedSlots) -> bytes:
    return b"".join(_SLOT.pack(slot, size) for slot, size in slots)


def unpack_slots(data: bytes) -> tuple[tuple[int, int], ...]:
    return tuple((slot, size) for slot, size in _SLOT.iter_unpack(data))


def open_segment(files: Files, directory: str, name: str, slots: bytes) -> File:
    """The segment of this name, for whoever reads a plan; `slots` is what the plan says of where it lies."""
    if not slots:
        return files.open(f"{directory}/{name}")
    # Only a bucket's plans name slots, and only a bucket's files have objects.
    objects: Objects = files.objects  # type: ignore[attr-defined]
    return open_slots(objects, directory, name, unpack_slots(slots), readers=READERS)


def open_slots(objects: Objects, directory: str, name: str, slots: PlacedSlots, *, readers: int = 1) -> File:
    """A segment that lies in these slots, open for reading."""
    return cast(File, SlotFile(objects, directory, name, slots, readers=readers))  # nobody writes what was committed


@dataclass(frozen=True)
class _Part:
    """Bytes of a segment that lie together in one object."""

    object: str
    start: int
    """Where they begin in the segment."""
    size: int
    skipped: int
    """Bytes of the object before them."""

    @property
    def end(self) -> int:
        return self.start + self.size

    def between(self, start: int, end: int) -> _Part:
        return _Part(self.object, start, min(end, self.end) - start, self.skipped + start - self.start)


@dataclass(frozen=True)
class _Got:
    """A part that was read."""

    part: _Part
    data: bytes

    @property
    def start(self) -> int:
        return self.part.start

    @property
    def end(self) -> int:
        return self.part.end

    def between(self, start: int, end: int) -> bytes | memoryview:
        if start <= self.start and self.end <= end:
            return self.data
        return memoryview(self.data)[max(start - self.start, 0) : end - self.start]


class SlotFile:
    """A File that is only read.  Safe for any number of threads."""

    def __init__(self, objects: Objects, directory: str, name: str, slots: PlacedSlots, *, readers: int = 1) -> None:
        self.name = f"{directory}/{name}"
        self._objects = objects
        self._parts = list(_parts(directory, slots))
        self._size = self._parts[-1].start + self._parts[-1].size
        self._kept: _Got | None = None
        self._readers = readers
        self._pool: ThreadPoolExecutor | None = None
        self._closed = threading.Event()

    def size(self) -> int:
        self._check_open()
        return self._size

    def read_at(self, position: int, size: int) -> bytes:
        found = self._read(position, size)
        if sum(map(len, found)) < size:
            raise ShortRead(f"{self.name}: {size} bytes at {position} go beyond its end")
        return bytes(found[0]) if len(found) == 1 else b"".join(found)

    def read_into(self, position: int, buffer: memoryview) -> int:
        at = 0
        for data in self._read(position, len(buffer)):
            buffer[at : at + len(data)] = data
            at += len(data)
        return at

    def close(self) -> None:
        self._closed.set()
        self._kept = None
        if self._pool is not None:
            self._pool.shutdown()

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise Closed(f"{self.name} is closed")

    def _read(self, position: int, size: int) -> list[bytes | memoryview]:
        self._check_open()
        end = min(position + size, self._size)
        parts = self._parts
        try:
            return self._read_parts(parts, position, end)
        except FileNotFoundError:
            if parts[0].object == self.name:
                raise
        # Its slots have been merged since it was opened: the same bytes are in one object now.
        self._parts = [_Part(self.name, 0, self._size, 0)]
        return self._read_parts(self._parts, position, end)

    def _read_parts(self, parts: list[_Part], start: int, end: int) -> list[bytes | memoryview]:
        """The bytes between two positions, from each object what it has of them."""
        found = self._got(list(self._wanted(parts, start, end)))
        for each in found[-1:]:
            self._kept = each
        return [each.between(start, end) for each in found]

    def _wanted(self, parts: list[_Part], position: int, end: int) -> Iterator[_Got | _Part]:
        """What was kept, and what must be asked for, in order."""
        kept = self._kept
        while position < end:
            if kept is not None and kept.start <= position < kept.end:
                yield kept
                position = kept.end
            else:
                part = parts[bisect_right(parts, position, key=lambda each: each.start) - 1]
                wanted = (
                    part if part.size <= READ_BYTES_MIN else part.between(position, max(end, position + READ_BYTES_MIN))
                )
                yield wanted
                position = wanted.end

    def _got(self, wanted: list[_Got | _Part]) -> list[_Got]:
        if self._readers == 1 or len(wanted) == 1:
            return [self._get(each) for each in wanted]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._readers, thread_name_prefix="headwater-slots")
        return list(self._pool.map(self._get, wanted))

    def _get(self, wanted: _Got | _Part) -> _Got:
        if isinstance(wanted, _Got):
            return wanted
        data = self._ask(wanted)
        if len(data) < wanted.size:
            raise CorruptData(
                "an object of the log is shorter than it was: run `headwater log verify`",
                object=wanted.object,
                bytes=wanted.skipped + len(data),
            )
        return _Got(wanted, data)

    def _ask(self, wanted: _Part) -> bytes:
        wait_s = waited_s = 0.0
        while True:
            try:
                return self._objects.get_range(wanted.object, wanted.skipped, wanted.size)
            except StoreUnsure:
                if waited_s >= PATIENCE_S:
                    raise
            self._closed.wait(wait_s)
            waited_s += wait_s
            wait_s = max(2 * wait_s, _WAIT_S)


def _parts(directory: str, slots: PlacedSlots) -> Iterator[_Part]:
    start = 0
    for slot, size in slots:
        # The slot that opens the segment is its beginning; of the others the first bytes are only an envelope.
        skipped = SEGMENT_FRAME_BYTES if start else 0
        yield _Part(f"{directory}/{slot_name(slot)}", start, size - skipped, skipped)
        start += size - skipped
