"""Rows through the door: every form a caller may have them in, every type, and every reason for a refusal."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import math
import uuid
import zoneinfo
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated, Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.errors import InvalidRequest
from headwater.topics import rows as rows_module
from headwater.topics.rejected import REJECTED_SCHEMA
from headwater.topics.rows import REASONS_MAX, RowReader, to_batch
from headwater.topics.schema import BYTES, schema_of

UTC = datetime.UTC
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
UTC_TIME = pa.timestamp("us", "UTC")
NOON = datetime.datetime(2026, 11, 15, 12, tzinfo=UTC)


def required(name: str, type_: pa.DataType) -> pa.Field:
    return pa.field(name, type_, nullable=False)


def one(type_: pa.DataType, nullable: bool = True) -> pa.Schema:
    return pa.schema([pa.field("c", type_, nullable=nullable)])


def stored(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch as it comes back from a frame's body."""
    return pa.ipc.read_record_batch(pa.ipc.read_message(batch.serialize()), batch.schema)


def accepted(rows: object, schema: pa.Schema) -> list[dict[str, Any]]:
    result = to_batch(rows, schema)
    assert result.refused == (), result.refused
    assert result.batch.schema.equals(schema) and result.batch.num_rows == result.rows
    result.batch.validate(full=True)
    back = stored(result.batch)
    assert back.equals(result.batch) or "nan" in repr(back.to_pylist())
    return list(back.to_pylist())


def reasons(rows: object, schema: pa.Schema) -> dict[int, str]:
    result = to_batch(rows, schema)
    assert result.batch.num_rows == 0 or not result.refused
    assert len(result.refused) == result.refused_count
    return {row.number: row.reason for row in result.refused}


# Forms of rows -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Order:
    order_id: int
    amount: float
    note: str | None = None


@dataclasses.dataclass(slots=True)
class Slim:
    order_id: int
    amount: float
    note: str | None = None


class OrderModel(pydantic.BaseModel):
    order_id: int
    amount: float
    note: str | None = None


ORDER = schema_of(Order)
DICTS: list[dict[str, Any]] = [
    {"order_id": 1, "amount": 9.5, "note": "first"},
    {"order_id": 2, "amount": 0.5, "note": None},
]


def generated() -> Iterator[dict[str, Any]]:
    yield from DICTS


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(DICTS, id="list of dicts"),
        pytest.param(tuple(DICTS), id="tuple of dicts"),
        pytest.param(generated(), id="generator"),
        pytest.param([DICTS[0], {"amount": 0.5, "order_id": 2}], id="a nullable column left out"),
        pytest.param([Order(**row) for row in DICTS], id="dataclasses"),
        pytest.param([Slim(**row) for row in DICTS], id="dataclasses with slots"),
        pytest.param([OrderModel(**row) for row in DICTS], id="pydantic models"),
        pytest.param([DICTS[0], OrderModel(**DICTS[1])], id="mixed"),
        pytest.param(pa.RecordBatch.from_pylist(DICTS), id="record batch"),
        pytest.param(pa.RecordBatch.from_pylist([*DICTS, *DICTS]).slice(2), id="slice of a record batch"),
        pytest.param(pa.Table.from_pylist(DICTS), id="table"),
        pytest.param(pa.concat_tables([pa.Table.from_pylist([row], ORDER) for row in DICTS]), id="table of chunks"),
        pytest.param(pa.Table.from_pylist(DICTS).select(["note", "order_id", "amount"]), id="columns in another order"),
        pytest.param(pa.Table.from_pylist(DICTS).to_reader(), id="record batch reader"),
        pytest.param(pa.array(DICTS), id="struct array"),
        pytest.param(pl.DataFrame(DICTS), id="polars"),
        pytest.param(pd.DataFrame(DICTS), id="pandas"),
        pytest.param(pd.DataFrame(DICTS, index=["x", "y"]), id="pandas with an index"),
    ],
)
def test_rows_come_in_many_forms(rows: object) -> None:
    assert accepted(rows, ORDER) == DICTS


@pytest.mark.parametrize(
    "row",
    [DICTS[0], Order(**DICTS[0]), Slim(**DICTS[0]), OrderModel(**DICTS[0])],
    ids=["dict", "dataclass", "slots", "model"],
)
def test_one_row_need_not_be_in_a_list(row: object) -> None:
    assert accepted(row, ORDER) == DICTS[:1]


