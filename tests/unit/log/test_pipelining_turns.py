"""Several commits in flight: when the next one goes and how much it takes, acts beside them, and interrupts.

Every wait has a bound: a test that would hang says so after WAIT_S.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

import pytest

from headwater.clock import ManualClock
from headwater.errors import Closed, OutcomeUnknown, Poisoned
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log import Receipt
from headwater.log.pipelining import PipelinedWriter
from headwater.log.writer import Request, Writer
from headwater.storage.simulated import SimulatedFiles
from tests.unit.log.callers import (
    interrupts,
    needs_main_thread,
    no_place_for_an_interrupt,
    queued,
    until,
)
from tests.unit.log.held_device import HeldDevice
from tests.unit.log.held_stage import (
    AT_ONCE,
    DRAFT_BYTES,
    FOR_EVER,
    Landing,
    Stage,
    Stages,
    done,
    stages_of_a_test,
)
from tests.unit.log.small_logs import SETTINGS, WAIT_S, rows, stored


@pytest.fixture(autouse=True)
def interrupts_arrive() -> Iterator[None]:
    with interrupts():
        yield


@pytest.fixture
def stages() -> Iterator[Stages]:
    with stages_of_a_test() as make:
        yield make


# Acts ---------------------------------------------------------------------------------------------


def test_what_is_done_under_the_baton_waits_until_nothing_is_in_flight_and_serves_what_is_queued(
    stages: Stages,
) -> None:
    stage = stages()
    futures = stage.issue(b"0", b"1")
    stage.writer._baton.acquire()
    futures.append(stage.log.append_future([rows(1, body=b"2")]))

    act = stage.threads.start(lambda: stage.log.exclusively(lambda: (stage.log.durable_lsn(), done(futures))))
    until("it waits for the baton", lambda: stage.writer._acts_waiting == 1)
    stage.writer._pass_on()
    stage.device.wait_until_issued(3)
    stage.device.land(2)
    assert act not in stage.threads.results
    stage.device.land()
    until("it is done", lambda: act in stage.threads.results)

    assert stage.threads.results[act] == (4, [True, True, True])


@pytest.mark.parametrize("verb", ["roll", "claim", "exclusively"])
def test_an_act_is_not_done_if_what_was_in_flight_before_it_failed(stages: Stages, verb: str) -> None:
    stage = stages()
    stage.issue(b"0")
    acted: list[str] = []
    arguments = [lambda: acted.append("done")] if verb == "exclusively" else []

    act = stage.threads.start(lambda: getattr(stage.log, verb)(*arguments))
    until("it has the baton", stage.writer._baton.locked)
    stage.device.fail(OSError("the store is gone"), told=lambda number: OutcomeUnknown("nobody knows"))
    stage.threads.join()

    assert isinstance(stage.threads.errors[act], Poisoned) and not acted


def test_an_act_comes_before_what_is_queued_however_much_comes(stages: Stages) -> None:
    class AtOnce(HeldDevice):
        at_once = True

    stage = stages(device_of=AtOnce, settings=replace(AT_ONCE, slot_bytes_target=1))
    stop = threading.Event()

    def append() -> None:
        while not stop.is_set():
            stage.log.append([rows(1)])

    for _ in range(4):
        stage.threads.start(append)
    acts = [stage.log.exclusively(stage.log.durable_lsn) for _ in range(50)]
    stop.set()
    stage.threads.join()

    assert acts == sorted(acts)


def test_an_act_that_is_interrupted_while_it_waits_leaves_the_baton_to_those_who_are_queued(stages: Stages) -> None:
    stage = stages()
    writer = stage.writer

    class Baton:
        """Given back for the act alone, just before that is interrupted."""

        def __init__(self, lock: threading.Lock, queue_one: bool) -> None:
            self._lock = lock
            self._queue_one = queue_one
            self.release, self.locked = lock.release, lock.locked

        def acquire(self, blocking: bool = True) -> bool:
            if not blocking:
                return self._lock.acquire(blocking=False)
            if self._queue_one:
                writer._enqueue(Request([rows(1)], DRAFT_BYTES, late))
            raise KeyboardInterrupt

    late: Future[Receipt] = Future()
    lock = threading.Lock()
    for queue_one in (False, True):
        writer._baton = Baton(lock, queue_one)  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            stage.log.roll()
    writer._baton = lock
    stage.device.wait_until_issued(1)
    stage.device.land()

    assert late.result(WAIT_S).first_lsn == 2 and writer._acts_waiting == 0


def test_a_baton_that_was_let_go_for_an_act_that_gave_up_is_taken_again(stages: Stages) -> None:
    stage = stages()
    writer = stage.writer
    writer._baton.acquire()
    late: Future[Receipt] = Future()
    writer._enqueue(Request([rows(1)], DRAFT_BYTES, late))

    class Baton:
        """The act gives up just when it is released."""

        def __init__(self, lock: threading.Lock) -> None:
            self._lock = lock
            self.acquire = lock.acquire

        def release(self) -> None:
            self._lock.release()
            writer._acts_waiting = 0

    writer._baton = Baton(writer._baton)  # type: ignore[assignment]
    writer._acts_waiting = 1
    writer._pass_on()
    stage.device.wait_until_issued(1)
    stage.device.land()

    assert late.result(WAIT_S).first_lsn == 2


def test_closing_serves_what_is_queued_and_waits_for_what_is_in_flight(stages: Stages) -> None:
    stage = stages()
    futures = stage.issue(b"0", b"1")

    stage.threads.start(stage.log.close)
    until("it is closing", lambda: stage.writer._closed)
    time.sleep(0.01)
    assert done(futures) == [False, False]
    stage.device.land(2)
    stage.threads.join()

    assert [future.result(0).first_lsn for future in futures] == [2, 3] and stage.device._closed
    with pytest.raises(Closed):
        stage.log.append([rows(1)])


# Size and interval --------------------------------------------------------------------------------


def gathering(stage: Stage) -> Future[Receipt]:
    """Somebody holds the baton and waits for more; a commit is in flight."""
    stage.issue(b"first")
    future = stage.log.append_future([rows(1, body=b"second")])
    until("somebody gathers", lambda: stage.writer._gathering)
    return future


def patient(**more: Any) -> dict[str, Any]:
    return {"settings": replace(SETTINGS, commit_interval_s=FOR_EVER, **more), "clock": ManualClock()}


def test_with_nothing_in_flight_a_request_goes_at_once(stages: Stages) -> None:
    stage = stages(**patient())

    for number in range(3):
        stage.threads.start(lambda: stage.log.append([rows(1)]))
        stage.device.wait_until_issued(number + 1)
        stage.device.land()
        stage.threads.join()


def test_a_small_commit_waits_for_more_until_nothing_is_in_flight(stages: Stages) -> None:
    stage = stages(**patient())
    futures = [gathering(stage), stage.log.append_future([rows(1, body=b"third")])]

    time.sleep(0.02)
    assert stage.device.issues == 1
    stage.device.land()
    stage.device.wait_until_issued(2)

    assert stage.device.held[0].bodies == [b"second", b"third"] and done(futures) == [False, False]


def test_a_small_commit_goes_once_enough_is_queued(stages: Stages) -> None:
    stage = stages(**patient(slot_bytes_enough=3 * DRAFT_BYTES))
    gathering(stage)

    stage.log.append_future([rows(1)])
    time.sleep(0.02)
    assert stage.device.issues == 1
    stage.log.append_future([rows(1)])
    stage.device.wait_until_issued(2)

    assert len(stage.device.held[1].bodies) == 3


def test_a_small_commit_goes_once_the_interval_is_over(stages: Stages) -> None:
    stage = stages(settings=replace(SETTINGS, commit_interval_s=0.05), clock=ManualClock())
    stage.issue(b"first")
    began = time.monotonic()

    stage.issue(b"second")

    assert time.monotonic() - began > 0.02


def test_a_small_commit_goes_at_once_if_the_interval_was_over_before_it_came(stages: Stages) -> None:
    clock = ManualClock()
    stage = stages(settings=replace(SETTINGS, commit_interval_s=FOR_EVER), clock=clock)
    stage.issue(b"first")
    clock.advance(FOR_EVER)

    stage.issue(b"second")

    assert len(stage.device.held) == 2


def test_a_small_commit_goes_once_nothing_more_can_be_queued(stages: Stages) -> None:
    stage = stages(**patient(in_flight_bytes_max=2 * DRAFT_BYTES + 200, append_timeout_s=WAIT_S))
    gathering(stage)

    stage.threads.start(lambda: stage.log.append([rows(1)]))
    stage.device.wait_until_issued(2)

    assert stage.device.held[1].bodies == [b"second"]


def test_a_small_commit_waits_for_neither_an_act_nor_a_close(stages: Stages) -> None:
    stage = stages(**patient())
    gathering(stage)
    act = stage.threads.start(lambda: stage.log.exclusively(lambda: "done"))
    stage.device.wait_until_issued(2)
    stage.device.land(2)
    until("it is done", lambda: act in stage.threads.results)
    stage.device.issues = 0
    gathering(stage)

    stage.threads.start(stage.log.close)
    stage.device.wait_until_issued(2)
    stage.device.land(2)

    stage.threads.join()


def test_a_commit_takes_about_as_much_as_a_slot_should_hold_and_one_request_at_least(stages: Stages) -> None:
    stage = stages(settings=replace(AT_ONCE, slot_bytes_target=2 * DRAFT_BYTES + 200))
    sizes = [0, 0, 0, 5000, 5000, 0]

    stage.log.exclusively(lambda: [stage.log.append_future([rows(1, body=bytes(size + 1))]) for size in sizes])
    stage.device.wait_until_issued(4)
    stage.device.land(4)
    until("the last one is issued", lambda: bool(stage.device.held) or stage.device.issues == 5)

    assert [len(bodies) for bodies in commits(stage.files)] == [2, 1, 1, 1]


def commits(files: SimulatedFiles) -> list[list[int]]:
    """The LSNs of each commit, told apart by their append times."""
    found: dict[int, list[int]] = {}
    for lsn, frame in stored(files).items():
        if frame.header.kind == Kind.DATA:
            found.setdefault(frame.header.append_time_us, []).append(lsn)
    return list(found.values())


def test_a_caller_that_finds_the_baton_free_after_another_has_issued_its_request_waits_for_nothing(
    stages: Stages,
) -> None:
    stage = stages(**patient())
    writer = stage.writer

    class Baton:
        """Whoever takes it finds that somebody was faster."""

        def __init__(self, lock: threading.Lock) -> None:
            self._lock = lock
            self.release, self.locked = lock.release, lock.locked

        def acquire(self, blocking: bool = True) -> bool:
            got = self._lock.acquire(blocking)
            if writer._queue:
                writer._commit(writer._take())
            return got

    writer._baton = Baton(writer._baton)  # type: ignore[assignment]
    caller = stage.threads.start(lambda: stage.log.append([rows(1)]))
    stage.device.wait_until_issued(1)
    until("it has passed the baton on", lambda: not writer._baton.locked())
    stage.device.land()
    until("it is told", lambda: caller in stage.threads.results)

    assert stage.device.issues == 1


# Interrupts ---------------------------------------------------------------------------------------


def interrupt_main_thread_in(code: CodeType) -> None:
    """Once it is in this code, and has had the time to begin to wait there."""
    main = threading.main_thread().ident
    assert main is not None
    until("the main thread is there", lambda: in_method(sys._current_frames()[main], code))
    time.sleep(0.05)
    signal.pthread_kill(main, signal.SIGINT)


def in_method(frame: FrameType | None, code: CodeType) -> bool:
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None


@needs_main_thread
def test_a_caller_interrupted_while_it_waits_for_its_answer_leaves_the_log_going(stages: Stages) -> None:
    stage = stages()

    stage.threads.start(lambda: interrupt_main_thread_in(Request.wait.__code__))
    with pytest.raises(KeyboardInterrupt):
        stage.log.append([rows(1, body=b"interrupted")])
    (after,) = stage.issue(b"after")
    stage.device.land(2)

    assert after.result(WAIT_S).first_lsn == 3
    assert [bytes(frame.body) for frame in stage.log.read(Lsn(2))] == [b"interrupted", b"after"]


@needs_main_thread
def test_a_caller_interrupted_while_it_gathers_issues_and_passes_the_baton_on(stages: Stages) -> None:
    stage = stages(**patient())
    stage.issue(b"first")

    def interrupt() -> None:
        interrupt_main_thread_in(PipelinedWriter._gather.__code__)
        until("it gathers once more", lambda: stage.writer._gathering)
        stage.device.land()

    stage.threads.start(interrupt)
    with pytest.raises(KeyboardInterrupt):
        stage.log.append([rows(1, body=b"interrupted")])
    stage.device.wait_until_issued(2)
    stage.device.land()
    (after,) = stage.issue(b"after")
    stage.device.land()

    assert after.result(WAIT_S).first_lsn == 4


WATCHED = {
    method.__code__
    for method in (
        Writer.append,
        PipelinedWriter._wait_for,
        PipelinedWriter._enqueue,
        PipelinedWriter._take_all,
        PipelinedWriter._gather,
        Request.wait,
    )
}


def interrupted_append(number: int, *, baton_is_free: bool) -> str:
    """Append, interrupted before the n-th line that runs; says which that was, if it came so far."""
    stage = Stage(device_of=Landing, settings=replace(AT_ONCE, commit_interval_s=0.0 if baton_is_free else 0.001))
    log = stage.log
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

    if not baton_is_free:
        stage.writer._baton.acquire()
    stage.threads.start(append)
    if not baton_is_free:
        until("it is queued or was interrupted", lambda: queued(log) == 1 or bool(hit))
        stage.writer._pass_on()
    stage.threads.join(f"interrupted before line {number}")
    where = "".join(hit)
    for act in (lambda: log.append([rows(1)]), lambda: log.append_future([rows(1)]).result(WAIT_S)):
        after = stage.threads.start(act)
        stage.threads.join(where)
        assert stage.threads.results[after].first_lsn <= 4, where
    log.close()
    return where


@pytest.mark.parametrize("baton_is_free", [True, False])
def test_an_interrupt_at_any_line_of_an_append_does_not_lose_the_baton(baton_is_free: bool) -> None:
    interrupted = [interrupted_append(number, baton_is_free=baton_is_free) for number in range(1, 30)]

    assert len(set(interrupted)) > 10
