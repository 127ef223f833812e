"""What a run says while it goes on, and at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Literal

Tone = Literal["plain", "kill", "others", "good", "bad"]
"""plain    the product at work
kill     a process was killed
others   somebody else did something to a table
good     something was found to be right
bad      something was found to be wrong"""


@dataclass(frozen=True)
class Event:
    at_s: float
    """Since the run began."""
    text: str
    tone: Tone = "plain"


Listener = Callable[[Event], None]


@dataclass
class Counts:
    """What happened in a run."""

    landings: int = 0
    """Commits that brought rows into a table, as landers told them; of landers that were killed, nobody told."""
    landed_rows: int = 0
    lander_kills: int = 0
    owner_kills: int = 0
    writer_kills: int = 0
    races: int = 0
    races_lost: int = 0
    """Of landers that wanted to land what another had landed."""
    late_commits_refused: int = 0
    sent_again: int = 0
    """Requests that a writer sent again and that had been applied before."""
    compactions: int = 0
    expiries: int = 0
    rollbacks: int = 0
    halts: int = 0
    """By name, with what to do; each was resolved as docs/landing.md says."""

    @property
    def kills(self) -> int:
        return self.lander_kills + self.owner_kills + self.writer_kills


@dataclass
class Outcome:
    """How a run ended."""

    seed: int
    steps: int
    """Of the schedule: with the seed, all that a replay needs."""
    steps_taken: int
    passed: bool
    seconds: float
    acknowledged: int
    judged: bool
    """It came to the count of rows; else what follows is not known."""
    in_tables: int
    lost: int
    doubled: int
    altered: int
    never_sent: int
    counts: Counts
    audit: str
    """What the audit said, in a line."""
    findings: list[str] = field(default_factory=list)
    """What is wrong; nothing where it passed."""
    damage_found: list[str] = field(default_factory=list)
    """What the audit named of the damage that was done on purpose, behind the verdict."""
    directory: str = ""
    """Where it all lies, if it was kept."""

    def to_json(self) -> dict[str, object]:
        return {**asdict(self), "seconds": round(self.seconds, 3), "kills": self.counts.kills}
