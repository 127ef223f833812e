"""The schedules of owners are themselves tested: each rule of the protocol, broken alone, is noticed."""

from __future__ import annotations

import pytest

from tests.simulation.slot_mutants import MUTANTS, SlotMutant, kills

KILLS_WANTED = 5
SEEDS_MAX = 1_500


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
@pytest.mark.timeout(120)
def test_the_schedules_of_owners_notice_when(mutant: SlotMutant) -> None:
    wanted = KILLS_WANTED if mutant.play is None else 1
    killers: list[int] = []
    seed = 0

    while len(killers) < wanted and seed < (SEEDS_MAX if mutant.play is None else 1):
        if kills(mutant, seed) is not None:
            killers.append(seed)
        seed += 1

    print(f"{mutant.name}: {len(killers)} of {seed} seeds")
    assert len(killers) == wanted, f"{mutant.what}: noticed by seeds {killers} of {seed} only"


@pytest.mark.parametrize(
    "mutant", {repr(mutant.mood): mutant for mutant in MUTANTS}.values(), ids=lambda mutant: f"as-for-{mutant.name}"
)
def test_nothing_is_noticed_where_no_rule_of_owners_is_broken(mutant: SlotMutant) -> None:
    nobody = SlotMutant("nobody", "nothing is broken", lambda patch: None, mutant.mood)

    noticed = {seed: kills(nobody, seed) for seed in range(60)}

    assert noticed == dict.fromkeys(range(60))


def test_there_are_as_many_mutants_of_owners_as_were_promised() -> None:
    names = [mutant.name for mutant in MUTANTS]

    assert len(set(names)) == len(names) >= 20
