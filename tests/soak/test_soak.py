"""A log under load with faults, for a while: memory, descriptors and threads stay flat, nothing acknowledged is lost.

Writers, a follower, a reader by offset, rolls, drains and deletions go on together on a real disk, while appends, syncs
and directory calls fail at random.  A log that is poisoned is closed and opened again, as the guarantees say.

HEADWATER_SOAK_S says for how long: 20 s by default, 180 s in CI, 2,400 s in torture.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest

from headwater.clock import SystemClock
from headwater.errors import Closed, Forgotten, HeadwaterError, OutcomeUnknown, Poisoned, Unavailable
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log import Draft, FrameLog, open_log
from headwater.log.deletion import Deletion, DeletionIntent, Release
from headwater.log.pins import Pins
from headwater.log.verify import verify_log
from headwater.settings import LogSettings
from headwater.storage.disk import DiskFile, DiskFiles
from headwater.storage.files import Buffer, File

SOAK_S = float(os.environ.get("HEADWATER_SOAK_S", "20"))
SETTINGS = LogSettings(
    segment_size_bytes_max=1 << 20,
    write_body_bytes_max=1 << 19,
    deletion_grace_s=0.0,
    reserve_bytes=1 << 20,
    mark_sync_idle_s=0.02,
)
WRITERS = 3
SAMPLES_MIN = 8


class FaultyFile:
    """A disk's file on which a call fails now and then."""

    def __init__(self, inner: DiskFile, files: FaultyFiles) -> None:
        self._inner = inner
        self._files = files
        self.name = inner.name
        self.write_at = inner.write_at
        self.read_at = inner.read_at
        self.read_into = inner.read_into
        self.truncate = inner.truncate
        self.size = inner.size
        self.close = inner.close

    def append(self, buffers: Sequence[Buffer]) -> int:
        if self._files.strikes(0.002):
            # A full disk takes a part and refuses the rest.
            self._inner.append([bytes(buffers[0])[:64]])
            raise OSError(errno.ENOSPC, "injected: no space left")
        return self._inner.append(buffers)

    def sync_data(self) -> None:
        if self._files.strikes(0.0005):
            raise OSError(errno.EIO, "injected: sync failed")
        self._inner.sync_data()

    def sync_all(self) -> None:
        if self._files.strikes(0.002):
            raise OSError(errno.EIO, "injected: sync failed")
        self._inner.sync_all()


class FaultyFiles(DiskFiles):
    """A disk on which calls fail at random, by a seed, while `armed`."""

    def __init__(self, root: Path, seed: int) -> None:
        super().__init__(root)
        self._chance = random.Random(seed)
        self.armed = True
        self.struck = 0

    def strikes(self, probability: float) -> bool:
        struck = self.armed and self._chance.random() < probability
        self.struck += struck
        return struck

    def create(self, name: str) -> File:  # type: ignore[override]  # A wrapped file keeps the same promises.
        if self.strikes(0.01):
            raise OSError(errno.ENOSPC, "injected: no space left")
        return FaultyFile(super().create(name), self)

    def open(self, name: str, *, writable: bool = False) -> File:  # type: ignore[override]  # As above.
        return FaultyFile(super().open(name, writable=writable), self)

    def unlink(self, name: str) -> None:
        if self.strikes(0.02):
            raise OSError(errno.EIO, "injected: unlink failed")
        super().unlink(name)


