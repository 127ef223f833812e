"""What the appender writes, and what a reader must find of it: the invariants, checked on real processes.

HOLDS    `make_write` gives the frames of write number `counter` of a thread of a round: the same numbers give the same
         bytes in every process, so whoever reads the log back can make each body again and compare it byte for byte.
         `History` is what one directory has been told and has answered over all its rounds, and checks a reading of it.
CHECKS   V1 what was acknowledged is there, byte for byte, where the receipt said · V2 of each thread a prefix of what
         it submitted, in order, and what a recovery has shown stays · V3 offsets dense · V4 a write whole or absent
         · V5 nothing refused is there.
NOT HERE How processes are started and killed (appender_process.py), and what is lost (lossy_filesystem.py).

The appender imports this file, and its start is part of every kill: keep the imports few.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from headwater.frames.frame import Kind

if TYPE_CHECKING:
    from headwater.log import FrameLog

FUTURES_IN_FLIGHT = 4
"""How many unanswered writes a thread that appends by futures keeps."""

_NAME = struct.Struct("<8sIIIIHH")
_MAGIC = b"e2e-row\n"

OWN_TOPIC, SHARED_TOPIC = 1, 2
SHARED_PARTITIONS = 3


class Violation(AssertionError):
    """A promise was broken; the message begins with its number."""


class FrameToWrite(NamedTuple):
    topic_number: int
    partition: int
    row_count: int
    body: bytes


class WriteName(NamedTuple):
    """Which write this is, over all rounds of a directory."""

    seed: int
    round: int
    thread: int
    counter: int


def make_write(name: WriteName) -> list[FrameToWrite]:
    """The frames of a write: one to five, of the thread's own partition and of partitions that all threads share."""
    rng = random.Random(" ".join(map(str, name)))
    count = rng.choice((1, 1, 1, 2, 3, 5))
    frames = []
    for index in range(count):
        shared = index > 0 and rng.random() < 0.6
        size = rng.choice((0, 1, 60, 100, 500, 900, 3000, 5000))
        body = _NAME.pack(_MAGIC, *name, index, count) + rng.randbytes(size)
        topic_number, partition = (
            (SHARED_TOPIC, rng.randrange(SHARED_PARTITIONS)) if shared else (OWN_TOPIC, name.thread)
        )
        frames.append(FrameToWrite(topic_number, partition, rng.randint(1, 5), body))
    return frames


def name_of(body: bytes) -> WriteName:
    """The write that a body says it belongs to."""
    if body[:8] != _MAGIC:
        raise Violation(f"V4: a body that nobody wrote begins with {body[:16]!r}")
    return WriteName(*_NAME.unpack_from(body)[1:5])


def checksum_of(frames: Iterable[FrameToWrite]) -> int:
    value = 0
    for frame in frames:
        value = zlib.crc32(frame.body, value)
    return value


class Acknowledgement(NamedTuple):
    """One line of the appender: this write is durable, and lies here."""

    thread: int
    counter: int
    first_lsn: int
    last_lsn: int
    checksum: int

    def line(self) -> bytes:
        return b"a %d %d %d %d %d\n" % self


class Failure(NamedTuple):
    """One line of the appender: this write was not acknowledged, and this is the error."""

    thread: int
    counter: int
    error: str
    message: str

    def line(self) -> bytes:
        message = self.message.replace("\n", " ")
        return f"e {self.thread} {self.counter} {self.error} {message}\n".encode()


def parse_line(line: bytes) -> Acknowledgement | Failure | None:
    """What a line says; None for the appender's other lines."""
    words = line.decode().split(" ", 4)
    if words[0] == "a":
        return Acknowledgement(*(int(word) for word in line.split()[1:]))
    if words[0] == "e":
        return Failure(int(words[1]), int(words[2]), words[3], words[4])
    return None


# ------------------------------------------------------------------------------------------------ reading it back


@dataclass(frozen=True)
class StoredFrame:
    lsn: int
    kind: int
    epoch: int
    write_index: int
    write_count: int
    topic_number: int
    partition: int
    base_offset: int
    row_count: int
    body: bytes
    segment: str
    position: int
    frame_size: int


def read_frames(log: FrameLog, first_lsn: int = 1) -> list[StoredFrame]:
    """Everything that the log shows."""
    from headwater.ids import Lsn

    return [
        StoredFrame(
            frame.header.lsn,
            frame.header.kind,
            frame.header.epoch,
            frame.header.write_index,
            frame.header.write_count,
            frame.header.topic_number,
            frame.header.partition,
            frame.header.base_offset,
            frame.header.row_count,
            bytes(frame.body),
            str(frame.segment),
            frame.position,
            frame.header.frame_size,
        )
        for frame in log.read(from_lsn=Lsn(first_lsn))
    ]


