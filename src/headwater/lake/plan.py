"""Which bytes of the log one round of landings reads: from each topic's landed LSN to one LSN for all.

PROMISE  Every row of a wanted topic above its landed LSN and at or below the plan's `lsn_to` is in exactly one range,
         and each segment is in at most one: so a round reads no segment twice, however many topics it has.
         `lsn_to` is a segment's end, or the durable LSN: the end of a write, and no write is cut in two.
BUDGET   A round takes whole segments until their bytes reach the budget, and always the first that has rows, so that
         a log of few large segments is landed too.  Segments without rows of wanted topics cost nothing.
INDEX    Where the wanted topics together have under a tenth of a segment, their frames are read one by one, by the
         index; elsewhere the segment is read through, once for all of them.
PURE     No effects: the caller looks at the log, and turns ranges into byte runs (source.py).
NOT HERE Whether the log still has all rows above a landed LSN: lander.py asks before it plans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headwater.log.device import TopicInSegment

BY_INDEX_PERCENT_MAX = 10
"""Below this share of a segment's bytes, rows are read by the index."""


@dataclass(frozen=True)
class SegmentContent:
    """A segment, as far as a plan needs to know it."""

    name: str
    """Its file in `log/`."""
    first_lsn: int
    last_lsn: int
    """Of the newest segment, the last that is durable."""
    bytes: int
    sealed: bool
    topics: Mapping[int, TopicInSegment]
    """By topic number: what each has in this segment."""


@dataclass(frozen=True, slots=True)
class PlannedRange:
    """Frames of one segment that a round reads."""

    segment: str
    lsn_from: int
    """Frames after this LSN ..."""
    lsn_to: int
    """... and up to this one."""
    topics: tuple[int, ...]
    """The numbers of the topics whose rows are wanted; each from its own landed LSN on."""
    by_index: bool
    bytes: int
    """About how many bytes will be read."""
    item_bytes: int
    """How many of them go into one work item, so that items are about equal."""


@dataclass(frozen=True)
class LandingPlan:
    lsn_to: int
    """What every wanted topic has landed when all ranges are in their tables."""
    ranges: tuple[PlannedRange, ...]

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.ranges)


def plan_landing(
    wanted: Mapping[int, int],
    segments: Sequence[SegmentContent],
    *,
    durable_lsn: int,
    budget_bytes: int,
    item_bytes: int,
) -> LandingPlan:
    """What a round reads: `wanted` is each topic's landed LSN by its number, `segments` the whole log in order."""
    assert item_bytes > 0
    if segments:
        # What is durable and in no segment that was listed came after the listing: it is for the next round.
        durable_lsn = min(durable_lsn, segments[-1].last_lsn)
    lsn_to = durable_lsn
    ranges: list[PlannedRange] = []
    planned_bytes = 0
    for segment in segments:
        if segment.first_lsn > durable_lsn:
            break
        planned = _range_in(segment, wanted, durable_lsn, item_bytes)
        if planned is None:
            continue
        if ranges and planned_bytes + planned.bytes > budget_bytes:
            lsn_to = segment.first_lsn - 1
            break
        ranges.append(planned)
        planned_bytes += planned.bytes
    return LandingPlan(lsn_to, tuple(ranges))


def _range_in(
    segment: SegmentContent, wanted: Mapping[int, int], durable_lsn: int, item_bytes: int
) -> PlannedRange | None:
    """What is wanted of a segment; None where it has no row that is not landed."""
    before = segment.first_lsn - 1
    lsn_to = min(segment.last_lsn, durable_lsn)
    topics = sorted(
        number
        for number, share in segment.topics.items()
        if share.rows and number in wanted and share.last_lsn > wanted[number] and lsn_to > wanted[number]
    )
    if not topics:
        return None
    lsn_from = max(min(wanted[number] for number in topics), before)
    wanted_bytes = sum(segment.topics[number].bytes for number in topics)
    by_index = wanted_bytes * 100 < segment.bytes * BY_INDEX_PERCENT_MAX
    # An index knows each topic's bytes in the whole segment; of a part of it, its share of the LSNs is near enough.
    part = (lsn_to - lsn_from) / (segment.last_lsn - before)
    bytes_read = max(round((wanted_bytes if by_index else segment.bytes) * part), 1)
    items = -(-bytes_read // item_bytes)
    return PlannedRange(
        segment=segment.name,
        lsn_from=lsn_from,
        lsn_to=lsn_to,
        topics=tuple(topics),
        by_index=by_index,
        bytes=bytes_read,
        item_bytes=-(-bytes_read // items),
    )
