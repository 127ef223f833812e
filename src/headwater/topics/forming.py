"""How requests become the writes of one commit: checked in order, numbered, joined.

All of it happens under the baton, in one critical section with the commit itself, so that what is checked here is
still true when the rows are durable (and nobody is told before all is that it was judged by):

    the topic is there · the producer's epoch and sequence · the idempotency key · `expect_offset` ·
    the generation of each group offset

A request that fails is refused alone and uses no number; a transaction is one request, so one failure refuses it whole.
A request that was applied before is given the same answer again, also when the first one is in this very commit.

ORDER    Writes are in the order of their requests.  Small requests in a row become one write, in which rows for one
         partition and schema version are one frame; any other request ends that write and is one of its own.  So a
         crash, which keeps a prefix of a commit's writes, keeps a prefix of every producer's requests.
SCHEMAS  A write is led by the schema frame of each (topic, version) in it that its segment does not have yet (D4).
NOT HERE What is true outside the baton: rows that fit, encoding of large requests (requests.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headwater.errors import (
    Duplicate,
    Fenced,
    HeadwaterError,
    OffsetMismatch,
    OutOfSequence,
    UnknownProducer,
    UnknownTopic,
)
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log.drafts import Draft, Receipt
from headwater.log.writer import FormedWrite, Request, Sequencer
from headwater.metadata.operations import TopicRecord
from headwater.metadata.records import (
    Part,
    ProducerRecord,
    SchemaRecord,
    SequenceEntry,
    pack_record,
)
from headwater.metadata.shard_state import KEY_AGE_US_MAX, PRODUCER_IDLE_US_MAX, Producer, ShardState
from headwater.metadata.state import MetadataState
from headwater.topics.plain_rows import read_together
from headwater.topics.requests import GroupOffset, Identity, PartitionRows, Registered, TopicRequest, joined_draft

JOINED_BYTES_MAX = 8 * 1024 * 1024
"""Small requests are joined up to this many bytes, or to the limits of a frame and of a write."""
_RECORDS = frozenset({int(Kind.SEQUENCES), int(Kind.OFFSETS), int(Kind.PRODUCER), int(Kind.SOURCE)})

CheckLease = Callable[[GroupOffset], None]
"""Raises Fenced where the generation is not that of the partition's present lease."""


@dataclass
class _Write:
    """A write in the making."""

    requests: list[TopicRequest] = field(default_factory=list)
    entries: list[SequenceEntry] = field(default_factory=list)
    drafts: list[Draft] = field(default_factory=list)
    base_offsets: list[int] = field(default_factory=list)
    joined: dict[tuple[int, int, bool], tuple[int, list[PartitionRows]]] = field(default_factory=dict)
    """Small requests' rows by frame to be: its base offset, and the rows."""
    frame_of: dict[int, tuple[int, int, bool]] = field(default_factory=dict)
    """The frame to which a partition's next rows belong, if they fit in it."""
    topics: dict[tuple[int, int], TopicRecord] = field(default_factory=dict)
    bytes: int = 0


class _Pending:
    """What the requests of this commit change, before any of it is true."""

    def __init__(self, state: ShardState, now_us: int) -> None:
        self._state = state
        self._idle_since_us = now_us - PRODUCER_IDLE_US_MAX
        self.epochs: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.names: dict[str, int] = {}
        self.next_producer_id = state.next_producer_id
        self.by_sequence: dict[tuple[int, int], TopicRequest] = {}
        self.by_key: dict[bytes, TopicRequest] = {}
        self.writes: dict[int, _Write] = {}
        """By the id of a request, the write that it is in."""

    def known(self, producer_id: int) -> Producer | None:
        """A producer that has not been idle for too long, by the log's own time: whether a checkpoint has forgotten it
        already must make no difference to anybody who goes on from that checkpoint or from an earlier one."""
        producer = self._state.producers.get(producer_id)
        return producer if producer is not None and producer.last_time_us >= self._idle_since_us else None

    def epoch(self, producer_id: int) -> int | None:
        producer = self.known(producer_id)
        return self.epochs.get(producer_id, producer.epoch if producer is not None else None)

    def next_sequence(self, producer_id: int) -> int:
        producer = self.known(producer_id)
        return self.sequences.get(producer_id, producer.next_sequence if producer is not None else 0)


