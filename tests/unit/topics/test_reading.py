"""Reading a topic: order, ranges, limits and batches, columns, schemas that change meanwhile, and followers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from headwater.api import Log
from headwater.errors import Forgotten, InvalidRequest, UnknownPartition, UnknownTopic
from headwater.topics import reading
from headwater.topics.positions import Lsn, time_of
from headwater.topics.reading import Rows
from tests.unit.topics.small_engines import PLAIN, WAIT_S, World, engine_of, values, with_log


def a_log(world: World | None = None, rows: int = 6, partitions: int = 2) -> Log:
    """Row n is in partition n % partitions, at offset n // partitions, a minute after the one before."""
    world = World() if world is None else world
    log = world.log()
    log.topic("a", PLAIN, partitions=partitions)
    for number in range(rows):
        log["a"].append({"x": number}, partition=number % partitions)
        world.clock.advance(60)
    return log


def numbers(rows: Rows) -> list[Any]:
    return [row["x"] for row in rows.to_pylist()]


def test_small_frames_that_lie_far_apart_are_not_held_in_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    log = a_log(rows=6)
    assert [batch.num_rows for batch in log["a"].read()] == [6]
    frames = list(engine_of(log).shard.log.read_topic(log["a"].number))
    monkeypatch.setattr(reading, "_APART_BYTES", frames[2].position - frames[0].position)

    batches = list(log["a"].read())

    assert [batch.num_rows for batch in batches] == [2, 2, 2]
    assert [row["x"] for batch in batches for row in batch.to_pylist()] == list(range(6))


# Ranges -------------------------------------------------------------------------------------------


def test_rows_come_in_the_order_of_the_log_whatever_their_partition() -> None:
    assert numbers(a_log()["a"].read()) == [0, 1, 2, 3, 4, 5]


def test_one_partition_comes_in_the_order_of_its_offsets() -> None:
    log = a_log()

    assert numbers(log["a"].read(partition=1)) == [1, 3, 5]
    assert numbers(log["a"].read(1, partition=1)) == [3, 5]
    assert numbers(log["a"].read(1, 2, partition=1)) == [3]
    assert numbers(log["a"].read(9, partition=1)) == []


def test_offsets_name_the_partitions_that_are_read() -> None:
    log = a_log()

    assert numbers(log["a"].read({0: 1, 1: 2})) == [2, 4, 5]
    assert numbers(log["a"].read({0: 1})) == [2, 4]
    assert numbers(log["a"].read(stop={0: 2, 1: 1})) == [0, 1, 2]
    assert numbers(log["a"].read({0: 1, 1: 0}, {0: 3, 1: 1})) == [1, 2, 4]


def test_the_ends_lsns_and_times_are_places() -> None:
    log = a_log()
    first = log["a"].read(system_columns=True).to_pylist()[0]
    third_time = first["_hw_time"] + timedelta(seconds=120)

    assert numbers(log["a"].read("latest")) == []
    assert numbers(log["a"].read(stop="earliest")) == []
    assert numbers(log["a"].read(Lsn(first["_hw_lsn"] + 4))) == [4, 5]
    assert numbers(log["a"].read(stop=Lsn(first["_hw_lsn"] + 2))) == [0, 1]
    assert numbers(log["a"].read(third_time)) == [2, 3, 4, 5]
    assert numbers(log["a"].read(stop=third_time.isoformat())) == [0, 1]
    assert numbers(log["a"].read(time_of(0), time_of(0))) == []


def test_a_range_begins_and_ends_inside_frames() -> None:
    log = World().log()
    log.topic("a", PLAIN)
    log["a"].append([{"x": number} for number in range(10)])

    assert numbers(log["a"].read(3, 6, partition=0)) == [3, 4, 5]
    offsets = [row["_hw_offset"] for row in log["a"].read(3, 6, partition=0, system_columns=True).to_pylist()]
    assert offsets == [3, 4, 5]
    assert numbers(log["a"].read(6, 3, partition=0)) == []


def test_a_read_ends_with_what_was_durable_when_it_was_asked_for() -> None:
    log = a_log()
    asked = log["a"].read()
    log["a"].append({"x": 6}, partition=0)

    assert numbers(asked) == [0, 1, 2, 3, 4, 5]
    assert numbers(asked) == [0, 1, 2, 3, 4, 5], "and can be read again"


