"""Topics, groups and the whole directory described, for people and programs.

PROMISE  Looking changes nothing and claims nothing: a process that does not own the log sees the same.
"""

from __future__ import annotations

from headwater.errors import Fenced
from headwater.log.index import partition_key
from headwater.metadata.operations import TopicRecord
from headwater.topics.answers import (
    GroupDescription,
    Status,
    TopicDescription,
    TopicStatus,
)
from headwater.topics.engine import Engine
from headwater.topics.positions import time_of
from headwater.topics.schema import unpack_schema


def describe_topic(engine: Engine, topic: TopicRecord) -> TopicDescription:
    offsets = engine.offsets(topic.number)
    return TopicDescription(
        name=topic.name,
        number=topic.number,
        topic_id=topic.topic_id.hex(),
        created=time_of(topic.created_us),
        schema=unpack_schema(topic.schemas[-1]),
        schema_version=len(topic.schemas),
        partitions=topic.partitions,
        key=topic.key,
        time_column=topic.time_column,
        policy=topic.policy,
        table=topic.table,
        partition_by=topic.partition_by,
        offsets=offsets,
        rows=sum(each.next - each.first for each in offsets.values()),
        bytes=_bytes_by_topic(engine).get(topic.number, (0, 0))[0],
    )


def describe_topics(engine: Engine) -> list[TopicStatus]:
    """One line a topic, by name; without a look into every partition's first frame."""
    held = _bytes_by_topic(engine)
    following = engine.shard.next_offsets()
    found = []
    for topic in sorted(engine.metadata().topics.values(), key=lambda each: each.name):
        size, rows = held.get(topic.number, (0, 0))
        appended = sum(
            following.get(partition_key(topic.number, partition), 0) for partition in range(topic.partitions)
        )
        found.append(
            TopicStatus(
                name=topic.name,
                partitions=topic.partitions,
                rows=rows,
                bytes=size,
                appended=appended,
                key=topic.key,
                table=topic.table,
                policy=topic.policy,
            )
        )
    return found


def _bytes_by_topic(engine: Engine) -> dict[int, tuple[int, int]]:
    """Bytes and rows that the log holds of each topic."""
    found: dict[int, tuple[int, int]] = {}
    device = engine.shard.log.device
    for segment in engine.shard.log.segments():
        for number, share in device.topics_in(segment).items():
            size, rows = found.get(number, (0, 0))
            found[number] = (size + share.bytes, rows + share.rows)
    return found


def describe_groups(engine: Engine) -> list[GroupDescription]:
    """How far each group has come in each topic that it has committed in or has a member on."""
    topics = engine.metadata().topics
    following = engine.shard.next_offsets()
    found = []
    groups = engine.shard.look(lambda state: {name: dict(each) for name, each in state.groups.items()})
    for (group, number), committed in sorted(groups.items()):
        topic = topics.get(number)
        if topic is None:
            continue
        lag = {}
        for partition in range(topic.partitions):
            after = following.get(partition_key(number, partition), 0)
            begun = committed[partition].offset if partition in committed else engine.first_offset(number, partition)
            lag[partition] = max(after - begun, 0)
        found.append(
            GroupDescription(
                group=group,
                topic=topic.name,
                committed={partition: each.offset for partition, each in sorted(committed.items())},
                lag=lag,
                members=len(engine.coordinator.members(group, number)),
            )
        )
    return found


def describe(engine: Engine, directory: str) -> Status:
    """Everything at a glance."""
    log = engine.shard.log
    producers = engine.shard.look(lambda state: len(state.producers))
    metadata = engine.metadata()
    segments = log.segments()
    report = log.recovery_report
    return Status(
        directory=directory,
        log_id=report.log_id,
        owner=engine.claimed and not isinstance(log.device.poisoned_by, Fenced),
        epoch=report.epoch,
        first_lsn=segments[0].first_lsn if segments else 0,
        durable_lsn=log.durable_lsn(),
        segments=len(segments),
        log_bytes=sum(segment.bytes for segment in segments),
        checkpoint_lsn=engine.shard.checkpoint_lsn,
        replay_bytes=engine.shard.replay_bytes,
        journal_lsn=metadata.lsn,
        journal_remaining=engine.journal.remaining_capacity,
        topics=describe_topics(engine),
        groups=describe_groups(engine),
        producers=producers,
        sources=engine.source_positions(),
        deleted_topics=len(metadata.deleted),
        notes=_notes(engine),
        counters=log.counters.as_dict(),
    )


def _notes(engine: Engine) -> list[str]:
    notes = list(engine.cleanup_notes())
    poisoned_by = engine.shard.log.device.poisoned_by
    if isinstance(poisoned_by, Fenced):
        notes.append(f"fenced, close it, and open it again if it should go on here: {poisoned_by.message}")
    elif poisoned_by is not None:
        notes.append(f"poisoned, close it and open it again: {poisoned_by}")
    return notes
