"""Small logs for tests: made in memory or on a disk, looked at frame by frame, and broken by hand.

SEED     Entropy is drawn from a seeded random.Random and time is a ManualClock, so the same calls give the same bytes.
NOT HERE Crash states of whole lives: tests/simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headwater.clock import ManualClock
from headwater.frames.frame import Header, Kind
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, SegmentHeader, pack_segment_frame
from headwater.log import Draft, FrameLog, open_log
from headwater.log.chain import ChainEnd, seal_writes
from headwater.log.names import SegmentName, parse_segment_name
from headwater.log.segment import Opening, Scan, cleared_memory, opening_of, read_opening
from headwater.log.verify import VerifyReport, verify_log
from headwater.settings import LogSettings
from headwater.storage.files import Files
from headwater.storage.simulated import SimulatedFiles

SETTINGS = LogSettings(
    segment_size_bytes_max=1 << 20,
    write_body_bytes_max=1 << 20,
    mark_sync_idle_s=0.0,
    reserve_bytes=0,
    scan_chunk_bytes=1 << 16,
    append_timeout_s=10.0,
)
"""No background work and no reserve: what happens is what the test does."""

LOG_ID = bytes(range(16))
WAIT_S = 20.0
"""How long a test waits for a thread before it says that it hangs."""


def rows(topic: int, count: int = 1, *, partition: int = 0, body: bytes = b"") -> Draft:
    """A data frame of so many rows of a topic."""
    return Draft(
        Kind.DATA, body or f"topic {topic} ".encode() * 8, topic_number=topic, partition=partition, row_count=count
    )


def record(body: bytes = b"state") -> Draft:
    """A frame of no topic."""
    return Draft(Kind.METADATA, body)


@dataclass
class World:
    """What a log needs beside its files."""

    files: Files
    seed: int = 0
    settings: LogSettings = SETTINGS
    clock: ManualClock = field(default_factory=ManualClock)
    log_start: int = 1
    chance: Random = field(init=False)

    def __post_init__(self) -> None:
        self.chance = Random(self.seed)

    def open(self, files: Files | None = None, **more: Any) -> FrameLog:
        more.setdefault("settings", self.settings)
        more.setdefault("clock", self.clock)
        return open_log(
            files if files is not None else self.files,
            "log",
            entropy=self.chance.randbytes,
            log_start=lambda: self.log_start,
            **more,
        )

    def verify(self, files: Files | None = None, **more: Any) -> VerifyReport:
        return verify_log(files if files is not None else self.files, "log", settings=self.settings, **more)


def simulated(seed: int = 0, **more: Any) -> tuple[SimulatedFiles, World]:
    files = SimulatedFiles(seed)
    return files, World(files, seed, **more)


def fill(log: FrameLog, segments: Sequence[Sequence[Sequence[Draft]]]) -> None:
    """Append the writes of each segment, and roll between segments."""
    for number, writes in enumerate(segments):
        if number:
            log.roll()
        for drafts in writes:
            log.append(drafts)


def three_segments(world: World) -> list[str]:
    """A log of three segments, closed: LSNs 1 to 4 (the epoch first), 5 to 8 (a write of three), 9 to 10."""
    with world.open() as log:
        fill(
            log,
            [
                [[rows(1, 3)], [rows(2, 2)], [rows(1, 1)]],
                [[rows(1, 2), rows(2, 1), rows(1, 1, partition=1)], [rows(2, 4)]],
                [[rows(1, 5)], [rows(2, 1)]],
            ],
        )
        return [segment.name for segment in log.segments()]


@dataclass(frozen=True)
class Stored:
    """A frame with its bytes, as it stands in a file."""

    header: Header
    body: bytes
    data: bytes
    position: int

    @property
    def lsn(self) -> int:
        return self.header.lsn


def stored_in(files: Files, path: str) -> list[Stored]:
    """The valid frames of a segment from its beginning, as far as they go."""
    file = files.open(path)
    opening = read_opening(file)
    assert isinstance(opening, Opening), opening
    scan = Scan(file, SEGMENT_FRAME_BYTES, file.size(), opening.salted, chunk_bytes=1 << 16, memory=cleared_memory)
    return [
        Stored(header, bytes(body), file.read_at(position, header.frame_size), position)
        for position, header, body in scan
    ]


def segment_names(files: Files) -> list[str]:
    return [name for name in files.list("log") if parse_segment_name(name) is not None]


def stored(files: Files) -> dict[int, Stored]:
    """Every valid frame of a healthy log by its LSN, of the highest generation of each segment."""
    newest: dict[int, SegmentName] = {}
    for name in sorted(filter(None, map(parse_segment_name, segment_names(files)))):
        newest[name.first_lsn] = name
    with_header = [name for name in newest.values() if has_header(files, f"log/{name}")]
    return {each.lsn: each for name in with_header for each in stored_in(files, f"log/{name}")}


def has_header(files: Files, path: str) -> bool:
    file = files.open(path)
    try:
        return isinstance(read_opening(file), Opening)
    finally:
        file.close()


def names_of(findings: Iterable[Any]) -> list[str]:
    return [str(finding.name) for finding in findings]


def change(files: SimulatedFiles, path: str, position: int, data: bytes) -> None:
    """Overwrite bytes of a file, as if they had always been so."""
    before = files.contents(path)
    files.put(path, before[:position] + data + before[position + len(data) :])


def cut(files: SimulatedFiles, path: str, size: int) -> None:
    files.put(path, files.contents(path)[:size])


def spoil(files: SimulatedFiles, path: str, frame: Stored, *, body: bool = False) -> None:
    """Turn a bit of a frame's header over, or of its body."""
    at = frame.position + frame.header.header_units * 128 if body else frame.position + 40
    files.flip_bit(path, at * 8 + 3)


