"""Schedules of landing: one to three landers, step by step, with everything that may come between, before and after.

STEP     Every call that a lander makes to catalog, log, tasks or ledger.  Each lander runs in a thread of its own, and
         exactly one holds the baton: whoever has it draws, at each step, who goes on, what the world does first, which
         fault the call meets, and whether the caller dies before or after it.
DEATH    Is an exception that nothing catches; a dead lander's later calls do nothing, and a new one takes its place.
END      Requests under way arrive or are lost, faults end, and one new lander works until there is nothing to do; where
         it halts, the halt must be deserved, and a person decides.
SEED     Decides over everything: python -m tests.simulation.lake_schedules --seed N --trace
"""

from __future__ import annotations

import argparse
import logging
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, TypeVar

import pyarrow as pa

from headwater.clock import ManualClock
from headwater.errors import HeadwaterError, LandingHalted, Unavailable
from headwater.lake import stamping
from headwater.lake.lander import Lander
from headwater.lake.ledger_records import LedgerRecord
from headwater.lake.report import LandingReport
from headwater.lake.shape import table_shape
from headwater.lake.standing import Decisions
from headwater.metadata.operations import TopicRecord
from headwater.settings import LandingSettings
from headwater.topics.schema import pack_schema
from tests.simulation.lake_checks import Judge
from tests.simulation.lake_log import (
    FRAME_BYTES,
    GRACE_S,
    LedgerRecords,
    SimulatedLedger,
    SimulatedLog,
    SimulatedRunner,
    SimulatedSource,
)
from tests.simulation.lake_moods import ACTS, FAULTS, Counts, draw_mood
from tests.simulation.lake_owner import Owner
from tests.simulation.lake_settling import Settler
from tests.simulation.lake_world import Catalog, NoFaults, Row, SimulatedTables

T = TypeVar("T")

_SCHEMAS = (
    pack_schema(pa.schema([pa.field("a", pa.int64())])),
    pack_schema(pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64())])),
)


class Killed(BaseException):
    """The lander's process ends here."""


class Stopped(BaseException):
    """A promise was broken: the schedule ends."""


class Violation(AssertionError):
    """A promise was broken."""


class Actor:
    """One lander's place: the Seam of whoever lands there now."""

    def __init__(self, schedule: Schedule, name: str) -> None:
        self.schedule = schedule
        self.name = name
        self.dead = False
        self.done = False
        self.paused_until = 0
        self.round_step = 0
        self.baton = threading.Lock()
        self.baton.acquire()
        self.decisions = Decisions()
        self.read_rows: set[Row] = set()
        """What tasks have read back in this round."""
        self.topics: Sequence[TopicRecord] = ()
        self.ledger: SimulatedLedger | None = None
        self.landed_when_loaded: dict[str, int] = {}
        """What it knew of the ledger, by topic-id, when it last loaded a table: that is what it compares with."""

    def call(self, what: str, effect: Callable[[], T]) -> T:
        schedule = self.schedule
        schedule.turn(self, what)
        if self.dead:
            raise Killed
        dies = schedule.death()
        if dies == "before":
            self._die(f"before {what}")
        if what.startswith("load ") and self.ledger is not None:
            for key, topic in self.ledger.known.topics.items():
                if schedule.table_of(key) == what.removeprefix("load "):
                    self.landed_when_loaded[key] = topic.landed_lsn
        try:
            result = effect()
        except HeadwaterError as error:
            schedule.note(self.name, f"{what}: {type(error).__name__}: {error.message}")
            if dies:
                self._die(f"after {what}")
            raise
        schedule.note(self.name, what)
        if dies:
            self._die(f"after {what}")
        return result

    def fault(self, what: str) -> str | None:
        return None if self.dead else self.schedule.fault(self.name, what)

    def _die(self, where: str) -> None:
        self.dead = True
        self.schedule.note(self.name, f"dies {where}")
        self.schedule.counts.kills[where.partition(" lake.")[0]] += 1
        raise Killed


