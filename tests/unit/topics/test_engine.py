"""The engine: what is closed and where, futures, changes of topics, consumers' reads, and many threads at once."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pytest

from headwater.api import Log
from headwater.errors import (
    Closed,
    HeadwaterError,
    InvalidRequest,
    OffsetMismatch,
    OutcomeUnknown,
    RowsRefused,
    RowsUnlanded,
    TopicExists,
    UnknownTopic,
)
from headwater.frames.frame import Kind
from headwater.log.file_device import FileDevice
from headwater.settings import KIB
from headwater.topics.consumer import Polled
from headwater.topics.requests import GroupOffset
from headwater.topics.topic import NewTopic
from tests.unit.topics.small_engines import (
    PLAIN,
    QUIET,
    WAIT_S,
    World,
    appending,
    engine_of,
    frames,
    together,
    values,
    with_log,
)


def a_log(world: World, rows: int = 3) -> Log:
    log = world.log()
    log.topic("a", PLAIN)
    for number in range(rows):
        log["a"].append({"x": number})
    return log


# Closed -------------------------------------------------------------------------------------------

VERBS: dict[str, Callable[[Log], Any]] = {
    "append": lambda log: log["a"].append({"x": 1}),
    "append_future": lambda log: log["a"].append_future({"x": 1}),
    "read": lambda log: log["a"].read().to_pylist(),
    "topic": lambda log: log.topic("a"),
    "topics": lambda log: log.topics(),
    "delete_topic": lambda log: log.delete_topic("a"),
    "contains": lambda log: "a" in log,
    "transaction": lambda log: log.transaction().append("a", {"x": 1}),
    "producer": lambda log: log.producer("p"),
    "source": lambda log: log.source_position("pg"),
    "consumer": lambda log: log.consumer("a", group="g"),
    "groups": lambda log: log.groups(),
    "cleanup": lambda log: log.cleanup(),
    "compact": lambda log: log.compact(),
    "checkpoint": lambda log: log.checkpoint(),
    "status": lambda log: log.status(),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_of_a_closed_log_is_closed(verb: str) -> None:
    log = a_log(World())
    log.close()
    log.close()

    with pytest.raises(Closed):
        VERBS[verb](log)


def test_a_topic_that_was_taken_before_the_close_is_closed_with_it() -> None:
    log = a_log(World())
    topic = log["a"]
    log.close()

    for verb in (topic.describe, topic.offsets, lambda: topic.append({"x": 1}), topic.read):
        with pytest.raises(Closed):
            verb()


def in_a_child(act: Callable[[], None]) -> int:
    """The exit code of a forked child that does this."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
def test_in_a_forked_child_every_verb_is_closed_and_closing_touches_nothing() -> None:
    world = World()
    log = a_log(world)

    def every_verb() -> None:
        for verb in VERBS.values():
            with pytest.raises(Closed):
                verb(log)
        log.close()

    assert in_a_child(every_verb) == 0
    log["a"].append({"x": 3})
    assert values(log) == [0, 1, 2, 3]


@pytest.mark.filterwarnings("ignore:This process")
@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
def test_a_child_that_was_forked_while_the_log_was_being_claimed_can_close_it() -> None:
    log = a_log(World())

    with engine_of(log)._owning:
        # Another thread's lock, as the child sees it: whoever holds it is not there any more.
        child = os.fork()
        if child == 0:
            closing = threading.Thread(target=log.close, daemon=True)
            closing.start()
            closing.join(WAIT_S / 4)
            os._exit(1 if closing.is_alive() else 0)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_what_was_queued_before_the_close_is_served_by_it() -> None:
    world = World()
    log = a_log(world, rows=0)
    engine = engine_of(log)
    futures = engine.shard.log.exclusively(lambda: [log["a"].append_future({"x": n}) for n in range(3)])

    log.close()

    assert [future.result(WAIT_S).offsets[0].first for future in futures] == [0, 1, 2]
    assert values(world.log()) == [0, 1, 2]


# Futures ------------------------------------------------------------------------------------------


