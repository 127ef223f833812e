"""Time and randomness are seams: nothing else in Headwater asks the machine for either.

PROMISE  `now_us` is wall time, for people and for append times; it may jump.
         `monotonic_s` never goes back and is for time-outs and leases.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    def now_us(self) -> int:
        """Microseconds since 1970-01-01 UTC."""
        ...

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment; never falls."""
        ...


class SystemClock:
    """The machine's own clocks."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic_s(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when it is told to: for tests and for the simulator."""

    def __init__(self, now_us: int = 1_700_000_000_000_000) -> None:
        self._now_us = now_us
        self._monotonic_s = 0.0

    def now_us(self) -> int:
        return self._now_us

    def monotonic_s(self) -> float:
        return self._monotonic_s

    def advance(self, seconds: float) -> None:
        self._now_us += round(seconds * 1_000_000)
        self._monotonic_s += seconds

    def set_wall_clock(self, now_us: int) -> None:
        """Wall time jumps, forward or back; monotonic time does not notice."""
        self._now_us = now_us


def cpu_s() -> float:
    """CPU seconds that this process has used, in all its threads: for accounts of where time went."""
    return time.process_time()


Entropy = Callable[[int], bytes]
"""Gives that many random bytes."""


def system_entropy(size: int) -> bytes:
    return os.urandom(size)
