"""A roll that was cut short, wherever: nothing before it is lost, and the same name can be begun again."""

from __future__ import annotations

import errno
from random import Random

import pytest

from headwater.storage.simulated import SimulatedFiles
from tests.faults.life import Life
from tests.simulation.invariants import ghosts_only

ROLL_CALLS_MIN = 8


def filled(files: SimulatedFiles) -> Life:
    life = Life(files)
    life.append((1, 0), (2, 0), size=300)
    life.append((1, 1), size=300)
    return life


def test_a_power_loss_before_any_call_of_a_roll_leaves_all_that_was_acknowledged(seed: int) -> None:
    life = filled(SimulatedFiles(seed))
    chance = Random(seed)
    verdicts = set()
    calls = 0

    def before_call(verb: str, name: str) -> None:
        nonlocal calls
        calls += 1
        states = [life.files.restart(), ghosts_only(life.files, chance), *life.files.crash_states(chance, 25)]
        for state in states:
            verdicts.add(Life(state.restart()).open().claim().verdict)
            life.check(state)

    life.files.before_call = before_call
    life.roll()

    assert calls >= ROLL_CALLS_MIN
    assert verdicts == {"nothing is cut"}


def test_a_roll_that_is_cut_short_again_and_again_leaves_nothing_in_the_way(seed: int) -> None:
    life = filled(SimulatedFiles(seed))
    chance = Random(seed)
    for life_number in range(30):
        verb = ("create", "append", "sync_all", "sync_directory", "write_at")[life_number % 5]
        life.files.fail(chance.randint(1, 2), errno.EIO, verbs=[verb], short=True)
        life.roll()
        life.files.heal()
        life.files = life.files.crash(chance) if chance.random() < 0.7 else life.files.restart()
        life.log = None
        life.append((1, 0), size=200)
        assert life.log is not None

    # The epoch of each life, and each of its rows, is still there.
    assert len(life.model.kept) == 33
    for state in life.states():
        life.check(state)


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_roll_that_was_refused_is_made_by_the_next_write_that_needs_it(error: int, nth: int, seed: int) -> None:
    life = filled(SimulatedFiles(seed))
    # The first file that a roll makes is the index, and the second the new segment.
    life.files.fail(nth, error, verbs=["append"], short=True)
    life.append((2, 0), size=1900)
    refused = list(life.refusals)

    life.append((2, 0), size=1900)

    assert len(refused) == (1 if nth == 2 else 0)
    assert life.refusals == refused
    assert life.log is not None
    assert len(life.log.segments()) == (2 if nth == 2 else 3)
    for state in life.states():
        life.check(state)
