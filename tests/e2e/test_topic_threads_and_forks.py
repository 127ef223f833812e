"""One open log used by many threads, by an event loop, and by a child that was forked from its process.

PROMISED  Any number of threads may use a log, its topics and one producer.  Single rows of many threads are joined:
          fewer syncs than appends.  Creating a topic and adding partitions are atomic.
          In a forked child the log is closed: it is its parent's, who goes on.  The child may open it anew and read.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import headwater as hw
from headwater.errors import Closed, Conflict, Fenced, LogLocked, OffsetMismatch

THREADS = 16
ROW = {"thread": int, "number": int}


def at_once(count: int, work: Callable[[int], None]) -> None:
    """Run it in so many threads, which begin together; the first error is raised here."""
    together = threading.Barrier(count)

    def run(number: int) -> None:
        together.wait(30)
        work(number)

    with ThreadPoolExecutor(count) as threads:
        for done in [threads.submit(run, number) for number in range(count)]:
            done.result(timeout=60)


def in_forked_child(work: Callable[[], None]) -> None:
    """Run it in a child and fail here if it fails there.

    The child's error comes as text through a pipe, and it ends without the parent's goodbyes."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        exit_code = 1
        try:
            work()
            exit_code = 0
        finally:
            if exit_code:
                os.write(writing, traceback.format_exc().encode()[-4_000:])
            os._exit(exit_code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read().decode()
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, said


# ------------------------------------------------------------------------------------------------------------ threads


def test_single_rows_of_many_threads_are_all_there_and_share_their_syncs(tmp_path: Path) -> None:
    appends = 50
    answers: list[list[hw.Appended]] = [[] for _ in range(THREADS)]
    with hw.open(tmp_path) as log:
        topic = log.topic("events", schema=ROW)
        topic.append({"thread": -1, "number": 0})
        syncs = log.status().counters["syncs"]

        def work(thread: int) -> None:
            for number in range(appends):
                answers[thread].append(topic.append({"thread": thread, "number": number}))

        at_once(THREADS, work)
        syncs = log.status().counters["syncs"] - syncs
        rows = topic.read(system_columns=True).to_pylist()

    assert [row["_hw_offset"] for row in rows] == list(range(1 + THREADS * appends)), "dense"
    told = {(thread, n): answer for thread, each in enumerate(answers) for n, answer in enumerate(each)}
    for row in rows[1:]:
        answer = told.pop((row["thread"], row["number"]))
        assert answer.offsets == {0: (row["_hw_offset"], row["_hw_offset"] + 1)}
        assert answer.first_lsn <= row["_hw_lsn"] <= answer.lsn
    assert not told
    assert syncs < THREADS * appends / 2, "many appends, few syncs"


def test_threads_that_ask_for_the_same_topic_get_the_same_one(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        found: list[set[str]] = [set() for _ in range(20)]

        def work(thread: int) -> None:
            for number in range(20):
                topic = log.topic(f"topic-{number}", schema=ROW, partitions=2)
                found[number].add(topic.topic_id)
                topic.append({"thread": thread, "number": number})

        at_once(THREADS, work)

        assert all(len(ids) == 1 for ids in found)
        assert len(log.topics()) == 20
        assert all(topic.rows == THREADS for topic in log.topics())


def test_threads_that_ask_for_different_topics_of_one_name_find_one_winner(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        refused: list[int] = []

        def work(thread: int) -> None:
            try:
                log.topic("events", schema={f"column_{thread}": int})
            except Conflict:
                refused.append(thread)

        at_once(THREADS, work)

        winner = int(log["events"].schema.names[0].removeprefix("column_"))
        assert sorted([*refused, winner]) == list(range(THREADS))


def test_partitions_that_threads_add_together_are_added_once(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("events", schema=ROW)
        columns: list[str] = []

        def work(thread: int) -> None:
            topic.alter(partitions=8)
            topic.append({"thread": thread, "number": 0}, partition=7)
            topic.alter(add={f"column_{thread}": int})
            columns.append(f"column_{thread}")

        at_once(THREADS, work)

        assert topic.partitions == 8
        assert sorted(topic.schema.names[2:]) == sorted(columns)
        assert topic.describe().schema_version == 1 + THREADS
        assert topic.offsets()[7] == (0, THREADS)


def test_of_threads_that_expect_the_same_offset_one_wins_each_time(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("events", schema=ROW)
        won: list[tuple[int, int]] = []

        def work(thread: int) -> None:
            for number in range(10):
                try:
                    topic.append({"thread": thread, "number": number}, expect_offset=number)
                except OffsetMismatch:
                    while topic.offsets()[0].next <= number:
                        pass
                else:
                    won.append((number, thread))

        at_once(4, work)

        assert [(row["number"], row["thread"]) for row in topic.read().to_pylist()] == sorted(won)
        assert [number for number, _ in sorted(won)] == list(range(10))


def test_threads_take_turns_with_one_producer(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("events", schema=ROW)
        producer = log.producer("loader")

        def work(thread: int) -> None:
            for number in range(20):
                producer.append("events", {"thread": thread, "number": number})

        at_once(8, work)

        assert producer.next_sequence == 160
        assert len({(row["thread"], row["number"]) for row in topic.read().to_pylist()}) == 160
        assert topic.offsets()[0].next == 160


def test_readers_beside_writers_see_whole_transactions(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        left, right = log.topic("left", schema=ROW), log.topic("right", schema=ROW)
        done = threading.Event()
        looks = 0

        def work(thread: int) -> None:
            nonlocal looks
            if thread < 3:
                try:
                    for number in range(40):
                        with log.transaction() as tx:
                            tx.append("left", {"thread": thread, "number": number})
                            tx.append("right", [{"thread": thread, "number": number}] * 3)
                finally:
                    done.set()
                return
            while not done.is_set():
                first = left.read().to_pylist()
                then = right.read().to_pylist()
                assert len(then) % 3 == 0
                assert len(then) >= 3 * len(first), "what was in one topic is in the other by now"
                looks += 1

        at_once(5, work)

        assert looks > 0
        assert left.offsets()[0].next == 120
        assert right.offsets()[0].next == 360


def test_members_that_come_and_go_have_every_row_read_once(tmp_path: Path, seed: int) -> None:
    rows = 600
    with hw.open(tmp_path) as log:
        events = log.topic("events", schema=ROW, partitions=4)
        log.topic("copied", schema={"partition": int, "first": int, "next": int})

        def copy_some(rng: random.Random) -> None:
            with log.consumer("events", group="copiers") as consumer:
                for _ in range(rng.randrange(1, 12)):
                    polled = consumer.poll(max_rows=rng.randrange(1, 20), timeout_s=0.01)
                    if polled is None:
                        continue
                    tx = log.transaction()
                    tx.append(
                        "copied", {"partition": polled.partition, "first": polled.offset, "next": polled.next_offset}
                    )
                    tx.commit_offsets(consumer)
                    if rng.random() < 0.1:
                        tx.abort()
                        continue
                    with contextlib.suppress(Fenced):
                        tx.commit()

        def work(thread: int) -> None:
            if thread == 0:
                for number in range(rows):
                    events.append({"thread": 0, "number": number}, partition=number % 4)
                return
            rng = random.Random(seed + thread)
            while sum(each.total_lag for each in log.groups()) or events.offsets()[3].next < rows // 4:
                copy_some(rng)

        at_once(4, work)

        following: dict[int, int] = {}
        for row in log["copied"].read().to_pylist():
            assert row["first"] == following.get(row["partition"], 0), "nothing is read twice or passed over"
            following[row["partition"]] = row["next"]
        assert following == dict.fromkeys(range(4), rows // 4)


def test_an_event_loop_waits_for_many_appends_without_a_thread_for_each(tmp_path: Path) -> None:
    async def append_all(topic: hw.Topic) -> list[hw.Appended]:
        futures = [topic.append_future({"thread": 0, "number": number}) for number in range(500)]
        return await asyncio.gather(*(asyncio.wrap_future(future) for future in futures))

    with hw.open(tmp_path) as log:
        topic = log.topic("events", schema=ROW)
        threads = threading.active_count()
        answers = asyncio.run(append_all(topic))

        assert [answer.offsets[0].first for answer in answers] == list(range(500))
        assert [row["number"] for row in topic.read().to_pylist()] == list(range(500))
        assert log.status().counters["syncs"] < 250
        assert threading.active_count() <= threads + 1


def test_a_close_beside_appending_threads_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    log = hw.open(tmp_path)
    topic = log.topic("events", schema=ROW)
    acknowledged: list[tuple[int, int]] = []
    some = threading.Event()

    def work(thread: int) -> None:
        if thread == 0:
            assert some.wait(30)
            log.close()
            return
        number = 0
        while True:
            try:
                topic.append({"thread": thread, "number": number})
            except Closed:
                return
            acknowledged.append((thread, number))
            number += 1
            if len(acknowledged) > 50:
                some.set()

    at_once(5, work)

    with hw.open(tmp_path) as log:
        found = [(row["thread"], row["number"]) for row in log["events"].read().to_pylist()]
    assert len(found) == len(set(found))
    assert set(acknowledged) <= set(found)


# -------------------------------------------------------------------------------------------------------------- forks


def test_in_a_forked_child_the_log_is_closed_and_its_parent_goes_on(tmp_path: Path) -> None:
    log = hw.open(tmp_path)
    topic = log.topic("events", schema=ROW)
    topic.append({"thread": 0, "number": 0})
    consumer = log.consumer("events", group="g")
    producer = log.producer("loader")
    transaction = log.transaction()
    transaction.append("events", {"thread": 0, "number": 9})

    def child() -> None:
        uses: list[Callable[[], object]] = [
            lambda: topic.append({"thread": 1, "number": 0}),
            lambda: topic.append_future({"thread": 1, "number": 0}).result(timeout=5),
            lambda: topic.read().to_pylist(),
            lambda: topic.alter(partitions=2),
            lambda: log.topic("other", schema=ROW),
            lambda: log.delete_topic("events"),
            lambda: producer.append("events", {"thread": 1, "number": 0}),
            transaction.commit,
            consumer.poll,
            log.checkpoint,
            log.cleanup,
            log.status,
            log.topics,
        ]
        for use in uses:
            with pytest.raises(Closed):
                use()
        log.close()

    in_forked_child(child)
    topic.append({"thread": 0, "number": 1})
    log.close()

    with hw.open(tmp_path) as log:
        assert [row["number"] for row in log["events"].read().to_pylist()] == [0, 1]
        assert [each.name for each in log.topics()] == ["events"]


def test_a_forked_child_opens_the_log_anew_to_read_and_cannot_write(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("events", schema=ROW)
        topic.append({"thread": 0, "number": 0})

        def child() -> None:
            with hw.open(tmp_path) as mine:
                assert [row["number"] for row in mine["events"].read().to_pylist()] == [0]
                with pytest.raises(LogLocked):
                    mine["events"].append({"thread": 1, "number": 0})

        in_forked_child(child)
        topic.append({"thread": 0, "number": 1})
        in_forked_child(lambda: None)
        topic.append({"thread": 0, "number": 2})

        assert [row["number"] for row in topic.read().to_pylist()] == [0, 1, 2]


def test_a_child_that_is_forked_while_threads_append_does_them_no_harm(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("events", schema=ROW)

        def child() -> None:
            with pytest.raises(Closed):
                topic.append({"thread": 99, "number": 0})
            log.close()

        def work(thread: int) -> None:
            if thread == 0:
                for _ in range(5):
                    in_forked_child(child)
                return
            for number in range(50):
                topic.append({"thread": thread, "number": number})

        at_once(5, work)

        rows = topic.read().to_pylist()
        assert len(rows) == 200
        assert all(row["thread"] != 99 for row in rows)


def test_a_child_may_own_a_log_that_its_parent_had_opened_and_not_written(tmp_path: Path) -> None:
    log = hw.open(tmp_path)

    def child() -> None:
        with pytest.raises(Closed):
            log.topic("events", schema=ROW)
        with hw.open(tmp_path) as mine:
            mine.topic("events", schema=ROW).append({"thread": 1, "number": 0})

    in_forked_child(child)

    assert [row["thread"] for row in log["events"].read().to_pylist()] == [1]
    log["events"].append({"thread": 0, "number": 0})
    log.close()
