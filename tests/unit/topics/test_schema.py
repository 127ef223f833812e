"""What can be a schema, what becomes of it at the door, and how it may change (docs/schemas.md)."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, Optional

import pyarrow as pa
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import CorruptData, InvalidRequest
from headwater.topics.schema import (
    BYTES,
    adapt,
    check_evolution,
    check_topic_schema,
    normal_schema,
    normal_type,
    pack_schema,
    same_schema,
    schema_of,
    unpack_schema,
)

UTC_TIME = pa.timestamp("us", "UTC")


def required(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


# Normal form ---------------------------------------------------------------------------------------------------------

KEPT = [
    pa.bool_(),
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32()),
    *(pa.float16(), pa.float32(), pa.float64(), pa.decimal128(38, 10), pa.decimal128(3, 3)),
    *(pa.string(), pa.binary(), pa.binary(16), pa.date32(), pa.timestamp("us"), UTC_TIME),
    *(pa.list_(pa.int64()), pa.struct([("a", pa.string())]), pa.map_(pa.string(), pa.binary())),
]
CAST = [
    *((pa.large_string(), pa.string()), (pa.string_view(), pa.string())),
    *((pa.large_binary(), pa.binary()), (pa.binary_view(), pa.binary())),
    (pa.dictionary(pa.int8(), pa.string()), pa.string()),
    (pa.dictionary(pa.int32(), pa.large_string()), pa.string()),
    *((pa.decimal32(5, 2), pa.decimal128(5, 2)), (pa.decimal64(12, 0), pa.decimal128(12, 0))),
    (pa.decimal256(38, 4), pa.decimal128(38, 4)),
    *((pa.timestamp(unit), pa.timestamp("us")) for unit in ("s", "ms", "ns")),
    *((pa.timestamp("ns", zone), UTC_TIME) for zone in ("UTC", "Europe/Berlin", "+02:00")),
    *((pa.date64(), pa.date32()), (pa.uuid(), pa.binary(16))),
    *((pa.large_list(pa.int8()), pa.list_(pa.int8())), (pa.list_(pa.int8(), 3), pa.list_(pa.int8()))),
    (pa.struct([("a", pa.large_string())]), pa.struct([("a", pa.string())])),
    (pa.map_(pa.string_view(), pa.timestamp("ns")), pa.map_(pa.string(), pa.timestamp("us"))),
    (pa.list_(required("element", pa.string_view())), pa.list_(required("item", pa.string()))),
]
REFUSED = [
    *(pa.uint64(), pa.time32("s"), pa.time64("us"), pa.duration("us"), pa.month_day_nano_interval(), pa.null()),
    *(pa.decimal256(39, 2), pa.decimal128(5, -2), pa.decimal128(3, 5), pa.binary(0), pa.struct([])),
    *(pa.dense_union([pa.field("a", pa.int8())]), pa.json_(), pa.list_view(pa.int8())),
    *(pa.sparse_union([pa.field("a", pa.int8())]), pa.large_list_view(pa.int8())),
    *(pa.run_end_encoded(pa.int32(), pa.string()), pa.dictionary(pa.int8(), pa.uint64())),
    *(pa.list_(pa.uint64()), pa.struct([("in", pa.time64("us"))]), pa.map_(pa.string(), pa.null())),
    *(pa.struct([("a", pa.int8()), ("a", pa.int8())]), pa.struct([("a", pa.int8()), ("A", pa.int8())])),
]


@pytest.mark.parametrize("type_", KEPT, ids=str)
def test_a_type_that_spark_and_pyiceberg_both_read_is_kept(type_: pa.DataType) -> None:
    assert normal_type(type_).equals(type_)


@pytest.mark.parametrize(("given_", "kept"), CAST, ids=str)
def test_another_encoding_of_such_a_type_is_kept_as_the_plain_one(given_: pa.DataType, kept: pa.DataType) -> None:
    assert normal_type(given_).equals(kept)
    assert normal_type(normal_type(given_)).equals(kept)


@pytest.mark.parametrize("type_", REFUSED, ids=str)
def test_any_other_type_is_refused_by_the_columns_name(type_: pa.DataType) -> None:
    with pytest.raises(InvalidRequest, match="amount"):
        normal_schema(pa.schema([("id", pa.int64()), pa.field("amount", type_)]))


def test_every_type_of_pyarrow_has_been_decided_on() -> None:
    # A type that a later pyarrow brings is refused until somebody decides; this says that somebody has to.
    unmakeable = {pa.lib.Type_INTERVAL_MONTHS, pa.lib.Type_INTERVAL_DAY_TIME}
    known = {getattr(pa.lib, name) for name in dir(pa.lib) if name.startswith("Type_")}

    decided = {type_.id for type_ in [*KEPT, *(given_ for given_, _ in CAST), *REFUSED]}

    assert known - decided - unmakeable == set()


def test_metadata_and_names_inside_lists_and_maps_are_not_kept() -> None:
    dressed = pa.schema(
        [pa.field("a", pa.list_(pa.field("element", pa.int8())), metadata={"PARQUET:field_id": "1"})], {"pandas": "{}"}
    )

    plain = normal_schema(dressed)

    assert plain.metadata is None and plain.field("a").metadata is None
    assert plain.field("a").type.value_field.name == "item"


@pytest.mark.parametrize("names", [["a", "a"], ["id", "ID"], ["straße", "STRASSE"], [""], []])
def test_names_that_spark_could_not_tell_apart_are_refused(names: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        normal_schema(pa.schema([pa.field(name, pa.int8()) for name in names]))


# Python classes ------------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


OrderId = NewType("OrderId", int)


@dataclasses.dataclass
class Address:
    city: str
    zip: str | None = None


@dataclasses.dataclass
class Order:
    order_id: OrderId
    amount: float
    paid: bool
    raw: bytes
    at: datetime.datetime
    day: datetime.date
    price: Annotated[Decimal, pa.decimal128(10, 2)]
    discount: Annotated[Decimal | None, pa.decimal128(4, 2)]
    small: Annotated[int, pa.int8()]
    token: uuid.UUID
    tags: list[str]
    scores: tuple[float, ...]
    pairs: collections.abc.Sequence[int | None]
    counts: dict[str, int]
    colour: Colour
    level: Level
    size: Literal["s", "m"]
    address: Address
    note: str | None = None
    old_note: Optional[str] = None  # noqa: UP045 (the old spelling is what is tested)
    stars: Literal[1, 2, None] = None


ORDER = pa.schema(
    [
        required("order_id", pa.int64()),
        required("amount", pa.float64()),
        required("paid", pa.bool_()),
        required("raw", pa.binary()),
        required("at", UTC_TIME),
        required("day", pa.date32()),
        required("price", pa.decimal128(10, 2)),
        pa.field("discount", pa.decimal128(4, 2)),
        required("small", pa.int8()),
        required("token", pa.string()),
        required("tags", pa.list_(required("item", pa.string()))),
        required("scores", pa.list_(required("item", pa.float64()))),
        required("pairs", pa.list_(pa.field("item", pa.int64()))),
        required("counts", pa.map_(pa.string(), required("value", pa.int64()))),
        required("colour", pa.string()),
        required("level", pa.int64()),
        required("size", pa.string()),
        required("address", pa.struct([required("city", pa.string()), pa.field("zip", pa.string())])),
        pa.field("note", pa.string()),
        pa.field("old_note", pa.string()),
        pa.field("stars", pa.int64()),
    ]
)


def test_a_dataclass_is_a_schema() -> None:
    assert schema_of(Order).equals(ORDER)


def test_a_pydantic_model_is_a_schema() -> None:
    class Customer(pydantic.BaseModel):
        id: int
        name: Annotated[str, pydantic.Field(max_length=10)]
        balance: Annotated[Decimal, pa.decimal128(12, 2), pydantic.Field(gt=0)]
        address: Address
        email: str | None = None

    assert schema_of(Customer).equals(
        pa.schema(
            [
                required("id", pa.int64()),
                required("name", pa.string()),
                required("balance", pa.decimal128(12, 2)),
                required("address", ORDER.field("address").type),
                pa.field("email", pa.string()),
            ]
        )
    )


def test_a_dict_of_types_is_a_schema() -> None:
    described = {
        "id": int,
        "note": str | None,
        "amount": pa.float32(),
        "price": "decimal128(10, 2)",
        "at": "timestamp[ms, UTC]",
        "until": "timestamp[us, tz=Europe/Berlin] not null",
        "token": "binary[16] not null",
        "size": "int8",
        "exact": pa.field("ignored", pa.large_string(), nullable=False),
    }

    assert schema_of(described).equals(
        pa.schema(
            [
                required("id", pa.int64()),
                pa.field("note", pa.string()),
                pa.field("amount", pa.float32()),
                pa.field("price", pa.decimal128(10, 2)),
                pa.field("at", UTC_TIME),
                required("until", UTC_TIME),
                required("token", pa.binary(16)),
                pa.field("size", pa.int8()),
                required("exact", pa.string()),
            ]
        )
    )


def test_a_schema_comes_through_the_arrow_capsule_too() -> None:
    class Foreign:
        def __arrow_c_schema__(self) -> object:
            return pa.schema([("a", pa.string_view())]).__arrow_c_schema__()

    assert schema_of(Foreign()).equals(pa.schema([("a", pa.string())]))


@dataclasses.dataclass
class Tree:
    children: list[Tree]


@dataclasses.dataclass
class Lost:
    a: "Nowhere"  # type: ignore[name-defined]  # noqa: F821, UP037


@pytest.mark.parametrize(
    ("given_", "reason"),
    [
        ({"price": Decimal}, "price: a Decimal needs its number of digits"),
        ({"a": int | str}, "a: a column has one type"),
        ({"a": Any}, "a: Any is no type of a column"),
        ({"a": object}, "a: object is no type"),
        ({"a": datetime.time}, "a: time is no type"),
        ({"a": list}, "a: say what is in it"),
        ({"a": tuple[int, str]}, "a: .* is not a list of one type"),
        ({"a": list[Any]}, "a.item: "),
        ({"a": Mixed}, "a: the values of Mixed are not of one type"),
        ({"a": "int65"}, "a: there is no type named 'int65'"),
        ({"a": "decimal128(50, 2)"}, "a: there is no type named"),
        ({"a": "time64[us]"}, "a: time64"),
        ({"a": None}, "a: None is no type"),
        ({"a": 5}, "a: 5 is no type"),
        ({}, "at least one column"),
        (Tree, "children.item: Tree holds itself"),
        (Lost, "Nowhere"),
        (int, "a schema is a pyarrow Schema"),
        ("int64", "a schema is a pyarrow Schema"),
        (None, "a schema is a pyarrow Schema"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_column_and_the_reason(given_: object, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        schema_of(given_)


# Of a topic ----------------------------------------------------------------------------------------------------------


def test_key_columns_are_made_not_null() -> None:
    schema = pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.timestamp("ns"))])

    assert check_topic_schema(schema, ("b", "a"), "c").equals(
        pa.schema([required("a", pa.int32()), required("b", pa.string()), ("c", pa.timestamp("us"))])
    )
    assert check_topic_schema(BYTES, (), None).equals(BYTES)


@pytest.mark.parametrize(
    ("schema", "key", "time_column", "reason"),
    [
        ({"a": int}, ("b",), None, "b: the key names a column"),
        ({"a": int}, ("a", "a"), None, "once"),
        ({"a": float}, ("a",), None, "a: a column of double cannot be a key"),
        ({"a": list[int]}, ("a",), None, "cannot be a key"),
        ({"a": dict[str, int]}, ("a",), None, "cannot be a key"),
        ({"a": Address}, ("a",), None, "cannot be a key"),
        ({"a": int}, (), "b", "b: the time column names a column"),
        ({"a": int}, (), "a", "a: a time column is a timestamp"),
        ({"_hw_lsn": int}, (), None, "Headwater's own"),
        ({"_HW_x": int}, (), None, "Headwater's own"),
        ({"_file": str}, (), None, "Iceberg"),
    ],
)
def test_a_schema_that_cannot_be_a_topics_is_refused(
    schema: object, key: tuple[str, ...], time_column: str | None, reason: str
) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        check_topic_schema(schema_of(schema), key, time_column)


# Evolution -----------------------------------------------------------------------------------------------------------

OLD = pa.schema(
    [
        required("id", pa.int32()),
        pa.field("amount", pa.float32()),
        required("price", pa.decimal128(5, 2)),
        pa.field("where", pa.struct([required("city", pa.string()), pa.field("n", pa.int8())])),
        pa.field("many", pa.list_(pa.field("item", pa.int16()))),
        pa.field("by_name", pa.map_(pa.string(), pa.float32())),
        pa.field("count", pa.uint16()),
    ]
)


def changed(name: str, type_: pa.DataType | None = None, nullable: bool | None = None) -> pa.Schema:
    field = OLD.field(name)
    field = field.with_type(field.type if type_ is None else type_)
    return OLD.set(OLD.get_field_index(name), field.with_nullable(field.nullable if nullable is None else nullable))


ALLOWED = [
    OLD,
    OLD.append(pa.field("note", pa.string())),
    changed("id", pa.int64()),
    changed("amount", pa.float64()),
    changed("price", pa.decimal128(20, 2)),
    changed("price", nullable=True),
    changed("where", pa.struct([required("city", pa.string()), ("n", pa.int64()), ("zip", pa.string())])),
    changed("where", pa.struct([pa.field("city", pa.string()), ("n", pa.int8())])),
    changed("many", pa.list_(pa.int32())),
    changed("by_name", pa.map_(pa.string(), pa.float64())),
    changed("count", pa.uint32()),
    changed("count", pa.int32()),
]
FORBIDDEN = [
    (OLD.remove(1), "amount: a column cannot be dropped or renamed"),
    (OLD.set(1, pa.field("sum", pa.float32())), "amount: a column cannot be dropped or renamed"),
    (OLD.insert(0, pa.field("note", pa.string())), "id: columns keep their places"),
    (OLD.append(required("note", pa.string())), "note: a new column must be nullable"),
    (changed("id", pa.int16()), "id: int32 cannot become int16"),
    (changed("id", pa.uint32()), "id: int32 cannot become uint32"),
    (changed("id", pa.float64()), "id: int32 cannot become double"),
    (changed("id", pa.string()), "id: int32 cannot become string"),
    (changed("id", nullable=True), "id: a key may not be null"),
    (changed("amount", pa.float16()), "amount: float cannot become halffloat"),
    (changed("amount", nullable=False), "amount: it may be null already"),
    (changed("price", pa.decimal128(4, 2)), "price: "),
    (changed("price", pa.decimal128(6, 3)), "price: "),
    (changed("where", pa.struct([required("city", pa.string())])), "where.n: a column cannot be dropped"),
    (changed("where", pa.struct([required("city", pa.string()), required("n", pa.int8())])), "where.n: it may be null"),
    (changed("many", pa.list_(pa.int8())), "many.item: int16 cannot become int8"),
    (changed("by_name", pa.map_(pa.binary(), pa.float32())), "by_name: "),
    (changed("count", pa.int16()), "count: uint16 cannot become int16"),
]


@pytest.mark.parametrize("new", ALLOWED, ids=range(len(ALLOWED)))
def test_rows_of_an_older_version_are_read_in_the_newer(new: pa.Schema) -> None:
    check_evolution(OLD, new, ("id",))
    rows = [
        {
            "id": -5,
            "amount": 1.5,
            "price": Decimal("1.20"),
            "where": {"city": "Bern", "n": 3},
            "many": [1, None],
            "by_name": [("a", 0.5)],
            "count": 65_535,
        },
        {"id": 6, "price": Decimal("-999.99")},
    ]
    old_rows = pa.RecordBatch.from_pylist(rows, schema=OLD)
    # Deletes hold nothing but their key, also where the schema says not null.
    deletes = pa.RecordBatch.from_arrays(
        [pa.array([1], pa.int32()), *(pa.nulls(1, field.type) for field in list(OLD)[1:])], schema=OLD
    )

    for batch in (old_rows, old_rows.slice(1), old_rows.slice(0, 0), deletes):
        read = adapt(batch, new)

        read.validate(full=True)
        assert same_schema(read.schema, new)
        for before, after in zip(batch.to_pylist(), read.to_pylist(), strict=True):
            where = before["where"]
            expected = before | {field.name: None for field in list(new)[len(OLD) :]}
            if where is not None and new.field("where").type.num_fields == 3:
                expected["where"] = where | {"zip": None}
            assert after == expected


@pytest.mark.parametrize(("new", "reason"), FORBIDDEN, ids=[reason for _, reason in FORBIDDEN])
def test_a_change_that_old_rows_would_not_survive_is_refused(new: pa.Schema, reason: str) -> None:
    with pytest.raises(InvalidRequest, match=reason):
        check_evolution(OLD, new, ("id",))


def test_rows_of_the_present_version_are_not_touched() -> None:
    batch = pa.RecordBatch.from_pylist([], schema=OLD)

    assert adapt(batch, OLD) is batch


# Bytes ---------------------------------------------------------------------------------------------------------------

any_type = st.recursive(
    st.sampled_from([type_ for type_ in KEPT if not pa.types.is_nested(type_)]),
    lambda inner: st.one_of(
        st.builds(lambda type_, null: pa.list_(pa.field("item", type_, nullable=null)), inner, st.booleans()),
        st.builds(lambda type_: pa.map_(pa.string(), type_), inner),
        st.builds(
            lambda types: pa.struct([(f"f{place}", t) for place, t in enumerate(types)]), st.lists(inner, min_size=1)
        ),
    ),
    max_leaves=6,
)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(any_type, st.booleans()), min_size=1, max_size=6))
def test_a_schema_survives_its_bytes_and_its_normal_form(columns: list[tuple[pa.DataType, bool]]) -> None:
    schema = pa.schema([pa.field(f"c{place}", type_, nullable=null) for place, (type_, null) in enumerate(columns)])

    assert unpack_schema(pack_schema(schema)).equals(schema, check_metadata=True)
    assert unpack_schema(memoryview(pack_schema(schema))).equals(schema)
    assert normal_schema(schema).equals(schema)


@pytest.mark.parametrize("data", [b"", b"\0" * 64, b"not a schema", pack_schema(BYTES)[:40]])
def test_bytes_that_are_no_schema_are_corrupt_data(data: bytes) -> None:
    with pytest.raises(CorruptData):
        unpack_schema(data)


def test_schemas_are_compared_without_their_metadata() -> None:
    assert same_schema(BYTES, BYTES.with_metadata({"a": "b"}))
    assert not same_schema(BYTES, BYTES.remove(0))
    assert not same_schema(BYTES, BYTES.set(0, required("key", pa.binary())))
