"""Time and randomness: the machine's own, and the clock that tests move by hand."""

from __future__ import annotations

import time

from headwater.clock import ManualClock, SystemClock, system_entropy


def test_the_system_clock_tells_microseconds_since_1970() -> None:
    before = time.time_ns() // 1_000

    now_us = SystemClock().now_us()

    assert before <= now_us <= time.time_ns() // 1_000


def test_the_systems_monotonic_clock_never_falls() -> None:
    clock = SystemClock()

    readings = [clock.monotonic_s() for _ in range(100)]

    assert readings == sorted(readings) and readings[0] <= time.monotonic()


def test_a_manual_clock_stands_still_until_it_is_moved() -> None:
    clock = ManualClock(now_us=1_000)

    before = (clock.now_us(), clock.monotonic_s())
    clock.advance(1.5)

    assert before == (1_000, 0.0)
    assert (clock.now_us(), clock.monotonic_s()) == (1_501_000, 1.5)


def test_a_jump_of_the_wall_clock_does_not_touch_monotonic_time() -> None:
    clock = ManualClock()
    clock.advance(2)

    clock.set_wall_clock(7)

    assert (clock.now_us(), clock.monotonic_s()) == (7, 2)


def test_entropy_gives_as_many_bytes_as_were_asked_for_and_not_the_same_twice() -> None:
    assert len(system_entropy(16)) == 16 and system_entropy(0) == b""
    assert system_entropy(16) != system_entropy(16)
