"""Counters: plain numbers from zero, by name."""

from __future__ import annotations

from headwater.metrics import LogCounters


def test_counters_begin_at_zero_and_are_given_by_name() -> None:
    counters = LogCounters()
    counters.appends += 2

    counted = counters.as_dict()

    assert counted.pop("appends") == 2
    assert len(counted) > 10 and set(counted.values()) == {0}
