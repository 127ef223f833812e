"""Bringing a keyed topic's state table up to its change table: all of it but the MERGE itself, which is Spark's.

    1 begin    read both tables: the state is merged up to one LSN, the changes have landed up to another
    2 branch   a branch of the state table at the very snapshot whose merged LSN was read
    3          Spark merges the changes between the two LSNs into that branch, with the mark in its snapshot
    4 finish   main goes to what the merge made, on condition that it is still where it was read, and the branch goes

PROMISE  Of merges that race one wins; the state is always the fold of the changes up to its merged LSN, so a merge that
         is late cannot bring a deleted key back: it stands on a snapshot that main has left.
         The outcome is what the table shows, whatever an exception said.  A branch that is dropped takes the chance of
         a late request with it, because that one is conditional on the branch.
         No merge begins below what the retention of changes has let go of: LandingHalted("gap").
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from headwater.clock import Clock, Entropy
from headwater.errors import HeadwaterError, LandingHalted, Unavailable
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.ledger import LakeLedger
from headwater.lake.ledger_records import Merged
from headwater.lake.local_sync import sync_local
from headwater.lake.mark import FORGOTTEN, Mark, mark_in_summary
from headwater.lake.marks import Standing, landing_in_history
from headwater.lake.shape import landing_table
from headwater.lake.stamping import NO_ROWS, new_commit_id, own_standing, stage_stamp
from headwater.lake.state_table import MergeMode, mode_properties, state_shape
from headwater.lake.table_changes import drop_branches, make_branch, move_main
from headwater.lake.table_files import added_files
from headwater.lake.tables import CommitRefused, CommitUncertain, TableState
from headwater.lake.upkeep import merge_branch
from headwater.metadata.operations import TopicRecord

logger = logging.getLogger("headwater.lake")


@dataclass(frozen=True)
class MergePlan:
    """One merge, before it is made."""

    topic: TopicRecord
    table: str
    changes: str
    changes_snapshot: int
    """The merge reads the change table as of here."""
    lsn_from: int
    """Changes after this LSN ..."""
    lsn_to: int
    """... and up to this one."""
    columns: tuple[str, ...]
    """Of the state table, as the topic wants them."""
    commit_id: str
    branch: str
    base: int
    """The snapshot of main that is merged up to `lsn_from`."""
    state: TableState
    changes_mark: Mark

    def mark(self, changes: int, max_row_lsn: int) -> Mark:
        """What the merge's snapshot says.

        `max_row_lsn` is the newest change of this merge, a delete too.  If it proves anything later it is because the
        row that it made is in the table, and no state before this merge has one of that LSN."""
        return Mark(
            log_id=self.changes_mark.log_id,
            topic_id=self.changes_mark.topic_id,
            commit_id=self.commit_id,
            shard=self.changes_mark.shard,
            lsn_from=self.lsn_from,
            lsn_to=self.lsn_to,
            rows=changes,
            digest=NO_ROWS,
            epoch=self.changes_mark.epoch,
            max_row_lsn=max_row_lsn,
        )


class Merging:
    """The steps around one MERGE after another."""

    def __init__(
        self, connect: Callable[[], IcebergTables], ledger: LakeLedger, *, clock: Clock, entropy: Entropy
    ) -> None:
        self._connect = connect
        self._ledger = ledger
        self._clock = clock
        self._entropy = entropy

    # 1 -----------------------------------------------------------------------------------------

    def begin(self, topic: TopicRecord, mode: MergeMode, *, after_rollback: bool = False) -> MergePlan | None:
        """What there is to merge; None: nothing.  LandingHalted where a person must decide."""
        topic_id = topic.topic_id.hex()
        # The ledger before the tables: what was merged in between shows as a table that is ahead, never behind.
        known = self._ledger.state().topic(topic_id).copy()
        recorded_lsn = known.merged.lsn_to if known.merged is not None else 0
        with closing(self._connect()) as tables:
            changes = tables.load(landing_table(topic))
            if changes is None:
                return None
            landed = own_standing(tables, changes, topic_id)
            if landed.mark is None or not landed.landed_lsn:
                return None
            if recorded_lsn and not after_rollback and tables.load(topic.table or "") is None:
                raise self._gap(topic, "is gone", 0, recorded_lsn)
            state, merged = self._state(tables, topic, mode, landed.mark)
        assert topic.table is not None and changes.branches
        self._compare(topic, merged, recorded_lsn, changes, after_rollback)
        if merged.landed_lsn >= landed.landed_lsn:
            return None
        commit_id = new_commit_id(self._entropy)
        return MergePlan(
            topic=topic,
            table=topic.table,
            changes=changes.name,
            changes_snapshot=_main(changes),
            lsn_from=merged.landed_lsn,
            lsn_to=landed.landed_lsn,
            columns=tuple(state_shape(topic).schema.names),
            commit_id=commit_id,
            branch=merge_branch(commit_id, self._clock.now_us()),
            base=_main(state),
            state=state,
            changes_mark=landed.mark,
        )

    def _state(
        self, tables: IcebergTables, topic: TopicRecord, mode: MergeMode, landed: Mark
    ) -> tuple[TableState, Standing]:
        """The state table with a snapshot on main and every column of the topic, and how far it is merged."""
        assert topic.table is not None
        shape = state_shape(topic, mode)
        state = tables.load(topic.table) or tables.create(topic.table, shape)
        merged = own_standing(tables, state, landed.topic_id)
        if merged.mark is not None and merged.mark.log_id != landed.log_id:
            raise LandingHalted(
                "foreign-mark", f"{topic.table!r} holds merges of another log: give the topic a table of its own"
            )
        fit = tables.fit(state, shape)
        if state.branches and not fit.changes_schema:
            return state, merged
        # A branch needs a snapshot to begin at, and a MERGE the columns that it writes: a merge of nothing gives both.
        mark = Mark(
            landed.log_id,
            landed.topic_id,
            new_commit_id(self._entropy),
            landed.shard,
            merged.landed_lsn,
            merged.landed_lsn,
            0,
            NO_ROWS,
            landed.epoch,
            merged.max_row_lsn,
        )
        tables.commit(stage_stamp(tables, state, shape, mark))
        state = self._loaded(tables, topic.table)
        return state, own_standing(tables, state, landed.topic_id)

    def _compare(
        self, topic: TopicRecord, merged: Standing, recorded_lsn: int, changes: TableState, after_rollback: bool
    ) -> None:
        forgotten_lsn = int(changes.properties.get(FORGOTTEN, "0"))
        if merged.landed_lsn < forgotten_lsn:
            raise LandingHalted(
                "gap",
                f"the state of {topic.name!r} is merged up to lsn {merged.landed_lsn}, and the changes up to lsn "
                f"{forgotten_lsn} are past their retention: restore the state table",
                topic=topic.name,
                table=topic.table,
            )
        if merged.landed_lsn < recorded_lsn and not after_rollback:
            raise self._gap(topic, "was rolled back or replaced", merged.landed_lsn, recorded_lsn)
        mark = merged.mark
        if mark is not None and mark.rows and merged.landed_lsn > recorded_lsn:
            self._record(topic, mark, merged.snapshot or 0)

    @staticmethod
    def _gap(topic: TopicRecord, what: str, merged_lsn: int, recorded_lsn: int) -> LandingHalted:
        return LandingHalted(
            "gap",
            f"the state table of {topic.name!r} {what}: if that was meant, merge with --after-rollback",
            topic=topic.name,
            table=topic.table,
            table_lsn=merged_lsn,
            ledger_lsn=recorded_lsn,
        )

    # 2 -----------------------------------------------------------------------------------------

    def branch(self, plan: MergePlan, mode: MergeMode) -> None:
        """Make the branch.  CommitRefused or CommitUncertain: begin anew."""
        with closing(self._connect()) as tables:
            tables.commit(make_branch(plan.state, plan.branch, mode_properties(mode)))

    # 4 -----------------------------------------------------------------------------------------

    def finish(self, plan: MergePlan, mark: Mark, trouble: str = "") -> int | None:
        """Move main to what the merge made: its snapshot; None where another commit came first.

        Unavailable where the merge did not make what it should have: `trouble` is what is known about that."""
        with closing(self._connect()) as tables:
            state = self._loaded(tables, plan.table)
            made = self._made(state, plan, trouble)
            self._sync(tables, state, made)
            if (state.schema_id, state.spec_id, state.uuid) != (
                plan.state.schema_id,
                plan.state.spec_id,
                plan.state.uuid,
            ):
                return None
            try:
                tables.commit(move_main(state, plan.branch, plan.base, mark))
            except (CommitRefused, CommitUncertain) as error:
                logger.info("a merge into %s was not plainly applied: %s", plan.table, error)
                if not self._on_main(plan):
                    return None
        self._record(plan.topic, mark, made)
        return made

    def _made(self, state: TableState, plan: MergePlan, trouble: str) -> int:
        """The snapshot that the merge made on its branch."""
        head = state.head(plan.branch) if plan.branch in state.branches else None
        mark = mark_in_summary(head.summary) if head is not None else None
        if head is None or mark is None or mark.commit_id != plan.commit_id or head.parent_id != plan.base:
            raise Unavailable(f"the merge into {plan.table!r} made no snapshot of its own", cause=trouble)
        return head.snapshot_id

    @staticmethod
    def _sync(tables: IcebergTables, state: TableState, snapshot: int) -> None:
        """On a local disk: what the retention of changes lets go of later must be in the state for good."""
        try:
            sync_local(added_files(state, snapshot))
        except OSError as error:
            raise Unavailable(f"the files of a merge into {state.name!r} cannot be synced", cause=str(error)) from error
        tables.make_durable(state, snapshot)

    def _on_main(self, plan: MergePlan) -> bool:
        """Whether the merge is in main's history after all: asked through a connection that has seen no trouble."""
        with closing(self._connect()) as tables:
            return landing_in_history(self._loaded(tables, plan.table), plan.commit_id) is not None

    def drop(self, plan: MergePlan) -> None:
        """Drop the branch, if it is there.  If that fails upkeep does it later."""
        try:
            with closing(self._connect()) as tables:
                state = tables.load(plan.table)
                if state is not None and plan.branch in state.branches:
                    tables.commit(drop_branches(state, [plan.branch]))
        except HeadwaterError as error:
            logger.warning("the branch %s of %s stays for now: %s", plan.branch, plan.table, error)

    def _record(self, topic: TopicRecord, mark: Mark, snapshot: int) -> None:
        assert topic.table is not None
        self._ledger.record(
            [
                Merged(
                    topic_id=mark.topic_id,
                    table=topic.table,
                    commit_id=mark.commit_id,
                    snapshot=snapshot,
                    lsn_from=mark.lsn_from,
                    lsn_to=mark.lsn_to,
                    at_us=self._clock.now_us(),
                )
            ]
        )

    @staticmethod
    def _loaded(tables: IcebergTables, name: str) -> TableState:
        state = tables.load(name)
        if state is None:
            raise Unavailable(f"the table {name!r} is gone", table=name)
        return state


def _main(state: TableState) -> int:
    head = state.head()
    assert head is not None, "a table with a snapshot on main"
    return head.snapshot_id
