"""The metadata as the journal's operations have made it: pure, deterministic, nothing but them.

RULES    An operation applies or is refused with a reason, and a refused one changes nothing.
         Topic numbers rise from 1 and are never reused.  A name belongs to one topic at a time.  Schemas and
         partitions are only added to.  A table stays, and so does how it was to be partitioned.  The log's start
         only rises.
PROMISE  The same operations in the same order give the same state, and the same packed bytes, everywhere.
         unpack(pack()) is the state itself.
NOT HERE Whether a name or a schema is a good one: that is asked before an operation is made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NoReturn

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from headwater.errors import Conflict, CorruptData, HeadwaterError, InvalidRequest, TopicExists, UnknownTopic
from headwater.metadata.operations import (
    PARTITIONS_MAX,
    TOPIC_ID_BYTES,
    TOPIC_NAME_CHARACTERS_MAX,
    AddPartitions,
    AddSchema,
    CreateGroup,
    CreateTopic,
    DeletedTopic,
    DeleteGroup,
    DeleteTopic,
    ForgetTopics,
    Group,
    Operation,
    SetLogStart,
    SetPolicy,
    SetTable,
    TopicRecord,
    encode_fields,
)


class Refused(Exception):
    """The state does not take this operation.  `error` is what the caller of an append is told."""

    def __init__(self, reason: str, error: type[HeadwaterError] = InvalidRequest) -> None:
        super().__init__(reason)
        self.reason = reason
        self.error = error


class _Packed(Struct, forbid_unknown_fields=True):
    """The state in a checkpoint: lists in order, so that equal states are equal bytes."""

    lsn: int
    log_start: int
    next_topic_number: int
    topics: list[TopicRecord]
    deleted: list[DeletedTopic]
    groups: list[Group]


_decoder = msgspec.msgpack.Decoder(_Packed)


@dataclass
class MetadataState:
    """Published states are not changed any more: whoever applies an operation applies it to a copy."""

    topics: dict[int, TopicRecord] = field(default_factory=dict)
    numbers: dict[str, int] = field(default_factory=dict)
    """By name."""
    deleted: dict[int, DeletedTopic] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    log_start: int = 1
    """The first LSN that the shard's log must still hold."""
    next_topic_number: int = 1
    lsn: int = 0
    """The last LSN of the journal that this holds."""

    def topic_named(self, name: str) -> TopicRecord | None:
        number = self.numbers.get(name)
        return None if number is None else self.topics[number]

    def copy(self) -> MetadataState:
        return MetadataState(
            dict(self.topics),
            dict(self.numbers),
            dict(self.deleted),
            dict(self.groups),
            self.log_start,
            self.next_topic_number,
            self.lsn,
        )

    # Applying --------------------------------------------------------------------------------

    def apply(self, lsn: int, operation: Operation) -> None:
        """Take in the operation at this LSN, or raise Refused and be as before."""
        assert lsn > self.lsn, "operations are applied in order"
        match operation:
            case CreateTopic(topic):
                self._create_topic(topic)
            case AddSchema(number, version, schema):
                self._add_schema(number, version, schema)
            case AddPartitions(number, partitions):
                self._add_partitions(number, partitions)
            case SetPolicy(number, policy):
                self.topics[number] = replace(self._topic(number), policy=policy)
            case SetTable(number, table, partition_by):
                self._set_table(number, table, partition_by)
            case DeleteTopic(number, deleted_us):
                topic = self._topic(number)
                del self.topics[number], self.numbers[topic.name]
                self.deleted[number] = DeletedTopic(number, topic.name, topic.topic_id, deleted_us)
            case ForgetTopics(numbers):
                self._forget(numbers)
            case CreateGroup(name, created_us):
                self._create_group(name, created_us)
            case DeleteGroup(name):
                if name not in self.groups:
                    _refuse(f"there is no group {name!r}")
                del self.groups[name]
            case _:
                # Only one is left, and the type checker knows it.
                self._set_log_start(operation)
        self.lsn = lsn

    def _topic(self, number: int) -> TopicRecord:
        topic = self.topics.get(number)
        if topic is None:
            _refuse(f"there is no topic of number {number}", UnknownTopic)
        return topic

    def _create_topic(self, topic: TopicRecord) -> None:
        if topic.name in self.numbers:
            _refuse(f"there is a topic {topic.name!r} already", TopicExists)
        if topic.number != self.next_topic_number:
            _refuse(f"the next topic has number {self.next_topic_number}, not {topic.number}", Conflict)
        if not 1 <= len(topic.name) <= TOPIC_NAME_CHARACTERS_MAX:
            _refuse(f"the name of a topic has 1 to {TOPIC_NAME_CHARACTERS_MAX} characters, not {len(topic.name)}")
        if len(topic.topic_id) != TOPIC_ID_BYTES:
            _refuse(f"the id of a topic has {TOPIC_ID_BYTES} bytes, not {len(topic.topic_id)}")
        if len(topic.schemas) != 1:
            _refuse(f"a new topic has one schema, not {len(topic.schemas)}")
        _check_partitions(topic.partitions)
        self.topics[topic.number] = topic
        self.numbers[topic.name] = topic.number
        self.next_topic_number += 1

    def _add_schema(self, number: int, version: int, schema: bytes) -> None:
        topic = self._topic(number)
        following = len(topic.schemas) + 1
        if version != following:
            _refuse(f"the next schema of {topic.name!r} is version {following}, not {version}", Conflict)
        self.topics[number] = replace(topic, schemas=(*topic.schemas, schema))

    def _add_partitions(self, number: int, partitions: int) -> None:
        topic = self._topic(number)
        _check_partitions(partitions)
        if partitions <= topic.partitions:
            _refuse(f"{topic.name!r} has {topic.partitions} partitions: they are added to, not cut to {partitions}")
        self.topics[number] = replace(topic, partitions=partitions)

    def _set_table(self, number: int, table: str, partition_by: tuple[str, ...]) -> None:
        topic = self._topic(number)
        if topic.table is not None:
            _refuse(f"{topic.name!r} lands in {topic.table!r} and stays there", Conflict)
        if not table:
            _refuse("the name of a table is not empty")
        self.topics[number] = replace(topic, table=table, partition_by=partition_by)

    def _forget(self, numbers: tuple[int, ...]) -> None:
        for number in numbers:
            if number not in self.deleted:
                _refuse(f"topic {number} was not deleted, or is forgotten already")
        for number in set(numbers):
            del self.deleted[number]

    def _create_group(self, name: str, created_us: int) -> None:
        if name in self.groups:
            _refuse(f"there is a group {name!r} already", Conflict)
        if not name:
            _refuse("the name of a group is not empty")
        self.groups[name] = Group(name, created_us)

    def _set_log_start(self, operation: SetLogStart) -> None:
        if operation.lsn < self.log_start:
            _refuse(f"the log's start is {self.log_start} and never falls, not even to {operation.lsn}", Conflict)
        self.log_start = operation.lsn

    # In a checkpoint -------------------------------------------------------------------------

    def pack(self) -> bytes:
        return encode_fields(
            _Packed(
                self.lsn,
                self.log_start,
                self.next_topic_number,
                [self.topics[number] for number in sorted(self.topics)],
                [self.deleted[number] for number in sorted(self.deleted)],
                [self.groups[name] for name in sorted(self.groups)],
            )
        )

    @classmethod
    def unpack(cls, data: bytes) -> MetadataState:
        """The state that was packed; CorruptData where these bytes are not one."""
        try:
            packed = _decoder.decode(data)
        except msgspec.MsgspecError as error:
            raise CorruptData(f"this is not a state of the metadata: {error}") from error
        return cls(
            {topic.number: topic for topic in packed.topics},
            {topic.name: topic.number for topic in packed.topics},
            {topic.number: topic for topic in packed.deleted},
            {group.name: group for group in packed.groups},
            packed.log_start,
            packed.next_topic_number,
            packed.lsn,
        )


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= PARTITIONS_MAX:
        _refuse(f"a topic has 1 to {PARTITIONS_MAX} partitions, not {partitions}")


def _refuse(reason: str, error: type[HeadwaterError] = InvalidRequest) -> NoReturn:
    raise Refused(reason, error)
