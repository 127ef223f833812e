"""Ctrl-C, and other signals to end, at the right moment: not between a write and its being counted.

PROMISE  Inside `held` a first one is remembered and comes when the block is over; a second one comes at once.
         Anywhere else it comes at once, as always.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupts:
    """From `with Interrupts() as interrupts` on, Ctrl-C goes through here, and so do these signals."""

    def __init__(self, *more: signal.Signals) -> None:
        self._signals = (signal.SIGINT, *more)
        self._before: list[Any] = []
        self._holding = False
        self._waiting = False
        self.insisted = False
        """A second one came.  What was held may have taken it for an error of its own and gone on: pydantic does."""
        # Only the main thread gets signals, and only it may say what becomes of them.
        self._listens = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Interrupts:
        if self._listens:
            self._before = [signal.signal(number, self._received) for number in self._signals]
        return self

    def __exit__(self, *_: object) -> None:
        if self._listens:
            for number, before in zip(self._signals, self._before, strict=True):
                signal.signal(number, before)

    @property
    def pending(self) -> bool:
        """One came and has not been told, because what was held ended with an error."""
        return self._waiting

    @contextmanager
    def held(self) -> Iterator[None]:
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._waiting:
            self._waiting = False
            raise KeyboardInterrupt

    def _received(self, number: int, frame: FrameType | None) -> None:
        if self._holding and not self._waiting:
            self._waiting = True
            return
        self.insisted = self._holding
        raise KeyboardInterrupt
