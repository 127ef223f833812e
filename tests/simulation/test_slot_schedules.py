"""Two and three owners of one log on an object store, whatever is lost, late or between: there is one history.

HEADWATER_SLOT_SCHEDULES says how many schedules are run (20,000 in CI), HEADWATER_SLOT_FROM with which they begin.
A violation prints the command that replays it.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.simulation.slot_plays import a_commit_is_absorbed_and_its_slot_taken
from tests.simulation.slot_schedules import SETTLED_OF, SlotSchedule, run_slot_seed

SCHEDULES = int(os.environ.get("HEADWATER_SLOT_SCHEDULES", "20000"))
FIRST = int(os.environ.get("HEADWATER_SLOT_FROM", "0"))
SHARES = 7


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(120 + SCHEDULES // SHARES // 10)
def test_a_log_on_a_store_has_one_history_whoever_owns_it_dies_or_is_late(share: int) -> None:
    counts: Counter[str] = Counter()

    for seed in range(FIRST + share, FIRST + SCHEDULES, SHARES):
        counts += run_slot_seed(seed)

    print(dict(counts))
    played = SCHEDULES // SHARES
    assert counts["acknowledged"] > 4 * played, f"hardly anything was written: {counts}"
    assert min(counts["trims"], counts["claims"], 2 * counts["fenced"]) > played // 2, (
        f"hardly anybody came between: {counts}"
    )
    assert counts["outcome unknown"] > 0


@pytest.mark.parametrize("window", [1, 2, 8])
def test_without_faults_every_owner_that_claims_alone_gets_the_log_and_commits(window: int) -> None:
    for seed in range(0, 40 * SETTLED_OF, SETTLED_OF):
        schedule = SlotSchedule(seed, mood={"window": window})

        schedule.run()

        assert schedule.owners[-1].phase == "owning"
        assert schedule.world.counts["acknowledged"] >= 3


def test_a_commit_that_a_successor_absorbed_is_not_said_to_be_lost_though_its_slot_holds_anothers_bytes() -> None:
    a_commit_is_absorbed_and_its_slot_taken()


@pytest.mark.parametrize("seed", [4, 77, 1236])
def test_a_seed_gives_the_same_schedule_again(seed: int) -> None:
    first, again = SlotSchedule(seed, trace=True), SlotSchedule(seed, trace=True)

    first.run()
    again.run()

    assert first.world.trace == again.world.trace
    assert first.world.counts == again.world.counts
