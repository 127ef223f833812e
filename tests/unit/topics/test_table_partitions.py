"""How a table is to be partitioned: what is understood, and what is refused with its reason."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest
from headwater.topics.table_partitions import TablePart, checked_parts, parse_part

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("raw", pa.binary()),
        pa.field("uuid", pa.binary(16)),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("share", pa.float64()),
        pa.field("paid", pa.bool_()),
        pa.field("on", pa.date32()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("tags", pa.list_(pa.string())),
        pa.field("a-b.c", pa.int32()),
    ]
)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("id", TablePart("identity", "id")),
        (" id ", TablePart("identity", "id")),
        ("a-b.c", TablePart("identity", "a-b.c")),
        ("day(at)", TablePart("day", "at")),
        ("day( at )", TablePart("day", "at")),
        ("bucket(16, id)", TablePart("bucket", "id", 16)),
        ("bucket(16,id)", TablePart("bucket", "id", 16)),
        ("truncate( 4 , name )", TablePart("truncate", "name", 4)),
    ],
)
def test_a_part_is_a_column_or_a_transform_of_one(text: str, part: TablePart) -> None:
    assert parse_part(text) == part


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "say"),
        ("day(at", "say"),
        ("at)", "say"),
        ("day()", "say"),
        ("a b", "say"),
        ("day(at) desc", "say"),
        ("bucket(16, id, 3)", "say"),
        (7, "say"),
        ("bucket(id)", "needs a number above zero"),
        ("bucket(0, id)", "needs a number above zero"),
        ("truncate(2147483648, name)", "needs a number above zero"),
        ("week(at)", "there is no 'week'; there are year, month, day, hour, bucket, truncate"),
        ("identity(id)", "there is no 'identity'"),
        ("day(3, at)", "a column and nothing else"),
    ],
)
def test_what_is_no_part_is_refused_with_what_would_be_one(text: object, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        parse_part(text)


@pytest.mark.parametrize(
    "part",
    [
        "id", "paid", "share", "uuid", "year(on)", "month(at)", "day(on)", "hour(at)", "day(_hw_time)", "_hw_partition",
        "bucket(8, id)", "bucket(8, name)", "bucket(8, raw)", "bucket(8, uuid)", "bucket(8, price)", "bucket(8, on)",
        "bucket(8, at)", "truncate(8, id)", "truncate(8, name)", "truncate(8, raw)", "truncate(8, price)",
    ],
)  # fmt: skip
def test_a_part_that_fits_its_columns_type_is_kept_as_it_was_written(part: str) -> None:
    assert checked_parts(part, SCHEMA) == (part,)
    assert checked_parts([f" {part}", "a-b.c"], SCHEMA) == (part, "a-b.c")


@pytest.mark.parametrize(
    "part",
    [
        "tags", "hour(on)", "day(id)", "year(name)", "bucket(8, share)", "bucket(8, paid)", "bucket(8, tags)",
        "truncate(8, share)", "truncate(8, uuid)", "truncate(8, at)", "hour(_hw_lsn)",
    ],
)  # fmt: skip
def test_a_part_that_does_not_fit_its_columns_type_is_refused(part: str) -> None:
    with pytest.raises(InvalidRequest, match="does not take the type of"):
        checked_parts(part, SCHEMA)


def test_what_names_no_column_or_one_twice_or_is_no_text_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no column 'nope'"):
        checked_parts(["id", "day(nope)"], SCHEMA)
    with pytest.raises(InvalidRequest, match="twice"):
        checked_parts(["day(at)", "day( at )"], SCHEMA)
    with pytest.raises(InvalidRequest, match="or several"):
        checked_parts(7, SCHEMA)
    assert checked_parts([], SCHEMA) == ()
