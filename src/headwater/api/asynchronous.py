"""Log and Topic for asyncio: the same verbs, awaited.

    async with await hw.connect_async("hw://127.0.0.1:7070") as log:
        orders = await log.topic("orders", schema={"order_id": int})
        await orders.append({"order_id": 1})                     # durable when it returns
        async for batch in orders.read(follow=True): ...

PROMISE  What a verb does, promises and raises is what the verb of the same name of Log and Topic does.
         The loop is never held up: an append of one small row is handed over without waiting, and many that are
         awaited at a time share a message and a sync; everything else runs in threads.
CANCEL   To cancel an await takes nothing back.  An append, or a commit of a transaction, that was handed over may
         become durable, and nobody is told: give it an idempotency key, and ask again with the same one.
LOOP     All of it belongs to the loop in which it was made.
NOT HERE What any of it does: log.py, topic.py.  The threads: loop_threads.py.
"""

from __future__ import annotations

import math
import threading
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar

import pyarrow as pa

from headwater.api.async_consumer import AsyncConsumer
from headwater.api.async_writing import Appending, AsyncProducer, AsyncTransaction
from headwater.api.connecting import connect
from headwater.api.log import Log
from headwater.api.loop_threads import CallThreads, Deliveries, OwnThread, running_loop
from headwater.api.topic import Topic
from headwater.errors import Closed, InvalidRequest
from headwater.settings import ClientSettings, Settings
from headwater.topics.answers import (
    Appended,
    GroupDescription,
    OffsetRange,
    SourcePosition,
    Status,
    TopicDescription,
    TopicStatus,
)
from headwater.topics.appending import OnRejected
from headwater.topics.positions import Where
from headwater.topics.reading import Rows, Wanted
from headwater.topics.topic import Duration, NewTopic

THREADS = 16
"""Calls that block at a time; reads and consumers have a thread each beside them."""

P = ParamSpec("P")
T = TypeVar("T")


async def connect_async(
    where: str,
    *,
    token: str | None = None,
    catalog: str | Mapping[str, Any] | None = None,
    spark_catalog: str | None = None,
    client: ClientSettings | None = None,
    settings: Settings | None = None,
    threads: int = THREADS,
) -> AsyncLog:
    """The log behind a server, for this event loop: what `hw.connect` gives, with its verbs awaited.

    `threads` is how many calls that block may run at a time; appends of single rows need none.  docs/async.md says the
    rest."""
    loop = running_loop()
    log = await loop.run_in_executor(
        None,
        lambda: connect(
            where, token=token, catalog=catalog, spark_catalog=spark_catalog, client=client, settings=settings
        ),
    )
    return AsyncLog(log, threads=threads)


