"""Topics over a device that takes several commits at a time: what is judged by a commit in flight is told with it or
not at all, and nobody sees what is not durable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import pytest

from headwater.api import Log
from headwater.errors import Fenced, OffsetMismatch, OutcomeUnknown, OutOfSequence, Poisoned
from headwater.frames.frame import Kind
from headwater.log import frame_log
from headwater.log.devices import LogDevice, make_device
from headwater.log.segments import LogPlace
from headwater.topics.describing import describe, describe_groups
from headwater.topics.engine import Engine
from headwater.topics.groups import Generation
from headwater.topics.requests import Identity, SourceAt
from tests.unit.log.callers import Threads, until
from tests.unit.log.held_device import HeldDevice
from tests.unit.topics.small_engines import (
    PLAIN,
    WAIT_S,
    World,
    engine_of,
    frames,
    identified,
    ranges,
    registering,
    transacting,
    values,
    with_log,
)

NOBODY_KNOWS = OutcomeUnknown("nobody knows")


@dataclass
class Stage:
    """A log with a topic `a` that has one row, over a device whose commits land when the test says so."""

    log: Log
    engine: Engine
    device: HeldDevice
    threads: Threads

    def issue(self, ask: Callable[[], Future[Any]]) -> Future[Any]:
        """Ask for something that becomes a commit."""
        before = self.device.issues
        future = ask()
        self.device.wait_until_issued(before + 1)
        return future

    def judge(self, ask: Callable[[], Future[Any]]) -> Future[Any]:
        """Ask for something that is answered or refused by what is known."""
        writer = self.engine.shard.log._writer
        before = len(writer._flights)  # type: ignore[attr-defined]
        future = ask()
        until("it was judged", lambda: len(writer._flights) == before + 1)  # type: ignore[attr-defined]
        assert not future.done()
        return future

    def appending(self, x: int, **options: Any) -> Callable[[], Future[Any]]:
        return lambda: self.log["a"].append_future({"x": x}, **options)

    def lose(self) -> None:
        """Nothing that is in flight will land."""
        self.device.fail(OSError("the store is gone"), told=lambda number: NOBODY_KNOWS)


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    def make(place: LogPlace, **options: Any) -> LogDevice:
        return HeldDevice(place, **options) if place.directory == "log" else make_device(place, **options)

    monkeypatch.setattr(frame_log, "make_device", make)
    monkeypatch.setattr(HeldDevice, "at_once", True)
    log = World(settings=with_log(commit_interval_s=0.0)).log()
    log.topic("a", PLAIN)
    log["a"].append({"x": 0})
    device = engine_of(log).shard.log.device
    assert isinstance(device, HeldDevice)
    device.at_once = False
    stage = Stage(log, engine_of(log), device, Threads())
    yield stage
    device.land(len(device.held))
    device.at_once = True
    log.close()
    stage.threads.join()


def a_producer(stage: Stage) -> Callable[[int], Identity]:
    """Numbers of a producer."""
    stage.device.at_once = True
    producer = stage.log.producer("p")
    stage.device.at_once = False
    return lambda sequence: Identity(producer.producer_id, producer.epoch, sequence)


# Told again ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["sequence", "key"])
def test_a_repeat_of_a_request_in_flight_waits_for_the_same_answer(stage: Stage, by: str) -> None:
    identity = a_producer(stage)(0) if by == "sequence" else Identity(key=b"k")
    ask = identified(stage.engine, "a", {"x": 1}, identity)

    first = stage.issue(ask)
    again = stage.judge(ask)
    stage.device.land()

    told, repeated = first.result(WAIT_S), again.result(WAIT_S)
    assert (told.duplicate, repeated.duplicate) == (False, True)
    assert (told.lsn, told.time, ranges(first)) == (repeated.lsn, repeated.time, ranges(again))
    assert values(stage.log) == [0, 1]


@pytest.mark.parametrize("by", ["sequence", "key"])
def test_a_repeat_of_a_request_that_is_lost_in_flight_is_lost_with_it(stage: Stage, by: str) -> None:
    identity = a_producer(stage)(0) if by == "sequence" else Identity(key=b"k")
    ask = identified(stage.engine, "a", {"x": 1}, identity)

    first, again = stage.issue(ask), stage.judge(ask)
    stage.lose()

    assert (first.exception(WAIT_S), again.exception(WAIT_S)) == (NOBODY_KNOWS, NOBODY_KNOWS)
    assert values(stage.log) == [0]


def test_the_requests_of_a_producer_follow_each_other_through_commits_in_flight(stage: Stage) -> None:
    number = a_producer(stage)

    futures = [stage.issue(identified(stage.engine, "a", {"x": at}, number(at))) for at in range(3)]
    early = stage.judge(identified(stage.engine, "a", {"x": 9}, number(4)))
    stage.device.land(3)

    assert [ranges(future)[0][0] for future in futures] == [1, 2, 3]
    assert isinstance(early.exception(WAIT_S), OutOfSequence)
    stage.engine.shard.check_fold()


def test_a_producer_that_is_opened_again_in_flight_fences_the_one_before(stage: Stage) -> None:
    number = a_producer(stage)

    stage.issue(registering(stage.engine, "p"))
    fenced = stage.judge(identified(stage.engine, "a", {"x": 1}, number(0)))
    stage.device.land()

    assert isinstance(fenced.exception(WAIT_S), Fenced)


# Numbers and schemas ------------------------------------------------------------------------------


def test_an_expected_offset_is_that_after_what_is_in_flight(stage: Stage) -> None:
    stage.issue(stage.appending(1))

    fits = stage.issue(stage.appending(2, expect_offset=2))
    wrong = stage.judge(stage.appending(3, expect_offset=1))
    stage.device.land(2)

    assert ranges(fits) == {0: (2, 3)}
    error = wrong.exception(WAIT_S)
    assert isinstance(error, OffsetMismatch) and error.facts["next_offset"] == 3


def test_a_segment_gets_a_schema_once_however_many_commits_are_in_flight(stage: Stage) -> None:
    stage.device.at_once = True
    stage.log.topic("b", PLAIN)
    stage.device.at_once = False

    for x in range(3):
        stage.issue(lambda x=x: stage.log["b"].append_future({"x": x}))  # type: ignore[misc]
    stage.device.land(3)

    number = stage.engine.topic("b").number
    assert [frame.header.topic_number for frame in frames(stage.engine, kind=Kind.SCHEMA)].count(number) == 1
    assert values(stage.log, "b") == [0, 1, 2]


# What others see ----------------------------------------------------------------------------------


def source_at(stage: Stage, position: int) -> Callable[[], Future[Any]]:
    return transacting(stage.engine, [], sources=[SourceAt("s", position, None)])


def test_what_a_source_has_come_to_is_shown_once_it_is_durable(stage: Stage) -> None:
    stage.issue(source_at(stage, 1))

    look = stage.threads.start(lambda: stage.engine.source_position("s"))
    until("it waits", stage.engine.shard.log._writer._baton.locked)
    assert look not in stage.threads.results
    stage.device.land()
    stage.threads.join()

    assert stage.threads.results[look].position == 1


def test_what_a_group_has_committed_is_shown_once_it_is_durable(stage: Stage) -> None:
    stage.device.at_once = True
    number = stage.engine.topic("a").number
    stage.engine.coordinator.check = lambda *given: None  # type: ignore[method-assign]

    def commit(offset: int) -> None:
        stage.engine.commit_offsets("g", number, {0: (offset, Generation(1, 1))})

    commit(0)
    stage.device.at_once = False
    committing = stage.threads.start(lambda: commit(1))
    until("it is issued", lambda: len(stage.device.held) == 1)

    looks = [
        stage.threads.start(lambda: stage.engine.committed("g", number)[0]),
        stage.threads.start(lambda: describe_groups(stage.engine)[0].committed[0]),
    ]
    until("one waits with the baton", stage.engine.shard.log._writer._baton.locked)
    assert stage.threads.results == {}
    stage.device.land()
    stage.threads.join()

    assert [stage.threads.results[look] for look in looks] == [1, 1] and committing in stage.threads.results


def test_what_was_lost_in_flight_is_never_shown(stage: Stage) -> None:
    stage.device.at_once = True
    source_at(stage, 1)().result(WAIT_S)
    stage.device.at_once = False
    lost = [stage.issue(source_at(stage, 2)), stage.issue(stage.appending(1))]
    stage.lose()

    assert [future.exception(WAIT_S) for future in lost] == [NOBODY_KNOWS, NOBODY_KNOWS]
    for _ in range(2):
        position = stage.engine.source_position("s")
        assert position is not None and position.position == 1
    status = describe(stage.engine, "d")
    assert any("poisoned" in note for note in status.notes) and values(stage.log) == [0]
    assert stage.engine.offsets(stage.engine.topic("a").number)[0].next == 1
    with pytest.raises(Poisoned):
        stage.log["a"].append({"x": 2})


# Checkpoints and the end --------------------------------------------------------------------------


def test_a_checkpoint_holds_what_was_in_flight_when_it_was_asked_for(stage: Stage) -> None:
    number = a_producer(stage)
    future = stage.issue(identified(stage.engine, "a", {"x": 1}, number(0)))

    checkpoint = stage.threads.start(stage.engine.shard.checkpoint)
    until("it waits with the baton", stage.engine.shard.log._writer._baton.locked)
    stage.device.land()
    stage.threads.join()

    assert stage.threads.results[checkpoint] is True
    assert future.done() and stage.engine.shard.checkpoint_lsn == stage.engine.durable_lsn() == stage.device.durable()
    stage.engine.shard.check_fold()


def test_an_owner_that_was_fenced_in_flight_can_be_closed_and_makes_no_checkpoint(stage: Stage) -> None:
    future = stage.issue(stage.appending(1))
    before = stage.engine.shard.checkpoint_lsn

    stage.device.fail(Fenced("another owner has begun"))
    stage.log.close()

    assert isinstance(future.exception(WAIT_S), Fenced) and stage.engine.shard.checkpoint_lsn == before
