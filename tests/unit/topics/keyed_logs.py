"""Logs of keyed rows for tests: appended as topics would append them, and read back row by row.

SEED     Files, entropy and clock are those of tests/unit/log/small_logs.py: the same calls give the same bytes.
NOT HERE The engine: frames are made by hand here, so that a test says exactly which rows are in which frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from headwater.errors import HeadwaterError
from headwater.frames.frame import Flag, Kind
from headwater.ids import Lsn
from headwater.log import Draft, FrameLog, Receipt
from headwater.log.deletion import DeletionIntent
from headwater.log.pins import Pins
from headwater.metadata.operations import DeletedTopic, Policy, TopicRecord
from headwater.storage.simulated import SimulatedFiles
from headwater.topics.batches import decode_rows, encode_batch
from headwater.topics.compaction import Compacted, compact_topic
from headwater.topics.schema import pack_schema, unpack_schema
from tests.unit.log.small_logs import World, simulated

KEYED = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])
DAY_S = 86_400.0


def keyed_topic(
    number: int = 1,
    *,
    schemas: Sequence[pa.Schema] = (KEYED,),
    key: tuple[str, ...] = ("id",),
    table: str | None = None,
    cleanup: Any = "compact",
    **policy: Any,
) -> TopicRecord:
    return TopicRecord(
        number=number,
        name=f"topic-{number}",
        topic_id=bytes([number]) * 16,
        created_us=0,
        schemas=tuple(pack_schema(schema) for schema in schemas),
        partitions=4,
        key=key,
        policy=Policy(cleanup=cleanup, **policy),
        table=table,
    )


def deleted_topic(topic: TopicRecord, deleted_us: int) -> DeletedTopic:
    return DeletedTopic(topic.number, topic.name, topic.topic_id, deleted_us)


def draft(
    topic: TopicRecord,
    rows: Sequence[Mapping[str, Any]],
    *,
    partition: int = 0,
    version: int | None = None,
    tombstones: bool = False,
) -> Draft:
    """A data frame of these rows; columns that a row lacks are null."""
    version = len(topic.schemas) if version is None else version
    schema = unpack_schema(topic.schemas[version - 1])
    columns = [pa.array([row.get(each.name) for row in rows], each.type) for each in schema]
    return Draft(
        Kind.DATA,
        encode_batch(pa.RecordBatch.from_arrays(columns, schema=schema)),
        topic_number=topic.number,
        partition=partition,
        row_count=len(rows),
        schema_version=version,
        flags=Flag.TOMBSTONES if tombstones else 0,
    )


def upsert(log: FrameLog, topic: TopicRecord, rows: Mapping[int, str] | Sequence[tuple[int, str]]) -> Receipt:
    """Append rows of `KEYED` as one frame: keys and values."""
    pairs = rows.items() if isinstance(rows, Mapping) else rows
    return log.append([draft(topic, [{"id": key, "value": value} for key, value in pairs])])


def delete(log: FrameLog, topic: TopicRecord, *keys: int) -> Receipt:
    return log.append([draft(topic, [{"id": key} for key in keys], tombstones=True)])


@dataclass(frozen=True)
class Row:
    """A row as a reader gets it."""

    lsn: int
    partition: int
    offset: int
    deleted: bool
    values: tuple[Any, ...]


def rows_of(log: FrameLog, topic: TopicRecord) -> list[Row]:
    """Every row of a topic that can be read, in LSN order."""
    found = []
    for frame in log.read_topic(topic.number):
        header = frame.header
        stored = decode_rows(header, frame.body, unpack_schema(topic.schemas[header.schema_version - 1]))
        dense = range(header.base_offset, header.base_offset + header.row_count)
        offsets = dense if stored.offsets is None else stored.offsets.to_pylist()
        deleted = bool(header.flags & Flag.TOMBSTONES)
        for offset, row in zip(offsets, stored.batch.to_pylist(), strict=True):
            found.append(Row(header.lsn, header.partition, offset, deleted, tuple(row.values())))
    return found


def values_of(log: FrameLog, topic: TopicRecord) -> list[tuple[Any, ...]]:
    """The same, values alone; a delete is its key and "deleted"."""
    return [(row.values[0], "deleted") if row.deleted else row.values for row in rows_of(log, topic)]


def latest_of(rows: Sequence[Row]) -> dict[Any, Any]:
    """What a reader who keeps the latest row of each key ends up with."""
    state: dict[Any, Any] = {}
    for row in rows:
        if row.deleted:
            state.pop(row.values[0], None)
        else:
            state[row.values[0]] = row.values[1]
    return state


def never_landed(topic: TopicRecord) -> int:
    return 0


@dataclass
class Stage:
    """An open log, its pins, and what is recorded about it elsewhere."""

    files: SimulatedFiles
    world: World
    log: FrameLog
    pins: Pins
    intents: list[DeletionIntent] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    refusal: HeadwaterError | None = None
    on_intent: Callable[[DeletionIntent], None] = lambda intent: None

    def record_intent(self, intent: DeletionIntent) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.intents.append(intent)
        self.world.log_start = intent.log_start
        self.on_intent(intent)

    def forget_topics(self, numbers: Sequence[int]) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.forgotten.extend(numbers)

    def compact(self, topic: TopicRecord, **more: Any) -> Compacted:
        """Compact a topic, with everything covered unless it is said otherwise."""
        more.setdefault("covered_lsn", self.log.durable_lsn())
        more.setdefault("verified_lsn", never_landed)
        return compact_topic(self.log, topic, pins=self.pins, now_us=self.world.clock.now_us(), **more)

    def bodies(self) -> dict[int, bytes]:
        """The stored body of every frame, by LSN."""
        return {frame.lsn: bytes(frame.body) for frame in self.log.read(Lsn(self.world.log_start))}


def open_stage(files: SimulatedFiles, world: World) -> Stage:
    log = world.open(files)
    log.claim()
    return Stage(files, world, log, Pins(files, entropy=Random(7).randbytes))


def stage(seed: int = 0, **more: Any) -> Stage:
    files, world = simulated(seed, **more)
    return open_stage(files, world)
