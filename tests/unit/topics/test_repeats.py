"""Requests that come again: by a producer's numbers or by a key they are applied once, and told the first answer."""

from __future__ import annotations

import errno

import pytest

from headwater.api import Log
from headwater.errors import Duplicate, Fenced, OffsetMismatch, OutOfSequence, Unavailable, UnknownProducer
from headwater.metadata.shard_state import ANSWERS_KEPT
from headwater.topics.engine import Engine
from headwater.topics.requests import Identity
from tests.unit.topics.small_engines import (
    DAY_S,
    PLAIN,
    World,
    appending,
    engine_of,
    identified,
    ranges,
    registering,
    together,
    values,
)


def a_log(world: World | None = None) -> tuple[Log, Engine]:
    """A log with a topic `a` that has one row."""
    log = (World() if world is None else world).log()
    log.topic("a", PLAIN)
    log["a"].append({"x": 0})
    return log, engine_of(log)


# Sequences ----------------------------------------------------------------------------------------


def test_a_repeat_in_the_same_commit_waits_for_the_first_ones_answer() -> None:
    log, engine = a_log()
    producer = log.producer("p")
    identity = Identity(producer.producer_id, producer.epoch, 0)

    first, again = together(engine, *[identified(engine, "a", [{"x": 1}, {"x": 2}], identity)] * 2)

    assert (first.result().duplicate, again.result().duplicate) == (False, True)
    assert (ranges(first), ranges(again)) == ({0: (1, 3)}, {0: (1, 3)})
    assert (first.result().lsn, first.result().time) == (again.result().lsn, again.result().time)
    assert values(log) == [0, 1, 2]


def test_a_repeat_of_a_later_request_in_the_same_commit_is_told_that_ones_answer() -> None:
    """Both are in one write with others before and behind them."""
    log, engine = a_log()
    producer = log.producer("p")
    numbered = [Identity(producer.producer_id, producer.epoch, sequence) for sequence in range(3)]

    futures = together(engine, *(identified(engine, "a", {"x": at}, numbered[at]) for at in (0, 1, 1, 0, 2, 2)))

    assert [ranges(future)[0][0] for future in futures] == [1, 2, 2, 1, 3, 3]
    assert [future.result().duplicate for future in futures] == [False, False, True, True, False, True]
    assert values(log) == [0, 0, 1, 2]


def test_a_repeat_in_a_commit_that_is_refused_is_refused_with_it_and_can_come_again() -> None:
    world = World()
    log, engine = a_log(world)
    producer = log.producer("p")
    identity = Identity(producer.producer_id, producer.epoch, 0)
    world.files.fail(1, errno.ENOSPC, verbs=["append"])

    futures = together(engine, *[identified(engine, "a", {"x": 1}, identity)] * 2)
    later = engine.append(1, {"x": 1}, identity=identity)

    assert all(isinstance(future.exception(), Unavailable) for future in futures)
    assert not later.duplicate
    assert values(log) == [0, 1]


def test_a_repeat_later_has_the_first_answer_through_a_checkpoint_and_a_restart() -> None:
    world = World()
    log, _ = a_log(world)
    first = log.producer("p").append("a", {"x": 1})
    log.checkpoint()
    log.close()

    log = world.log()
    producer = log.producer("p")
    again = producer.append("a", {"x": 1}, sequence=0)

    assert (producer.epoch, producer.next_sequence) == (2, 1)
    assert again.duplicate
    assert (again.lsn, again.offsets, again.time) == (first.lsn, first.offsets, first.time)
    assert values(log) == [0, 1]


def test_the_answer_of_the_64th_last_request_is_known_and_that_of_the_65th_is_not() -> None:
    log, _ = a_log()
    producer = log.producer("p")
    for number in range(ANSWERS_KEPT + 1):
        producer.append("a", {"x": number})

    assert producer.append("a", {"x": 1}, sequence=1).duplicate
    with pytest.raises(Duplicate, match="no longer remembered"):
        producer.append("a", {"x": 0}, sequence=0)
    assert len(values(log)) == ANSWERS_KEPT + 2


def test_a_gap_in_the_sequence_is_refused_and_the_request_before_it_may_still_come() -> None:
    log, engine = a_log()
    producer = log.producer("p")
    numbered = [Identity(producer.producer_id, producer.epoch, sequence) for sequence in range(3)]

    early, first, second = together(engine, *(identified(engine, "a", {"x": at}, numbered[at]) for at in (2, 0, 1)))

    with pytest.raises(OutOfSequence) as refused:
        early.result()
    assert refused.value.facts == {"producer_id": 1, "sequence": 2, "next_sequence": 0}
    assert [ranges(first), ranges(second)] == [{0: (1, 2)}, {0: (2, 3)}]


