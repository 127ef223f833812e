"""Leases: one holder at a time as long as it is heard of, and none for ever.

Two BucketFiles on one store stand for two processes, each with a clock of its own; nobody looks at another's.  Only
those that are about a real thread wait for it.
"""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Callable
from random import Random

import pytest

from headwater.clock import ManualClock
from headwater.errors import PinExpired
from headwater.ids import Lsn
from headwater.log.pins import Pins
from headwater.storage import store_lease
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.files import LockHeld
from headwater.storage.simulated_store import Fate, SimulatedStore, StoreFaults
from headwater.storage.store_lease import RENEW_S, STALE_S, Written, read_lease


class Process:
    """A process with its own clock, entropy and view of the store."""

    def __init__(self, store: SimulatedStore, seed: int) -> None:
        self.clock = ManualClock(now_us=seed)
        self.clock.advance(seed * 1_000_000.0)
        self.files = BucketFiles(store, clock=self.clock, entropy=Random(seed).randbytes, threads=False)
        self.pins = Pins(self.files, entropy=Random(seed + 100).randbytes)


@pytest.fixture
def store() -> SimulatedStore:
    return SimulatedStore()


@pytest.fixture
def one(store: SimulatedStore) -> Process:
    return Process(store, 1)


@pytest.fixture
def two(store: SimulatedStore) -> Process:
    return Process(store, 2)


def test_a_lease_says_who_holds_it(one: Process, two: Process, store: SimulatedStore) -> None:
    lock = one.files.lock("d/lock", "pid 7, an owner")

    assert lock.is_held()
    assert read_lease(store.contents("d/lock")) == Written("pid 7, an owner", lock.token, 0)
    with pytest.raises(LockHeld, match="d/lock is locked by pid 7, an owner"):
        two.files.lock("d/lock", "another")


def test_a_lease_is_written_as_the_format_says() -> None:
    written = Written("pid 4711 lsn 123456", "0f1e2d3c4b5a69788796a5b4c3d2e1f0", 11)
    data = b'{"holder": "pid 4711 lsn 123456", "token": "0f1e2d3c4b5a69788796a5b4c3d2e1f0", "count": 11}'
    more = data[:-1] + b', "free": true, "what comes later": [1]}'

    assert written.pack() == data
    assert read_lease(data) == written
    assert read_lease(more).free


def test_a_new_lease_costs_one_request_and_one_of_our_own_none_to_refuse(one: Process, store: SimulatedStore) -> None:
    lock = one.files.lock("d/lock", "one")
    with pytest.raises(LockHeld, match="one"):
        one.files.lock("d/lock", "again")
    one.files.renew_all()
    lock.release()
    lock.release()

    assert [verb for verb, _ in store.calls] == ["put_if_absent", "put_if_match", "put_if_match"]
    assert not lock.is_held()


def test_a_released_lease_is_taken_at_once(one: Process, two: Process, store: SimulatedStore) -> None:
    one.files.lock("d/lock", "one").release()
    assert read_lease(store.contents("d/lock")).free

    taken = two.files.lock("d/lock", "two")

    assert taken.is_held()
    with pytest.raises(LockHeld, match="two"):
        one.files.lock("d/lock", "one")


def test_a_lease_that_is_renewed_is_held_for_ever(one: Process, two: Process) -> None:
    lock = one.files.lock("d/lock", "one")

    for _ in range(50):
        one.clock.advance(RENEW_S)
        two.clock.advance(3 * STALE_S)  # whatever the other's clock says
        one.files.renew_all()
        with pytest.raises(LockHeld, match="one"):
            two.files.lock("d/lock", "two")

    assert lock.is_held()


def test_a_lease_that_nobody_renews_is_taken_when_it_was_seen_unchanged_for_long_enough(
    one: Process, two: Process, store: SimulatedStore
) -> None:
    one.files.lock("d/lock", "one")
    two.clock.advance(1000 * STALE_S)

    with pytest.raises(LockHeld):
        two.files.lock("d/lock", "two")
    two.clock.advance(STALE_S - 0.001)
    with pytest.raises(LockHeld):
        two.files.lock("d/lock", "two")
    two.clock.advance(0.002)
    before = len(store.calls)
    taken = two.files.lock("d/lock", "two")

    assert taken.is_held()
    assert two.files.seen == {}
    assert [verb for verb, _ in store.calls[before:]] == ["get", "put_if_match"], "what was seen is looked at first"
    assert read_lease(store.contents("d/lock")).holder == "two"


