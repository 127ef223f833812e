"""Wherever the power fails in a life with topics, what is opened afterwards is what was acknowledged, and no request is
split.

HEADWATER_TOPICS_CRASH_SEEDS says how many seeds are run (24 in CI), HEADWATER_TOPICS_CRASH_FROM with which they begin.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.topics_crashes import EVERYDAY, Counts, Effort, run_seed

SEEDS = int(os.environ.get("HEADWATER_TOPICS_CRASH_SEEDS", "24"))
FIRST = int(os.environ.get("HEADWATER_TOPICS_CRASH_FROM", "0"))
SHARES = 6


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(120 + SEEDS * 10)
def test_a_power_loss_at_any_call_leaves_what_was_acknowledged_and_no_request_in_part(share: int) -> None:
    counts = Counts()

    for seed in range(FIRST + share, FIRST + SEEDS, SHARES):
        counts.add(run_seed(seed))

    assert counts.states > SEEDS // SHARES * 20, f"hardly any state was looked at: {counts}"


@pytest.mark.timeout(180)
def test_every_call_of_one_short_life_is_looked_at_closely() -> None:
    counts = run_seed(1, Effort(steps=12, percent_of_calls=100, states=4, cut_percent=0))

    assert counts.states > counts.calls


def test_a_seed_gives_the_same_life_again() -> None:
    assert run_seed(2, EVERYDAY) == run_seed(2, EVERYDAY)
