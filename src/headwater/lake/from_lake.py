"""A lost log from its lake: a new log, with a new id, that goes on where the tables end.

    1 look      which tables bear marks of the lost log, and what they say of its topics (survey.py)
    2 plan      a new log id and a first LSN, the next multiple of 2^32 above every landed one: restore.json
    3 take over each table gets the new log's mark (taking_over.py)
    4 read      every row of each table: its digest, and the offsets of each partition (baseline.py)
    5 record    what was taken over, in a new ledger
    6 begin     checkpoint, journal, segment (topics/beginning.py); restore.json goes

PROMISE  Everything that had landed is served again, by the same topics, with the same offsets and LSNs; new rows come
         after them.  What could not be had is said: LOST, and by name in the report.
         After a crash the same call goes on from what was done.  Until the last step every opening of the data
         directory halts by name, so that nothing can be written into a log that is half made.
NOT HERE A table as of an earlier point: restoring.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from headwater.clock import Clock, Entropy, SystemClock, system_entropy
from headwater.errors import Halted, InvalidRequest, LogLocked
from headwater.frames.frame import NoFrame
from headwater.lake.baseline import Baseline, Places, baseline_of, check_system_columns, places_of
from headwater.lake.catalog import catalog_place
from headwater.lake.file_cache import FileCache
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.ledger import DIRECTORY as LEDGER
from headwater.lake.ledger import Ledger
from headwater.lake.ledger_records import LedgerRecord, Merged, Restored
from headwater.lake.restore_plan import LOCK, PLAN, RestorePlan, forget_plan, read_plan, write_plan
from headwater.lake.shape import landing_table, table_shape
from headwater.lake.state_table import state_shape
from headwater.lake.survey import LakeLog, LakeTopic, MarkedTable, log_in, marked_tables, table_names
from headwater.lake.tables import TableShape
from headwater.lake.taking_over import TakenOver, TakingOver
from headwater.log.first_lsn import trim_in
from headwater.log.names import sort_names
from headwater.log.segment import read_opening
from headwater.metadata.operations import TopicRecord
from headwater.settings import Settings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.files import Files, LockHeld
from headwater.storage.places import is_bucket, open_files
from headwater.topics.beginning import LOG, Beginning, begin_log, files_of_a_log
from headwater.topics.engine import Engine

LSNS_APART = 1 << 32
"""A log begins at a multiple of this, far above what the lost one may have given out and not landed."""

LOST = (
    "rows that were acknowledged and had not landed: the log alone had them, and nobody knows how many there were; "
    "their offsets will be given to other rows",
    "topics without a table, those of rejected rows among them, and topics of which nothing had landed",
    "consumer groups, but for those that were named: a group that is new begins where its `start` says",
    "producers and idempotency keys: a request that is sent again is appended again",
    "positions of sources: read them on from what the tables hold",
    "that a topic was deleted: it is there again if its table is",
    "policies, columns and partitions that were changed after a topic's last landing",
    "offsets of rows that were deleted from the end of a table: they may be given to other rows",
    "the ledger: receipts of erasures, verifications and audits of the past",
)


@dataclass(frozen=True)
class RestoredTopic:
    """A topic that is there again."""

    name: str
    topic_id: str
    table: str
    landed_lsn: int
    """The lost log had landed up to here."""
    partitions: int
    schema_versions: int
    key: tuple[str, ...] = ()
    state_table: str | None = None
    rows: int | None = None
    """That the table holds; None where it was not read."""
    next_offsets: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RestoredLog:
    """What a restore has made, or would make."""

    directory: str
    log_id: str
    log_ids_before: tuple[str, ...]
    first_lsn: int
    topics: tuple[RestoredTopic, ...]
    passed_over: dict[str, str]
    """Tables of the lost log that bring no topic back, and why."""
    groups: tuple[str, ...] = ()
    lost: tuple[str, ...] = LOST
    dry_run: bool = False
    continued: bool = False
    """It was begun before, and not finished."""

    @property
    def rows(self) -> int:
        return sum(topic.rows or 0 for topic in self.topics)

    def __str__(self) -> str:
        done = "Would restore" if self.dry_run else "Restored"
        topics = ", ".join(topic.name for topic in self.topics)
        return f"{done} {topics}: log {self.log_id} from lsn {self.first_lsn} on, in {self.directory}"


@dataclass(frozen=True)
class _Taken:
    """A topic whose tables are the new log's, with what they hold."""

    topic: LakeTopic
    landed: TakenOver
    baseline: Baseline
    state: TakenOver | None
    state_places: Places

    @property
    def next_offsets(self) -> dict[int, int]:
        """A change may be past its retention when the row that it made is still in the state."""
        nexts: dict[int, int] = {}
        for offsets in (self.baseline.places.offsets, self.state_places.offsets):
            for partition, (_, last) in offsets.items():
                nexts[partition] = max(nexts.get(partition, 0), last + 1)
        return nexts


