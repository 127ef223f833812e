"""The simulation of topics is itself tested: each rule, broken alone, is noticed by at least three seeds."""

from __future__ import annotations

import pytest

from tests.simulation.topics_mutants import MUTANTS, TopicsMutant, kills

KILLS_WANTED = 3
SEEDS_MAX = 60


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_simulation_of_topics_notices_when(mutant: TopicsMutant) -> None:
    killers: list[int] = []
    seed = 0

    while len(killers) < KILLS_WANTED and seed < SEEDS_MAX:
        if kills(mutant, seed) is not None:
            killers.append(seed)
        seed += 1

    print(f"{mutant.name}: {len(killers)} of {seed} seeds")
    assert len(killers) == KILLS_WANTED, f"{mutant.what}: noticed by seeds {killers} of {SEEDS_MAX} only"


@pytest.mark.parametrize("habitat", sorted({mutant.habitat for mutant in MUTANTS}), ids="-".join)
def test_nothing_is_noticed_in_a_life_where_no_rule_is_broken(habitat: tuple[str, ...]) -> None:
    nobody = TopicsMutant("nobody", "nothing is broken", lambda patch: None, habitat=habitat)

    noticed = {seed: kills(nobody, seed) for seed in range(2)}

    assert noticed == dict.fromkeys(range(2))


@pytest.mark.parametrize(
    "mutant", [mutant for mutant in MUTANTS if mutant.check is not None], ids=lambda mutant: mutant.name
)
def test_a_directed_check_passes_where_no_rule_is_broken(mutant: TopicsMutant) -> None:
    nobody = TopicsMutant("nobody", "nothing is broken", lambda patch: None, check=mutant.check)

    assert [kills(nobody, seed) for seed in range(3)] == [None] * 3


def test_there_are_as_many_mutants_of_topics_as_were_promised() -> None:
    names = [mutant.name for mutant in MUTANTS]

    assert len(set(names)) == len(names) >= 30
