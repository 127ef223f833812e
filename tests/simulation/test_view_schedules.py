"""Whatever landers, owners and a log that forgets do between its looks: a view is the log's rows at its cut.

HEADWATER_VIEW_SCHEDULES says how many schedules are run (500 in CI, of each kind), HEADWATER_VIEW_FROM with which
they begin.  A violation prints the command that replays it.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.lake_moods import ACTS
from tests.simulation.view_keyed import run_keyed_seed
from tests.simulation.view_schedules import ViewSchedule, run_view_seed

SCHEDULES = int(os.environ.get("HEADWATER_VIEW_SCHEDULES", "500"))
FIRST = int(os.environ.get("HEADWATER_VIEW_FROM", "0"))
SHARES = 4


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(120 + SCHEDULES)
def test_every_view_is_the_replay_of_the_log_whoever_lands_dies_or_comes_between(share: int) -> None:
    looks: Counter[str] = Counter()

    for seed in range(FIRST + share, FIRST + SCHEDULES, SHARES):
        looks += run_view_seed(seed)

    print(dict(looks))
    assert looks["seen"] + looks["again"] > 10 * SCHEDULES // SHARES, f"hardly anything was seen: {looks}"
    assert looks["again"] > looks["expired"] + sum(count for what, count in looks.items() if "halted" in what)


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(120 + SCHEDULES)
def test_every_view_of_a_keyed_topic_is_the_fold_of_its_changes_whatever_comes_between(share: int) -> None:
    looks: Counter[str] = Counter()

    for seed in range(FIRST + share, FIRST + SCHEDULES, SHARES):
        looks += run_keyed_seed(seed)

    print(dict(looks))
    assert looks["seen"] + looks["again"] > 10 * SCHEDULES // SHARES, f"hardly anything was seen: {looks}"
    assert min(looks[what] for what in ("merged", "rewritten", "changes forgotten", "expired", "state rolled back")) > 9


@pytest.mark.parametrize("world", ["calm", "shapes"])
def test_nothing_halts_a_reader_where_nobody_takes_anything_back(world: str) -> None:
    looks: Counter[str] = Counter()

    for seed in range(60):
        schedule = ViewSchedule(seed, mood={"acts": ACTS[world], "fault_share": 0.0, "person_share": 0.0})
        schedule.run()
        looks += schedule.looks

    assert looks["seen"] > 300
    assert not [what for what in looks if what.startswith("halted")]


@pytest.mark.parametrize("seed", [3, 77, 1234])
def test_a_seed_gives_the_same_looks_again(seed: int) -> None:
    first, again = ViewSchedule(seed, trace=True), ViewSchedule(seed, trace=True)

    first.run()
    again.run()

    assert first.trace == again.trace
    assert first.looks == again.looks