def test_what_is_wrong_with_the_call_is_raised_and_what_the_log_refuses_is_in_the_future() -> None:
    log = a_log(World())
    with pytest.raises(RowsRefused):
        log["a"].append_future({"x": "no number"})
    with pytest.raises(InvalidRequest):
        log["a"].append_future({"x": 1}, idempotency_key="")

    future = log["a"].append_future({"x": 1}, expect_offset=99)

    assert isinstance(future.exception(WAIT_S), OffsetMismatch)


def test_a_future_of_no_rows_is_done_at_once() -> None:
    log = a_log(World())

    future = log["a"].append_future([])

    assert future.done() and future.result().rows == 0


def test_a_callback_is_called_with_the_answer_and_one_that_fails_harms_nobody() -> None:
    log = a_log(World())
    engine = engine_of(log)
    told: list[int] = []

    def asking(callback: Callable[[Future[Any]], None]) -> Callable[[], Future[Any]]:
        def ask() -> Future[Any]:
            future = log["a"].append_future({"x": 9})
            future.add_done_callback(callback)
            return future

        return ask

    def failing(future: Future[Any]) -> None:
        raise ValueError("a mistake of the caller's own")

    together(
        engine,
        asking(failing),
        asking(lambda future: told.append(future.result().offsets[0].first)),
    )

    assert told == [4]
    assert log["a"].append({"x": 1}).offsets == {0: (5, 6)}


def test_a_future_whose_outcome_is_not_known_says_so() -> None:
    world = World()
    log = a_log(world)
    world.files.fail(1, errno.EIO, verbs=["sync_data"])

    assert isinstance(log["a"].append_future({"x": 1}).exception(WAIT_S), OutcomeUnknown)


def test_a_future_makes_the_checkpoint_that_is_due() -> None:
    world = World(settings=replace(QUIET, shard_checkpoint_bytes=1))
    log = a_log(world, rows=1)
    first = engine_of(log).shard.checkpoint_lsn

    log["a"].append_future({"x": 1}).result(WAIT_S)
    log["a"].append_future({"x": 2}).result(WAIT_S)

    assert engine_of(log).shard.checkpoint_lsn > first


# Topics -------------------------------------------------------------------------------------------


def test_topics_are_created_by_one_write_of_the_journal_as_far_as_they_are_not_there() -> None:
    log = a_log(World())
    before = engine_of(log).metadata().lsn

    made = log.create_topics([NewTopic(name, PLAIN) for name in ("a", "b", "c")])

    assert [topic.name for topic in made] == ["a", "b", "c"]
    assert [topic.number for topic in made] == [1, 2, 3]
    assert engine_of(log).metadata().lsn == before + 2
    assert log.create_topics([NewTopic("b", PLAIN)])[0].number == 2
    assert engine_of(log).metadata().lsn == before + 2


def test_a_topic_that_another_process_has_made_meanwhile_is_found_when_this_one_claims() -> None:
    world = World()
    late = world.log()
    early = world.log()
    engine = engine_of(late)
    planned = engine._plan([NewTopic("a", PLAIN)])
    assert len(planned) == 1
    early.topic("a", PLAIN)
    early.close()

    assert late.topic("a", PLAIN).number == 1
    assert len(late.topics()) == 1


def test_a_topic_of_the_same_name_is_another_topic_and_the_old_handle_is_of_the_old_one() -> None:
    log = a_log(World())
    old = log["a"]
    log.delete_topic("a")
    new = log.topic("a", PLAIN)

    new.append({"x": 7})

    with pytest.raises(UnknownTopic):
        old.append({"x": 1})
    assert (values(log), new.number) == ([7], 2)
    assert log.status().deleted_topics == 1


def test_a_topic_with_a_table_is_not_deleted_while_rows_are_not_in_it_unless_by_force() -> None:
    world = World()
    log = world.log()
    log.topic("a", PLAIN, table="sales.a")
    log.topic("b", PLAIN, table="sales.b")
    log.topic("empty", PLAIN, table="sales.c")
    for name in ("a", "b"):
        log[name].append({"x": 1})

    with pytest.raises(RowsUnlanded) as refused:
        log.delete_topic("a")
    assert refused.value.facts["landed_lsn"] == 0
    world.landings.add(1, engine_of(log).durable_lsn())
    log.delete_topic("a")
    log.delete_topic("b", force=True)
    log.delete_topic("empty")

    assert log.topics() == []
    with pytest.raises(UnknownTopic):
        log.delete_topic("a")


