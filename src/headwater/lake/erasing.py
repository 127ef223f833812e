"""Erasing rows by their owner's wish: from the log, the tables, their old snapshots and their files.

    1 land      everything up to now is in the table, and read back: from then on the rows are looked for where they lie
    2 find      by the condition, in the table and in the log
    3 intend    the ledger is told which rows go, by offset, and what of the landings' digests goes with them
    4 table     data files are made again without them (table_erasing.py), then snapshots that show them expire, and
                their files go (erased_snapshots.py); of a keyed topic the changes first and then the state, so that no
                merge can bring a row back: one that has read the old changes stands on a state that main has left
    5 log       segments are made again without them (log_erasing.py)
    6 receipt   the ledger is told where they are gone from

PROMISE  What is erased is decided once, in step 3, and carried out by offset.  Each step looks at what is there and
         does what is left to do: after a crash, or where a reader or a tag held something, the next erasure of the
         topic, by whatever condition, finishes it.
         The table's landed LSN does not move.  Audits subtract what the receipt says.
         A receipt holds no value of any row, and of the condition no more than its hash.
KEYED    Rows of a keyed topic are erased by key, every change of it: with one change gone, an older one would show.
NOT HERE Copies that others made: backups, tables that were filled from this one, exports.  `<topic>.rejected` is a
         topic of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
from msgspec.structs import replace as changed

from headwater.errors import InvalidRequest, LandingHalted, Unavailable
from headwater.lake.erased_orphans import remove_orphans
from headwater.lake.erased_snapshots import Expiring, SnapshotsGone, holders_of
from headwater.lake.erasure_finding import Asked, Found, find_in_log, find_in_table
from headwater.lake.erasure_report import ErasureReport, Outcome
from headwater.lake.erasures import combined, eras_of, erasures_of, unfinished
from headwater.lake.file_cache import FileCache
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.landing import Lake
from headwater.lake.ledger_records import Begun, Erased
from headwater.lake.log_erasing import erase_from_log
from headwater.lake.mark import MAIN
from headwater.lake.offset_runs import OffsetRuns
from headwater.lake.runner import Runner
from headwater.lake.shape import SYSTEM_COLUMNS, lake_schema, landing_table
from headwater.lake.stamping import new_commit_id, own_standing, stamp_of
from headwater.lake.table_erasing import head_files, rewrite_without, speaks_of_files_that_are_out, stage_erasure
from headwater.lake.tables import CommitRefused, CommitUncertain, TableState
from headwater.lake.where import condition
from headwater.metadata.operations import TopicRecord
from headwater.topics.engine import Engine
from headwater.topics.schema import unpack_schema

ATTEMPTS_MAX = 5
RUNS_MAX = 100_000
"""So many runs of offsets fit a record of the ledger."""

Answer = TypeVar("Answer")


def erase(
    lake: Lake,
    engine: Engine,
    topic: TopicRecord,
    where: str,
    reason: str,
    *,
    runner: Runner | None = None,
    dry_run: bool = False,
) -> ErasureReport:
    """Erase the rows of a topic that fulfil the condition.  It is the act of the log's owner: LogLocked where another
    process writes there."""
    if not reason.strip():
        raise InvalidRequest("say why rows are erased: the ledger keeps the reason", topic=topic.name)
    own = lake_schema(unpack_schema(topic.schemas[-1]))
    # Null is a value that may be asked for in any of them: a delete of a key has nothing but its key.
    columns = pa.schema([field.with_nullable(True) for field in (*own, *SYSTEM_COLUMNS)])
    wanted = condition(where, columns)
    others = sorted(wanted.columns - set(topic.key))
    if topic.key and others:
        raise InvalidRequest(
            f"rows of a keyed topic are erased by their key ({', '.join(topic.key)}), every change of it: find the "
            f"keys by a scan first, and leave {', '.join(others)} out",
            topic=topic.name,
        )
    erasing = _Erasing(lake, engine, Asked(topic, columns, wanted, engine.durable_lsn()))
    if dry_run:
        return erasing.report("dry-run", erasing.find())
    engine.claim()
    erasing.land(runner)
    return erasing.run(reason, hashlib.sha256(where.encode()).hexdigest())


class _Erasing:
    def __init__(self, lake: Lake, engine: Engine, asked: Asked) -> None:
        topic = asked.topic
        self._lake = lake
        self._engine = engine
        self._log = lake.log_of(engine)
        self._asked = asked
        self._topic = topic
        self._topic_id = topic.topic_id.hex()
        self._cache = FileCache()
        self._tables: dict[str, str] = {}
        """The topic's tables, and what a receipt calls each."""
        if topic.table is not None:
            self._tables[landing_table(topic)] = "changes" if topic.key else "table"
            self._tables.setdefault(topic.table, "state")
        self._told = ErasureReport(topic.name, "complete")
        self._left: list[str] = []

    @property
    def _places(self) -> tuple[str, ...]:
        """All that a finished receipt names."""
        return (*self._tables.values(), "snapshots", "log") if self._tables else ("log",)

    # 1 -----------------------------------------------------------------------------------------

    def land(self, runner: Runner | None) -> None:
        """Bring the table up to now, and look at rows up to there."""
        if not self._tables:
            return
        message = ""
        for _ in range(ATTEMPTS_MAX):
            report = self._lake.land(self._log, self._topic.name, runner=runner)
            [landed] = report.topics
            if landed.outcome == "halted":
                raise LandingHalted(landed.cause, landed.message, topic=landed.topic, table=landed.table)
            if landed.outcome in {"landed", "nothing"} and landed.verified:
                self._asked = replace(self._asked, lsn_to=report.lsn_to)
                return
            message = landed.message
        raise Unavailable(
            f"{self._topic.name!r} could not be landed and read back, so nothing is erased: try again", reason=message
        )

    # 2 -----------------------------------------------------------------------------------------

    def find(self) -> Found:
        """The rows that fulfil the condition, wherever they are."""
        found = Found()
        if not self._tables:
            find_in_log(None, None, self._engine, self._asked, (), found)
            return found
        eras = eras_of(self._lake.ledger.records(), self._topic_id)
        with closing(self._lake.place.connect()) as tables:
            states = {name: self._checked(tables, name) for name in self._tables}
            for name, state in states.items():
                if state is not None:
                    its_eras = () if self._tables[name] == "state" else eras
                    find_in_table(tables, state, self._asked, its_eras, self._cache, found)
            find_in_log(tables, next(iter(states.values())), self._engine, self._asked, eras, found)
        return found

    def _checked(self, tables: IcebergTables, name: str) -> TableState | None:
        """The table, if anything ever came into it.  LandingHalted where it holds less than it once did: what a
        rollback left could come again."""
        known = self._lake.ledger.state().topic(self._topic_id)
        merged_lsn = known.merged.lsn_to if known.merged is not None else 0
        known_lsn = merged_lsn if self._tables[name] == "state" else known.landed_lsn
        state = _loaded(tables, name)
        lsn = own_standing(tables, state, self._topic_id).landed_lsn if state is not None else 0
        if lsn < known_lsn:
            raise LandingHalted(
                "gap",
                f"{name!r} is gone or holds less than the ledger says: bring it up again, with --after-rollback, then "
                "erase",
                table=name,
                table_lsn=lsn,
                ledger_lsn=known_lsn,
            )
        return state

    # 3 and 6 -----------------------------------------------------------------------------------

    def run(self, reason: str, condition_hash: str) -> ErasureReport:
        before = unfinished(erasures_of(self._lake.ledger.records(), self._topic_id), self._places)
        if before and self._carry_out(before):
            # They come first, so that what they name is not found a second time.
            self._told = replace(self._told, finished=tuple(each.erasure_id for each in before))
        found = self.find()
        if len(found.rows.runs) > RUNS_MAX:
            raise InvalidRequest(
                f"the condition takes out {len(found.rows.runs)} separate runs of rows, and a receipt holds "
                f"{RUNS_MAX}: erase in parts, by a range of _hw_offset for instance",
                topic=self._topic.name,
            )
        if found.strangers:
            self._left.append(
                f"{found.strangers} rows that match were in the table before the topic: delete them there"
            )
        if found.rows:
            receipt = self._receipt(found, reason, condition_hash)
            self._record([receipt], ())
            self._told = replace(self._told, erasure_id=receipt.erasure_id)
            self._carry_out([receipt])
        did = found.rows or self._told.finished
        return self.report("incomplete" if self._left else "complete" if did else "nothing", found)

    def _receipt(self, found: Found, reason: str, condition_hash: str) -> Erased:
        return Erased(
            topic_id=self._topic_id,
            topic=self._topic.name,
            table=next(iter(self._tables), ""),
            erasure_id=new_commit_id(self._lake.entropy),
            reason=reason,
            condition_hash=condition_hash,
            lsn_to=self._asked.lsn_to,
            rows=found.rows.rows,
            offsets=found.rows.runs,
            parts=combined(found.parts),
            at_us=self._lake.clock.now_us(),
        )

    def _record(self, receipts: Sequence[Erased], done: Sequence[str]) -> None:
        now_us = self._lake.clock.now_us()
        self._lake.ledger.record([changed(each, done=tuple(done), at_us=now_us) for each in receipts])

    def report(self, outcome: Outcome, found: Found) -> ErasureReport:
        return replace(
            self._told,
            outcome=outcome,
            rows=found.rows.rows,
            offsets=found.rows.runs,
            lsn_to=self._asked.lsn_to,
            left=tuple(dict.fromkeys(self._left)),
        )

    # 4 and 5 -----------------------------------------------------------------------------------

    def _carry_out(self, receipts: Sequence[Erased]) -> bool:
        """Take out what the receipts name; says whether it is gone from everywhere."""
        gone = OffsetRuns.of(run for each in receipts for run in each.offsets)
        left: list[str] = []
        for name in self._tables:
            self._rewrite(name, gone)
            left.extend(self._expire(name, gone))
        done = [*self._tables.values(), *(() if left or not self._tables else ("snapshots",))]
        # Now, because an audit may come before the log is through.
        self._record(receipts, done)
        log = erase_from_log(self._engine, self._topic, gone)
        self._told = replace(self._told, segments=(*self._told.segments, *log.segments))
        if not log.left:
            self._record(receipts, [*done, "log"])
        self._left.extend([*left, *log.left])
        return not (left or log.left)

    def _rewrite(self, name: str, gone: OffsetRuns) -> None:
        """Take the rows out of a table's head."""

        def step(tables: IcebergTables) -> int:
            state = _loaded(tables, name)
            standing = own_standing(tables, state, self._topic_id) if state is not None else None
            if state is None or standing is None or standing.mark is None:
                return 0
            commit_id = new_commit_id(self._lake.entropy)
            rewrite = rewrite_without(state, gone, commit_id, self._cache)
            if rewrite.replaced or speaks_of_files_that_are_out(state):
                mark = replace(stamp_of(standing, commit_id), max_row_lsn=rewrite.max_row_lsn)
                tables.commit(stage_erasure(state, rewrite, mark))
                state = _loaded(tables, name) or state
            # The files that they were made from are about to go.
            files = [file.path for file in head_files(state, self._cache)]
            tables.make_durable(state, state.branches[MAIN], files)
            return len(rewrite.replaced)

        count = self._tried(step, f"rows could not be taken out of {name!r}")
        self._told = replace(self._told, rewritten_files=self._told.rewritten_files + count)

    def _expire(self, name: str, gone: OffsetRuns) -> list[str]:
        """Let go of a table's snapshots that show the rows, of their files, and of files of no snapshot; returns what
        stays."""
        expiring = Expiring(self._lake.place.connect, self._lake.ledger, self._lake.clock, self._cache)
        told = SnapshotsGone()

        def step(tables: IcebergTables) -> None:
            state = _loaded(tables, name)
            if state is not None:
                known = self._lake.ledger.state().topic(self._topic_id)
                landed_in = known if self._tables[name] != "state" else None
                pinned = self._log.pinned()
                expiring.step(tables, state, gone, lambda now: holders_of(now, pinned, landed_in), told)

        self._tried(step, f"old snapshots of {name!r} could not be let go of")
        expiring.remove(name, told)
        landings = {each.commit_id for each in self._lake.ledger.records() if isinstance(each, Begun)}
        with closing(self._lake.place.connect()) as tables:
            state = _loaded(tables, name)
            if state is not None:
                remove_orphans(tables, state, gone, landings, self._cache, told)
        self._told = replace(
            self._told,
            expired_snapshots=self._told.expired_snapshots + told.expired,
            removed_files=self._told.removed_files + told.removed,
        )
        return told.left

    def _tried(self, step: Callable[[IcebergTables], Answer], otherwise: str) -> Answer:
        """The step through a new connection, again while other commits come first: it decides anew from the table each
        time, so an outcome that nobody knows needs no more than that."""
        for _ in range(ATTEMPTS_MAX):
            with closing(self._lake.place.connect()) as tables:
                try:
                    return step(tables)
                except (CommitRefused, CommitUncertain):
                    continue
        raise Unavailable(f"{otherwise}: other commits came first each time; erase again", topic=self._topic.name)


def _loaded(tables: IcebergTables, name: str) -> TableState | None:
    """The table, if anything ever came into it."""
    state = tables.load(name)
    return state if state is not None and MAIN in state.branches else None
