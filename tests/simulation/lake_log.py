"""The log, its tasks and the ledger, as a lander sees them in simulation.

LOG      Writes of one to three frames, each with rows of one topic; a durable end, and behind it writes that a crash
         may take back; segments.  A position in a segment is an LSN here.  It forgets what the ledger calls verified,
         once grace is over: whole segments from the front, and single topics out of the middle.
TASKS    Run in the lander's thread, each attempt a call of its seam: an attempt may die with files written, and be
         made again.
LEDGER   The records in a list, folded by the product's own LedgerState.  The real one takes a lock, recovers and syncs
         for every record: 3 ms each, where a schedule has 20 ms.  It has its own simulations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from headwater.errors import Unavailable
from headwater.ids import Lsn
from headwater.lake.ledger_records import LedgerRecord
from headwater.lake.ledger_state import LedgerState
from headwater.lake.plan import PlannedRange, SegmentContent
from headwater.lake.source import PlacedRuns
from headwater.lake.work import (
    Done,
    LandDone,
    LandWork,
    ReadBackDone,
    ReadBackWork,
    TopicDone,
    TopicWork,
    Work,
    WrittenFile,
    failed,
)
from headwater.log.device import TopicInSegment
from tests.simulation.lake_world import Catalog, Row, Seam, digest_of

LOG_ID = "10" * 16
FRAME_BYTES = 100
GRACE_S = 600.0


@dataclass(frozen=True)
class LogFrame:
    lsn: int
    number: int
    """The topic's; 0 for a frame without rows."""
    rows: tuple[Row, ...]


@dataclass
class Segment:
    first_lsn: int
    generation: int = 0
    sealed: bool = False
    frames: list[LogFrame] = field(default_factory=list)
    last_lsn: int = 0

    @property
    def name(self) -> str:
        return f"{self.first_lsn:020d}.{self.generation}.seg"


class SimulatedLog:
    """What is true of the log."""

    def __init__(self) -> None:
        self.segments: list[Segment] = [Segment(1)]
        self.next_lsn = 1
        self.durable_lsn = 0
        self.write_ends: set[int] = {0}
        self.committed: dict[int, list[Row]] = {}
        """Every row that is durable, ever, by topic number, in order of LSN."""
        self.forgotten: dict[int, int] = {}
        """Up to which LSN rows of a topic have been let go of."""
        self._next_offset: dict[tuple[int, int], int] = {}
        self._pending: list[LogFrame] = []

    def append(self, frames: Sequence[tuple[int, int, int]]) -> None:
        """One write: frames of (topic number, partition, rows).  It is not durable yet."""
        for number, partition, count in frames:
            offset = self._next_offset.get((number, partition), 0)
            self._next_offset[number, partition] = offset + count
            rows = tuple((number, self.next_lsn, partition, offset + each) for each in range(count))
            self._pending.append(LogFrame(self.next_lsn, number, rows))
            self.next_lsn += 1
        self.write_ends.add(self.next_lsn - 1)

    def sync(self) -> None:
        segment = self.segments[-1]
        for frame in self._pending:
            segment.frames.append(frame)
            self.committed.setdefault(frame.number, []).extend(frame.rows)
        self._pending.clear()
        self.durable_lsn = segment.last_lsn = self.next_lsn - 1

    def crash(self) -> None:
        """What was not durable is gone; its LSNs and offsets are given out again."""
        for frame in self._pending:
            self.write_ends.discard(frame.lsn)
            for number, _, partition, offset in frame.rows[:1]:
                known = self._next_offset[number, partition]
                self._next_offset[number, partition] = min(known, offset)
        self._pending.clear()
        self.next_lsn = self.durable_lsn + 1

    def roll(self) -> None:
        if self.segments[-1].frames and not self._pending:
            self.segments[-1].sealed = True
            self.segments.append(Segment(self.next_lsn, last_lsn=self.next_lsn - 1))

    def forgettable(self, number: int, lsn: int) -> int:
        """How far `forget` would let go of a topic's rows now; 0 where of none."""
        return max(
            (
                frame.lsn
                for segment in self.segments
                if segment.sealed
                for frame in segment.frames
                if frame.number == number and frame.lsn <= lsn
            ),
            default=0,
        )

    def forget(self, number: int, lsn: int, segments_max: int) -> None:
        """Let go of a topic's rows up to this LSN, in so many segments: whoever does it may die half-way."""
        for segment in [segment for segment in self.segments if segment.sealed][:segments_max]:
            left = [frame for frame in segment.frames if frame.number != number or frame.lsn > lsn]
            if len(left) != len(segment.frames):
                gone = max(frame.lsn for frame in segment.frames if frame.number == number and frame.lsn <= lsn)
                self.forgotten[number] = max(self.forgotten.get(number, 0), gone)
                segment.frames = left
                segment.generation += 1
        while self.segments[0].sealed and not self.segments[0].frames:
            del self.segments[0]

    def rows(self, number: int, lsn_from: int, lsn_to: int) -> list[Row]:
        """What it still has of a topic after one LSN and up to another."""
        return [
            row
            for segment in self.segments
            for frame in segment.frames
            if frame.number == number and lsn_from < frame.lsn <= lsn_to
            for row in frame.rows
        ]


