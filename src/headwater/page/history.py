"""The hour before now: a sample every few seconds, in memory, of rows, rates, lag and freshness.

RING     At most SAMPLES_KEPT samples, each of all topics together and of at most TOPICS_KEPT one by one: about 2 MB.
         A topic that has a place keeps it while it is there; those that land come first.
PROMISE  Who may not see every topic is shown what those that it may see add up to, and nothing of the others.
THREADS  For one at a time.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from headwater.topics.answers import Status

EVERY_S = 5.0
SAMPLES_KEPT = 720
TOPICS_KEPT = 100
POINTS_OF_SOME_MAX = 180
"""Where topics are added up one by one, fewer points are worked out."""
_VALUES = 3

Shown = Callable[[str], bool]
"""Whether a topic of this name is meant."""


class Point(NamedTuple):
    at_us: int
    rows_per_s: float | None
    lag_rows: int
    """Rows that are in the log and not in their table."""
    lag_s: float
    """How old the oldest of them is."""


@dataclass(frozen=True)
class Sample:
    at_us: int
    monotonic_s: float
    appended: int
    lag_rows: int
    lag_s: float
    names: tuple[str, ...]
    """Shared with the sample before where nothing has changed."""
    values: array[float]
    """Of each name: rows that were ever appended, rows that lag, seconds that they lag."""


class History:
    def __init__(self, samples_max: int = SAMPLES_KEPT) -> None:
        self._samples: deque[Sample] = deque(maxlen=samples_max)

    def add(self, status: Status, at_us: int, monotonic_s: float) -> None:
        lags = {each.topic: (each.lag_rows, each.lag_s) for each in status.landing}
        appended = {each.name: each.appended for each in status.topics}
        before = self._samples[-1].names if self._samples else ()
        names = _kept(before, status)
        values = array("d")
        for name in names:
            values.extend((appended[name], *lags.get(name, (0, 0.0))))
        self._samples.append(
            Sample(
                at_us,
                monotonic_s,
                sum(appended.values()),
                sum(rows for rows, _ in lags.values()),
                max((seconds for _, seconds in lags.values()), default=0.0),
                names,
                values,
            )
        )

    def of_all(self) -> list[Point]:
        """All topics together."""
        if not self._samples:
            return []
        first = self._samples[0]
        points = [Point(first.at_us, None, first.lag_rows, first.lag_s)]
        for before, each in pairwise(self._samples):
            rate = _rate(each.appended - before.appended, each.monotonic_s - before.monotonic_s)
            points.append(Point(each.at_us, rate, each.lag_rows, each.lag_s))
        return points

    def of_some(self, shown: Shown, looks: Shown) -> list[Point]:
        """The topics of these names together, as far as they have a place; the lag of those that may be looked at."""
        samples = list(self._samples)
        step = -(-len(samples) // POINTS_OF_SOME_MAX) or 1
        # Counted from the end, so that the last sample is always there.
        chosen = samples[::-1][::step][::-1]
        known: dict[tuple[str, ...], list[int]] = {}
        points: list[Point] = []
        before: tuple[Sample, dict[str, float]] | None = None
        for sample in chosen:
            places = known.setdefault(sample.names, [place for place, name in enumerate(sample.names) if shown(name)])
            appended = {sample.names[place]: sample.values[place * _VALUES] for place in places}
            rate = None
            if before is not None:
                grown = sum(rows - before[1].get(name, rows) for name, rows in appended.items())
                rate = _rate(grown, sample.monotonic_s - before[0].monotonic_s)
            landing = [place for place in places if looks(sample.names[place])]
            lag_rows = sum(int(sample.values[place * _VALUES + 1]) for place in landing)
            lag_s = max((sample.values[place * _VALUES + 2] for place in landing), default=0.0)
            points.append(Point(sample.at_us, rate, lag_rows, lag_s))
            before = sample, appended
        return points


def _kept(before: tuple[str, ...], status: Status) -> tuple[str, ...]:
    there = {each.name for each in status.topics}
    kept = [name for name in before if name in there]
    if len(kept) < min(TOPICS_KEPT, len(there)):
        landing = [each.topic for each in status.landing if each.topic in there]
        wanted: Sequence[str] = [*kept, *landing, *(each.name for each in status.topics)]
        kept = list(dict.fromkeys(wanted))[:TOPICS_KEPT]
    return before if tuple(kept) == before else tuple(kept)


def _rate(rows: float, seconds: float) -> float | None:
    return max(rows, 0) / seconds if seconds > 0 else None
