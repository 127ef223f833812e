"""Producers: numbers go on over epochs, a refused request uses none, threads take turns."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from headwater.api import Log
from headwater.errors import Conflict, Fenced, InvalidRequest, OutOfSequence, RowsRefused, UnknownTopic
from tests.unit.topics.small_engines import PLAIN, WAIT_S, World, engine_of, values


def a_log(world: World | None = None) -> Log:
    log = (World() if world is None else world).log()
    log.topic("a", PLAIN)
    log.topic("k", {"id": int}, key="id")
    return log


def test_requests_are_numbered_from_zero() -> None:
    producer = a_log().producer("p")
    assert (producer.epoch, producer.next_sequence) == (1, 0)

    producer.append("a", {"x": 1})
    producer.delete("k", 7)

    assert producer.next_sequence == 2
    assert repr(producer) == "Producer('p', epoch 1, next sequence 2)"


def test_a_program_that_was_killed_goes_on_where_it_was() -> None:
    world = World()
    a_log(world).producer("p").append("a", {"x": 1})
    log = world.kill().log()

    producer = log.producer("p")
    again = producer.append("a", {"x": 1}, sequence=0)
    new = producer.append("a", {"x": 2})

    assert (producer.epoch, again.duplicate, new.duplicate) == (2, True, False)
    assert values(log) == [1, 2]


def test_a_repeat_does_not_set_the_next_number_back() -> None:
    producer = a_log().producer("p")
    for number in range(3):
        producer.append("a", {"x": number})

    producer.append("a", {"x": 0}, sequence=0)

    assert producer.next_sequence == 3


def test_a_request_that_is_refused_or_empty_uses_no_number() -> None:
    producer = a_log().producer("p")

    with pytest.raises(RowsRefused):
        producer.append("a", {"x": "no"})
    with pytest.raises(UnknownTopic):
        producer.append("b", {"x": 1})
    with pytest.raises(OutOfSequence):
        producer.append("a", {"x": 1}, sequence=5)
    producer.append("a", [])
    producer.delete("k", [])

    assert producer.next_sequence == 0
    assert producer.append("a", {"x": 1}).offsets == {0: (0, 1)}


def test_a_repeated_delete_has_its_first_answer() -> None:
    producer = a_log().producer("p")
    first = producer.delete("k", 7)

    again = producer.delete("k", 7, sequence=0)

    assert (again.duplicate, again.lsn) == (True, first.lsn)


@pytest.mark.parametrize("name", ["", 5, None, "x" * 256, "\udcff"])
def test_a_producer_is_known_by_a_name_that_can_be_stored(name: Any) -> None:
    log = a_log()

    with pytest.raises(InvalidRequest):
        log.producer(name)

    log["a"].append({"x": 1})
    engine_of(log).shard.check_fold()


@pytest.mark.parametrize("sequence", [-1, 0.0, "0"])
def test_a_sequence_number_is_a_whole_number_from_zero(sequence: Any) -> None:
    log = a_log()
    producer = log.producer("p")

    with pytest.raises((InvalidRequest, TypeError)):
        producer.append("a", {"x": 1}, sequence=sequence)

    assert log["a"].append({"x": 1}).rows == 1, "nobody else has noticed"
    engine_of(log).shard.check_fold()


def test_numbers_of_other_libraries_are_taken_as_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    log = a_log()
    producer = log.producer("p")

    producer.append("a", {"x": 1}, sequence=numpy.int64(0))
    log["a"].append({"x": 2}, partition=numpy.int32(0), idempotency_key="k", expect_offset=numpy.int64(1))

    assert values(log) == [1, 2]
    engine_of(log).shard.check_fold()


def test_threads_take_turns_and_no_number_is_missing() -> None:
    log = a_log()
    producer = log.producer("p")

    def run() -> None:
        for number in range(10):
            producer.append("a", {"x": number})

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)

    assert producer.next_sequence == len(values(log)) == 40


def test_whoever_had_the_name_before_is_fenced_in_transactions_too() -> None:
    log = a_log()
    old = log.producer("p")
    log.producer("p")

    with pytest.raises(Fenced), log.transaction(producer=old) as tx:
        tx.append("a", {"x": 1})

    assert values(log) == []


def test_a_repeat_of_a_number_for_another_topic_is_a_conflict() -> None:
    log = a_log()
    log.topic("b", PLAIN)
    producer = log.producer("p")
    producer.append("a", {"x": 1})

    with pytest.raises(Conflict, match="rows of 'a'"):
        producer.append("b", {"x": 1}, sequence=0)

    assert values(log, "b") == []
