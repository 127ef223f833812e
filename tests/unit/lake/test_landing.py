"""The lake beside an open log: what a round is asked for, the catalog's check, and who cleans up the log."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import InvalidRequest, LandingHalted, LogLocked, Unavailable, UnknownTopic
from headwater.lake import catalog_check
from headwater.lake.catalog_check import CheckedProperty
from headwater.lake.extra import from_the_extra
from headwater.settings import LandingSettings, LogSettings, Settings
from headwater.topics.cleanup import CleanupReport
from headwater.topics.compaction import CleanupFailure
from headwater.topics.engine import Engine

SMALL = Settings(
    log=LogSettings(segment_size_bytes_max=65_536, write_body_bytes_max=65_536, reserve_bytes=0),
    landing=LandingSettings(freshness_s=60.0, target_file_bytes=50_000, commit_threads=1),
    upkeep_interval_s=0,
)
ROW = {"x": int, "note": str}


@pytest.fixture(autouse=True)
def _checked(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Catalogs are believed here, but where their check is what is tested: it takes seconds."""
    passed = (CheckedProperty("raced", True, "one winner", 0.1),)
    monkeypatch.setattr(catalog_check, "check_catalog", lambda *_: passed)


def rows(count: int, size: int = 10) -> list[dict[str, Any]]:
    return [{"x": number, "note": "n" * size} for number in range(count)]


def lsns(log: hw.Log) -> dict[str, int]:
    return {each.topic: each.landed_lsn for each in log.status().landing}


def test_a_round_lands_every_topic_with_a_table_and_says_so_in_a_line(tmp_path: Path) -> None:
    with hw.open(tmp_path, settings=SMALL) as log:
        log.topic("b", ROW, table="lake.b").append(rows(1))
        log.topic("a", ROW, table="lake.a").append(rows(3))
        log.topic("c", ROW).append(rows(5))

        report = log.land()

        assert [(each.topic, each.outcome, each.rows, each.verified) for each in report] == [
            ("a", "landed", 3, True),
            ("b", "landed", 1, True),
        ]
        lsn = log.status().durable_lsn
        assert repr(report) == f"Landed(a: 3 rows, lsn 1..{lsn}; b: 1 row, lsn 1..{lsn})"
        assert report.cleanup == "nothing to delete yet"
        assert repr(log.land()) == "Landed(nothing)"
        assert lsns(log) == {"a": lsn, "b": lsn}


def test_only_the_topics_that_are_named_are_landed(tmp_path: Path) -> None:
    with hw.open(tmp_path, settings=SMALL) as log:
        for name in "abc":
            log.topic(name, ROW, table=f"lake.{name}").append(rows(1))

        assert [each.topic for each in log.land("b")] == ["b"]
        assert [each.topic for each in log.land(["c", "b", "c"])] == ["c", "b"]
        assert lsns(log)["a"] == 0


def test_what_cannot_be_landed_is_said_before_anything_is_done(tmp_path: Path) -> None:
    with hw.open(tmp_path, settings=SMALL) as log:
        log.topic("a", ROW, table="lake.a").append(rows(1))
        log.topic("c", ROW)

        with pytest.raises(UnknownTopic, match="'nope'"):
            log.land(["a", "nope"])
        with pytest.raises(InvalidRequest, match="'c' has no table"):
            log.land("c")
        with pytest.raises(InvalidRequest, match="'b' is not among the topics"):
            log.land("a", after_rollback="b")
        with pytest.raises(InvalidRequest, match="'c' is not among the topics"):
            log.land(landed_lsn={"c": 7})
        with pytest.raises(InvalidRequest, match="verify is one of read-back, metadata"):
            log.land(verify="no")  # type: ignore[arg-type]
        assert lsns(log) == {"a": 0}


def test_without_a_table_there_is_nothing_to_land(tmp_path: Path) -> None:
    with hw.open(tmp_path, settings=SMALL) as log:
        log.topic("c", ROW).append(rows(1))

        assert log.land().topics == ()
        assert not (tmp_path / "ledger").exists() and not (tmp_path / "catalog.db").exists()


def test_a_log_in_memory_cannot_be_landed() -> None:
    with hw.open(":memory:", settings=SMALL) as log:
        log.topic("a", ROW, table="lake.a").append(rows(1))

        with pytest.raises(InvalidRequest, match="only a log on a disk or in a bucket can be landed"):
            log.land()
        assert log.status().landing[0].lag_rows == 1


