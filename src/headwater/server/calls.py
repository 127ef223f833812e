"""Calls: one function for each of protocol/calls.py, from what is asked to what is answered.

PROMISE  Each looks at the rights of whoever asks before anything is done, over the topics that were found.
         None waits longer than WAIT_S_MAX for something to happen.
NOT HERE Groups' calls: group_calls.py.  Transactions: commits.py.  What lands rows: lake_calls.py.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

import pyarrow as pa

from headwater.errors import CorruptData, HeadwaterError, InvalidRequest, Unavailable
from headwater.metadata.operations import TopicRecord
from headwater.protocol import calls
from headwater.protocol.codec import VERSION
from headwater.server.access import Principal, check_all, check_making
from headwater.server.commits import commit
from headwater.server.group_calls import commit_offsets, committed, groups, join_group, leave_group, poll_group
from headwater.server.served import Served
from headwater.topics.answers import OffsetRange, SourcePosition, Status, TopicDescription, TopicStatus
from headwater.topics.compaction import CleanupFailure, Compacted
from headwater.topics.describing import describe_topic, describe_topics
from headwater.topics.names import checked_name
from headwater.topics.schema import unpack_schema
from headwater.topics.topic import NewTopic, plan_topics

Handler = Callable[[Served, Principal, Any], Any]

WAIT_S_MAX = 10.0
LOOK_S = 0.5
SHARD = 0


# About the server -----------------------------------------------------------------------------------------------------


def hello(served: Served, principal: Principal, request: calls.Nothing) -> calls.Hello:
    report = served.engine.shard.log.recovery_report
    limits = served.settings.limits
    return calls.Hello(
        versions=(VERSION,),
        server=release(),
        log_id=report.log_id,
        shard=SHARD,
        epoch=report.epoch,
        lease_s=served.engine.settings.lease_s,
        limits=calls.Limits(limits.message_bytes_max, limits.rows_max, limits.in_flight_max),
        principal=principal.name,
        time_us=served.engine.clock.now_us(),
    )


def release() -> str:
    try:
        return metadata.version("headwater")
    except metadata.PackageNotFoundError:
        return "unreleased"


def durable_lsn(served: Served, principal: Principal, request: calls.Nothing) -> int:
    return served.engine.durable_lsn()


def wait_beyond(served: Served, principal: Principal, request: calls.WaitBeyond) -> bool:
    wait = served.engine.wait_for_rows
    if request.topic is not None:
        wait = partial(served.arrivals.wait, served.by_id(principal, request.topic, "read").number)
    # It holds a thread for as long as it waits, as a stream does.
    with served.streams.opened(principal):
        left_s = min(request.timeout_s, WAIT_S_MAX)
        while not served.stopping.is_set():
            if wait(request.lsn, min(left_s, LOOK_S)):
                return True
            left_s -= LOOK_S
            if left_s <= 0:
                return False
        raise Unavailable("the server is being stopped: ask another, or this one soon")


def status(served: Served, principal: Principal, request: calls.Nothing) -> Status:
    check_all(principal, "admin", "the status of the server")
    return served.status()


def flush(served: Served, principal: Principal, request: calls.Nothing) -> None:
    served.engine.flush()


# Topics ---------------------------------------------------------------------------------------------------------------


def create_topics(served: Served, principal: Principal, request: calls.CreateTopics) -> list[TopicRecord]:
    """A topic that is there is given to whoever knows of it; one that is not is made for who has the right to."""
    engine = served.engine
    state = engine.metadata()
    wanted = [_new_topic(each) for each in request.topics]
    known = {each.name for each in wanted if state.topic_named(each.name) is not None and principal.knows(each.name)}
    there = [each for each in wanted if each.name in known]
    made = [each for each in wanted if each.name not in known]
    for each in made:
        check_making(principal, each.name)
    # Only compared: whoever may not make a topic does not make one that is deleted at this moment.
    plan_topics(
        state,
        there,
        partitions_default=engine.settings.partitions_default,
        now_us=engine.clock.now_us(),
        new_id=lambda: bytes(16),
    )
    records = {each.name: each for each in engine.create_topics(made)} if made else {}
    for each in there:
        found = state.topic_named(each.name)
        assert found is not None
        records[each.name] = found
    return [records[each.name] for each in wanted]


def _new_topic(wire: calls.WireNewTopic) -> NewTopic:
    return NewTopic(
        wire.name,
        _schema(wire.schema),
        partitions=wire.partitions,
        key=wire.key,
        time=wire.time,
        table=wire.table,
        partition_by=wire.partition_by,
        cleanup=wire.cleanup,
        retention=wire.retention,
        retention_bytes=wire.retention_bytes,
        tombstones=wire.tombstones,
        changes_retention=wire.changes_retention,
    )


def _schema(data: bytes | None) -> pa.Schema | None:
    if data is None:
        return None
    try:
        schema = unpack_schema(data)
        # Arrow takes names as they are; asked for all of them at once, because any may be no text.
        str(schema)
        return schema
    except CorruptData as error:
        # Nothing stored is wrong: what was sent is.
        raise InvalidRequest(f"the schema that was sent cannot be read: {error.facts.get('cause')}") from error
    except UnicodeDecodeError as error:
        raise InvalidRequest("the schema that was sent has a name that is no text") from error


def alter_topic(served: Served, principal: Principal, request: calls.AlterTopic) -> TopicRecord:
    topic = served.by_id(principal, request.topic, "admin")
    return served.engine.alter_topic(
        topic.number,
        schema=_schema(request.schema),
        partitions=request.partitions,
        table=request.table,
        partition_by=request.partition_by,
        cleanup=request.cleanup,
        retention=request.retention,
        retention_bytes=request.retention_bytes,
        tombstones=request.tombstones,
        changes_retention=request.changes_retention,
    )


def delete_topic(served: Served, principal: Principal, request: calls.DeleteTopic) -> None:
    # Rights go by names, so whatever has this name when it is deleted is covered by the same right.
    served.named(principal, request.name, "admin")
    served.engine.delete_topic(request.name, force=request.force)


def find_topic(served: Served, principal: Principal, request: calls.NamedTopic) -> TopicRecord:
    return served.named(principal, request.name, None)


def topic(served: Served, principal: Principal, request: calls.OneTopic) -> TopicRecord:
    return served.by_id(principal, request.topic, None)


def topics(served: Served, principal: Principal, request: calls.Nothing) -> list[TopicRecord]:
    return served.known(principal)


def topics_status(served: Served, principal: Principal, request: calls.Nothing) -> list[TopicStatus]:
    return [each for each in describe_topics(served.engine) if principal.knows(each.name)]


def describe(served: Served, principal: Principal, request: calls.OneTopic) -> TopicDescription:
    return describe_topic(served.engine, served.by_id(principal, request.topic, None))


def offsets(served: Served, principal: Principal, request: calls.OneTopic) -> dict[int, OffsetRange]:
    return served.engine.offsets(served.by_id(principal, request.topic, None).number)


# Writing --------------------------------------------------------------------------------------------------------------


def register(served: Served, principal: Principal, request: calls.Register) -> calls.WireRegistered:
    _check_writes(principal)
    checked_name(request.producer, "producer")
    return calls.WireRegistered(*served.engine.register_producer(request.producer))


def source_position(served: Served, principal: Principal, request: calls.NamedSource) -> SourcePosition | None:
    _check_writes(principal)
    return served.engine.source_position(request.source)


def _check_writes(principal: Principal) -> None:
    """What is of no topic is for whoever may write to some."""
    if not principal.may_any("write"):
        check_all(principal, "write", "what belongs to those who write")


# Upkeep ---------------------------------------------------------------------------------------------------------------


def cleanup(served: Served, principal: Principal, request: calls.Nothing) -> calls.WireCleanup:
    check_all(principal, "admin", "a cleanup")
    report = served.engine.cleanup()
    return calls.WireCleanup(
        rows_removed=report.rows_removed,
        bytes_saved=report.bytes_saved,
        deleted=report.deleted,
        kept=report.kept,
        notes=report.notes,
        failures=tuple(str(each) for each in report.failures),
        compacted=tuple(_compacted(each) for each in report.compacted),
    )


def compact(served: Served, principal: Principal, request: calls.SomeTopics) -> list[calls.WireCompacted]:
    found = [served.by_id(principal, each, "admin") for each in request.topics]
    report = served.engine.compact(each.number for each in found)
    for failure in report.failures:
        raise _failed(failure)
    return [_compacted(each) for each in report.compacted]


def _failed(failure: CleanupFailure) -> HeadwaterError:
    if isinstance(failure.error, HeadwaterError):
        return failure.error
    return Unavailable(f"{failure}; all was left as it was", topic=failure.topic)


def _compacted(done: Compacted) -> calls.WireCompacted:
    return calls.WireCompacted(
        topic=done.topic,
        rows_removed=done.rows_removed,
        frames_removed=done.frames_removed,
        tombstones_removed=done.tombstones_removed,
        bytes_saved=done.bytes_saved,
        segments=done.segments,
        up_to_lsn=done.up_to_lsn,
    )


def checkpoint(served: Served, principal: Principal, request: calls.Nothing) -> bool:
    check_all(principal, "admin", "a checkpoint")
    return served.engine.checkpoint()


# The list -------------------------------------------------------------------------------------------------------------

HANDLERS: dict[str, Handler] = {
    calls.HELLO.name: hello,
    calls.DURABLE_LSN.name: durable_lsn,
    calls.WAIT_BEYOND.name: wait_beyond,
    calls.STATUS.name: status,
    calls.FLUSH.name: flush,
    calls.CREATE_TOPICS.name: create_topics,
    calls.ALTER_TOPIC.name: alter_topic,
    calls.DELETE_TOPIC.name: delete_topic,
    calls.FIND_TOPIC.name: find_topic,
    calls.TOPIC.name: topic,
    calls.TOPICS.name: topics,
    calls.TOPICS_STATUS.name: topics_status,
    calls.DESCRIBE_TOPIC.name: describe,
    calls.OFFSETS.name: offsets,
    calls.REGISTER.name: register,
    calls.COMMIT.name: commit,
    calls.SOURCE_POSITION.name: source_position,
    calls.GROUPS.name: groups,
    calls.JOIN_GROUP.name: join_group,
    calls.POLL_GROUP.name: poll_group,
    calls.LEAVE_GROUP.name: leave_group,
    calls.COMMITTED.name: committed,
    calls.COMMIT_OFFSETS.name: commit_offsets,
    calls.CLEANUP.name: cleanup,
    calls.COMPACT.name: compact,
    calls.CHECKPOINT.name: checkpoint,
}
