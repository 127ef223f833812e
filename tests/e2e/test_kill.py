"""kill -9 of a real process under load on the real disk, and readers in other processes beside a writer.

A kill leaves the page cache, so this says nothing about syncs (test_power_loss.py and test_strace.py do).  It says that
at no instruction can the process end so that what it leaves cannot be opened, or lacks what was acknowledged.

HEADWATER_KILLS says how many (CI: 100).
"""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError
from headwater.frames.frame import Kind
from headwater.log import FrameLog, open_log
from headwater.log.mark import read_mark
from headwater.settings import LogSettings
from headwater.storage.disk import DiskFiles
from tests.e2e.appender import AppenderSettings
from tests.e2e.appender_process import Nursery, running_appender
from tests.e2e.machine import times
from tests.e2e.workload import History, StoredFrame, Violation, read_frames

KILLS = times("HEADWATER_KILLS", 100)
KILLS_IN_ONE_PLACE = 10
LOOKS = 100
KIB = 1024


def open_here(root: Path) -> FrameLog:
    settings = LogSettings(segment_size_bytes_max=256 * KIB, write_body_bytes_max=32 * KIB, reserve_bytes=0)
    return open_log(DiskFiles(root), "log", settings=settings)


def marked_lsn(root: Path) -> int:
    """What the mark says, read without the log."""
    file = DiskFiles(root).open("log/mark")
    try:
        mark = read_mark(file)
    finally:
        file.close()
    assert mark is not None
    return mark.durable_lsn


def kill_once(nursery: Nursery, root: Path, history: History, round_number: int, rng: random.Random) -> None:
    settings = AppenderSettings(
        history.seed,
        round_number,
        threads=rng.choice((1, 3, 5)),
        segment_size_bytes_max=rng.choice((32, 64, 256)) * KIB,
    )
    delay_s = rng.uniform(0.020, 0.080)
    with nursery.running_appender(root, settings) as appender:
        appender.wait_for_acknowledgements(1)
        appender.listen_for(delay_s)
        appender.kill()
    failures = history.add_lines(round_number, appender.lines)
    assert not failures


def check_as_reader(root: Path, history: History) -> list[StoredFrame]:
    """Before any writer has recovered it: the durable prefix that the mark names, and not a frame more."""
    marked = marked_lsn(root)
    with open_here(root) as log:
        shown = read_frames(log)
        assert log.durable_lsn() == marked
    history.check_shown(shown)
    assert (shown[-1].lsn if shown else 0) == marked, "a reader sees what the mark names, all of it and nothing else"
    if shown[: len(history.found)] != history.found:
        raise Violation("V2: a reader is no longer shown what a recovery had shown")
    return shown


def check_as_writer(root: Path, history: History, shown: list[StoredFrame]) -> None:
    with open_here(root) as log:
        log.claim()
        recovered = read_frames(log)
    history.check_recovered(recovered)
    if recovered[: len(shown)] != shown:
        raise Violation("V7: a reader was shown what the recovery then took away")


@pytest.mark.timeout(120 + 2 * KILLS)
def test_an_acknowledged_row_survives_every_kill(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged = 0
    began_s = time.monotonic()

    with Nursery() as nursery:
        for first in range(0, KILLS, KILLS_IN_ONE_PLACE):
            root = tmp_path / f"data-{first}"
            history = History(seed)
            for round_number in range(first, min(first + KILLS_IN_ONE_PLACE, KILLS)):
                try:
                    kill_once(nursery, root, history, round_number, rng)
                    shown = check_as_reader(root, history)
                    if round_number % KILLS_IN_ONE_PLACE in (4, 9) or round_number == KILLS - 1:
                        check_as_writer(root, history, shown)
                    # In the other rounds the next appender is the writer that recovers.
                except (AssertionError, HeadwaterError) as error:
                    error.add_note(f"in round {round_number}; what is left is in {root}")
                    raise
            acknowledged += len(history.acknowledged)
            shutil.rmtree(root)

    took_s = time.monotonic() - began_s
    assert acknowledged >= KILLS
    print(f"{KILLS} kills in {took_s:.1f} s, {KILLS / took_s:.1f} a second; {acknowledged} acknowledged writes")


def test_a_reader_beside_a_writer_sees_whole_durable_writes_and_never_fewer(tmp_path: Path, seed: int) -> None:
    history = History(seed)
    settings = AppenderSettings(seed, threads=4, pause_s=0.002, segment_size_bytes_max=64 * KIB)
    seen: list[StoredFrame] = []
    grown = 0

    with running_appender(tmp_path, settings) as appender:
        appender.wait_for_acknowledgements(1)
        following = open_here(tmp_path)
        for look in range(LOOKS):
            # Every other look is by somebody who has just come.
            marked_before = marked_lsn(tmp_path)
            if look % 2:
                with open_here(tmp_path) as newcomer:
                    shown = seen + read_frames(newcomer, first_lsn=len(seen) + 1)
            else:
                shown = seen + read_frames(following, first_lsn=len(seen) + 1)
            marked_after = marked_lsn(tmp_path)

            history.check_shown(shown)
            assert marked_before <= len(shown) <= marked_after, "what is durable, neither less nor more"
            assert len(shown) >= len(seen)
            grown += len(shown) > len(seen)
            seen = shown
            appender.listen_for(0.002)
        following.close()
        appender.kill()

    assert grown > LOOKS // 4, "the writer was writing all the while"
    history.add_lines(0, appender.lines)
    with open_here(tmp_path) as log:
        log.claim()
        recovered = read_frames(log)
    history.check_recovered(recovered)
    assert recovered[: len(seen)] == seen
    assert sum(frame.kind == Kind.DATA for frame in seen) > LOOKS


def test_a_log_that_rolls_all_the_time_can_be_opened_at_any_time(tmp_path: Path, seed: int) -> None:
    # So many segments, and so small, that the writer begins new ones faster than a newcomer can look at the old ones.
    settings = AppenderSettings(seed, threads=3, segment_size_bytes_max=32 * KIB)
    last_lsn = 0

    with running_appender(tmp_path, settings) as appender:
        appender.wait_for_acknowledgements(4_000)
        for _ in range(8):
            with open_here(tmp_path) as newcomer:
                shown = read_frames(newcomer, first_lsn=last_lsn + 1)
            appender.listen_for(0.001)

            assert [frame.lsn for frame in shown] == list(range(last_lsn + 1, last_lsn + 1 + len(shown)))
            last_lsn += len(shown)

    assert last_lsn > 4_000