# What is due ----------------------------------------------------------------------------------------------------------


def test_only_what_is_due_is_landed_if_that_is_asked_for(tmp_path: Path) -> None:
    clock = ManualClock()
    with hw.open(tmp_path, settings=SMALL, clock=clock) as log:
        old = log.topic("old", ROW, table="lake.old")
        old.append(rows(1))
        clock.advance(59)
        log.topic("new", ROW, table="lake.new").append(rows(1))
        log.topic("much", ROW, table="lake.much").append(rows(100, 600))

        assert [each.topic for each in log.land(due_only=True)] == ["much"]
        clock.advance(1)
        assert [each.topic for each in log.land(due_only=True)] == ["old"]
        assert log.land("old", due_only=True).topics == ()
        old.append(rows(1))
        clock.advance(59)
        assert [each.topic for each in log.land(due_only=True)] == ["new"]
        status = {each.topic: each for each in log.status().landing}
        assert (status["old"].lag_rows, status["old"].lag_s, status["new"].lag_rows) == (1, 59.0, 0)


# The catalog ----------------------------------------------------------------------------------------------------------


def test_the_first_landing_into_a_catalog_checks_it_and_the_ledger_remembers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def check(place: Any, *_: object) -> tuple[CheckedProperty, ...]:
        asked.append(str(place.properties["uri"]))
        return (CheckedProperty("raced", True, "one winner", 0.1),)

    monkeypatch.setattr(catalog_check, "check_catalog", check)
    for catalog in (None, None, {"type": "sql", "uri": f"sqlite:///{tmp_path}/other.db", "warehouse": f"{tmp_path}/o"}):
        with hw.open(tmp_path / "data", settings=SMALL, catalog=catalog) as log:
            log.topic("a", ROW, table="lake.a")
            log.land()
            log.land()

    assert asked == [f"sqlite:///{tmp_path}/data/catalog.db", f"sqlite:///{tmp_path}/other.db"]


def test_a_catalog_that_does_not_keep_its_word_is_not_landed_in_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [CheckedProperty("raced", False, "two winners", 0.1), CheckedProperty("late", True, "refused", 0.1)]
    monkeypatch.setattr(catalog_check, "check_catalog", lambda *_: tuple(found))
    with hw.open(tmp_path, settings=SMALL) as log:
        log.topic("a", ROW, table="lake.a").append(rows(1))

        for _ in range(2):
            with pytest.raises(LandingHalted, match="raced: two winners") as halted:
                log.land()
            assert halted.value.cause == "catalog"
        assert log.check_catalog() == tuple(found)
        assert lsns(log) == {"a": 0}

        found[0] = replace(found[0], passed=True)
        assert log.land().rows == 1


# Step 9 ---------------------------------------------------------------------------------------------------------------


def filled(path: Path, clock: ManualClock) -> hw.Log:
    """A log whose rows fill several segments."""
    log = hw.open(path, settings=SMALL, clock=clock)
    topic = log.topic("a", ROW, table="lake.a")
    for _ in range(8):
        topic.append(rows(40, 1000))
    return log


def segment_bytes(path: Path) -> int:
    return sum(each.stat().st_size for each in (path / "log").glob("*.seg"))


def test_an_owner_that_lands_lets_go_of_what_has_landed_after_the_grace(tmp_path: Path) -> None:
    clock = ManualClock()
    with filled(tmp_path, clock) as log:
        before = log.status().log_bytes
        assert log.land().cleanup == "nothing to delete yet"

        clock.advance(601)
        log.checkpoint()
        log["a"].append(rows(1))

        assert "segments deleted" in log.land().cleanup
        assert log.status().log_bytes < before / 3
        assert log.land().rows == 0


def test_a_lander_in_another_process_leaves_the_log_to_its_owner_or_cleans_up_if_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    claimed: list[Engine] = []
    claim = Engine.claim

    def counted(self: Engine) -> None:
        claimed.append(self)
        claim(self)

    monkeypatch.setattr(Engine, "claim", counted)
    writer = filled(tmp_path, clock)
    with hw.open(tmp_path, settings=SMALL, clock=clock) as lander:
        assert lander.land().cleanup == "nothing to delete yet"
        clock.advance(601)
        writer["a"].append(rows(1))
        writer.checkpoint()
        told = lander.land().cleanup
        assert told.startswith("left to the log's owner, pid ")

        writer.close()
        before = segment_bytes(tmp_path)
        assert "segments deleted" in lander.land(due_only=True).cleanup
        assert segment_bytes(tmp_path) < before / 3
        claims = len(claimed)
        assert lander.land(due_only=True).cleanup == "nothing to delete yet"
        assert len(claimed) == claims, "the lock is not taken for nothing"

        # It has let go of the lock: whoever writes next has it.
        with hw.open(tmp_path, settings=SMALL, clock=clock) as following:
            following["a"].append(rows(1))
            with pytest.raises(LogLocked):
                lander["a"].append(rows(1))


