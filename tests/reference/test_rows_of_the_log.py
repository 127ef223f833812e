"""Rows of docs/reference-designs.md about the log alone: which sync where, what is logged, who waits for whom.

SEED     The logs are those of tests/unit/log/small_logs.py; threads are held by events, never by sleeping.
NOT HERE What each part of the log does in detail: tests/unit/log.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import sys
import threading
from pathlib import Path
from random import Random

import pytest

from headwater.errors import DamagedLog, OutcomeUnknown
from headwater.frames.bodies import GapReason
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log import Draft, FrameLog
from headwater.log.deletion import Deletion, Release
from headwater.log.pins import Pins
from headwater.log.repair import carry_out
from headwater.log.repair_plan import plan_repair
from headwater.log.rewrite import REMOVE, rewrite_segment
from headwater.metadata.checkpoint import Checkpoint, CheckpointKind, Checkpoints
from headwater.storage.disk import DiskFiles
from headwater.storage.simulated import SimulatedFiles
from tests.unit.log.small_logs import WAIT_S, World, cut, fill, rows, segment_names, simulated, spoil, stored_in

SYNCS = ("sync_data", "sync_all", "sync_directory")


def lsns(log: FrameLog, from_lsn: int = 1) -> list[int]:
    return [frame.lsn for frame in log.read(Lsn(from_lsn))]


def first_segment(files: SimulatedFiles) -> str:
    return f"log/{segment_names(files)[0]}"


# Which sync where -----------------------------------------------------------------------------------------------------


def test_a_commit_costs_one_sync_of_data_and_a_segment_is_synced_in_full_before_it_is_sealed() -> None:
    files, world = simulated()
    with world.open() as log:
        log.append([rows(1)])
        segment = first_segment(files)
        files.calls.clear()

        for _ in range(3):
            log.append([rows(1)])
        assert [call for call in files.calls if call[0] in SYNCS] == [("sync_data", segment)] * 3

        files.calls.clear()
        log.roll()
        made = next(name for verb, name in files.calls if verb == "create" and name.endswith(".seg"))
        assert files.calls.index(("sync_all", segment)) < files.calls.index(("create", made))


def test_a_file_is_synced_in_full_before_it_takes_the_place_of_another() -> None:
    files, world = simulated()
    with world.open() as log:
        fill(log, [[[rows(1)], [rows(2)]], [[rows(1)]]])
        files.calls.clear()
        rewrite_segment(log, log.segments()[0].name, lambda header, body: REMOVE, reason=GapReason.DRAINED)
    assert_synced_before_renamed(files, ".seg")

    files.calls.clear()
    Checkpoints(files, "checkpoints", CheckpointKind.SHARD).write(
        Checkpoint(CheckpointKind.SHARD, lsn=3, chain=0, journal_lsn=1, created_us=0, body=b"state")
    )
    assert_synced_before_renamed(files, ".ckpt")


def assert_synced_before_renamed(files: SimulatedFiles, ending: str) -> None:
    renamed = [name for verb, name in files.calls if verb == "rename" and ending in name]
    assert renamed, files.calls
    for name in renamed:
        at = files.calls.index(("rename", name))
        assert ("sync_all", name) in files.calls[:at], "in full, before it has its name"
        assert any(verb == "sync_directory" for verb, _ in files.calls[at:]), "and then the name"


@pytest.mark.parametrize(
    ("platform", "data", "whole"), [("linux", "fdatasync", "fsync"), ("darwin", "F_FULLFSYNC", "F_FULLFSYNC")]
)
def test_each_sync_is_the_systems_strongest_for_what_it_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, data: str, whole: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr(os, "fdatasync", lambda fd: asked.append("fdatasync"), raising=False)
    monkeypatch.setattr(os, "fsync", lambda fd: asked.append("fsync"))
    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(
        fcntl, "fcntl", lambda fd, command, *more: asked.append("F_FULLFSYNC" if command == 51 else str(command))
    )
    file = DiskFiles(tmp_path).create("file")
    asked.clear()

    file.sync_data()
    file.sync_all()
    file.close()

    assert asked == [data, whole]


# Segments and recovery ------------------------------------------------------------------------------------------------


def test_a_roll_makes_a_new_file_and_all_files_are_recovered_in_their_order() -> None:
    files, world = simulated()
    log = world.open()
    log.append([rows(1, 2)])
    sealed = [log.roll()]
    log.append([rows(1), rows(2)])
    sealed.append(log.roll())
    log.append([rows(1)])
    expected = [(frame.lsn, frame.header.kind, bytes(frame.body)) for frame in log.read()]

    again = World(files.restart(), seed=1).open()
    report = again.claim()

    assert sealed == [1, 3], "each roll says which file it closed, by its first LSN"
    assert [int(name.split(".")[0]) for name in segment_names(files)] == [1, 3, 5]
    assert [(frame.lsn, frame.header.kind, bytes(frame.body)) for frame in again.read()] == expected
    assert (report.segments, report.first_lsn, report.last_lsn, report.epoch) == (3, 1, 5, 2)


def test_a_roll_that_was_never_written_to_is_used_by_the_next_life_and_no_name_is_met_twice() -> None:
    files = SimulatedFiles()
    seen: set[str] = set()
    expected = 0

    for life in range(4):
        log = World(files, seed=life).open()
        log.append([rows(1)])
        expected += 2  # and the frame with which a life begins
        log.roll()
        names = {name for name in segment_names(files) if has_frames(files, name)}
        assert seen <= names and len(names) == life + 1
        seen = names
        assert lsns(log) == list(range(1, expected + 1))
        files = files.restart()


def has_frames(files: SimulatedFiles, name: str) -> bool:
    return bool(stored_in(files, f"log/{name}"))


@pytest.mark.parametrize("known", [False, True], ids=["no mark covers it", "the mark covers it"])
def test_a_newest_file_cut_in_half_is_opened_without_its_torn_write_or_halts(known: bool) -> None:
    files, world = simulated()
    log = world.open()
    log.append([rows(1)])
    before = files.contents("log/mark")
    position = len(files.contents(first_segment(files)))
    log.append([rows(1, body=b"y" * 2_000)])
    torn = files.restart()
    if not known:
        torn.put("log/mark", before)
    cut(torn, first_segment(torn), position + 900)

    if known:
        with pytest.raises(DamagedLog):
            World(torn, seed=1).open().claim()
        assert len(torn.contents(first_segment(torn))) == position + 900, "nothing was cut"
    else:
        again = World(torn, seed=1).open()
        assert again.claim().bytes_cut == 900
        assert lsns(again) == [1, 2]
        assert again.append([rows(1)]).first_lsn == 4, "its own epoch is LSN 3"


def test_damage_in_the_first_file_halts_and_the_second_file_is_still_there_for_whoever_repairs() -> None:
    files, world = simulated()
    log = world.open()
    fill(log, [[[rows(1)], [rows(1)]], [[rows(2)], [rows(2)]]])
    log.close()
    first, second = (f"log/{name}" for name in segment_names(files))
    spoil(files, first, stored_in(files, first)[1], body=True)
    whole = files.contents(second)
    files.unlink(f"{first[:-4]}.idx")

    with pytest.raises(DamagedLog) as caught:
        world.open(files).claim()

    assert "headwater log" in str(caught.value)
    assert files.contents(second) == whole

    plan = plan_repair(files, "log", log_start=1, settings=world.settings)
    assert [(lost.first_lsn, lost.last_lsn) for lost in plan.lost] == [(2, 2)], "and it says what will be lost"
    carry_out(files, "log", plan, clock=world.clock, entropy=Random(1).randbytes, settings=world.settings)
    found = {frame.lsn: frame.header.kind for frame in world.open(files).read()}
    assert found == {1: Kind.EPOCH, 2: Kind.GAP, 3: Kind.DATA, 4: Kind.DATA, 5: Kind.DATA}


# Deletion -------------------------------------------------------------------------------------------------------------


def test_a_file_that_never_held_a_row_is_deleted_with_the_others_and_one_already_gone_counts_as_deleted() -> None:
    files, world = simulated()
    log = world.open()
    log.claim()
    fill(log, [[[Draft(Kind.METADATA, b"no row")]], [[rows(1)]], [[rows(1)]], [[rows(2)]]])
    names = [segment.name for segment in log.segments()]
    deletion = Deletion(
        log,
        pins=Pins(files, entropy=bytes),
        record_intent=lambda intent: setattr(world, "log_start", intent.log_start),
        clock=world.clock,
        settings=world.settings,
    )
    files.unlink(f"log/{names[1]}")

    world.clock.advance(10_000)
    deletion.run(log_start=Lsn(1), covered_lsn=log.durable_lsn(), released={1: Release(log.durable_lsn(), since_us=0)})

    assert segment_names(files) == names[3:]
    assert log.counters.unlinks_failed == 0
    assert world.log_start == 5
    assert lsns(World(files.restart(), seed=1, log_start=5).open(), 5) == lsns(log, 5) == [5]


# Counters and logging -------------------------------------------------------------------------------------------------


def test_the_library_says_what_it_did_by_level_under_one_name(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="headwater")
    files, world = simulated()
    log = world.open()
    log.append([rows(1)])
    log.roll()
    log.append([rows(1)])
    said("INFO", "opened for writing", caplog)
    said("INFO", "rolled", caplog)

    world.log_start = 3
    log.exclusively(lambda: log.device.forget(Lsn(3)))
    said("INFO", "forgot 1 segments", caplog)

    mark = files.contents("log/mark")
    log.append([rows(1, body=b"y" * 2_000)])
    torn = files.restart()
    torn.put("log/mark", mark)
    cut(torn, f"log/{segment_names(torn)[-1]}", len(torn.contents(f"log/{segment_names(torn)[-1]}")) - 10)
    World(torn, seed=1, log_start=3).open().claim()
    said("WARNING", "cut a torn tail", caplog)

    files.fail(1, errno.EIO, verbs=["sync_data"])
    with pytest.raises(OutcomeUnknown):
        log.append([rows(1)])
    said("ERROR", "poisoned", caplog)
    assert log.counters.io_errors == 1


def said(level: str, what: str, caplog: pytest.LogCaptureFixture) -> None:
    found = [record for record in caplog.records if what in record.getMessage()]
    assert found and {record.levelname for record in found} == {level}, caplog.text
    assert all(record.name.startswith("headwater.") for record in found)


def test_importing_and_using_the_library_sets_up_no_handler_and_prints_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, world = simulated()
    with world.open() as log:
        log.append([rows(1)])

    assert logging.getLogger("headwater").handlers == []
    assert capsys.readouterr() == ("", "")


# Concurrency ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["append", "sync_data", "sync_all", "create", "sync_directory"])
def test_readers_do_not_wait_for_any_call_of_the_writer_and_see_what_was_durable_before_it(verb: str) -> None:
    files, world = simulated()
    log = world.open()
    log.append([rows(1)])
    reached, let_go = threading.Event(), threading.Event()

    def stop(each: str, name: str) -> None:
        if each == verb and not reached.is_set():
            reached.set()
            assert let_go.wait(WAIT_S)

    def write() -> None:
        log.append([rows(1)])
        log.roll()
        log.append([rows(1)])

    files.before_call = stop
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    assert reached.wait(WAIT_S)
    durable = log.durable_lsn()

    seen: list[object] = []
    reader = threading.Thread(
        target=lambda: seen.extend([lsns(log), log.find(1, 0, 0) is not None, len(log.segments()) > 0]), daemon=True
    )
    reader.start()
    reader.join(WAIT_S)
    waited = reader.is_alive()
    let_go.set()
    writer.join(WAIT_S)

    assert not waited and not writer.is_alive()
    assert seen == [list(range(1, durable + 1)), True, True]
    assert lsns(log) == [1, 2, 3, 4]
