"""A lander that dies, kill -9, at a named point of the landing: for killed_landings.py.

    python -m tests.e2e_lake.killed_driver POINT DIRECTORY CATALOG       on real Spark; CATALOG is JSON
    land_by_processes(point, directory, catalog, environment)            by processes of this machine

The seams are the product's own, each wrapped so that one call of it is the process's last, before or after its effect.
P3 kills a Python worker inside a data file, and lets the driver go on.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import headwater as hw
from headwater.lake.catalog import catalog_place
from headwater.lake.ledger import Ledger
from headwater.lake.ledger_records import Begun, Intended, Landed, LedgerRecord, Verified
from headwater.lake.ledger_state import LedgerState
from headwater.lake.runner import IN_PROCESS_BYTES_MAX, LocalProcesses, Runner
from headwater.lake.tables import Staged, Tables, TableState
from headwater.log.object_device import ObjectDevice
from headwater.log.slots import TRIM
from headwater.settings import LogSettings, Settings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.disk import DiskFiles
from tests.e2e_lake.landers import lander, ledger_in, topics_with_tables
from tests.unit.topics.small_engines import engine_of

LATE_S = 3.0
SETTINGS = Settings(log=LogSettings(deletion_grace_s=0.0), upkeep_interval_s=0)

BEFORE_RECORD: dict[str, type[Any]] = {"P4": Intended, "P9": Landed, "P10": Verified}
AFTER_RECORD: dict[str, type[Any]] = {"P1": Begun, "P5": Intended}


WORKERS = ("pyspark.daemon", "headwater.lake.worker")
"""What the processes that write data files are called."""


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("killed")


class DyingLedger:
    def __init__(self, ledger: Ledger, point: str) -> None:
        self._ledger = ledger
        self._point = point

    def record(self, records: Sequence[LedgerRecord]) -> None:
        kinds = {type(record) for record in records}
        if BEFORE_RECORD.get(self._point) in kinds:
            die()
        self._ledger.record(records)
        if AFTER_RECORD.get(self._point) in kinds:
            die()

    def state(self) -> LedgerState:
        return self._ledger.state()


class DyingTables:
    """A connection whose user dies at a call."""

    def __init__(self, tables: Tables, point: str, connect: Callable[[], Tables]) -> None:
        self._tables = tables
        self._point = point
        self._connect = connect

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)

    def load(self, name: str) -> TableState | None:
        state = self._tables.load(name)
        if self._point == "P2":
            die()
        return state

    def commit(self, staged: Staged) -> None:
        if self._point == "P6":
            die()
        if self._point == "P8" and os.fork():
            # The request is on its way in another process, and its sender is gone before it arrives.
            die()
        if self._point == "P8":
            time.sleep(LATE_S)
            try:
                self._connect().commit(staged)
            finally:
                os._exit(0)
        self._tables.commit(staged)
        if self._point in {"P7", "P14"}:
            die()


def kill_a_worker_inside_a_file(folder: Path) -> None:
    """Wait for the first bytes of a data file, and kill the Python processes that write it."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if any(path.stat().st_size for path in folder.rglob("data/*.parquet")):
            for line in os.popen("ps -eo pid,ppid,args").readlines():
                pid, _, words = line.strip().split(None, 2)
                if any(worker in words for worker in WORKERS) and int(pid) != os.getpid() and _is_ours(int(pid)):
                    os.kill(int(pid), signal.SIGKILL)
            return
        time.sleep(0.001)


def _is_ours(pid: int) -> bool:
    """Does this process descend from this one?"""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except FileNotFoundError:
            return False
    return False


def die_in_deletion(point: str, log: hw.Log) -> None:
    """The owner's own deletion: the intent is journaled, some files are unlinked, the folder is not synced."""
    files = engine_of(log)._files
    if isinstance(files, BucketFiles):
        device = engine_of(log).shard.log.device
        assert isinstance(device, ObjectDevice)
        device.keep()  # what is sealed is taken in before: it is the deletion that dies
        die_in_deletion_of_objects(point, type(files.objects))
        return
    unlink, sync_directory = DiskFiles.unlink, DiskFiles.sync_directory
    unlinked: list[str] = []

    def dying_unlink(files: DiskFiles, name: str) -> None:
        if name.endswith(".seg") and point == "P11":
            die()
        unlink(files, name)
        if name.endswith(".seg"):
            unlinked.append(name)
            if point == "P12":
                die()

    def dying_sync(files: DiskFiles, directory: str) -> None:
        if unlinked and point == "P13":
            die()
        sync_directory(files, directory)

    DiskFiles.unlink = dying_unlink  # type: ignore[method-assign, assignment]
    DiskFiles.sync_directory = dying_sync  # type: ignore[method-assign, assignment]


def die_in_deletion_of_objects(point: str, objects: Any) -> None:
    """The same in a bucket: the intent is journaled (P11), trim no longer names the segments (P13), some of their
    objects are deleted (P12)."""
    put_if_match, delete = objects.put_if_match, objects.delete

    def dying_swap(objects: Any, name: str, data: bytes, etag: str) -> str:
        swaps = name == f"log/{TRIM}"
        if swaps and point == "P11":
            die()
        found: str = put_if_match(objects, name, data, etag)
        if swaps and point == "P13":
            die()
        return found

    def dying_delete(objects: Any, name: str) -> None:
        delete(objects, name)
        if name.startswith("log/") and point == "P12":
            die()

    objects.put_if_match, objects.delete = dying_swap, dying_delete


def land(point: str, directory: str, catalog: Mapping[str, Any] | None, runner: Runner) -> None:
    """Land, and die on the way."""
    place = catalog_place(catalog, directory=directory)
    folder = Path(urlsplit(str(place.properties["warehouse"])).path)
    with hw.open(directory, settings=SETTINGS) as log:
        if point == "P3":
            threading.Thread(target=kill_a_worker_inside_a_file, args=(folder,), daemon=True).start()
        report = lander(
            log,
            place,
            runner=runner,
            ledger=DyingLedger(ledger_in(directory), point),
            connect=lambda: DyingTables(place.connect(), point, place.connect),
        ).round(topics_with_tables(log))
        print(report, flush=True)
        if point in {"P11", "P12", "P13"}:
            engine_of(log).claim()
            die_in_deletion(point, log)
            print(log.cleanup(), flush=True)


def land_by_processes(
    point: str, directory: str, catalog: Mapping[str, Any] | None, environment: Mapping[str, str]
) -> None:
    os.environ.update(environment)
    with LocalProcesses(2, in_process_bytes_max=0 if point == "P3" else IN_PROCESS_BYTES_MAX) as runner:
        land(point, directory, catalog, runner)


def main() -> None:
    point, directory, catalog = sys.argv[1:]
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from headwater.spark.run import SparkRunner

    spark = (
        SparkSession.builder.master("local[2,4]")  # a task may fail three times
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    land(point, directory, json.loads(catalog), SparkRunner(spark))
    spark.stop()


if __name__ == "__main__":
    main()
