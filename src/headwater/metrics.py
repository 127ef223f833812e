"""Counters of one open log: plain numbers, added to by whoever does the work.

CHEAP    Whoever adds does so once for a commit or a sync, never once for a row.  What has a label (a topic, a group) is
         worked out from the status when somebody asks, and is not counted here.
THREADS  Each number has one writer at a time, whoever holds the baton; who reads may see one a moment before another.
NOT HERE Exporting them: the server's metrics page reads them.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field, fields

DURATION_BOUNDS_S = (
    0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper ends of a histogram's buckets: fixed, so that every release and every server can be added up."""


class Histogram:
    """How often something took how long."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(DURATION_BOUNDS_S) + 1)
        """How many fell into each bucket, alone; the last one is above every bound."""
        self.seconds = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """So many of them took so long; one at a bound belongs to the bucket that ends there."""
        self.buckets[bisect_left(DURATION_BOUNDS_S, seconds)] += times
        self.seconds += seconds * times

    @property
    def count(self) -> int:
        return sum(self.buckets)


@dataclass
class LogCounters:
    """Each only rises while the log is open.  They are for people, never for decisions."""

    appends: int = 0
    append_rows: int = 0
    append_bytes: int = 0
    commits: int = 0
    syncs: int = 0
    sync_seconds: float = 0.0
    rolls: int = 0
    segments_deleted: int = 0
    segments_rewritten: int = 0
    unlinks_failed: int = 0
    indexes_rebuilt: int = 0
    io_errors: int = 0
    requests_refused: int = 0
    append_durations: Histogram = field(default_factory=Histogram)
    """From the moment a request was queued to its acknowledgement.  The requests of a commit are all counted with the
    age of the oldest: no request took longer than it is said to have taken."""
    sync_durations: Histogram = field(default_factory=Histogram)
    """Of each sync; on a store, of each commit from its sending to its confirmation."""

    def as_dict(self) -> dict[str, float]:
        """The plain numbers, by name."""
        found = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in found.items() if isinstance(value, int | float)}
