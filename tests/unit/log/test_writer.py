"""The writer: one sync for many, the baton that never gets lost, and what each caller is told when things go wrong.

Every wait has a bound: a test that would hang says so after WAIT_S.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from headwater.errors import (
    Closed,
    DamagedLog,
    HeadwaterError,
    InvalidRequest,
    LogLocked,
    OutcomeUnknown,
    Poisoned,
    Unavailable,
)
from headwater.frames.bodies import unpack_epoch
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log import Draft, FrameLog, Receipt
from headwater.log.index import partition_key
from headwater.log.mark import read_mark
from headwater.log.writer import FormedWrite, Request, Sequencer, Writer, each_alone
from headwater.storage.disk import DiskFiles
from headwater.storage.simulated import SimulatedFiles
from tests.unit.log.callers import (
    Threads,
    interrupts,
    needs_main_thread,
    no_place_for_an_interrupt,
    queued,
    until,
)
from tests.unit.log.small_logs import SETTINGS, WAIT_S, World, cut, record, rows, segment_names, simulated, stored

DRAFT_BYTES = rows(1).frame_size


class Gate:
    """Holds the first sync of a segment until it is opened, so that others queue up behind it."""

    def __init__(self, files: SimulatedFiles) -> None:
        self.reached = threading.Event()
        self._open = threading.Event()
        self._files = files
        files.before_call = self._before_call

    def _before_call(self, verb: str, name: str) -> None:
        if verb == "sync_data" and name.endswith(".seg") and not self.reached.is_set():
            self.reached.set()
            assert self._open.wait(WAIT_S), "nobody opened the gate"

    def wait_until_reached(self) -> None:
        assert self.reached.wait(WAIT_S), "no sync came"

    def open(self) -> None:
        self._files.before_call = None
        self._open.set()


@pytest.fixture(autouse=True)
def interrupts_arrive() -> Iterator[None]:
    with interrupts():
        yield


@pytest.fixture
def stage() -> Iterator[tuple[SimulatedFiles, World, FrameLog, Threads]]:
    """A log that is owned, and threads that are gone when the test ends."""
    files, world = simulated()
    log = world.open()
    log.claim()
    threads = Threads()
    yield files, world, log, threads
    threads.join()


Stage = tuple[SimulatedFiles, World, FrameLog, Threads]


def gated(stage: Stage) -> Gate:
    """Somebody's commit is in the middle of its sync."""
    files, _, log, threads = stage
    gate = Gate(files)
    threads.start(lambda: log.append([rows(99)]))
    gate.wait_until_reached()
    return gate


# One sync for many --------------------------------------------------------------------------------


def test_one_sync_serves_everybody_who_is_queued(stage: Stage) -> None:
    files, _, log, threads = stage
    gate = gated(stage)
    syncs = files.calls.count(("sync_data", f"log/{segment_names(files)[0]}"))

    def append(number: int) -> Callable[[], Receipt]:
        return lambda: log.append([rows(1, 2, body=b"%d" % number)])

    callers = [threads.start(append(number)) for number in range(64)]
    until("all are queued", lambda: queued(log) == 64)
    gate.open()
    threads.join()

    assert files.calls.count(("sync_data", f"log/{segment_names(files)[0]}")) - syncs == 2
    receipts: list[Receipt] = [threads.results[number] for number in callers]
    bodies = {int(frame.lsn): bytes(frame.body) for frame in log.read()}
    assert sorted(receipt.first_lsn for receipt in receipts) == list(range(3, 67))
    assert [bodies[receipt.first_lsn] for receipt in receipts] == [b"%d" % i for i in range(64)]
    in_log_order = sorted(receipts)
    assert [receipt.base_offsets for receipt in in_log_order] == [(2 * n,) for n in range(64)]
    assert log.counters.appends == 65 and log.counters.commits == 2 and log.counters.append_rows == 129


def test_requests_reach_the_log_in_the_order_in_which_they_were_queued_and_answers_leave_in_log_order(
    stage: Stage,
) -> None:
    _, _, log, _ = stage
    gate = gated(stage)
    answered: list[int] = []

    futures = [log.append_future([rows(1, body=b"%d" % number)]) for number in range(20)]
    for future in futures:
        future.add_done_callback(lambda done: answered.append(done.result().first_lsn))
    gate.open()
    lsns = [future.result(WAIT_S).first_lsn for future in futures]

    assert lsns == sorted(lsns) == answered
    assert [bytes(frame.body) for frame in log.read(lsns[0])] == [b"%d" % number for number in range(20)]


