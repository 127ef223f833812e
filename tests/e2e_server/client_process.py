"""A process that uses a log behind a server from several threads, lives through the server's deaths and a network that
breaks, and says on stdout what it was told.

USE      python tests/e2e_server/client_process.py ADDRESS name=value ...    (`ClientSettings` has the names)
         It ends when its stdin does: each thread finishes what it has begun.
SAYS     One os.write a line: `r` when it has found the topics; `a KIND ...` after each call that returned; `n KIND
         thread number` where the error says that nothing of it will ever be there, `u KIND thread number` where nobody
         knows; `e KIND error message` when a thread ends with an error that a careful client does not meet; `z` last.

    append    `a append thread number partition first next`     a request of `rows_in(number)` rows to `events`
    expect    `a expect thread number first next`               the same to `expected`, with the offset that the last
                                                                answer named; after a refusal, with the one it names
    tx        `a tx thread number`                              the same rows to `left` and to `right`, together
    send      `a send thread sequence duplicate first next`     a named producer's request, sent again with its number
                                                                until it is answered
    keyed     `a keyed thread number duplicate first next`      a request with an idempotency key, likewise
    copy      `a copy partition first next`                     rows of `events` that a group has read, as one row of
                                                                `copied` in the transaction that commits its offsets
    consume   `p partition first next`, `c partition next`      rows of `events` that another group was handed, and that
                                                                it has committed
    follow    `f partition first next checksum`                 rows of `events` that came to a follower

Every row says by itself which request it belongs to: client (`life`), thread, number.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
import zlib
from collections import deque
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_type_hints

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from tests.e2e.topic_writer import COPIED, REQUEST, request

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    import headwater as hw

FUTURES_IN_FLIGHT = 8
PARTITIONS = 3
REST_S = 0.02
"""After an error, before the next try."""


@dataclass(frozen=True)
class ClientSettings:
    client: int = 0
    appenders: int = 1
    futures: int = 1
    expecting: int = 0
    transactions: int = 1
    senders: int = 1
    keyed: int = 1
    copiers: int = 0
    consumers: int = 0
    followers: int = 0
    pause_s: float = 0.002
    """After each acknowledgement, so that the machine has time for the others."""
    retry_s: float = 30.0
    """How long a call is tried again.  With a short time its outcome is often unknown."""

    def arguments(self) -> list[str]:
        return [f"{name}={value}" for name, value in vars(self).items()]

    @classmethod
    def from_arguments(cls, arguments: list[str]) -> ClientSettings:
        types = get_type_hints(cls)
        given = dict(argument.split("=", 1) for argument in arguments)
        unknown = set(given) - {one.name for one in fields(cls)}
        if unknown:
            raise SystemExit(f"no such settings: {', '.join(sorted(unknown))}")
        return cls(**{name: types[name](value) for name, value in given.items()})


def say(*words: object) -> None:
    os.write(1, f"{' '.join(map(str, words))}\n".encode())


def row_checksum(before: int, row: dict[str, Any]) -> int:
    return zlib.crc32(f"{row['life']} {row['thread']} {row['number']} {row['row']}".encode(), before)


class Using:
    """The work of one process."""

    def __init__(self, log: hw.Log, settings: ClientSettings) -> None:
        from headwater.errors import OutcomeUnknown, Unavailable

        self._log = log
        self._settings = settings
        self._client = settings.client
        self._unknown = OutcomeUnknown
        self._unavailable = Unavailable
        self.stopping = threading.Event()

    def _acknowledged(self, *told: object) -> None:
        say("a", *told)
        if self._settings.pause_s:
            time.sleep(self._settings.pause_s)

    def _failed(self, kind: str, thread: int, number: int, error: Exception) -> None:
        say("u" if isinstance(error, self._unknown) else "n", kind, thread, number, type(error).__name__, error)
        time.sleep(REST_S)

    def append(self, thread: int) -> None:
        events = self._log["events"]
        number = 0
        while not self.stopping.is_set():
            rows = request(self._client, thread, number)
            try:
                self._say_appended(thread, number, events.append(rows, partition=number % PARTITIONS))
            except (self._unknown, self._unavailable) as error:
                self._failed("append", thread, number, error)
            number += 1

    def append_futures(self, thread: int) -> None:
        events = self._log["events"]
        waiting: deque[tuple[int, Future[hw.Appended]]] = deque()
        number = 0
        while waiting or not self.stopping.is_set():
            while len(waiting) < FUTURES_IN_FLIGHT and not self.stopping.is_set():
                rows = request(self._client, thread, number)
                try:
                    waiting.append((number, events.append_future(rows, partition=number % PARTITIONS)))
                except (self._unknown, self._unavailable) as error:
                    self._failed("append", thread, number, error)
                number += 1
            oldest, future = waiting.popleft()
            try:
                self._say_appended(thread, oldest, future.result())
            except (self._unknown, self._unavailable) as error:
                self._failed("append", thread, oldest, error)

    def _say_appended(self, thread: int, number: int, appended: hw.Appended) -> None:
        [(partition, (first, after))] = appended.offsets.items()
        self._acknowledged("append", thread, number, partition, first, after)

    def expect(self, thread: int) -> None:
        from headwater.errors import OffsetMismatch

        topic = self._log["expected"]
        number = offset = 0
        while not self.stopping.is_set():
            try:
                appended = topic.append(request(self._client, thread, number), expect_offset=offset)
                first, offset = appended.offsets[0]
                self._acknowledged("expect", thread, number, first, offset)
            except OffsetMismatch as error:
                following = error.facts["next_offset"]
                assert isinstance(following, int)
                offset = following
                self._failed("expect", thread, number, error)
            except (self._unknown, self._unavailable) as error:
                self._failed("expect", thread, number, error)
            number += 1

    def commit(self, thread: int) -> None:
        number = 0
        while not self.stopping.is_set():
            rows = request(self._client, thread, number)
            try:
                with self._log.transaction() as tx:
                    tx.append("left", rows, partition=number % 2)
                    tx.append("right", rows[::-1], partition=0)
                    tx.set_source(f"source-{self._client}-{thread}", number)
                self._acknowledged("tx", thread, number)
            except (self._unknown, self._unavailable) as error:
                self._failed("tx", thread, number, error)
            number += 1

    def send(self, thread: int) -> None:
        producer = self._again(lambda: self._log.producer(f"loader-{self._client}-{thread}"))
        sequence = 0
        while not self.stopping.is_set() and producer is not None:
            try:
                sent = producer.append("sent", request(self._client, thread, sequence), partition=0, sequence=sequence)
            except (self._unknown, self._unavailable):
                time.sleep(REST_S)
                continue
            first, after = sent.offsets[0]
            self._acknowledged("send", thread, sequence, int(sent.duplicate), first, after)
            sequence += 1

    def append_keyed(self, thread: int) -> None:
        keyed = self._log["keyed"]
        number = 0
        while not self.stopping.is_set():
            rows = request(self._client, thread, number)
            key = f"request-{self._client}-{thread}-{number}"
            try:
                appended = keyed.append(rows, idempotency_key=key)
            except (self._unknown, self._unavailable):
                time.sleep(REST_S)
                continue
            first, after = appended.offsets[0]
            self._acknowledged("keyed", thread, number, int(appended.duplicate), first, after)
            number += 1

    def _again(self, call: Callable[[], Any]) -> Any:
        """What may be asked for again, until it is answered or all is over."""
        while not self.stopping.is_set():
            try:
                return call()
            except (self._unknown, self._unavailable):
                time.sleep(REST_S)
        return None

    def copy(self, thread: int) -> None:
        from headwater.errors import Fenced

        consumer = None
        while not self.stopping.is_set():
            try:
                consumer = consumer or self._log.consumer("events", group="copier")
                polled = consumer.poll(max_rows=100, timeout_s=0.2)
                if polled is None:
                    continue
                copied = {"partition": polled.partition, "first": polled.offset, "next": polled.next_offset}
                with self._log.transaction() as tx:
                    tx.append("copied", copied)
                    tx.commit_offsets(consumer)
                self._acknowledged("copy", polled.partition, polled.offset, polled.next_offset)
            except (self._unknown, self._unavailable, Fenced):
                # Whether it was committed or not: whoever holds the partition next goes on where it was.
                self._leave(consumer)
                consumer = None

    def consume(self, thread: int) -> None:
        from headwater.errors import Fenced

        consumer = None
        while not self.stopping.is_set():
            try:
                consumer = consumer or self._log.consumer("events", group="reader")
                polled = consumer.poll(max_rows=200, timeout_s=0.2)
                if polled is None:
                    continue
                say("p", polled.partition, polled.offset, polled.next_offset)
                for partition, following in consumer.commit().items():
                    say("c", partition, following)
            except (self._unknown, self._unavailable, Fenced):
                self._leave(consumer)
                consumer = None

    def _leave(self, consumer: hw.Consumer | None) -> None:
        time.sleep(REST_S)
        if consumer is not None:
            try:
                consumer.close()
            except (self._unknown, self._unavailable):
                pass  # Its lease ends by itself.

    def follow(self, thread: int) -> None:
        events = self._log["events"]
        partition = thread % PARTITIONS
        following = checksum = 0
        while not self.stopping.is_set():
            try:
                rows = events.read(
                    following, partition=partition, follow=True, timeout_s=0.5, batch_rows=500, system_columns=True
                )
                for batch in rows:
                    first = following
                    for row in batch.to_pylist():
                        assert row["_hw_offset"] == following, (partition, row["_hw_offset"], following)
                        checksum = row_checksum(checksum, row)
                        following += 1
                    say("f", partition, first, following, checksum)
                    if self.stopping.is_set():
                        break
            except (self._unknown, self._unavailable):
                time.sleep(REST_S)


def run_thread(work: Callable[[int], None], thread: int) -> None:
    # Whatever ends a thread is told: the parent calls it a violation.
    try:
        work(thread)
    except Exception as error:  # noqa: BLE001
        say("e", work.__name__, type(error).__name__, str(error).replace("\n", " "))


def create_topics(log: hw.Log) -> None:
    import headwater as hw

    log.create_topics(
        [
            hw.NewTopic("events", REQUEST, partitions=PARTITIONS),
            hw.NewTopic("expected", REQUEST),
            hw.NewTopic("left", REQUEST, partitions=2),
            hw.NewTopic("right", REQUEST),
            hw.NewTopic("sent", REQUEST),
            hw.NewTopic("keyed", REQUEST),
            hw.NewTopic("copied", COPIED),
        ]
    )


def run(address: str, settings: ClientSettings) -> None:
    import headwater as hw

    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2, all_threads=True)  # for a person: where it hangs, on stderr
    log = hw.connect(address, client=hw.ClientSettings(retry_s=settings.retry_s))
    create_topics(log)
    say("r")
    using = Using(log, settings)
    works: list[Callable[[int], None]] = [
        *[using.append] * settings.appenders,
        *[using.append_futures] * settings.futures,
        *[using.expect] * settings.expecting,
        *[using.commit] * settings.transactions,
        *[using.send] * settings.senders,
        *[using.append_keyed] * settings.keyed,
        *[using.copy] * settings.copiers,
        *[using.consume] * settings.consumers,
        *[using.follow] * settings.followers,
    ]
    threads = [
        threading.Thread(target=run_thread, args=(work, number), daemon=True) for number, work in enumerate(works)
    ]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    using.stopping.set()
    for thread in threads:
        thread.join()
    log.close()
    say("z")


if __name__ == "__main__":
    run(sys.argv[1], ClientSettings.from_arguments(sys.argv[2:]))
