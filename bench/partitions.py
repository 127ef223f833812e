"""What does an append cost over 10,000 partitions, beside one over a single partition?

Two logs in one directory take the same sizes in turn: one writes to a single partition, the other to 10,000
partitions of 20 topics, each once before any is met again, in a shuffled order.  Nothing is joined.
Time is taken around the appends, the sync of the same bytes included, in pairs in which both take turns; the median
of the pairs' ratios counts.

WRITES   100 frames of 1 KiB a write: the cost per frame shows, because one sync is shared by all of them.
SINGLES  one frame of 1 KiB a write: what a caller who appends alone sees.

The bar is on both: whichever costs more must hold it.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator, Sequence

from bench._place import KIB, MIB, machine, median, place
from bench.report import Report, at_most
from headwater.frames.frame import Kind, frame_size
from headwater.log import Draft, FrameLog, open_log
from headwater.storage.disk import DiskFiles

PARTITIONS = 10_000
TOPICS = 20
BODY_BYTES = 1 * KIB
FRAMES_A_WRITE = 100
SEED = 20

Target = tuple[int, int]
"""Topic number and partition."""


def run(quick: bool) -> Report:
    pairs = 7 if quick else 15
    frames_a_side = 5_000 if quick else 20_000
    singles_a_side = 300 if quick else 1_000
    need = 2 * (frames_a_side + singles_a_side) * (pairs + 1) * frame_size(BODY_BYTES) + 256 * MIB
    targets = [(1 + number % TOPICS, number // TOPICS) for number in range(PARTITIONS)]
    random.Random(SEED).shuffle(targets)
    figures: dict[str, float] = {}
    with (
        place(need) as directory,
        open_log(DiskFiles(directory), "one") as one,
        open_log(DiskFiles(directory), "many") as many,
    ):
        # Every partition has its rows before anything is timed, in both sizes of log.
        sides = ((one, _cycle([(1, 0)])), (many, _cycle(targets)))
        _pair(sides, PARTITIONS // FRAMES_A_WRITE, FRAMES_A_WRITE)
        writes_ratio = _compare(sides, pairs, frames_a_side // FRAMES_A_WRITE, FRAMES_A_WRITE, "write", figures)
        singles_ratio = _compare(sides, pairs, singles_a_side, 1, "single", figures)
    return Report(
        bench="partitions",
        settings={
            "partitions": PARTITIONS,
            "topics": TOPICS,
            "body_bytes": BODY_BYTES,
            "frames_a_write": FRAMES_A_WRITE,
            "frames_a_side": frames_a_side,
            "singles_a_side": singles_a_side,
            "pairs": pairs,
            "seed": SEED,
            **machine(),
        },
        figures=figures,
        bars=(
            at_most("cost per frame over 10,000 partitions to that over one, writes of 100", writes_ratio, 1.3),
            at_most("cost per append over 10,000 partitions to that over one, single frames", singles_ratio, 1.3),
        ),
    )


def _cycle(targets: Sequence[Target]) -> Iterator[Target]:
    while True:
        yield from targets


def _compare(
    sides: Sequence[tuple[FrameLog, Iterator[Target]]],
    pairs: int,
    writes: int,
    frames_a_write: int,
    name: str,
    figures: dict[str, float],
) -> float:
    """The median ratio many / one of the pairs."""
    seconds = [_pair(sides, writes, frames_a_write) for _ in range(pairs)]
    ratios = [many / one for one, many in seconds]
    frames = writes * frames_a_write
    figures[f"{name}_one_us_per_frame"] = median([one for one, _ in seconds]) / frames * 1e6
    figures[f"{name}_many_us_per_frame"] = median([many for _, many in seconds]) / frames * 1e6
    figures[f"{name}_ratio_lowest"] = min(ratios)
    figures[f"{name}_ratio_highest"] = max(ratios)
    return median(ratios)


def _pair(sides: Sequence[tuple[FrameLog, Iterator[Target]]], writes: int, frames_a_write: int) -> tuple[float, float]:
    """The seconds that each side takes to make and append that many writes.

    They take turns write by write, and go first by turns, because the speed of a disk drifts within a second."""
    body = os.urandom(BODY_BYTES)
    seconds = [0.0, 0.0]
    for number in range(writes):
        for side in (0, 1) if number % 2 == 0 else (1, 0):
            log, following = sides[side]
            targets = [next(following) for _ in range(frames_a_write)]
            started = time.perf_counter()
            log.append([Draft(Kind.DATA, body, topic_number=t, partition=p, row_count=1) for t, p in targets])
            seconds[side] += time.perf_counter() - started
    return seconds[0], seconds[1]