@pytest.mark.parametrize(
    "rows",
    [[], (), iter(()), pa.table({}), ORDER.empty_table(), pl.DataFrame(schema={"order_id": pl.Int64})],
    ids=lambda rows: type(rows).__name__,
)
def test_no_rows_are_rows(rows: object) -> None:
    assert accepted(rows, ORDER) == []


@pytest.mark.parametrize(
    "rows", ["text", 5, None, Order, object(), pd.Series([1])], ids=lambda rows: type(rows).__name__
)
def test_what_is_no_rows_is_refused_whole(rows: object) -> None:
    with pytest.raises(InvalidRequest, match="rows"):
        to_batch(rows, ORDER)


def test_bytes_are_values_of_the_schema_for_bytes_and_of_no_other() -> None:
    empty = {"key": None, "headers": None}

    assert accepted(b"one", BYTES) == [{**empty, "value": b"one"}]
    assert accepted([b"one", bytearray(b"two")], BYTES) == [{**empty, "value": b"one"}, {**empty, "value": b"two"}]
    assert accepted({"key": b"k", "value": b"v", "headers": {"h": b"x"}}, BYTES) == [
        {"key": b"k", "value": b"v", "headers": [("h", b"x")]}
    ]
    assert reasons([b"one"], ORDER) == {0: "b'one' is not a row: a dict, a dataclass or a pydantic model is"}


def test_arrow_rows_of_the_very_schema_are_not_copied() -> None:
    batch = pa.RecordBatch.from_pylist(DICTS * 10, schema=ORDER)

    taken = to_batch(batch, ORDER).batch

    assert [b.address for b in taken.column(0).buffers() if b] == [b.address for b in batch.column(0).buffers() if b]


def test_the_way_for_few_rows_and_the_way_for_many_are_one() -> None:
    many = DICTS * 100

    assert accepted(many, ORDER) == many
    assert [accepted(row, ORDER)[0] for row in DICTS] == DICTS


# Types: what fits as what ---------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


