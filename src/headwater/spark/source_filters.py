"""Spark's own filters as conditions on Arrow rows, where both mean the same.

PROMISE  Only what is certainly equal is taken: comparisons of whole numbers, booleans, texts and dates with a value,
         and whether something is null.  Everything else stays Spark's: floats (NaN is equal to itself in Spark), times
         (their zone is the session's), decimals and what is inside a struct.
         A comparison with null is neither true nor false in both, and its row is left out by both.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_COMPARISONS = {
    "EqualTo": lambda column, value: column == value,
    "GreaterThan": lambda column, value: column > value,
    "GreaterThanOrEqual": lambda column, value: column >= value,
    "LessThan": lambda column, value: column < value,
    "LessThanOrEqual": lambda column, value: column <= value,
}


def arrow_condition(filter_: object, schema: pa.Schema) -> pc.Expression | None:
    """What one of Spark's filters says about rows of this schema; None where it is Spark's to say."""
    path: Sequence[str] = getattr(filter_, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    column, type_ = pc.field(path[0]), schema.field(path[0]).type
    kind = type(filter_).__name__
    if kind == "IsNull":
        return column.is_null()
    if kind == "IsNotNull":
        return column.is_valid()
    if kind == "In":
        values = tuple(getattr(filter_, "value", ()))
        if not values or not all(_fits(value, type_) for value in values):
            return None
        return column.isin(pa.array(values, type_))
    compare = _COMPARISONS.get(kind)
    value = getattr(filter_, "value", None)
    if compare is None or not _fits(value, type_):
        return None
    expression: pc.Expression = compare(column, pa.scalar(value, type_))
    return expression


def all_of(conditions: Sequence[pc.Expression]) -> pc.Expression | None:
    return reduce(and_, conditions) if conditions else None


def _fits(value: Any, type_: pa.DataType) -> bool:
    """Is it a value of this type, of one for which Spark and Arrow agree?"""
    types = pa.types
    if types.is_boolean(type_):
        return isinstance(value, bool)
    if types.is_signed_integer(type_):
        return isinstance(value, int) and not isinstance(value, bool) and _is_within(value, type_.bit_width)
    if types.is_string(type_):
        return isinstance(value, str)
    if types.is_date32(type_):
        return isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
    return False


def _is_within(value: int, bits: int) -> bool:
    return -(1 << bits - 1) <= value < 1 << bits - 1
