"""Owners of one log in a bucket, killed, stopped and continued, or taken over from, under load.

PROMISED  Nothing that was acknowledged is lost, nothing is there twice, each producer's requests are in their order.
          An epoch has one owner.  Whoever was taken over from finds itself Fenced, by name, at once.
          Another process goes on in seconds, with no file of the one before.

HEADWATER_TAKEOVERS says how many (CI: 20; torture: 100).
"""

from __future__ import annotations

import errno
import random
import shutil
import signal
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from tests.e2e.machine import require_root, small_file_system, times
from tests.e2e.topic_writer import KIB
from tests.e2e_objects.owner import OwnerSettings
from tests.e2e_objects.owner_processes import Line, OwnerProcess, check_beside, check_bucket, history_of, owner_process
from tests.e2e_objects.shaky_server import ShakyServer, shaky_server

TAKEOVERS = times("HEADWATER_TAKEOVERS", 20)
SHARES = 4
RESUME_S_MEDIAN_MAX = 5.0
RESUME_S_MAX = 30.0
FENCED_S_MAX = 5.0
LATE_S = 0.5
"""Between two threads of a process, one that is told Fenced and one that still says what it was told before."""


class Owners:
    """Processes that share one log: one owns it, the others stand by."""

    def __init__(self, stack: ExitStack, url: str, root: Path, rng: random.Random) -> None:
        self.all: list[OwnerProcess] = []
        """Also those that were killed."""
        self.living: list[OwnerProcess] = []
        self._fenced: list[tuple[OwnerProcess, int, float]] = []
        """Who found out when that it does not own this epoch any more."""
        self._stack = stack
        self._url = url
        self._root = root
        self._rng = rng

    def start(self) -> OwnerProcess:
        rng = self._rng
        settings = OwnerSettings(
            appenders=rng.choice((1, 2, 3)),
            transactions=rng.choice((1, 2)),
            upkeep=rng.choice((0, 1)),
            reopen=rng.choice((0, 1)),
            pause_s=0.002,
            segment_size_bytes_max=rng.choice((64, 256)) * KIB,
        )
        home = self._root / f"process-{len(self.all)}"
        started = self._stack.enter_context(owner_process(self._url, settings, home))
        self.all.append(started)
        self.living.append(started)
        return started

    def kill(self, process: OwnerProcess) -> None:
        process.kill()
        self.living.remove(process)

    def next_acknowledgement(self, but: OwnerProcess | None, since_s: float, timeout_s: float = RESUME_S_MAX) -> Line:
        """The first by anybody else, of a later epoch, after this time."""
        deadline_s = time.monotonic() + timeout_s
        epoch = but.epoch if but is not None else 0
        while time.monotonic() < deadline_s:
            for process in self.living:
                if process is not but and process.epoch > epoch:
                    for line in process.since(since_s):
                        if line.acknowledges and line.epoch > epoch:
                            return line
            time.sleep(0.01)
        standing_by = [process.where() for process in self.living if process is not but]
        raise AssertionError("\n\n".join([f"nobody went on in {timeout_s} s", *standing_by]))

    def owner(self) -> OwnerProcess:
        """Whose epoch is the highest."""
        return max(self.living, key=lambda process: process.epoch)

    def wait_until_all_is_well(self) -> None:
        """Rows are acknowledged again, whoever does it now."""
        self.next_acknowledgement(None, time.monotonic())

    def expect_fenced(self, process: OwnerProcess, epoch: int, since_s: float) -> None:
        """It finds out at once, by name."""
        line = process.wait_for(lambda line: line.words[0] == "e" and line.words[2] == "Fenced", since_s, FENCED_S_MAX)
        self._fenced.append((process, epoch, line.at_s))

    def check(self) -> None:
        """All that was acknowledged is in the bucket; and nobody acknowledged anything after it was fenced."""
        check_bucket(self._url, history_of(self.all))
        for process, epoch, fenced_s in self._fenced:
            late = [line for line in process.since(fenced_s + LATE_S) if line.acknowledges and line.epoch == epoch]
            assert not late, late


@pytest.fixture
def shaky(tmp_path: Path) -> Iterator[ShakyServer]:
    with shaky_server(tmp_path / "server") as started:
        yield started


