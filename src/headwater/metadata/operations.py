"""What can be done to the metadata: each operation is one METADATA frame of the journal.

The body of the frame is msgpack: a map with the field `op`, which names the operation, and its fields by name.
docs/formats/journal.md lists them.

WRITER   `partition_by` is written only where it is given: an older version then reads the operation, and what was
         written before there was such a field is the same bytes as ever.
READER   A body that is no msgpack, or whose fields have other types, is damage.  An operation or a field that this
         version does not know was written by a later one, and is refused as such.
CHANGE   A new operation, or a new field with a default: an older version refuses both by name.  The meaning of an
         operation that was ever written never changes, because the state is its replay.

NOT HERE Whether an operation applies: state.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta, Struct

from headwater.errors import DamagedLog, UnknownFormat

PARTITIONS_MAX = 10_000
TOPIC_ID_BYTES = 16
TOPIC_NAME_CHARACTERS_MAX = 249

Count: TypeAlias = Annotated[int, Meta(ge=0)]
"""A number, a size or a time: never below zero."""
TopicId: TypeAlias = Annotated[bytes, Meta(min_length=TOPIC_ID_BYTES, max_length=TOPIC_ID_BYTES)]


class Policy(Struct, frozen=True, forbid_unknown_fields=True):
    """How long a topic's rows are kept."""

    cleanup: Literal["delete", "compact", "both"] = "delete"
    retention_s: float | None = None
    """None: until a policy says otherwise."""
    retention_bytes: int | None = None
    tombstones_s: float = 86_400.0
    changes_retention_s: float = 30 * 86_400.0


class TopicRecord(Struct, frozen=True, forbid_unknown_fields=True):
    """A topic as the metadata knows it."""

    number: Count
    name: str
    topic_id: TopicId
    """Tells this topic from an earlier or a later one of the same name."""
    created_us: Count
    schemas: tuple[bytes, ...]
    """Arrow schemas as IPC bytes; version v, from 1, is schemas[v - 1]."""
    partitions: Count
    key: tuple[str, ...] = ()
    time_column: str | None = None
    policy: Policy = Policy()
    table: str | None = None
    partition_by: tuple[str, ...] = ()
    """How the table is partitioned when it is made: "day(created_at)", "bucket(16, id)", "region"."""


class DeletedTopic(Struct, frozen=True, forbid_unknown_fields=True):
    """A topic that is gone while frames of it may still be in the log."""

    number: Count
    name: str
    topic_id: TopicId
    deleted_us: Count


class Group(Struct, frozen=True, forbid_unknown_fields=True):
    """A consumer group."""

    name: str
    created_us: Count


class CreateTopic(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="create_topic"):
    """Its number is the state's next one and its name is free."""

    topic: TopicRecord


class AddSchema(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="add_schema"):
    """The next version of a topic's schema."""

    number: Count
    version: Count
    schema: bytes


class AddPartitions(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="add_partitions"):
    """`partitions` is the new total, above the present one."""

    number: Count
    partitions: Count


class SetPolicy(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="set_policy"):
    number: Count
    policy: Policy


class SetTable(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="set_table"):
    """A topic gets a table once, and keeps it."""

    number: Count
    table: str
    partition_by: tuple[str, ...] = ()


class DeleteTopic(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="delete_topic"):
    """Its name is free again, its number never."""

    number: Count
    deleted_us: Count


class ForgetTopics(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="forget_topics"):
    """No frame of these deleted topics is left in the log."""

    numbers: tuple[int, ...]


class CreateGroup(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="create_group"):
    name: str
    created_us: Count


class DeleteGroup(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="delete_group"):
    name: str


class SetLogStart(Struct, frozen=True, forbid_unknown_fields=True, tag_field="op", tag="set_log_start"):
    """The shard log is about to let go of these segments; its first LSN is this one from now on."""

    lsn: Count
    segments: tuple[str, ...]


Operation: TypeAlias = (
    CreateTopic
    | AddSchema
    | AddPartitions
    | SetPolicy
    | SetTable
    | DeleteTopic
    | ForgetTopics
    | CreateGroup
    | DeleteGroup
    | SetLogStart
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Operation] = msgspec.msgpack.Decoder(Operation)
_any_decoder = msgspec.msgpack.Decoder()


def encode_operation(operation: Operation) -> bytes:
    return encode_fields(operation)


def encode_fields(struct: Struct) -> bytes:
    """A struct as a msgpack map, its fields in order; an empty `partition_by` is left out wherever it stands."""
    return _encoder.encode(_without_defaults(msgspec.to_builtins(struct, builtin_types=(bytes,))))


def _without_defaults(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_without_defaults(each) for each in value]
    if isinstance(value, dict):
        return {name: _without_defaults(each) for name, each in value.items() if name != "partition_by" or each}
    return value


def decode_operation(body: bytes | memoryview, lsn: int) -> Operation:
    """The operation in a frame's body; `lsn` is for the message.  UnknownFormat, or DamagedLog: the body has matched
    its checksum, so whoever wrote it is to be asked."""
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        unknown = _what_is_unknown(body, error)
        if unknown:
            raise UnknownFormat(
                f"the journal holds {unknown}: it was written by a later version; use that one", lsn=lsn
            ) from error
        raise DamagedLog(
            f"an operation of the journal cannot be decoded: {error}; run `headwater log verify`", lsn=lsn
        ) from error


def _what_is_unknown(body: bytes | memoryview, error: msgspec.MsgspecError) -> str:
    """The operation or the field that a later version has added, if that is why it was not understood."""
    try:
        fields = _any_decoder.decode(body)
    except msgspec.MsgspecError:
        return ""
    if not isinstance(fields, dict) or not isinstance(fields.get("op"), str):
        return ""
    if fields["op"] not in _TAGS:
        return f"an operation {fields['op']!r} that is not known"
    # That an unknown field stands somewhere inside, only the message says.
    return f"an operation with a field that is not known ({error})" if "unknown field" in str(error) else ""


_TAGS = frozenset(
    operation.__struct_config__.tag
    for operation in (
        CreateTopic,
        AddSchema,
        AddPartitions,
        SetPolicy,
        SetTable,
        DeleteTopic,
        ForgetTopics,
        CreateGroup,
        DeleteGroup,
        SetLogStart,
    )
)
