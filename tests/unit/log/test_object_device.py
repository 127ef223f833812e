"""The log on an object store: what its owner does, and how it ends."""

from __future__ import annotations

import os
import threading
from unittest.mock import patch

import pytest

from headwater.clock import ManualClock
from headwater.errors import (
    Closed,
    DamagedLog,
    Fenced,
    Forgotten,
    LogLocked,
    LostSegment,
    OutcomeUnknown,
    Poisoned,
    Unavailable,
)
from headwater.frames.bodies import GapReason
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log.drafts import Draft
from headwater.log.frame_log import open_log
from headwater.log.index import partition_key
from headwater.log.object_device import SLOTS_MAX
from headwater.log.rewrite import KEEP, rewrite_segment
from headwater.log.takeover import still_walked
from headwater.storage.objects import StoreUnsure
from headwater.storage.simulated_store import Fate, SimulatedStore
from tests.unit.log.store_logs import append, bodies, bucket, device_of, opened, rows

# Owning ------------------------------------------------------------------------------------------


def test_opening_writes_nothing_and_the_first_append_claims() -> None:
    store = SimulatedStore()

    with opened(bucket(store)) as log:
        assert log.durable_lsn() == 0
        assert not store.names()

        receipt = log.append([rows(3)])

    assert receipt.first_lsn == 2, "the fence holds the frame of the epoch"
    assert receipt.base_offsets == (0,)
    assert {"log/trim", "log/lease"} <= set(store.names())


def test_a_commit_is_one_put_and_nothing_else() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    before = len(store.calls)

    append(log, 4)
    log.append([Draft(Kind.SOURCE, b"a position")])

    assert [verb for verb, _ in store.calls[before:]] == ["put_if_absent"] * 5
    log.close()


def test_an_owner_that_is_alive_is_left_alone() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)

    with opened(bucket(store)) as other, pytest.raises(LogLocked, match="a-machine"):
        append(other, 1)

    append(log, 1)
    log.close()


def test_an_owner_that_gives_no_sign_of_life_is_taken_over_after_three_seconds() -> None:
    store = SimulatedStore()
    dead = opened(bucket(store))
    append(dead, 2)
    clock = ManualClock()
    standby = opened(bucket(store, clock=clock, seed=2), seed=3)
    with pytest.raises(LogLocked):
        append(standby, 1)

    clock.advance(2.9)
    with pytest.raises(LogLocked):
        append(standby, 1)
    clock.advance(0.2)
    append(standby, 1)

    assert len(bodies(standby)) == 3
    with pytest.raises(Fenced):
        append(dead, 1)
    standby.close()
    dead.close()


def test_a_lease_that_moves_while_it_is_watched_is_an_owner_that_is_alive() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    watching = bucket(store, seed=2, threads=True)
    watching.pause = lambda _: device_of(log).keep()

    with opened(watching, seed=3) as other, pytest.raises(LogLocked):
        append(other, 1)
    log.close()


def test_a_lease_that_says_nothing_is_as_good_as_none() -> None:
    store = SimulatedStore()
    store.put("log/lease", b"not a lease")

    with opened(bucket(store)) as log:
        append(log, 1)


def test_a_closed_owner_leaves_the_log_to_the_next_at_once() -> None:
    store = SimulatedStore()
    with opened(bucket(store)) as log:
        append(log, 1)

    with opened(bucket(store, seed=2), seed=3) as other:
        append(other, 1)
        assert len(bodies(other)) == 2


def test_whoever_takes_over_fences_the_owner_out_by_name_and_for_ever() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 2)
    other = opened(bucket(store, seed=2, take_over=True), seed=3)
    append(other, 1)

    with pytest.raises(Fenced, match="nothing of this was appended"):
        append(log, 1)

    with pytest.raises(Fenced):
        append(log, 1)
    with pytest.raises(Fenced):
        log.roll()
    assert len(bodies(other)) == 3
    log.close()
    other.close()


def test_an_idle_owner_finds_out_by_its_lease_that_it_was_fenced() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    other = opened(bucket(store, seed=2, take_over=True), seed=3)
    append(other, 1)

    with pytest.raises(Fenced, match="takes the log over"):
        device_of(log).keep()
    other.close()


def test_a_slot_that_its_successor_has_merged_is_not_said_to_be_missing() -> None:
    """The reply to a slot is lost; the successor takes it in, deletes it, and a late fence comes to lie there."""
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    slot = max(name for name in store.names() if name.startswith("log/0000"))
    following = f"log/{int(slot.removeprefix('log/')) + 1:020}"

    def successor(verb: str, name: str) -> None:
        if (verb, name) == ("get", following):
            store.before_call = None
            other = opened(bucket(store, seed=2, take_over=True), seed=3)
            append(other, 40)
            device_of(other).keep()
            other.close()
            assert following not in store.names()
            store.put(following, b"a fence that came too late")

    store.next_fate(Fate.LOST, verb="put_if_absent", name=following)
    store.before_call = successor

    with pytest.raises(OutcomeUnknown, match="before"):
        append(log, 1)
    with pytest.raises(Fenced):
        append(log, 1)


