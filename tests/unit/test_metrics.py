"""Counters: plain numbers from zero, by name; durations in fixed buckets."""

from __future__ import annotations

from pathlib import Path

import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.metrics import DURATION_BOUNDS_S, Histogram, LogCounters
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.files import Files
from headwater.storage.simulated_store import SimulatedStore
from tests.unit.topics.small_engines import engine_of


def test_counters_begin_at_zero_and_are_given_by_name() -> None:
    counters = LogCounters()
    counters.appends += 2

    counted = counters.as_dict()

    assert counted.pop("appends") == 2
    assert len(counted) > 10 and set(counted.values()) == {0}


@pytest.mark.parametrize(("seconds", "bucket"), [(0.0, 0), (0.000_25, 0), (0.000_26, 1), (30.0, 15), (31.0, 16)])
def test_a_histogram_puts_a_duration_into_the_bucket_that_ends_at_or_after_it(seconds: float, bucket: int) -> None:
    found = Histogram()

    found.observe(seconds, times=3)

    assert found.buckets[bucket] == found.count == 3
    assert found.seconds == 3 * seconds
    assert len(found.buckets) == len(DURATION_BOUNDS_S) + 1


@pytest.mark.parametrize("where", ["a directory", "a bucket"])
def test_every_request_and_every_sync_is_in_a_histogram(tmp_path: Path, where: str) -> None:
    store = BucketFiles(SimulatedStore(), clock=ManualClock(), threads=False)
    data: Path | Files = store if where == "a bucket" else tmp_path / "data"
    with hw.open(data, clock=ManualClock()) as log:
        topic = log.topic("orders", schema={"id": int})
        for number in range(5):
            topic.append({"id": number})
        counters = engine_of(log).shard.log.counters

        assert counters.append_durations.count == counters.appends == 5
        assert counters.sync_durations.count == counters.syncs >= 5
