"""Cleanup: what the topics' policies let go, let go of.

One run, in this order:

    delete    how far each topic lets go (retention.py), then segments and parts of segments (log/deletion.py)
    compact   the topics whose policy asks for it and that have something new (compaction.py)
    forget    deleted topics of which no segment holds a frame any more

PROMISE  What fails is in the report and left as it was, and the rest goes on; only what concerns the log itself is
         raised: Poisoned, Halted, an outcome that is unknown, a log that is closed or another's.
         Nothing is unlinked before the log's new start is durable in the journal: `record_intent`.
ORDER    One cleanup or compaction at a time; a second waits.  Appending and reading go on beside it.
NOT HERE When to run: whoever owns the log.  How far checkpoints reach: `covered_lsn` is given.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from headwater.clock import Clock
from headwater.errors import Closed, Unavailable
from headwater.ids import Lsn
from headwater.log.deletion import Deletion, DeletionReport, RecordIntent, SegmentUse
from headwater.log.frame_log import FrameLog
from headwater.log.pins import PinFound, Pins
from headwater.log.rewrite import Rewritten
from headwater.metadata.operations import DeletedTopic, TopicRecord
from headwater.settings import LogSettings
from headwater.topics.compaction import (
    ONE_TOPICS_TROUBLE,
    CleanupFailure,
    Compacted,
    CompactionReport,
    Reach,
    check_compactable,
    compact_topics,
    compactable_segments,
)
from headwater.topics.retention import ClockCaution, Landings, releases

logger = logging.getLogger("headwater.topics")

ForgetTopics = Callable[[Sequence[int]], object]
"""Returns once it is durable that no frame of these deleted topics is left."""


@dataclass(frozen=True)
class CleanupReport:
    """What a cleanup did, and what it could not do."""

    rows_removed: int = 0
    bytes_saved: int = 0
    deleted: tuple[str, ...] = ()
    """Segments that are gone."""
    drained: tuple[Rewritten, ...] = ()
    """Segments of which only what is still wanted was kept."""
    compacted: tuple[Compacted, ...] = ()
    """One a topic that was compacted, also where nothing could go."""
    forgotten: tuple[int, ...] = ()
    """The numbers of deleted topics of which nothing is left."""
    held_by_pins: tuple[PinFound, ...] = ()
    """Readers for whom segments stay that could be gone."""
    kept: dict[str, str] = field(default_factory=dict)
    """Of each sealed segment that stays, why."""
    notes: tuple[str, ...] = ()
    failures: tuple[CleanupFailure, ...] = ()


class Cleanup:
    """Cleans up one log that this process owns.

    Made when the log is opened: `caution` counts from then."""

    def __init__(
        self,
        log: FrameLog,
        *,
        pins: Pins,
        record_intent: RecordIntent,
        forget_topics: ForgetTopics,
        landings: Landings,
        caution: ClockCaution,
        clock: Clock,
        settings: LogSettings,
    ) -> None:
        self._log = log
        self._pins = pins
        self._deletion = Deletion(log, pins=pins, record_intent=record_intent, clock=clock, settings=settings)
        self._forget_topics = forget_topics
        self._landings = landings
        self._caution = caution
        self._clock = clock
        self._settings = settings
        self._opened_s = clock.monotonic_s()
        self.one_at_a_time = threading.RLock()
        """Held by a run; and by whoever asks for one, from when it looks at what there is: a run that goes by less than
        the one before it has done would take the log's start back."""
        self._reached: dict[int, Reach] = {}

    def notes(self) -> tuple[str, ...]:
        """What a status should say about cleanup now."""
        note = self._caution.note(self._open_for_s())
        return ((note,) if note else ()) + self._landings.notes()

    def run(
        self,
        *,
        topics: Iterable[TopicRecord],
        deleted: Iterable[DeletedTopic],
        log_start: Lsn,
        covered_lsn: Lsn,
        checkpoint_lsn: Lsn | None = None,
    ) -> CleanupReport:
        """Do all that the policies ask for.  `covered_lsn` is as far as two valid checkpoints reach, for deletion;
        `checkpoint_lsn` as far as one does, for compaction, which takes no state away."""
        topics, deleted = list(topics), list(deleted)
        with self.one_at_a_time:
            failures: list[CleanupFailure] = []
            uses = self._uses()
            deletion = self._delete(topics, deleted, uses, log_start, covered_lsn, failures)
            compaction = self._compact_due(topics, covered_lsn if checkpoint_lsn is None else checkpoint_lsn, failures)
            forgotten = self._forget(deleted, failures)
            report = _report(uses, deletion, compaction, forgotten, self.notes(), failures)
        _log(report)
        return report

    def compact(self, topics: Iterable[TopicRecord], *, covered_lsn: Lsn) -> CompactionReport:
        """Compact these topics now, whether or not they have something new.  InvalidRequest, before anything is done,
        where one has no key or its policy does not allow it."""
        topics = list(topics)
        for topic in topics:
            check_compactable(topic)
        with self.one_at_a_time:
            return self._compact(topics, covered_lsn)

    # The parts of a run ----------------------------------------------------------------------

    def _open_for_s(self) -> float:
        return self._clock.monotonic_s() - self._opened_s

    def _may_expire(self) -> bool:
        return self._caution.may_expire(self._open_for_s())

    def _uses(self) -> list[SegmentUse]:
        device = self._log.device
        return [SegmentUse(segment, device.topics_in(segment)) for segment in self._log.segments()]

    def _delete(
        self,
        topics: Sequence[TopicRecord],
        deleted: Sequence[DeletedTopic],
        uses: Sequence[SegmentUse],
        log_start: Lsn,
        covered_lsn: Lsn,
        failures: list[CleanupFailure],
    ) -> DeletionReport | None:
        released = releases(
            topics,
            deleted,
            uses,
            now_us=self._clock.now_us(),
            landings=self._landings,
            may_expire_by_age=self._may_expire(),
            grace_s=self._settings.deletion_grace_s,
        )
        try:
            # The latest row of a key must not go before an earlier one: a key that was deleted would come back.
            keyed = frozenset(topic.number for topic in topics if topic.key)
            return self._deletion.run(log_start=log_start, covered_lsn=covered_lsn, released=released, ordered=keyed)
        except Closed:
            raise
        except ONE_TOPICS_TROUBLE as error:
            failures.append(CleanupFailure("", error))
            return None

    def _compact_due(
        self, topics: Sequence[TopicRecord], covered_lsn: Lsn, failures: list[CleanupFailure]
    ) -> CompactionReport:
        try:
            report = self._compact(self._due(topics, covered_lsn), covered_lsn)
        except Unavailable as error:
            failures.append(CleanupFailure("", error))
            return CompactionReport()
        failures.extend(report.failures)
        return report

    def _due(self, topics: Sequence[TopicRecord], covered_lsn: Lsn) -> list[TopicRecord]:
        """The topics that their policy wants compacted, and of which something new can be."""
        wanted = [topic for topic in topics if topic.key and topic.policy.cleanup != "delete"]
        numbers = {topic.number for topic in wanted}
        self._reached = {number: reach for number, reach in self._reached.items() if number in numbers}
        if not wanted:
            return []
        device = self._log.device
        last_lsns: dict[int, Lsn] = {}
        scope = compactable_segments(self._log, self._pins, covered_lsn)
        for segment in scope:
            for number, share in device.topics_in(segment).items():
                last_lsns[number] = share.last_lsn
        return [topic for topic in wanted if self._is_due(topic, last_lsns.get(topic.number))]

    def _is_due(self, topic: TopicRecord, last_lsn: Lsn | None) -> bool:
        if last_lsn is None:
            return False
        reach = self._reached.get(topic.number)
        if reach is None:
            return True
        if topic.table is not None:
            last_lsn = Lsn(min(last_lsn, self._landings.verified_lsn(topic)))
        if last_lsn > reach.up_to_lsn:
            return True
        if reach.oldest_tombstone_us is None or not self._may_expire():
            return False
        return reach.oldest_tombstone_us + round(topic.policy.tombstones_s * 1_000_000) <= self._clock.now_us()

    def _compact(self, topics: Sequence[TopicRecord], covered_lsn: Lsn) -> CompactionReport:
        if not topics:
            return CompactionReport()
        report = compact_topics(
            self._log,
            topics,
            pins=self._pins,
            now_us=self._clock.now_us(),
            covered_lsn=covered_lsn,
            verified_lsn=self._landings.verified_lsn,
            may_expire_by_age=self._may_expire(),
        )
        self._reached.update(report.finished)
        return report

    def _forget(self, deleted: Sequence[DeletedTopic], failures: list[CleanupFailure]) -> tuple[int, ...]:
        if not deleted:
            return ()
        there = {number for use in self._uses() for number in use.topics}
        gone = tuple(topic.number for topic in deleted if topic.number not in there)
        if not gone:
            return ()
        try:
            self._forget_topics(gone)
        except Closed:
            raise
        except ONE_TOPICS_TROUBLE as error:
            failures.append(CleanupFailure("", error))
            return ()
        return gone


