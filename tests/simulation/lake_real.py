"""The same schedules, shorter, with nothing simulated but the trouble: a real log, ledger, tasks, and pyiceberg tables.

STEP     Every verb of a connection, every record of the ledger and every job, as in lake_schedules.py.  What comes
         between is done right there, in the caller's thread: rows are appended, an owner acts, a late request arrives,
         or another lander does a whole round.
JUDGED   By another reading of the table: every row of the log is in it once, by the log's own partition and offset.
SEED     Decides over everything but the contents of files: python -m tests.simulation.lake_real --seed N
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import Unavailable
from headwater.lake.catalog import catalog_place
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.lander import Lander
from headwater.lake.ledger import Ledger
from headwater.lake.ledger_records import LedgerRecord
from headwater.lake.ledger_state import LedgerState
from headwater.lake.report import TopicLanding
from headwater.lake.runner import InProcess
from headwater.lake.source import EngineSource
from headwater.lake.standing import Decisions
from headwater.lake.tables import CommitRefused, CommitUncertain, Staged
from headwater.lake.work import Done, Work
from headwater.settings import LandingSettings, LogSettings
from headwater.storage.disk import DiskFiles
from tests.unit.topics.small_engines import engine_of

T = TypeVar("T")
TABLE = "lake.orders"
_LOG = LogSettings(reserve_bytes=0, segment_age_s_max=float("inf"))
_ACTS = (
    "roll_back",
    "roll_back",
    "set_forward",
    "rewrite",
    "expire",
    "rewrite_and_expire",
    "add_a_column",
    "delete_some",
)
_ROUNDS_MAX = 12


class Killed(BaseException):
    """The lander's process ends here."""


class Doubled(AssertionError):
    """The table does not hold what the log has."""


