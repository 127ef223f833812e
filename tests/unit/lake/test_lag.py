"""How far a table is behind its topic, and when it is time to land."""

from __future__ import annotations

import pytest

from headwater.lake.lag import COUNTED_FRAMES, Lag, due, waiting_behind
from tests.unit.topics.keyed_logs import keyed_topic
from tests.unit.topics.small_engines import PLAIN, World, engine_of

NOW_US = 1_700_000_000_000_000
S = 1_000_000
TOPIC = keyed_topic(table="lake.t")


@pytest.mark.parametrize(
    ("age_s", "size_bytes", "is_due"),
    [(59.9, 999, False), (60.0, 1, True), (60.1, 0, True), (0.0, 1000, True), (59.9, 1001, True), (-5.0, 1, False)],
)
def test_a_topic_is_due_by_its_oldest_row_or_by_what_waits(age_s: float, size_bytes: int, is_due: bool) -> None:
    lag = Lag(TOPIC, 7, rows=3, bytes=size_bytes, oldest_us=NOW_US - round(age_s * S))

    found = due([lag], now_us=NOW_US, freshness_s=60.0, target_bytes=1000)

    assert found == ([TOPIC] if is_due else [])


def test_a_topic_that_has_landed_all_is_never_due() -> None:
    assert due([Lag(TOPIC, 7)], now_us=NOW_US, freshness_s=0.0, target_bytes=0) == []


def test_only_those_that_are_due_are_landed() -> None:
    lags = [Lag(keyed_topic(number), 0, 1, 10, NOW_US - number * 30 * S) for number in (1, 2, 3)]

    found = due(lags, now_us=NOW_US, freshness_s=60.0, target_bytes=1000)

    assert [topic.number for topic in found] == [2, 3]


def test_what_lies_behind_the_landed_lsn_is_counted() -> None:
    world = World()
    log = world.log()
    orders, other = log.topic("orders", PLAIN, table="lake.o"), log.topic("other", PLAIN)
    appended = []
    for number in range(6):
        if number == 3:
            engine_of(log).shard.log.roll()
        world.clock.advance(10)
        appended.append(orders.append([{"x": number}] * 5))
        other.append([{"x": 0}] * 100)
    engine = engine_of(log)
    record = engine.topic("orders")

    def behind(lsn: int) -> Lag:
        return Lag(record, lsn, *waiting_behind(engine.shard.log, record.number, lsn))

    assert (behind(0).rows, behind(0).oldest_us) == (30, round(appended[0].time.timestamp() * S))
    assert behind(appended[0].lsn).rows == 25
    assert behind(appended[2].lsn).rows == 15
    assert behind(appended[3].lsn).oldest_us == round(appended[4].time.timestamp() * S)
    assert 0 < behind(appended[3].lsn).bytes < behind(appended[2].lsn).bytes < behind(0).bytes
    assert behind(appended[5].lsn) == Lag(record, appended[5].lsn)
    assert behind(appended[5].lsn).seconds(world.clock.now_us()) == 0.0
    assert behind(0).seconds(world.clock.now_us()) == 50.0


def test_many_frames_are_counted_by_their_share_and_never_as_nothing() -> None:
    log = World().log()
    topic = log.topic("orders", PLAIN, table="lake.o")
    large = topic.append([{"x": 1}] * 300)
    small = [topic.append({"x": 1}) for _ in range(2 * COUNTED_FRAMES)]
    engine = engine_of(log)

    def behind(lsn: int) -> Lag:
        record = engine.topic("orders")
        return Lag(record, lsn, *waiting_behind(engine.shard.log, record.number, lsn))

    assert behind(small[COUNTED_FRAMES - 1].lsn).rows == COUNTED_FRAMES
    counted = behind(small[COUNTED_FRAMES - 2].lsn)
    assert COUNTED_FRAMES < counted.rows < 300 and counted.bytes > behind(small[COUNTED_FRAMES - 1].lsn).bytes
    assert behind(large.lsn).rows <= 300 + 2 * COUNTED_FRAMES


def test_a_topic_without_rows_is_not_behind() -> None:
    log = World().log()
    log.topic("orders", PLAIN, table="lake.o")
    engine = engine_of(log)

    assert waiting_behind(engine.shard.log, engine.topic("orders").number, 0) == (0, 0, None)


def test_what_landed_and_was_not_read_back_is_due_until_it_is() -> None:
    assert due([Lag(TOPIC, 7, unverified=True)], now_us=NOW_US, freshness_s=60.0, target_bytes=1000) == [TOPIC]
