"""What clients of a server were told, and whether the log holds to it.

PROMISED  What was acknowledged is there, once, at the offsets that the answer named.  What was refused is not.  What
          nobody knows is there once or not at all.  No request is torn apart; a transaction is in all its topics or in
          none.  Each thread's requests, but those of which nobody knows, stand in its order in every partition.  A
          producer's request and an idempotency key are applied once, however often they were sent.  Offsets are dense.
          A group that commits its offsets with its output has read every row once.  A group that commits by itself was
          handed every row below what it has committed, and its commits are not forgotten.
          A follower was given the rows of its partition, each once, in their order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import headwater as hw
from tests.e2e.test_topic_kills import (
    check_dense,
    check_whole,
    range_of,
    requests_in,
    require,
    rows_of,
)
from tests.e2e_server.client_process import row_checksum

Name = tuple[int, int, int]
"""Of a request: client, thread, number."""

ERRORS_OF_REFUSALS = ("Unavailable", "OffsetMismatch")
TOPIC_OF = {"append": "events", "expect": "expected", "tx": "left", "send": "sent", "keyed": "keyed"}


@dataclass
class Told:
    """What the clients have said so far."""

    answers: dict[str, dict[Name, tuple[int, ...]]] = field(default_factory=lambda: {kind: {} for kind in TOPIC_OF})
    """By kind and name of a request: partition, first offset, next offset; of a transaction nothing."""
    refused: dict[str, set[Name]] = field(default_factory=lambda: {kind: set() for kind in TOPIC_OF})
    unknown: dict[str, set[Name]] = field(default_factory=lambda: {kind: set() for kind in TOPIC_OF})
    copied: dict[int, int] = field(default_factory=dict)
    handed: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    committed: dict[int, int] = field(default_factory=dict)
    followed: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """By client and partition: the next offset, and the checksum of all rows before it."""

    @property
    def acknowledged(self) -> int:
        return sum(map(len, self.answers.values()))

    def add_lines(self, client: int, lines: Iterable[str]) -> None:
        for line in lines:
            what, *words = line.split(" ")
            match what:
                case "a" if words[0] == "copy":
                    self._add_copy(*map(int, words[1:]))
                case "a":
                    self._add_answer(client, words[0], *map(int, words[1:]))
                case "n":
                    require(words[3] in ERRORS_OF_REFUSALS, "an error of a kind that says it is not there", line)
                    self.refused[words[0]].add((client, int(words[1]), int(words[2])))
                case "u":
                    self.unknown[words[0]].add((client, int(words[1]), int(words[2])))
                case "p":
                    self.handed.setdefault(int(words[0]), []).append((int(words[1]), int(words[2])))
                case "c":
                    partition, following = map(int, words)
                    self.committed[partition] = max(self.committed.get(partition, 0), following)
                case "f":
                    self._add_followed(client, *map(int, words))
                case _:
                    require(what in ("r", "z"), "a careful client meets no such error", client, line)

    def _add_answer(self, client: int, kind: str, thread: int, number: int, *told: int) -> None:
        match kind:
            case "append":
                answer = told
            case "expect":
                answer = (0, *told)
            case "tx":
                answer = ()
            case _:
                answer = (0, *told[1:])
        self.answers[kind][client, thread, number] = answer

    def _add_copy(self, partition: int, first: int, following: int) -> None:
        self.copied[partition] = max(self.copied.get(partition, 0), following)

    def _add_followed(self, client: int, partition: int, first: int, following: int, checksum: int) -> None:
        before = self.followed.get((client, partition), (0, 0))
        require(before[0] == first, "a follower misses nothing and sees nothing twice", client, partition, first)
        self.followed[client, partition] = (following, checksum)


def check_log(log: hw.Log, told: Told) -> None:
    """All that is promised, of what is in the log now."""
    events = rows_of(log, "events")
    for kind, topic in TOPIC_OF.items():
        rows = events if topic == "events" else rows_of(log, topic)
        _check_requests(topic, rows, told.answers[kind], told.refused[kind], told.unknown[kind])
    _check_transactions(log, told)
    _check_applied_in_order(log, told)
    _check_copied(log, told, events)
    _check_committed(log, told, events)
    _check_followed(told, events)


def _check_requests(
    topic: str, rows: list[dict[str, Any]], answers: dict[Name, Any], refused: set[Name], unknown: set[Name]
) -> None:
    check_dense(topic, rows)
    requests = requests_in(rows)
    check_whole(topic, requests, turned=False)
    for name, answer in answers.items():
        require(name in requests, "what was acknowledged is there", topic, name)
        found = (requests[name][0]["_hw_partition"], *range_of(requests[name]))
        require(not answer or found == answer, "an answer stays true", topic, name, found, answer)
    for name in refused:
        require(name not in requests, "what was refused is not there", topic, name)
    newest: dict[tuple[int, int, int], int] = {}
    for row in rows:
        if (row["life"], row["thread"], row["number"]) in unknown:
            continue  # Whoever does not wait to know of it may be overtaken by itself.
        thread = (row["_hw_partition"], row["life"], row["thread"])
        require(row["number"] >= newest.get(thread, 0), "a thread's requests stand in its order", topic, row)
        newest[thread] = row["number"]


def _check_transactions(log: hw.Log, told: Told) -> None:
    left = requests_in(rows_of(log, "left"))
    rows = rows_of(log, "right")
    check_dense("right", rows)
    right = requests_in(rows)
    check_whole("right", right, turned=True)
    require(left.keys() == right.keys(), "a transaction is in all its topics or in none", left.keys() ^ right.keys())
    newest: dict[tuple[int, int], int] = {}
    for name in left:
        if name not in told.unknown["tx"]:
            newest[name[:2]] = max(newest.get(name[:2], 0), name[2])
    for (client, thread), number in newest.items():
        source = log.source_position(f"source-{client}-{thread}")
        require(source is not None, "a source is where its rows are", client, thread)
        assert source is not None
        late = (client, thread, source.position)
        at_rows = source.position == number or (late in told.unknown["tx"] and late in left)
        require(at_rows, "a source is where its rows are", client, thread, source, number)


def _check_applied_in_order(log: hw.Log, told: Told) -> None:
    """Whoever sends a request again until it is answered leaves no gap."""
    for topic in ("sent", "keyed"):
        numbers: dict[tuple[int, int], list[int]] = {}
        for client, thread, number in requests_in(rows_of(log, topic)):
            numbers.setdefault((client, thread), []).append(number)
        for name, found in numbers.items():
            require(found == list(range(len(found))), "requests are applied in order, each once", topic, name)


def _check_copied(log: hw.Log, told: Told, events: list[dict[str, Any]]) -> None:
    following: Counter[int] = Counter()
    for row in rows_of(log, "copied"):
        partition, first = row["partition"], row["first"]
        require(first == following[partition], "a group reads every row once", partition, first, following[partition])
        following[partition] = row["next"]
    there = Counter(row["_hw_partition"] for row in events)
    for partition, after in following.items():
        require(after <= there[partition], "nothing is read that is not there", partition, after, there[partition])
    for partition, after in told.copied.items():
        require(following[partition] >= after, "what was acknowledged is there", "copied", partition, after)
    committed = _committed(log, "copier")
    require(committed == dict(following), "offsets are committed with what was made of the rows", committed, following)


def _check_committed(log: hw.Log, told: Told, events: list[dict[str, Any]]) -> None:
    there = Counter(row["_hw_partition"] for row in events)
    for partition, following in _committed(log, "reader").items():
        require(following >= told.committed.get(partition, 0), "a commit is not forgotten", partition, following)
        require(following <= there[partition], "nothing is read that is not there", partition, following)
        reached = 0
        for first, after in sorted(told.handed.get(partition, [])):
            require(first <= reached or reached >= following, "no row is passed over", partition, reached, first)
            reached = max(reached, after)
        require(reached >= following, "what is committed was handed out", partition, reached, following)


def _committed(log: hw.Log, group: str) -> dict[int, int]:
    return {
        partition: offset
        for each in log.groups()
        if each.group == group
        for partition, offset in each.committed.items()
    }


def _check_followed(told: Told, events: list[dict[str, Any]]) -> None:
    checksums: dict[int, list[int]] = {}
    for row in events:
        so_far = checksums.setdefault(row["_hw_partition"], [0])
        so_far.append(row_checksum(so_far[-1], row))
    for (client, partition), (following, checksum) in told.followed.items():
        there = checksums.get(partition, [0])
        require(following < len(there), "nothing is followed that is not there", client, partition, following)
        require(there[following] == checksum, "a follower was given the rows as they are", client, partition)
