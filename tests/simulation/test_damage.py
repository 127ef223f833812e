"""Damage below what was durable is a named halt or error, never silently fewer or other rows (V9)."""

from __future__ import annotations

import pytest

from tests.simulation.damage import run_damage

SEEDS = 100
SEEDS_A_TEST = 10
DAMAGES_A_SEED = 50


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_damage_is_named_and_never_shows_fewer_or_other_rows(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        assert run_damage(seed, DAMAGES_A_SEED).damages == DAMAGES_A_SEED