def test_a_landing_stands_though_the_log_was_not_cleaned_up_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: Engine) -> CleanupReport:
        raise Unavailable("the disk is away")

    with hw.open(tmp_path, settings=SMALL) as log:
        log.topic("a", ROW, table="lake.a").append(rows(3))
        with monkeypatch.context() as patched:
            patched.setattr(Engine, "cleanup", refuse)
            report = log.land()

        assert report.rows == 3 and lsns(log)["a"] == report.lsn_to
        assert report.cleanup == "not done, the next round tries again: the disk is away"
        assert "the disk is away" in caplog.text
        assert log.land().cleanup == "nothing to delete yet"


def test_what_a_cleanup_could_not_do_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failure = CleanupFailure("compaction of 'a'", OSError("no space left"))
    monkeypatch.setattr(Engine, "cleanup", lambda _: CleanupReport(failures=(failure,)))
    with hw.open(tmp_path, settings=SMALL) as log:
        log.topic("a", ROW, table="lake.a").append(rows(3))

        assert log.land().cleanup == f"not all of it could be done: {failure}"


# How far it has come --------------------------------------------------------------------------------------------------


def test_a_status_whose_ledger_cannot_be_read_says_so_and_all_else(tmp_path: Path) -> None:
    with hw.open(tmp_path, settings=SMALL) as log:
        log.topic("a", ROW, table="lake.a").append(rows(3))
        (tmp_path / "ledger").write_text("a file where its folder should be")

        status = log.status()

    assert status.landing == [] and status.durable_lsn > 0
    assert any("the ledger cannot be read" in note for note in status.notes)


# Without the packages -------------------------------------------------------------------------------------------------


def test_reading_and_appending_need_none_of_the_lakes_packages_and_landing_names_them(tmp_path: Path) -> None:
    program = f"""
import sys
for name in ("pyiceberg", "pyspark", "polars_hash", "numpy"):
    sys.modules[name] = None
import headwater as hw
with hw.open({str(tmp_path)!r}) as log:
    topic = log.topic("a", {{"x": int}}, table="lake.a")
    topic.append([{{"x": 1}}])
    assert topic.read().to_pylist() == [{{"x": 1}}]
    assert log.status().landing[0].lag_rows == 1
    log.cleanup()
    for act in (log.land, log.check_catalog):
        try:
            act()
        except hw.errors.InvalidRequest as error:
            assert "pip install 'headwater[lake]'" in str(error), error
        else:
            raise AssertionError(act)
    for act in (lambda: log.land(spark=object()), log.spark_config):
        try:
            act()
        except hw.errors.InvalidRequest as error:
            assert "pip install 'headwater[" in str(error), error
        else:
            raise AssertionError(act)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stderr


def test_a_mistake_in_our_own_imports_is_not_taken_for_a_package_that_is_not_installed() -> None:
    with pytest.raises(ImportError, match="lander"), from_the_extra():
        raise ImportError("no lander", name="headwater.lake.lander")
    with pytest.raises(InvalidRequest, match="further packages"), from_the_extra():
        raise ImportError("no such module")


def test_what_the_log_let_go_of_is_read_from_the_table_that_it_landed_in(tmp_path: Path) -> None:
    gone = replace(SMALL, log=replace(SMALL.log, deletion_grace_s=0.0))
    with hw.open(tmp_path, settings=gone) as log:
        topic = log.topic("a", ROW, table="lake.a")
        for first in range(0, 9, 3):
            topic.append([{"x": first + number, "note": "n" * 20_000} for number in range(3)])
            log.land()
        log.checkpoint()
        log.land()

        assert log._engine.shard.log.segments()[0].first_lsn > 1  # type: ignore[attr-defined]  # an embedded one's
        assert [row["x"] for row in topic.read().to_pylist()] == list(range(9))
