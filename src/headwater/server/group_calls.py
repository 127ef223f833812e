"""Calls of consumer groups: a member joins, renews its lease, leaves, and commits how far it came.

PROMISE  A group exists once somebody has joined it; a member of one that does not is refused, so that nobody can fill
         the memory of the log's owner with names.
NOT HERE Who holds what: topics/groups.py.  What a member reads: reads.py.
"""

from __future__ import annotations

from headwater.errors import InvalidRequest
from headwater.protocol import calls
from headwater.protocol.calls import TransactionOffset
from headwater.server.access import Principal, unknown_topic
from headwater.server.served import Served
from headwater.topics.answers import GroupDescription, OffsetRange
from headwater.topics.describing import describe_groups
from headwater.topics.names import checked_name
from headwater.topics.requests import GroupOffset


def groups(served: Served, principal: Principal, request: calls.Nothing) -> list[GroupDescription]:
    return [each for each in describe_groups(served.engine) if principal.may("read", each.topic)]


def join_group(served: Served, principal: Principal, request: calls.JoinGroup) -> calls.Joined:
    topic = served.by_id(principal, request.topic, "read")
    consumer = served.engine.consumer(topic.name, request.group)
    if consumer.topic_number != topic.number:
        # The name is another topic's since it was looked up.
        consumer.close()
        raise unknown_topic()
    # The member lives with the coordinator; its consumer is the client's.
    return calls.Joined(consumer.member, topic.partitions)


def poll_group(served: Served, principal: Principal, request: calls.PollGroup) -> calls.Polled:
    engine = served.engine
    topic = served.by_id(principal, request.topic, "read")
    _check_group(served, request.group)
    checked_name(request.member, "member")
    durable = engine.durable_lsn()
    leases = engine.coordinator.poll(
        request.group, topic.number, request.member, topic.partitions, frozenset(request.busy)
    )
    held = [each.partition for each in leases]
    return calls.Polled(
        leases=tuple(calls.WireLease(each.partition, *each.generation) for each in leases),
        partitions=topic.partitions,
        offsets={
            each: OffsetRange(served.first_offsets.of(topic.number, each), engine.next_offset(topic.number, each))
            for each in held
        },
        durable_lsn=durable,
    )


def leave_group(served: Served, principal: Principal, request: calls.LeaveGroup) -> None:
    topic = served.by_id(principal, request.topic, "read")
    served.engine.coordinator.leave(request.group, topic.number, request.member)


def committed(served: Served, principal: Principal, request: calls.GroupTopic) -> dict[int, int]:
    topic = served.by_id(principal, request.topic, "read")
    return dict(served.engine.committed(request.group, topic.number))


def commit_offsets(served: Served, principal: Principal, request: calls.CommitOffsets) -> None:
    offsets = offsets_of(served, principal, request.offsets)
    if offsets:
        served.engine.commit_transaction([], groups=offsets, sources=(), identity=None)


def offsets_of(served: Served, principal: Principal, wire: tuple[TransactionOffset, ...]) -> list[GroupOffset]:
    """Offsets of groups as the log checks them; whoever commits them may read their topics."""
    found = []
    for each in wire:
        topic = served.by_id(principal, each.topic, "read")
        _check_group(served, each.group)
        found.append(GroupOffset(each.group, topic.number, each.partition, each.offset, each.epoch, each.counter))
    return found


def _check_group(served: Served, group: str) -> None:
    if group not in served.engine.metadata().groups:
        raise InvalidRequest(f"there is no group {group!r}: join it first", group=group)
