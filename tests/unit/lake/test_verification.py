"""Only what was read back, or is named on main, is ever released: on real tables, with what may happen in between."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headwater.errors import Unavailable
from headwater.lake.connections import Connections
from headwater.lake.ledger_records import Decided, HaltedLanding, Landed, Verified
from headwater.lake.runner import InProcess
from headwater.lake.standing import Decisions
from headwater.lake.verification import FILES_PER_ITEM, Verdict, Verifying
from headwater.lake.work import Done, LandWork, ReadBackDone, ReadBackWork, Work
from tests.unit.lake.ledger_entries import halted
from tests.unit.lake.small_lakes import NoReadBack, SmallLake, lakes, only_for, raising


class Forgetful(InProcess):
    """Gives back less than it was asked for."""

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        return iter(list(super().run(works))[:-1])


class Backwards(InProcess):
    """Gives back what was done in another order than it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.works: list[Work] = []

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        self.works.extend(works)
        return reversed(list(super().run(works)))


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path)


def land(lake: SmallLake, *names: str, count: int = 3) -> None:
    """Land some rows of these topics, and verify nothing."""
    for name in names or ("orders",):
        if name not in lake.log:
            lake.topic(name)
        lake.append(name, count)
    report = lake.round(runner=NoReadBack())
    assert {report[name].outcome for name in names or ("orders",)} == {"landed"}


def verify(
    lake: SmallLake,
    *names: str,
    mode: Any = "read-back",
    runner: Any = None,
    landed_lsn: dict[str, int] | None = None,
) -> list[Verdict]:
    topics = [lake.record(name) for name in names or ("orders",)]
    connections = Connections(lake.connect, 1)
    verifying = Verifying(
        connections,
        runner or InProcess(),
        lake.ledger,
        lake.clock,
        lake.source().log_id,
        Decisions(landed_lsn=landed_lsn or {}),
    )
    verdicts = verifying.verify(topics, mode)
    return [verdicts[topic.number] for topic in topics]


def halts(lake: SmallLake) -> list[str]:
    return [each.cause for each in lake.records() if isinstance(each, HaltedLanding)]


# It is what was written -----------------------------------------------------------------------------------------------


def test_landings_that_are_what_was_written_are_verified_in_order(lake: SmallLake) -> None:
    land(lake)
    land(lake)
    lake.clock.advance(60)

    (verdict,) = verify(lake)

    assert verdict == Verdict(verified=True)
    found = [each for each in lake.records() if isinstance(each, Verified)]
    assert [(each.lsn_to, each.mode, each.at_us) for each in found] == [
        (3, "read-back", lake.clock.now_us()),
        (4, "read-back", lake.clock.now_us()),
    ]
    assert (lake.known().verified_lsn, lake.known().unverified) == (4, {})


def test_where_nothing_is_to_be_verified_nothing_is_asked_and_nothing_written(lake: SmallLake) -> None:
    land(lake)
    verify(lake)
    told, calls = lake.told(), list(lake.calls)

    (verdict,) = verify(lake)

    assert verdict == Verdict(verified=True)
    assert (lake.told(), lake.calls) == (told, calls)


def test_a_landing_of_many_files_is_read_in_several_items_that_come_back_in_any_order(lake: SmallLake) -> None:
    lake.topic("orders", partition_by="x")
    land(lake, count=FILES_PER_ITEM + 2)
    land(lake, count=2)
    runner = Backwards()

    (verdict,) = verify(lake, runner=runner)

    assert verdict.verified
    assert [len(work.files) for work in runner.works if isinstance(work, ReadBackWork)] == [FILES_PER_ITEM, 2, 2]


def test_a_landing_is_what_was_written_also_when_the_topic_has_grown_a_column_since(lake: SmallLake) -> None:
    land(lake)
    lake.log["orders"].alter(schema=pa.schema([("x", pa.int64()), ("note", pa.string())]))
    lake.log["orders"].append([{"x": 9, "note": "new"}])
    assert lake.round(runner=NoReadBack())["orders"].outcome == "landed"

    (verdict,) = verify(lake)

    assert verdict == Verdict(verified=True)


def test_a_landing_whose_snapshot_has_expired_is_verified_by_its_rows(lake: SmallLake) -> None:
    land(lake)
    land(lake)
    lake.foreign_append()
    lake.expire_all_but_head()

    (verdict,) = verify(lake)

    assert verdict.verified
    assert lake.known().verified_lsn == 4