class AsyncLog:
    """A log, for one event loop: over `hw.connect`, or over `hw.open` in this process.  It closes the log that it was
    given."""

    def __init__(self, log: Log, *, threads: int = THREADS) -> None:
        self._log = log
        self._deliveries = Deliveries(running_loop())
        self._threads = CallThreads(self._deliveries, threads)
        self._appending = Appending(self._deliveries, self._threads)
        self._reads: set[threading.Event] = set()
        self._closed = False

    @property
    def directory(self) -> str:
        """Where the data is, as it was opened."""
        return self._log.directory

    async def run(self, verb: Callable[Concatenate[Log, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """Any verb of Log, in a thread: `await log.run(hw.Log.audit, "orders")`."""
        return await self._threads.call(lambda: verb(self._log, *arguments, **named))

    # Topics ------------------------------------------------------------------------------------

    async def topic(
        self,
        name: str,
        schema: object = None,
        *,
        partitions: int | None = None,
        key: str | Sequence[str] | None = None,
        time: str | None = None,
        table: str | None = None,
        partition_by: str | Sequence[str] | None = None,
        cleanup: str | None = None,
        retention: Duration | None = None,
        retention_bytes: int | str | None = None,
        tombstones: Duration | None = None,
        changes_retention: Duration | None = None,
    ) -> AsyncTopic:
        """The topic of this name; with `schema` it is created if it is not there."""
        found = await self.run(
            Log.topic,
            name,
            schema,
            partitions=partitions,
            key=key,
            time=time,
            table=table,
            partition_by=partition_by,
            cleanup=cleanup,
            retention=retention,
            retention_bytes=retention_bytes,
            tombstones=tombstones,
            changes_retention=changes_retention,
        )
        return AsyncTopic(self, found)

    async def create_topics(self, topics: Iterable[NewTopic]) -> list[AsyncTopic]:
        """All of these topics, created together as far as they are not there."""
        return [AsyncTopic(self, each) for each in await self.run(Log.create_topics, topics)]

    async def topics(self) -> list[TopicStatus]:
        """Every topic, by name."""
        return await self.run(Log.topics)

    async def delete_topic(self, name: str, *, force: bool = False) -> None:
        """Delete a topic and its rows; with `force` although its table does not hold all of them."""
        await self.run(Log.delete_topic, name, force=force)

    # Over topics -------------------------------------------------------------------------------

    def transaction(
        self, *, producer: AsyncProducer | None = None, idempotency_key: str | bytes | None = None
    ) -> AsyncTransaction:
        """Rows of any topics, consumer offsets and source positions, as one write: `async with log.transaction() as
        tx`."""
        of = None if producer is None else producer.producer
        return AsyncTransaction(self._threads, self._log.transaction(producer=of, idempotency_key=idempotency_key))

    async def producer(self, name: str) -> AsyncProducer:
        """A producer whose requests are applied once; whoever had this name before is fenced."""
        return AsyncProducer(self._threads, await self.run(Log.producer, name))

    async def source_position(self, name: str) -> SourcePosition | None:
        """How far an outside source has been taken in, by the last transaction that said so."""
        return await self.run(Log.source_position, name)

    async def consumer(
        self,
        topic: str,
        *,
        group: str,
        start: Literal["earliest", "latest"] = "earliest",
        batch_rows: int = 65_536,
        timeout_s: float | None = None,
    ) -> AsyncConsumer:
        """A member of a group, which shares the topic's partitions with the others."""
        own = OwnThread(self._deliveries, f"consumer-{group}")
        try:
            consumer = await own.call(
                lambda: self._log.consumer(topic, group=group, start=start, batch_rows=batch_rows, timeout_s=timeout_s)
            )
        except BaseException:
            own.end()
            raise
        return AsyncConsumer(self._deliveries, own, consumer, math.inf if timeout_s is None else timeout_s)

    async def groups(self) -> list[GroupDescription]:
        """The consumer groups: their members, what each has committed, and how far behind it is."""
        return await self.run(Log.groups)

    # Upkeep ------------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Return when everything that was asked for before is durable."""
        await self.run(Log.flush)

    async def status(self) -> Status:
        """Topics, groups, tables and the log at a glance."""
        return await self.run(Log.status)

    async def close(self) -> None:
        """Serve what is queued and let go of the log; reads that follow end.  Twice is nothing."""
        if self._closed:
            return
        self._closed = True
        for stopped in self._reads:
            stopped.set()
        try:
            await self._threads.call(self._log.close)
        finally:
            self._threads.close()

    async def __aenter__(self) -> Self:
        await self._threads.call(self._log.__enter__)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"AsyncLog({self.directory!r})"

    def _begin_read(self) -> threading.Event:
        """What tells a read that it is not wanted any more."""
        if self._closed:
            raise Closed("this log is closed")
        stopped = threading.Event()
        self._reads.add(stopped)
        return stopped

    def _end_read(self, stopped: threading.Event) -> None:
        stopped.set()
        self._reads.discard(stopped)


class AsyncTopic:
    """A topic: append to it, read it, change it."""

    def __init__(self, log: AsyncLog, topic: Topic) -> None:
        self._log = log
        self._topic = topic

    @property
    def name(self) -> str:
        """What it is called in its log."""
        return self._topic.name

    async def run(self, verb: Callable[Concatenate[Topic, P], T], *arguments: P.args, **named: P.kwargs) -> T:
        """Any verb of Topic, in a thread: `await topic.run(hw.Topic.compact)`."""
        return await self._log._threads.call(lambda: verb(self._topic, *arguments, **named))

    async def append(
        self,
        rows: object,
        *,
        partition: int | None = None,
        rejected: OnRejected = "refuse",
        expect_offset: int | None = None,
        idempotency_key: str | bytes | None = None,
        format: Literal["debezium"] | None = None,
    ) -> Appended:
        """Append one row or many; they are durable, all of them, when it returns.  Appends that are awaited at a time
        share messages and syncs."""
        if format is not None:
            return await self.run(
                Topic.append,
                rows,
                partition=partition,
                rejected=rejected,
                expect_offset=expect_offset,
                idempotency_key=idempotency_key,
                format=format,
            )

        def begin() -> Future[Appended]:
            return self._topic.append_future(
                rows,
                partition=partition,
                rejected=rejected,
                expect_offset=expect_offset,
                idempotency_key=idempotency_key,
            )

        return await self._log._appending.append(begin, rows)

    async def upsert(self, rows: object, *, idempotency_key: str | bytes | None = None) -> Appended:
        """Each row is the latest of its key from now on."""
        if not await self.run(_key_of):
            raise InvalidRequest(f"{self.name!r} has no key: use append", topic=self.name)
        return await self.append(rows, idempotency_key=idempotency_key)

    async def delete(self, keys: object, *, idempotency_key: str | bytes | None = None) -> Appended:
        """These keys have no row from now on."""
        return await self.run(Topic.delete, keys, idempotency_key=idempotency_key)

    def read(
        self,
        start: Where = "earliest",
        stop: Where | None = None,
        *,
        limit: int | None = None,
        batch_rows: int = 65_536,
        follow: bool = False,
        timeout_s: float | None = None,
        columns: Sequence[str] | None = None,
        partition: int | None = None,
        system_columns: bool = False,
    ) -> AsyncRows:
        """Rows in the order of the log: `async for batch in topic.read()`, or `await topic.read().to_pylist()`."""

        def rows_until(stopped: threading.Event) -> Rows:
            wanted = Wanted(
                start=start,
                stop=stop,
                limit=limit,
                batch_rows=batch_rows,
                follow=follow,
                timeout_s=timeout_s,
                columns=columns,
                partition=partition,
                system_columns=system_columns,
                gone=stopped.is_set if follow else None,
            )
            return self._topic._engine.read(self._topic.number, wanted)

        return AsyncRows(self._log, rows_until)

    async def get(self, key: object) -> dict[str, Any] | None:
        """The row of this key, or None."""
        return await self.run(Topic.get, key)

    async def offsets(self) -> dict[int, OffsetRange]:
        """Of each partition, the first offset that the log holds and the next that it will give."""
        return await self.run(Topic.offsets)

    async def describe(self) -> TopicDescription:
        """All that is known of it: schema versions, partitions with their offsets, policy, table."""
        return await self.run(Topic.describe)

    def __repr__(self) -> str:
        return f"AsyncTopic({self.name!r})"


def _key_of(topic: Topic) -> tuple[str, ...]:
    return topic.key


class AsyncRows:
    """Rows to be read: batches by `async for`, or all of them in one form.  Each `async for` reads anew."""

    def __init__(self, log: AsyncLog, rows_until: Callable[[threading.Event], Rows]) -> None:
        self._log = log
        self._rows_until = rows_until

    async def __aiter__(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """A read that follows and is left in the middle, by `break` or by cancelling, ends its thread by itself; inside
        `contextlib.aclosing` it does so at once."""
        stopped = self._log._begin_read()
        own = OwnThread(self._log._deliveries, "read")
        try:
            batches = await own.call(lambda: iter(self._rows_until(stopped)))
            while (batch := await own.call(lambda: next(batches, None))) is not None:
                yield batch
        finally:
            self._log._end_read(stopped)
            own.end()

    async def to_arrow(self) -> pa.Table:
        """All of them, in memory, as one table of pyarrow's."""
        return await self._all(Rows.to_arrow)

    async def to_pandas(self) -> Any:
        """A `pandas.DataFrame`."""
        return await self._all(Rows.to_pandas)

    async def to_polars(self) -> Any:
        """A `polars.DataFrame`."""
        return await self._all(Rows.to_polars)

    async def to_pylist(self) -> list[dict[str, Any]]:
        """All of them, in memory, a dict each."""
        return await self._all(Rows.to_pylist)

    async def _all(self, form: Callable[[Rows], T]) -> T:
        stopped = self._log._begin_read()
        own = OwnThread(self._log._deliveries, "read")
        try:
            return await own.call(lambda: form(self._rows_until(stopped)))
        finally:
            self._log._end_read(stopped)
            own.end()
