"""NDJSON: one JSON object a line; empty lines are skipped.

FAST     Arrow reads a whole block with the topic's types.  Dates are read as text and cast; a block with a map in it,
         and any block that does not fit, is read line by line.
PROMISE  Both ways give equal rows.  A line that is no object is handed on as text: the door refuses it by its number.
NOT HERE How a value looks in JSON: json_values.py has the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from headwater.cli.input_source import BLOCK_BYTES, Block, Source, last_newline
from headwater.cli.row_chunk import Chunk
from headwater.topics.json_values import from_json, plain

if TYPE_CHECKING:
    import pyarrow as pa


def read_chunks(source: Source, schema: pa.Schema) -> Iterator[Chunk]:
    reader = _Reader(schema)
    first_row = 0
    for block in source.blocks(last_newline):
        chunk = reader.chunk(block, first_row)
        first_row += chunk.count
        yield chunk


class _Reader:
    def __init__(self, schema: pa.Schema) -> None:
        import pyarrow as pa

        self._types = {field.name: field.type for field in schema}
        self._dates = {field.name: field.type for field in schema if pa.types.is_date(field.type)}
        fast = [
            pa.field(field.name, pa.string()) if field.name in self._dates else pa.field(field.name, field.type)
            for field in schema
            if field.name in self._dates or not _holds_map_or_date(field.type)
        ]
        self._fast = pa.schema(fast)

    def chunk(self, block: Block, first_row: int) -> Chunk:
        batch = self._batch(block)
        if batch is not None:
            return Chunk(batch, first_row, _finder(block, batch.num_rows))
        rows: list[object] = []
        lines: list[int] = []
        for number, line in enumerate(block.data.split(b"\n"), block.first_line):
            if line.strip():
                rows.append(self._row(line))
                lines.append(number)
        return Chunk(rows, first_row, lines.__getitem__, "this is not one JSON object")

    def _batch(self, block: Block) -> pa.RecordBatch | None:
        """The block as Arrow reads it; None where it does not fit, or where a line is not a row."""
        import pyarrow as pa
        from pyarrow import json as arrow_json

        try:
            table = arrow_json.read_json(
                pa.BufferReader(block.data),
                # Arrow takes no line that is longer than its block.
                read_options=arrow_json.ReadOptions(use_threads=True, block_size=max(len(block.data), BLOCK_BYTES)),
                parse_options=arrow_json.ParseOptions(explicit_schema=self._fast, unexpected_field_behavior="error"),
            )
            for name, type_ in self._dates.items():
                column = table.schema.get_field_index(name)
                table = table.set_column(column, name, table.column(column).cast(type_))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != _count_lines(block.data):
            return None
        batches = table.combine_chunks().to_batches()
        if not batches:
            return pa.RecordBatch.from_pylist([], table.schema)
        return batches[0]

    def _row(self, line: bytes) -> object:
        try:
            row = json.loads(line, parse_float=Decimal, object_pairs_hook=_without_duplicates)
        except (ValueError, RecursionError):
            return line.decode(errors="replace").rstrip("\r")
        if not isinstance(row, dict):
            return line.decode(errors="replace").rstrip("\r")
        return {
            name: from_json(value, self._types[name]) if name in self._types else plain(value)
            for name, value in row.items()
        }


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError("a name stands twice in an object")
    return row


def _holds_map_or_date(type_: pa.DataType) -> bool:
    from pyarrow import types

    if types.is_map(type_) or types.is_date(type_):
        return True
    return any(_holds_map_or_date(type_.field(number).type) for number in range(type_.num_fields))


def _count_lines(data: bytes) -> int:
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    if b"\n\n" in data or b"\n\r\n" in data or data[:1].isspace() or b"\n " in data or b"\n\t" in data:
        lines = sum(1 for line in data.split(b"\n") if line.strip())
    return lines


def _finder(block: Block, rows: int) -> Callable[[int], int]:
    """From a row to its line, worked out only when somebody asks."""
    lines: list[int] = []

    def find(row: int) -> int:
        if not lines:
            split = enumerate(block.data.split(b"\n"), block.first_line)
            lines.extend(number for number, line in split if line.strip())
            assert len(lines) == rows
        return lines[row]

    return find
