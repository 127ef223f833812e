"""Slots on their way: settled in whatever order, told in order, and told what became of them when it ends."""

from __future__ import annotations

import pytest

from headwater.errors import Fenced, OutcomeUnknown
from headwater.frames.segment_header import SegmentHeader, pack_segment_frame
from headwater.ids import Lsn
from headwater.log.chain import ChainEnd, Sealed
from headwater.log.segment import opening_of
from headwater.log.slot_flights import Flight, Flights, SlotTicket
from headwater.log.slot_run import SlotRun
from headwater.log.window import Window
from headwater.storage.objects import StoreUnsure
from headwater.storage.simulated_store import SimulatedStore

OPENING = opening_of(pack_segment_frame(SegmentHeader(bytes(16), bytes(8), 1, 0, 1, 0)))


class Killed(BaseException):
    """The process ends here."""


class Sky:
    """Flights over a simulated store, and what was said of each."""

    def __init__(self, *, threads: bool = False) -> None:
        self.store = SimulatedStore()
        self.said: list[tuple[int, BaseException | None]] = []
        self.confirmed: list[int] = []
        self.flights = Flights(
            Window(1, 3),
            self.store,
            str,
            lambda _: None,
            confirmed=lambda flight: self.confirmed.append(flight.slot),
            broken=lambda error: OutcomeUnknown(str(error)),
            foreign=lambda slot: Fenced(f"slot {slot}"),
            threads=threads,
        )

    def flight(self, lsn: int) -> Flight:
        sealed = Sealed([], 0, ChainEnd(lsn + 1, 0, 1, 0), [])
        ticket = SlotTicket(Lsn(lsn))
        ticket.on_done(lambda error: self.said.append((lsn, error)))
        return Flight(SlotRun(OPENING, {}), f"commit {lsn}".encode(), sealed, 0, ticket)

    def send(self, lsn: int) -> SlotTicket:
        flight = self.flight(lsn)
        self.flights.send(flight)
        return flight.ticket

    def issue(self, lsn: int) -> Flight:
        """One that is on its way, and not sent yet."""
        flight = self.flight(lsn)
        flight.slot = self.flights._window.issue(flight)
        self.flights._issued += 1
        return flight


def test_slots_that_are_confirmed_out_of_order_are_told_in_order() -> None:
    sky = Sky()
    first, second, third = (sky.issue(lsn) for lsn in (1, 2, 3))

    sky.flights._deliver(third)
    sky.flights._deliver(second)
    assert not sky.said
    sky.flights._deliver(first)

    assert sky.said == [(1, None), (2, None), (3, None)]
    assert sky.confirmed == [1, 2, 3]
    sky.flights.settle()
    assert sky.flights.confirmed_before == 4
    first.ticket.on_done(lambda error: sky.said.append((1, error)))
    assert sky.said[-1] == (1, None), "whoever asks later is told at once"


def test_a_foreign_slot_fails_it_and_all_after_it_once_those_before_it_are_known() -> None:
    sky = Sky()
    sky.store.put("2", b"another's")
    first, second, third = (sky.issue(lsn) for lsn in (1, 2, 3))

    sky.flights._deliver(third)
    sky.flights._deliver(second)
    assert not sky.said
    with pytest.raises(Fenced):
        sky.flights.wait_for_room(0)
    sky.flights._deliver(first)

    assert [lsn for lsn, _ in sky.said] == [1, 2, 3]
    assert [type(error) for _, error in sky.said] == [type(None), Fenced, Fenced]
    with pytest.raises(Fenced):
        second.ticket.wait()
    with pytest.raises(Fenced):
        sky.send(4)
    assert sky.confirmed == [1]


def test_the_lowest_foreign_slot_says_what_became_of_all_after_it() -> None:
    sky = Sky()
    sky.store.put("1", b"another's")
    sky.store.put("2", b"another's")
    first, second = sky.issue(1), sky.issue(2)
    whys = {1: OutcomeUnknown("passed"), 2: Fenced("slot 2")}
    sky.flights._foreign = whys.__getitem__

    sky.flights._deliver(second)
    sky.flights._deliver(first)

    assert [error for _, error in sky.said] == [whys[1], whys[1]]


def test_what_comes_back_after_the_end_changes_nothing() -> None:
    sky = Sky()
    first, second = sky.issue(1), sky.issue(2)

    sky.flights.fail(OutcomeUnknown("no answer"))
    sky.flights._deliver(first)
    sky.flights._deliver(second)

    assert [type(error) for _, error in sky.said] == [OutcomeUnknown, OutcomeUnknown]
    assert not sky.confirmed


def test_a_store_that_says_nothing_ends_all_of_them() -> None:
    sky = Sky()
    first = sky.issue(1)

    def down(verb: str, name: str) -> None:
        raise StoreUnsure("down")

    sky.store.before_call = down
    sky.flights._deliver(first)

    with pytest.raises(OutcomeUnknown):
        first.ticket.wait()


def test_a_killed_process_ends_all_of_them_and_is_not_kept_alive() -> None:
    sky = Sky()
    first = sky.issue(1)

    def kill(verb: str, name: str) -> None:
        raise Killed

    sky.store.before_call = kill
    with pytest.raises(Killed):
        sky.flights._deliver(first)

    assert isinstance(sky.said[0][1], OutcomeUnknown)


def test_senders_send_side_by_side_and_end_when_they_are_told() -> None:
    sky = Sky(threads=True)

    for lsn in range(1, 21):
        sky.flights.wait_for_room(5)
        sky.send(lsn)
    sky.flights.settle()

    assert [lsn for lsn, _ in sky.said] == list(range(1, 21))
    sky.flights.stop()
    assert not sky.flights._senders


def test_a_sender_that_ends_them_does_not_wait_for_itself() -> None:
    sky = Sky(threads=True)
    sky.send(1).on_done(lambda _: sky.flights.stop())

    sky.flights.settle()

    assert not sky.flights._senders
