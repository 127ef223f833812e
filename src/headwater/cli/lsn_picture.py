"""Where each topic's rows are, drawn by LSN from the first there was to the last: in the table, in both, in the log.

    ░  deleted from the log: in the table alone, verified there
    ▒  in the log and, verified, in the table
    ▓  in the log and in the table, not verified yet
    █  in the log alone

PROMISE  What there is of a kind, however little, has a cell; cells are in the order of LSNs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from headwater.cli.output import printable
from headwater.page.spans import lsn_spans

if TYPE_CHECKING:
    from headwater.topics.answers import LandingStatus

KINDS = (
    ("░", "cyan", "in the table alone"),
    ("▒", "green", "in both, verified"),
    ("▓", "yellow", "in both"),
    ("█", "red", "in the log alone"),
)
CELLS_MIN, CELLS_MAX = 16, 60
NAME_CELLS_MAX = 24


def lsn_picture(found: Sequence[LandingStatus], durable_lsn: int, width: int) -> list[Text]:
    """A line a topic, and what the signs mean."""
    if not found or not durable_lsn:
        return []
    name_cells = min(max(len(each.topic) for each in found), NAME_CELLS_MAX)
    ends = len(f"{durable_lsn:,}") + 4
    cells = min(max(width - name_cells - ends, CELLS_MIN), CELLS_MAX)
    head = Text(f"{'LSN':<{name_cells}}  1{f'{durable_lsn:,}':>{cells - 1}}", "bold")
    return [head, *(_line(each, durable_lsn, name_cells, cells) for each in found), _legend(name_cells)]


def _line(each: LandingStatus, durable_lsn: int, name_cells: int, cells: int) -> Text:
    name = printable(each.topic)
    shown = name if len(name) <= name_cells else name[: name_cells - 1] + "…"
    line = Text(f"{shown:<{name_cells}}  ")
    for count, (sign, style, _) in zip(shares(each, durable_lsn, cells), KINDS, strict=True):
        line.append(sign * count, style)
    return line


def shares(each: LandingStatus, durable_lsn: int, cells: int) -> list[int]:
    """How many cells each kind gets: by its LSNs, and at least one where there are any."""
    lsns = lsn_spans(each, durable_lsn)
    counts = [max(round(lsn * cells / durable_lsn), 1) if lsn else 0 for lsn in lsns]
    while sum(counts) != cells:
        # Rounding and the small ones are paid for, or made up, by the largest.
        counts[counts.index(max(counts))] += 1 if sum(counts) < cells else -1
    return counts


def _legend(name_cells: int) -> Text:
    line = Text(" " * (name_cells + 2))
    for place, (sign, style, meaning) in enumerate(KINDS):
        line.append(("   " if place else "") + sign, style)
        line.append(f" {meaning}", "dim")
    return line
