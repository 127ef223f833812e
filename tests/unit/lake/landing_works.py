"""Works for tests of plan, reading and task: real logs in a folder, planned and cut as a landing does it, and targets
that need no catalog.

    target = target_for(record, folder / "table")           where a topic's rows are written
    works = works_for(log, {record: target})                what tasks are given
    rows = rows_in(target, done)                            what the data files hold, sorted as the log has it

NOT HERE Commits: nothing here knows a catalog.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import parse_transform

import headwater as hw
from headwater.lake.data_files import read_data_file
from headwater.lake.plan import LandingPlan, plan_landing
from headwater.lake.shape import table_shape
from headwater.lake.source import EngineSource
from headwater.lake.work import Column, LandDone, LandWork, TopicDone, TopicWork
from headwater.lake.write_target import encode_target
from headwater.metadata.operations import TopicRecord
from tests.unit.topics.small_engines import engine_of

COMMIT_ID = "6b5bd1cf-4b9d-4a4b-9f6d-0c8e0f6a7d11"
MIB = 1024 * 1024


def small_segments(size_bytes: int = 64 * 1024) -> hw.Settings:
    """Settings with which a few rows fill several segments, and nothing is rewritten but by the test."""
    log = hw.LogSettings(segment_size_bytes_max=size_bytes, write_body_bytes_max=size_bytes, reserve_bytes=0)
    return hw.Settings(log=log, upkeep_interval_s=0)


def record_of(topic: hw.Topic) -> TopicRecord:
    return topic._engine.topic_numbered(topic.number)


def iceberg_schema(schema: pa.Schema) -> Schema:
    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))


def target_of(
    schema: Schema,
    folder: Path,
    *,
    partition_by: Sequence[tuple[str, str]] = (),
    columns: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
) -> bytes:
    """The target of a table of this schema, partitioned by (transform, column), of which these columns are written."""
    spec = UNPARTITIONED_PARTITION_SPEC
    if partition_by:
        spec = PartitionSpec(
            *(
                PartitionField(
                    schema.find_field(column).field_id, 1000 + place, parse_transform(transform), f"part_{place}"
                )
                for place, (transform, column) in enumerate(partition_by)
            )
        )
    metadata = new_table_metadata(
        schema,
        spec,
        UNSORTED_SORT_ORDER,
        f"file://{folder}",
        {"write.parquet.row-group-limit": "131072", **(properties or {})},
    )
    # Ids as they were given: a new table's are counted anew.
    own = schema.model_copy(update={"schema_id": 0})
    metadata = metadata.model_copy(
        update={"schemas": [own], "partition_specs": [spec], "last_column_id": own.highest_field_id}
    )
    written = sorted(
        (field for field in own.fields if columns is None or field.name in columns), key=lambda field: field.field_id
    )
    return encode_target(
        metadata, own, {}, tuple(Column(field.field_id, field.name, str(field.field_type)) for field in written)
    )


def target_for(record: TopicRecord, folder: Path, **options: Any) -> bytes:
    """The target of the table that a topic wants."""
    return target_of(iceberg_schema(table_shape(record).schema), folder, **options)


@dataclass(frozen=True)
class Planned:
    plan: LandingPlan
    works: list[LandWork]


def planned_for(
    log: hw.Log,
    targets: Mapping[TopicRecord, bytes],
    *,
    landed: Mapping[int, int] | None = None,
    budget_bytes: int = 1024 * MIB,
    item_bytes: int = 64 * MIB,
) -> Planned:
    source = EngineSource(engine_of(log), log.directory)
    from_lsns = {record.number: (landed or {}).get(record.number, 0) for record in targets}
    plan = plan_landing(
        from_lsns,
        source.segments(),
        durable_lsn=source.durable_lsn(),
        budget_bytes=budget_bytes,
        item_bytes=item_bytes,
    )
    records = {record.number: record for record in targets}
    works = []
    for planned in plan.ranges:
        topics = tuple(
            TopicWork(
                number=number,
                commit_id=COMMIT_ID,
                lsn_from=from_lsns[number],
                lsn_to=plan.lsn_to,
                schemas=records[number].schemas,
                target=targets[records[number]],
                changes=bool(records[number].key),
                time_column=records[number].time_column is not None,
            )
            for number in planned.topics
        )
        for segment, runs, slots in source.runs(planned, planned.item_bytes):
            works.append(LandWork(source.directory, segment, runs, source.shard, topics, slots))
    return Planned(plan, works)


def works_for(log: hw.Log, targets: Mapping[TopicRecord, bytes], **options: Any) -> list[LandWork]:
    return planned_for(log, targets, **options).works


def done_for(done: Iterable[LandDone], number: int) -> list[TopicDone]:
    return [topic for each in done for topic in each.topics if topic.number == number]


def rows_in(target: bytes, done: Iterable[TopicDone]) -> pa.Table:
    """What the data files hold, in the order of LSN and offset."""
    files = [file.path for topic in done for file in topic.files]
    tables = list(itertools.chain.from_iterable(read_data_file(target, path) for path in files))
    return pa.concat_tables(tables).sort_by([("_hw_lsn", "ascending"), ("_hw_offset", "ascending")])


def rows_read(topic: hw.Topic, columns: pa.Schema) -> pa.Table:
    """What the log gives a reader, in a table's columns."""
    read = topic.read(system_columns=True).to_arrow()
    shard = pa.repeat(pa.scalar(0, pa.int32()), read.num_rows)
    read = read.append_column("_hw_shard", shard)
    arrays = [read.column(field.name).cast(field.type) for field in columns]
    return pa.Table.from_arrays(arrays, schema=columns).sort_by([("_hw_lsn", "ascending"), ("_hw_offset", "ascending")])
