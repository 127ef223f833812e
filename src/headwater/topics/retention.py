"""How far each topic lets go of its rows: pure, from policies and from what every segment holds.

    by age       a sealed segment's rows go once its last frame is older than `retention_s`
    by size      while a topic has more than `retention_bytes`, the rows in its oldest sealed segment go
    deleted      all of a deleted topic goes
    otherwise    rows are kept: where there is no retention, and where the policy is "compact" alone

PROMISE  Of a topic with a table nothing above its verified landed LSN is released, and only what lies at or below
         it counts towards a size.
         While the clock cannot be trusted nothing is released by age (ClockCaution).
ORDER    A release is of a prefix of the topic: up to an LSN.
NOT HERE When a segment goes, and what else keeps it (pins, grace, checkpoints): log/deletion.py.
         Letting go of rows because they have landed: whoever lands them knows since when they may go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headwater.ids import Lsn
from headwater.log.deletion import Release, SegmentUse
from headwater.metadata.operations import DeletedTopic, Policy, TopicRecord

VerifiedLsn = Callable[[TopicRecord], int]
"""How far the rows of a topic are verified in its table; 0 where nothing has landed, or where that cannot be told."""

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
    verified_lsn: VerifiedLsn,
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
        if policy.cleanup == "compact" or (policy.retention_s is None and policy.retention_bytes is None):
            emptied = _emptied(topic.number, uses)
            if emptied is not None:
                found[topic.number] = emptied
            continue
        upper = verified_lsn(topic) if topic.table is not None else None
        release = _release(_parts(topic.number, uses, upper), policy, now_us, grace_s, may_expire_by_age)
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


def _release(
    parts: list[_Part], policy: Policy, now_us: int, grace_s: float, may_expire_by_age: bool
) -> Release | None:
    ripe_us = now_us - round(grace_s * _US)
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