class RealSchedule:
    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = Random(seed)
        self._fault_share = self.chance.choice((0.1, 0.5))
        self._death_share = self.chance.choice((0.0, 0.03))
        self._acts = self.chance.sample(_ACTS, 3)
        if "delete_some" in self._acts:
            # After both, nobody could say how far the table had come: not even the person who decides at the end.
            self._acts = [name for name in self._acts if name not in {"roll_back", "set_forward"}]
        self._clock = ManualClock()
        settings = hw.Settings(log=_LOG, journal=_LOG, upkeep_interval_s=0)
        self.log = hw.open(folder, settings=settings, clock=self._clock, entropy=self.chance.randbytes)
        self.log.topic("orders", schema=pa.schema([pa.field("x", pa.int64())]), table=TABLE)
        self.place = catalog_place(None, directory=str(folder))
        self.ledger = Ledger(DiskFiles(folder), clock=self._clock, entropy=self.chance.randbytes)
        self._folder = folder
        self._late: list[Staged] = []
        self._depth = 0
        self._quiet = False
        self._appended = 0
        self._deleted: set[int] = set()
        self._decisions = Decisions()
        self.counts: Counter[str] = Counter()

    # The whole --------------------------------------------------------------------------------------------------

    def run(self) -> Counter[str]:
        logging.getLogger("headwater.lake").setLevel(logging.CRITICAL)
        try:
            self.append()
            for _ in range(3):
                self.round()
                self.append()
            self._quiet = True
            while self._late:
                self.deliver()
            self._settle()
            self._judge()
        finally:
            self.log.close()
            self.ledger.close()
        return self.counts

    def round(self) -> TopicLanding | None:
        self._depth += 1
        try:
            report = self._lander().round([self.log._engine.topic("orders")], decisions=self._decisions)
        except (Killed, Unavailable):
            self.counts["died"] += 1
            return None
        finally:
            self._depth -= 1
        self.counts[report["orders"].outcome] += 1
        return report["orders"]

    def _lander(self) -> Lander:
        return Lander(
            EngineSource(engine_of(self.log), str(self._folder)),
            lambda: Troubled(self),
            TroubledLedger(self),
            TroubledRunner(self),
            clock=self._clock,
            entropy=self.chance.randbytes,
            settings=LandingSettings(commit_threads=1),
        )

    def _settle(self) -> None:
        """Alone, with a person who decides."""
        self.append()
        for _ in range(_ROUNDS_MAX):
            told = self.round()
            assert told is not None
            if told.outcome == "nothing":
                return
            if told.outcome == "halted":
                self._decide(told)
            elif told.outcome != "landed":
                raise Doubled(f"{told.outcome}, and nothing is wrong: {told.message}")
        raise Doubled(f"after {_ROUNDS_MAX} rounds a lander still has something to do")

    def _decide(self, told: TopicLanding) -> None:
        match told.cause:
            case "gap":
                self._decisions = Decisions(after_rollback=frozenset({"orders"}))
            case "mark-unproven" | "verification":
                known = self.ledger.state().topic(self.log._engine.topic("orders").topic_id.hex())
                newest = max([row[2] for row in self._rows()], default=0)
                lsn = known.landed_lsn if told.cause == "verification" or self._deleted else newest
                self._decisions = Decisions(landed_lsn={"orders": lsn})
            case _:
                raise Doubled(f"halted by {told.cause}: {told.message}")

    def _judge(self) -> None:
        held = Counter(row[:2] for row in self._rows())
        expected = Counter((0, offset) for offset in range(self._appended))
        twice = sorted((held - expected).elements())
        missing = sorted(each for each in (expected - held).elements() if each[1] not in self._deleted)
        if twice or missing:
            raise Doubled(f"too many {twice[:5]}, too few {missing[:5]} of {self._appended} rows")

    def _rows(self) -> list[tuple[int, int, int]]:
        """Partition, offset and LSN of every row that a reader of the table gets."""
        with_columns = self._scan()
        names = ("_hw_partition", "_hw_offset", "_hw_lsn")
        return list(zip(*(with_columns[name].to_pylist() for name in names), strict=True))

    def _scan(self) -> pa.Table:
        tables = self.place.connect()
        try:
            return tables.catalog.load_table(TABLE).scan().to_arrow()
        finally:
            tables.close()

    # What comes between -----------------------------------------------------------------------------------------

    def between(self) -> None:
        """At a step: what others do first; the caller may die."""
        if self._quiet:
            return
        draw = self.chance.random()
        if draw < 0.04:
            self.append()
        elif draw < 0.12:
            self.act(self.chance.choice(self._acts))
        elif draw < 0.2 and self._late:
            self.deliver()
        elif draw < 0.24 and self._depth < 2:
            self.round()
        if self.chance.random() < self._death_share:
            raise Killed

    def append(self) -> None:
        count = self.chance.randint(1, 3)
        self.log["orders"].append(pa.table({"x": list(range(self._appended, self._appended + count))}))
        self._appended += count

    def deliver(self) -> None:
        tables = self.place.connect()
        try:
            tables.commit(self._late.pop(self.chance.randrange(len(self._late))))
            self.counts["late and applied"] += 1
        except (CommitRefused, CommitUncertain):
            self.counts["late and refused"] += 1
        finally:
            tables.close()

    def commit_fault(self) -> str | None:
        if self._quiet or self.chance.random() >= self._fault_share:
            return None
        return self.chance.choice(("late", "lost reply", "sent twice", "sent again later", "refused", "unavailable"))

    def keep(self, staged: Staged) -> None:
        self._late.append(staged)

    def act(self, name: str) -> None:
        """What the table's owner does, by pyiceberg."""
        tables = self.place.connect()
        try:
            if not tables.catalog.table_exists(TABLE):
                return
            table = tables.catalog.load_table(TABLE)
            if table.current_snapshot() is not None:
                getattr(self, f"_{name}")(table)
                self.counts[name] += 1
        finally:
            tables.close()

    def _roll_back(self, table: Table) -> None:
        """To one of the snapshots before."""
        line, known = [], {each.snapshot_id: each for each in table.snapshots()}
        snapshot = table.current_snapshot()
        while snapshot is not None and snapshot.parent_snapshot_id is not None:
            snapshot = known.get(snapshot.parent_snapshot_id)
            line.append(snapshot)
        self._move(table, [each for each in line[:3] if each is not None])

    def _set_forward(self, table: Table) -> None:
        """To any that is there."""
        self._move(table, table.snapshots())

    def _move(self, table: Table, among: Sequence[Snapshot]) -> None:
        # pyiceberg overwrites in two snapshots: nobody means the one in which the rows are gone.
        whole = [each for each in among if each.summary is None or each.summary.operation != Operation.DELETE]
        if whole:
            table.manage_snapshots().set_current_snapshot(self.chance.choice(whole).snapshot_id).commit()

    def _rewrite(self, table: Table) -> None:
        """Every row in another file, in one commit; pyiceberg has no compaction of its own."""
        rows = table.scan().to_arrow()
        if len(rows):
            table.overwrite(rows)

    def _expire(self, table: Table) -> None:
        head = table.current_snapshot()
        gone = [each.snapshot_id for each in table.snapshots() if head is not None and each != head]
        if gone:
            table.maintenance.expire_snapshots().by_ids(gone).commit()

    def _rewrite_and_expire(self, table: Table) -> None:
        self._rewrite(table)
        self._expire(table.refresh())

    def _add_a_column(self, table: Table) -> None:
        with table.update_schema() as update:
            update.add_column(f"owner_{self.chance.randrange(10**6)}", _long())

    def _delete_some(self, table: Table) -> None:
        rows = table.scan().to_arrow()
        if len(rows):
            offset = self.chance.choice(rows["_hw_offset"].to_pylist())
            table.delete(f"_hw_offset == {offset}")
            self._deleted.add(offset)


