"""Views of a keyed topic while it lands, merges, forgets, is rewritten and expires: always the latest row of each key.

WORLD    A log, a change table and a state table as plain values.  Landings and merges are whole here: what may happen
         inside them is in lake_schedules.py and in tests of merging.py.
READER   The product's own Resolver; what others do comes between any two of its looks, and between the parts it reads.
HOLDS    A view, and a cut that is read again, is the fold of all changes up to its LSN.  CutExpired where the changes
         before a cut are past their retention and no state that is left is old enough; never for a view of now.
SEED     Decides over everything: python -m tests.simulation.view_keyed --seed N
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from random import Random
from typing import TypeVar

import pyarrow as pa

from headwater.clock import ManualClock
from headwater.errors import CutExpired, LandingHalted
from headwater.lake.cut import Cut
from headwater.lake.ledger_records import LedgerRecord
from headwater.lake.ledger_state import LedgerState, TopicLedger
from headwater.lake.mark import FORGOTTEN, Mark, property_name
from headwater.lake.resolving import Resolved, Resolver
from headwater.metadata.operations import TopicRecord
from headwater.topics.schema import pack_schema
from tests.simulation.lake_log import LOG_ID
from tests.simulation.lake_schedules import Violation
from tests.simulation.lake_world import Catalog, Missing, Row, SimulatedTables, Snapshot, Version, word
from tests.simulation.view_schedules import PinnedLog, SimulatedViewSource, part_rows

T = TypeVar("T")
STATE, CHANGES = "crm.customers", "crm.customers_changes"
NUMBER = 1
STEPS = 60
_TOPIC_ID = NUMBER.to_bytes(16, "big")


def key_of(row: Row) -> int:
    return word(row) // 8 % 5


def is_delete(row: Row) -> bool:
    return word(row) % 4 == 0


def folded(state: Iterable[Row], changes: Iterable[Row]) -> dict[int, Row]:
    """The latest row of each key: what a keyed topic is."""
    latest = {key_of(row): row for row in sorted(changes, key=lambda row: (row[1], row[3]))}
    rows = {key_of(row): row for row in state if key_of(row) not in latest}
    return {**rows, **{key: row for key, row in latest.items() if not is_delete(row)}}


class KeyedSchedule:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed * 1_000_003 + 29)
        self.log = PinnedLog()
        self.catalog = Catalog(self.chance, self._violated)
        self.known = TopicLedger()
        self.counts: Counter[str] = Counter()
        self.catalog.on_stale = lambda version: self.counts.update(["stale"])
        self._commits = 0
        self._clock = ManualClock()
        self._cuts: list[tuple[Cut, dict[int, Row]]] = []
        self._act_share = self.chance.choice((0.1, 0.4, 0.8))
        self._acts: list[Callable[[], None]] = [self.append, self.append, self.land, self.land, self.merge]
        self._acts += self.chance.sample(
            [
                self.verify,
                self.forget_the_log,
                self.forget_changes,
                self.rewrite_changes,
                self.rewrite_state,
                self.expire,
                self.roll_back_state,
            ],
            5,
        )
        self.topic = TopicRecord(
            number=NUMBER,
            name="customers",
            topic_id=_TOPIC_ID,
            created_us=0,
            schemas=(pack_schema(pa.schema([pa.field("id", pa.int64(), nullable=False)])),),
            partitions=2,
            key=("id",),
            table=STATE,
        )
        self.reader = Resolver(SimulatedViewSource(self.log, self), self._lent, self, self._clock)

    def _violated(self, what: str) -> None:
        raise Violation(what)

    def run(self) -> Counter[str]:
        for _ in range(STEPS):
            self.chance.choice(self._acts)()
            if self.chance.random() < 0.4:
                self._look()
                self.log.pins.clear()
        return self.counts

    # The seam of the reader, and its ledger -----------------------------------------------------------------------

    def call(self, what: str, effect: Callable[[], T]) -> T:
        while self.chance.random() < self._act_share:
            self.chance.choice(self._acts)()
        return effect()

    def fault(self, what: str) -> str | None:
        return "stale" if what == "load" and self.chance.random() < 0.03 else None

    @contextmanager
    def _lent(self) -> Iterator[SimulatedTables]:
        yield SimulatedTables(self.catalog, self)

    def record(self, records: Sequence[LedgerRecord]) -> None:
        raise Violation("a reader writes to the ledger")

    def state(self) -> LedgerState:
        return self.call("ledger", lambda: LedgerState(topics={_TOPIC_ID.hex(): self.known.copy()}))

    # What others do -------------------------------------------------------------------------------------------------

    def append(self) -> None:
        frames = [(self.chance.choice((NUMBER, NUMBER, 0)), self.chance.randint(1, 3)) for _ in range(2)]
        self.log.append([(number, 0, rows if number else 0) for number, rows in frames])
        self.log.sync()
        if self.chance.random() < 0.4:
            self.log.roll()

    def land(self) -> None:
        landed, durable = self._lsn(CHANGES), self.log.durable_lsn
        if landed < durable:
            self._commit(CHANGES, "append", self.log.rows(NUMBER, landed, durable), (landed, durable), onto_head=True)
            self.counts["landed"] += 1

    def verify(self) -> None:
        if self._lsn(CHANGES) > self.known.verified_lsn:
            self.known.verified.append((self._lsn(CHANGES), 0))

    def forget_the_log(self) -> None:
        self.log.roll()
        self.log.forget(NUMBER, self.known.verified_lsn, self.chance.choice((1, 100)))

    def merge(self) -> None:
        changes = self.catalog.tables.get(CHANGES)
        merged, landed = self._lsn(STATE), self._lsn(CHANGES)
        if changes is None or merged >= landed or merged < self._forgotten():
            return
        rows = [row for row in self._rows(CHANGES) if merged < row[1] <= landed]
        self._commit(STATE, "overwrite", folded(self._rows(STATE), rows).values(), (merged, landed))
        self.counts["merged"] += 1

    def forget_changes(self) -> None:
        """Of what is merged, whole files."""
        version = self.catalog.tables.get(CHANGES)
        if version is None or version.head is None:
            return
        merged, written = self._lsn(STATE), self.catalog.store.written
        gone = [path for path in version.head.files if max(row[1] for row in written[path]) <= merged]
        gone = gone[: self.chance.randint(0, len(gone))]
        if gone:
            forgotten = max([self._forgotten(), *(row[1] for path in gone for row in written[path])])
            named = replace(version, properties={**version.properties, FORGOTTEN: str(forgotten)})
            self._snapshot(named, "delete", tuple(path for path in version.head.files if path not in gone))
            self.counts["changes forgotten"] += 1

    def rewrite_changes(self) -> None:
        self._rewrite(CHANGES)

    def rewrite_state(self) -> None:
        self._rewrite(STATE)

    def _rewrite(self, table: str) -> None:
        version = self.catalog.tables.get(table)
        if version is not None and version.head is not None and version.head.files:
            self._snapshot(version, "replace", self._written(table, self._rows(table)))
            self.counts["rewritten"] += 1

    def expire(self) -> None:
        version = self.catalog.tables.get(self.chance.choice((STATE, CHANGES)))
        if version is None or version.head is None:
            return
        # As upkeep does it: the head carries a mark, or nothing expires.
        kept = {version.head.snapshot_id, *self.chance.sample(sorted(version.snapshots), len(version.snapshots) // 2)}
        if "headwater.lsn-to" not in version.head.summary:
            return
        left = {each: snapshot for each, snapshot in version.snapshots.items() if each in kept}
        needed = {path for snapshot in left.values() for path in snapshot.files}
        self.catalog.change(version.name, replace(version, snapshots=left))
        for path in {path for each in version.snapshots.values() for path in each.files} - needed:
            self.catalog.store.remove(path)
        self.counts["expired snapshots"] += len(version.snapshots) - len(left)

    def roll_back_state(self) -> None:
        """To a merge before, by its owner."""
        version = self.catalog.tables.get(STATE)
        line = [each for each in version.history() if "headwater.lsn-to" in each.summary] if version is not None else []
        if version is not None and len(line) > 1 and self.chance.random() < 0.3:
            branches = {**version.branches, "main": self.chance.choice(line[1:]).snapshot_id}
            self.catalog.change(STATE, replace(version, branches=branches))
            self.counts["state rolled back"] += 1

    def _lsn(self, table: str) -> int:
        """How far main has come, by the marks of its history: nothing here expires the last of them."""
        version = self.catalog.tables.get(table)
        return _merged_up_to(version.history()) if version is not None else 0

    def _forgotten(self) -> int:
        return _forgotten(self.catalog.tables.get(CHANGES))

    def _rows(self, table: str) -> list[Row]:
        version = self.catalog.tables.get(table)
        head = version.head if version is not None else None
        return [row for path in (head.files if head is not None else ()) for row in self.catalog.store.rows(path)]

    def _written(self, table: str, rows: Iterable[Row]) -> tuple[str, ...]:
        rows = list(rows)
        if not rows:
            return ()
        path = f"{table}/{self.catalog.number()}.parquet"
        self.catalog.store.write(path, rows)
        return (path,)

    def _commit(
        self, table: str, operation: str, rows: Iterable[Row], between: tuple[int, int], *, onto_head: bool = False
    ) -> None:
        version = self.catalog.tables.get(table) or Version(table, f"uuid of {table}")
        rows = list(rows)
        newest = max((row[1] for row in rows), default=0)
        self._commits += 1
        mark = Mark(LOG_ID, _TOPIC_ID.hex(), f"c{self._commits}", 0, *between, len(rows), "0" * 16, 1, newest)
        below = version.head.files if onto_head and version.head is not None else ()
        self._snapshot(version, operation, below + self._written(table, rows), mark)

    def _snapshot(
        self,
        version: Version,
        operation: str,
        files: tuple[str, ...],
        mark: Mark | None = None,
    ) -> None:
        head = version.head
        number = 1_000_000 + self.catalog.number()
        snapshot = Snapshot(
            snapshot_id=number,
            parent_id=head.snapshot_id if head is not None else None,
            operation=operation,
            summary=mark.summary() if mark is not None else {},
            sequence=version.last_sequence + 1,
            files=files,
        )
        if mark is not None:
            version = replace(version, properties={**version.properties, property_name(): mark.property_value(number)})
        self.catalog.change(version.name, version.with_snapshot(snapshot))

    # Looks ----------------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._cuts and self.chance.random() < 0.5:
            cut, rows = self.chance.choice(self._cuts)
            self._seen(lambda: self.reader.at([self.topic], cut), cut, rows)
            return
        durable = self.log.durable_lsn
        found = self._seen(lambda: self.reader.now([self.topic]), None, None)
        if found is not None:
            if found[0].lsn < durable:
                raise Violation(f"a view at {found[0].lsn}, though {durable} was durable")
            self._cuts.append(found)
            del self._cuts[:-8]

    def _seen(
        self, resolve: Callable[[], Resolved], cut: Cut | None, first: dict[int, Row] | None
    ) -> tuple[Cut, dict[int, Row]] | None:
        stale = self.counts["stale"]
        try:
            resolved = resolve()
        except CutExpired as expired:
            self.counts["expired"] += 1
            if cut is None and not self.counts["state rolled back"] and self.counts["stale"] == stale:
                raise Violation(f"a view of now has expired: {expired}") from expired
            if cut is not None and self.counts["stale"] == stale and not self._deserved(cut):
                raise Violation(f"{cut} has expired, and can be had: {expired}") from expired
            return None
        except LandingHalted as halt:
            self.counts["halted"] += 1
            if not self.counts["state rolled back"] and self.counts["stale"] == stale:
                raise Violation(f"halted by {halt.cause}: {halt.message}") from halt
            return None
        try:
            rows = self._read(resolved)
        except Missing:
            self.counts["files gone"] += 1
            return None
        finally:
            resolved.hold.release()
        at_lsn = resolved.cut.lsn
        expected = folded((), (row for row in self.log.committed.get(NUMBER, ()) if row[1] <= at_lsn))
        if rows != expected or (first is not None and rows != first):
            plan = resolved.plans[NUMBER]
            parts = [(part.state.name, part.lsn_from, part.lsn_to) for part in plan.parts]
            told = f"the topic at {at_lsn} is {sorted(rows.values())}, not {sorted(expected.values())}"
            raise Violation(f"{told}: {parts} and {plan.tail} of the log")
        self.counts["seen" if cut is None else "again"] += 1
        return resolved.cut, rows

    def _read(self, resolved: Resolved) -> dict[int, Row]:
        plan = resolved.plans[NUMBER]
        read = self.catalog.store.rows
        state = self.call("state", lambda: part_rows(plan.base, read) if plan.base is not None else [])
        changes = [row for part in plan.tables for row in self.call("changes", lambda part=part: part_rows(part, read))]  # type: ignore[misc]
        changes += self.call("tail", lambda: self.log.rows(NUMBER, *plan.tail))
        return folded(state, changes)

    def _deserved(self, cut: Cut) -> bool:
        """Whether no state that is left now is old enough for this cut, and new enough for the changes."""
        own = cut.topic(_TOPIC_ID.hex())
        version = self.catalog.tables.get(STATE)
        line = version.history() if version is not None else []
        there = {_merged_up_to(line[place:]) for place in range(len(line))}
        if version is not None and own.state_snapshot in version.snapshots:
            there.add(own.merged_lsn)
        return not any(self._forgotten() <= merged <= cut.lsn for merged in {0, *there})


def _merged_up_to(line: Sequence[Snapshot]) -> int:
    return next((int(each.summary["headwater.lsn-to"]) for each in line if "headwater.lsn-to" in each.summary), 0)


def _forgotten(version: Version | None) -> int:
    return int(version.properties.get(FORGOTTEN, "0")) if version is not None else 0


def run_keyed_seed(seed: int) -> Counter[str]:
    """Run one schedule; what it finds says how to see it again."""
    try:
        return KeyedSchedule(seed).run()
    except Violation as violation:
        violation.add_note(f"replay with: python -m tests.simulation.view_keyed --seed {seed}")
        raise


def main() -> int:
    """Run one schedule again, or many, and tell what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.view_keyed", description=main.__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    given = parser.parse_args()
    counts: Counter[str] = Counter()
    violations = 0
    began = time.monotonic()
    for seed in range(given.seed, given.seed + given.seeds):
        try:
            counts += run_keyed_seed(seed)
        except Violation as violation:
            violations += 1
            print(f"seed {seed}: {violation}")
    print(f"{dict(counts)}\n{given.seeds} schedules in {time.monotonic() - began:.1f} s, {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
