"""A device that takes several commits and makes them durable when a test says so: what a bucket does, on files.

What was issued and has not landed is in no file: a reader does not see it, and a process that ends here has lost it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headwater.clock import Clock, SystemClock
from headwater.errors import HeadwaterError, Unavailable
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log import FrameLog
from headwater.log.device import Claim, PlacedWrite
from headwater.log.file_device import FileDevice
from headwater.log.segments import LogPlace
from headwater.metrics import LogCounters
from headwater.settings import LogSettings
from headwater.storage.files import Files
from tests.unit.log.small_logs import SETTINGS, WAIT_S, World

Callback = Callable[[BaseException | None], None]


@dataclass
class Held:
    """A commit that was issued: its own ticket."""

    first_lsn: Lsn
    writes: Sequence[PlacedWrite]
    append_time_us: int
    stored: bool = False
    callback: Callback | None = None

    @property
    def bodies(self) -> list[bytes]:
        """Of its data frames."""
        return [bytes(draft.body) for drafts, _ in self.writes for draft in drafts if draft.kind == Kind.DATA]

    def on_done(self, callback: Callback) -> None:
        assert self.callback is None
        self.callback = callback

    def wait(self) -> None:
        raise AssertionError("nobody waits for a ticket where several commits are in flight")


class HeldDevice(FileDevice):
    """See device.PipelinedDevice."""

    window = 4
    begins_its_epochs = False
    at_once = False
    """A commit is durable before commit() returns, as with a store that is asked without threads."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.held: list[Held] = []
        """Issued and not landed, in log order."""
        self.issues = 0
        self._issued_offsets: dict[int, int] | None = None
        self._changed = threading.Condition()
        self._telling = threading.RLock()
        self._landing = False
        self._ended: HeadwaterError | None = None

    def _check_usable(self) -> None:
        super()._check_usable()
        if self._ended is not None:
            raise self._ended

    def claim(self) -> Claim:
        claim = super().claim()
        return replace(claim, begun=True) if self.begins_its_epochs else claim

    # As issued -------------------------------------------------------------------------------
    #
    # Asked for by whoever forms a commit, while another thread lands an earlier one: the lock keeps what is of the one
    # from the other.

    def next_lsn(self) -> Lsn:
        with self._changed:
            lsn = super().next_lsn()
            for each in self.held:
                lsn = Lsn(each.first_lsn + sum(len(drafts) for drafts, _ in each.writes))
            return lsn

    def next_offsets(self) -> dict[int, int]:
        with self._changed:
            if self._landing:
                return super().next_offsets()
            if self._issued_offsets is None:
                self._issued_offsets = dict(super().next_offsets())
            return self._issued_offsets

    def last_append_time_us(self) -> int:
        with self._changed:
            return self.held[-1].append_time_us if self.held else super().last_append_time_us()

    def make_room(self, size: int, append_time_us: int) -> Lsn:
        """It rolls when it lands, so that a test with schemas keeps its segments large."""
        with self._changed:
            if self._landing:
                return super().make_room(size, append_time_us)
            return Lsn(self._owned().active.first_lsn)

    def commit(self, writes: Sequence[PlacedWrite], append_time_us: int) -> Any:
        self._owned()
        offsets = self.next_offsets()
        with self._changed:
            if not self._changed.wait_for(lambda: len(self.held) < self.window, self._place.settings.append_timeout_s):
                raise Unavailable("too many commits are on their way: nothing was appended; try again")
            ticket = Held(self.next_lsn(), writes, append_time_us)
            for drafts, base_offsets in writes:
                for draft, base in zip(drafts, base_offsets, strict=True):
                    if draft.kind == Kind.DATA:
                        offsets[draft.topic_number << 32 | draft.partition] = base + draft.row_count
            self.held.append(ticket)
            self.issues += 1
            self._changed.notify_all()
        if self.at_once:
            ticket.stored = True
            self._show_stored()
            return Landed(ticket.first_lsn)
        return ticket

    # What a test says ------------------------------------------------------------------------

    def wait_until_issued(self, count: int) -> None:
        """Until so many commits were ever issued, and are asked about."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.issues >= count, WAIT_S), f"{self.issues} issued, not {count}"

    def land(self, count: int = 1) -> None:
        """The next in log order become durable."""
        for _ in range(count):
            self.store(self.held[0])

    def store(self, which: Held) -> None:
        """The store holds this one; it is durable when all before it are."""
        with self._telling:
            which.stored = True
            self._show_stored()

    def _show_stored(self) -> None:
        with self._telling:
            while self.held and self.held[0].stored:
                with self._changed:
                    first = self.held[0]
                    self._landing = True
                    try:
                        ticket = super().commit(first.writes, first.append_time_us)
                    finally:
                        self._landing = False
                    assert ticket.first_lsn == first.first_lsn
                    self.held.pop(0)
                    self._changed.notify_all()
                self._call_back(first, None)

    def fail(self, error: BaseException, *, told: Callable[[int], BaseException] | None = None) -> None:
        """None of those in flight will land; each is told this, or what is said of its number."""
        with self._telling:
            if isinstance(error, HeadwaterError):
                self._ended = error
            else:
                self.poison(error)
            with self._changed:
                failed, self.held = self.held, []
                self._changed.notify_all()
            for number, each in enumerate(failed):
                self._call_back(each, error if told is None else told(number))

    def _call_back(self, ticket: Held, error: BaseException | None) -> None:
        with self._changed:
            if not self.at_once:
                assert self._changed.wait_for(lambda: ticket.callback is not None, WAIT_S), "nobody asked to be told"
        if ticket.callback is not None:
            ticket.callback(error)


class Landed:
    """The ticket of a commit whose outcome is known."""

    def __init__(self, first_lsn: Lsn) -> None:
        self.first_lsn = first_lsn

    def on_done(self, callback: Callback) -> None:
        callback(None)

    wait = Held.wait


def held_log(
    world: World,
    *,
    files: Files | None = None,
    settings: LogSettings = SETTINGS,
    clock: Clock | None = None,
    device_of: type[HeldDevice] = HeldDevice,
    **more: Any,
) -> tuple[HeldDevice, FrameLog]:
    """An open log over such a device."""
    counters = LogCounters()
    clock = clock if clock is not None else SystemClock()
    device = device_of(
        LogPlace(files if files is not None else world.files, "log", settings, counters),
        clock=clock,
        entropy=world.chance.randbytes,
        log_start=lambda: 1,
    )
    device.recover()
    return device, FrameLog(device, settings=settings, clock=clock, counters=counters, **more)
