"""What parts measured, as the one report of the bench: every name is there, and what was not measured is null.

PROMISE  `NAME` is the median over rounds, `NAME_lowest` and `NAME_highest` its range; all three begin with the part's
         name and a point.  A part's bar holds if all of its figures were taken and it ended as it should.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bench._place import machine
from bench.peers._machine import versions
from bench.peers._part import Part, Size
from bench.report import Bar, Report, Setting, at_least

BENCH = "peers"


@dataclass(frozen=True)
class Taken:
    """A part that has run: what it measured, and why it failed if it did."""

    part: Part
    values: Mapping[str, Sequence[float]]
    settings: Mapping[str, Setting]
    seconds: float
    failed: str = ""

    def figures(self) -> dict[str, float | None]:
        found: dict[str, float | None] = {}
        for figure in self.part.figures:
            values = self.values.get(figure.name) or None
            name = f"{self.part.name}.{figure.name}"
            found[name] = None if values is None else statistics.median(values)
            found[f"{name}_lowest"] = None if values is None else min(values)
            found[f"{name}_highest"] = None if values is None else max(values)
        return found

    def all_settings(self) -> dict[str, Setting]:
        said: dict[str, Setting] = {**self.settings, "seconds": round(self.seconds, 1), "failed": self.failed}
        return {f"{self.part.name}.{name}": value for name, value in said.items()}

    def bar(self) -> Bar:
        measured = sum(1 for figure in self.part.figures if self.values.get(figure.name))
        share = measured / len(self.part.figures)
        # A part that measured all and then failed has not come to its end: something was not checked.
        return at_least(f"{self.part.name}: share of its figures measured", share if not self.failed else 0.0, 1.0)


def as_report(taken: Sequence[Taken], size: Size) -> Report:
    settings: dict[str, Setting] = {"size": size.name, **versions(), **machine()}
    figures: dict[str, float | None] = {}
    for each in taken:
        settings.update({f"{each.part.name}.size": size.name, **each.all_settings()})
        figures.update(each.figures())
    return Report(BENCH, settings, figures, tuple(each.bar() for each in taken))


def merged(before: Mapping[str, Any] | None, taken: Sequence[Taken], size: Size) -> dict[str, Any]:
    """The report with parts of an earlier one kept where they were not run again."""
    now: dict[str, Any] = as_report(taken, size).as_dict()
    if before is None:
        return now
    again = {each.part.name for each in taken}

    def kept(given: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in given.items() if "." in name and name.partition(".")[0] not in again}

    bars = [bar for bar in before["bars"] if bar["name"].partition(":")[0] not in again]
    return {
        "bench": BENCH,
        "settings": {**kept(before["settings"]), **now["settings"]},
        "figures": {**kept(before["figures"]), **now["figures"]},
        "bars": bars + now["bars"],
    }