class Forming:
    """Makes the commits of one shard's log."""

    def __init__(
        self,
        state: ShardState,
        metadata: Callable[[], MetadataState],
        check_lease: CheckLease,
        *,
        joined_bytes_max: int = JOINED_BYTES_MAX,
    ) -> None:
        self.state = state
        self._joined_bytes_max = joined_bytes_max
        self._metadata = metadata
        self._check_lease = check_lease
        self._segment = Lsn(0)
        self._schemas_in_segment: set[tuple[int, int]] = set()
        self._schemas_in_commit: set[tuple[int, int]] = set()
        self._schema_drafts: dict[tuple[int, int, int], Draft] = {}

    def form(self, requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        """The writes of a commit."""
        pending = _Pending(self.state, sequencer.append_time_us)
        known = self._metadata().topics
        writes: list[_Write] = []
        small: _Write | None = None
        for request in _read(requests):
            try:
                first = self._admit(request, pending, known, sequencer)
            except HeadwaterError as error:
                request.refuse(error)
                continue
            if request.done:
                continue
            if first is not None:
                request.duplicate = True
                request.by_key = first is not pending.by_sequence.get(_number_of(request))
                request.placed = first.placed
                pending.writes[id(first)].requests.append(request)
                continue
            if small is None or not request.joins or small.bytes + request.frame_bytes > self._joined_bytes_max:
                write = _Write()
                writes.append(write)
                small = write if request.joins else None
            else:
                write = small
            self._add(request, write, pending, sequencer)
        if not writes:
            return []
        return self._finish(writes, sequencer)

    def committed(self, writes: Sequence[FormedWrite], receipts: Sequence[Receipt]) -> None:
        """They are durable, or will be before anybody is told of what follows: take what they say into the state."""
        self._schemas_in_segment |= self._schemas_in_commit
        state = self.state
        for write, receipt in zip(writes, receipts, strict=True):
            first_lsn = receipt.first_lsn
            for index, draft in enumerate(write.drafts):
                if draft.kind in _RECORDS:
                    assert isinstance(draft.body, bytes)
                    state.fold_record(
                        draft.kind, draft.body, first_lsn + index, first_lsn, receipt.last_lsn, receipt.append_time_us
                    )

    # Who may -----------------------------------------------------------------------------------

    def _admit(
        self, request: TopicRequest, pending: _Pending, known: dict[int, TopicRecord], sequencer: Sequencer
    ) -> TopicRequest | None:
        """Refuse it by raising, answer it again where it was applied before, or return the request of this commit that
        it repeats; nothing where it may go on."""
        identity = request.identity
        if identity is not None:
            first = self._told_before(request, identity, pending, sequencer.append_time_us)
            if first is not None or request.done:
                return first
        for rows in request.rows:
            if rows.topic.number not in known:
                raise UnknownTopic(f"the topic {rows.topic.name!r} was deleted", topic=rows.topic.name)
        if request.expected is not None:
            for key, expected in request.expected.items():
                following = sequencer.next_offset(key)
                if following != expected:
                    raise OffsetMismatch(
                        "the partition's next offset is another than expected: read on, then decide",
                        partition=key & 0xFFFF_FFFF,
                        expected=expected,
                        next_offset=following,
                    )
        for each in request.groups:
            if each.topic_number not in known:
                raise UnknownTopic("the topic of a committed offset was deleted", topic_number=each.topic_number)
            self._check_lease(each)
        return None

    def _told_before(
        self, request: TopicRequest, identity: Identity, pending: _Pending, now_us: int
    ) -> TopicRequest | None:
        if identity.producer_id:
            first = self._sequence_told_before(request, identity, pending)
            if first is not None or request.done:
                return first
        if identity.key:
            first = pending.by_key.get(identity.key)
            if first is not None:
                return first
            answer = self.state.keys.get(identity.key)
            # By the log's own time and not by what was pruned, so that the answer does not depend on when.
            if answer is not None and answer.append_time_us >= now_us - KEY_AGE_US_MAX:
                request.tell_again(answer, by_key=True)
        return None

    def _sequence_told_before(
        self, request: TopicRequest, identity: Identity, pending: _Pending
    ) -> TopicRequest | None:
        producer_id, sequence = identity.producer_id, identity.sequence
        epoch = pending.epoch(producer_id)
        if epoch is None:
            raise UnknownProducer(
                "no such producer, or it was idle for a week: open it again by its name", producer_id=producer_id
            )
        if identity.epoch != epoch:
            raise Fenced(
                "this producer has been opened again since, and its later epoch goes on: open it here again",
                producer_id=producer_id,
                epoch=identity.epoch,
                current_epoch=epoch,
            )
        following = pending.next_sequence(producer_id)
        if sequence == following:
            return None
        if sequence > following:
            raise OutOfSequence(
                "the request before this one has not come: send that one first",
                producer_id=producer_id,
                sequence=sequence,
                next_sequence=following,
            )
        first = pending.by_sequence.get((producer_id, sequence))
        if first is not None:
            return first
        producer = self.state.producers.get(producer_id)
        answer = producer.answers.get(sequence) if producer is not None else None
        if answer is None:
            raise Duplicate(
                "it was applied, and its answer is no longer remembered: read the topic to see it",
                producer_id=producer_id,
                sequence=sequence,
            )
        request.tell_again(answer)
        return None

    # What becomes of it ------------------------------------------------------------------------

    def _add(self, request: TopicRequest, write: _Write, pending: _Pending, sequencer: Sequencer) -> None:
        """Give its rows their offsets and put it into the write."""
        write.requests.append(request)
        write.bytes += request.frame_bytes
        parts = []
        for rows in request.rows:
            base = sequencer.take_rows(rows.key, rows.batch.num_rows)
            parts.append(Part(rows.topic.number, rows.partition, base, rows.batch.num_rows))
            write.topics[rows.topic.number, len(rows.topic.schemas)] = rows.topic
            if request.joins:
                self._join(write, rows, base)
        request.placed = tuple(parts)
        if not request.joins:
            self._add_drafts(request, write, pending)
        identity = request.identity
        if identity is not None:
            write.entries.append(SequenceEntry(*identity, parts=request.placed))
            pending.writes[id(request)] = write
            if identity.producer_id:
                pending.sequences[identity.producer_id] = identity.sequence + 1
                pending.by_sequence[identity.producer_id, identity.sequence] = request
            if identity.key:
                pending.by_key[identity.key] = request

    @staticmethod
    def _join(write: _Write, rows: PartitionRows, base: int) -> None:
        frame = rows.joins_with
        if write.frame_of.get(rows.key, frame) != frame:
            # Rows of another version or sense came between: what was joined so far stays in front of them.
            _end_joined(write)
        write.frame_of[rows.key] = frame
        if frame in write.joined:
            write.joined[frame][1].append(rows)
        else:
            write.joined[frame] = (base, [rows])

    def _add_drafts(self, request: TopicRequest, write: _Write, pending: _Pending) -> None:
        offsets = {(part.topic_number, part.partition): part.base_offset for part in reversed(request.placed)}
        for draft in request.drafts:
            write.drafts.append(draft)
            if draft.kind != Kind.DATA:
                write.base_offsets.append(0)
                continue
            partition = (draft.topic_number, draft.partition)
            write.base_offsets.append(offsets[partition])
            offsets[partition] += draft.row_count
        if request.registers is not None:
            write.drafts.append(_register(request, request.registers, pending, self.state))
            write.base_offsets.append(0)

    def _finish(self, writes: list[_Write], sequencer: Sequencer) -> list[FormedWrite]:
        schemas: dict[tuple[int, int], Draft] = {}
        for write in writes:
            _end_joined(write)
            if write.entries:
                write.drafts.insert(0, Draft(Kind.SEQUENCES, pack_record(tuple(write.entries))))
                write.base_offsets.insert(0, 0)
            for version, topic in write.topics.items():
                if version not in schemas:
                    schemas[version] = self._schema_draft(topic, version[1])
        size = sum(draft.frame_size for write in writes for draft in write.drafts)
        # With every schema there may be, so that the commit itself cannot roll once more.
        segment = sequencer.make_room(size + sum(draft.frame_size for draft in schemas.values()))
        if segment != self._segment:
            self._segment = segment
            self._schemas_in_segment = set()
        self._schemas_in_commit = set()
        formed = []
        for write in writes:
            leading = [
                version
                for version in write.topics
                if version not in self._schemas_in_segment and version not in self._schemas_in_commit
            ]
            self._schemas_in_commit.update(leading)
            drafts = [*(schemas[version] for version in leading), *write.drafts]
            formed.append(FormedWrite(drafts, [*([0] * len(leading)), *write.base_offsets], write.requests))
        return formed

    def _schema_draft(self, topic: TopicRecord, version: int) -> Draft:
        """Made once: it is part of the size of every commit, and written with few."""
        known = (topic.number, version, topic.partitions)
        draft = self._schema_drafts.get(known)
        if draft is None:
            draft = self._schema_drafts[known] = schema_draft(topic, version)
        return draft


def _read(requests: Sequence[Request]) -> list[TopicRequest]:
    """The requests with their rows as columns, without those whose rows do not fit after all."""
    asked = []
    for request in requests:
        assert isinstance(request, TopicRequest)
        asked.append(request)
    read_together(asked)
    return [request for request in asked if not request.done]


def schema_draft(topic: TopicRecord, version: int) -> Draft:
    """The frame that makes a topic's rows of this version readable."""
    record = SchemaRecord(
        name=topic.name,
        topic_id=topic.topic_id,
        version=version,
        schema=topic.schemas[version - 1],
        partitions=topic.partitions,
        created_us=topic.created_us,
        key=topic.key,
        time_column=topic.time_column,
    )
    return Draft(Kind.SCHEMA, pack_record(record), topic_number=topic.number, schema_version=version)


def _end_joined(write: _Write) -> None:
    """Make frames of what was joined so far."""
    for base, rows in write.joined.values():
        write.drafts.append(joined_draft(rows))
        write.base_offsets.append(base)
    write.joined.clear()
    write.frame_of.clear()


def _register(request: TopicRequest, name: str, pending: _Pending, state: ShardState) -> Draft:
    """A producer begins its next epoch; its id is the one that its name has had before."""
    producer_id = pending.names.get(name, state.producer_ids.get(name, 0)) if name else 0
    if producer_id and pending.epoch(producer_id) is None:
        producer_id = 0
    if not producer_id:
        producer_id = pending.next_producer_id
        pending.next_producer_id += 1
    epoch = (pending.epoch(producer_id) or 0) + 1
    pending.epochs[producer_id] = epoch
    if name:
        pending.names[name] = producer_id
    record = ProducerRecord(producer_id, epoch, name)
    request.registered = Registered(producer_id, epoch, pending.next_sequence(producer_id))
    return Draft(Kind.PRODUCER, pack_record(record))


def _number_of(request: TopicRequest) -> tuple[int, int]:
    identity = request.identity
    assert identity is not None
    return identity.producer_id, identity.sequence
