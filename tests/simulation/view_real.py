"""Views and cuts of a real log and real tables while threads write, land, merge, rewrite, expire and clean up.

WORLD    A log in small segments, pyiceberg's tables in SQLite on this disk, a ledger, upkeep without patience: two
         snapshots are kept, for nobody but who has pinned them, and the log lets go of what was read back at once.
         What stands for a MERGE in Spark is one snapshot of pyiceberg's on the merge's branch: the fold of what it
         should merge.
WRITTEN  Every write of the model is kept with its LSN.  `orders` and `items` are written together, by transactions of
         one number; `customers` is keyed; `plain` has no table.
JUDGED   When all is over, by the model alone: every view that was had is the replay of all writes up to its cut, and
         every cut that was read again gave the same digest.
SEED     Decides what is done, not when: python -m tests.simulation.view_real --seed N
"""

from __future__ import annotations

import argparse
import hashlib
import logging
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AssertRefSnapshotId

import headwater as hw
from headwater.errors import CutExpired, HeadwaterError, Unavailable
from headwater.lake.landing import _identity
from headwater.lake.ledger_records import CheckedCatalog
from headwater.lake.merging import MergePlan, Merging
from headwater.lake.state_table import MergeMode
from headwater.lake.tables import CommitRefused, CommitUncertain
from headwater.lake.upkeep import UpkeepSettings
from headwater.settings import LandingSettings, LogSettings, Settings

T = TypeVar("T")
KIB = 1024
SETTINGS = Settings(
    log=LogSettings(
        segment_size_bytes_max=8 * KIB, write_body_bytes_max=8 * KIB, reserve_bytes=0, deletion_grace_s=0.0
    ),
    journal=LogSettings(reserve_bytes=0),
    landing=LandingSettings(commit_threads=1),
    upkeep_interval_s=0,
)
UPKEEP = UpkeepSettings(snapshots_kept=2, readers_s=0.0)
LINE = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), pa.field("tx", pa.int64()), pa.field("note", pa.string())]
)
CUSTOMER = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
MODE: MergeMode = "copy-on-write"
NOTE = "n" * 200
TOPICS = ("orders", "items", "customers", "plain")


class Wrong(AssertionError):
    """A view is not what was written up to its cut."""


@dataclass(frozen=True)
class Written:
    """One write, as it was acknowledged."""

    lsn: int
    topic: str
    rows: list[dict[str, Any]]
    """Of a keyed topic: with None for a name, a delete."""


@dataclass(frozen=True)
class Seen:
    """One topic at one cut, as a reader had it."""

    topic: str
    lsn: int
    digest: str
    rows: int
    how: str
    numbers: frozenset[int | None]
    """The transactions that its rows are of."""


@dataclass
class Model:
    writes: list[Written] = field(default_factory=list)

    def rows(self, topic: str, lsn: int) -> list[dict[str, Any]]:
        """The replay of everything up to an LSN."""
        written = [write for write in self.writes if write.topic == topic and write.lsn <= lsn]
        rows = [row for write in sorted(written, key=lambda write: write.lsn) for row in write.rows]
        if topic != "customers":
            return rows
        latest = {row["id"]: row for row in rows}
        return [row for row in latest.values() if row["name"] is not None]


def digest_of(rows: Iterable[dict[str, Any]]) -> str:
    return hashlib.sha256("\n".join(sorted(repr(sorted(row.items())) for row in rows)).encode()).hexdigest()