def test_the_frames_of_a_write_have_one_receipt(stage: Stage) -> None:
    _, world, log, _ = stage
    world.clock.advance(1)

    receipt = log.append([rows(1, 3), record(), rows(2, 5, partition=7), rows(1, 1)])

    assert receipt == Receipt(Lsn(2), Lsn(5), (0, 0, 0, 3), world.clock.now_us())  # type: ignore[arg-type]


def test_a_future_is_done_when_its_write_is_durable(stage: Stage) -> None:
    files, _, log, _ = stage
    gate = Gate(files)

    future = log.append_future([rows(1)])
    gate.wait_until_reached()
    assert not future.done() and not future.cancel()
    gate.open()

    assert future.result(WAIT_S).last_lsn == 2 == log.durable_lsn()


# The baton ----------------------------------------------------------------------------------------


def leaders(log: FrameLog) -> list[str]:
    """The name of the thread that forms each commit, as they come."""
    names: list[str] = []

    def form(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        names.append(threading.current_thread().name)
        return each_alone(requests, sequencer)

    log._writer._form = form
    return names


def test_a_caller_that_finds_the_baton_free_commits_itself(stage: Stage) -> None:
    _, _, log, _ = stage
    names = leaders(log)

    log.append([rows(1)])

    assert names == [threading.current_thread().name]
    assert log._writer._background is None


def test_the_baton_goes_to_the_next_caller_that_waits(stage: Stage) -> None:
    _, _, log, threads = stage
    names = leaders(log)
    gate = gated(stage)

    threads.start(lambda: log.append([rows(1)]))
    until("the second waits", lambda: queued(log) == 1)
    threads.start(lambda: log.append([rows(1)]))
    until("the third waits", lambda: queued(log) == 2)
    gate.open()
    threads.join()

    assert names == ["caller 0", "caller 1"]


def test_the_baton_goes_to_the_background_thread_for_a_future_and_it_serves_callers_too(stage: Stage) -> None:
    _, _, log, threads = stage
    names = leaders(log)
    gate = gated(stage)

    future = log.append_future([rows(1)])
    caller = threads.start(lambda: log.append([rows(1)]))
    until("both are queued", lambda: queued(log) == 2)
    gate.open()
    threads.join()

    assert names == ["caller 0", "headwater-writer"]
    assert future.result(WAIT_S).first_lsn == 3 and threads.results[caller].first_lsn == 4


def test_a_caller_behind_the_background_thread_gets_the_baton_from_it(stage: Stage) -> None:
    files, _, log, threads = stage
    names = leaders(log)
    gate = Gate(files)
    future = log.append_future([rows(1)])
    gate.wait_until_reached()

    threads.start(lambda: log.append([rows(1)]))
    until("it waits", lambda: queued(log) == 1)
    gate.open()
    threads.join()

    assert future.result(WAIT_S).first_lsn == 2
    assert names == ["headwater-writer", "caller 0"]


def test_a_request_that_comes_between_the_last_look_and_the_release_is_not_left_behind(stage: Stage) -> None:
    _, _, log, _ = stage
    writer = log._writer
    late: list[Future[Receipt]] = []

    class Baton:
        """Right after it is given back, somebody queues who had found it taken."""

        def __init__(self) -> None:
            self._lock = threading.Lock()
            self.acquire = self._lock.acquire

        def release(self) -> None:
            self._lock.release()
            if not late:
                late.append(Future())
                writer._enqueue(Request([rows(1)], DRAFT_BYTES, late[0]))

    writer._baton = Baton()  # type: ignore[assignment]
    log.append([rows(1)])

    assert late[0].result(WAIT_S).first_lsn == 3


def test_a_caller_that_gets_the_baton_after_another_has_served_it_has_nothing_to_do(stage: Stage) -> None:
    _, _, log, _ = stage
    writer = log._writer
    names = leaders(log)

    class Baton:
        """Whoever takes it finds that somebody was faster."""

        def __init__(self) -> None:
            self._lock = threading.Lock()
            self.release = self._lock.release

        def acquire(self, blocking: bool = True) -> bool:
            got = self._lock.acquire(blocking)
            writer._commit(writer._take_all())
            return got

    writer._baton = Baton()  # type: ignore[assignment]
    receipt = log.append([rows(1)])

    assert receipt.first_lsn == 2 and len(names) == 1


def test_what_is_done_under_the_baton_is_done_beside_no_append_and_those_queued_go_on(stage: Stage) -> None:
    _, _, log, threads = stage
    inside, leave = threading.Event(), threading.Event()

    def act() -> str:
        inside.set()
        assert leave.wait(WAIT_S)
        return "done"

    exclusive = threads.start(lambda: log.exclusively(act))
    assert inside.wait(WAIT_S)
    caller = threads.start(lambda: log.append([rows(1)]))
    until("it waits", lambda: queued(log) == 1)
    assert log.durable_lsn() == 0
    leave.set()
    threads.join()

    assert threads.results[exclusive] == "done" and threads.results[caller].first_lsn == 2


def test_an_act_that_fails_gives_the_baton_back(stage: Stage) -> None:
    _, _, log, _ = stage

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        log.exclusively(fail)

    assert log.append([rows(1)]).first_lsn == 2


# The hook -----------------------------------------------------------------------------------------


def test_a_request_can_be_refused_alone(stage: Stage) -> None:
    _, _, log, _ = stage

    def form(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        for request in requests:
            if request.drafts[0].body == b"bad":
                request.refuse(InvalidRequest("expect_offset does not hold"))
        return each_alone([request for request in requests if not request.done], sequencer)

    log._writer._form = form
    gate = gated(stage)
    futures = [log.append_future([rows(1, body=body)]) for body in (b"good", b"bad", b"fine")]
    gate.open()

    assert [futures[0].result(WAIT_S).base_offsets, futures[2].result(WAIT_S).base_offsets] == [(0,), (1,)]
    with pytest.raises(InvalidRequest, match="does not hold"):
        futures[1].result(WAIT_S)


def test_a_request_that_was_refused_alone_is_not_told_of_what_befell_the_others(stage: Stage) -> None:
    files, _, log, _ = stage

    def form(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        requests[0].refuse(InvalidRequest("expect_offset does not hold"))
        return each_alone(requests[1:], sequencer)

    gate = gated(stage)
    log._writer._form = form
    futures = [log.append_future([rows(1)]) for _ in range(2)]
    files.fail(1, errno.ENOSPC, verbs=["append"])
    gate.open()

    with pytest.raises(InvalidRequest):
        futures[0].result(WAIT_S)
    with pytest.raises(Unavailable):
        futures[1].result(WAIT_S)


def test_where_all_are_refused_nothing_is_written(stage: Stage) -> None:
    files, _, log, _ = stage

    def form(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        for request in requests:
            request.refuse(InvalidRequest("no"))
        return []

    log._writer._form = form
    calls = len(files.calls)
    with pytest.raises(InvalidRequest):
        log.append([rows(1)])

    assert len(files.calls) == calls and log.durable_lsn() == 0


def test_requests_can_be_joined_into_one_write(stage: Stage) -> None:
    _, _, log, _ = stage

    def join(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        joined = rows(1, sum(request.drafts[0].row_count for request in requests), body=b"joined")
        return [FormedWrite([joined], [sequencer.take(joined)], requests)]

    gate = gated(stage)
    log._writer._form = join
    futures = [log.append_future([rows(1, count)]) for count in (2, 3)]
    gate.open()
    receipts = [future.result(WAIT_S) for future in futures]

    assert receipts[0] == receipts[1] and receipts[0].base_offsets == (0,)
    assert [(frame.header.row_count, bytes(frame.body)) for frame in log.read(Lsn(3))] == [(5, b"joined")]
    assert log.counters.appends == 3


def test_the_sequencer_gives_offsets_for_rows_only_and_each_once(stage: Stage) -> None:
    _, _, log, _ = stage
    log.claim()
    committed = log.device.next_offsets()
    committed[partition_key(1, 0)] = 10
    sequencer = Sequencer(log.device, append_time_us=1, lead_bytes=0)

    assert [sequencer.take(rows(1, 2)), sequencer.take(rows(1, 3)), sequencer.take(rows(2, 1))] == [10, 12, 0]
    assert sequencer.take(record()) == 0
    assert sequencer.next_offset(partition_key(1, 0)) == 15 and committed == {partition_key(1, 0): 10}


# Room ---------------------------------------------------------------------------------------------


def with_room(log: FrameLog, size: int, timeout_s: float) -> None:
    log._writer._settings = replace(SETTINGS, in_flight_bytes_max=size, append_timeout_s=timeout_s)


def test_an_append_that_finds_no_room_in_time_is_unavailable_and_nothing_of_it_is_written(stage: Stage) -> None:
    _, _, log, threads = stage
    with_room(log, 2 * DRAFT_BYTES, 0.02)
    gate = gated(stage)
    fits = threads.start(lambda: log.append([rows(1)]))
    until("it waits", lambda: queued(log) == 1)

    with pytest.raises(Unavailable, match="nothing was appended") as raised:
        log.append([rows(2)])
    with pytest.raises(Unavailable):
        log.append_future([rows(2)])
    gate.open()
    threads.join()

    assert raised.value.facts == {"waited_s": 0.02, "in_flight_bytes": 2 * DRAFT_BYTES}
    assert threads.results[fits].first_lsn == 3
    assert [frame.header.topic_number for frame in log.read(Lsn(2))] == [99, 1]
    assert log.counters.requests_refused == 2


def test_an_append_waits_for_room_and_gets_it(stage: Stage) -> None:
    _, _, log, threads = stage
    with_room(log, DRAFT_BYTES, 10 * WAIT_S)
    gate = gated(stage)

    callers = [threads.start(lambda: log.append([rows(1)])) for _ in range(5)]
    until("all wait for room", lambda: log._writer._waiting_for_room == 5)
    gate.open()
    threads.join()

    assert sorted(threads.results[number].first_lsn for number in callers) == [3, 4, 5, 6, 7]
    assert log._writer._in_flight_bytes == 0


def test_one_request_larger_than_the_room_is_let_in(stage: Stage) -> None:
    _, _, log, _ = stage
    with_room(log, 256, 0.02)

    assert log.append([rows(1, body=bytes(5000))]).first_lsn == 2


def test_what_no_log_may_hold_is_refused_before_it_is_queued(stage: Stage) -> None:
    _, _, log, _ = stage

    with pytest.raises(InvalidRequest):
        log.append([])
    with pytest.raises(InvalidRequest):
        log.append_future([Draft(Kind.EPOCH, b"")])

    assert queued(log) == 0 and log._writer._in_flight_bytes == 0


# Interrupts ---------------------------------------------------------------------------------------


def check_it_goes_on(log: FrameLog, why: str = "") -> None:
    """Appends by callers and by futures come to an end: the baton is where it belongs."""
    threads = Threads()
    threads.start(lambda: log.append([rows(1)]))
    threads.join(why)
    threads.start(lambda: log.append_future([rows(1)]).result(WAIT_S))
    threads.join(why)
    for error in threads.errors.values():
        assert isinstance(error, Poisoned), error


@needs_main_thread
def test_a_caller_interrupted_while_it_waits_leaves_its_request_to_the_others(stage: Stage) -> None:
    _, _, log, threads = stage
    gate = gated(stage)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        until("the main thread waits", lambda: queued(log) == 1)
        signal.pthread_kill(main, signal.SIGINT)

    threads.start(interrupt)
    with pytest.raises(KeyboardInterrupt):
        log.append([rows(1, body=b"interrupted")])
    gate.open()
    threads.join()

    check_it_goes_on(log)
    assert bytes(next(log.read(Lsn(3))).body) == b"interrupted"


@needs_main_thread
def test_a_caller_interrupted_while_it_waits_may_be_refused_behind_its_back(stage: Stage) -> None:
    files, _, log, threads = stage
    gate = gated(stage)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        until("the main thread waits", lambda: queued(log) == 1)
        signal.pthread_kill(main, signal.SIGINT)

    threads.start(interrupt)
    with pytest.raises(KeyboardInterrupt):
        log.append([rows(1)])
    files.fail(1, errno.ENOSPC, verbs=["append"])
    gate.open()
    threads.join()

    until("it was refused", lambda: log.counters.requests_refused == 1)
    check_it_goes_on(log)
    assert log.append([rows(1)]).base_offsets == (2,)


def test_a_caller_interrupted_just_as_it_got_the_baton_leads_and_passes_it_on(stage: Stage) -> None:
    _, _, log, threads = stage
    gate = gated(stage)
    got_the_baton = threading.Event()

    class Interrupted(Request):
        __slots__ = ()

        def wait(self) -> None:
            until("the baton was handed over", lambda: self.leads)
            got_the_baton.set()
            raise KeyboardInterrupt

    def append() -> None:
        writer = log._writer
        request = Interrupted([rows(1, body=b"mine")], DRAFT_BYTES, None)
        try:
            writer._enqueue(request)
            assert not writer._baton.acquire(blocking=False)
            request.wait()
        except BaseException:
            writer._stop_waiting(request)
            raise

    interrupted = threads.start(append)
    until("it is queued", lambda: queued(log) == 1)
    other = threads.start(lambda: log.append([rows(1)]))
    until("another is queued", lambda: queued(log) == 2)
    gate.open()
    threads.join()

    assert got_the_baton.is_set() and isinstance(threads.errors[interrupted], KeyboardInterrupt)
    assert threads.results[other].first_lsn == 4
    check_it_goes_on(log)
    assert log.append([rows(1)]).first_lsn > 5, "it is not poisoned: the request was served"


WATCHED = {
    method.__code__ for method in (Writer.append, Writer._wait_for, Writer._enqueue, Request.wait, Request.answer)
}


def interrupted_append(number: int, *, baton_is_free: bool) -> str:
    """Append, interrupted before the n-th line that runs; says which that was, if it came so far."""
    files, world = simulated()
    log = world.open()
    log.claim()
    threads = Threads()
    gate = gated((files, world, log, threads)) if not baton_is_free else None
    left = number
    hit: list[str] = []

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if frame.f_code not in WATCHED:
            return None
        if event == "line":
            left -= 1
            if left == 0 and not no_place_for_an_interrupt(frame):
                hit.append(f"{frame.f_code.co_name}, line {frame.f_lineno}")
                raise KeyboardInterrupt
        return trace

    def append() -> Receipt:
        sys.settrace(trace)
        try:
            return log.append([rows(1)])
        finally:
            sys.settrace(None)

    threads.start(append)
    if gate is not None:
        until("it is queued or was interrupted", lambda: queued(log) == 1 or bool(hit))
        gate.open()
    threads.join(f"interrupted before line {number}")
    where = "".join(hit)
    check_it_goes_on(log, where)
    return where


@pytest.mark.parametrize("baton_is_free", [True, False])
def test_an_interrupt_at_any_line_of_an_append_does_not_lose_the_baton(baton_is_free: bool) -> None:
    interrupted = [interrupted_append(number, baton_is_free=baton_is_free) for number in range(1, 30)]

    assert len(set(interrupted)) > 10


def test_an_interrupt_in_the_middle_of_a_commit_poisons_and_tells_everybody(stage: Stage) -> None:
    _, world, log, threads = stage
    gate = gated(stage)

    def form(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        raise KeyboardInterrupt

    log._writer._form = form
    leader = threads.start(lambda: log.append([rows(1)]))
    until("it waits", lambda: queued(log) == 1)
    future = log.append_future([rows(1)])
    gate.open()
    threads.join()

    assert isinstance(threads.errors[leader], KeyboardInterrupt)
    with pytest.raises(OutcomeUnknown, match="retry with the same sequence number"):
        future.result(WAIT_S)
    check_it_goes_on(log)
    log.close()
    with world.open() as again:
        assert again.append([rows(1)]).first_lsn == 4


def test_a_bug_in_the_background_thread_does_not_take_the_baton_with_it(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    _, _, log, _ = stage

    def form(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        raise ZeroDivisionError("a bug in a hook")

    log._writer._form = form
    with caplog.at_level(logging.ERROR):
        with pytest.raises(OutcomeUnknown):
            log.append_future([rows(1)]).result(WAIT_S)
        with pytest.raises(Poisoned):
            log.append_future([rows(1)]).result(WAIT_S)

    assert "a commit ended half-way" in caplog.text
    check_it_goes_on(log)
    log.close()


# Poison and refusals ------------------------------------------------------------------------------


def test_after_a_failed_sync_those_in_flight_do_not_know_and_later_ones_are_refused(stage: Stage) -> None:
    files, world, log, threads = stage
    gate = gated(stage)
    caller = threads.start(lambda: log.append([rows(1)]))
    until("it waits", lambda: queued(log) == 1)
    future = log.append_future([rows(1)])

    files.fail(2, errno.EIO, verbs=["sync_data"])  # the one that is held now is the first to come
    gate.open()
    threads.join()

    assert isinstance(threads.errors[caller], OutcomeUnknown)
    with pytest.raises(OutcomeUnknown):
        future.result(WAIT_S)
    for act in (lambda: log.append([rows(1)]), lambda: log.append_future([rows(1)]).result(WAIT_S), log.roll):
        with pytest.raises(Poisoned, match="close this log and open it again"):
            act()
    assert log.counters.requests_refused == 4
    log.close()
    with world.open(files.restart()) as again:
        assert again.append([rows(1)]).first_lsn in (4, 6)


def test_a_commit_that_is_refused_uses_no_lsn_and_no_offset(stage: Stage) -> None:
    files, _, log, _ = stage
    log.append([rows(1, 5)])

    files.fail(1, errno.ENOSPC, verbs=["append"], short=True)
    with pytest.raises(Unavailable, match="the disk is full"):
        log.append([rows(1, 3)])
    receipt = log.append([rows(1, 1)])

    assert receipt.base_offsets == (5,)
    assert [frame.header.topic_number for frame in log.read() if frame.header.kind == Kind.DATA] == [1, 1]


def test_every_life_begins_with_its_epoch(stage: Stage) -> None:
    files, world, log, _ = stage
    log.append([rows(1)])
    log.close()
    with world.open() as again:
        again.append([rows(1)])
        again.append([rows(1)])

    frames = stored(files)
    assert [Kind(frame.header.kind).name for frame in frames.values()] == ["EPOCH", "DATA", "EPOCH", "DATA", "DATA"]
    for lsn in (1, 3):
        epoch = unpack_epoch(frames[lsn].body)
        assert epoch is not None and epoch[0] == frames[lsn].header.epoch == (lsn + 1) // 2


def test_an_epoch_whose_first_commit_was_refused_begins_with_the_next_one(stage: Stage) -> None:
    files, _, log, _ = stage

    files.fail(1, errno.EIO, verbs=["append"])
    with pytest.raises(Unavailable, match="taken back"):
        log.append([rows(1)])
    receipt = log.append([rows(1)])
    log.append([rows(1)])

    assert receipt.first_lsn == 2
    frames = stored(files)
    assert [Kind(frame.header.kind).name for frame in frames.values()] == ["EPOCH", "DATA", "DATA"]
    epoch = unpack_epoch(frames[1].body)
    assert epoch is not None and epoch[0] == frames[1].header.epoch == frames[3].header.epoch


def test_append_times_rise_strictly_whatever_the_clock_does(stage: Stage) -> None:
    files, world, log, _ = stage
    times = [log.append([rows(1)]).append_time_us]

    times.append(log.append([rows(1)]).append_time_us)  # the clock stands still
    world.clock.set_wall_clock(world.clock.now_us() - 3_600_000_000)
    times.append(log.append([rows(1)]).append_time_us)
    files.fail(1, errno.ENOSPC, verbs=["append"])
    with pytest.raises(Unavailable):
        log.append([rows(1)])
    times.append(log.append([rows(1)]).append_time_us)
    world.clock.set_wall_clock(times[0] + 3_600_000_000)
    times.append(log.append([rows(1)]).append_time_us)

    assert [time_us - times[0] for time_us in times] == [0, 1, 2, 4, 3_600_000_000]
    assert [frame.header.append_time_us for frame in log.read(Lsn(2)) if frame.header.kind == Kind.DATA] == times


def test_append_times_go_on_rising_in_the_next_life(stage: Stage) -> None:
    _, world, log, _ = stage
    last = log.append([rows(1)]).append_time_us
    log.close()
    world.clock.set_wall_clock(0)

    with world.open() as again:
        assert again.append([rows(1)]).append_time_us == last + 1


# Claims -------------------------------------------------------------------------------------------


def all_waiting_get(log: FrameLog, error: type[HeadwaterError]) -> None:
    """Hold the baton until several wait, then let the claim fail for them all."""
    writer = log._writer
    threads = Threads()
    writer._baton.acquire()
    callers = [threads.start(lambda: log.append([rows(1)])) for _ in range(3)]
    future = log.append_future([rows(1)])
    until("all are queued", lambda: queued(log) == 4)
    writer._pass_on()
    threads.join()
    assert [type(threads.errors[number]) for number in callers] == [error] * 3
    with pytest.raises(error):
        future.result(WAIT_S)


def test_a_log_that_another_owns_is_told_to_all_who_wait_and_can_be_used_once_it_is_free() -> None:
    _, world = simulated()
    owner, log = world.open(), world.open()
    owner.append([rows(1)])

    all_waiting_get(log, LogLocked)
    with pytest.raises(LogLocked, match=f"pid {os.getpid()}"):
        log.claim()
    owner.close()

    assert log.append([rows(1)]).base_offsets == (1,)
    log.close()


def test_a_halt_at_the_claim_is_told_to_all_who_wait_and_the_log_can_be_used_once_it_is_mended() -> None:
    files, world = simulated()
    with world.open() as first:
        first.append([rows(1)])
        first.append([rows(1)])
    log = world.open()
    path = f"log/{segment_names(files)[0]}"
    whole = files.contents(path)
    cut(files, path, len(whole) - 10)

    all_waiting_get(log, DamagedLog)
    files.put(path, whole)

    assert log.append([rows(1)]).base_offsets == (2,)
    log.close()


# Closing ------------------------------------------------------------------------------------------


def test_closing_serves_the_futures_that_are_queued(stage: Stage) -> None:
    _, world, log, threads = stage
    gate = gated(stage)
    futures = [log.append_future([rows(1)]) for _ in range(3)]

    threads.start(log.close)
    until("it is closing", lambda: log._writer._closed)
    gate.open()
    threads.join()

    assert [future.result(0).first_lsn for future in futures] == [3, 4, 5]
    assert world.open().recovery_report.clean


def test_a_closed_log_refuses_and_closing_twice_is_nothing(stage: Stage) -> None:
    _, _, log, _ = stage
    log.append_future([rows(1)]).result(WAIT_S)
    log.close()
    log.close()

    for act in (lambda: log.append([rows(1)]), lambda: log.append_future([rows(1)]), log.roll, log.claim):
        with pytest.raises(Closed):
            act()
    assert not [thread for thread in threading.enumerate() if thread is log._writer._background]


def test_a_caller_that_waited_for_room_while_the_log_was_closed_is_told_so(stage: Stage) -> None:
    _, _, log, threads = stage
    with_room(log, DRAFT_BYTES, WAIT_S)
    gate = gated(stage)
    caller = threads.start(lambda: log.append([rows(1)]))
    until("it waits for room", lambda: log._writer._waiting_for_room == 1)

    threads.start(log.close)
    until("it is closing", lambda: log._writer._closed)
    gate.open()
    threads.join()

    # Served before the close, or refused after it; never left waiting.
    assert caller in threads.results or isinstance(threads.errors[caller], Closed)


@pytest.mark.parametrize("background", [True, False])
def test_those_who_come_while_the_log_is_being_closed_are_told_so(stage: Stage, background: bool) -> None:
    _, _, log, threads = stage
    writer = log._writer
    if background:
        log.append_future([rows(1)]).result(WAIT_S)
    late: list[Future[Receipt]] = [Future(), Future()]
    caller: list[int] = []

    def last_act() -> None:
        # They had found the log open, and queue only now.
        writer._check = lambda drafts: DRAFT_BYTES  # type: ignore[method-assign]
        writer._enqueue(Request([rows(1)], DRAFT_BYTES, late[0]))
        caller.append(threads.start(lambda: log.append([rows(1)])))
        until("both are queued", lambda: queued(log) == 2)
        log.device.close()

    writer.close(last_act)
    threads.join()
    late[1] = log.append_future([rows(1)])

    assert isinstance(threads.errors[caller[0]], Closed)
    for future in late:
        with pytest.raises(Closed):
            future.result(WAIT_S)


def test_an_act_that_waited_for_the_baton_of_a_closing_log_is_told_so(stage: Stage) -> None:
    _, _, log, threads = stage
    writer = log._writer
    looked = threading.Event()
    roll: list[int] = []

    def last_act() -> None:
        # It had found the log open, and waits for the baton now.
        writer._check_usable = looked.set  # type: ignore[method-assign]
        roll.append(threads.start(log.roll))
        assert looked.wait(WAIT_S)
        log.device.close()

    writer.close(last_act)
    threads.join()

    assert isinstance(threads.errors[roll[0]], Closed)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_after_a_fork_the_child_is_told_so_and_the_parent_goes_on(tmp_path: Path) -> None:
    world = World(DiskFiles(tmp_path))
    log = world.open()
    log.append([rows(1)])
    log.append_future([rows(1)]).result(WAIT_S)

    child = os.fork()
    if child == 0:
        code = 1
        try:
            for act in (lambda: log.append([rows(1)]), lambda: log.append_future([rows(1)]), log.roll, log.claim):
                with pytest.raises(Closed):
                    act()
            log.close()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)

    assert os.waitstatus_to_exitcode(status) == 0
    assert log.append([rows(1)]).first_lsn == 4
    with pytest.raises(LogLocked):
        World(DiskFiles(tmp_path)).open().claim()
    log.close()


# The mark -----------------------------------------------------------------------------------------


def idle_log(**more: Any) -> tuple[SimulatedFiles, World, FrameLog]:
    files, world = simulated(settings=replace(SETTINGS, mark_sync_idle_s=0.005, **more))
    log = world.open()
    log.claim()
    return files, world, log


def mark_syncs(files: SimulatedFiles) -> int:
    return files.calls.count(("sync_data", "log/mark"))


def test_the_mark_is_synced_once_the_log_has_been_idle() -> None:
    files, world, log = idle_log()
    log.append([rows(1)])
    before = mark_syncs(files)

    time.sleep(0.05)  # the clock of this log stands still, so it has not been idle
    assert mark_syncs(files) == before
    world.clock.advance(1)
    until("the mark is synced", lambda: mark_syncs(files) > before)

    on_disk = files.contents_on_disk("log/mark")
    assert on_disk is not None and on_disk == files.contents("log/mark")
    mark = read_mark(files.open("log/mark"))
    assert mark is not None and mark.durable_lsn == 2
    until("nobody watches it any more", lambda: not log._writer._mark_watched)
    log.append([rows(1)])
    world.clock.advance(1)
    until("the mark is synced again", lambda: mark_syncs(files) > before + 1)
    log.close()


def test_the_mark_waits_while_somebody_has_the_baton() -> None:
    files, world, log = idle_log()
    log.append([rows(1)])
    before = mark_syncs(files)

    def act() -> None:
        world.clock.advance(1)
        time.sleep(0.05)
        assert mark_syncs(files) == before

    log.exclusively(act)
    until("the mark is synced", lambda: mark_syncs(files) > before)
    log.close()


def test_a_mark_that_cannot_be_synced_poisons_the_log_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    files, world, log = idle_log()
    log.append([rows(1)])

    files.fail(1, errno.EIO, verbs=["sync_data"])
    with caplog.at_level(logging.ERROR):
        world.clock.advance(1)
        until("it is told", lambda: "the mark could not be synced" in caplog.text)

    with pytest.raises(Poisoned):
        log.append([rows(1)])
    log.close()


def test_without_an_idle_time_nobody_watches_the_mark(stage: Stage) -> None:
    _, _, log, _ = stage

    log.append([rows(1)])

    assert log._writer._background is None and not log._writer._mark_watched


def test_what_is_queued_when_the_close_gets_the_baton_is_still_served(stage: Stage) -> None:
    _, _, log, _ = stage
    drafts = [rows(1)]
    future: Future[Receipt] = Future()
    log._writer._enqueue(Request(drafts, drafts[0].frame_size, future))

    log.close()

    assert future.result(timeout=WAIT_S).first_lsn == 2
