"""How far each topic lets go of its rows: pure, from policies and from what every segment holds.

    by age       a sealed segment's rows go once its last frame is older than `retention_s`
    by size      while a topic has more than `retention_bytes`, the rows in its oldest sealed segment go
    landed       rows of a topic with a table go once they are verified there, or, where it has a retention, as long
                 after their verification as that says
    deleted      all of a deleted topic goes
    otherwise    rows are kept: without a table and a retention, and where the policy is "compact" alone

PROMISE  Of a topic with a table nothing above its verified landed LSN is released, and only what lies at or below
         it counts towards a size.
         While the clock cannot be trusted nothing is released by age (ClockCaution).  A landing without a retention is
         not an age: a log that is opened once in two days would else keep for ever what has landed.
ORDER    A release is of a prefix of the topic: up to an LSN.
NOT HERE When a segment goes, and what else keeps it (pins, grace, checkpoints): log/deletion.py.
         What has landed, and when it was verified: whoever keeps the ledger says it (Landings).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headwater.ids import Lsn
from headwater.log.deletion import Release, SegmentUse
from headwater.metadata.operations import DeletedTopic, Policy, TopicRecord

VerifiedLsn = Callable[[TopicRecord], int]
"""How far the rows of a topic are verified in its table; 0 where nothing has landed, or where that cannot be told."""


class Landings(Protocol):
    """What the tables are known to hold.  It answers at once and never raises: what it cannot tell is not verified."""

    def verified_lsn(self, topic: TopicRecord) -> int:
        """Up to which LSN the topic's rows have been shown to be in its table; 0: none."""
        ...

    def verified_before(self, topic: TopicRecord, before_us: int) -> tuple[int, int] | None:
        """The greatest LSN that was verified at or before this time, and when it was."""
        ...

    def notes(self) -> tuple[str, ...]:
        """What a status should say about them now."""
        ...


class NoLandings:
    """Where nobody lands, nothing has landed."""

    def verified_lsn(self, topic: TopicRecord) -> int:
        return 0

    def verified_before(self, topic: TopicRecord, before_us: int) -> tuple[int, int] | None:
        return None

    def notes(self) -> tuple[str, ...]:
        return ()


NOTHING_LANDED = NoLandings()

_US = 1_000_000
CLOCK_AHEAD_US_MAX = 86_400 * _US
CAUTION_S = 3600.0


@dataclass(frozen=True)
class ClockCaution:
    """Whether time may be believed, from the wall clock at the open and the newest frame's append time (0: none).

    A clock that is behind the newest frame, or more than a day past it, may be wrong: for an hour nothing expires by
    age, so that a person or a time server can set it right before anything is lost.  The hour is counted by a
    monotonic clock, because the other one is what is in doubt."""

    opened_us: int
    newest_append_time_us: int

    @property
    def reason(self) -> str:
        """What is odd about the clock; empty where nothing is."""
        ahead_us = self.opened_us - self.newest_append_time_us
        if not self.newest_append_time_us or 0 <= ahead_us <= CLOCK_AHEAD_US_MAX:
            return ""
        if ahead_us < 0:
            return f"the clock was {-ahead_us / _US:.1f} s behind the newest frame when the log was opened"
        return f"the clock was {ahead_us / _US / 86_400:.1f} days past the newest frame when the log was opened"

    def may_expire(self, open_for_s: float) -> bool:
        """Whether rows may expire by age now that the log has been open for so long."""
        return not self.reason or open_for_s >= CAUTION_S

    def note(self, open_for_s: float) -> str:
        """What a status says about it; empty where there is nothing to say."""
        if self.may_expire(open_for_s):
            return ""
        return f"nothing expires by age for {CAUTION_S - open_for_s:.0f} s more: {self.reason}"


