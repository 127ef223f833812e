"""Reading a log on a store: exact beside any owner, and halted by name where something is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headwater.errors import CorruptData, Fenced, LostSegment, Unavailable
from headwater.ids import Lsn
from headwater.log.opened_segment import unpack_slots
from headwater.storage.simulated_store import SimulatedStore
from tests.unit.log.store_logs import append, bodies, bucket, device_of, opened


def written(store: SimulatedStore, commits: int) -> None:
    with opened(bucket(store)) as log:
        append(log, commits)


def slots(store: SimulatedStore) -> list[str]:
    return [name for name in store.names() if name.startswith("log/0") and "." not in name]


def during(store: SimulatedStore, verb: str, name: str, act: Callable[[], object]) -> None:
    """Do something once, right before a request."""

    def before(called: str, of: str) -> None:
        if (called, of) == (verb, name):
            store.before_call = None
            act()

    store.before_call = before


def test_a_reader_sees_each_commit_as_soon_as_it_is_there() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    reader = opened(bucket(store))
    assert reader.durable_lsn() == 0

    for count in range(1, 30):
        append(log, 1, body=b"x" * 300)
        assert len(bodies(reader)) == count
    log.close()


def test_a_reader_that_walks_while_slots_are_merged_begins_anew() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 5)

    def merge() -> None:
        log.roll()
        device_of(log).take_in()

    during(store, "get", slots(store)[3], merge)

    with opened(bucket(store)) as reader:
        assert len(bodies(reader)) == 5
    log.close()


def test_a_reader_that_follows_while_slots_are_merged_goes_on_with_the_segment() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 3)
    reader = opened(bucket(store))
    append(log, 3)
    log.roll()
    device_of(log).take_in()
    append(log, 1)

    assert len(bodies(reader)) == 7
    log.close()


def test_a_reader_that_follows_for_long_lets_go_of_what_it_walked() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    reader = opened(bucket(store))

    for count in range(2, 12):
        log.roll()
        append(log, 1)
        device_of(log).take_in()
        assert len(bodies(reader)) == count

    walk = device_of(reader)._walk
    assert walk is not None
    assert len(walk.runs) <= 4
    log.close()


def test_damage_that_a_walk_met_in_a_deleted_slot_is_none() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 3)
    slot = slots(store)[2]

    def merge() -> None:
        log.roll()
        device_of(log).take_in()
        store.put(slot, b"left by somebody who came too late")

    during(store, "get", slot, merge)

    with opened(bucket(store)) as reader:
        assert len(bodies(reader)) == 3
    log.close()


@pytest.mark.parametrize("threads", [False, True])
def test_a_slot_that_is_gone_from_the_middle_is_lost_by_name(threads: bool) -> None:
    store = SimulatedStore()
    written(store, 12)
    gone = slots(store)[2]
    store.delete(gone)

    with pytest.raises(LostSegment, match="later ones tell") as lost:
        opened(bucket(store, threads=threads))

    assert lost.value.facts["slot"] == int(gone.removeprefix("log/"))


def test_a_slot_that_comes_while_one_looks_ahead_is_not_missing() -> None:
    store = SimulatedStore()
    written(store, 12)
    slot = slots(store)[2]
    held = store.get(slot).data
    store.delete(slot)
    later = f"log/{int(slot.removeprefix('log/')) + 3:020}"
    during(store, "get_range", later, lambda: store.put(slot, held))

    with opened(bucket(store)) as reader:
        assert len(bodies(reader)) == 12


def test_a_slot_that_is_merged_while_one_looks_ahead_is_not_missing() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 12)
    first, slot = slots(store)[0], slots(store)[2]
    held = store.get(slot).data
    later = f"log/{int(slot.removeprefix('log/')) + 3:020}"

    def put_back_and_merge() -> None:
        store.put(slot, held)
        log.roll()
        device_of(log).take_in()

    store.delete(slot)
    during(store, "get_range", later, put_back_and_merge)

    with opened(bucket(store)) as reader:
        assert len(bodies(reader)) == 12
    assert first in slots(store), "a fence is never deleted"
    log.close()


def test_a_trim_that_vanishes_under_a_reader_is_lost_by_name() -> None:
    store = SimulatedStore()
    written(store, 1)
    reader = opened(bucket(store))
    store.delete("log/trim")

    with pytest.raises(LostSegment):
        reader.durable_lsn()


def test_a_log_that_was_looked_at_half_way_is_looked_at_anew() -> None:
    store = SimulatedStore()
    written(store, 3)
    reader = opened(bucket(store))
    held = store.get("log/trim")
    store.delete("log/trim")
    with pytest.raises(LostSegment):
        reader.durable_lsn()

    store.put("log/trim", held.data)

    assert reader.durable_lsn() == 4


def test_a_trim_that_moves_all_the_time_is_unavailable() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)

    def move(verb: str, name: str) -> None:
        if (verb, name) == ("get", "log/trim"):
            store.before_call = None
            append(log, 1)
            log.roll()
            device_of(log).take_in()
            store.before_call = move

    store.before_call = move
    with pytest.raises(Unavailable, match="faster"):
        opened(bucket(store))
    store.before_call = None
    log.close()


def test_a_log_that_begins_after_what_it_must_hold_is_lost() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    last = append(log, 2)
    log.roll()
    device_of(log).take_in()
    log.exclusively(lambda: device_of(log).forget(Lsn(last + 1)))
    log.close()

    with pytest.raises(LostSegment):
        opened(bucket(store), log_start=1)
    with opened(bucket(store), log_start=last + 1) as reader:
        assert not bodies(reader)


def test_damage_is_named_and_what_lies_before_it_can_be_read() -> None:
    store = SimulatedStore()
    written(store, 3)
    store.put(slots(store)[2], b"no slot at all")

    with pytest.raises(CorruptData, match="slot"):
        opened(bucket(store))


def test_a_plan_names_the_slots_in_which_a_segment_lies() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 2)
    log.roll()
    append(log, 1)
    device_of(log).take_in()

    merged, active = (device_of(log).placed(Lsn(lsn)) for lsn in (1, 4))

    assert not merged.slots
    assert len(unpack_slots(active.slots)) == 2
    log.close()


def test_a_reader_plans_again_where_a_segment_was_rewritten_or_forgotten() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    last = append(log, 2)
    log.roll()
    append(log, 1)
    device_of(log).take_in()
    reader = opened(bucket(store), log_start=last + 1)
    log.exclusively(lambda: device_of(log).forget(Lsn(last + 1)))

    found = list(device_of(reader).frames_of_topic(1, Lsn(1), Lsn(9)))

    assert len(found) == 1
    assert not list(device_of(log).frames_of_topic(2, Lsn(1), Lsn(9)))
    log.close()


def test_an_owner_plans_again_by_its_own_view() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 2)

    device_of(log)._plan_again()

    assert device_of(log).claimed
    assert device_of(log)._look_again() == 3
    log.close()


def test_an_owner_that_was_taken_over_and_does_not_know_it_is_told_when_it_reads_what_has_gone() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    last = append(log, 3)
    log.roll()
    device_of(log).take_in()
    other = opened(bucket(store, seed=2, take_over=True), seed=3)
    append(other, 1)
    other.exclusively(lambda: device_of(other).forget(Lsn(last + 1)))

    with pytest.raises(Fenced):
        list(log.read())
    other.close()


def test_a_reader_whose_trim_was_swapped_before_it_read_an_index_takes_the_new_one() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    last = append(log, 3)
    log.roll()
    append(log, 1)
    device_of(log).take_in()
    index = "log/00000000000000000001.0.idx"

    def forget_and_go_on() -> None:
        log.roll()
        device_of(log).take_in()
        log.exclusively(lambda: device_of(log).forget(Lsn(last + 1)))

    during(store, "get", index, forget_and_go_on)

    with opened(bucket(store), log_start=last + 1) as reader:
        assert len(bodies(reader)) == 1
    log.close()


def test_a_segment_that_trim_names_and_nobody_has_is_lost() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 3)
    log.roll()
    device_of(log).take_in()
    log.close()
    store.delete("log/00000000000000000001.0.idx")
    store.delete("log/00000000000000000001.0.seg")

    with pytest.raises(LostSegment):
        opened(bucket(store))


def test_a_trim_that_is_swapped_before_each_look_at_an_index_is_unavailable() -> None:
    store = SimulatedStore()
    log = opened(bucket(store))
    append(log, 1)
    log.roll()
    device_of(log).take_in()
    lsn = 3

    def move(verb: str, name: str) -> None:
        nonlocal lsn
        if verb == "get" and name.endswith(".idx"):
            store.before_call = None
            append(log, 1)
            log.roll()
            device_of(log).take_in()
            lsn += 1
            log.exclusively(lambda: device_of(log).forget(Lsn(lsn - 1)))
            store.before_call = move

    store.before_call = move
    with pytest.raises(Unavailable, match="faster"):
        opened(bucket(store), log_start=1_000)
    store.before_call = None
    log.close()


def test_no_log_is_no_damage() -> None:
    reader = opened(bucket(SimulatedStore()))

    assert not reader.segments()
    assert reader.recovery_report.clean
