"""What clients of one partition were told, and when: appends, reads and tails, each with the time before and after.

TIMES    Of one machine's monotonic clock, so that they can be compared over processes.
ROWS     Each row is a number that no other row of the history has.
NOT HERE Whether it can be true: linearizable.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Outcome(Enum):
    DONE = "acknowledged"
    MISMATCH = "refused, because the next offset was another than expected"
    REFUSED = "refused, for another reason: no row of it is ever there"
    UNKNOWN = "nobody knows: it is there, once, or it is not"


@dataclass(frozen=True)
class Append:
    client: int
    began_ns: int
    ended_ns: int
    rows: tuple[int, ...]
    outcome: Outcome
    expected: int | None = None
    """The `expect_offset` that it was sent with."""
    offset: int | None = None
    """DONE: of its first row.  MISMATCH: the next offset that the refusal named."""


@dataclass(frozen=True)
class Read:
    """All rows from an offset on, to the end as it was then."""

    client: int
    began_ns: int
    ended_ns: int
    offset: int
    rows: tuple[int, ...]


@dataclass(frozen=True)
class Tail:
    """Rows that a follower was given, and when it had them.  It may be late, and never early."""

    client: int
    ended_ns: int
    offset: int
    rows: tuple[int, ...]


@dataclass
class History:
    appends: list[Append] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    tails: list[Tail] = field(default_factory=list)
    final: tuple[int, ...] = ()
    """The partition, read when all had ended."""

    @property
    def operations(self) -> int:
        return len(self.appends) + len(self.reads) + len(self.tails)
