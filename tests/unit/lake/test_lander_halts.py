"""Rounds that meet a halt, what a person then decides, and a log that was put back: on real tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from headwater.errors import CorruptData, LandingHalted
from headwater.lake.ledger_records import Decided, HaltedLanding
from headwater.lake.runner import InProcess
from headwater.lake.source import EngineSource
from headwater.lake.work import Done, Work
from tests.unit.lake.small_lakes import (
    ForgetfulSource,
    NoReadBack,
    SmallLake,
    lakes,
    of_kind,
    outcomes,
    raising,
)
from tests.unit.topics.small_engines import engine_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path)


# Halts ----------------------------------------------------------------------------------------------------------------


def rolled_back(lake: SmallLake, *, verify: bool = True) -> SmallLake:
    """Landed three rows, then two, and set back to the first landing."""
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round()
    lake.append("orders", 2)
    lake.round(runner=InProcess() if verify else NoReadBack())
    head = lake.state().head()
    assert head is not None
    lake.rollback(head.parent_id)
    return lake


@pytest.mark.parametrize("verify", [True, False], ids=["verified", "not verified"])
def test_a_halt_is_written_down_once_however_many_rounds_meet_it(lake: SmallLake, verify: bool) -> None:
    rolled_back(lake, verify=verify).append("orders", 1)

    first = lake.round()
    told = lake.told()
    rounds = [first, *(lake.round() for _ in range(3))]

    assert [(each["orders"].outcome, each["orders"].cause) for each in rounds] == [("halted", "gap")] * 4
    assert lake.told() == told
    assert told.count("halted") == 1


def test_a_topic_that_cannot_be_verified_and_has_nothing_new_is_not_begun_again(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round(runner=NoReadBack())
    lake.files()[0].unlink()

    first = lake.round()
    told = lake.told()
    again = lake.round()

    assert (first["orders"].outcome, first["orders"].cause) == ("halted", "verification")
    assert again["orders"] == first["orders"]
    assert lake.told() == told


def test_two_halts_at_once_are_both_reported_and_do_not_take_turns_in_the_ledger(lake: SmallLake) -> None:
    # Given a landing whose file is gone, and a table that new rows do not fit any more.
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round(runner=NoReadBack())
    lake.files()[0].unlink()
    lake.round()
    lake.append("orders", 1)
    lake.before["fit"] = raising(LandingHalted("schema", "it does not fit"), times=100)

    report = lake.round()
    told = lake.told()
    lake.round()

    assert report["orders"].cause == "schema"
    known = lake.known().halted
    assert known is not None and known.cause == "verification"
    assert lake.told() == told


def test_a_halt_that_is_over_is_gone_from_the_ledger(lake: SmallLake) -> None:
    rolled_back(lake).append("orders", 1)
    lake.round()
    last = lake.known().last
    assert last is not None

    lake.rollback(last.snapshot)
    report = lake.round()

    assert report["orders"].outcome == "landed"
    assert lake.known().halted is None
    assert lake.values() == [0, 1, 2, 3, 4, 5]


def test_a_halt_that_is_over_without_new_rows_is_gone_too(lake: SmallLake) -> None:
    rolled_back(lake).append("orders", 1)
    last = lake.known().last
    assert last is not None
    lake.round()
    lake.rollback(last.snapshot)
    lake.round()
    said = HaltedLanding(
        topic_id=lake.record("orders").topic_id.hex(), table="lake.orders", cause="gap", message="once", at_us=1
    )
    lake.ledger.record([said])

    report = lake.round()

    assert (report["orders"].outcome, lake.known().halted) == ("nothing", None)


# Decisions ------------------------------------------------------------------------------------------------------------


def test_what_was_rolled_back_lands_again_if_a_person_says_so_although_there_is_nothing_new(lake: SmallLake) -> None:
    rolled_back(lake)
    assert lake.round()["orders"].outcome == "nothing"

    report = lake.round(after_rollback=["orders"])

    assert (report["orders"].outcome, report["orders"].rows) == ("landed", 2)
    assert lake.values() == [0, 1, 2, 3, 4]
    assert [(each.act, each.lsn, each.lsn_before) for each in of_kind(lake, Decided)] == [("after-rollback", 3, 4)]
    assert report["orders"].verified


def test_rows_that_the_log_lets_go_of_while_they_are_read_are_not_landed_over(lake: SmallLake) -> None:
    # Given a log that has everything when the table is read, and nothing when the tasks have read it.
    rolled_back(lake)
    source = ForgetfulSource(lake, 2)

    class Slow(InProcess):
        def run(self, works: Sequence[Work]) -> Iterator[Done]:
            yield from super().run(works)
            source.held = 0

    report = lake.round(after_rollback=["orders"], source=source, runner=Slow())

    assert (report["orders"].outcome, report["orders"].cause) == ("halted", "gap")
    assert lake.values() == [0, 1, 2]
    # And it is still owed, without the person's word.
    assert lake.round(source=source)["orders"].cause == "gap"
    assert lake.round()["orders"].outcome == "landed"


def test_a_log_that_cannot_tell_whether_it_has_them_fails_that_topic_alone(lake: SmallLake) -> None:
    rolled_back(lake)
    lake.topic("clicks")
    lake.append("clicks", 1)
    source = ForgetfulSource(lake, 2)

    class Damaging(InProcess):
        def run(self, works: Sequence[Work]) -> Iterator[Done]:
            yield from super().run(works)
            source.held = CorruptData("a frame cannot be read")

    report = lake.round(after_rollback=["orders"], source=source, runner=Damaging())

    assert outcomes(report) == {"orders": "failed", "clicks": "landed"}


def test_what_a_person_says_of_a_table_is_left_in_it_as_a_mark_although_there_is_nothing_new(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round()
    lake.forget_the_mark()

    report = lake.round(landed_lsn={"orders": 3})

    assert (report["orders"].outcome, report["orders"].rows) == ("landed", 0)
    lake.append("orders", 1)
    assert lake.round()["orders"].outcome == "landed"
    assert lake.values() == [-1, 0, 1, 2, 3]


# Another log ----------------------------------------------------------------------------------------------------------


class PutBack(EngineSource):
    """A log that was restored from a copy that was made at an LSN."""

    def __init__(self, lake: SmallLake, durable_lsn: int, chain: str = "") -> None:
        super().__init__(engine_of(lake.log), str(lake.folder))
        self._durable_lsn = durable_lsn
        self._chain = chain

    def durable_lsn(self) -> int:
        return self._durable_lsn

    def chain_at(self, lsn: int) -> str:
        return self._chain


def test_a_log_that_ends_before_what_has_landed_was_put_back(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round()
    lake.append("orders", 1)

    report = lake.round(source=PutBack(lake, 2))

    assert (report["orders"].outcome, report["orders"].cause) == ("halted", "log-behind")


def test_a_log_that_was_put_back_and_has_grown_past_the_table_is_known_by_its_chain(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round()
    lake.append("orders", 1)

    report = lake.round(source=PutBack(lake, 4, chain="another history"))

    assert (report["orders"].outcome, report["orders"].cause) == ("halted", "log-behind")


def test_a_log_that_no_longer_has_the_frame_is_believed(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round()
    lake.append("orders", 1)

    assert lake.round(source=PutBack(lake, 4))["orders"].outcome == "landed"


def test_a_frame_that_cannot_be_read_when_the_mark_is_made_fails_that_topic(lake: SmallLake) -> None:
    class Unreadable(EngineSource):
        def chain_at(self, lsn: int) -> str:
            raise CorruptData("a frame cannot be read")

    lake.topic("orders")
    lake.append("orders", 3)

    report = lake.round(source=Unreadable(engine_of(lake.log), str(lake.folder)))

    assert report["orders"].outcome == "failed"
    assert lake.known().in_flight == {}