def test_a_landing_that_was_adopted_is_verified_by_what_its_mark_says(lake: SmallLake) -> None:
    # Given a ledger that was lost, and a round that found the landing in the table.
    land(lake)
    lake.rewrite_ledger(lambda record: False)
    land(lake)
    found = [each for each in lake.records() if isinstance(each, Landed)]
    assert [(each.adopted, each.digest is None) for each in found] == [(True, True), (False, False)]

    (verdict,) = verify(lake)

    assert verdict.verified
    assert lake.known().verified_lsn == 4


# It is not ------------------------------------------------------------------------------------------------------------


def test_a_missing_file_halts_by_name_and_holds_up_what_is_behind_it(lake: SmallLake) -> None:
    land(lake)
    (first,) = lake.files()
    land(lake)
    first.unlink()

    (verdict,) = verify(lake)

    assert verdict.halt is not None
    assert verdict.halt.cause == "verification"
    assert "up to lsn 3" in verdict.halt.message and first.name in verdict.halt.message
    assert (halts(lake), lake.known().verified_lsn) == (["verification"], 0)


def test_what_is_before_a_missing_file_is_verified(lake: SmallLake) -> None:
    land(lake)
    (first,) = lake.files()
    land(lake)
    (second,) = set(lake.files()) - {first}
    second.unlink()

    (verdict,) = verify(lake)

    assert verdict.halt is not None
    assert lake.known().verified_lsn == 3
    assert lake.known().halted is not None


def test_a_file_with_other_rows_is_noticed_by_its_digest(lake: SmallLake) -> None:
    land(lake)
    (path,) = lake.files()
    rows = pq.read_table(path)
    changed = rows.set_column(0, rows.schema.field(0), pa.array([0, 1, 99], pa.int64()))
    pq.write_table(changed, path)

    (verdict,) = verify(lake)

    assert verdict.halt is not None
    assert verdict.halt.cause == "verification"
    assert "3 rows with digest" in verdict.halt.message


def test_a_halt_is_written_once_and_gone_when_the_landing_can_be_verified(lake: SmallLake) -> None:
    land(lake)
    (path,) = lake.files()
    kept = path.read_bytes()
    path.unlink()
    for _ in range(3):
        verify(lake)
    assert halts(lake) == ["verification"]

    path.write_bytes(kept)
    (verdict,) = verify(lake)

    assert verdict.verified
    assert lake.known().halted is None


# Between landing and verification -------------------------------------------------------------------------------------


def test_a_table_that_was_rolled_back_in_between_is_a_gap(lake: SmallLake) -> None:
    land(lake)
    land(lake)
    head = lake.state().head()
    assert head is not None
    lake.rollback(head.parent_id)

    (verdict,) = verify(lake)

    assert verdict.halt is not None
    assert (verdict.halt.cause, halts(lake)) == ("gap", ["gap"])
    assert lake.known().verified_lsn == 3


def test_a_table_that_is_gone_is_a_gap(lake: SmallLake) -> None:
    land(lake)
    lake.drop()

    (verdict,) = verify(lake)

    assert verdict.halt is not None
    assert verdict.halt.cause == "gap"


def test_a_gap_that_was_written_down_in_other_words_is_not_written_again(lake: SmallLake) -> None:
    land(lake)
    said = halted("gap", "the table of 'orders' was rolled back or replaced")
    lake.ledger.record([msgspec.structs.replace(said, topic_id=lake.record("orders").topic_id.hex())])
    lake.drop()

    verify(lake)

    assert halts(lake) == ["gap"]


def test_a_table_that_cannot_say_how_far_it_has_come_halts(lake: SmallLake) -> None:
    land(lake)
    lake.forget_the_mark()

    (verdict,) = verify(lake)

    assert verdict.halt is not None
    assert verdict.halt.cause == "mark-unproven"


def test_a_landing_that_was_not_written_down_keeps_what_is_above_it_from_being_verified(lake: SmallLake) -> None:
    # Given three landings, the first of them verified, of which the ledger does not know the second.
    land(lake)
    verify(lake)
    land(lake)
    land(lake)
    lake.rewrite_ledger(lambda record: not (isinstance(record, Landed) and record.lsn_to == 4))

    (verdict,) = verify(lake)

    assert lake.known().hole_lsn == 3
    assert verdict.halt is not None
    assert verdict.halt.cause == "verification"
    assert "after lsn 3 was not written down" in verdict.halt.message


@pytest.mark.parametrize("said", [4, 5])
def test_a_person_who_has_looked_answers_for_a_landing_that_cannot_be_verified(lake: SmallLake, said: int) -> None:
    land(lake)
    land(lake)
    lake.files()[0].unlink()

    verify(lake, landed_lsn={"orders": said})

    decided = [each for each in lake.records() if isinstance(each, Decided)]
    assert [(each.act, each.lsn) for each in decided] == [("landed-lsn", 4)]
    assert lake.known().verified_lsn == 4
    assert lake.known().unverified == {}


