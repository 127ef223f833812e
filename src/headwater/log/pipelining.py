"""Several commits in flight: for a device that takes the next one before the last one is durable.

BATON    Whoever holds it forms a commit, issues it, and hands the baton on without waiting.
STATE    `committed` is told when a commit is issued, so that the next one is formed on it.  What is formed on may
         therefore never become durable; nobody is told of it before it is.
ANSWERS  leave in log order, and only when everything issued before them is durable: also those that `form` gives
         itself, because a request that was refused or told again was judged by what is still in flight.
FAILURE  Where a commit fails, it and everything after it that was not delivered gets an error: what the device says of
         each commit, and of the first that failed where there was nothing to issue.
SIZE     A commit takes at most about `slot_bytes_target` of what is queued.  It goes at once if nothing is in flight or
         `slot_bytes_enough` is queued; else the holder of the baton waits for more, until `commit_interval_s` after
         the last one.
ACTS     What is done under the baton is done when nothing is in flight: what is known is what is durable.
NOT HERE How a commit is made durable, and the window: the device.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar, cast

from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater.log.device import Device, FlyingTicket, PipelinedDevice
from headwater.log.writer import Committed, Form, Issued, Request, Writer, each_alone
from headwater.metrics import LogCounters
from headwater.settings import LogSettings

logger = logging.getLogger("headwater.log")

T = TypeVar("T")


class _Flight:
    """Requests that were taken together, and what became of them."""

    __slots__ = ("error", "issued", "requests", "settled")

    def __init__(self, requests: list[Request]) -> None:
        self.requests = requests
        self.issued: Issued | None = None
        self.error: BaseException | None = None
        self.settled = False


class PipelinedWriter(Writer):
    """The one way into a log whose device takes several commits at a time.  Safe for any number of threads."""

    pipelined = True
    _device: PipelinedDevice

    def __init__(
        self,
        device: PipelinedDevice,
        *,
        settings: LogSettings,
        clock: Clock,
        counters: LogCounters,
        on_durable: Callable[[], None],
        form: Form = each_alone,
        committed: Committed | None = None,
    ) -> None:
        super().__init__(
            device,
            settings=settings,
            clock=clock,
            counters=counters,
            on_durable=on_durable,
            form=form,
            committed=committed,
        )
        self._flights: deque[_Flight] = deque()
        """In log order; the holder of the baton adds to them, whoever delivers takes them away."""
        self._delivering = threading.Lock()
        self._failed: BaseException | None = None
        """What became of the first commit that failed; nothing after it is delivered as it was judged."""
        self._changed = threading.Condition(self._in_flight)
        """More is queued, something has landed, or an act waits for the baton."""
        self._queued_bytes = 0
        self._gathering = False
        self._acts_waiting = 0
        self._last_issue_s = 0.0

    def _wait_for(self, request: Request) -> Any:
        try:
            self._enqueue(request)
            if self._baton.acquire(blocking=False):
                request.leads = True
                self._lead(request)
            # It is woken to lead, or because it has been told; a leader goes on to wait for its own answer.
            request.wait()
            while request.leads:
                self._lead(request)
                request.wait()
        except BaseException:
            self._stop_waiting(request)
            raise
        if request.error is not None:
            raise request.error
        assert request.receipt is not None
        return request.result(request.receipt)

    def under_baton(self, act: Callable[[], T]) -> T:
        """Do something that nobody may append beside, once all that was asked for before is durable or was refused."""

        def alone() -> T:
            self._serve_queued()
            # If something in flight failed, nothing that is known here may be acted upon.
            self._ensure_claimed()
            return act()

        return super().under_baton(alone)

    # Getting in ------------------------------------------------------------------------------

    def _enqueue(self, request: Request) -> None:
        request.queued_s = self._clock.monotonic_s()
        size = request.frame_bytes
        with self._in_flight:
            if not self._has_room(size):
                self._wait_for_room(size)
            self._queue.append(request)
            self._in_flight_bytes += size
            self._queued_bytes += size
            if self._gathering and self._has_gathered():
                self._changed.notify_all()

    def _wait_for_room(self, size: int) -> None:
        if self._gathering:
            # Nothing more can be queued before something is issued.
            self._changed.notify_all()
        super()._wait_for_room(size)

    # Holding the baton -----------------------------------------------------------------------

    def _take_baton(self) -> None:
        with self._in_flight:
            self._acts_waiting += 1
            self._changed.notify_all()
        try:
            self._baton.acquire()
        except BaseException:
            self._no_longer_waits()
            # It may have been let go for this act alone, with requests queued.
            if self._queue and self._baton.acquire(blocking=False):
                self._pass_on()
            raise
        self._no_longer_waits()

    def _no_longer_waits(self) -> None:
        with self._in_flight:
            self._acts_waiting -= 1

    def _pass_on(self) -> None:
        while self._acts_waiting:
            # An act comes before what is queued, and serves that itself: else it might wait for ever.
            self._baton.release()
            if self._acts_waiting or not self._queue or not self._baton.acquire(blocking=False):
                return
        super()._pass_on()

    def _serve_queued(self) -> None:
        """Issue what was queued before this, and return when nothing is in flight."""
        left = len(self._queue)
        while left > 0:
            requests = self._take()
            left -= len(requests)
            self._commit(requests)
        with self._in_flight:
            self._changed.wait_for(lambda: not self._flights)

    def _take_all(self) -> list[Request]:
        """What one commit may take, at the moment when it should go."""
        self._gather()
        return self._take()

    def _take(self) -> list[Request]:
        target = self._settings.slot_bytes_target
        waiting = self._queue
        requests: list[Request] = []
        taken = 0
        while waiting and (not requests or taken + waiting[0].frame_bytes <= target):
            requests.append(waiting.popleft())
            taken += requests[-1].frame_bytes
        with self._in_flight:
            self._queued_bytes -= taken
        return requests

    def _gather(self) -> None:
        """Wait for more, if that costs nobody much: an act and a queue that is full end it at once."""
        with self._in_flight:
            left_s = self._last_issue_s + self._settings.commit_interval_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            self._gathering = True
            try:
                self._changed.wait_for(self._has_gathered, left_s)
            finally:
                self._gathering = False

    def _has_gathered(self) -> bool:
        return (
            not self._queue
            or not self._flights
            or self._queued_bytes >= self._settings.slot_bytes_enough
            or self._acts_waiting > 0
            or self._waiting_for_room > 0
        )

    def _commit(self, requests: list[Request]) -> None:
        """Issue a commit; those who asked for it are told when it has landed."""
        flight = _Flight(requests)
        try:
            try:
                flight.issued = self._issue(requests)
            except HeadwaterError as error:
                # Nothing was issued.
                flight.error = error
            else:
                if flight.issued is not None and self._committed is not None:
                    self._committed(flight.issued.formed, flight.issued.receipts)
        except BaseException as error:
            # A bug, or an interrupt in the middle of a commit: what was issued is not known.
            flight.error = self._device.poison(error)
            raise
        finally:
            self._last_issue_s = self._clock.monotonic_s()
            self._flights.append(flight)
            if flight.error is None and flight.issued is not None:
                # A pipelined device gives no other tickets.
                ticket = cast(FlyingTicket, flight.issued.ticket)
                ticket.on_done(lambda error: self._land(flight, error))
            else:
                self._land(flight, flight.error)

    # Landing ---------------------------------------------------------------------------------

    def _land(self, flight: _Flight, error: BaseException | None) -> None:
        """What becomes of it is known; tell all whose turn has come."""
        flight.error = error
        flight.settled = True
        while self._landed() is not None:
            if not self._delivering.acquire(blocking=False):
                # Whoever delivers looks again after it has let go.
                return
            try:
                while (landed := self._landed()) is not None:
                    self._deliver(landed)
            finally:
                self._delivering.release()

    def _landed(self) -> _Flight | None:
        """The first in log order, if it has come down."""
        with self._in_flight:
            return self._flights[0] if self._flights and self._flights[0].settled else None

    def _deliver(self, flight: _Flight) -> None:
        requests = flight.requests
        try:
            error = flight.error if flight.error is not None else self._failed
            if error is not None:
                if flight.issued is not None and self._failed is None:
                    self._failed = error
                self._counters.requests_refused += len(requests)
                for request in requests:
                    request.refuse(error)
            elif flight.issued is not None:
                self._on_durable()
                self._answer(flight.issued)
            for request in requests:
                self._tell(request)
        finally:
            done_bytes = sum([request.frame_bytes for request in requests])
            with self._in_flight:
                self._flights.popleft()
                self._in_flight_bytes -= done_bytes
                self._room.notify_all()
                self._changed.notify_all()

    def _tell(self, request: Request) -> None:
        try:
            request.deliver()
        except Exception as error:  # what a future's holder wanted to be told could not be said: the others must be
            logger.exception("an answer could not be delivered")
            self._device.poison(error)


def writer_for(
    device: Device,
    *,
    settings: LogSettings,
    clock: Clock,
    counters: LogCounters,
    on_durable: Callable[[], None],
    form: Form = each_alone,
    committed: Committed | None = None,
) -> Writer:
    """The writer that suits a device: one commit at a time, or several."""
    kind: Callable[..., Writer] = Writer if device.window == 1 else PipelinedWriter
    return kind(
        device,
        settings=settings,
        clock=clock,
        counters=counters,
        on_durable=on_durable,
        form=form,
        committed=committed,
    )
