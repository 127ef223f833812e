"""The thread in which the owner of a log looks after it: once an interval, and sooner when a segment was sealed.

PROMISE  What goes wrong is logged and tried again; the thread ends when the log is closed, by itself or under it.
NOT HERE What is done: Engine.cleanup.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from headwater.errors import Closed, HeadwaterError

logger = logging.getLogger("headwater.topics")

PAUSE_S = 1.0
"""However often it is woken, it rests so long between two runs."""


class Upkeep(threading.Thread):
    def __init__(self, run_once: Callable[[], object], interval_s: float) -> None:
        super().__init__(name="headwater-upkeep", daemon=True)
        self._run_once = run_once
        self._interval_s = interval_s
        self._pause_s = min(PAUSE_S, interval_s)
        self._woken = threading.Event()
        self._stopping = threading.Event()

    def wake(self) -> None:
        """Run soon, and not only when the interval is over."""
        self._woken.set()

    def stop(self) -> None:
        """Return when it has ended."""
        self._stopping.set()
        self._woken.set()
        if self.is_alive():
            self.join()

    def run(self) -> None:
        while not self._stopping.wait(self._pause_s):
            self._woken.wait(self._interval_s - self._pause_s)
            if self._stopping.is_set():
                return
            self._woken.clear()
            try:
                self._run_once()
            except Closed:
                return
            except HeadwaterError as error:
                # Whoever appends or reads next meets the same trouble and is told; the log is as it was.
                logger.warning("upkeep did not run: %s", error)
