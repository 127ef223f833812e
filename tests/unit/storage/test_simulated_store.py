"""The simulated store keeps the promises of objects.py, and breaks none but those that it is asked to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from headwater.clock import ManualClock
from headwater.storage.objects import Changed, Exists, Listed, StoreUnsure
from headwater.storage.simulated_store import Fate, SimulatedStore, StoreFaults

NOT_DONE = [Fate.FAILED, Fate.CONFLICT, Fate.THROTTLED]


def test_the_same_bytes_have_the_same_etag_and_others_another() -> None:
    store = SimulatedStore()

    first, second = store.put("a", b"1"), store.put("b", b"1")

    assert first == second == store.get("a").etag
    assert store.put("a", b"2") != first


def test_a_conditional_put_that_is_refused_changes_nothing() -> None:
    store = SimulatedStore()
    etag = store.put_if_absent("a", b"1")

    with pytest.raises(Exists):
        store.put_if_absent("a", b"2")
    with pytest.raises(Changed):
        store.put_if_match("a", b"2", "another")
    with pytest.raises(Changed):
        store.put_if_match("b", b"2", etag)

    assert store.names() == ["a"]
    assert store.contents("a") == b"1"


def test_ranges_and_sizes_are_of_what_is_there() -> None:
    store = SimulatedStore()
    store.put("a", bytearray(b"012345"))

    assert (store.get_range("a", 2, 3), store.get_range("a", 4, 9), store.get_range("a", 9, 1)) == (b"234", b"45", b"")
    assert store.size("a") == 6
    for ask in (store.get, store.size, lambda name: store.get_range(name, 0, 1)):
        with pytest.raises(FileNotFoundError):
            ask("b")


def test_a_list_is_sorted_and_begins_after_a_name() -> None:
    clock = ManualClock()
    store = SimulatedStore(clock=clock)
    for name in ("log/3", "log/1", "logs/1", "log/2"):
        store.put(name, name.encode())

    assert [each.name for each in store.list_after("log/")] == ["log/1", "log/2", "log/3"]
    assert store.list_after("log/", "log/1", limit=1) == [Listed("log/2", 5, clock.now_us())]


def test_a_delete_of_nothing_is_no_error() -> None:
    store = SimulatedStore()
    store.put("a", b"1")

    store.delete("a")
    store.delete("a")

    assert store.names() == []


@pytest.mark.parametrize("fate", NOT_DONE)
def test_a_request_that_failed_was_not_done(fate: Fate) -> None:
    store = SimulatedStore()
    store.next_fate(fate)

    with pytest.raises(StoreUnsure):
        store.put("a", b"1")

    assert store.names() == []
    assert store.counters.unsure == 1


def test_a_request_whose_reply_was_lost_was_done() -> None:
    store = SimulatedStore()
    store.next_fate(Fate.LOST, verb="put_if_absent")

    store.put("b", b"")
    with pytest.raises(StoreUnsure):
        store.put_if_absent("a", b"1")

    assert store.contents("a") == b"1"


def test_a_late_request_is_done_later_by_its_own_condition_and_once() -> None:
    store = SimulatedStore()
    store.next_fate(Fate.LATE, name="a")
    store.next_fate(Fate.LATE, name="b")
    for name in ("a", "b"):
        with pytest.raises(StoreUnsure):
            store.put_if_absent(name, b"late")
    held = store.restart()
    assert [request.name for request in held.late_requests()] == ["a", "b"]

    held.begin("put_if_absent", "a", b"in time").apply()
    held.deliver_late()

    assert (held.contents("a"), held.contents("b")) == (b"in time", b"late")
    assert held.late_requests() == ()
    assert store.names() == []


def test_late_requests_arrive_or_vanish_as_other_requests_are_made() -> None:
    arrived = 0
    for seed in range(50):
        store = SimulatedStore(seed)
        store.next_fate(Fate.LATE)
        with pytest.raises(StoreUnsure):
            store.put("a", b"late")
        for _ in range(60):
            store.list_after("b")
        assert store.late_requests() == ()
        arrived += store.names() == ["a"]

    assert 20 < arrived < 50


def test_faults_come_as_often_as_asked_for_and_the_same_with_the_same_seed() -> None:
    def played(seed: int) -> list[str]:
        store = SimulatedStore(seed, faults=StoreFaults.some(0.05))
        heard = []
        verbs: list[Callable[[], object]] = [
            lambda: store.put("a", b"1"),
            lambda: store.get("a"),
            lambda: store.delete("b"),
        ]
        for turn in range(600):
            try:
                verbs[turn % 3]()
                heard.append("done")
            except OSError as error:
                heard.append(type(error).__name__)
        return heard

    first = played(1)

    assert first == played(1) != played(2)
    assert 80 < Counter(first)["StoreUnsure"] < 250


def test_a_stale_list_misses_what_is_new_and_shows_what_is_gone_and_nothing_else_is_stale() -> None:
    missed = shown = 0
    for seed in range(40):
        store = SimulatedStore(seed, faults=StoreFaults(stale_lists=0.5))
        store.put("a", b"1")
        for _ in range(20):
            store.put("c", b"1")
        store.delete("a")
        store.put("b", b"1")
        names = {each.name for each in store.list_after("")}
        assert "c" in names
        missed += "b" not in names
        shown += "a" in names
        with pytest.raises(FileNotFoundError):
            store.get("a")
        assert store.get("b").data == b"1"

    assert missed > 5 and shown > 5


def test_a_request_by_hand_is_done_when_it_is_applied_and_not_twice() -> None:
    store = SimulatedStore()
    request = store.begin("put_if_absent", "a", b"1")
    with pytest.raises(StoreUnsure):
        request.reply()
    assert store.names() == []

    request.apply()

    assert request.reply().etag == store.get("a").etag
    with pytest.raises(AssertionError):
        request.apply()
    refused = store.begin("put_if_absent", "a", b"2")
    refused.apply()
    with pytest.raises(Exists):
        refused.reply()


def test_requests_and_bytes_are_counted() -> None:
    store = SimulatedStore()
    store.put("a", b"12")
    store.get("a")
    store.get_range("a", 0, 1)
    store.size("a")
    store.list_after("")
    store.delete("a")

    assert store.counters.as_dict() == {
        "puts": 1, "gets": 3, "lists": 1, "deletes": 1, "bytes_put": 2, "bytes_got": 3, "unsure": 0,
    }  # fmt: skip
    assert [verb for verb, _ in store.calls] == ["put", "get", "get_range", "size", "list_after", "delete"]
    assert SimulatedStore(7).url == "simulated://store-7"


def test_whoever_listens_hears_of_each_call_before_it_and_may_fail_it() -> None:
    store = SimulatedStore(remember_calls=False)

    def refuse(verb: str, name: str) -> None:
        raise StoreUnsure(f"{verb} {name}")

    store.before_call = refuse
    with pytest.raises(StoreUnsure, match="put a"):
        store.put("a", b"1")
    store.before_call = None

    assert (store.names(), store.calls) == ([], [])


def test_after_a_restart_both_stores_go_their_own_ways() -> None:
    store = SimulatedStore()
    store.put("a", b"1")
    after = store.restart()

    after.put("a", b"2")
    store.flip_bit("a", 0)

    assert (store.contents("a"), after.contents("a")) == (b"0", b"2")
