"""A log whose commits land when a test says so, and what happens on it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from headwater.clock import Clock
from headwater.errors import InvalidRequest
from headwater.ids import Lsn
from headwater.log import Receipt
from headwater.log.pipelining import PipelinedWriter
from headwater.log.writer import FormedWrite, Request, Sequencer, each_alone
from headwater.settings import LogSettings
from tests.unit.log.callers import (
    Threads,
)
from tests.unit.log.held_device import HeldDevice, held_log
from tests.unit.log.small_logs import SETTINGS, WAIT_S, rows, simulated

AT_ONCE = replace(SETTINGS, commit_interval_s=0.0)
"""Whoever holds the baton issues what is queued, and waits for no more."""
FOR_EVER = 3600.0
DRAFT_BYTES = rows(1).frame_size


@dataclass
class Stage:
    """A log that is owned, over a device whose commits land when the test says so."""

    settings: LogSettings = AT_ONCE
    clock: Clock | None = None
    device_of: type[HeldDevice] = HeldDevice
    hooks: dict[str, Any] = field(default_factory=dict)
    threads: Threads = field(default_factory=Threads)

    def __post_init__(self) -> None:
        self.files, world = simulated()
        self.device, self.log = held_log(
            world, settings=self.settings, clock=self.clock, device_of=self.device_of, **self.hooks
        )
        writer = self.log._writer
        assert isinstance(writer, PipelinedWriter)
        self.writer = writer
        self.log.claim()

    def issue(self, *bodies: bytes) -> list[Future[Receipt]]:
        """Commits of one request each."""
        return [self._issued(body) for body in bodies]

    def _issued(self, body: bytes) -> Future[Receipt]:
        before = self.device.issues
        future = self.log.append_future([rows(1, body=body)])
        self.device.wait_until_issued(before + 1)
        return future

    def requests_in_flight(self) -> int:
        """Those that were judged or issued and are not told."""
        return sum(len(flight.requests) for flight in list(self.writer._flights))

    def settle(self) -> None:
        """Land all there is, and end."""
        self.threads.start(self.log.close)
        while self.threads.are_alive():
            if self.device.held:
                self.device.land()
            time.sleep(0.001)
        self.threads.join()


@contextmanager
def stages_of_a_test() -> Iterator[Callable[..., Stage]]:
    """Makes stages, which end with the test."""
    made: list[Stage] = []

    def make(**options: Any) -> Stage:
        made.append(Stage(**options))
        return made[-1]

    yield make
    for stage in made:
        stage.settle()


Stages = Callable[..., Stage]


class Landing(HeldDevice):
    """Commits land by themselves, a little later."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._chance = Random(7)
        self._ends = False
        self.lander = threading.Thread(target=self._land_all, daemon=True)
        self.lander.start()

    def _land_all(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self.held or self._ends, WAIT_S)
                unstored = [each for each in self.held if not each.stored]
            if unstored:
                time.sleep(self._chance.random() * 0.002)
                self.store(self._chance.choice(unstored))
            elif self._ends:
                return

    def close(self) -> None:
        with self._changed:
            self._ends = True
            self._changed.notify_all()
        super().close()


def done(futures: Sequence[Future[Any]]) -> list[bool]:
    return [future.done() for future in futures]


def judging(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
    """Refuses those with the body `bad`, answers those with the body `told` itself, and writes the others."""
    for request in requests:
        body = request.drafts[0].body
        if body == b"bad":
            request.refuse(InvalidRequest("this one is refused"))
        elif body == b"told":
            request.answer(Receipt(Lsn(77), Lsn(77), (), 7))
    return each_alone([request for request in requests if not request.done], sequencer)
