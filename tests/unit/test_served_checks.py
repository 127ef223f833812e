"""The judge of what clients of a server were told: a log that holds to it passes, and each broken one fails by the
promise that it breaks."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import headwater as hw
from tests.e2e.test_topic_kills import Violation
from tests.e2e.topic_writer import request
from tests.e2e_server.checks import Told, check_log
from tests.e2e_server.client_process import create_topics, row_checksum

CLIENT, THREAD = 3, 1


def append(log: hw.Log, topic: str, number: int, partition: int = 0) -> tuple[int, int]:
    appended = log[topic].append(request(CLIENT, THREAD, number), partition=partition)
    first, after = appended.offsets[partition]
    return first, after


def transact(log: hw.Log, number: int) -> None:
    rows = request(CLIENT, THREAD, number)
    with log.transaction() as tx:
        tx.append("left", rows, partition=number % 2)
        tx.append("right", rows[::-1], partition=0)
        tx.set_source(f"source-{CLIENT}-{THREAD}", number)


def copy_all(log: hw.Log) -> list[str]:
    lines = []
    with log.consumer("events", group="copier") as consumer:
        while (polled := consumer.poll(max_rows=5)) is not None:
            with log.transaction() as tx:
                copied = {"partition": polled.partition, "first": polled.offset, "next": polled.next_offset}
                tx.append("copied", copied)
                tx.commit_offsets(consumer)
            lines.append(f"a copy {polled.partition} {polled.offset} {polled.next_offset}")
    return lines


def consume_all(log: hw.Log) -> list[str]:
    lines = []
    with log.consumer("events", group="reader") as consumer:
        while (polled := consumer.poll(max_rows=5)) is not None:
            lines.append(f"p {polled.partition} {polled.offset} {polled.next_offset}")
            lines += [f"c {partition} {following}" for partition, following in consumer.commit().items()]
    return lines


def follow_all(log: hw.Log) -> list[str]:
    checksum = following = 0
    for row in log["events"].read(0, partition=0).to_pylist():
        checksum = row_checksum(checksum, row)
        following += 1
    return [f"f 0 0 {following} {checksum}"]


def told_of(log: hw.Log) -> list[str]:
    """Some requests of each kind, and the lines of a client that made them."""
    lines = ["r"]
    for number in range(6):
        first, after = append(log, "events", number, number % 3)
        lines.append(f"a append {THREAD} {number} {number % 3} {first} {after}")
        first, after = append(log, "expected", number)
        lines.append(f"a expect {THREAD} {number} {first} {after}")
        transact(log, number)
        lines.append(f"a tx {THREAD} {number}")
        for kind, topic in (("send", "sent"), ("keyed", "keyed")):
            first, after = append(log, topic, number)
            lines.append(f"a {kind} {THREAD} {number} 0 {first} {after}")
    lines += [f"n append {THREAD} 6 Unavailable x", f"u append {THREAD} 7 OutcomeUnknown x"]
    return [*lines, *copy_all(log), *consume_all(log), *follow_all(log), "z"]


@pytest.fixture
def log() -> Iterator[hw.Log]:
    with hw.open(":memory:") as opened:
        create_topics(opened)
        yield opened


def judge(log: hw.Log, lines: list[str]) -> None:
    told = Told()
    told.add_lines(CLIENT, lines)
    check_log(log, told)


def test_a_log_that_holds_to_what_was_told_passes(log: hw.Log) -> None:
    judge(log, told_of(log))


@pytest.mark.parametrize("present", [True, False])
def test_what_nobody_knows_may_be_there_once_or_not(log: hw.Log, present: bool) -> None:
    lines = told_of(log)
    if present:
        append(log, "events", 7, 1)

    judge(log, lines)


def add_row(log: hw.Log, topic: str, number: int, row: int = 0, partition: int = 0) -> None:
    log[topic].append(request(CLIENT, THREAD, number)[row], partition=partition)


BROKEN: dict[str, tuple[Callable[[hw.Log], object], list[str], str]] = {
    "lost": (lambda log: None, [f"a append {THREAD} 9 0 900 901"], "what was acknowledged is there"),
    "elsewhere": (lambda log: None, [f"a append {THREAD} 1 1 5 6"], "an answer stays true"),
    "refused and there": (lambda log: append(log, "events", 6), [], "what was refused is not there"),
    "unknown and twice": (
        lambda log: [append(log, "events", 7, 1), append(log, "events", 7, 1)],
        [],
        "a request is whole and there once",
    ),
    "doubled": (lambda log: append(log, "events", 0), [], "a request is whole and there once"),
    "torn": (lambda log: add_row(log, "events", 9, 1), [], "a request is whole and there once"),
    "out of order": (
        lambda log: [append(log, "events", 13, 1), append(log, "events", 10, 1)],
        [],
        "a thread's requests stand in its order",
    ),
    "half a transaction": (lambda log: append(log, "left", 6), [], "a transaction is in all its topics or in none"),
    "a transaction lost": (lambda log: None, [f"a tx {THREAD} 6"], "what was acknowledged is there"),
    "a source behind": (
        lambda log: [append(log, "left", 6), append(log, "right", 6)],
        [],
        "a source is where its rows are",
    ),
    "a gap of a producer": (lambda log: append(log, "sent", 7), [], "requests are applied in order, each once"),
    "a key twice": (lambda log: append(log, "keyed", 5), [], "a request is whole and there once"),
    "copied twice": (
        lambda log: log["copied"].append({"partition": 0, "first": 0, "next": 1}),
        [],
        "a group reads every row once",
    ),
    "a copy lost": (lambda log: None, ["a copy 0 5000 5001"], "what was acknowledged is there"),
    "a commit forgotten": (lambda log: None, ["c 0 5000"], "a commit is not forgotten"),
    "a follower saw other rows": (lambda log: None, ["f 0 9 10 12345"], "a follower"),
    "a follower saw more": (lambda log: None, ["f 1 0 5000 12345"], "nothing is followed that is not there"),
    "an error": (lambda log: None, ["e append KeyError x"], "a careful client meets no such error"),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_promise_is_named(log: hw.Log, how: str) -> None:
    lines = told_of(log)
    break_it, more, promise = BROKEN[how]
    break_it(log)

    with pytest.raises(Violation, match=promise):
        judge(log, [*lines, *more])


def test_rows_that_were_committed_and_never_handed_out_are_missed(log: hw.Log) -> None:
    lines = [line for line in told_of(log) if not line.startswith("p 0 ")]

    with pytest.raises(Violation, match=r"handed out|passed over"):
        judge(log, lines)
