"""Landings that a test makes up: which LSN of which topic was verified when."""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.metadata.operations import TopicRecord


@dataclass
class KnownLandings:
    """By topic number, (LSN, when it was verified) in order."""

    verified: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    said: tuple[str, ...] = ()
    asked: list[str] = field(default_factory=list)
    """The topics that somebody asked about."""

    def add(self, number: int, lsn: int, at_us: int = 0) -> None:
        self.verified.setdefault(number, []).append((lsn, at_us))

    def verified_lsn(self, topic: TopicRecord) -> int:
        self.asked.append(topic.name)
        return max((lsn for lsn, _ in self.verified.get(topic.number, [])), default=0)

    def verified_before(self, topic: TopicRecord, before_us: int) -> tuple[int, int] | None:
        self.asked.append(topic.name)
        return max((each for each in self.verified.get(topic.number, []) if each[1] <= before_us), default=None)

    def notes(self) -> tuple[str, ...]:
        return self.said


def landed_at_once(number: int, lsn: int) -> KnownLandings:
    """One topic, verified up to an LSN since the beginning of time."""
    return KnownLandings({number: [(lsn, 0)]} if lsn else {})
