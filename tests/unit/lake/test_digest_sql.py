"""The digest's text for Spark, type by type, and the digest of what Spark would find.

NOT HERE That Spark finds the same numbers as Python: tests/lake_spark/test_digest_spark.py.
"""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest
from headwater.lake.digest import digest_of
from headwater.lake.digest_sql import digest_of_rows, sql_expression, sql_query
from headwater.lake.work import Block, Column, Digest

NULL = "-7046029254386353131L"


def field(name: str, type_: object) -> dict[str, object]:
    return {"id": 9, "name": name, "type": type_, "required": False}


def struct(*fields: dict[str, object]) -> dict[str, object]:
    return {"type": "struct", "fields": list(fields)}


def list_of(element: object) -> dict[str, object]:
    return {"type": "list", "element-id": 9, "element": element, "element-required": False}


def map_of(key: object, value: object) -> dict[str, object]:
    return {"type": "map", "key-id": 8, "key": key, "value-id": 9, "value": value, "value-required": False}


def word_of(type_: object) -> str:
    """The word of one column `c`, out of the row's."""
    spelled = type_ if isinstance(type_, str) else msgspec.json.encode(type_).decode()
    expression = sql_expression([Column(1, "c", spelled)])
    assert expression.startswith("xxhash64(") and expression.endswith(")")
    return expression.removeprefix("xxhash64(").removesuffix(")")


def or_null(value: str, hashed: str) -> str:
    return f"CASE WHEN {value} IS NULL THEN {NULL} ELSE {hashed} END"


@pytest.mark.parametrize("type_", ["boolean", "int", "long"])
def test_a_whole_number_is_its_own_word(type_: str) -> None:
    assert word_of(type_) == f"coalesce(CAST(`c` AS BIGINT), {NULL})"


def test_a_date_is_its_days_and_a_time_its_microseconds() -> None:
    assert word_of("date") == f"coalesce(CAST(unix_date(`c`) AS BIGINT), {NULL})"
    assert word_of("timestamptz") == f"coalesce(unix_micros(`c`), {NULL})"


def test_a_time_without_a_zone_is_read_by_its_parts_and_never_through_the_session_s_zone() -> None:
    word = word_of("timestamp")

    assert "unix_micros" not in word and "unix_timestamp" not in word
    assert word.count("unix_date(CAST(`c` AS DATE)) * 43200000000L") == 2
    assert all(part in word for part in ("hour(`c`)", "minute(`c`)", "extract(SECOND FROM `c`)"))
    assert word.startswith("coalesce(") and word.endswith(f", {NULL})")


@pytest.mark.parametrize("type_", ["string", "binary", "uuid", "fixed[16]"])
def test_text_and_bytes_are_hashed_as_they_are(type_: str) -> None:
    assert word_of(type_) == or_null("`c`", "xxhash64(`c`)")


@pytest.mark.parametrize("type_", ["float", "double"])
def test_a_number_with_a_point_is_hashed_as_a_double(type_: str) -> None:
    assert word_of(type_) == or_null("`c`", "xxhash64(CAST(`c` AS DOUBLE))")


@pytest.mark.parametrize("type_", ["decimal(9, 2)", "decimal(9,2)"])
def test_a_decimal_is_hashed_in_the_width_that_was_landed(type_: str) -> None:
    assert word_of(type_) == or_null("`c`", "xxhash64(CAST(`c` AS DECIMAL(9, 2)))")


def test_a_struct_is_the_chain_of_its_fields_by_their_quoted_names() -> None:
    word = word_of(struct(field("a b", "int"), field("`", "string")))

    number = f"coalesce(CAST(`c`.`a b` AS BIGINT), {NULL})"
    text = or_null("`c`.````", "xxhash64(`c`.````)")
    assert word == or_null("`c`", f"xxhash64({number}, {text})")


