"""A condition as Spark SQL, word for word; that Spark keeps the same rows by it is shown in tests/lake_spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headwater.lake.where import condition
from headwater.lake.where_sql import sql_of

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("n", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("m", pa.decimal128(9, 2)),
        ("s", pa.string()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("naive", pa.timestamp("us")),
        ("at", pa.timestamp("us", "UTC")),
        ("inner", pa.struct([("x", pa.int32())])),
        ("odd`", pa.int32()),
    ]
)


@pytest.mark.parametrize(
    ("where", "sql"),
    [
        ("i = 1", "(`i` = 1)"),
        ("n <> -2", "(`n` <> -2L)"),
        ("n < 1 and n <= 2", "((`n` < 1L) AND (`n` <= 2L))"),
        ("i > 1 or not i >= 2", "((`i` > 1) OR (NOT (`i` >= 2)))"),
        ("f > 0.5", "((`f` > CAST(0.5D AS FLOAT)) AND NOT isnan(`f`))"),
        ("d >= 2.5", "((`d` >= 2.5D) AND NOT isnan(`d`))"),
        ("d is nan", "(CASE WHEN `d` IS NOT NULL THEN isnan(`d`) END)"),
        ("d is not nan", "(NOT (CASE WHEN `d` IS NOT NULL THEN isnan(`d`) END))"),
        ("m = 1.25", "(`m` = CAST('1.25' AS DECIMAL(9, 2)))"),
        ("s = 'it''s'", "(`s` = CAST(X'69742773' AS STRING))"),
        ("s like 'eu%'", "startswith(`s`, 'eu')"),
        ("s not like 'eu%'", "(NOT startswith(`s`, 'eu'))"),
        ("ok = true", "(`ok` = TRUE)"),
        ("day = '1970-01-03'", "(`day` = date_from_unix_date(2))"),
        ("naive = '2026-03-29T02:30:00'", "(`naive` = TIMESTAMP_NTZ '2026-03-29 02:30:00')"),
        ("at = '1970-01-01T00:00:01+00:00'", "(`at` = timestamp_micros(1000000))"),
        ("n in (3, 1)", "(`n` IS NOT NULL AND `n` IN (1L, 3L))"),
        ("n not in (3, 1)", "(`n` IS NULL OR `n` NOT IN (1L, 3L))"),
        ("inner.x is null", "(`inner`.`x` IS NULL)"),
        ("s is not null", "(`s` IS NOT NULL)"),
        ('"odd`" = 1', "(`odd``` = 1)"),
        ("i < 99999999999", "TRUE"),
        ("i > 99999999999", "FALSE"),
    ],
)
def test_a_condition_says_in_sql_what_it_says_of_rows(where: str, sql: str) -> None:
    assert sql_of(condition(where, SCHEMA), SCHEMA) == sql
