"""Compaction: of each key of a topic, the latest row; what came before it goes.

    plan     read the topic's keys once, in LSN order, and learn the number of each key's latest row
    rewrite  make each sealed segment that holds an older row again without it, the oldest segment first

PROMISE  The rows that stay have their offsets, their order and their LSNs.  Whoever reads the topic to the end of what
         was compacted, or further, finds the same latest row of every key as before.
         A delete that is its key's latest row is there for `tombstones_s` after it was appended, so that a reader
         who comes late sees it; then it goes as well.
SCOPE    Sealed segments only, and of them a prefix of the log: covered by the checkpoints, below every pin and, for a
         topic with a table, frames at or below its verified landed LSN.  Rows behind the prefix supersede nothing:
         the prefix by itself holds the latest rows as of its end, and a pin's holder finds what it pinned unchanged.
ORDER    Oldest segment first.  A delete goes only when every older row of its key is gone from the disk, whatever
         crash or failure comes between; else the key would come back.
MEMORY   While a topic is planned: its distinct keys, up to four times, with 8 bytes each, and 16 MiB.  From then until
         its segments are made again: 8 bytes a key and 24 a frame.  Nothing grows with the size of the rows.

NOT HERE Which topics are due, and when: cleanup.py.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Closed, CorruptData, Forgotten, InvalidRequest, Unavailable
from headwater.frames.bodies import GapReason
from headwater.frames.frame import BODY_SIZE_BYTES_MAX, CHAIN_VALUE_BYTES, Flag, Header, frame_size
from headwater.ids import FIRST_LSN, Lsn
from headwater.log.device import Frame, SegmentInfo
from headwater.log.frame_log import FrameLog
from headwater.log.pins import Pins
from headwater.log.rewrite import KEEP, REMOVE, Rewritten, Sparse, rewrite_segment
from headwater.metadata.operations import TopicRecord
from headwater.topics.batches import decode_rows, encode_sparse
from headwater.topics.retention import VerifiedLsn
from headwater.topics.schema import adapt, unpack_schema

_ORDINAL = "_hw_ordinal"
_WAITING_BYTES_MAX = 16 * 1024 * 1024
_WAITING_BATCHES_MAX = 4096
_FRESH_ROWS_MIN = 65_536
_NO_TOMBSTONE = -1

ONE_TOPICS_TROUBLE = (Unavailable, CorruptData, Forgotten, InvalidRequest, pa.ArrowException, OSError)
"""What is reported of one topic while the others go on.  All else is about the log itself, and is raised."""


@dataclass(frozen=True)
class Compacted:
    """What compacting a topic did."""

    topic: str
    rows_removed: int
    """Deletes included."""
    frames_removed: int
    """Frames of which no row was left; the others lost rows."""
    tombstones_removed: int
    """Deletes that were superseded, or whose time was over."""
    bytes_saved: int
    """On the disk.  It can be below zero where frames lose few rows: those that stay get a column for their offset."""
    segments: tuple[str, ...]
    """The segments that were made again, by their new names."""
    up_to_lsn: Lsn
    """Rows behind this LSN were not looked at."""


@dataclass(frozen=True)
class CleanupFailure:
    """Something that did not succeed and left all as it was; the topic's name, or "" where it is about none."""

    topic: str
    error: Exception

    def __str__(self) -> str:
        return f"{self.topic}: {self.error}" if self.topic else str(self.error)


@dataclass(frozen=True)
class Reach:
    """How far a topic has been compacted, and when there is something to do again without a new row."""

    up_to_lsn: Lsn
    oldest_tombstone_us: int | None
    """The earliest append time of the deletes that stay."""


@dataclass(frozen=True)
class CompactionReport:
    compacted: tuple[Compacted, ...] = ()
    failures: tuple[CleanupFailure, ...] = ()
    segments: tuple[Rewritten, ...] = ()
    finished: dict[int, Reach] = field(default_factory=dict)
    """By number the topics of which nothing is left to do."""


