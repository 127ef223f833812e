"""The metadata journal under crashes and failing calls: at every call of every step, by kill and by power loss.

CRASHES  Before each call that changes or syncs anything, the files are taken as a kill and as power losses leave them.
         Opened again, the state is the last one acknowledged, or that and the operations in flight; and it goes on.
FAULTS   Each call fails once, and each call and all after it: every step answers by name, and what was acknowledged
         is there afterwards.
"""

from __future__ import annotations

import errno
from random import Random

import pytest

from headwater.storage.simulated import SimulatedFiles
from tests.faults.journal_life import (
    World,
    check,
    crash_at_every_call,
    live,
    live_from_nothing,
    live_with_a_full_ring,
    with_a_nearly_full_ring,
    with_two_checkpoints,
)
from tests.unit.metadata.small_journals import checkpoint_files


def test_no_crash_at_any_call_leaves_another_state_than_before_or_after() -> None:
    looked = crash_at_every_call(with_two_checkpoints(), live, mixes=5)

    assert looked > 500


def test_no_crash_at_any_call_of_a_journals_first_life_leaves_another_state_than_before_or_after() -> None:
    looked = crash_at_every_call(SimulatedFiles(), live_from_nothing, mixes=4)

    assert looked > 300


def test_a_second_crash_while_the_first_is_recovered_from_changes_nothing_either() -> None:
    looked = crash_at_every_call(with_two_checkpoints(), live, mixes=1, second_crash_share=0.1)

    assert looked > 900


def test_no_crash_around_a_forced_checkpoint_leaves_another_state_than_before_or_after() -> None:
    files = with_a_nearly_full_ring()

    looked = crash_at_every_call(files, live_with_a_full_ring, mixes=0)

    assert looked > 40
    assert len(checkpoint_files(files)) == 2


@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "for ever"])
def test_every_call_that_fails_is_answered_by_name_and_nothing_acknowledged_is_lost(for_ever: bool) -> None:
    number = 0
    refused = 0

    while True:
        # Where all calls fail from one on, neighbours differ little.
        number += 3 if for_ever else 1
        files = with_two_checkpoints()
        world = World(files)
        before = len(files.calls)
        files.fail(number, errno.EIO, for_ever=for_ever)

        live(world)

        came_through = len(files.calls) - before < number
        files.heal()
        refused += bool(world.answers)
        check(files.restart(), world.allowed, world.history)
        check(files.crash(Random(number)), world.allowed, world.history)
        if came_through:
            break

    assert refused > 30