def test_mistakes_are_refused_when_they_are_made() -> None:
    topic = a_log()["a"]

    for wrong in ({"limit": -1}, {"batch_rows": 0}, {"columns": ["y"]}, {"start": 3}):
        with pytest.raises(InvalidRequest):
            topic.read(**wrong)
    for partition in (-1, 2):
        with pytest.raises(UnknownPartition):
            topic.read(partition=partition)
    with pytest.raises(UnknownPartition):
        topic.read({7: 0})


def test_offsets_of_one_partition_and_the_name_of_another_give_nothing_or_are_refused() -> None:
    topic = a_log()["a"]

    try:
        assert numbers(topic.read({1: 0}, partition=0)) == []
    except InvalidRequest:
        pass  # a contradiction, and named as one


# Batches ------------------------------------------------------------------------------------------


def test_small_frames_are_put_together_and_no_batch_is_above_the_size_asked_for() -> None:
    topic = a_log(rows=7)["a"]

    assert [batch.num_rows for batch in topic.read()] == [7]
    assert [batch.num_rows for batch in topic.read(batch_rows=3)] == [3, 3, 1]
    assert [batch.num_rows for batch in topic.read(batch_rows=1)] == [1] * 7


@pytest.mark.parametrize("limit", [0, 1, 3, 7, 100])
def test_a_limit_is_the_number_of_rows(limit: int) -> None:
    topic = a_log(rows=7)["a"]

    assert numbers(topic.read(limit=limit)) == list(range(min(limit, 7)))
    assert numbers(topic.read(limit=limit, batch_rows=2)) == list(range(min(limit, 7)))


def test_a_large_frame_is_a_batch_of_its_own_between_small_ones() -> None:
    log = World().log()
    log.topic("a", PLAIN)
    log["a"].append({"x": -1})
    log["a"].append(pa.table({"x": pa.array(range(50_000))}))
    log["a"].append({"x": -2})
    log["a"].append({"x": -3})

    batches = list(log["a"].read())

    assert [batch.num_rows for batch in batches] == [1, 50_000, 2]
    assert numbers(log["a"].read(limit=4)) == [-1, 0, 1, 2]
    assert [batch.num_rows for batch in log["a"].read(batch_rows=30_000)] == [1, 30_000, 20_000, 2]


def test_rows_can_be_had_in_every_form() -> None:
    rows = a_log(rows=2)["a"].read()

    assert rows.to_arrow().to_pydict() == {"x": [0, 1]}
    assert rows.to_pylist() == [{"x": 0}, {"x": 1}]
    assert rows.to_pandas()["x"].tolist() == [0, 1]
    assert rows.to_polars()["x"].to_list() == [0, 1]
    assert pa.RecordBatchReader.from_stream(rows).read_all().num_rows == 2
    assert repr(rows) == "<Rows of x: int64; take them with to_arrow(), to_pandas(), to_polars(), to_pylist()>"


def test_a_topic_without_rows_has_its_columns() -> None:
    table = a_log(rows=0)["a"].read().to_arrow()

    assert (table.num_rows, table.schema) == (0, PLAIN)


# Columns ------------------------------------------------------------------------------------------


def test_system_columns_say_where_each_row_is() -> None:
    log = a_log(rows=3)

    rows = log["a"].read(system_columns=True).to_pylist()

    assert [(row["_hw_partition"], row["_hw_offset"]) for row in rows] == [(0, 0), (1, 0), (0, 1)]
    lsns = [row["_hw_lsn"] for row in rows]
    assert lsns == sorted(lsns)
    assert rows[1]["_hw_time"] - rows[0]["_hw_time"] == timedelta(seconds=60)


def test_columns_are_given_in_the_order_in_which_they_are_asked_for() -> None:
    log = World().log()
    log.topic("k", {"id": int, "v": str}, key="id")
    log["k"].upsert({"id": 1, "v": "a"})

    table = log["k"].read(columns=["_hw_offset", "v", "_hw_op"], system_columns=True).to_arrow()

    assert table.schema.names == ["_hw_offset", "v", "_hw_op"]
    assert table.to_pylist() == [{"_hw_offset": 0, "v": "a", "_hw_op": "U"}]


def test_deletes_of_a_keyed_topic_have_their_key_and_nulls_also_where_the_schema_has_none() -> None:
    log = World().log()
    log.topic("k", pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64(), nullable=False)]), key="id")
    log["k"].upsert({"id": 1, "v": 5})
    log["k"].delete(1)

    assert log["k"].read().to_pylist() == [{"id": 1, "v": 5, "_hw_op": "U"}, {"id": 1, "v": None, "_hw_op": "D"}]
    log["k"].alter(add={"note": str})
    assert [row["note"] for row in log["k"].read().to_pylist()] == [None, None]


