"""The shape of a keyed topic's state table."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest
from headwater.lake.shape import table_shape
from headwater.lake.state_table import MergeMode, mode_properties, state_shape
from tests.unit.lake.small_lakes import SmallLake

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string(), nullable=False)])


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_a_state_table_is_the_change_table_without_the_operation_and_says_how_it_is_merged(
    tmp_path: Path, mode: MergeMode
) -> None:
    lake = SmallLake(tmp_path)
    topic = lake.topic("customers", SCHEMA, key="id")
    lake.close()

    shape, changes = state_shape(topic, mode), table_shape(topic)

    assert shape.key == ("id",)
    assert [*shape.schema, changes.schema.field("_hw_op")] == list(changes.schema)
    assert [field.name for field in shape.schema if not field.nullable and not field.name.startswith("_hw_")] == ["id"]
    assert shape.properties == {**changes.properties, **dict.fromkeys(mode_properties(mode), mode)}


def test_a_way_of_merging_that_there_is_not_is_refused_and_the_two_are_named() -> None:
    with pytest.raises(InvalidRequest, match="copy-on-write or merge-on-read, not 'quick'"):
        mode_properties(cast(Any, "quick"))
