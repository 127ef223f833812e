"""The public fakes: a log that is killed and loses power keeps its promises, by seed, and the fixture closes it."""

from __future__ import annotations

import pytest

from headwater.clock import ManualClock
from headwater.errors import Closed
from headwater.settings import Settings
from headwater.testing import CrashableLog
from tests.unit.topics.small_engines import QUIET


def with_rows(world: CrashableLog, count: int = 5) -> CrashableLog:
    topic = world.log.topic("a", schema={"x": int})
    for number in range(count):
        topic.append({"x": number})
    return world


def rows(world: CrashableLog) -> list[int]:
    return [row["x"] for row in world.log["a"].read().to_pylist()]


def test_what_was_acknowledged_survives_a_kill_a_power_loss_and_a_close() -> None:
    world = with_rows(CrashableLog())

    assert world.kill() is world.log
    assert rows(world) == list(range(5))
    for seed in range(5):
        assert world.lose_power(seed) is world.log
        world.log["a"].append({"x": 5 + seed})
        assert rows(world) == list(range(6 + seed))
    assert world.reopen() is world.log
    assert rows(world) == list(range(10))
    world.close()


def test_the_same_seed_loses_the_same_bytes() -> None:
    def left(seed: int) -> dict[str, bytes]:
        world = with_rows(CrashableLog(seed=3))
        world.lose_power(seed)
        return {name: world.files.contents(f"log/{name}") for name in world.files.list("log")}

    assert left(1) == left(1)


def test_time_moves_only_when_it_is_told_to() -> None:
    world = with_rows(CrashableLog(), 1)
    world.clock.advance(3_600)
    world.log["a"].append({"x": 1})

    first, second = world.log["a"].read(system_columns=True).to_pylist()

    assert isinstance(world.clock, ManualClock)
    assert (second["_hw_time"] - first["_hw_time"]).total_seconds() == pytest.approx(3_600)


def test_settings_can_be_given() -> None:
    settings = Settings(log=QUIET.log, partitions_default=3, upkeep_interval_s=0)

    assert CrashableLog(settings=settings).log.topic("a", schema={"x": int}).partitions == 3


def test_the_fixture_gives_a_log_that_can_be_crashed(headwater_log: CrashableLog) -> None:
    with_rows(headwater_log, 2)

    headwater_log.lose_power(7)

    assert rows(headwater_log) == [0, 1]


def test_a_log_that_was_closed_is_closed() -> None:
    world = with_rows(CrashableLog(), 1)
    log = world.log
    world.reopen()

    with pytest.raises(Closed):
        log.topics()
