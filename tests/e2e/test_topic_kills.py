"""kill -9 of a process that uses topics from many threads, and what the one who opens the log next finds.

PROMISED  Nothing that was acknowledged is lost, and every answer stays true: rows are at the offsets that it named.
          No request, transaction or not, is torn apart; no producer's request and no idempotency key is applied twice.
          Offsets are dense.  A group that commits its offsets with its output has read every row once.
          A topic that was created is there, and one that was deleted is not.

HEADWATER_TOPIC_KILLS says how many (CI: 100).
"""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import HeadwaterError
from tests.e2e.appender_process import Nursery
from tests.e2e.machine import times
from tests.e2e.topic_writer import KIB, SENT_AGAIN, WriterSettings, log_settings, rows_in

KILLS = times("HEADWATER_TOPIC_KILLS", 100)
KILLS_IN_ONE_PLACE = 10
WRITER = Path(__file__).with_name("topic_writer.py")


class Violation(AssertionError):
    """A promise that was not kept."""


def require(kept: bool, promise: str, *facts: object) -> None:
    if not kept:
        raise Violation(f"{promise}: {', '.join(map(str, facts))}")


@dataclass
class History:
    """What the lives in one place were told."""

    appended: dict[tuple[int, int, int], tuple[int, int, int]] = field(default_factory=dict)
    """By life, thread and number of an append: partition, first offset and next."""
    transactions: set[tuple[int, int, int]] = field(default_factory=set)
    sent: dict[int, tuple[int, int]] = field(default_factory=dict)
    keyed: dict[int, tuple[int, int]] = field(default_factory=dict)
    copied: dict[int, int] = field(default_factory=dict)
    created: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)

    def add_lines(self, life: int, lines: list[bytes]) -> None:
        for line in lines:
            what, *words = line.decode().split(" ")
            require(what in ("r", "a"), "a writer meets no error", line.decode())
            if what == "a":
                self._add(life, words[0], words[1:])

    def _add(self, life: int, kind: str, words: list[str]) -> None:
        told = [int(word) for word in words]
        match kind:
            case "append":
                thread, number, partition, first, after = told
                self.appended[life, thread, number] = (partition, first, after)
            case "tx":
                self.transactions.add((life, told[0], told[1]))
            case "send":
                sequence, duplicate, _, first, after = told
                self._add_once(self.sent, sequence, bool(duplicate), (first, after))
            case "keyed":
                number, duplicate, first, after = told
                self._add_once(self.keyed, number, bool(duplicate), (first, after))
            case "copy":
                partition, first, after = told
                require(self.copied.get(partition, 0) <= first, "a group reads no row twice", life, told)
                self.copied[partition] = after
            case "created":
                self.created.add(f"topic-{life}-{told[0]}")
            case _:
                assert kind == "deleted"
                self.deleted.add(f"topic-{life}-{told[0]}")

    @staticmethod
    def _add_once(answers: dict[int, tuple[int, int]], number: int, duplicate: bool, offsets: tuple[int, int]) -> None:
        before = answers.setdefault(number, offsets)
        require(before == offsets, "a repeat is given its first answer", number, before, offsets)

    def first_key(self, rng: random.Random) -> int:
        """From where the next life sends its keys: some that were acknowledged, then those that nobody knows of."""
        return max(len(self.keyed) - rng.randrange(4), 0)


def rows_of(log: hw.Log, topic: str) -> list[dict[str, Any]]:
    return log[topic].read(system_columns=True).to_pylist() if topic in log else []


def check_dense(topic: str, rows: list[dict[str, Any]]) -> None:
    following: Counter[int] = Counter()
    for row in rows:
        partition, offset = row["_hw_partition"], row["_hw_offset"]
        require(offset == following[partition], "offsets are dense", topic, partition, offset, following[partition])
        following[partition] += 1


