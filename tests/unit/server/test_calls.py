"""Calls: one handler each, rights over what was found, and nothing given away."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pyarrow as pa
import pytest

from headwater.api.opening import Opened, open_engine
from headwater.errors import InvalidRequest, NotAllowed, TopicExists, Unavailable, UnknownTopic
from headwater.metadata.operations import TopicRecord
from headwater.protocol import calls
from headwater.protocol.calls import CALLS
from headwater.server.access import OpenAccess, Principal, parse_grant
from headwater.server.calls import HANDLERS
from headwater.server.flight import ANSWERED, KNOWN
from headwater.server.served import Served
from headwater.server.settings import ServerSettings
from headwater.server.streams import Streams
from headwater.topics.schema import pack_schema

SCHEMA = pack_schema(pa.schema([pa.field("id", pa.int64(), nullable=False)]))


def principal(*grants: str) -> Principal:
    return Principal("somebody", tuple(parse_grant(each) for each in grants))


def _nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


ADMIN = principal("admin:*", "read:*", "write:*")


@pytest.fixture
def opened() -> Iterator[Opened]:
    found = open_engine(":memory:")
    yield found
    found.engine.close()
    found.lake.close()


@pytest.fixture
def served(opened: Opened) -> Iterator[Served]:
    settings = ServerSettings()
    opened.engine.claim()
    found = Served(opened.engine, None, ":memory:", settings, OpenAccess(), Streams(settings.limits))
    yield found
    found.close()


def ask(served: Served, who: Principal, call: calls.Call[Any, Any], request: Any = None) -> Any:
    return HANDLERS[call.name](served, who, calls.Nothing() if request is None else request)


def make(served: Served, name: str, who: Principal = ADMIN, **more: Any) -> TopicRecord:
    wanted = calls.CreateTopics((calls.WireNewTopic(name, SCHEMA, **more),))
    return cast(TopicRecord, ask(served, who, calls.CREATE_TOPICS, wanted)[0])


def test_every_call_has_a_handler_and_every_handler_a_call() -> None:
    assert set(HANDLERS) == set(CALLS)
    assert set(ANSWERED) == set(KNOWN)


def test_a_topic_is_made_only_by_who_may_make_it_and_a_name_is_no_hint(served: Served) -> None:
    make(served, "orders")

    with pytest.raises(NotAllowed):
        make(served, "orders.eu", principal("read:orders.*", "write:orders.*"))
    with pytest.raises(NotAllowed) as hidden:
        make(served, "orders", principal("read:other"))
    with pytest.raises(NotAllowed) as absent:
        make(served, "absent", principal("read:other"))

    assert str(hidden.value).replace("orders", "absent") == str(absent.value)
    assert [each.name for each in ask(served, ADMIN, calls.TOPICS)] == ["orders"]


def test_a_topic_that_is_there_is_given_to_whoever_knows_it_and_compared_all_the_same(served: Served) -> None:
    made = make(served, "orders")
    reader = principal("read:orders")

    assert make(served, "orders", reader) == made
    with pytest.raises(TopicExists):
        make(served, "orders", reader, partitions=7)


def test_a_topic_without_any_right_is_not_there_by_id_by_name_or_in_a_list(served: Served) -> None:
    made = make(served, "orders")
    stranger = principal("read:other")

    with pytest.raises(UnknownTopic) as hidden:
        ask(served, stranger, calls.TOPIC, calls.OneTopic(made.topic_id))
    with pytest.raises(UnknownTopic) as absent:
        ask(served, stranger, calls.TOPIC, calls.OneTopic(bytes(16)))
    assert str(hidden.value) == str(absent.value)

    with pytest.raises(UnknownTopic) as hidden:
        ask(served, stranger, calls.FIND_TOPIC, calls.NamedTopic("orders"))
    with pytest.raises(UnknownTopic) as absent:
        ask(served, stranger, calls.FIND_TOPIC, calls.NamedTopic("ordert"))
    assert str(hidden.value).replace("orders", "ordert") == str(absent.value)

    assert ask(served, stranger, calls.TOPICS) == []
    assert ask(served, stranger, calls.TOPICS_STATUS) == []
    assert ask(served, stranger, calls.GROUPS) == []


def test_a_topic_that_was_deleted_and_made_again_is_another_one(served: Served) -> None:
    first = make(served, "orders")
    assert ask(served, ADMIN, calls.TOPIC, calls.OneTopic(first.topic_id)) == first
    ask(served, ADMIN, calls.DELETE_TOPIC, calls.DeleteTopic("orders", force=True))
    second = make(served, "orders")

    with pytest.raises(UnknownTopic):
        ask(served, ADMIN, calls.OFFSETS, calls.OneTopic(first.topic_id))
    assert ask(served, ADMIN, calls.TOPIC, calls.OneTopic(second.topic_id)) == second


@pytest.mark.parametrize("call", [calls.STATUS, calls.CLEANUP, calls.CHECKPOINT])
def test_what_is_asked_of_the_whole_server_needs_the_right_over_all_of_it(
    served: Served, call: calls.Call[Any, Any]
) -> None:
    with pytest.raises(NotAllowed):
        ask(served, principal("admin:orders.*", "read:*", "write:*", "land:*"), call)

    ask(served, ADMIN, call)


def test_bytes_that_are_no_schema_are_the_senders_mistake(served: Served) -> None:
    wanted = calls.CreateTopics((calls.WireNewTopic("orders", b"no schema"),))

    with pytest.raises(InvalidRequest):
        ask(served, ADMIN, calls.CREATE_TOPICS, wanted)


def test_a_member_polls_only_groups_that_somebody_has_joined(served: Served) -> None:
    topic = make(served, "orders", partitions=2)

    with pytest.raises(InvalidRequest, match="join it first"):
        ask(served, ADMIN, calls.POLL_GROUP, calls.PollGroup("billing", topic.topic_id, "me"))
    joined = ask(served, ADMIN, calls.JOIN_GROUP, calls.JoinGroup("billing", topic.topic_id))
    polled = ask(served, ADMIN, calls.POLL_GROUP, calls.PollGroup("billing", topic.topic_id, joined.member))

    assert [each.partition for each in polled.leases] == [0, 1]
    assert polled.offsets == {0: (0, 0), 1: (0, 0)}


def test_offsets_are_committed_under_the_lease_and_only_by_readers(served: Served) -> None:
    topic = make(served, "orders")
    joined = ask(served, ADMIN, calls.JOIN_GROUP, calls.JoinGroup("billing", topic.topic_id))
    polled = ask(served, ADMIN, calls.POLL_GROUP, calls.PollGroup("billing", topic.topic_id, joined.member))
    lease = polled.leases[0]
    offset = calls.TransactionOffset("billing", topic.topic_id, 0, 0, lease.epoch, lease.counter)

    with pytest.raises(NotAllowed):
        ask(served, principal("write:orders"), calls.COMMIT_OFFSETS, calls.CommitOffsets((offset,)))
    ask(served, ADMIN, calls.COMMIT_OFFSETS, calls.CommitOffsets((offset,)))

    assert ask(served, ADMIN, calls.COMMITTED, calls.GroupTopic("billing", topic.topic_id)) == {0: 0}


def test_a_wait_ends_when_the_server_is_stopped(served: Served) -> None:
    served.stopping.set()

    with pytest.raises(Unavailable):
        ask(served, ADMIN, calls.WAIT_BEYOND, calls.WaitBeyond(1_000_000, 60.0))
    with pytest.raises(Unavailable):
        served.authenticate(None, None)


def test_a_wait_for_a_topic_ends_by_its_rows_and_needs_the_right_to_read_them(served: Served) -> None:
    orders, others = make(served, "orders"), make(served, "others")
    lsn = served.engine.durable_lsn()
    served.engine.append(others.number, [{"id": 1}])

    with pytest.raises(NotAllowed):
        ask(served, principal("write:*"), calls.WAIT_BEYOND, calls.WaitBeyond(lsn, 0.0, orders.topic_id))
    assert ask(served, ADMIN, calls.WAIT_BEYOND, calls.WaitBeyond(lsn, 0.0))
    assert ask(served, ADMIN, calls.WAIT_BEYOND, calls.WaitBeyond(lsn, 0.0, others.topic_id))
    assert not ask(served, ADMIN, calls.WAIT_BEYOND, calls.WaitBeyond(lsn, 0.01, orders.topic_id))


def test_an_expectation_is_of_a_partition_that_there_is(served: Served) -> None:
    topic = make(served, "orders")
    beyond = (topic.topic_id, 1 << 40, 0)

    with pytest.raises(InvalidRequest):
        ask(served, ADMIN, calls.COMMIT, calls.Commit(sources=(calls.TransactionSource("s", 1),), expected=(beyond,)))


@pytest.mark.parametrize(
    "source",
    [
        calls.TransactionSource("", 1),
        calls.TransactionSource("kafka", "x" * 70_000),
        calls.TransactionSource("kafka", _nested(40)),
        calls.TransactionSource("kafka", 1, watermark_us=1 << 62),
    ],
)
def test_a_source_is_held_to_the_rules_of_every_transaction(served: Served, source: calls.TransactionSource) -> None:
    with pytest.raises(InvalidRequest):
        ask(served, ADMIN, calls.COMMIT, calls.Commit(sources=(source,)))

    ask(served, ADMIN, calls.COMMIT, calls.Commit(sources=(calls.TransactionSource("kafka", 7, watermark_us=1),)))
    position = ask(served, ADMIN, calls.SOURCE_POSITION, calls.NamedSource("kafka"))
    assert position.position == 7
