"""How requests become the writes of a commit: joined, numbered, checked in one critical section, told again."""

from __future__ import annotations

import errno
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headwater.api import Log
from headwater.errors import (
    Fenced,
    OffsetMismatch,
    Unavailable,
    UnknownTopic,
)
from headwater.frames.frame import Flag, Kind
from headwater.metadata.operations import DeleteTopic, TopicRecord
from headwater.metadata.records import unpack_schema_record, unpack_sequences
from headwater.settings import KIB
from headwater.topics.engine import Engine
from headwater.topics.requests import GroupOffset, Identity, PartitionRows, SourceAt
from headwater.topics.schema import unpack_schema
from tests.unit.topics.small_engines import (
    PLAIN,
    QUIET,
    World,
    appending,
    engine_of,
    frames,
    identified,
    kinds,
    queued,
    ranges,
    together,
    transacting,
    values,
    with_log,
)


def a_log(world: World | None = None, **topics: Any) -> tuple[Log, Engine]:
    """A log with a topic `a`, whose first row, and so its schema, is there already."""
    log = (World() if world is None else world).log()
    log.topic("a", PLAIN, **topics)
    log["a"].append({"x": 0}, partition=0)
    return log, engine_of(log)


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(numbers, pa.int64())], schema=PLAIN)


def rows_for(engine: Engine, topic: str, *numbers: int, partition: int = 0, tombstones: bool = False) -> PartitionRows:
    return PartitionRows(engine.topic(topic), partition, batch(*numbers), tombstones)


def large(rows: int = 16 * KIB) -> list[dict[str, int]]:
    """A request that is not joined."""
    return [{"x": number} for number in range(rows)]


# Joining ------------------------------------------------------------------------------------------


def test_small_requests_of_one_commit_become_one_frame_and_each_has_its_own_offsets() -> None:
    log, engine = a_log()
    before = engine.durable_lsn()

    futures = together(engine, *(appending(log, "a", [{"x": n}] * n) for n in (1, 2, 3)))

    assert [ranges(future) for future in futures] == [{0: (1, 2)}, {0: (2, 4)}, {0: (4, 7)}]
    assert [future.result().rows for future in futures] == [1, 2, 3]
    assert {(future.result().first_lsn, future.result().lsn) for future in futures} == {(before + 1, before + 1)}
    (frame,) = frames(engine, before + 1)
    assert (frame.header.kind, frame.header.row_count, frame.header.base_offset) == (Kind.DATA, 6, 1)
    assert frame.header.producer_id == 0
    assert values(log) == [0, 1, 2, 2, 3, 3, 3]


def test_a_request_for_several_partitions_is_joined_in_each() -> None:
    log, engine = a_log(partitions=3)
    before = engine.durable_lsn()

    futures = together(
        engine,
        appending(log, "a", {"x": 1}, partition=2),
        appending(log, "a", {"x": 2}, partition=1),
        appending(log, "a", {"x": 3}, partition=2),
    )

    assert [ranges(future) for future in futures] == [{2: (0, 1)}, {1: (0, 1)}, {2: (1, 2)}]
    written = [(frame.header.partition, frame.header.row_count) for frame in frames(engine, before + 1)]
    assert written == [(2, 2), (1, 1)]
    assert {frame.header.write_count for frame in frames(engine, before + 1)} == {2}


@pytest.mark.parametrize("between", ["a large request", "a transaction"])
def test_a_request_that_is_not_joined_keeps_its_place_between_small_ones(between: str) -> None:
    log, engine = a_log()
    before = engine.durable_lsn()
    other = (
        appending(log, "a", large())
        if between == "a large request"
        else transacting(engine, [rows_for(engine, "a", *range(16 * KIB))])
    )

    futures = together(
        engine,
        appending(log, "a", {"x": -1}),
        appending(log, "a", {"x": -2}),
        other,
        appending(log, "a", {"x": -3}),
    )

    assert [ranges(futures[at]) for at in (0, 1, 3)] == [{0: (1, 2)}, {0: (2, 3)}, {0: (16_387, 16_388)}]
    written = frames(engine, before + 1)
    assert [frame.header.row_count for frame in written] == [2, 16 * KIB, 1]
    assert [frame.header.write_count for frame in written] == [1, 1, 1], "three writes of one commit"
    assert len({frame.header.append_time_us for frame in written}) == 1
    assert bool(written[1].header.flags & Flag.TRANSACTION) == (between == "a transaction")
    assert values(log) == [0, -1, -2, *range(16 * KIB), -3]