def check_compactable(topic: TopicRecord) -> None:
    """InvalidRequest where the topic has no keys, or its policy does not allow it."""
    if not topic.key:
        raise InvalidRequest(
            "a topic without a key cannot be compacted: there is no telling which row replaces which", topic=topic.name
        )
    if topic.policy.cleanup == "delete":
        raise InvalidRequest(
            'the topic\'s policy keeps every row until it is deleted: alter it to cleanup="compact" or "both" first',
            topic=topic.name,
        )


def compact_topic(
    log: FrameLog,
    topic: TopicRecord,
    *,
    pins: Pins,
    now_us: int,
    covered_lsn: Lsn,
    verified_lsn: VerifiedLsn,
    may_expire_by_age: bool = True,
) -> Compacted:
    """Compact one topic now; what fails is raised."""
    check_compactable(topic)
    report = compact_topics(
        log,
        [topic],
        pins=pins,
        now_us=now_us,
        covered_lsn=covered_lsn,
        verified_lsn=verified_lsn,
        may_expire_by_age=may_expire_by_age,
    )
    for failure in report.failures:
        raise failure.error
    [compacted] = report.compacted
    return compacted


def compact_topics(
    log: FrameLog,
    topics: Iterable[TopicRecord],
    *,
    pins: Pins,
    now_us: int,
    covered_lsn: Lsn,
    verified_lsn: VerifiedLsn,
    may_expire_by_age: bool = True,
) -> CompactionReport:
    """Compact topics together, so that a segment they share is made again once.

    With `may_expire_by_age` false every latest delete stays, however old it seems to be."""
    scope = compactable_segments(log, pins, covered_lsn)
    names = {segment.name for segment in scope}
    plans: list[CompactionPlan] = []
    failures: list[CleanupFailure] = []
    for topic in topics:
        try:
            check_compactable(topic)
            up_to = scope[-1].last_lsn if scope else Lsn(0)
            if topic.table is not None:
                up_to = Lsn(min(up_to, verified_lsn(topic)))
            expired_us = now_us - round(topic.policy.tombstones_s * 1_000_000) if may_expire_by_age else None
            plan = plan_compaction(log, topic, up_to, expired_us)
            if not names.issuperset(plan.segments):
                raise Forgotten("a segment was replaced while it was read: try again", topic=topic.name)
            plans.append(plan)
        except Closed:
            raise
        except ONE_TOPICS_TROUBLE as error:
            failures.append(CleanupFailure(topic.name, error))
    work = _Work(plans)
    for segment in scope:
        wanted = work.wanted_in(segment.name)
        if not wanted:
            continue
        lowest_pin = _lowest_pin(pins)
        if lowest_pin is not None and lowest_pin <= segment.last_lsn:
            # It came since the plan was made, and holds all that follows as well.
            break
        _rewrite(log, segment.name, wanted, work)
    failures.extend(work.failures)
    failed = {failure.topic for failure in work.failures}
    return CompactionReport(
        compacted=tuple(done for done in work.done() if done.topic not in failed or done.segments),
        failures=tuple(failures),
        segments=tuple(work.rewritten),
        finished=work.finished(),
    )


def compactable_segments(log: FrameLog, pins: Pins, covered_lsn: Lsn) -> list[SegmentInfo]:
    """The sealed segments that may be made again: a prefix, up to what a pin needs or no checkpoint covers.

    Covered by the newest one, so that whoever takes up the state from it need not look into what was made again."""
    lowest_pin = _lowest_pin(pins)

    def may_be_made_again(segment: SegmentInfo) -> bool:
        pinned = lowest_pin is not None and lowest_pin <= segment.last_lsn
        return segment.sealed and not pinned and segment.last_lsn <= covered_lsn

    return list(takewhile(may_be_made_again, log.segments()))


def _lowest_pin(pins: Pins) -> Lsn | None:
    try:
        return min((pin.lsn for pin in pins.read()), default=None)
    except OSError as error:
        raise Unavailable(f"whether a reader needs a segment cannot be told, so it stays as it is: {error}") from error


# Planning ------------------------------------------------------------------------------------------------