class RealViews:
    """One seed, in a folder of its own."""

    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        pause_s: float = 0.05,
        rest_s: float = 0.002,
        changes_retention: float | None = None,
    ) -> None:
        self.chance = Random(seed)
        self.log = hw.open(folder, settings=SETTINGS)
        self.lake = self.log._beside()
        # That a catalog keeps its word is shown elsewhere, and takes seconds.
        self.lake.ledger.record(
            [CheckedCatalog(catalog=_identity(self.lake.place), passed=True, properties={}, at_us=1)]
        )
        for name in ("orders", "items"):
            self.log.topic(name, schema=LINE, table=f"lake.{name}", partitions=self.chance.randint(1, 2))
        self.log.topic(
            "customers", schema=CUSTOMER, key="id", table="lake.customers", changes_retention=changes_retention
        )
        self.log.topic("plain", schema=LINE)
        self.model = Model()
        self.seen: list[Seen] = []
        self.cuts: list[tuple[hw.Cut, dict[str, str]]] = []
        self.counts: Counter[str] = Counter()
        self._pause_s = pause_s
        self._rest_s = rest_s
        self._rewritten_at_last: tuple[str | None, ...] = (None,)
        self._has_plain = True
        self._next = 0
        self._over = threading.Event()
        self._errors: list[BaseException] = []

    def close(self) -> None:
        self.log.close()

    # The threads ------------------------------------------------------------------------------------------------

    def run(self, looks: int, look: Callable[[Random], object] | None = None) -> Counter[str]:
        """All of it; Wrong where a view was."""
        logging.getLogger("headwater").setLevel(logging.CRITICAL)
        for _ in range(3):
            self.write(Random(1))
        threads = [
            threading.Thread(target=self._guarded, args=(act, Random(self.chance.random())), daemon=True)
            for act in (self._write, self._land, self._keep)
        ]
        for thread in threads:
            thread.start()
        try:
            while looks > 0 and not self._errors:
                (look or self.look)(self.chance)
                looks -= 1
        finally:
            self._over.set()
            for thread in threads:
                thread.join()
        if self._errors:
            raise self._errors[0]
        self.settle()
        for cut, digests in self.cuts:
            self.read_again(cut, digests)
        self.judge()
        return self.counts

    def _guarded(self, act: Callable[[Random], None], chance: Random) -> None:
        try:
            act(chance)
        except BaseException as error:  # noqa: BLE001  Whatever it was, it must not die in a thread unheard
            self._errors.append(error)

    def _write(self, chance: Random) -> None:
        while not self._over.is_set():
            self.write(chance)
            time.sleep(chance.choice((0.0, 0.01, self._pause_s)))

    def _land(self, chance: Random) -> None:
        while not self._over.is_set():
            self.land(verify=chance.random() < 0.9)
            time.sleep(self._rest_s)

    def _keep(self, chance: Random) -> None:
        acts = [self.merge, self.merge, self.rewrite, self.maintain, self.clean_up]
        while not self._over.is_set():
            chance.choice(acts)()
            time.sleep(self._rest_s)

    # What they do -----------------------------------------------------------------------------------------------

    def write(self, chance: Random) -> None:
        draw = chance.random()
        if draw < 0.5:
            self._next += 1
            orders = self._lines(self._next, 1)
            items = self._lines(self._next, chance.randint(1, 3))
            with self.log.transaction() as transaction:
                transaction.append("orders", orders)
                transaction.append("items", items)
                customers = self._customers(chance) if chance.random() < 0.3 else []
                if customers:
                    transaction.upsert("customers", customers)
            committed = transaction.result
            assert committed is not None
            parts = (("orders", orders), ("items", items), ("customers", customers))
            self.model.writes += [Written(committed.lsn, topic, rows) for topic, rows in parts]
        elif draw < 0.75:
            rows = self._customers(chance)
            self.model.writes.append(Written(self.log["customers"].upsert(rows).lsn, "customers", rows))
        elif draw < 0.85 or not self._has_plain:
            gone = [{"id": chance.randrange(8)}]
            lsn = self.log["customers"].delete(gone).lsn
            self.model.writes.append(Written(lsn, "customers", [{**row, "name": None} for row in gone]))
        else:
            self._next += 1
            rows = self._lines(self._next, 1)
            self.model.writes.append(Written(self.log["plain"].append(rows).lsn, "plain", rows))

    def _lines(self, number: int, count: int) -> list[dict[str, Any]]:
        return [{"id": number * 10 + each, "tx": number, "note": NOTE} for each in range(count)]

    @staticmethod
    def _customers(chance: Random) -> list[dict[str, Any]]:
        ids = chance.sample(range(8), chance.randint(1, 3))
        return [{"id": number, "name": f"name {chance.randrange(10**6)}"} for number in ids]

    def land(self, *, verify: bool = True) -> None:
        report = self.log.land(verify="read-back" if verify else "metadata")
        for told in report:
            self.counts[told.outcome] += 1
            if told.outcome == "halted":
                raise Wrong(f"{told.topic} is halted by {told.cause}: {told.message}")

    def merge(self) -> None:
        topic = self.log._engine.topic("customers")
        place, lake = self.lake.place, self.lake
        merging = Merging(place.connect, lake.ledger, clock=lake.clock, entropy=lake.entropy)
        try:
            plan = merging.begin(topic, MODE)
            if plan is None:
                return
            merging.branch(plan, MODE)
            mark = self._run_merge(plan)
            if mark is not None and merging.finish(plan, mark) is not None:
                self.counts["merged"] += 1
            merging.drop(plan)
        except (CommitRefused, CommitUncertain, CommitFailedException, Unavailable):
            self.counts["merge lost"] += 1

    def _run_merge(self, plan: MergePlan) -> Any:
        """The fold of the state and the changes, written anew."""
        with closing(self.lake.place.connect()) as tables:
            changes = tables.catalog.load_table(plan.changes).scan(
                f"_hw_lsn > {plan.lsn_from} and _hw_lsn <= {plan.lsn_to}", snapshot_id=plan.changes_snapshot
            )
            changed = changes.to_arrow().sort_by([("_hw_lsn", "ascending"), ("_hw_offset", "ascending")]).to_pylist()
            if not changed:
                return None
            table = tables.catalog.load_table(plan.table)
            latest = {row["id"]: row for row in changed}
            state = [row for row in table.scan(snapshot_id=plan.base).to_arrow().to_pylist() if row["id"] not in latest]
            state += [row for row in latest.values() if row["_hw_op"] == "U"]
            mark = plan.mark(len(changed), max(row["_hw_lsn"] for row in changed))
            rows = [{name: row[name] for name in plan.columns} for row in state]
            overwritten(table, rows, plan.base, branch=plan.branch, properties=mark.summary())
        return mark

    def rewrite(self, name: str | None = None) -> None:
        """A compaction by somebody else: every row in one other file, in one snapshot without a mark."""
        name = name or self.chance.choice(("orders", "items", "customers", "customers_changes"))
        with closing(self.lake.place.connect()) as tables:
            if not tables.catalog.table_exists(f"lake.{name}"):
                return
            table = tables.catalog.load_table(f"lake.{name}")
            head = table.current_snapshot()
            if head is None:
                return
            try:
                overwritten(table, table.scan().to_arrow().to_pylist(), head.snapshot_id)
            except (CommitFailedException, OSError):
                # Another commit came first, or upkeep did with what it was reading.
                self.counts["rewrite lost"] += 1
                return
        self.counts["rewritten"] += 1

    def maintain(self) -> None:
        report = self.log.maintain(settings=UPKEEP)
        self.counts["expired snapshots"] += sum(told.expired_snapshots for told in report)
        self.counts["changes forgotten"] += sum(told.forgotten_files for told in report)

    def clean_up(self) -> None:
        self.log.checkpoint()
        report = self.log.cleanup()
        self.counts["segments gone"] += len(report.deleted) + len(report.drained)

    def settle(self) -> None:
        """Everything lands, is merged, rewritten and let go of."""
        self.land()
        self.merge()
        for name in self._rewritten_at_last:
            self.rewrite(name)
        for _ in range(2):
            # The log lets go of what two checkpoints cover.
            self.write(self.chance)
            self.clean_up()
        self.maintain()

    # Looks ------------------------------------------------------------------------------------------------------

    def look(self, chance: Random) -> None:
        draw = chance.random()
        if draw < 0.45:
            self.take_cut()
        elif draw < 0.7 and self.cuts:
            self.read_again(*chance.choice(self.cuts))
        elif draw < 0.8:
            lsn = chance.choice([write.lsn for write in list(self.model.writes)])
            self._see(chance.choice(("orders", "items")), hw.Lsn(lsn), "at an LSN")
        else:
            self._see(chance.choice(TOPICS), None, "now")

    def take_cut(self, *topics: str) -> None:
        """A cut, and the topics at it: no transaction is in it by half."""
        names = topics or ("orders", "items", "customers")
        cut = self._patiently(lambda: self.log.cut(*names))
        found = {topic: self._see(topic, cut, "at a new cut") for topic in names}
        seen = {topic: each for topic, each in found.items() if each is not None}
        if seen["orders"].numbers != seen["items"].numbers:
            half = seen["orders"].numbers ^ seen["items"].numbers
            raise Wrong(f"{cut!r} has half of the transactions {list(half)[:5]}")
        self.cuts.append((cut, {topic: each.digest for topic, each in seen.items()}))

    def read_again(self, cut: hw.Cut, digests: dict[str, str]) -> None:
        for topic, digest in digests.items():
            seen = self._see(topic, str(cut), "at a cut again")
            if seen is not None and seen.digest != digest:
                raise Wrong(f"{topic} at {cut!r} is another when it is read again")

    def _see(self, topic: str, as_of: Any, how: str) -> Seen | None:
        """A view, by digest; None where the cut has expired."""

        def look() -> Seen:
            with self.log[topic].scan(as_of=as_of) as scan:
                rows = scan.to_pylist()
                if self.chance.random() < 0.3 and scan.count() != len(rows):
                    raise Wrong(f"{topic} at {scan.cut.lsn} counts {scan.count()} and has {len(rows)}")
                return Seen(
                    topic, scan.cut.lsn, digest_of(rows), len(rows), how, frozenset(row.get("tx") for row in rows)
                )

        try:
            seen = self._patiently(look)
        except CutExpired:
            if topic != "customers" or not self.counts["changes forgotten"] or how == "now":
                raise
            self.counts["cuts expired"] += 1
            return None
        self.seen.append(seen)
        self.counts[how] += 1
        return seen

    def _patiently(self, look: Callable[[], T]) -> T:
        """Again where upkeep was faster than the pin, which the product says by name."""
        for _ in range(20):
            try:
                return look()
            except Unavailable:
                self.counts["looked again"] += 1
        return look()

    # At the end -------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        for seen in self.seen:
            expected = self.model.rows(seen.topic, seen.lsn)
            if digest_of(expected) != seen.digest:
                raise Wrong(
                    f"{seen.topic} {seen.how}, lsn {seen.lsn}: {seen.rows} rows, and {len(expected)} were written"
                )


