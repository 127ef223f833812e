"""Damage to durable bytes is told by name, or does no harm; rows are never silently fewer or others (V9)."""

from __future__ import annotations

import os

import pytest

from headwater.errors import CorruptData, Halted
from headwater.log import FrameLog
from headwater.storage.simulated import SimulatedFiles
from tests.simulation.damage import DamageCounts, run_damage
from tests.simulation.invariants import DIRECTORY, World, check_lookups, quiet, read_all
from tests.simulation.model import Seen
from tests.simulation.workload import Workload

SEEDS = int(os.environ.get("HEADWATER_DAMAGE_SEEDS", "120"))
SEEDS_A_TEST = 20


@pytest.mark.parametrize("first", range(0, SEEDS, SEEDS_A_TEST), ids=lambda first: f"seeds-from-{first}")
def test_damage_is_told_by_name_or_does_no_harm(first: int) -> None:
    named: dict[str, int] = {}

    for seed in range(first, first + SEEDS_A_TEST):
        counts = run_damage(seed, 50)
        for outcome, count in counts.named.items():
            named[outcome] = named.get(outcome, 0) + count

    assert named["DamagedLog"] > 50
    assert named["CorruptData"] > 50
    assert named["LostSegment"] > 0


def test_every_bit_of_a_mark_may_flip_and_every_row_is_still_shown(seed: int) -> None:
    world, files, observed = _closed_log(seed)
    slots = [*range(64 * 8), *range(4096 * 8, 4160 * 8)]
    between = range(64 * 8, 4096 * 8, 61)

    with quiet():
        for bit in [*slots, *between]:
            damaged = files.restart()
            damaged.flip_bit(f"{DIRECTORY}/mark", bit)
            _shows_everything(world, damaged, observed, f"bit {bit} of the mark")


def test_every_bit_of_an_index_may_flip_and_every_row_is_still_found(seed: int) -> None:
    world, files, observed = _closed_log(seed)
    names = [name for name in files.list(DIRECTORY) if name.endswith(".idx")]
    name = min(names, key=lambda name: len(files.contents(f"{DIRECTORY}/{name}")))
    bits = len(files.contents(f"{DIRECTORY}/{name}")) * 8

    with quiet():
        for bit in range(bits):
            damaged = files.restart()
            damaged.flip_bit(f"{DIRECTORY}/{name}", bit)
            log = _shows_everything(world, damaged, observed, f"bit {bit} of {name}")
            if bit % 16 == 0:
                check_lookups(world, log, observed)


def test_every_truncation_of_the_newest_segment_halts_or_leaves_only_what_no_mark_covers(seed: int) -> None:
    world, files, _ = _closed_log(seed)
    name = max(name for name in files.list(DIRECTORY) if name.endswith(".seg"))
    data = files.contents(f"{DIRECTORY}/{name}")

    with quiet():
        halts = 0
        for size in range(0, len(data), 16):
            damaged = files.restart()
            damaged.put(f"{DIRECTORY}/{name}", data[:size])
            halts += not _is_opened(world, damaged)

        assert halts == len(range(0, len(data), 16))


def test_the_same_damage_comes_again_with_the_same_seed(seed: int) -> None:
    first: DamageCounts = run_damage(seed, 30)
    again = run_damage(seed, 30)

    assert first == again


def _closed_log(seed: int) -> tuple[World, SimulatedFiles, list[Seen]]:
    """A small log of a few segments, closed cleanly, with rows in the newest."""
    workload = Workload(seed, fault_share=0.0)
    with quiet():
        workload._open()
        for _ in range(3):
            workload.commit(workload.some_writes())
            assert workload.log is not None
            workload.log.roll()
        workload.commit(workload.some_writes())
        assert workload.log is not None
        workload.log.close()
    files = workload.files.restart()
    return workload.world, files, workload.model.settled


def _shows_everything(world: World, files: SimulatedFiles, observed: list[Seen], what: str) -> FrameLog:
    reader = world.open(files.restart())
    # Whatever the mark says, a reader shows a part of the truth and an owner all of it.
    shown = read_all(reader)
    assert shown == observed[: len(shown)], what
    log = world.open_unread(files)
    log.claim()
    assert read_all(log) == observed, what
    return log


def _is_opened(world: World, files: SimulatedFiles) -> bool:
    try:
        log = world.open_unread(files)
        log.claim()
        read_all(log)
    except (Halted, CorruptData):
        return False
    return True
