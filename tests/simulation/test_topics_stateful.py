"""Anything that a user may do to topics, in any order, with kills and power losses between and within: dicts and lists
agree.

HEADWATER_TOPICS_RUNS and HEADWATER_TOPICS_STEPS say how often and how long: 1,000 runs of 50 steps in CI, 20,000 of 100
in torture; HEADWATER_TOPICS_SEED moves all of it to other lives.  The runs are divided into shares, each a test with a
seed of its own, so that they run beside each other.  A run that fails is made as short as it can be and is printed as
a program; the seed of its share is in the test's name, and gives the same runs again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from operator import methodcaller
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from tests.simulation.topics_life import small_windows
from tests.simulation.topics_steps import STEPS, Steps, cut_step, failing_step

RUNS = int(os.environ.get("HEADWATER_TOPICS_RUNS", "1000"))
STEPS_MAX = int(os.environ.get("HEADWATER_TOPICS_STEPS", "50"))
SEED = int(os.environ.get("HEADWATER_TOPICS_SEED", "0"))
SHARES = 8
PHASES = [Phase.generate, Phase.shrink] if os.environ.get("HEADWATER_TOPICS_SHRINK", "1") == "1" else [Phase.generate]

_INTEGERS = {limit: st.integers(0, limit - 1) for limit in range(1, 101)}


class HypothesisDraw:
    """Choices that Hypothesis makes, and makes smaller when a run has failed."""

    def __init__(self) -> None:
        self.data: st.DataObject | None = None

    def below(self, limit: int) -> int:
        assert self.data is not None
        strategy = _INTEGERS.get(limit)
        return self.data.draw(strategy if strategy is not None else st.integers(0, limit - 1))


class TopicsMachine(RuleBasedStateMachine):
    """One log with topics, and the model of it."""

    @initialize(number=st.integers(0, 2**16))
    def begin(self, number: int) -> None:
        self.choices = HypothesisDraw()
        self.life = Steps(number, self.choices)

    def teardown(self) -> None:
        if hasattr(self, "life"):
            self.life.finish()


def _add_rule(name: str, act: Callable[[Steps], None]) -> None:
    def step(self: Any, data: st.DataObject) -> None:
        self.choices.data = data
        try:
            act(self.life)
        except Exception as error:
            error.add_note("\n".join(["what was done:", *self.life.steps[-40:]]))
            raise

    step.__name__ = name
    setattr(TopicsMachine, name, rule(data=st.data())(step))


def _add_rules() -> None:
    """A rule for every step; those that matter most are there more than once, because all rules are drawn alike."""
    for step in STEPS:
        for copy in range((step.weight + 1) // 2):
            _add_rule(f"{step.name}_{copy + 1}", methodcaller(step.name))
    for special, copies in ((cut_step, 8), (failing_step, 3)):
        for copy in range(copies):
            _add_rule(f"{special.__name__}_{copy + 1}", special)


_add_rules()


@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.timeout(600 + RUNS * STEPS_MAX / 50)  # a run that fails is made shorter for up to five minutes
def test_whatever_is_done_to_topics_they_hold_what_dicts_and_lists_hold(share: int) -> None:
    number = SEED + share
    print(f"replay with: HEADWATER_TOPICS_SEED={number} pytest {__file__} -k '[0]'")

    class Seeded(TopicsMachine):
        pass

    with small_windows():
        run_state_machine_as_test(
            seed(number)(Seeded),
            settings=settings(
                max_examples=max(RUNS // SHARES, 1),
                stateful_step_count=STEPS_MAX,
                suppress_health_check=list(HealthCheck),
                phases=PHASES,
                database=None,
                deadline=None,
            ),
        )