class LatestRows:
    """The ordinal of each key's latest row: rows are given in order, and numbered from 0.

    Three stages, so that neither the bodies of frames nor many copies of a key are held: key columns that still
    lie in the frames they came in; the latest of a few such batches; the latest of all before."""

    def __init__(self, key: Sequence[str], newest_schema: pa.Schema) -> None:
        self._key = list(key)
        self._schema = pa.schema([newest_schema.field(name) for name in key])
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._waiting_from = 0
        self._fresh: list[pa.Table] = []
        self._fresh_rows = 0
        self._latest: pa.Table | None = None
        self.rows = 0
        """How many have been given: the next row's ordinal."""

    def add(self, batch: pa.RecordBatch, held_bytes: int) -> None:
        """Take in the next rows, in any version of the schema; the batch holds on to so many bytes of memory."""
        self._waiting.append(adapt(batch.select(self._key), self._schema))
        self._waiting_bytes += held_bytes
        self.rows += batch.num_rows
        if self._waiting_bytes >= _WAITING_BYTES_MAX or len(self._waiting) == _WAITING_BATCHES_MAX:
            self._fold_waiting()

    def ordinals(self) -> memoryview:
        """Of the latest rows, rising; 8 bytes each."""
        self._fold_waiting()
        self._fold_fresh()
        if self._latest is None or not self._latest.num_rows:
            return memoryview(b"").cast("q")
        ordinals = self._latest.column(_ORDINAL).combine_chunks()
        rising = ordinals.take(pc.array_sort_indices(ordinals))
        return memoryview(rising.buffers()[1])[: 8 * len(rising)].cast("q")

    def _fold_waiting(self) -> None:
        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting)
        fresh = self._fold(table.append_column(_ORDINAL, pa.arange(self._waiting_from, self.rows)))
        self._waiting.clear()
        self._waiting_bytes = 0
        self._waiting_from = self.rows
        self._fresh.append(fresh)
        self._fresh_rows += fresh.num_rows
        # At least as many as there are already, so that no fold costs more than twice what it takes in.
        if self._fresh_rows >= max(_FRESH_ROWS_MIN, 0 if self._latest is None else self._latest.num_rows):
            self._fold_fresh()

    def _fold_fresh(self) -> None:
        if self._fresh:
            before = [] if self._latest is None else [self._latest]
            self._latest = self._fold(pa.concat_tables([*before, *self._fresh]))
            self._fresh.clear()
            self._fresh_rows = 0

    def _fold(self, table: pa.Table) -> pa.Table:
        folded = table.group_by(self._key, use_threads=False).aggregate([(_ORDINAL, "max")])
        return folded.rename_columns([*self._key, _ORDINAL])


