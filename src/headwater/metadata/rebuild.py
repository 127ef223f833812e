"""The metadata of a journal that is lost, from what the log says of itself.

    comes back        from
    topics            their SCHEMA frames: number, name, id, key, time column, when they were created
    schema versions   the same; a version of which the log holds no row is taken to be the next one that it holds
    partitions        the most that a SCHEMA frame says, or that a frame of rows shows
    groups            OFFSETS frames, and the shard's checkpoint
    the log's start   its first LSN

PROMISE  Every row that is in the log can be read again, in the schema that it was written in, under its topic's name.
         A number that was ever given out, as far as log and checkpoint show, is never given out again.
LOST     Policies, and tables with how they are partitioned; topics and groups of which no frame is left; schema
         versions and partitions that came after the last SCHEMA frame and never held a row; that a topic was deleted,
         unless a later one has its name.
PURE     No I/O: whoever calls walks the log, and writes the operations into a journal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.frames.frame import Header, Kind, payload
from headwater.metadata.operations import (
    AddSchema,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    ForgetTopics,
    Operation,
    SetLogStart,
    TopicRecord,
)
from headwater.metadata.records import SchemaRecord, unpack_offsets, unpack_schema_record
from headwater.metadata.shard_state import ShardState

BODIES = frozenset({Kind.SCHEMA, Kind.OFFSETS})
"""Of frames of these kinds the body is needed; of all others the header is enough."""

_NO_TOPIC_ID = bytes(16)


@dataclass
class _Seen:
    """What the log shows of a topic."""

    versions: dict[int, SchemaRecord] = field(default_factory=dict)
    partitions: int = 1
    rows: int = 0


@dataclass(frozen=True)
class Rebuilt:
    """The operations that a new journal begins with, and what a person should know about them."""

    operations: list[Operation]
    topics: list[TopicRecord]
    """As they will be, by number; those that were replaced by a later one of the same name are not among them."""
    rows: dict[int, int]
    """Rows that the log holds of each topic."""
    replaced: list[TopicRecord]
    """Topics whose name a later one has: they are deleted again."""
    unnamed: list[int]
    """Numbers that were given out, and of which the log holds no schema; nothing of them comes back."""
    groups: list[str]
    log_start: int
    journal_lsn: int
    """How far the journal must reach: a checkpoint that was made with a later operation would not be believed."""

    @property
    def filler(self) -> Operation:
        """An operation that changes nothing, to reach that far with."""
        return SetLogStart(self.log_start, ())


class Rebuilding:
    """Take in every frame of the log, in order, then ask for the result."""

    def __init__(self) -> None:
        self._topics: dict[int, _Seen] = {}
        self._groups: dict[str, int] = {}
        self._first_lsn = 0
        self._number_max = 0
        self._journal_lsn = 0

    def take(self, header: Header, body: bytes | None, first_lsn: int | None = None) -> None:
        """The next frame; `first_lsn` where it stands for more than its own LSN, as a gap does."""
        self._first_lsn = self._first_lsn or (header.lsn if first_lsn is None else first_lsn)
        self._number_max = max(self._number_max, header.topic_number)
        if header.kind == Kind.DATA or header.kind == Kind.SPARSE:
            seen = self._topics.setdefault(header.topic_number, _Seen())
            seen.partitions = max(seen.partitions, header.partition + 1)
            seen.rows += header.row_count
        elif header.kind == Kind.SCHEMA:
            assert body is not None
            record = unpack_schema_record(payload(header, memoryview(body)))
            seen = self._topics.setdefault(header.topic_number, _Seen())
            seen.versions[record.version] = record
            seen.partitions = max(seen.partitions, record.partitions)
        elif header.kind == Kind.OFFSETS:
            assert body is not None
            group = unpack_offsets(payload(header, memoryview(body))).group
            self._groups.setdefault(group, header.append_time_us)

    def know(self, state: ShardState, journal_lsn: int) -> None:
        """A checkpoint of the shard remembers numbers and groups of which the log holds no frame any more, and the
        last operation of the journal that it was made with."""
        self._journal_lsn = max(self._journal_lsn, journal_lsn)
        for key in state.next_offsets:
            self._number_max = max(self._number_max, key >> 32)
        for group, number in state.groups:
            self._number_max = max(self._number_max, number)
            self._groups.setdefault(group, state.time_us)

    def result(self) -> Rebuilt:
        operations: list[Operation] = []
        topics: dict[str, TopicRecord] = {}
        replaced: list[TopicRecord] = []
        unnamed: list[int] = []
        for number in range(1, self._number_max + 1):
            seen = self._topics.get(number)
            if seen is None or not seen.versions:
                unnamed.append(number)
                operations += _placeholder(number)
                continue
            topic = _record(number, seen)
            before = topics.pop(topic.name, None)
            if before is not None:
                replaced.append(before)
                operations.append(DeleteTopic(before.number, topic.created_us))
            topics[topic.name] = topic
            operations += _creation(topic)
        operations += [CreateGroup(name, created_us) for name, created_us in sorted(self._groups.items())]
        log_start = max(self._first_lsn, 1)
        if log_start > 1:
            operations.append(SetLogStart(log_start, ()))
        return Rebuilt(
            operations=operations,
            topics=sorted(topics.values(), key=lambda topic: topic.number),
            rows={number: seen.rows for number, seen in self._topics.items()},
            replaced=replaced,
            unnamed=unnamed,
            groups=sorted(self._groups),
            log_start=log_start,
            journal_lsn=self._journal_lsn,
        )


def _record(number: int, seen: _Seen) -> TopicRecord:
    newest = seen.versions[max(seen.versions)]
    schemas = []
    for version in range(1, newest.version + 1):
        # Of a version that is not there no row is left, so any later one may stand in its place.
        schemas.append(seen.versions[min(each for each in seen.versions if each >= version)].schema)
    return TopicRecord(
        number=number,
        name=newest.name,
        topic_id=newest.topic_id,
        created_us=newest.created_us,
        schemas=tuple(schemas),
        partitions=seen.partitions,
        key=newest.key,
        time_column=newest.time_column,
    )


def _creation(topic: TopicRecord) -> Iterator[Operation]:
    """A topic begins with one schema, and gets the others one by one."""
    yield CreateTopic(
        TopicRecord(
            number=topic.number,
            name=topic.name,
            topic_id=topic.topic_id,
            created_us=topic.created_us,
            schemas=topic.schemas[:1],
            partitions=topic.partitions,
            key=topic.key,
            time_column=topic.time_column,
        )
    )
    for version, schema in enumerate(topic.schemas[1:], 2):
        yield AddSchema(topic.number, version, schema)


def _placeholder(number: int) -> list[Operation]:
    """The number is passed over for good: numbers are dense, and none is given out twice."""
    # No topic can have this name, which holds characters that a name may not.
    name = f"(number {number})"
    record = TopicRecord(number=number, name=name, topic_id=_NO_TOPIC_ID, created_us=0, schemas=(b"",), partitions=1)
    return [CreateTopic(record), DeleteTopic(number, 0), ForgetTopics((number,))]
