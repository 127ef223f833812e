"""Streams that are open, and how fast each principal moves bytes.

    with streams.opened(principal):          one more; Unavailable at once where there are enough
        streams.moved(principal, size)       waits as long as the principal is ahead of its rate

COUNT    All streams together, and those of each principal.  Whatever holds a thread or memory while somebody is slow is
         a stream: an append stream, a read, a long wait.
RATE     A bucket of one second's bytes for each principal, in and out together.  Who is ahead waits, and is not
         refused: a stream that waits does not read on, so what it holds is what one message holds, and the sender is
         slowed down by its own connection.  A message larger than a second's bytes is let through, and paid for by the
         next.
PROMISE  The next stream is refused before anything of it is read; nothing here waits but `moved`, and that no longer
         than `WAIT_S_MAX` at a time: after it the caller hears Unavailable rather than hold its thread for ever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headwater.clock import Clock, SystemClock
from headwater.errors import Unavailable
from headwater.server.access import Principal
from headwater.server.settings import ServerLimits

WAIT_S_MAX = 60.0
"""Longer than this nobody is held for being ahead of its rate."""

Pause = Callable[[float], object]


class Streams:
    """The count, and the rates."""

    def __init__(self, limits: ServerLimits, *, clock: Clock | None = None, pause: Pause | None = None) -> None:
        self._limits = limits
        self._clock: Clock = clock if clock is not None else SystemClock()
        self._pause: Pause = pause if pause is not None else threading.Event().wait
        self._guard = threading.Lock()
        self._open = 0
        self._open_of: dict[str, int] = {}
        self._refused = 0
        self._moved_bytes = 0
        self._paid_until_s: dict[str, float] = {}
        """When each principal's bucket will be full again, on the monotonic clock; later than now by more than one
        second means that it is ahead."""

    @property
    def open_now(self) -> int:
        return self._open

    @property
    def refused(self) -> int:
        """Streams that were refused since the beginning."""
        return self._refused

    @property
    def moved_bytes(self) -> int:
        """Bytes of all principals since the beginning, in and out."""
        return self._moved_bytes

    @contextmanager
    def opened(self, principal: Principal) -> Iterator[None]:
        """Around a stream; Unavailable where one more is too many."""
        self._enter(principal.name)
        try:
            yield
        finally:
            self._leave(principal.name)

    def _enter(self, name: str) -> None:
        with self._guard:
            mine = self._open_of.get(name, 0)
            if self._open >= self._limits.streams_max:
                self._refused += 1
                raise Unavailable(
                    "the server has as many open streams as it takes; try again when some have ended",
                    streams_max=self._limits.streams_max,
                )
            if mine >= self._limits.streams_per_principal_max:
                self._refused += 1
                raise Unavailable(
                    f"{name} has as many open streams as one may have; end some, or share them",
                    streams_per_principal_max=self._limits.streams_per_principal_max,
                )
            self._open += 1
            self._open_of[name] = mine + 1

    def _leave(self, name: str) -> None:
        with self._guard:
            self._open -= 1
            left = self._open_of[name] - 1
            if left:
                self._open_of[name] = left
            else:
                del self._open_of[name]

    def moved(self, principal: Principal, size_bytes: int) -> None:
        """So many bytes came from this principal, or are about to go to it: wait until its rate allows for them."""
        wait_s = self.wait_s(principal, size_bytes)
        if wait_s > 0:
            self._pause(wait_s)

    def wait_s(self, principal: Principal, size_bytes: int) -> float:
        """As `moved`, for who waits by itself: how long to."""
        with self._guard:
            self._moved_bytes += max(size_bytes, 0)
        rate = self._limits.bytes_per_s_per_principal
        if rate is None or size_bytes <= 0:
            return 0.0
        wait_s = self._take(principal.name, size_bytes / rate)
        if wait_s > WAIT_S_MAX:
            raise Unavailable(
                f"{principal.name} is far ahead of the bytes that it may move in a second; try again later",
                bytes_per_s=rate,
                seconds=round(wait_s),
            )
        return max(wait_s, 0.0)

    def _take(self, name: str, cost_s: float) -> float:
        """How long to wait before these bytes; nothing is taken where that is too long."""
        with self._guard:
            now_s = self._clock.monotonic_s()
            full_s = max(self._paid_until_s.get(name, now_s), now_s)
            # One second's bytes are free to move at once: whoever is ahead by less does not wait.
            wait_s = full_s - now_s - 1.0 + min(cost_s, 1.0)
            if wait_s <= WAIT_S_MAX:
                self._paid_until_s[name] = full_s + cost_s
            return wait_s
