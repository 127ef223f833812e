"""What the lake asks of a log: how far it is durable, what each segment holds, and where the bytes are.

LogSource      what a landing asks: the simulator has one of its own
OpenLog        all that the lake and Spark ask of an open log: here (engine_log.py), or behind a server
               (client/source.py)
EngineSource   an open data directory, of this process or beside another's: reading claims nothing
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

import pyarrow as pa

from headwater.errors import Forgotten
from headwater.frames.frame import Kind, chain_value
from headwater.ids import Lsn
from headwater.lake.lag import Waiting
from headwater.lake.plan import PlannedRange, SegmentContent
from headwater.log.index import PlacedSegment
from headwater.metadata.operations import TopicRecord
from headwater.storage.places import is_bucket

if TYPE_CHECKING:
    from headwater.lake.reading import ReadRows
    from headwater.lake.work import LandWork
    from headwater.topics.engine import Engine

Runs = tuple[tuple[int, int], ...]
"""Byte ranges of a segment, in order, each from a frame's beginning to a frame's end.  Of a log behind a server they
are LSNs: frames after the first and up to the second."""


class PlacedRuns(NamedTuple):
    """Where wanted frames lie."""

    segment: str
    runs: Runs
    slots: bytes = b""
    """Where the segment lies, if it is no file (log/opened_segment.py); of a log behind a server, what it is asked with
    (client/frames.py)."""


_NO_LIMIT = 1 << 62
RUN_GAP_BYTES = 65_536
"""Wanted frames that lie closer than this are read in one go, with what is between them."""


class LogSource(Protocol):
    @property
    def directory(self) -> str:
        """Where workers find the log."""
        ...

    @property
    def shard(self) -> int: ...

    @property
    def log_id(self) -> str: ...

    def durable_lsn(self) -> int:
        """How far the log is durable; always the end of a write."""
        ...

    def segments(self) -> Sequence[SegmentContent]: ...

    def runs(self, planned: PlannedRange, item_bytes: int) -> list[PlacedRuns]:
        """The segment and the byte ranges that hold the frames of a planned range, in items of about this size."""
        ...

    def rows_between(self, topic_number: int, lsn_from: int, lsn_to: int) -> int:
        """How many rows of a topic the log holds after one LSN and up to another."""
        ...

    def holds_all(self, topic_number: int, lsn_from: int, lsn_to: int) -> bool:
        """Whether nothing of a topic was ever taken away after one LSN and up to another; False where that cannot be
        told."""
        ...

    def chain_at(self, lsn: int) -> str:
        """The chain value of the frame with this LSN; empty where the log no longer has it."""
        ...


class RowSource(LogSource, Protocol):
    """A log whose rows are read in this process too."""

    def read(self, work: LandWork, columns: Mapping[int, pa.Schema]) -> ReadRows:
        """The rows of a work, as a task reads them (reading.py)."""
        ...


class Hold(Protocol):
    """A reader's hold on what it reads: a pin."""

    def release(self) -> None: ...


class OpenLog(RowSource, Protocol):
    """An open log, wherever it is."""

    def topics(self) -> Sequence[TopicRecord]:
        """The topics that there are, as far as whoever asks may know of them."""
        ...

    def topic(self, name: str) -> TopicRecord:
        """The topic of this name now; UnknownTopic."""
        ...

    def hold(self, lsn: int | None, snapshots: Sequence[int] = ()) -> Hold:
        """Hold the log from this LSN on, all of it where none is given, and these snapshots of its tables."""
        ...

    def pinned(self) -> frozenset[int]:
        """The snapshots of tables that readers of this log hold now."""
        ...

    def next_write(self, lsn: int) -> tuple[int, int] | None:
        """The first LSN at or behind this one that the log still has, and where its write begins; None: it has none."""
        ...

    def find_time(self, time_us: int) -> int | None:
        """The first LSN of a row that was appended at this time or later; None: there is none."""
        ...

    def tail(self, topic: TopicRecord, columns: pa.Schema, lsn_from: int, lsn_to: int) -> pa.Table:
        """The rows of a topic after one LSN and up to another, changes of a keyed one, in these columns, the system's
        among them."""
        ...

    def waiting(self, topic: TopicRecord, landed_lsn: int) -> Waiting:
        """What of a topic lies behind its landed LSN."""
        ...

    def bytes_of(self, planned: PlannedRange) -> int:
        """About how many bytes a planned range is."""
        ...

    def let_go(self) -> str:
        """Clean up the log after a landing, by its owner; says what was done."""
        ...

    def close(self) -> None: ...


def reachable(directory: str) -> str:
    """A data directory as other processes reach it: an absolute path, or a url."""
    return directory if is_bucket(directory) else str(Path(directory).absolute())


