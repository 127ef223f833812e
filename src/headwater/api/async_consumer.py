"""A member of a consumer group, for asyncio.

PROMISE  What docs/consumer-groups.md says of a consumer.  A poll that was cancelled loses nothing: what it brought is
         given to nobody, comes with the next poll, and is in no commit before.
THREADS  The consumer is used by one thread of its own.  A poll waits there in pieces of POLL_S, so that what follows a
         cancelled one does not wait for longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Self

import pyarrow as pa

from headwater.api.loop_threads import Deliveries, OwnThread
from headwater.errors import Closed
from headwater.topics.consumer import Consumer, Polled

POLL_S = 0.5


class AsyncConsumer:
    """A member of a consumer group.  One task at a time uses it; `close` may come from any.  See
    docs/consumer-groups.md."""

    def __init__(self, deliveries: Deliveries, own: OwnThread, consumer: Consumer, timeout_s: float) -> None:
        self._deliveries = deliveries
        self._own = own
        self.consumer = consumer
        self._timeout_s = timeout_s
        self._under_way: Future[Polled | None] | None = None
        """A poll whose outcome nobody was given yet: one that was begun, or that was cancelled."""
        self._closed = False

    @property
    def group(self) -> str:
        """The group that it is a member of."""
        return self.consumer.group

    @property
    def assignment(self) -> tuple[int, ...]:
        """The partitions that this consumer holds, as of its last poll."""
        return self.consumer.assignment

    async def poll(self, max_rows: int | None = None, timeout_s: float = 0.0) -> Polled | None:
        """The next rows of some partition, or None if none came in this time."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + timeout_s
        while True:
            if self._under_way is None:
                left_s = min(max(deadline_s - loop.time(), 0.0), POLL_S)
                self._under_way = self._own.begin(partial(self.consumer.poll, max_rows, left_s))
            under_way = self._under_way
            try:
                polled = await self._deliveries.of(under_way)
            except asyncio.CancelledError:
                raise  # it stays under way: what it brings was handed to nobody
            except BaseException:
                self._under_way = None
                raise
            self._under_way = None
            if polled is not None or loop.time() >= deadline_s:
                return polled

    async def __aiter__(self) -> AsyncGenerator[pa.RecordBatch, None]:
        """Batches as they come, until the consumer is closed or `timeout_s` has passed without a row."""
        while True:
            try:
                polled = await self.poll(timeout_s=self._timeout_s)
            except Closed:
                if self._closed:
                    return
                raise
            if polled is None:
                return
            yield polled.batch

    async def commit(self) -> dict[int, int]:
        """Commit all that was handed out, durably."""
        await self.settle()
        return await self._own.call(self.consumer.commit)

    async def rewind(self) -> None:
        """Go back to what is committed, in every partition."""
        await self.settle()
        await self._own.call(self.consumer.rewind)

    async def seek(self, partition: int, offset: int) -> None:
        """Read on from this offset of a partition that this member holds."""
        await self.settle()
        await self._own.call(lambda: self.consumer.seek(partition, offset))

    async def heartbeat(self) -> None:
        """Renew the lease: where work on rows takes long."""
        await self._own.call(self.consumer.heartbeat)

    async def lag(self) -> dict[int, int]:
        """Of each partition that it holds, how many rows it has not read yet."""
        return await self._own.call(self.consumer.lag)

    async def settle(self) -> None:
        """What a cancelled poll brought goes back: it was handed to nobody, and must not be committed."""
        under_way, self._under_way = self._under_way, None
        if under_way is None:
            return

        def take_back() -> None:
            polled = under_way.result() if under_way.exception() is None else None
            # A partition that was lost meanwhile is read by its new holder from what was committed.
            if polled is not None and self.consumer.position(polled.partition) is not None:
                self.consumer.seek(polled.partition, polled.offset)

        await self._own.call(take_back)

    async def close(self) -> None:
        """Leave the group; what was not committed goes to the others.  Twice is nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._own.call(self.consumer.close)
        finally:
            self._own.end()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
