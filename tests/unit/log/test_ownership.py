"""Becoming the owner: the lock, what is written again, the epoch, the mark before the first frame (G5, G11, G12)."""

from __future__ import annotations

import errno
from random import Random

import pytest

from headwater.errors import DamagedLog, Unavailable
from headwater.ids import Lsn
from headwater.log.file_device import FileDevice
from headwater.log.mark import read_mark
from headwater.log.names import SegmentName
from headwater.storage.simulated import Choice
from tests.unit.log.device_world import (
    DIRECTORY,
    MARK_PATH,
    SETTINGS,
    World,
    commit,
    index_path,
    lsns,
    path,
    rows,
    three_segments,
)

P1, P2 = 1 << 32, 2 << 32

# The epoch and the mark -----------------------------------------------------------------------------------------------


def test_each_claim_raises_the_epoch_and_a_second_claim_of_the_same_owner_is_the_same() -> None:
    world = World()

    epochs, tokens = [], set()
    for _ in range(3):
        device = world.owner()
        epochs.append(device.claim().epoch)
        tokens.add(device.claim().token)
        device.close()

    assert epochs == [1, 2, 3]
    assert len(tokens) == 3


def test_the_epoch_rises_above_that_of_the_frames_even_without_a_mark() -> None:
    world = World()
    for _ in range(3):
        device = world.owner()
        commit(device, [rows()])
        device.close()
    world.remove(MARK_PATH)

    device = world.owner()

    assert device.claim().epoch == 4
    assert device.report.last_lsn == 3


def test_the_mark_with_the_new_epoch_is_durable_before_the_first_frame() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    again = world.restarted()

    owner = again.owner()

    mark = read_mark(again.files.crash(Random(0), choice=Choice.NOTHING).open(MARK_PATH))
    assert mark is not None
    assert (mark.epoch, mark.durable_lsn, mark.clean) == (owner.claim().epoch, 1, False) == (2, 1, False)


def test_a_claim_after_a_failed_sync_of_the_mark_puts_no_epoch_at_risk() -> None:
    world = World()
    commit(world.owner(), [rows()])
    world = world.restarted()
    # The mark of this claim is in the cache alone, because its sync fails; the one before it is on disk.
    world.files.fail(2, errno.EIO, verbs=["sync_data"])
    with pytest.raises(Unavailable):
        world.owner()
    world = world.restarted()
    epochs = []

    def note(verb: str, name: str) -> None:
        for state in world.files.crash_states(Random(0), 64) if name == MARK_PATH else ():
            mark = read_mark(state.open(MARK_PATH))
            epochs.append(mark.epoch if mark is not None else 0)

    world.files.before_call = note
    world.owner()

    assert set(epochs) == {1, 2, 3}


def test_a_new_log_takes_its_identity_from_chance_and_its_time_from_the_clock() -> None:
    first, second = World(1), World(2)

    headers = []
    for world in (first, second):
        world.owner()
        headers.append(world.opening()[0])

    assert headers[0].log_id != headers[1].log_id
    assert headers[0].salt != headers[1].salt
    assert headers[0].created_us == first.clock.now_us()
    assert (headers[0].first_lsn, headers[0].prev, headers[0].epoch, headers[0].shard) == (1, 0, 1, 0)


def test_appends_go_on_behind_the_last_whole_write_with_its_chain_and_its_time() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()], time_us=5_000)

    again = world.restarted().owner()

    assert again.next_lsn() == 2
    assert again.last_append_time_us() == 5_000
    assert again.next_offsets() == {P1: 1}


def test_the_time_of_the_sealed_segments_is_not_forgotten_with_an_empty_newest_one() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()], time_us=5_000)
    device.roll()

    again = world.restarted().owner()

    assert again.last_append_time_us() == 5_000


# Writing again --------------------------------------------------------------------------------------------------------


def test_what_a_failed_sync_dropped_is_written_again_before_it_is_served() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows(1, body=b"safe")])
    world.files.fail(1, errno.EIO, verbs=["sync_data"])
    with pytest.raises(Exception, match="not known whether"):
        commit(device, [rows(1, body=bytes(100_000))])
    # The cache still shows the frame, and no later sync would write it.
    world = world.restarted()

    owner = world.owner()

    assert lsns(owner) == [1, 2]
    assert owner.report.bytes_rewritten == 128 + 100_000 + 96
    after = world.over(world.files.crash(Random(0), choice=Choice.NOTHING))
    assert lsns(after.owner()) == [1, 2]


def test_without_a_mark_for_the_newest_segment_all_of_it_is_written_again() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    mark = world.files.contents(MARK_PATH)
    device.roll()
    commit(device, [rows()])
    for without in (mark, bytes(5000)):
        again = world.restarted()
        again.files.put(MARK_PATH, without)

        owner = again.owner()

        assert owner.report.bytes_rewritten == len(again.files.contents(path(2))) == 512


def test_what_the_mark_covers_is_not_written_again() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows(1, body=bytes(1000))])
    again = world.restarted()

    owner = again.owner()

    assert owner.report.bytes_rewritten == 0
    assert ("write_at", path(1)) not in again.files.calls


# Offsets of what is forgotten -----------------------------------------------------------------------------------------