class SimulatedSource:
    """LogSource over it."""

    directory = "data"
    shard = 0
    log_id = LOG_ID

    def __init__(self, log: SimulatedLog, seam: Seam, *, can_tell: bool = True) -> None:
        self._log = log
        self._seam = seam
        self._can_tell = can_tell
        """Whether it knows that nothing was taken away, or leaves that to be counted."""

    def durable_lsn(self) -> int:
        return self._seam.call("durable_lsn", lambda: self._log.durable_lsn)

    def segments(self) -> Sequence[SegmentContent]:
        return self._seam.call("segments", lambda: [_content(segment) for segment in self._log.segments])

    def runs(self, planned: PlannedRange, item_bytes: int) -> list[PlacedRuns]:
        first, last = planned.lsn_from + 1, planned.lsn_to
        items = max(1, min((last - first + 1) * FRAME_BYTES // max(item_bytes, 1), 4))
        size = -(-(last - first + 1) // items)
        runs = (((start, min(start + size, last + 1)),) for start in range(first, last + 1, size))
        return [PlacedRuns(planned.segment, each) for each in runs]

    def holds_all(self, topic_number: int, lsn_from: int, lsn_to: int) -> bool:
        return self._can_tell and self._log.forgotten.get(topic_number, 0) <= lsn_from

    def chain_at(self, lsn: int) -> str:
        """Here an LSN is never given out twice once it is durable, so it is a frame's chain value itself."""
        held = any(frame.lsn == lsn for segment in self._log.segments for frame in segment.frames)
        return f"{lsn:016x}" if held else ""

    def rows_between(self, topic_number: int, lsn_from: int, lsn_to: int) -> int:
        return len(self._log.rows(topic_number, lsn_from, lsn_to))


def _content(segment: Segment) -> SegmentContent:
    topics: dict[int, TopicInSegment] = {}
    for frame in segment.frames:
        if frame.number:
            known = topics.get(frame.number)
            frames = known.frames if known is not None else 0
            rows = known.rows if known is not None else 0
            topics[frame.number] = TopicInSegment(
                frames + 1, (frames + 1) * FRAME_BYTES, rows + len(frame.rows), Lsn(frame.lsn)
            )
    return SegmentContent(
        segment.name,
        segment.first_lsn,
        segment.last_lsn,
        max(len(segment.frames), 1) * FRAME_BYTES,
        segment.sealed,
        topics,
    )


class SimulatedRunner:
    """Runs works where the lander is, with all that may happen to a task."""

    def __init__(
        self, log: SimulatedLog, catalog: Catalog, seam: Seam, on_read_back: Callable[[Sequence[Row]], None]
    ) -> None:
        self._log = log
        self._catalog = catalog
        self._seam = seam
        self._on_read_back = on_read_back

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        works = list(works)
        self._catalog.chance.shuffle(works)
        for work in works:
            if self._seam.fault("run") is not None:
                raise Unavailable("the job failed")
            yield self._attempts(work)

    def _attempts(self, work: Work) -> Done:
        while True:
            fault = self._seam.fault("task")
            done = self._seam.call("task", lambda: self._attempt(work))
            if fault == "dies":
                # Its files are there and nobody was told of them: it is made again.
                continue
            return failed(work, "the disk is full") if fault == "fails" else done

    def _attempt(self, work: Work) -> Done:
        if isinstance(work, ReadBackWork):
            return self._read_back(work)
        found = [segment for segment in self._log.segments if segment.name == work.segment]
        if not found:
            return failed(work, f"there is no {work.segment}")
        return LandDone(tuple(self._write(work, topic, found[0]) for topic in work.topics), bytes_read=FRAME_BYTES)

    def _write(self, work: LandWork, topic: TopicWork, segment: Segment) -> TopicDone:
        rows = [
            row
            for frame in segment.frames
            if frame.number == topic.number
            and topic.lsn_from < frame.lsn <= topic.lsn_to
            and any(first <= frame.lsn < end for first, end in work.runs)
            for row in frame.rows
        ]
        if not rows:
            return TopicDone(topic.number)
        table, _, schema_id, spec_id, _ = topic.target.decode().split("|")
        files = []
        half = -(-len(rows) // 2) if self._catalog.chance.random() < 0.3 else len(rows)
        for start in range(0, len(rows), half):
            path = f"{table}/{topic.commit_id}-{self._catalog.number()}.parquet"
            part = rows[start : start + half]
            self._catalog.store.write(path, part)
            files.append(WrittenFile(path, len(part), len(part) * 10, f"{schema_id}|{spec_id}".encode()))
        return TopicDone(topic.number, tuple(files), digest_of(rows), max(row[1] for row in rows))

    def _read_back(self, work: ReadBackWork) -> ReadBackDone:
        try:
            rows = [row for path in work.files for row in self._catalog.store.rows(path)]
        except OSError as error:
            return ReadBackDone(work.number, error=str(error), item=work.item)
        self._on_read_back(rows)
        if work.between is not None:
            rows = [row for row in rows if work.between[0] < row[1] <= work.between[1]]
        return ReadBackDone(work.number, digest_of(rows), item=work.item)


OnRecord = Callable[[Sequence[LedgerRecord], Seam], None]


class LedgerRecords:
    """What is true of the ledger: every record, in order."""

    def __init__(self) -> None:
        self.records: list[LedgerRecord] = []
        self._folded = 0
        self._state = LedgerState()

    def state(self) -> LedgerState:
        """Of all records: for those who look on."""
        while self._folded < len(self.records):
            self._state.apply(self.records[self._folded])
            self._folded += 1
        return self._state


class SimulatedLedger:
    """One lander's way to it."""

    def __init__(self, ledger: LedgerRecords, seam: Seam, on_record: OnRecord) -> None:
        self._ledger = ledger
        self._seam = seam
        self._on_record = on_record
        self.known = LedgerState()

    def record(self, records: Sequence[LedgerRecord]) -> None:
        def write() -> None:
            if self._seam.fault("record") is not None:
                raise Unavailable("the ledger stays locked by another lander")
            self._ledger.records.extend(records)
            self._on_record(records, self._seam)

        if records:
            self._seam.call(f"record {type(records[0]).__name__}", write)

    def state(self) -> LedgerState:
        def read() -> LedgerState:
            for record in self._ledger.records[self.known.lsn :]:
                self.known.apply(record)
            self.known.lsn = len(self._ledger.records)
            return self.known

        return self._seam.call("ledger state", read)

    def close(self) -> None:
        return
