"""The end of a schedule: one lander alone, a person who decides, and every promise looked at once more (L6).

A halt must be deserved: by what was done to the table, not by what the product thinks of it.  Then the person does what
docs/landing.md says, and truthfully: the landing must go on, or stay halted because rows are nowhere any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol

from headwater.lake.report import LandingReport, TopicLanding
from headwater.lake.standing import Decisions
from headwater.metadata.operations import TopicRecord
from tests.simulation.lake_checks import Judge, deserved, proven, silent
from tests.simulation.lake_log import LedgerRecords, SimulatedLog
from tests.simulation.lake_moods import Counts, Mood
from tests.simulation.lake_owner import Owner

ROUNDS_MAX = 40


class Settling(Protocol):
    """What it needs of a schedule."""

    mood: Mood
    judge: Judge
    log: SimulatedLog
    ledger: LedgerRecords
    owner: Owner
    counts: Counts
    topics: dict[str, TopicRecord]
    violations: list[str]

    def violated(self, what: str) -> None: ...

    def last_round(self, topics: Sequence[TopicRecord], decisions: Decisions) -> LandingReport: ...


class Settler:
    """One lander alone with a person who decides."""

    def __init__(self, schedule: Settling) -> None:
        self._schedule = schedule
        self._after_rollback: set[str] = set()
        self._landed_lsn: dict[str, int] = {}
        self._stays: dict[str, str] = {}
        """Topics that stay halted, and why that is right."""
        self._clean: Counter[str] = Counter()

    def settle(self) -> None:
        schedule = self._schedule
        for _ in range(ROUNDS_MAX):
            topics = [topic for topic in schedule.topics.values() if not self._settled(topic)]
            if not topics:
                break
            decisions = Decisions(frozenset(self._after_rollback), dict(self._landed_lsn))
            report = schedule.last_round(topics, decisions)
            for topic, told in zip(topics, report, strict=True):
                self._judge(topic, told, idle=not any(each.rows for each in report))
                if schedule.violations:
                    return
        else:
            schedule.violated(f"L6: after many rounds a lander still has something to do: {self._clean}")

    def _settled(self, topic: TopicRecord) -> bool:
        return topic.name in self._stays or self._clean[topic.name] >= 2

    def _judge(self, topic: TopicRecord, told: TopicLanding, idle: bool) -> None:
        schedule = self._schedule
        schedule.counts.outcomes[f"at last {told.outcome} {told.cause}".strip()] += 1
        match told.outcome:
            case "nothing" if not idle:
                # The round's budget went to other topics.
                pass
            case "nothing":
                self._clean[topic.name] += 1
                schedule.judge.complete(_table(topic), topic.number)
                if self._clean[topic.name] >= 2 and not told.verified and not schedule.judge.lost:
                    schedule.violated(f"L6: {topic.name} is never verified, and nobody is told by name: {told.message}")
            case "landed":
                self._clean[topic.name] = 0
            case "halted":
                self._decide(topic, told)
            case _:
                schedule.violated(f"L6: {topic.name} is {told.outcome}, and nothing is wrong: {told.message}")

    def _decide(self, topic: TopicRecord, told: TopicLanding) -> None:
        schedule, table = self._schedule, _table(topic)
        why = deserved(schedule.judge, told.cause, table, topic.number, schedule.ledger.state(), topic.topic_id.hex())
        if why is not None:
            schedule.violated(f"L6: halted by {told.cause}, but {why}: {told.message}")
            return
        truth = schedule.judge.truth(table)
        landed = truth.landed if truth.number == topic.number else 0
        if truth.spoiled:
            schedule.owner.mend(table)
            return
        version = schedule.judge.catalog.tables.get(table)
        match told.cause:
            case "gap" if landed and version is not None and silent(schedule.judge, version):
                self._stays[topic.name] = "its owner has deleted every row, and all that spoke of them"
            case "gap" if (
                "cherry-picked" in told.message and version is not None and not proven(schedule.judge, version)
            ):
                self._stays[topic.name] = "what was picked follows nothing that is still there"
            case "gap":
                if topic.name in self._after_rollback:
                    if schedule.log.forgotten.get(topic.number, 0) <= landed and schedule.mood.can_tell:
                        schedule.violated(f"L6: the log has every row, a person said so, and it halts: {told.message}")
                    self._stays[topic.name] = "the log has forgotten what the table lacks"
                self._after_rollback.add(topic.name)
                schedule.judge.permitted.add(topic.number)
            case "mark-unproven" if truth.number not in {0, topic.number}:
                # Rows of an earlier topic of the name: this one needs a table of its own.
                schedule.owner.drop(table)
            case "mark-unproven":
                self._landed_lsn[topic.name] = landed
                schedule.judge.permitted.add(topic.number)
            case "foreign-mark":
                schedule.owner.drop(table)
            case "verification" if not schedule.judge.lost:
                # Its owner has deleted rows, and the snapshot that had them is gone: a person answers for it.
                self._landed_lsn[topic.name] = schedule.ledger.state().topic(topic.topic_id.hex()).landed_lsn
            case "schema":
                schedule.owner.drop_required_columns(table)
            case _:
                self._stays[topic.name] = told.cause


def _table(topic: TopicRecord) -> str:
    assert topic.table is not None
    return topic.table
