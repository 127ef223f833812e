"""What an owner on a store keeps in order: its sign of life, and what lies below the walk."""

from __future__ import annotations

import threading
from unittest.mock import patch

import pytest

from headwater.errors import Fenced, LostSegment, Unavailable
from headwater.ids import Lsn
from headwater.log.frame_log import FrameLog
from headwater.log.log_lease import read_lease
from headwater.log.manifest import Manifest, pack_manifest, unpack_manifest
from headwater.log.object_keeping import Keeper
from headwater.log.opened_segment import unpack_slots
from headwater.storage.objects import StoreUnsure
from headwater.storage.simulated_store import Fate, SimulatedStore
from tests.unit.log.store_logs import append, bodies, bucket, device_of, opened


def trim_of(store: SimulatedStore) -> Manifest:
    return unpack_manifest(store.get("log/trim").data)


def keeper_of(log: FrameLog) -> Keeper:
    owner = device_of(log)._owner
    assert owner is not None
    return owner.keeper


# The lease ---------------------------------------------------------------------------------------


def test_a_lease_is_renewed_on_what_was_written_last() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    first = read_lease(store.get("log/lease").data)

    device_of(log).keep()

    second = read_lease(store.get("log/lease").data)
    assert first is not None
    assert second == first.renewed()
    log.close()
    last = read_lease(store.get("log/lease").data)
    assert last is not None
    assert last.released


def test_a_renewal_whose_reply_was_lost_is_still_ours() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    store.next_fate(Fate.LOST, verb="put_if_match", name="log/lease")

    device_of(log).keep()
    device_of(log).keep()

    append(log, 1)
    log.close()


def test_a_lease_that_somebody_deleted_is_written_again() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    store.delete("log/lease")

    device_of(log).keep()

    assert read_lease(store.get("log/lease").data) is not None
    log.close()


def test_a_lease_that_cannot_be_given_up_costs_the_next_owner_a_wait_and_nothing_else() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    store.next_fate(Fate.FAILED, verb="put_if_match", name="log/lease")

    log.close()

    lease = read_lease(store.get("log/lease").data)
    assert lease is not None
    assert not lease.released


def test_a_journal_and_a_ledger_give_no_sign_of_life() -> None:
    store = SimulatedStore()
    log = opened(bucket(store), "journal")
    append(log, 1)

    device_of(log).keep()

    assert device_of(log).window == 1
    assert "journal/lease" not in store.names()
    log.close()


# Below the walk ----------------------------------------------------------------------------------


def test_small_slots_of_a_sealed_segment_become_one_object_and_its_fence_stays() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 5)
    log.roll()
    before = bodies(log)

    device_of(log).take_in()

    assert [name for name in store.names() if name.startswith("log/0") and "." not in name] == [
        "log/00000000000000000001",  # the fence
        "log/00000000000000000014",  # the slot that opens the next segment
    ]
    assert trim_of(store).next == 14
    assert not trim_of(store).segments[0].slots
    assert bodies(log) == before
    with opened(bucket(store)) as reader:
        assert bodies(reader) == before
    log.close()


def test_large_slots_stay_as_they_are_and_go_when_they_are_forgotten() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    with patch("headwater.log.object_keeping.MERGE_BELOW_BYTES", 100):
        last = append(log, 5)
        log.roll()
        device_of(log).take_in()

    kept = trim_of(store).segments[0]
    assert len(kept.slots) == 6
    assert kept.fences == (1,)
    assert unpack_slots(device_of(log).placed(Lsn(1)).slots) == kept.slots
    assert len(bodies(log)) == 5
    log.exclusively(lambda: device_of(log).forget(Lsn(last + 1)))
    assert [name for name in store.names() if name.startswith("log/0")] == [
        "log/00000000000000000001",
        "log/00000000000000000001.0.idx",
        "log/00000000000000000014",
    ]
    # The index of what was forgotten last goes when the next segment is named.
    append(log, 1)
    log.roll()
    device_of(log).take_in()
    assert "log/00000000000000000001.0.idx" not in store.names()
    log.close()