def requests_in(rows: list[dict[str, Any]]) -> dict[tuple[int, int, int], list[dict[str, Any]]]:
    """The rows by the request that they say they belong to."""
    found: dict[tuple[int, int, int], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["life"], row["thread"], row["number"]), []).append(row)
    return found


def check_whole(topic: str, requests: dict[tuple[int, int, int], list[dict[str, Any]]], *, turned: bool) -> None:
    """Every request is there with all its rows, in its order, one after the other, once."""
    for name, rows in requests.items():
        count = rows_in(name[2])
        expected = list(range(count))[::-1] if turned else list(range(count))
        require([row["row"] for row in rows] == expected, "a request is whole and there once", topic, name, len(rows))
        first = rows[0]["_hw_offset"]
        offsets = [row["_hw_offset"] for row in rows]
        require(offsets == list(range(first, first + count)), "a request's rows stand together", topic, name, offsets)


def range_of(rows: list[dict[str, Any]]) -> tuple[int, int]:
    return rows[0]["_hw_offset"], rows[-1]["_hw_offset"] + 1


def check_log(log: hw.Log, history: History) -> None:
    """All that is promised, of what is in the log now."""
    events = rows_of(log, "events")
    check_dense("events", events)
    requests = requests_in(events)
    check_whole("events", requests, turned=False)
    for name, (partition, first, after) in history.appended.items():
        require(name in requests, "what was acknowledged is there", "events", name)
        found = (requests[name][0]["_hw_partition"], *range_of(requests[name]))
        require(found == (partition, first, after), "an answer stays true", name, found, (partition, first, after))
    check_order_of_threads(requests)
    check_transactions(log, history)
    for topic, answers in (("sent", history.sent), ("keyed", history.keyed)):
        check_once(log, topic, answers)
    check_copied(log, history, events)
    names = {each.name for each in log.topics()}
    require(history.created <= names, "a topic that was created is there", *history.created - names)
    require(not history.deleted & names, "a topic that was deleted is gone", *history.deleted & names)


def check_order_of_threads(requests: dict[tuple[int, int, int], list[dict[str, Any]]]) -> None:
    """A thread that waits for each answer has no request in the log before which one is missing."""
    numbers: dict[tuple[int, int], list[int]] = {}
    for life, thread, number in requests:
        numbers.setdefault((life, thread), []).append(number)
    for name, found in numbers.items():
        require(sorted(found) == list(range(len(found))), "a thread's requests are a prefix of them", name)


def check_transactions(log: hw.Log, history: History) -> None:
    sides = {}
    for topic in ("left", "right"):
        rows = rows_of(log, topic)
        check_dense(topic, rows)
        sides[topic] = requests_in(rows)
        check_whole(topic, sides[topic], turned=topic == "right")
    require(sides["left"].keys() == sides["right"].keys(), "a transaction is in all its topics or in none")
    require(history.transactions <= sides["left"].keys(), "a transaction that was acknowledged is there")
    newest: dict[int, list[int]] = {}
    for life, thread, number in sides["left"]:
        newest[thread] = max(newest.get(thread, [0, 0]), [life, number])
    for thread, expected in newest.items():
        source = log.source_position(f"source-{thread}")
        require(source is not None and source.position == expected, "a source is where its rows are", thread, source)


def check_once(log: hw.Log, topic: str, answers: dict[int, tuple[int, int]]) -> None:
    rows = rows_of(log, topic)
    check_dense(topic, rows)
    requests = requests_in(rows)
    check_whole(topic, requests, turned=False)
    numbers = [number for _, _, number in requests]
    require(numbers == list(range(len(numbers))), "requests are applied in their order, each once", topic)
    for number, offsets in answers.items():
        require((0, 0, number) in requests, "what was acknowledged is there", topic, number)
        found = range_of(requests[0, 0, number])
        require(found == offsets, "an answer stays true", topic, number, found, offsets)