def test_an_answer_below_what_has_landed_is_none(lake: SmallLake) -> None:
    land(lake)
    land(lake)
    lake.files()[0].unlink()

    verify(lake, landed_lsn={"orders": 3})

    assert halts(lake) == ["verification"]


# Metadata -------------------------------------------------------------------------------------------------------------


def test_by_metadata_nothing_is_read_and_that_is_said(lake: SmallLake) -> None:
    land(lake)

    (verdict,) = verify(lake, mode="metadata", runner=NoReadBack())

    assert verdict.verified
    assert [each.mode for each in lake.records() if isinstance(each, Verified)] == ["metadata"]


def test_by_metadata_a_landing_that_is_not_on_main_is_noticed(lake: SmallLake) -> None:
    land(lake)
    land(lake)
    head = lake.state().head()
    assert head is not None
    lake.rollback(head.parent_id)

    (verdict,) = verify(lake, mode="metadata")

    assert verdict.halt is not None
    assert verdict.halt.cause == "gap"


def test_by_metadata_the_files_on_this_disk_are_synced_and_one_that_is_gone_is_noticed(lake: SmallLake) -> None:
    land(lake)
    (path,) = lake.files()
    path.unlink()

    (verdict,) = verify(lake, mode="metadata")

    assert not verdict.verified
    assert path.name in verdict.message
    assert lake.known().verified_lsn == 0


# Trouble --------------------------------------------------------------------------------------------------------------


def test_where_a_task_gave_nothing_back_nothing_is_verified_this_time(lake: SmallLake) -> None:
    land(lake)
    land(lake)

    (verdict,) = verify(lake, runner=Forgetful())

    assert not verdict.verified and verdict.halt is None
    assert "not every task gave back" in verdict.message
    assert not any(isinstance(each, Verified) for each in lake.records())
    assert verify(lake) == [Verdict(verified=True)]


def test_without_workers_nothing_is_verified_this_time_and_nothing_is_halted(lake: SmallLake) -> None:
    land(lake)
    told = lake.told()

    (verdict,) = verify(lake, runner=NoReadBack())

    assert verdict == Verdict(message=verdict.message)
    assert "the workers are gone" in verdict.message
    assert lake.told() == told


class Troubled(InProcess):
    """Says of each item what a test wants it to say."""

    def __init__(self, *told: dict[str, str]) -> None:
        super().__init__()
        self._told = list(told)

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        for done in super().run(works):
            assert isinstance(done, ReadBackDone)
            yield msgspec.structs.replace(done, **self._told.pop(0))


def test_files_that_nobody_could_look_at_are_no_halt_and_are_read_the_next_time(lake: SmallLake) -> None:
    land(lake)

    (verdict,) = verify(lake, runner=Troubled({"unread": "the scratch disk is full"}))

    assert (verdict.verified, verdict.halt, halts(lake)) == (False, None, [])
    assert "the scratch disk is full" in verdict.message
    assert verify(lake) == [Verdict(verified=True)]


@pytest.mark.parametrize("told", [({"error": "gone"}, {"unread": "?"}), ({"unread": "?"}, {"error": "gone"})])
def test_what_is_wrong_with_a_file_counts_more_than_that_another_could_not_be_read(
    lake: SmallLake, told: tuple[dict[str, str], ...]
) -> None:
    lake.topic("orders", partition_by="x")
    land(lake, count=FILES_PER_ITEM + 1)

    (verdict,) = verify(lake, runner=Troubled(*told))

    assert verdict.halt is not None
    assert "gone" in verdict.halt.message


@pytest.mark.parametrize("error", [Unavailable("503"), OSError("no route"), KeyError("odd")])
def test_one_topics_trouble_never_stops_the_others(lake: SmallLake, error: Exception) -> None:
    land(lake, "orders", "clicks")
    lake.before["load"] = only_for("orders", raising(error, times=10))

    orders, clicks = verify(lake, "orders", "clicks")

    assert not orders.verified and orders.halt is None
    assert type(error).__name__ in orders.message
    assert clicks == Verdict(verified=True)
    assert (lake.known("orders").verified_lsn, lake.known("clicks").verified_lsn > 0) == (0, True)


def test_only_works_of_one_kind_are_asked_for(lake: SmallLake) -> None:
    land(lake)
    runner = Backwards()

    verify(lake, runner=runner)

    assert not [work for work in runner.works if isinstance(work, LandWork)]
    assert {work.number for work in runner.works if isinstance(work, ReadBackWork)} == {lake.record("orders").number}
