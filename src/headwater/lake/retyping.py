"""The same values under another schema: relabelled where only names and field ids differ, cast where types do."""

from __future__ import annotations

import pyarrow as pa


def relabelled(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The same memory under another schema of the same layout: other names, field ids and nullability, nested too."""
    return pa.record_batch(_Relabelled(batch, schema))


class _Relabelled:
    def __init__(self, batch: pa.RecordBatch, schema: pa.Schema) -> None:
        self._batch = batch
        self._schema = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self._schema.__arrow_c_schema__(), self._batch.__arrow_c_array__()[1]


def as_type(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    """The same values in this type: relabelled where only names inside differ, which other writers choose otherwise."""
    if column.type.equals(type_):
        return column
    if _layout(column.type) != _layout(type_):
        return column.cast(type_)
    schema = pa.schema([pa.field("column", type_)])
    chunks = [relabelled(pa.record_batch([chunk], names=["column"]), schema).column(0) for chunk in column.chunks]
    return pa.chunked_array(chunks, type_)


def _layout(type_: pa.DataType) -> object:
    """What a type is without the names inside it."""
    if not pa.types.is_nested(type_):
        return type_
    return type_.id, tuple(_layout(type_.field(place).type) for place in range(type_.num_fields))
