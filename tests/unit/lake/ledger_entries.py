"""Records of a ledger for tests, with what a test does not speak of filled in.

A landing up to LSN n has the commit-id "c<n>" and the snapshot n.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from headwater.lake.ledger_records import (
    Audited,
    Begun,
    Decided,
    Ended,
    Erased,
    HaltedLanding,
    Intended,
    Landed,
    LedgerRecord,
    Merged,
    Restored,
    Verified,
)
from headwater.lake.ledger_state import LedgerState, TopicLedger

TOPIC, TABLE = "0b" * 16, "sales.orders"


def begun(commit_id: str, epoch: int = 1, at_us: int = 1) -> Begun:
    return Begun(topic_id=TOPIC, table=TABLE, epoch=epoch, commit_id=commit_id, at_us=at_us)


def intended(commit_id: str, lsn_from: int = 0, lsn_to: int = 10) -> Intended:
    return Intended(
        topic_id=TOPIC,
        table=TABLE,
        commit_id=commit_id,
        base=None,
        lsn_from=lsn_from,
        lsn_to=lsn_to,
        files=("a.parquet",),
        at_us=2,
    )


def landed(lsn_from: int, lsn_to: int, *, rows: int = 1, at_us: int = 3, **other: Any) -> Landed:
    fields: dict[str, Any] = {
        "topic_id": TOPIC,
        "topic": "orders",
        "table": TABLE,
        "table_uuid": "u",
        "commit_id": f"c{lsn_to}",
        "snapshot": lsn_to,
        "digest": None,
        "total": "0" * 16,
        "columns": (),
        "max_row_lsn": lsn_to,
        "epoch": 1,
    }
    return Landed(lsn_from=lsn_from, lsn_to=lsn_to, rows=rows, at_us=at_us, **{**fields, **other})


def verified(lsn_to: int, at_us: int = 4, commit_id: str | None = None) -> Verified:
    return Verified(
        topic_id=TOPIC,
        table=TABLE,
        commit_id=commit_id or f"c{lsn_to}",
        snapshot=lsn_to,
        lsn_to=lsn_to,
        mode="read-back",
        at_us=at_us,
    )


def halted(cause: str, message: str = "look at it") -> HaltedLanding:
    return HaltedLanding(topic_id=TOPIC, table=TABLE, cause=cause, message=message, at_us=5)


def ended(commit_id: str, why: str) -> Ended:
    return Ended(topic_id=TOPIC, table=TABLE, commit_id=commit_id, why=why, at_us=6)


def decided(lsn: int, *, before: int = 0, act: Literal["after-rollback", "landed-lsn"] = "after-rollback") -> Decided:
    return Decided(topic_id=TOPIC, table=TABLE, act=act, lsn=lsn, lsn_before=before, at_us=7)


def merged(lsn_to: int) -> Merged:
    return Merged(topic_id=TOPIC, table=TABLE, commit_id="m", snapshot=1, lsn_from=0, lsn_to=lsn_to, at_us=8)


def erased(lsn_to: int, rows: int = 1, done: tuple[str, ...] = ()) -> Erased:
    return Erased(
        topic_id=TOPIC,
        topic="orders",
        table=TABLE,
        erasure_id="e",
        reason="asked for",
        condition_hash="",
        lsn_to=lsn_to,
        rows=rows,
        offsets=(),
        parts=(),
        done=done,
        at_us=9,
    )


def audited(lsn_to: int, rows: int = 1, differences: int = 0) -> Audited:
    return Audited(
        topic_id=TOPIC,
        table=TABLE,
        table_uuid="u",
        snapshot=lsn_to,
        lsn_to=lsn_to,
        rows=rows,
        full=True,
        passed=not differences,
        differences=differences,
        at_us=10,
    )


def restored(lsn_to: int, rows: int = 1, at_us: int = 11) -> Restored:
    return Restored(
        topic_id=TOPIC,
        topic="orders",
        table=TABLE,
        table_uuid="u",
        log_id_before="0a0b",
        snapshot=lsn_to,
        lsn_before=lsn_to - 1,
        lsn_to=lsn_to,
        rows=rows,
        digest=None,
        columns=(),
        at_us=at_us,
    )


def topic_after(*records: LedgerRecord) -> TopicLedger:
    """What these records make of the topic."""
    return folded(records).topic(TOPIC)


def folded(records: Iterable[LedgerRecord]) -> LedgerState:
    state = LedgerState()
    for record in records:
        state.apply(record)
    return state
