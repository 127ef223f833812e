"""Where a bench keeps its data while it runs, and what it says of the machine.

PROMISE  `place` gives an empty directory on a disk with enough room, and removes it whatever happens.
         It fails before anything is written where there is not enough room.
WHERE    Under `.bench/` of the working directory, because /tmp is often memory and memory syncs at once.
         HEADWATER_BENCH_DIRECTORY names another place.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.report import Setting

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
ROOM_LEFT_BYTES = 2 * GIB


@contextmanager
def place(bytes_needed: int) -> Iterator[Path]:
    """An empty directory for a bench that writes at most this much at a time."""
    parent = Path(os.environ.get("HEADWATER_BENCH_DIRECTORY", ".bench")).absolute()
    parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(parent).free
    if free < bytes_needed + ROOM_LEFT_BYTES:
        raise SystemExit(
            f"not enough room for this bench: {parent} has {free / GIB:.1f} GiB free, "
            f"and {(bytes_needed + ROOM_LEFT_BYTES) / GIB:.1f} GiB are needed; "
            "free some, try --quick, or name another place in HEADWATER_BENCH_DIRECTORY"
        )
    directory = Path(tempfile.mkdtemp(dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory)


def machine() -> dict[str, Setting]:
    """What figures depend on and a reader cannot see."""
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count() or 0,
        "load_1min": round(os.getloadavg()[0], 2),
        "switch_interval_ms": sys.getswitchinterval() * 1000,
    }


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all values is at or below."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
