"""The log as its users have it: append frames, read frames, find them again.

    with open_log(DiskFiles("data"), "log") as log:
        receipt = log.append([Draft(Kind.DATA, b"...", topic_number=1, row_count=1)])
        for frame in log.read(receipt.first_lsn): ...

PROMISE  Opening reads and claims nothing.  The first append takes the lock, recovers and raises the epoch.
         Other processes may open the same log at any time and see exactly what is durable.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

from headwater.clock import Clock, Entropy, SystemClock, system_entropy
from headwater.errors import Closed
from headwater.frames.frame import Header
from headwater.ids import FIRST_LSN, Lsn
from headwater.log.device import Frame, FrameRef, SegmentInfo
from headwater.log.devices import LogDevice, make_device
from headwater.log.drafts import Draft, Receipt
from headwater.log.object_device import ObjectDevice
from headwater.log.ownership import KnownOffsets
from headwater.log.pipelining import writer_for
from headwater.log.recovery import RecoveryReport
from headwater.log.segment import Memory, cleared_memory
from headwater.log.segments import LogPlace
from headwater.log.writer import Committed, Form, Request, each_alone
from headwater.metrics import LogCounters
from headwater.settings import LogSettings
from headwater.storage.files import Files

T = TypeVar("T")


class FrameLog:
    """An open log."""

    def __init__(
        self,
        device: LogDevice,
        *,
        settings: LogSettings,
        clock: Clock,
        counters: LogCounters,
        form: Form = each_alone,
        committed: Committed | None = None,
    ) -> None:
        self._device = device
        self._settings = settings
        self.clock = clock
        self._durable_changed = threading.Condition()
        self._followers = 0
        self._closed = threading.Event()
        self.counters = counters
        self._writer = writer_for(
            device,
            settings=settings,
            clock=clock,
            counters=counters,
            on_durable=self._tell_followers,
            form=form,
            committed=committed,
        )

    # Appending -------------------------------------------------------------------------------

    def append(self, drafts: Sequence[Draft]) -> Receipt:
        """Append one write: all its frames or none, durable when this returns."""
        return self._writer.append(drafts)

    def append_future(self, drafts: Sequence[Draft]) -> Future[Receipt]:
        """Append one write without waiting; the future is done when it is durable."""
        return self._writer.append_future(drafts)

    def submit(self, request: Request) -> Any:
        """Append what a request asks for; its answer, once that is durable."""
        return self._writer.submit(request)

    def submit_future(self, request: Request) -> None:
        """The same for a request that carries a future."""
        self._writer.submit_future(request)

    def claim(self) -> RecoveryReport:
        """Become the owner now, and say what recovery found."""
        self._writer.claim()
        return self._device.report

    def roll(self) -> Lsn | None:
        """Seal the active segment; returns its first LSN, or nothing where it was empty."""
        return self._writer.under_baton(self._device.roll)

    # Reading ---------------------------------------------------------------------------------

    def durable_lsn(self) -> Lsn:
        """How far the log is durable, and can be read."""
        return self._device.refresh()

    def read(
        self,
        from_lsn: Lsn = FIRST_LSN,
        to_lsn: Lsn | None = None,
        *,
        follow: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[Frame]:
        """The durable frames from an LSN on.  With `follow` it waits for more, until `to_lsn`, until the log is
        closed, or until nothing has come for `timeout_s`."""
        lsn = from_lsn
        durable = self.durable_lsn()
        while True:
            last = durable if to_lsn is None else Lsn(min(durable, to_lsn))
            for frame in self._device.frames(lsn, last):
                yield frame
                lsn = Lsn(frame.header.lsn + 1)
            if not follow or (to_lsn is not None and lsn > to_lsn) or not self.wait_beyond(last, timeout_s):
                return
            # As the wait found it: a look of its own could meet a log that was closed since.
            durable = self._device.durable()

    def read_topic(
        self,
        topic_number: int,
        from_lsn: Lsn = FIRST_LSN,
        to_lsn: Lsn | None = None,
        *,
        follow: bool = False,
        timeout_s: float | None = None,
    ) -> Iterator[Frame]:
        """The durable frames with a topic's rows, DATA and SPARSE, from an LSN on, in LSN order; what the log has let
        go of is passed over.  With `follow` as `read`: frames of other topics do not put off its `timeout_s`."""
        lsn = from_lsn
        waiting_since_s: float | None = None
        durable = self.durable_lsn()
        while True:
            last = durable if to_lsn is None else Lsn(min(durable, to_lsn))
            for frame in self._device.frames_of_topic(topic_number, lsn, last):
                yield frame
                waiting_since_s = None
            lsn = Lsn(max(lsn, last + 1))
            if not follow or (to_lsn is not None and lsn > to_lsn):
                return
            now_s = self.clock.monotonic_s()
            waiting_since_s = now_s if waiting_since_s is None else waiting_since_s
            left_s = None if timeout_s is None else timeout_s - (now_s - waiting_since_s)
            if (left_s is not None and left_s <= 0) or not self.wait_beyond(last, left_s):
                return
            durable = self._device.durable()

    def read_partition(self, topic_number: int, partition: int, offset: int = 0) -> Iterator[Frame]:
        """The durable frames of one partition that hold this offset or a later one."""
        self._device.refresh()
        return self._device.frames_of(topic_number, partition, offset)

    def find(self, topic_number: int, partition: int, offset: int) -> FrameRef | None:
        """Where the first frame is that holds this offset of a partition, or a later one."""
        self._device.refresh()
        return self._device.find(topic_number, partition, offset)

    def find_header(self, topic_number: int, partition: int, offset: int) -> Header | None:
        """The header of that frame; its body is not read."""
        self._device.refresh()
        return self._device.find_header(topic_number, partition, offset)

    def first_offset(self, topic_number: int, partition: int) -> int | None:
        """The offset with which the first durable frame of a partition begins; nothing where none is left."""
        header = self.find_header(topic_number, partition, 0)
        return None if header is None else header.base_offset

    def next_offset(self, topic_number: int, partition: int) -> int:
        """The offset after the last row of a partition, whether or not the log still holds that row."""
        self._device.refresh()
        return self._device.next_offset(topic_number, partition)

    def find_time(self, time_us: int) -> Lsn | None:
        """The first LSN appended at or after this time."""
        self._device.refresh()
        return self._device.find_time(time_us)

    def _tell_followers(self) -> None:
        if self._followers:
            with self._durable_changed:
                self._durable_changed.notify_all()

    def wait_beyond(self, lsn: Lsn, timeout_s: float | None) -> bool:
        """Wait until something after `lsn` is durable; False when there will not be."""
        waited_s = 0.0
        poll_s = self._settings.follow_poll_s
        while not self._closed.is_set():
            try:
                if self._device.refresh() > lsn:
                    return True
            except Closed:
                if not self._writer.is_closed:
                    raise
                # It was closed here in the middle of the look.
                return False
            if timeout_s is not None and waited_s >= timeout_s:
                return False
            if self._device.claimed:
                with self._durable_changed:
                    self._followers += 1
                    try:
                        self._durable_changed.wait_for(
                            lambda: self._closed.is_set() or self._device.durable() > lsn, timeout_s
                        )
                    finally:
                        self._followers -= 1
                if timeout_s is not None:
                    waited_s = timeout_s
            else:
                self._closed.wait(poll_s)
                waited_s += poll_s
        return False

    # About it --------------------------------------------------------------------------------

    @property
    def device(self) -> LogDevice:
        """What holds the log: for rewriting and deletion."""
        return self._device

    @property
    def pipelined(self) -> bool:
        """Commits are issued before those before them are durable: what `committed` was told is ahead of the log."""
        return self._writer.pipelined

    @property
    def is_on_a_store(self) -> bool:
        """It lies in a bucket, where a fence makes an owner rather than a lock."""
        return isinstance(self._device, ObjectDevice)

    @property
    def recovery_report(self) -> RecoveryReport:
        return self._device.report

    def segments(self) -> Sequence[SegmentInfo]:
        self._device.refresh()
        return self._device.segments()

    def exclusively(self, act: Callable[[], T]) -> T:
        """Do something that nobody may append beside."""
        return self._writer.under_baton(act)

    def close(self) -> None:
        """Serve what is queued, say in the mark that the close was clean, and let go.  Twice is nothing."""
        try:
            self._writer.close(self._device.close)
        finally:
            self._closed.set()
            with self._durable_changed:
                self._durable_changed.notify_all()

    def __enter__(self) -> Self:
        if self._closed.is_set():
            raise Closed("this log is closed")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_log(
    files: Files,
    directory: str = "log",
    *,
    settings: LogSettings | None = None,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
    log_start: Callable[[], int] | int = 1,
    known_offsets: KnownOffsets | None = None,
    undamaged_part: bool = False,
    form: Form = each_alone,
    committed: Committed | None = None,
    memory: Memory = cleared_memory,
) -> FrameLog:
    """Open a log for reading; the first append makes this process its owner.

    `log_start` is the first LSN that the log must still hold; it rises with each deletion, and whoever records
    deletions knows it.  `known_offsets` gives next offsets that are remembered elsewhere, so that none is given
    out twice even if an index is lost.  With `undamaged_part` a halted log can be read up to its damage, not written.
    `form` makes writes of requests and `committed` is told of them (writer.py).  The bodies of frames that are read lie
    in what `memory` gives.
    """
    settings = settings if settings is not None else LogSettings()
    clock = clock if clock is not None else SystemClock()
    counters = LogCounters()
    start = log_start if callable(log_start) else _constant(log_start)
    device = make_device(
        LogPlace(files, directory, settings, counters, memory),
        clock=clock,
        entropy=entropy,
        log_start=start,
        known_offsets=known_offsets,
    )
    device.recover(undamaged_part=undamaged_part)
    return FrameLog(device, settings=settings, clock=clock, counters=counters, form=form, committed=committed)


def _constant(value: int) -> Callable[[], int]:
    return lambda: value
