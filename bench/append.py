"""What does an append cost beside the bare write and sync that it cannot do without?

BATCHES  1 MiB frames through `append`, against pwritev and fdatasync of the same buffers to a file that grows
         in the same directory.  In pairs, in which both take turns; the median of the pairs' ratios counts.
MANY     64 threads of 1 KiB appends: how many share a sync, and how many times one thread's rate they reach.
ONE      p50 and p99 of a single 1 KiB append, beside the bare calls.

Bodies are random bytes made beforehand; their checksums are made inside what is timed, as `append`'s caller
would.  The log's own settings are the defaults.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench._place import KIB, MIB, machine, median, percentile, place
from bench.report import Report, at_least
from headwater.frames.frame import Kind, frame_size
from headwater.log import Draft, FrameLog, open_log
from headwater.storage.disk import DiskFiles

BATCH_BYTES = 1 * MIB
SMALL_BYTES = 1 * KIB
THREADS = 64


class BareFile:
    """A file that grows by the frames' bytes, with nothing around the two calls."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._end = 0

    def append(self, buffers: list[bytes]) -> None:
        self._end += os.pwritev(self._fd, buffers, self._end)
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def run(quick: bool) -> Report:
    pairs = 7 if quick else 15
    batches = 16 if quick else 64
    rounds = 3 if quick else 5
    appends_each = 100 if quick else 400
    singles = 600 if quick else 4000
    need = 2 * pairs * batches * BATCH_BYTES + 512 * MIB
    figures: dict[str, float] = {}
    with place(need) as directory, open_log(DiskFiles(directory), "log") as log:
        bare = BareFile(directory / "bare")
        try:
            log.claim()
            batch_ratio = _batches(log, bare, pairs, batches, figures)
            per_sync = _many(log, rounds, appends_each, figures)
            _one(log, bare, singles, figures)
        finally:
            bare.close()
    return Report(
        bench="append",
        settings={
            "batch_bytes": BATCH_BYTES,
            "pairs": pairs,
            "batches_a_side": batches,
            "threads": THREADS,
            "small_bytes": SMALL_BYTES,
            "appends_a_thread": appends_each,
            "rounds": rounds,
            "single_appends": singles,
            **machine(),
        },
        figures=figures,
        bars=(
            at_least("1 MiB batches, share of bare write + fdatasync (median of pairs)", batch_ratio, 0.85),
            at_least("64 threads of 1 KiB, appends per sync", per_sync, 20.0),
        ),
    )


def _batches(log: FrameLog, bare: BareFile, pairs: int, batches: int, figures: dict[str, float]) -> float:
    """The median share of the bare rate that batches reach."""
    bodies = [os.urandom(BATCH_BYTES) for _ in range(8)]
    header = os.urandom(frame_size(BATCH_BYTES) - BATCH_BYTES)

    def ours(body: bytes) -> None:
        log.append([Draft(Kind.DATA, body, topic_number=1, row_count=1000)])

    def theirs(body: bytes) -> None:
        bare.append([header, body])

    _pair(ours, theirs, bodies, batches)
    seconds = [_pair(ours, theirs, bodies, batches) for _ in range(pairs)]
    ratios = [bare_s / ours_s for ours_s, bare_s in seconds]
    size = batches * BATCH_BYTES
    figures["batch_mb_per_s"] = size / median([ours_s for ours_s, _ in seconds]) / 1e6
    figures["batch_bare_mb_per_s"] = size / median([bare_s for _, bare_s in seconds]) / 1e6
    figures["batch_ratio_lowest"] = min(ratios)
    figures["batch_ratio_highest"] = max(ratios)
    return median(ratios)


def _pair(
    ours: Callable[[bytes], None], theirs: Callable[[bytes], None], bodies: list[bytes], batches: int
) -> tuple[float, float]:
    """The seconds that each side takes for that many batches.

    They take turns batch by batch, and go first by turns, because the speed of a disk drifts within a second."""
    sides = (ours, theirs)
    seconds = [0.0, 0.0]
    for number in range(batches):
        body = bodies[number % len(bodies)]
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            started = time.perf_counter()
            sides[side](body)
            seconds[side] += time.perf_counter() - started
    return seconds[0], seconds[1]


def _many(log: FrameLog, rounds: int, appends_each: int, figures: dict[str, float]) -> float:
    """The median of appends per sync with many threads, each round beside one of a single thread."""
    body = os.urandom(SMALL_BYTES)
    per_sync: list[float] = []
    many_rate: list[float] = []
    one_rate: list[float] = []
    for _ in range(rounds):
        syncs, appends = log.counters.syncs, log.counters.appends
        many_rate.append(_rate(log, body, THREADS, appends_each))
        per_sync.append((log.counters.appends - appends) / (log.counters.syncs - syncs))
        one_rate.append(_rate(log, body, 1, appends_each * 4))
    figures["threads_64_appends_per_s"] = median(many_rate)
    figures["threads_1_appends_per_s"] = median(one_rate)
    figures["threads_64_to_1_ratio"] = median([many / one for many, one in zip(many_rate, one_rate, strict=True)])
    figures["threads_64_appends_per_sync_lowest"] = min(per_sync)
    return median(per_sync)


def _rate(log: FrameLog, body: bytes, threads: int, appends_each: int) -> float:
    """Appends a second with this many threads, from the moment that all of them are let go."""
    ready = threading.Barrier(threads + 1)

    def appender(partition: int) -> None:
        ready.wait()
        for _ in range(appends_each):
            log.append([Draft(Kind.DATA, body, topic_number=1, partition=partition, row_count=1)])

    running = [threading.Thread(target=appender, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for thread in running:
        thread.join()
    return threads * appends_each / (time.perf_counter() - started)


def _one(log: FrameLog, bare: BareFile, singles: int, figures: dict[str, float]) -> None:
    """The time of one append and of the bare calls, taken in turn."""
    body = os.urandom(SMALL_BYTES)
    header = os.urandom(frame_size(SMALL_BYTES) - SMALL_BYTES)
    ours_ms: list[float] = []
    theirs_ms: list[float] = []
    turn = 50
    for _ in range(0, singles, turn):
        for _ in range(turn):
            started = time.perf_counter()
            log.append([Draft(Kind.DATA, body, topic_number=1, row_count=1)])
            ours_ms.append((time.perf_counter() - started) * 1000)
        for _ in range(turn):
            started = time.perf_counter()
            bare.append([header, body])
            theirs_ms.append((time.perf_counter() - started) * 1000)
    for name, values in (("append_1kib", ours_ms), ("bare_1kib", theirs_ms)):
        figures[f"{name}_p50_ms"] = percentile(values, 0.50)
        figures[f"{name}_p99_ms"] = percentile(values, 0.99)
    figures["append_1kib_over_bare_p50_ms"] = figures["append_1kib_p50_ms"] - figures["bare_1kib_p50_ms"]
    figures["append_1kib_to_bare_p50_ratio"] = figures["append_1kib_p50_ms"] / figures["bare_1kib_p50_ms"]
