"""The seam between the log and where its commits go: a disk today, an object store behind the same verbs.

recover()         read what is there, change nothing
claim()           become the one owner: recover for writing, raise the epoch, fence out the others
commit(...)       make writes durable together, in order; the ticket says when
                  (where `window` is above 1 it returns at once, and so many commits may be in flight)
durable()         how far the log is durable, and visible
segments()        what holds it
frames(...)       read it
forget(...)       let go of a prefix

One contract suite runs against every implementation (tests/contract/test_device.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.errors import OutcomeUnknown
from headwater.frames.frame import Header
from headwater.ids import Epoch, Lsn
from headwater.log.drafts import Draft
from headwater.log.recovery import RecoveryReport

PlacedWrite = tuple[Sequence[Draft], Sequence[int]]
"""The drafts of one write, and the base offset of each."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame that was read and checked."""

    header: Header
    body: memoryview
    segment: str
    position: int

    @property
    def lsn(self) -> Lsn:
        return Lsn(self.header.lsn)


@dataclass(frozen=True, slots=True)
class FrameRef:
    """Where a frame is: enough to read it again."""

    lsn: Lsn
    segment: str
    position: int


@dataclass(frozen=True, slots=True)
class TopicInSegment:
    frames: int
    bytes: int
    rows: int
    last_lsn: Lsn


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    """A segment, for plans and for people."""

    name: str
    first_lsn: Lsn
    last_lsn: Lsn
    generation: int
    bytes: int
    created_us: int
    last_append_time_us: int
    sealed: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """What an owner has got: its epoch, and a token that only it knows."""

    epoch: Epoch
    token: bytes
    begun: bool = False
    """The epoch's first frame is durable already, and the writer writes none."""


class Ticket(Protocol):
    """A commit on its way."""

    @property
    def first_lsn(self) -> Lsn: ...

    def wait(self) -> None:
        """Return when the commit is durable; raise what became of it otherwise."""
        ...


class FlyingTicket(Ticket, Protocol):
    """A commit that was not durable yet when commit() returned."""

    def on_done(self, callback: Callable[[BaseException | None], None]) -> None:
        """Call back once, with nothing when the commit is durable and visible, or with what became of it.  Callbacks
        come in log order, each after the one before it has returned: from the device's threads, or at once in this one
        where the outcome is known.  Asked for once a ticket, before the next commit is issued."""
        ...


class Device(Protocol):
    @property
    def window(self) -> int:
        """How many commits may be in flight.  Above 1 the device is a PipelinedDevice."""
        ...

    @property
    def report(self) -> RecoveryReport: ...

    def recover(self) -> RecoveryReport: ...

    def claim(self) -> Claim: ...

    @property
    def claimed(self) -> bool: ...

    def next_lsn(self) -> Lsn:
        """The LSN that the next frame of this owner will get."""
        ...

    def last_append_time_us(self) -> int: ...

    def next_offsets(self) -> dict[int, int]:
        """Every partition's next offset, by index.partition_key; the owner's own, not to be changed."""
        ...

    def make_room(self, size: int, append_time_us: int) -> Lsn:
        """Roll if a commit of this size and time would; returns the first LSN of the segment it will go into."""
        ...

    def commit(self, writes: Sequence[PlacedWrite], append_time_us: int) -> Ticket: ...

    def durable(self) -> Lsn: ...

    def refresh(self) -> Lsn:
        """Look again how far the log is durable; for readers that do not own it."""
        ...

    def roll(self) -> Lsn | None: ...

    def segments(self) -> Sequence[SegmentInfo]: ...

    def topics_in(self, segment: SegmentInfo) -> dict[int, TopicInSegment]: ...

    def frames(self, from_lsn: Lsn, to_lsn: Lsn) -> Iterator[Frame]: ...

    def frames_of_topic(self, topic_number: int, from_lsn: Lsn, to_lsn: Lsn) -> Iterator[Frame]: ...

    def frames_of(self, topic_number: int, partition: int, offset: int) -> Iterator[Frame]: ...

    def find(self, topic_number: int, partition: int, offset: int) -> FrameRef | None: ...

    def find_header(self, topic_number: int, partition: int, offset: int) -> Header | None: ...

    def find_time(self, time_us: int) -> Lsn | None: ...

    def take_in(self) -> None:
        """Make everything that is sealed ready to be forgotten or replaced."""
        ...

    def forget(self, log_start: Lsn) -> list[str]: ...

    def sync_mark(self) -> None:
        """Make what readers in other processes go by durable; called when the log is idle."""
        ...

    def poison(self, cause: BaseException) -> OutcomeUnknown:
        """Promise nothing any more; returns what requests in flight are told."""
        ...

    def close(self) -> None: ...


class PipelinedDevice(Device, Protocol):
    """A device that takes the next commit before the last one is durable.

    ISSUED   next_lsn, next_offsets, last_append_time_us and make_room go by what was issued; durable, frames, segments
             and all else that readers see by what is durable.
    FAILURE  commit() that raises has issued nothing.  A commit that fails later takes all after it along: each is
             called back with an error, in order, and this open log can never be written again.
    """

    def commit(self, writes: Sequence[PlacedWrite], append_time_us: int) -> FlyingTicket:
        """Issue the commit; where the window is full, wait until it is not, or refuse it as Unavailable."""
        ...
