"""The order of looks, what is held meanwhile and afterwards, and what is refused rather than shown wrongly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from headwater.clock import ManualClock
from headwater.errors import CutExpired, InvalidRequest, LandingHalted, Unavailable
from headwater.lake.cut import Cut, TopicCut
from headwater.lake.ledger_records import LedgerRecord
from headwater.lake.ledger_state import LedgerState, TopicLedger
from headwater.lake.mark import FORGOTTEN
from headwater.lake.resolving import FAR_LSN, Resolver
from headwater.lake.tables import TableState
from headwater.metadata.operations import TopicRecord
from headwater.topics.schema import pack_schema
from tests.unit.lake.view_states import LOG_ID, TOPIC_ID, snapshot, state


def topic(number: int = 1, *, name: str = "orders", has_table: bool = True, keyed: bool = False) -> TopicRecord:
    return TopicRecord(
        number=number,
        name=name,
        topic_id=bytes.fromhex(TOPIC_ID) if number == 1 else number.to_bytes(16, "big"),
        created_us=0,
        schemas=(pack_schema(pa.schema([pa.field("x", pa.int64(), nullable=False)])),),
        partitions=1,
        key=("x",) if keyed else (),
        table=f"lake.{name}" if has_table else None,
    )


ORDERS, PLAIN, CUSTOMERS = topic(), topic(2, name="plain", has_table=False), topic(keyed=True, name="customers")


@dataclass
class World:
    """A log, a ledger and tables that say what they are told to; every look at them is written down."""

    durable: int = 10
    tables: dict[str, TableState] = field(default_factory=dict)
    verified: int = 0
    rows: int = 5
    holds_everything: bool = True
    log_id: str = LOG_ID
    looks: list[str] = field(default_factory=list)
    held: list[tuple[int | None, tuple[int, ...]]] = field(default_factory=list)
    before: dict[str, Callable[[], None]] = field(default_factory=dict)
    """What happens before a look."""

    def look(self, what: str) -> None:
        act = self.before.pop(what, None)
        if act is not None:
            act()
        self.looks.append(what)

    # As ViewSource

    def durable_lsn(self) -> int:
        self.look("durable")
        return self.durable

    def holds_all(self, topic_number: int, lsn_from: int, lsn_to: int) -> bool:
        self.look(f"holds all ({lsn_from}, {lsn_to}]")
        return self.holds_everything

    def rows_between(self, topic_number: int, lsn_from: int, lsn_to: int) -> int:
        return self.rows

    def hold(self, lsn: int | None, snapshots: Sequence[int] = ()) -> Held:
        self.look("hold")
        held = (lsn, tuple(snapshots))
        self.held.append(held)
        return Held(self, held)

    # As a ledger and as tables

    def state(self) -> LedgerState:
        self.look("ledger")
        known = TopicLedger(verified=[(self.verified, 1)] if self.verified else [])
        return LedgerState(topics={TOPIC_ID: known})

    def record(self, records: Sequence[LedgerRecord]) -> None:
        raise AssertionError("a reader writes nothing")

    def load(self, name: str) -> TableState | None:
        self.look(f"load {name}")
        return self.tables.get(name)

    def max_row_lsn(self, table: TableState, branch: str = "main") -> int:
        return 0

    @contextmanager
    def lent(self) -> Iterator[Any]:
        yield self

    @property
    def resolver(self) -> Resolver:
        return Resolver(self, self.lent, self, ManualClock())


@dataclass
class Held:
    world: World
    held: tuple[int | None, tuple[int, ...]]

    def release(self) -> None:
        self.world.look("release")
        self.world.held.remove(self.held)


@pytest.fixture
def world() -> World:
    return World(tables={"lake.orders": state(snapshot(1, lsn=6))})


def tail(world: World, *topics: TopicRecord) -> tuple[int, int]:
    return world.resolver.now(topics or [ORDERS]).plans[1].tail


# --------------------------------------------------------------------------------------------------- the order


def test_the_log_is_held_before_anything_is_looked_at_and_its_end_is_read_last(world: World) -> None:
    resolved = world.resolver.now([ORDERS])

    assert world.looks == ["hold", "ledger", "load lake.orders", "durable", "hold", "release"]
    assert world.held == [(7, (1,))], "of the first hold nothing is left"
    resolved.hold.release()
    assert world.held == []


def test_a_state_is_loaded_before_its_changes(world: World) -> None:
    world.tables = {
        "lake.customers": state(snapshot(1, lsn=4)),
        "lake.customers_changes": state(snapshot(2, lsn=6)),
    }

    resolved = world.resolver.now([CUSTOMERS])

    loads = [look for look in world.looks if look.startswith("load")]
    assert loads[:2] == ["load lake.customers", "load lake.customers_changes"]
    plan = resolved.plans[1]
    assert plan.base is not None and plan.base.lsn_to == 4
    assert [(part.lsn_from, part.lsn_to) for part in plan.tables] == [(4, 6)] and plan.tail == (6, 10)
    assert resolved.cut.topics == (TopicCut(TOPIC_ID, 2, 6, 1, 4),)
    assert world.held == [(7, (1, 2))]


def test_what_lands_between_two_looks_is_in_the_view(world: World) -> None:
    def land() -> None:
        world.tables["lake.orders"] = state(snapshot(1, lsn=6), snapshot(2, 1, lsn=12))
        world.durable = 12

    world.before["load lake.orders"] = land

    assert world.resolver.now([ORDERS]).cut.lsn == 12


def test_the_first_hold_is_let_go_of_whatever_happens(world: World) -> None:
    def trouble() -> None:
        raise Unavailable("the catalog answered 503")

    world.before["load lake.orders"] = trouble

    with pytest.raises(Unavailable):
        world.resolver.now([ORDERS])
    assert world.held == []


def test_where_nothing_is_read_of_the_log_the_pin_is_for_the_snapshots_alone(world: World) -> None:
    world.durable = 6

    world.resolver.now([ORDERS])

    assert world.held == [(FAR_LSN, (1,))]


def test_topics_together_hold_the_lowest_of_what_they_need_and_are_at_one_cut(world: World) -> None:
    resolved = world.resolver.now([ORDERS, PLAIN])

    assert {number: plan.tail for number, plan in resolved.plans.items()} == {1: (6, 10), 2: (0, 10)}
    assert resolved.cut.topic(PLAIN.topic_id.hex()) == TopicCut(PLAIN.topic_id.hex(), log_rows=5)
    assert world.held == [(1, (1,))]


def test_topics_without_tables_need_neither_ledger_nor_catalog(world: World) -> None:
    world.resolver.now([PLAIN])

    assert world.looks == ["hold", "durable", "hold", "release"]


# ------------------------------------------------------------------------------------------- at another point


def test_a_cut_comes_back_as_it_was(world: World) -> None:
    cut = world.resolver.now([ORDERS]).cut
    world.durable = 20
    world.tables["lake.orders"] = state(snapshot(1, lsn=6), snapshot(2, 1, lsn=15))

    resolved = world.resolver.at([ORDERS], cut)

    assert resolved.cut == cut
    assert [(part.snapshot_id, part.lsn_from, part.lsn_to) for part in resolved.plans[1].parts] == [
        (1, 0, 6),
        (2, 6, 10),
    ]


def test_an_lsn_makes_a_cut_that_names_a_snapshot_only_where_it_shows_nothing_later(world: World) -> None:
    early, late = world.resolver.at_lsn([ORDERS], 4).cut, world.resolver.at_lsn([ORDERS], 8).cut

    assert early.topics == (TopicCut(TOPIC_ID),)
    assert late.topics == (TopicCut(TOPIC_ID, 1, 6),)
    assert world.resolver.at_lsn([ORDERS], 4).plans[1].tail == (4, 4)


def test_a_table_that_is_not_there_yet_leaves_the_log(world: World) -> None:
    world.tables.clear()

    resolved = world.resolver.now([ORDERS])

    assert resolved.plans[1].parts == () and resolved.cut.topics == (TopicCut(TOPIC_ID),)


def test_a_table_without_a_snapshot_is_in_no_cut(world: World) -> None:
    world.tables["lake.orders"] = state()

    assert world.resolver.now([ORDERS]).cut.topics == (TopicCut(TOPIC_ID),)


def test_a_point_that_the_log_has_not_come_to_is_refused(world: World) -> None:
    with pytest.raises(InvalidRequest, match="has not come to this point"):
        world.resolver.at_lsn([ORDERS], 11)
    assert world.held == []


def test_a_cut_of_another_log_is_refused(world: World) -> None:
    cut = Cut("ff" * 16, 5, 1, (TopicCut(TOPIC_ID),))

    with pytest.raises(InvalidRequest, match="another log"):
        world.resolver.at([ORDERS], cut)


def test_a_log_that_has_no_id_yet_takes_any_cut_of_what_it_has_not_come_to(world: World) -> None:
    world.log_id, world.durable, world.tables = "", 0, {}

    assert world.resolver.at([ORDERS], Cut("", 0, 1, (TopicCut(TOPIC_ID),))).cut.lsn == 0


def test_a_cut_without_the_topic_is_refused(world: World) -> None:
    cut = world.resolver.now([ORDERS]).cut

    with pytest.raises(InvalidRequest, match="not in this cut"):
        world.resolver.at([ORDERS, PLAIN], cut)


# ----------------------------------------------------------------------------------------- what is gone is told


def test_what_a_rolled_back_table_lacks_is_read_from_the_log_where_it_has_it(world: World) -> None:
    world.verified = 9

    assert tail(world) == (6, 10)
    assert "holds all (6, 9]" in world.looks


def test_what_a_rolled_back_table_lacks_and_the_log_too_is_a_halt(world: World) -> None:
    world.verified, world.holds_everything = 9, False

    with pytest.raises(LandingHalted, match="rolled back or replaced") as halt:
        world.resolver.now([ORDERS])

    assert halt.value.cause == "gap" and world.held == []


def test_a_point_that_the_table_covers_needs_nothing_of_the_log(world: World) -> None:
    world.verified, world.holds_everything = 9, False

    assert world.resolver.at_lsn([ORDERS], 6).plans[1].tail == (6, 6)


def test_rows_of_a_topic_without_a_table_that_went_since_a_cut_make_it_expire(world: World) -> None:
    cut = world.resolver.now([PLAIN]).cut
    world.resolver.at([PLAIN], cut)
    world.rows = 4

    with pytest.raises(CutExpired, match="cleaned up"):
        world.resolver.at([PLAIN], cut)
    world.durable = 12
    with pytest.raises(CutExpired, match="cleaned up"):
        world.resolver.at([PLAIN], cut)


def test_an_lsn_of_a_topic_without_a_table_is_shown_only_where_nothing_went(world: World) -> None:
    assert world.resolver.at_lsn([PLAIN], 4).plans[2].tail == (0, 4)
    world.holds_everything = False

    with pytest.raises(CutExpired, match="cleaned up"):
        world.resolver.at_lsn([PLAIN], 4)
    assert world.resolver.now([PLAIN]).plans[2].tail == (0, 10)


def test_changes_past_their_retention_make_an_old_point_expire(world: World) -> None:
    world.tables = {
        "lake.customers": state(snapshot(1, lsn=8)),
        "lake.customers_changes": state(snapshot(2, lsn=8), properties={FORGOTTEN: "7"}),
    }

    with pytest.raises(CutExpired, match="past their retention"):
        world.resolver.at_lsn([CUSTOMERS], 5)
    assert world.resolver.now([CUSTOMERS]).plans[1].tail == (8, 10)


def test_a_merge_and_its_retention_between_two_looks_do_not_make_now_expire(world: World) -> None:
    world.tables = {
        "lake.customers": state(snapshot(1, lsn=4)),
        "lake.customers_changes": state(snapshot(2, lsn=8)),
    }

    def merge_and_forget() -> None:
        world.tables = {
            "lake.customers": state(snapshot(1, lsn=4), snapshot(3, 1, lsn=8)),
            "lake.customers_changes": state(snapshot(2, lsn=8), snapshot(4, 2), properties={FORGOTTEN: "8"}),
        }

    world.before["load lake.customers_changes"] = merge_and_forget

    plan = world.resolver.now([CUSTOMERS]).plans[1]

    assert plan.base is not None and plan.base.lsn_to == 8 and plan.tail == (8, 10)


def test_tables_that_do_not_agree_however_often_they_are_loaded_make_now_expire(world: World) -> None:
    world.tables = {
        "lake.customers": state(snapshot(1, lsn=4)),
        "lake.customers_changes": state(snapshot(2, lsn=8), properties={FORGOTTEN: "8"}),
    }

    with pytest.raises(CutExpired, match="past their retention"):
        world.resolver.now([CUSTOMERS])

    assert 2 <= world.looks.count("load lake.customers") <= 10


def test_changes_that_are_not_there_yet_are_asked_for_once(world: World) -> None:
    world.tables = {}

    assert world.resolver.now([CUSTOMERS]).plans[1].tail == (0, 10)
    assert world.looks.count("load lake.customers_changes") == 1
