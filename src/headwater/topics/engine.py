"""The engine of an embedded Headwater: topics over one shard and its journal.

    journal     what there is: topics, schemas, partitions, policies, groups, where the log begins (metadata/)
    shard       the log, and the state that is folded from it (shard.py)

PROMISE  Opening claims nothing.  The first change takes both locks, the journal's first; from then on this process is
         the owner, until it closes.
         Every verb returns when what it did is durable.
THREADS  Safe for any number of them.  In a forked child everything is closed: the log is its parent's.
NOT HERE How it looks to a user: api.py.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from headwater.clock import Clock, Entropy
from headwater.errors import Closed, Conflict, LogLocked, RowsUnlanded, UnknownTopic
from headwater.ids import Lsn
from headwater.log.index import partition_key
from headwater.log.pins import Pins
from headwater.log.segment import Memory
from headwater.metadata.journal import Journal, open_journal
from headwater.metadata.operations import (
    CreateGroup,
    DeleteTopic,
    ForgetTopics,
    Operation,
    SetLogStart,
    TopicRecord,
)
from headwater.metadata.state import MetadataState
from headwater.settings import Settings
from headwater.storage.files import Files
from headwater.topics.answers import Appended, CommittedTransaction, OffsetRange, SourcePosition
from headwater.topics.appending import OnRejected, Preparation, Prepared, expected_offset
from headwater.topics.batches import arrow_memory
from headwater.topics.checked_appends import append_checked_future
from headwater.topics.cleanup import Cleanup, CleanupReport
from headwater.topics.compaction import CompactionReport, check_compactable
from headwater.topics.consumer import Consumer
from headwater.topics.gathering import gather
from headwater.topics.groups import Generation, GroupCoordinator
from headwater.topics.names import REJECTED_SUFFIX, checked_name, rejected_name
from headwater.topics.older import OlderRows, is_read_from_its_table
from headwater.topics.opening import claim_both, locked_elsewhere, open_recovered
from headwater.topics.positions import time_of
from headwater.topics.reading import (
    OlderPart,
    Rows,
    TopicNow,
    Wanted,
    older_part,
    partition_rows,
    read_rows,
    rows_and_next_offset,
)
from headwater.topics.rejected import REJECTED_SCHEMA
from headwater.topics.requests import (
    GroupOffset,
    Identity,
    PartitionRows,
    Registered,
    SourceAt,
    Told,
    TopicRequest,
    group_offsets,
)
from headwater.topics.retention import NOTHING_LANDED, ClockCaution, Landings
from headwater.topics.schema_objects import journaled
from headwater.topics.shard import Shard
from headwater.topics.told import appended, committed_transaction, source_position
from headwater.topics.topic import NewTopic, plan_alteration, plan_topics
from headwater.topics.upkeep import Upkeep


class Engine:
    """One open data directory."""

    def __init__(
        self,
        files: Files,
        *,
        directory: str = "",
        settings: Settings,
        clock: Clock,
        entropy: Entropy,
        landings: Landings = NOTHING_LANDED,
        older: OlderRows | None = None,  # what the log has let go of; without it a read begins with the log
        memory: Memory = arrow_memory,  # where the rows lie that are read
    ) -> None:
        self.settings = settings
        self.clock = clock
        self._entropy = entropy
        self._landings = landings
        self._older = older
        self._memory = memory
        self._claimed = self._closed = False
        self._owning = threading.RLock()
        self._changing = threading.RLock()
        self._pid = os.getpid()
        self.directory = directory
        self._files = files
        self.coordinator = GroupCoordinator(clock, settings.lease_s, self._epoch)
        self.journal: Journal
        self.shard: Shard = open_recovered(self._open_journal, self._use_journal, self._open_shard)
        self.pins = Pins(files, entropy=entropy)
        self.preparation = Preparation(settings, self.rejected_topic)
        self._cleanup: Cleanup | None = None
        self._upkeep: Upkeep | None = None
        self._rolls_seen = 0

    # Opening -----------------------------------------------------------------------------------

    def _open_journal(self) -> Journal:
        return open_journal(
            self._files, "journal", settings=self.settings.journal, clock=self.clock, entropy=self._entropy
        )

    def _open_shard(self) -> Shard:
        return Shard(
            self._files, settings=self.settings, clock=self.clock, entropy=self._entropy, memory=self._memory,
            metadata=self._metadata, check_lease=self._check_lease,
        )  # fmt: skip

    def _use_journal(self, journal: Journal) -> None:
        self.journal = journal

    # What there is -----------------------------------------------------------------------------

    def _metadata(self) -> MetadataState:
        return self.journal.state if self._claimed else self.journal.refresh()

    def metadata(self) -> MetadataState:
        """The metadata now; an owner's own is current."""
        self._check_open()
        return self._metadata()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this log is closed")
        if os.getpid() != self._pid:
            raise Closed("this log was opened by another process, which forked this one: open it here", pid=self._pid)

    def topic(self, name: str) -> TopicRecord:
        topic = self.metadata().topic_named(name)
        if topic is None:
            # A journal that was lost or put back must not look like a name that was mistyped.
            self.shard.state()
            raise UnknownTopic(
                f"there is no topic {name!r}: create it by giving its schema (hw.BYTES for bytes)", topic=name
            )
        return topic

    def topic_numbered(self, number: int) -> TopicRecord:
        """The topic as it is now; UnknownTopic where it was deleted, whatever has its name since."""
        topic = self.metadata().topics.get(number)
        if topic is None:
            raise UnknownTopic("the topic was deleted", topic_number=number)
        return topic

    @property
    def claimed(self) -> bool:
        return self._claimed

    def claim(self) -> None:
        """Become the owner, of the journal and of the log."""
        self._check_open()
        if self._claimed:
            return
        with self._owning:
            try:
                claim_both(self.journal, self.shard)
            except LogLocked as error:
                raise locked_elsewhere(error, self.directory) from error
            if not self._claimed:
                self._claimed = True
                self._begin_upkeep()

    def _epoch(self) -> int:
        return self.shard.log.device.claim().epoch

    # Changing topics ---------------------------------------------------------------------------

    def create_topics(self, wanted: Sequence[NewTopic]) -> list[TopicRecord]:
        """All of them are there when it returns, made by one journal write as far as they were not."""
        with self._changing:
            operations = self._plan(wanted)
            if operations:
                # Planned once more as the owner: another process may have made some of them before this one claimed.
                self.claim()
                operations = self._plan(wanted)
            state = journaled(self._files, self.journal, operations) if operations else self.metadata()
        return [state.topics[state.numbers[each.name]] for each in wanted]

    def _plan(self, wanted: Sequence[NewTopic]) -> Sequence[Operation]:
        return plan_topics(
            self.metadata(),
            wanted,
            partitions_default=self.settings.partitions_default,
            now_us=self.clock.now_us(),
            new_id=lambda: self._entropy(16),
        )

    def alter_topic(self, number: int, **changes: Any) -> TopicRecord:
        """Change a topic; see topic.plan_alteration for what can be."""
        with self._changing:
            self.claim()
            operations = plan_alteration(self.topic_numbered(number), **changes)
            state = journaled(self._files, self.journal, operations) if operations else self.metadata()
            return state.topics[number]

    def delete_topic(self, name: str, *, force: bool = False) -> None:
        """The topic is gone at once, and its rows are the log's to forget; the table stays."""
        with self._changing:
            self.claim()
            topic = self.topic(name)

            # Asked before, because a catalog may take its time.
            landed_lsn = self._landings.verified_lsn(topic) if topic.table is not None and not force else None

            def delete() -> None:
                if landed_lsn is not None:
                    self._check_landed(topic, landed_lsn)
                self.journal.append([DeleteTopic(topic.number, self.clock.now_us())])

            # Under the baton: no row can be acknowledged between the look and the deletion.
            self.shard.log.exclusively(delete)

    def _check_landed(self, topic: TopicRecord, landed_lsn: int) -> None:
        last_lsn = 0
        for segment in self.shard.log.segments():
            share = self.shard.log.device.topics_in(segment).get(topic.number)
            if share is not None and share.rows:
                last_lsn = max(last_lsn, share.last_lsn)
        if last_lsn > landed_lsn:
            raise RowsUnlanded(
                f"rows of {topic.name!r} are not in its table {topic.table!r} yet: land them, or delete it by force",
                topic=topic.name,
                last_lsn=last_lsn,
                landed_lsn=landed_lsn,
            )

    def rejected_topic(self, topic: TopicRecord) -> TopicRecord:
        name = rejected_name(topic.name)
        # Asked for with its schema each time: a topic of this name may be somebody's own.
        return self.create_topics([NewTopic(name, REJECTED_SCHEMA)])[0]

    # Appending ---------------------------------------------------------------------------------

    def append(
        self,
        number: int,
        rows: object,
        *,
        partition: int | None = None,
        rejected: OnRejected = "refuse",
        expect_offset: int | None = None,
        identity: Identity | None = None,
    ) -> Appended:
        """Append rows; upsert them where the topic is keyed."""
        topic = self.topic_numbered(number)
        request = self.preparation.row_request(
            topic, rows, partition=partition, rejected=rejected, expect_offset=expect_offset, identity=identity
        )
        if request is None:
            prepared = self.preparation.rows(topic, rows, partition=partition, rejected=rejected)
            return self._append(topic, prepared, expect_offset, identity)
        return self._told(topic, request, identity)

    def delete_keys(self, number: int, keys: object, *, identity: Identity | None = None) -> Appended:
        topic = self.topic_numbered(number)
        return self._append(topic, self.preparation.keys(topic, keys), None, identity)

    def _append(
        self, topic: TopicRecord, prepared: Prepared, expect_offset: int | None, identity: Identity | None
    ) -> Appended:
        if not prepared.rows:
            return self.nothing_appended(topic)
        expected = None if expect_offset is None else expected_offset(topic, prepared.rows, expect_offset)
        request = self.preparation.request(prepared.rows, identity=identity, expected=expected)
        return self._told(topic, request, identity)

    def _told(self, topic: TopicRecord, request: TopicRequest, identity: Identity | None) -> Appended:
        told: Told = self._submit(request)
        if told.duplicate and identity is not None and identity.producer_id:
            self.check_was_for(topic, told)
        return appended(topic, told)

    def check_was_for(self, topic: TopicRecord, told: Told) -> None:
        """A producer's number was used before: for rows of this topic, or of what keeps its rejected ones."""
        kept = self.metadata().topic_named(topic.name + REJECTED_SUFFIX)
        own = (topic.number, kept.number if kept is not None else 0)
        others = [part.topic_number for part in told.answer.parts if part.topic_number not in own]
        if others:
            raise Conflict(
                f"this number of the producer was used for rows of {self._name_of(others[0])!r}; use another",
                topic=topic.name,
            )

    def append_future(
        self,
        number: int,
        rows: object,
        *,
        partition: int | None = None,
        rejected: OnRejected = "refuse",
        expect_offset: int | None = None,
        identity: Identity | None = None,
    ) -> Future[Appended]:
        """The same, without waiting.  Its callbacks run in the middle of the writer's work: they must not append."""
        topic = self.topic_numbered(number)
        future: Future[Appended] = Future()
        future.set_running_or_notify_cancel()
        request = self.preparation.row_request(
            topic,
            rows,
            partition=partition,
            rejected=rejected,
            expect_offset=expect_offset,
            identity=identity,
            future=future,
            told_as=lambda told: appended(topic, told),
        )
        if request is None:
            prepared = self.preparation.rows(topic, rows, partition=partition, rejected=rejected)
            if not prepared.rows:
                future.set_result(self.nothing_appended(topic))
                return future
            expected = None if expect_offset is None else expected_offset(topic, prepared.rows, expect_offset)
            request = self.preparation.request(
                prepared.rows,
                identity=identity,
                expected=expected,
                future=future,
                told_as=lambda told: appended(topic, told),
            )
        self.submit_future(request)
        return future

    def append_checked_future(self, number: int, batch: pa.RecordBatch, **how: Any) -> Future[Appended]:
        """Rows that came over a wire; see checked_appends.py."""
        return append_checked_future(self, self.topic_numbered(number), batch, **how)

    def submit_future(self, request: TopicRequest) -> None:
        self.claim()
        self._keep_up()
        self.shard.log.submit_future(request)

    def _submit(self, request: TopicRequest) -> Any:
        self.claim()
        told = self.shard.log.submit(request)
        self._keep_up()
        return told

    def _keep_up(self) -> None:
        """What may be due after a commit: a checkpoint, and, where a segment was sealed, a look at what may go."""
        if self._upkeep is None or not self.shard.log.is_on_a_store:
            # On a store it would cost whoever appends several requests: there upkeep makes it, woken by the roll.
            self.shard.keep_up()
        rolls = self.shard.log.counters.rolls
        if rolls != self._rolls_seen:
            self._rolls_seen = rolls
            if self._upkeep is not None:
                self._upkeep.wake()

    def nothing_appended(self, topic: TopicRecord) -> Appended:
        """No row, no write: the answer says where the log is."""
        lsn = self.durable_lsn()
        return Appended(topic.name, 0, lsn + 1, lsn, {}, time_of(self.clock.now_us()))

    # Transactions, producers, sources ----------------------------------------------------------

    def prepare_rows(
        self, name: str, rows: object, *, partition: int | None = None, rejected: OnRejected = "refuse"
    ) -> Prepared:
        """Rows for a transaction: they are checked now, and written when it commits."""
        return self.preparation.rows(self.topic(name), rows, partition=partition, rejected=rejected)

    def prepare_keys(self, name: str, keys: object) -> Prepared:
        return self.preparation.keys(self.topic(name), keys)

    def commit_transaction(
        self,
        rows: list[PartitionRows],
        *,
        groups: Sequence[GroupOffset],
        sources: Sequence[SourceAt],
        identity: Identity | None,
        expected: dict[int, int] | None = None,
    ) -> tuple[CommittedTransaction, bool]:
        """One write: the rows, the groups' offsets and the sources' positions, or none of them, on condition that
        partitions have the next offsets that are expected.  Says too whether the producer's number was used."""
        request = self.preparation.request(
            rows, identity=identity, expected=expected, groups=groups, sources=sources, transaction=True
        )
        told: Told = self._submit(request)
        names = {each.topic.number: each.topic.name for each in rows}
        committed = committed_transaction(told, lambda number: names.get(number) or self._name_of(number))
        return committed, not told.by_key

    def _name_of(self, number: int) -> str:
        topic = self.metadata().topics.get(number)
        return topic.name if topic is not None else f"deleted topic {number}"

    def register_producer(self, name: str) -> Registered:
        """A producer begins its next epoch, and whoever held the one before is fenced."""
        request = TopicRequest([], frame_bytes=0, registers=name, alone=True)
        self._submit(request)
        assert request.registered is not None
        return request.registered

    def source_position(self, name: str) -> SourcePosition | None:
        return self.source_positions().get(name)

    def source_positions(self) -> dict[str, SourcePosition]:
        self._check_open()
        sources = self.shard.look(lambda state: dict(state.sources))
        return {name: source_position(each) for name, each in sorted(sources.items())}

    # Reading -----------------------------------------------------------------------------------

    def read(self, number: int, wanted: Wanted) -> Rows:
        self.topic_numbered(number)
        return read_rows(self.shard.log, self._topic_now(number), wanted, self._older)

    def _topic_now(self, number: int) -> TopicNow:
        return lambda: self.metadata().topics.get(number)

    def offsets(self, number: int) -> dict[int, OffsetRange]:
        """Of each partition, the first offset that the log holds and the next that it will give."""
        topic = self.topic_numbered(number)
        following = self.shard.next_offsets()
        found = {}
        for partition in range(topic.partitions):
            after = following.get(partition_key(number, partition), 0)
            found[partition] = OffsetRange(self._first_offset(number, partition, after), after)
        return found

    def _first_offset(self, number: int, partition: int, after: int) -> int:
        segments = self.shard.log.device.segments()
        if not after or (segments and segments[0].first_lsn == 1 and segments[0].generation == 0):
            # Nothing was ever taken away from the log's beginning.
            return 0
        first = self.shard.log.first_offset(number, partition)
        return after if first is None else first

    def durable_lsn(self) -> int:
        return self.shard.log.durable_lsn()

    # Groups: what a consumer needs (consumer.GroupEngine) --------------------------------------

    def consumer(self, name: str, group: str, **options: Any) -> Consumer:
        """A new member of a group, which is made known if it is new."""
        topic = self.topic(name)
        checked_name(group, "group")
        self.claim()
        with self._changing:
            if group not in self.metadata().groups:
                self.journal.append([CreateGroup(group, self.clock.now_us())])
        return Consumer(self, topic.name, topic.number, group, **options)

    def partitions_of(self, topic_number: int) -> int:
        return self.topic_numbered(topic_number).partitions

    def committed(self, group: str, topic_number: int) -> Mapping[int, int]:
        def look() -> dict[int, int]:
            committed = self.shard.state().groups.get((group, topic_number), {})
            return {partition: each.offset for partition, each in committed.items()}

        # Under the baton, so that a commit whose generation was checked before this call is in it.
        return self.shard.log.exclusively(look) if self._claimed else look()

    def commit_offsets(self, group: str, topic_number: int, offsets: Mapping[int, tuple[int, Generation]]) -> None:
        groups = group_offsets(group, topic_number, offsets)
        if groups:
            self._submit(self.preparation.request([], groups=groups, transaction=True))

    def first_offset(self, topic_number: int, partition: int) -> int:
        if self._older is not None and is_read_from_its_table(self.topic_numbered(topic_number)):
            return 0
        return self._first_offset(topic_number, partition, self.next_offset(topic_number, partition))

    def next_offset(self, topic_number: int, partition: int) -> int:
        return self.shard.next_offsets().get(partition_key(topic_number, partition), 0)

    def older_rows(self, topic_number: int, partition: int, offset: int) -> OlderPart | None:
        return older_part(self.shard.log, self._topic_now(topic_number), partition, offset, self._older)

    def read_rows(
        self, topic_number: int, partition: int, offset: int, rows_max: int
    ) -> tuple[pa.RecordBatch | None, int]:
        found = rows_and_next_offset(self.read(topic_number, partition_rows(partition, offset, rows_max)))
        if found is not None or self.next_offset(topic_number, partition) <= offset:
            return found if found is not None else (None, offset)
        # The next offset moves before its rows can be read.  Under the baton nothing is on its way, so what is not
        # there after that was taken away by compaction.
        following = self.shard.log.exclusively(lambda: self.next_offset(topic_number, partition))
        found = rows_and_next_offset(self.read(topic_number, partition_rows(partition, offset, rows_max)))
        return found if found is not None else (None, following)

    def gather(self, topic_number: int, offsets: Mapping[int, int]) -> Rows:
        self.topic_numbered(topic_number)
        return gather(self.shard.log, self._topic_now(topic_number), offsets, self._older)

    def wait_for_rows(self, lsn: int, timeout_s: float) -> bool:
        return self.shard.log.wait_beyond(Lsn(lsn), timeout_s)

    def _check_lease(self, offset: GroupOffset) -> None:
        self.coordinator.check(
            offset.group, offset.topic_number, offset.partition, Generation(offset.epoch, offset.counter)
        )

    # Upkeep ------------------------------------------------------------------------------------

    def cleanup(self) -> CleanupReport:
        """Do now what the policies ask for."""
        self.claim()
        self.shard.checkpoint()
        cleaning = self._cleaning()
        with cleaning.one_at_a_time:
            state = self.metadata()
            return cleaning.run(
                topics=state.topics.values(), deleted=state.deleted.values(), log_start=Lsn(state.log_start),
                covered_lsn=self.shard.covered_lsn, checkpoint_lsn=Lsn(self.shard.checkpoint_lsn),
            )  # fmt: skip

    def compact(self, numbers: Iterable[int]) -> CompactionReport:
        """Compact these topics now, with all their rows: the segment that is being written is sealed first."""
        topics = [self.topic_numbered(number) for number in numbers]
        for topic in topics:
            check_compactable(topic)
        self.claim()
        self.shard.log.roll()
        self.shard.checkpoint()
        return self._cleaning().compact(topics, covered_lsn=Lsn(self.shard.checkpoint_lsn))

    def checkpoint(self) -> bool:
        """Make both checkpoints; False where neither had anything new."""
        self.claim()
        shard = self.shard.checkpoint()
        return self.journal.checkpoint() or shard

    def cleanup_notes(self) -> tuple[str, ...]:
        return self._cleanup.notes() if self._cleanup is not None else ()

    def _cleaning(self) -> Cleanup:
        with self._owning:
            if self._cleanup is None:
                self._cleanup = Cleanup(
                    self.shard.log,
                    pins=self.pins,
                    record_intent=lambda intent: self.journal.append([SetLogStart(intent.log_start, intent.segments)]),
                    forget_topics=lambda numbers: self.journal.append([ForgetTopics(tuple(numbers))]),
                    landings=self._landings,
                    caution=self._caution,
                    clock=self.clock,
                    settings=self.settings.log,
                )
            return self._cleanup

    def _begin_upkeep(self) -> None:
        """From now on this process is the owner: it looks after the log, by itself if it may."""
        newest_us = self.shard.log.device.last_append_time_us()
        self._caution = ClockCaution(opened_us=self.clock.now_us(), newest_append_time_us=newest_us)
        self._cleaning()
        if self.settings.upkeep_interval_s > 0:
            self._upkeep = Upkeep(self.cleanup, self.settings.upkeep_interval_s)
            self._upkeep.start()

    def flush(self) -> None:
        """Return when everything that was asked for before is durable, or was refused."""
        if self._claimed:
            self.shard.log.exclusively(lambda: None)

    def close(self) -> None:
        """Serve what is queued, make the last checkpoints, let go; twice is nothing."""
        if os.getpid() != self._pid:
            # The log is the parent's, and so are its upkeep and its locks.
            self._closed = True
            return
        with self._owning:
            if self._closed:
                return
            self._closed = True
        if self._upkeep is not None:
            self._upkeep.stop()
        try:
            self.shard.close()
        finally:
            self.journal.close()
