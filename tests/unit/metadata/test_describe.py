"""Operations, told: each on one line that says what was done, and as plain values that JSON can hold."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest

from headwater.metadata.describe import operation_content, operation_text
from headwater.metadata.operations import ForgetTopics, Operation, Policy, SetLogStart, SetPolicy, SetTable
from tests.unit.metadata.small_journals import ONE_OF_EACH, create

LINES = [
    "create_topic topic 1: topic-1; 1 partition; cleanup delete",
    "create_topic topic 2: orders; 4 partitions; key id; time at; cleanup delete",
    "add_schema topic 2: version 2, 5 bytes",
    "add_partitions topic 2: 8 partitions",
    "set_policy topic 2: cleanup compact, retention 60 s, retention 1,000 bytes",
    "set_table topic 2: lake.orders",
    "create_topic topic 3: topic-3; 1 partition; cleanup delete",
    "delete_topic topic 1",
    "delete_topic topic 3",
    "forget_topics topics 3",
    "create_group billing",
    "create_group audit",
    "delete_group audit",
    "set_log_start LSN 17, without 00000000000000000001.0.seg",
]


@pytest.mark.parametrize(("operation", "line"), list(zip(ONE_OF_EACH, LINES, strict=True)), ids=LINES)
def test_every_operation_is_told_on_a_line(operation: Operation, line: str) -> None:
    assert operation_text(operation) == line


def test_what_is_long_is_told_short() -> None:
    many = SetLogStart(9, ("a", "b", "c", "d", "e"))

    assert operation_text(many) == "set_log_start LSN 9, without a, b, c and 2 more"
    assert operation_text(SetLogStart(9, ())) == "set_log_start LSN 9"
    assert operation_text(ForgetTopics((4, 5))) == "forget_topics topics 4, 5"
    assert operation_text(SetPolicy(1, Policy())) == "set_policy topic 1: cleanup delete"
    assert "table lake.t;" in operation_text(create(1, table="lake.t"))
    assert "table lake.t by day(at), id;" in operation_text(create(1, table="lake.t", partition_by=("day(at)", "id")))
    assert operation_text(SetTable(1, "lake.t", ("id",))) == "set_table topic 1: lake.t by id"


@pytest.mark.parametrize("operation", ONE_OF_EACH, ids=LINES)
def test_every_operation_is_plain_values_under_its_own_names(operation: Operation) -> None:
    content = json.loads(json.dumps(operation_content(operation)))

    assert content.pop("op") == LINES[ONE_OF_EACH.index(operation)].split()[0]
    assert list(content) == list(operation.__struct_fields__)


def test_a_topic_is_told_with_its_policy_its_id_as_digits_and_its_schema_as_base64() -> None:
    content = operation_content(create(2, "orders", key=("id",)))

    told = content["topic"]
    assert isinstance(told, dict)
    assert told["topic_id"] == "02" + "00" * 15
    assert [b64decode(each) for each in told["schemas"]] == [b"schema"]
    assert told["key"] == ["id"] and told["table"] is None
    assert told["policy"]["cleanup"] == "delete"
