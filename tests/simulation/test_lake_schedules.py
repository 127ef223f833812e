"""However landers, their deaths, catalogs and owners of tables come between each other: L1 to L6 of lake_checks.py.

HEADWATER_LANDING_SCHEDULES says how many schedules are run (10,000 in CI), HEADWATER_LANDING_FROM with which they
begin.
A violation prints the command that replays it step by step.
"""

from __future__ import annotations

import os

import pytest

from tests.simulation.lake_moods import ACTS, FAULTS, Counts
from tests.simulation.lake_schedules import Schedule, run_seed

SCHEDULES = int(os.environ.get("HEADWATER_LANDING_SCHEDULES", "10000"))
FIRST = int(os.environ.get("HEADWATER_LANDING_FROM", "0"))
SHARES = 20

POINTS = {
    "P1 begin": ("before record Begun", "after record Begun"),
    "P2 load": ("before load", "after load"),
    "P3 inside a data file": ("before task", "after task"),
    "P4 files written, no intent": ("before record Intended",),
    "P5 intent written": ("after record Intended", "after stage"),
    "P6 commit sent": ("before commit",),
    "P7 applied, no reply": ("after commit",),
    "P9 committed, not in the ledger": ("before record Landed",),
    "P9 in the ledger": ("after record Landed",),
    "P10 verification": ("before added_files", "after added_files", "before record Verified"),
    "P11 verified, nothing deleted": ("after record Verified",),
}
"""Where a lander may die.  P8 are the faults of a commit, P12 and P13 a log that forgets half-way (and the deletion of
segments has crashes of its own), P14 is any of these in the round after another."""


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(120 + SCHEDULES)
def test_every_row_is_in_the_table_once_whoever_lands_dies_or_comes_between(share: int) -> None:
    counts = Counts()

    for seed in range(FIRST + share, FIRST + SCHEDULES, SHARES):
        counts.add(run_seed(seed))

    print(counts)
    assert counts.landings >= counts.schedules, f"hardly anything landed: {counts}"


@pytest.mark.parametrize("world", ACTS)
def test_every_row_is_in_the_table_once_in_a_world_of(world: str) -> None:
    counts = Counts()

    for seed in range(200):
        counts.add(Schedule(seed, world=world, mood={"act_share": 0.3}).run())

    missing = [act for act in ACTS[world] if not counts.acts[act]]
    assert not missing, f"never done: {missing}"


@pytest.mark.timeout(120)
def test_a_lander_dies_at_every_point_and_every_fault_is_met() -> None:
    counts = Counts()
    mood = {"death_share": 0.05, "fault_share": 0.08, "commit_fault_share": 0.6}

    for seed in range(600):
        counts.add(Schedule(seed, mood=mood).run())

    lived = [point for point, places in POINTS.items() if not any(counts.kills[place] for place in places)]
    faults = {f"{what}: {fault}" for what, faults in FAULTS.items() for fault in faults}
    assert not lived
    assert faults - counts.faults.keys() == set()


@pytest.mark.parametrize("seed", [3, 77, 1234])
def test_a_seed_gives_the_same_schedule_again(seed: int) -> None:
    first, again = Schedule(seed, trace=True), Schedule(seed, trace=True)

    first.run()
    again.run()

    assert first.trace == again.trace
    assert len(first.trace or ()) > 50
