"""Where a row is, and where it came from.

    row → data file → landing → segment and position → write → producer, sequence, idempotency key

PROMISE  What is told was looked at: the frame in the log, the file in the table, the records in the ledger.  What the
         log has let go of, what has not landed and what was erased is said in so many words (`notes`).
NOT HERE Whether it is all as it should be: audit.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headwater.errors import Forgotten, InvalidRequest
from headwater.frames.frame import Flag, Header, Kind
from headwater.ids import Lsn
from headwater.lake.extra import from_the_extra
from headwater.lake.ledger_records import Erased, Landed, LedgerRecord, Restored, Verified
from headwater.lake.shape import landing_table
from headwater.log.device import Frame
from headwater.metadata.operations import TopicRecord
from headwater.metadata.records import SequenceEntry, unpack_sequences
from headwater.topics.batches import decode_rows
from headwater.topics.engine import Engine
from headwater.topics.names import whole_number
from headwater.topics.positions import check_partition
from headwater.topics.schema import unpack_schema

if TYPE_CHECKING:
    from headwater.lake.file_tracing import FilePlace
    from headwater.lake.landing import Lake


@dataclass(frozen=True)
class LogPlace:
    """The frame that holds the row."""

    segment: str
    position: int
    """In bytes, in the segment's file."""
    lsn: int
    first_offset: int
    offsets: int
    """How many offsets the frame stands for."""
    rows: int
    """How many rows are left in it."""
    schema_version: int
    epoch: int
    time_us: int


@dataclass(frozen=True)
class WritePlace:
    """The write that brought the row: all its frames, or none, are there."""

    first_lsn: int
    lsn: int
    frames: int
    transaction: bool


@dataclass(frozen=True)
class Sender:
    """Who sent the row, as far as it was told."""

    producer_id: int = 0
    producer: str = ""
    """Its name; empty where it has been forgotten."""
    epoch: int = 0
    sequence: int = 0
    key_hash: str = ""
    """128 bits of the caller's idempotency key."""


@dataclass(frozen=True)
class LandingPlace:
    """The landing that brought the row into its table."""

    commit_id: str
    table: str
    snapshot: int
    lsn_from: int
    """Rows after this LSN ..."""
    lsn_to: int
    """... and up to this one."""
    rows: int
    landed_us: int
    adopted: bool = False
    restored: bool = False
    """A lost log had landed it, and this log took the table over."""
    verified_us: int | None = None
    verified_by: str = ""


@dataclass(frozen=True)
class RowTrace:
    topic: str
    topic_id: str
    partition: int
    offset: int
    file: FilePlace | None = None
    landing: LandingPlace | None = None
    log: LogPlace | None = None
    write: WritePlace | None = None
    sender: Sender | None = None
    notes: tuple[str, ...] = ()

    @property
    def lsn(self) -> int | None:
        if self.log is not None:
            return self.log.lsn
        return self.file.lsn if self.file is not None else None


def trace_row(engine: Engine, lake: Lake, topic: TopicRecord, partition: int, offset: int) -> RowTrace:
    """All that is known of the row at this offset."""
    check_partition(topic, whole_number(partition, "partition"))
    following = engine.next_offset(topic.number, partition)
    if not 0 <= whole_number(offset, "offset") < following:
        raise InvalidRequest(
            f"nothing was appended to {topic.name!r} at this offset: its next is {following}",
            partition=partition,
            offset=offset,
        )
    trace = _in_log(engine, topic, RowTrace(topic.name, topic.topic_id.hex(), partition, offset))
    if topic.table is None:
        return _noted(trace, "the topic has no table")
    records = [each for each in lake.ledger.records() if getattr(each, "topic_id", "") == trace.topic_id]
    landed_lsn = lake.ledger.state().topic(trace.topic_id).landed_lsn
    if trace.lsn is not None and trace.lsn > landed_lsn:
        return _noted(trace, f"it has not landed: the table holds rows up to lsn {landed_lsn}")
    trace = _in_table(lake, topic, trace)
    return _erased(_landed(trace, records), records)


def _noted(trace: RowTrace, note: str) -> RowTrace:
    return replace(trace, notes=(*trace.notes, note))


# The log ------------------------------------------------------------------------------------------


