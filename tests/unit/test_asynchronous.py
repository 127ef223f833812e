"""Log and Topic for asyncio: nothing holds up the loop, and to cancel loses nothing."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.api.async_consumer import AsyncConsumer
from headwater.api.async_writing import AT_ONCE_BYTES, AT_ONCE_ROWS, Appending, AsyncProducer, AsyncTransaction
from headwater.api.asynchronous import AsyncLog, AsyncTopic
from headwater.api.loop_threads import CallThreads, Deliveries, OwnThread
from headwater.errors import Closed, InvalidRequest, RowsRefused
from headwater.topics.answers import Appended

WAIT_S = 10.0
SCHEMA = {"number": int}


@asynccontextmanager
async def opened(**options: Any) -> AsyncIterator[AsyncLog]:
    async with AsyncLog(hw.open(":memory:"), **options) as log:
        yield log


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it, and see that no thread of ours is left behind."""

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await test()

    asyncio.run(bounded())
    deadline = time.monotonic() + WAIT_S
    while left := [each.name for each in threading.enumerate() if each.name.startswith("headwater-async")]:
        assert time.monotonic() < deadline, f"threads that nobody needs: {left}"
        time.sleep(0.01)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.005)


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [row["number"] for row in rows]


# Appending --------------------------------------------------------------------------------------------------------


def test_a_row_is_durable_when_its_append_returns() -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("events", schema=SCHEMA)

            appended = await topic.append({"number": 1})

            assert appended.rows == 1
            assert await topic.read().to_pylist() == [{"number": 1}]

    in_loop(test)


def test_appends_that_are_awaited_together_share_syncs(tmp_path: Path) -> None:
    async def test() -> None:
        async with AsyncLog(hw.open(tmp_path)) as log:
            topic = await log.topic("events", schema=SCHEMA)
            await topic.append({"number": 0})
            before = (await log.status()).counters["syncs"]

            given = await asyncio.gather(*(topic.append({"number": number}) for number in range(1, 301)))

            assert (await log.status()).counters["syncs"] - before < 100
            assert sorted(each.offsets[0].first for each in given) == list(range(1, 301))
            assert numbers(await topic.read().to_pylist()) == list(range(301))

    in_loop(test)


def test_rows_in_every_form_are_taken() -> None:
    @dataclass
    class Event:
        number: int

    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("events", schema=Event)
            for rows in ({"number": 1}, Event(2), [{"number": 3}, Event(4)], pa.table({"number": [5, 6]})):
                await topic.append(rows)

            assert numbers(await topic.read().to_pylist()) == [1, 2, 3, 4, 5, 6]

    in_loop(test)


def test_a_refused_row_is_told_to_its_own_append() -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("events", schema=SCHEMA)
            await topic.append({"number": 0})

            told = await asyncio.gather(
                topic.append({"number": 1}), topic.append({"number": "one"}), return_exceptions=True
            )

            assert isinstance(told[0], Appended)
            assert isinstance(told[1], RowsRefused)

    in_loop(test)


def test_to_cancel_an_append_leaves_the_others_alone_and_its_key_tells_its_fate() -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("events", schema=SCHEMA)
            await topic.append({"number": 0})
            tasks = [
                asyncio.create_task(topic.append({"number": number}, idempotency_key=f"n{number}"))
                for number in range(1, 51)
            ]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            ended = await asyncio.gather(*tasks, return_exceptions=True)

            again = [await topic.append({"number": n}, idempotency_key=f"n{n}") for n in range(1, 51)]

            assert all(isinstance(each, asyncio.CancelledError) for each in ended[::2])
            assert all(each.duplicate for each in again[1::2])
            assert sorted(numbers(await topic.read().to_pylist())) == list(range(51))

    in_loop(test)


class Slow:
    """Appends that say in which thread they were handed over, and are answered when a test says so."""

    def __init__(self) -> None:
        self.threads: list[int] = []
        self.futures: list[Future[Appended]] = []
        self.may_go_on = threading.Event()
        self.may_go_on.set()

    def begin(self) -> Future[Appended]:
        self.threads.append(threading.get_ident())
        assert self.may_go_on.wait(WAIT_S)
        future: Future[Appended] = Future()
        self.futures.append(future)
        return future

    def answer_all(self) -> None:
        for future in self.futures:
            if not future.done():
                future.set_result(ANSWER)


ANSWER: Any = object()


