"""Conditions on rows, as text: "amount > 100 and region in ('eu', 'us')", in pyiceberg's own language.

PROMISE  A condition means the same over rows of the log and over a table's: it is pyiceberg's, bound to the columns'
         types, so a text for a time is a time and a number for a decimal is a decimal.
NOT HERE Who asks: a query that reads the log.
"""

from __future__ import annotations

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


def condition(text: str, schema: pa.Schema) -> Condition:
    """The condition over rows of this schema; InvalidRequest says what is wrong with it."""
    try:
        from pyiceberg.exceptions import ValidationError
        from pyiceberg.expressions.parser import ParseException, parse  # type: ignore[attr-defined]
        from pyiceberg.expressions.visitors import bind, extract_field_ids
        from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, expression_to_pyarrow
        from pyiceberg.schema import assign_fresh_schema_ids
    except ImportError as error:
        raise InvalidRequest("a condition needs further packages: pip install headwater[lake]") from error
    columns = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
    try:
        bound = bind(columns, parse(text), case_sensitive=True)
        expression = expression_to_pyarrow(bound, columns)
    except (ParseException, ValidationError, ValueError, TypeError, NotImplementedError) as error:
        raise InvalidRequest(f"the condition {text!r} cannot be used: {error}", where=text) from error
    names = (str(columns.find_column_name(each)) for each in extract_field_ids(bound))
    return Condition(expression, frozenset(_top_level(name, schema) for name in names))


def _top_level(name: str, schema: pa.Schema) -> str:
    """Of "address.city" the column "address"; a name of a column may have dots in it too."""
    while name not in schema.names:
        name = name.rpartition(".")[0]
    return name
