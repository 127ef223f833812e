"""What a part of the bench of peers is: a question, the figures that answer it, and how they are taken.

    PART = Part(
        name="kafka",                                       the module's name
        title="Kafka from Python",
        question="How many durable rows a second?",
        method="Both on loopback, one partition, ...",      said on the page, with what is fair and what is not
        figures=(Figure("ours_rows_per_s", "Rows that ..."), Figure("theirs_rows_per_s", "...")),
        compared=(Compared("rows produced", "ours_rows_per_s", "theirs_rows_per_s", "Kafka", "higher"),),
        charts=(Chart("Rows produced", "rows/s", (("Headwater", "ours_rows_per_s"), ("Kafka", "theirs_rows_per_s"))),),
        measure=measure,                                    def measure(size: Size, book: Book) -> None
        quick_s=120, full_s=600,
    )

PROMISE  A figure is declared before it is taken, with a sentence that says what it is; `Book.add` refuses one that is
         not.  The unit is the end of its name.  Its name does not depend on the size of the run: how many partitions
         "many" are is a setting.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from bench.report import Setting

T = TypeVar("T")

UNITS = {
    "_rows_per_s": "rows/s",
    "_commits_per_s": "commits/s",
    "_mb_per_s": "MB/s",
    "_per_row_bytes": "bytes a row",
    "_bytes": "bytes",
    "_kb": "kB",
    "_mb": "MB",
    "_ms": "ms",
    "_s": "s",
    "_ratio": "times",
    "_files": "files",
    "_rows": "rows",
    "_count": "",
}
"""How a figure's name ends, and what that means; the first that fits counts."""


@dataclass(frozen=True)
class Size:
    """How much is measured.  A tiny run shows that a part works, and nothing else."""

    name: Literal["tiny", "quick", "full"]
    rounds: int
    landings: int
    partitions: int
    topics: int

    def of(self, tiny: T, quick: T, full: T) -> T:
        """What of these three this size is."""
        return {"tiny": tiny, "quick": quick, "full": full}[self.name]


TINY = Size("tiny", rounds=1, landings=4, partitions=20, topics=4)
QUICK = Size("quick", rounds=2, landings=200, partitions=1_000, topics=100)
FULL = Size("full", rounds=5, landings=2_000, partitions=10_000, topics=1_000)
SIZES: dict[str, Size] = {size.name: size for size in (TINY, QUICK, FULL)}


@dataclass(frozen=True)
class Figure:
    """One figure: its name, which ends in its unit, and what it is, in a sentence."""

    name: str
    says: str

    @property
    def unit(self) -> str:
        for end, unit in UNITS.items():
            if self.name.endswith(end):
                return unit
        raise AssertionError(f"the name of {self.name} does not end in a unit: {', '.join(UNITS)}")


@dataclass(frozen=True)
class Compared:
    """Our figure beside a peer's: the page's table of ratios, and where the peer does better, come of these."""

    what: str
    ours: str
    theirs: str
    peer: str
    better: Literal["higher", "lower"]
    why: str = ""
    """What lies behind it, where the peer does better: said on the page if it does."""


@dataclass(frozen=True)
class Chart:
    """Bars beside each other: a label and the figure that it shows."""

    title: str
    unit: str
    bars: tuple[tuple[str, str], ...]


class Book:
    """What a part writes while it measures.  All that was written is kept if the part does not come to its end."""

    def __init__(self, part: Part, keep: Callable[[Book], None] = lambda _: None) -> None:
        self._part = part
        self._names = {figure.name for figure in part.figures}
        self._keep = keep
        self.values: dict[str, list[float]] = {}
        self.settings: dict[str, Setting] = {}

    def add(self, name: str, *values: float) -> None:
        """One more value of a figure: a round's, or the only one."""
        assert name in self._names, f"{self._part.name} has no figure {name}: declare it, with a sentence"
        self.values.setdefault(name, []).extend(float(value) for value in values)
        self._keep(self)

    def set(self, **settings: Setting) -> None:
        """What the figures depend on: versions, sizes, options.  Spaces are as good as underscores: `set(**{...})`."""
        self.settings.update(settings)
        self._keep(self)

    def say(self, what: str) -> None:
        """Progress, for whoever watches."""
        print(f"  {self._part.name}: {what}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Part:
    """One question to the field.  `measure` runs in a process of its own, and writes into the book as it goes."""

    name: str
    title: str
    question: str
    method: str
    figures: tuple[Figure, ...]
    measure: Callable[[Size, Book], None]
    compared: tuple[Compared, ...] = ()
    charts: tuple[Chart, ...] = ()
    quick_s: float = 120.0
    full_s: float = 600.0
    reading: str = field(default="")
    """What to make of the figures: a paragraph on the page, true whatever they are."""

    @property
    def module(self) -> str:
        """Where it is found again by the process that measures."""
        return self.measure.__module__

    def limit_s(self, size: Size) -> float:
        return size.of(tiny=300.0, quick=self.quick_s, full=self.full_s)


def in_turn(sides: dict[str, Callable[[], None]], rounds: int, book: Book) -> None:
    """Each side once a round; each goes first by turns, because the speed of a disk drifts."""
    names = list(sides)
    for number in range(rounds):
        book.say(f"round {number + 1} of {rounds}")
        first = number % len(names)
        for name in names[first:] + names[:first]:
            sides[name]()
