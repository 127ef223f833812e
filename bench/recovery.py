"""What does it cost to read a log back: to verify it, to open it after a kill, to open it after a clean close?

VERIFY   a log of 64 KiB frames, against reading the same files in order with the same checksum.  Alternately, in
         pairs, everything in the page cache, so that the work on top of the disk shows.
KILLED   a log whose process ended without a close; opening is `open_log` and `claim`.  A log four times as large
         may not take much longer: only the newest segment is scanned, and that is equally full in both, with
         frames of 1 KiB, which are many.  Alternately; each opening is a process of its own that ends without a
         close, so that the next one finds the same state.
CLEAN    the larger log after a close.
MEMORY   what a process grows by with a million frames in the segment that is being written.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from bench._place import GIB, KIB, MIB, machine, median, place
from bench.report import Report, at_least, at_most
from headwater.frames.checksum import crc32c
from headwater.frames.frame import Kind, frame_size
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.log import Draft, open_log
from headwater.log.verify import verify_log
from headwater.settings import LogSettings
from headwater.storage.disk import DiskFiles

VERIFY_BODY_BYTES = 64 * KIB - 128
"""Frames of exactly 64 KiB."""
LARGE_BODY_BYTES = 8 * MIB
SMALL_BODY_BYTES = 1 * KIB
READ_BYTES = 1 * MIB


def run(quick: bool) -> Report:
    verify_bytes = 256 * MIB if quick else 1 * GIB
    sizes = (256 * MIB, 1 * GIB) if quick else (2 * GIB, 8 * GIB)
    segment_bytes = 64 * MIB if quick else 256 * MIB
    pairs = 7
    openings = 5 if quick else 7
    frames = 500_000 if quick else 1_000_000
    settings = LogSettings(segment_size_bytes_max=segment_bytes)
    figures: dict[str, float] = {}
    with place(verify_bytes + sum(sizes) + 2 * segment_bytes) as directory:
        verify_ratio = _verify(directory / "verify", settings, verify_bytes, pairs, figures)
        growth, clean_s = _openings(directory, settings, sizes, openings, figures)
        memory_mb = _memory(directory / "memory", frames)
    return Report(
        bench="recovery",
        settings={
            "verify_bytes": verify_bytes,
            "verify_frame_bytes": frame_size(VERIFY_BODY_BYTES),
            "pairs": pairs,
            "smaller_log_bytes": sizes[0],
            "larger_log_bytes": sizes[1],
            "segment_bytes": segment_bytes,
            "newest_segment_frame_bytes": frame_size(SMALL_BODY_BYTES),
            "openings": openings,
            "memory_frames": frames,
            "page_cache": "warm",
            **machine(),
        },
        figures=figures,
        bars=(
            at_least("verify of 64 KiB frames, share of bare reading with the same checksum", verify_ratio, 0.5),
            at_most("opening a killed log four times as large, to opening the smaller one", growth, 1.5),
            at_most("opening the larger log after a clean close, seconds", clean_s, 1.0),
            at_most("memory of a million frames in the active segment, MB", memory_mb, 40.0),
        ),
    )


# Verify ----------------------------------------------------------------------------------------


def _verify(root: Path, settings: LogSettings, size: int, pairs: int, figures: dict[str, float]) -> float:
    """The median share of the bare rate that checking every frame and the chain reaches."""
    with open_log(DiskFiles(root), "log", settings=settings) as log:
        body = os.urandom(VERIFY_BODY_BYTES)
        a_write = 256
        for _ in range(size // (a_write * frame_size(VERIFY_BODY_BYTES))):
            log.append([Draft(Kind.DATA, body, topic_number=1, row_count=1) for _ in range(a_write)])
    paths = sorted((root / "log").glob("*.seg"))
    total = sum(path.stat().st_size for path in paths)
    _check_all(root, settings)
    ours_s: list[float] = []
    bare_s: list[float] = []
    for pair in range(pairs):
        for ours in (True, False) if pair % 2 == 0 else (False, True):
            started = time.perf_counter()
            if ours:
                _check_all(root, settings)
            else:
                _read_all(paths)
            (ours_s if ours else bare_s).append(time.perf_counter() - started)
    figures["verify_mb_per_s"] = total / median(ours_s) / 1e6
    figures["bare_reading_mb_per_s"] = total / median(bare_s) / 1e6
    return median([bare / ours for ours, bare in zip(ours_s, bare_s, strict=True)])


def _check_all(root: Path, settings: LogSettings) -> None:
    """What `headwater log verify` does."""
    report = verify_log(DiskFiles(root), "log", settings=settings)
    assert report.ok, report.findings


def _read_all(paths: list[Path]) -> None:
    """The same bytes from beginning to end, with the same checksum, and nothing else."""
    buffer = memoryview(bytearray(READ_BYTES))
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        crc = 0
        while got := os.readv(fd, (buffer,)):
            crc = crc32c(buffer[:got], crc)
        os.close(fd)


# Opening ---------------------------------------------------------------------------------------


def _openings(
    directory: Path, settings: LogSettings, sizes: tuple[int, int], openings: int, figures: dict[str, float]
) -> tuple[float, float]:
    """How many times longer the larger killed log takes to open, and the seconds of a clean one."""
    roots = tuple(directory / f"killed-{size // MIB}-mib" for size in sizes)
    for root, size in zip(roots, sizes, strict=True):
        in_child(lambda root=root, size=size: _write_and_die(root, settings, size))  # type: ignore[misc]
    seconds: tuple[list[float], list[float]] = ([], [])
    for opening in range(openings + 1):
        for side in (0, 1) if opening % 2 == 0 else (1, 0):
            taken = in_child(lambda side=side: _open_killed(roots[side], settings))  # type: ignore[misc]
            # The first opening of each brings what is read into the page cache.
            if opening:
                seconds[side].append(taken)
    figures["killed_smaller_open_s"] = median(seconds[0])
    figures["killed_larger_open_s"] = median(seconds[1])
    figures["newest_segment_frames"] = _newest_frames(settings)
    clean_s = [in_child(lambda: _open_and_close(roots[1], settings)) for _ in range(openings + 1)][1:]
    figures["clean_larger_open_s"] = median(clean_s)
    return median([larger / smaller for smaller, larger in zip(*seconds, strict=True)]), median(clean_s)


def _newest_frames(settings: LogSettings) -> int:
    """How many small frames make the newest segment three quarters full."""
    return settings.segment_size_bytes_max * 3 // 4 // frame_size(SMALL_BODY_BYTES)


def _write_and_die(root: Path, settings: LogSettings, size: int) -> float:
    """Sealed segments of large frames, then a newest one of small frames; never closed."""
    log = open_log(DiskFiles(root), "log", settings=settings)
    large, small = os.urandom(LARGE_BODY_BYTES), os.urandom(SMALL_BODY_BYTES)
    a_segment = (settings.segment_size_bytes_max - SEGMENT_FRAME_BYTES) // frame_size(LARGE_BODY_BYTES)
    for _ in range(size // settings.segment_size_bytes_max - 1):
        for _ in range(a_segment):
            log.append([Draft(Kind.DATA, large, topic_number=1, row_count=1)])
        log.roll()
    left = _newest_frames(settings)
    while left > 0:
        count = min(left, 1000)
        log.append([Draft(Kind.DATA, small, topic_number=2, partition=n % 100, row_count=1) for n in range(count)])
        left -= count
    return 0.0


def _open_killed(root: Path, settings: LogSettings) -> float:
    started = time.perf_counter()
    log = open_log(DiskFiles(root), "log", settings=settings)
    report = log.claim()
    seconds = time.perf_counter() - started
    assert not report.clean and report.frames_scanned >= _newest_frames(settings), report
    return seconds


def _open_and_close(root: Path, settings: LogSettings) -> float:
    started = time.perf_counter()
    log = open_log(DiskFiles(root), "log", settings=settings)
    log.claim()
    seconds = time.perf_counter() - started
    log.close()
    return seconds


# Memory ----------------------------------------------------------------------------------------


def _memory(root: Path, frames: int) -> float:
    """MB by which a process grows with these frames in its active segment, for a million of them."""
    return in_child(lambda: _grow(root, frames)) * 1_000_000 / frames


def _grow(root: Path, frames: int) -> float:
    a_write = 500
    log = open_log(DiskFiles(root), "log", settings=LogSettings(segment_size_bytes_max=4 * GIB))

    def write() -> None:
        log.append([Draft(Kind.DATA, b"", topic_number=1, partition=n % 100, row_count=1) for n in range(a_write)])

    # What a process needs for its first writes at all is not the frames' part.
    for _ in range(20):
        write()
    gc.collect()
    before = _resident_bytes()
    for _ in range(frames // a_write):
        write()
    gc.collect()
    return (_resident_bytes() - before) / 1e6


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


# Processes -------------------------------------------------------------------------------------


def in_child(act: Callable[[], float]) -> float:
    """What `act` returns in a process of its own, which then ends without closing anything."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(writing, json.dumps(act()).encode())
            os._exit(0)
        finally:
            # Only an error comes here.  Nothing of the parent's may run in this process, its clearing up included.
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit(f"a process of this bench failed with status {status}; its error stands above")
    value = json.loads(answer)
    assert isinstance(value, float)
    return value
