"""The table that a topic wants: which columns, in which types, with which properties.

| column of a topic | column of its table |
|---|---|
| int8, int16, int32, uint8, uint16 | int |
| int64, uint32 | long |
| float16, float32; float64 | float; double |
| decimal128(p, s) | decimal(p, s) |
| bool, string, binary, fixed binary, date32, list, struct, map | the same |
| timestamp in UTC; without a zone | timestamptz; timestamp, in microseconds |

Behind the topic's own columns stand the system's: they say of each row which frame and which offset it came from.
A keyed topic lands in a change table: its rows have an operation besides, and every column but the key is optional,
because a delete has no more than its key.

PROMISE  Every value of a topic's column is in its table's column unchanged: no type here is narrower.
NOT HERE Whether an existing table takes this shape: fitting.py.
"""

from __future__ import annotations

import pyarrow as pa

from headwater.errors import InvalidRequest
from headwater.lake.tables import TableShape
from headwater.lake.topic_description import TOPIC, describe_topic
from headwater.metadata.operations import TopicRecord
from headwater.topics.schema import unpack_schema

SYSTEM_COLUMNS = pa.schema(
    [
        pa.field("_hw_shard", pa.int32(), nullable=False),
        pa.field("_hw_lsn", pa.int64(), nullable=False),
        pa.field("_hw_partition", pa.int32(), nullable=False),
        pa.field("_hw_offset", pa.int64(), nullable=False),
        pa.field("_hw_time", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
OPERATION_COLUMN = pa.field("_hw_op", pa.string(), nullable=False)
"""Of a change table: "U" or "D"."""

CHANGES_SUFFIX = "_changes"
LSN_METRICS = "write.metadata.metrics.column._hw_lsn"
CREATED_FOR = "headwater.created-for"
"""A property of a table that was made by a landing: the topic's id."""

TABLE_PROPERTIES = {
    "format-version": "2",
    "commit.manifest-merge.enabled": "true",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    LSN_METRICS: "full",
    # A point row of the table is read in a fifth of the time, and files are a tenth larger.
    "write.parquet.row-group-limit": "131072",
}


def landing_table(topic: TopicRecord) -> str:
    """The table that the topic's rows land in; InvalidRequest if it has none."""
    if topic.table is None:
        raise InvalidRequest(f"the topic {topic.name!r} has no table to land in", topic=topic.name)
    return topic.table + CHANGES_SUFFIX if topic.key else topic.table


def table_shape(topic: TopicRecord) -> TableShape:
    """The table as the topic's newest schema wants it."""
    columns = [*lake_schema(unpack_schema(topic.schemas[-1])), *SYSTEM_COLUMNS]
    if topic.key:
        columns = [field.with_nullable(field.name not in topic.key) for field in (*columns, OPERATION_COLUMN)]
    return TableShape(
        schema=pa.schema(columns),
        key=topic.key,
        partition_by=topic.partition_by,
        properties={**TABLE_PROPERTIES, CREATED_FOR: topic.topic_id.hex(), TOPIC: describe_topic(topic)},
    )


# ------------------------------------------------------------------------------------------------------ types


def lake_schema(schema: pa.Schema) -> pa.Schema:
    """The schema in the types that a table's columns have."""
    return pa.schema([_lake_field(field) for field in schema])


def _lake_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, lake_type(field.type), nullable=field.nullable)


def lake_type(type_: pa.DataType) -> pa.DataType:
    """The narrowest type of a table that holds every value of this one, which is in a topic's normal form."""
    types = pa.types
    if types.is_uint32(type_):
        return pa.int64()
    if types.is_integer(type_) and type_.bit_width < 32:
        return pa.int32()
    if types.is_float16(type_):
        return pa.float32()
    if types.is_struct(type_):
        return pa.struct([_lake_field(field) for field in type_])
    if types.is_map(type_):
        return pa.map_(lake_type(type_.key_type), _lake_field(type_.item_field))
    if types.is_list(type_):
        return pa.list_(_lake_field(type_.value_field))
    return type_