FITS: list[tuple[pa.DataType, object, object]] = [
    (pa.bool_(), True, True),
    (pa.bool_(), np.bool_(True), True),
    (pa.int8(), -128, -128),
    (pa.uint32(), 2**32 - 1, 2**32 - 1),
    (pa.int64(), -(2**63), -(2**63)),
    (pa.int64(), 3.0, 3),
    (pa.int64(), np.int32(7), 7),
    (pa.int64(), Level.LOW, 1),
    (pa.float64(), 1, 1.0),
    (pa.float64(), 2**53, float(2**53)),
    (pa.float64(), math.inf, math.inf),
    (pa.float64(), np.float32(0.5), 0.5),
    (pa.float32(), 0.1, np.float32(0.1).item()),
    (pa.float32(), -math.inf, -math.inf),
    (pa.float16(), 1.5, 1.5),
    (pa.decimal128(5, 2), Decimal("-123.45"), Decimal("-123.45")),
    (pa.decimal128(5, 2), Decimal("1.5000"), Decimal("1.50")),
    (pa.decimal128(5, 2), 7, Decimal("7.00")),
    (pa.decimal128(5, 2), "1.25", Decimal("1.25")),
    (pa.string(), "Zürich \U0001f600", "Zürich \U0001f600"),
    (pa.string(), "", ""),
    (pa.string(), Colour.RED, "red"),
    (pa.string(), uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (pa.string(), np.str_("x"), "x"),
    (pa.binary(), b"\0\xff", b"\0\xff"),
    (pa.binary(), bytearray(b"x"), b"x"),
    (pa.binary(), memoryview(b"x"), b"x"),
    (pa.binary(2), b"ab", b"ab"),
    (pa.binary(16), uuid.UUID(int=1), b"\0" * 15 + b"\1"),
    (pa.date32(), datetime.date(1582, 10, 15), datetime.date(1582, 10, 15)),
    (pa.date32(), "2026-11-15", datetime.date(2026, 11, 15)),
    (UTC_TIME, NOON, NOON),
    (UTC_TIME, NOON.astimezone(BERLIN), NOON),
    (UTC_TIME, "2026-11-15T13:00:00+01:00", NOON),
    (UTC_TIME, "2026-11-15T12:00:00Z", NOON),
    (UTC_TIME, pd.Timestamp(NOON), NOON),
    (pa.timestamp("us"), NOON.replace(tzinfo=None), NOON.replace(tzinfo=None)),
    (pa.timestamp("us"), "2026-11-15T12:00:00.000000000", NOON.replace(tzinfo=None)),
    (pa.list_(pa.int64()), [1, None], [1, None]),
    (pa.list_(pa.int64()), (1, 2), [1, 2]),
    (pa.list_(pa.int64()), np.array([1, 2]), [1, 2]),
    (pa.list_(pa.list_(pa.string())), [["a"], [], None], [["a"], [], None]),
    (pa.map_(pa.string(), pa.int64()), {"a": 1, "b": None}, [("a", 1), ("b", None)]),
    (pa.map_(pa.string(), pa.int64()), [("a", 1)], [("a", 1)]),
    (pa.struct([("a", pa.int64()), ("b", pa.string())]), {"a": 1}, {"a": 1, "b": None}),
    (
        pa.struct([("order_id", pa.int64()), ("amount", pa.float64()), ("note", pa.string())]),
        Order(1, 0.5),
        {"order_id": 1, "amount": 0.5, "note": None},
    ),
    (pa.int64(), None, None),
    (UTC_TIME, pd.NaT, None),
    (pa.int64(), pd.NA, None),
]


def _label(type_: pa.DataType, value: object) -> str:
    """The same in every process: a memoryview's own words are its address."""
    return f"{type_} {'memoryview' if isinstance(value, memoryview) else repr(value)}"


@pytest.mark.parametrize(("type_", "value", "kept"), FITS, ids=[_label(type_, value) for type_, value, _ in FITS])
def test_a_value_that_fits_is_kept_alone_and_among_many(type_: pa.DataType, value: object, kept: object) -> None:
    assert accepted({"c": value}, one(type_)) == [{"c": kept}]
    assert accepted([{"c": value}, {"c": None}] * 50, one(type_)) == [{"c": kept}, {"c": None}] * 50


def test_nan_is_a_value_and_not_a_null() -> None:
    for count in (1, 100):
        for type_ in (pa.float16(), pa.float32(), pa.float64()):
            kept = accepted([{"c": math.nan}] * count, one(type_, nullable=False))
            assert all(math.isnan(row["c"]) for row in kept)


UNFIT: list[tuple[pa.DataType, object, str]] = [
    (pa.bool_(), 1, "c: 1 is not a bool"),
    (pa.bool_(), "true", "c: 'true' is not a bool"),
    (pa.int64(), True, "c: True is not an int64"),
    (pa.int64(), "1", "c: '1' is not an int64"),
    (pa.int64(), 1.5, "c: 1.5 is not a whole number"),
    (pa.int64(), math.nan, "c: nan is not a whole number"),
    (pa.int64(), Decimal(1), "c: Decimal('1') is not an int64"),
    (pa.int8(), 128, "c: 128 is out of range for int8: -128 to 127"),
    (pa.uint8(), -1, "c: -1 is out of range for uint8: 0 to 255"),
    (pa.int64(), 2**63, "c: 9223372036854775808 is out of range for int64"),
    (pa.int32(), 1e300, "is out of range for int32"),
    (pa.float64(), "abc", "c: 'abc' is not a double"),
    (pa.float64(), True, "c: True is not a double"),
    (pa.float64(), Decimal("0.1"), "c: Decimal('0.1') is not a double"),
    (pa.float64(), 2**53 + 1, "c: 9007199254740993 is not exact as a double: whole numbers are up to 2^53"),
    (pa.float32(), 1e300, "c: 1e+300 is too large for a float"),
    (pa.float32(), 2**24 + 1, "c: 16777217 is not exact as a float"),
    (pa.float16(), 1e6, "c: 1000000.0 is too large for a halffloat"),
    (pa.decimal128(5, 2), 0.1, "c: 0.1 is a float, which has no exact decimals: give a Decimal"),
    (pa.decimal128(5, 2), Decimal("0.001"), "c: Decimal('0.001') does not fit decimal128(5, 2) without loss"),
    (pa.decimal128(5, 2), Decimal(1000), "c: Decimal('1000') does not fit decimal128(5, 2) without loss"),
    (pa.decimal128(5, 2), 1000, "c: 1000 does not fit decimal128(5, 2) without loss"),
    (pa.decimal128(5, 2), Decimal("NaN"), "c: Decimal('NaN') does not fit"),
    (pa.decimal128(5, 2), Decimal("Infinity"), "c: Decimal('Infinity') does not fit"),
    (pa.decimal128(5, 2), "many", "c: 'many' is not a decimal128(5, 2)"),
    (pa.decimal128(5, 2), True, "c: True is not a decimal128(5, 2)"),
    (pa.string(), b"abc", "c: b'abc' is bytes, and the column holds text: decode it"),
    (pa.string(), 5, "c: 5 is not a string"),
    (pa.string(), "\ud800", "c: '\\ud800' is not valid text: it holds half of a surrogate pair"),
    (pa.binary(), "abc", "c: 'abc' is text, and the column holds bytes: encode it"),
    (pa.binary(), 5, "c: 5 is not a binary"),
    (pa.binary(2), b"abc", "c: b'abc' has 3 bytes, not 2"),
    (pa.binary(2), uuid.UUID(int=0), "has 16 bytes, not 2"),
    (pa.date32(), NOON, "has a time of day, and the column holds dates"),
    (pa.date32(), "15.11.2026", "c: '15.11.2026' is not a date32[day]"),
    (pa.date32(), 5, "c: 5 is not a date32[day]"),
    (UTC_TIME, NOON.replace(tzinfo=None), "has no time zone, and the column holds instants"),
    (UTC_TIME, "2026-11-15T12:00:00", "has no time zone"),
    (UTC_TIME, "noon", "c: 'noon' is not a timestamp[us, tz=UTC]"),
    (UTC_TIME, 1_700_000_000, "c: 1700000000 is not a timestamp"),
    (UTC_TIME, datetime.date(2026, 11, 15), "is not a timestamp"),
    (UTC_TIME, "2026-11-15T12:00:00.0000001Z", "is finer than a microsecond"),
    (UTC_TIME, pd.Timestamp("2026-11-15T12:00:00.000000001Z"), "is finer than a microsecond"),
    (UTC_TIME, datetime.datetime(1, 1, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=14))), "out of range"),
    (pa.timestamp("us"), NOON, "has a time zone, and the column holds times without one"),
    (pa.list_(pa.int64()), "ab", "c: 'ab' is not a list<item: int64>"),
    (pa.list_(pa.int64()), {1: 2}, "c: {1: 2} is not a list"),
    (pa.list_(pa.int64()), [1, "x"], "c[1]: 'x' is not an int64"),
    (pa.list_(required("item", pa.int64())), [1, None], "c[1]: missing, and it may not be null"),
    (pa.map_(pa.string(), pa.int64()), {"a": "x"}, "c['a']: 'x' is not an int64"),
    (pa.map_(pa.string(), pa.int64()), {1: 1}, "c[key 1]: 1 is not a string"),
    (pa.map_(pa.binary(), pa.int64()), {"a": 1}, "c[key 'a']: 'a' is text, and the column holds bytes"),
    (pa.map_(pa.string(), pa.int64()), [(None, 1)], "c[key None]: missing, and it may not be null"),
    (pa.map_(pa.string(), required("value", pa.int64())), {"a": None}, "c['a']: missing"),
    (pa.map_(pa.string(), pa.int64()), ["a"], "is not a map<string, int64>"),
    (pa.struct([("a", pa.int64())]), {"a": "x"}, "c.a: 'x' is not an int64"),
    (pa.struct([("a", pa.int64())]), {"a": 1, "b": 2}, "c.b: no such field"),
    (pa.struct([required("a", pa.int64())]), {}, "c.a: missing, and it may not be null"),
    (pa.struct([("a", pa.int64())]), 5, "c: 5 is not a struct<a: int64>"),
    (pa.list_(pa.struct([("a", pa.list_(pa.int8()))])), [{"a": [1, 300]}], "c[0].a[1]: 300 is out of range for int8"),
]


