"""A process that uses a log's topics from several threads and says on stdout what was acknowledged.

USE      python tests/e2e/topic_writer.py ROOT name=value ...    (`WriterSettings` has the names)
         python tests/e2e/topic_writer.py --nursery DESCRIPTOR   forks such a process for each order on a socket
SAYS     One os.write a line: `r` when it is about to open the log; `a KIND number ...` after each call that returned;
         `e KIND error message` when a thread ends with an error.

    append    `a append thread number partition first next`       a request of `rows_in(number)` rows to `events`
    tx        `a tx thread number`                                the same rows to `left` and to `right`, together
    send      `a send sequence duplicate partition first next`    a producer's request; after a start the last three of
                                                                  its predecessor's are sent again
    keyed     `a keyed number duplicate first next`               a request with an idempotency key, those of the
                                                                  parent's `first_key` on again
    copy      `a copy partition first next`                       rows of `events` that a group has read, as one row of
                                                                  `copied` in the transaction that commits its offsets
    topic     `a created number`, `a deleted number`              topics that come and stay, or come and go, beside
                                                                  cleanup and checkpoints

Every row says by itself which request it belongs to, so that the one who survives can tell from what is in the log
whether anything is missing, torn apart or there twice.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_type_hints

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.e2e.appender import say, serve_nursery

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    import headwater as hw

KIB = 1024
FUTURES_IN_FLIGHT = 8
SENT_AGAIN = 3
REQUEST = {"life": int, "thread": int, "number": int, "row": int, "pad": str}
COPIED = {"partition": int, "first": int, "next": int}


@dataclass(frozen=True)
class WriterSettings:
    life: int = 0
    appenders: int = 2
    """The last of several appends by futures, a few in flight; the others block."""
    transactions: int = 1
    senders: int = 1
    keyed: int = 1
    copiers: int = 1
    upkeep: int = 1
    first_key: int = 0
    """The idempotency keys are sent from this number on."""
    pause_s: float = 0.0
    """After each acknowledgement, so that whoever reads along can keep up."""
    segment_size_bytes_max: int = 64 * KIB

    def arguments(self) -> list[str]:
        return [f"{name}={value}" for name, value in vars(self).items()]

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> WriterSettings:
        types = get_type_hints(cls)
        given = dict(argument.split("=", 1) for argument in arguments)
        unknown = set(given) - {one.name for one in fields(cls)}
        if unknown:
            raise SystemExit(f"no such settings: {', '.join(sorted(unknown))}")
        return cls(**{name: types[name](value) for name, value in given.items()})


def log_settings(segment_size_bytes_max: int) -> hw.Settings:
    from headwater.settings import LogSettings, Settings

    return Settings(
        log=LogSettings(
            segment_size_bytes_max=segment_size_bytes_max,
            write_body_bytes_max=segment_size_bytes_max,
            reserve_bytes=0,
            deletion_grace_s=0.0,
        ),
        journal=LogSettings(reserve_bytes=0, segment_age_s_max=float("inf")),
        upkeep_interval_s=0.0,
        join_bytes_max=4 * KIB,
        frame_bytes_max=8 * KIB,
        shard_checkpoint_bytes=segment_size_bytes_max // 2,
    )


def rows_in(number: int) -> int:
    """How many rows a request has, by its number."""
    return (1, 1, 2, 7, 1, 40)[number % 6]


def request(life: int, thread: int, number: int) -> list[dict[str, Any]]:
    pad = "x" * (number % 5 * 30)
    return [
        {"life": life, "thread": thread, "number": number, "row": row, "pad": pad} for row in range(rows_in(number))
    ]


class Writing:
    """The work of one life."""

    def __init__(self, log: hw.Log, settings: WriterSettings) -> None:
        self._log = log
        self._settings = settings
        self._life = settings.life

    def _acknowledged(self, *told: object) -> None:
        say(f"a {' '.join(map(str, told))}\n".encode())
        if self._settings.pause_s:
            time.sleep(self._settings.pause_s)

    def append(self, thread: int) -> None:
        events = self._log["events"]
        number = 0
        while True:
            appended = events.append(request(self._life, thread, number), partition=number % 3)
            self._say_appended(thread, number, appended)
            number += 1

    def append_futures(self, thread: int) -> None:
        events = self._log["events"]
        waiting: deque[tuple[int, Future[hw.Appended]]] = deque()
        number = 0
        while True:
            while len(waiting) < FUTURES_IN_FLIGHT:
                rows = request(self._life, thread, number)
                waiting.append((number, events.append_future(rows, partition=number % 3)))
                number += 1
            oldest, future = waiting.popleft()
            self._say_appended(thread, oldest, future.result())

    def _say_appended(self, thread: int, number: int, appended: hw.Appended) -> None:
        [(partition, (first, after))] = appended.offsets.items()
        self._acknowledged("append", thread, number, partition, first, after)

    def commit(self, thread: int) -> None:
        number = 0
        while True:
            rows = request(self._life, thread, number)
            with self._log.transaction() as tx:
                tx.append("left", rows, partition=number % 2)
                tx.append("right", rows[::-1], partition=0)
                tx.set_source(f"source-{thread}", [self._life, number])
            self._acknowledged("tx", thread, number)
            number += 1

    def send(self, thread: int) -> None:
        producer = self._log.producer("loader")
        sequence = max(producer.next_sequence - SENT_AGAIN, 0)
        while True:
            sent = producer.append("sent", request(0, 0, sequence), partition=0, sequence=sequence)
            [(partition, (first, after))] = sent.offsets.items()
            self._acknowledged("send", sequence, int(sent.duplicate), partition, first, after)
            sequence += 1

    def append_keyed(self, thread: int) -> None:
        keyed = self._log["keyed"]
        number = self._settings.first_key
        while True:
            appended = keyed.append(request(0, 0, number), idempotency_key=f"request-{number}")
            first, after = appended.offsets[0]
            self._acknowledged("keyed", number, int(appended.duplicate), first, after)
            number += 1

    def copy(self, thread: int) -> None:
        consumer = self._log.consumer("events", group="copier")
        while True:
            polled = consumer.poll(max_rows=100, timeout_s=10.0)
            if polled is None:
                continue
            with self._log.transaction() as tx:
                tx.append("copied", {"partition": polled.partition, "first": polled.offset, "next": polled.next_offset})
                tx.commit_offsets(consumer)
            self._acknowledged("copy", polled.partition, polled.offset, polled.next_offset)

    def keep_up(self, thread: int) -> None:
        short = self._log["short"]
        number = 0
        while True:
            short.append({**request(self._life, thread, 0)[0], "pad": "x" * 3 * KIB})
            if number % 8 == 3:
                name = f"topic-{self._life}-{number}"
                self._log.topic(name, schema=REQUEST).append(request(self._life, thread, 0))
                if number % 16 == 3:
                    self._log.delete_topic(name)
                    self._acknowledged("deleted", number)
                else:
                    self._acknowledged("created", number)
            if number % 16 == 7:
                self._log.cleanup()
            if number % 16 == 15:
                self._log.checkpoint()
            number += 1


def run_thread(work: Callable[[int], None], thread: int) -> None:
    from headwater.errors import HeadwaterError

    try:
        work(thread)
    except HeadwaterError as error:
        say(f"e {work.__name__} {type(error).__name__} {error}\n".encode())


def run(root: str, settings: WriterSettings) -> None:
    import headwater as hw

    say(b"r\n")
    log = hw.open(root, settings=log_settings(settings.segment_size_bytes_max))
    log.create_topics(
        [
            hw.NewTopic("events", REQUEST, partitions=3),
            hw.NewTopic("left", REQUEST, partitions=2),
            hw.NewTopic("right", REQUEST),
            hw.NewTopic("sent", REQUEST),
            hw.NewTopic("keyed", REQUEST),
            hw.NewTopic("copied", COPIED),
            hw.NewTopic("short", REQUEST, retention_bytes=16 * KIB),
        ]
    )
    writing = Writing(log, settings)
    works: list[Callable[[int], None]] = [writing.append] * settings.appenders
    if settings.appenders > 1:
        works[-1] = writing.append_futures
    works += [writing.commit] * settings.transactions + [writing.send] * settings.senders
    works += [writing.append_keyed] * settings.keyed + [writing.copy] * settings.copiers
    works += [writing.keep_up] * settings.upkeep
    threads = [
        threading.Thread(target=run_thread, args=(work, number), daemon=True) for number, work in enumerate(works)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()


def run_forked(arguments: list[str]) -> None:
    """The child's whole life: it never returns into its parent's loop."""
    exit_code = 1
    try:
        run(arguments[0], WriterSettings.from_arguments(arguments[1:]))
        exit_code = 0
    finally:
        os._exit(exit_code)


def main() -> None:
    if sys.argv[1] == "--nursery":
        # Here for the children: what is imported once is theirs, and pyarrow looks for pandas at its first array.
        import pyarrow as pa

        import headwater.api  # noqa: F401

        pa.array([1])
        serve_nursery(int(sys.argv[2]), run_forked)
        return
    run(sys.argv[1], WriterSettings.from_arguments(sys.argv[2:]))


if __name__ == "__main__":
    main()