def test_a_log_that_follows_another_is_not_taken_from_a_later_owner_of_that_one() -> None:
    """An owner that lost the log before it had claimed the journal must not take the journal from its successor."""
    store = SimulatedStore()
    late = opened(bucket(store, seed=2, take_over=True), seed=3)
    late.claim()
    owner = opened(bucket(store, seed=4, take_over=True), seed=5)
    owner.claim()
    journals = [opened(bucket(store, seed=seed), "journal", seed=seed) for seed in (6, 7)]
    for log, journal in zip((owner, late), journals, strict=True):
        device_of(journal).follow(device_of(log).claim())
    append(journals[0], 1)

    with pytest.raises(Fenced, match="later owner"):
        append(journals[1], 1)

    append(journals[0], 1)
    assert len(bodies(journals[0])) == 2


def test_an_owner_that_gave_up_a_claim_of_what_follows_claims_it_again() -> None:
    store = SimulatedStore()
    owner = opened(bucket(store))
    owner.claim()
    journals = [opened(bucket(store, seed=seed), "journal", seed=seed) for seed in (6, 7)]
    for journal in journals:
        device_of(journal).follow(device_of(owner).claim())
    journals[0].claim()

    append(journals[1], 1)

    assert len(bodies(journals[1])) == 1


def test_a_log_whose_trim_is_gone_is_not_begun_anew() -> None:
    store = SimulatedStore()
    with opened(bucket(store)) as log:
        append(log, 1)
    store.delete("log/trim")

    with opened(bucket(store, take_over=True)) as other, pytest.raises(LostSegment):
        append(other, 1)


def test_two_that_begin_a_log_at_the_same_moment_begin_one_log() -> None:
    store = SimulatedStore()
    other = opened(bucket(store, seed=2, take_over=True), seed=3)

    def begin_too(verb: str, name: str) -> None:
        if verb == "list_after":
            store.before_call = None
            append(other, 1)

    log = opened(bucket(store, take_over=True))
    store.before_call = begin_too
    append(log, 1)

    assert len(bodies(log)) == 2
    log.close()


def test_a_log_that_must_reach_further_back_is_lost_by_name() -> None:
    store = SimulatedStore()

    with pytest.raises(LostSegment):
        opened(bucket(store), log_start=5)


def test_offsets_that_are_remembered_elsewhere_are_not_given_out_again() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    device_of(log)._known_offsets = lambda: {partition_key(1, 0): 40}

    receipt = log.append([rows()])

    assert receipt.base_offsets == (40,)
    log.close()


# Rolling -----------------------------------------------------------------------------------------


def test_a_full_segment_is_followed_by_the_next_and_both_are_read() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))

    last = append(log, 60, body=b"x" * 200)

    assert len(log.segments()) > 3
    assert len(bodies(log)) == 60
    with opened(bucket(store)) as reader:
        assert reader.durable_lsn() == last
        assert len(bodies(reader)) == 60
    log.close()


def test_a_roll_seals_what_is_there_and_nothing_where_nothing_is() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)

    assert log.roll() == 1
    assert log.roll() is None
    assert device_of(log).end().next_lsn == 3

    assert append(log, 1) == 3
    assert [segment.first_lsn for segment in log.segments()] == [1, 3]
    assert device_of(log).end().next_lsn == 4
    assert device_of(log).next_lsn() == 4
    log.close()


def test_a_segment_ends_after_so_many_slots() -> None:
    store = SimulatedStore(remember_calls=False)
    log = opened(bucket(store))
    with patch("headwater.log.object_device.SLOTS_MAX", 4):
        append(log, 9)

    assert SLOTS_MAX == 1_000
    assert len(log.segments()) == 3
    log.close()


def test_a_segment_that_is_old_ends_with_the_next_commit() -> None:
    store = SimulatedStore()
    clock = ManualClock()
    log = opened(bucket(store, clock=clock))
    append(log, 1)

    clock.advance(3601)
    append(log, 1)

    assert len(log.segments()) == 2
    log.close()


# Letting go --------------------------------------------------------------------------------------


def test_what_was_forgotten_is_gone_and_its_offsets_are_not_given_out_again() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    last = append(log, 10)
    log.roll()
    device_of(log).take_in()
    assert device_of(log).remember_offsets(Lsn(last + 1))

    gone = log.exclusively(lambda: device_of(log).forget(Lsn(last + 1)))

    assert gone == ["00000000000000000001.0.seg"]
    assert not device_of(log).to_be_forgotten
    assert not [name for name in store.names() if name.endswith(".seg")]
    log.close()
    with opened(bucket(store), log_start=last + 1) as other:
        assert other.append([rows()]).base_offsets == (10,)


def test_what_trim_does_not_name_yet_is_forgotten_later() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    last = append(log, 3)
    log.roll()

    assert not log.exclusively(lambda: device_of(log).forget(Lsn(last + 1)))
    device_of(log).take_in()
    assert log.exclusively(lambda: device_of(log).forget(Lsn(last + 1)))
    log.close()