def forgotten_log() -> World:
    """Segments up to LSN 4 are forgotten; the first that is left holds 5 to 6."""
    world = World()
    device = three_segments(world)
    device.roll()
    commit(device, [rows(1, topic=3)])
    device.forget(Lsn(5))
    world.log_start = 5
    device.close()
    return world


def test_after_a_deletion_the_offsets_go_on_where_they_were() -> None:
    world = forgotten_log()

    device = world.owner()

    assert device.next_offsets() == {P1: 6, P2: 9, 3 << 32: 1}


def test_if_the_index_that_alone_knew_the_offsets_is_lost_the_log_halts() -> None:
    world = forgotten_log()
    world.remove(index_path(5))

    with pytest.raises(DamagedLog) as halt:
        world.owner()

    assert halt.value.facts == {"segment": str(SegmentName(5, 0))}
    assert "checkpoint" in halt.value.message


def test_the_same_holds_where_the_first_segment_is_the_newest() -> None:
    world = World()
    device = three_segments(world)
    device.forget(Lsn(5))
    world.log_start = 5
    world = world.restarted()
    world.remove(index_path(5))

    with pytest.raises(DamagedLog) as halt:
        world.owner()

    assert halt.value.facts == {"segment": str(SegmentName(5, 0))}


def test_with_the_offsets_of_a_checkpoint_the_log_goes_on_and_gives_none_out_twice() -> None:
    world = forgotten_log()
    world.remove(index_path(5))
    known = {P1: 4, P2: 9, 7 << 32: 70}

    device = world.owner(known_offsets=lambda: known)

    # Of topic 1 the log itself knows more than the checkpoint, of topic 7 less.
    assert device.next_offsets() == {P1: 6, P2: 9, 3 << 32: 1, 7 << 32: 70}


# Left-overs -----------------------------------------------------------------------------------------------------------


def test_segments_whose_deletion_was_intended_stay_until_it_is_asked_for_again() -> None:
    world = World()
    three_segments(world).close()
    world.log_start = 3

    device = world.owner()
    there = str(SegmentName(1, 0)) in world.names()
    gone = device.forget(Lsn(3))

    assert there
    assert gone == [str(SegmentName(1, 0))]
    assert list(device.to_be_forgotten) == []
    assert SegmentName(1, 0).index not in world.names()


def test_the_indexes_of_all_segments_that_are_there_stay() -> None:
    world = World()
    three_segments(world)
    world = world.restarted()
    world.log_start = 3
    before = world.names()

    device = world.owner()

    assert world.names() == before
    assert {SegmentName(1, 0).index, SegmentName(3, 0).index} <= set(before)
    assert device.report.removed == []


def test_the_reserve_is_taken_when_the_log_is_claimed() -> None:
    world = World(settings=SETTINGS.__class__(reserve_bytes=8192))

    world.owner()

    assert world.files.contents(f"{DIRECTORY}/reserve") == bytes(8192)


# Claims that fail -----------------------------------------------------------------------------------------------------


def claims_until_it_works(world: World, verb: str, error: int = errno.EIO) -> tuple[FileDevice, int]:
    """Let the n-th call of a verb fail, for each n, until a claim no longer meets it."""
    for nth in range(1, 100):
        world.files.heal()
        world.files.fail(nth, error, verbs=[verb])
        device = world.device()
        try:
            device.claim()
        except Unavailable:
            assert not device.claimed
            assert device.place.counters.io_errors >= 1
            continue
        world.files.heal()
        return device, nth - 1
    raise AssertionError("it never worked")


@pytest.mark.parametrize(
    "verb",
    ["make_directory", "lock", "open", "list", "read_into", "size", "create", "append", "sync_all", "sync_directory",
     "write_at", "sync_data"],
)  # fmt: skip
def test_a_claim_that_fails_at_any_call_promises_nothing_and_the_next_one_works(verb: str) -> None:
    fresh, used = World(), World()
    device = three_segments(used)
    commit(device, [rows(1, body=bytes(5000))])
    used = used.restarted()
    used.files.put(path(1), used.files.contents(path(1)))
    used.files.put(MARK_PATH, bytes(64))

    failed = 0
    for world, expected in ((fresh, []), (used, [1, 2, 3, 4, 5, 6, 7])):
        owner, failures = claims_until_it_works(world, verb)
        failed += failures
        assert lsns(owner) == expected
        assert commit(owner, [rows()]) == len(expected) + 1
        owner.close()
        assert lsns(world.owner()) == [*expected, len(expected) + 1]

    assert failed > 0


def test_a_log_start_that_cannot_be_told_leaves_the_lock_free() -> None:
    world = World()

    def unknown() -> int:
        raise LookupError("the journal cannot be read")

    with pytest.raises(LookupError):
        world.device(log_start=unknown).claim()

    assert world.owner().claimed


def test_a_torn_tail_whose_cut_cannot_be_synced_is_not_served() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    world = world.restarted()
    world.files.put(path(1), world.files.contents(path(1)) + b"torn")
    world.files.fail(1, errno.EIO, verbs=["sync_all"])

    with pytest.raises(Unavailable):
        world.owner()
    again = world.owner()

    assert lsns(again) == [1]
    assert commit(again, [rows()]) == 2
