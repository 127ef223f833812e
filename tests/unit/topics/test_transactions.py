"""Transactions: all or nothing, over topics, consumers and sources; how they end and what is told."""

from __future__ import annotations

import errno
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from headwater.api import Log
from headwater.errors import (
    Conflict,
    Fenced,
    InvalidRequest,
    OutcomeUnknown,
    RowsRefused,
    TooLarge,
    Unavailable,
    UnknownTopic,
)
from headwater.frames.frame import Kind
from headwater.settings import KIB
from headwater.topics.transactions import NEXT_STATES, Transaction, TransactionState
from tests.unit.topics.small_engines import PLAIN, World, engine_of, frames, kinds, values, with_log


def a_log(world: World | None = None) -> Log:
    log = (World() if world is None else world).log()
    log.topic("a", PLAIN)
    log.topic("k", {"id": int, "v": str}, key="id", partitions=2)
    return log


# All or nothing -----------------------------------------------------------------------------------


def test_leaving_the_with_commits_all_of_it_as_one_write() -> None:
    log = a_log()

    with log.transaction() as tx:
        tx.append("a", [{"x": 1}, {"x": 2}])
        tx.upsert("k", {"id": 1, "v": "a"})
        tx.delete("k", 1)
        tx.append("a", {"x": 3})
        assert values(log) == [], "nothing is there before it commits"

    assert tx.state == "committed" and tx.result is not None
    assert (tx.result.rows, tx.result.duplicate) == (5, False)
    assert tx.result.offsets["a"] == {0: (0, 3)}
    assert tx.result.lsn - tx.result.first_lsn + 1 == frames(engine_of(log))[-1].header.write_count
    assert values(log) == [1, 2, 3]
    assert [row["_hw_op"] for row in log["k"].read().to_pylist()] == ["U", "D"]


def test_an_exception_aborts_and_nothing_reaches_the_log() -> None:
    log = a_log()
    before = engine_of(log).durable_lsn()

    tx = log.transaction()

    def failing() -> None:
        with tx:
            tx.append("a", {"x": 1})
            raise ValueError("the caller's own")

    with pytest.raises(ValueError, match="the caller's own"):
        failing()

    assert tx.state == "aborted" and tx.result is None
    assert engine_of(log).durable_lsn() == before


def test_a_row_that_does_not_fit_is_refused_when_it_is_added() -> None:
    log = a_log()

    tx = log.transaction()
    tx.append("a", {"x": 1})

    with pytest.raises(RowsRefused), tx:
        tx.append("a", {"x": "no"})

    assert values(log) == []


def test_rows_that_do_not_fit_can_be_kept_by_the_same_write() -> None:
    log = a_log()

    with log.transaction() as tx:
        tx.append("a", [{"x": 1}, {"x": "no"}], rejected="keep")

    assert tx.result is not None
    assert {name: dict(each) for name, each in tx.result.offsets.items()} == {
        "a": {0: (0, 1)},
        "a.rejected": {0: (0, 1)},
    }


def test_nothing_to_write_is_nothing_written() -> None:
    log = a_log()
    before = engine_of(log).durable_lsn()

    with log.transaction() as tx:
        tx.append("a", [])

    assert (tx.state, tx.result) == ("committed", None)
    assert engine_of(log).durable_lsn() == before


def test_a_transaction_that_has_ended_is_over() -> None:
    log = a_log()
    done, gone = log.transaction(), log.transaction()
    done.append("a", {"x": 1})
    assert done.commit() is done.result
    gone.abort()

    acts: list[Callable[[Transaction], object]] = [
        lambda tx: tx.append("a", {"x": 1}),
        lambda tx: tx.upsert("k", {"id": 1}),
        lambda tx: tx.delete("k", 1),
        lambda tx: tx.set_source("pg", 1),
        lambda tx: tx.commit(),
        lambda tx: tx.abort(),
        lambda tx: tx.__enter__(),
    ]
    for act in acts:
        with pytest.raises(InvalidRequest, match="committed"):
            act(done)
        with pytest.raises(InvalidRequest, match="aborted"):
            act(gone)


def test_a_transaction_may_be_ended_inside_its_with() -> None:
    log = a_log()

    with log.transaction() as tx:
        tx.append("a", {"x": 1})
        tx.commit()
    with log.transaction() as other:
        other.append("a", {"x": 2})
        other.abort()

    assert (tx.state, other.state, values(log)) == ("committed", "aborted", [1])


def test_every_state_has_its_next_ones() -> None:
    assert set(NEXT_STATES) == set(TransactionState)