class CompactionPlan:
    """Which rows of each frame of a topic stay.  Made by plan_compaction; asked again while segments are rewritten."""

    def __init__(self, topic: TopicRecord, up_to_lsn: Lsn) -> None:
        self.topic = topic
        self.up_to_lsn = up_to_lsn
        self.segments: list[str] = []
        """In which something is to go, in log order."""
        self.oldest_tombstone_us: int | None = None
        """The earliest append time of the deletes that stay."""
        self._schemas: list[pa.Schema | None] = [None] * len(topic.schemas)
        self._lsns = array("q")
        self._bases = array("q")
        self._tombstone_times = array("q")
        self._latest = memoryview(b"").cast("q")
        self._expired_us: int | None = None

    def read(self, frames: Iterable[Frame], expired_us: int | None) -> None:
        """Learn the latest rows of the topic's frames, given in LSN order.  Deletes that were appended at or before
        `expired_us` go though they are the latest."""
        latest = LatestRows(self.topic.key, self._schema(len(self._schemas)))
        starts: dict[str, int] = {}
        for at, frame in enumerate(frames):
            header = frame.header
            starts.setdefault(frame.segment, at)
            self._lsns.append(header.lsn)
            self._bases.append(latest.rows)
            self._tombstone_times.append(header.append_time_us if header.flags & Flag.TOMBSTONES else _NO_TOMBSTONE)
            rows = decode_rows(header, frame.body, self._schema(header.schema_version, header.lsn))
            latest.add(rows.batch, max(header.frame_size, rows.batch.nbytes))
        self._bases.append(latest.rows)
        self._latest = latest.ordinals()
        self._expired_us = expired_us
        for (name, start), end in zip(starts.items(), [*starts.values(), len(self._lsns)][1:], strict=True):
            kept = sum(len(self._kept(at)) for at in range(start, end))
            if kept < self._bases[end] - self._bases[start]:
                self.segments.append(name)
        # Append times never fall, so that the first that stays is the oldest.
        staying = (
            time for at, time in enumerate(self._tombstone_times) if time != _NO_TOMBSTONE and len(self._kept(at))
        )
        self.oldest_tombstone_us = next(staying, None)

    def decide(self, header: Header, body: memoryview) -> bool | Sparse:
        """What becomes of a frame of the topic."""
        at = bisect_left(self._lsns, header.lsn)
        if at == len(self._lsns) or self._lsns[at] != header.lsn:
            return KEEP
        kept = self._kept(at)
        base = self._bases[at]
        rows = self._bases[at + 1] - base
        if len(kept) == rows:
            return KEEP
        if not kept:
            return REMOVE
        numbers = pc.subtract(pa.Array.from_buffers(pa.int64(), len(kept), [None, pa.py_buffer(kept)]), base)
        stored = decode_rows(header, body, self._schema(header.schema_version, header.lsn))
        if stored.offsets is None:
            offsets = pc.add(numbers, header.base_offset)
        else:
            offsets = stored.offsets.take(numbers)
        sparse = encode_sparse(stored.batch.take(numbers), offsets)
        if len(sparse) + CHAIN_VALUE_BYTES > BODY_SIZE_BYTES_MAX:
            # A frame near the limit that loses few rows: with a column of offsets it would be above.  It stays as
            # it is, and so does every delete from here on, because one of them may hide a row of it.
            self._expired_us = None
            return KEEP
        return Sparse(sparse, len(kept))

    def _kept(self, at: int) -> memoryview:
        """The ordinals of a frame's rows that stay."""
        written_us = self._tombstone_times[at]
        if self._expired_us is not None and _NO_TOMBSTONE < written_us <= self._expired_us:
            return self._latest[:0]
        first = bisect_left(self._latest, self._bases[at])
        return self._latest[first : bisect_left(self._latest, self._bases[at + 1], lo=first)]

    def _schema(self, version: int, lsn: int = 0) -> pa.Schema:
        if not 0 < version <= len(self._schemas):
            raise CorruptData(
                "a frame of a schema version that its topic does not have",
                topic=self.topic.name,
                lsn=lsn,
                version=version,
            )
        schema = self._schemas[version - 1]
        if schema is None:
            schema = self._schemas[version - 1] = unpack_schema(self.topic.schemas[version - 1])
        return schema


def plan_compaction(log: FrameLog, topic: TopicRecord, up_to_lsn: Lsn, expired_us: int | None) -> CompactionPlan:
    """What of a topic can go, up to an LSN; deletes only if they were appended at or before `expired_us`."""
    plan = CompactionPlan(topic, up_to_lsn)
    plan.read(log.device.frames_of_topic(topic.number, FIRST_LSN, up_to_lsn), expired_us)
    return plan


# Carrying it out -----------------------------------------------------------------------------------------


@dataclass
class _Loss:
    """What a topic has lost in a segment."""

    rows: int = 0
    frames: int = 0
    tombstones: int = 0
    bytes: int = 0

    def add(self, header: Header, decision: bool | Sparse) -> None:
        """Count what was decided about a frame."""
        if decision is KEEP:
            return
        rows = header.row_count
        self.bytes += header.frame_size
        if isinstance(decision, Sparse):
            rows -= decision.row_count
            self.bytes -= frame_size(len(decision.body) + CHAIN_VALUE_BYTES)
        else:
            self.frames += 1
        self.rows += rows
        if header.flags & Flag.TOMBSTONES:
            self.tombstones += rows