def overwritten(
    table: Table,
    rows: list[dict[str, Any]],
    base: int,
    *,
    branch: str = "main",
    properties: dict[str, str] | None = None,
) -> None:
    """Every row of a snapshot is replaced by these, in one snapshot on it; CommitFailedException if it is the head no
    more."""
    files = [task.file for task in table.scan(snapshot_id=base).plan_files()]
    made = []
    if rows:
        data = pa.Table.from_pylist(rows, schema=table.schema().as_arrow())
        made = list(_dataframe_to_data_files(table.metadata, data, table.io))
    transaction = Transaction(table)
    with transaction.update_snapshot(snapshot_properties=properties or {}, branch=branch).overwrite() as change:
        for file in files:
            change.delete_data_file(file)
        for file in made:
            change.append_data_file(file)
    requirement = AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": base})
    table.catalog.commit_table(table, (requirement,), transaction._updates)


def run_real_views(seed: int, *, looks: int = 8) -> Counter[str]:
    """Run one in a folder of its own; what it finds says how to look for it again."""
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        world = RealViews(seed, Path(folder) / "data", changes_retention=0.001 if seed % 2 else None)
        try:
            return world.run(looks)
        except (AssertionError, HeadwaterError) as error:
            error.add_note(f"look for it with: python -m tests.simulation.view_real --seed {seed} --seeds 20")
            raise
        finally:
            world.close()


def run_cuts(seed: int, cuts: int) -> Counter[str]:
    """So many cuts of two topics that transactions write, under load; each is read again when all is over."""
    with tempfile.TemporaryDirectory(prefix="headwater-") as folder:
        world = RealViews(seed, Path(folder) / "data", pause_s=0.2, rest_s=0.2)
        world._rewritten_at_last = ("orders", "items")
        # Everything lands, so that the log can let go of it.
        world._has_plain = False
        try:
            return world.run(cuts, lambda chance: world.take_cut("orders", "items"))
        finally:
            world.close()


def main() -> int:
    """Run one again, or many, and tell what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.view_real", description=main.__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    given = parser.parse_args()
    total: Counter[str] = Counter()
    began = time.monotonic()
    for seed in range(given.seed, given.seed + given.seeds):
        total += run_real_views(seed)
    print(f"{dict(total)} in {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