def snapshot(files: Files) -> dict[str, bytes]:
    """Every file of the log, by name and content."""
    found = {}
    for name in files.list("log"):
        file = files.open(f"log/{name}")
        found[name] = file.read_at(0, file.size())
        file.close()
    return found


class HandMade:
    """A segment whose frames need not follow any rule."""

    def __init__(self, header: SegmentHeader | None = None, **fields: Any) -> None:
        if header is None:
            given: dict[str, Any] = {
                "log_id": LOG_ID,
                "salt": b"saltsalt",
                "first_lsn": 1,
                "prev": 0,
                "epoch": 1,
                "created_us": 1_700_000_000_000_000,
            }
            header = SegmentHeader(**{**given, **fields})
        self.header = header
        self.data = pack_segment_frame(header)
        self.opening = opening_of(self.data)
        self.end = ChainEnd(header.first_lsn, self.opening.chain, header.epoch, header.created_us)

    @property
    def name(self) -> str:
        return str(SegmentName(self.header.first_lsn, self.header.generation))

    def write(self, *drafts: Draft, epoch: int | None = None, time_us: int | None = None, **end: Any) -> HandMade:
        """One more write; `next_lsn` and `chain` of the chain's end can be said by hand."""
        before = self.end
        start = ChainEnd(
            end.get("next_lsn", before.next_lsn),
            end.get("chain", before.chain),
            before.epoch,
            before.append_time_us,
        )
        sealed = seal_writes(
            [(drafts or (record(),), [0] * max(len(drafts), 1))],
            start,
            self.opening.salted,
            durable_lsn=end.get("durable_lsn", before.next_lsn - 1),
            epoch=epoch if epoch is not None else before.epoch,
            append_time_us=time_us if time_us is not None else before.append_time_us + 1,
        )
        self.data += b"".join(bytes(buffer) for buffer in sealed.buffers)
        self.end = sealed.end
        return self

    def put(self, files: SimulatedFiles) -> HandMade:
        files.put(f"log/{self.name}", self.data)
        return self

    def next(self, **fields: Any) -> HandMade:
        """The segment after this one."""
        given = {
            "first_lsn": self.end.next_lsn,
            "prev": self.end.chain,
            "epoch": self.end.epoch,
            "created_us": self.end.append_time_us,
            "previous_first_lsn": self.header.first_lsn,
        }
        return HandMade(**{**given, **fields})


class Crash(BaseException):
    """The machine stops here."""


def crashing_at_every_call(
    prepare: Callable[[], SimulatedFiles], act: Callable[[SimulatedFiles], object]
) -> Iterator[tuple[int, SimulatedFiles]]:
    """Do it again and again on fresh files, stopped before the first call that changes something, the second, and so
    on, until it comes through; gives the number of the call and the files as they are at that moment."""
    number = 0
    while True:
        files = prepare()
        number += 1
        left = number

        def stop(verb: str, name: str) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash(f"{verb} {name}")

        files.before_call = stop
        try:
            act(files)
        except Crash:
            files.before_call = None
            yield number, files
            continue
        files.before_call = None
        assert number > 1, "it changed nothing"
        return
