"""What a log shows of its topics, read out once and plainly: for the model to judge.

Everything is read as a user would, and the state beside the rows (producers, keys, groups, sources) from the fold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.api import Log
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.metadata.checkpoint import CheckpointKind, Checkpoints
from headwater.metadata.shard_state import Answer, ShardState, fold_frames
from headwater.storage.files import Files
from headwater.topics.appending import key_hash
from tests.simulation.model import Violation
from tests.unit.topics.small_engines import engine_of

_SYSTEM = ("_hw_lsn", "_hw_partition", "_hw_offset", "_hw_time", "_hw_op")


class SeenAnswer(NamedTuple):
    """What a request was told."""

    first_lsn: int
    last_lsn: int
    time_us: int
    placed: dict[tuple[int, int], tuple[int, int]]

    def fits(self, other: SeenAnswer) -> bool:
        """The same, as far as this one says: what it was told of rows may leave out those that were rejected."""
        return self[:3] == other[:3] and all(other.placed.get(place) == span for place, span in self.placed.items())


class ObservedRow(NamedTuple):
    values: dict[str, Any]
    op: str
    lsn: int
    time_us: int


@dataclass
class ObservedTopic:
    number: int
    topic_id: str
    columns: dict[str, str]
    versions: int
    partitions: int
    key: tuple[str, ...]
    policy: tuple[str, float | None, int | None, float]
    offsets: dict[int, tuple[int, int]]


@dataclass
class ObservedProducer:
    producer_id: int
    epoch: int
    next_sequence: int
    time_us: int
    answers: dict[int, SeenAnswer]


@dataclass
class Observed:
    topics: dict[str, ObservedTopic] = field(default_factory=dict)
    rows: dict[str, dict[tuple[int, int], ObservedRow]] = field(default_factory=dict)
    """By topic, then by partition and offset."""
    groups: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    sources: dict[str, tuple[Any, int | None]] = field(default_factory=dict)
    producers: dict[str, ObservedProducer] = field(default_factory=dict)
    keys: dict[str, SeenAnswer] = field(default_factory=dict)
    time_us: int = 0
    durable_lsn: int = 0

    def lasting(self) -> tuple[object, ...]:
        """What two looks must have in common.  Keys and producers that are too old, or too many, are forgotten at
        some checkpoint, which may have been lost between the two."""
        return self.topics, self.rows, self.groups, self.sources, self.time_us, self.durable_lsn


KEY_NAMES = [f"key-{number}" for number in range(14)]


@lru_cache(maxsize=4096)
def _keys_of(topic_id: str) -> dict[bytes, str]:
    """By its hash, each key of a topic; of transactions, where no topic is named."""
    return {key_hash(name, bytes.fromhex(topic_id)): key_of(topic_id, name) for name in KEY_NAMES}


def key_of(topic_id: str, name: str) -> str:
    """A key as the model knows it: it means something in one topic, or in transactions."""
    return f"{topic_id}:{name}"


def observe(log: Log) -> Observed:
    """Everything that the log shows now."""
    engine = engine_of(log)
    found = Observed()
    metadata = engine.metadata()
    for topic in metadata.topics.values():
        handle = log[topic.name]
        policy = topic.policy
        found.topics[topic.name] = ObservedTopic(
            number=topic.number,
            topic_id=topic.topic_id.hex(),
            columns={each.name: str(each.type) for each in handle.schema},
            versions=len(topic.schemas),
            partitions=topic.partitions,
            key=topic.key,
            policy=(policy.cleanup, policy.retention_s, policy.retention_bytes, policy.tombstones_s),
            offsets={partition: (span.first, span.next) for partition, span in handle.offsets().items()},
        )
        found.rows[topic.name] = {(row.partition, row.offset): row.row for row in read_rows(handle)}
    state = engine.shard.state()
    found.groups = {
        group: {partition: each.offset for partition, each in offsets.items()}
        for group, offsets in state.groups.items()
        if group[1] in metadata.topics
    }
    found.sources = {name: (source.position, source.watermark_us) for name, source in state.sources.items()}
    for producer in state.producers.values():
        found.producers[producer.name] = ObservedProducer(
            producer.producer_id,
            producer.epoch,
            producer.next_sequence,
            producer.last_time_us,
            {sequence: _seen(answer) for sequence, answer in producer.answers.items()},
        )
    names = dict(_keys_of(""))
    for each in found.topics.values():
        names.update(_keys_of(each.topic_id))
    # Those of topics that were deleted mean nothing any more.
    found.keys = {names[key]: _seen(answer) for key, answer in state.keys.items() if key in names}
    found.durable_lsn = log._engine.durable_lsn()
    found.time_us = state.time_us
    return found


def _seen(answer: Answer) -> SeenAnswer:
    placed: dict[tuple[int, int], tuple[int, int]] = {}
    for part in answer.parts:
        place = (part.topic_number, part.partition)
        first, _ = placed.get(place, (part.base_offset, 0))
        placed[place] = (first, part.base_offset + part.rows)
    return SeenAnswer(answer.first_lsn, answer.last_lsn, answer.append_time_us, placed)


class ReadRow(NamedTuple):
    """A row as a read with system columns gives it."""

    partition: int
    offset: int
    row: ObservedRow


def read_rows(topic: Any, **wanted: Any) -> list[ReadRow]:
    """The rows of a read, in its order; V11 and the order of the log are checked on the way."""
    table: pa.Table = topic.read(system_columns=True, **wanted).to_arrow()
    names = [name for name in table.column_names if name not in _SYSTEM]
    columns = [table.column(name).to_pylist() for name in names]
    lsns = table.column("_hw_lsn").to_pylist()
    partitions = table.column("_hw_partition").to_pylist()
    offsets = table.column("_hw_offset").to_pylist()
    times = table.column("_hw_time").cast(pa.int64()).to_pylist()
    ops = table.column("_hw_op").to_pylist() if "_hw_op" in table.column_names else [""] * len(lsns)
    rows = [
        ReadRow(partition, offset, ObservedRow(dict(zip(names, values, strict=True)), op, lsn, time_us))
        for partition, offset, values, op, lsn, time_us in zip(
            partitions, offsets, zip(*columns, strict=True), ops, lsns, times, strict=True
        )
    ]
    following: dict[int, int] = {}
    lsn = time_us = 0
    for row in rows:
        if row.row.lsn < lsn or row.row.time_us < time_us:
            raise Violation(f"V11: {row} is read after LSN {lsn}, time {time_us}")
        lsn, time_us = row.row.lsn, row.row.time_us
        if row.offset < following.get(row.partition, 0):
            raise Violation(f"V3: offset {row.offset} of partition {row.partition} is read after a later one")
        following[row.partition] = row.offset + 1
    return rows


def check_schemas(log: Log) -> None:
    """Each segment describes the rows in it: before the first of a topic's version there is its schema (D4)."""
    frames = engine_of(log).shard.log
    segments = frames.segments()
    if not segments:
        return
    segment = ""
    described: set[tuple[int, int]] = set()
    for frame in frames.read(segments[0].first_lsn):
        header = frame.header
        if frame.segment != segment:
            segment = frame.segment
            described.clear()
        version = (header.topic_number, header.schema_version)
        if header.kind == Kind.SCHEMA:
            described.add(version)
        elif header.kind in (Kind.DATA, Kind.SPARSE) and version not in described:
            raise Violation(f"LSN {header.lsn} has rows of {version}, which nothing before it in {segment} describes")