@asynccontextmanager
async def appending() -> AsyncIterator[tuple[Appending, Slow]]:
    deliveries = Deliveries(asyncio.get_running_loop())
    threads = CallThreads(deliveries, 4)
    slow, found = Slow(), Appending(deliveries, threads)
    first = asyncio.create_task(found.append(slow.begin, {"number": 0}))
    await until(lambda: len(slow.futures) == 1)
    slow.answer_all()
    await first
    assert slow.threads != [threading.get_ident()], "the first append may have to open, or to connect"
    slow.threads.clear()
    slow.futures.clear()
    try:
        yield found, slow
    finally:
        slow.may_go_on.set()
        threads.close()


@pytest.mark.parametrize(
    ("rows", "at_once"),
    [
        ({"number": 1}, True),
        ({"text": "x" * AT_ONCE_BYTES}, True),
        ({"text": "x" * (AT_ONCE_BYTES + 1)}, False),
        ({"list": [1]}, False),
        ([{"number": 1}], False),
        (pa.table({"number": [1]}), False),
    ],
    ids=["small", "text", "long-text", "nested", "many", "arrow"],
)
def test_only_a_small_row_is_handed_over_by_the_loop_itself(rows: object, at_once: bool) -> None:
    async def test() -> None:
        async with appending() as (found, slow):
            task = asyncio.create_task(found.append(slow.begin, rows))
            await until(lambda: len(slow.futures) == 1)

            assert (slow.threads == [threading.get_ident()]) == at_once

            slow.answer_all()
            assert await task is ANSWER

    in_loop(test)


def test_while_a_large_append_waits_for_room_the_loop_goes_on() -> None:
    async def test() -> None:
        async with appending() as (found, slow):
            slow.may_go_on.clear()
            large = asyncio.create_task(found.append(slow.begin, [{"number": 1}]))
            await until(lambda: len(slow.threads) == 1)
            small = asyncio.create_task(found.append(slow.begin, {"number": 2}))
            await until(lambda: len(slow.threads) == 2)

            assert threading.get_ident() not in slow.threads

            slow.may_go_on.set()
            await until(lambda: len(slow.futures) == 2)
            slow.answer_all()
            await asyncio.gather(large, small)

    in_loop(test)


def test_no_more_small_rows_wait_at_once_than_a_queue_has_room_for() -> None:
    async def test() -> None:
        async with appending() as (found, slow):
            tasks = [asyncio.create_task(found.append(slow.begin, {"n": 1})) for _ in range(AT_ONCE_ROWS + 1)]
            await until(lambda: len(slow.futures) == AT_ONCE_ROWS + 1)

            assert slow.threads.count(threading.get_ident()) == AT_ONCE_ROWS

            slow.answer_all()
            await asyncio.gather(*tasks)

    in_loop(test)


# Reading ----------------------------------------------------------------------------------------------------------


def test_a_read_that_follows_gives_rows_as_they_come_and_ends_when_it_is_left() -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("events", schema=SCHEMA)
            seen: list[int] = []
            async with aclosing(aiter(topic.read(follow=True))) as batches:
                for number in range(3):
                    await topic.append({"number": number})
                    seen += (await anext(batches))["number"].to_pylist()

            assert seen == [0, 1, 2]

    in_loop(test)


def test_a_read_that_is_cancelled_ends_its_thread() -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("events", schema=SCHEMA)
            reading = asyncio.create_task(topic.read(follow=True).to_pylist())
            await until(lambda: any(each.name == "headwater-async-read" for each in threading.enumerate()))

            reading.cancel()

            with pytest.raises(asyncio.CancelledError):
                await reading
            await until(lambda: all(each.name != "headwater-async-read" for each in threading.enumerate()))

    in_loop(test)


def test_closing_the_log_ends_reads_that_follow() -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("events", schema=SCHEMA)
            await topic.append({"number": 1})

            async def follow() -> list[int]:
                return [n async for batch in topic.read(follow=True) for n in batch["number"].to_pylist()]

            reading = asyncio.create_task(follow())
            await asyncio.sleep(0.05)
        try:
            assert await reading == [1]
        except Closed:
            pass  # the log was closed before the read looked again: it says so, as embedded

    in_loop(test)


def test_a_place_that_is_none_is_told_when_the_read_begins() -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("events", schema=SCHEMA)
            with pytest.raises(InvalidRequest):
                await topic.read(start="yesterday").to_pylist()

    in_loop(test)


# Consumers --------------------------------------------------------------------------------------------------------


def test_a_consumer_gives_rows_and_commits_what_was_handed_out() -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("events", schema=SCHEMA)
            await topic.append([{"number": number} for number in range(10)])
            async with await log.consumer("events", group="g", batch_rows=4, timeout_s=0.05) as consumer:
                seen = [n async for batch in consumer for n in batch["number"].to_pylist()]

                assert seen == list(range(10))
                assert await consumer.commit() == {0: 10}
                assert await consumer.lag() == {0: 0}

    in_loop(test)