def _in_log(engine: Engine, topic: TopicRecord, trace: RowTrace) -> RowTrace:
    log = engine.shard.log
    frame = next(iter(log.read_partition(topic.number, trace.partition, trace.offset)), None)
    if frame is None or frame.header.base_offset > trace.offset:
        return _noted(trace, "the log has let go of it")
    header = frame.header
    place = LogPlace(
        frame.segment,
        frame.position,
        header.lsn,
        header.base_offset,
        header.offset_count,
        header.row_count,
        header.schema_version,
        header.epoch,
        header.append_time_us,
    )
    first_lsn = header.lsn - header.write_index
    write = WritePlace(
        first_lsn, first_lsn + header.write_count - 1, header.write_count, bool(header.flags & Flag.TRANSACTION)
    )
    trace = replace(trace, log=place, write=write)
    if header.kind == Kind.SPARSE and not _holds(frame, topic, trace.offset):
        trace = _noted(trace, "of its frame other rows are left, and this one was taken out")
    try:
        entry = _entry(log.read(Lsn(write.first_lsn), Lsn(write.lsn)), topic.number, trace)
    except Forgotten:
        return _noted(trace, "the log has let go of the frame that names who sent it")
    return replace(trace, sender=_sender(engine, header, entry))


def _holds(frame: Frame, topic: TopicRecord, offset: int) -> bool:
    rows = decode_rows(frame.header, frame.body, unpack_schema(topic.schemas[frame.header.schema_version - 1]))
    assert rows.offsets is not None
    return offset in rows.offsets.to_pylist()


def _entry(frames: Iterable[Frame], topic_number: int, trace: RowTrace) -> SequenceEntry | None:
    """Of the requests that a write joins, the one that brought the row."""
    entries = (
        entry
        for frame in frames
        if frame.header.kind == Kind.SEQUENCES
        for entry in unpack_sequences(frame.body)
        if any(
            (part.topic_number, part.partition) == (topic_number, trace.partition)
            and part.base_offset <= trace.offset < part.base_offset + part.rows
            for part in entry.parts
        )
    )
    return next(entries, None)


def _sender(engine: Engine, header: Header, entry: SequenceEntry | None) -> Sender | None:
    if entry is None and not header.producer_id:
        return None
    found = (
        Sender(entry.producer_id, "", entry.epoch, entry.sequence, entry.key.hex())
        if entry is not None
        else Sender(header.producer_id, "", header.producer_epoch, header.sequence)
    )
    known = engine.shard.look(lambda state: state.producers.get(found.producer_id))
    return replace(found, producer=known.name) if known is not None else found


# The table ----------------------------------------------------------------------------------------


def _in_table(lake: Lake, topic: TopicRecord, trace: RowTrace) -> RowTrace:
    with from_the_extra():
        from headwater.lake.file_tracing import find_in_table
    name = landing_table(topic)
    with closing(lake.place.connect()) as tables:
        state = tables.load(name)
        if state is None:
            return _noted(trace, f"there is no table {name}")
        found = find_in_table(state, trace.partition, trace.offset, trace.lsn)
    if not found:
        return _noted(trace, f"the table {name} does not hold it now: audit it")
    if len(found) > 1:
        trace = _noted(trace, f"the table {name} holds it {len(found)} times: audit it")
    return replace(trace, file=found[0])


def _landed(trace: RowTrace, records: Iterable[LedgerRecord]) -> RowTrace:
    """The last landing that the row can have come by, and whether it was verified."""
    landing: LandingPlace | None = None
    for record in records:
        match record:
            case Landed() if record.rows and _may_have_brought(record, trace):
                landing = LandingPlace(
                    record.commit_id,
                    record.table,
                    record.snapshot,
                    record.lsn_from,
                    record.lsn_to,
                    record.rows,
                    record.at_us,
                    adopted=record.adopted,
                )
            case Restored() if _may_have_brought(record, trace):
                landing = LandingPlace(
                    "", record.table, record.snapshot, 0, record.lsn_to, record.rows, record.at_us, restored=True,
                    verified_us=record.at_us, verified_by="taken over",
                )  # fmt: skip
            case Verified() if landing is not None and record.commit_id == landing.commit_id:
                landing = replace(landing, verified_us=record.at_us, verified_by=record.mode)
            case _:
                pass
    if landing is None:
        return _noted(trace, "the ledger does not know by which landing it came")
    return replace(trace, landing=landing)


def _may_have_brought(record: Landed | Restored, trace: RowTrace) -> bool:
    """By its LSN; where that is known from nowhere any more, by its offset."""
    lsn_from = record.lsn_from if isinstance(record, Landed) else 0
    if trace.lsn is not None:
        return lsn_from < trace.lsn <= record.lsn_to
    return any(
        partition == trace.partition and first <= trace.offset <= last for partition, first, last in record.offsets
    )


def _erased(trace: RowTrace, records: Iterable[LedgerRecord]) -> RowTrace:
    for record in records:
        if isinstance(record, Erased) and any(
            partition == trace.partition and first <= trace.offset <= last for partition, first, last in record.offsets
        ):
            return _noted(trace, f"it was erased: {record.reason} (erasure {record.erasure_id})")
    return trace
