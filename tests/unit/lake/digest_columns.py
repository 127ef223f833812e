"""Columns of every type that a table has, drawn by hypothesis, as the values of plain_digest.py and as Arrow arrays."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

LONG = st.integers(-(2**63), 2**63 - 1)
DECIMALS = decimal.Context(prec=40)


def plain_types() -> st.SearchStrategy[pa.DataType]:
    digits = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: pa.decimal128(p, s)))
    return st.one_of(
        st.sampled_from(
            [
                pa.bool_(),
                pa.int32(),
                pa.int64(),
                pa.float32(),
                pa.float64(),
                pa.string(),
                pa.binary(),
                pa.date32(),
                pa.timestamp("us"),
                pa.timestamp("us", "UTC"),
            ]
        ),
        st.integers(1, 40).map(pa.binary),
        digits,
    )


def nested_types(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        inner.map(pa.list_),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda types: pa.struct([pa.field(f"f{place}", type_) for place, type_ in enumerate(types)])
        ),
        st.builds(pa.map_, plain_types(), inner),
    )


def column_types() -> st.SearchStrategy[pa.DataType]:
    return st.one_of(st.just(pa.uuid()), st.recursive(plain_types(), nested_types, max_leaves=4))


def values_of(type_: pa.DataType, *, null: bool = True) -> st.SearchStrategy[Any]:
    """Values of a type, as plain_digest.py names them."""
    types = pa.types
    values: st.SearchStrategy[Any]
    if types.is_boolean(type_):
        values = st.booleans()
    elif types.is_int32(type_) or types.is_date32(type_):
        values = st.integers(-(2**31), 2**31 - 1)
    elif types.is_int64(type_) or types.is_timestamp(type_):
        values = LONG
    elif types.is_floating(type_):
        values = st.floats(width=type_.bit_width, allow_nan=True)
    elif types.is_string(type_):
        values = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
    elif types.is_binary(type_):
        values = st.binary(max_size=70)
    elif types.is_fixed_size_binary(type_):
        values = st.binary(min_size=type_.byte_width, max_size=type_.byte_width)
    elif isinstance(type_, pa.UuidType):
        values = st.binary(min_size=16, max_size=16)
    elif types.is_decimal(type_):
        most = 10**type_.precision - 1
        values = st.one_of(st.integers(-most, most), st.integers(-300, 300).map(lambda v: max(-most, min(most, v))))
    elif types.is_struct(type_):
        values = st.tuples(*(values_of(field.type) for field in type_))
    elif types.is_list(type_):
        values = st.lists(values_of(type_.value_type), max_size=4)
    else:
        assert types.is_map(type_)
        pairs = st.tuples(values_of(type_.key_type, null=False), values_of(type_.item_type))
        values = st.lists(pairs, max_size=3)
    return st.one_of(st.none(), values) if null else values


def array_of(type_: pa.DataType, values: Sequence[Any]) -> pa.Array:
    """The values in Arrow."""
    if isinstance(type_, pa.UuidType):
        return pa.ExtensionArray.from_storage(type_, pa.array(list(values), pa.binary(16)))
    return pa.array([arrow_value(type_, value) for value in values], type_)


def arrow_value(type_: pa.DataType, value: Any) -> Any:
    """One value, as pyarrow takes it."""
    types = pa.types
    if value is None:
        return None
    if types.is_decimal(type_):
        return decimal.Decimal(value).scaleb(-type_.scale, DECIMALS)
    if types.is_struct(type_):
        return {field.name: arrow_value(field.type, part) for field, part in zip(type_, value, strict=True)}
    if types.is_list(type_):
        return [arrow_value(type_.value_type, item) for item in value]
    if types.is_map(type_):
        return [(arrow_value(type_.key_type, key), arrow_value(type_.item_type, item)) for key, item in value]
    return value


SYSTEM = pa.schema(
    [
        pa.field("_hw_shard", pa.int32(), nullable=False),
        pa.field("_hw_lsn", pa.int64(), nullable=False),
        pa.field("_hw_partition", pa.int32(), nullable=False),
        pa.field("_hw_offset", pa.int64(), nullable=False),
        pa.field("_hw_time", pa.timestamp("us", "UTC"), nullable=False),
    ]
)


def table_of(types: Sequence[pa.DataType], rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Rows of columns c0, c1, ... of these types and the system's behind them."""
    fields = [pa.field(f"c{place}", type_) for place, type_ in enumerate(types)]
    schema = pa.schema([*fields, *SYSTEM])
    columns = [array_of(field.type, [row[place] for row in rows]) for place, field in enumerate(schema)]
    return pa.Table.from_arrays(columns, schema=schema)


@st.composite
def tables(draw: st.DrawFn, *, rows_max: int = 12) -> tuple[pa.Schema, list[tuple[Any, ...]]]:
    """A schema with the system's columns, and rows of it."""
    types = draw(st.lists(column_types(), min_size=1, max_size=4))
    system = [st.just(0), LONG, st.integers(0, 3), st.integers(0, 2**40), LONG]
    row = st.tuples(*(values_of(type_) for type_ in types), *system)
    fields = [pa.field(f"c{place}", type_) for place, type_ in enumerate(types)]
    return pa.schema([*fields, *SYSTEM]), draw(st.lists(row, max_size=rows_max))