def releases(
    topics: Iterable[TopicRecord],
    deleted: Iterable[DeletedTopic],
    uses: Sequence[SegmentUse],
    *,
    now_us: int,
    landings: Landings,
    may_expire_by_age: bool,
    grace_s: float = 0.0,
) -> dict[int, Release]:
    """How far each topic may go, and since when it might have; topics that keep all they have are not in it.

    What has been releasable for less than `grace_s` is left for another time.  A release has one time, its newest
    part's: if it took in what has just expired, a log that seals segments faster than grace passes would never find a
    release past its grace."""
    found = {}
    for topic in topics:
        policy = topic.policy
        ripe_us = now_us - round(grace_s * _US)
        release: Release | None
        if policy.cleanup == "compact":
            release = _emptied(topic.number, uses)
        elif topic.table is not None:
            release = _landed(topic, uses, landings, ripe_us, may_expire_by_age)
        elif policy.retention_s is None and policy.retention_bytes is None:
            release = _emptied(topic.number, uses)
        else:
            release = _release(_parts(topic.number, uses, None), policy, ripe_us, may_expire_by_age)
        if release is not None:
            found[topic.number] = release
    newest = max((use.segment.last_lsn for use in uses), default=Lsn(0))
    for gone in deleted:
        if any(gone.number in use.topics for use in uses):
            found[gone.number] = Release(newest, gone.deleted_us)
    return found


def _emptied(number: int, uses: Sequence[SegmentUse]) -> Release | None:
    """The oldest segments in which a compaction has left no row of the topic, but what describes its rows."""
    last_lsn: Lsn | None = None
    for use in uses:
        share = use.topics.get(number)
        if share is None:
            continue
        if share.rows or not use.segment.sealed:
            break
        last_lsn = share.last_lsn
    return None if last_lsn is None else Release(last_lsn, 0)


def _landed(
    topic: TopicRecord, uses: Sequence[SegmentUse], landings: Landings, ripe_us: int, may_expire_by_age: bool
) -> Release | None:
    """What its table holds: as long after the verification as its retention says, or sooner if it is too much."""
    policy = topic.policy
    verified_lsn = landings.verified_lsn(topic)
    by_size = _release(_parts(topic.number, uses, verified_lsn), policy, ripe_us, may_expire_by_age=False)
    if policy.retention_s is None:
        if policy.retention_bytes is not None:
            return by_size
        kept_us = 0
    elif may_expire_by_age:
        kept_us = round(policy.retention_s * _US)
    else:
        return by_size
    verified = landings.verified_before(topic, ripe_us - kept_us)
    if verified is None or (by_size is not None and by_size.lsn >= verified[0]):
        return by_size
    return Release(Lsn(verified[0]), verified[1] + kept_us)


@dataclass(frozen=True)
class _Part:
    """What a topic has in one segment."""

    last_lsn: Lsn
    bytes: int
    sealed: bool
    sealed_us: int
    """When the segment after it was begun."""
    created_us: int
    last_append_time_us: int


def _parts(number: int, uses: Sequence[SegmentUse], upper: int | None) -> list[_Part]:
    """The topic's part of each segment that has one, oldest first, as far as it may be released at all."""
    parts = []
    for at, use in enumerate(uses):
        share = use.topics.get(number)
        if share is None:
            continue
        if upper is not None and share.last_lsn > upper:
            break
        segment = use.segment
        sealed_us = uses[at + 1].segment.created_us if at + 1 < len(uses) else segment.created_us
        parts.append(
            _Part(
                share.last_lsn,
                share.bytes,
                segment.sealed,
                sealed_us,
                segment.created_us,
                segment.last_append_time_us,
            )
        )
    return parts


def _release(parts: list[_Part], policy: Policy, ripe_us: int, may_expire_by_age: bool) -> Release | None:
    exceeded_us = _exceeded_us(parts, policy.retention_bytes)
    found: Release | None = None
    for part, too_much_since_us in zip(parts, exceeded_us, strict=True):
        moments = []
        if policy.retention_s is not None and may_expire_by_age:
            moments.append(part.last_append_time_us + round(policy.retention_s * _US))
        if too_much_since_us is not None:
            moments.append(too_much_since_us)
        since_us = min(moments, default=None)
        if not part.sealed or since_us is None or since_us > ripe_us:
            break
        # A later part may have been free to go before an earlier one, which then is what held it up.
        found = Release(part.last_lsn, max(since_us, found.since_us) if found is not None else since_us)
    return found


def _exceeded_us(parts: list[_Part], limit_bytes: int | None) -> list[int | None]:
    """Of each part, since when it and the younger ones together are above the limit; None where they are not.

    All that is known is the segment in which the limit was passed: its beginning counts, or the part's own sealing
    where that came later."""
    if limit_bytes is None:
        return [None] * len(parts)
    found: list[int | None] = []
    total = end = 0
    for part in parts:
        while total <= limit_bytes and end < len(parts):
            total += parts[end].bytes
            end += 1
        found.append(max(parts[end - 1].created_us, part.sealed_us) if total > limit_bytes else None)
        total -= part.bytes
    return found
