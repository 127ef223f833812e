"""Schedules of landing with a reader among the landers: whatever comes between its looks, it sees the log's rows.

READER   Takes views and cuts of the topics and reads cuts again, by the product's own Resolver.  Each look of it (pin,
         ledger, table, durable LSN, each part that it reads) is a step as a lander's: landings, rollbacks, compactions,
         expiry, a log that forgets, and deaths come between any two of them, its own death too.
V15      A view holds every committed row up to its cut once, but for those that the table's owner has deleted, and no
         other; its cut is the end of a write, and at or above what was durable when it was asked for.
V16      A cut that is read again gives the same rows, whatever was landed, rewritten, expired and forgotten since.
         Where it cannot, CutExpired or a halt, and that must be deserved.
SEED     Decides over everything: python -m tests.simulation.view_schedules --seed N --trace
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from headwater.errors import CutExpired, LandingHalted, Unavailable
from headwater.lake.cut import Cut
from headwater.lake.resolving import Resolved, Resolver
from headwater.lake.view_plan import TablePart, ViewPlan
from headwater.metadata.operations import TopicRecord
from tests.simulation.lake_checks import _others_marks, proven, silent
from tests.simulation.lake_log import LOG_ID, SimulatedLedger, SimulatedLog, SimulatedSource
from tests.simulation.lake_schedules import Actor, Killed, Schedule, Stopped, Violation
from tests.simulation.lake_world import Missing, Row, Seam, SimulatedTables, Version

LOOKS_A_ROUND = 6
_PLAIN = 1000
"""The number of a topic that has no table."""


class PinnedLog(SimulatedLog):
    """A log that lets go of nothing at or above what a reader holds."""

    def __init__(self) -> None:
        super().__init__()
        self.pins: dict[object, int] = {}

    def forgettable(self, number: int, lsn: int) -> int:
        return super().forgettable(number, self._unpinned(lsn))

    def forget(self, number: int, lsn: int, segments_max: int) -> None:
        super().forget(number, self._unpinned(lsn), segments_max)

    def _unpinned(self, lsn: int) -> int:
        return min([lsn, *(pin - 1 for pin in self.pins.values())])


class SimulatedPin:
    def __init__(self, log: PinnedLog, lsn: int) -> None:
        self._log = log
        log.pins[self] = lsn

    def release(self) -> None:
        self._log.pins.pop(self, None)


class SimulatedViewSource(SimulatedSource):
    def __init__(self, log: PinnedLog, seam: Seam, *, can_tell: bool = True) -> None:
        super().__init__(log, seam, can_tell=can_tell)
        self._pinned = log

    def hold(self, lsn: int | None, snapshots: Sequence[int] = ()) -> SimulatedPin:
        return self._seam.call("pin", lambda: SimulatedPin(self._pinned, 0 if lsn is None else lsn))


class WatchedTables(SimulatedTables):
    """A connection of the reader's: what it was shown is remembered, for the judge."""

    shown: dict[str, Version]

    def load(self, name: str) -> Any:
        state = super().load(name)
        self.shown.pop(name, None)
        if state is not None:
            assert isinstance(state.native, Version)
            self.shown[name] = state.native
        return state


def part_rows(part: TablePart, read: Callable[[str], Sequence[Row]]) -> list[Row]:
    """The rows of a part, as table_rows.py reads them; an owner's row has LSN 0 here."""
    version = part.state.native
    assert isinstance(version, Version)
    snapshot = version.snapshots[part.snapshot_id]
    rows = [row for path in snapshot.files for row in read(path) if row not in snapshot.deleted]
    if part.whole:
        return rows
    return [row for row in rows if part.lsn_from < row[1] <= part.lsn_to or (part.unmarked and row[1] == 0)]


@dataclass(frozen=True)
class KeptCut:
    """A cut, and what it showed when it was taken."""

    cut: Cut
    topics: tuple[TopicRecord, ...]
    rows: Mapping[int, Counter[Row]]