@pytest.mark.parametrize(("type_", "value", "reason"), UNFIT, ids=[f"{type_} {value!r}" for type_, value, _ in UNFIT])
def test_a_value_that_does_not_fit_is_refused_alone_and_among_many(
    type_: pa.DataType, value: object, reason: str
) -> None:
    (alone,) = reasons({"c": value}, one(type_)).values()
    assert reason in alone

    among = reasons([{"c": None}] * 70 + [{"c": value}], one(type_))
    assert among == {70: alone}


# Rows that are refused ------------------------------------------------------------------------------------------------


def test_a_row_is_refused_by_its_number_with_all_its_reasons() -> None:
    sent = [
        DICTS[0],
        {"order_id": "x", "amount": "abc"},
        {"amount": 1.0},
        {"order_id": 1, "amount": 1.0, "colour": 1, "size": 2},
        5,
    ]

    assert reasons(sent, ORDER) == {
        1: "order_id: 'x' is not an int64; amount: 'abc' is not a double",
        2: "order_id: missing, and it may not be null",
        3: "colour: no such column; size: no such column",
        4: "5 is not a row: a dict, a dataclass or a pydantic model is",
    }


def test_good_rows_are_kept_in_order_beside_the_rejected() -> None:
    sent: list[dict[str, Any]] = [{"order_id": n if n % 3 else str(n), "amount": 1.0, "note": "é"} for n in range(200)]

    result = to_batch(sent, ORDER, keep_rejected=True)

    assert result.batch["order_id"].to_pylist() == [n for n in range(200) if n % 3]
    assert result.rejected is not None and result.rejected.schema.equals(REJECTED_SCHEMA)
    assert result.rejected["number"].to_pylist() == list(range(0, 200, 3))
    assert [json.loads(row) for row in result.rejected["row"].to_pylist()] == sent[::3]
    assert result.rejected["reason"][1].as_py() == "order_id: '3' is not an int64"
    assert result.batch.num_rows + result.rejected.num_rows == result.rows == 200
    assert result.refused_count == len(result.refused) == 67


