"""Bugs that a soak with faults has found, each made to happen again by hand: docs/bugs-found.md tells of them.

NOT HERE Offsets after a full drain: test_deletion.py.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from headwater.errors import Closed
from headwater.frames.bodies import GapReason
from headwater.frames.frame import Header
from headwater.ids import Lsn
from headwater.log import FrameLog, Receipt
from headwater.log.rewrite import rewrite_segment
from headwater.storage.disk import DiskFiles
from tests.unit.log.small_logs import SETTINGS, WAIT_S, World, rows, segment_names, simulated, snapshot, three_segments


@pytest.fixture
def _switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_switching_often")
@pytest.mark.parametrize("futures", [False, True], ids=["blocking", "futures"])
def test_a_close_beside_appends_leaves_nobody_waiting(futures: bool, seed: int) -> None:
    chance = Random(seed)
    for _ in range(60):
        files, world = simulated(seed)
        log = world.open()
        acknowledged: list[Receipt] = []
        others: list[BaseException] = []
        threads = [
            threading.Thread(target=append_until_closed, args=(log, futures, acknowledged, others), daemon=True)
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        wanted = chance.randrange(4)
        while len(acknowledged) < wanted:
            pass

        log.close()
        for thread in threads:
            thread.join(WAIT_S)

        assert not any(thread.is_alive() for thread in threads), "somebody waits for ever"
        assert not others
        with world.open(files) as again:
            assert again.claim().last_lsn >= len(acknowledged)


def append_until_closed(log: FrameLog, futures: bool, acknowledged: list[Receipt], others: list[BaseException]) -> None:
    try:
        while True:
            acknowledged.append(log.append_future([rows(1)]).result(WAIT_S) if futures else log.append([rows(1)]))
    except Closed:
        return
    except BaseException as error:  # noqa: BLE001  A thread's failure is the test's.
        others.append(error)


def test_a_rewrite_that_ends_after_its_log_was_closed_touches_nothing_of_the_next_owners() -> None:
    files, world = simulated()
    names = three_segments(world)
    first = world.open()
    next_owners: list[FrameLog] = []
    after: list[dict[str, bytes]] = []

    def decide(header: Header, body: memoryview) -> bool:
        if not next_owners:
            # In the middle of the rewrite the log changes hands, and its next owner rewrites the same segment.
            first.close()
            second = world.open()
            rewrite_segment(second, names[0], lambda header, body: header.lsn != 2, reason=GapReason.DRAINED)
            next_owners.append(second)
            after.append(snapshot(files))
        return False

    with pytest.raises(Closed):
        rewrite_segment(first, names[0], decide, reason=GapReason.DRAINED)

    assert snapshot(files) == after[0]
    assert [frame.lsn for frame in next_owners[0].read(Lsn(3), Lsn(4))] == [3, 4]
    next_owners[0].close()
    assert world.verify().ok


def open_descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="only Linux lists a process's descriptors")
def test_descriptors_do_not_grow_with_deletions_and_rewrites(tmp_path: Path) -> None:
    world = World(DiskFiles(tmp_path), settings=SETTINGS)
    counts: list[int] = []
    with world.open() as log:
        for _ in range(30):
            for _ in range(3):
                log.append([rows(1), rows(2)])
                log.roll()
            segments = log.segments()
            list(log.read(segments[0].first_lsn))
            log.find(1, 0, 0)
            rewrite_segment(
                log, segments[1].name, lambda header, body: header.topic_number != 2, reason=GapReason.DRAINED
            )
            list(log.read(segments[0].first_lsn))
            world.log_start = log.segments()[-2].first_lsn
            log.exclusively(lambda: log.device.forget(Lsn(world.log_start)))
            counts.append(open_descriptors())

    assert max(counts[10:]) <= max(counts[:10]), counts


@pytest.mark.parametrize("nth", range(1, 7))
def test_an_unlink_that_fails_in_a_deletion_leaves_no_hole(nth: int) -> None:
    files, world = simulated()
    with world.open() as log:
        for _ in range(4):
            log.append([rows(1)])
            log.roll()
        names = segment_names(files)
        world.log_start = log.segments()[3].first_lsn
        files.fail(nth, errno.EIO, verbs=["unlink"])

        gone = log.exclusively(lambda: log.device.forget(Lsn(world.log_start)))

        # What is left is the end of what there was: of the index and the segment, in order, up to the failure.
        assert segment_names(files) == names[len(gone) :]
        assert len(gone) == 3 if nth % 2 else len(gone) == nth // 2 - 1
        assert world.verify(log_start=Lsn(world.log_start)).ok
        log.exclusively(lambda: log.device.forget(Lsn(world.log_start)))
        assert segment_names(files) == names[3:]


def test_a_replaced_generation_that_could_not_be_unlinked_goes_with_the_next_deletion() -> None:
    files, world = simulated()
    names = three_segments(world)
    log = world.open()
    log.claim()
    files.fail(2, errno.EIO, verbs=["unlink"])
    rewritten = rewrite_segment(log, names[0], lambda header, body: header.lsn != 2, reason=GapReason.DRAINED)
    left = segment_names(files)
    healthy = world.verify().ok

    log.exclusively(lambda: log.device.forget(Lsn(1)))

    assert left == [names[0], rewritten.new, *names[1:]]
    assert healthy
    assert segment_names(files) == [rewritten.new, *names[1:]]