def check_copied(log: hw.Log, history: History, events: list[dict[str, Any]]) -> None:
    following: Counter[int] = Counter()
    for row in rows_of(log, "copied"):
        partition, first = row["partition"], row["first"]
        require(first == following[partition], "a group reads every row once", partition, first, following[partition])
        following[partition] = row["next"]
    there = Counter(row["_hw_partition"] for row in events)
    for partition, after in following.items():
        require(after <= there[partition], "nothing is read that is not there", partition, after, there[partition])
    for partition, after in history.copied.items():
        require(following[partition] >= after, "what was acknowledged is there", "copied", partition)
    committed = {partition: offset for each in log.groups() for partition, offset in each.committed.items()}
    require(committed == dict(following), "offsets are committed with what was made of the rows", committed, following)


def kill_once(nursery: Nursery, root: Path, history: History, life: int, rng: random.Random) -> int:
    settings = WriterSettings(
        life,
        appenders=rng.choice((1, 2, 3)),
        transactions=rng.choice((1, 2)),
        upkeep=rng.choice((0, 1)),
        first_key=history.first_key(rng),
        segment_size_bytes_max=rng.choice((32, 64, 256)) * KIB,
    )
    # Some die while they open the log or recover it, most at their work.
    at_work = rng.random() < 0.7
    delay_s = rng.uniform(0.0, 0.2 if at_work else 0.05)
    with nursery.running_appender(root, settings) as writer:
        writer.listen(until=lambda: bool(writer.lines), timeout_s=30.0)
        if at_work:
            writer.wait_for_acknowledgements(1)
        writer.listen_for(delay_s)
        writer.kill()
    history.add_lines(life, writer.lines)
    return writer.acknowledged_count


def check_place(root: Path, history: History, *, as_owner: bool) -> None:
    with hw.open(root, settings=log_settings(64 * KIB)) as log:
        if as_owner:
            log.checkpoint()
        check_log(log, history)
        assert log.status().owner == as_owner, "looking claims nothing"


@pytest.mark.timeout(120 + 3 * KILLS)
def test_no_kill_loses_splits_or_repeats_what_was_acknowledged(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    acknowledged = 0
    began_s = time.monotonic()

    with Nursery(WRITER) as nursery:
        for first in range(0, KILLS, KILLS_IN_ONE_PLACE):
            root = tmp_path / f"data-{first}"
            history = History()
            for life in range(first, min(first + KILLS_IN_ONE_PLACE, KILLS)):
                try:
                    acknowledged += kill_once(nursery, root, history, life, rng)
                    # A reader finds all of it before any writer has recovered the log; the next life is that writer.
                    if life % 3 == 0 or life % KILLS_IN_ONE_PLACE == KILLS_IN_ONE_PLACE - 1 or life == KILLS - 1:
                        check_place(root, history, as_owner=False)
                        check_place(root, history, as_owner=life % 2 == 0)
                except (AssertionError, HeadwaterError) as error:
                    error.add_note(f"in life {life}; what is left is in {root}")
                    raise
            shutil.rmtree(root)

    took_s = time.monotonic() - began_s
    assert acknowledged > 10 * KILLS
    print(f"{KILLS} kills in {took_s:.1f} s, {KILLS / took_s:.1f} a second; {acknowledged} acknowledged requests")


def test_what_a_killed_producer_sends_again_is_known(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    history = History()
    repeats = 0

    with Nursery(WRITER) as nursery:
        for life in range(4):
            settings = WriterSettings(
                life, appenders=0, transactions=0, copiers=0, upkeep=0, first_key=history.first_key(rng)
            )
            with nursery.running_appender(tmp_path, settings) as writer:
                writer.wait_for_acknowledgements(20)
                writer.kill()
            repeats += sum(line.split()[:2] == [b"a", b"send"] and line.split()[3] == b"1" for line in writer.lines)
            history.add_lines(life, writer.lines)

    check_place(tmp_path, history, as_owner=True)
    assert repeats == 3 * SENT_AGAIN