class Open(pydantic.BaseModel, extra="allow"):
    order_id: int
    amount: float


def test_what_a_model_holds_beyond_its_fields_is_not_lost_in_silence() -> None:
    row = Open.model_validate({"order_id": 1, "amount": 0.5, "colour": "red"})

    result = to_batch([row, Open(order_id=2, amount=0.5)], ORDER, keep_rejected=True)

    assert [each.reason for each in result.refused] == ["colour: no such column"]
    assert result.rejected is not None
    assert json.loads(result.rejected["row"][0].as_py()) == {"order_id": 1, "amount": 0.5, "colour": "red"}
    assert result.batch["order_id"].to_pylist() == [2]


def test_reasons_are_listed_up_to_a_limit_and_all_rows_are_counted_and_kept() -> None:
    sent = [{"order_id": None}] * (REASONS_MAX + 500)

    result = to_batch(sent, ORDER, keep_rejected=True)

    assert len(result.refused) == REASONS_MAX
    assert result.refused_count == result.rows == REASONS_MAX + 500
    assert result.rejected is not None and result.rejected.num_rows == REASONS_MAX + 500


def test_whatever_was_sent_can_be_kept_as_json() -> None:
    itself: dict[str, Any] = {}
    itself["itself"] = itself
    sent: list[object] = [
        {
            "order_id": "\ud800",
            "amount": math.nan,
            5: b"\xff",
            "d": Decimal("1.10"),
            "u": uuid.UUID(int=0),
            "c": Colour.RED,
        },
        {"at": NOON, "day": NOON.date(), "set": {1}, "t": (1, 2), "np": np.int64(3), "no": pd.NaT, "inf": -math.inf},
        Order("x", 1.0),  # type: ignore[arg-type]
        itself,
        {"odd": object},
        None,
    ]

    result = to_batch(sent, ORDER, keep_rejected=True)

    assert result.rejected is not None
    kept = [json.loads(row) for row in result.rejected["row"].to_pylist()]
    assert kept[0] == {
        "order_id": "\ud800",
        "amount": "nan",
        "5": "/w==",
        "d": "1.10",
        "c": "red",
        "u": "00000000-0000-0000-0000-000000000000",
    }
    assert kept[1] == {
        "at": "2026-11-15T12:00:00+00:00",
        "day": "2026-11-15",
        "set": [1],
        "t": [1, 2],
        "np": 3,
        "no": None,
        "inf": "-inf",
    }
    assert kept[2] == {"order_id": "x", "amount": 1.0, "note": None}
    assert kept[4:] == [{"odd": "<class 'object'>"}, None]
    stored(result.rejected).validate(full=True)


# Columns that come as Arrow -------------------------------------------------------------------------------------------

