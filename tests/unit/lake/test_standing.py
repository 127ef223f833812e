"""What a table says, compared with what the ledger says: on real tables, and with what others do to them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.errors import LandingHalted, Unavailable
from headwater.lake.ledger_records import Decided, Landed
from headwater.lake.ledger_state import TopicLedger
from headwater.lake.shape import table_shape
from headwater.lake.source import EngineSource
from headwater.lake.standing import Decisions, Reading, TableReader
from tests.unit.lake.small_lakes import ForgetfulSource, Once, SmallLake, lakes, raising
from tests.unit.topics.small_engines import engine_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path)


@pytest.fixture
def landed(lake: SmallLake) -> SmallLake:
    """Three rows have landed, then two."""
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round()
    lake.append("orders", 2)
    lake.round()
    return lake


def read(
    lake: SmallLake, decisions: Decisions | None = None, *, source: EngineSource | None = None, known: Any = None
) -> Reading:
    topic = lake.record("orders")
    reader = TableReader(source or lake.source(), lake.clock, decisions or Decisions())
    connections: list[Any] = []

    def connect() -> Any:
        connections.append(lake.connect())
        return connections[-1]

    try:
        return reader.read(connect, topic, table_shape(topic), known or lake.known().copy())
    finally:
        for connection in connections:
            connection.close()


def halt_of(lake: SmallLake, decisions: Decisions | None = None, **options: Any) -> LandingHalted:
    with pytest.raises(LandingHalted) as halted:
        read(lake, decisions, **options)
    return halted.value


SAID_SO = Decisions(after_rollback=frozenset({"orders"}))


def first_snapshot(lake: SmallLake) -> int:
    """Of the older of the two landings."""
    head = lake.state().head()
    assert head is not None and head.parent_id is not None
    return head.parent_id


# Equal, ahead ---------------------------------------------------------------------------------------------------------


def test_a_table_that_is_not_there_is_made(lake: SmallLake) -> None:
    lake.topic("orders")

    reading = read(lake)

    assert (reading.standing.landed_lsn, reading.records, reading.owed) == (0, (), None)
    assert lake.state().uuid == reading.state.uuid


def test_a_table_that_says_what_the_ledger_says_goes_on(landed: SmallLake) -> None:
    reading = read(landed)

    assert reading.standing.landed_lsn == landed.known().landed_lsn > 0
    assert (reading.records, reading.owed) == ((), None)


def test_landings_that_nobody_wrote_down_are_adopted_the_oldest_first(landed: SmallLake) -> None:
    records = read(landed, known=TopicLedger()).records

    assert all(isinstance(record, Landed) and record.adopted for record in records)
    assert [(each.lsn_from, each.lsn_to, each.rows) for each in records if isinstance(each, Landed)] == [
        (0, 3, 3),
        (3, 4, 2),
    ]
    first = records[0]
    assert isinstance(first, Landed)
    assert [column.field_id for column in first.columns] == [1, 2, 3, 4, 5, 6]
    assert first.total == next(each.total for each in landed.records() if isinstance(each, Landed))


def test_a_landing_whose_snapshot_has_expired_is_adopted_by_the_property(landed: SmallLake) -> None:
    landed.foreign_append()
    landed.expire_all_but_head()

    reading = read(landed, known=TopicLedger())

    assert reading.standing.by_property
    (record,) = reading.records
    assert isinstance(record, Landed)
    assert (record.lsn_from, record.lsn_to) == (3, 4)


def test_a_property_that_the_ledger_knows_is_not_adopted_again(landed: SmallLake) -> None:
    landed.foreign_append()
    landed.expire_all_but_head()

    assert read(landed).records == ()


# Behind ---------------------------------------------------------------------------------------------------------------


def test_a_rolled_back_table_halts_and_says_what_to_do(landed: SmallLake) -> None:
    landed.rollback(first_snapshot(landed))

    halt = halt_of(landed)

    assert halt.cause == "gap"
    assert "rolled back" in halt.message and "--after-rollback" in halt.message
    assert (halt.facts["table_lsn"], halt.facts["ledger_lsn"]) == (3, 4)


def test_a_rolled_back_table_lands_again_if_a_person_said_so_and_the_log_has_it_all(landed: SmallLake) -> None:
    landed.rollback(first_snapshot(landed))

    reading = read(landed, SAID_SO)

    (record,) = reading.records
    assert isinstance(record, Decided)
    assert (record.act, record.lsn, record.lsn_before) == ("after-rollback", 3, 4)
    assert record.table_uuid == reading.state.uuid
    assert reading.owed is not None
    assert (reading.owed.lsn_to, reading.owed.rows) == (4, 2)


def test_a_landing_that_came_late_into_a_rolled_back_table_is_verified_before_the_log_forgets_it(
    landed: SmallLake,
) -> None:
    """The ledger knows another landing of these rows, which went with the rollback; then a request that was thought
    lost was applied to what was left."""
    known = landed.known().copy()
    first_lsn, last_lsn = known.verified[0][0], known.landed_lsn
    known.verified, known.unverified, known.landed_lsn = known.verified[:1], {}, last_lsn + 1

    reading = read(landed, SAID_SO, known=known)

    decided, adopted = reading.records
    assert isinstance(decided, Decided) and (decided.act, decided.lsn) == ("after-rollback", first_lsn)
    assert isinstance(adopted, Landed) and (adopted.lsn_from, adopted.lsn_to) == (first_lsn, last_lsn)
    assert reading.standing.landed_lsn == last_lsn


@pytest.mark.parametrize("held", [0, 1, 3])
def test_a_log_that_has_let_go_of_rows_halts_whatever_a_person_said(landed: SmallLake, held: int) -> None:
    landed.rollback(first_snapshot(landed))

    halt = halt_of(landed, SAID_SO, source=ForgetfulSource(landed, held))

    assert halt.cause == "gap"
    assert f"lacks 2 rows that had landed, and the log still holds {held}" in halt.message


def test_a_log_that_was_rewritten_and_still_has_as_many_rows_has_them_all(landed: SmallLake) -> None:
    landed.rollback(first_snapshot(landed))

    assert read(landed, SAID_SO, source=ForgetfulSource(landed, 2)).standing.landed_lsn == 3


def test_a_stale_answer_of_a_cache_is_asked_again_before_anything_is_said(landed: SmallLake) -> None:
    # Given a table that shows an older head when it is first loaded.
    head = landed.state().head()
    assert head is not None
    older = head.parent_id
    landed.before["load"] = Once(lambda: landed.rollback(older))
    landed.after["load"] = Once(lambda: landed.rollback(head.snapshot_id))

    reading = read(landed)

    assert landed.calls.count("load") >= 2
    assert (reading.standing.landed_lsn, reading.records) == (4, ())


# Gone, or another one -------------------------------------------------------------------------------------------------


def test_a_dropped_table_halts_and_is_not_made_again(landed: SmallLake) -> None:
    landed.drop()

    halt = halt_of(landed)

    assert halt.cause == "gap"
    assert "is gone" in halt.message
    assert "create" not in landed.calls[landed.calls.index("commit") + 1 :]


def test_a_dropped_table_is_made_again_if_a_person_said_so(landed: SmallLake) -> None:
    landed.drop()

    reading = read(landed, SAID_SO)

    assert reading.standing.landed_lsn == 0
    assert reading.owed is not None and reading.owed.rows == 5
    assert isinstance(reading.records[0], Decided)


def test_where_the_log_lacks_rows_no_empty_table_is_put_in_the_place_of_a_dropped_one(landed: SmallLake) -> None:
    landed.drop()
    created = landed.calls.count("create")

    halt = halt_of(landed, SAID_SO, source=ForgetfulSource(landed, 4))

    assert halt.cause == "gap"
    assert landed.calls.count("create") == created


def test_a_table_that_was_dropped_and_made_again_is_another_one(landed: SmallLake) -> None:
    landed.drop()
    connection = landed.connect()
    connection.create("lake.orders", table_shape(landed.record("orders")))
    connection.close()

    halt = halt_of(landed)

    assert halt.cause == "gap"
    assert "another table" in halt.message
    assert read(landed, SAID_SO).standing.landed_lsn == 0


# What a person says ---------------------------------------------------------------------------------------------------


def test_a_table_that_cannot_say_how_far_it_has_come_halts(landed: SmallLake) -> None:
    landed.forget_the_mark()

    assert halt_of(landed).cause == "mark-unproven"
    assert halt_of(landed, SAID_SO).cause == "mark-unproven"


def test_a_person_may_say_how_far_it_has_come(landed: SmallLake) -> None:
    landed.forget_the_mark()

    reading = read(landed, Decisions(landed_lsn={"orders": 4}))

    assert (reading.standing.landed_lsn, reading.standing.max_row_lsn, reading.standing.decided) == (4, 4, True)
    (record,) = reading.records
    assert isinstance(record, Decided)
    assert (record.act, record.lsn) == ("landed-lsn", 4)


def test_a_person_who_says_less_than_the_table_shows_is_not_believed(landed: SmallLake) -> None:
    landed.forget_the_mark()

    halt = halt_of(landed, Decisions(landed_lsn={"orders": 3}))

    assert halt.cause == "mark-unproven"
    assert "would land twice" in halt.message


def test_what_a_person_says_is_not_asked_for_where_the_table_says_it(landed: SmallLake) -> None:
    reading = read(landed, Decisions(landed_lsn={"orders": 1}))

    assert (reading.standing.landed_lsn, reading.standing.decided) == (4, False)


def test_a_person_who_says_less_than_the_ledger_needs_a_log_that_has_the_rest(landed: SmallLake) -> None:
    # Given a table from which the newest landing was deleted, and which cannot say how far it has come.
    landed.rollback(first_snapshot(landed))
    landed.forget_the_mark()

    said = Decisions(landed_lsn={"orders": 3})

    assert halt_of(landed, said, source=ForgetfulSource(landed, 0)).cause == "gap"
    assert read(landed, said).standing.landed_lsn == 3


def test_what_a_person_says_does_not_answer_another_halt(landed: SmallLake) -> None:
    class Elsewhere(EngineSource):
        log_id = "ff" * 16

    source = Elsewhere(engine_of(landed.log), str(landed.folder))

    halt = halt_of(landed, Decisions(landed_lsn={"orders": 3}), source=source)

    assert halt.cause == "foreign-mark"


# Trouble --------------------------------------------------------------------------------------------------------------


def test_a_catalog_that_does_not_answer_is_no_halt(landed: SmallLake) -> None:
    landed.before["load"] = raising(Unavailable("503"))

    with pytest.raises(Unavailable, match="503"):
        read(landed)


def test_a_landing_that_is_owed_is_asked_for_until_it_has_landed_again(landed: SmallLake) -> None:
    # Given a lander that wrote down what a person decided, and died.
    landed.rollback(first_snapshot(landed))
    landed.ledger.record(list(read(landed, SAID_SO).records))

    reading = read(landed)

    assert (reading.records, reading.owed is not None) == ((), True)
    assert halt_of(landed, source=ForgetfulSource(landed, 1)).cause == "gap"