def test_mistakes_are_refused() -> None:
    log = a_log()
    tx = log.transaction()

    with pytest.raises(UnknownTopic):
        tx.append("nope", {"x": 1})
    with pytest.raises(InvalidRequest, match="no key"):
        tx.upsert("a", {"x": 1})
    with pytest.raises(InvalidRequest, match="no key"):
        tx.delete("a", 1)
    with pytest.raises(InvalidRequest):
        log.transaction(idempotency_key="")


def test_a_transaction_above_the_limit_is_refused_whole_and_harms_nobody() -> None:
    world = World(settings=with_log(write_body_bytes_max=64 * KIB))
    log = a_log(world)

    tx = log.transaction()
    for _ in range(3):
        tx.append("a", [{"x": number} for number in range(5_000)])
    with pytest.raises(TooLarge):
        tx.commit()

    assert tx.state == "aborted"
    assert log["a"].append({"x": 1}).offsets == {0: (0, 1)}


def test_a_transaction_whose_topic_is_deleted_meanwhile_is_refused_whole() -> None:
    log = a_log()
    tx = log.transaction()
    tx.append("a", {"x": 1})
    tx.upsert("k", {"id": 1, "v": "a"})
    log.delete_topic("k")

    with pytest.raises(UnknownTopic):
        tx.commit()

    assert values(log) == []


# Sources ------------------------------------------------------------------------------------------


def test_a_source_is_where_the_last_transaction_said_with_its_rows() -> None:
    world = World()
    log = a_log(world)
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=1)))

    with log.transaction() as tx:
        tx.append("a", {"x": 1})
        tx.set_source("pg", {"lsn": 1, "tables": ["a", b"b", None, 1.5]}, watermark=noon)
    with log.transaction() as tx:
        tx.set_source("pg", "superseded")
        tx.set_source("pg", {"lsn": 2})

    for opened in (log, world.kill().log()):
        at = opened.source_position("pg")
        assert at is not None
        assert (at.position, at.watermark) == ({"lsn": 2}, noon)
        assert at.watermark is not None and at.watermark.tzinfo is UTC
    assert log.source_position("other") is None


@pytest.mark.parametrize("name", ["", 5, None, "x" * 256, "\udcff"])
def test_a_source_has_a_name_that_can_be_stored(name: Any) -> None:
    log = a_log()

    with pytest.raises(InvalidRequest), log.transaction() as tx:
        tx.set_source(name, 1)

    log["a"].append({"x": 1})
    engine_of(log).shard.check_fold()


class Unhashable(dict[str, int]):
    def __hash__(self) -> int:  # type: ignore[override]
        return 1


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "position", [object(), 2**70, "\udcff", "x" * (64 * KIB), {Unhashable(a=1): 2}, nested(100_000)],
    ids=["object", "too large a number", "no UTF-8", "too long", "a key that is a map", "too deep"],
)  # fmt: skip
def test_a_position_that_cannot_be_stored_and_read_again_is_refused_at_once(position: object) -> None:
    log = a_log()

    with pytest.raises(InvalidRequest), log.transaction() as tx:
        tx.set_source("pg", position)

    log["a"].append({"x": 1})
    engine_of(log).shard.check_fold()


def test_a_position_that_is_changed_after_it_was_given_is_stored_as_it_was_given() -> None:
    log = a_log()
    position: dict[str, object] = {"lsn": 1}

    with log.transaction() as tx:
        tx.set_source("pg", position)
        position["later"] = object()

    at = log.source_position("pg")
    assert at is not None and at.position == {"lsn": 1}


def test_a_watermark_needs_a_zone() -> None:
    with pytest.raises(InvalidRequest, match="zone"), a_log().transaction() as tx:
        tx.set_source("pg", 1, watermark=datetime(2026, 1, 1))  # noqa: DTZ001


# Told again ---------------------------------------------------------------------------------------


def test_a_transaction_with_a_key_is_applied_once() -> None:
    log = a_log()
    results = []
    for _ in range(2):
        with log.transaction(idempotency_key="k") as tx:
            tx.append("a", {"x": 1})
            tx.set_source("pg", 1)
        results.append(tx.result)

    first, again = results
    assert first is not None and again is not None
    assert (first.duplicate, again.duplicate) == (False, True)
    assert (first.lsn, first.offsets, first.time) == (again.lsn, again.offsets, again.time)
    assert values(log) == [1]


def test_a_key_of_a_transaction_is_none_of_a_topics() -> None:
    log = a_log()
    log.topic("b", PLAIN)
    log["a"].append({"x": 1}, idempotency_key="k")
    other = log["b"].append({"x": 2}, idempotency_key="k")
    with log.transaction(idempotency_key="k") as tx:
        tx.append("a", {"x": 3})

    assert not other.duplicate
    assert tx.result is not None and not tx.result.duplicate
    assert (values(log), values(log, "b")) == ([1, 3], [2])


