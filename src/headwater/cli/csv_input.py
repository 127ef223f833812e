"""CSV: a header line with names of columns, then a row a line; quotes may enclose commas and line ends.

FAST     Arrow reads a whole block with the topic's types.  A block that does not fit is read row by row.
NULL     An empty cell is null; `""` is the empty text.  Where a text column may not be null, both are the empty text.
BYTES    A cell of a binary column is its UTF-8; one that is {"$base64": "..."} is what that stands for.
NESTED   A cell of a list, struct or map column is JSON.
PROMISE  A row with too many or too few cells is handed on as text: the door refuses it by its number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

from headwater.cli.input_source import BLOCK_BYTES, Block, Source
from headwater.cli.row_chunk import Chunk
from headwater.errors import InvalidRequest
from headwater.topics.json_values import BASE64, from_json

if TYPE_CHECKING:
    import pyarrow as pa

_MARKED = f'{{"{BASE64}"'


def read_chunks(source: Source, schema: pa.Schema, *, header: bool) -> Iterator[Chunk]:
    reader: _Reader | None = None
    first_row = 0
    for block in source.blocks(last_row_end):
        rest = block
        if reader is None:
            names, rest = _take_header(block) if header else (list(schema.names), block)
            reader = _Reader(_columns(names, schema), schema)
        chunk = reader.chunk(rest, first_row)
        first_row += chunk.count
        yield chunk


def last_row_end(data: bytes) -> int:
    """Where the last whole row ends: behind the last line end with an even number of quotes before it."""
    end = data.rfind(b"\n") + 1
    odd = data.count(b'"', 0, end) % 2
    while end and odd:
        before = data.rfind(b"\n", 0, end - 1) + 1
        odd ^= data.count(b'"', before, end) % 2
        end = before
    return end


def _take_header(block: Block) -> tuple[list[str], Block]:
    end = block.data.find(b"\n") + 1 or len(block.data)
    names = [cell or "" for cell in _cells(block.data[:end].decode(errors="replace").rstrip("\r\n"))]
    return names, Block(block.data[end:], block.first_line + 1)


def _columns(names: list[str], schema: pa.Schema) -> list[str]:
    unknown = [name for name in names if name not in schema.names]
    if unknown or len(set(names)) < len(names):
        problem = f"has no column {', '.join(map(repr, unknown))}" if unknown else "needs each column once"
        raise InvalidRequest(
            f"the first line of the CSV must name columns of the topic: it {problem}; "
            f"the topic has {', '.join(schema.names)}; without such a line: --no-header"
        )
    return names


class _Reader:
    def __init__(self, names: list[str], schema: pa.Schema) -> None:
        from pyarrow import types

        self._names = names
        self._fields = {name: schema.field(name) for name in names}
        self._nested = {name for name, field in self._fields.items() if types.is_nested(field.type)}
        self._binary = {name for name, field in self._fields.items() if types.is_binary(field.type)}
        self._texts = {name for name, field in self._fields.items() if types.is_string(field.type)}

    def chunk(self, block: Block, first_row: int) -> Chunk:
        batch = self._batch(block)
        if batch is not None:
            return Chunk(batch, first_row, _finder(block))
        numbered = list(_records(block))
        rows = [self._row(cells, text) for _, cells, text in numbered]
        no_row = f"this is not a row of {len(self._names)} cells"
        return Chunk(rows, first_row, lambda number: numbered[number][0], no_row)

    def _batch(self, block: Block) -> pa.RecordBatch | None:
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyarrow import csv as arrow_csv

        if not block.data.strip():
            return pa.RecordBatch.from_pylist([], pa.schema(list(self._fields.values())))
        if self._nested:
            return None
        try:
            table = arrow_csv.read_csv(
                pa.BufferReader(block.data),
                read_options=arrow_csv.ReadOptions(
                    column_names=self._names, block_size=max(len(block.data) + 1, BLOCK_BYTES)
                ),
                parse_options=arrow_csv.ParseOptions(newlines_in_values=True),
                convert_options=arrow_csv.ConvertOptions(
                    column_types={name: field.type for name, field in self._fields.items()},
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        for name in self._texts:
            if not self._fields[name].nullable:
                column = table.column(name).fill_null("")
                table = table.set_column(table.schema.get_field_index(name), name, column)
        for name in self._binary:
            if pc.any(pc.starts_with(table.column(name), _MARKED.encode())).as_py():
                return None
        batches = table.combine_chunks().to_batches()
        return batches[0] if batches else pa.RecordBatch.from_pylist([], table.schema)

    def _row(self, cells: list[str | None], text: str) -> object:
        if len(cells) != len(self._names):
            return text
        return {name: self._value(name, cell) for name, cell in zip(self._names, cells, strict=True)}

    def _value(self, name: str, cell: str | None) -> object:
        from pyarrow import types

        field = self._fields[name]
        if cell is None:
            return "" if name in self._texts and not field.nullable else None
        if types.is_boolean(field.type):
            return {"true": True, "1": True, "false": False, "0": False}.get(cell.lower(), cell)
        if types.is_integer(field.type):
            return _number(cell, int)
        if types.is_floating(field.type):
            return _number(cell, float)
        if name in self._nested or (name in self._binary and cell.startswith(_MARKED)):
            try:
                return from_json(json.loads(cell, parse_float=Decimal), field.type)
            except (ValueError, RecursionError):
                return cell
        return from_json(cell, field.type)


def _number(cell: str, kind: type[int] | type[float]) -> object:
    try:
        # Python would also read 1_000, and digits of other scripts.
        return kind(cell) if cell.isascii() and "_" not in cell else cell
    except ValueError:
        return cell


def _records(block: Block) -> Iterator[tuple[int, list[str | None], str]]:
    """Each row's line, its cells (None for an empty one without quotes), and its text."""
    lines = block.data.decode(errors="replace").split("\n")
    line = 0
    while line < len(lines):
        begin = line
        quotes = lines[line].count('"')
        line += 1
        while quotes % 2 and line < len(lines):
            quotes += lines[line].count('"')
            line += 1
        text = "\n".join(lines[begin:line]).rstrip("\r\n")
        if text:
            yield block.first_line + begin, _cells(text), text


def _cells(text: str) -> list[str | None]:
    """The cells between the commas that no quotes enclose; None for an empty one without quotes."""
    cells, start, quoted = [], 0, False
    for position, letter in enumerate(text):
        quoted ^= letter == '"'
        if letter == "," and not quoted:
            cells.append(_cell(text[start:position]))
            start = position + 1
    return [*cells, _cell(text[start:])]


def _cell(text: str) -> str | None:
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return text[1:-1].replace('""', '"')
    return text or None


def _finder(block: Block) -> Callable[[int], int]:
    """From a row to its line, worked out only when somebody asks."""
    lines: list[int] = []

    def find(row: int) -> int:
        if not lines:
            lines.extend(line for line, _, _ in _records(block))
        return lines[row]

    return find
