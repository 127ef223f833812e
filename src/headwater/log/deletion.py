"""When the log may let go of a segment: a pure plan, and five lines that act on it.

A sealed segment goes when every topic in it is released up to its last frame there, and has been for the grace
period; when its last LSN is covered (two valid checkpoints of the state that is folded from it); when no pin
needs it; and when every segment before it goes: deletion is of a prefix.  Elsewhere a segment of which less than
half is still wanted is drained: rewritten without the rest, so that one topic that is held up does not hold
the disk.

What releases a topic, a verified landing, an expired retention, its deletion, is decided by whoever asks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headwater.clock import Clock
from headwater.errors import Unavailable
from headwater.frames.bodies import GapReason
from headwater.frames.frame import Header, Kind
from headwater.ids import NO_TOPIC, Lsn
from headwater.log.device import SegmentInfo, TopicInSegment
from headwater.log.frame_log import FrameLog
from headwater.log.pins import PinFound, Pins
from headwater.log.rewrite import KEEP, REMOVE, Rewritten, rewrite_segment
from headwater.settings import LogSettings

logger = logging.getLogger("headwater.log")

DRAIN_LIVE_PERCENT_BELOW = 50


@dataclass(frozen=True)
class Release:
    """A topic's rows up to this LSN may go, and might have gone since this time."""

    lsn: Lsn
    since_us: int


@dataclass(frozen=True)
class SegmentUse:
    """A segment and what each topic has in it."""

    segment: SegmentInfo
    topics: Mapping[int, TopicInSegment]


@dataclass(frozen=True)
class DeletionPlan:
    log_start: Lsn
    """The log's start once the plan has been carried out."""
    delete: tuple[str, ...]
    drain: tuple[str, ...]
    kept: dict[str, str] = field(default_factory=dict)
    """Of each other sealed segment, what keeps it."""
    held_back: dict[str, frozenset[int]] = field(default_factory=dict)
    """Of a segment that is drained, the topics whose rows stay in it all the same, because older ones stay too."""


@dataclass(frozen=True)
class DeletionIntent:
    """What is recorded, durably, before the first file goes."""

    log_start: Lsn
    segments: tuple[str, ...]


@dataclass(frozen=True)
class DeletionReport:
    plan: DeletionPlan
    deleted: tuple[str, ...]
    held_by_pins: tuple[PinFound, ...]
    drained: tuple[Rewritten, ...]


RecordIntent = Callable[[DeletionIntent], object]
"""Returns once the intent is durable; from then on the log's start is the intent's."""


def plan_deletion(
    uses: Sequence[SegmentUse],
    *,
    log_start: Lsn,
    covered_lsn: Lsn,
    released: Mapping[int, Release],
    pins: Sequence[Lsn],
    now_us: int,
    grace_s: float,
    ordered: Collection[int] = (),
) -> DeletionPlan:
    """What may go now, and what keeps the rest.

    The rows of an `ordered` topic go from the oldest on and in no other order: where a row replaces an earlier one, the
    earlier one must not outlive it."""
    ripe = past_grace(released, now_us, grace_s)
    lowest_pin = min(pins, default=None)
    delete: list[str] = []
    to_drain: list[str] = []
    kept: dict[str, str] = {}
    held_back: dict[str, frozenset[int]] = {}
    stuck: set[int] = set()
    prefix = True
    for use in uses:
        segment = use.segment
        if not segment.sealed:
            continue
        dead = {topic for topic, share in use.topics.items() if _is_released(topic, share, covered_lsn, ripe)} - stuck
        live_bytes = sum(share.bytes for topic, share in use.topics.items() if topic not in dead)
        all_bytes = sum(share.bytes for share in use.topics.values())
        why = ""
        if lowest_pin is not None and lowest_pin <= segment.last_lsn:
            why = f"pinned from lsn {lowest_pin}"
        elif segment.last_lsn > covered_lsn:
            why = f"covered only up to lsn {covered_lsn}"
        elif live_bytes:
            wanted = sorted(topic for topic in use.topics if topic not in dead)
            why = f"topics not released: {', '.join(map(str, wanted))}"
            if live_bytes * 100 < all_bytes * DRAIN_LIVE_PERCENT_BELOW:
                to_drain.append(segment.name)
        elif not prefix:
            # All of it may go but something before it stays: it shrinks to its header and a gap.
            why = "an earlier segment is kept"
            if all_bytes:
                to_drain.append(segment.name)
        if why:
            kept[segment.name] = why
            prefix = False
            if to_drain[-1:] == [segment.name]:
                held_back[segment.name] = frozenset(stuck.intersection(use.topics))
            else:
                stuck.update(topic for topic in ordered if topic in use.topics)
        else:
            delete.append(segment.name)
            log_start = Lsn(max(log_start, segment.last_lsn + 1))
    return DeletionPlan(log_start, tuple(delete), tuple(to_drain), kept, held_back)


