"""Conditions as text over rows in Arrow: what they keep, which columns they look at, and what is refused."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest
from headwater.lake.where import condition

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "region": pa.array(["eu", "us", None]),
        "amount": pa.array([Decimal("10.50"), Decimal("99.00"), Decimal("100.01")], pa.decimal128(9, 2)),
        "at": pa.array([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)], pa.timestamp("us", "UTC")),
        "address": pa.array([{"city": "Bern"}, {"city": "Rome"}, None], pa.struct([("city", pa.string())])),
        "a.b": pa.array([7, 8, 9], pa.int64()),
    }
)


@pytest.mark.parametrize(
    ("text", "ids", "columns"),
    [
        ("id > 1", [2, 3], {"id"}),
        ("region in ('eu', 'us') and amount > 50", [2], {"region", "amount"}),
        ("region is null or id = 1", [1, 3], {"region", "id"}),
        ("at >= '2026-01-02T00:00:00+00:00'", [2, 3], {"at"}),
        ("not amount < 100.01", [3], {"amount"}),
    ],
)
def test_a_condition_keeps_the_rows_that_it_names_and_says_which_columns_it_looks_at(
    text: str, ids: list[int], columns: set[str]
) -> None:
    found = condition(text, ROWS.schema)

    assert ROWS.filter(found.expression)["id"].to_pylist() == ids
    assert found.columns == columns


def test_a_condition_on_a_field_of_a_column_looks_at_that_column() -> None:
    assert condition("address.city = 'Bern'", ROWS.schema).columns == {"address"}


def test_a_column_with_a_dot_in_its_name_is_looked_at_by_its_whole_name() -> None:
    assert condition("a.b = 8", ROWS.schema).columns == {"a.b"}


@pytest.mark.parametrize(
    ("text", "by_statistics"),
    [
        ("x > 1.5", True),
        ("x > 1.5 and x < 3.0 or n != 1", False),
        ("x > 1.5 and x < 3.0 or n = 1", True),
        ("n != 1", True),
        ("x != 1.5", False),
        ("not x > 1.5", False),
        ("x not in (1.5, 2.5)", False),
        ("x is nan", False),
        ("x is not nan", False),
        ("f = 0.1", False),
        ("inside.f < 2.0", False),
    ],
)
def test_files_are_chosen_by_a_condition_only_where_their_statistics_show_every_row(
    text: str, by_statistics: bool
) -> None:
    """They leave NaN out, and pyiceberg compares doubles with the bounds of a float."""
    inside = pa.struct([("f", pa.float32())])
    schema = pa.schema([("x", pa.float64()), ("n", pa.int64()), ("f", pa.float32()), ("inside", inside)])

    found = condition(text, schema)

    assert (found.parsed is not None) == by_statistics
    assert found.form is not None


@pytest.mark.parametrize(
    "text",
    ["id >", "nothing = 1", "ID = 1", "id = 'one'", "at > 'yesterday'", ""],
)
def test_a_condition_that_cannot_be_used_is_refused_with_its_text(text: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be used") as refused:
        condition(text, ROWS.schema)

    assert repr(text) in str(refused.value)


def test_without_its_packages_a_condition_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyiceberg.expressions.parser", None)

    with pytest.raises(InvalidRequest, match=r"pip install 'headwater\[lake\]'"):
        condition("id = 1", ROWS.schema)
