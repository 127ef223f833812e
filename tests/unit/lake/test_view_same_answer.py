"""The same question has the same answer before a landing and after it, today and later: cases that once had not."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import headwater as hw
from headwater.errors import InvalidRequest
from tests.unit.lake.small_lakes import SmallLake, lakes


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path)


def made(lake: SmallLake, name: str, schema: object) -> hw.Topic:
    lake.topic(name, schema)
    return lake.log[name]


def test_a_nan_and_a_null_are_found_by_the_same_conditions_in_the_log_and_in_the_table(lake: SmallLake) -> None:
    topic = made(lake, "ratios", {"x": int, "ratio": float | None})
    topic.append([{"x": 1, "ratio": 1.0}, {"x": 2, "ratio": float("nan")}, {"x": 3}])
    expected = {
        "ratio != 1": [2],
        "not (ratio = 1)": [2],
        "ratio not in (1.0, 7.0)": [2, 3],
        "ratio is nan": [2],
        "ratio > 0": [1],
        "ratio <= 1": [1],
        "ratio is null": [3],
    }

    in_the_log = {where: topic.scan(["x"], where).to_arrow()["x"].to_pylist() for where in expected}
    lake.round()
    in_the_table = {where: topic.scan(["x"], where).to_arrow()["x"].to_pylist() for where in expected}

    assert in_the_log == expected
    assert in_the_table == expected


def test_a_number_that_a_float32_cannot_hold_is_found_in_the_log_and_in_the_table(lake: SmallLake) -> None:
    topic = made(lake, "shares", pa.schema([pa.field("share", pa.float32())]))
    topic.append([{"share": 0.1}])
    asked = ["share = 0.1", "share <= 0.1", "share in (0.1)", "not (share != 0.1)"]

    in_the_log = [topic.scan(where=where).count() for where in asked]
    lake.round()
    in_the_table = [topic.scan(where=where).count() for where in asked]

    assert in_the_log == in_the_table == [1] * len(asked)


def test_a_time_that_is_to_come_is_refused_because_it_would_not_repeat(lake: SmallLake) -> None:
    topic = made(lake, "orders", {"x": int})
    topic.append([{"x": 1}])
    now = datetime.fromtimestamp(lake.clock.now_us() / 1e6, UTC)

    with pytest.raises(InvalidRequest, match="has not come to this time yet"):
        topic.scan(as_of=now + timedelta(days=1))
    assert topic.scan(as_of=now).count() == 1


def test_a_reader_of_many_snapshots_names_every_one_of_them(lake: SmallLake) -> None:
    names = [f"topic-{number}" for number in range(8)]
    for name in names:
        made(lake, name, {"x": int}).append([{"x": 1}])
    lake.round()
    topics = [lake.log._engine.topic(name) for name in names]

    resolved = lake.log._viewed().resolve(topics)

    read = {part.snapshot_id for plan in resolved.plans.values() for part in plan.parts}
    assert len(read) == 8 and lake.log._viewed().source.pinned() == read
    resolved.hold.release()
    assert lake.log._viewed().source.pinned() == frozenset()


def test_an_lsn_before_the_logs_first_is_read_from_the_table(tmp_path: Path) -> None:
    small = hw.LogSettings(segment_size_bytes_max=4096, write_body_bytes_max=2048, deletion_grace_s=0, reserve_bytes=0)
    with hw.open(tmp_path, settings=hw.Settings(log=small, upkeep_interval_s=0)) as log:
        topic = log.topic("orders", schema={"x": int}, table="sales.orders")
        lsns = [topic.append([{"x": x}]).lsn for x in range(60)]
        log.land()
        log.checkpoint()
        log.cleanup()
        first = log.status().first_lsn
        assert first > lsns[5], "given: the log has let go of it"

        assert [row["x"] for row in topic.scan(as_of=hw.Lsn(lsns[5])).to_pylist()] == list(range(6))
