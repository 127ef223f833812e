"""What a bench says: its settings, its figures, and the bars that they hold or do not.

PROMISE  `as_dict` is the whole report, and the only form that other programs read:
         {"bench", "settings", "figures", "bars": [{"name", "value", "limit", "at_least" | "at_most", "holds"}]}
         where a bar has exactly one of `at_least` and `at_most`, equal to `limit`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from rich.console import Console
from rich.table import Table

Setting = str | int | float | bool


@dataclass(frozen=True)
class Bar:
    """A figure that was promised.  A value that is no number holds nothing."""

    name: str
    value: float
    limit: float
    side: Literal["at_least", "at_most"]

    @property
    def holds(self) -> bool:
        if math.isnan(self.value):
            return False
        return self.value >= self.limit if self.side == "at_least" else self.value <= self.limit

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "value": self.value,
            "limit": self.limit,
            self.side: self.limit,
            "holds": self.holds,
        }


def at_least(name: str, value: float, limit: float) -> Bar:
    return Bar(name, value, limit, "at_least")


def at_most(name: str, value: float, limit: float) -> Bar:
    return Bar(name, value, limit, "at_most")


@dataclass(frozen=True)
class Report:
    """The answer of one bench.  Names carry their units: `append_p50_ms`.  None is a figure that could not be taken."""

    bench: str
    settings: Mapping[str, Setting]
    figures: Mapping[str, float | None]
    bars: tuple[Bar, ...] = field(default=())

    @property
    def holds(self) -> bool:
        return all(bar.holds for bar in self.bars)

    def as_dict(self) -> dict[str, object]:
        return {
            "bench": self.bench,
            "settings": dict(self.settings),
            "figures": dict(self.figures),
            "bars": [bar.as_dict() for bar in self.bars],
        }


def show(report: Report, console: Console) -> None:
    """The report as tables for a person."""
    settings = ", ".join(f"{name} = {value}" for name, value in report.settings.items())
    figures = Table(title=f"bench {report.bench}", caption=settings or None, title_justify="left")
    figures.add_column("figure")
    figures.add_column("value", justify="right")
    for name, value in report.figures.items():
        figures.add_row(name, _number(value))
    console.print(figures)

    if not report.bars:
        return
    bars = Table(title="bars", title_justify="left")
    bars.add_column("bar")
    bars.add_column("value", justify="right")
    bars.add_column("limit", justify="right")
    bars.add_column("holds")
    for bar in report.bars:
        limit = f"{'at least' if bar.side == 'at_least' else 'at most'} {_number(bar.limit)}"
        bars.add_row(bar.name, _number(bar.value), limit, "[green]yes[/]" if bar.holds else "[bold red]NO[/]")
    console.print(bars)


def _number(value: float | None) -> str:
    """Short enough to compare, exact enough to trust: thousands apart, three digits after small numbers' points."""
    if value is None:
        return "not measured"
    if isinstance(value, int) or (math.isfinite(value) and abs(value) >= 1000):
        return f"{value:,.0f}"
    return f"{value:,.3f}"
