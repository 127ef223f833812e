"""The digest as Spark SQL: the same numbers as digest.py's, found where the table is (docs/formats/digest.md).

    query = sql_query(columns, "lake.sales.orders", where="_hw_lsn > 7 AND _hw_lsn <= 9")
    digest = digest_of_rows(spark.sql(query).collect())

PROMISE  It means the same under ANSI rules and without them, in any time zone, on Spark 3.5 and later.
         Words of a landing stay what they were: columns, fields and types are those that its ledger lists, whatever was
         added to the table or widened since.
NOT HERE Running it: this file knows text and numbers only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from headwater.errors import InvalidRequest
from headwater.lake.digest import BLOCK_BITS
from headwater.lake.work import Block, Column, Digest

_NULL = "-7046029254386353131L"  # 0x9E3779B97F4A7C15 as an int64
_MODULUS = 1 << 64
_HALF_DAY_US, _HOUR_US, _MINUTE_US = "43200000000L", "3600000000L", "60000000L"

_HASHED = {"string", "binary", "uuid"}  # Spark shows a uuid as its 36 characters
_INTEGERS = {"boolean", "int", "long"}
_FLOATS = {"float", "double"}
_FIXED = re.compile(r"fixed\[\d+\]")
_DECIMAL = re.compile(r"decimal\((\d+), ?(\d+)\)")


def sql_expression(columns: Sequence[Column]) -> str:
    """The word of a row, a BIGINT, over these columns by their names, in order of field id."""
    in_order = sorted(columns, key=lambda column: column.field_id)
    return _chain(_word(_name(column.name), _type(column), 0) for column in in_order)


def sql_query(columns: Sequence[Column], table: str, where: str = "TRUE") -> str:
    """A query of the digest of a table's rows; `table` and `where` are SQL.  What it finds is for digest_of_rows."""
    return (
        "SELECT partition, block, count(*) AS rows, "
        # A sum of the words themselves would overflow, which is an error under ANSI rules.
        "sum(shiftrightunsigned(word, 32)) AS high, sum(word & 4294967295) AS low "
        f"FROM (SELECT _hw_partition AS partition, shiftright(_hw_offset, {BLOCK_BITS}) AS block, "
        f"{sql_expression(columns)} AS word FROM {table} WHERE {where}) GROUP BY partition, block"
    )


def digest_of_rows(found: Iterable[Sequence[int]]) -> Digest:
    """The digest, of what the query found: (partition, block, rows, high, low) in any order."""
    return Digest(
        tuple(
            Block(partition, block, rows, ((high << 32) + low) % _MODULUS)
            for partition, block, rows, high, low in sorted(tuple(row) for row in found)
        )
    )


# ---------------------------------------------------------------------------------------------------------- words


def _chain(words: Iterable[str]) -> str:
    """C(w1, w2, ...): Spark's own xxhash64 of BIGINTs."""
    return f"xxhash64({', '.join(words)})"


def _word(value: str, type_: object, depth: int) -> str:
    """The word of an SQL value of this Iceberg type, a BIGINT that is never null."""
    if isinstance(type_, str) and (type_ in _INTEGERS or type_.startswith(("date", "timestamp"))):
        return f"coalesce({_integer(value, type_)}, {_NULL})"
    return f"CASE WHEN {value} IS NULL THEN {_NULL} ELSE {_hashed(value, type_, depth)} END"


def _integer(value: str, type_: str) -> str:
    if type_ == "date":
        return f"CAST(unix_date({value}) AS BIGINT)"
    if type_ == "timestamptz":
        return f"unix_micros({value})"
    if type_ == "timestamp":
        # Spark has no function from a time without a zone to its number that would not go through the session's zone,
        # where an hour of every year is missing; its parts are not read in any zone.  The first day that there is
        # begins before the least int64, so days are added by halves.
        days = f"unix_date(CAST({value} AS DATE)) * {_HALF_DAY_US}"
        return (
            f"({days} + ({days} + hour({value}) * {_HOUR_US} + minute({value}) * {_MINUTE_US}"
            f" + CAST(extract(SECOND FROM {value}) * 1000000 AS BIGINT)))"
        )
    if type_ in _INTEGERS:
        return f"CAST({value} AS BIGINT)"
    raise _refused(type_)


def _hashed(value: str, type_: object, depth: int) -> str:
    match type_:
        case str() if type_ in _HASHED or _FIXED.fullmatch(type_):
            return f"xxhash64({value})"
        case str() if type_ in _FLOATS:
            return f"xxhash64(CAST({value} AS DOUBLE))"
        case str() if decimal := _DECIMAL.fullmatch(type_):
            # Up to 18 digits and above are hashed in different ways, so a column that was widened is cast back.
            return f"xxhash64(CAST({value} AS DECIMAL({decimal[1]}, {decimal[2]})))"
        case {"type": "struct", "fields": [*fields]}:
            return _chain(_word(f"{value}.{_name(field['name'])}", field["type"], depth) for field in fields)
        case {"type": "list", "element": element}:
            item = f"hw_item{depth}"
            return _of_list(value, value, _word(item, element, depth + 1), depth)
        case {"type": "map", "key": key, "value": item_type}:
            entry = f"hw_item{depth}"
            words = [_word(f"{entry}.key", key, depth + 1), _word(f"{entry}.value", item_type, depth + 1)]
            return _of_list(value, f"map_entries({value})", _chain(words), depth)
        case _:
            raise _refused(type_)


def _of_list(value: str, items: str, word: str, depth: int) -> str:
    """C(length, XOR over i of C(i, word of item i))."""
    item, place, sum_ = f"hw_item{depth}", f"hw_place{depth}", f"hw_sum{depth}"
    mixed = f"transform({items}, ({item}, {place}) -> {_chain([f'CAST({place} AS BIGINT)', word])})"
    folded = f"aggregate({mixed}, 0L, ({sum_}, {item}) -> {sum_} ^ {item})"
    return _chain([f"CAST(size({value}) AS BIGINT)", folded])


# ---------------------------------------------------------------------------------------------------------- names


def _name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _type(column: Column) -> object:
    """A primitive type is its name; a nested one is Iceberg's JSON of it."""
    if not column.type.startswith("{"):
        return column.type
    try:
        return msgspec.json.decode(column.type)
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"{column.name}: its type cannot be read", type=column.type) from error


def _refused(type_: object) -> InvalidRequest:
    return InvalidRequest(f"a column of {type_} has no digest: no landing writes one")