def test_a_lease_is_old_from_the_moment_of_the_answer_that_showed_it(
    one: Process, two: Process, store: SimulatedStore
) -> None:
    one.files.lock("d/lock", "one")
    # The answer takes longer than a lease lives: nobody knows how old it was when it arrived.
    store.before_call = lambda verb, name: two.clock.advance(2 * STALE_S)
    with pytest.raises(LockHeld):
        two.files.lock("d/lock", "two")
    with pytest.raises(LockHeld):
        two.files.lock("d/lock", "two")
    store.before_call = None
    two.clock.advance(STALE_S)

    assert two.files.lock("d/lock", "two").is_held()


def test_a_holder_whose_lease_was_taken_notices_and_leaves_it_alone(
    one: Process, two: Process, store: SimulatedStore, caplog: pytest.LogCaptureFixture
) -> None:
    lost = one.files.lock("d/lock", "one")
    taken = _take_as_stale(two, "d/lock")
    held = store.contents("d/lock")

    with caplog.at_level(logging.WARNING):
        one.files.renew_all()

    assert "d/lock was lost" in caplog.text
    assert not lost.is_held()
    one.files.renew_all()
    lost.release()
    assert store.contents("d/lock") == held
    assert taken.is_held()
    with pytest.raises(LockHeld, match="two"):
        one.files.lock("d/lock", "one")


def test_a_holder_that_did_not_notice_yet_does_not_release_what_another_holds(
    one: Process, two: Process, store: SimulatedStore
) -> None:
    lost = one.files.lock("d/lock", "one")
    _take_as_stale(two, "d/lock")
    held = store.contents("d/lock")

    lost.release()

    assert store.contents("d/lock") == held


def test_a_lease_whose_object_is_gone_is_lost(one: Process, two: Process) -> None:
    lock = one.files.lock("d/lock", "one")
    two.files.unlink("d/lock")

    one.files.renew_all()

    assert not lock.is_held()
    assert two.files.list("d") == []


def test_a_holder_that_could_not_renew_for_long_does_not_believe_that_it_holds(
    one: Process, store: SimulatedStore, caplog: pytest.LogCaptureFixture
) -> None:
    lock = one.files.lock("d/lock", "one")
    store.faults = StoreFaults(failed=1.0)
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            assert lock.is_held()
            one.clock.advance(RENEW_S)
            one.files.renew_all()

    assert not lock.is_held()
    assert "could not renew the lease d/lock" in caplog.text
    store.faults = None
    one.files.renew_all()
    assert lock.is_held(), "nobody took it meanwhile"


def test_a_lease_that_cannot_be_released_becomes_stale(
    one: Process, two: Process, store: SimulatedStore, caplog: pytest.LogCaptureFixture
) -> None:
    lock = one.files.lock("d/lock", "one")
    store.faults = StoreFaults(failed=1.0)
    with caplog.at_level(logging.WARNING):
        lock.release()
    store.faults = None
    one.files.renew_all()

    assert "could not release the lease d/lock" in caplog.text
    assert _take_as_stale(two, "d/lock").is_held()


@pytest.mark.parametrize("fate", [Fate.LOST, Fate.LATE, Fate.FAILED, Fate.CONFLICT, Fate.THROTTLED])
def test_a_holder_knows_its_own_writes_again_whatever_became_of_the_replies(
    one: Process, two: Process, store: SimulatedStore, fate: Fate
) -> None:
    store.next_fate(fate, verb="put_if_absent")
    lock = one.files.lock("d/lock", "one")
    for _ in range(3):
        store.next_fate(fate, verb="put_if_match")
        one.files.renew_all()
        one.files.renew_all()
        assert lock.is_held()
    with pytest.raises(LockHeld, match="one"):
        two.files.lock("d/lock", "two")

    store.next_fate(fate, verb="put_if_match")
    lock.release()

    store.next_fate(fate, verb="put_if_match")
    assert two.files.lock("d/lock", "two").is_held()


def test_a_lease_that_changes_under_its_holder_again_and_again_is_not_taken_for_lost(
    one: Process, store: SimulatedStore
) -> None:
    lock = one.files.lock("d/lock", "one")

    def late(verb: str, name: str) -> None:
        if verb == "put_if_match":
            # A write of ours that was given up long ago arrives just before each new one.
            store.before_call = None
            store.put(name, Written("one", lock.token, Random(len(store.calls)).randrange(1 << 30)).pack())
            store.before_call = late

    store.before_call = late
    one.files.renew_all()
    store.before_call = None

    assert lock.is_held()
    one.files.renew_all()
    assert read_lease(store.contents("d/lock")).token == lock.token


