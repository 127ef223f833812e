"""Between one asyncio loop and the threads in which blocking calls run.

    Deliveries   futures of other threads, awaited in the loop: one wake-up for all that came together
    CallThreads  a bounded number of threads for calls that take a moment
    OwnThread    one thread for one thing that is used by one thread at a time, and may wait for long

PROMISE  An await that is cancelled ends at once.  A call that had begun goes on in its thread, and its outcome is
         dropped; one that had not never begins.
         No thread of a read or of a consumer keeps the process alive.
NOT HERE What is called: asynchronous.py.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from headwater.errors import Closed, InvalidRequest

T = TypeVar("T")


def running_loop() -> asyncio.AbstractEventLoop:
    try:
        return asyncio.get_running_loop()
    except RuntimeError as error:
        raise InvalidRequest("call this from a coroutine: no event loop is running here") from error


class Deliveries:
    """Futures that other threads complete, as futures of one loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._done: deque[tuple[asyncio.Future[Any], Future[Any]]] = deque()
        self._lock = threading.Lock()
        self._woken = False

    def check_loop(self) -> None:
        if running_loop() is not self._loop:
            raise InvalidRequest("this log belongs to another event loop: connect in this one")

    def of(self, future: Future[T]) -> asyncio.Future[T]:
        """The same outcome, in the loop.  To cancel it leaves the other future alone: what was asked for may be done
        already, and whoever does it must be able to say so."""
        waiting: asyncio.Future[T] = self._loop.create_future()
        future.add_done_callback(partial(self._put, waiting))
        return waiting

    def _put(self, waiting: asyncio.Future[Any], future: Future[Any]) -> None:
        """In whichever thread has completed it, perhaps in the middle of a writer's work: it only notes it down."""
        self._done.append((waiting, future))
        with self._lock:
            if self._woken:
                return
            self._woken = True
        try:
            self._loop.call_soon_threadsafe(self._tell)
        except RuntimeError:
            # The loop is closed: nobody waits there any more.
            return

    def _tell(self) -> None:
        with self._lock:
            # Before looking: what is put from now on wakes the loop again.
            self._woken = False
        while self._done:
            waiting, future = self._done.popleft()
            if waiting.done():
                continue
            if future.cancelled():
                waiting.cancel()
                continue
            error = future.exception()
            if error is None:
                waiting.set_result(future.result())
            else:
                waiting.set_exception(error)


class CallThreads:
    """Threads for calls that block, as many as `threads` at most; further calls wait for their turn."""

    def __init__(self, deliveries: Deliveries, threads: int) -> None:
        self._deliveries = deliveries
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="headwater-async")

    async def call(self, act: Callable[[], T]) -> T:
        self._deliveries.check_loop()
        context = contextvars.copy_context()
        try:
            future = self._executor.submit(lambda: context.run(act))
        except RuntimeError as error:
            raise Closed("this log is closed") from error
        try:
            return await self._deliveries.of(future)
        except asyncio.CancelledError:
            # Where it has not begun it never does.
            future.cancel()
            raise

    def close(self) -> None:
        """What runs goes on to its end; what has not begun is cancelled."""
        self._executor.shutdown(wait=False, cancel_futures=True)


class OwnThread:
    """A thread that does one thing after the other, and ends when it is told to, or with the process."""

    def __init__(self, deliveries: Deliveries, name: str) -> None:
        self._deliveries = deliveries
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._ended = False
        # A daemon: one that waits for rows which never come must not hold up the end of the process.
        threading.Thread(target=self._work, name=f"headwater-async-{name}", daemon=True).start()

    def begin(self, act: Callable[[], T]) -> Future[T]:
        """Do this after what was begun before."""
        self._deliveries.check_loop()
        if self._ended:
            raise Closed("this is closed")
        future: Future[T] = Future()
        self._jobs.put((act, future))
        return future

    async def call(self, act: Callable[[], T]) -> T:
        future = self.begin(act)
        try:
            return await self._deliveries.of(future)
        except asyncio.CancelledError:
            future.cancel()
            raise

    def end(self) -> None:
        """Nothing more is begun; what was is done first."""
        if not self._ended:
            self._ended = True
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            act, future = job
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = act()
            except BaseException as error:  # noqa: BLE001  it is the caller's, who is in another thread
                future.set_exception(error)
            else:
                future.set_result(result)
            del job, act, future
