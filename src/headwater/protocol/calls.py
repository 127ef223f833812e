"""Calls: what is asked in one message and answered in one (DoAction).

A call's name is the type of the action, its body is the packed request, its one result is the packed answer.  CALLS is
the whole list, and docs/protocol.md is held to it by a test.

RIGHT    Which right a principal needs, and over what: each call names the topics that it touches, and the server looks
         at the topic that was found, not at the name that was sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Generic, TypeVar

import msgspec

from headwater.metadata.operations import TopicRecord
from headwater.protocol.places import Number
from headwater.protocol.streams import Names, Right, Seconds, TopicId, WireIdentity
from headwater.topics.answers import (
    CommittedTransaction,
    GroupDescription,
    OffsetRange,
    SourcePosition,
    Status,
    TopicDescription,
    TopicStatus,
)

Name = Annotated[str, msgspec.Meta(max_length=255)]
Duration = Name | float
"""A number of seconds, or a text like "90d" or "forever"."""


class Request(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked."""


class Nothing(Request, frozen=True):
    pass


# About the server -----------------------------------------------------------------------------------------------------


class Limits(msgspec.Struct, frozen=True):
    message_bytes_max: int
    rows_max: int
    in_flight_max: int
    """Requests of a stream that may wait for their answers."""


class Hello(msgspec.Struct, frozen=True):
    """Who answers."""

    versions: tuple[int, ...]
    server: str
    """Its release."""
    log_id: str
    shard: int
    epoch: int
    lease_s: float
    limits: Limits
    principal: str
    time_us: int = 0
    """The server's clock when it answered, in microseconds since 1970; 0 where it does not say."""


class WaitBeyond(Request, frozen=True):
    """Answered as soon as something beyond this LSN is durable, and after `timeout_s` at the latest."""

    lsn: Number
    timeout_s: Seconds
    topic: TopicId | None = None
    """Only rows of this topic count; the answer may be early all the same."""


# Topics ---------------------------------------------------------------------------------------------------------------


class WireNewTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """NewTopic, its schema as IPC bytes."""

    name: Name
    schema: bytes | None = None
    partitions: int | None = None
    key: Names | None = None
    time: Name | None = None
    table: Name | None = None
    partition_by: Names | None = None
    cleanup: Name | None = None
    retention: Duration | None = None
    retention_bytes: Name | int | None = None
    tombstones: Duration | None = None
    changes_retention: Duration | None = None


class CreateTopics(Request, frozen=True):
    topics: Annotated[tuple[WireNewTopic, ...], msgspec.Meta(max_length=10_000)]


class AlterTopic(Request, frozen=True):
    """The whole schema that the topic is to have, if it is to change, and what of the rest is to change."""

    topic: TopicId
    schema: bytes | None = None
    partitions: int | None = None
    table: Name | None = None
    partition_by: Names | None = None
    cleanup: Name | None = None
    retention: Duration | None = None
    retention_bytes: Name | int | None = None
    tombstones: Duration | None = None
    changes_retention: Duration | None = None


class DeleteTopic(Request, frozen=True):
    name: Name
    force: bool = False


class NamedTopic(Request, frozen=True):
    name: Name


class OneTopic(Request, frozen=True):
    topic: TopicId


class SomeTopics(Request, frozen=True):
    topics: Annotated[tuple[TopicId, ...], msgspec.Meta(max_length=10_000)]


# Writing --------------------------------------------------------------------------------------------------------------


class Register(Request, frozen=True):
    producer: Name


class WireRegistered(msgspec.Struct, frozen=True):
    producer_id: int
    epoch: int
    next_sequence: int