def test_rows_of_another_schema_version_are_a_frame_of_their_own_and_the_order_stays() -> None:
    log, engine = a_log()
    old = engine.topic("a")
    before = engine.durable_lsn()

    def with_schema_of(topic: TopicRecord, number: int) -> Callable[[], Future[Any]]:
        row = {"x": [number], "note": [None]}
        schema = unpack_schema(topic.schemas[-1])
        return queued(
            engine, PartitionRows(topic, 0, pa.record_batch({n: row[n] for n in schema.names}, schema=schema))
        )

    log["a"].alter(add={"note": str})
    new = engine.topic("a")
    together(engine, *(with_schema_of(topic, at) for at, topic in enumerate([old, old, new, old, new, new], start=1)))

    data = frames(engine, before + 1, kind=Kind.DATA)
    assert [(frame.header.schema_version, frame.header.row_count) for frame in data] == [(1, 2), (2, 1), (1, 1), (2, 2)]
    assert [frame.header.base_offset for frame in data] == [1, 3, 4, 5]
    assert values(log) == [0, 1, 2, 3, 4, 5, 6]


def test_upserts_and_deletes_are_separate_frames_in_the_order_of_the_calls() -> None:
    world = World()
    log = world.log()
    log.topic("k", {"id": int, "v": str}, key="id")
    engine = engine_of(log)
    number = engine.topic("k").number

    def deleting(key: int) -> Callable[[], Future[Any]]:
        return queued(engine, *engine.prepare_keys("k", [{"id": key}]).rows)

    together(
        engine,
        lambda: engine.append_future(number, {"id": 1, "v": "a"}),
        deleting(1),
        deleting(2),
        lambda: engine.append_future(number, {"id": 1, "v": "b"}),
    )

    data = frames(engine, kind=Kind.DATA)
    senses = [(bool(each.header.flags & Flag.TOMBSTONES), each.header.row_count) for each in data]
    assert senses == [(False, 1), (True, 2), (False, 1)]
    found = [(row["id"], row["v"], row["_hw_op"]) for row in log["k"].read().to_pylist()]
    assert found == [(1, "a", "U"), (1, None, "D"), (2, None, "D"), (1, "b", "U")]


def test_a_joined_write_ends_where_it_would_become_too_large() -> None:
    log, engine = a_log(World(settings=replace(QUIET, frame_bytes_max=1_200, join_bytes_max=1_200)))
    before = engine.durable_lsn()

    together(engine, *(appending(log, "a", {"x": n}) for n in range(5)))

    assert [frame.header.row_count for frame in frames(engine, before + 1)] == [2, 2, 1]
    assert values(log) == [0, 0, 1, 2, 3, 4]


def test_a_joined_write_begins_with_one_sequences_frame_of_the_requests_that_have_an_identity() -> None:
    log, engine = a_log()
    producer = log.producer("p")
    before = engine.durable_lsn()

    together(
        engine,
        appending(log, "a", {"x": 1}),
        identified(engine, "a", {"x": 2}, Identity(producer.producer_id, producer.epoch, 0)),
        appending(log, "a", {"x": 3}, idempotency_key="k"),
    )

    assert kinds(engine, before + 1) == [Kind.SEQUENCES, Kind.DATA]
    entries = unpack_sequences(frames(engine, before + 1)[0].body)
    assert [(entry.producer_id, entry.sequence, len(entry.key)) for entry in entries] == [(1, 0, 0), (0, 0, 16)]
    assert [entry.parts[0].base_offset for entry in entries] == [2, 3]


def test_without_an_identity_there_is_no_sequences_frame() -> None:
    log, engine = a_log()
    before = engine.durable_lsn()

    together(engine, appending(log, "a", {"x": 1}), appending(log, "a", {"x": 2}))

    assert kinds(engine, before + 1) == [Kind.DATA]


def test_a_transaction_is_one_write_of_rows_offsets_and_sources() -> None:
    log, engine = a_log(partitions=2)
    log.topic("b", PLAIN)
    consumer = log.consumer("a", group="g")
    consumer.poll()
    ((_, generation),) = [consumer.offsets_to_commit()[0]]
    before = engine.durable_lsn()

    (future,) = together(
        engine,
        transacting(
            engine,
            [rows_for(engine, "a", 1), rows_for(engine, "b", 2), rows_for(engine, "a", 3, 4)],
            groups=[GroupOffset("g", 1, 0, 1, *generation)],
            sources=[SourceAt("pg", "0/1", 5)],
            identity=Identity(key=b"k" * 16),
        ),
    )

    written = frames(engine, before + 1)
    wanted = [Kind.SCHEMA, Kind.SEQUENCES, Kind.DATA, Kind.DATA, Kind.OFFSETS, Kind.SOURCE]
    assert kinds(engine, before + 1) == wanted
    assert [(frame.header.write_index, frame.header.write_count) for frame in written] == [(n, 6) for n in range(6)]
    assert [(part.topic_number, part.base_offset) for part in future.result().answer.parts] == [(1, 1), (2, 0)]
    assert [frame.header.base_offset for frame in frames(engine, before + 1, kind=Kind.DATA)] == [1, 0]
    engine.shard.check_fold()


