"""The simulation is itself tested: each rule of the log, broken alone, is noticed by at least five seeds."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import DIRECTED, MUTANTS, Habitat, Mutant, kills

KILLS_WANTED = 5
SEEDS_MAX = 400

IN_CI = [mutant for mutant in MUTANTS if mutant.ci]


@pytest.mark.parametrize("mutant", IN_CI, ids=[mutant.name for mutant in IN_CI])
def test_the_simulation_notices_when(mutant: Mutant) -> None:
    killers: list[int] = []

    for seed in range(SEEDS_MAX):
        if kills(mutant, seed) is not None:
            killers.append(seed)
        if len(killers) == KILLS_WANTED:
            break

    assert len(killers) == KILLS_WANTED, f"{mutant.what}: noticed by seeds {killers} of {SEEDS_MAX} only"


@pytest.mark.parametrize("mutant", [*MUTANTS, *DIRECTED], ids=lambda mutant: mutant.name)
def test_every_mutant_still_fits_the_log_that_it_breaks(mutant: Mutant) -> None:
    # An edit that no longer fits raises Stale; that the product comes back whole is seen by all other tests.
    with mutant():
        pass


@pytest.mark.parametrize("habitat", Habitat, ids=lambda habitat: habitat.name.lower())
def test_nothing_is_noticed_where_no_rule_is_broken(habitat: Habitat) -> None:
    nobody = Mutant("nobody", "nothing is broken", lambda patch: None, habitat=habitat)

    noticed = {seed: kills(nobody, seed) for seed in range(6)}

    assert noticed == dict.fromkeys(range(6))


def test_there_are_as_many_mutants_as_were_promised() -> None:
    names = [mutant.name for mutant in MUTANTS]

    assert len(set(names)) == len(names) >= 40
    assert len(IN_CI) >= 20
