"""Erasing from the log: which of a topic's rows match, and segments made again without some of them.

PROMISE  The rows that stay keep their offsets, their order and their LSNs.  A segment that a reader has pinned stays as
         it is, and is named: the next call makes it again.
ORDER    The segment that is being written is sealed first, if it holds such rows, and a checkpoint covers it before it
         is made again, so that nobody who takes up the state from there looks into it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from headwater.errors import Forgotten
from headwater.frames.bodies import GapReason
from headwater.frames.codecs import encode_body
from headwater.frames.frame import BODY_SIZE_BYTES_MAX, CHAIN_VALUE_BYTES, Codec, Header, Kind
from headwater.ids import Lsn
from headwater.lake.offset_runs import OFFSET, PARTITION, OffsetRuns
from headwater.lake.where import Condition
from headwater.log.device import Frame, SegmentInfo
from headwater.log.rewrite import KEEP, REMOVE, Sparse, rewrite_segment
from headwater.metadata.operations import TopicRecord
from headwater.topics.batches import FrameRows, decode_rows, encode_sparse
from headwater.topics.engine import Engine
from headwater.topics.positions import Lsn as AtLsn
from headwater.topics.reading import Wanted, read_rows
from headwater.topics.schema import unpack_schema

ATTEMPTS_MAX = 5
_PLACES = [PARTITION, OFFSET, "_hw_lsn"]


@dataclass(frozen=True)
class LogErasure:
    segments: tuple[str, ...] = ()
    """Made again, by their new names."""
    left: tuple[str, ...] = ()


def log_matches(engine: Engine, topic: TopicRecord, lake: pa.Schema, where: Condition, lsn_to: int) -> pa.Table:
    """The rows of the log up to an LSN that fulfil the condition, by partition, offset and LSN; `lake` has the
    columns in the types of a table."""
    names = dict.fromkeys([*sorted(where.columns), *_PLACES])
    columns = pa.schema([lake.field(name) for name in names])
    found = [rows.filter(where.expression).select(_PLACES) for rows in _rows(engine, topic, columns, 0, lsn_to)]
    return pa.concat_tables([pa.schema([lake.field(name) for name in _PLACES]).empty_table(), *found])


def log_rows(engine: Engine, topic: TopicRecord, columns: pa.Schema, lsn_from: int, lsn_to: int) -> pa.Table:
    """The rows of the log after one LSN and up to another, in columns of the topic's table."""
    return pa.concat_tables([columns.empty_table(), *_rows(engine, topic, columns, lsn_from, lsn_to)])


def _rows(engine: Engine, topic: TopicRecord, columns: pa.Schema, lsn_from: int, lsn_to: int) -> Iterator[pa.Table]:
    log = engine.shard.log
    wanted = Wanted(
        start=AtLsn(lsn_from + 1),
        stop=AtLsn(lsn_to + 1),
        columns=[name for name in columns.names if name != "_hw_shard"],
        system_columns=True,
    )
    segments = log.device.view.segments
    shard = segments[0].opening.header.shard if segments else 0
    for batch in read_rows(log, lambda: engine.metadata().topics.get(topic.number), wanted):
        shards = pa.repeat(pa.scalar(shard, pa.int32()), batch.num_rows)
        yield pa.table(
            [shards if field.name == "_hw_shard" else batch.column(field.name).cast(field.type) for field in columns],
            schema=columns,
        )


def erase_from_log(engine: Engine, topic: TopicRecord, gone: OffsetRuns) -> LogErasure:
    """Make the segments again that hold these rows, without them."""
    made: list[str] = []
    for _ in range(ATTEMPTS_MAX):
        try:
            _seal(engine, topic, gone)
            left = _rewrite_all(engine, topic, gone, made)
            return LogErasure(tuple(made), tuple(left))
        except Forgotten:
            continue  # a cleanup has replaced a segment, or let go of it: look again
    return LogErasure(tuple(made), ("the log: its segments were replaced each time while they were made again",))


def _seal(engine: Engine, topic: TopicRecord, gone: OffsetRuns) -> None:
    log = engine.shard.log
    if any(not segment.sealed and _Erasing(topic, gone).is_in(engine, segment) for segment in log.segments()):
        log.roll()
    engine.shard.checkpoint()


def _rewrite_all(engine: Engine, topic: TopicRecord, gone: OffsetRuns, made: list[str]) -> list[str]:
    log = engine.shard.log
    left = []
    for segment in log.segments():
        erasing = _Erasing(topic, gone)
        if not erasing.is_in(engine, segment):
            continue
        pins = [pin.holder for pin in engine.pins.read() if pin.lsn <= segment.last_lsn]
        if pins:
            left.append(f"{segment.name}: a reader holds it ({pins[0]})")
            continue
        made.append(rewrite_segment(log, segment.name, erasing.decide, reason=GapReason.ERASED).new)
        left.extend(
            f"{made[-1]}: the frame of LSN {lsn} is as large as a frame may be and cannot lose single rows; it goes "
            "when the log lets go of it"
            for lsn in erasing.too_large
        )
    return left


class _Erasing:
    """What becomes of the frames of one topic."""

    def __init__(self, topic: TopicRecord, gone: OffsetRuns) -> None:
        self._topic = topic
        self._gone = gone
        self._schemas = [unpack_schema(each) for each in topic.schemas]
        self.too_large: list[int] = []

    def is_in(self, engine: Engine, segment: SegmentInfo) -> bool:
        """Whether a segment holds such rows."""
        device = engine.shard.log.device
        number = self._topic.number
        if number not in device.topics_in(segment):
            return False
        frames = device.frames_of_topic(number, Lsn(segment.first_lsn), Lsn(segment.last_lsn))
        return any(self._looks_at(frame.header) and self._has(frame) for frame in frames)

    def _has(self, frame: Frame) -> bool:
        _, offsets = self._rows(frame.header, frame.body)
        return bool(self._gone.holds(offsets).any())

    def decide(self, header: Header, body: memoryview) -> bool | Sparse:
        if not self._looks_at(header):
            return KEEP
        stored, offsets = self._rows(header, body)
        kept = pa.array(~self._gone.holds(offsets))
        rows = stored.batch.filter(kept)
        if rows.num_rows == header.row_count:
            return KEEP
        if not rows.num_rows:
            return REMOVE
        raw = encode_sparse(rows, offsets.column(OFFSET).combine_chunks().filter(kept))
        if len(raw) + CHAIN_VALUE_BYTES > BODY_SIZE_BYTES_MAX:
            self.too_large.append(header.lsn)
            return KEEP
        codec = Codec(header.codec)
        return Sparse(bytes(encode_body(codec, raw)), rows.num_rows, codec)

    def _looks_at(self, header: Header) -> bool:
        if header.topic_number != self._topic.number or header.kind not in (Kind.DATA, Kind.SPARSE):
            return False
        return self._gone.reach_into(header.base_offset, header.base_offset + header.offset_count - 1)

    def _rows(self, header: Header, body: memoryview) -> tuple[FrameRows, pa.Table]:
        """The rows of a frame, and where they are."""
        stored = decode_rows(header, body, self._schemas[header.schema_version - 1])
        offsets = stored.offsets
        if offsets is None:
            offsets = pa.arange(header.base_offset, header.base_offset + header.row_count)
        partitions = pa.repeat(pa.scalar(header.partition, pa.int32()), header.row_count)
        return stored, pa.table([partitions, offsets], names=[PARTITION, OFFSET])
