"""A write that was refused never comes back, whatever its blocks still hold.

The write was cut off and the cut is durable; but the blocks are as they were, and a file system gives them back where
the next write grew the file and was lost.  What stands there then continues the chain as well as the write that was
lost: only the epoch tells them apart.
"""

from __future__ import annotations

import errno
from dataclasses import replace
from random import Random

import pytest

from headwater.log import FrameLog
from headwater.storage.simulated import SimulatedFiles
from tests.faults.life import SETTINGS, Life
from tests.simulation.invariants import ghosts_only

SECTOR = 512
ROOMY = replace(SETTINGS, segment_size_bytes_max=1 << 16)
"""No roll comes between."""


class AllOfIt:
    """A short write of which every byte was written before the error."""

    def randrange(self, size: int) -> int:
        return size - 1


def write_whole_and_refuse(life: Life, *partitions: tuple[int, int], size: int) -> None:
    life.files._short_sizes = AllOfIt()  # type: ignore[assignment]  # As much of a Random as is asked for.
    life.files.fail(1, errno.EIO, verbs=["append"], short=True)
    before = len(life.refusals)
    life.append(*partitions, size=size)
    assert life.refusals[before:] and life.refusals[-1].startswith("Unavailable")


def fill_to_a_sector(life: Life, log: FrameLog) -> None:
    """Let the next write begin where a sector does, so that a ghost of it is whole."""
    while log.segments()[-1].bytes % SECTOR:
        life.append((1, 1), size=8)


@pytest.mark.parametrize("size", [384, 896, 300])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_the_ghost_of_a_refused_write_does_not_count(size: int, times: int, seed: int) -> None:
    life = Life(SimulatedFiles(seed), settings=ROOMY)
    life.append((1, 0))
    log = life.log
    assert log is not None
    fill_to_a_sector(life, log)
    for _ in range(times):
        write_whole_and_refuse(life, (1, 0), size=size)
    checked = 0

    def before_call(verb: str, name: str) -> None:
        # The next write has grown the file, and nothing of it has reached the disk.
        nonlocal checked
        if verb == "sync_data" and name.endswith(".seg"):
            for state in [ghosts_only(life.files, Random(seed)), *life.files.crash_states(Random(seed), 40)]:
                life.check(state)
                checked += 1

    life.files.before_call = before_call
    life.append((2, 0), size=size)

    assert len(life.model.away) == times
    assert checked > 10


def test_a_refused_first_write_of_a_life_does_not_come_back_with_its_epoch(seed: int) -> None:
    life = Life(SimulatedFiles(seed), settings=ROOMY)
    life.append((1, 0))
    life.close()
    life.claim()
    write_whole_and_refuse(life, (1, 0), (2, 0), size=384)

    for state in [*life.states(), ghosts_only(life.files, Random(seed))]:
        life.check(state)
    life.append((1, 0), size=384)

    assert life.refusals and len(life.model.away) == 2
    assert len(life.model.kept) == 2
    for state in life.states():
        life.check(state)


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_refused_writes_of_many_sizes_stay_away_over_many_power_losses(error: int, seed: int) -> None:
    chance = Random(seed)
    life = Life(SimulatedFiles(seed))
    away = 0
    for _ in range(60):
        life.append((1, 0), size=chance.choice([8, 384, 896]))
        if chance.random() < 0.7:
            life.files.fail(1, error, verbs=["append"], short=True)
            life.append((2, 0), (1, 1), size=chance.choice([8, 384, 700]))
            life.files.heal()
        if chance.random() < 0.5:
            life.append((1, 1), size=384)
        if chance.random() < 0.3:
            away += len(life.model.away)
            life.files = life.files.crash(chance)
            life.log = None
    life.claim()

    assert away > 20
    for state in life.states():
        life.check(state)
