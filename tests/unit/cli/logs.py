"""Logs on a real disk for the commands to look at, and the ways in which they are broken.

`make_log` makes three segments: LSN 1 is the claim's epoch, and each segment has three writes of two frames, of topic
1 and of topic 2.  All ways of breaking one change bytes as rot, a crash or a person with `rm` would.
"""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner, Result

from headwater.cli.main import app
from headwater.clock import ManualClock
from headwater.frames.frame import Kind
from headwater.log import Draft, FrameLog, open_log
from headwater.settings import LogSettings
from headwater.storage.disk import DiskFiles

SETTINGS = LogSettings(reserve_bytes=0)
SEGMENTS = 3
WRITES_PER_SEGMENT = 3
LAST_LSN = 1 + SEGMENTS * WRITES_PER_SEGMENT * 2
FRAME_BYTES = 256
OPENING_BYTES = 256


def open_at(data: Path) -> FrameLog:
    return open_log(DiskFiles(data), "log", settings=SETTINGS, clock=ManualClock())


def append_one(log: FrameLog) -> None:
    log.append(
        [
            Draft(kind=Kind.DATA, topic_number=1, partition=0, row_count=2, body=b"two rows"),
            Draft(kind=Kind.DATA, topic_number=2, partition=7, row_count=1, body=b"one more row"),
        ]
    )


def make_log(data: Path, *, closed: bool = True) -> Path:
    """A healthy log of three segments; not `closed`: as a killed process leaves it."""
    log = open_at(data)
    for segment in range(SEGMENTS):
        for _ in range(WRITES_PER_SEGMENT):
            append_one(log)
        if segment < SEGMENTS - 1:
            log.roll()
    if closed:
        log.close()
    else:
        # What the kernel would do with a killed process: let go, without a word in the mark.
        log.device._owner.lock.release()  # type: ignore[union-attr]
    return data


def segment_files(data: Path) -> list[Path]:
    return sorted((data / "log").glob("*.seg"))


def flip_a_byte(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0x10
    path.write_bytes(content)


def damage_a_sealed_segment(data: Path) -> Path:
    """Rot in the body of the second frame of the first segment: LSN 2 of the write of LSN 2 and 3."""
    flip_a_byte(segment_files(data)[0], OPENING_BYTES + FRAME_BYTES + 130)
    return data


def cut_the_newest(data: Path) -> Path:
    """The last write of a cleanly closed log is gone, although it was durable."""
    path = segment_files(data)[-1]
    path.write_bytes(path.read_bytes()[: -2 * FRAME_BYTES])
    return data


def tear_the_tail(data: Path) -> Path:
    """Bytes of a write that was never finished, behind what is durable."""
    path = segment_files(data)[-1]
    path.write_bytes(path.read_bytes() + path.read_bytes()[-FRAME_BYTES : -FRAME_BYTES // 2])
    return data


def run(*args: str | Path, env: dict[str, str] | None = None, keys: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(each) for each in args], env=env, input=keys)
