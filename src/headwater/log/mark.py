"""The mark: how far the log is known to be durable, for readers in other processes and for recovery.

A file of two slots of 64 bytes, at 0 and at 4096, so that no sector holds both.  Little-endian:

at   size  field
0    4     magic         C8 48 57 4D
4    4     crc           CRC-32C of the slot from byte 8 on
8    8     counter       rises by one at each write; the slot is counter mod 2
16   16    log id
32   8     durable LSN
40   8     segment       the first LSN of the segment that holds it
48   8     position      the end of that frame in the segment: readers read no byte beyond it
56   4     epoch
60   4     flags         1: the log was closed cleanly at this point

VALID    magic and crc agree.  The valid slot with the greater counter is the mark.
PROMISE  It is written only after a sync has returned, so it is true whenever it is readable, and at worst
         old.  It is synced when a writer claims the log, when the log is idle, and at close.
WHY      A claim's mark is synced before its first frame: from then on frames of an earlier epoch behind the
         mark are known to be stale, even where a file system gives old blocks back (G5).  For the same reason
         an owner that has taken a write back begins a new epoch before it refuses it (G6).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headwater.frames.checksum import crc32c
from headwater.log.names import MARK
from headwater.storage.files import File, Files

MAGIC = b"\xc8HWM"
SLOT_BYTES = 64
SLOT_POSITIONS = (0, 4096)
CLEAN = 1

_SLOT = struct.Struct("<4sIQ16sQQQII")
assert _SLOT.size == SLOT_BYTES


class Mark(NamedTuple):
    counter: int
    log_id: bytes
    durable_lsn: int
    segment: int
    position: int
    epoch: int
    clean: bool = False


def pack_slot(mark: Mark) -> bytes:
    flags = CLEAN if mark.clean else 0
    rest = _SLOT.pack(
        MAGIC, 0, mark.counter, mark.log_id, mark.durable_lsn, mark.segment, mark.position, mark.epoch, flags
    )[8:]
    return MAGIC + crc32c(rest).to_bytes(4, "little") + rest


def unpack_slot(data: bytes) -> Mark | None:
    """The mark in a slot, or nothing where the slot is not valid."""
    if len(data) != SLOT_BYTES:
        return None
    magic, crc, counter, log_id, durable_lsn, segment, position, epoch, flags = _SLOT.unpack(data)
    if magic != MAGIC or crc32c(data[8:]) != crc:
        return None
    return Mark(counter, log_id, durable_lsn, segment, position, epoch, bool(flags & CLEAN))


def read_mark(file: File) -> Mark | None:
    """The newer of the two slots that is valid, if one is."""
    newest: Mark | None = None
    for position in SLOT_POSITIONS:
        data = bytearray(SLOT_BYTES)
        got = file.read_into(position, memoryview(data))
        mark = unpack_slot(bytes(data[:got]))
        if mark is not None and (newest is None or mark.counter > newest.counter):
            newest = mark
    return newest


def read_mark_of(files: Files, directory: str) -> Mark | None:
    """The mark of the log in a directory, or nothing where there is none that can be read."""
    try:
        file = files.open(f"{directory}/{MARK}")
    except FileNotFoundError:
        return None
    try:
        return read_mark(file)
    finally:
        file.close()


class MarkWriter:
    """Writes the two slots in turn."""

    def __init__(self, file: File, last: Mark) -> None:
        self._file = file
        self.last = last
        self.dirty = True

    def write(self, *, durable_lsn: int, segment: int, position: int, clean: bool = False) -> None:
        """Say that the log is durable up to here.  Call it only after the sync that made it true."""
        last = self.last
        mark = Mark(last.counter + 1, last.log_id, durable_lsn, segment, position, last.epoch, clean)
        self._file.write_at(SLOT_POSITIONS[mark.counter % 2], pack_slot(mark))
        self.last = mark
        self.dirty = True

    def begin_epoch(self, epoch: int) -> None:
        """Say durably that behind this point only this epoch writes: what an earlier one left there is stale."""
        last = self.last = self.last._replace(epoch=epoch)
        self.write(durable_lsn=last.durable_lsn, segment=last.segment, position=last.position)
        self.sync()

    def write_again(self, mark: Mark) -> None:
        """Write a mark that was read to the slot that it was read from, so that the next sync covers it."""
        self._file.write_at(SLOT_POSITIONS[mark.counter % 2], pack_slot(mark))

    def sync(self) -> None:
        """Make the last mark durable."""
        self.dirty = False
        self._file.sync_data()

    def close(self) -> None:
        self._file.close()
