"""What the topics ask of the log: rows for partitions, and what must become durable with them.

A TopicRequest is one write, whole or absent.  Whoever builds it has checked and encoded what can be checked and
encoded outside the baton; what depends on the log's present state is decided when the commit is formed (forming.py).

SMALL    A request of few bytes outside a transaction keeps its rows as batches: they are joined with those of other
         requests into one frame, and are encoded only then.
LARGE    Any other is encoded where it is made, in the caller's thread, its checksums too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import TooLarge
from headwater.frames.frame import Flag, Kind
from headwater.ids import Lsn
from headwater.log.drafts import Draft, Receipt
from headwater.log.writer import Request
from headwater.metadata.operations import TopicRecord
from headwater.metadata.records import (
    CommittedOffset,
    OffsetsRecord,
    Part,
    SourceRecord,
    pack_record,
    unpack_offsets,
    unpack_source,
)
from headwater.metadata.shard_state import Answer
from headwater.topics.batches import encode_batch
from headwater.topics.groups import Generation

if TYPE_CHECKING:
    from headwater.topics.plain_rows import PlainRow

MESSAGE_BYTES = 512
"""What the frame, and the IPC message around the columns, add to rows: for the size of what is in flight."""
_LARGE_BYTES = 64 * 1024
_FEW_ROWS = 64
"""The exact size of a batch takes longer to know than all else that is asked of it here: only these are worth it."""


class Identity(NamedTuple):
    """By what a request can be told again."""

    producer_id: int = 0
    epoch: int = 0
    sequence: int = 0
    key: bytes = b""


class GroupOffset(NamedTuple):
    """An offset that a member commits, under the generation of its lease."""

    group: str
    topic_number: int
    partition: int
    offset: int
    epoch: int
    counter: int


class Registered(NamedTuple):
    """A producer as it was registered: the sequence from which it goes on is that of its earlier epochs."""

    producer_id: int
    epoch: int
    next_sequence: int


class SourceAt(NamedTuple):
    """How far a source has been taken in, with these rows."""

    name: str
    position: Any
    watermark_us: int | None


@dataclass(frozen=True)
class PartitionRows:
    """Rows for one partition."""

    topic: TopicRecord
    partition: int
    batch: pa.RecordBatch
    tombstones: bool = False

    @property
    def key(self) -> int:
        return self.topic.number << 32 | self.partition

    @property
    def joins_with(self) -> tuple[int, int, bool]:
        """Rows with the same value may stand in one frame."""
        return self.key, len(self.topic.schemas), self.tombstones


class Told(NamedTuple):
    """What became of a request."""

    answer: Answer
    duplicate: bool
    by_key: bool = False
    """It was known by its idempotency key, and the producer's number that it came with was not used."""


class TopicRequest(Request):
    """One write that the topics ask for."""

    __slots__ = (
        "alone",
        "by_key",
        "duplicate",
        "expected",
        "groups",
        "identity",
        "placed",
        "plain",
        "registered",
        "registers",
        "rows",
        "told",
        "told_as",
    )

    def __init__(
        self,
        rows: list[PartitionRows],
        *,
        drafts: list[Draft] | None = None,
        frame_bytes: int,
        identity: Identity | None = None,
        expected: dict[int, int] | None = None,
        groups: tuple[GroupOffset, ...] = (),
        registers: str | None = None,
        alone: bool = False,
        told_as: Callable[[Told], Any] | None = None,
        plain: PlainRow | None = None,
        future: Future[Any] | None = None,
    ) -> None:
        super().__init__(drafts or (), frame_bytes, future)
        self.rows = rows
        self.plain = plain
        """One row that becomes columns with those of other requests, when the commit is formed (plain_rows.py)."""
        self.identity = identity
        self.expected = expected
        """The next offset that a partition must have, by its key."""
        self.groups = groups
        """Offsets whose leases are checked; the frames that commit them are among the drafts."""
        self.registers = registers
        """The name of a producer that begins its next epoch."""
        self.registered: Registered | None = None
        self.placed: tuple[Part, ...] = ()
        """Where its rows will be, once the commit is formed."""
        self.alone = alone
        """It is a write of its own, whatever its size."""
        self.duplicate = False
        self.by_key = False
        self.told: Told | None = None
        self.told_as = told_as
        """The form in which a future's holder is told."""

    @property
    def joins(self) -> bool:
        """True for a small request: its rows may stand in a frame with others'."""
        return not self.drafts and not self.alone

    def result(self, receipt: Receipt) -> Any:
        if self.told is None:
            answer = Answer(receipt.first_lsn, receipt.last_lsn, receipt.append_time_us, self.placed)
            self.told = Told(answer, self.duplicate, self.by_key)
        return self.told if self.told_as is None else self.told_as(self.told)

    def tell_again(self, answer: Answer, *, by_key: bool = False) -> None:
        """It was applied before: the same answer."""
        self.told = Told(answer, duplicate=True, by_key=by_key)
        self.answer(Receipt(Lsn(answer.first_lsn), Lsn(answer.last_lsn), (), answer.append_time_us))


def size_of(rows: list[PartitionRows]) -> int:
    """About how many bytes these rows take in the log."""
    return sum(_bytes_of(each.batch) + MESSAGE_BYTES for each in rows)


