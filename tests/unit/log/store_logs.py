"""Logs on a simulated store, small enough that everything happens soon."""

from __future__ import annotations

from random import Random

from headwater.clock import ManualClock
from headwater.frames.frame import Kind
from headwater.log.drafts import Draft
from headwater.log.frame_log import FrameLog, open_log
from headwater.log.object_device import ObjectDevice
from headwater.settings import LogSettings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.objects import Objects

SETTINGS = LogSettings(
    segment_size_bytes_max=4096,
    write_body_bytes_max=4096,
    reserve_bytes=0,
    scan_chunk_bytes=1 << 15,
    commit_interval_s=0.0,
    append_timeout_s=2.0,
)


def bucket(
    store: Objects, *, clock: ManualClock | None = None, seed: int = 0, take_over: bool = False, threads: bool = False
) -> BucketFiles:
    """Another process's look at a store: it remembers nothing."""
    files = BucketFiles(
        store,
        clock=clock if clock is not None else ManualClock(),
        entropy=Random(seed).randbytes,
        take_over=take_over,
        threads=threads,
        host="a-machine",
    )
    if threads:
        files.pause = lambda _: None
    return files


def opened(files: BucketFiles, directory: str = "log", *, log_start: int = 1, seed: int = 1) -> FrameLog:
    return open_log(
        files,
        directory,
        settings=SETTINGS,
        clock=files.clock,
        entropy=Random(seed).randbytes,
        log_start=log_start,
    )


def device_of(log: FrameLog) -> ObjectDevice:
    assert isinstance(log.device, ObjectDevice)
    return log.device


def rows(count: int = 1, *, topic: int = 1, body: bytes = b"rows") -> Draft:
    return Draft(Kind.DATA, body, topic_number=topic, row_count=count)


def append(log: FrameLog, commits: int, *, body: bytes = b"rows") -> int:
    """The last LSN of so many commits."""
    last = 0
    for _ in range(commits):
        last = log.append([rows(body=body)]).last_lsn
    return last


def bodies(log: FrameLog) -> list[bytes]:
    """What a log holds, of data alone."""
    segments = log.segments()
    first = segments[0].first_lsn if segments else None
    return [bytes(frame.body) for frame in (log.read(first) if first else ()) if frame.header.kind == Kind.DATA]
