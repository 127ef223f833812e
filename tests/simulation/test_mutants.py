"""The simulation notices every broken rule: each mutant is killed by at least five seeds."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS, Mutant, kills

KILLS_WANTED = 5
SEEDS_MAX = 400
IN_CI = [mutant for mutant in MUTANTS if mutant.ci]


def test_there_are_at_least_twenty_mutants_here_and_forty_in_torture() -> None:
    assert len(IN_CI) >= 20
    assert len(MUTANTS) >= 40
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", IN_CI, ids=lambda mutant: mutant.name)
def test_a_mutant_is_killed_by_five_seeds(mutant: Mutant) -> None:
    killed_by: list[int] = []
    for seed in range(SEEDS_MAX):
        if kills(mutant, seed) is not None:
            killed_by.append(seed)
            if len(killed_by) == KILLS_WANTED:
                return
    pytest.fail(f"{mutant.name} ({mutant.what}) was killed only by {killed_by} of {SEEDS_MAX} seeds")
