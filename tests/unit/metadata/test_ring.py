"""The ring of recent headers: what it answers, what it has room for, and what it never evicts."""

from __future__ import annotations

import pytest

from headwater.frames.frame import Header, Kind
from headwater.metadata.ring import MARGIN, SLOTS, Ring

_NONE = Header(b"", *([0] * 27))


def header(lsn: int) -> Header:
    return _NONE._replace(lsn=lsn, kind=Kind.METADATA)


def ring_of(*lsns: int, slots: int = 8) -> Ring:
    ring = Ring(slots)
    for lsn in lsns:
        ring.push(header(lsn))
    return ring


def test_the_ring_is_as_large_as_it_says() -> None:
    assert (SLOTS, MARGIN) == (1024, 64)
    assert Ring().remaining_capacity == SLOTS


def test_a_lookup_answers_only_if_the_slot_holds_that_very_number() -> None:
    ring = ring_of(*range(1, 11))

    assert ring.header(10) == header(10)
    assert ring.header(3) == header(3)
    # Slot 2 held LSN 2 and holds LSN 10 now; slot 3 will hold LSN 11.
    assert ring.header(2) is None
    assert ring.header(11) is None
    assert ring.header(0) is None


def test_there_is_no_header_before_the_first() -> None:
    ring = ring_of(1, 2, 3)

    assert ring.previous(3) == header(2)
    assert ring.previous(2) == header(1)
    assert ring.previous(1) is None


def test_the_header_before_one_that_was_evicted_is_none() -> None:
    ring = ring_of(*range(1, 11))

    assert ring.previous(4) == header(3)
    assert ring.previous(3) is None


def test_headers_from_a_number_come_in_order_with_holes_left_out() -> None:
    ring = ring_of(1, 2, 4, 5)

    assert ring.headers_from(2) == [header(2), header(4), header(5)]
    assert ring.headers_from(0) == [header(1), header(2), header(4), header(5)]
    assert ring.headers_from(6) == []
    assert Ring().headers_from(0) == []


def test_headers_of_a_full_round_begin_at_the_oldest_that_is_left() -> None:
    ring = ring_of(*range(1, 21))

    assert [each.lsn for each in ring.headers_from(1)] == list(range(13, 21))


def test_the_last_number_is_none_where_it_is_empty() -> None:
    assert Ring().last_lsn == 0
    assert ring_of(1, 2).last_lsn == 2


def test_the_capacity_is_what_no_checkpoint_covers_less_than_the_ring() -> None:
    ring = ring_of(1, 2, 3)
    assert ring.remaining_capacity == 5

    ring.extend_to(6)
    assert ring.remaining_capacity == 2
    assert ring.filled_lsn == 3

    ring.cover(4)
    assert ring.remaining_capacity == 6
    assert ring.checkpoint_lsn == 4


def test_an_overfull_ring_has_no_room_at_all() -> None:
    ring = ring_of(*range(1, 21))

    assert ring.remaining_capacity == 0
    assert not ring.has_room(1)
    assert ring.has_room(0)


def test_there_is_room_for_exactly_what_remains() -> None:
    ring = ring_of(1, 2, 3)

    assert ring.has_room(5)
    assert not ring.has_room(6)
    assert ring.has_room(3, margin=2)
    assert not ring.has_room(4, margin=2)


def test_what_is_dropped_is_found_no_more() -> None:
    ring = ring_of(1, 2, 3, 4)

    ring.drop_below(3)

    assert ring.header(2) is None
    assert [each.lsn for each in ring.headers_from(1)] == [3, 4]
    assert ring.last_lsn == 4


def test_the_checkpoint_only_rises_and_never_beyond_what_is_durable() -> None:
    ring = ring_of(1, 2, 3)
    ring.cover(2)
    ring.cover(2)

    with pytest.raises(AssertionError, match="only rises"):
        ring.cover(1)
    with pytest.raises(AssertionError, match="only rises"):
        ring.cover(4)

    assert ring.checkpoint_lsn == 2


def test_headers_and_durability_never_go_back() -> None:
    ring = ring_of(1, 2, 3)

    with pytest.raises(AssertionError, match="in order"):
        ring.push(header(3))
    with pytest.raises(AssertionError, match="stays"):
        ring.extend_to(2)
