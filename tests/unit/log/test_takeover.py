"""The protocol of owners, reply by reply; that it holds together is shown by tests/simulation/slot_schedules.py."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.errors import Fenced, LostSegment
from headwater.frames.bodies import pack_epoch
from headwater.frames.frame import Kind
from headwater.log.asks import Absent, Asking, Done, Get, PutIfAbsent, PutIfMatch, Refused, Unsure, carry_out
from headwater.log.drafts import Draft
from headwater.log.manifest import Manifest, pack_manifest, unpack_manifest
from headwater.log.slots import FENCE, slot_name
from headwater.log.takeover import (
    Taken,
    begin,
    move_trim,
    read_trim,
    still_walked,
    swap_trim,
    take_over,
    walk_on,
)
from headwater.log.walk import Walk
from headwater.storage.objects import Found
from headwater.storage.simulated_store import Fate, SimulatedStore
from tests.unit.log.scripted_asks import play
from tests.unit.log.test_walk import LOG_ID, ROW, slot

TRIM = "log/trim"
NEW = Manifest(LOG_ID, 4)
HERS = NEW.owned_by(9, b"h" * 16)
OURS = b"o" * 16


def found(manifest: Manifest, etag: str = "e1") -> Found:
    return Found(pack_manifest(manifest), etag)


def name(number: int) -> str:
    return f"log/{slot_name(number)}"


def fence_of(token: bytes) -> Draft:
    return Draft(Kind.EPOCH, pack_epoch(1, token))


def claim(token: bytes = OURS, walk: Walk | None = None) -> Asking[Taken]:
    return take_over(
        "log",
        token,
        lambda manifest, etag: Walk(manifest, etag, {}),
        lambda onto, epoch: slot(onto, fence_of(token), flags=FENCE if not onto.runs else FENCE | 1, epoch=epoch),
        walk=walk,
    )


def never(why: object) -> None:
    raise AssertionError(f"nothing fails here: {why}")


def patient(why: object) -> None:
    """Asks again at once."""


@pytest.fixture
def store() -> SimulatedStore:
    made = SimulatedStore()
    carry_out(begin("log", NEW), made, never)
    return made


# Looking -----------------------------------------------------------------------------------------------------------


def test_trim_is_asked_for_until_the_store_has_said_what_it_holds() -> None:
    assert play(read_trim("log"), Unsure(), found(HERS)).result == (HERS, "e1")
    assert play(read_trim("log"), Unsure(), Absent()).result is None


@pytest.mark.parametrize(("next_slot", "walked"), [(5, True), (6, True), (7, False)])
def test_what_a_slot_holds_is_believed_only_where_trim_has_not_passed_it(next_slot: int, walked: bool) -> None:
    assert play(still_walked("log", 6), found(replace(NEW, next=next_slot))).result is walked


def test_what_a_slot_holds_is_not_believed_where_there_is_no_trim() -> None:
    assert play(still_walked("log", 6), Absent()).result is False


def test_a_walk_takes_in_what_is_there_and_ends_at_what_is_not() -> None:
    walk = Walk(NEW, "e1", {})
    fence = slot(walk, fence_of(OURS), flags=FENCE)
    beyond = Walk(NEW, "e1", {})
    beyond.add(fence)
    commit = slot(beyond, ROW)

    played = play(walk_on("log", walk), Unsure(), Found(fence, "f"), found(NEW), Unsure(), Found(commit, "c"), Absent())

    # Only after a fence is trim looked at again.
    assert played.asked == [Get(name(1)), Get(name(1)), Get(TRIM), Get(name(5)), Get(name(5)), Get(name(6))]
    assert (played.result, walk.next_slot, walk.end.next_lsn) == (True, 6, 3)


def test_a_walk_that_meets_a_fence_in_a_slot_that_trim_has_passed_begins_anew() -> None:
    walk = Walk(NEW, "e1", {})
    fence = slot(walk, fence_of(OURS), flags=FENCE)

    played = play(walk_on("log", walk), Found(fence, "f"), found(replace(NEW, next=9), "e2"))

    assert (played.ended, played.result, walk.runs) == (True, False, [])


# Beginning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "replies",
    [[Done("e1")], [Refused(), found(HERS)], [Unsure(), found(NEW)], [Unsure(), Absent(), Done("e1")]],
    ids=["done", "another's", "done after all", "not done"],
)
def test_a_log_has_begun_once_there_is_a_trim_whoever_put_it(replies: list[object]) -> None:
    played = play(begin("log", NEW), *replies)  # type: ignore[arg-type]

    assert played.ended
    assert played.asked[0] == played.asked[-1 if len(replies) == 3 else 0] == PutIfAbsent(TRIM, pack_manifest(NEW))


# Claiming ----------------------------------------------------------------------------------------------------------


def test_a_claim_puts_a_fence_at_the_logs_end_and_begins_behind_what_it_makes_void(store: SimulatedStore) -> None:
    taken = carry_out(claim(), store, never)

    assert (taken.epoch, taken.first_slot, taken.manifest.token) == (1, 5, OURS)
    held = store.get(TRIM)
    assert (unpack_manifest(held.data), held.etag) == (taken.manifest, taken.etag)
    assert store.names() == [name(1), TRIM]


def test_the_next_claim_is_behind_the_first_and_has_a_higher_epoch(store: SimulatedStore) -> None:
    first = carry_out(claim(b"1" * 16), store, never)
    store.put(name(5), slot(first.walk, ROW))

    second = carry_out(claim(), store, never)

    assert (second.epoch, second.first_slot) == (2, 10)
    assert store.names() == [name(1), name(5), name(6), TRIM]


@pytest.mark.parametrize("verb", ["put_if_absent", "put_if_match", "get"])
@pytest.mark.parametrize("fate", [Fate.LOST, Fate.LATE, Fate.FAILED])
def test_a_claim_whose_requests_are_not_heard_of_makes_one_fence(store: SimulatedStore, verb: str, fate: Fate) -> None:
    for _ in range(3):
        store.next_fate(fate, verb=verb)

    taken = carry_out(claim(), store, patient)
    store.deliver_late()

    assert (taken.epoch, taken.first_slot) == (1, 5)
    assert store.names() == [name(1), TRIM]
    assert unpack_manifest(store.contents(TRIM)) == taken.manifest


def test_a_walk_that_was_begun_earlier_is_gone_on_with_where_trim_is_the_same(store: SimulatedStore) -> None:
    walk = Walk(NEW, store.get(TRIM).etag, {})

    assert carry_out(claim(walk=walk), store, never).walk is walk


def test_a_walk_that_was_begun_before_trim_moved_is_begun_anew(store: SimulatedStore) -> None:
    walk = Walk(NEW, "another", {})

    assert carry_out(claim(walk=walk), store, never).walk is not walk


def test_a_claim_that_meets_a_fence_which_is_none_begins_anew() -> None:
    stray = slot(Walk(NEW, "e1", {}), fence_of(b"s" * 16), flags=FENCE)
    moved = found(replace(NEW, next=9), "e2")

    played = play(claim(), found(NEW), Found(stray, "f"), moved, moved, Absent())

    assert played.asked[-2:] == [Get(name(9)), PutIfAbsent(name(9), played.asked[-1].data)]


def test_a_claim_that_comes_too_late_is_fenced_by_name() -> None:
    with pytest.raises(Fenced, match="at the same time"):
        play(claim(), found(NEW), Absent(), Done("f"), Refused(), found(HERS, "e2"), found(HERS, "e2"))


def test_a_claim_goes_on_where_trim_was_moved_by_whoever_it_fences_out() -> None:
    now = found(replace(NEW, next=9), "e2")

    played = play(claim(), found(NEW), Absent(), Done("f"), Refused(), now, now, now)

    assert not played.ended
    assert played.asked[-2:] == [Get(TRIM), Get(name(9))]


def test_a_claim_of_a_log_that_is_gone_is_halted_by_name() -> None:
    with pytest.raises(LostSegment):
        play(claim(), Absent())


def test_a_claim_whose_log_goes_away_meanwhile_is_halted_by_name() -> None:
    with pytest.raises(LostSegment):
        play(claim(), found(NEW), Absent(), Done("f"), Refused(), Absent(), Absent(), Absent())


# Swapping ----------------------------------------------------------------------------------------------------------

SWAP = PutIfMatch(TRIM, pack_manifest(HERS), "e1")


@pytest.mark.parametrize(
    ("replies", "asked", "result"),
    [
        ([Done("e2")], [SWAP], "e2"),
        ([Refused(), found(NEW, "e2")], [SWAP, Get(TRIM)], None),
        ([Refused(), Absent()], [SWAP, Get(TRIM)], None),
        ([Unsure(), found(HERS, "e2")], [SWAP, Get(TRIM)], "e2"),
        ([Unsure(), found(NEW, "e1"), Done("e2")], [SWAP, Get(TRIM), SWAP], "e2"),
        ([Unsure(), Unsure(), Done("e2")], [SWAP, Get(TRIM), SWAP], "e2"),
    ],
    ids=["done", "changed", "gone", "done after all", "not done", "nothing heard"],
)
def test_a_swap_is_done_once_somebody_knows_what_trim_holds(
    replies: list[object], asked: list[object], result: str | None
) -> None:
    played = play(swap_trim("log", HERS, "e1"), *replies)  # type: ignore[arg-type]

    assert (played.asked, played.ended, played.result) == (asked, True, result)


def test_an_owner_moves_trim() -> None:
    assert play(move_trim("log", HERS, "e1"), Done("e2")).result == "e2"


def test_an_owner_puts_trim_over_its_own_of_an_earlier_try() -> None:
    earlier = found(replace(HERS, next=33), "e2")

    played = play(move_trim("log", HERS, "e1"), Refused(), earlier, earlier, Done("e3"))

    assert (played.asked[-1], played.result) == (replace(SWAP, etag="e2"), "e3")


@pytest.mark.parametrize("there", [found(HERS.owned_by(10, OURS), "e2"), found(HERS.owned_by(9, OURS), "e2"), Absent()])
def test_an_owner_that_finds_anothers_trim_is_fenced_by_name(there: Found | Absent) -> None:
    with pytest.raises(Fenced, match="nothing more is written here"):
        play(move_trim("log", HERS, "e1"), Refused(), there, there)
