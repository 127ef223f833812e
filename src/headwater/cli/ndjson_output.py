"""Rows as NDJSON: one JSON object a line, made a column at a time.

A row's text is its columns' texts joined, so no Python runs for each row where a column is of a plain type; only
nested columns, bytes that are not text, and text with rare control characters are written value by value.

NOT HERE How a value looks in JSON: json_values.py has the table.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from headwater.topics.json_values import to_json

if TYPE_CHECKING:
    import pyarrow as pa

_ESCAPES = [("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t")]


def ndjson(batch: pa.RecordBatch) -> memoryview:
    """The rows of a batch, a line each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return memoryview(b"")
    if not batch.num_columns:
        return memoryview(b"{}\n" * batch.num_rows)
    text = pa.large_string()
    pieces: list[object] = []
    for number, name in enumerate(batch.schema.names):
        before = f"{',' if number else '{'}{json.dumps(name, ensure_ascii=False)}:"
        pieces.append(pa.scalar(before, text))
        pieces.append(json_texts(batch.column(number)).cast(text).fill_null("null"))
    lines = pc.binary_join_element_wise(*pieces, pa.scalar("}\n", text), pa.scalar("", text))
    assert lines.offset == 0
    # The texts lie behind each other in one buffer: that is the output.
    return memoryview(lines.buffers()[2])


def json_texts(column: pa.Array) -> pa.Array:
    """The JSON text of each value; null where the value is null."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import types

    kind = column.type
    if types.is_boolean(kind) or types.is_integer(kind):
        return column.cast(pa.string())
    if types.is_floating(kind):
        return _floats(column)
    if types.is_string(kind) or types.is_large_string(kind):
        return _texts(column)
    if types.is_timestamp(kind):
        return _quoted(timestamp_texts(column))
    if types.is_date(kind) or types.is_decimal(kind):
        return _quoted(column.cast(pa.string()))
    if types.is_binary(kind):
        try:
            return _texts(pc.cast(column, pa.string()))
        except pa.ArrowInvalid:
            return _one_by_one(column)
    return _one_by_one(column)


def timestamp_texts(column: pa.Array) -> pa.Array:
    """ISO 8601 with six places, and Z where the column has a zone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    # Arrow writes a time without a zone several times faster, with a space where ISO 8601 has a T.  What is stored is
    # UTC, so that a look at the same numbers without their zone is the text that is wanted.
    texts = pc.replace_substring(micros.view(pa.timestamp("us")).cast(pa.string()), " ", "T", max_replacements=1)
    return texts if column.type.tz is None else pc.binary_join_element_wise(texts, "Z", "")


def _quoted(texts: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    return pc.binary_join_element_wise('"', texts, '"', "")


def _floats(column: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    texts = column.cast(pa.string())
    # A whole number keeps its point, so that a program that guesses types does not see an integer.
    if pc.any(pc.equal(pc.trunc(column), column)).as_py():
        whole = pc.match_substring_regex(texts, "^-?[0-9]+$")
        texts = pc.if_else(whole, pc.binary_join_element_wise(texts, ".0", ""), texts)
    if not pc.all(pc.is_finite(column)).as_py():
        for word, name in (("nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"')):
            texts = pc.if_else(pc.equal(texts, word), name, texts)
    return texts


def _texts(column: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    # Most text needs no escape, and one look at it is cheaper than five replacements that find nothing.
    if pc.any(pc.match_substring_regex(column, r'[\x00-\x1f"\\]')).as_py():
        if pc.any(pc.match_substring_regex(column, r"[\x00-\x08\x0b\x0c\x0e-\x1f]")).as_py():
            return _one_by_one(column)
        for letter, escape in _ESCAPES:
            column = pc.replace_substring(column, letter, escape)
    return _quoted(column)


def _one_by_one(column: pa.Array) -> pa.Array:
    import pyarrow as pa

    texts = [
        None if value is None else json.dumps(to_json(value, column.type), ensure_ascii=False, separators=(",", ":"))
        for value in column.to_pylist()
    ]
    return pa.array(texts, pa.string())
