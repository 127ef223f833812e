"""The slots that an owner has on their way: sent by threads, settled in order, told in order.

PROMISE  A ticket is done exactly once, in the order of the slots: when its slot and all before it are confirmed, or
         when it is known that this will not be.
         Whoever finds another's bytes in a slot is fenced: that slot and all after it are not in the log, as long as
         the walk still begins before it (`foreign` is asked, and says so).
         A store that does not answer for long, or a bug: what is on its way may be in it (OutcomeUnknown).
THREADS  One sender for each slot that may be in flight; without threads a slot is sent by whoever commits it.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from headwater.errors import Unavailable
from headwater.ids import Lsn
from headwater.log.asks import Waits, carry_out
from headwater.log.chain import ChainEnd, Sealed
from headwater.log.slot_run import SlotRun
from headwater.log.window import Window, write_slot
from headwater.storage.objects import Objects

Done = Callable[[BaseException | None], None]
Foreign = BaseException
"""What commits are told whose slot holds another's bytes, and those after it."""


class SlotTicket:
    """A commit on its way."""

    def __init__(self, first_lsn: Lsn) -> None:
        self.first_lsn = first_lsn
        self._done = threading.Event()
        self._error: BaseException | None = None
        self._then: Done | None = None
        self._lock = threading.Lock()

    def wait(self) -> None:
        self._done.wait()
        if self._error is not None:
            raise self._error

    def on_done(self, then: Done) -> None:
        """Call this once, when it is durable (None) or will not be: at once where that is known already."""
        with self._lock:
            if not self._done.is_set():
                self._then = then
                return
        then(self._error)

    def finish(self, error: BaseException | None) -> None:
        with self._lock:
            self._error = error
            self._done.set()
            then = self._then
        if then is not None:
            then(error)


@dataclass
class Flight:
    """One commit: what will be true of it once its slot is confirmed."""

    run: SlotRun
    data: bytes
    sealed: Sealed
    append_time_us: int
    ticket: SlotTicket
    sent_s: float = 0.0
    """When it was sent, on the monotonic clock."""
    slot: int = 0

    @property
    def end(self) -> ChainEnd:
        return self.sealed.end


class Flights:
    """What is on its way, and who sends it."""

    def __init__(
        self,
        window: Window[Flight],
        objects: Objects,
        name_of: Callable[[int], str],
        pause: Callable[[float], object],
        *,
        confirmed: Callable[[Flight], None],
        broken: Callable[[BaseException], BaseException],
        foreign: Callable[[int], Foreign],
        threads: bool,
    ) -> None:
        self._window = window
        self._objects = objects
        self._name_of = name_of
        self._pause = pause
        self._confirmed = confirmed
        self._broken = broken
        self._foreign = foreign
        self._changed = threading.Condition()
        self._to_tell: deque[tuple[Flight, BaseException | None]] = deque()
        self._telling = threading.RLock()
        self._told = 0
        self._issued = 0
        self._failed: BaseException | None = None
        self._over = False
        """Nothing will be confirmed any more."""
        self._outbox: queue.SimpleQueue[Flight | None] = queue.SimpleQueue()
        self._senders: list[threading.Thread] = []
        self._threads = threads

    @property
    def next_slot(self) -> int:
        return self._window.next_slot

    @property
    def confirmed_before(self) -> int:
        """Every slot of this owner below this one is confirmed."""
        return self._window.lowest_unconfirmed

    def wait_for_room(self, timeout_s: float) -> None:
        """Return when one more may be sent; raises what ended them all, or Unavailable after a while."""
        with self._changed:
            got = self._changed.wait_for(lambda: self._failed is not None or self._window.has_room, timeout_s)
            if self._failed is not None:
                raise self._failed
            if not got:
                raise Unavailable("too many commits are on their way to the store: nothing was appended; try again")

    def send(self, flight: Flight) -> None:
        """There is room: send it."""
        with self._changed:
            if self._failed is not None:
                raise self._failed
            flight.slot = self._window.issue(flight)
            self._issued += 1
        if not self._threads:
            self._deliver(flight)
            return
        if len(self._senders) < self._window.in_flight:
            sender = threading.Thread(target=self._run, name="headwater-slots", daemon=True)
            self._senders.append(sender)
            sender.start()
        self._outbox.put(flight)

    def settle(self) -> None:
        """Return when nothing is on its way any more, and everybody has been told."""
        with self._changed:
            self._changed.wait_for(lambda: self._told == self._issued)

    def fail(self, error: BaseException) -> None:
        """None of what is on its way will be told to be durable."""
        with self._changed:
            self._fail(error)
            self._changed.notify_all()
        self._tell()

    def stop(self) -> None:
        for _ in self._senders:
            self._outbox.put(None)
        for sender in self._senders:
            if sender is not threading.current_thread():
                sender.join()
        self._senders.clear()

    def _run(self) -> None:
        while True:
            flight = self._outbox.get()
            if flight is None:
                return
            self._deliver(flight)

    def _deliver(self, flight: Flight) -> None:
        try:
            asking = write_slot(self._name_of(flight.slot), flight.data)
            ours = carry_out(asking, self._objects, Waits(self._pause).unsure)
            # Asked before anybody is told: see the device, which knows what a foreign slot means.
            why = None if ours else self._foreign(flight.slot)
        except BaseException as error:
            # Whatever it was: nobody knows whether the slot will hold it, so nothing is promised any more.
            self.fail(self._broken(error))
            if not isinstance(error, Exception):
                raise
            return
        with self._changed:
            if not self._over:
                for each in self._window.settle(flight.slot, ours):
                    self._confirmed(each)
                    self._to_tell.append((each, None))
                foreign = self._window.foreign
                if why is not None and foreign == flight.slot:
                    # The lowest one says what became of all after it.
                    self._failed = why
                if foreign is not None:
                    # What was sent before it may still be confirmed, and is waited for.
                    assert self._failed is not None
                    if self._window.lowest_unconfirmed >= foreign:
                        self._fail(self._failed)
            self._changed.notify_all()
        self._tell()

    def _fail(self, error: BaseException) -> None:
        self._failed = self._failed if self._failed is not None else error
        self._over = True
        for each in self._window.give_up():
            self._to_tell.append((each, error))

    def _tell(self) -> None:
        """In order, and outside the lock: whoever is told may look at the log."""
        with self._telling:
            while True:
                with self._changed:
                    if not self._to_tell:
                        return
                    flight, error = self._to_tell.popleft()
                flight.ticket.finish(error)
                with self._changed:
                    self._told += 1
                    self._changed.notify_all()