@dataclass
class _Tally:
    """What has been done for a topic so far."""

    plan: CompactionPlan
    rows: int = 0
    frames: int = 0
    tombstones: int = 0
    bytes_saved: int = 0
    segments: list[str] = field(default_factory=list)


class _Work:
    """The plans that are being carried out, what they have come to, and which have failed."""

    def __init__(self, plans: Iterable[CompactionPlan]) -> None:
        self._tallies = {plan.topic.number: _Tally(plan) for plan in plans}
        self._failed: set[int] = set()
        self.failures: list[CleanupFailure] = []
        self.rewritten: list[Rewritten] = []

    def wanted_in(self, segment: str) -> dict[int, CompactionPlan]:
        """The plans by topic number that change this segment."""
        return {
            number: tally.plan
            for number, tally in self._tallies.items()
            if number not in self._failed and segment in tally.plan.segments
        }

    def fail(self, number: int, error: Exception) -> None:
        """Its later segments stay as they are: a delete there may be all that hides a row in this one."""
        self._failed.add(number)
        self.failures.append(CleanupFailure(self._tallies[number].plan.topic.name, error))

    def add(self, rewritten: Rewritten, losses: dict[int, _Loss]) -> None:
        """Divide what a segment has become smaller by among the topics, by the bytes of what each has lost."""
        self.rewritten.append(rewritten)
        left = rewritten.bytes_before - rewritten.bytes_after
        left_of = sum(loss.bytes for loss in losses.values())
        for number, loss in losses.items():
            tally = self._tallies[number]
            part = left * loss.bytes // left_of if left_of > 0 else left
            left -= part
            left_of -= loss.bytes
            tally.bytes_saved += part
            tally.rows += loss.rows
            tally.frames += loss.frames
            tally.tombstones += loss.tombstones
            tally.segments.append(rewritten.new)

    def finished(self) -> dict[int, Reach]:
        return {
            number: Reach(tally.plan.up_to_lsn, tally.plan.oldest_tombstone_us)
            for number, tally in self._tallies.items()
            if len(tally.segments) == len(tally.plan.segments)
        }

    def done(self) -> list[Compacted]:
        return [
            Compacted(
                topic=tally.plan.topic.name,
                rows_removed=tally.rows,
                frames_removed=tally.frames,
                tombstones_removed=tally.tombstones,
                bytes_saved=tally.bytes_saved,
                segments=tuple(tally.segments),
                up_to_lsn=tally.plan.up_to_lsn,
            )
            for tally in self._tallies.values()
        ]


class _OneTopicFailed(Exception):
    """Carries the topic whose frame could not be decided about through the rewrite that it stops."""

    def __init__(self, number: int, error: Exception) -> None:
        super().__init__(number)
        self.number = number
        self.error = error


def _rewrite(log: FrameLog, name: str, wanted: dict[int, CompactionPlan], work: _Work) -> None:
    """Make a segment again for all who want that; one who cannot is left out."""
    while wanted:
        losses = {number: _Loss() for number in wanted}
        try:
            work.add(rewrite_segment(log, name, _decide(wanted, losses), reason=GapReason.COMPACTED), losses)
            return
        except _OneTopicFailed as failed:
            del wanted[failed.number]
            work.fail(failed.number, failed.error)
        except Closed:
            raise
        except ONE_TOPICS_TROUBLE as error:
            for number in wanted:
                work.fail(number, error)
            return


def _decide(
    wanted: dict[int, CompactionPlan], losses: dict[int, _Loss]
) -> Callable[[Header, memoryview], bool | Sparse]:
    def decide(header: Header, body: memoryview) -> bool | Sparse:
        number = header.topic_number
        plan = wanted.get(number)
        if plan is None:
            return KEEP
        try:
            decision = plan.decide(header, body)
        except ONE_TOPICS_TROUBLE as error:
            raise _OneTopicFailed(number, error) from error
        losses[number].add(header, decision)
        return decision

    return decide
