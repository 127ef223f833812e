"""An owner's slots in flight: given out in order, acknowledged in order, and never past another's bytes."""

from __future__ import annotations

import pytest

from headwater.log.asks import Absent, Done, Get, PutIfAbsent, Refused, Unsure
from headwater.log.window import Window, write_slot
from headwater.storage.objects import Found
from tests.unit.log.scripted_asks import play

PUT, READ = PutIfAbsent("log/1", b"ours"), Get("log/1")
OURS, THEIRS = Found(b"ours", "e"), Found(b"theirs", "f")


@pytest.mark.parametrize(
    ("replies", "asked", "result"),
    [
        ([Done("e")], [PUT], True),
        ([Refused(), OURS], [PUT, READ], True),
        ([Refused(), THEIRS], [PUT, READ], False),
        ([Unsure(), Done("e")], [PUT, PUT], True),
        ([Unsure(), Refused(), OURS], [PUT, PUT, READ], True),
        ([Refused(), Unsure(), Refused(), THEIRS], [PUT, READ, PUT, READ], False),
        # It was deleted since: it had been taken in, or will be.
        ([Refused(), Absent(), Done("e")], [PUT, READ, PUT], True),
    ],
    ids=["done", "ours", "theirs", "lost", "lost but done", "read-back lost", "read-back gone"],
)
def test_a_slot_is_written_once_somebody_knows_what_it_holds(
    replies: list[object], asked: list[object], result: bool
) -> None:
    played = play(write_slot("log/1", b"ours"), *replies)  # type: ignore[arg-type]

    assert (played.asked, played.ended, played.result) == (asked, True, result)


def window(issued: int, size: int = 3) -> Window[str]:
    made: Window[str] = Window(10, size)
    for each in range(issued):
        made.issue(f"commit {10 + each}")
    return made


def test_slots_are_given_out_in_order_up_to_the_window() -> None:
    full = window(2)

    issued = [full.has_room, full.issue("commit 12"), full.has_room]

    assert issued == [True, 12, False]
    assert (full.next_slot, full.lowest_unconfirmed, full.in_flight) == (13, 10, 3)


def test_commits_are_acknowledged_in_order_whatever_order_they_are_confirmed_in() -> None:
    full = window(3)

    assert full.settle(12, True) == []
    assert full.settle(11, True) == []
    assert not full.has_room
    assert full.settle(10, True) == ["commit 10", "commit 11", "commit 12"]
    assert (full.lowest_unconfirmed, full.in_flight, full.has_room) == (13, 0, True)


def test_a_slot_that_is_confirmed_makes_room_only_where_all_before_it_are() -> None:
    full = window(3)

    full.settle(11, True)
    assert not full.has_room
    full.settle(10, True)
    assert full.issue("commit 13") == 13
    assert full.issue("commit 14") == 14
    assert not full.has_room


def test_nothing_is_acknowledged_at_or_after_anothers_slot_and_all_before_it_is() -> None:
    full = window(3)

    assert full.settle(12, True) == []
    assert full.settle(11, False) == []
    assert full.settle(10, True) == ["commit 10"]
    assert (full.foreign, full.lowest_unconfirmed, full.has_room) == (11, 11, False)
    assert full.give_up() == ["commit 11", "commit 12"]
    assert full.in_flight == 0


def test_the_lowest_of_anothers_slots_counts() -> None:
    full = window(3)

    full.settle(12, False)
    full.settle(11, False)
    full.settle(12, False)

    assert full.foreign == 11


def test_a_slot_confirmed_after_anothers_was_found_below_it_acknowledges_nothing() -> None:
    full = window(2)

    full.settle(10, False)

    assert full.settle(11, True) == []
    assert full.settle(10, True) == []
