"""Clients of one partition, side by side, and the history of what they asked and were told.

EACH     A client is a thread with a connection of its own.  It appends requests of one to three rows, some of them with
         the offset that it expects, reads from a place near the end, and some follow.
PROMISE  What to ask is drawn from the seed; only the threads' timing is not.
NOT HERE Who breaks what meanwhile: the caller gives that as `meanwhile`.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import headwater as hw
from headwater.errors import HeadwaterError, OffsetMismatch, OutcomeUnknown, Unavailable
from tests.histories.history import Append, History, Outcome, Read, Tail

TOPIC = "history"
SCHEMA = {"row": int}
ROWS_A_CLIENT_MAX = 1_000_000
FINISH_S_MAX = 120.0


class _Client:
    """One thread's work, and its part of the history."""

    def __init__(self, number: int, log: hw.Log, rng: random.Random, known: _Known) -> None:
        self.history = History()
        self.error: BaseException | None = None
        self._number = number
        self._topic = log[TOPIC]
        self._rng = rng
        self._known = known
        self._next_row = number * ROWS_A_CLIENT_MAX

    def work(self, operations: int) -> None:
        try:
            for _ in range(operations):
                if self._rng.random() < 0.6:
                    self._append()
                else:
                    self._read()
        except BaseException as error:  # noqa: BLE001  It is raised in the thread that waits for this one.
            self.error = error

    def _append(self) -> None:
        rows = tuple(range(self._next_row, self._next_row + self._rng.choice((1, 1, 2, 3))))
        self._next_row += len(rows)
        expected = self._known.length if self._rng.random() < 0.3 else None
        outcome, offset = Outcome.DONE, None
        began_ns = time.monotonic_ns()
        try:
            appended = self._topic.append([{"row": row} for row in rows], partition=0, expect_offset=expected)
            offset, following = appended.offsets[0]
            self._known.raise_to(following)
        except OffsetMismatch as error:
            named = error.facts["next_offset"]
            assert isinstance(named, int)
            outcome, offset = Outcome.MISMATCH, named
            self._known.raise_to(named)
        except Unavailable:
            outcome = Outcome.REFUSED
        except OutcomeUnknown:
            outcome = Outcome.UNKNOWN
        ended_ns = time.monotonic_ns()
        self.history.appends.append(Append(self._number, began_ns, ended_ns, rows, outcome, expected, offset))

    def _read(self) -> None:
        offset = max(self._known.length - self._rng.randrange(20), 0)
        began_ns = time.monotonic_ns()
        try:
            rows = self._topic.read(offset, partition=0).to_arrow().column("row").to_pylist()
        except (Unavailable, OutcomeUnknown):
            return  # It says nothing about the log.
        ended_ns = time.monotonic_ns()
        self._known.raise_to(offset + len(rows))
        self.history.reads.append(Read(self._number, began_ns, ended_ns, offset, tuple(rows)))

    def follow(self, stopping: threading.Event) -> None:
        """From the first row on, again from where it was whenever the connection breaks."""
        offset = 0
        try:
            while not stopping.is_set() or offset < self._known.length:
                try:
                    for batch in self._topic.read(offset, partition=0, follow=True, timeout_s=0.2):
                        rows = tuple(batch.column("row").to_pylist())
                        self.history.tails.append(Tail(self._number, time.monotonic_ns(), offset, rows))
                        offset += len(rows)
                except (Unavailable, OutcomeUnknown):
                    time.sleep(0.01)
        except BaseException as error:  # noqa: BLE001  As above.
            self.error = error


class _Known:
    """How long the list is at least, as any client knows: where to read, and what to expect."""

    def __init__(self) -> None:
        self.length = 0
        self._guard = threading.Lock()

    def raise_to(self, length: int) -> None:
        with self._guard:
            self.length = max(self.length, length)


def record(
    connect: Callable[[], hw.Log],
    seed: int,
    *,
    operations: int,
    clients: int = 5,
    followers: int = 2,
    meanwhile: Callable[[threading.Event], None] | None = None,
) -> History:
    """So many appends and reads, and what followers saw beside them.  `meanwhile` runs until its event is set."""
    rng = random.Random(seed)
    with _connected(connect, clients + followers) as logs:
        logs[0].topic(TOPIC, schema=SCHEMA)
        known = _Known()
        all_of_them = [_Client(number, log, random.Random(rng.random()), known) for number, log in enumerate(logs)]
        done, stopping = threading.Event(), threading.Event()
        working = [_started(each.work, operations // clients) for each in all_of_them[:clients]]
        following = [_started(each.follow, done) for each in all_of_them[clients:]]
        disturbing = [_started(meanwhile, stopping)] if meanwhile is not None else []
        _join(working, "a client")
        stopping.set()
        _join(disturbing, "who disturbs them")
        done.set()
        _join(following, "a follower")
        for each in all_of_them:
            if each.error is not None:
                raise each.error
        history = History()
        for each in all_of_them:
            history.appends += each.history.appends
            history.reads += each.history.reads
            history.tails += each.history.tails
        history.final = final_rows(logs[0])
    return history


def final_rows(log: hw.Log) -> tuple[int, ...]:
    return tuple(log[TOPIC].read().to_arrow().column("row").to_pylist())


@contextmanager
def _connected(connect: Callable[[], hw.Log], count: int) -> Iterator[list[hw.Log]]:
    logs: list[hw.Log] = []
    try:
        logs += [connect() for _ in range(count)]
        logs[0].topic(TOPIC, schema=SCHEMA)
        yield logs
    finally:
        for log in logs:
            try:
                log.close()
            except HeadwaterError:
                pass  # The server is gone; what matters was said before.


def _started(work: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def _join(threads: list[threading.Thread], who: str) -> None:
    deadline_s = time.monotonic() + FINISH_S_MAX
    for thread in threads:
        thread.join(max(deadline_s - time.monotonic(), 0))
        assert not thread.is_alive(), f"{who} did not end in {FINISH_S_MAX} s"
