"""Rows and identities as they come over a wire, made into what the engine takes.

PROMISE  Nothing here trusts a length, a number or a schema that was sent: see untrusted.py.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from headwater.errors import InvalidRequest
from headwater.metadata.operations import TopicRecord
from headwater.protocol.streams import WireIdentity
from headwater.server.ipc_messages import check_schema_message, messages_of
from headwater.server.settings import ServerLimits
from headwater.server.untrusted import read_ipc
from headwater.topics.rejected import REJECTED_SCHEMA
from headwater.topics.requests import Identity
from headwater.topics.schema import same_schema, unpack_schema

KEY_BYTES = 16

_unpacked = lru_cache(maxsize=1_024)(unpack_schema)
"""Asked for with every batch, and the same for most."""


def identity_of(wire: WireIdentity | None) -> Identity | None:
    if wire is None:
        return None
    if len(wire.key) not in (0, KEY_BYTES):
        raise InvalidRequest(f"the hash of an idempotency key has {KEY_BYTES} bytes", bytes=len(wire.key))
    if not wire.producer_id and not wire.key:
        return None
    return Identity(wire.producer_id, wire.epoch, wire.sequence, wire.key)


def schema_of_version(topic: TopicRecord, version: int) -> pa.Schema:
    if version > len(topic.schemas):
        raise InvalidRequest(
            f"{topic.name!r} has no schema version {version}", topic=topic.name, versions=len(topic.schemas)
        )
    return _unpacked(topic.schemas[version - 1])


def rows_of_bytes(topic: TopicRecord, data: bytes, limits: ServerLimits) -> pa.RecordBatch:
    """The rows of an IPC stream of one of the topic's schema versions; the topic's reader brings them into the present
    one, as it does with everybody's rows."""
    return _of_some_version([_unpacked(each) for each in topic.schemas], data, limits)


def keys_of_bytes(topic: TopicRecord, data: bytes, limits: ServerLimits) -> pa.RecordBatch:
    """Keys to delete: an IPC stream of the topic's key columns."""
    if not topic.key:
        raise InvalidRequest(f"{topic.name!r} has no key, so there is nothing to delete by", topic=topic.name)
    versions = [_unpacked(each) for each in topic.schemas]
    return _of_some_version([pa.schema([each.field(name) for name in topic.key]) for each in versions], data, limits)


def rejected_of(data: bytes, limits: ServerLimits) -> pa.RecordBatch | None:
    """Rows for `<topic>.rejected`; nothing where none came."""
    return _of_some_version([REJECTED_SCHEMA], data, limits) if data else None


def _of_some_version(versions: list[pa.Schema], data: bytes, limits: ServerLimits) -> pa.RecordBatch:
    """In one of these schemas."""
    schema = versions[-1] if len(versions) == 1 else _said(versions, data)
    batches = read_ipc(data, schema, limits)
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=schema)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _said(versions: list[pa.Schema], data: bytes) -> pa.Schema:
    """The version that a stream says it is of; where it is of none, the last, which then refuses it."""
    try:
        first = next(messages_of(data))
        check_schema_message(first)
        sent = pa.ipc.read_schema(first)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InvalidRequest("bytes that are no Arrow IPC stream") from error
    return next((each for each in reversed(versions) if same_schema(each, sent)), versions[-1])