class Schedule:
    """One seed."""

    def __init__(
        self, seed: int, *, world: str | None = None, trace: bool = False, mood: Mapping[str, Any] | None = None
    ) -> None:
        """`mood` takes the place of what the seed would draw."""
        self.seed = seed
        self.chance = Random(seed * 1_000_003 + 17)
        self.mood = replace(draw_mood(self.chance, world), **(mood or {}))
        self.counts = Counts(schedules=1)
        self.trace: list[str] | None = [] if trace else None
        self.violations: list[str] = []
        self.clock = ManualClock()
        self.catalog = Catalog(self.chance, self.violated, checks_sequence=self.mood.checks_sequence)
        self.log = SimulatedLog()
        self.ledger = LedgerRecords()
        self.judge = Judge(self.catalog, self.log, self.ledger, self.violated)
        self.catalog.on_commit = self.judge.on_commit
        self.catalog.on_stale = self.judge.on_stale
        self.owner = Owner(self.catalog, self.judge, self.chance)
        self.topics: dict[str, TopicRecord] = {}
        self.quiet = False
        self._tables: dict[str, str] = {}
        """By topic-id."""
        self._numbers = 0
        self._actors = [Actor(self, f"lander {number}") for number in range(self.mood.landers)]
        self._last = Actor(self, "the last lander")
        self._over = threading.Lock()
        self._settings = LandingSettings(
            round_bytes_max=self.chance.choice((FRAME_BYTES * 3, 10**9)),
            item_bytes=self.chance.choice((FRAME_BYTES, FRAME_BYTES * 3)),
            commit_threads=1,
            attempts_max=self.chance.choice((2, 5)),
        )
        for number in range(self.mood.topics):
            self._create_topic(f"topic{number}")

    def violated(self, what: str) -> None:
        self.note("VIOLATION", what)
        self.violations.append(what)

    def note(self, who: str, what: str) -> None:
        if self.trace is not None:
            self.trace.append(f"{who}: {what}")

    # Running ------------------------------------------------------------------------------------------------

    def run(self) -> Counts:
        # Of ten thousand schedules nobody reads what a lander says to its operator.
        logging.getLogger("headwater.lake").setLevel(logging.CRITICAL)
        self.append()
        self._over.acquire()
        threads = [threading.Thread(target=self._live, args=(actor,), daemon=True) for actor in self._actors]
        for thread in threads:
            thread.start()
        self._actors[0].baton.release()
        self._over.acquire()
        for thread in threads:
            thread.join()
        if not self.violations:
            self._settle()
        if self.violations:
            raise Violation(self.violations[0])
        return self.counts

    def _live(self, actor: Actor) -> None:
        """A lander's thread."""
        actor.baton.acquire()
        try:
            for _ in range(self.mood.rounds):
                try:
                    self._round(actor)
                except Killed:
                    actor.dead = False
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001  Whatever it was, it must not die in a thread unheard
            self.violated(f"a round ended with {type(error).__name__}: {error}\n{traceback.format_exc()}")
        actor.done = True
        left = [each for each in self._actors if not each.done]
        (self.chance.choice(left).baton if left else self._over).release()

    def _round(self, actor: Actor) -> None:
        topics = list(self.topics.values())
        told = frozenset(topic.name for topic in topics if self.chance.random() < self.mood.person_share)
        self.judge.permitted.update(topic.number for topic in topics if topic.name in told)
        verify = "read-back" if self.chance.random() < self.mood.verify_share else "metadata"
        self._act_of_the_log()
        try:
            report = self.round(actor, topics, Decisions(told), verify)
        except Unavailable:
            # The ledger or the job: the next round tries again.
            self.counts.outcomes["unavailable"] += 1
            return
        for landing in report:
            self.counts.outcomes[landing.outcome] += 1

    def round(self, actor: Actor, topics: Sequence[TopicRecord], decisions: Decisions, verify: str) -> LandingReport:
        actor.round_step = self.judge.step
        actor.topics = topics
        actor.read_rows.clear()
        actor.decisions = decisions
        self.note(actor.name, f"begins a round, {decisions}")
        actor.ledger = SimulatedLedger(self.ledger, actor, self._recorded)
        lander = Lander(
            SimulatedSource(self.log, actor, can_tell=self.mood.can_tell),
            lambda: SimulatedTables(self.catalog, actor),
            actor.ledger,
            SimulatedRunner(self.log, self.catalog, actor, actor.read_rows.update),
            clock=self.clock,
            entropy=self.chance.randbytes,
            settings=self._settings,
        )
        report = lander.round(topics, decisions=decisions, verify="read-back" if verify == "read-back" else "metadata")
        for told in report:
            self.note(actor.name, f"{told} verified={told.verified} {told.message}")
        return report

    def table_of(self, topic_id: str) -> str:
        return self._tables[topic_id]

    def _recorded(self, records: Sequence[LedgerRecord], seam: object) -> None:
        assert isinstance(seam, Actor)
        told = seam.decisions.after_rollback | seam.decisions.landed_lsn.keys()
        permitted = {topic.number for topic in seam.topics if topic.name in told}
        self.judge.on_record(records, seam.landed_when_loaded, seam.round_step, permitted, seam.read_rows)

    # What is drawn at a step --------------------------------------------------------------------------------

    def turn(self, actor: Actor, what: str) -> None:
        """Before a call: others may come first."""
        if self.violations:
            raise Stopped
        if self.quiet:
            return
        self.counts.calls += 1
        chance = self.chance
        if chance.random() < self.mood.act_share:
            self.act()
        if len(self._actors) > 1 and chance.random() < self.mood.switch_share:
            self._hand_over(actor)
        if self.violations:
            raise Stopped

    def _hand_over(self, actor: Actor) -> None:
        if self.chance.random() < 0.05:
            # Stopped for a while, as by SIGSTOP: the others go on.
            actor.paused_until = self.counts.calls + self.chance.randint(20, 120)
        ready = [each for each in self._actors if not each.done and each.paused_until <= self.counts.calls]
        following = self.chance.choice(ready) if ready else actor
        if following is not actor:
            following.baton.release()
            actor.baton.acquire()

    def death(self) -> str | None:
        if self.quiet or self.chance.random() >= self.mood.death_share:
            return None
        return "before" if self.chance.random() < 0.5 else "after"

    def fault(self, who: str, what: str) -> str | None:
        if self.quiet:
            return None
        share = self.mood.commit_fault_share if what == "commit" else self.mood.fault_share
        if what in {"record", "run"}:
            share /= 4
        if self.chance.random() >= share:
            return None
        fault = self.chance.choice(FAULTS[what])
        self.counts.faults[f"{what}: {fault}"] += 1
        self.note(who, f"fault at {what}: {fault}")
        return fault

    # The world goes on --------------------------------------------------------------------------------------

    def act(self) -> None:
        draw = self.chance.random()
        if draw < self.mood.time_share:
            self.time_passes()
        elif draw < self.mood.time_share + 0.3:
            self._act_of_the_log()
        elif draw < self.mood.time_share + 0.45:
            self._act_of_the_network()
        else:
            self._act_of_an_owner(self.chance.choice(self.mood.acts))

    def _act_of_the_log(self) -> None:
        draw = self.chance.random()
        if draw < 0.7:
            self.append()
        elif draw < 0.8:
            self._append_pending()
        elif draw < 0.9:
            self.log.roll()
        else:
            self.log.crash()
            self.note("log", f"crashes; durable up to {self.log.durable_lsn}")

    def _append_pending(self) -> None:
        frames = [
            (self.chance.choice([*(topic.number for topic in self.topics.values()), 0]), 0, self.chance.randint(1, 3))
            for _ in range(self.chance.randint(1, 3))
        ]
        self.log.append([(number, self.chance.randint(0, 1), rows if number else 0) for number, _, rows in frames])

    def append(self) -> None:
        self._append_pending()
        self.log.sync()
        self.note("log", f"durable up to {self.log.durable_lsn}")
        if self.chance.random() < 0.4:
            self.log.roll()

    def _act_of_the_network(self) -> None:
        if not self.catalog.late:
            return
        request = self.catalog.late.pop(self.chance.randrange(len(self.catalog.late)))
        if self.chance.random() < 0.2:
            self.note("network", f"loses the request for {request.snapshot.snapshot_id}")
            return
        again = self.chance.random() < 0.3
        applied = self.catalog.deliver(request)
        self.note("network", f"delivers {request.snapshot.snapshot_id}: {'applied' if applied else 'refused'}")
        if again:
            self.catalog.late.append(request)

    def time_passes(self) -> None:
        """Long enough for grace to be over, or not; and the log's owner looks after its files."""
        self.clock.advance(self.chance.choice((1.0, 60.0, GRACE_S)))
        self.forget()

    def forget(self) -> None:
        """The log lets go of what was verified, as far as grace is over."""
        self.log.roll()
        before_us = self.clock.now_us() - round(GRACE_S * 1_000_000)
        state = self.ledger.state()
        for topic in self.topics.values():
            verified = state.topic(topic.topic_id.hex()).verified_before(before_us)
            if verified is not None:
                self.judge.forgets(_table(topic), topic.number, self.log.forgettable(topic.number, verified[0]))
                self.log.forget(topic.number, verified[0], self.chance.choice((1, 100, 100)))
                self.note("log", f"forgets topic {topic.number} up to {self.log.forgotten.get(topic.number, 0)}")

    def _act_of_an_owner(self, name: str) -> None:
        topic = self.chance.choice(list(self.topics.values()))
        match name:
            case "new_topic":
                if self.chance.random() < 0.5:
                    self._create_topic(topic.name)
                    self.note("owner", f"creates {topic.name} again as {self.topics[topic.name].number}")
                done = True
            case "evolve_topic":
                self.topics[topic.name] = _with_schemas(topic, _SCHEMAS)
                done = True
            case "stamp":
                done = self._stamp(topic)
            case "remove_orphans":
                known = self.ledger.state().topics.values()
                flying = [each for other in known for each in other.in_flight.values() if each.table == _table(topic)]
                done = self.owner.remove_orphans(_table(topic), flying, self.clock.now_us())
            case "lose_a_file" if self.chance.random() < 0.8:
                done = False
            case _:
                done = getattr(self.owner, name)(_table(topic))
        if done:
            self.counts.acts[name] += 1
            self.note("owner", f"{name}: {self._shown(_table(topic))}")

    def _stamp(self, topic: TopicRecord) -> bool:
        """As upkeep does before it expires snapshots: a landing of no rows."""
        tables = SimulatedTables(self.catalog, NoFaults())
        state = tables.load(_table(topic))
        if state is None:
            return False
        try:
            standing = stamping.own_standing(tables, state, topic.topic_id.hex())
            if standing.mark is None:
                return False
            mark = stamping.stamp_of(standing, stamping.new_commit_id(self.chance.randbytes))
            tables.commit(stamping.stage_stamp(tables, state, table_shape(topic), mark))
        except LandingHalted:
            return False
        return True

    def _shown(self, table: str) -> str:
        version = self.catalog.tables.get(table)
        if version is None:
            return f"{table} is gone"
        line = [f"{each.snapshot_id}{'*' if 'headwater.lsn-to' in each.summary else ''}" for each in version.history()]
        return f"{table} {version.uuid} {' < '.join(line)}, {self.judge.truth(table).landed} landed"

    def _create_topic(self, name: str) -> None:
        self._numbers += 1
        topic_id = self._numbers.to_bytes(16, "big")
        self.judge.numbers[topic_id.hex()] = self._numbers
        self._tables[topic_id.hex()] = f"lake.{name}"
        self.topics[name] = TopicRecord(
            number=self._numbers,
            name=name,
            topic_id=topic_id,
            created_us=self.clock.now_us(),
            schemas=_SCHEMAS[:1],
            partitions=2,
            table=f"lake.{name}",
        )

    # The end ------------------------------------------------------------------------------------------------

    def _settle(self) -> None:
        """Faults are over: a new lander must bring everything home, or halt where it should."""
        while self.catalog.late and not self.violations:
            request = self.catalog.late.pop(self.chance.randrange(len(self.catalog.late)))
            if self.chance.random() < 0.7:
                self.catalog.deliver(request)
        self.quiet = True
        self.log.crash()
        self.log.append([(topic.number, 0, 1) for topic in self.topics.values()])
        self.log.sync()
        try:
            Settler(self).settle()
        except Stopped:
            return
        self.clock.advance(GRACE_S)
        self.forget()
        for topic in self.topics.values():
            self.judge.nothing_is_lost(_table(topic), topic.number)
        self.counts.landings = len(self.judge.landings)

    def last_round(self, topics: Sequence[TopicRecord], decisions: Decisions) -> LandingReport:
        """A round of the lander that is alone at the end."""
        return self.round(self._last, topics, decisions, "read-back")