def whole_writes(frames: list[StoredFrame]) -> Iterator[list[StoredFrame]]:
    """The frames, write by write; V4 if one is not whole, V3 if an LSN or an offset is missing or comes twice."""
    offsets: dict[tuple[int, int], int] = {}
    lsn, epoch, at = 0, 0, 0
    while at < len(frames):
        first = frames[at]
        write = frames[at : at + first.write_count]
        for index, frame in enumerate(write):
            if lsn and frame.lsn != lsn + 1:
                raise Violation(f"V3: LSN {frame.lsn} follows {lsn}")
            lsn = frame.lsn
            if frame.epoch < epoch:
                raise Violation(f"V3: epoch {frame.epoch} follows {epoch} at LSN {lsn}")
            epoch = frame.epoch
            if (frame.write_index, frame.write_count) != (index, first.write_count):
                raise Violation(
                    f"V4: LSN {lsn} is {frame.write_index} of {frame.write_count}, not {index} of its write"
                )
            if frame.topic_number:
                partition = (frame.topic_number, frame.partition)
                expected = offsets.get(partition, 0)
                if frame.base_offset != expected:
                    raise Violation(
                        f"V3: partition {partition} has offset {frame.base_offset}, not {expected}, at {lsn}"
                    )
                offsets[partition] = expected + frame.row_count
        if len(write) != first.write_count:
            raise Violation(f"V4: the log ends with {len(write)} of {first.write_count} frames of a write at {lsn}")
        yield write
        at += len(write)


@dataclass
class History:
    """What one directory was told and has answered, round by round, and what of it was found."""

    seed: int
    acknowledged: dict[WriteName, Acknowledgement] = field(default_factory=dict)
    refused: set[WriteName] = field(default_factory=set)
    found: list[StoredFrame] = field(default_factory=list)
    """What the last recovery showed: it must never go away again."""
    _checked: dict[WriteName, list[StoredFrame]] = field(default_factory=dict)
    """Writes that were compared with what was written, so that a hundred looks cost no more than one."""

    def add_lines(self, round_number: int, lines: Iterable[bytes]) -> list[Failure]:
        """Take in what the appender of this round said; returns the failures among it."""
        failures = []
        for line in lines:
            said = parse_line(line)
            if said is None:
                continue
            name = WriteName(self.seed, round_number, said.thread, said.counter)
            if isinstance(said, Failure):
                failures.append(said)
                if said.error == "Unavailable":
                    self.refused.add(name)
                continue
            if said.checksum != checksum_of(make_write(name)):
                raise Violation(f"the harness: {name} was not made as it should be")
            self.acknowledged[name] = said
        return failures

    def check_recovered(self, frames: list[StoredFrame]) -> None:
        """All that is promised of a log that a writer has recovered; what it shows is remembered for the next time."""
        self.check_shown(frames)
        shown = {frame.lsn for frame in frames}
        for name, said in self.acknowledged.items():
            if said.last_lsn not in shown:
                raise Violation(f"V1: {name} was acknowledged as LSN {said.first_lsn} to {said.last_lsn} and is gone")
        if frames[: len(self.found)] != self.found:
            raise Violation(f"V2: what an earlier recovery showed, up to LSN {self.found[-1].lsn}, has changed")
        self.found = frames

    def check_shown(self, frames: list[StoredFrame]) -> None:
        """All that is promised of anything that a reader is shown, be it the whole log or a beginning of it."""
        if frames and frames[0].lsn != 1:
            raise Violation(f"V1: the log begins with LSN {frames[0].lsn}")
        last_counters: dict[tuple[int, int], int] = {}
        for write in whole_writes(frames):
            if write[0].kind != Kind.DATA:
                continue
            name = name_of(write[0].body)
            self._check_write(name, write)
            thread = (name.round, name.thread)
            expected = last_counters.get(thread, -1) + 1
            while name._replace(counter=expected) in self.refused:
                expected += 1
            if name.counter != expected:
                raise Violation(f"V2: thread {thread} shows write {name.counter} where {expected} should follow")
            last_counters[thread] = expected

    def _check_write(self, name: WriteName, write: list[StoredFrame]) -> None:
        if name in self.refused:
            raise Violation(f"V5: {name} was refused and is there, at LSN {write[0].lsn}")
        if self._checked.get(name) != write:
            found = [FrameToWrite(frame.topic_number, frame.partition, frame.row_count, frame.body) for frame in write]
            if found != make_write(name):
                raise Violation(f"V1: {name} at LSN {write[0].lsn} is not what was written")
            self._checked[name] = write
        said = self.acknowledged.get(name)
        if said is not None and (said.first_lsn, said.last_lsn) != (write[0].lsn, write[-1].lsn):
            raise Violation(f"V1: {name} lies at LSN {write[0].lsn} and was acknowledged at {said.first_lsn}")