ARROW_FITS: list[tuple[pa.Array, pa.DataType]] = [
    (pa.array([1, None], pa.int8()), pa.int64()),
    (pa.array([1, None], pa.uint64()), pa.int64()),
    (pa.array([1.0, None]), pa.int32()),
    (pa.array([1, None], pa.int64()), pa.float64()),
    (pa.array([0.5, math.inf]), pa.float32()),
    (pa.array(["a", None], pa.large_string()), pa.string()),
    (pa.array(["a", None], pa.string_view()), pa.string()),
    (pa.array(["a", None]).dictionary_encode(), pa.string()),
    (pa.array([b"ab", None], pa.large_binary()), pa.binary()),
    (pa.array([b"ab", None], pa.binary(2)), pa.binary()),
    (pa.array([b"ab", None], pa.binary()), pa.binary(2)),
    (pa.array([Decimal("1.2")], pa.decimal64(5, 1)), pa.decimal128(10, 2)),
    (pa.array([Decimal("1.20")], pa.decimal256(40, 2)), pa.decimal128(3, 1)),
    (pa.array([1, 2]), pa.decimal128(3, 1)),
    (pa.array([86_400_000], pa.date64()), pa.date32()),
    (pa.array([1_000], pa.timestamp("ns", "UTC")), UTC_TIME),
    (pa.array([1_000], pa.timestamp("ms", "Europe/Berlin")), UTC_TIME),
    (pa.array([1], pa.timestamp("s")), pa.timestamp("us")),
    (pa.array(["2026-11-15T12:00:00Z"]), UTC_TIME),
    (pa.nulls(2), pa.struct([("a", pa.int64())])),
    (pa.array([[1, 2], None], pa.large_list(pa.int64())), pa.list_(pa.int64())),
    (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), pa.list_(required("item", pa.int64()))),
    (pa.array([[1, 2], None], pa.list_(pa.int8())), pa.list_(pa.int64())),
    (pa.array([{"a": "x"}, None], pa.struct([("a", pa.large_string())])), pa.struct([("a", pa.string())])),
    (pa.array([{"a": 1}, None]), pa.struct([required("a", pa.int64())])),
    (pa.array([{"b": "x", "a": 1}]), pa.struct([("a", pa.int64()), ("b", pa.string()), ("c", pa.int8())])),
    (
        pa.array([[("k", 1)]], pa.map_(pa.large_string(), pa.int64())),
        pa.map_(pa.string(), required("value", pa.int64())),
    ),
]


@pytest.mark.parametrize(
    ("array", "type_"), ARROW_FITS, ids=[f"{array.type} as {type_}" for array, type_ in ARROW_FITS]
)
def test_an_arrow_column_is_cast_if_no_value_changes(array: pa.Array, type_: pa.DataType) -> None:
    rows = accepted(pa.record_batch({"c": array}), one(type_))

    # The same rows as Python values are the same rows.
    assert rows == accepted([{"c": value} for value in array.to_pylist()], one(type_))


def test_a_uuid_column_is_kept_as_text_or_as_bytes() -> None:
    array = pa.array([uuid.UUID(int=5).bytes, None], pa.uuid())

    assert accepted(pa.record_batch({"c": array}), one(pa.string()))[0] == {"c": str(uuid.UUID(int=5))}
    assert accepted(pa.record_batch({"c": array}), one(pa.binary(16)))[0] == {"c": uuid.UUID(int=5).bytes}


