"""Committing on files: order, rolls, what a failing call does, forgetting, closing (G1, G6, G7, G11, G12)."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from headwater.clock import ManualClock, system_entropy
from headwater.errors import Closed, Forgotten, HeadwaterError, LogLocked, OutcomeUnknown, Poisoned, Unavailable
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, pack_segment_frame
from headwater.ids import Lsn
from headwater.log.file_device import FileDevice
from headwater.log.index import ActiveIndex
from headwater.log.mark import read_mark
from headwater.log.names import SegmentName
from headwater.log.segment import opening_of
from headwater.log.segments import LogPlace, Segment
from headwater.metrics import LogCounters
from headwater.settings import LogSettings
from headwater.storage.disk import DiskFiles
from headwater.storage.simulated import Choice
from tests.unit.log.device_world import (
    DIRECTORY,
    MARK_PATH,
    SETTINGS,
    World,
    commit,
    headers,
    index_path,
    lsns,
    path,
    rows,
    three_segments,
)

P1, P2 = 1 << 32, 2 << 32
RESERVE_PATH = f"{DIRECTORY}/reserve"


def with_settings(**changes: float) -> World:
    return World(settings=replace(SETTINGS, **changes))  # type: ignore[arg-type]


def disk_device(root: Path) -> FileDevice:
    place = LogPlace(DiskFiles(root), DIRECTORY, SETTINGS, LogCounters())
    return FileDevice(place, clock=ManualClock(), entropy=system_entropy, log_start=lambda: 1)


def after_power_loss(world: World) -> World:
    """What is there if the power fails now and nothing that was not synced survives."""
    return world.over(world.files.crash(Random(0), choice=Choice.NOTHING))


# Committing -----------------------------------------------------------------------------------------------------------


def test_a_commit_is_durable_when_it_returns() -> None:
    world = World()
    device = world.owner()

    commit(device, [rows(2), rows(1, topic=2)], [rows(5)])

    assert lsns(after_power_loss(world).owner()) == [1, 2, 3]
    assert device.durable() == 3


def test_the_sync_of_a_commit_comes_after_its_last_byte_and_before_the_mark() -> None:
    world = World()
    device = world.owner()
    world.files.calls.clear()

    commit(device, [rows()])

    changes = [(verb, name) for verb, name in world.files.calls if verb not in ("read_into", "list", "size")]
    assert changes == [("append", path(1)), ("sync_data", path(1)), ("write_at", MARK_PATH)]


def test_each_header_says_what_was_durable_when_it_was_written() -> None:
    world = World()
    device = world.owner()

    commit(device, [rows(), rows()])
    commit(device, [rows()], [rows()])

    assert [header.durable_lsn for header in headers(device)] == [0, 0, 2, 2]


def test_counters_tell_what_was_done() -> None:
    world = World()
    device = world.owner()

    commit(device, [rows()], [rows()])
    commit(device, [rows()])
    device.roll()

    counters = device.place.counters
    assert (counters.commits, counters.append_bytes, counters.rolls) == (2, 3 * 256, 1)
    assert counters.syncs >= 4
    assert counters.io_errors == 0


def test_nothing_can_be_committed_before_the_log_is_claimed() -> None:
    device = World().device()

    with pytest.raises(AssertionError, match="claim"):
        device.commit([([rows()], [0])], 1)

    assert not device.claimed
    assert not device.mark_is_dirty


# Rolling --------------------------------------------------------------------------------------------------------------


def test_a_segment_is_rolled_before_a_write_would_make_it_too_large() -> None:
    world = with_settings(segment_size_bytes_max=1024, write_body_bytes_max=1000)
    device = world.owner()

    for _ in range(7):
        commit(device, [rows()])

    assert [(info.first_lsn, info.bytes) for info in device.segments()] == [(1, 1024), (4, 1024), (7, 512)]
    assert lsns(device) == [1, 2, 3, 4, 5, 6, 7]


def test_a_write_as_large_as_a_segment_stands_alone_and_spans_none() -> None:
    world = with_settings(segment_size_bytes_max=1024, write_body_bytes_max=1024)
    device = world.owner()

    for _ in range(3):
        commit(device, [rows(1, body=bytes(1024))])

    assert [info.first_lsn for info in device.segments()] == [1, 2, 3]


def test_a_segment_is_rolled_when_it_is_older_than_it_may_be() -> None:
    world = with_settings(segment_age_s_max=60.0)
    device = world.owner()
    commit(device, [rows()], time_us=world.clock.now_us())
    created_us = device.segments()[0].created_us

    commit(device, [rows()], time_us=created_us + 60_000_000)
    commit(device, [rows()], time_us=created_us + 60_000_001)

    assert [info.first_lsn for info in device.segments()] == [1, 3]


def test_a_roll_that_is_asked_for_returns_the_first_lsn_of_what_it_sealed() -> None:
    world = World()
    device = world.owner()

    nothing_to_seal = device.roll()
    commit(device, [rows()])
    sealed = device.roll()
    again = device.roll()

    assert (nothing_to_seal, sealed, again) == (None, 1, None)
    assert device.active_segment.first_lsn == 2


def test_a_roll_syncs_the_old_segment_and_the_new_ones_name_before_the_first_frame() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    world.files.calls.clear()

    device.roll()
    commit(device, [rows()])

    calls = [call for call in world.files.calls if call[0] not in ("read_into", "list", "size")]
    order = [
        ("sync_all", path(1)),
        ("create", path(2)),
        ("append", path(2)),
        ("sync_all", path(2)),
        ("sync_directory", DIRECTORY),
        ("write_at", MARK_PATH),
    ]
    assert [call for call in calls if call in order][:6] == order
    assert calls.index(("rename", index_path(1) + ".tmp")) < calls.index(("sync_directory", DIRECTORY))
    assert lsns(after_power_loss(world).owner()) == [1, 2]


def test_a_new_segments_time_is_never_before_the_frames_in_front_of_it() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()], time_us=world.clock.now_us() + 1_000_000)

    device.roll()

    assert device.segments()[1].created_us == world.clock.now_us() + 1_000_000


def test_a_roll_whose_new_file_cannot_be_made_refuses_the_commit_and_the_next_one_works() -> None:
    world = with_settings(segment_size_bytes_max=1024, write_body_bytes_max=1000)
    device = world.owner()
    commit(device, [rows()], [rows()], [rows()])

    for verb in ("create", "append"):
        world.files.fail(2, errno.EMFILE, verbs=[verb])
        with pytest.raises(Unavailable, match="a new segment could not be begun"):
            commit(device, [rows()])
        world.files.heal()
        assert lsns(device) == [1, 2, 3]
        assert str(SegmentName(4, 0)) not in world.names()
    commit(device, [rows()])

    assert lsns(device) == [1, 2, 3, 4]
    assert lsns(after_power_loss(world).owner()) == [1, 2, 3, 4]


def test_an_index_that_cannot_be_saved_at_a_roll_is_kept_in_memory_and_rebuilt_by_the_next() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    world.files.fail(1, errno.EIO, verbs=["create"])

    device.roll()
    commit(device, [rows()])

    assert device.place.counters.io_errors == 1
    assert SegmentName(1, 0).index not in world.names()
    assert isinstance(device.view.segments[0].loaded_index, ActiveIndex)
    assert lsns(device) == [1, 2]
    again = world.restarted().owner()
    assert again.report.indexes_rebuilt == [SegmentName(1, 0).index]
    assert lsns(again) == [1, 2]


@pytest.mark.parametrize("nth", [1, 2])
def test_a_sync_that_fails_in_a_roll_poisons(nth: int) -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    world.files.fail(nth, errno.EIO, verbs=["sync_all"])

    with pytest.raises(OutcomeUnknown):
        device.roll()

    with pytest.raises(Poisoned):
        commit(device, [rows()])
    assert lsns(world.restarted().owner()) == [1]


def test_a_mark_that_cannot_be_written_in_a_roll_poisons() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    world.files.fail(1, errno.EIO, verbs=["write_at"])

    with pytest.raises(OutcomeUnknown):
        device.roll()

    again = world.restarted().owner()
    assert lsns(again) == [1]
    assert commit(again, [rows()]) == 2


# Failing appends ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_write_that_fails_half_way_is_cut_the_cut_is_synced_and_then_it_is_refused(error: int, seed: int) -> None:
    world = World(seed)
    device = world.owner()
    commit(device, [rows()])
    size = len(world.files.contents(path(1)))
    world.files.calls.clear()
    world.files.fail(1, error, verbs=["append"], short=True)

    with pytest.raises(Unavailable):
        commit(device, [rows(1, body=bytes(5000))])

    verbs = [verb for verb, name in world.files.calls if name == path(1) and verb != "read_into"]
    assert verbs[:3] == ["append", "truncate", "sync_all"]
    assert len(world.files.contents_on_disk(path(1)) or b"") == size
    assert device.place.counters.io_errors == 1
    assert lsns(device) == [1]
    assert commit(device, [rows()]) == 2
    assert lsns(after_power_loss(world).owner()) == [1, 2]


def test_after_a_write_was_taken_back_a_new_epoch_makes_what_it_left_stale() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    before = device.claim().epoch
    world.files.fail(1, errno.EIO, verbs=["append"], short=True)
    with pytest.raises(Unavailable):
        commit(device, [rows()])

    commit(device, [rows()])

    assert device.claim().epoch == before + 1
    assert [header.epoch for header in headers(device)] == [before, before + 1]
    mark = read_mark(after_power_loss(world).files.open(MARK_PATH))
    assert mark is not None
    assert mark.epoch == before + 1


@pytest.mark.parametrize("verb", ["truncate", "sync_all", "write_at", "sync_data"])
def test_if_the_cut_fails_too_the_log_is_poisoned_and_the_outcome_unknown(verb: str) -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    world.files.fail(1, errno.ENOSPC, verbs=["append"], short=True)
    world.files.fail(1, errno.EIO, verbs=[verb])

    with pytest.raises(OutcomeUnknown):
        commit(device, [rows()])

    with pytest.raises(Poisoned):
        commit(device, [rows()])
    assert lsns(world.restarted().owner())[:1] == [1]


def test_a_full_disk_takes_the_reserve_and_a_roll_gives_it_back() -> None:
    world = with_settings(reserve_bytes=50_000)
    device = world.owner()
    commit(device, [rows()])
    world.files.capacity_bytes = 60_000

    with pytest.raises(Unavailable, match="the disk is full"):
        commit(device, [rows(1, body=bytes(20_000))])
    given_up = RESERVE_PATH.rpartition("/")[2] not in world.names()
    commit(device, [rows(1, body=bytes(20_000))])
    device.roll()
    still_without = "reserve" not in world.names()
    world.files.capacity_bytes = None
    commit(device, [rows()])
    device.roll()

    assert given_up
    assert still_without
    assert world.files.contents(RESERVE_PATH) == bytes(50_000)


def test_a_full_disk_without_a_reserve_is_refused_all_the_same() -> None:
    world = World()
    device = world.owner()
    world.files.fail(1, errno.ENOSPC, verbs=["append"])

    with pytest.raises(Unavailable, match="the disk is full"):
        commit(device, [rows()])

    assert commit(device, [rows()]) == 1


@pytest.mark.parametrize("nth", [1, 2])
def test_a_disk_that_is_full_at_a_roll_takes_the_reserve_too(nth: int) -> None:
    world = with_settings(reserve_bytes=50_000, segment_size_bytes_max=1024, write_body_bytes_max=1000)
    device = world.owner()
    commit(device, [rows()], [rows()], [rows()])
    # The first file that a roll makes is the index, the second the new segment.
    world.files.fail(nth, errno.ENOSPC, verbs=["create"])
    world.files.fail(1, errno.ENOSPC, verbs=["allocate"])

    try:
        commit(device, [rows()])
        refused = False
    except Unavailable:
        refused = True

    assert refused == (nth == 2)
    assert "reserve" not in world.names()


def test_if_giving_up_the_reserve_fails_the_log_is_poisoned() -> None:
    world = with_settings(reserve_bytes=50_000)
    device = world.owner()
    commit(device, [rows()])
    world.files.fail(1, errno.ENOSPC, verbs=["append"])
    world.files.fail(1, errno.EIO, verbs=["list"])

    with pytest.raises(OutcomeUnknown):
        commit(device, [rows()])

    with pytest.raises(Poisoned):
        device.next_lsn()


# Failing syncs --------------------------------------------------------------------------------------------------------


def test_a_failed_sync_poisons_the_log_and_no_sync_is_tried_again() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    world.files.fail(1, errno.EIO, verbs=["sync_data"])

    with pytest.raises(OutcomeUnknown, match="not known whether"):
        commit(device, [rows()])
    world.files.calls.clear()

    for act in (device.next_lsn, device.next_offsets, device.roll, device.claim, device.last_append_time_us):
        with pytest.raises(Poisoned, match="close this log and open it again"):
            act()
    device.sync_mark()
    device.close()
    assert not [verb for verb, _ in world.files.calls if "sync" in verb]
    assert lsns(device) == [1]
    assert device.place.counters.io_errors == 1


def test_a_poisoned_log_that_is_closed_can_be_opened_again() -> None:
    world = World()
    device = world.owner()
    device.poison(RuntimeError("an interrupt in the middle of a commit"))

    device.close()
    again = world.owner()

    assert commit(again, [rows()]) == 1


def test_a_mark_that_cannot_be_written_leaves_a_durable_commit_unknown() -> None:
    world = World()
    device = world.owner()
    world.files.fail(1, errno.EIO, verbs=["write_at"])

    with pytest.raises(OutcomeUnknown):
        commit(device, [rows()])

    assert device.durable() == 0
    assert device.place.counters.io_errors == 1
    with pytest.raises(Poisoned):
        commit(device, [rows()])
    assert lsns(world.restarted().owner()) == [1]


# The idle mark --------------------------------------------------------------------------------------------------------


def test_the_mark_is_synced_when_it_is_dirty_and_only_then() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    dirty = device.mark_is_dirty
    world.files.calls.clear()

    device.sync_mark()
    device.sync_mark()

    assert dirty
    assert not device.mark_is_dirty
    assert world.files.calls == [("sync_data", MARK_PATH)]
    assert after_power_loss(world).mark().durable_lsn == 1
    world.reader().sync_mark()


def test_a_mark_that_cannot_be_synced_poisons() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    world.files.fail(1, errno.EIO, verbs=["sync_data"])

    with pytest.raises(OutcomeUnknown):
        device.sync_mark()

    with pytest.raises(Poisoned):
        commit(device, [rows()])


# Forgetting -----------------------------------------------------------------------------------------------------------


def test_segments_wholly_below_the_log_start_are_unlinked_with_their_indexes() -> None:
    world = World()
    device = three_segments(world)

    nothing = device.forget(Lsn(2))
    gone = device.forget(Lsn(5))

    assert nothing == []
    assert gone == [str(SegmentName(1, 0)), str(SegmentName(3, 0))]
    assert [name for name in world.names() if name.endswith((".seg", ".idx"))] == [
        SegmentName(5, 0).index,
        str(SegmentName(5, 0)),
    ]
    assert device.place.counters.segments_deleted == 2
    assert [info.first_lsn for info in device.segments()] == [5]
    assert not set(gone) & set(after_power_loss(world).names())


def test_the_active_segment_is_never_forgotten() -> None:
    world = World()
    device = three_segments(world)

    device.forget(Lsn(1000))

    assert lsns(device, 5) == [5, 6]
    assert commit(device, [rows()]) == 7


def test_offsets_are_remembered_before_the_first_segment_goes() -> None:
    world = World()
    device = three_segments(world)
    device.roll()

    device.forget(Lsn(7))
    world.log_start = 7

    for after in (world.restarted(), after_power_loss(world)):
        assert after.owner().next_offsets() == {P1: 6, P2: 9}


@pytest.mark.parametrize(
    "rolled", [False, True], ids=["in the active segment", "in a sealed segment without its index"]
)
def test_a_power_loss_at_any_call_of_a_deletion_loses_no_offset(rolled: bool) -> None:
    world = World()
    device = three_segments(world)
    if rolled:
        device.roll()
        commit(device, [rows(1)])
        world.remove(index_path(5))
    expected = dict(device.next_offsets())
    states = 0

    def lose_power(verb: str, name: str) -> None:
        nonlocal states
        for state in world.files.crash_states(Random(0), 32):
            states += 1
            assert world.over(state).owner().next_offsets() == expected, (verb, name)

    world.files.before_call = lose_power
    device.remember_offsets(Lsn(5))
    world.log_start = 5  # as whoever records deletions does now
    device.forget(Lsn(5))
    lose_power("after", "all")

    assert states > 50


def test_offsets_that_cannot_be_saved_are_told_and_where_nothing_goes_there_is_nothing_to_save() -> None:
    world = World()
    device = three_segments(world)
    world.files.fail(1, errno.EIO, verbs=["create"])

    answers = [device.remember_offsets(Lsn(start)) for start in (2, 5, 5)]

    assert answers == [True, False, True]
    assert SegmentName(5, 0).index in after_power_loss(world).names()


def test_if_the_offsets_cannot_be_remembered_nothing_is_forgotten() -> None:
    world = World()
    device = three_segments(world)
    world.files.fail(1, errno.EIO, verbs=["create"])

    gone = device.forget(Lsn(5))

    assert gone == []
    assert lsns(device) == [1, 2, 3, 4, 5, 6]
    assert device.forget(Lsn(5)) == [str(SegmentName(1, 0)), str(SegmentName(3, 0))]


def test_a_full_disk_does_not_hinder_forgetting_for_ever() -> None:
    world = with_settings(reserve_bytes=50_000)
    device = three_segments(world)
    world.files.capacity_bytes = sum(len(data) for data in world.contents().values()) + 10

    refused = device.forget(Lsn(5))
    gone = device.forget(Lsn(5))

    assert refused == []
    assert gone == [str(SegmentName(1, 0)), str(SegmentName(3, 0))]


@pytest.mark.parametrize("in_memory", [True, False])
def test_an_index_that_is_missing_is_saved_before_the_segments_in_front_of_it_go(in_memory: bool) -> None:
    world = World()
    device = world.owner()
    commit(device, [rows(2)])
    device.roll()
    commit(device, [rows(2)])
    if in_memory:
        world.files.fail(1, errno.EIO, verbs=["create"])
    device.roll()
    commit(device, [rows(2)])
    if not in_memory:
        world.remove(index_path(2))

    device.forget(Lsn(2))

    assert SegmentName(2, 0).index in world.names()
    world.log_start = 2
    again = world.restarted().owner()
    assert again.report.indexes_rebuilt == []
    assert again.next_offsets() == {P1: 6}


def test_what_cannot_be_unlinked_is_counted_and_tried_again() -> None:
    world = World()
    device = three_segments(world)
    world.files.fail(2, errno.EPERM, verbs=["unlink"])

    first = device.forget(Lsn(5))
    left = list(device.to_be_forgotten)
    second = device.forget(Lsn(5))

    assert first == []
    assert left == [SegmentName(1, 0), SegmentName(3, 0)]
    assert second == [str(SegmentName(1, 0)), str(SegmentName(3, 0))]
    assert device.place.counters.unlinks_failed == 1
    with pytest.raises(Forgotten):
        lsns(device, 1)


def test_a_directory_that_cannot_be_synced_after_an_unlink_poisons() -> None:
    world = World()
    device = three_segments(world)
    device.roll()
    world.files.fail(2, errno.EIO, verbs=["sync_directory"])

    with pytest.raises(OutcomeUnknown):
        device.forget(Lsn(3))

    with pytest.raises(Poisoned):
        device.forget(Lsn(3))


def test_a_segment_is_known_by_its_name_until_it_is_forgotten() -> None:
    world = World()
    device = three_segments(world)
    name = str(SegmentName(3, 0))

    found = device.segment_named(name)
    device.forget(Lsn(5))

    assert found.first_lsn == 3
    with pytest.raises(Forgotten, match="plan again"):
        device.segment_named(name)


@pytest.mark.parametrize("unlink_fails", [False, True])
def test_a_replaced_segment_is_shown_in_place_of_the_old_one_which_goes(unlink_fails: bool) -> None:
    world = World()
    device = three_segments(world)
    old = device.view.segments[1]
    header, chain = world.opening(3)
    data = pack_segment_frame(replace(header, generation=1, last_lsn=4, old_chain=chain))
    world.files.put(path(3, 1), data + world.files.contents(path(3))[SEGMENT_FRAME_BYTES:])
    new = Segment(device.place, SegmentName(3, 1), opening_of(data))
    new.seal(old.end, old.size)
    if unlink_fails:
        world.files.fail(2, errno.EPERM, verbs=["unlink"])

    device.replace(old.name, new)
    left = str(SegmentName(3, 0)) in world.names()
    device.forget(Lsn(1))

    assert left == unlink_fails
    assert str(SegmentName(3, 0)) not in world.names()
    assert [info.generation for info in device.segments()] == [0, 1, 0]
    assert lsns(device) == [1, 2, 3, 4, 5, 6]
    assert device.place.counters.segments_rewritten == 1


# Closing --------------------------------------------------------------------------------------------------------------


def test_a_clean_close_says_so_in_the_mark_and_lets_the_lock_go() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])

    device.close()
    device.close()

    mark = after_power_loss(world).mark()
    assert (mark.clean, mark.durable_lsn, mark.segment) == (True, 1, 1)
    assert world.owner().report.clean
    for act in (device.next_lsn, device.claim, device.roll):
        with pytest.raises(Closed):
            act()
    assert device.refresh() == 1


def test_an_owner_and_a_closed_device_know_how_far_the_log_is_durable_without_looking() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    reader = world.reader()
    reader.close()
    world.files.calls.clear()

    seen = [device.refresh(), reader.refresh()]

    assert seen == [1, 1]
    assert world.files.calls == []


def test_a_device_that_was_never_claimed_closes_without_a_trace() -> None:
    world = World()
    world.owner().close()
    before = world.contents()
    reader, nobody = world.reader(), world.device()

    reader.close()
    nobody.close()

    assert world.contents() == before


def test_a_close_that_cannot_be_made_durable_says_so_and_lets_the_lock_go_all_the_same() -> None:
    for verb in ("write_at", "sync_data", "sync_directory"):
        world = World()
        device = world.owner()
        commit(device, [rows()])
        nth = 2 if verb == "sync_data" else 1  # The first syncs the index, which can be rebuilt.
        world.files.fail(nth, errno.EIO, verbs=[verb])

        with pytest.raises(OutcomeUnknown):
            device.close()

        again = world.owner()
        assert lsns(again) == [1]


def test_an_index_that_cannot_be_saved_at_close_costs_the_next_owner_a_scan() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    world.files.fail(1, errno.EIO, verbs=["create"])

    device.close()

    again = world.owner()
    assert again.report.frames_scanned == 1
    assert lsns(again) == [1]


# One owner ------------------------------------------------------------------------------------------------------------


def test_a_second_owner_is_refused_with_the_pid_of_the_first() -> None:
    world = World()
    device = world.owner()

    with pytest.raises(LogLocked, match=f"pid {os.getpid()}"):
        world.owner()

    commit(device, [rows()])
    assert lsns(world.reader()) == [1]


def test_another_process_that_owns_the_log_is_named(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib\n"
        "from tests.unit.log.test_file_device import disk_device\n"
        "device = disk_device(pathlib.Path(sys.argv[1]))\n"
        "device.claim()\n"
        "print('owner', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "owner\n"
        device = disk_device(tmp_path)

        with pytest.raises(LogLocked, match=f"pid {child.pid}: stop that process"):
            device.claim()
        assert child.stdin is not None
        child.stdin.write("\n")

    device.claim()
    assert device.claimed


def in_a_child(act: Callable[[], object]) -> bytes:
    """Fork, do something there, and say what came of it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            answer = f"returned {act()}"
        except HeadwaterError as error:
            answer = type(error).__name__
        os.write(writing, answer.encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(pid, 0)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read()


def test_in_the_child_of_a_fork_the_log_is_closed_and_the_parents_goes_on(tmp_path: Path) -> None:
    device = disk_device(tmp_path)
    device.claim()
    commit(device, [rows()])

    answers = [
        in_a_child(lambda: commit(device, [rows()])),
        in_a_child(device.roll),
        in_a_child(device.claim),
        in_a_child(device.close),
    ]

    assert answers == [b"Closed", b"Closed", b"Closed", b"returned None"]
    assert commit(device, [rows()]) == 2
    with pytest.raises(LogLocked):
        disk_device(tmp_path).claim()
    device.close()
    again = disk_device(tmp_path)
    again.claim()
    assert again.report.clean
    assert lsns(again) == [1, 2]


# Settings -------------------------------------------------------------------------------------------------------------


def test_the_default_settings_work_on_a_real_disk(tmp_path: Path) -> None:
    place = LogPlace(DiskFiles(tmp_path), DIRECTORY, LogSettings(reserve_bytes=4096), LogCounters())
    device = FileDevice(place, clock=ManualClock(), entropy=system_entropy, log_start=lambda: 1)
    device.claim()

    commit(device, [rows()])
    device.close()

    assert sorted(os.listdir(tmp_path / DIRECTORY)) == [
        SegmentName(1, 0).index,
        str(SegmentName(1, 0)),
        "lock",
        "mark",
        "reserve",
    ]
