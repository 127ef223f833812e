"""One sync for many appends.

PROMISE  An append is acknowledged only after a sync that began after its write (G1).
ORDER    Requests reach the log in the order in which they were queued; answers leave in log order.
BATON    Whoever holds the baton commits for everybody who is queued.  A blocking append takes a free baton
         itself and hands it to the next waiting thread when it is done; futures are served by a background
         thread that takes the same baton.  One commit is in flight at a time; where the device takes several, see
         pipelining.py.
HOOK     `form` turns queued requests into writes, under the baton: the place to check and refuse single
         requests, and to join small ones.  The default makes each request a write of its own.
NOT HERE Retrying a failed sync: there is no such thing, see Poisoned in errors.py.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from headwater.clock import Clock
from headwater.errors import Closed, HeadwaterError, Unavailable
from headwater.frames.bodies import pack_epoch
from headwater.frames.frame import Kind
from headwater.ids import Lsn, Offset
from headwater.log.device import Claim, Device, Ticket
from headwater.log.drafts import Draft, Receipt, check_write
from headwater.metrics import LogCounters
from headwater.settings import LogSettings

logger = logging.getLogger("headwater.log")

_DATA = int(Kind.DATA)
T = TypeVar("T")


class Request:
    """One write that somebody waits for."""

    __slots__ = (
        "_future",
        "_wake",
        "drafts",
        "error",
        "frame_bytes",
        "leads",
        "queued_s",
        "receipt",
        "waiting",
    )

    def __init__(self, drafts: Sequence[Draft], frame_bytes: int, future: Future[Any] | None) -> None:
        self.drafts = drafts
        self.frame_bytes = frame_bytes
        self.queued_s = 0.0
        """When it began to wait, on the monotonic clock."""
        self.receipt: Receipt | None = None
        self.error: BaseException | None = None
        self.waiting = future is None
        """A thread waits here, so the baton can be handed to it."""
        self.leads = False
        self._future = future
        self._wake = threading.Lock()
        self._wake.acquire()

    @property
    def done(self) -> bool:
        """What becomes of it is known; whoever waits may still have to be told."""
        return self.receipt is not None or self.error is not None

    def result(self, receipt: Receipt) -> Any:
        """What the caller is told; a kind of request with an answer of its own says it here."""
        return receipt

    def answer(self, receipt: Receipt) -> None:
        """It is done; whoever waits is told when the writer delivers it."""
        self.receipt = receipt

    def refuse(self, error: BaseException) -> None:
        """Refuse this request alone; the others of the commit go on."""
        self.error = error

    def deliver(self) -> None:
        """Tell whoever waits; a refusal comes before an answer."""
        future = self._future
        if future is None:
            if self.waiting:
                self.wake()
        elif self.error is not None:
            future.set_exception(self.error)
        else:
            assert self.receipt is not None
            future.set_result(self.result(self.receipt))

    def wake(self) -> None:
        self._wake.release()

    def wait(self) -> None:
        self._wake.acquire()


class Sequencer:
    """Gives out offsets while a commit is formed; they count only if the commit succeeds."""

    def __init__(self, device: Device, append_time_us: int, lead_bytes: int) -> None:
        self.append_time_us = append_time_us
        """What every frame of the commit will say."""
        self._device = device
        self._lead_bytes = lead_bytes
        self._committed = device.next_offsets()
        self._taken: dict[int, int] = {}

    def make_room(self, size_bytes: int) -> Lsn:
        """Roll now if a commit of this size would: the first LSN of the segment into which it will go."""
        return self._device.make_room(size_bytes + self._lead_bytes, self.append_time_us)

    def next_offset(self, key: int) -> int:
        taken = self._taken.get(key)
        return self._committed.get(key, 0) if taken is None else taken

    def take(self, draft: Draft) -> int:
        """The base offset of this draft."""
        if draft.kind != _DATA:
            return 0
        return self.take_rows(draft.topic_number << 32 | draft.partition, draft.row_count)

    def take_rows(self, key: int, rows: int) -> int:
        """The offset of the first of these rows."""
        base = self.next_offset(key)
        self._taken[key] = base + rows
        return base


@dataclass(slots=True)
class FormedWrite:
    """One write, and the requests that it answers."""

    drafts: Sequence[Draft]
    base_offsets: Sequence[int]
    requests: Sequence[Request]


Form = Callable[[Sequence[Request], Sequencer], list[FormedWrite]]
"""Makes writes of requests, under the baton.  It may refuse or answer some itself, and join others into one write."""

Committed = Callable[[Sequence[FormedWrite], Sequence[Receipt]], None]
"""Is told of the writes of a commit, under the baton, before anybody is answered and before the next one is formed:
when it has become durable, or, where several are in flight, when it was issued."""


@dataclass(slots=True)
class Issued:
    """A commit that the device has taken."""

    ticket: Ticket
    formed: Sequence[FormedWrite]
    receipts: Sequence[Receipt]


def each_alone(requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
    """Every request is a write of its own."""
    take = sequencer.take
    return [FormedWrite(r.drafts, [take(draft) for draft in r.drafts], (r,)) for r in requests]


class Writer:
    """The one way into a log.  Safe for any number of threads."""

    pipelined = False

    def __init__(
        self,
        device: Device,
        *,
        settings: LogSettings,
        clock: Clock,
        counters: LogCounters,
        on_durable: Callable[[], None],
        form: Form = each_alone,
        committed: Committed | None = None,
    ) -> None:
        self._device = device
        self._settings = settings
        self._clock = clock
        self._counters = counters
        self._on_durable = on_durable
        self._form = form
        self._committed = committed
        self._pid = os.getpid()
        self._queue: deque[Request] = deque()
        self._baton = threading.Lock()
        self._switch = threading.Lock()
        self._in_flight = threading.Lock()
        self._room = threading.Condition(self._in_flight)
        self._waiting_for_room = 0
        self._in_flight_bytes = 0
        self._epoch_to_write: Claim | None = None
        self._epoch_begun = 0
        """The last epoch whose first frame was given to the device, or is there."""
        self._last_commit_s = 0.0
        self._closed = False
        self._stopped = False
        self._signals: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._background: threading.Thread | None = None
        self._mark_watched = False

    def append(self, drafts: Sequence[Draft]) -> Receipt:
        """Append one write and return when it is durable."""
        receipt: Receipt = self._wait_for(Request(drafts, self._check(drafts), None))
        return receipt

    def submit(self, request: Request) -> Any:
        """Append what a request asks for and return its answer when that is durable."""
        self._check_usable()
        return self._wait_for(request)

    def _wait_for(self, request: Request) -> Any:
        try:
            self._enqueue(request)
            if self._baton.acquire(blocking=False):
                request.leads = True
            else:
                request.wait()
            if request.leads:
                self._lead(request)
        except BaseException:
            self._stop_waiting(request)
            raise
        if request.error is not None:
            raise request.error
        assert request.receipt is not None
        return request.result(request.receipt)

    def append_future(self, drafts: Sequence[Draft]) -> Future[Receipt]:
        """Append one write; the future is done when it is durable.  What is called back by it runs in the middle of
        the writer's work, and must not wait for the log."""
        future: Future[Receipt] = Future()
        future.set_running_or_notify_cancel()
        self._queue_future(Request(drafts, self._check(drafts), future))
        return future

    def submit_future(self, request: Request) -> None:
        """Queue a request that carries a future, which is done when what it asks for is durable."""
        self._check_usable()
        self._queue_future(request)

    def _queue_future(self, request: Request) -> None:
        self._enqueue(request)
        if self._baton.acquire(blocking=False):
            self._signal("lead")

    def under_baton(self, act: Callable[[], T]) -> T:
        """Do something that nobody may append beside: a roll, a deletion, a replaced segment."""
        self._check_usable()
        self._take_baton()
        try:
            self._ensure_claimed()
            return act()
        finally:
            self._pass_on()

    @property
    def is_closed(self) -> bool:
        """`close` was called, though it may not be done."""
        return self._closed

    def claim(self) -> None:
        """Become the owner now rather than at the first append."""
        self.under_baton(lambda: None)

    def close(self, last_act: Callable[[], None]) -> None:
        """Serve what is queued, do the last act, then stop.  A request that comes too late is refused as Closed,
        by the device.  In a forked child nothing is done: the log is its parent's."""
        if self._closed or os.getpid() != self._pid:
            self._closed = True
            return
        self._closed = True
        self._take_baton()
        try:
            self._serve_queued()
            last_act()
        finally:
            self._pass_on()
            with self._switch:
                self._stopped = True
                background = self._background
            if background is not None:
                self._signals.put("stop")
                background.join()

    # Getting in ------------------------------------------------------------------------------

    def _check(self, drafts: Sequence[Draft]) -> int:
        """The bytes that the write will take, if it may be appended."""
        self._check_usable()
        return check_write(drafts, self._settings)

    def _enqueue(self, request: Request) -> None:
        size = request.frame_bytes
        request.queued_s = self._clock.monotonic_s()
        with self._in_flight:
            if not self._has_room(size):
                self._wait_for_room(size)
            self._queue.append(request)
            self._in_flight_bytes += size

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise Closed("this log was opened by another process, which forked this one: open it here", pid=self._pid)
        if self._closed:
            raise Closed("this log is closed")

    def _has_room(self, size: int) -> bool:
        """One request is let in however large it is, so that none can wait for ever."""
        in_flight = self._in_flight_bytes
        return not in_flight or in_flight + size <= self._settings.in_flight_bytes_max

    def _wait_for_room(self, size: int) -> None:
        self._waiting_for_room += 1
        try:
            got_room = self._room.wait_for(lambda: self._has_room(size), self._settings.append_timeout_s)
        finally:
            self._waiting_for_room -= 1
        if not got_room:
            self._counters.requests_refused += 1
            raise Unavailable(
                "too many bytes are waiting for a sync: nothing was appended; try again",
                waited_s=self._settings.append_timeout_s,
                in_flight_bytes=self._in_flight_bytes,
            )

    def _stop_waiting(self, request: Request) -> None:
        """An interrupt: the request may be queued and stays so, but the baton must not end up here."""
        with self._switch:
            request.waiting = False
            leads = request.leads
        if leads:
            self._lead(request)

    # Holding the baton -----------------------------------------------------------------------

    def _take_baton(self) -> None:
        """For an act of its own, and not for a request."""
        self._baton.acquire()

    def _lead(self, leader: Request | None = None) -> None:
        """Commit everything that is queued, then hand the baton on."""
        try:
            if leader is not None:
                # From here on the baton is passed on whatever happens.
                leader.leads = False
            requests = self._take_all()
            if requests:
                self._commit(requests)
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        while True:
            if not self._queue:
                self._baton.release()
                # Somebody may have queued between the look and the release, and found the baton taken.
                if not self._queue or not self._baton.acquire(blocking=False):
                    return
                continue
            with self._switch:
                following = self._queue[0]
                if following.waiting:
                    following.leads = True
                    following.wake()
                    return
            self._signal("lead")
            return

    def _serve_queued(self) -> None:
        while self._queue:
            self._commit(self._take_all())

    def _take_all(self) -> list[Request]:
        """What is queued: never more than may be in flight."""
        waiting = self._queue
        requests: list[Request] = []
        while waiting:
            requests.append(waiting.popleft())
        return requests

    def _commit(self, requests: list[Request]) -> None:
        try:
            self._commit_formed(requests)
        except HeadwaterError as error:
            self._refuse_all(requests, error)
        except BaseException as error:
            # A bug, or an interrupt in the middle of a commit: what reached the disk is not known.
            self._refuse_all(requests, self._device.poison(error))
            raise
        finally:
            # Only now, for a refusal too: it may rest on what others of the same commit ask for (the next offset that
            # it names), and that must be durable before anybody hears of it.
            for request in requests:
                request.deliver()
            done_bytes = sum([request.frame_bytes for request in requests])
            with self._in_flight:
                self._in_flight_bytes -= done_bytes
                if self._waiting_for_room:
                    self._room.notify_all()

    def _commit_formed(self, requests: list[Request]) -> None:
        issued = self._issue(requests)
        if issued is None:
            return
        issued.ticket.wait()
        if self._committed is not None:
            self._committed(issued.formed, issued.receipts)
        self._on_durable()
        self._answer(issued)
        self._last_commit_s = self._clock.monotonic_s()
        if not self._mark_watched and self._settings.mark_sync_idle_s > 0:
            self._mark_watched = True
            self._signal("mark")

    def _issue(self, requests: list[Request]) -> Issued | None:
        """Form a commit and give it to the device; nothing where no request has come through."""
        device = self._device
        self._ensure_claimed()
        # Strictly rising, so that no two attempts can ever make the same frame: a write that was taken back
        # cannot be mistaken for a part of the one that follows it.
        append_time_us = max(self._clock.now_us(), device.last_append_time_us() + 1, self._attempt_time_us + 1)
        self._attempt_time_us = append_time_us
        lead: list[Draft] = []
        if self._epoch_to_write is not None:
            claim = self._epoch_to_write
            lead.append(Draft(Kind.EPOCH, pack_epoch(claim.epoch, claim.token)))
        lead_frames = len(lead)
        sequencer = Sequencer(device, append_time_us, sum([draft.frame_size for draft in lead]))
        formed = self._form(requests, sequencer)
        if not formed:
            return None
        writes = [(write.drafts, write.base_offsets) for write in formed]
        if lead:
            writes.insert(0, (lead, (0,)))
        ticket = device.commit(writes, append_time_us)
        if self._epoch_to_write is not None:
            self._epoch_begun = self._epoch_to_write.epoch
            self._epoch_to_write = None
        lsn = ticket.first_lsn + lead_frames
        receipts = []
        for write in formed:
            last_lsn = lsn + len(write.drafts) - 1
            receipts.append(Receipt(Lsn(lsn), Lsn(last_lsn), tuple(map(Offset, write.base_offsets)), append_time_us))
            lsn = last_lsn + 1
        return Issued(ticket, formed, receipts)

    def _answer(self, issued: Issued) -> None:
        counters = self._counters
        queued_s = [request.queued_s for write in issued.formed for request in write.requests]
        counters.append_durations.observe(self._clock.monotonic_s() - min(queued_s), times=len(queued_s))
        for write, receipt in zip(issued.formed, issued.receipts, strict=True):
            for request in write.requests:
                counters.appends += 1
                request.answer(receipt)
            for draft in write.drafts:
                counters.append_rows += draft.row_count

    _attempt_time_us = 0

    def _refuse_all(self, requests: list[Request], error: BaseException) -> None:
        for request in requests:
            if not request.done:
                self._counters.requests_refused += 1
                request.refuse(error)

    def _ensure_claimed(self) -> None:
        claim = self._device.claim()
        if claim.epoch > self._epoch_begun and not claim.begun:
            self._epoch_to_write = claim

    # The background thread -------------------------------------------------------------------

    def _signal(self, what: str) -> None:
        """Ask the background thread for something; who asks it to lead holds the baton."""
        with self._switch:
            if not self._stopped:
                if self._background is None:
                    self._background = threading.Thread(target=self._run, name="headwater-writer", daemon=True)
                    self._background.start()
                self._signals.put(what)
                return
        # Nothing is committed any more, so nobody asks for the mark.
        assert what == "lead"
        self._lead()

    def _run(self) -> None:
        idle_s = self._settings.mark_sync_idle_s
        while True:
            try:
                what = self._signals.get(timeout=idle_s if self._mark_watched else None)
            except queue.Empty:
                what = "mark"
            if what == "stop":
                return
            if what == "lead":
                self._lead_in_background()
            elif self._clock.monotonic_s() - self._last_commit_s >= idle_s:
                self._sync_mark_if_free()

    def _lead_in_background(self) -> None:
        try:
            self._lead()
        except Exception:
            # A bug in the middle of a commit.  Everybody in it has been told; those who come later must be told too.
            logger.exception("a commit ended half-way")

    def _sync_mark_if_free(self) -> None:
        """The log is idle: make the mark durable, unless an append has just begun."""
        if not self._baton.acquire(blocking=False):
            return
        try:
            self._mark_watched = False
            self._device.sync_mark()
        except HeadwaterError:
            logger.exception("the mark could not be synced")
        finally:
            self._pass_on()