def test_altering_to_what_is_there_writes_nothing() -> None:
    log = a_log(World())
    before = engine_of(log).metadata().lsn

    log["a"].alter(partitions=1)

    assert engine_of(log).metadata().lsn == before
    log["a"].alter(partitions=4)
    assert log["a"].partitions == 4


# Rejected rows ------------------------------------------------------------------------------------


def test_rows_that_do_not_fit_are_kept_in_the_same_write() -> None:
    log = a_log(World(), rows=0)

    appended = log["a"].append([{"x": 1}, {"x": "one"}, {"x": 2}], rejected="keep")

    assert (appended.rows, appended.rejected, appended.offsets) == (2, 1, {0: (0, 2)})
    (kept,) = log["a.rejected"].read(system_columns=True).to_pylist()
    assert (kept["number"], kept["row"]) == (1, '{"x": "one"}')
    assert appended.first_lsn <= kept["_hw_lsn"] <= appended.lsn
    assert len({frame.header.write_count for frame in frames(engine_of(log), appended.first_lsn)}) == 1


def test_a_topic_that_a_user_has_made_is_not_taken_for_the_one_of_rejected_rows() -> None:
    log = a_log(World(), rows=0)
    log.topic("a.rejected", {"q": int})

    with pytest.raises((TopicExists, InvalidRequest)):
        log["a"].append([{"x": 1}, {"x": "one"}], rejected="keep")

    assert log["a.rejected"].read().to_pylist() == []
    assert values(log) == []


# Consumers' reads ---------------------------------------------------------------------------------


def test_a_partition_is_read_from_an_offset_on_with_the_offset_after_it() -> None:
    log = a_log(World(), rows=5)
    engine = engine_of(log)

    batch, following = engine.read_rows(1, 0, 1, 2)
    assert batch is not None
    assert (batch.to_pydict(), following) == ({"x": [1, 2]}, 3)
    assert engine.read_rows(1, 0, 5, 2) == (None, 5)


def test_a_consumer_that_polls_in_the_middle_of_a_commit_misses_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """The index of the log moves a moment before its rows can be read."""
    log = a_log(World(), rows=1)
    consumer = log.consumer("a", group="g")
    polled = consumer.poll()
    assert polled is not None and polled.next_offset == 1
    device = engine_of(log).shard.log.device
    assert isinstance(device, FileDevice)
    write_mark = device._write_mark
    handed_out: list[Polled | None] = []
    polls: list[threading.Thread] = []

    def slow_mark(*given: Any, **named: Any) -> None:
        poll = threading.Thread(target=lambda: handed_out.append(consumer.poll()))
        poll.start()
        poll.join(0.2)  # it may have to wait for this commit
        polls.append(poll)
        write_mark(*given, **named)

    monkeypatch.setattr(device, "_write_mark", slow_mark)
    log["a"].append({"x": 1})
    monkeypatch.undo()
    for poll in polls:
        poll.join(WAIT_S)
    handed_out.append(consumer.poll())

    assert [(each.offset, each.next_offset) for each in handed_out if each is not None] == [(1, 2)]


def test_offsets_committed_before_are_seen_by_whoever_asks_under_the_baton() -> None:
    log = a_log(World())
    consumer = log.consumer("a", group="g")
    consumer.poll()
    consumer.commit()

    assert engine_of(log).committed("g", 1) == {0: 3}
    engine_of(log).commit_offsets("g", 1, {})
    assert [frame.header.kind for frame in frames(engine_of(log))].count(Kind.OFFSETS) == 1


def test_a_reader_looks_at_committed_offsets_without_owning() -> None:
    world = World()
    log = a_log(world)
    consumer = log.consumer("a", group="g")
    consumer.poll()
    consumer.commit()

    reader = engine_of(world.log())

    assert reader.committed("g", 1) == {0: 3}
    assert not reader.claimed


