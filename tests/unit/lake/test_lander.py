"""Rounds of landing: a real log, tables in SQLite, a real ledger; and what may go wrong with one topic of several."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import LandingHalted, Unavailable
from headwater.lake.lander import Lander
from headwater.lake.ledger_records import Begun, Ended, HaltedLanding, Landed
from headwater.lake.mark import mark_in_summary
from headwater.lake.report import LandingReport
from headwater.lake.runner import InProcess
from headwater.lake.tables import CommitRefused, CommitUncertain
from headwater.lake.work import Done, LandDone, LandWork, ReadBackWork, Work
from headwater.settings import LandingSettings
from tests.unit.lake.small_lakes import (
    LOG,
    NARROW,
    SETTINGS,
    NoReadBack,
    Once,
    SmallLake,
    lakes,
    of_kind,
    only_for,
    outcomes,
    raising,
)
from tests.unit.topics.small_engines import engine_of


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path)


@pytest.fixture
def two(lake: SmallLake) -> SmallLake:
    """Two topics with rows, none of them landed."""
    for name in ("orders", "clicks"):
        lake.topic(name)
        lake.append(name, 3)
    return lake


class Spoiling(InProcess):
    """Does the work, and changes what it tells of it."""

    def __init__(self, spoil: Callable[[list[LandDone]], Sequence[LandDone]]) -> None:
        super().__init__()
        self._spoil = spoil

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        done = list(super().run(works))
        if works and isinstance(works[0], ReadBackWork):
            return iter(done)
        return iter(self._spoil([each for each in done if isinstance(each, LandDone)]))


class Gone(InProcess):
    """Workers that are gone when so many works are done."""

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self._after = after

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        for number, done in enumerate(super().run(works)):
            if number == self._after and isinstance(works[0], LandWork):
                raise Unavailable("the workers are gone")
            yield done


# A round --------------------------------------------------------------------------------------------------------------


def test_a_round_lands_what_is_there_writes_it_down_and_verifies_it(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)

    report = lake.round()

    told = report["orders"]
    assert (told.outcome, told.rows, told.lsn_from, told.lsn_to, told.files) == ("landed", 3, 0, 3, 1)
    assert told.verified and not told.adopted and told.bytes > 0
    assert (report.lsn_to, report.bytes_read > 0) == (3, True)
    assert lake.told() == ["begun", "intended", "landed", "verified"]
    assert lake.values() == [0, 1, 2]
    head = lake.state().head()
    assert head is not None and head.snapshot_id == told.snapshot
    mark = mark_in_summary(head.summary)
    assert mark is not None
    assert (mark.lsn_to, mark.rows, mark.epoch, mark.max_row_lsn, mark.chain != "") == (3, 3, 1, 3, True)


def test_an_idle_round_asks_no_catalog_and_writes_nothing_to_the_ledger(two: SmallLake) -> None:
    two.round()
    told, calls, connections = two.told(), list(two.calls), len(two.connections)

    reports = [two.round() for _ in range(3)]

    assert [outcomes(report) for report in reports] == [{"orders": "nothing", "clicks": "nothing"}] * 3
    assert all(each.verified for report in reports for each in report)
    assert (two.told(), two.calls, len(two.connections)) == (told, calls, connections)


def test_a_topic_without_rows_is_left_alone(lake: SmallLake) -> None:
    lake.topic("orders")

    assert outcomes(lake.round()) == {"orders": "nothing"}
    assert (lake.calls, lake.told()) == ([], [])


def test_each_round_goes_on_where_the_last_one_ended(lake: SmallLake) -> None:
    lake.topic("orders")
    for _ in range(3):
        lake.append("orders", 2)
        lake.round()

    landings = of_kind(lake, Landed)

    assert [each.lsn_from for each in landings] == [0, *(each.lsn_to for each in landings[:-1])]
    assert [each.epoch for each in landings] == [1, 2, 3]
    assert lake.values() == [0, 1, 2, 3, 4, 5]


def test_several_topics_are_landed_side_by_side_if_the_settings_say_so(lake: SmallLake) -> None:
    names = [f"topic{number}" for number in range(4)]
    for name in names:
        lake.topic(name)
        lake.append(name, 2)

    report = lake.round(settings=LandingSettings(commit_threads=4))

    assert set(outcomes(report).values()) == {"landed"}
    assert all(connection.closed for connection in lake.connections)


def test_a_round_reads_as_much_as_it_may_and_the_next_one_the_rest(tmp_path: Path) -> None:
    small = hw.Settings(log=replace(LOG, segment_size_bytes_max=4096, write_body_bytes_max=2048), journal=LOG,
                        upkeep_interval_s=0)  # fmt: skip
    for lake in lakes(tmp_path, small):
        lake.topic("orders")
        for _ in range(12):
            lake.append("orders", 20)
        settings = replace(NARROW, round_bytes_max=1)

        rounds = 0
        while lake.round(settings=settings)["orders"].outcome == "landed":
            rounds += 1

        assert rounds == len(engine_of(lake.log).shard.log.segments()) > 2
        assert lake.values() == list(range(240))


def test_the_event_time_that_was_reached_is_carried_forward(lake: SmallLake) -> None:
    schema = pa.schema([("x", pa.int64()), ("at", pa.timestamp("us", tz="UTC"))])
    lake.topic("orders", schema, time="at")
    seen = []
    for at_us in (0, -5, 7):
        lake.log["orders"].append(pa.table({"x": [1], "at": [at_us]}).cast(schema))
        lake.log["orders"].append(pa.table({"x": [1], "at": [at_us - 1]}).cast(schema))
        assert lake.round()["orders"].outcome == "landed"
        head = lake.state().head()
        assert head is not None
        mark = mark_in_summary(head.summary)
        assert mark is not None
        seen.append(mark.watermark_us)

    assert seen == [0, 0, 7]


def test_a_keyed_topic_lands_in_its_change_table(lake: SmallLake) -> None:
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False), pa.field("note", pa.string())])
    lake.topic("orders", schema, key="x", cleanup="compact")
    lake.log["orders"].append([{"x": 1, "note": "a"}])

    report = lake.round()

    assert (report["orders"].outcome, report["orders"].table) == ("landed", "lake.orders_changes")


def test_what_is_verified_by_metadata_is_said_so(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders")

    report = lake.round(verify="metadata")

    assert report["orders"].verified
    assert lake.records()[-1].mode == "metadata"  # type: ignore[union-attr]


# One topic's trouble --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["load", "create", "fit", "stage"])
@pytest.mark.parametrize("error", [Unavailable("503"), OSError("no route"), KeyError("odd")])
def test_one_topics_exception_of_any_kind_never_stops_the_others(two: SmallLake, verb: str, error: Exception) -> None:
    two.before[verb] = only_for("orders", raising(error, times=100))

    report = two.round()

    assert outcomes(report) == {"orders": "failed", "clicks": "landed"}
    assert type(error).__name__ in report["orders"].message
    assert two.known("orders").landed_lsn == 0
    # And it lands when the trouble is over.
    two.before.clear()
    assert outcomes(two.round()) == {"orders": "landed", "clicks": "nothing"}
    assert two.values("orders") == [0, 1, 2]


def test_a_halt_of_one_topic_never_stops_the_others(two: SmallLake) -> None:
    two.before["stage"] = only_for("orders", raising(LandingHalted("spec", "it is partitioned by what it lacks")))

    report = two.round()

    assert outcomes(report) == {"orders": "halted", "clicks": "landed"}
    assert report["orders"].cause == "spec"
    assert [each.cause for each in of_kind(two, HaltedLanding)] == ["spec"]


def test_a_topic_whose_rows_could_not_be_written_fails_alone_and_its_files_are_in_flight_no_more(
    two: SmallLake,
) -> None:
    number = two.record("orders").number

    def spoil(done: list[LandDone]) -> list[LandDone]:
        return [
            LandDone(
                tuple(
                    msgspec.structs.replace(part, error="the disk is full") if part.number == number else part
                    for part in each.topics
                )
            )
            for each in done
        ]

    report = two.round(runner=Spoiling(spoil))

    assert outcomes(report) == {"orders": "failed", "clicks": "landed"}
    assert report["orders"].message == "the disk is full"
    assert (two.known("orders").in_flight, two.known("orders").failures) == ({}, 1)


@pytest.mark.parametrize("after", [0, 1])
def test_when_the_workers_are_gone_nothing_counts_and_the_next_round_lands_it_once(two: SmallLake, after: int) -> None:
    settings = replace(NARROW, item_bytes=1)

    report = two.round(runner=Gone(after), settings=settings)

    assert outcomes(report) == {"orders": "failed", "clicks": "failed"}
    assert "the workers are gone" in report["orders"].message
    assert two.calls.count("commit") == 0
    assert outcomes(two.round()) == {"orders": "landed", "clicks": "landed"}
    assert (two.values("orders"), two.values("clicks")) == ([0, 1, 2], [3, 4, 5])


def test_a_task_that_tells_nothing_of_what_it_did_keeps_all_from_landing(two: SmallLake) -> None:
    report = two.round(runner=Spoiling(lambda done: done[:-1]), settings=replace(NARROW, item_bytes=1))

    assert set(outcomes(report).values()) == {"failed"}
    assert "not every task" in report["orders"].message
    assert two.calls.count("commit") == 0


def test_a_process_that_is_told_to_stop_stops_and_lets_go_of_its_connections(two: SmallLake) -> None:
    two.before["commit"] = raising(KeyboardInterrupt())

    with pytest.raises(KeyboardInterrupt):
        two.round()

    assert all(connection.closed for connection in two.connections)
    assert len(two.known("orders").in_flight) == 1


def test_a_catalog_that_cannot_be_reached_fails_all_topics_by_name(two: SmallLake) -> None:
    def nobody() -> Any:
        raise ConnectionRefusedError("nobody listens")

    report = two.round(connect=nobody)

    assert set(outcomes(report).values()) == {"failed"}
    assert "nobody listens" in report["clicks"].message
    assert two.told() == []


# Commits --------------------------------------------------------------------------------------------------------------


def test_a_commit_of_which_nobody_knows_begins_anew_under_another_name(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.before["commit"] = raising(CommitUncertain("no reply"))

    report = lake.round()

    assert report["orders"].outcome == "landed"
    assert lake.told() == ["begun", "intended", "ended", "begun", "intended", "landed", "verified"]
    assert len({each.commit_id for each in of_kind(lake, Begun)}) == 2
    assert lake.values() == [0, 1, 2]


def test_a_commit_of_which_nobody_ever_knows_fails_and_its_files_stay_in_flight(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.before["commit"] = raising(CommitUncertain("no reply"), times=100)

    report = lake.round(settings=replace(NARROW, attempts_max=2))

    assert report["orders"].outcome == "failed"
    assert "no clear answer" in report["orders"].message
    assert (len(lake.known().in_flight), lake.known().failures) == (2, 2)
    assert [each.why for each in of_kind(lake, Ended)] == ["unknown", "unknown"]


def test_a_commit_that_was_applied_and_not_acknowledged_is_adopted(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.after["commit"] = raising(CommitUncertain("no reply"))

    report = lake.round()

    assert (report["orders"].outcome, report["orders"].adopted) == ("landed", True)
    assert report["orders"].verified
    assert lake.values() == [0, 1, 2]


def test_a_landing_that_was_committed_and_never_written_down_is_adopted_by_the_next_round(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round()
    lake.rewrite_ledger(lambda record: isinstance(record, Begun))

    lake.append("orders", 2)
    report = lake.round()

    assert report["orders"].rows == 2
    assert [each.adopted for each in of_kind(lake, Landed)] == [True, False]
    assert lake.values() == [0, 1, 2, 3, 4]


def test_a_round_without_new_rows_adopts_what_the_ledger_has_lost(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.round()
    lake.rewrite_ledger(lambda record: False)

    report = lake.round()

    assert (report["orders"].outcome, report["orders"].verified) == ("nothing", True)
    assert lake.told() == ["landed", "begun", "ended", "verified"]
    assert lake.round()["orders"].outcome == "nothing"
    assert len(lake.told()) == 4


def test_of_two_landers_one_wins_and_the_other_says_so(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.before["commit"] = Once(lambda: SecondLander(lake).round())

    report = lake.round()

    assert report["orders"].outcome == "lost"
    assert lake.values() == [0, 1, 2]
    assert [each.why for each in of_kind(lake, Ended)] == ["lost"]
    assert outcomes(lake.round()) == {"orders": "nothing"}


class SecondLander:
    """Another process that lands the same topics, with nothing that is met."""

    def __init__(self, lake: SmallLake) -> None:
        self._lake = lake

    def round(self) -> LandingReport:
        lake = self._lake
        lander = Lander(
            lake.source(),
            lake.place.connect,
            type(lake.ledger)(lake.ledger._files, clock=lake.clock, entropy=bytes),
            InProcess(),
            clock=lake.clock,
            entropy=lambda size: b"\x22" * size,
            settings=NARROW,
        )
        return lander.round([lake.record("orders")])


def test_a_lander_that_meets_a_newer_epoch_stops_before_it_writes_a_file(two: SmallLake) -> None:
    begun = Begun(
        topic_id=two.record("orders").topic_id.hex(), table="lake.orders", epoch=5, commit_id="other", at_us=1
    )
    two.after["fit"] = only_for("orders", Once(lambda: two.ledger.record([begun])))

    report = two.round()

    assert outcomes(report) == {"orders": "lost", "clicks": "landed"}
    assert [each.commit_id for each in of_kind(two, Begun) if each.table == "lake.orders"] == ["other"]
    # The next one begins after it.
    assert two.round("orders")["orders"].outcome == "landed"
    assert two.known("orders").epoch == 6


def test_a_lander_whose_rows_another_has_landed_while_it_read_them_does_not_commit(lake: SmallLake) -> None:
    # Given a lander that sleeps while its tasks read; a table set back to the head that it has read would let it in.
    lake.topic("orders")
    lake.append("orders", 3)

    class Slow(InProcess):
        def run(self, works: Sequence[Work]) -> Iterator[Done]:
            yield from super().run(works)
            if works and isinstance(works[0], LandWork):
                assert SecondLander(lake).round()["orders"].outcome == "landed"

    report = lake.round(runner=Slow())

    assert report["orders"].outcome == "lost"
    assert lake.calls.count("commit") == 0
    assert lake.values() == [0, 1, 2]


def test_a_commit_onto_a_head_that_others_moved_lands_the_same_files(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)
    lake.before["commit"] = raising(CommitRefused("moved"))

    assert lake.round()["orders"].outcome == "landed"
    assert lake.told().count("begun") == 1


# Nobody starves -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [OSError("the warehouse is full"), CommitUncertain("no reply")])
def test_a_topic_that_never_lands_does_not_keep_others_from_it(tmp_path: Path, error: Exception) -> None:
    # Given a topic that fails at its commit, whose rows lie before those of another, further than a round may read.
    small = replace(SETTINGS, log=replace(LOG, segment_size_bytes_max=4096, write_body_bytes_max=2048))
    for lake in lakes(tmp_path, small):
        lake.topic("orders")
        lake.topic("clicks")
        for _ in range(4):
            lake.append("orders", 20)
        for _ in range(4):
            lake.append("clicks", 20)
        verb = "commit" if isinstance(error, CommitUncertain) else "stage"
        failing = raising(error, times=10**6)

        def of_orders(args: tuple[Any, ...], failing: Once = failing) -> None:
            name = getattr(args[0], "name", None) or args[0].native.table.name()[-1]
            if name.endswith("orders"):
                failing(args)

        lake.before[verb] = of_orders
        settings = replace(NARROW, round_bytes_max=1, attempts_max=1)

        for _ in range(8):
            lake.round(settings=settings)

        assert lake.known("clicks").landed_lsn > 0
        assert len(lake.values("clicks")) == 80
        assert lake.known("orders").landed_lsn == 0


# What is reported -----------------------------------------------------------------------------------------------------


def test_what_has_landed_and_could_not_be_read_back_is_reported_as_landed_and_why(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)

    report = lake.round(runner=NoReadBack())

    assert (report["orders"].outcome, report["orders"].verified) == ("landed", False)
    assert "the workers are gone" in report["orders"].message


def test_what_has_landed_and_is_not_what_was_written_is_reported_as_halted(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 3)

    def lose() -> None:
        lake.files()[0].unlink()

    lake.after["commit"] = Once(lose)

    report = lake.round()

    assert (report["orders"].outcome, report["orders"].cause) == ("halted", "verification")
    assert (report["orders"].rows, report["orders"].verified) == (3, False)
