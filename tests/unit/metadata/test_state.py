"""The state of the metadata: what each operation does, and what is refused without a trace."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import Conflict, CorruptData, HeadwaterError, InvalidRequest, TopicExists, UnknownTopic
from headwater.metadata.operations import (
    AddPartitions,
    AddSchema,
    CreateGroup,
    DeletedTopic,
    DeleteGroup,
    DeleteTopic,
    ForgetTopics,
    Group,
    Operation,
    Policy,
    SetLogStart,
    SetPolicy,
    SetTable,
)
from headwater.metadata.state import MetadataState, Refused
from tests.unit.metadata.small_journals import ONE_OF_EACH, create, folded, topic


def test_every_operation_leaves_what_it_says() -> None:
    state = folded(ONE_OF_EACH)

    orders = topic(2, "orders", key=("id",), time_column="at", partitions=8)
    orders = msgspec.structs.replace(
        orders,
        schemas=(b"schema", b"wider"),
        policy=Policy(cleanup="compact", retention_s=60.0, retention_bytes=1_000),
        table="lake.orders",
    )
    assert state == MetadataState(
        topics={2: orders},
        numbers={"orders": 2},
        deleted={1: DeletedTopic(1, "topic-1", (1).to_bytes(16, "little"), 5_000)},
        groups={"billing": Group("billing", 6_000)},
        log_start=17,
        next_topic_number=4,
        lsn=len(ONE_OF_EACH),
    )
    assert state.topic_named("orders") == orders
    assert state.topic_named("topic-1") is None


def test_a_deleted_topics_name_is_free_again_and_its_number_never() -> None:
    state = folded([create(1, "orders"), DeleteTopic(1, 5)])

    with pytest.raises(Refused, match="next topic has number 2, not 1"):
        state.copy().apply(3, create(1, "orders"))
    state.apply(3, create(2, "orders"))

    assert state.next_topic_number == 3
    assert state.numbers == {"orders": 2}
    assert list(state.deleted) == [1]


def test_a_forgotten_topic_is_not_forgotten_twice() -> None:
    state = folded([create(1), DeleteTopic(1, 5), ForgetTopics((1, 1))])

    with pytest.raises(Refused, match="topic 1 was not deleted, or is forgotten already"):
        state.apply(4, ForgetTopics((1,)))


BEFORE: list[Operation] = [
    create(1, "orders", partitions=4, table="lake.orders"),
    create(2, "clicks"),
    create(3),
    DeleteTopic(3, 5),
    CreateGroup("billing", 1),
    SetLogStart(10, ()),
]

REFUSED: list[tuple[str, Operation, type[HeadwaterError], str]] = [
    ("a taken name", create(4, "orders"), TopicExists, "there is a topic 'orders' already"),
    ("a number too high", create(5), Conflict, "next topic has number 4, not 5"),
    ("a topic without a name", create(4, ""), InvalidRequest, "1 to 249 characters, not 0"),
    ("a name too long", create(4, "x" * 250), InvalidRequest, "1 to 249 characters, not 250"),
    ("an id too short", create(4, topic_id=b"x"), InvalidRequest, "16 bytes, not 1"),
    ("no schema", create(4, schemas=()), InvalidRequest, "one schema, not 0"),
    ("two schemas", create(4, schemas=(b"a", b"b")), InvalidRequest, "one schema, not 2"),
    ("no partition", create(4, partitions=0), InvalidRequest, "1 to 10000 partitions, not 0"),
    ("too many partitions", create(4, partitions=10_001), InvalidRequest, "1 to 10000 partitions, not 10001"),
    ("a schema of no topic", AddSchema(9, 2, b"s"), UnknownTopic, "no topic of number 9"),
    ("a schema of a deleted topic", AddSchema(3, 2, b"s"), UnknownTopic, "no topic of number 3"),
    ("a version twice", AddSchema(1, 1, b"s"), Conflict, "version 2, not 1"),
    ("a version skipped", AddSchema(1, 3, b"s"), Conflict, "version 2, not 3"),
    ("partitions of no topic", AddPartitions(9, 8), UnknownTopic, "no topic of number 9"),
    ("as many partitions", AddPartitions(1, 4), InvalidRequest, "has 4 partitions"),
    ("fewer partitions", AddPartitions(1, 3), InvalidRequest, "has 4 partitions"),
    ("partitions above the limit", AddPartitions(1, 10_001), InvalidRequest, "1 to 10000"),
    ("a policy of no topic", SetPolicy(9, Policy()), UnknownTopic, "no topic of number 9"),
    ("a second table", SetTable(1, "lake.others"), Conflict, "lands in 'lake.orders' and stays there"),
    ("a table without a name", SetTable(2, ""), InvalidRequest, "the name of a table is not empty"),
    ("a table of no topic", SetTable(9, "lake.t"), UnknownTopic, "no topic of number 9"),
    ("the deletion of no topic", DeleteTopic(9, 5), UnknownTopic, "no topic of number 9"),
    ("a second deletion", DeleteTopic(3, 5), UnknownTopic, "no topic of number 3"),
    ("forgetting a living topic", ForgetTopics((3, 1)), InvalidRequest, "topic 1 was not deleted"),
    ("a second group of a name", CreateGroup("billing", 2), Conflict, "there is a group 'billing' already"),
    ("a group without a name", CreateGroup("", 2), InvalidRequest, "the name of a group is not empty"),
    ("the deletion of no group", DeleteGroup("audit"), InvalidRequest, "there is no group 'audit'"),
    ("a log that starts earlier", SetLogStart(9, ()), Conflict, "is 10 and never falls, not even to 9"),
]


@pytest.mark.parametrize(("operation", "error", "reason"), [each[1:] for each in REFUSED], ids=[e[0] for e in REFUSED])
def test_what_is_refused_changes_nothing(operation: Operation, error: type[HeadwaterError], reason: str) -> None:
    state = folded(BEFORE)
    before = state.copy()

    with pytest.raises(Refused, match=reason) as refused:
        state.apply(99, operation)

    assert refused.value.error is error
    assert state == before


@pytest.mark.parametrize(
    "operation",
    [
        create(4, "x" * 249, partitions=10_000),
        create(4, "x", partitions=1),
        AddPartitions(1, 5),
        AddPartitions(1, 10_000),
        SetLogStart(10, ()),
        SetLogStart(11, ("a.seg",)),
    ],
    ids=["largest", "smallest", "one partition more", "most partitions", "same log start", "higher log start"],
)
def test_what_stands_at_a_limit_applies(operation: Operation) -> None:
    state = folded(BEFORE)

    state.apply(99, operation)

    assert state.lsn == 99


def test_operations_are_applied_in_order_only() -> None:
    state = folded(BEFORE)

    with pytest.raises(AssertionError, match="in order"):
        state.apply(state.lsn, CreateGroup("audit", 1))


def test_a_copy_is_not_changed_with_what_it_was_made_from() -> None:
    state = folded(ONE_OF_EACH)
    copy = state.copy()
    assert copy == state

    more: list[Operation] = [create(4), DeleteTopic(2, 9), CreateGroup("new", 1), SetLogStart(99, ())]
    for number, operation in enumerate(more):
        state.apply(100 + number, operation)

    assert copy == folded(ONE_OF_EACH)


def test_a_packed_state_is_read_back_as_it_was() -> None:
    state = folded(ONE_OF_EACH)

    assert MetadataState.unpack(state.pack()) == state
    assert MetadataState.unpack(MetadataState().pack()) == MetadataState()


def test_a_state_says_how_a_table_is_partitioned_and_nothing_where_it_was_not_said() -> None:
    state = folded([create(1), create(2), create(3, table="lake.c", partition_by=("id",))])
    state.apply(4, SetTable(1, "lake.a", ("day(at)", "bucket(4, id)")))
    state.apply(5, SetTable(2, "lake.b"))

    assert [each.partition_by for each in state.topics.values()] == [("day(at)", "bucket(4, id)"), (), ("id",)]
    assert MetadataState.unpack(state.pack()) == state
    told = ["partition_by" in topic for topic in msgspec.msgpack.decode(state.pack())["topics"]]
    assert told == [True, False, True]


def test_equal_states_are_equal_bytes_whatever_order_they_were_made_in() -> None:
    one = folded([create(1), CreateGroup("a", 1), CreateGroup("b", 2), create(2), AddPartitions(1, 2)])
    other = folded([create(1), create(2), AddPartitions(1, 2), CreateGroup("b", 2), CreateGroup("a", 1)])

    assert list(one.groups) != list(other.groups)
    assert one.pack() == other.pack()


@pytest.mark.parametrize("data", [b"", b"\xc1", msgspec.msgpack.encode({"lsn": 1})], ids=["empty", "no map", "fields"])
def test_bytes_that_are_no_state_are_told(data: bytes) -> None:
    with pytest.raises(CorruptData, match="not a state of the metadata"):
        MetadataState.unpack(data)


@given(st.lists(st.integers(0, 40), max_size=60))
def test_the_same_operations_give_the_same_state_wherever_they_are_replayed(choices: list[int]) -> None:
    # An operation drawn may be refused: that, too, must be the same everywhere.
    def fold(start: MetadataState, drawn: list[int]) -> MetadataState:
        for choice in drawn:
            number = choice % 5 + 1
            operations: list[Operation] = [
                create(start.next_topic_number, f"t{number}"),
                AddPartitions(number, choice),
                DeleteTopic(number, choice),
                ForgetTopics((number,)),
                CreateGroup(f"g{number}", choice),
                DeleteGroup(f"g{number}"),
                SetLogStart(choice + 1, ()),
                SetTable(number, f"table-{choice}"),
            ]
            try:
                start.apply(start.lsn + 1, operations[choice % len(operations)])
            except Refused:
                start.lsn += 1
        return start

    whole = fold(MetadataState(), choices)
    middle = fold(MetadataState(), choices[: len(choices) // 2])
    resumed = fold(MetadataState.unpack(middle.pack()), choices[len(choices) // 2 :])

    assert resumed == whole
    assert resumed.pack() == whole.pack()
    assert set(whole.numbers.values()) == set(whole.topics)
    assert max(whole.topics, default=0) < whole.next_topic_number
    assert not set(whole.topics) & set(whole.deleted)