# Schemas that change ------------------------------------------------------------------------------


def test_rows_of_older_versions_come_in_the_present_schema() -> None:
    log = World().log()
    log.topic("a", {"x": "int32"})
    log["a"].append({"x": 1})
    log["a"].alter(add={"note": str}, widen={"x": "int64"})
    log["a"].append({"x": 2**40, "note": "n"})

    table = log["a"].read().to_arrow()

    assert table.schema.field("x").type == pa.int64()
    assert table.to_pylist() == [{"x": 1, "note": None}, {"x": 2**40, "note": "n"}]


def test_a_read_that_began_before_a_change_goes_on_in_the_schema_with_which_it_began() -> None:
    log = World().log()
    log.topic("a", {"x": "int32"})
    log["a"].append({"x": 1})
    begun = log["a"].read(follow=True, timeout_s=0)
    log["a"].alter(add={"note": str}, widen={"x": "int64"})
    log["a"].append({"x": 2, "note": "n"})

    table = begun.to_arrow()

    assert table.schema.names == ["x"] and table.schema.field("x").type == pa.int32()
    assert table.to_pydict() == {"x": [1, 2]}


def test_a_value_that_does_not_fit_the_schema_of_a_read_that_began_before_is_named() -> None:
    log = World().log()
    log.topic("a", {"x": "int32"})
    begun = log["a"].read(follow=True, timeout_s=0)
    log["a"].alter(widen={"x": "int64"})
    log["a"].append({"x": 2**40})

    with pytest.raises(InvalidRequest, match="begin the read again"):
        begun.to_arrow()


def test_a_delete_that_comes_after_a_change_is_read_by_a_read_that_began_before() -> None:
    log = World().log()
    log.topic("k", pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int64(), nullable=False)]), key="id")
    begun = log["k"].read(follow=True, timeout_s=0)
    log["k"].alter(add={"note": str})
    log["k"].delete(1)

    assert begun.to_pylist() == [{"id": 1, "v": None, "_hw_op": "D"}]


# Followers ----------------------------------------------------------------------------------------


def test_a_follower_is_given_what_is_there_and_then_what_comes() -> None:
    log = a_log(rows=2)
    batches = iter(log["a"].read(follow=True))
    assert next(batches).to_pydict() == {"x": [0, 1]}

    log["a"].append({"x": 2}, partition=0)
    assert next(batches).to_pydict() == {"x": [2]}
    waiting = threading.Thread(target=lambda: log["a"].append({"x": 3}, partition=1))
    waiting.start()
    assert next(batches).to_pydict() == {"x": [3]}
    waiting.join(WAIT_S)


def test_a_follower_from_the_end_is_given_only_what_comes() -> None:
    log = a_log(rows=2)
    asked = log["a"].read("latest", follow=True, timeout_s=0)
    log["a"].append({"x": 2}, partition=0)

    assert numbers(asked) == [2]


def test_a_follower_ends_when_nothing_has_come_for_its_time_whatever_comes_for_other_topics() -> None:
    world = World()
    log = a_log(world, rows=1)
    log.topic("b", PLAIN)
    batches = iter(log["a"].read(follow=True, timeout_s=10))
    assert next(batches).num_rows == 1
    log["b"].append({"x": 1})
    world.clock.advance(11)

    assert list(batches) == []


def test_a_follower_ends_at_its_limit_and_at_its_stop() -> None:
    log = a_log(rows=3)
    durable = engine_of(log).durable_lsn()

    assert numbers(log["a"].read(follow=True, limit=2)) == [0, 1]
    assert numbers(log["a"].read(follow=True, stop=Lsn(durable + 1))) == [0, 1, 2]
    assert numbers(log["a"].read(follow=True, stop={0: 2, 1: 1})) == [0, 1, 2]
    assert numbers(log["a"].read(follow=True, limit=0)) == []


def test_a_follower_waits_for_a_time_that_is_to_come_and_ends_there() -> None:
    world = World()
    log = a_log(world, rows=2)
    stop = time_of(world.clock.now_us()) + timedelta(seconds=90)
    batches = iter(log["a"].read(follow=True, stop=stop))
    assert next(batches).to_pydict() == {"x": [0, 1]}

    for number in (2, 3):
        log["a"].append({"x": number}, partition=0)
        world.clock.advance(60)
    log["a"].append({"x": 4}, partition=1)

    assert [batch.to_pydict() for batch in batches] == [{"x": [2, 3]}]


