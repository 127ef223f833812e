"""What a round of landing did, topic by topic."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Outcome = Literal["landed", "nothing", "halted", "failed", "lost"]
"""
landed    its rows are in the table
nothing   there was nothing to land
halted    a person is needed: `cause` and `message` say why, docs/landing.md what to do
failed    it did not work this time and nothing was lost: the next round tries again
lost      another lander was faster; its rows are in the table, or on their way
"""


@dataclass(frozen=True)
class TopicLanding:
    """What a round did with one topic."""

    topic: str
    table: str
    outcome: Outcome
    rows: int = 0
    lsn_from: int = 0
    lsn_to: int = 0
    files: int = 0
    bytes: int = 0
    snapshot: int | None = None
    commit_s: float = 0.0
    adopted: bool = False
    """It was found in the table after an outcome that nobody knew."""
    verified: bool = False
    """All that has landed was read back: the log may forget it once its grace is over."""
    cause: str = ""
    message: str = ""

    def __str__(self) -> str:
        if self.outcome == "landed":
            rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
            return f"{self.topic}: {rows}, lsn {self.lsn_from + 1}..{self.lsn_to}"
        return f"{self.topic}: {self.outcome}" + (f" ({self.cause or self.message})" if self.message else "")


@dataclass(frozen=True)
class LandingReport:
    """What a round of landing did, topic by topic: iterate over it, or take one by its name."""

    topics: tuple[TopicLanding, ...] = ()
    lsn_to: int = 0
    """The log was durable up to here when the round began."""
    bytes_read: int = 0
    seconds: float = 0.0
    verify_s: float = 0.0
    cleanup: str = ""
    """What became of the log's files afterwards; empty where nobody looked."""

    @property
    def rows(self) -> int:
        """How many rows landed, in all topics."""
        return sum(topic.rows for topic in self.topics if topic.outcome == "landed")

    @property
    def landed(self) -> tuple[TopicLanding, ...]:
        """Topics of which rows landed."""
        return tuple(topic for topic in self.topics if topic.outcome == "landed")

    @property
    def halted(self) -> tuple[TopicLanding, ...]:
        """Topics that need a person; each has its `cause` and what to do."""
        return tuple(topic for topic in self.topics if topic.outcome == "halted")

    @property
    def failed(self) -> tuple[TopicLanding, ...]:
        """Topics that can be tried again: a catalog or a store did not answer."""
        return tuple(topic for topic in self.topics if topic.outcome == "failed")

    def __getitem__(self, topic: str) -> TopicLanding:
        return next(each for each in self.topics if each.topic == topic)

    def __iter__(self) -> Iterator[TopicLanding]:
        return iter(self.topics)

    def __repr__(self) -> str:
        shown = [str(topic) for topic in self.topics if topic.outcome != "nothing"]
        return f"Landed({'; '.join(shown) or 'nothing'})"