class EngineSource:
    def __init__(self, engine: Engine, directory: str) -> None:
        self._log = engine.shard.log
        self._directory = reachable(directory)

    @property
    def directory(self) -> str:
        return self._directory

    @property
    def shard(self) -> int:
        segments = self._log.device.view.segments
        return segments[0].opening.header.shard if segments else 0

    @property
    def log_id(self) -> str:
        segments = self._log.device.view.segments
        return segments[0].opening.header.log_id.hex() if segments else ""

    def durable_lsn(self) -> int:
        return self._log.durable_lsn()

    def segments(self) -> list[SegmentContent]:
        device = self._log.device
        return [
            SegmentContent(
                segment.name,
                segment.first_lsn,
                segment.last_lsn,
                segment.bytes,
                segment.sealed,
                device.topics_in(segment),
            )
            for segment in self._log.segments()
        ]

    def runs(self, planned: PlannedRange, item_bytes: int) -> list[PlacedRuns]:
        placed = self._log.device.placed(Lsn(planned.lsn_from + 1))
        if planned.by_index:
            found = _items(_runs_by_index(placed, planned), item_bytes)
        else:
            found = ((run,) for run in _cut(placed, planned, item_bytes))
        return [PlacedRuns(placed.name, runs, placed.slots) for runs in found]

    def read(self, work: LandWork, columns: Mapping[int, pa.Schema]) -> ReadRows:
        # Imported here: it needs the packages of the `lake` extra, and a source alone does not.
        from headwater.lake.reading import read_rows

        return read_rows(work, columns)

    def bytes_of(self, planned: PlannedRange) -> int:
        return sum(end - start for _, runs, _ in self.runs(planned, _NO_LIMIT) for start, end in runs)

    def rows_between(self, topic_number: int, lsn_from: int, lsn_to: int) -> int:
        frames = self._log.read_topic(topic_number, Lsn(lsn_from + 1), Lsn(lsn_to))
        return sum(frame.header.row_count for frame in frames)

    def holds_all(self, topic_number: int, lsn_from: int, lsn_to: int) -> bool:
        # A segment that was rewritten does not say whose frames went.
        segments = [each for each in self._log.segments() if each.first_lsn <= lsn_to and each.last_lsn > lsn_from]
        whole = bool(segments) and segments[0].first_lsn <= lsn_from + 1 and segments[-1].last_lsn >= lsn_to
        return whole and all(each.generation == 0 for each in segments)

    def chain_at(self, lsn: int) -> str:
        try:
            for frame in self._log.device.frames(Lsn(lsn), Lsn(lsn)):
                if frame.header.kind != Kind.GAP:
                    return f"{chain_value(frame.header, frame.body):016x}"
        except Forgotten:
            return ""
        return ""


def _cut(placed: PlacedSegment, planned: PlannedRange, item_bytes: int) -> Iterator[tuple[int, int]]:
    """The range in pieces of about the same size, cut between frames."""
    start = _position_after(placed, planned.lsn_from)
    end = _position_after(placed, planned.lsn_to)
    pieces = max(1, round((end - start) / item_bytes))
    size = (end - start) / pieces
    for piece in range(1, pieces):
        cut = _first_frame_from(placed, planned, round(start + size))
        if cut > start:
            yield start, cut
            size = (end - cut) / (pieces - piece)
            start = cut
    if end > start:
        yield start, end


def _first_frame_from(placed: PlacedSegment, planned: PlannedRange, position: int) -> int:
    """Where the first frame begins at or behind this position, found by LSN, because both rise together."""
    low, high = planned.lsn_from + 1, planned.lsn_to + 1
    while low < high:
        middle = (low + high) // 2
        if _position_after(placed, middle - 1) >= position:
            high = middle
        else:
            low = middle + 1
    return _position_after(placed, low - 1)


def _position_after(placed: PlacedSegment, lsn: int) -> int:
    place = placed.index.place_of(lsn + 1)
    return place.position if place is not None else placed.end


def _runs_by_index(placed: PlacedSegment, planned: PlannedRange) -> Iterator[tuple[int, int]]:
    """The topics' frames and what lies between those that are close together."""
    places = sorted(
        (place.lsn, place.position)
        for topic in planned.topics
        for place in placed.index.places_of_topic(topic, planned.lsn_from + 1)
        if place.lsn <= planned.lsn_to
    )
    start = last_lsn = last_position = -1
    for lsn, position in places:
        if start >= 0 and position - last_position > RUN_GAP_BYTES:
            yield start, _position_after(placed, last_lsn)
            start = -1
        if start < 0:
            start = position
        last_lsn, last_position = lsn, position
    if start >= 0:
        yield start, _position_after(placed, last_lsn)


def _items(runs: Iterator[tuple[int, int]], item_bytes: int) -> Iterator[Runs]:
    item: list[tuple[int, int]] = []
    size = 0
    for run in runs:
        item.append(run)
        size += run[1] - run[0]
        if size >= item_bytes:
            yield tuple(item)
            item, size = [], 0
    if item:
        yield tuple(item)
