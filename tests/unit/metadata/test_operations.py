"""Operations go into a frame's body and come out the same; what does not is told apart."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import asdict

from headwater.errors import DamagedLog, UnknownFormat
from headwater.metadata.operations import CreateGroup, Operation, SetTable, decode_operation, encode_operation
from tests.unit.metadata.small_journals import ONE_OF_EACH, create


@pytest.mark.parametrize("operation", ONE_OF_EACH, ids=lambda operation: type(operation).__name__)
def test_an_operation_is_read_back_as_it_was_written(operation: Operation) -> None:
    body = encode_operation(operation)

    assert decode_operation(body, 1) == operation
    assert decode_operation(memoryview(body), 1) == operation


def test_a_body_is_a_map_that_names_its_operation_so_that_anyone_can_read_it() -> None:
    body = encode_operation(CreateGroup("billing", 7))

    assert msgspec.msgpack.decode(body) == {"op": "create_group", "name": "billing", "created_us": 7}


def test_how_a_table_is_partitioned_is_written_only_where_it_was_said() -> None:
    # An older version, which refuses a field that it does not know, then reads all others.
    plain, parted = create(1, table="lake.t"), create(1, table="lake.t", partition_by=("day(at)",))

    assert "partition_by" not in msgspec.msgpack.decode(encode_operation(plain))["topic"]
    assert "partition_by" not in msgspec.msgpack.decode(encode_operation(SetTable(1, "lake.t")))
    assert encode_operation(plain) == msgspec.msgpack.encode(
        {
            "op": "create_topic",
            "topic": {key: value for key, value in asdict(plain.topic).items() if value != () or key != "partition_by"},
        }
    )
    for operation in (parted, SetTable(1, "lake.t", ("day(at)",))):
        assert decode_operation(encode_operation(operation), 1) == operation


def test_an_operation_of_a_later_version_is_refused_as_such() -> None:
    body = msgspec.msgpack.encode({"op": "split_topic", "number": 1})

    with pytest.raises(UnknownFormat, match=r"'split_topic'.*later version.*lsn=9"):
        decode_operation(body, 9)


@pytest.mark.parametrize(
    "fields",
    [
        {"op": "delete_group", "name": "billing", "why": "unused"},
        {"op": "set_policy", "number": 1, "policy": {"cleanup": "delete", "retention_rows": 5}},
    ],
    ids=["a field", "a field inside"],
)
def test_a_field_of_a_later_version_is_refused_as_such(fields: dict[str, object]) -> None:
    with pytest.raises(UnknownFormat, match=r"a field that is not known.*lsn=9"):
        decode_operation(msgspec.msgpack.encode(fields), 9)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([1, 2]),
        msgspec.msgpack.encode({"name": "billing"}),
        msgspec.msgpack.encode({"op": 7}),
        msgspec.msgpack.encode({"op": "delete_group"}),
        msgspec.msgpack.encode({"op": "delete_group", "name": 7}),
        msgspec.msgpack.encode({"op": "delete_topic", "number": -1, "deleted_us": 1}),
    ],
    ids=["empty", "no msgpack", "a list", "no operation", "a number for one", "a field missing", "type", "below zero"],
)
def test_a_body_that_is_no_operation_is_damage(body: bytes) -> None:
    with pytest.raises(DamagedLog, match=r"cannot be decoded.*log verify.*lsn=9"):
        decode_operation(body, 9)