def _long() -> Any:
    from pyiceberg.types import LongType

    return LongType()


class Troubled:
    """A connection of pyiceberg's, with trouble."""

    def __init__(self, schedule: RealSchedule) -> None:
        self._schedule = schedule
        self._tables: IcebergTables = schedule.place.connect()

    def __getattr__(self, verb: str) -> Any:
        asked: Callable[..., Any] = getattr(self._tables, verb)

        def call(*given: Any, **options: Any) -> Any:
            self._schedule.between()
            answer = asked(*given, **options)
            self._schedule.between()
            return answer

        return call

    def commit(self, staged: Staged) -> None:
        schedule = self._schedule
        schedule.between()
        fault = schedule.commit_fault()
        if fault is not None:
            schedule.counts[fault] += 1
        match fault:
            case "late":
                schedule.keep(staged)
                raise CommitUncertain("the request timed out")
            case "unavailable":
                raise CommitUncertain("the catalog answered 503")
            case "refused":
                raise CommitRefused("the table was being committed to")
            case "lost reply":
                try:
                    self._tables.commit(staged)
                except CommitRefused as error:
                    raise CommitUncertain("the connection was reset") from error
                raise CommitUncertain("the connection was reset")
            case "sent twice":
                try:
                    self._tables.commit(staged)
                except CommitUncertain:
                    schedule.counts["uncertain"] += 1
                self._tables.commit(staged)
            case "sent again later":
                schedule.keep(staged)
                self._tables.commit(staged)
            case _:
                self._tables.commit(staged)
        schedule.between()

    def close(self) -> None:
        self._tables.close()


class TroubledLedger:
    def __init__(self, schedule: RealSchedule) -> None:
        self._schedule = schedule

    def record(self, records: Sequence[LedgerRecord]) -> None:
        self._schedule.between()
        self._schedule.ledger.record(records)
        self._schedule.between()

    def state(self) -> LedgerState:
        return self._schedule.ledger.state()


class TroubledRunner:
    def __init__(self, schedule: RealSchedule) -> None:
        self._schedule = schedule
        self._runner = InProcess()

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        for done in self._runner.run(works):
            self._schedule.between()
            yield done


def run_real(seed: int) -> Counter[str]:
    """Run one schedule in a folder of its own; what it finds says how to see it again."""
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        try:
            return RealSchedule(seed, Path(folder) / "data").run()
        except AssertionError as error:
            error.add_note(f"replay with: python -m tests.simulation.lake_real --seed {seed}")
            raise


def main() -> int:
    """Run one schedule again, or many, and tell what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.lake_real", description=main.__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    given = parser.parse_args()
    total: Counter[str] = Counter()
    for seed in range(given.seed, given.seed + given.seeds):
        total += run_real(seed)
    print(dict(total))
    return 0


if __name__ == "__main__":
    sys.exit(main())