@pytest.mark.parametrize("transaction", [False, True])
def test_the_frames_of_a_large_request_have_offsets_one_after_the_other(transaction: bool) -> None:
    log, engine = a_log(World(settings=replace(QUIET, join_bytes_max=KIB, frame_bytes_max=4 * KIB)), partitions=2)
    before = engine.durable_lsn()
    rows = [rows_for(engine, "a", *range(1_000), partition=1), rows_for(engine, "a", *range(600))]

    together(engine, transacting(engine, rows) if transaction else queued(engine, *rows))

    data = frames(engine, before + 1, kind=Kind.DATA)
    for partition, first, count in ((1, 0, 1_000), (0, 1, 600)):
        of_it = [frame.header for frame in data if frame.header.partition == partition]
        assert len(of_it) > 1
        ends = [header.base_offset + header.row_count for header in of_it]
        assert [header.base_offset for header in of_it] == [first, *ends[:-1]]
        assert ends[-1] == first + count
    assert [row["x"] for row in log["a"].read(partition=1).to_pylist()] == list(range(1_000))
    assert len({frame.header.write_count for frame in data}) == 1
    engine.shard.check_fold()


# Schemas ------------------------------------------------------------------------------------------


def schema_frames(engine: Engine) -> list[tuple[str, str, int]]:
    found = []
    for frame in frames(engine, kind=Kind.SCHEMA):
        record = unpack_schema_record(frame.body)
        found.append((frame.segment, record.name, record.version))
    return found


def test_a_schema_is_written_once_a_segment_before_the_first_of_its_rows() -> None:
    log, engine = a_log()
    log["a"].append({"x": 1})
    engine.shard.log.roll()
    log["a"].append({"x": 2})
    log["a"].append({"x": 3})

    names = [(name, version) for _, name, version in schema_frames(engine)]
    assert names == [("a", 1), ("a", 1)]
    assert kinds(engine) == [Kind.SCHEMA, Kind.DATA, Kind.DATA, Kind.SCHEMA, Kind.DATA, Kind.DATA]
    assert len({segment for segment, _, _ in schema_frames(engine)}) == 2


def test_the_writes_of_one_commit_share_their_schema_frames() -> None:
    log, engine = a_log()
    log.topic("b", PLAIN)
    before = engine.durable_lsn()

    together(engine, appending(log, "b", {"x": 1}), appending(log, "b", large()), appending(log, "b", {"x": 2}))

    assert kinds(engine, before + 1) == [Kind.SCHEMA, Kind.DATA, Kind.DATA, Kind.DATA]


def test_every_segment_can_be_read_by_itself_when_commits_roll() -> None:
    """A row's schema stands before it in its own segment, also where the schema frame makes the commit too large."""
    world = World(settings=with_log(segment_size_bytes_max=4 * KIB, write_body_bytes_max=4 * KIB))
    log = world.log()
    log.topic("a", PLAIN)
    log.topic("b", {"x": int, "note": str | None})
    engine = engine_of(log)
    for number in range(60):
        log["a" if number % 3 else "b"].append({"x": number})
        if number == 30:
            log["b"].alter(add={"more": int})

    segments = {frame.segment for frame in frames(engine)}
    assert len(segments) > 5
    for segment in segments:
        known: set[tuple[int, int]] = set()
        for frame in frames(engine):
            if frame.segment == segment:
                version = (frame.header.topic_number, frame.header.schema_version)
                if frame.header.kind == Kind.SCHEMA:
                    known.add(version)
                elif frame.header.kind == Kind.DATA:
                    assert version in known


def test_a_schema_is_written_again_after_the_log_was_opened_again() -> None:
    world = World()
    a_log(world)
    after = world.kill()
    log = after.log()

    log["a"].append({"x": 1})

    assert kinds(engine_of(log)) == [Kind.SCHEMA, Kind.DATA, Kind.SCHEMA, Kind.DATA]
    assert values(log) == [0, 1]


def test_a_schema_of_a_commit_that_was_refused_does_not_count_as_written() -> None:
    world = World()
    log, engine = a_log(world)
    log.topic("b", PLAIN)
    world.files.fail(1, errno.ENOSPC, verbs=["append"])

    with pytest.raises(Unavailable):
        log["b"].append({"x": 1})
    log["b"].append({"x": 2})

    assert kinds(engine) == [Kind.SCHEMA, Kind.DATA, Kind.SCHEMA, Kind.DATA]
    assert values(log, "b") == [2]