class Soak:
    """The log under test, opened again whenever it is poisoned, and what it has promised."""

    def __init__(self, files: FaultyFiles) -> None:
        self._files = files
        self._lock = threading.Lock()
        self._log: FrameLog | None = None
        self.log_start = Lsn(1)
        self.stop = threading.Event()
        self.acknowledged: dict[int, int] = dict.fromkeys(range(WRITERS), -1)
        self.unknown = 0
        self.refused = 0
        self.opened = 0
        self.deleted = 0
        self.failures: list[BaseException] = []

    def log(self) -> FrameLog:
        with self._lock:
            while self._log is None:
                try:
                    self._log = open_log(self._files, "log", settings=SETTINGS, log_start=lambda: self.log_start)
                    self.opened += 1
                except OSError:
                    time.sleep(0.001)
            return self._log

    def reopen(self, broken: FrameLog) -> None:
        with self._lock:
            if self._log is broken:
                self._log = None
                try:
                    broken.close()
                except HeadwaterError:
                    self.refused += 1

    def run(self, act: Callable[[], None]) -> None:
        try:
            while not self.stop.is_set():
                act()
        except BaseException as error:  # noqa: BLE001  A thread's failure is the test's.
            self.failures.append(error)
            self.stop.set()

    # What the threads do ---------------------------------------------------------------------

    def write(self, writer: int) -> None:
        number = self.acknowledged[writer] + 1
        body = f"{writer}:{number}:".encode() + bytes(number * 37 % 4096)
        log = self.log()
        try:
            log.append([Draft(Kind.DATA, body, topic_number=writer + 1, row_count=1)])
        except Unavailable:
            self.refused += 1
            return
        except (OutcomeUnknown, Poisoned, Closed):
            self.unknown += 1
            self.reopen(log)
            self._settle(writer, number)
            return
        self.acknowledged[writer] = number
        # A steady load rather than all that the machine can do: other suites run beside it.
        self.stop.wait(0.002)

    def _settle(self, writer: int, number: int) -> None:
        """After an unknown outcome, look: the log says whether it happened."""
        while not self.stop.is_set():
            log = self.log()
            try:
                log.claim()
                for frame in log.read_partition(writer + 1, 0, max(self.acknowledged[writer], 0)):
                    self.acknowledged[writer] = max(self.acknowledged[writer], _number_in(frame.body))
                assert self.acknowledged[writer] <= number
                return
            except (Unavailable, OutcomeUnknown, Poisoned, Closed):
                self.reopen(log)
            except FileNotFoundError:
                continue

    def follow(self) -> None:
        log = self.log()
        try:
            start = Lsn(max(self.log_start, log.durable_lsn() - 50))
            for _ in zip(range(200), log.read(start, follow=True, timeout_s=0.05), strict=False):
                pass
        except (Forgotten, Closed, FileNotFoundError):
            return

    def clean(self) -> None:
        log = self.log()
        try:
            log.roll()
            released = Lsn(max(log.durable_lsn() - 400, 0))
            deletion = Deletion(
                log,
                pins=Pins(self._files),
                record_intent=self._record,
                clock=SystemClock(),
                settings=SETTINGS,
            )
            # One topic is held back further, so that segments are drained and not only deleted.
            report = deletion.run(
                log_start=self.log_start,
                covered_lsn=released,
                released={topic + 1: Release(Lsn(max(released - 400 * topic, 0)), 0) for topic in range(WRITERS)},
            )
            self.deleted += len(report.deleted)
        except (Unavailable, Forgotten):
            self.refused += 1
        except (OutcomeUnknown, Poisoned, Closed):
            self.reopen(log)
        except OSError:
            self.refused += 1
        self.stop.wait(0.05)

    def _record(self, intent: DeletionIntent) -> None:
        self.log_start = intent.log_start


def _number_in(body: memoryview) -> int:
    return int(bytes(body[:40]).split(b":")[1])


def _usage() -> tuple[int, int, int]:
    with open("/proc/self/statm", encoding="ascii") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return resident, len(os.listdir("/proc/self/fd")), threading.active_count()


@pytest.mark.timeout(SOAK_S + 120)
def test_under_load_with_faults_memory_descriptors_and_threads_stay_flat(tmp_path: Path, seed: int) -> None:
    logging.getLogger("headwater.log").setLevel(logging.CRITICAL)
    files = FaultyFiles(tmp_path, seed)
    soak = Soak(files)
    acts = [partial(soak.write, writer) for writer in range(WRITERS)]
    threads = [threading.Thread(target=soak.run, args=(act,)) for act in (*acts, soak.follow, soak.clean)]
    for thread in threads:
        thread.start()

    samples: list[tuple[int, int, int]] = []
    ends = time.monotonic() + SOAK_S
    warm = time.monotonic() + SOAK_S * 0.3
    while time.monotonic() < ends and not soak.stop.is_set():
        soak.stop.wait(SOAK_S / 40)
        if time.monotonic() > warm:
            gc.collect()
            samples.append(_usage())
    soak.stop.set()
    for thread in threads:
        thread.join(15)
    files.armed = False
    log = soak.log()
    soak.reopen(log)
    report = verify_log(DiskFiles(tmp_path), "log", log_start=soak.log_start)
    with open_log(DiskFiles(tmp_path), "log", settings=SETTINGS, log_start=soak.log_start) as log:
        log.claim()
        last = {
            writer: max((_number_in(f.body) for f in log.read_partition(writer + 1, 0)), default=-1)
            for writer in range(WRITERS)
        }
        offsets = {
            writer: [f.header.base_offset for f in log.read_partition(writer + 1, 0)] for writer in range(WRITERS)
        }

    assert not soak.failures, soak.failures
    assert not any(thread.is_alive() for thread in threads)
    assert report.ok, report.findings
    assert all(last[writer] >= soak.acknowledged[writer] for writer in range(WRITERS)), (last, soak.acknowledged)
    assert all(each == sorted(set(each)) for each in offsets.values())
    assert len(samples) >= SAMPLES_MIN
    half = len(samples) // 2
    early = [statistics.median(column) for column in zip(*samples[:half], strict=True)]
    late = [statistics.median(column) for column in zip(*samples[half:], strict=True)]
    print(
        f"\n{SOAK_S:.0f} s, seed {seed}: {sum(soak.acknowledged.values()):,} appends, {files.struck} faults, "
        f"opened {soak.opened} times, {soak.deleted} segments deleted, {soak.refused} refused, {soak.unknown} unknown; "
        f"resident {early[0] / 1e6:.1f} -> {late[0] / 1e6:.1f} MB, descriptors {early[1]:.0f} -> {late[1]:.0f}, "
        f"threads {early[2]:.0f} -> {late[2]:.0f}"
    )
    assert files.struck > 0 and soak.opened > 1 and soak.deleted > 0
    assert late[0] <= early[0] * 1.15 + 8e6
    assert late[1] <= early[1] + 8
    assert late[2] <= early[2] + 2