ARROW_UNFIT: list[tuple[pa.Array, pa.DataType, dict[int, str]]] = [
    (pa.array([1, 300, None, -300]), pa.int8(), {1: "300 is out of range", 3: "-300 is out of range"}),
    (pa.array([2**63], pa.uint64()), pa.int64(), {0: "9223372036854775808 is out of range"}),
    (pa.array([1.0, 1.5, math.nan]), pa.int64(), {1: "1.5 is not a whole", 2: "nan is not a whole"}),
    (pa.array([2**53 + 1, 1]), pa.float64(), {0: "is not exact"}),
    (pa.array([1e300, math.inf, 1.0]), pa.float32(), {0: "1e+300 is too large for a float"}),
    (pa.array(["1"]), pa.int64(), {0: "'1' is not an int64"}),
    (pa.array([1]), pa.string(), {0: "1 is not a string"}),
    (pa.array([True]), pa.int64(), {0: "True is not an int64"}),
    (pa.array([b"x"]), pa.string(), {0: "is bytes"}),
    (pa.array(["x"]), pa.binary(), {0: "is text"}),
    (pa.array([b"abc"]), pa.binary(2), {0: "3 bytes, not 2"}),
    (pa.array([Decimal("1.25"), Decimal("1.50")]), pa.decimal128(2, 1), {0: "without loss"}),
    (pa.array([0.5]), pa.decimal128(2, 1), {0: "is a float"}),
    (pa.array([1_000, 1_001], pa.timestamp("ns", "UTC")), UTC_TIME, {1: "finer than a microsecond"}),
    (pa.array([1, 2**60], pa.timestamp("s", "UTC")), UTC_TIME, {1: "is out of range"}),
    (pa.array([1, None], pa.timestamp("us")), UTC_TIME, {0: "has no time zone"}),
    (pa.array([1], UTC_TIME), pa.timestamp("us"), {0: "has a time zone"}),
    (pa.array([1], UTC_TIME), pa.date32(), {0: "has a time of day"}),
    (pa.array([1], pa.time64("us")), pa.int64(), {0: "is not an int64"}),
    (pa.array([["a", None], ["b"]]), pa.list_(required("item", pa.string())), {0: "c[1]: missing"}),
    (pa.array([{"a": 1}, {"a": None}]), pa.struct([required("a", pa.int64())]), {1: "c.a: missing"}),
    (pa.array([{"a": 1, "b": 2}]), pa.struct([("a", pa.int64())]), {0: "c.b: no such field"}),
    (
        pa.array([[("k", None)], [("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.map_(pa.string(), required("value", pa.int64())),
        {0: "c['k']: missing"},
    ),
]


@pytest.mark.parametrize(
    ("array", "type_", "expected"), ARROW_UNFIT, ids=[f"{array.type} as {type_}" for array, type_, _ in ARROW_UNFIT]
)
def test_an_arrow_value_that_would_change_is_refused_by_its_row(
    array: pa.Array, type_: pa.DataType, expected: dict[int, str]
) -> None:
    batch = pa.record_batch({"c": array})

    found = reasons(batch, one(type_))

    assert found.keys() == expected.keys()
    assert all(text in found[number] for number, text in expected.items())
    kept = to_batch(batch, one(type_), keep_rejected=True)
    assert kept.batch.num_rows == len(array) - len(expected)
    assert kept.rejected is not None and kept.rejected["number"].to_pylist() == sorted(expected)


def test_arrow_rows_with_missing_null_or_unknown_columns_are_refused_by_row() -> None:
    table = pa.table({"order_id": [1, None], "colour": ["a", "b"]})

    assert reasons(table, ORDER) == {
        0: "colour: no such column; amount: missing, and it may not be null",
        1: "colour: no such column; order_id: missing, and it may not be null; amount: missing, and it may not be null",
    }


def test_arrow_rows_of_the_very_schema_may_still_hold_a_null_where_none_may_be() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1, None]), pa.array([0.5, 0.5]), pa.array(["a", None])], schema=ORDER)

    assert reasons(batch, ORDER) == {1: "order_id: missing, and it may not be null"}


@pytest.mark.parametrize("type_", [pa.string(), pa.large_string()], ids=str)
@pytest.mark.parametrize("nullable", [True, False])
def test_text_that_is_no_utf8_is_refused_by_row(type_: pa.DataType, nullable: bool) -> None:
    texts = pa.array([b"before", b"fine", b"\xff\xfe", b"also fine"], pa.binary())
    wide = texts.cast(pa.large_binary()) if pa.types.is_large_string(type_) else texts
    broken = pa.Array.from_buffers(type_, 4, wide.buffers()).slice(1)

    result = to_batch(pa.RecordBatch.from_arrays([broken], ["c"]), one(pa.string(), nullable), keep_rejected=True)

    assert [(row.number, row.reason) for row in result.refused] == [(1, "c: b'\\xff\\xfe' is not valid UTF-8")]
    assert result.batch["c"].to_pylist() == ["fine", "also fine"]
    assert result.rejected is not None and json.loads(result.rejected["row"][0].as_py()) == {"c": "\\xff\\xfe"}