def test_a_schema_frame_carries_what_makes_the_topic_known_again() -> None:
    log = World().log()
    log.topic("t", {"id": int, "at": "timestamp[us, UTC]"}, partitions=3, key="id", time="at")
    log["t"].upsert({"id": 1})
    engine = engine_of(log)

    (frame,) = frames(engine, kind=Kind.SCHEMA)
    record = unpack_schema_record(frame.body)

    topic = engine.topic("t")
    assert (record.name, record.topic_id, record.schema) == ("t", topic.topic_id, topic.schemas[0])
    assert (record.partitions, record.key, record.time_column) == (3, ("id",), "at")
    assert (frame.header.topic_number, frame.header.schema_version) == (topic.number, 1)


# Expectations, leases, topics that are gone -------------------------------------------------------


def test_of_two_requests_with_the_same_expectation_in_one_commit_the_first_wins() -> None:
    log, engine = a_log()

    first, second, third = together(
        engine,
        appending(log, "a", [{"x": 1}, {"x": 2}], expect_offset=1),
        appending(log, "a", {"x": 3}, expect_offset=1),
        appending(log, "a", {"x": 4}, expect_offset=3),
    )

    assert ranges(first) == {0: (1, 3)}
    with pytest.raises(OffsetMismatch) as refused:
        second.result()
    assert refused.value.facts == {"partition": 0, "expected": 1, "next_offset": 3}
    assert ranges(third) == {0: (3, 4)}
    assert values(log) == [0, 1, 2, 4]


def test_the_generation_of_a_group_offset_is_checked_when_the_commit_is_formed() -> None:
    log, engine = a_log()
    consumer = log.consumer("a", group="g")
    consumer.poll()
    ((offset, generation),) = consumer.offsets_to_commit().values()
    rows = [rows_for(engine, "a", 1)]

    def committing(counter: int) -> Callable[[], Future[Any]]:
        return transacting(engine, rows, groups=[GroupOffset("g", 1, 0, offset, generation.epoch, counter)])

    good, fenced = together(engine, committing(generation.counter), committing(generation.counter + 1))

    assert good.exception() is None
    assert isinstance(fenced.exception(), Fenced)
    assert values(log) == [0, 1], "nothing of the other is there"
    assert engine.committed("g", 1) == {0: 1}


def test_a_lease_that_ends_before_the_commit_is_formed_refuses_all_of_the_transaction() -> None:
    log, engine = a_log()
    consumer = log.consumer("a", group="g")
    consumer.poll()
    ((offset, generation),) = consumer.offsets_to_commit().values()
    asked = transacting(engine, [rows_for(engine, "a", 1)], groups=[GroupOffset("g", 1, 0, offset, *generation)])

    def leaving() -> Future[Any]:
        future = asked()
        consumer.close()
        return future

    (future,) = together(engine, leaving)

    assert isinstance(future.exception(), Fenced)
    assert values(log) == [0]


def test_rows_of_a_topic_that_was_deleted_before_the_commit_was_formed_are_refused_alone() -> None:
    log, engine = a_log()
    log.topic("b", PLAIN)

    def then_deleted() -> Future[Any]:
        future = log["b"].append_future({"x": 1})
        engine.journal.append([DeleteTopic(engine.topic("b").number, 1)])  # by somebody who needs no baton
        return future

    gone, there = together(engine, then_deleted, appending(log, "a", {"x": 1}))

    with pytest.raises(UnknownTopic, match="'b' was deleted"):
        gone.result()
    assert there.result().rows == 1
    assert not any(frame.header.topic_number == 2 for frame in frames(engine))


def test_offsets_of_a_topic_that_was_deleted_are_refused() -> None:
    log, engine = a_log()
    log.topic("b", PLAIN)
    log["b"].append({"x": 1})
    consumer = log.consumer("b", group="g")
    consumer.poll()
    ((offset, generation),) = consumer.offsets_to_commit().values()
    log.delete_topic("b")

    (future,) = together(
        engine,
        transacting(engine, [rows_for(engine, "a", 1)], groups=[GroupOffset("g", 2, 0, offset, *generation)]),
    )

    assert isinstance(future.exception(), UnknownTopic)
    assert values(log) == [0]


def test_a_commit_of_which_nothing_is_left_writes_nothing() -> None:
    log, engine = a_log()
    before = engine.durable_lsn()

    together(engine, appending(log, "a", {"x": 1}, expect_offset=9), appending(log, "a", {"x": 1}, expect_offset=8))

    assert engine.durable_lsn() == before


def test_offsets_that_a_refused_commit_had_given_out_are_given_out_again() -> None:
    world = World(settings=QUIET)
    log, _ = a_log(world)
    world.files.fail(1, errno.ENOSPC, verbs=["append"])

    with pytest.raises(Unavailable):
        log["a"].append({"x": 1})

    assert log["a"].append({"x": 2}).offsets == {0: (1, 2)}
    engine_of(log).shard.check_fold()