def test_a_follower_from_a_time_that_is_to_come_is_given_nothing_from_before_it() -> None:
    world = World()
    log = a_log(world, rows=2)
    start = time_of(world.clock.now_us()) + timedelta(seconds=30)
    asked = log["a"].read(start, follow=True, timeout_s=0)
    log["a"].append({"x": 2}, partition=0)
    world.clock.advance(60)
    log["a"].append({"x": 3}, partition=0)

    assert numbers(asked) == [3]


def test_a_follower_of_one_partition_goes_on_from_where_it_was() -> None:
    log = a_log(rows=4)
    batches = iter(log["a"].read(1, partition=0, follow=True))
    assert next(batches).to_pydict() == {"x": [2]}

    log["a"].append({"x": 4}, partition=0)
    log["a"].append({"x": 5}, partition=1)
    assert next(batches).to_pydict() == {"x": [4]}
    log["a"].append([{"x": 6}, {"x": 8}], partition=0)
    assert next(batches).to_pydict() == {"x": [6, 8]}


def test_a_follower_ends_where_its_stop_is_behind_its_start() -> None:
    log = a_log(rows=4)

    assert numbers(log["a"].read({0: 2}, {0: 1}, follow=True)) == []


def test_a_follower_ends_when_the_log_is_closed() -> None:
    log = a_log(rows=1)
    batches = iter(log["a"].read(follow=True))
    next(batches)
    closing = threading.Thread(target=log.close)
    closing.start()

    assert list(batches) == []
    closing.join(WAIT_S)


def test_a_follower_of_a_topic_that_is_deleted_is_told() -> None:
    log = a_log(rows=1)
    log.topic("b", PLAIN)
    batches = iter(log["a"].read(follow=True))
    next(batches)
    log.delete_topic("a")
    log["b"].append({"x": 1})

    with pytest.raises(UnknownTopic):
        next(batches)


def test_a_topic_that_is_deleted_before_a_new_version_could_be_learned_is_told() -> None:
    log = World().log()
    log.topic("a", PLAIN)
    asked = log["a"].read(follow=True, timeout_s=0)
    log["a"].alter(add={"note": str})
    log["a"].append({"x": 1, "note": "n"})
    log.delete_topic("a")

    with pytest.raises(UnknownTopic):
        asked.to_arrow()


# Cleaned up while it is read ----------------------------------------------------------------------


def with_old_segments(world: World) -> Log:
    log = world.log()
    log.topic("a", PLAIN, retention="10s")
    log.topic("b", PLAIN, retention="10s")
    for number in range(3):
        log["a"].append({"x": number})
        engine_of(log).shard.log.roll()
    log["b"].append({"x": 0})
    return log


def let_go(world: World, log: Log) -> None:
    world.clock.advance(3_600)
    for _ in range(2):
        log["b"].append({"x": 1})
        log.checkpoint()
    assert log.cleanup().deleted


@pytest.mark.parametrize("more", [0, 1])
def test_rows_that_are_cleaned_up_while_they_are_read_are_not_passed_over_in_silence(more: int) -> None:
    world = World(settings=with_log(deletion_grace_s=0))
    log = with_old_segments(world)
    batches = iter(log["a"].read(batch_rows=1, stop=Lsn(10**9), follow=bool(more), timeout_s=0))
    assert next(batches).to_pydict() == {"x": [0]}

    let_go(world, log)
    for number in range(more):
        log["a"].append({"x": 10 + number})

    with pytest.raises(Forgotten):
        list(batches)


def test_a_read_that_begins_after_a_cleanup_gives_what_is_left() -> None:
    world = World(settings=with_log(deletion_grace_s=0))
    log = with_old_segments(world)
    let_go(world, log)
    log["a"].append({"x": 3})

    assert values(log) == [3]
    assert numbers(log["a"].read(0, partition=0)) == [3]
    assert log["a"].offsets() == {0: (3, 4)}