def test_a_base_whose_index_is_gone_is_named() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    last = append(log, 3)
    log.roll()
    device_of(log).take_in()
    log.exclusively(lambda: device_of(log).forget(Lsn(last + 1)))
    log.close()
    store.delete("log/00000000000000000001.0.idx")

    with pytest.raises(DamagedLog, match="index"):
        opened(bucket(store), log_start=last + 1)


def test_a_rewritten_segment_takes_the_place_of_the_old_one_for_everybody() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 3)
    log.roll()
    append(log, 1)
    name = log.segments()[0].name

    made = rewrite_segment(log, name, lambda header, _: header.lsn != 3 and KEEP, reason=GapReason.COMPACTED)

    assert made.frames_removed == 1
    assert len(bodies(log)) == 3
    with pytest.raises(Forgotten):
        device_of(log).segment_named(name)
    with opened(bucket(store)) as reader:
        assert len(bodies(reader)) == 3
        assert reader.segments()[0].generation == log.segments()[0].generation
    # A second owner's generation is another one, whatever the first has made.
    assert log.segments()[0].generation > 1 << 12
    log.close()


# Ending ------------------------------------------------------------------------------------------


def test_a_store_that_does_not_answer_poisons_and_opening_again_recovers() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)

    def down(verb: str, name: str) -> None:
        if verb == "put_if_absent":
            raise StoreUnsure("down")

    store.before_call = down
    with pytest.raises(OutcomeUnknown, match="not known"):
        append(log, 1)
    with pytest.raises(Poisoned):
        append(log, 1)
    assert device_of(log).poisoned_by is not None
    store.before_call = None
    log.close()

    with opened(bucket(store)) as other:
        append(other, 1)
        assert len(bodies(other)) == 2


def test_a_store_that_does_not_answer_while_a_log_is_opened_is_unavailable() -> None:
    store = SimulatedStore()

    def down(verb: str, name: str) -> None:
        raise StoreUnsure("down")

    store.before_call = down
    with pytest.raises(Unavailable, match="does not answer"):
        opened(bucket(store))


def test_a_child_of_a_fork_has_a_closed_log() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    device = device_of(log)

    with patch.object(os, "getpid", lambda: device._pid + 1):
        with pytest.raises(Closed, match="forked"):
            device.claim()
        device.close()
    with pytest.raises(Closed):
        device.claim()


def test_a_device_that_was_not_claimed_does_nothing_for_an_owner() -> None:
    device = device_of(opened(bucket(SimulatedStore())))

    assert device.window == 8
    device.sync_mark()
    assert not device.mark_is_dirty
    device.settle()
    with pytest.raises(AssertionError):
        device.roll()
    device.close()
    device.close()
    assert device.refresh() == 0


def test_a_halted_log_is_not_claimed() -> None:
    store = SimulatedStore()
    with opened(bucket(store)) as log:
        append(log, 2)
    slot = max(name for name in store.names() if name.startswith("log/0000"))
    store.flip_bit(slot, 8 * 400)
    with pytest.raises(DamagedLog):
        opened(bucket(store))

    halted = device_of(open_log(bucket(store), undamaged_part=True))

    assert halted.durable() == 2
    assert halted.refresh() == 2
    with pytest.raises(DamagedLog):
        halted.claim()


def test_with_threads_many_commits_fly_and_are_answered_in_order() -> None:
    store = SimulatedStore()
    log = opened(bucket(store, threads=True))
    answered: list[int] = []
    futures = [log.append_future([rows(body=b"x" * 600)]) for _ in range(200)]
    for future in futures:
        future.add_done_callback(lambda each: answered.append(each.result().last_lsn))

    receipts = [future.result(timeout=20) for future in futures]

    assert [receipt.base_offsets[0] for receipt in receipts] == list(range(200))
    assert answered == sorted(answered)
    assert len(bodies(log)) == 200
    device_of(log).settle()
    log.close()
    assert not [each for each in threading.enumerate() if each.name == "headwater-keeper"]


def test_a_window_that_stays_full_is_unavailable() -> None:
    store = SimulatedStore()
    log = opened(bucket(store, threads=True))
    append(log, 1)
    held = threading.Event()

    def hold(verb: str, name: str) -> None:
        if verb == "put_if_absent":
            held.wait()

    store.before_call = hold
    device = device_of(log)
    owner = device._owner
    assert owner is not None
    tickets = [device.commit([([rows()], [1 + each])], 10**18 + each) for each in range(8)]

    with pytest.raises(Unavailable, match="on their way"):
        owner.flights.wait_for_room(0.01)

    held.set()
    for ticket in tickets:
        ticket.wait()
    log.close()


def test_still_walked_says_whether_trim_has_passed_a_slot() -> None:
    store = SimulatedStore()
    with opened(bucket(store)) as log:
        append(log, 1)
        device = device_of(log)

        assert device._asked(still_walked("log", 1))
        assert not device._asked(still_walked("log", 0))