class TransactionRows(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    topic: TopicId
    rows: bytes
    """An Arrow IPC stream of the topic's present schema, or of an earlier version; of its key columns for deletes."""
    partition: Number | None = None
    deletes: bool = False
    rejected: bytes = b""
    """Rows that did not fit, for `<topic>.rejected`: an Arrow IPC stream of its schema."""


class TransactionOffset(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    group: Name
    topic: TopicId
    partition: Number
    offset: Number
    epoch: Number
    counter: Number


class TransactionSource(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: Name
    position: Any
    watermark_us: int | None = None


class Commit(Request, frozen=True):
    """A transaction: all of it is durable and visible together, or nothing of it is."""

    rows: Annotated[tuple[TransactionRows, ...], msgspec.Meta(max_length=10_000)] = ()
    offsets: Annotated[tuple[TransactionOffset, ...], msgspec.Meta(max_length=100_000)] = ()
    sources: Annotated[tuple[TransactionSource, ...], msgspec.Meta(max_length=10_000)] = ()
    identity: WireIdentity | None = None
    expected: Annotated[tuple[tuple[TopicId, Number, Number], ...], msgspec.Meta(max_length=10_000)] = ()
    """(topic, partition, the next offset that it must have)."""


class Committed(msgspec.Struct, frozen=True):
    transaction: CommittedTransaction
    number_used: bool
    """Whether the producer's number was used: not where an idempotency key was known."""


class NamedSource(Request, frozen=True):
    source: Name


# Groups ---------------------------------------------------------------------------------------------------------------


class JoinGroup(Request, frozen=True):
    group: Name
    topic: TopicId


class Joined(msgspec.Struct, frozen=True):
    member: str
    partitions: int


class PollGroup(Request, frozen=True):
    """Renew a member's lease; the answer names what it holds."""

    group: Name
    topic: TopicId
    member: Name
    busy: Annotated[tuple[Number, ...], msgspec.Meta(max_length=10_000)] = ()


class WireLease(msgspec.Struct, frozen=True, array_like=True):
    partition: int
    epoch: int
    counter: int


class Polled(msgspec.Struct, frozen=True):
    leases: tuple[WireLease, ...]
    partitions: int
    offsets: dict[int, OffsetRange]
    """Of each partition that it holds, from the first offset that can be read to the next that is given."""
    durable_lsn: int


class LeaveGroup(Request, frozen=True):
    group: Name
    topic: TopicId
    member: Name


class GroupTopic(Request, frozen=True):
    group: Name
    topic: TopicId


class CommitOffsets(Request, frozen=True):
    offsets: Annotated[tuple[TransactionOffset, ...], msgspec.Meta(max_length=100_000)]


# Upkeep ---------------------------------------------------------------------------------------------------------------


class WireCleanup(msgspec.Struct, frozen=True):
    """A cleanup, told in sentences and numbers: CleanupReport has what an owner needs."""

    rows_removed: int
    bytes_saved: int
    deleted: tuple[str, ...]
    kept: dict[str, str]
    notes: tuple[str, ...]
    failures: tuple[str, ...]
    compacted: tuple[WireCompacted, ...] = ()


class WireCompacted(msgspec.Struct, frozen=True):
    topic: str
    rows_removed: int
    frames_removed: int
    tombstones_removed: int
    bytes_saved: int
    segments: tuple[str, ...]
    up_to_lsn: int


# The list -------------------------------------------------------------------------------------------------------------

AnyRequest = TypeVar("AnyRequest", bound=Request)
AnyAnswer = TypeVar("AnyAnswer")


@dataclass(frozen=True)
class Call(Generic[AnyRequest, AnyAnswer]):
    name: str
    request: type[AnyRequest]
    answer: Any
    """The answer's type, as msgspec takes one; `type[AnyAnswer]` cannot say `list[...]`."""
    right: Right | None
    """None: whoever may do anything at all."""
    retry: bool = True
    """Whether it may be sent again when nobody knows what became of it: it reads, or doing it twice is doing it once,
    or what is in it says so (Commit's identity)."""
    changes: bool = False
    """Whether it changes something: then an attempt that was lost leaves open whether it was done."""


HELLO: Call[Nothing, Hello] = Call("hello", Nothing, Hello, None)
DURABLE_LSN: Call[Nothing, int] = Call("durable_lsn", Nothing, int, None)
WAIT_BEYOND: Call[WaitBeyond, bool] = Call("wait_beyond", WaitBeyond, bool, None)
STATUS: Call[Nothing, Status] = Call("status", Nothing, Status, "admin")
FLUSH: Call[Nothing, None] = Call("flush", Nothing, None, None)

CREATE_TOPICS: Call[CreateTopics, list[TopicRecord]] = Call(
    "create_topics", CreateTopics, list[TopicRecord], "admin", changes=True
)
ALTER_TOPIC: Call[AlterTopic, TopicRecord] = Call("alter_topic", AlterTopic, TopicRecord, "admin", changes=True)
DELETE_TOPIC: Call[DeleteTopic, None] = Call("delete_topic", DeleteTopic, None, "admin", retry=False, changes=True)
FIND_TOPIC: Call[NamedTopic, TopicRecord] = Call("find_topic", NamedTopic, TopicRecord, None)
"""Any right over the topic lets its holder know of it; to others it is UnknownTopic, as if it were not there."""
TOPIC: Call[OneTopic, TopicRecord] = Call("topic", OneTopic, TopicRecord, None)
TOPICS: Call[Nothing, list[TopicRecord]] = Call("topics", Nothing, list[TopicRecord], None)
TOPICS_STATUS: Call[Nothing, list[TopicStatus]] = Call("topics_status", Nothing, list[TopicStatus], None)
DESCRIBE_TOPIC: Call[OneTopic, TopicDescription] = Call("describe_topic", OneTopic, TopicDescription, None)
OFFSETS: Call[OneTopic, dict[int, OffsetRange]] = Call("offsets", OneTopic, dict[int, OffsetRange], None)

REGISTER: Call[Register, WireRegistered] = Call("register", Register, WireRegistered, "write", changes=True)
"""Write over any topic: a producer is of the shard.  Sent again it begins one epoch more, which is as good."""
COMMIT: Call[Commit, Committed] = Call("commit", Commit, Committed, "write", retry=False, changes=True)
"""Sent again by the client itself where its identity makes that safe.  Offsets of groups need the right to read."""
SOURCE_POSITION: Call[NamedSource, SourcePosition | None] = Call(
    "source_position", NamedSource, SourcePosition | None, "write"
)

GROUPS: Call[Nothing, list[GroupDescription]] = Call("groups", Nothing, list[GroupDescription], "read")
JOIN_GROUP: Call[JoinGroup, Joined] = Call("join_group", JoinGroup, Joined, "read")
POLL_GROUP: Call[PollGroup, Polled] = Call("poll_group", PollGroup, Polled, "read")
LEAVE_GROUP: Call[LeaveGroup, None] = Call("leave_group", LeaveGroup, None, "read")
COMMITTED: Call[GroupTopic, dict[int, int]] = Call("committed", GroupTopic, dict[int, int], "read")
COMMIT_OFFSETS: Call[CommitOffsets, None] = Call("commit_offsets", CommitOffsets, None, "read", changes=True)
"""Sent again: the same offsets under the same generation, which is doing it once."""

CLEANUP: Call[Nothing, WireCleanup] = Call("cleanup", Nothing, WireCleanup, "admin")
COMPACT: Call[SomeTopics, list[WireCompacted]] = Call("compact", SomeTopics, list[WireCompacted], "admin")
CHECKPOINT: Call[Nothing, bool] = Call("checkpoint", Nothing, bool, "admin")

CALLS: dict[str, Call[Any, Any]] = {value.name: value for value in list(globals().values()) if isinstance(value, Call)}
