"""One table, one topic and landers that do what a test says, call by call: for failures that have a name.

    scene = Scene()
    scene.append(3)
    scene.land(at={"commit": "late"})                    this call meets that fault
    scene.land(at={"before commit": other_round})        this happens before the call
    scene.land(dies="after commit")                      the lander's process ends there
    scene.land(dies="before load 2")                     ... at the second such call

PROMISE  The judge of lake_checks.py looks on; `holds_everything` asks it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TypeVar

import pyarrow as pa

from headwater.clock import ManualClock
from headwater.lake import stamping
from headwater.lake.lander import Lander
from headwater.lake.ledger_records import LedgerRecord
from headwater.lake.report import TopicLanding
from headwater.lake.shape import table_shape
from headwater.lake.standing import Decisions
from headwater.metadata.operations import TopicRecord
from headwater.settings import LandingSettings
from headwater.topics.schema import pack_schema
from tests.simulation.lake_checks import Judge
from tests.simulation.lake_log import (
    GRACE_S,
    LedgerRecords,
    SimulatedLedger,
    SimulatedLog,
    SimulatedRunner,
    SimulatedSource,
)
from tests.simulation.lake_owner import Owner
from tests.simulation.lake_world import Catalog, NoFaults, Row, Seam, SimulatedTables, Version

T = TypeVar("T")
TABLE = "lake.orders"
_SCHEMA = pack_schema(pa.schema([pa.field("a", pa.int64())]))


class Ends(BaseException):
    """The lander's process ends here."""


class ScriptedSeam:
    """Does what was written down, each thing at the first call that it is for."""

    def __init__(self, at: Mapping[str, str | Callable[[], object]], dies: str | None) -> None:
        self._at = dict(at)
        self._dies = dies
        self._calls: Counter[str] = Counter()

    def call(self, what: str, effect: Callable[[], T]) -> T:
        name = what.removesuffix(f" {TABLE}")
        self._calls[name] += 1
        number = self._calls[name]
        self._happens(f"before {name}", number)
        result = effect()
        self._happens(f"after {name}", number)
        return result

    def fault(self, what: str) -> str | None:
        found = self._at.get(what)
        if isinstance(found, str):
            del self._at[what]
            return found
        return None

    def _happens(self, when: str, number: int) -> None:
        moments = (when, f"{when} {number}") if number == 1 else (f"{when} {number}",)
        for moment in moments:
            act = self._at.pop(moment, None)
            if callable(act):
                act()
            if self._dies == moment:
                raise Ends


class Scene:
    def __init__(self) -> None:
        self.violations: list[str] = []
        self.clock = ManualClock()
        self.chance = Random(1)
        self.catalog = Catalog(self.chance, self.violations.append)
        self.log = SimulatedLog()
        self.ledger = LedgerRecords()
        self.judge = Judge(self.catalog, self.log, self.ledger, self.violations.append)
        self.catalog.on_commit = self.judge.on_commit
        self.owner = Owner(self.catalog, self.judge, self.chance)
        self.topic = self.create_topic()

    def create_topic(self) -> TopicRecord:
        """A topic of the same name and table as any before, and another identity."""
        number = len(self.judge.numbers) + 1
        topic_id = number.to_bytes(16, "big")
        self.judge.numbers[topic_id.hex()] = number
        self.topic = TopicRecord(
            number=number,
            name="orders",
            topic_id=topic_id,
            created_us=self.clock.now_us(),
            schemas=(_SCHEMA,),
            partitions=1,
            table=TABLE,
        )
        return self.topic

    def append(self, rows: int) -> None:
        self.log.append([(self.topic.number, 0, rows)])
        self.log.sync()

    def land(
        self,
        *,
        at: Mapping[str, str | Callable[[], object]] | None = None,
        dies: str | None = None,
        decisions: Decisions | None = None,
    ) -> TopicLanding | None:
        """A round of a new lander; nothing where it died."""
        seam = ScriptedSeam(at or {}, dies)
        decided = decisions or Decisions()
        permitted = [self.topic.number] if decided.after_rollback or decided.landed_lsn else []
        self.judge.permitted.update(permitted)
        read_rows: set[Row] = set()
        begun = self.judge.step

        def recorded(records: Sequence[LedgerRecord], who: Seam) -> None:
            self.judge.on_record(records, {}, begun, permitted, read_rows)

        lander = Lander(
            SimulatedSource(self.log, seam),
            lambda: SimulatedTables(self.catalog, seam),
            SimulatedLedger(self.ledger, seam, recorded),
            SimulatedRunner(self.log, self.catalog, seam, read_rows.update),
            clock=self.clock,
            entropy=self.chance.randbytes,
            settings=LandingSettings(commit_threads=1),
        )
        try:
            return lander.round([self.topic], decisions=decided)["orders"]
        except Ends:
            return None

    def forget(self) -> None:
        """Grace is over, and the log lets go of what was verified."""
        self.clock.advance(GRACE_S)
        self.log.roll()
        topic = self.ledger.state().topic(self.topic.topic_id.hex())
        verified = topic.verified_before(self.clock.now_us() - round(GRACE_S * 1_000_000))
        if verified is not None:
            self.judge.forgets(TABLE, self.topic.number, self.log.forgettable(self.topic.number, verified[0]))
            self.log.forget(self.topic.number, verified[0], 100)

    def stamp(self) -> None:
        """As upkeep does: a landing of no rows, so that the head carries the mark."""
        tables = SimulatedTables(self.catalog, NoFaults())
        state = tables.load(TABLE)
        assert state is not None
        standing = stamping.own_standing(tables, state, self.topic.topic_id.hex())
        mark = stamping.stamp_of(standing, stamping.new_commit_id(self.chance.randbytes))
        tables.commit(stamping.stage_stamp(tables, state, table_shape(self.topic), mark))

    def arrives(self) -> bool:
        """The request that was under way arrives now; whether it was applied."""
        return self.catalog.deliver(self.catalog.late.pop(0))

    def remove_orphans(self) -> bool:
        flying = self.ledger.state().topic(self.topic.topic_id.hex()).in_flight.values()
        return self.owner.remove_orphans(TABLE, flying, self.clock.now_us())

    @property
    def table(self) -> Version:
        return self.catalog.tables[TABLE]

    @property
    def rows(self) -> list[Row]:
        """What a reader of the table sees."""
        return sorted(self.judge.rows_of(self.table.head))

    def holds_everything(self) -> bool:
        """The table has every row of the log once, and no promise was broken on the way."""
        assert self.violations == []
        return self.rows == sorted(self.log.committed[self.topic.number])
