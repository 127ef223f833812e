"""Upkeep of tables without Spark: stamp, expire, let go of old changes, remove orphans, say what others did.

    care = Care(place.connect, ledger, clock=clock, entropy=entropy, settings=settings)
    care.of_topic(topic)      one TableUpkeep a table: the landing's, and a keyed topic's state

PROMISE  Landings go on meanwhile: each step is one commit on condition of what was loaded, made again if another came
         first, and given up after a few times; what was not done is said.
         Files go only when the table, loaded again after the commit that let go of them, does not reference them.
         Nothing is touched in a table whose mark cannot be told, nor in one that says that its files are shared.
NOT HERE Compaction and merges: spark/.  Whether to do something: upkeep.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from typing import TypeVar

from headwater.clock import Clock, Entropy
from headwater.errors import HeadwaterError, LandingHalted
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.ledger import LakeLedger
from headwater.lake.ledger_records import Begun, Intended, Kept
from headwater.lake.ledger_state import TopicLedger
from headwater.lake.mark import mark_in_summary
from headwater.lake.shape import landing_table, table_shape
from headwater.lake.stamping import new_commit_id, own_standing, stage_stamp, stamp_of
from headwater.lake.state_table import state_shape
from headwater.lake.table_changes import drop_branches, drop_files, expire
from headwater.lake.table_files import (
    data_files,
    listed_files,
    may_lose_files,
    other_tables_among,
    place_of,
    referenced_files,
    refs_of,
    remove_files,
    snapshot_files,
    were_main,
)
from headwater.lake.tables import CommitRefused, CommitUncertain, TableShape, TableState
from headwater.lake.upkeep import (
    ForeignCommit,
    ListedFile,
    UpkeepSettings,
    abandoned_branches,
    could_still_come,
    expirable,
    find_orphans,
    foreign_commits,
    forgettable_changes,
    history,
    needs_stamp,
    unread,
)
from headwater.metadata.operations import TopicRecord

Answer = TypeVar("Answer")

COMPACTION = "compaction"
"""What the ledger calls a compaction of ours."""


def note_of(snapshot: int, text: str) -> str:
    """What the ledger says of one snapshot."""
    return f"snapshot {snapshot}: {text}"


def snapshot_noted(detail: str) -> int:
    return int(detail.partition(":")[0].removeprefix("snapshot "))


@dataclass
class TableUpkeep:
    """What upkeep did with one table, or would do."""

    topic: str
    table: str
    compacted_files: int = 0
    made_files: int = 0
    stamped: bool = False
    expired_snapshots: int = 0
    removed_files: int = 0
    """Those that only expired snapshots needed."""
    orphans: tuple[str, ...] = ()
    """Files of no snapshot that were removed, or would be."""
    forgotten_files: int = 0
    """Data files of a change table whose rows are merged and past their retention."""
    forgotten_lsn: int = 0
    others: tuple[ForeignCommit, ...] = ()
    """Commits on main that are not ours."""
    left: list[str] = field(default_factory=list)
    """What was not done, and why."""
    cause: str = ""
    """A halt: nothing was done to this table, and a person is needed."""

    @property
    def did_something(self) -> bool:
        return bool(
            self.compacted_files or self.stamped or self.expired_snapshots or self.orphans or self.forgotten_files
        )

    def __str__(self) -> str:
        parts = [
            (self.compacted_files, f"{self.compacted_files} files became {self.made_files}"),
            (self.expired_snapshots, f"{self.expired_snapshots} snapshots expired"),
            (self.removed_files + len(self.orphans), f"{self.removed_files + len(self.orphans)} files removed"),
            (self.forgotten_files, f"{self.forgotten_files} files of changes let go"),
        ]
        return f"{self.table}: " + (", ".join(text for count, text in parts if count) or "nothing to do")


@dataclass(frozen=True)
class _Keeping:
    """One table, while it is kept."""

    topic: TopicRecord
    shape: TableShape
    known: TopicLedger
    told: TableUpkeep
    is_landed_in: bool

    @property
    def table(self) -> str:
        return self.told.table

    @property
    def topic_id(self) -> str:
        return self.topic.topic_id.hex()

    @property
    def known_lsn(self) -> int:
        """How far the table has come, by the ledger."""
        if self.is_landed_in:
            return self.known.owed_lsn
        return self.known.merged.lsn_to if self.known.merged is not None else 0

    def unverified(self, state: TableState) -> frozenset[int]:
        """Snapshots of landings that nobody has read back: those that the ledger knows, and any that are above what it
        knows as verified, because a landing is in the table before it is in the ledger."""
        if not self.is_landed_in:
            return frozenset()
        head = state.head()
        line = history(state, head.snapshot_id) if head is not None else []
        marks = [(each.snapshot_id, mark_in_summary(each.summary)) for each in line]
        newer = {
            snapshot
            for snapshot, mark in marks
            if mark is not None and mark.rows and mark.lsn_to > self.known.verified_lsn
        }
        return frozenset(newer | {each.snapshot for each in self.known.unverified.values()})


Pinned = Callable[[], Collection[int]]
"""The snapshots that readers of this data directory hold now."""


def nothing_pinned() -> Collection[int]:
    return ()


class Care:
    def __init__(
        self,
        connect: Callable[[], IcebergTables],
        ledger: LakeLedger,
        *,
        clock: Clock,
        entropy: Entropy,
        settings: UpkeepSettings,
        pinned: Pinned = nothing_pinned,
    ) -> None:
        self._pinned = pinned
        self._connect = connect
        self._ledger = ledger
        self._clock = clock
        self._entropy = entropy
        self._settings = settings

    def of_topic(self, topic: TopicRecord) -> list[TableUpkeep]:
        """Keep the topic's tables.  Trouble with one is in what is said of it, and stops nothing else."""
        tables = [(landing_table(topic), table_shape(topic), True)]
        if topic.key and topic.table is not None:
            tables.append((topic.table, state_shape(topic), False))
        found = []
        for table, shape, is_landed_in in tables:
            told = TableUpkeep(topic.name, table)
            # The ledger before the table: what lands in between shows as a table that is ahead, never behind.
            known = self._ledger.state().topic(topic.topic_id.hex()).copy()
            self._keep(_Keeping(topic, shape, known, told, is_landed_in))
            found.append(told)
        return found

    def _keep(self, keeping: _Keeping) -> None:
        told = keeping.told
        try:
            with closing(self._connect()) as tables:
                state = tables.load(keeping.table)
                if state is None:
                    told.left.append("there is no table yet")
                    return
                landed_lsn = own_standing(tables, state, keeping.topic_id).landed_lsn
            self._tell_of_others(keeping, state)
            if landed_lsn < keeping.known_lsn:
                raise LandingHalted(
                    "gap",
                    f"{keeping.table!r} holds less than the ledger says, and what it has left may be needed: nothing "
                    "goes until it has caught up",
                    table_lsn=landed_lsn,
                    ledger_lsn=keeping.known_lsn,
                )
            if not landed_lsn:
                told.left.append("nothing has come into it yet")
                return
            if not may_lose_files(state):
                told.left.append("its property gc.enabled says that its files are shared: nothing is let go")
                return
            self._drop_abandoned(keeping)
            if keeping.is_landed_in and keeping.topic.key:
                self.let_go_of_changes(keeping.topic, told)
            self._expire(keeping)
            self._remove_orphans(keeping)
        except LandingHalted as halt:
            told.cause = halt.cause
            told.left.append(halt.message)
        except HeadwaterError as error:
            told.left.append(str(error))

    # Others ------------------------------------------------------------------------------------

    def _tell_of_others(self, keeping: _Keeping, state: TableState) -> None:
        kept = self._ledger.state().kept.get(keeping.table, [])
        own = {snapshot_noted(each.detail) for each in kept if each.what == COMPACTION}
        others = foreign_commits(
            state,
            were_main=were_main(state),
            table_uuid=keeping.known.table_uuid if keeping.is_landed_in else "",
            landed_lsn=keeping.known.landed_lsn if keeping.is_landed_in else 0,
            own=own,
        )
        keeping.told.others = others
        said = {each.detail for each in kept if each.what == "others"}
        details = [note_of(each.snapshot or 0, str(each)) for each in others]
        self._note(keeping.table, "others", [detail for detail in details if detail not in said])

    # Branches that merges left -------------------------------------------------------------------

    def _drop_abandoned(self, keeping: _Keeping) -> None:
        def step(tables: IcebergTables) -> None:
            state = _loaded(tables, keeping.table)
            left = abandoned_branches(refs_of(state), now_us=self._clock.now_us(), settings=self._settings)
            if left and not self._settings.dry_run:
                tables.commit(drop_branches(state, [ref.name for ref in left]))

        self._tried(step, keeping.told, "branches that merges left behind stay")

    # Changes that are merged and old -------------------------------------------------------------

    def let_go_of_changes(self, topic: TopicRecord, told: TableUpkeep) -> None:
        """Drop the files of a change table whose rows are all merged, verified and past `changes_retention`."""
        before_us = self._clock.now_us() - round(topic.policy.changes_retention_s * 1_000_000)
        topic_id = topic.topic_id.hex()

        def step(tables: IcebergTables) -> int:
            merged_lsn = self._merged_lsn(tables, topic, topic_id)
            if not merged_lsn:
                return 0
            state = _loaded(tables, landing_table(topic))
            standing = own_standing(tables, state, topic_id)
            files, _ = data_files(state)
            old = forgettable_changes(files, merged_lsn=merged_lsn, before_us=before_us)
            if not old or self._settings.dry_run:
                told.forgotten_files = len(old)
                return 0
            mark = stamp_of(standing, new_commit_id(self._entropy))
            staged = drop_files(state, old, mark, lsn_to=merged_lsn, before_us=before_us)
            if staged is None:
                return 0
            tables.commit(staged[0])
            told.forgotten_files = len(staged[1])
            return max(file.lsn_max or 0 for file in staged[1])

        told.forgotten_lsn = self._tried(step, told, "changes past their retention stay") or 0
        if told.forgotten_lsn:
            detail = f"{told.forgotten_files} files of changes up to LSN {told.forgotten_lsn}"
            self._note(landing_table(topic), "retention", [detail])

    def _merged_lsn(self, tables: IcebergTables, topic: TopicRecord, topic_id: str) -> int:
        """How far the state table has come, and no further than what was read back from the change table."""
        state = tables.load(topic.table or "")
        if state is None:
            return 0
        known = self._ledger.state().topic(topic_id)
        return min(own_standing(tables, state, topic_id).landed_lsn, known.verified_lsn)

    # Snapshots -----------------------------------------------------------------------------------

    def _expire(self, keeping: _Keeping) -> None:
        told = keeping.told

        def step(tables: IcebergTables) -> tuple[set[str], int]:
            state = _loaded(tables, keeping.table)
            now_ms = self._clock.now_us() // 1000
            expired = expirable(
                state,
                refs_of(state),
                unverified=keeping.unverified(state),
                pinned=self._pinned(),
                now_ms=now_ms,
                settings=self._settings,
            )
            if not expired or self._settings.dry_run:
                return set(), len(expired)
            standing = own_standing(tables, state, keeping.topic_id)
            if needs_stamp(state, standing, expired):
                self._stamp(tables, keeping, state)
                raise CommitRefused("the table has a new head")
            files = snapshot_files(state, unread(state, expired, now_ms=now_ms, settings=self._settings))
            tables.commit(expire(state, [each.snapshot_id for each in expired]))
            return files, len(expired)

        answer = self._tried(step, told, "old snapshots stay")
        if answer is None:
            return
        files, told.expired_snapshots = answer
        if files:
            self._remove_unreferenced(keeping, files)
        if told.expired_snapshots and not self._settings.dry_run:
            detail = f"{told.expired_snapshots} snapshots, {told.removed_files} files"
            self._note(keeping.table, "expired", [detail])

    def _remove_unreferenced(self, keeping: _Keeping, files: Iterable[str]) -> None:
        """Remove what expired snapshots alone needed: they were landed, so only a reader could want them."""
        with closing(self._connect()) as tables:
            state = _loaded(tables, keeping.table)
        listed = [ListedFile(path, 0, 0) for path in files]
        found = find_orphans(
            listed,
            referenced_files(state),
            self._in_flight(keeping.table),
            now_us=self._clock.now_us(),
            settings=self._settings,
        )
        gone, stayed = remove_files(state, [each.path for each in found.removable])
        keeping.told.removed_files = len(gone)
        if stayed:
            keeping.told.left.append(f"{len(stayed)} files could not be removed, and are orphans now")

    # Orphans -------------------------------------------------------------------------------------

    def _remove_orphans(self, keeping: _Keeping) -> None:
        told = keeping.told
        passed: set[str] = set()
        """Main has moved since these were seen, because a stamp of ours is on it."""

        def step(tables: IcebergTables) -> tuple[TableState, tuple[ListedFile, ...]] | None:
            state = _loaded(tables, keeping.table)
            place = place_of(state)
            if place is None:
                told.left.append("its files cannot be listed from here: orphans stay")
                return None
            # The listing comes first: what a landing commits after it is referenced by what is loaded then.
            in_flight = self._in_flight(keeping.table)
            listed = listed_files(state, place)
            state = _loaded(tables, keeping.table)
            now_us = self._clock.now_us()
            found = find_orphans(listed, referenced_files(state), in_flight, now_us=now_us, settings=self._settings)
            foreign = other_tables_among(state, found.removable)
            if foreign:
                told.left.append(
                    f"files of another table lie in its place ({', '.join(foreign)}): orphans stay until they are moved"
                )
                return None
            unpassed = [file for file in found.removable if file.path not in passed]
            if not self._settings.dry_run and could_still_come(state, unpassed):
                self._stamp(tables, keeping, state)
                passed.update(file.path for file in unpassed)
                raise CommitRefused("the table has a new head")
            return state, found.removable

        answer = self._tried(step, told, "orphans stay")
        if answer is None:
            return
        state, orphans = answer
        if self._settings.dry_run:
            told.orphans = tuple(each.path for each in orphans)
            return
        gone, stayed = remove_files(state, [each.path for each in orphans])
        told.orphans = tuple(gone)
        if stayed:
            told.left.append(f"{len(stayed)} orphans could not be removed")
        if gone:
            self._note(keeping.table, "orphans", [f"{len(gone)} files"])

    def _in_flight(self, table: str) -> list[Begun | Intended]:
        """What the ledger knows as under way into this table: by any topic, one that was deleted since too."""
        topics = list(self._ledger.state().topics.values())
        return [each for topic in topics for each in topic.copy().in_flight.values() if each.table == table]

    def _stamp(self, tables: IcebergTables, keeping: _Keeping, state: TableState) -> None:
        """Put the mark on a new head.  What is done next is decided anew from the table as it is then."""
        standing = own_standing(tables, state, keeping.topic_id)
        mark = stamp_of(standing, new_commit_id(self._entropy))
        tables.commit(stage_stamp(tables, state, keeping.shape, mark))
        keeping.told.stamped = True

    # Doing it ------------------------------------------------------------------------------------

    def _tried(self, step: Callable[[IcebergTables], Answer], told: TableUpkeep, otherwise: str) -> Answer | None:
        """The step through a new connection, again while other commits come first.  What it commits is decided anew
        from the table each time, so an outcome that nobody knows needs no more than that."""
        for _ in range(self._settings.attempts_max):
            with closing(self._connect()) as tables:
                try:
                    return step(tables)
                except (CommitRefused, CommitUncertain):
                    continue
        told.left.append(f"{otherwise}: other commits came first each time")
        return None

    def _note(self, table: str, what: str, details: Iterable[str]) -> None:
        if not self._settings.dry_run:
            now_us = self._clock.now_us()
            self._ledger.record([Kept(table=table, what=what, detail=detail, at_us=now_us) for detail in details])


def _loaded(tables: IcebergTables, name: str) -> TableState:
    state = tables.load(name)
    if state is None:
        raise LandingHalted("gap", f"the table {name!r} is gone: restore it", table=name)
    return state
