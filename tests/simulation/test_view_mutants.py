"""The suites of views are themselves tested: each rule, broken alone, is noticed."""

from __future__ import annotations

import pytest

from tests.simulation.view_mutants import MUTANTS, ViewMutant, kills, run_test
from tests.simulation.view_row_mutants import ALL_MUTANTS

KILLS_WANTED = 5
SEEDS_MAX = 300


@pytest.mark.parametrize("mutant", ALL_MUTANTS, ids=[mutant.name for mutant in ALL_MUTANTS])
@pytest.mark.timeout(120)
def test_the_suites_of_views_notice_when(mutant: ViewMutant) -> None:
    wanted = 1 if mutant.test is not None else KILLS_WANTED
    killers: list[int] = []
    seed = 0

    while len(killers) < wanted and seed < (1 if mutant.test is not None else SEEDS_MAX):
        if kills(mutant, seed) is not None:
            killers.append(seed)
        seed += 1

    print(f"{mutant.name}: {len(killers)} of {seed} seeds")
    assert len(killers) == wanted, f"{mutant.what}: noticed by seeds {killers} of {seed} only"


@pytest.mark.parametrize(
    "mutant",
    {(mutant.world, repr(mutant.mood)): mutant for mutant in MUTANTS if not mutant.keyed and not mutant.test}.values(),
    ids=lambda mutant: f"as-for-{mutant.name}",
)
def test_nothing_is_noticed_where_no_rule_of_views_is_broken(mutant: ViewMutant) -> None:
    nobody = ViewMutant("nobody", "nothing is broken", lambda patch: None, mutant.world, mutant.mood)

    noticed = {seed: kills(nobody, seed) for seed in range(30)}

    assert noticed == dict.fromkeys(range(30))


def test_the_tests_that_notice_mutants_of_rows_pass_by_themselves() -> None:
    tests = {mutant.test for mutant in ALL_MUTANTS if mutant.test is not None}

    for test in sorted(tests, key=lambda each: each.__name__):
        run_test(test)


def test_there_are_as_many_mutants_of_views_as_were_promised() -> None:
    names = [mutant.name for mutant in ALL_MUTANTS]

    assert len(set(names)) == len(names) >= 60