def _bytes_of(batch: pa.RecordBatch) -> int:
    """The bytes of its buffers; of what it shows of them where it may be a small slice of large ones."""
    buffers: int = batch.get_total_buffer_size()
    if buffers < _LARGE_BYTES or batch.num_rows > _FEW_ROWS:
        return buffers
    shown: int = batch.nbytes
    return shown


def drafts_of(
    rows: PartitionRows, *, frame_bytes_max: int, flags: int = 0, identity: Identity | None = None
) -> list[Draft]:
    """The data frames of these rows, each within the limit; a row above it alone is refused by number."""
    batch = rows.batch
    if rows.tombstones:
        flags |= Flag.TOMBSTONES
    drafts: list[Draft] = []
    pending = [(0, batch)]
    while pending:
        first, piece = pending.pop()
        # Most pieces fit, so that encoding is the quickest way to know; a piece of far more is not encoded for nothing.
        may_fit = piece.get_total_buffer_size() <= frame_bytes_max or piece.nbytes <= frame_bytes_max
        body = encode_batch(piece) if may_fit else None
        if body is not None and body.nbytes <= frame_bytes_max:
            drafts.append(_data_draft(rows.topic, rows.partition, piece, body, flags, identity))
            continue
        if piece.num_rows == 1:
            raise row_too_large(rows.topic.name, first, piece.nbytes, frame_bytes_max)
        half = piece.num_rows // 2
        pending.append((first + half, piece.slice(half)))
        pending.append((first, piece.slice(0, half)))
    return drafts


def row_too_large(topic: str, number: int, row_bytes: int, limit_bytes: int) -> TooLarge:
    return TooLarge(
        "a row is above the limit of a frame: make it smaller, or raise frame_bytes_max",
        topic=topic,
        row=number,
        row_bytes=row_bytes,
        limit_bytes=limit_bytes,
    )


def joined_draft(rows: list[PartitionRows]) -> Draft:
    """One frame of the rows of several requests."""
    first = rows[0]
    batch = first.batch if len(rows) == 1 else pa.concat_batches([each.batch for each in rows])
    flags = Flag.TOMBSTONES if first.tombstones else 0
    return _data_draft(first.topic, first.partition, batch, encode_batch(batch), flags, None)


def _data_draft(
    topic: TopicRecord, partition: int, batch: pa.RecordBatch, body: memoryview, flags: int, identity: Identity | None
) -> Draft:
    time_min_us, time_max_us = _time_range(batch, topic.time_column)
    return Draft(
        Kind.DATA,
        body,
        topic_number=topic.number,
        partition=partition,
        row_count=batch.num_rows,
        schema_version=len(topic.schemas),
        flags=flags,
        producer_id=identity.producer_id if identity is not None else 0,
        producer_epoch=identity.epoch if identity is not None else 0,
        sequence=identity.sequence if identity is not None else 0,
        time_min_us=time_min_us,
        time_max_us=time_max_us,
    )


def _time_range(batch: pa.RecordBatch, column: str | None) -> tuple[int | None, int | None]:
    """Of the topic's time column, in microseconds; nothing where it has none, or no value."""
    if column is None:
        return None, None
    values = batch.column(column)
    if values.type.unit != "us":
        values = values.cast(pa.timestamp("us", values.type.tz))
    found = pc.min_max(values)
    return found["min"].value, found["max"].value


def group_offsets(
    group: str, topic_number: int, offsets: Mapping[int, tuple[int, Generation]]
) -> tuple[GroupOffset, ...]:
    """What a member commits, as the log checks it."""
    return tuple(
        GroupOffset(group, topic_number, partition, offset, *generation)
        for partition, (offset, generation) in sorted(offsets.items())
    )


def record_drafts(groups: Sequence[GroupOffset], sources: Sequence[SourceAt]) -> list[Draft]:
    """The frames that commit groups' offsets and sources' positions; read once before they are written, so that nothing
    can be made durable that a fold could not take in."""
    by_group: dict[tuple[str, int], list[CommittedOffset]] = {}
    for each in groups:
        committed = CommittedOffset(each.partition, each.offset, each.epoch, each.counter)
        by_group.setdefault((each.group, each.topic_number), []).append(committed)
    drafts = []
    for (group, topic_number), offsets in by_group.items():
        body = pack_record(OffsetsRecord(group, topic_number, tuple(offsets)))
        unpack_offsets(body)
        drafts.append(Draft(Kind.OFFSETS, body))
    for source in sources:
        body = pack_record(SourceRecord(source.name, source.position, source.watermark_us))
        unpack_source(body)
        drafts.append(Draft(Kind.SOURCE, body))
    return drafts


def merged(rows: Sequence[PartitionRows]) -> list[PartitionRows]:
    """The same rows in as few frames as their order allows: those of one partition stay in order."""
    done: list[list[PartitionRows]] = []
    open_at: dict[int, tuple[tuple[int, int, bool], int]] = {}
    for each in rows:
        frame, at = open_at.get(each.key, (None, 0))
        if frame == each.joins_with:
            done[at].append(each)
        else:
            open_at[each.key] = (each.joins_with, len(done))
            done.append([each])
    return [
        group[0]
        if len(group) == 1
        else PartitionRows(
            group[0].topic,
            group[0].partition,
            pa.concat_batches([each.batch for each in group]),
            group[0].tombstones,
        )
        for group in done
    ]