def check_folds(log: Log, files: Files, *, older_may_stay: bool = False) -> None:
    """V10: the live state, and every checkpoint, is what the log folds to; and every segment describes its rows.
    Where lists are stale, a checkpoint may stay though the log does not go on from it any more."""
    check_schemas(log)
    shard = engine_of(log).shard
    segments = shard.log.segments()
    found = [each.checkpoint for each in Checkpoints(files, "checkpoints", CheckpointKind.SHARD).read()]
    checkpoints = sorted((each for each in found if each is not None), key=lambda each: each.lsn)
    whole = not segments or (segments[0].first_lsn == 1 and all(not each.generation for each in segments))
    state: ShardState | None = ShardState() if whole else None
    if whole and segments:
        shard.check_fold()
    for checkpoint in checkpoints:
        if state is None:
            # What lies before may be forgotten or drained: fold on from the older one.
            state = ShardState.unpack(checkpoint.body)
            continue
        if older_may_stay and state.lsn + 1 < segments[0].first_lsn:
            state = ShardState.unpack(checkpoint.body)
            continue
        if any(each.generation for each in segments if each.first_lsn <= checkpoint.lsn and each.last_lsn > state.lsn):
            state = ShardState.unpack(checkpoint.body)
            continue
        fold_frames(state, shard.log.read(Lsn(state.lsn + 1), Lsn(checkpoint.lsn)))
        state.prune()
        if state.pack() != checkpoint.body or (state.lsn, state.chain) != (checkpoint.lsn, checkpoint.chain):
            raise Violation(f"V10: the checkpoint at LSN {checkpoint.lsn} is not what the log folds to")