def test_a_consumer_passes_over_what_compaction_has_taken() -> None:
    log = World().log()
    log.topic("k", {"id": int, "v": int}, key="id", cleanup="compact")
    for number in range(4):
        log["k"].upsert({"id": 1, "v": number})
    log.checkpoint()
    log["k"].delete(1)
    log.checkpoint()
    log["k"].compact()
    engine = engine_of(log)

    batch, following = engine.read_rows(1, 0, 0, 10)
    assert batch is not None and following == 5
    assert engine.read_rows(1, 0, 5, 10) == (None, 5)


def test_a_topic_that_is_asked_for_by_a_wrong_name_is_unknown_also_to_a_reader() -> None:
    world = World()
    a_log(world)
    reader = world.log()

    with pytest.raises(UnknownTopic):
        reader["nope"]
    assert not engine_of(reader).claimed


# Locks --------------------------------------------------------------------------------------------


def test_many_threads_that_do_everything_at_once_come_to_an_end() -> None:
    world = World(settings=replace(with_log(segment_size_bytes_max=32 * KIB, write_body_bytes_max=32 * KIB), shard_checkpoint_bytes=4 * KIB))  # noqa: E501  # fmt: skip
    log = world.log()
    log.topic("a", PLAIN)
    failures: list[HeadwaterError] = []
    ended: list[object] = []
    appended = [0] * 4

    def run(act: Callable[[int], object]) -> threading.Thread:
        def loop() -> None:
            try:
                for number in range(25):
                    act(number)
            except HeadwaterError as error:  # told below, in the test's own thread
                failures.append(error)
            else:
                ended.append(act)

        return threading.Thread(target=loop, daemon=True)

    def append(at: int) -> Callable[[int], object]:
        def act(number: int) -> None:
            if number % 2:
                log["a"].append({"x": number})
            else:
                log["a"].append_future({"x": number}).result(WAIT_S)
            appended[at] += 1

        return act

    threads = [
        *(run(append(at)) for at in range(4)),
        run(lambda number: log.topic(f"t{number % 5}", PLAIN)),
        run(lambda _: log.status()),
        run(lambda _: log.checkpoint()),
        run(lambda _: log.cleanup()),
        run(lambda number: log.producer(f"p{number % 3}")),
        run(lambda _: log["a"].read().to_arrow()),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)

    assert not any(thread.is_alive() for thread in threads)
    assert (failures, len(ended)) == ([], len(threads))
    assert len(values(log)) == sum(appended) == 100
    engine_of(log).shard.check_fold()


def test_a_transaction_names_a_topic_that_is_gone_by_its_number() -> None:
    """A repeat of a transaction whose topic was deleted since is told where the rows were."""
    log = a_log(World(), rows=0)
    log.topic("b", PLAIN)
    with log.transaction(idempotency_key="k") as tx:
        tx.append("b", {"x": 1})
    log.delete_topic("b")

    with log.transaction(idempotency_key="k") as tx:
        tx.append("a", {"x": 1})

    assert tx.result is not None and tx.result.duplicate
    assert tx.result.offsets == {"deleted topic 2": {0: (0, 1)}}


def test_group_offsets_without_rows_are_a_write_of_their_own() -> None:
    log = a_log(World())
    consumer = log.consumer("a", group="g")
    consumer.poll()
    before = engine_of(log).durable_lsn()
    consumer.commit()

    (frame,) = frames(engine_of(log), before + 1)
    assert (frame.header.kind, frame.header.write_count) == (Kind.OFFSETS, 1)
    assert GroupOffset("g", 1, 0, 3, 1, 1).offset == 3


def test_flush_returns_when_what_was_queued_is_durable() -> None:
    log = a_log(World(), rows=0)
    engine = engine_of(log)

    futures = engine.shard.log.exclusively(lambda: [appending(log, "a", {"x": n})() for n in range(3)])
    log.flush()

    assert all(future.done() for future in futures)
