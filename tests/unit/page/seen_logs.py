"""Looks at invented logs for tests of the page: a status of so many topics, and what a ledger says of them."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.lake.ledger_records import Audited
from headwater.metadata.operations import Policy
from headwater.page.ledger_tail import RecentLanding
from headwater.page.looking import Look, Seen
from headwater.topics.answers import GroupDescription, LandingStatus, Status, TopicStatus

AT_US = 1_700_000_000_000_000


def a_topic(name: str, *, rows: int = 10, appended: int = 10, table: str | None = None) -> TopicStatus:
    return TopicStatus(name, 1, rows, rows * 100, appended, (), table, Policy())


def a_standing(
    topic: str, *, lag_rows: int = 0, lag_s: float = 0.0, halted: str = "", message: str = ""
) -> LandingStatus:
    return LandingStatus(topic, f"lake.{topic}", 5, 5, None, lag_rows, 0, lag_s, halted, message, log_first_lsn=3)


def a_status(
    topics: Sequence[TopicStatus],
    landing: Sequence[LandingStatus] = (),
    groups: Sequence[GroupDescription] = (),
    notes: Sequence[str] = (),
) -> Status:
    return Status(
        directory="data",
        log_id="ab" * 16,
        owner=True,
        epoch=1,
        first_lsn=1,
        durable_lsn=10,
        segments=1,
        log_bytes=1000,
        checkpoint_lsn=1,
        replay_bytes=0,
        journal_lsn=1,
        journal_remaining=1000,
        topics=list(topics),
        groups=list(groups),
        producers=0,
        sources={},
        deleted_topics=0,
        landing=list(landing),
        notes=list(notes),
    )


def a_landing(number: int, topic: str = "orders", *, verified_us: int | None = None) -> RecentLanding:
    return RecentLanding(
        at_us=AT_US + number,
        topic_id=topic,
        topic=topic,
        table=f"lake.{topic}",
        commit_id=f"commit {number}",
        snapshot=2**62 + number,
        lsn_from=number,
        lsn_to=number + 1,
        rows=1,
        digest="0123456789abcdef",
        adopted=False,
        verified_us=verified_us,
    )


def an_audit(topic: str = "orders", *, passed: bool = True) -> Audited:
    return Audited(
        at_us=AT_US,
        topic_id=topic,
        table=f"lake.{topic}",
        table_uuid="u",
        snapshot=2**62,
        lsn_to=5,
        rows=5,
        full=False,
        passed=passed,
        differences=0 if passed else 2,
    )


def a_look(seen: Seen, rates: dict[str, float] | None = None) -> Look:
    return Look(1, AT_US, seen, rates or {})
