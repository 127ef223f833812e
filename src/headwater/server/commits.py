"""Transactions that come over a wire: rows as Arrow IPC streams, checked before anything looks at them.

PROMISE  Every topic is one that the principal may write to, every group's topic one that it may read, before any row is
         looked at.  Rows are of a schema that the topic has or had, checked to the last byte (untrusted.py).
"""

from __future__ import annotations

from headwater.errors import InvalidRequest
from headwater.log.index import partition_key
from headwater.metadata.operations import TopicRecord
from headwater.protocol.calls import Commit, Committed, TransactionRows, TransactionSource
from headwater.server.access import Principal, check_all
from headwater.server.group_calls import offsets_of
from headwater.server.incoming import identity_of, keys_of_bytes, rejected_of, rows_of_bytes
from headwater.server.served import Served
from headwater.topics.checked_appends import prepare_checked
from headwater.topics.positions import check_partition, time_of
from headwater.topics.requests import PartitionRows, SourceAt
from headwater.topics.transactions import Transaction


def commit(served: Served, principal: Principal, request: Commit) -> Committed:
    topics = [served.by_id(principal, each.topic, "write") for each in request.rows]
    groups = offsets_of(served, principal, request.offsets)
    expected = {}
    for topic_id, partition, offset in request.expected:
        topic = served.by_id(principal, topic_id, "write")
        check_partition(topic, partition)
        expected[partition_key(topic.number, partition)] = offset
    if (request.sources or request.identity is not None) and not principal.may_any("write"):
        check_all(principal, "write", "what belongs to those who write")
    sources = [_source(served, each) for each in request.sources]
    rows: list[PartitionRows] = []
    for topic, each in zip(topics, request.rows, strict=True):
        rows += _rows(served, topic, each)
    if not rows and not groups and not sources:
        raise InvalidRequest("a transaction with nothing in it is not sent")
    done, number_used = served.engine.commit_transaction(
        rows, groups=groups, sources=sources, identity=identity_of(request.identity), expected=expected or None
    )
    return Committed(done, number_used)


def _rows(served: Served, topic: TopicRecord, wire: TransactionRows) -> list[PartitionRows]:
    limits = served.settings.limits
    batch = (keys_of_bytes if wire.deletes else rows_of_bytes)(topic, wire.rows, limits)
    rejected = rejected_of(wire.rejected, limits)
    prepared = prepare_checked(
        served.engine, topic, batch, rejected=rejected, partition=wire.partition, deletes=wire.deletes
    )
    return prepared.rows


def _source(served: Served, wire: TransactionSource) -> SourceAt:
    """By the rules of every transaction: a name, a position of few bytes and levels, a time that can be told."""
    try:
        watermark = None if wire.watermark_us is None else time_of(wire.watermark_us)
    except (OverflowError, ValueError) as error:
        raise InvalidRequest("a watermark is a time of this calendar", source=wire.name) from error
    checking = Transaction(served.engine, producer=None, idempotency_key=None)
    checking.set_source(wire.name, wire.position, watermark=watermark)
    checking.abort()
    return SourceAt(wire.name, wire.position, wire.watermark_us)
