"""Tables of text as every command prints them: a line of heads, then a line a row, two spaces between columns.

WIDTH    On a terminal the widest columns are cut, with an ellipsis, until a line fits; into a pipe nothing is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

GAP = "  "
COLUMN_CELLS_MIN = 8
"""No column is cut below this; where that does not suffice, the last columns are left out."""


@dataclass(frozen=True)
class Column:
    head: str
    right: bool = False
    style: str = ""
    keep: bool = False
    """Never cut: a name that a person copies."""


def print_table(console: Console, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
    """A whole table at once; none of its columns is left out."""
    widths = widths_of(columns, rows)
    if console.is_terminal:
        widths = fit(widths, columns, console.width)
    for text in table_lines(columns, rows, widths, with_heads=True):
        console.print(text, soft_wrap=True)


def widths_of(columns: Sequence[Column], rows: Iterable[Sequence[str]]) -> list[int]:
    widths = [cell_len(column.head) for column in columns]
    for row in rows:
        widths = [max(width, cell_len(cell)) for width, cell in zip(widths, row, strict=True)]
    return widths


def fit(widths: Sequence[int], columns: Sequence[Column], line_cells: int) -> list[int]:
    """Widths that fit into a line: the widest column gives way first, and none falls below its least."""
    fitted = list(widths)
    least = [
        width if column.keep else min(width, max(COLUMN_CELLS_MIN, cell_len(column.head)))
        for width, column in zip(widths, columns, strict=True)
    ]
    excess = sum(fitted) + len(GAP) * (len(fitted) - 1) - line_cells
    while excess > 0:
        room = [width - floor for width, floor in zip(fitted, least, strict=True)]
        if not any(room):
            break
        widest = max((number for number, each in enumerate(room) if each), key=lambda number: fitted[number])
        fitted[widest] -= 1
        excess -= 1
    return fitted


def table_lines(
    columns: Sequence[Column], rows: Iterable[Sequence[str]], widths: Sequence[int], *, with_heads: bool
) -> Iterable[Text]:
    if with_heads:
        yield _line([column.head for column in columns], columns, widths, head=True)
    for row in rows:
        yield _line(row, columns, widths, head=False)


def _line(cells: Sequence[str], columns: Sequence[Column], widths: Sequence[int], *, head: bool) -> Text:
    line = Text()
    last = len(columns) - 1
    for number, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True)):
        text = _sized(cell, width, right=column.right)
        line.append(text.rstrip() if number == last and not column.right else text, "bold" if head else column.style)
        if number < last:
            line.append(GAP)
    return line


def _sized(cell: str, width: int, *, right: bool) -> str:
    used = cell_len(cell)
    if used > width:
        return set_cell_size(cell, width - 1) + "…"
    return " " * (width - used) + cell if right else cell + " " * (width - used)


def size_cell(size_bytes: int) -> str:
    """Three digits or so, in decimal units: `0 B`, `2.4 kB`, `118 MB`, `1.2 TB`."""
    if size_bytes < 0:
        return f"-{size_cell(-size_bytes)}"
    size = float(size_bytes)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if size < 999.5 or unit == "TB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("unreachable: the last unit takes all")