class FromLake:
    """One restore of a log into one data directory."""

    def __init__(
        self,
        files: Files,
        directory: str,
        connect: Callable[[], IcebergTables],
        *,
        clock: Clock,
        entropy: Entropy,
        settings: Settings | None = None,
    ) -> None:
        self._files = files
        self._directory = directory
        self._connect = connect
        self._clock = clock
        self._entropy = entropy
        self._settings = replace(settings or Settings(), upkeep_interval_s=0)

    def restore(
        self,
        *,
        log_id: str | None = None,
        namespaces: Sequence[str] = (),
        groups: Sequence[str] = (),
        dry_run: bool = False,
    ) -> RestoredLog:
        """Make the log; with `dry_run`, say what would be made.  `groups` are to read on after what has landed."""
        if dry_run:
            return self._restore(log_id, namespaces, groups, dry_run=True)
        self._files.make_directory("")
        try:
            lock = self._files.lock(LOCK, "a restore of the log")
        except LockHeld as error:
            raise LogLocked("another restore is under way here", directory=self._directory) from error
        try:
            report = self._restore(log_id, namespaces, groups, dry_run=False)
            self._files.unlink(LOCK)
            return report
        finally:
            lock.release()

    def _restore(
        self, log_id: str | None, namespaces: Sequence[str], groups: Sequence[str], *, dry_run: bool
    ) -> RestoredLog:
        plan = read_plan(self._files)
        continued = plan is not None
        if plan is None:
            self._check_empty()
            found = self._look(namespaces, [log_id] if log_id is not None else [])
            plan = self._new_plan(found, namespaces, groups)
            if not dry_run:
                write_plan(self._files, plan)
        else:
            found = self._look(plan.namespaces, [plan.log_id, *plan.log_ids_before])
        report = self._report(found, plan)
        if dry_run:
            return replace(report, dry_run=True, continued=continued)
        if not self._has_begun(plan):
            taken = self._take_all(plan, found.topics)
            report = replace(report, topics=tuple(_told_of(each) for each in taken))
            self._clear()
            self._record(taken)
            self._begin(plan, taken, found.number_max)
        forget_plan(self._files)
        return replace(report, continued=continued)

    # 1 and 2 -----------------------------------------------------------------------------------

    def _check_empty(self) -> None:
        there = [*files_of_a_log(self._files), *(f"{LEDGER}/{name}" for name in self._files.list(LEDGER))]
        if there:
            raise InvalidRequest(
                f"{self._directory} holds a log, or what is left of one ({there[0]}): give a directory without one, or "
                "move log/, journal/, checkpoints/ and ledger/ away",
                directory=self._directory,
            )

    def _look(self, namespaces: Sequence[str], log_ids: Sequence[str]) -> LakeLog:
        with closing(self._connect()) as tables:
            found = log_in(marked_tables(tables, table_names(tables, namespaces)), log_ids)
            # What would halt later halts here, before the first table is touched.
            for topic in found.topics:
                for table, shape in _shaped(topic):
                    check_system_columns(table.state)
                    tables.fit(table.state, shape)
            return found

    def _new_plan(self, found: LakeLog, namespaces: Sequence[str], groups: Sequence[str]) -> RestorePlan:
        if not found.topics:
            told = "; ".join(f"{table}: {why}" for table, why in found.passed_over.items())
            raise InvalidRequest(f"no table of this log brings a topic back: {told}")
        return RestorePlan(
            log_id=self._entropy(16).hex(),
            log_ids_before=found.log_ids,
            # A log that was restored, and has landed nothing since, has given out LSNs from the next one on.
            first_lsn=((found.lsn_max + 1) // LSNS_APART + 1) * LSNS_APART,
            namespaces=tuple(namespaces),
            groups=tuple(dict.fromkeys(groups)),
            begun_us=self._clock.now_us(),
        )

    def _report(self, found: LakeLog, plan: RestorePlan) -> RestoredLog:
        return RestoredLog(
            directory=self._directory,
            log_id=plan.log_id,
            log_ids_before=plan.log_ids_before,
            first_lsn=plan.first_lsn,
            topics=tuple(_told(topic) for topic in found.topics),
            passed_over=found.passed_over,
            groups=plan.groups,
        )

    # 3 and 4 -----------------------------------------------------------------------------------

    def _take_all(self, plan: RestorePlan, topics: Sequence[LakeTopic]) -> list[_Taken]:
        # All are taken over before any is read: from then on nobody else lands in them.
        taking = TakingOver(self._connect, plan, clock=self._clock, entropy=self._entropy)
        over = [
            [taking.take(table.name, shape, is_state=table is topic.state) for table, shape in _shaped(topic)]
            for topic in topics
        ]
        cache = FileCache()
        lsn_to = plan.first_lsn - 1
        return [
            _Taken(
                topic,
                landed,
                baseline_of(landed.state, lsn_to, cache),
                state[0] if state else None,
                places_of(state[0].state, lsn_to, cache) if state else Places(),
            )
            for topic, (landed, *state) in zip(topics, over, strict=True)
        ]

    # 5 and 6 -----------------------------------------------------------------------------------

    def _has_begun(self, plan: RestorePlan) -> bool:
        """Whether the log is there already; Halted where another one is."""
        found = set(self._log_ids())
        if found - {plan.log_id}:
            raise Halted(
                f"another log was begun in {self._directory} while its restore was not finished: move log/, "
                f"journal/, checkpoints/ and ledger/ away, and restore again; {PLAN} stays",
                directory=self._directory,
            )
        return bool(found)

    def _log_ids(self) -> Iterator[str]:
        """Of the logs that can be opened here: one at most, if nobody has meddled."""
        if isinstance(self._files, BucketFiles):
            manifest = trim_in(self._files, LOG)
            if manifest is not None:
                yield manifest.log_id.hex()
            return
        for name in sort_names(self._files.list(LOG)).segments:
            file = self._files.open(f"{LOG}/{name}")
            try:
                opening = read_opening(file)
            finally:
                file.close()
            # Without a header the restore died while it was written: no log can be opened with it.
            if not isinstance(opening, NoFrame):
                yield opening.header.log_id.hex()

    def _clear(self) -> None:
        """What an attempt before this one has left: nobody could open it."""
        for path in [*files_of_a_log(self._files), *(f"{LEDGER}/{name}" for name in self._files.list(LEDGER))]:
            self._files.unlink(path)

    def _record(self, taken: Sequence[_Taken]) -> None:
        with closing(Ledger(self._files, clock=self._clock, entropy=self._entropy)) as ledger:
            for each in taken:
                ledger.record(self._records(each))

    def _records(self, taken: _Taken) -> list[LedgerRecord]:
        landed, baseline = taken.landed, taken.baseline
        head = landed.state.head()
        assert head is not None, "its stamp is a snapshot"
        topic_id = taken.topic.record.topic_id.hex()
        now_us = self._clock.now_us()
        records: list[LedgerRecord] = [
            Restored(
                topic_id=topic_id,
                topic=taken.topic.record.name,
                table=landed.state.name,
                table_uuid=landed.state.uuid,
                log_id_before=landed.adoption.log_ids_before[0],
                snapshot=head.snapshot_id,
                lsn_before=landed.adoption.lsn_before,
                lsn_to=landed.adoption.lsn_to,
                rows=baseline.rows,
                digest=baseline.digest,
                columns=baseline.columns,
                offsets=baseline.places.runs,
                max_row_lsn=landed.table.standing.max_row_lsn,
                at_us=now_us,
            )
        ]
        if taken.state is not None:
            merged = taken.state.table.standing
            records.append(
                Merged(
                    topic_id=topic_id,
                    table=taken.state.state.name,
                    commit_id=taken.state.table.mark.commit_id,
                    snapshot=merged.snapshot or 0,
                    lsn_from=merged.landed_lsn,
                    lsn_to=merged.landed_lsn,
                    at_us=now_us,
                )
            )
        return records

    def _begin(self, plan: RestorePlan, taken: Sequence[_Taken], number_max: int) -> None:
        topics = [_with_room(each) for each in taken]
        next_offsets = {
            (each.topic.record.number, partition): offset
            for each in taken
            for partition, offset in each.next_offsets.items()
        }
        places = [each.baseline.places for each in taken]
        beginning = Beginning(
            bytes.fromhex(plan.log_id),
            plan.first_lsn,
            topics,
            number_max,
            next_offsets,
            time_us=max((each.time_us for each in places), default=0),
            groups=dict.fromkeys(plan.groups, plan.begun_us),
        )
        begin_log(self._files, beginning, settings=self._settings, clock=self._clock, entropy=self._entropy)
        self._read_back(beginning)

    def _read_back(self, beginning: Beginning) -> None:
        """A log that was not opened and compared is not made."""
        engine = Engine(
            self._files,
            directory=self._directory,
            settings=self._settings,
            clock=self._clock,
            entropy=self._entropy,
        )
        try:
            engine.claim()
            offsets = {divmod(key, 1 << 32): offset for key, offset in engine.shard.next_offsets().items()}
            topics = [engine.metadata().topics[topic.number] for topic in beginning.topics]
            assert offsets == beginning.next_offsets and topics == beginning.topics, (
                "the log reads back as it was meant"
            )
        finally:
            engine.close()


def _shaped(topic: LakeTopic) -> Iterator[tuple[MarkedTable, TableShape]]:
    """The tables of a topic as it wants them."""
    yield topic.landed, table_shape(topic.record)
    if topic.state is not None:
        yield topic.state, state_shape(topic.record)


def restore_log(
    directory: str | os.PathLike[str],
    *,
    catalog: str | Mapping[str, Any] | None = None,
    log_id: str | None = None,
    namespaces: Sequence[str] = (),
    groups: Sequence[str] = (),
    dry_run: bool = False,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
    settings: Settings | None = None,
) -> RestoredLog:
    """A new log in this directory, which has none, from the tables of a catalog that a lost log has landed in.

    `log_id` says which log is meant where several have; `namespaces` which tables are looked at; `groups` which
    consumer groups read on after what has landed.  docs/restore.md says what comes back, and what cannot."""
    path = os.fspath(directory)
    if not is_bucket(path):
        path = str(Path(path).expanduser())
    place = catalog_place(catalog, directory=path)
    clock = clock if clock is not None else SystemClock()
    restoring = FromLake(open_files(path), path, place.connect, clock=clock, entropy=entropy, settings=settings)
    return restoring.restore(log_id=log_id, namespaces=namespaces, groups=groups, dry_run=dry_run)


def _told(topic: LakeTopic) -> RestoredTopic:
    record = topic.record
    return RestoredTopic(
        name=record.name,
        topic_id=record.topic_id.hex(),
        table=landing_table(record),
        landed_lsn=topic.landed.standing.landed_lsn,
        partitions=record.partitions,
        schema_versions=len(record.schemas),
        key=record.key,
        state_table=topic.state.name if topic.state is not None else None,
    )


def _told_of(taken: _Taken) -> RestoredTopic:
    return replace(
        _told(taken.topic),
        landed_lsn=taken.landed.adoption.lsn_before,
        partitions=_with_room(taken).partitions,
        rows=taken.baseline.rows,
        next_offsets=dict(sorted(taken.next_offsets.items())),
    )


def _with_room(taken: _Taken) -> TopicRecord:
    """The topic with at least as many partitions as its rows have."""
    record = taken.topic.record
    return structs.replace(record, partitions=max([record.partitions, *(each + 1 for each in taken.next_offsets)]))
