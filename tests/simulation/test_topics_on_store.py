"""Anything that a user may do to topics in a bucket, with kills, takeovers and a bad store between and within: dicts
and lists agree, and no row of an owner that was taken over from appears.

HEADWATER_STORE_TOPICS_SEEDS says how many lives of 50 steps are lived (120 in CI, 5,000 in torture),
HEADWATER_STORE_TOPICS_FROM with which seed they begin.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.topics_on_store import StoreCounts, run_seed

SEEDS = int(os.environ.get("HEADWATER_STORE_TOPICS_SEEDS", "120"))
FIRST = int(os.environ.get("HEADWATER_STORE_TOPICS_FROM", "0"))
SHARES = 6


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(300 + SEEDS * 5)
def test_whoever_owns_a_log_in_a_bucket_its_topics_hold_what_dicts_and_lists_hold(share: int) -> None:
    counts = StoreCounts()

    for seed in range(FIRST + share, FIRST + SEEDS, SHARES):
        counts.add(run_seed(seed))

    print(counts)
    lives = counts.steps // 50
    assert counts.takeovers_in_steps > lives, f"hardly anybody was taken over from: {counts}"
    assert counts.kills_in_steps > lives, f"hardly anybody was killed: {counts}"


def test_a_seed_gives_the_same_life_again() -> None:
    assert run_seed(4) == run_seed(4)
