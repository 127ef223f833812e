"""Honest clients beside the attackers: a producer that appends one row after the other, and a follower that reads them.

PROMISE  `stop` returns when the follower has every row that was acknowledged, or says which are missing.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Self

import headwater as hw

PAUSE_S = 0.005
FOLLOW_S = 20.0


class Honest:
    """A producer and a follower, each a thread with a connection of its own."""

    def __init__(self, address: str, token: str, topic: str) -> None:
        self._address = address
        self._token = token
        self._topic = topic
        self._ended = threading.Event()
        self.acknowledged: list[int] = []
        self.seen: list[int] = []
        self.append_s: list[float] = []
        """How long each append took."""
        self.errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(each,), name=each.__name__, daemon=True)
            for each in (self._produce, self._follow)
        ]

    def __enter__(self) -> Self:
        for each in self._threads:
            each.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self._ended.set()
        for each in self._threads:
            each.join(FOLLOW_S + 10)

    def _guarded(self, work: object) -> None:
        assert callable(work)
        try:
            work()
        except BaseException as error:  # noqa: BLE001  whatever it is, it is what the test is about
            self.errors.append(error)

    def _produce(self) -> None:
        with hw.connect(self._address, token=self._token) as log:
            topic = log.topic(self._topic)
            number = 0
            while not self._ended.is_set():
                began_s = time.monotonic()
                topic.append([{"number": number}])
                self.append_s.append(time.monotonic() - began_s)
                self.acknowledged.append(number)
                number += 1
                time.sleep(PAUSE_S)

    def _follow(self) -> None:
        with hw.connect(self._address, token=self._token) as log:
            topic = log.topic(self._topic)
            deadline_s = 0.0
            while not self._done(deadline_s):
                if self._ended.is_set() and not deadline_s:
                    deadline_s = time.monotonic() + FOLLOW_S
                # Until nothing has come for half a second: while the producer runs that is never.
                for batch in topic.read(start={0: len(self.seen)}, follow=True, timeout_s=0.5):
                    self.seen += batch.column("number").to_pylist()

    def _done(self, deadline_s: float) -> bool:
        if deadline_s and time.monotonic() > deadline_s:
            return True
        return self._ended.is_set() and not self._threads[0].is_alive() and len(self.seen) >= len(self.acknowledged)

    def p99_s(self) -> float:
        return sorted(self.append_s)[int(len(self.append_s) * 0.99)]
