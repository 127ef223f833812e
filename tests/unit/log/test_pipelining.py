"""Several commits in flight: nobody is told before it is true, everybody is told in order, and what fails takes all
after it along.

Every wait has a bound: a test that would hang says so after WAIT_S.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from headwater.errors import CorruptData, Fenced, InvalidRequest, OutcomeUnknown, Poisoned, Unavailable
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log import Receipt
from headwater.log.writer import FormedWrite, Request, Sequencer, each_alone
from tests.unit.log.callers import (
    until,
)
from tests.unit.log.held_device import HeldDevice
from tests.unit.log.held_stage import (
    AT_ONCE,
    DRAFT_BYTES,
    Landing,
    Stage,
    Stages,
    done,
    judging,
    stages_of_a_test,
)
from tests.unit.log.small_logs import SETTINGS, WAIT_S, rows, stored


@pytest.fixture
def stages() -> Iterator[Stages]:
    with stages_of_a_test() as make:
        yield make


# In flight ----------------------------------------------------------------------------------------


def test_the_next_commit_is_issued_before_the_last_one_is_durable_and_goes_on_from_it(stages: Stages) -> None:
    stage = stages()

    futures = stage.issue(b"0", b"1", b"2")

    assert [(each.first_lsn, each.bodies) for each in stage.device.held] == [(1, [b"0"]), (3, [b"1"]), (4, [b"2"])]
    assert done(futures) == [False] * 3 and stage.log.durable_lsn() == 0
    stage.device.land(3)
    receipts = [future.result(WAIT_S) for future in futures]
    assert [receipt.first_lsn for receipt in receipts] == [2, 3, 4]
    assert [receipt.base_offsets for receipt in receipts] == [(0,), (1,), (2,)]
    assert [receipt.append_time_us for receipt in receipts] == sorted({receipt.append_time_us for receipt in receipts})
    assert [bytes(frame.body) for frame in stage.log.read(Lsn(2))] == [b"0", b"1", b"2"]


def test_answers_leave_in_log_order_whatever_order_the_store_answers_in(stages: Stages) -> None:
    stage = stages()
    futures = stage.issue(b"0", b"1", b"2")
    told: list[Future[Receipt]] = []
    for future in futures:
        future.add_done_callback(told.append)
    first, second, third = stage.device.held

    stage.device.store(third)
    assert done(futures) == [False, False, False]
    stage.device.store(first)
    assert done(futures) == [True, False, False]
    stage.device.store(second)

    assert done(futures) == [True, True, True] and told == futures


def test_a_caller_that_leads_hands_the_baton_on_and_waits_for_its_own_answer(stages: Stages) -> None:
    stage = stages()
    device, log, threads = stage.device, stage.log, stage.threads

    callers = []
    for number in range(3):
        callers.append(threads.start(partial(log.append, [rows(1, body=b"%d" % number)])))
        device.wait_until_issued(number + 1)
    assert threads.results == {} and log._writer._background is None
    device.land(2)
    until("two are told", lambda: len(threads.results) == 2)
    assert callers[2] not in threads.results
    device.land()
    threads.join()

    assert [threads.results[number].first_lsn for number in callers] == [2, 3, 4]


def test_what_is_known_at_once_is_told_at_once(stages: Stages) -> None:
    class AtOnce(HeldDevice):
        at_once = True

    stage = stages(device_of=AtOnce)

    assert stage.log.append([rows(1)]).first_lsn == 2
    assert stage.log.append_future([rows(1)]).result(WAIT_S).first_lsn == 3
    assert stage.log.append([rows(1)]).first_lsn == 4


def test_followers_counters_and_room_wait_for_durability(stages: Stages) -> None:
    stage = stages(settings=replace(AT_ONCE, in_flight_bytes_max=2 * DRAFT_BYTES, append_timeout_s=0.02))
    log, counters = stage.log, stage.log.counters
    follower = stage.threads.start(lambda: log.wait_beyond(Lsn(0), 10 * WAIT_S))
    until("it follows", lambda: log._followers == 1)
    futures = [log.append_future([rows(1)]), log.append_future([rows(1)])]
    stage.device.wait_until_issued(1)

    with pytest.raises(Unavailable, match="too many bytes"):
        log.append([rows(1)])
    assert (counters.appends, counters.append_rows, stage.writer._in_flight_bytes) == (0, 0, 2 * DRAFT_BYTES)
    assert follower not in stage.threads.results
    while not all(done(futures)):
        if stage.device.held:
            stage.device.land()

    until("the follower sees it", lambda: stage.threads.results.get(follower) is True)
    assert (counters.appends, counters.append_rows) == (2, 2)
    until("there is room", lambda: stage.writer._in_flight_bytes == 0)


def test_a_commit_that_finds_the_window_full_for_long_is_unavailable_and_uses_no_number(stages: Stages) -> None:
    stage = stages(settings=replace(AT_ONCE, append_timeout_s=0.02))
    futures = stage.issue(b"0", b"1", b"2", b"3")

    late = stage.log.append_future([rows(1, body=b"late")])
    until("it was refused", lambda: stage.requests_in_flight() == 5)
    assert not late.done(), "refusals leave in order too"
    stage.device.land(4)

    assert [future.result(WAIT_S).base_offsets for future in futures] == [(0,), (1,), (2,), (3,)]
    with pytest.raises(Unavailable, match="nothing was appended"):
        late.result(WAIT_S)
    (after,) = stage.issue(b"after")
    stage.device.land()
    assert after.result(WAIT_S).base_offsets == (4,) and stage.log.counters.requests_refused == 1


def test_every_life_begins_with_its_epoch_once_unless_the_claim_has_begun_it(stages: Stages) -> None:
    class Begun(HeldDevice):
        begins_its_epochs = True

    kinds = []
    for device_of in (HeldDevice, Begun):
        stage = stages(device_of=device_of)
        stage.issue(b"0", b"1")
        stage.device.land(2)
        kinds.append([Kind(frame.header.kind).name for frame in stored(stage.files).values()])

    assert kinds == [["EPOCH", "DATA", "DATA"], ["DATA", "DATA"]]


# What is judged by what is in flight --------------------------------------------------------------


def test_a_commit_is_taken_into_the_state_when_it_is_issued_and_before_the_next_is_formed(stages: Stages) -> None:
    seen: list[str] = []

    def form(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        seen.append(f"form {bytes(requests[0].drafts[0].body).decode()}")
        return each_alone(requests, sequencer)

    def committed(formed: Sequence[FormedWrite], receipts: Sequence[Receipt]) -> None:
        seen.append(f"committed {bytes(formed[0].drafts[0].body).decode()} at {receipts[0].first_lsn}")

    stage = stages(hooks={"form": form, "committed": committed})
    futures = stage.issue(b"a", b"b")

    assert seen == ["form a", "committed a at 2", "form b", "committed b at 3"] and done(futures) == [False, False]
    stage.device.land(2)


@pytest.mark.parametrize("body", [b"bad", b"told"])
def test_what_the_hook_says_itself_waits_for_all_that_was_issued_before_it(stages: Stages, body: bytes) -> None:
    stage = stages(hooks={"form": judging})
    before = stage.issue(b"0", b"1")

    judged = stage.log.append_future([rows(1, body=body)])
    caller = stage.threads.start(lambda: stage.log.append([rows(1, body=body)]))
    until("both were judged", lambda: stage.requests_in_flight() == 4)
    after = stage.issue(b"2")
    stage.device.land()
    assert done(before) == [True, False] and not judged.done() and caller not in stage.threads.results
    assert caller not in stage.threads.errors
    stage.device.land()
    until("the caller is told", lambda: caller in {**stage.threads.results, **stage.threads.errors})

    assert judged.done() and done(after) == [False]
    if body == b"told":
        assert judged.result(0).first_lsn == 77 == stage.threads.results[caller].first_lsn
    else:
        assert isinstance(judged.exception(0), InvalidRequest)
        assert isinstance(stage.threads.errors[caller], InvalidRequest)
    stage.device.land()


@pytest.mark.parametrize("body", [b"bad", b"told"])
def test_what_was_judged_by_a_commit_that_failed_fails_with_it(stages: Stages, body: bytes) -> None:
    stage = stages(hooks={"form": judging})
    (before,) = stage.issue(b"0")
    judged = stage.log.append_future([rows(1, body=body)])
    until("it was judged", lambda: stage.requests_in_flight() == 2)

    stage.device.fail(OSError("the store is gone"), told=lambda number: OutcomeUnknown("nobody knows"))

    for future in (before, judged):
        with pytest.raises(OutcomeUnknown):
            future.result(WAIT_S)


def test_what_is_judged_beside_a_commit_fails_with_it_or_is_told_with_it(stages: Stages) -> None:
    stage = stages(hooks={"form": judging})

    def ask() -> list[Future[Receipt]]:
        return [stage.log.append_future([rows(1, body=body)]) for body in (b"told", b"0", b"bad", b"1")]

    for outcome in ("lands", "fails"):
        issues = stage.device.issues
        futures = stage.log.exclusively(ask)
        told: list[Future[Receipt]] = []
        for future in futures:
            future.add_done_callback(told.append)
        stage.device.wait_until_issued(issues + 1)
        assert len(stage.device.held) == 1 and done(futures) == [False] * 4
        if outcome == "lands":
            stage.device.land()
            assert [type(future.exception(WAIT_S)) for future in futures] == [type(None)] * 2 + [
                InvalidRequest,
                type(None),
            ]
        else:
            stage.device.fail(Fenced("another owner has begun"))
            assert [type(future.exception(WAIT_S)) for future in futures] == [Fenced] * 4
        assert told == futures, "in the order in which they came"


# Failure ------------------------------------------------------------------------------------------


def test_a_commit_that_fails_takes_all_after_it_along_and_each_gets_what_the_device_says_of_it(stages: Stages) -> None:
    stage = stages(hooks={"form": judging})
    futures = stage.issue(b"0", b"1", b"2")
    judged = stage.log.append_future([rows(1, body=b"told")])
    until("it was judged", lambda: stage.requests_in_flight() == 4)
    stage.device.land()

    says = [OutcomeUnknown("it may be there"), Fenced("certainly not there")]
    stage.device.fail(Fenced("another owner has begun"), told=lambda number: says[number])

    assert futures[0].result(WAIT_S).first_lsn == 2
    assert [futures[1].exception(WAIT_S), futures[2].exception(WAIT_S)] == says
    assert judged.exception(WAIT_S) is says[0], "of the first that failed"
    assert stage.log.counters.requests_refused == 3 and stage.log.counters.appends == 1
    for act in (lambda: stage.log.append([rows(1)]), lambda: stage.log.append([rows(1, body=b"told")]), stage.log.roll):
        with pytest.raises(Fenced):
            act()


def test_what_is_judged_while_a_commit_before_it_fails_is_not_told(stages: Stages) -> None:
    stage = stages()
    stage.issue(b"0")

    def form(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        # The claim was looked at before; the store says only now what it has against the commit in flight.
        stage.device.fail(Fenced("another owner has begun"))
        return judging(requests, sequencer)

    stage.writer._form = form

    with pytest.raises(Fenced):
        stage.log.append_future([rows(1, body=b"told")]).result(WAIT_S)


def test_a_device_that_calls_back_well_after_a_failure_is_not_believed(stages: Stages) -> None:
    stage = stages()
    first, second = stage.issue(b"0", b"1")
    held = list(stage.device.held)

    assert held[0].callback is not None and held[1].callback is not None
    held[0].callback(OutcomeUnknown("it may be there"))
    held[1].callback(None)

    for future in (first, second):
        with pytest.raises(OutcomeUnknown):
            future.result(WAIT_S)
    stage.device.held.clear()


def test_a_bug_in_the_hook_that_forms_is_told_to_those_it_formed_and_what_is_in_flight_goes_on(
    stages: Stages, caplog: pytest.LogCaptureFixture
) -> None:
    stage = stages()
    (before,) = stage.issue(b"0")

    def form(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        raise ZeroDivisionError("a bug in a hook")

    stage.writer._form = form
    with caplog.at_level(logging.ERROR):
        broken = stage.log.append_future([rows(1)])
        until("it is told", lambda: "a commit ended half-way" in caplog.text)
    later = stage.log.append_future([rows(1)])
    until("it was refused", lambda: stage.requests_in_flight() == 3)
    assert not broken.done() and not later.done()
    stage.device._poisoned = None  # so that the device of this test can write what it was given
    stage.device.land()

    assert before.result(WAIT_S).first_lsn == 2
    assert isinstance(broken.exception(WAIT_S), OutcomeUnknown) and isinstance(later.exception(WAIT_S), Poisoned)


def test_a_commit_that_the_state_does_not_take_in_poisons(stages: Stages) -> None:
    def committed(formed: Sequence[FormedWrite], receipts: Sequence[Receipt]) -> None:
        raise CorruptData("a record that no fold can take in")

    stage = stages(hooks={"committed": committed, "form": judging})

    with pytest.raises(CorruptData):
        stage.log.append([rows(1)])

    with pytest.raises(Poisoned):
        stage.log.append([rows(1, body=b"told")])
    stage.device.held.clear()


def test_an_answer_that_cannot_be_told_poisons_and_the_others_are_told(
    stages: Stages, caplog: pytest.LogCaptureFixture
) -> None:
    class Untellable(Request):
        __slots__ = ()

        def result(self, receipt: Receipt) -> Any:
            raise ZeroDivisionError("a bug in what makes the answer")

    stage = stages()
    futures: list[Future[Any]] = [Future(), Future()]

    def ask() -> None:
        stage.log.submit_future(Untellable([rows(1)], DRAFT_BYTES, futures[0]))
        stage.log.submit_future(Request([rows(1)], DRAFT_BYTES, futures[1]))

    stage.log.exclusively(ask)
    stage.device.wait_until_issued(1)
    with caplog.at_level(logging.ERROR):
        stage.device.land()

    assert futures[1].result(WAIT_S).first_lsn == 3 and not futures[0].done()
    assert "an answer could not be delivered" in caplog.text
    with pytest.raises(Poisoned):
        stage.log.append([rows(1)])


def test_what_lands_while_somebody_delivers_is_delivered_after_it(stages: Stages) -> None:
    stage = stages(hooks={"form": judging})
    (first,) = stage.issue(b"0")
    refused: list[int] = []

    def while_it_is_told(_: Future[Receipt]) -> None:
        refused.append(stage.threads.start(lambda: stage.log.append([rows(1, body=b"bad")])))
        until("it was refused", lambda: stage.requests_in_flight() == 2)
        until("its thread has seen that somebody delivers", lambda: not stage.writer._baton.locked())
        assert not stage.threads.errors

    first.add_done_callback(while_it_is_told)
    stage.device.land()
    stage.threads.join()

    assert isinstance(stage.threads.errors[refused[0]], InvalidRequest)


def test_what_lands_just_before_somebody_stops_delivering_is_not_left_behind(stages: Stages) -> None:
    stage = stages()
    first, second = stage.issue(b"0", b"1")
    callbacks = [each.callback for each in stage.device.held]

    class Delivering:
        """Right before it is given back, somebody lands who had found it taken."""

        def __init__(self) -> None:
            self._lock = threading.Lock()
            self.acquire = self._lock.acquire

        def release(self) -> None:
            if not second.done():
                assert callbacks[1] is not None
                callbacks[1](None)
            self._lock.release()

    stage.writer._delivering = Delivering()  # type: ignore[assignment]
    assert callbacks[0] is not None
    callbacks[0](None)

    assert done([first, second]) == [True, True]
    stage.device.held.clear()


# Together -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_many_threads_and_futures_are_told_in_log_order_and_only_what_is_durable(seed: int) -> None:
    formed: list[bytes] = []

    def form(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        formed.extend(bytes(request.drafts[0].body) for request in requests)
        return judging(requests, sequencer)

    settings = replace(SETTINGS, commit_interval_s=0.001, slot_bytes_target=4 * DRAFT_BYTES)
    stage = Stage(device_of=Landing, settings=settings, hooks={"form": form})
    told: list[int] = []
    receipts: dict[bytes, Receipt] = {}
    futures: list[tuple[bytes, Future[Receipt]]] = []

    def check(body: bytes, receipt: Receipt) -> None:
        assert receipt.last_lsn <= stage.device.durable(), "told before it is durable"
        receipts[body] = receipt

    def check_nothing_is_in_flight() -> None:
        assert stage.device.next_lsn() == stage.device.durable() + 1

    def by_future(body: bytes) -> None:
        # Asked to be told before it is queued: what is asked of a future that is done is told by whoever asks.
        future: Future[Receipt] = Future()
        future.add_done_callback(lambda each: told.append(each.result().first_lsn))
        stage.log.submit_future(Request([rows(1, body=body)], DRAFT_BYTES, future))
        futures.append((body, future))

    def work(number: int, seed: int) -> None:
        own = Random(seed)
        for count in range(30):
            body = b"%d %d" % (number, count)
            kind = own.random()
            if kind < 0.1:
                with pytest.raises(InvalidRequest):
                    stage.log.append([rows(1, body=b"bad")])
            elif kind < 0.15:
                stage.log.exclusively(check_nothing_is_in_flight)
            elif kind < 0.6:
                check(body, stage.log.append([rows(1, body=body)]))
            else:
                by_future(body)
            time.sleep(own.random() * 0.001)

    for number in range(6):
        stage.threads.start(partial(work, number, seed * 6 + number))
    stage.threads.join()
    for body, future in futures:
        check(body, future.result(WAIT_S))
    stage.log.close()

    assert not stage.threads.errors, stage.threads.errors
    assert told == sorted(told)
    written = [body for body in formed if body != b"bad"]
    found = {frame.lsn: frame for frame in stored(stage.files).values() if frame.header.kind == Kind.DATA}
    assert [bytes(frame.body) for frame in found.values()] == written
    assert {body: found[receipt.first_lsn].body for body, receipt in receipts.items()} == {b: b for b in receipts}
    assert [frame.header.base_offset for frame in found.values()] == list(range(len(found)))


def test_futures_can_be_awaited(stages: Stages) -> None:
    stage = Stage(device_of=Landing)

    async def append(number: int) -> int:
        future = stage.log.append_future([rows(1, body=b"%d" % number)])
        return (await asyncio.wrap_future(future)).base_offsets[0]

    async def append_all() -> list[int]:
        return list(await asyncio.gather(*(append(number) for number in range(50))))

    offsets = asyncio.run(asyncio.wait_for(append_all(), WAIT_S))
    stage.log.close()

    assert offsets == list(range(50))