def test_a_segment_of_one_slot_is_an_object_already() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 4, body=b"x" * 3500)

    device_of(log).take_in()

    assert [len(each.slots) for each in trim_of(store).segments] == [1, 1, 1, 1]
    assert len(bodies(log)) == 4
    log.close()


def test_what_is_sealed_is_taken_in_by_parts() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 12, body=b"x" * 1500)
    swaps = sum(call == ("put_if_match", "log/trim") for call in store.calls)

    with patch("headwater.log.object_keeping.ABSORBED_BYTES", 9_000):
        device_of(log).take_in()

    assert len(trim_of(store).segments) == 5
    assert sum(call == ("put_if_match", "log/trim") for call in store.calls) == swaps + 3
    assert len(bodies(log)) == 12
    log.close()


def test_an_owner_whose_slots_are_gone_was_fenced_or_has_lost_them() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 3)
    log.roll()
    device_of(log)._cache._slots.clear()
    store.delete("log/00000000000000000009")

    with pytest.raises(LostSegment):
        device_of(log).take_in()

    trim = trim_of(store)
    store.put_if_match("log/trim", _owned(trim), store.get("log/trim").etag)
    with pytest.raises(Fenced):
        device_of(log).take_in()


def _owned(trim: Manifest) -> bytes:
    return pack_manifest(trim.owned_by(trim.epoch + 1, b"another"))


def test_a_trim_of_another_owner_fences_whoever_moves_it() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 3)
    log.roll()
    other = opened(bucket(store, seed=2, take_over=True), seed=3)
    append(other, 1)

    with pytest.raises(Fenced):
        device_of(log).take_in()
    with pytest.raises(Fenced):
        append(log, 1)
    other.close()


def test_an_object_that_cannot_be_deleted_is_counted_and_left() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 3)
    log.roll()

    def refuse(verb: str, name: str) -> None:
        if verb == "delete":
            raise PermissionError("not yours to delete")

    store.before_call = refuse
    device_of(log).take_in()

    assert log.counters.unlinks_failed == 3
    assert len(bodies(log)) == 3
    store.before_call = None
    log.close()


# Threads -----------------------------------------------------------------------------------------


def test_the_keepers_threads_take_in_what_is_sealed_and_give_signs_of_life() -> None:
    store = SimulatedStore()
    with patch("headwater.log.object_keeping.RENEW_S", 0.01):
        log = opened(bucket(store, threads=True))
        append(log, 5)
        log.roll()
        lease = None
        for _ in range(500):
            lease = read_lease(store.get("log/lease").data)
            if trim_of(store).segments and lease is not None and lease.counter > 2:
                break
            threading.Event().wait(0.01)

    assert trim_of(store).segments
    assert lease is not None
    assert lease.counter > 2
    log.close()


def test_what_upkeep_cannot_do_now_is_put_off_and_a_fence_ends_it() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    keeper = keeper_of(log)

    def unavailable() -> None:
        raise Unavailable("not now")

    def unsure() -> None:
        raise StoreUnsure("no reply")

    def fenced() -> None:
        raise Fenced("another's")

    assert keeper._tried(unavailable)
    assert keeper._tried(unsure)
    assert not keeper._tried(fenced)
    with pytest.raises(Fenced):
        append(log, 1)


def test_what_the_store_does_not_answer_is_put_off_by_whoever_keeps_it_in_order() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 3)
    log.roll()

    def down(verb: str, name: str) -> None:
        raise StoreUnsure("down")

    store.before_call = down
    device_of(log).keep()
    store.before_call = None

    device_of(log).keep()
    assert trim_of(store).segments
    log.close()


def test_a_keeper_that_ends_itself_does_not_wait_for_itself() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    keeper = keeper_of(log)
    keeper._threads.append(threading.current_thread())

    keeper.stop(clean=True)

    lease = read_lease(store.get("log/lease").data)
    assert lease is not None
    assert lease.released