def past_grace(released: Mapping[int, Release], now_us: int, grace_s: float) -> dict[int, Release]:
    """The releases that have stood for the grace period; the others do not count yet."""
    before_us = now_us - round(grace_s * 1_000_000)
    return {topic: release for topic, release in released.items() if release.since_us <= before_us}


def _is_released(topic: int, share: TopicInSegment, covered_lsn: Lsn, ripe: Mapping[int, Release]) -> bool:
    if topic == NO_TOPIC:
        # Frames of no topic are state, and state is in the checkpoints.
        return share.last_lsn <= covered_lsn
    release = ripe.get(topic)
    return release is not None and share.last_lsn <= release.lsn


def drain(log: FrameLog, name: str, *, released: Mapping[int, Release], covered_lsn: Lsn) -> Rewritten:
    """Rewrite a segment without the frames of topics that are released (past their grace: see past_grace), and
    without state that is covered.

    A topic that keeps later frames keeps its schemas too: a segment describes the rows in it."""
    shares = next((log.device.topics_in(segment) for segment in log.segments() if segment.name == name), {})

    def decide(header: Header, body: memoryview) -> bool:
        if header.topic_number == NO_TOPIC:
            return KEEP if header.lsn > covered_lsn else REMOVE
        release = released.get(header.topic_number)
        if release is None:
            return KEEP
        lsn = shares[header.topic_number].last_lsn if header.kind == Kind.SCHEMA else header.lsn
        return KEEP if lsn > release.lsn else REMOVE

    return rewrite_segment(log, name, decide, reason=GapReason.DRAINED)


class Deletion:
    """Carries out deletion plans for one log that this process owns."""

    def __init__(
        self, log: FrameLog, *, pins: Pins, record_intent: RecordIntent, clock: Clock, settings: LogSettings
    ) -> None:
        self._log = log
        self._pins = pins
        self._record_intent = record_intent
        self._clock = clock
        self._settings = settings

    def run(
        self, *, log_start: Lsn, covered_lsn: Lsn, released: Mapping[int, Release], ordered: Collection[int] = ()
    ) -> DeletionReport:
        """Plan, save the offsets of what goes, record the intent, look at the pins once more, and only then delete;
        then drain.

        Segments whose deletion was recorded earlier and did not succeed are tried again."""
        device = self._log.device
        self._log.claim()
        device.take_in()
        now_us = self._clock.now_us()
        grace_s = self._settings.deletion_grace_s
        uses = [SegmentUse(segment, device.topics_in(segment)) for segment in self._log.segments()]
        plan = plan_deletion(
            uses,
            log_start=log_start,
            covered_lsn=covered_lsn,
            released=released,
            pins=[pin.lsn for pin in self._pins.read()],
            now_us=now_us,
            grace_s=grace_s,
            ordered=ordered,
        )
        if plan.delete:
            if not self._log.exclusively(lambda: device.remember_offsets(plan.log_start)):
                raise Unavailable(
                    "the offsets of rows that were to go could not be saved: nothing was deleted; try again",
                    log_start=plan.log_start,
                )
            self._record_intent(DeletionIntent(plan.log_start, plan.delete))
        pins = self._pins.read()
        held = tuple(pin for pin in pins if pin.lsn < plan.log_start)
        deleted: list[str] = []
        if not held:
            deleted = self._log.exclusively(lambda: device.forget(plan.log_start))
        lowest_pin = min((pin.lsn for pin in pins), default=None)
        ripe = past_grace(released, now_us, grace_s)
        last_lsns = {use.segment.name: use.segment.last_lsn for use in uses}
        drained = []
        for name in plan.drain:
            # A pin that came since the plan was made keeps what is in it.
            if lowest_pin is None or last_lsns[name] < lowest_pin:
                going = {topic: each for topic, each in ripe.items() if topic not in plan.held_back[name]}
                drained.append(drain(self._log, name, released=going, covered_lsn=covered_lsn))
        return DeletionReport(plan, tuple(deleted), held, tuple(drained))