def test_a_refused_request_uses_no_number_and_no_offset() -> None:
    log, engine = a_log()
    producer = log.producer("p")
    identity = Identity(producer.producer_id, producer.epoch, 0)
    number = engine.topic("a").number

    refused, taken = together(
        engine,
        lambda: engine.append_future(number, {"x": 1}, identity=identity, expect_offset=77),
        lambda: engine.append_future(number, {"x": 2}, identity=identity, expect_offset=1),
    )

    assert isinstance(refused.exception(), OffsetMismatch)
    assert ranges(taken) == {0: (1, 2)}
    assert values(log) == [0, 2]


def test_the_epoch_before_the_present_one_is_fenced() -> None:
    log, _ = a_log()
    old, new = log.producer("p"), log.producer("p")

    with pytest.raises(Fenced) as refused:
        old.append("a", {"x": 1})
    new.append("a", {"x": 2})

    assert (refused.value.facts["epoch"], refused.value.facts["current_epoch"]) == (1, 2)
    assert (old.producer_id, values(log)) == (new.producer_id, [0, 2])


def test_a_producer_that_begins_an_epoch_fences_the_one_before_in_the_same_commit() -> None:
    log, engine = a_log()
    old = log.producer("p")

    before, _, _, after = together(
        engine,
        identified(engine, "a", {"x": 1}, Identity(old.producer_id, 1, 0)),
        registering(engine, "p"),
        registering(engine, "p"),
        identified(engine, "a", {"x": 2}, Identity(old.producer_id, 1, 1)),
    )

    assert before.result().rows == 1
    with pytest.raises(Fenced):
        after.result()
    assert engine.shard.state().producers[old.producer_id].epoch == 3
    engine.shard.check_fold()


def test_two_new_producers_of_one_commit_have_their_own_numbers() -> None:
    log, engine = a_log()

    together(engine, *(registering(engine, name) for name in ("p", "q", "p")))

    assert engine.shard.state().producer_ids == {"p": 1, "q": 2}
    assert [engine.shard.state().producers[number].epoch for number in (1, 2)] == [2, 1]
    assert log.producer("r").producer_id == 3


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_producer_that_was_idle_for_a_week_of_the_logs_time_is_unknown(checkpointed: bool) -> None:
    """Whether a checkpoint was made since or not: whoever goes on from another one must judge the same."""
    world = World()
    log, _ = a_log(world)
    producer = log.producer("p")
    producer.append("a", {"x": 1})
    world.clock.advance(7 * DAY_S - 1)
    producer.append("a", {"x": 2})
    world.clock.advance(7 * DAY_S + 1)
    log["a"].append({"x": 4})
    if checkpointed:
        log.checkpoint()

    with pytest.raises(UnknownProducer):
        producer.append("a", {"x": 5})

    again = log.producer("p")
    assert (again.producer_id, again.epoch, again.next_sequence) == (2, 1, 0)
    engine_of(log).shard.check_fold()


def test_a_producer_that_was_never_registered_is_unknown() -> None:
    log, engine = a_log()

    with pytest.raises(UnknownProducer):
        engine.append(1, {"x": 1}, identity=Identity(99, 1, 0))
    assert values(log) == [0]


# Keys ---------------------------------------------------------------------------------------------


def test_a_repeat_by_its_key_is_told_the_first_answer_in_the_same_commit_and_later() -> None:
    log, engine = a_log()

    first, again = together(engine, *[appending(log, "a", {"x": 1}, idempotency_key="k")] * 2)
    later = log["a"].append({"x": 1}, idempotency_key="k")
    other = log["a"].append({"x": 2}, idempotency_key=b"l")

    assert [first.result().duplicate, again.result().duplicate, later.duplicate, other.duplicate] == [0, 1, 1, 0]
    assert ranges(first) == ranges(again) == {0: (1, 2)}
    assert (later.lsn, later.offsets) == (first.result().lsn, first.result().offsets)
    assert values(log) == [0, 1, 2]


@pytest.mark.parametrize("checkpointed", [False, True])
def test_a_key_is_known_for_a_day_of_the_logs_time_whether_or_not_it_was_pruned(checkpointed: bool) -> None:
    world = World()
    log, engine = a_log(world)
    first = log["a"].append({"x": 1}, idempotency_key="k")

    world.clock.advance(DAY_S - 1)
    if checkpointed:
        log.checkpoint()
    within = log["a"].append({"x": 1}, idempotency_key="k")
    world.clock.advance(2)
    if checkpointed:
        log["a"].append({"x": 9})
        log.checkpoint()
    after = log["a"].append({"x": 1}, idempotency_key="k")

    assert (within.duplicate, within.lsn) == (True, first.lsn)
    assert not after.duplicate
    (known,) = engine.shard.state().keys.values()
    assert known.first_lsn == after.first_lsn
    engine.shard.check_fold()


def test_a_key_that_has_come_back_after_a_day_is_known_for_another() -> None:
    world = World()
    log, _ = a_log(world)
    for _ in range(2):
        log["a"].append({"x": 1}, idempotency_key="k")
        world.clock.advance(DAY_S + 1)
    world.clock.advance(-2)

    assert log["a"].append({"x": 1}, idempotency_key="k").duplicate
