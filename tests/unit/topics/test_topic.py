"""Wishes about topics: what there is needs no operation, what contradicts it is named, what may change does."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest, TopicExists
from headwater.metadata.operations import (
    AddPartitions,
    AddSchema,
    CreateTopic,
    Policy,
    SetPolicy,
    SetTable,
    TopicRecord,
)
from headwater.metadata.state import MetadataState
from headwater.topics.schema import unpack_schema
from headwater.topics.topic import NewTopic, plan_alteration, plan_topics

SCHEMA = {"id": int, "v": str}


def plan(state: MetadataState, *wanted: NewTopic) -> list[CreateTopic]:
    return plan_topics(state, wanted, partitions_default=2, now_us=77, new_id=lambda: b"i" * 16)


def with_topics(*wanted: NewTopic) -> MetadataState:
    state = MetadataState()
    for lsn, operation in enumerate(plan(state, *wanted), start=1):
        state.apply(lsn, operation)
    return state


def topic(**fields: Any) -> TopicRecord:
    return with_topics(NewTopic("a", **{"schema": SCHEMA, **fields})).topics[1]


# Being there --------------------------------------------------------------------------------------


def test_a_new_topic_has_what_was_asked_for_and_defaults_for_the_rest() -> None:
    (operation,) = plan(MetadataState(), NewTopic("a", SCHEMA))

    made = operation.topic
    assert (made.number, made.name, made.topic_id, made.created_us) == (1, "a", b"i" * 16, 77)
    assert (made.partitions, made.key, made.time_column, made.table, made.policy) == (2, (), None, None, Policy())
    assert unpack_schema(made.schemas[0]).names == ["id", "v"]


def test_a_new_topic_with_everything() -> None:
    made = topic(
        schema={"id": int, "at": "timestamp[us, UTC]"},
        partitions=7,
        key="id",
        time="at",
        table="sales.a",
        partition_by=["day(at)", "bucket(4, id)"],
        cleanup="both",
        retention="7d",
        retention_bytes="1GiB",
        tombstones="1h",
        changes_retention="90d",
    )

    assert (made.partitions, made.key, made.time_column, made.table) == (7, ("id",), "at", "sales.a")
    assert made.partition_by == ("day(at)", "bucket(4, id)")
    assert made.policy == Policy("both", 7 * 86_400.0, 1 << 30, 3_600.0, 90 * 86_400.0)


def test_topics_that_are_asked_for_together_have_consecutive_numbers() -> None:
    state = with_topics(NewTopic("a", SCHEMA))

    made = plan(state, NewTopic("b", SCHEMA), NewTopic("a", SCHEMA), NewTopic("c", SCHEMA))

    assert [(each.topic.name, each.topic.number) for each in made] == [("b", 2), ("c", 3)]


@pytest.mark.parametrize(
    "again",
    [
        NewTopic("a"),
        NewTopic("a", SCHEMA),
        NewTopic("a", SCHEMA, partitions=2, key=["id"], cleanup="compact"),
        NewTopic("a", key="id"),
        NewTopic("a", tombstones=86_400),
    ],
)
def test_asking_for_what_is_there_is_nothing(again: NewTopic) -> None:
    assert plan(with_topics(NewTopic("a", SCHEMA, key="id", cleanup="compact")), again) == []


@pytest.mark.parametrize(
    ("other", "why"),
    [
        ({"partitions": 3}, "another partitions"),
        ({"key": "v"}, "another key"),
        ({"time": "v"}, "another time"),
        ({"table": "x.y"}, "another table"),
        ({"retention": "1d"}, "another policy"),
        ({"schema": {"id": int, "v": str, "w": int}}, "no column 'w'"),
        ({"schema": {"id": int, "v": int}}, "v: string"),
        ({"schema": {"id": int}}, "'v' more"),
        ({"schema": {"v": str, "id": int}}, "another order"),
    ],
)
def test_asking_for_something_else_names_the_difference(other: dict[str, Any], why: str) -> None:
    with pytest.raises(TopicExists, match=why):
        plan(with_topics(NewTopic("a", SCHEMA)), NewTopic("a", **other))


def test_a_schema_that_the_topic_has_had_is_the_topics() -> None:
    state = with_topics(NewTopic("a", SCHEMA))
    for lsn, operation in enumerate(plan_alteration(state.topics[1], add={"w": int}), start=2):
        state.apply(lsn, operation)

    assert plan(state, NewTopic("a", SCHEMA)) == []
    assert plan(state, NewTopic("a", {"id": int, "v": str, "w": int | None})) == []


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (NewTopic("a/b", SCHEMA), "letters"),
        (NewTopic("a"), "schema"),
        (NewTopic("a", SCHEMA, partitions=0), "1 to 10,000 partitions"),
        (NewTopic("a", SCHEMA, partitions=10_001), "1 to 10,000 partitions"),
        (NewTopic("a", SCHEMA, cleanup="compact"), "no key"),
        (NewTopic("a", SCHEMA, key="nope"), "nope"),
        (NewTopic("a", SCHEMA, time="v"), "v"),
        (NewTopic("a", SCHEMA, table="bare"), "namespace"),
        (NewTopic("a", SCHEMA, table="x."), "namespace"),
        (NewTopic("a", SCHEMA, table="x.y", partition_by="day(v)"), "does not take the type"),
        (NewTopic("a", SCHEMA, partition_by="id"), "give table= too"),
    ],
)
def test_a_wish_that_cannot_be_is_refused(wrong: NewTopic, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        plan(MetadataState(), wrong)


def test_the_same_name_twice_is_a_mistake() -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        plan(MetadataState(), NewTopic("a", SCHEMA), NewTopic("a", SCHEMA))


# Changing -----------------------------------------------------------------------------------------


def test_no_change_is_no_operation() -> None:
    there = topic(table="x.y", retention="1d")

    assert plan_alteration(there) == []
    assert plan_alteration(there, schema=SCHEMA, partitions=2, table="x.y", retention="24h", add={}, widen={}) == []


def test_columns_are_added_nullable_and_widened() -> None:
    there = topic(schema={"id": "int32", "v": str})

    (operation,) = plan_alteration(there, add={"w": int}, widen={"id": "int64"})

    assert isinstance(operation, AddSchema) and (operation.number, operation.version) == (1, 2)
    after = unpack_schema(operation.schema)
    assert after.field("w").nullable and after.field("w").type == pa.int64()
    assert after.field("id").type == pa.int64()
    assert after.names == ["id", "v", "w"]


def test_a_whole_new_schema_may_be_given() -> None:
    (operation,) = plan_alteration(topic(), schema={"id": int, "v": str, "w": int | None})

    assert isinstance(operation, AddSchema)


def test_everything_else_that_may_change() -> None:
    there = topic(key="id")

    operations = plan_alteration(there, partitions=5, cleanup="compact", retention="3d", table="x.y")

    assert operations == [
        AddPartitions(1, 5),
        SetPolicy(1, Policy("compact", 3 * 86_400.0)),
        SetTable(1, "x.y"),
    ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"partitions": 1}, "never taken away"),
        ({"partitions": 0}, "1 to 10,000"),
        ({"schema": {"id": int}}, "v"),
        ({"widen": {"nope": "int64"}}, "no column 'nope'"),
        ({"widen": {"id": "int32"}}, "id"),
        ({"add": {"id": int}}, "id"),
        ({"schema": SCHEMA, "add": {"w": int}}, "not both"),
        ({"cleanup": "compact"}, "no key"),
        ({"table": "bare"}, "namespace"),
    ],
)
def test_what_would_lose_or_change_rows_is_refused(change: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        plan_alteration(topic(), **change)


def test_a_table_is_partitioned_as_was_said_with_it() -> None:
    (operation,) = plan_alteration(topic(), table="x.y", partition_by="bucket(4, id)")
    assert operation == SetTable(1, "x.y", ("bucket(4, id)",))
    there = topic(table="x.y", partition_by=["v"])
    assert plan_alteration(there, partition_by="v") == []
    assert (
        plan(with_topics(NewTopic("a", SCHEMA, table="x.y", partition_by="v")), NewTopic("a", partition_by=["v"])) == []
    )

    with pytest.raises(InvalidRequest, match="was said when 'a' got it"):
        plan_alteration(there, partition_by="id")
    with pytest.raises(InvalidRequest, match="give table= too"):
        plan_alteration(topic(), partition_by="id")
    with pytest.raises(TopicExists, match="another partition_by"):
        plan(with_topics(NewTopic("a", SCHEMA, table="x.y")), NewTopic("a", partition_by="id"))


def test_a_column_that_comes_with_a_table_may_partition_it() -> None:
    operations = plan_alteration(topic(), add={"region": str}, table="x.y", partition_by="region")

    assert operations[1:] == [SetTable(1, "x.y", ("region",))]


def test_a_topic_stays_with_its_table() -> None:
    with pytest.raises(InvalidRequest, match="stays there"):
        plan_alteration(topic(table="x.y"), table="x.z")