def test_a_lease_that_others_keep_taking_is_theirs(one: Process, store: SimulatedStore) -> None:
    def others(verb: str, name: str) -> None:
        store.before_call = None
        store.put(name, Written("the others", "f" * 32, len(store.calls), free=True).pack())
        store.before_call = others

    store.before_call = others

    with pytest.raises(LockHeld, match="the others"):
        one.files.lock("d/lock", "one")


def test_a_lease_that_is_removed_while_it_is_wanted_is_made_anew(
    one: Process, two: Process, store: SimulatedStore
) -> None:
    one.files.lock("d/lock", "one")
    with pytest.raises(LockHeld):
        two.files.lock("d/lock", "two")
    assert list(two.files.seen) == ["d/lock"]
    one.files.unlink("d/lock")

    assert two.files.lock("d/lock", "two").is_held()
    assert two.files.seen == {}


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"7", b"{}", b'{"holder": 1, "token": 2, "count": "x"}'])
def test_a_lease_that_cannot_be_read_is_held_until_it_is_stale(
    two: Process, store: SimulatedStore, data: bytes
) -> None:
    store.put("d/lock", data)

    with pytest.raises(LockHeld, match="an unknown holder"):
        two.files.lock("d/lock", "two")

    assert _take_as_stale(two, "d/lock").is_held()


def test_a_lock_that_nobody_refers_to_is_not_renewed(one: Process, store: SimulatedStore) -> None:
    one.files.lock("d/lock", "one")
    gc.collect()
    before = store.contents("d/lock")

    one.files.renew_all()

    assert store.contents("d/lock") == before


def test_leases_that_were_seen_long_ago_are_forgotten(
    one: Process, two: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_lease, "SEEN_MAX", 3)
    locks = [one.files.lock(f"d/{number}", "one") for number in range(5)]
    for number in range(3):
        with pytest.raises(LockHeld):
            two.files.lock(f"d/{number}", "two")
    assert len(two.files.seen) == 3
    two.clock.advance(store_lease.SEEN_S_MAX + 1)

    with pytest.raises(LockHeld):
        two.files.lock("d/3", "two")
    with pytest.raises(LockHeld):
        two.files.lock("d/4", "two")

    assert sorted(two.files.seen) == ["d/3", "d/4"]
    assert all(lock.name for lock in locks)


# ------------------------------------------------------------------------------------------- threads and forks


def test_one_thread_renews_all_leases_and_ends_with_the_last(store: SimulatedStore) -> None:
    files = BucketFiles(store, renew_s=0.01)
    locks = [files.lock(f"d/{number}", "one") for number in range(3)]
    renewing = files._leases._renewing
    assert renewing is not None and renewing.daemon

    _until(lambda: all(read_lease(store.contents(lock.name)).count >= 2 for lock in locks))
    assert files._leases._renewing is renewing
    for lock in locks:
        lock.release()
    renewing.join(10)

    assert not renewing.is_alive()
    again = files.lock("d/0", "one")
    _until(lambda: read_lease(store.contents("d/0")).count >= 1)
    again.release()


def test_a_thread_that_died_is_begun_anew_with_the_next_lease(store: SimulatedStore) -> None:
    def die(verb: str, name: str) -> None:
        if verb == "put_if_match":
            raise SystemExit

    files = BucketFiles(store, renew_s=0.01)
    first = files.lock("d/first", "one")
    store.before_call = die
    renewing = files._leases._renewing
    assert renewing is not None
    renewing.join(10)
    store.before_call = None

    second = files.lock("d/second", "one")

    _until(lambda: all(read_lease(store.contents(lock.name)).count >= 2 for lock in (first, second)))
    first.release()
    second.release()


def test_a_renewal_that_is_tried_again_does_not_take_back_what_was_released_meanwhile(store: SimulatedStore) -> None:
    files = BucketFiles(store, clock=ManualClock(), threads=False, pause=lambda _seconds: lock.release())
    lock = files.lock("d/lock", "one")
    store.next_fate(Fate.FAILED, verb="put_if_match")

    files.renew_all()

    assert read_lease(store.contents("d/lock")).free