@pytest.mark.parametrize("commits_between", [True, False])
def test_a_poll_that_was_cancelled_loses_no_row_and_commits_none(commits_between: bool) -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("events", schema=SCHEMA)
            async with await log.consumer("events", group="g") as consumer:
                assert await consumer.poll() is None
                polling = asyncio.create_task(consumer.poll(timeout_s=WAIT_S))
                await asyncio.sleep(0.02)
                polling.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await polling
                # The thread still waits, takes the rows that come, and has nobody to give them to.
                await topic.append([{"number": 1}, {"number": 2}])
                under_way = consumer._under_way
                assert under_way is not None
                await until(under_way.done)
                assert under_way.result() is not None

                if commits_between:
                    assert await consumer.commit() == {}
                polled = await consumer.poll(timeout_s=WAIT_S)

                assert polled is not None
                assert polled.batch["number"].to_pylist() == [1, 2]
                assert await consumer.commit() == {0: 2}

    in_loop(test)


def test_an_error_of_a_poll_is_told_once_and_the_next_one_asks_again() -> None:
    async def test() -> None:
        async with opened() as log:
            await log.topic("events", schema=SCHEMA)
            async with await log.consumer("events", group="g") as consumer:
                for _ in range(2):
                    with pytest.raises(InvalidRequest):
                        await consumer.poll(max_rows=0)
                assert await consumer.poll() is None

    in_loop(test)


def test_closing_a_consumer_ends_its_iteration() -> None:
    async def test() -> None:
        async with opened() as log:
            await log.topic("events", schema=SCHEMA)
            consumer = await log.consumer("events", group="g")

            async def consume() -> int:
                return sum([batch.num_rows async for batch in consumer])

            consuming = asyncio.create_task(consume())
            await asyncio.sleep(0.02)
            await consumer.close()
            await consumer.close()

            assert await consuming == 0

    in_loop(test)


# Transactions and producers ---------------------------------------------------------------------------------------


def test_a_transaction_is_whole_or_absent_and_takes_offsets_along() -> None:
    async def test() -> None:
        async with opened() as log:
            events, totals = await log.create_topics([hw.NewTopic("events", SCHEMA), hw.NewTopic("totals", SCHEMA)])
            await events.append([{"number": 1}, {"number": 2}])
            async with await log.consumer("events", group="g") as consumer:
                with pytest.raises(RowsRefused):
                    async with log.transaction() as tx:
                        await tx.append("totals", [{"number": -1}, {"number": "one"}])
                assert tx.state == "aborted"

                polled = await consumer.poll()
                assert polled is not None
                async with log.transaction() as tx:
                    await tx.append("totals", {"number": sum(polled.batch["number"].to_pylist())})
                    await tx.commit_offsets(consumer)
                    await tx.set_source("pg", 7)

                assert tx.state == "committed" and tx.result is not None
                assert numbers(await totals.read().to_pylist()) == [3]
                assert await consumer.commit() == {}
                position = await log.source_position("pg")
                assert position is not None and position.position == 7

    in_loop(test)


def test_offsets_in_a_transaction_leave_out_what_a_cancelled_poll_brought() -> None:
    async def test() -> None:
        async with opened() as log:
            events = await log.topic("events", schema=SCHEMA)
            async with await log.consumer("events", group="g") as consumer:
                assert await consumer.poll() is None
                polling = asyncio.create_task(consumer.poll(timeout_s=WAIT_S))
                await asyncio.sleep(0.02)
                polling.cancel()
                await asyncio.gather(polling, return_exceptions=True)
                await events.append({"number": 1})
                under_way = consumer._under_way
                assert under_way is not None
                await until(under_way.done)
                async with log.transaction() as tx:
                    await tx.commit_offsets(consumer)

                assert tx.result is None, "there was nothing to commit"
                polled = await consumer.poll(timeout_s=WAIT_S)

                assert polled is not None and polled.offset == 0

    in_loop(test)


def test_a_step_that_was_cancelled_is_over_before_the_transaction_is() -> None:
    async def test() -> None:
        async with opened() as log:
            await log.topic("events", schema=SCHEMA)
            slow = threading.Event()

            def rows() -> Any:
                slow.wait(WAIT_S)
                yield {"number": 1}

            async def transact() -> None:
                async with log.transaction() as tx:
                    transaction.append(tx)
                    await tx.append("events", rows())

            transaction: list[AsyncTransaction] = []
            transacting = asyncio.create_task(transact())
            await until(lambda: bool(transaction) and transaction[0]._turn.locked())
            transacting.cancel()
            await asyncio.sleep(0.02)
            assert transaction[0].state == "open"
            slow.set()
            with pytest.raises(asyncio.CancelledError):
                await transacting

            assert transaction[0].state == "aborted"

    in_loop(test)


