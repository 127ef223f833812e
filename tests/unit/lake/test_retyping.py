"""The same values under another type: relabelled where only the inside is named otherwise, cast where it differs."""

from __future__ import annotations

import pyarrow as pa

from headwater.lake.retyping import as_type, relabelled


def test_a_column_that_has_the_type_already_is_the_column_itself() -> None:
    column = pa.chunked_array([[1, 2]], pa.int64())

    assert as_type(column, pa.int64()) is column


def test_a_wider_type_is_a_cast() -> None:
    column = as_type(pa.chunked_array([[1, None], [3]], pa.int32()), pa.int64())

    assert column.type == pa.int64() and column.to_pylist() == [1, None, 3]


def test_other_names_inside_are_a_matter_of_labels() -> None:
    theirs = pa.list_(pa.field("element", pa.struct([pa.field("k", pa.string(), nullable=False)])))
    ours = pa.list_(pa.field("item", pa.struct([pa.field("key", pa.string())])))
    column = pa.chunked_array([[None, [], [{"k": "a"}, None]], [[{"k": "b"}]]], theirs)

    found = as_type(column, ours)

    assert found.type.equals(ours, check_metadata=True) and found.num_chunks == 2
    assert found.to_pylist() == [None, [], [{"key": "a"}, None], [{"key": "b"}]]
    assert found.chunk(0).offsets.buffers()[1].address == column.chunk(0).offsets.buffers()[1].address


def test_a_wider_type_inside_is_a_cast() -> None:
    found = as_type(pa.chunked_array([[[1], None]], pa.list_(pa.int32())), pa.list_(pa.int64()))

    assert found.type == pa.list_(pa.int64()) and found.to_pylist() == [[1], None]


def test_a_batch_keeps_its_memory_under_other_names() -> None:
    batch = pa.record_batch({"x": [1, 2]})

    found = relabelled(batch, pa.schema([pa.field("y", pa.int64(), nullable=False)]))

    assert found.to_pydict() == {"y": [1, 2]}
    assert found.column(0).buffers()[1].address == batch.column(0).buffers()[1].address
