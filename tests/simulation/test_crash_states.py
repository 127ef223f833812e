"""200,000 crash states over 500 seeds, and 20,000 crashes in the recovery of such states: V1 to V5, V7, V8, V10, V11.

`python -m tests.torture --only crash-states` runs 5 million and 500,000.
"""

from __future__ import annotations

import pytest

from tests.simulation.crashes import Effort, run_seed

SEEDS = 500
SEEDS_A_TEST = 10
EFFORT = Effort(states=400, states_in_recovery=40)


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST))
def test_no_promise_is_broken_by_any_state_that_a_power_loss_may_leave(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        counts = run_seed(seed, EFFORT)

        assert counts.states >= EFFORT.states
        assert counts.states_in_recovery >= EFFORT.states_in_recovery


def test_a_seed_is_the_whole_repro() -> None:
    assert run_seed(4711, EFFORT) == run_seed(4711, EFFORT)