class ViewSchedule(Schedule):
    def __init__(
        self, seed: int, *, world: str | None = None, trace: bool = False, mood: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(seed, world=world, trace=trace, mood=mood)
        self.log: PinnedLog = PinnedLog()
        self.judge.log = self.log
        self._reader = Actor(self, "reader")
        self._actors.append(self._reader)
        self._cuts: list[KeptCut] = []
        self._loaded: dict[str, Version] = {}
        self._plain = TopicRecord(
            number=_PLAIN,
            name="plain",
            topic_id=_PLAIN.to_bytes(16, "big"),
            created_us=0,
            schemas=next(iter(self.topics.values())).schemas,
            partitions=2,
        )
        self.looks: Counter[str] = Counter()

    # Between looks ---------------------------------------------------------------------------------------------

    def _append_pending(self) -> None:
        super()._append_pending()
        if self.chance.random() < 0.3:
            self.log.append([(_PLAIN, 0, self.chance.randint(1, 2))])

    def _act_of_an_owner(self, name: str) -> None:
        in_flight = any(known.in_flight for known in self.ledger.state().topics.values())
        if name == "truncate" and in_flight:
            # What landed without the ledger's knowledge, is all deleted, and expires with its history, lands again:
            # a table that says nothing is one that nothing has landed in.  That is no matter of views.
            return
        super()._act_of_an_owner(name)

    def time_passes(self) -> None:
        super().time_passes()
        if self.chance.random() < 0.2:
            # The retention of the topic without a table.
            self.log.forget(_PLAIN, self.chance.randint(0, self.log.durable_lsn), 100)

    def _hand_over(self, actor: Actor) -> None:
        if actor is self._reader and self.chance.random() < 0.2:
            # A slow reader: a whole round, and a grace, fit between two of its looks.
            actor.paused_until = self.counts.calls + self.chance.randint(10, 60)
        super()._hand_over(actor)

    # Looks -----------------------------------------------------------------------------------------------------

    def _round(self, actor: Actor) -> None:
        if actor is not self._reader:
            super()._round(actor)
            return
        for _ in range(LOOKS_A_ROUND):
            try:
                self._look(actor)
            except Killed:
                actor.dead = False
                self.looks["died"] += 1
            finally:
                # Its pins die with a reader; one that lives has released them.
                self.log.pins.clear()

    def _settle(self) -> None:
        """At the end, after everything has landed: every cut once more."""
        super()._settle()
        try:
            for kept in self._cuts:
                self._again(self._reader, kept)
            self._now(self._reader, (*self.topics.values(), self._plain))
        except Stopped:
            return

    def _look(self, actor: Actor) -> None:
        topics = [*self.topics.values(), self._plain]
        some = tuple(self.chance.sample(topics, self.chance.randint(1, len(topics))))
        draw = self.chance.random()
        if draw < 0.5 or not self._cuts:
            self._now(actor, some)
        elif draw < 0.9:
            self._again(actor, self.chance.choice(self._cuts))
        else:
            self._at_lsn(actor, some)

    def _resolver(self, actor: Actor) -> Resolver:
        @contextmanager
        def lent() -> Iterator[SimulatedTables]:
            tables = WatchedTables(self.catalog, actor)
            tables.shown = self._loaded
            yield tables

        return Resolver(
            SimulatedViewSource(self.log, actor, can_tell=self.mood.can_tell),
            lent,
            SimulatedLedger(self.ledger, actor, lambda records, seam: None),
            self.clock,
        )

    def _now(self, actor: Actor, topics: tuple[TopicRecord, ...]) -> None:
        durable = self.log.durable_lsn
        seen = self._seen(actor, topics, lambda resolver: resolver.now(topics), f"looks at {_names(topics)}")
        if seen is None:
            return
        resolved, rows = seen
        if resolved.cut.lsn < durable or resolved.cut.lsn not in self.log.write_ends:
            self.violated(f"V15: a cut at {resolved.cut.lsn}, where {durable} was durable: early, or inside a write")
        if resolved.cut.log_id != LOG_ID or Cut.parse(str(resolved.cut)) != resolved.cut:
            self.violated(f"V16: {resolved.cut} does not come back from its token")
        self._cuts.append(KeptCut(resolved.cut, topics, rows))
        del self._cuts[:-8]

    def _at_lsn(self, actor: Actor, topics: tuple[TopicRecord, ...]) -> None:
        ends = sorted(lsn for lsn in self.log.write_ends if lsn <= self.log.durable_lsn)
        lsn = self.chance.choice(ends)
        with_table = tuple(topic for topic in topics if topic.table is not None)
        if with_table:
            what = f"{_names(with_table)} at {lsn}"
            seen = self._seen(actor, with_table, lambda resolver: resolver.at_lsn(with_table, lsn), what)
            if seen is not None:
                self._cuts.append(KeptCut(seen[0].cut, with_table, seen[1]))

    def _again(self, actor: Actor, kept: KeptCut) -> None:
        seen = self._seen(
            actor, kept.topics, lambda resolver: resolver.at(kept.topics, kept.cut), f"{kept.cut} again", kept
        )
        if seen is None:
            return
        resolved, rows = seen
        if resolved.cut != kept.cut:
            self.violated(f"V16: {kept.cut} has become {resolved.cut}")
        for topic in kept.topics:
            self._same(topic, kept, resolved.plans[topic.number], rows[topic.number])

    def _same(self, topic: TopicRecord, kept: KeptCut, plan: ViewPlan, rows: Counter[Row]) -> None:
        """What the cut's snapshot still shows is as it was; the rest is so but for what owners did since."""
        first = kept.rows[topic.number]
        own = kept.cut.topic(topic.topic_id.hex())
        by_snapshot = bool(plan.tables) and plan.tables[0].snapshot_id == own.snapshot
        still = {
            each.snapshot_id
            for version in (self._loaded.get(topic.table or ""),)
            if version is not None
            for each in version.snapshots.values()
        }
        if own.snapshot in still and not by_snapshot:
            self.violated(f"V16: {kept.cut} is not read by its snapshot, which is still there")
        if by_snapshot:
            first, rows = (
                Counter({row: count for row, count in each.items() if row[1] <= own.landed_lsn})
                for each in (first, rows)
            )
            if first != rows:
                self.violated(f"V16: {kept.cut} of {topic.name} has {_difference(rows, first)}")
        elif topic.table is None and first != rows:
            self.violated(f"V16: {kept.cut} of {topic.name} has {_difference(rows, first)}")

    def _seen(
        self,
        actor: Actor,
        topics: Sequence[TopicRecord],
        resolve: Callable[[Resolver], Resolved],
        what: str,
        kept: KeptCut | None = None,
    ) -> tuple[Resolved, dict[int, Counter[Row]]] | None:
        """Resolve, read every part, and compare with the log; None where that cannot be had, and rightly so."""
        self.note(actor.name, what)
        self._loaded.clear()
        try:
            resolved = resolve(self._resolver(actor))
        except Unavailable:
            self.looks["unavailable"] += 1
            return None
        except LandingHalted as halt:
            self.looks[f"halted: {halt.cause}"] += 1
            if not any(self._deserves(topic, halt.cause) for topic in topics):
                self.violated(f"V15: {what} is halted by {halt.cause}, and nothing is wrong: {halt.message}")
            return None
        except CutExpired as expired:
            self.looks["expired"] += 1
            if kept is None or self.log.forgotten.get(_PLAIN, 0) == 0:
                self.violated(f"V16: {what} has expired, and every row is there: {expired.message}")
            return None
        try:
            rows = {topic.number: self._read(actor, topic, resolved) for topic in topics}
        except Missing as missing:
            self.looks["files gone"] += 1
            self._check_gone(resolved, str(missing).removeprefix("there is no "))
            return None
        finally:
            resolved.hold.release()
        self.looks["again" if kept is not None else "seen"] += 1
        for topic in topics:
            self._compare(topic, resolved, rows[topic.number], what)
        return resolved, rows

    def _read(self, actor: Actor, topic: TopicRecord, resolved: Resolved) -> Counter[Row]:
        plan = resolved.plans[topic.number]
        rows: list[Row] = []
        for part in plan.parts:
            rows += actor.call("read part", lambda part=part: part_rows(part, self.catalog.store.rows))  # type: ignore[misc]
        lsn_from, lsn_to = plan.tail
        rows += actor.call("read tail", lambda: self.log.rows(topic.number, lsn_from, lsn_to))
        return Counter(rows)

    # What must hold ----------------------------------------------------------------------------------------------

    def _compare(self, topic: TopicRecord, resolved: Resolved, rows: Counter[Row], what: str) -> None:
        at_lsn = resolved.cut.lsn
        committed = [row for row in self.log.committed.get(topic.number, ()) if row[1] <= at_lsn]
        if topic.table is None:
            gone = self.log.forgotten.get(_PLAIN, 0)
            committed = [row for row in committed if row[1] > gone]
        expected = Counter(committed)
        of_owners = Counter({row: count for row, count in rows.items() if row[0] == 0})
        extra = (rows - expected) - of_owners
        if extra or any(count > 1 for count in of_owners.values()):
            self.violated(f"V15: {what}: {topic.name} at {at_lsn} has {sorted(rows - expected)[:3]} too many")
        missing = set(expected) - set(rows)
        if missing - self._taken(topic.number):
            few = sorted(missing - self._taken(topic.number))[:3]
            self.violated(f"V15: {what}: {topic.name} at {at_lsn} lacks {few}; {resolved.plans[topic.number].tail}")
        plan = resolved.plans[topic.number]
        if plan.parts:
            first = part_rows(plan.parts[0], self.catalog.store.written.__getitem__)
            if {row for row in first if row[0] == 0} != set(of_owners) and plan.parts[0].unmarked:
                self.violated(f"V15: {what}: {topic.name} at {at_lsn} lacks rows that are the owner's own")

    def _taken(self, number: int) -> set[Row]:
        """Rows that owners have deleted, and those that a person has given up."""
        taken = {row for truth in self.judge.truths.values() for row in truth.removed}
        return taken | (self.judge.excused.get(number, set()) if number in self.judge.permitted else set())

    def _check_gone(self, resolved: Resolved, path: str) -> None:
        """A file may be gone if its snapshot has expired, by somebody who does not look at pins, or by a store."""
        if path in self.judge.lost:
            return
        for plan in resolved.plans.values():
            for part in plan.parts:
                version = self.catalog.tables.get(part.state.name)
                known = version.snapshots.get(part.snapshot_id) if version is not None else None
                if known is not None and path in known.files:
                    self.violated(f"V15: {path} is gone, and its snapshot is there")

    def _deserves(self, topic: TopicRecord, cause: str) -> bool:
        """Whether what the reader was shown of the table is a reason for this halt."""
        version = self._loaded.get(topic.table or "")
        head = version.head if version is not None else None
        truth = self.judge.truth_of(head)
        landed = truth.landed if truth.number == topic.number else 0
        if truth.spoiled:
            return True
        match cause:
            case "gap":
                fell = not self.mood.can_tell or self.log.forgotten.get(topic.number, 0) > landed
                return fell or version is None or silent(self.judge, version) or not proven(self.judge, version)
            case "mark-unproven":
                return version is not None and not proven(self.judge, version)
            case "foreign-mark":
                return _others_marks(self.judge, version, topic.topic_id.hex())
            case _:
                return False


def _names(topics: Sequence[TopicRecord]) -> str:
    return " ".join(topic.name for topic in topics)


def _difference(rows: Counter[Row], first: Counter[Row]) -> str:
    return f"{sorted(rows - first)[:3]} too many and {sorted(first - rows)[:3]} too few"


def run_view_seed(seed: int, *, world: str | None = None) -> Counter[str]:
    """Run one schedule; what it finds says how to see it again."""
    schedule = ViewSchedule(seed, world=world)
    try:
        schedule.run()
    except Violation as violation:
        violation.add_note(f"replay with: python -m tests.simulation.view_schedules --seed {seed} --trace")
        raise
    return schedule.looks


def main() -> int:
    """Run one schedule again, or many, and tell what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.view_schedules", description=main.__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--trace", action="store_true", help="print every step")
    given = parser.parse_args()
    looks: Counter[str] = Counter()
    violations = 0
    began = time.monotonic()
    for seed in range(given.seed, given.seed + given.seeds):
        schedule = ViewSchedule(seed, trace=given.trace)
        try:
            schedule.run()
        except Violation as violation:
            violations += 1
            print("\n".join(schedule.trace or ()))
            print(f"seed {seed}: {violation}")
        looks += schedule.looks
    print(f"{dict(looks)}\n{given.seeds} schedules in {time.monotonic() - began:.1f} s, {violations} violations")
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
