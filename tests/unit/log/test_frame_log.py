"""The log as its users have it: reading beside writing, following, and what closing does to those who wait."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.clock import SystemClock
from headwater.errors import Closed, DamagedLog, Forgotten, LogLocked
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log import Draft, Frame, FrameLog, file_reads, open_log
from headwater.log.file_reads import View
from headwater.log.index import partition_key
from headwater.log.mark import read_mark
from headwater.settings import LogSettings
from headwater.storage.disk import DiskFiles
from headwater.storage.files import File
from tests.unit.log.small_logs import SETTINGS, WAIT_S, World, fill, rows, simulated, spoil, stored_in, three_segments

POLLING = replace(SETTINGS, follow_poll_s=0.002)


class Follower:
    """A thread that follows a log and keeps the LSNs that it was given."""

    def __init__(self, frames: Iterator[Frame]) -> None:
        self.lsns: list[int] = []
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._follow, args=(frames,), daemon=True)
        self._thread.start()

    def _follow(self, frames: Iterator[Frame]) -> None:
        for frame in frames:
            with self._changed:
                self.lsns.append(frame.header.lsn)
                self._changed.notify_all()

    def wait_for(self, lsn: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.lsns[-1:] == [lsn], WAIT_S), f"{self.lsns} and no {lsn}"

    def join(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive(), "the follower does not end"


# Opening ------------------------------------------------------------------------------------------


def test_opening_reads_and_claims_nothing() -> None:
    files, world = simulated()
    three_segments(world)
    calls: list[str] = []
    files.before_call = lambda verb, name: calls.append(verb)

    log = world.open()

    assert calls == []
    assert log.durable_lsn() == 10 and not log.recovery_report.owner
    assert [frame.lsn for frame in log.read()] == list(range(1, 11))


def test_claiming_says_what_recovery_found() -> None:
    _, world = simulated()
    three_segments(world)

    with world.open() as log:
        report = log.claim()

        assert report is log.recovery_report
        assert report.owner and report.clean and report.last_lsn == 10 and report.epoch == 2


def test_a_log_opens_with_the_usual_settings_clock_and_directory(tmp_path: Path) -> None:
    before_us = SystemClock().now_us()

    with open_log(DiskFiles(tmp_path)) as log:
        receipt = log.append([rows(1)])

    assert (tmp_path / "log" / "mark").exists()
    assert 0 <= receipt.append_time_us - before_us < 3_600_000_000


def test_the_log_start_may_be_a_number_or_asked_for_each_time() -> None:
    files, world = simulated()
    names = three_segments(world)
    files.unlink(f"log/{names[0]}")

    with open_log(files, settings=SETTINGS, log_start=5) as by_number:
        assert next(by_number.read(Lsn(5))).lsn == 5
        with pytest.raises(Forgotten):
            next(by_number.read(Lsn(4)))
    assert open_log(files, settings=SETTINGS, log_start=lambda: 5).durable_lsn() == 10


def test_offsets_that_are_remembered_elsewhere_are_not_given_out_again() -> None:
    _, world = simulated()

    with world.open(known_offsets=lambda: {partition_key(1, 0): 100}) as log:
        log.append([rows(2)])
    with world.open(known_offsets=lambda: {partition_key(1, 0): 100}) as log:
        assert log.append([rows(1), rows(2)]).base_offsets == (100, 1)


def test_the_undamaged_part_of_a_halted_log_can_be_read_and_not_written() -> None:
    files, world = simulated()
    names = three_segments(world)
    spoil(files, f"log/{names[1]}", stored_in(files, f"log/{names[1]}")[0])
    files.unlink(f"log/{names[1].replace('seg', 'idx')}")
    with pytest.raises(DamagedLog):
        world.open()

    log = world.open(undamaged_part=True)

    assert [frame.lsn for frame in log.read()] == [1, 2, 3, 4]
    with pytest.raises(DamagedLog):
        log.append([rows(1)])
    log.close()


def test_a_log_is_closed_by_its_with_block_and_cannot_be_entered_again() -> None:
    _, world = simulated()
    with world.open() as log:
        log.append([rows(1)])

    with pytest.raises(Closed), log:
        pass
    with pytest.raises(Closed):
        log.append([rows(1)])
    assert world.open().recovery_report.clean


def test_a_with_block_that_fails_closes_too() -> None:
    _, world = simulated()

    def fail() -> None:
        with world.open() as log:
            log.append([rows(1)])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    assert world.open().recovery_report.clean


# Reading ------------------------------------------------------------------------------------------


def test_reading_goes_from_one_lsn_to_another_both_included() -> None:
    _, world = simulated()
    three_segments(world)
    log = world.open()

    assert [frame.lsn for frame in log.read(Lsn(4), Lsn(9))] == [4, 5, 6, 7, 8, 9]
    assert [frame.lsn for frame in log.read(Lsn(10), Lsn(99))] == [10]
    assert list(log.read(Lsn(11))) == []


def test_a_partition_is_read_and_found_by_offset_and_by_time() -> None:
    _, world = simulated()
    names = three_segments(world)
    log = world.open()

    by_offset = [(frame.lsn, frame.header.base_offset) for frame in log.read_partition(1, 0, 3)]
    found = log.find(1, 0, 5)

    assert by_offset == [(4, 3), (5, 4), (9, 6)]
    assert found is not None and (found.lsn, found.segment) == (5, names[1])
    assert log.find(1, 0, 11) is None
    last = next(log.read(Lsn(10)))
    assert log.find_time(last.header.append_time_us) == 10
    assert log.find_time(last.header.append_time_us + 1) is None


def test_a_reader_in_another_process_sees_what_is_durable_and_no_more(tmp_path: Path) -> None:
    log = World(DiskFiles(tmp_path)).open()
    log.append([rows(1)])
    other = World(DiskFiles(tmp_path)).open()

    seen = [other.durable_lsn()]
    log.append([rows(1)])
    seen.append(other.durable_lsn())
    log.roll()
    log.append([rows(1)])
    seen.append(other.durable_lsn())

    assert seen == [2, 3, 4]
    assert [frame.lsn for frame in other.read()] == [1, 2, 3, 4]
    assert [segment.sealed for segment in other.segments()] == [True, False]
    with pytest.raises(LogLocked):
        other.append([rows(1)])
    log.close()


def test_a_reader_in_another_process_finds_what_came_since_it_opened() -> None:
    _, world = simulated()
    log = world.open()
    log.append([rows(1)])
    others = [world.open() for _ in range(4)]

    log.append([rows(1, 3)])
    log.roll()
    last = log.append([rows(1)])

    assert [frame.lsn for frame in others[0].read_partition(1, 0, 1)] == [3, 4]
    assert getattr(others[1].find(1, 0, 4), "lsn", None) == 4
    assert others[2].find_time(last.append_time_us) == 4
    assert len(others[3].segments()) == 2
    log.close()


def test_readers_beside_writers_see_whole_writes_in_order(tmp_path: Path) -> None:
    settings = replace(SETTINGS, segment_size_bytes_max=16_384, write_body_bytes_max=8_192)
    log = open_log(DiskFiles(tmp_path), settings=settings)
    other = open_log(DiskFiles(tmp_path), settings=settings)
    writing = threading.Event()
    writing.set()
    failures: list[BaseException] = []
    reads = [0, 0]

    def write(number: int) -> None:
        for count in range(40):
            log.append([rows(number, 1, body=b"%d %d" % (number, count)), rows(number, 1, body=b"second")])

    def read(which: FrameLog, number: int) -> None:
        try:
            while writing.is_set() or not reads[number]:
                frames = [(f.header.lsn, f.header.write_index, f.header.write_count) for f in which.read()]
                assert [lsn for lsn, _, _ in frames] == list(range(1, len(frames) + 1))
                assert not frames or frames[-1][1] == frames[-1][2] - 1, "a write was seen in part"
                reads[number] += 1
        except BaseException as error:
            failures.append(error)
            raise

    writers = [threading.Thread(target=write, args=(number,)) for number in range(1, 4)]
    readers = [threading.Thread(target=read, args=(which, n)) for n, which in enumerate((log, other))]
    for thread in [*writers, *readers]:
        thread.start()
    for thread in writers:
        thread.join(WAIT_S)
    writing.clear()
    for thread in readers:
        thread.join(WAIT_S)

    assert failures == [] and min(reads) > 0
    for number in range(1, 4):
        bodies = [bytes(frame.body) for frame in log.read_partition(number, 0)][::2]
        assert bodies == [b"%d %d" % (number, count) for count in range(40)]
    assert len(log.segments()) > 3
    log.close()


# Following ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_the_owner", [True, False])
def test_a_follower_is_given_what_becomes_durable_until_the_log_is_closed(by_the_owner: bool) -> None:
    _, world = simulated(settings=POLLING)
    log = world.open()
    log.append([rows(1)])
    followed = log if by_the_owner else world.open()

    follower = Follower(followed.read(follow=True))
    follower.wait_for(2)
    log.append([rows(1), rows(2)])
    follower.wait_for(4)
    log.roll()
    log.append([rows(1)])
    follower.wait_for(5)
    followed.close()
    follower.join()

    assert follower.lsns == [1, 2, 3, 4, 5]
    log.close()


def test_a_follower_ends_also_where_the_log_is_closed_in_the_middle_of_its_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, world = simulated(settings=POLLING)
    with world.open() as log:
        log.append([rows(1)])
        followed = world.open()
        frames = followed.read(follow=True)
        assert [next(frames).lsn for _ in range(2)] == [1, 2]

        def close_and_read(file: File) -> object:
            followed.close()
            return read_mark(file)

        monkeypatch.setattr(file_reads, "read_mark", close_and_read)

        assert list(frames) == []


@pytest.mark.parametrize("topic", [None, 1])
def test_a_follower_that_was_told_of_rows_looks_no_second_time(
    monkeypatch: pytest.MonkeyPatch, topic: int | None
) -> None:
    _, world = simulated(settings=POLLING)
    with world.open() as log, world.open() as followed:
        log.append([rows(1)])
        frames = followed.read(Lsn(2), follow=True) if topic is None else followed.read_topic(topic, follow=True)
        assert next(frames).lsn == 2
        log.append([rows(1)])
        looks: list[int] = []

        def count_and_read(file: File) -> object:
            looks.append(1)
            return read_mark(file)

        monkeypatch.setattr(file_reads, "read_mark", count_and_read)

        assert next(frames).lsn == 3 and len(looks) == 1


def test_a_look_at_a_log_that_somebody_else_has_closed_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    _, world = simulated()
    with world.open() as log:
        log.append([rows(1)])

        def refuse() -> Lsn:
            raise Closed("this log was opened by another process")

        monkeypatch.setattr(log.device, "refresh", refuse)
        with pytest.raises(Closed, match="another process"):
            log.wait_beyond(Lsn(2), 0.0)


def test_a_follower_that_began_before_the_log_had_an_owner_goes_on_with_one() -> None:
    _, world = simulated(settings=POLLING)
    log = world.open()
    follower = Follower(log.read(follow=True))

    log.append([rows(1)])
    follower.wait_for(2)
    log.append([rows(1)])
    follower.wait_for(3)
    log.close()
    follower.join()

    assert follower.lsns == [1, 2, 3]


def test_following_ends_at_an_lsn() -> None:
    _, world = simulated(settings=POLLING)
    log = world.open()
    log.append([rows(1)])

    follower = Follower(log.read(Lsn(2), Lsn(4), follow=True))
    follower.wait_for(2)
    for _ in range(5):
        log.append([rows(1)])
    follower.join()

    assert follower.lsns == [2, 3, 4]
    log.close()


def test_following_to_an_lsn_that_is_there_already_does_not_wait() -> None:
    _, world = simulated()
    three_segments(world)

    assert [frame.lsn for frame in world.open().read(Lsn(3), Lsn(5), follow=True)] == [3, 4, 5]


@pytest.mark.parametrize("by_the_owner", [True, False])
def test_following_ends_when_nothing_has_come_for_a_time(by_the_owner: bool) -> None:
    _, world = simulated(settings=POLLING)
    log = world.open()
    log.append([rows(1)])
    followed = log if by_the_owner else world.open()

    started = time.monotonic()
    lsns = [frame.lsn for frame in followed.read(follow=True, timeout_s=0.03)]

    assert lsns == [1, 2]
    assert 0.02 <= time.monotonic() - started < WAIT_S
    log.close()


def test_a_follower_with_a_timeout_is_woken_in_time() -> None:
    _, world = simulated(settings=POLLING)
    log = world.open()
    log.append([rows(1)])

    follower = Follower(log.read(follow=True, timeout_s=WAIT_S))
    follower.wait_for(2)
    log.append([rows(1)])
    follower.wait_for(3)
    log.close()
    follower.join()

    assert follower.lsns == [1, 2, 3]


def test_following_an_empty_log_waits_for_its_first_frame() -> None:
    _, world = simulated(settings=POLLING)
    log, other = world.open(), world.open()
    follower = Follower(other.read(follow=True))

    log.append([rows(1)])
    follower.wait_for(2)
    other.close()
    follower.join()

    assert follower.lsns == [1, 2]
    log.close()


def test_a_follower_that_looks_while_the_log_is_claimed_does_not_take_its_owners_view_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, world = simulated()
    log = world.open()
    three_segments(world)
    device = log.device
    looking, appended = threading.Event(), threading.Event()
    show = device._show

    def show_late(view: View) -> None:
        if threading.current_thread() is not threading.main_thread():
            looking.set()
            appended.wait(0.2)  # not for ever: the owner may have to wait for this look
        show(view)

    monkeypatch.setattr(device, "_show", show_late)
    thread = threading.Thread(target=log.durable_lsn, daemon=True)
    thread.start()
    assert looking.wait(WAIT_S)
    log.append([rows(1)])
    appended.set()
    thread.join(WAIT_S)

    log.append([rows(1)])
    assert [frame.lsn for frame in log.read(Lsn(12))] == [12, 13]
    assert [frame.lsn for frame in log.read_partition(1, 0, 11)] == [12, 13]
    log.close()


@pytest.mark.parametrize("again", [True, False])
def test_a_reader_that_plans_again_while_the_log_is_claimed_does_not_take_its_owners_view_away(again: bool) -> None:
    _, world = simulated()
    three_segments(world)
    log = world.open()
    if again:
        log.device._plan_again()
    log.append([rows(1)])
    view = log.device.view

    log.device._plan_again()

    assert log.device.view is view
    log.close()


FOLLOWER = """
import sys
from headwater.log import open_log
from headwater.storage.disk import DiskFiles
log = open_log(DiskFiles(sys.argv[1]))
print("open", flush=True)
for frame in log.read(follow=True, to_lsn=int(sys.argv[2]), timeout_s=20):
    print(frame.header.lsn, flush=True)
"""


def test_another_process_follows(tmp_path: Path) -> None:
    with open_log(DiskFiles(tmp_path), settings=LogSettings(reserve_bytes=0)) as log:
        log.append([rows(1)])
        process = subprocess.Popen(
            [sys.executable, "-c", FOLLOWER, str(tmp_path), "5"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "open\n"
            log.append([rows(1)])
            log.roll()
            log.append([rows(1)])
            log.append([Draft(Kind.METADATA, b"last")])
            seen = process.stdout.read().split()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    assert seen == ["1", "2", "3", "4", "5"]


def test_counters_say_what_the_log_has_done() -> None:
    _, world = simulated()
    log = world.open()

    fill(log, [[[rows(1, 3)], [rows(2, 1), rows(1, 1)]], [[rows(1)]]])

    counted = log.counters.as_dict()
    assert (counted["appends"], counted["append_rows"], counted["commits"], counted["rolls"]) == (3, 6, 3, 1)
    assert counted["io_errors"] == counted["requests_refused"] == 0
    log.close()
