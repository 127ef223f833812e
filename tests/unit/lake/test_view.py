"""Views at a cut, an LSN or a time: which point is meant, and the same rows whatever became of log and tables."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.errors import CutExpired, InvalidRequest, PinExpired
from headwater.lake.view_source import EngineViewSource
from headwater.log.device import SegmentInfo
from headwater.settings import LogSettings
from tests.unit.lake.keyed_tables import CHANGES, keyed
from tests.unit.lake.small_lakes import SETTINGS, SmallLake, lakes
from tests.unit.topics.small_engines import engine_of

SMALL = hw.Settings(
    log=LogSettings(reserve_bytes=0, segment_size_bytes_max=4096, write_body_bytes_max=4096, deletion_grace_s=0.0),
    journal=SETTINGS.journal,
    upkeep_interval_s=0,
    landing=SETTINGS.landing,
)
NOTE = "n" * 200


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path, SMALL)


def append(lake: SmallLake, name: str, x: int) -> int:
    """A row, ten seconds after the one before; the time at which it was appended."""
    lake.clock.advance(10)
    lake.log[name].append([{"x": x, "note": NOTE}])
    return lake.clock.now_us()


def moment(time_us: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=time_us)


def xs(lake: SmallLake, name: str = "orders", **given: Any) -> list[int]:
    with lake.log[name].scan(**given) as scan:
        found = sorted(scan.to_arrow()["x"].to_pylist())
        assert scan.count() == len(found)
        return found


def clean_up(lake: SmallLake, *names: str) -> None:
    """These topics land, all if none is named, and the log lets go of their rows."""
    lake.round(*names)
    lake.clock.advance(700)
    for name in ("first", "second"):
        lake.log.topic(f"filler-{name}", {"x": int, "note": str})
        for x in range(30):
            lake.log[f"filler-{name}"].append([{"x": x, "note": NOTE}])
        lake.log.checkpoint()
    report = lake.log.cleanup()
    assert report.deleted or report.drained


# ------------------------------------------------------------------------------------------------------------ a cut


def test_a_cut_gives_the_same_rows_after_landings_a_rewrite_expiry_and_deletion(lake: SmallLake) -> None:
    lake.topic("orders", {"x": int, "note": str})
    for x in range(3):
        append(lake, "orders", x)
    lake.round()
    append(lake, "orders", 3)
    cut = lake.log.cut("orders")
    expected = [0, 1, 2, 3]
    assert xs(lake, as_of=cut) == expected

    append(lake, "orders", 4)
    assert xs(lake, as_of=cut) == expected
    lake.round()
    assert xs(lake, as_of=cut) == expected
    with lake.native() as table:
        table.overwrite(table.scan().to_arrow())
    assert xs(lake, as_of=cut) == expected
    clean_up(lake)
    assert xs(lake, as_of=str(cut)) == expected
    lake.expire_all_but_head()
    assert xs(lake, as_of=str(cut)) == expected
    assert xs(lake) == [0, 1, 2, 3, 4]


def test_rows_that_are_deleted_stay_in_a_cut_as_long_as_its_snapshot(lake: SmallLake) -> None:
    lake.topic("orders", {"x": int, "note": str})
    for x in range(3):
        append(lake, "orders", x)
    lake.round()
    cut = lake.log.cut("orders")
    lake.foreign_delete(x=1)

    assert xs(lake, as_of=cut) == [0, 1, 2] and xs(lake) == [0, 2]
    lake.expire_all_but_head()
    assert xs(lake, as_of=cut) == [0, 2]


def test_topics_at_one_cut_have_a_transaction_whole_or_not_at_all(lake: SmallLake) -> None:
    lake.topic("orders", {"x": int})
    lake.topic("items", {"x": int})
    for x in range(3):
        with lake.log.transaction() as transaction:
            transaction.append("orders", [{"x": x}])
            transaction.append("items", [{"x": x}, {"x": x}])
        if x == 1:
            lake.round("orders")
    cut = lake.log.cut("orders", "items")
    everything = lake.log.cut()

    assert xs(lake, as_of=cut) == [0, 1, 2] and xs(lake, "items", as_of=cut) == [0, 0, 1, 1, 2, 2]
    assert {each.topic_id for each in everything.topics} == {each.topic_id for each in cut.topics}


def test_a_cut_of_another_log_and_one_without_the_topic_are_refused(lake: SmallLake, tmp_path: Path) -> None:
    lake.topic("orders", {"x": int})
    lake.topic("items", {"x": int})
    with hw.open(tmp_path / "other") as other:
        other.topic("orders", {"x": int})
        foreign = other.cut("orders")

    with pytest.raises(InvalidRequest, match="another log"):
        lake.log["orders"].scan(as_of=foreign)
    with pytest.raises(InvalidRequest, match="not in this cut"):
        lake.log["items"].scan(as_of=lake.log.cut("orders"))


def test_a_topic_that_was_made_again_is_not_in_the_cut_of_the_one_before(lake: SmallLake) -> None:
    lake.log.topic("orders", {"x": int})
    cut = lake.log.cut("orders")
    lake.log.delete_topic("orders", force=True)
    lake.log.topic("orders", {"x": int})

    with pytest.raises(InvalidRequest, match="not in this cut"):
        lake.log["orders"].scan(as_of=cut)


def test_a_cut_of_a_topic_without_a_table_expires_with_its_rows(lake: SmallLake) -> None:
    lake.log.topic("plain", {"x": int, "note": str}, retention=60)
    for x in range(30):
        append(lake, "plain", x)
    cut = lake.log.cut("plain")
    assert xs(lake, "plain", as_of=cut) == list(range(30))
    lake.topic("orders", {"x": int, "note": str})
    append(lake, "orders", 1)

    clean_up(lake)

    with pytest.raises(CutExpired, match="cleaned up"):
        lake.log["plain"].scan(as_of=cut)
    left = xs(lake, "plain")
    assert left == list(range(30))[30 - len(left) :], "what is left can be read: the log begins later than the topic"


def test_changes_past_their_retention_make_an_old_cut_expire_by_name(tmp_path: Path) -> None:
    with keyed(tmp_path) as customers:
        customers.land((1, "a"))
        old = customers.log.cut("customers")
        customers.land((2, "b"))
        customers.merge()
        new = customers.log.cut("customers")
        customers.log["customers"].alter(changes_retention=1)
        customers.clock.advance(90)
        assert customers.care(snapshots_kept=1, readers_s=0.0)[CHANGES].forgotten_files
        customers.land((3, "c"))

        with pytest.raises(CutExpired, match="past their retention"):
            customers.topic.scan(as_of=old)
        assert sorted(row["id"] for row in customers.topic.scan(as_of=new).to_pylist()) == [1, 2]
        assert sorted(row["id"] for row in customers.topic.scan().to_pylist()) == [1, 2, 3]


# ----------------------------------------------------------------------------------------------------------- an LSN


def test_an_lsn_inside_a_write_means_the_end_of_the_write_before(lake: SmallLake) -> None:
    lake.topic("orders", {"x": int, "note": str})
    lake.topic("items", {"x": int, "note": str})
    append(lake, "orders", 1)
    before = engine_of(lake.log).shard.log.durable_lsn()
    with lake.log.transaction() as transaction:
        transaction.append("orders", [{"x": 2, "note": NOTE}])
        transaction.append("items", [{"x": 2, "note": NOTE}])
    result = transaction.result
    assert result is not None and result.lsn > result.first_lsn

    def at(lsn: int) -> tuple[list[int], list[int]]:
        return xs(lake, as_of=hw.Lsn(lsn)), xs(lake, "items", as_of=hw.Lsn(lsn))

    def holds() -> None:
        assert at(0) == ([], [])
        assert at(before) == ([1], [])
        for lsn in range(result.first_lsn, result.lsn):
            assert at(lsn) == ([1], []), "half a transaction is never shown"
        assert at(result.lsn) == ([1, 2], [2])

    holds()
    lake.round("orders")
    holds()
    # Of the transaction the log has only the second half left: the next frame says where its write began.
    clean_up(lake, "orders")
    holds()


def test_an_lsn_that_is_none_is_refused(lake: SmallLake) -> None:
    lake.topic("orders", {"x": int, "note": str})
    append(lake, "orders", 1)

    with pytest.raises(InvalidRequest, match="at least 0"):
        lake.log["orders"].scan(as_of=hw.Lsn(-1))
    with pytest.raises(InvalidRequest, match="has not come to this point"):
        lake.log["orders"].scan(as_of=hw.Lsn(10**6))


# ----------------------------------------------------------------------------------------------------------- a time


def test_a_time_means_the_rows_that_were_appended_until_then_before_and_after_the_log_forgets(lake: SmallLake) -> None:
    lake.topic("orders", {"x": int, "note": str})
    lake.topic("items", {"x": int, "note": str})
    lake.log.topic("plain", {"x": int, "note": str})
    times = []
    for x in range(20):
        times.append(append(lake, "orders", x))
        if x % 5 == 2:
            append(lake, "plain", x)
        if x % 5 == 3:
            append(lake, "items", x)

    def holds() -> None:
        assert xs(lake, as_of=moment(times[0] - 5_000_000)) == []
        for x, time_us in enumerate(times):
            assert xs(lake, as_of=moment(time_us)) == list(range(x + 1)), x
            assert xs(lake, as_of=moment(time_us - 1)) == list(range(x)), x
        assert xs(lake, as_of=moment(lake.clock.now_us())) == list(range(20))
        assert xs(lake, "items", as_of=moment(times[10])) == [3, 8]

    assert xs(lake, "plain", as_of=moment(times[10])) == [2, 7]
    holds()
    lake.round("orders")
    holds()
    clean_up(lake)
    holds()
    with lake.native() as table:
        table.overwrite(table.scan().to_arrow())
    holds()


def test_a_time_before_everything_that_the_log_still_holds_is_read_from_the_table(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.topic("orders", {"x": int, "note": str})
    times = [append(lake, "orders", x) for x in range(40)]
    lake.round()
    clean_up(lake)
    log = engine_of(lake.log).shard.log
    assert log.segments()[0].first_lsn > 1, "the log begins later than its first frame"

    assert xs(lake, as_of=moment(times[4])) == [0, 1, 2, 3, 4]

    # The log may also begin later between two looks: the list of segments is one from before.
    real = log.segments
    stale: list[list[SegmentInfo]] = [[]]
    monkeypatch.setattr(log, "segments", lambda: stale.pop() if stale else real())
    assert xs(lake, as_of=moment(times[4])) == [0, 1, 2, 3, 4]
    assert not stale


def test_a_time_of_a_topic_without_a_table_is_the_last_frame_before_what_is_left(lake: SmallLake) -> None:
    lake.topic("orders", {"x": int, "note": str})
    lake.log.topic("plain", {"x": int, "note": str})
    time_us = append(lake, "plain", 0)
    for x in range(30):
        time_us = append(lake, "orders", x)
    append(lake, "plain", 2)
    views, plain = lake.log._viewed(), lake.record("plain")
    before = views.lsn_as_of([plain], moment(time_us))
    clean_up(lake, "orders")

    assert views.lsn_as_of([plain], moment(time_us)) == before
    assert sorted(views.scan(plain).to_arrow()["x"].to_pylist()) == [0, 2]


def test_a_time_that_has_not_come_is_refused(lake: SmallLake) -> None:
    lake.topic("orders", {"x": int, "note": str})
    now_us = append(lake, "orders", 1)

    with pytest.raises(InvalidRequest, match="has not come to this time"):
        lake.log["orders"].scan(as_of=moment(now_us + 10**9))


def test_a_time_may_be_a_text_and_needs_its_zone(lake: SmallLake) -> None:
    lake.topic("orders", {"x": int, "note": str})
    first = moment(append(lake, "orders", 1))
    append(lake, "orders", 2)

    assert xs(lake, as_of=first.isoformat()) == [1]
    assert xs(lake, as_of=first.astimezone(timezone(timedelta(hours=5)))) == [1]
    assert xs(lake, as_of=first.isoformat().replace("+00:00", "Z")) == [1]
    for given in ("yesterday", first.replace(tzinfo=None), 12.5, "hwcut0.abc"):
        with pytest.raises(InvalidRequest):
            lake.log["orders"].scan(as_of=given)  # type: ignore[arg-type]  # that is what is refused


def test_a_time_of_which_the_changes_are_past_their_retention_has_expired(tmp_path: Path) -> None:
    with keyed(tmp_path) as customers:
        customers.land((1, "a"))
        early = datetime.now(UTC)
        customers.land((2, "b"))
        customers.merge()
        customers.log["customers"].alter(changes_retention=1)
        customers.clock.advance(90)
        assert customers.care(snapshots_kept=1, readers_s=0.0)[CHANGES].forgotten_files
        customers.land((3, "c"))

        with pytest.raises(CutExpired):
            customers.topic.scan(as_of=early)
        assert sorted(row["id"] for row in customers.topic.scan(as_of=datetime.now(UTC)).to_pylist()) == [1, 2, 3]


# ---------------------------------------------------------------------------------------------------- what it needs


def test_views_need_the_extra_only_where_a_table_is_looked_at(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.topic("orders", {"x": int, "note": str})
    lake.log.topic("plain", {"x": int, "note": str})
    append(lake, "plain", 1)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    monkeypatch.setitem(sys.modules, "pyiceberg.catalog", None)

    assert xs(lake, "plain") == [1]
    with pytest.raises(InvalidRequest, match=r"headwater\[lake\]"):
        lake.log["orders"].scan()


def test_a_log_that_begins_later_between_two_looks_is_held_from_there(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.topic("orders", {"x": int, "note": str})
    engine = engine_of(lake.log)
    hold, refused = engine.pins.hold, [PinExpired("the log has let go of this LSN already")]

    def once(*given: Any, **options: Any) -> Any:
        if refused:
            raise refused.pop()
        return hold(*given, **options)

    monkeypatch.setattr(engine.pins, "hold", once)

    held = EngineViewSource(engine, str(lake.folder)).hold(None)

    assert refused == [] and [pin.lsn for pin in engine.pins.read()] == [1]
    held.release()


def test_rows_are_counted_by_the_index_and_frame_by_frame_only_at_the_ends(lake: SmallLake) -> None:
    lake.topic("orders", {"x": int, "note": str})
    lsns = []
    for x in range(40):
        append(lake, "orders", x)
        lsns.append(engine_of(lake.log).shard.log.durable_lsn())
    record = lake.record("orders")
    source = lake.log._viewed().source

    assert source.rows_between(record.number, 0, lsns[-1]) == 40
    assert source.rows_between(record.number, lsns[4], lsns[34]) == 30
    assert source.rows_between(record.number, lsns[10], lsns[11]) == 1
    assert source.rows_between(record.number, lsns[-1], lsns[-1] + 5) == 0
    assert source.rows_between(record.number + 1, 0, lsns[-1]) == 0