def test_nobody_waits_for_a_renewal_that_hangs(store: SimulatedStore, caplog: pytest.LogCaptureFixture) -> None:
    files = BucketFiles(store, threads=False)
    released, forgotten = files.lock("d/released", "one"), files.lock("d/forgotten", "one")
    hanging, let_go = threading.Event(), threading.Event()

    def hang(verb: str, name: str) -> None:
        if threading.current_thread() is renewing and verb == "put_if_match":
            hanging.set()
            let_go.wait(30)

    renewing = threading.Thread(target=files.renew_all)
    store.before_call = hang
    renewing.start()
    assert hanging.wait(30)
    released.release()
    files.unlink("d/forgotten")
    again = files.lock("d/forgotten", "another")
    forgotten.release()
    with caplog.at_level(logging.WARNING):
        let_go.set()
        renewing.join(30)

    assert caplog.text == ""
    assert read_lease(store.contents("d/released")).free
    assert read_lease(store.contents("d/forgotten")).token == again.token
    assert again.is_held()
    with pytest.raises(LockHeld, match="another"):
        files.lock("d/forgotten", "one")


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_neither_renews_nor_releases_its_parents_leases(store: SimulatedStore) -> None:
    files = BucketFiles(store, renew_s=60.0)
    lock = files.lock("d/lock", "the parent")

    pid = os.fork()
    if not pid:
        before = store.contents("d/lock")
        files.renew_all()
        lock.release()
        unchanged = store.contents("d/lock") == before
        try:
            files.lock("d/lock", "the child")
        except LockHeld as held:
            os._exit(0 if unchanged and held.holder == "the parent" and threading.active_count() == 1 else 1)
        os._exit(2)

    assert os.waitpid(pid, 0)[1] == 0
    assert lock.is_held()
    lock.release()


# ------------------------------------------------------------------------------------------------------- pins


def test_a_pin_is_seen_by_others_as_long_as_it_is_held(one: Process, two: Process, store: SimulatedStore) -> None:
    with one.pins.hold(Lsn(7), lambda: 1, note="tables"):
        for _ in range(10):
            one.clock.advance(RENEW_S)
            two.clock.advance(RENEW_S)
            one.files.renew_all()
            assert [(pin.lsn, pin.note) for pin in two.pins.read()] == [(7, "tables")]
            assert [pin.lsn for pin in one.pins.read()] == [7]

    assert two.pins.read() == one.pins.read() == []
    assert store.names() == []


def test_a_pin_costs_one_put_and_is_released_by_one_delete(one: Process, store: SimulatedStore) -> None:
    one.pins.hold(Lsn(7), lambda: 1).release()

    assert [verb for verb, _ in store.calls] == ["put_if_absent", "delete"]


def test_a_pin_of_a_dead_holder_goes_when_it_is_stale(one: Process, two: Process, store: SimulatedStore) -> None:
    pin = one.pins.hold(Lsn(7), lambda: 1)
    assert [found.lsn for found in two.pins.read()] == [7]
    two.clock.advance(STALE_S - 1)
    assert [found.lsn for found in two.pins.read()] == [7]
    two.clock.advance(1)

    assert two.pins.read() == []

    assert store.names() == []
    one.files.renew_all()
    pin.release()
    assert store.names() == []


def test_a_pin_that_came_too_late_leaves_nothing(one: Process, store: SimulatedStore) -> None:
    with pytest.raises(PinExpired):
        one.pins.hold(Lsn(7), lambda: 8)

    assert store.names() == []


@pytest.mark.parametrize("seed", range(20))
def test_a_live_pin_is_never_taken_for_dead_on_any_unsure_store(seed: int) -> None:
    store = SimulatedStore(seed, faults=StoreFaults(0.03, 0.03, 0.03, 0.03, 0.03))
    holder, deleter = Process(store, 1), Process(store, 2)
    pin = holder.pins.hold(Lsn(7), lambda: 1)

    for _ in range(40):
        for process in (holder, deleter):
            process.clock.advance(RENEW_S)
        holder.files.renew_all()
        assert [found.lsn for found in deleter.pins.read()] == [7]

    pin.release()
    store.deliver_late()
    deleter.pins.read()
    deleter.clock.advance(STALE_S)
    assert deleter.pins.read() == []


# ------------------------------------------------------------------------------------------------------ inside


def _take_as_stale(process: Process, name: str) -> store_lease.StoreLock:
    with pytest.raises(LockHeld):
        process.files.lock(name, "two")
    process.clock.advance(STALE_S)
    return process.files.lock(name, "two")


def _until(is_so: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(1000):
        if is_so():
            return
        waiting.wait(0.01)
    raise AssertionError("it never came to be")