def _table(topic: TopicRecord) -> str:
    assert topic.table is not None
    return topic.table


def _with_schemas(topic: TopicRecord, schemas: tuple[bytes, ...]) -> TopicRecord:
    return TopicRecord(
        number=topic.number,
        name=topic.name,
        topic_id=topic.topic_id,
        created_us=topic.created_us,
        schemas=schemas,
        partitions=topic.partitions,
        table=topic.table,
    )


def run_seed(seed: int, *, world: str | None = None) -> Counts:
    """Run one schedule; what it finds says how to see it again."""
    try:
        return Schedule(seed, world=world).run()
    except Violation as violation:
        violation.add_note(f"replay with: {replay_command(seed, world)}")
        raise


def replay_command(seed: int, world: str | None = None) -> str:
    return f"python -m tests.simulation.lake_schedules --seed {seed} --trace" + (f" --world {world}" if world else "")


def main() -> int:
    """Run one schedule again, or many, and tell what happened."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.lake_schedules", description=main.__doc__)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=1, help="how many, from --seed on")
    parser.add_argument("--world", choices=list(ACTS), help="what owners do; drawn if not given")
    parser.add_argument("--trace", action="store_true", help="print every step")
    parser.add_argument("--keep-going", action="store_true", help="do not end with the first violation")
    given = parser.parse_args()
    total = Counts()
    found: Counter[str] = Counter()
    began = time.monotonic()
    schedule: Schedule | None = None
    for seed in range(given.seed, given.seed + given.seeds):
        schedule = Schedule(seed, world=given.world, trace=given.trace)
        try:
            total.add(schedule.run())
        except Violation as violation:
            if not given.keep_going:
                print("\n".join(schedule.trace or ()))
                print(f"seed {seed}, {schedule.mood}\n{violation}\n{replay_command(seed, given.world)}")
                return 1
            first = str(violation).splitlines()[0]
            if found[first[:40]] < 3:
                print(f"seed {seed}: {first}")
            found[first[:40]] += 1
    if given.trace and schedule is not None:
        print("\n".join(schedule.trace or ()))
    took = time.monotonic() - began
    print(f"{total}\n{given.seeds} schedules in {took:.1f} s; violations: {dict(found)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