def test_a_producer_applies_a_number_once() -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("customers", schema=SCHEMA, key="number")
            producer = await log.producer("importer")
            await producer.append("customers", {"number": 1}, sequence=0)

            again = await producer.append("customers", {"number": 1}, sequence=0)
            await producer.delete("customers", [{"number": 1}])
            async with log.transaction(producer=producer) as tx:
                await tx.upsert("customers", {"number": 2})
                await tx.delete("customers", [{"number": 3}])

            assert again.duplicate
            assert [row["_hw_op"] for row in await topic.read().to_pylist()] == ["U", "D", "U", "D"]

    in_loop(test)


# The log ----------------------------------------------------------------------------------------------------------


def test_any_other_verb_runs_in_a_thread() -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("customers", schema=SCHEMA, key="number", cleanup="compact")
            await topic.upsert({"number": 1})
            await topic.delete([{"number": 2}])
            assert (await topic.describe()).name == "customers"
            assert (await topic.offsets())[0].next == 2
            assert [each.name for each in await log.topics()] == ["customers"]
            assert await log.groups() == []
            assert (await log.run(hw.Log.compact, "customers")).compacted
            assert (await topic.run(hw.Topic.compact)).topic == "customers"
            await log.flush()
            await log.delete_topic("customers")

    in_loop(test)


def test_a_closed_log_says_so() -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("events", schema=SCHEMA)
            await topic.append({"number": 1})
        await log.close()
        for call in (topic.append({"number": 2}), log.topics(), topic.read().to_pylist(), log.consumer("e", group="g")):
            with pytest.raises(Closed):
                await call

    in_loop(test)


def test_appends_that_wait_when_the_log_is_closed_are_answered() -> None:
    async def test() -> None:
        async with opened() as log:
            topic = await log.topic("events", schema=SCHEMA)
            await topic.append({"number": 0})
            waiting = [asyncio.create_task(topic.append({"number": number})) for number in range(1, 101)]
            await asyncio.sleep(0)
        assert all(each.rows == 1 for each in await asyncio.gather(*waiting))

    in_loop(test)


def test_a_log_belongs_to_the_loop_it_was_made_in() -> None:
    with pytest.raises(InvalidRequest):
        AsyncLog(hw.open(":memory:"))

    made: list[AsyncTopic] = []

    async def make() -> None:
        log = AsyncLog(hw.open(":memory:"))
        made.append(await log.topic("events", schema=SCHEMA))
        await made[0].append({"number": 0})

    async def use() -> None:
        with pytest.raises(InvalidRequest, match="another event loop"):
            await made[0].append({"number": 1})

    asyncio.run(make())
    asyncio.run(use())
    made[0]._log._threads.close()


def test_what_comes_after_the_loop_was_closed_troubles_nobody(caplog: pytest.LogCaptureFixture) -> None:
    future: Future[int] = Future()

    async def ask() -> None:
        Deliveries(asyncio.get_running_loop()).of(future)

    asyncio.run(ask())

    future.set_result(1)

    assert caplog.records == []


def test_a_call_that_was_cancelled_before_its_turn_never_begins() -> None:
    async def test() -> None:
        deliveries = Deliveries(asyncio.get_running_loop())
        own = OwnThread(deliveries, "test")
        go_on, done = threading.Event(), []
        first = asyncio.create_task(own.call(lambda: go_on.wait(WAIT_S)))
        second = asyncio.create_task(own.call(lambda: done.append(2)))
        await asyncio.sleep(0.02)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        go_on.set()
        await first
        await own.call(lambda: done.append(3))
        own.end()

        assert done == [3]
        with pytest.raises(Closed):
            await own.call(lambda: None)

    in_loop(test)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (AsyncLog, hw.Log),
        (AsyncTopic, hw.Topic),
        (AsyncConsumer, hw.Consumer),
        (AsyncProducer, hw.Producer),
        (AsyncTransaction, hw.Transaction),
    ],
)
def test_a_verb_takes_what_the_verb_of_its_name_takes(ours: type, theirs: type) -> None:
    own = {"run", "settle"}
    verbs = [name for name, _ in inspect.getmembers(ours, inspect.isfunction) if name[0] != "_" and name not in own]

    assert verbs
    for name in verbs:
        asked, given = (list(inspect.signature(getattr(each, name)).parameters) for each in (ours, theirs))
        assert asked == given or (ours, name) == (AsyncTopic, "get"), name
