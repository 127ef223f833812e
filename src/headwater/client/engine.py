"""The engine of a log behind a server: the verbs of topics/verbs.py, each asked of the server.

PROMISE  What returns has been done and is durable there; what is raised is what the server raised.
         Rows are read into Arrow here, by the same code as an embedded log's, and looked at again there.
TOPICS   A topic is named to the server by its id, so one that was deleted and made again is another.  What is known of
         a topic for appending may be old by some moments: where a row does not fit, the topic is asked for once more.
THREADS  Safe for any number of them.  In a forked child everything is closed.
NOT HERE The log.  Sending appends: pipe.py.  Groups: coordination.py.  The lake: source.py.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, TypeVar

import pyarrow as pa

from headwater.client.commits import client_rows, commit_request
from headwater.client.connection import Connection
from headwater.client.coordination import ClientCoordinator
from headwater.client.partition_streams import PartitionStreams
from headwater.client.pipe import Pipe
from headwater.client.preparing import Preparing, ReadRows
from headwater.client.reading import rows_of
from headwater.client.requests import Item
from headwater.client.threads import Closes, ends_at_exit
from headwater.errors import HeadwaterError, InvalidRequest, RowsRefused, UnknownPartition, UnknownTopic
from headwater.ids import Lsn
from headwater.metadata.operations import TopicRecord
from headwater.protocol.calls import (
    ALTER_TOPIC,
    CHECKPOINT,
    CLEANUP,
    COMMIT,
    COMMIT_OFFSETS,
    COMMITTED,
    COMPACT,
    CREATE_TOPICS,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    DURABLE_LSN,
    FIND_TOPIC,
    FLUSH,
    GROUPS,
    OFFSETS,
    REGISTER,
    SOURCE_POSITION,
    STATUS,
    TOPIC,
    TOPICS,
    TOPICS_STATUS,
    WAIT_BEYOND,
    AlterTopic,
    CommitOffsets,
    CreateTopics,
    DeleteTopic,
    GroupTopic,
    NamedSource,
    NamedTopic,
    Nothing,
    OneTopic,
    Register,
    SomeTopics,
    TransactionOffset,
    WaitBeyond,
    WireCompacted,
    WireNewTopic,
)
from headwater.settings import Settings
from headwater.topics.answers import (
    Appended,
    CommittedTransaction,
    GroupDescription,
    OffsetRange,
    SourcePosition,
    Status,
    TopicDescription,
    TopicStatus,
)
from headwater.topics.appending import OnRejected, Prepared
from headwater.topics.cleanup import CleanupReport
from headwater.topics.compaction import CleanupFailure, Compacted, CompactionReport
from headwater.topics.consumer import Consumer
from headwater.topics.groups import Generation
from headwater.topics.names import checked_name, whole_number
from headwater.topics.reading import OlderPart, Rows, Wanted
from headwater.topics.requests import GroupOffset, Identity, PartitionRows, Registered, SourceAt
from headwater.topics.schema import pack_schema, schema_of, unpack_schema
from headwater.topics.topic import NewTopic, altered_schema, key_columns

Done = TypeVar("Done")


class ClientEngine(Closes):
    def __init__(self, connection: Connection, settings: Settings | None = None) -> None:
        self.connection = connection
        self.settings = settings if settings is not None else Settings()
        """Of what is done here: landings."""
        self.directory = connection.address.text
        self._preparing = Preparing()
        self._streams = PartitionStreams(connection)
        self.coordinator = ClientCoordinator(connection, self.id_of, self._streams.standing)
        self._known: dict[int, TopicRecord] = {}
        self._pipes: dict[bytes, Pipe] = {}
        self._lock = threading.Lock()
        self._name = f"client-{connection.entropy(8).hex()}"
        self._committing = threading.Lock()
        self._commits: Registered | None = None
        self._commit_sequence = 0
        ends_at_exit(self)

    def check_open(self) -> None:
        self.connection.check_open()

    # Topics ------------------------------------------------------------------------------------

    def topic(self, name: str) -> TopicRecord:
        return self._noted(self.connection.call(FIND_TOPIC, NamedTopic(checked_name(name, "topic"))))

    def topic_named(self, name: str) -> TopicRecord | None:
        try:
            return self.topic(name)
        except (UnknownTopic, InvalidRequest):
            self.check_open()
            return None

    def topic_numbered(self, number: int) -> TopicRecord:
        known = self._known.get(number)
        if known is None:
            self.topics()
            known = self._known.get(number)
        if known is None:
            raise UnknownTopic("the topic was deleted", topic_number=number)
        return self._noted(self.connection.call(TOPIC, OneTopic(known.topic_id)))

    def _lately(self, number: int) -> TopicRecord:
        """The topic as it was when it was last heard of."""
        known = self._known.get(number)
        return known if known is not None else self.topic_numbered(number)

    def id_of(self, number: int) -> bytes:
        return self._lately(number).topic_id

    def topics(self) -> list[TopicRecord]:
        return [self._noted(record) for record in self.connection.call(TOPICS, Nothing())]

    def _noted(self, record: TopicRecord) -> TopicRecord:
        self._known[record.number] = record
        return record

    def create_topics(self, wanted: Sequence[NewTopic]) -> list[TopicRecord]:
        asked = CreateTopics(tuple(_wire_topic(each) for each in wanted))
        return [self._noted(record) for record in self.connection.call(CREATE_TOPICS, asked)]

    def alter_topic(
        self,
        number: int,
        *,
        schema: object = None,
        add: Mapping[str, object] | None = None,
        widen: Mapping[str, object] | None = None,
        partition_by: str | Sequence[str] | None = None,
        **policy: Any,
    ) -> TopicRecord:
        there = self.topic_numbered(number)
        wanted = None
        if schema is not None or add or widen:
            wanted = pack_schema(altered_schema(unpack_schema(there.schemas[-1]), there, schema, add, widen))
        asked = AlterTopic(
            there.topic_id,
            wanted,
            partition_by=_names(partition_by),
            **{name: _plain(each) for name, each in policy.items()},
        )
        return self._noted(self.connection.call(ALTER_TOPIC, asked))

    def delete_topic(self, name: str, *, force: bool = False) -> None:
        self.connection.call(DELETE_TOPIC, DeleteTopic(checked_name(name, "topic"), force))

    def describe_topic(self, number: int) -> TopicDescription:
        return self.connection.call(DESCRIBE_TOPIC, OneTopic(self.id_of(number)))

    def describe_topics(self) -> list[TopicStatus]:
        return self.connection.call(TOPICS_STATUS, Nothing())

    def describe_groups(self) -> list[GroupDescription]:
        return self.connection.call(GROUPS, Nothing())

    def status(self) -> Status:
        return self.connection.call(STATUS, Nothing())

    # Appending ---------------------------------------------------------------------------------

    def append(self, number: int, rows: object, **how: Any) -> Appended:
        return self._queued(number, rows, urgent=True, **how).result()

    def append_future(self, number: int, rows: object, **how: Any) -> Future[Appended]:
        return self._queued(number, rows, urgent=False, **how)

    def _queued(
        self,
        number: int,
        rows: object,
        *,
        urgent: bool,
        partition: int | None = None,
        rejected: OnRejected = "refuse",
        expect_offset: int | None = None,
        identity: Identity | None = None,
    ) -> Future[Appended]:
        def read(topic: TopicRecord) -> ReadRows:
            if rejected == "refuse" and partition is None:
                plain = self._preparing.plain(topic, rows)
                if plain is not None:
                    return plain
            return self._preparing.rows(topic, rows, partition=partition, rejected=rejected)

        taken = self._read(number, read)
        if expect_offset is not None:
            expect_offset = whole_number(expect_offset, "expect_offset")
            if expect_offset < 0:
                raise InvalidRequest("an offset is at least 0", expect_offset=expect_offset)
        if partition is not None:
            partition = whole_number(partition, "partition")
        item = Item(taken, partition, expect_offset, identity)
        self._pipe(taken.topic).submit(item, urgent=urgent)
        return item.future

    def delete_keys(self, number: int, keys: object, *, identity: Identity | None = None) -> Appended:
        taken = self._read(number, lambda topic: self._preparing.keys(topic, keys))
        item = Item(taken, identity=identity)
        self._pipe(taken.topic).submit(item, urgent=True)
        return item.future.result()

    def _read(self, number: int, read: Callable[[TopicRecord], Done]) -> Done:
        """Read rows by what is known of the topic, and once more by what it is now where they do not fit."""
        self.check_open()
        known = self._known.get(number)
        if known is None:
            return read(self.topic_numbered(number))
        try:
            return read(known)
        except (RowsRefused, UnknownPartition):
            now = self.topic_numbered(number)
            if now == known:
                raise
            return read(now)

    def _pipe(self, topic: TopicRecord) -> Pipe:
        with self._lock:
            pipe = self._pipes.get(topic.topic_id)
            if pipe is None:
                name = f"{self._name}-{topic.number}"
                pipe = Pipe(self.connection, topic.topic_id, self._preparing, lambda: self.register_producer(name))
                self._pipes[topic.topic_id] = pipe
            return pipe

    # Transactions, producers, sources ----------------------------------------------------------

    def prepare_rows(
        self, name: str, rows: object, *, partition: int | None = None, rejected: OnRejected = "refuse"
    ) -> Prepared:
        taken = self._preparing.rows(self.topic(name), rows, partition=partition, rejected=rejected)
        return client_rows(taken, partition)

    def prepare_keys(self, name: str, keys: object) -> Prepared:
        return client_rows(self._preparing.keys(self.topic(name), keys), None)

    def commit_transaction(
        self,
        rows: list[PartitionRows],
        *,
        groups: Sequence[GroupOffset],
        sources: Sequence[SourceAt],
        identity: Identity | None,
        expected: dict[int, int] | None = None,
    ) -> tuple[CommittedTransaction, bool]:
        request = commit_request(rows, groups, sources, identity, expected or {}, self.id_of)
        if identity is not None:
            committed = self.connection.call(COMMIT, request, retry=True)
            return committed.transaction, committed.number_used
        with self._committing:
            # Numbered by a producer of the client's own, so that it can be sent again.
            if self._commits is None:
                self._commits = self.register_producer(f"{self._name}-commits")
                self._commit_sequence = self._commits.next_sequence
            own = Identity(self._commits.producer_id, self._commits.epoch, self._commit_sequence)
            request = commit_request(rows, groups, sources, own, expected or {}, self.id_of)
            try:
                committed = self.connection.call(COMMIT, request, retry=True)
            except HeadwaterError:
                # Whether the number was used is not known in every case: the next one begins anew.
                self._commits = None
                raise
            self._commit_sequence += 1
            return committed.transaction, True

    def register_producer(self, name: str) -> Registered:
        found = self.connection.call(REGISTER, Register(name))
        return Registered(found.producer_id, found.epoch, found.next_sequence)

    def source_position(self, name: str) -> SourcePosition | None:
        return self.connection.call(SOURCE_POSITION, NamedSource(checked_name(name, "source")))

    # Reading -----------------------------------------------------------------------------------

    def read(self, number: int, wanted: Wanted) -> Rows:
        return rows_of(self.connection, self.id_of(number), wanted)

    def offsets(self, number: int) -> dict[int, OffsetRange]:
        return self.connection.call(OFFSETS, OneTopic(self.id_of(number)))

    def durable_lsn(self) -> int:
        return self.connection.call(DURABLE_LSN, Nothing())

    # Groups: what a consumer needs (consumer.GroupEngine) --------------------------------------

    def consumer(self, name: str, group: str, **options: Any) -> Consumer:
        topic = self.topic(name)
        checked_name(group, "group")
        return Consumer(_Polling(self, topic.number), topic.name, topic.number, group, **options)

    def partitions_of(self, topic_number: int) -> int:
        return self.topic_numbered(topic_number).partitions

    def committed(self, group: str, topic_number: int) -> Mapping[int, int]:
        return self.connection.call(COMMITTED, GroupTopic(group, self.id_of(topic_number)))

    def commit_offsets(self, group: str, topic_number: int, offsets: Mapping[int, tuple[int, Generation]]) -> None:
        topic_id = self.id_of(topic_number)
        wire = tuple(
            TransactionOffset(group, topic_id, partition, offset, *generation)
            for partition, (offset, generation) in sorted(offsets.items())
        )
        if wire:
            self.connection.call(COMMIT_OFFSETS, CommitOffsets(wire))
            self.coordinator.ask_again()

    def first_offset(self, topic_number: int, partition: int) -> int:
        return self._offsets_of(topic_number, partition).first

    def next_offset(self, topic_number: int, partition: int) -> int:
        return self._offsets_of(topic_number, partition).next

    def _offsets_of(self, topic_number: int, partition: int) -> OffsetRange:
        return self.offsets(topic_number).get(partition, OffsetRange(0, 0))

    def read_rows(
        self, topic_number: int, partition: int, offset: int, rows_max: int
    ) -> tuple[pa.RecordBatch | None, int]:
        return self._streams.take(self.id_of(topic_number), partition, offset, rows_max)

    def gather(self, topic_number: int, offsets: Mapping[int, int]) -> Iterable[pa.RecordBatch]:
        return self._streams.gather(self.id_of(topic_number), offsets)

    def older_rows(self, topic_number: int, partition: int, offset: int) -> OlderPart | None:
        return None  # the server reads the table where the log has let go

    def wait_for_rows(self, lsn: int, timeout_s: float, topic_number: int | None = None) -> bool:
        topic = None if topic_number is None else self.id_of(topic_number)
        return self.connection.call(WAIT_BEYOND, WaitBeyond(lsn, min(timeout_s, 10.0), topic))

    # Upkeep ------------------------------------------------------------------------------------

    def cleanup(self) -> CleanupReport:
        told = self.connection.call(CLEANUP, Nothing())
        return CleanupReport(
            rows_removed=told.rows_removed,
            bytes_saved=told.bytes_saved,
            deleted=told.deleted,
            compacted=tuple(_compacted(each) for each in told.compacted),
            kept=told.kept,
            notes=told.notes,
            failures=tuple(CleanupFailure("", HeadwaterError(each)) for each in told.failures),
        )

    def compact(self, numbers: Iterable[int]) -> CompactionReport:
        asked = SomeTopics(tuple(self.id_of(number) for number in numbers))
        return CompactionReport(compacted=tuple(_compacted(each) for each in self.connection.call(COMPACT, asked)))

    def checkpoint(self) -> bool:
        return self.connection.call(CHECKPOINT, Nothing())

    def flush(self) -> None:
        with self._lock:
            pipes = list(self._pipes.values())
        for pipe in pipes:
            pipe.flush()
        self.connection.call(FLUSH, Nothing())

    def close(self) -> None:
        """Send what is queued, wait for the answers, let go; twice is nothing."""
        if self.connection.is_closed:
            return
        try:
            with self._lock:
                pipes = list(self._pipes.values())
            for pipe in pipes:
                pipe.close()
            self._streams.close()
        finally:
            self.connection.close()

    def end_streams(self) -> None:
        """The interpreter ends: threads come back, and what was not answered is not waited for."""
        with self._lock:
            pipes = list(self._pipes.values())
        for pipe in pipes:
            pipe.end_streams()
        self.connection.close()


class _Polling:
    """The engine for one consumer: what its last poll said is not asked for again."""

    def __init__(self, engine: ClientEngine, topic_number: int) -> None:
        self._engine = engine
        self._number = topic_number
        self.coordinator = engine.coordinator
        self.committed = engine.committed
        self.commit_offsets = engine.commit_offsets
        self.read_rows = engine.read_rows
        self.older_rows = engine.older_rows
        self.gather = engine.gather

    def wait_for_rows(self, lsn: int, timeout_s: float) -> bool:
        return self._engine.wait_for_rows(lsn, timeout_s, self._number)

    def partitions_of(self, topic_number: int) -> int:
        known = self.coordinator.known.get(topic_number)
        return self._engine.partitions_of(topic_number) if known is None else known.partitions

    def first_offset(self, topic_number: int, partition: int) -> int:
        return self._offsets(topic_number, partition).first

    def next_offset(self, topic_number: int, partition: int) -> int:
        return self._offsets(topic_number, partition).next

    def _offsets(self, topic_number: int, partition: int) -> OffsetRange:
        known = self.coordinator.known.get(topic_number)
        found = None if known is None else known.offsets.get(partition)
        return found if found is not None else self._engine._offsets_of(topic_number, partition)

    def durable_lsn(self) -> int:
        # That of the poll before: something that came since then ends the next wait at once.
        known = self.coordinator.known.get(self._number)
        return self._engine.durable_lsn() if known is None else known.durable_lsn


def _compacted(wire: WireCompacted) -> Compacted:
    return Compacted(
        wire.topic,
        wire.rows_removed,
        wire.frames_removed,
        wire.tombstones_removed,
        wire.bytes_saved,
        wire.segments,
        Lsn(wire.up_to_lsn),
    )


def _wire_topic(new: NewTopic) -> WireNewTopic:
    return WireNewTopic(
        name=checked_name(new.name, "topic"),
        schema=None if new.schema is None else pack_schema(schema_of(new.schema)),
        partitions=new.partitions,
        key=key_columns(new.key),
        time=new.time,
        table=new.table,
        partition_by=_names(new.partition_by),
        cleanup=new.cleanup,
        retention=_plain(new.retention),
        retention_bytes=new.retention_bytes,
        tombstones=_plain(new.tombstones),
        changes_retention=_plain(new.changes_retention),
    )


def _names(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return (given,) if isinstance(given, str) else tuple(given)


def _plain(given: Any) -> Any:
    return given.total_seconds() if isinstance(given, timedelta) else given
