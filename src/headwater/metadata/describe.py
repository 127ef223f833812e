"""The journal's operations, told: a line for people, plain values for programs.

NOT HERE What an operation does: state.py.
"""

from __future__ import annotations

from base64 import b64encode

from msgspec import Struct

from headwater.metadata.operations import (
    AddPartitions,
    AddSchema,
    CreateGroup,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    ForgetTopics,
    Operation,
    Policy,
    SetLogStart,
    SetPolicy,
    SetTable,
    TopicRecord,
)

_SEGMENTS_TOLD = 3


def operation_name(operation: Operation) -> str:
    """As it stands in the frame."""
    return str(operation.__struct_config__.tag)


def operation_text(operation: Operation) -> str:
    """One line, which begins with the operation's name."""
    return f"{operation_name(operation)} {_told(operation)}"


def operation_content(operation: Operation) -> dict[str, object]:
    """Its fields by name, for JSON: ids as hexadecimal digits, schemas as base64 of their Arrow IPC bytes."""
    return {"op": operation_name(operation), **_fields(operation)}


def _told(operation: Operation) -> str:
    match operation:
        case CreateTopic(topic):
            return _topic_text(topic)
        case AddSchema(number, version, schema):
            return f"topic {number}: version {version}, {len(schema):,} bytes"
        case AddPartitions(number, partitions):
            return f"topic {number}: {partitions:,} partitions"
        case SetPolicy(number, policy):
            return f"topic {number}: {_policy_text(policy)}"
        case SetTable(number, table, partition_by):
            return f"topic {number}: {_table_text(table, partition_by)}"
        case DeleteTopic(number, _):
            return f"topic {number}"
        case ForgetTopics(numbers):
            return f"topics {', '.join(map(str, numbers))}"
        case CreateGroup(name, _) | DeleteGroup(name):
            return name
    return _log_start_text(operation)


def _log_start_text(operation: SetLogStart) -> str:
    lsn, segments = operation.lsn, operation.segments
    names = ", ".join(segments[:_SEGMENTS_TOLD])
    more = f" and {len(segments) - _SEGMENTS_TOLD} more" if len(segments) > _SEGMENTS_TOLD else ""
    return f"LSN {lsn}, without {names}{more}" if segments else f"LSN {lsn}"


def _topic_text(topic: TopicRecord) -> str:
    parts = [f"topic {topic.number}: {topic.name}", f"{topic.partitions:,} partition{'s' * (topic.partitions != 1)}"]
    if topic.key:
        parts.append(f"key {', '.join(topic.key)}")
    if topic.time_column is not None:
        parts.append(f"time {topic.time_column}")
    if topic.table is not None:
        parts.append(f"table {_table_text(topic.table, topic.partition_by)}")
    parts.append(_policy_text(topic.policy))
    return "; ".join(parts)


def _table_text(table: str, partition_by: tuple[str, ...]) -> str:
    return f"{table} by {', '.join(partition_by)}" if partition_by else table


def _policy_text(policy: Policy) -> str:
    parts = [f"cleanup {policy.cleanup}"]
    if policy.retention_s is not None:
        parts.append(f"retention {policy.retention_s:g} s")
    if policy.retention_bytes is not None:
        parts.append(f"retention {policy.retention_bytes:,} bytes")
    return ", ".join(parts)


def _fields(struct: Struct) -> dict[str, object]:
    return {name: _plain(name, getattr(struct, name)) for name in struct.__struct_fields__}


def _plain(name: str, value: object) -> object:
    if isinstance(value, Struct):
        return _fields(value)
    if isinstance(value, bytes):
        return value.hex() if name == "topic_id" else b64encode(value).decode()
    if isinstance(value, tuple):
        return [_plain(name, each) for each in value]
    return value
