"""A disk that is full: what was begun is cut and the cut synced, then refused; with room again the log goes on."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from headwater.errors import Unavailable
from headwater.frames.frame import Kind
from headwater.log import Draft, open_log
from headwater.storage.disk import DiskFiles
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.faults.life import SETTINGS, Life
from tests.simulation.plain_model import body_of, read_from_start


def used(files: SimulatedFiles) -> int:
    return sum(len(files.contents(f"log/{name}")) for name in files.list("log"))


@pytest.mark.parametrize("reserve_bytes", [0, 1024])
def test_wherever_the_disk_becomes_full_nothing_is_lost_and_what_was_refused_stays_away(
    reserve_bytes: int, seed: int
) -> None:
    settings = replace(SETTINGS, reserve_bytes=reserve_bytes)
    files = SimulatedFiles(seed)
    Life(files, settings=settings).run()
    most = used(files) + 4096
    refused = 0
    for capacity in range(0, most, 96):
        files = SimulatedFiles(seed + capacity)
        life = Life(files, settings=settings)
        files.capacity_bytes = capacity
        life.run()
        refused += len(life.model.away)
        files.capacity_bytes = None

        for state in life.states():
            state.capacity_bytes = None
            life.check(state)
        life.close()
        life.check(files)

    assert refused > 50


def test_the_same_open_log_goes_on_as_soon_as_there_is_room(seed: int) -> None:
    files = SimulatedFiles(seed)
    life = Life(files)
    life.append((1, 0))
    for room in range(0, 500, 50):
        files.capacity_bytes = used(files) + room
        for _ in range(8):
            life.append((1, 0), (2, 0), size=200)
        full = list(life.refusals)
        before = len(life.model.kept)
        given_up = "reserve" not in files.list("log")

        files.capacity_bytes = None
        life.append((1, 0), (2, 0), size=200)
        life.roll()

        assert full and given_up
        assert len(life.model.kept) == before + 2
        assert life.refusals == full
        assert all(refusal.startswith("Unavailable") for refusal in full)
        assert files.contents("log/reserve") == bytes(1024)
        life.refusals.clear()
    for state in life.states():
        state.capacity_bytes = None
        life.check(state)


def test_on_a_full_disk_the_reserve_makes_room_for_a_deletion_and_the_deletion_for_more_rows(seed: int) -> None:
    files = SimulatedFiles(seed)
    life = Life(files)
    for _ in range(6):
        life.append((1, 0), size=900)
    files.capacity_bytes = used(files)
    life.append((2, 0), size=900)
    refused = len(life.refusals)

    life.delete()
    life.append((2, 0), size=900)

    assert refused == 1
    assert len(life.refusals) == refused
    assert life.model.log_start > 1
    for state in life.states():
        state.capacity_bytes = None
        life.check(state)


def test_a_refused_write_is_gone_from_the_disk_before_the_caller_hears_of_it(seed: int) -> None:
    files = SimulatedFiles(seed)
    life = Life(files)
    log = life.open()
    log.append([Draft(Kind.DATA, body_of(1, 100), topic_number=1, row_count=1)])
    files.capacity_bytes = used(files) + 1000

    with pytest.raises(Unavailable, match="the disk is full"):
        log.append([Draft(Kind.DATA, body_of(2, 1200), topic_number=1, row_count=1)])

    # At the moment of the answer, also if the power is lost then: no size and no sector is still on its way.
    assert not [item for item in files.pending() if item.inode]
    for choice in (Choice.NOTHING, Choice.EVERYTHING, Choice.MIXED):
        state = files.crash(Random(seed), choice=choice)
        assert body_of(2, 1200)[:50] not in state.contents("log/00000000000000000001.0.seg")


@contextmanager
def no_file_larger_than(size: int) -> Iterator[None]:
    """A real limit of the operating system: it takes a part of a write, and refuses the rest."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_on_a_real_disk_a_write_of_which_only_a_part_fits_is_cut_and_refused_and_the_log_goes_on(
    tmp_path: Path,
) -> None:
    settings = replace(SETTINGS, segment_size_bytes_max=1 << 20, write_body_bytes_max=1 << 20)
    with open_log(DiskFiles(tmp_path), settings=settings) as log:
        log.append([Draft(Kind.DATA, body_of(1, 100), topic_number=1, row_count=1)])
        segment = tmp_path / "log" / log.segments()[0].name
        before = segment.stat().st_size

        with no_file_larger_than(100_000), pytest.raises(Unavailable):
            log.append([Draft(Kind.DATA, body_of(2, 200_000), topic_number=1, row_count=1)])
        after = segment.stat().st_size
        receipt = log.append([Draft(Kind.DATA, body_of(3, 200_000), topic_number=1, row_count=1)])

    with open_log(DiskFiles(tmp_path), settings=settings) as log:
        bodies = [bytes(frame.body) for frame in read_from_start(log) if frame.header.kind == Kind.DATA]
    assert after == before
    assert receipt.base_offsets == (1,)
    assert bodies == [body_of(1, 100), body_of(3, 200_000)]