def test_a_read_goes_on_through_a_compaction() -> None:
    world = World()
    log = world.log()
    log.topic("k", {"id": int, "v": int}, key="id", cleanup="compact")
    for number in range(6):
        log["k"].upsert({"id": number % 2, "v": number})
        engine_of(log).shard.log.roll()
    log["k"].upsert({"id": 9, "v": 9})
    log.checkpoint()
    log["k"].upsert({"id": 9, "v": 10})
    batches = iter(log["k"].read(batch_rows=1))
    seen = [next(batches).to_pylist()[0]["v"]]

    log["k"].compact()
    seen += [row["v"] for batch in batches for row in batch.to_pylist()]

    assert seen[0] == 0 and seen[-1] == 10
    assert {4, 5} <= set(seen), "the latest of every key is seen"
    assert seen == sorted(seen)
    rows = log["k"].read(system_columns=True).to_pylist()
    assert [(row["_hw_offset"], row["v"]) for row in rows if row["v"] in (4, 5)] == [(4, 4), (5, 5)]
    assert [row["v"] for row in log["k"].read(5, 8, partition=0).to_pylist()] == [5, 10]


def test_a_read_that_has_given_all_it_was_asked_for_is_not_told_of_what_came_after() -> None:
    world = World(settings=with_log(deletion_grace_s=0))
    log = with_old_segments(world)
    batches = iter(log["a"].read(batch_rows=1))
    seen = [next(batches) for _ in range(3)]
    log["a"].append({"x": 3})
    engine_of(log).shard.log.roll()
    let_go(world, log)

    seen += batches

    assert [batch.to_pydict()["x"] for batch in seen] == [[0], [1], [2]]


def test_a_read_is_not_disturbed_by_other_topics_rows_that_go() -> None:
    world = World(settings=with_log(deletion_grace_s=0))
    log = world.log()
    log.topic("a", PLAIN)
    log.topic("b", PLAIN, retention="10s")
    log["b"].append({"x": 0})
    engine_of(log).shard.log.roll()
    for number in range(2):
        log["a"].append({"x": number})
        engine_of(log).shard.log.roll()
    batches = iter(log["a"].read(batch_rows=1))
    assert next(batches).to_pydict() == {"x": [0]}

    let_go(world, log)

    assert [batch.to_pydict()["x"] for batch in batches] == [[1]]


def test_a_topic_that_is_deleted_before_its_rows_are_read_is_told() -> None:
    log = a_log()
    asked = log["a"].read()
    log.delete_topic("a")

    with pytest.raises(UnknownTopic):
        asked.to_arrow()


def test_what_a_compaction_left_of_a_frame_is_read_by_offsets() -> None:
    log = World().log()
    log.topic("k", {"id": int, "v": int}, key="id", cleanup="compact")
    log["k"].upsert([{"id": number % 3, "v": number} for number in range(6)])
    log.checkpoint()
    log["k"].upsert({"id": 9, "v": 9})
    log.checkpoint()
    assert log["k"].compact().rows_removed == 3

    assert [row["v"] for row in log["k"].read().to_pylist()] == [3, 4, 5, 9]
    assert [row["v"] for row in log["k"].read(4, 5, partition=0).to_pylist()] == [4]
    assert [row["v"] for row in log["k"].read(0, 3, partition=0).to_pylist()] == []
    assert [row["v"] for row in log["k"].read(0, 4, partition=0).to_pylist()] == [3]


LOOKS: dict[str, Callable[[Log], Any]] = {
    "first_offset": lambda log: engine_of(log).shard.log.first_offset(1, 0),
    "find": lambda log: engine_of(log).shard.log.find(1, 0, 0),
    "read": lambda log: [row["v"] for row in log["k"].read(0, partition=0).to_pylist()][-1],
    "find_time": lambda log: engine_of(log).shard.log.find_time(0),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_look_at_offsets_that_meets_a_compaction_looks_again(look: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the moment when a reader takes its view of the segments and the one when it opens an index."""
    log = World().log()
    log.topic("k", {"id": int, "v": int}, key="id", cleanup="compact")
    for number in range(4):
        log["k"].upsert({"id": 1, "v": number})
        engine_of(log).shard.log.roll()
        log.checkpoint()
    device = engine_of(log).shard.log.device
    wanted = LOOKS[look](log)
    index_of = device._index
    met: list[int] = []

    def meanwhile(view: Any, number: int) -> Any:
        if not met:
            met.append(number)
            log["k"].compact()
        return index_of(view, number)

    monkeypatch.setattr(device, "_index", meanwhile)
    found = LOOKS[look](log)

    assert met
    assert found == wanted if look in ("read", "find_time") else found is not None