def test_a_producers_transactions_have_its_numbers() -> None:
    log = a_log()
    producer = log.producer("p")

    with log.transaction(producer=producer) as tx:
        tx.append("a", {"x": 1})
    with pytest.raises(UnknownTopic), log.transaction(producer=producer) as tx:
        tx.append("nope", {"x": 1})
    with log.transaction(producer=producer):
        pass

    assert producer.next_sequence == 1
    assert producer.append("a", {"x": 1}, sequence=0).duplicate


def test_a_producer_goes_on_after_a_transaction_that_was_told_again_by_its_key() -> None:
    log = a_log()
    producer = log.producer("p")
    for _ in range(3):
        with log.transaction(producer=producer, idempotency_key="k") as tx:
            tx.append("a", {"x": 1})
    producer.append("a", {"x": 2})

    assert values(log) == [1, 2]
    engine_of(log).shard.check_fold()


def test_a_transaction_whose_outcome_is_not_known_can_be_sent_again_and_is_there_once() -> None:
    world = World()
    log = a_log(world)
    world.files.fail(1, errno.EIO, verbs=["sync_data"])
    with pytest.raises(OutcomeUnknown), log.transaction(idempotency_key="k") as tx:
        tx.append("a", {"x": 1})
    assert tx.state == "of unknown outcome"

    again = world.kill().log()
    with again.transaction(idempotency_key="k") as tx:
        tx.append("a", {"x": 1})

    assert values(again) == [1]


# Consumers ----------------------------------------------------------------------------------------


def test_what_a_consumer_has_read_counts_if_and_only_if_the_transaction_commits() -> None:
    log = a_log()
    log.topic("out", PLAIN)
    log["a"].append([{"x": 1}, {"x": 2}])
    consumer = log.consumer("a", group="g")

    for commits in (False, True):
        tx = log.transaction()
        polled = consumer.poll()
        assert polled is not None and polled.offset == 0, "handed out again after an abort"
        tx.append("out", polled.batch)
        tx.commit_offsets(consumer)
        if commits:
            tx.commit()
        else:
            tx.abort()

    assert consumer.poll() is None
    assert engine_of(log).committed("g", 1) == {0: 2}
    assert values(log, "out") == [1, 2]


def test_a_consumer_that_has_nothing_to_commit_adds_nothing() -> None:
    log = a_log()
    consumer = log.consumer("a", group="g")
    consumer.poll()

    with log.transaction() as tx:
        tx.append("a", {"x": 1})
        tx.commit_offsets(consumer)

    assert Kind.OFFSETS not in kinds(engine_of(log))


def test_several_members_of_a_group_may_take_part() -> None:
    log = a_log()
    log["k"].upsert([{"id": number, "v": "a"} for number in range(20)])
    one, two = log.consumer("k", group="g"), log.consumer("k", group="g")
    for consumer in (one, two, one, two):
        consumer.heartbeat()
    with log.transaction() as tx:
        for consumer in (one, two):
            assert consumer.poll() is not None
            tx.commit_offsets(consumer)

    assert engine_of(log).committed("g", 2).keys() == {0, 1}


def test_a_fenced_consumer_refuses_all_of_the_transaction() -> None:
    world = World()
    log = a_log(world)
    log["a"].append({"x": 1})
    slow, other = log.consumer("a", group="g"), log.consumer("a", group="g")
    slow.poll()
    world.clock.advance(60)
    assert other.poll() is not None

    tx = log.transaction()
    tx.append("a", {"x": 2})
    tx.commit_offsets(slow)
    with pytest.raises(Fenced):
        tx.commit()

    assert values(log) == [1]
    assert tx.state == "aborted"


@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EIO])
def test_a_commit_that_fails_hands_its_rows_out_again(failure: int) -> None:
    world = World()
    log = a_log(world)
    log["a"].append({"x": 1})
    consumer = log.consumer("a", group="g")
    consumer.poll()
    world.files.fail(1, failure, verbs=["append" if failure == errno.ENOSPC else "sync_data"])

    tx = log.transaction()
    tx.append("a", {"x": 2})
    tx.commit_offsets(consumer)
    with pytest.raises((Unavailable, OutcomeUnknown)):
        tx.commit()

    if failure == errno.ENOSPC:
        again = consumer.poll()
        assert again is not None and again.offset == 0


def test_a_conflict_is_a_conflict_for_callers() -> None:
    assert issubclass(Fenced, Conflict)