def test_arrow_data_that_is_broken_is_refused_before_it_is_touched() -> None:
    beyond = pa.array([0, 1_000_000_000, 3], pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.string(), 2, [None, beyond, pa.py_buffer(b"abc")])
    indices = pa.DictionaryArray.from_arrays(pa.array([7], pa.int8()), pa.array(["a"]), safe=False)

    for array in (broken, indices):
        with pytest.raises(InvalidRequest, match="c: this is not valid Arrow data"):
            to_batch(pa.RecordBatch.from_arrays([array], ["c"]), one(pa.string()))


def test_two_arrow_columns_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="one name"):
        to_batch(pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], ["c", "c"]), one(pa.int64()))


# DataFrames -----------------------------------------------------------------------------------------------------------


def test_missing_values_of_pandas_are_null() -> None:
    frame = pd.DataFrame({"c": [1, None, 3]})

    assert frame["c"].dtype == "float64"
    assert accepted(frame, one(pa.int64())) == [{"c": 1}, {"c": None}, {"c": 3}]


def test_a_pandas_column_of_mixed_objects_is_read_value_by_value() -> None:
    frame = pd.DataFrame({"c": ["a", 5, None]})

    assert reasons(frame, one(pa.string())) == {1: "c: 5 is not a string"}


def test_categories_are_text() -> None:
    expected = [{"c": "a"}, {"c": "b"}]

    assert accepted(pd.DataFrame({"c": pd.Categorical(["a", "b"])}), one(pa.string())) == expected
    assert accepted(pl.DataFrame({"c": pl.Series(["a", "b"], dtype=pl.Categorical)}), one(pa.string())) == expected


def test_nested_columns_of_polars_are_read() -> None:
    frame = pl.DataFrame({"c": [[{"a": 1, "b": ["x"]}], []]})
    type_ = pa.list_(pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]))

    assert accepted(frame, one(type_)) == [{"c": [{"a": 1, "b": ["x"]}]}, {"c": []}]


# Any rows -------------------------------------------------------------------------------------------------------------

WIDE = schema_of(
    {
        "i": int | None,
        "u": pa.field("u", pa.uint16()),
        "f": float | None,
        "g": pa.float32(),
        "s": str | None,
        "b": bytes | None,
        "t": datetime.datetime | None,
        "d": datetime.date | None,
        "p": Annotated[Decimal | None, pa.decimal128(12, 2)],
        "o": bool | None,
        "l": list[int | None] | None,
        "m": dict[str, float] | None,
    }
)
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(-300, 70_000),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.datetimes(),
    st.datetimes(timezones=st.sampled_from([UTC, BERLIN])),
    st.dates(),
    st.decimals(allow_nan=True, places=2),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=2)), max_size=3),
    st.dictionaries(st.text(max_size=2), st.one_of(st.floats(), st.text(max_size=2)), max_size=2),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from([*WIDE.names, "zz"]), anything, max_size=12), max_size=6))
def test_accepted_and_rejected_rows_are_those_that_were_sent_by_either_way(rows: list[dict[str, object]]) -> None:
    few = RowReader(WIDE).read(rows, keep_rejected=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rows_module, "_FEW_ROWS", -1)
        many = RowReader(WIDE).read(rows, keep_rejected=True)

    for result in (few, many):
        stored(result.batch).validate(full=True)
        rejected = 0 if result.rejected is None else result.rejected.num_rows
        assert result.batch.num_rows + rejected == result.rows == len(rows)
        assert rejected == result.refused_count == len(result.refused)
    assert few.refused == many.refused
    assert few.batch.equals(many.batch) or "nan" in repr(few.batch.to_pylist())
    # Each row by itself meets the same fate as among the others.
    alone = [number for number, row in enumerate(rows) if RowReader(WIDE).read(row).refused]
    assert alone == [row.number for row in few.refused]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from(WIDE.names), anything, max_size=12), max_size=6))
def test_rows_that_were_accepted_once_are_accepted_as_arrow_and_again_as_dicts(rows: list[dict[str, object]]) -> None:
    first = to_batch(rows, WIDE, keep_rejected=True).batch

    again = to_batch(first, WIDE)
    as_dicts = to_batch(first.to_pylist(), WIDE)

    assert again.refused == as_dicts.refused == ()
    assert repr(again.batch.to_pylist()) == repr(as_dicts.batch.to_pylist()) == repr(first.to_pylist())
