"""Streams are counted and the next is refused at once; bytes a second are kept by waiting."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import pytest

from headwater.clock import ManualClock
from headwater.errors import Unavailable
from headwater.server.access import Principal
from headwater.server.settings import ServerLimits
from headwater.server.streams import WAIT_S_MAX, Streams

A, B = Principal("a"), Principal("b")


def limits(streams: int = 3, each: int = 3, rate: int | None = None) -> ServerLimits:
    return ServerLimits(streams_max=streams, streams_per_principal_max=each, bytes_per_s_per_principal=rate)


def test_the_next_stream_is_refused_within_milliseconds_and_taken_when_one_has_ended() -> None:
    streams = Streams(limits(streams=1_000, each=1_000))
    with ExitStack() as held:
        for _ in range(1_000):
            held.enter_context(streams.opened(A))

        began = time.perf_counter()
        with pytest.raises(Unavailable) as refused, streams.opened(B):
            pass

        assert time.perf_counter() - began < 0.1
        assert refused.value.facts == {"streams_max": 1_000}
        assert (streams.open_now, streams.refused) == (1_000, 1)
    assert streams.open_now == 0
    with streams.opened(B):
        assert streams.open_now == 1


def test_one_principal_does_not_take_the_streams_of_all() -> None:
    streams = Streams(limits(streams=3, each=2))
    with streams.opened(A), streams.opened(A):
        with pytest.raises(Unavailable, match="a has as many"), streams.opened(A):
            pass
        with streams.opened(B):
            assert streams.open_now == 3
    with streams.opened(A):
        assert streams.open_now == 1


def test_a_stream_that_fails_is_counted_out() -> None:
    streams = Streams(limits(streams=1))
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), streams.opened(A):
            raise ZeroDivisionError

    assert streams.open_now == 0


def test_the_count_is_right_under_many_threads() -> None:
    streams = Streams(limits(streams=8, each=8))
    together = threading.Barrier(16)
    most: list[int] = []

    def work() -> None:
        together.wait()
        for _ in range(200):
            try:
                with streams.opened(A):
                    most.append(streams.open_now)
            except Unavailable:
                pass

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert streams.open_now == 0
    assert max(most) <= 8


def moving(rate: int | None) -> tuple[Streams, ManualClock, list[float]]:
    clock = ManualClock()
    waits: list[float] = []

    def pause(seconds: float) -> None:
        waits.append(seconds)
        clock.advance(seconds)

    return Streams(limits(rate=rate), clock=clock, pause=pause), clock, waits


def test_a_principal_gets_its_bytes_a_second_and_no_more() -> None:
    streams, clock, waits = moving(1_000)

    for _ in range(100):
        streams.moved(A, 500)

    assert clock.monotonic_s() == pytest.approx(100 * 500 / 1_000 - 1.0)
    assert len(waits) == 98, "the first second's bytes are free"


def test_one_principal_does_not_wait_for_another() -> None:
    streams, _, waits = moving(1_000)
    streams.moved(A, 5_000)

    streams.moved(B, 900)

    assert waits == []


def test_a_message_above_the_rate_is_let_through_and_paid_for_by_the_next() -> None:
    streams, _, waits = moving(1_000)

    streams.moved(A, 10_000)
    assert waits == []
    streams.moved(A, 100)

    assert waits == [pytest.approx(9.1)]


def test_who_was_quiet_may_not_save_up() -> None:
    streams, clock, waits = moving(1_000)
    streams.moved(A, 1)
    clock.advance(3_600.0)

    streams.moved(A, 1_000)
    streams.moved(A, 1_000)

    assert waits == [pytest.approx(1.0)]


def test_nobody_is_held_longer_than_a_minute() -> None:
    streams, clock, waits = moving(1_000)
    streams.moved(A, 1_000 * 1_000)

    for _ in range(100):
        with pytest.raises(Unavailable, match="try again later"):
            streams.moved(A, 1_000)
    assert waits == [], "and what was refused is not paid for"

    clock.advance(1_000.0 - WAIT_S_MAX)
    streams.moved(A, 1)
    assert waits[0] <= WAIT_S_MAX


def test_who_waits_by_itself_is_told_how_long() -> None:
    streams, _, waits = moving(1_000)

    assert streams.wait_s(A, 1_000) == 0.0
    assert streams.wait_s(A, 500) == pytest.approx(0.5)
    assert waits == []


def test_without_a_rate_nothing_waits() -> None:
    streams, _, waits = moving(None)

    streams.moved(A, 1 << 40)
    streams.moved(A, 1 << 40)

    assert waits == []
    assert streams.wait_s(A, 1) == 0.0
    bounded, _, _ = moving(10)
    assert bounded.wait_s(A, 0) == 0.0
