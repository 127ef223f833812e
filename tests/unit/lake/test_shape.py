"""The table that a topic wants."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest
from headwater.lake.shape import SYSTEM_COLUMNS, TABLE_PROPERTIES, lake_type, landing_table, table_shape
from headwater.metadata.operations import TopicRecord
from headwater.topics.schema import pack_schema

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("small", pa.uint16(), nullable=False)])


def topic(*, schema: pa.Schema = SCHEMA, key: tuple[str, ...] = (), table: str | None = "sales.orders") -> TopicRecord:
    return TopicRecord(7, "orders", b"\x01" * 16, 0, (pack_schema(schema),), 1, key=key, table=table)


def test_a_table_has_the_topics_columns_and_the_systems_behind_them() -> None:
    shape = table_shape(topic())

    assert shape.schema.names == ["id", "small", *SYSTEM_COLUMNS.names]
    assert shape.schema.field("small").type == pa.int32()
    assert [field.nullable for field in shape.schema] == [False] * 7
    assert shape.schema.field("_hw_time").type == pa.timestamp("us", "UTC")


def test_a_change_table_says_what_was_done_and_needs_no_more_than_the_key() -> None:
    shape = table_shape(topic(key=("id",)))

    assert shape.schema.names == ["id", "small", *SYSTEM_COLUMNS.names, "_hw_op"]
    assert [field.name for field in shape.schema if not field.nullable] == ["id"]
    assert shape.key == ("id",)


def test_the_newest_schema_is_the_one_that_counts() -> None:
    wider = pa.schema([*SCHEMA, pa.field("note", pa.string())])
    record = TopicRecord(7, "orders", b"\x01" * 16, 0, (pack_schema(SCHEMA), pack_schema(wider)), 1, table="a.b")

    assert "note" in table_shape(record).schema.names


def test_a_keyed_topic_lands_beside_its_table() -> None:
    assert landing_table(topic()) == "sales.orders"
    assert landing_table(topic(key=("id",))) == "sales.orders_changes"

    with pytest.raises(InvalidRequest, match="no table"):
        landing_table(topic(table=None))


def test_a_table_is_made_with_what_keeps_landings_cheap_and_provable() -> None:
    properties = table_shape(topic()).properties

    assert TABLE_PROPERTIES.items() <= properties.items()
    assert properties["format-version"] == "2"
    assert properties["write.metadata.metrics.column._hw_lsn"] == "full"
    assert properties["headwater.created-for"] == "01" * 16


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (pa.int8(), pa.int32()),
        (pa.uint8(), pa.int32()),
        (pa.int16(), pa.int32()),
        (pa.uint16(), pa.int32()),
        (pa.int32(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.int64(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.float64(), pa.float64()),
        (pa.binary(16), pa.binary(16)),
        (pa.list_(pa.uint32()), pa.list_(pa.int64())),
        (pa.map_(pa.int8(), pa.float16()), pa.map_(pa.int32(), pa.float32())),
        (
            pa.struct([pa.field("a", pa.uint32(), nullable=False)]),
            pa.struct([pa.field("a", pa.int64(), nullable=False)]),
        ),
    ],
    ids=str,
)
def test_a_tables_type_holds_every_value_of_the_topics(given: pa.DataType, kept: pa.DataType) -> None:
    assert lake_type(given).equals(kept)
    assert lake_type(lake_type(given)).equals(kept)
