"""A condition as Spark SQL: it keeps the same rows there as it keeps among rows of Arrow.

PROMISE  Its values are in the column's own type, whatever a session's settings say of texts and of times.
         Where Spark means something else by a comparison, its SQL says what is meant: NaN is above every number in
         Spark and beside all of them here, and of a null Arrow knows whether it is in a list.
NOT HERE Conditions themselves: where.py.  Running SQL: this file knows text only.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.expressions import BooleanExpression, BoundTerm
from pyiceberg.expressions.literals import Literal
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, bind, visit
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    LongType,
    TimestampType,
    TimestamptzType,
)

from headwater.lake.where import Condition

_PLAIN_TEXT = re.compile(r"[^\\'\x00-\x1f]*")


def sql_of(condition: Condition, schema: pa.Schema) -> str:
    """The condition over columns with the names and types of this schema."""
    assert isinstance(condition.form, BooleanExpression)
    known = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
    return visit(bind(known, condition.form, case_sensitive=True), _ToSql(known))


class _ToSql(BoundBooleanExpressionVisitor[str]):
    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def _column(self, term: BoundTerm) -> str:
        name = self._schema.find_column_name(term.ref().field.field_id)
        assert name is not None
        return ".".join("`" + part.replace("`", "``") + "`" for part in name.split("."))

    def _compared(self, term: BoundTerm, operator: str, literal: Literal[Any]) -> str:
        return f"({self._column(term)} {operator} {_value(literal.value, _type(term))})"

    def _above(self, term: BoundTerm, operator: str, literal: Literal[Any]) -> str:
        compared = self._compared(term, operator, literal)
        return f"({compared} AND NOT isnan({self._column(term)}))" if _may_be_nan(term) else compared

    def _listed(self, term: BoundTerm, literals: set[Any]) -> str:
        return ", ".join(sorted(_value(each, _type(term)) for each in literals))

    # Not nullable, either of them: Arrow answers for a null too, and a NOT around it turns the answer.
    def visit_in(self, term: BoundTerm, literals: set[Any]) -> str:
        column = self._column(term)
        return f"({column} IS NOT NULL AND {column} IN ({self._listed(term, literals)}))"

    def visit_not_in(self, term: BoundTerm, literals: set[Any]) -> str:
        column = self._column(term)
        return f"({column} IS NULL OR {column} NOT IN ({self._listed(term, literals)}))"

    def visit_is_nan(self, term: BoundTerm) -> str:
        column = self._column(term)
        return f"(CASE WHEN {column} IS NOT NULL THEN isnan({column}) END)"

    def visit_not_nan(self, term: BoundTerm) -> str:
        return f"(NOT {self.visit_is_nan(term)})"

    def visit_is_null(self, term: BoundTerm) -> str:
        return f"({self._column(term)} IS NULL)"

    def visit_not_null(self, term: BoundTerm) -> str:
        return f"({self._column(term)} IS NOT NULL)"

    def visit_equal(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compared(term, "=", literal)

    def visit_not_equal(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compared(term, "<>", literal)

    def visit_greater_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._above(term, ">=", literal)

    def visit_greater_than(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._above(term, ">", literal)

    def visit_less_than(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compared(term, "<", literal)

    def visit_less_than_or_equal(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return self._compared(term, "<=", literal)

    def visit_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return f"startswith({self._column(term)}, {_value(literal.value, _type(term))})"

    def visit_not_starts_with(self, term: BoundTerm, literal: Literal[Any]) -> str:
        return f"(NOT {self.visit_starts_with(term, literal)})"

    def visit_true(self) -> str:
        return "TRUE"

    def visit_false(self) -> str:
        return "FALSE"

    def visit_not(self, child_result: str) -> str:
        return f"(NOT {child_result})"

    def visit_and(self, left_result: str, right_result: str) -> str:
        return f"({left_result} AND {right_result})"

    def visit_or(self, left_result: str, right_result: str) -> str:
        return f"({left_result} OR {right_result})"


def _type(term: BoundTerm) -> IcebergType:
    return term.ref().field.field_type


def _may_be_nan(term: BoundTerm) -> bool:
    return isinstance(_type(term), FloatType | DoubleType)


def _value(value: Any, type_: IcebergType) -> str:
    match value:
        case bool():
            return str(value).upper()
        case int() if isinstance(type_, DateType):
            return f"date_from_unix_date({value})"
        case int() if isinstance(type_, TimestamptzType):
            return f"timestamp_micros({value})"
        case int() if isinstance(type_, TimestampType):
            moment = datetime(1970, 1, 1) + timedelta(microseconds=value)  # noqa: DTZ001  a time without a zone is meant
            return f"TIMESTAMP_NTZ '{moment.isoformat(sep=' ')}'"
        case int():
            return f"{value}L" if isinstance(type_, LongType) else str(value)
        case float():
            return f"CAST({value!r}D AS FLOAT)" if isinstance(type_, FloatType) else f"{value!r}D"
        case Decimal() if isinstance(type_, DecimalType):
            return f"CAST('{value}' AS DECIMAL({type_.precision}, {type_.scale}))"
        case _:
            text = str(value)
            # A session may say how Spark reads backslashes in a text; it cannot say that of bytes.
            return f"'{text}'" if _PLAIN_TEXT.fullmatch(text) else f"CAST(X'{text.encode().hex()}' AS STRING)"