def _report(
    uses: Sequence[SegmentUse],
    deletion: DeletionReport | None,
    compaction: CompactionReport,
    forgotten: tuple[int, ...],
    notes: tuple[str, ...],
    failures: Sequence[CleanupFailure],
) -> CleanupReport:
    deleted = deletion.deleted if deletion is not None else ()
    drained = deletion.drained if deletion is not None else ()
    gone = [use for use in uses if use.segment.name in deleted]
    rewritten = (*drained, *compaction.segments)
    return CleanupReport(
        rows_removed=sum(share.rows for use in gone for share in use.topics.values())
        + sum(each.rows_removed for each in rewritten),
        bytes_saved=sum(use.segment.bytes for use in gone)
        + sum(each.bytes_before - each.bytes_after for each in rewritten),
        deleted=deleted,
        drained=drained,
        compacted=compaction.compacted,
        forgotten=forgotten,
        held_by_pins=deletion.held_by_pins if deletion is not None else (),
        kept=deletion.plan.kept if deletion is not None else {},
        notes=notes,
        failures=tuple(failures),
    )


def _log(report: CleanupReport) -> None:
    for failure in report.failures:
        logger.warning("cleanup: %s", failure)
    if report.rows_removed or report.deleted:
        logger.info(
            "cleanup: %d rows and %d bytes gone, %d segments deleted, %d topics compacted",
            report.rows_removed,
            report.bytes_saved,
            len(report.deleted),
            sum(bool(each.segments) for each in report.compacted),
        )
