"""Ctrl-C at the right moment: not between a write and its being counted.

PROMISE  Inside `held` a first Ctrl-C is remembered and comes when the block is over; a second one comes at once.
         Anywhere else it comes at once, as always.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Interrupts:
    """From `with Interrupts() as interrupts` on, Ctrl-C goes through here."""

    def __init__(self) -> None:
        self._holding = False
        self._waiting = False
        # Only the main thread gets signals, and only it may say what becomes of them.
        self._listens = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> Interrupts:
        if self._listens:
            self._before = signal.signal(signal.SIGINT, self._received)
        return self

    def __exit__(self, *_: object) -> None:
        if self._listens:
            signal.signal(signal.SIGINT, self._before)

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
        raise KeyboardInterrupt
