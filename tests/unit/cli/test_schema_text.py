"""A schema as one line of text: what it reads, what it writes, and what it says about a mistake."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.cli.schema_text import PLAIN_TYPES, parse_columns, parse_schema, schema_text, type_text
from headwater.errors import InvalidRequest

EVERY_KIND = (
    "a:int64,b:double?,c:string?,d:timestamp,e:timestamp[us]?,f:decimal(10,2)?,g:binary?,h:map<string,binary>?,"
    "i:list<date>?,j:struct<x:int32?,y:map<string,list<double>>?>?,k:date?,l:bool,m:float32?"
)


def test_a_column_is_a_name_a_type_and_a_mark_for_null() -> None:
    schema = parse_schema("order_id:int64, amount:double ,note:string?")

    assert schema == pa.schema(
        [
            pa.field("order_id", pa.int64(), nullable=False),
            pa.field("amount", pa.float64(), nullable=False),
            pa.field("note", pa.string()),
        ]
    )


def test_what_is_written_is_read_back_equal() -> None:
    schema = parse_schema(EVERY_KIND)

    assert schema_text(schema) == EVERY_KIND
    assert parse_schema(schema_text(schema)) == schema


@pytest.mark.parametrize("name", PLAIN_TYPES)
def test_every_plain_type_is_written_by_a_name_that_stands_for_it(name: str) -> None:
    type_ = parse_schema(f"a:{name}").field("a").type

    assert PLAIN_TYPES[type_text(type_)] == PLAIN_TYPES[name]


def test_a_timestamp_is_a_moment_in_utc_unless_it_says_otherwise() -> None:
    schema = parse_schema("a:timestamp,b:timestamp[us],c:timestamp[ns,tz=Europe/Paris]")

    assert schema.types == [pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.timestamp("ns", "Europe/Paris")]


def test_columns_to_add_are_a_dict_of_types() -> None:
    assert parse_columns("note:string?,price:decimal(10,2)") == {"note": pa.string(), "price": pa.decimal128(10, 2)}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "NAME:TYPE"),
        ("order_id", "'order_id'"),
        ("a:int64,", "''"),
        (":int64", "':int64'"),
        ("a:text", "'text'"),
        ("a:float", "float32 or double"),
        ("a:decimal(40,2)", "1 <= p <= 38"),
        ("a:decimal(4,5)", "s <= p"),
        ("a:list<int64", "brackets"),
        ("a:int64>", "brackets"),
        ("a:list<int64,int64>", "takes 1"),
        ("a:map<string>", "takes 2"),
        ("a:struct<x>", "'x'"),
    ],
)
def test_a_text_that_is_no_schema_is_refused_by_what_is_wrong(text: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_schema(text)

    assert told in str(refused.value)
