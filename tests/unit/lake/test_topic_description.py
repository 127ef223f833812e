"""What a table says of its topic: whole, short, written only where it changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import CorruptData, UnknownFormat
from headwater.lake.topic_description import ADOPTED, TOPIC, adoption_of, describe_topic, described_topic
from headwater.metadata.operations import Policy, TopicRecord
from headwater.topics.schema import pack_schema
from tests.unit.lake.small_lakes import PLAIN, SmallLake, lakes


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    yield from lakes(tmp_path)


def topic(columns: int = 1, **options: Any) -> TopicRecord:
    schema = pa.schema([pa.field(f"column_{number}", pa.int64()) for number in range(columns)])
    named = {"key": ("column_0",), "time_column": "column_0", "table": "sales.orders", "partition_by": ("column_0",)}
    return TopicRecord(
        number=3,
        name="orders",
        topic_id=b"\x01" * 16,
        created_us=5,
        schemas=(pack_schema(PLAIN), pack_schema(schema)),
        partitions=7,
        policy=Policy(retention_s=9.0),
        **{**named, **options},
    )


def test_a_topic_is_told_whole_and_read_back() -> None:
    assert described_topic(describe_topic(topic()), "sales.orders") == topic()


def test_a_wide_topic_is_told_in_few_bytes() -> None:
    # Some catalogs keep no more than 4000 characters of a property.
    assert len(describe_topic(topic(100))) < 4000


@pytest.mark.parametrize("value", ["", "{}", '{"format": 1}', '{"format": 1, "topic": {}}'])
def test_what_is_no_description_is_damage(value: str) -> None:
    with pytest.raises(CorruptData, match=r"sales\.orders"):
        described_topic(value, "sales.orders")


def test_a_schema_that_cannot_be_unpacked_is_damage() -> None:
    value = describe_topic(topic()).replace("eNr", "AAA")

    with pytest.raises(CorruptData, match="cannot be read"):
        described_topic(value, "sales.orders")


def test_a_later_format_is_refused_as_such() -> None:
    with pytest.raises(UnknownFormat, match="a later version"):
        described_topic('{"format": 2, "anything": 1}', "sales.orders")


def test_a_take_over_that_cannot_be_read_is_damage() -> None:
    assert adoption_of({}, "t") is None
    with pytest.raises(CorruptData, match="took it over"):
        adoption_of({ADOPTED: "{}"}, "t")


def test_a_landing_says_what_its_topic_is_and_only_where_that_changed(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders")
    sent: list[dict[str, str]] = []
    lake.before["commit"] = lambda args: sent.extend(
        update.updates for update in args[0].native.updates if update.action == "set-properties"
    )

    lake.round()
    assert described_topic(lake.state().properties[TOPIC], "lake.orders") == lake.record("orders")
    lake.append("orders")
    lake.round()
    lake.log["orders"].alter(retention="7d")
    lake.append("orders")
    lake.round()

    assert [TOPIC in properties for properties in sent] == [False, False, True], "made with it, the same, changed"
    assert described_topic(lake.state().properties[TOPIC], "lake.orders").policy.retention_s == 7 * 86_400
