"""Writing, for asyncio: appends, producers, transactions.

PROMISE  An append of one small row is handed over by the loop itself, without waiting; any other in a thread.
         The steps of a transaction happen one after the other, also where an await of one was cancelled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from types import TracebackType
from typing import Self, TypeVar
from uuid import UUID

from headwater.api.async_consumer import AsyncConsumer
from headwater.api.loop_threads import CallThreads, Deliveries
from headwater.topics.answers import Appended, CommittedTransaction
from headwater.topics.appending import OnRejected
from headwater.topics.producers import Producer
from headwater.topics.transactions import Transaction

AT_ONCE_BYTES = 16 * 1024
"""A row of at most this many bytes of text is handed over by the loop itself ..."""
AT_ONCE_ROWS = 1_024
"""... while at most so many wait.  Together they are far below what a client, or a log, queues before it makes callers
wait (`ClientSettings.queued_bytes_max`, `LogSettings.in_flight_bytes_max`): the loop is never one of those."""

_PLAIN = (bool, int, float, datetime, date, time, timedelta, Decimal, UUID)

T = TypeVar("T")


class Appending:
    """Appends of one log: at once where that cannot hold up the loop, in a thread elsewhere."""

    def __init__(self, deliveries: Deliveries, threads: CallThreads) -> None:
        self._deliveries = deliveries
        self._threads = threads
        self._warm = False
        """An append has been answered: the log is owned, or the server was reached, and what comes is quick."""
        self._small = 0
        self._large = 0

    async def append(self, begin: Callable[[], Future[Appended]], rows: object) -> Appended:
        # While rows of any size wait, the queue may be full: then whoever comes may have to wait for room.
        if self._warm and self._large == 0 and self._small < AT_ONCE_ROWS and _is_small(rows):
            self._deliveries.check_loop()
            self._small += 1
            try:
                return await self._deliveries.of(begin())
            finally:
                self._small -= 1
        self._large += 1
        try:
            appended = await self._deliveries.of(await self._threads.call(begin))
        finally:
            self._large -= 1
        self._warm = True
        return appended


def _is_small(rows: object) -> bool:
    """One row of plain values that are not long."""
    values = _values_of(rows)
    if values is None:
        return False
    size = 0
    for value in values:
        if isinstance(value, str | bytes):
            size += len(value)
        elif value is not None and not isinstance(value, _PLAIN):
            return False
    return size <= AT_ONCE_BYTES


def _values_of(rows: object) -> Iterable[object] | None:
    """The values of one row; None where it is many, or something else."""
    if isinstance(rows, Mapping):
        return rows.values()
    if isinstance(rows, type):
        return None
    # A dataclass's, or a pydantic model's.
    if hasattr(rows, "__dataclass_fields__") or hasattr(rows, "__pydantic_fields__"):
        return vars(rows).values() if hasattr(rows, "__dict__") else None
    return None


class AsyncProducer:
    """A producer whose requests are applied once, in the order of their numbers."""

    def __init__(self, threads: CallThreads, producer: Producer) -> None:
        self._threads = threads
        self.producer = producer

    async def append(
        self, topic: str, rows: object, *, partition: int | None = None, sequence: int | None = None
    ) -> Appended:
        """Append rows once: a repeat of a number gets its first answer."""
        return await self._threads.call(
            lambda: self.producer.append(topic, rows, partition=partition, sequence=sequence)
        )

    async def delete(self, topic: str, keys: object, *, sequence: int | None = None) -> Appended:
        return await self._threads.call(lambda: self.producer.delete(topic, keys, sequence=sequence))


class AsyncTransaction:
    """Collects what is to be written together: leaving the `async with` commits, an exception aborts."""

    def __init__(self, threads: CallThreads, transaction: Transaction) -> None:
        self._threads = threads
        self._transaction = transaction
        self._turn = threading.Lock()
        """A step that was cancelled goes on in its thread: the next one waits for it."""

    @property
    def state(self) -> str:
        """ "open", "committed", "aborted", or what else became of it."""
        return self._transaction.state

    @property
    def result(self) -> CommittedTransaction | None:
        """Where its rows are, once it is committed."""
        return self._transaction.result

    async def append(
        self, topic: str, rows: object, *, partition: int | None = None, rejected: OnRejected = "refuse"
    ) -> None:
        """Rows of a topic; nothing is written before the commit."""
        await self._step(lambda: self._transaction.append(topic, rows, partition=partition, rejected=rejected))

    async def upsert(self, topic: str, rows: object) -> None:
        """Rows of a keyed topic that replace those of the same key."""
        await self._step(lambda: self._transaction.upsert(topic, rows))

    async def delete(self, topic: str, keys: object) -> None:
        """Keys of a keyed topic whose rows are to go."""
        await self._step(lambda: self._transaction.delete(topic, keys))

    async def commit_offsets(self, consumer: AsyncConsumer) -> None:
        """What this consumer has handed out so far counts as read, if and only if the transaction commits."""
        await consumer.settle()
        await self._step(lambda: self._transaction.commit_offsets(consumer.consumer))

    async def set_source(self, name: str, position: object, *, watermark: datetime | None = None) -> None:
        """How far an outside source has been taken in, as of this transaction."""
        await self._step(lambda: self._transaction.set_source(name, position, watermark=watermark))

    async def commit(self) -> CommittedTransaction | None:
        """Write everything as one; durable when it returns."""
        return await self._step(self._transaction.commit)

    async def abort(self) -> None:
        """Drop everything: nothing of it reaches the log."""
        await self._step(self._transaction.abort)

    async def _step(self, act: Callable[[], T]) -> T:
        def in_turn() -> T:
            with self._turn:
                return act()

        return await self._threads.call(in_turn)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._step(lambda: self._transaction.__exit__(kind, error, trace))
