"""The simulation of landing is itself tested: each rule, broken alone, is noticed by at least five seeds."""

from __future__ import annotations

import pytest

from tests.simulation.lake_mutants import MUTANTS, LakeMutant, kills

KILLS_WANTED = 5
SEEDS_MAX = 300


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_simulation_of_landing_notices_when(mutant: LakeMutant) -> None:
    killers: list[int] = []
    seed = 0

    while len(killers) < KILLS_WANTED and seed < SEEDS_MAX:
        if kills(mutant, seed) is not None:
            killers.append(seed)
        seed += 1

    print(f"{mutant.name}: {len(killers)} of {seed} seeds")
    assert len(killers) == KILLS_WANTED, f"{mutant.what}: noticed by seeds {killers} of {SEEDS_MAX} only"


@pytest.mark.parametrize(
    "mutant",
    {(mutant.world, repr(mutant.mood)): mutant for mutant in MUTANTS}.values(),
    ids=lambda mutant: f"as-for-{mutant.name}",
)
def test_nothing_is_noticed_where_no_rule_is_broken(mutant: LakeMutant) -> None:
    nobody = LakeMutant("nobody", "nothing is broken", lambda patch: None, mutant.world, mutant.mood)

    noticed = {seed: kills(nobody, seed) for seed in range(30)}

    assert noticed == dict.fromkeys(range(30))


def test_there_are_as_many_mutants_of_landing_as_were_promised() -> None:
    names = [mutant.name for mutant in MUTANTS]

    assert len(set(names)) == len(names) >= 40
