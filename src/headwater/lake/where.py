"""Conditions on rows, as text: "amount > 100 and region in ('eu', 'us')", in pyiceberg's own language.

PROMISE  A condition means the same over rows of the log and over a table's: it is pyiceberg's, bound to the columns'
         types, so a text for a time is a time and a number for a decimal is a decimal.
NOT HERE Who asks: a query that reads the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidRequest


@dataclass(frozen=True)
class Condition:
    """A condition, ready for rows of one schema."""

    expression: pc.Expression
    columns: frozenset[str]
    """The top-level columns that it looks at."""
    parsed: object = None
    """pyiceberg's own form of it, by which files are chosen; none where their statistics would choose wrongly, so that
    it can only be asked of rows."""
    form: object = None
    """The same, always, for who says it in another language."""


def condition(text: str, schema: pa.Schema) -> Condition:
    """The condition over rows of this schema; InvalidRequest says what is wrong with it."""
    return _conditions(text, schema, None)[0]


def condition_and_part(text: str, schema: pa.Schema, columns: frozenset[str]) -> tuple[Condition, Condition | None]:
    """The condition, and that part of it which must hold in any case and looks at these columns alone."""
    return _conditions(text, schema, columns)


def _conditions(text: str, schema: pa.Schema, columns: frozenset[str] | None) -> tuple[Condition, Condition | None]:
    try:
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.expressions import And, BooleanExpression
        from pyiceberg.expressions.parser import ParseException, parse  # type: ignore[attr-defined]
        from pyiceberg.expressions.visitors import bind, extract_field_ids
        from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, expression_to_pyarrow
        from pyiceberg.schema import assign_fresh_schema_ids
    except ImportError as error:
        raise InvalidRequest("a condition needs further packages: pip install 'headwater[lake]'") from error
    known = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))

    def made(parsed: BooleanExpression) -> Condition:
        bound = bind(known, parsed, case_sensitive=True)
        names = (str(known.find_column_name(each)) for each in extract_field_ids(bound))
        tops = frozenset(_top_level(name, schema) for name in names)
        hidden = _statistics_hide(parsed, [schema.field(top).type for top in tops])
        return Condition(expression_to_pyarrow(bound, known), tops, None if hidden else parsed, parsed)

    try:
        parsed = parse(text)
        whole = made(parsed)
        parts = []
        waiting = [parsed] if columns is not None else []
        while waiting:
            each = waiting.pop()
            if isinstance(each, And):
                waiting += [each.right, each.left]
            elif made(each).columns <= (columns or frozenset()):
                parts.append(each)
        return whole, made(And(*parts) if len(parts) > 1 else parts[0]) if parts else None
    except (ParseException, ValidationError, ValueError, TypeError, NotImplementedError) as error:
        raise InvalidRequest(f"the condition {text!r} cannot be used: {error}", where=text) from error


def _statistics_hide(parsed: object, types: Sequence[pa.DataType]) -> bool:
    """Whether bounds of files and row groups say too little: they leave NaN out, which differs from every number; and a
    literal is a double, which need not be the float that a column holds."""
    from pyiceberg.expressions import And, IsNaN, Not, NotEqualTo, NotIn, NotNaN, Or

    inside = [each for type_ in types for each in _leaves(type_)]
    if any(pa.types.is_float16(each) or pa.types.is_float32(each) for each in inside):
        return True
    if not any(pa.types.is_floating(each) for each in inside):
        return False
    waiting = [parsed]
    while waiting:
        each = waiting.pop()
        if isinstance(each, Not | NotEqualTo | NotIn | IsNaN | NotNaN):
            return True
        if isinstance(each, And | Or):
            waiting += [each.left, each.right]
    return False


def _leaves(type_: pa.DataType) -> Iterator[pa.DataType]:
    if not type_.num_fields:
        yield type_
    for place in range(type_.num_fields):
        yield from _leaves(type_.field(place).type)


def _top_level(name: str, schema: pa.Schema) -> str:
    """Of "address.city" the column "address"; a name of a column may have dots in it too."""
    while name not in schema.names:
        name = name.rpartition(".")[0]
    return name