def end_owner(owners: Owners, how: str, rng: random.Random) -> float:
    """Kill or stop the owner, or let another take over from it; in seconds, when another's first row was there."""
    owner = owners.owner()
    epoch = owner.epoch
    began_s = time.monotonic()
    if how == "killed":
        owners.kill(owner)
        owners.start()
    elif how == "stopped":
        owner.send(signal.SIGSTOP)
    else:
        standby = next(process for process in owners.living if process is not owner)
        standby.wait_for(lambda line: True, 0.0, RESUME_S_MAX)
        standby.send(signal.SIGUSR1)
    line = owners.next_acknowledgement(owner, began_s)
    assert line.epoch > epoch
    if how == "stopped":
        time.sleep(rng.uniform(0.0, 0.3))
        continued_s = time.monotonic()
        owner.send(signal.SIGCONT)
        owners.expect_fenced(owner, epoch, continued_s)
    elif how == "taken over":
        owners.expect_fenced(owner, epoch, began_s)
    return line.at_s - began_s


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(120 + 10 * TAKEOVERS)
def test_owners_come_and_go_and_nothing_is_lost_or_doubled(
    shaky: ShakyServer, tmp_path: Path, seed: int, share: int
) -> None:
    rng = random.Random(seed)
    url = shaky.server.url("takeover")
    ends = [rng.choice(("killed", "stopped")) for _ in range(max(TAKEOVERS // SHARES, 1))]
    resumed_s: list[float] = []

    with ExitStack() as stack:
        owners = Owners(stack, url, tmp_path, rng)
        for _ in range(2 + share % 2):
            owners.start()
        owners.next_acknowledgement(None, 0.0)
        for number, how in enumerate(["taken over", *ends]):
            try:
                time.sleep(rng.uniform(0.0, 0.3))
                took_s = end_owner(owners, how, rng)
                if how != "taken over":
                    resumed_s.append(took_s)
                if number % 5 == 3:
                    check_beside(url, history_of(owners.all))
            except (AssertionError, HeadwaterError) as error:
                error.add_note(f"at takeover {number}, of an owner that was {how}")
                raise
        for process in list(owners.living):
            owners.kill(process)
        owners.check()
        acknowledged = sum(line.acknowledges for process in owners.all for line in process.lines)

    median_s = statistics.median(resumed_s)
    print(
        f"{len(resumed_s)} owners killed or stopped: the next one's first row after {median_s:.2f} s (median), "
        f"{max(resumed_s):.2f} s at most; {acknowledged} acknowledged requests"
    )
    assert median_s < RESUME_S_MEDIAN_MAX
    assert acknowledged > 20 * len(resumed_s)


@pytest.mark.timeout(120 + 5 * TAKEOVERS)
def test_a_server_that_stalls_or_dies_under_load_loses_nothing(shaky: ShakyServer, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    url = shaky.server.url("shaky")

    with ExitStack() as stack:
        owners = Owners(stack, url, tmp_path, rng)
        owner = owners.start()
        owner.wait_for_acknowledgements(20)
        for _ in range(max(TAKEOVERS // 20, 1)):
            with shaky.stopped():
                time.sleep(2.0)
            owners.wait_until_all_is_well()
            shaky.kill()
            time.sleep(rng.uniform(0.2, 1.0))
            shaky.start()
            owners.wait_until_all_is_well()
            check_beside(url, history_of(owners.all))
        owners.kill(owner)
        owners.check()


@pytest.mark.timeout(120)
def test_a_full_disk_under_the_server_loses_nothing_and_is_outlived(tmp_path: Path, seed: int) -> None:
    require_root()
    rng = random.Random(seed)

    with (
        small_file_system(tmp_path / "disk", 48 * KIB * KIB) as disk,
        shaky_server(disk / "server") as shaky,
        ExitStack() as stack,
    ):
        owners = Owners(stack, shaky.server.url("full"), tmp_path, rng)
        owner = owners.start()
        owner.wait_for_acknowledgements(20)
        fill(disk / "ballast")
        time.sleep(2.0)
        (disk / "ballast").unlink()
        owners.wait_until_all_is_well()
        owners.kill(owner)
        owners.check()


def fill(ballast: Path) -> None:
    """Take all the room that there is."""
    with ballast.open("wb", buffering=0) as file, suppress_full():
        while True:
            file.write(bytes(64 * KIB))


@contextmanager
def suppress_full() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@pytest.mark.timeout(120)
def test_with_all_processes_and_all_local_files_gone_a_new_process_serves_everything(
    shaky: ShakyServer, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    url = shaky.server.url("alone")
    homes = tmp_path / "homes"

    with ExitStack() as stack:
        owners = Owners(stack, url, homes, rng)
        owners.start().wait_for_acknowledgements(300)
        for process in list(owners.living):
            owners.kill(process)
        shutil.rmtree(homes)
        told = history_of(owners.all)

        newcomer = stack.enter_context(owner_process(url, OwnerSettings(), tmp_path / "another machine"))
        newcomer.wait_for_acknowledgements(20)
        newcomer.kill()

        check_bucket(url, told)
        check_bucket(url, history_of([*owners.all, newcomer]))
