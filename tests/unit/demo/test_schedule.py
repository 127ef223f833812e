"""The schedule of the demo: a seed is the whole of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from headwater.demo.rows import ACCOUNTS, ORDERS
from headwater.demo.schedule import KINDS, STEPS, draw


@pytest.mark.parametrize("seed", [0, 1, 7, 999_999])
def test_a_seed_gives_the_same_schedule_each_time_and_in_another_process(seed: int) -> None:
    program = f"from headwater.demo.schedule import draw; print(draw({seed}))"

    elsewhere = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert draw(seed) == draw(seed)
    assert elsewhere.stdout.strip() == str(draw(seed))


def test_other_seeds_give_other_schedules() -> None:
    schedules = {draw(seed) for seed in range(50)}

    assert len(schedules) == 50


@pytest.mark.parametrize("seed", range(20))
def test_every_kind_of_step_comes_and_the_first_one_lands(seed: int) -> None:
    schedule = draw(seed)

    assert len(schedule) == STEPS
    assert schedule[0].kind == "land"
    assert {step.kind for step in schedule} == {kind for kind, _ in KINDS}
    assert all(step.topic in {ORDERS, ACCOUNTS} and 1 <= step.number <= 3 and 0 < step.wait_s < 1 for step in schedule)


@pytest.mark.parametrize("steps", [1, 2, 5, 12, 100])
def test_a_schedule_has_as_many_steps_as_were_asked_for(steps: int) -> None:
    assert len(draw(3, steps)) == steps
