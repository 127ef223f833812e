"""Rows of many partitions by one pass over the log: which partitions, which rows, and when it ends early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from headwater.api import Log
from headwater.errors import Forgotten, UnknownPartition, UnknownTopic
from headwater.topics import gathering
from headwater.topics.gathering import PASSED_MAX, side_by_side
from headwater.topics.reading import Rows, read_rows
from tests.unit.topics.small_engines import PLAIN, World, engine_of, with_log


def a_log(world: World, partitions: int, of: list[int]) -> Log:
    """Row n is in partition of[n]."""
    log = world.log()
    log.topic("a", PLAIN, partitions=partitions)
    for number, partition in enumerate(of):
        log["a"].append({"x": number}, partition=partition)
    return log


def gathered(log: Log, offsets: Mapping[int, int]) -> dict[int, list[tuple[int, int]]]:
    """By partition, the offset and the number of each row that came; in the order in which they came."""
    engine = engine_of(log)
    rows = engine.gather(log["a"].number, offsets)
    assert rows.schema.names == ["x", "_hw_partition", "_hw_offset"]
    found: dict[int, list[tuple[int, int]]] = {}
    for row in rows.to_pylist():
        found.setdefault(row["_hw_partition"], []).append((row["_hw_offset"], row["x"]))
    return found


def test_rows_from_each_offset_on_come_in_order() -> None:
    log = a_log(World(), 4, [0, 1, 2, 0, 1, 2, 3, 0])

    assert gathered(log, {0: 1, 1: 0, 3: 0}) == {0: [(1, 3), (2, 7)], 1: [(0, 1), (1, 4)], 3: [(0, 6)]}


def test_a_partition_without_rows_from_there_on_gives_none() -> None:
    log = a_log(World(), 3, [0, 1])

    assert gathered(log, {0: 0, 1: 1, 2: 0}) == {0: [(0, 0)]}
    assert gathered(log, {1: 1, 2: 0}) == {}


def test_what_is_not_there_is_refused() -> None:
    log = a_log(World(), 2, [0])
    number = log["a"].number

    with pytest.raises(UnknownPartition):
        gathered(log, {0: 0, 2: 0})
    log.delete_topic("a", force=True)
    with pytest.raises(UnknownTopic):
        engine_of(log).gather(number, {0: 0})


def test_one_that_is_far_behind_does_not_take_the_others_with_it() -> None:
    far = PASSED_MAX * 3 + 2
    log = a_log(World(), 3, [0, *[2] * far, 0, 1, 2])

    assert gathered(log, {0: 0, 1: 0, 2: far}) == {0: [(0, 0)]}
    assert gathered(log, {0: 1, 1: 0, 2: far}) == {0: [(1, far + 1)], 1: [(0, far + 2)], 2: [(far, far + 3)]}


def test_a_pass_ends_with_enough_bytes_and_has_given_the_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "ROWS_MAX", 3)
    log = a_log(World(), 2, [0, 1, 0, 1])
    assert gathered(log, {0: 0, 1: 0}) == {0: [(0, 0), (1, 2)], 1: [(0, 1)]}

    monkeypatch.undo()
    monkeypatch.setattr(gathering, "BYTES_MAX", 1)
    big = World().log()
    big.topic("a", pa.schema([("x", pa.int64()), ("text", pa.string())]), partitions=2)
    for number in range(6):
        big["a"].append({"x": number, "text": "t" * 300_000}, partition=number % 2)
    rows = engine_of(big).gather(big["a"].number, {0: 0, 1: 0})
    assert [row["x"] for row in rows.to_pylist()] == [0]


def test_a_pass_ends_where_it_has_gone_over_enough_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(World(), 3, [0, 2, 2, 2, 1])
    size = len(next(engine_of(log).shard.log.read_topic(log["a"].number)).body)
    monkeypatch.setattr(gathering, "PASSED_BYTES_MAX", 4 * size)

    assert gathered(log, {0: 0, 1: 0}) == {0: [(0, 0)]}
    monkeypatch.setattr(gathering, "PASSED_BYTES_MAX", 4 * size + 1)
    assert gathered(log, {0: 0, 1: 0}) == {0: [(0, 0)], 1: [(0, 4)]}


def test_rows_that_went_before_they_were_read_leave_a_hole_only_before_the_first() -> None:
    """A consumer sees by the first row whether it is the one that it asked for."""
    world = World(settings=with_log(segment_size_bytes_max=4096, write_body_bytes_max=4096, deletion_grace_s=0))
    log = a_log(world, 2, [number % 2 for number in range(400)])
    engine = engine_of(log)
    rows = engine.gather(log["a"].number, {0: 0, 1: 0})
    log["a"].alter(retention_bytes=1)
    log.checkpoint()
    world.clock.advance(1)
    log.cleanup()
    assert engine.first_offset(log["a"].number, 0) > 0

    late = rows.to_pylist()

    for partition in (0, 1):
        offsets = [row["_hw_offset"] for row in late if row["_hw_partition"] == partition]
        assert offsets == list(range(engine.first_offset(log["a"].number, partition), 128))


def test_rows_that_go_while_they_are_read_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(World(), 2, [0, 1, 0, 1])
    whole = engine_of(log).gather(log["a"].number, {0: 0, 1: 0}).to_arrow().num_rows
    assert whole == 4

    class Going(Rows):
        def __iter__(self) -> Iterator[pa.RecordBatch]:
            yield next(super().__iter__()).slice(0, 2)
            raise Forgotten("rows were cleaned up while they were read")

    def going(*arguments: Any, **named: Any) -> Rows:
        rows = read_rows(*arguments, **named)
        return Going(rows.schema, rows._batches)

    monkeypatch.setattr(gathering, "read_rows", going)

    assert gathered(log, {0: 0, 1: 0}) == {0: [(0, 0)], 1: [(0, 1)]}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_given_is_the_first_of_what_reading_one_by_one_gives(seed: int) -> None:
    chance = Random(seed)
    partitions = chance.randint(1, 12)
    weights = [chance.choice([1, 1, 20, 200]) for _ in range(partitions)]
    log = a_log(World(), partitions, chance.choices(range(partitions), weights, k=chance.randint(1, 400)))
    topic = log["a"]
    offsets = {
        number: chance.randint(0, each.next) for number, each in topic.offsets().items() if chance.random() < 0.8
    }

    found = gathered(log, offsets) if offsets else {}

    assert set(found) <= set(offsets)
    for partition, rows in found.items():
        alone = topic.read(offsets[partition], partition=partition, system_columns=True).to_pylist()
        assert rows == [(row["_hw_offset"], row["x"]) for row in alone][: len(rows)]
        assert rows[0][0] == offsets[partition]
    unread = [number for number, at in offsets.items() if at < topic.offsets()[number].next]
    assert bool(found) == bool(unread)


def test_partitions_that_begin_close_together_are_one_pass() -> None:
    assert side_by_side({}) == ([], 0, 0)
    assert side_by_side({3: 10}) == ([3], 10, 10 + PASSED_MAX)
    assert side_by_side({3: 12, 1: 10, 2: 11}) == ([1, 2, 3], 10, 12 + 3 * PASSED_MAX)
    # Two frames too far: the third is left for another pass.
    assert side_by_side({1: 10, 2: 11, 3: 10 + 3 * PASSED_MAX + 1}) == ([1, 2], 10, 11 + 2 * PASSED_MAX)
    # A gap that is paid for by those behind it.
    begins = {0: 0, **dict.fromkeys(range(1, 9), 3 * PASSED_MAX)}
    assert side_by_side(begins) == ([*range(9)], 0, 3 * PASSED_MAX + 9 * PASSED_MAX)
