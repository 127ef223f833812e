"""Devices for tests: on simulated files, with a clock that stands still and chance from a seed.

World    makes devices over one set of files; `restarted` is the World that the next process finds after a kill.
commit   appends writes as the writer does: with the offsets that follow, and a later time each.

NOT HERE Whole logs with their writer: small_logs.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from headwater.clock import ManualClock
from headwater.frames.frame import Header, Kind, NoFrame, decode_header, salt_crc
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, SegmentHeader, decode_segment_frame
from headwater.ids import Lsn
from headwater.log.drafts import Draft
from headwater.log.file_device import FileDevice
from headwater.log.index import partition_key
from headwater.log.mark import SLOT_POSITIONS, Mark, read_mark
from headwater.log.names import SegmentName
from headwater.log.ownership import KnownOffsets
from headwater.log.segments import LogPlace
from headwater.metrics import LogCounters
from headwater.settings import LogSettings
from headwater.storage.files import Files
from headwater.storage.simulated import SimulatedFiles

DIRECTORY = "log"
MARK_PATH = f"{DIRECTORY}/mark"
SETTINGS = LogSettings(
    segment_size_bytes_max=1 << 20, write_body_bytes_max=1 << 20, reserve_bytes=0, scan_chunk_bytes=1 << 15
)


def rows(count: int = 1, *, topic: int = 1, partition: int = 0, body: bytes = b"rows") -> Draft:
    """A data frame of that many rows."""
    return Draft(Kind.DATA, body, topic_number=topic, partition=partition, row_count=count)


def commit(device: FileDevice, *writes: Sequence[Draft], time_us: int | None = None) -> Lsn:
    """One commit of these writes; returns its first LSN."""
    nexts = dict(device.next_offsets())
    placed = []
    for drafts in writes:
        bases = []
        for draft in drafts:
            key = partition_key(draft.topic_number, draft.partition)
            base = nexts.get(key, 0) if draft.kind == Kind.DATA else 0
            nexts[key] = base + draft.row_count
            bases.append(base)
        placed.append((drafts, bases))
    ticket = device.commit(placed, device.last_append_time_us() + 1 if time_us is None else time_us)
    ticket.wait()
    return ticket.first_lsn


def headers(device: FileDevice, from_lsn: int = 1, to_lsn: int | None = None) -> list[Header]:
    """What a reader gets from here to there, or to the end of what is durable."""
    last = device.durable() if to_lsn is None else Lsn(to_lsn)
    return [frame.header for frame in device.frames(Lsn(from_lsn), last)]


def lsns(device: FileDevice, from_lsn: int = 1, to_lsn: int | None = None) -> list[int]:
    return [header.lsn for header in headers(device, from_lsn, to_lsn)]


def path(first_lsn: int, generation: int = 0) -> str:
    """A segment's file."""
    return f"{DIRECTORY}/{SegmentName(first_lsn, generation)}"


def index_path(first_lsn: int, generation: int = 0) -> str:
    return f"{DIRECTORY}/{SegmentName(first_lsn, generation).index}"


class World:
    """A directory and those who open it."""

    def __init__(self, seed: int = 0, *, files: SimulatedFiles | None = None, settings: LogSettings = SETTINGS) -> None:
        self.files = SimulatedFiles(seed) if files is None else files
        self.settings = settings
        self.clock = ManualClock()
        self.entropy = Random(seed).randbytes
        self.log_start = 1

    def restarted(self) -> World:
        """What the next process finds after this one was killed."""
        return self.over(self.files.restart())

    def over(self, files: SimulatedFiles) -> World:
        other = World(files=files, settings=self.settings)
        other.clock, other.entropy, other.log_start = self.clock, self.entropy, self.log_start
        return other

    # Opening it ------------------------------------------------------------------------------

    def device(
        self,
        *,
        files: Files | None = None,
        log_start: Callable[[], int] | None = None,
        known_offsets: KnownOffsets | None = None,
    ) -> FileDevice:
        """A device that has read nothing yet."""
        place = LogPlace(self.files if files is None else files, DIRECTORY, self.settings, LogCounters())
        start = log_start if log_start is not None else lambda: self.log_start
        return FileDevice(place, clock=self.clock, entropy=self.entropy, log_start=start, known_offsets=known_offsets)

    def reader(self, *, undamaged_part: bool = False) -> FileDevice:
        device = self.device()
        device.recover(undamaged_part=undamaged_part)
        return device

    def owner(self, *, known_offsets: KnownOffsets | None = None) -> FileDevice:
        device = self.device(known_offsets=known_offsets)
        device.claim()
        return device

    # Looking at it ---------------------------------------------------------------------------

    def names(self) -> list[str]:
        return self.files.list(DIRECTORY)

    def contents(self) -> dict[str, bytes]:
        """Every file but the lock."""
        return {name: self.files.contents(f"{DIRECTORY}/{name}") for name in self.names() if name != "lock"}

    def mark(self) -> Mark:
        mark = read_mark(self.files.open(MARK_PATH))
        assert mark is not None
        return mark

    def opening(self, first_lsn: int = 1) -> tuple[SegmentHeader, int]:
        """A segment's header and its chain value."""
        decoded = decode_segment_frame(memoryview(self.files.contents(path(first_lsn))))
        assert not isinstance(decoded, NoFrame)
        return decoded

    def salted(self, first_lsn: int = 1) -> int:
        return salt_crc(self.opening(first_lsn)[0].salt)

    def header_at(self, position: int, first_lsn: int = 1) -> Header:
        header = decode_header(memoryview(self.files.contents(path(first_lsn))), position, self.salted(first_lsn))
        assert isinstance(header, Header)
        return header

    def frame_positions(self, first_lsn: int = 1) -> list[int]:
        """Where the frames of a segment stand."""
        size = len(self.files.contents(path(first_lsn)))
        found = []
        at = SEGMENT_FRAME_BYTES
        while at < size:
            found.append(at)
            at += self.header_at(at, first_lsn).frame_size
        return found

    # Breaking it -----------------------------------------------------------------------------

    def change(self, name: str, at: int, data: bytes) -> None:
        """Put other bytes into a file, as if they had always been there."""
        content = bytearray(self.files.contents(name))
        content[at : at + len(data)] = data
        self.files.put(name, bytes(content))

    def cut(self, name: str, size: int) -> None:
        self.files.put(name, self.files.contents(name)[:size])

    def remove(self, name: str) -> None:
        self.files.unlink(name)
        self.files.sync_directory(DIRECTORY)

    def forget_the_mark(self) -> None:
        """As if no mark had ever reached the disk."""
        self.files.put(MARK_PATH, bytes(SLOT_POSITIONS[1] + 64))


def three_segments(world: World) -> FileDevice:
    """An owner whose log has two sealed segments, LSNs 1 to 2 and 3 to 4, and 5 to 6 in the active one."""
    device = world.owner()
    for number in range(3):
        if number:
            device.roll()
        commit(device, [rows(2)], [rows(3, topic=2)])
    return device
