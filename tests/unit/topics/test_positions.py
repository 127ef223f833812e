"""Where a read begins: every word for a place, and what is no place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from headwater.errors import InvalidRequest
from headwater.topics.positions import Lsn, Place, find_place, time_of, time_us_of
from tests.unit.topics.small_engines import PLAIN, World, engine_of


@pytest.fixture
def world() -> World:
    """Three rows a minute apart, at LSNs 3, 4 and 5: an epoch and a schema are before them."""
    made = World()
    log = made.log()
    log.topic("a", PLAIN, partitions=2)
    for number in range(3):
        log["a"].append({"x": number}, partition=0)
        made.clock.advance(60)
    return made


def place(world: World, where: Any, partition: int | None = None) -> Place:
    engine = world.engines[0]
    return find_place(engine.shard.log, engine.topic("a"), where, partition)


def test_the_words_for_the_ends() -> None:
    log = World().log()
    log.topic("a", PLAIN)
    shard = engine_of(log).shard
    assert find_place(shard.log, engine_of(log).topic("a"), "latest", None) == Place(shard.log.durable_lsn() + 1)  # type: ignore[arg-type]

    log["a"].append({"x": 1})

    assert find_place(shard.log, engine_of(log).topic("a"), "earliest", None).lsn == 1
    assert find_place(shard.log, engine_of(log).topic("a"), "latest", None).lsn == shard.log.durable_lsn() + 1


def test_an_lsn_is_itself_and_at_least_the_first(world: World) -> None:
    assert place(world, Lsn(4)) == Place(4)  # type: ignore[arg-type]
    assert place(world, Lsn(0)).lsn == 1
    assert repr(Lsn(4)) == "Lsn(4)"


def test_a_time_is_the_first_row_at_or_after_it(world: World) -> None:
    first = time_of(1_700_000_000_000_000)

    assert place(world, first).lsn == 1
    assert place(world, first + timedelta(seconds=30)).lsn == 4
    assert place(world, first + timedelta(seconds=60)).lsn == 4
    assert place(world, first + timedelta(days=1)).lsn == 6
    assert place(world, (first + timedelta(seconds=30)).isoformat()).lsn == 4
    assert place(world, (first + timedelta(seconds=30)).astimezone(timezone(timedelta(hours=5)))).lsn == 4


def test_offsets_are_found_in_their_partitions(world: World) -> None:
    assert place(world, 1, partition=0) == Place(4, {0: 1})  # type: ignore[arg-type]
    assert place(world, {0: 2, 1: 0}) == Place(5, {0: 2, 1: 0})  # type: ignore[arg-type]
    assert place(world, {0: 99}) == Place(6, {0: 99})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("where", "why"),
    [
        (7, "bare number"),
        (True, "no place"),
        ("yesterday", "no place"),
        (None, "no place"),
        (1.5, "no place"),
        (datetime(2026, 1, 1), "zone"),  # noqa: DTZ001
        ("2026-01-01T00:00:00", "zone"),
        ({0: -1}, "at least 0"),
    ],
)
def test_what_is_no_place_is_refused(world: World, where: Any, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        place(world, where)


@pytest.mark.parametrize("time_us", [0, 1, -1, 1_700_000_000_123_456, 253_402_300_799_999_999])
def test_times_are_exact_to_the_microsecond(time_us: int) -> None:
    assert time_us_of(time_of(time_us)) == time_us
    assert time_of(time_us).tzinfo is UTC
