"""Bugs that the simulation has found, each as the shortest life that shows it (docs/bugs-found.md).

Every one is run twice: on the log as it is, which must keep its promises, and on the mutant that brings the bug back,
which must not; so that none of them can go blind.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from headwater.clock import ManualClock
from headwater.errors import CorruptData, HeadwaterError, Unavailable
from headwater.frames.frame import MAGIC, NO_SALT_CRC, Kind, body_crc, seal_header
from headwater.frames.segment_header import SegmentHeader, pack_segment_frame
from headwater.log import Draft, FrameLog
from headwater.settings import LogSettings
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.simulation.invariants import DIRECTORY, World, check_reader, examine, quiet, read_all
from tests.simulation.model import PRODUCER, Model, Violation
from tests.simulation.mutants import by_name
from tests.simulation.workload import Workload

FIRST = f"{DIRECTORY}/00000000000000000001.0.seg"


def small_workload() -> Workload:
    """A workload that does only what it is told."""
    workload = Workload(1, fault_share=0.0)
    settings = LogSettings(mark_sync_idle_s=0.0, reserve_bytes=0, scan_chunk_bytes=16384)
    workload.world = World(settings, ManualClock(), Random(1))
    return workload


def row(number: int, body: bytes = b"row") -> Draft:
    return Draft(Kind.DATA, body, topic_number=1, row_count=1, producer_id=PRODUCER, sequence=number)


def owned(workload: Workload) -> FrameLog:
    assert workload.log is not None
    return workload.log


def a_forged_segment_frame_in_a_torn_body() -> None:
    workload = small_workload()
    stored = bytes(range(128))
    others = (
        "codec flags prev write_index topic_number partition base_offset row_count offset_count schema_version "
        "producer_epoch producer_id sequence time_min_us time_max_us"
    )
    forged, _ = seal_header(
        NO_SALT_CRC,
        body_crc=body_crc(stored),
        kind=Kind.SEGMENT,
        body_size=128,
        lsn=9,
        durable_lsn=1 << 40,
        epoch=1,
        write_count=1,
        append_time_us=1,
        **dict.fromkeys(others.split(), 0),
    )
    workload._open()
    workload.commit([[row(1)]])

    _at_calls(workload, ["sync_data"], _crashes_are_survived)
    workload.commit([[row(2, (forged + stored) * 4)]])


def a_reader_that_comes_in_the_middle_of_a_roll() -> None:
    workload = small_workload()
    workload._open()
    workload.commit([[row(1)]])

    _at_calls(workload, ["append", "sync_all"], lambda now: _reader_sees(now, 2))
    owned(workload).roll()


def the_header_of_a_removed_file_in_the_blocks_of_a_new_segment() -> None:
    workload = small_workload()
    workload._open()
    workload.commit([[row(1)]])
    workload._close(owned(workload))
    header = SegmentHeader(log_id=b"o" * 16, salt=b"s" * 8, first_lsn=7, prev=0, epoch=1, created_us=1)
    workload.files.put(f"{DIRECTORY}/00000000000000000003.0.seg", pack_segment_frame(header))

    examine(workload.world, workload.files, workload.model)


def a_refused_row_in_the_blocks_of_the_one_after_it() -> None:
    workload = small_workload()
    files = workload.files
    workload._open()
    workload.commit([[row(1, bytes(384))]])  # ends where a sector ends
    assert len(files.contents(FIRST)) % 512 == 0
    files.capacity_bytes = sum(len(files.contents(name)) for name in files._names) + 512
    workload.commit([[row(2, b"2" * 384)], [row(3, b"3" * 384)]])
    files.capacity_bytes = None
    assert workload.model.refused == {2, 3}

    _at_calls(workload, ["sync_data"], _crashes_are_survived)
    workload.commit([[row(4, b"4" * 384)], [row(5, b"5" * 384)]])


def frames_of_another_history_in_a_sealed_segment() -> None:
    workload = small_workload()
    workload._open()
    workload.commit([[row(1)]])
    other = workload.files.restart()
    workload.commit([[row(2, b"here")], [row(3, b"here")]])
    owned(workload).roll()
    workload._close(owned(workload))
    here = workload.files.contents(FIRST)
    # The other history: the same log, killed at the same place, in which other rows were appended.
    with workload.world.open(other) as log:
        log.append([row(2, b"gone")])
        log.append([row(3, b"gone")])
        log.roll()
    there = other.contents(FIRST)
    # The third frame of both is of the same size and continues the same second frame; the fourth tells them apart.
    third, fourth = (here.rindex(MAGIC) - 256, here.rindex(MAGIC))
    assert here[:third] == there[:third] and there.startswith(MAGIC, third) and there.startswith(MAGIC, fourth)

    workload.files.put(FIRST, here[:third] + there[third:fourth] + here[fourth:])
    try:
        shown = read_all(workload.world.open(workload.files))
    except CorruptData:
        return
    if shown != workload.model.settled:
        raise Violation("V9: rows of another history are shown")


def a_claim_after_one_whose_mark_was_never_synced() -> None:
    workload = small_workload()
    files = workload.files
    workload._open()
    workload.commit([[row(1)]])
    workload._close(owned(workload))
    workload._open()  # an epoch that only the mark knows of
    files = files.crash(Random(1), choice=Choice.NOTHING)
    files.fail(1, errno.EIO, for_ever=True, verbs=["sync_data"])
    try:
        workload.world.open(files).claim()
    except Unavailable:
        files = files.restart()  # the page cache has a mark that the disk does not have
    else:
        raise AssertionError("the claim was meant to fail")
    workload._use(files)

    _at_calls(workload, ["sync_data"], _crashes_are_survived)
    workload._open()


# Seen from the calls of a life -----------------------------------------------------------------------------


def _at_calls(workload: Workload, verbs: list[str], look: Callable[[Workload], None]) -> None:
    def on_call(files: SimulatedFiles, verb: str, name: str) -> None:
        if verb in verbs:
            look(workload)

    workload.on_call = on_call


def _crashes_are_survived(workload: Workload) -> None:
    model: Model = workload.model
    for state in workload.files.crash_states(Random(1), 60):
        examine(workload.world, state, model)


def _reader_sees(workload: Workload, frames: int) -> None:
    seen = check_reader(workload.world, workload.files.restart())
    if seen != frames:
        raise Violation(f"a reader sees {seen} frames and not {frames}")


BUGS = [
    (a_forged_segment_frame_in_a_torn_body, "forged-segment-frame"),
    (a_reader_that_comes_in_the_middle_of_a_roll, "reader-in-a-roll"),
    (the_header_of_a_removed_file_in_the_blocks_of_a_new_segment, "ghost-header"),
    (a_refused_row_in_the_blocks_of_the_one_after_it, "refuse-in-one-epoch"),
    (frames_of_another_history_in_a_sealed_segment, "no-chain"),
    (a_claim_after_one_whose_mark_was_never_synced, "mark-not-written-again"),
]


@pytest.mark.parametrize(("life", "mutant"), BUGS, ids=[life.__name__ for life, _ in BUGS])
def test_the_log_keeps_its_promises_in(life: Callable[[], None], mutant: str) -> None:
    with quiet():
        life()


@pytest.mark.parametrize(("life", "mutant"), BUGS, ids=[life.__name__ for life, _ in BUGS])
def test_the_bug_comes_back_with_its_mutant_in(life: Callable[[], None], mutant: str) -> None:
    with quiet(), by_name(mutant)(), pytest.raises((Violation, HeadwaterError)):
        life()
