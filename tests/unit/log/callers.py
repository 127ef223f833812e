"""Callers of a log in threads of their own, and interrupts that reach them.

Every wait has a bound: a test that would hang says so after WAIT_S.
"""

from __future__ import annotations

import linecache
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from headwater.log import FrameLog
from tests.unit.log.small_logs import WAIT_S


def until(what: str, true: Callable[[], bool]) -> None:
    """Wait until this is so."""
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.001)


class Threads:
    """Calls in threads of their own, and what came of each."""

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self.results: dict[int, Any] = {}
        self.errors: dict[int, BaseException] = {}

    def start(self, act: Callable[[], Any]) -> int:
        number = len(self._threads)

        def run() -> None:
            try:
                self.results[number] = act()
            except BaseException as error:
                self.errors[number] = error
                if not isinstance(error, (Exception, KeyboardInterrupt)):
                    raise

        thread = threading.Thread(target=run, name=f"caller {number}", daemon=True)
        self._threads.append(thread)
        thread.start()
        return number

    def are_alive(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def join(self, why: str = "") -> None:
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), f"{thread.name} hangs {why}"


def queued(log: FrameLog) -> int:
    return len(log._writer._queue)


@contextmanager
def interrupts() -> Iterator[None]:
    """A shell that starts its children in the background lets them ignore SIGINT, and Python with them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


needs_main_thread = pytest.mark.skipif(
    threading.current_thread() is not threading.main_thread(), reason="signals reach the main thread only"
)


def no_place_for_an_interrupt(frame: FrameType) -> bool:
    """Between taking a lock and noting it down, and on the way out of a `with`, Python itself would lose the lock."""
    text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
    return text == "request.leads = True" or text.startswith("with ")
