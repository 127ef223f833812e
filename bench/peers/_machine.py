"""The machine and the versions that figures are of: what a reader needs to compare them with others.

PROMISE  Says what the machine is by its kind, never by its name: no host, no path.
"""

from __future__ import annotations

import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench import _kafka
from bench._place import GIB
from bench.peers import _nats
from bench.report import Setting
from headwater.spark.session import ICEBERG_PACKAGES

PACKAGES = ("pyarrow", "confluent-kafka", "nats-py", "pyspark", "pyiceberg", "duckdb", "polars-hash")

SYNCS = 50


def versions() -> dict[str, Setting]:
    where = Path(os.environ.get("HEADWATER_BENCH_DIRECTORY", ".")).absolute()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "kafka": f"{_kafka.VERSION}, KRaft, one broker, heap {_kafka.HEAP}",
        "nats-server": _nats.VERSION,
        **{name: _package(name) for name in PACKAGES},
        "iceberg": max(ICEBERG_PACKAGES.items())[1].rpartition(":")[2],
        "java": _java(),
        "kernel": f"{platform.system()} {platform.release()}",
        "cpu": _cpu(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1),
        "disk": _disk(where),
        "disk_sync_of_4_kib_p50_ms": _sync_ms(where),
    }


def _package(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _java() -> str:
    if shutil.which("java") is None:
        return "not installed"
    told = subprocess.run(["java", "-version"], check=False, capture_output=True, text=True, timeout=30).stderr
    return told.partition("\n")[0]


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _disk(path: Path) -> str:
    """The kind of filesystem that the longest mount point above the path has, and the name of its device."""
    mounts = Path("/proc/mounts")
    if not mounts.exists():
        return "unknown"
    best = ("", "", "")
    for line in mounts.read_text().splitlines():
        device, point, kind = line.split()[:3]
        if path.is_relative_to(point) and len(point) >= len(best[1]):
            best = (device, point, kind)
    return f"{best[2]} on {Path(best[0]).name}"


def _sync_ms(directory: Path) -> float:
    """The median time of a bare write of 4 KiB and its fdatasync: what no durable row can be faster than."""
    times = []
    with tempfile.TemporaryFile(dir=directory) as file:
        for _ in range(SYNCS):
            begun = time.perf_counter()
            os.write(file.fileno(), bytes(4096))
            os.fdatasync(file.fileno())
            times.append((time.perf_counter() - begun) * 1_000)
    return round(statistics.median(times), 3)