def of_list(value: str, items: str, word: str, depth: int = 0) -> str:
    item, place, mixed = f"hw_item{depth}", f"hw_place{depth}", f"hw_sum{depth}"
    words = f"transform({items}, ({item}, {place}) -> xxhash64(CAST({place} AS BIGINT), {word}))"
    folded = f"aggregate({words}, 0L, ({mixed}, {item}) -> {mixed} ^ {item})"
    return or_null(value, f"xxhash64(CAST(size({value}) AS BIGINT), {folded})")


def test_a_list_counts_by_its_length_and_each_item_by_its_place() -> None:
    assert word_of(list_of("long")) == of_list("`c`", "`c`", f"coalesce(CAST(hw_item0 AS BIGINT), {NULL})")


def test_a_list_in_a_list_has_names_of_its_own() -> None:
    inner = of_list("hw_item0", "hw_item0", f"coalesce(CAST(hw_item1 AS BIGINT), {NULL})", depth=1)

    assert word_of(list_of(list_of("int"))) == of_list("`c`", "`c`", inner)


def test_a_map_is_a_list_of_its_keys_with_their_values() -> None:
    key = or_null("hw_item0.key", "xxhash64(hw_item0.key)")
    value = f"coalesce(CAST(hw_item0.value AS BIGINT), {NULL})"

    assert word_of(map_of("string", "int")) == of_list("`c`", "map_entries(`c`)", f"xxhash64({key}, {value})")


def test_the_columns_of_a_row_count_in_order_of_field_id() -> None:
    first, second = Column(1, "b", "int"), Column(2, "a", "int")

    expression = sql_expression([second, first])

    assert expression == sql_expression([first, second])
    assert expression.index("`b`") < expression.index("`a`")


@pytest.mark.parametrize(
    "type_",
    ["time", "unknown", "timestamp_ns", "timestamptz_ns", "decimal(3)", '{"type":"variant"}', '{"type":"list"}', "{"],
)
def test_a_type_without_a_word_is_refused(type_: str) -> None:
    with pytest.raises(InvalidRequest):
        sql_expression([Column(1, "c", type_)])


def test_a_query_groups_the_rows_that_it_is_told_by_partition_and_block() -> None:
    columns = [Column(1, "x", "long")]

    query = sql_query(columns, "lake.sales.orders", where="_hw_lsn > 7")

    assert f"{sql_expression(columns)} AS word FROM lake.sales.orders WHERE _hw_lsn > 7)" in query
    assert "shiftright(_hw_offset, 16) AS block" in query and query.endswith("GROUP BY partition, block")
    assert "WHERE TRUE" in sql_query(columns, "lake.sales.orders")


def test_what_spark_finds_in_any_order_is_the_digest_by_partition_and_block() -> None:
    # Given sums of the words' upper and lower halves, the last of which go beyond 64 bits.
    found = [(1, 0, 2, 3, 4), (0, 1, 1, 0, 9), [0, 0, 3, 2**32 + 1, 2**33 + 5]]

    assert digest_of_rows(found) == Digest(
        (Block(0, 0, 3, (1 << 32) + 2**33 + 5), Block(0, 1, 1, 9), Block(1, 0, 2, (3 << 32) + 4))
    )
    assert digest_of_rows([]) == Digest()


def test_halves_of_the_words_of_python_s_digest_come_to_the_same_digest() -> None:
    offsets = [0, 1, 65_536]
    rows = pa.table(
        {
            "x": pa.array([-1, 2, None], pa.int64()),
            "_hw_partition": pa.array([0, 0, 0], pa.int32()),
            "_hw_offset": pa.array(offsets, pa.int64()),
        }
    )
    # Given the word of each row alone, cut in halves and added up as the query adds them.
    words = [digest_of(rows.slice(at, 1)).blocks[0].total for at in range(3)]
    first, last = words[:2], words[2:]
    found = [
        (0, block, len(each), sum(word >> 32 for word in each), sum(word & 0xFFFF_FFFF for word in each))
        for block, each in ((1, last), (0, first))
    ]

    assert digest_of_rows(found) == digest_of(rows)
