"""What do topics cost on top of the bare log, and how fast is a topic read back?

ARROW    1,000 rows of 1 KB as a record batch through `Topic.append`, against the bare log's append of a frame of the
         same bytes.  Both are logs of their own on the same disk, and take turns.
DICTS    The same rows as a list of dicts.
SINGLE   One row an append: from 64 threads, and from one asyncio loop with 64 appends on their way.
READ     Reading the topic back, batch by batch, against reading its segments in order with their checksum, 1 MiB at a
         time.  Both from the page cache, in turn.

Rows have ten columns: two int64, a double, a timestamp and six strings.  Settings are the defaults.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import crc32c
import pyarrow as pa

import headwater as hw
from bench._kilobyte_rows import ROWS, SCHEMA, thousand_rows
from bench._place import MIB, machine, median, percentile, place
from bench.report import Report, at_least
from headwater.frames.frame import Kind
from headwater.log import Draft, FrameLog, open_log
from headwater.storage.disk import DiskFiles

THREADS = 64


def run(quick: bool) -> Report:
    pairs = 5 if quick else 11
    appends = 16 if quick else 48
    singles_each = 50 if quick else 200
    read_rounds = 3 if quick else 7
    figures: dict[str, float] = {}
    with place(6 * pairs * appends * MIB + 512 * MIB) as directory:  # noqa: SIM117  (the order of closing matters)
        with open_log(DiskFiles(directory / "bare"), "log") as bare, hw.open(directory / "data") as log:
            bare.claim()
            topic = log.topic("events", schema=SCHEMA)
            batches = [thousand_rows(seed) for seed in range(4)]
            arrow, dicts = _append(topic, bare, batches, pairs, appends, figures)
            _threads(log, batches[0], singles_each, figures)
            _loop(log, batches[0], singles_each * THREADS, figures)
            log.checkpoint()
            read = _read(topic, directory / "data" / "log", read_rounds, figures)
    needed = min(500.0, 0.7 * figures["read_bare_mb_per_s"])
    return Report(
        bench="topics",
        settings={
            "rows_a_batch": ROWS,
            "batch_bytes": batches[0].nbytes,
            "pairs": pairs,
            "appends_a_side": appends,
            "threads": THREADS,
            "single_appends_a_thread": singles_each,
            "read_rounds": read_rounds,
            **machine(),
        },
        figures=figures,
        bars=(
            at_least("1,000 rows as Arrow, share of the bare log's rate (median of pairs)", arrow, 0.8),
            at_least("1,000 rows as dicts, share of the bare log's rate (median of pairs)", dicts, 0.3),
            at_least("reading a topic, MB/s (500, or 0.7 of bare reading with checksum)", read, needed),
        ),
    )


def _append(
    topic: hw.Topic,
    bare: FrameLog,
    batches: list[pa.RecordBatch],
    pairs: int,
    appends: int,
    figures: dict[str, float],
) -> tuple[float, float]:
    """The median shares of the bare log's rate: from Arrow, and from dicts."""
    bodies = [batch.serialize().to_pybytes() for batch in batches]
    rows = [batch.to_pylist() for batch in batches]

    def bare_append(number: int) -> None:
        bare.append([Draft(Kind.DATA, bodies[number], topic_number=1, row_count=ROWS)])

    def arrow_append(number: int) -> None:
        topic.append(batches[number])

    def dict_append(number: int) -> None:
        topic.append(rows[number])

    sides = (bare_append, arrow_append, dict_append)
    _turns(sides, appends // 2)
    seconds = [_turns(sides, appends) for _ in range(pairs)]
    size = appends * len(bodies[0])
    for name, side in (("bare_log", 0), ("arrow", 1), ("dicts", 2)):
        figures[f"{name}_mb_per_s"] = size / median([each[side] for each in seconds]) / 1e6
        figures[f"{name}_rows_per_s"] = appends * ROWS / median([each[side] for each in seconds])
    arrow = [each[0] / each[1] for each in seconds]
    dicts = [each[0] / each[2] for each in seconds]
    figures["arrow_ratio_lowest"], figures["arrow_ratio_highest"] = min(arrow), max(arrow)
    figures["dicts_ratio_lowest"], figures["dicts_ratio_highest"] = min(dicts), max(dicts)
    return median(arrow), median(dicts)


def _turns(sides: tuple[Callable[[int], None], ...], appends: int) -> list[float]:
    """The seconds of each side for that many appends; they take turns, and each goes first by turns."""
    seconds = [0.0] * len(sides)
    for number in range(appends):
        for step in range(len(sides)):
            side = (step + number) % len(sides)
            started = time.perf_counter()
            sides[side](number % 4)
            seconds[side] += time.perf_counter() - started
    return seconds


def _threads(log: hw.Log, batch: pa.RecordBatch, appends_each: int, figures: dict[str, float]) -> None:
    topic = log.topic("singles", schema=SCHEMA)
    row = batch.slice(0, 1).to_pylist()[0]
    ready = threading.Barrier(THREADS + 1)
    times_ms: list[list[float]] = [[] for _ in range(THREADS)]

    def appender(mine: list[float]) -> None:
        ready.wait()
        for _ in range(appends_each):
            started = time.perf_counter()
            topic.append(row)
            mine.append((time.perf_counter() - started) * 1000)

    running = [threading.Thread(target=appender, args=(mine,)) for mine in times_ms]
    for thread in running:
        thread.start()
    syncs = log.status().counters["syncs"]
    ready.wait()
    started = time.perf_counter()
    for thread in running:
        thread.join()
    seconds = time.perf_counter() - started
    all_ms = [each for mine in times_ms for each in mine]
    figures["threads_64_rows_per_s"] = len(all_ms) / seconds
    figures["threads_64_p50_ms"] = percentile(all_ms, 0.50)
    figures["threads_64_p99_ms"] = percentile(all_ms, 0.99)
    figures["threads_64_rows_per_sync"] = len(all_ms) / (log.status().counters["syncs"] - syncs)


def _loop(log: hw.Log, batch: pa.RecordBatch, appends: int, figures: dict[str, float]) -> None:
    topic = log.topic("looped", schema=SCHEMA)
    row = batch.slice(0, 1).to_pylist()[0]
    times_ms: list[float] = []

    async def appender(count: int) -> None:
        for _ in range(count):
            started = time.perf_counter()
            await asyncio.wrap_future(topic.append_future(row))
            times_ms.append((time.perf_counter() - started) * 1000)

    async def all_of_them() -> None:
        await asyncio.gather(*(appender(appends // THREADS) for _ in range(THREADS)))

    started = time.perf_counter()
    asyncio.run(all_of_them())
    seconds = time.perf_counter() - started
    figures["asyncio_rows_per_s"] = len(times_ms) / seconds
    figures["asyncio_p50_ms"] = percentile(times_ms, 0.50)
    figures["asyncio_p99_ms"] = percentile(times_ms, 0.99)


def _read(topic: hw.Topic, segments: Path, rounds: int, figures: dict[str, float]) -> float:
    """MB/s of reading the topic back, beside bare reading of the same segments with their checksum."""
    files = sorted(segments.glob("*.seg"))
    rows = topic.describe().rows

    def ours() -> int:
        size = count = 0
        for batch in topic.read():
            size += batch.nbytes
            count += batch.num_rows
        assert count == rows
        return size

    def theirs() -> int:
        size = 0
        buffer = bytearray(1 * MIB)
        view = memoryview(buffer)
        for path in files:
            fd = os.open(path, os.O_RDONLY)
            at = 0
            while got := os.preadv(fd, [view], at):
                crc32c.crc32c(view[:got])
                at += got
            os.close(fd)
            size += at
        return size

    rates: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        measured = [0.0, 0.0]
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            started = time.perf_counter()
            size = (ours, theirs)[side]()
            measured[side] = size / (time.perf_counter() - started) / 1e6
        if number:
            rates.append((measured[0], measured[1]))
    figures["read_mb_per_s"] = median([each[0] for each in rates])
    figures["read_bare_mb_per_s"] = median([each[1] for each in rates])
    figures["read_ratio"] = median([each[0] / each[1] for each in rates])
    figures["read_topic_mb"] = topic.describe().bytes / 1e6
    return figures["read_mb_per_s"]
