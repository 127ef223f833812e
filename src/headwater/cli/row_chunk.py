"""Rows of an input that are appended as one write, and where they stand in it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

TEXT_SHOWN_MAX = 60


@dataclass(frozen=True)
class Chunk:
    """Rows that are appended together."""

    rows: pa.RecordBatch | list[object]
    first_row: int
    """The number of its first row in the input, from 0."""
    line_of: Callable[[int], int] | None
    """The line of one of its rows, from 1; None where the input has no lines."""
    no_row: str = ""
    """What is wrong with a row that is a mere text: it could not be made a row of."""

    @property
    def count(self) -> int:
        return len(self.rows)

    def place_of(self, number: int) -> str:
        """Where in the input a row of the chunk stands, for people."""
        if self.line_of is not None:
            return f"line {self.line_of(number):,}"
        return f"row {self.first_row + number + 1:,}"

    def reason_of(self, number: int, reason: str) -> str:
        """Why a row was refused: what the door said, unless it was given no row at all."""
        if isinstance(self.rows, list) and isinstance(self.rows[number], str):
            return f"{self.no_row}: {shorten(self.rows[number])}"
        return reason

    def slice(self, start: int, count: int) -> Chunk:
        line_of = self.line_of
        rows = self.rows[start : start + count] if isinstance(self.rows, list) else self.rows.slice(start, count)
        moved = None if line_of is None else lambda number: line_of(start + number)
        return Chunk(rows, self.first_row + start, moved, self.no_row)


def shorten(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= TEXT_SHOWN_MAX else shown[: TEXT_SHOWN_MAX - 3] + "..."
