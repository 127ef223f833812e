"""Connections to a catalog, kept for the next topic that needs one, and thrown away after any trouble.

A connection that has failed is not asked again: a database that refused to commit can go on showing, to the connection
that tried, a result that nobody else will ever see.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from headwater.lake.tables import Tables

A = TypeVar("A")
B = TypeVar("B")


class Connections:
    def __init__(self, connect: Callable[[], Tables], threads: int) -> None:
        self._connect = connect
        self._threads = threads
        self._free: list[Tables] = []
        self._lock = threading.Lock()

    def connect(self) -> Tables:
        """A connection that nobody has used; its user closes it."""
        return self._connect()

    @contextmanager
    def lent(self) -> Iterator[Tables]:
        """A connection for a while.  If what is done with it fails, it is closed and not used again."""
        with self._lock:
            tables = self._free.pop() if self._free else None
        if tables is None:
            tables = self._connect()
        try:
            yield tables
        except BaseException:
            tables.close()
            raise
        with self._lock:
            self._free.append(tables)

    @contextmanager
    def new(self) -> Iterator[Tables]:
        """A connection that nobody has used, closed afterwards."""
        tables = self._connect()
        try:
            yield tables
        finally:
            tables.close()

    def each(self, act: Callable[[A], B], items: Sequence[A]) -> list[B]:
        """Do it for every item, several at a time, in their order; with one thread, in the caller's own."""
        if self._threads <= 1 or len(items) <= 1:
            return [act(item) for item in items]
        with ThreadPoolExecutor(min(self._threads, len(items)), thread_name_prefix="headwater-landing") as pool:
            return list(pool.map(act, items))

    def close(self) -> None:
        with self._lock:
            free, self._free = self._free, []
        for tables in free:
            tables.close()
