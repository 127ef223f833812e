"""What is being answered, so that a stop can wait for it: calls one by one, and append streams request by request.

PROMISE  Once it is finished, nothing more is begun, and whoever holds an append stream open was told.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.errors import Unavailable

Tell = Callable[[], None]


class InFlight:
    """Counts what is in flight.  Safe for threads."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._count = 0
        self._stopping = False
        self._told: set[Tell] = set()

    def begin(self) -> None:
        """One more; Unavailable once the server is being stopped."""
        with self._changed:
            if self._stopping:
                raise Unavailable("the server is being stopped: ask another, or this one soon")
            self._count += 1

    def end(self) -> None:
        with self._changed:
            self._count -= 1
            self._changed.notify_all()

    @contextmanager
    def counted(self) -> Iterator[None]:
        self.begin()
        try:
            yield
        finally:
            self.end()

    @contextmanager
    def told(self, tell: Tell) -> Iterator[None]:
        """Around a stream: `tell` is called when the server is being stopped."""
        with self._changed:
            self._told.add(tell)
        try:
            yield
        finally:
            with self._changed:
                self._told.discard(tell)

    def finish(self, timeout_s: float) -> bool:
        """Begin nothing more, tell streams, and wait for what is in flight; False where that took too long."""
        with self._changed:
            self._stopping = True
            told = list(self._told)
        for tell in told:
            tell()
        with self._changed:
            return self._changed.wait_for(lambda: self._count == 0, timeout_s)
