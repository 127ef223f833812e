"""How a process becomes the owner of a log on files: recover for writing, raise the epoch, write the mark.

PROMISE  Under the lock, before anything is appended: a torn tail is cut and the cut synced, what no mark covers
         is written and synced again, and a mark with the new epoch is durable (G5, G12).
         All else that is found halts by name, and nothing is changed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headwater.clock import Clock, Entropy
from headwater.errors import DamagedLog
from headwater.frames.frame import NoFrame
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, SegmentHeader
from headwater.ids import Epoch, Lsn
from headwater.log.chain import ChainEnd
from headwater.log.device import Claim
from headwater.log.file_actions import create_segment, restore_reserve, unlink_all
from headwater.log.file_reads import View
from headwater.log.index import ActiveIndex
from headwater.log.mark import Mark, MarkWriter
from headwater.log.names import MARK, SegmentName
from headwater.log.read_findings import check_mark
from headwater.log.recovery import (
    Evidence,
    Found,
    NewestScan,
    RecoveryReport,
    Verdict,
    cleanly_closed,
    judge,
    scan_newest,
)
from headwater.log.segment import Opening
from headwater.log.segments import FoundSegments, LogPlace, Segment, find_segments, lost, unknown_format
from headwater.storage.files import File, Lock

logger = logging.getLogger("headwater.log")


KnownOffsets = Callable[[], Mapping[int, int]]
"""Every partition's next offset as somebody else remembers it, a checkpoint; by index.partition_key."""


@dataclass
class Owner:
    """What only the owner of a log has."""

    claim: Claim
    lock: Lock
    file: File
    mark: MarkWriter
    end: ChainEnd
    position: int
    index: ActiveIndex
    active: Segment


@dataclass(frozen=True)
class Claimed:
    """A claim that has succeeded."""

    owner: Owner
    view: View
    report: RecoveryReport
    forgotten: list[SegmentName]


class Claiming:
    """One attempt to become the owner."""

    def __init__(
        self,
        place: LogPlace,
        *,
        clock: Clock,
        entropy: Entropy,
        log_start: Callable[[], int],
        shard: int,
        mark: Mark | None,
        known_offsets: KnownOffsets | None,
    ) -> None:
        self._place = place
        self._clock = clock
        self._entropy = entropy
        self._log_start = log_start()
        self._shard = shard
        self._mark = mark
        self._known_offsets = known_offsets

    def run(self, lock: Lock) -> Claimed:
        """Recover for writing.  Raises a Halted by name, or OSError where a call failed: then nothing is promised
        and the next try begins from the start."""
        place = self._place
        report = RecoveryReport(owner=True)
        mark = self._mark
        while True:
            found = find_segments(place, self._log_start)
            check_mark(found, mark)
            newest = self._look_at_newest(found)
            good_lsn = newest.end.next_lsn - 1 if newest is not None else found.end.next_lsn - 1
            durable_lsn = max(
                mark.durable_lsn if mark is not None else 0,
                newest.durable_lsn if newest is not None else 0,
            )
            evidence = Evidence(
                found=_what_was_found(found, newest),
                good_lsn=good_lsn,
                durable_lsn=durable_lsn,
                header_needed=self._header_is_needed(found),
                log_start=self._log_start,
            )
            verdict = judge(evidence)
            report.verdict = verdict.value
            report.durable_lsn = durable_lsn
            if verdict is not Verdict.REMOVE:
                break
            assert found.newest_name is not None
            place.files.unlink(place.path(found.newest_name))
            place.files.sync_directory(place.directory)
            report.removed.append(str(found.newest_name))
            logger.warning("removed a roll that was never finished: %s", found.newest_name)
        self._halt_if_needed(verdict, evidence, found, newest)
        if verdict is Verdict.START:
            owner, view = self._start(lock)
        else:
            assert newest is not None
            owner, view = self._continue(lock, found, newest, report)
        self._remove_leftovers(found, view, report)
        restore_reserve(place)
        report.log_id = owner.active.opening.header.log_id.hex()
        report.segments = len(view.segments)
        report.first_lsn = view.segments[0].first_lsn
        report.last_lsn = view.durable_lsn
        report.epoch = owner.claim.epoch
        report.indexes_rebuilt = found.rebuilt
        report.foreign = found.listing.foreign
        logger.info("opened for writing: %s", report)
        return Claimed(owner, view, report, found.forgotten)

    def _header_is_needed(self, found: FoundSegments) -> bool:
        """True where the newest segment cannot be a roll that was never finished: see recovery.py."""
        if found.newest_name is None:
            return False
        if not found.sealed and self._log_start > 1:
            return True
        file = self._place.files.open(self._place.path(found.newest_name))
        try:
            return file.size() > SEGMENT_FRAME_BYTES
        finally:
            file.close()

    def _look_at_newest(self, found: FoundSegments) -> NewestScan | None:
        """Scan the newest segment, or trust its index where the log was closed cleanly."""
        name, opening, mark = found.newest_name, found.newest_opening, self._mark
        if name is None or isinstance(opening, NoFrame):
            return None
        place = self._place
        file = place.files.open(place.path(name))
        try:
            trusted = cleanly_closed(place, name, opening, file, mark)
            if trusted is not None:
                return trusted
            start = ChainEnd(name.first_lsn, opening.chain, opening.header.epoch, found.end.append_time_us)
            return scan_newest(
                file,
                opening,
                SEGMENT_FRAME_BYTES,
                start,
                found.offsets_before(Segment(place, name, opening)),
                mark=mark,
                chunk_bytes=place.settings.scan_chunk_bytes,
            )
        finally:
            file.close()

    def _halt_if_needed(
        self, verdict: Verdict, evidence: Evidence, found: FoundSegments, newest: NewestScan | None
    ) -> None:
        if verdict is Verdict.LOST:
            raise lost(max(evidence.log_start, 1), max(evidence.durable_lsn, evidence.log_start))
        name = found.newest_name
        if verdict is Verdict.UNKNOWN:
            why = newest.why if newest is not None else found.newest_opening
            assert name is not None and isinstance(why, NoFrame)
            raise unknown_format(name, newest.position if newest is not None else 0, why)
        if verdict is Verdict.DAMAGED:
            assert name is not None
            why = newest.why if newest is not None else found.newest_opening
            reason = "its end is missing" if why is None else getattr(why, "value", str(why))
            raise DamagedLog(
                f"rows that were acknowledged cannot be read back: {reason}; "
                "run `headwater log verify`, then `headwater log repair`",
                segment=str(name),
                first_lsn_missing=evidence.good_lsn + 1,
                durable_lsn=evidence.durable_lsn,
            )

    def _start(self, lock: Lock) -> tuple[Owner, View]:
        """A new log: its first segment, empty."""
        claim = Claim(Epoch(self._mark_epoch + 1), self._entropy(16))
        header = SegmentHeader(
            log_id=self._entropy(16),
            salt=self._entropy(8),
            first_lsn=1,
            prev=0,
            epoch=claim.epoch,
            created_us=self._clock.now_us(),
            shard=self._shard,
        )
        active, file = create_segment(self._place, header, _plainly)
        end = ChainEnd(1, active.opening.chain, claim.epoch, 0)
        return self._own(lock, claim, active, file, end, SEGMENT_FRAME_BYTES, ActiveIndex(1, {}), ())

    def _continue(
        self, lock: Lock, found: FoundSegments, newest: NewestScan, report: RecoveryReport
    ) -> tuple[Owner, View]:
        """Go on where the newest segment's last whole write ends."""
        assert found.newest_name is not None and isinstance(found.newest_opening, Opening)
        place = self._place
        active = Segment(place, found.newest_name, found.newest_opening)
        self._add_known_offsets(found, active, newest.index)
        active.set_index(newest.index)
        file = place.files.open(place.path(active.name), writable=True)
        if newest.file_bytes > newest.position:
            file.truncate(newest.position)
            file.sync_all()
            report.bytes_cut = newest.file_bytes - newest.position
            report.why_cut = newest.why.value if newest.why is not None else "an unfinished write"
            logger.warning("cut a torn tail of %d bytes: %s", report.bytes_cut, report.why_cut)
        self._write_again(file, newest, report)
        place.files.sync_directory(place.directory)
        report.frames_scanned = newest.frames
        report.clean = self._mark.clean if self._mark is not None else False
        highest = max(newest.end.epoch, self._mark_epoch)
        claim = Claim(Epoch(highest + 1), self._entropy(16))
        return self._own(lock, claim, active, file, newest.end, newest.position, newest.index, tuple(found.sealed))

    def _add_known_offsets(self, found: FoundSegments, active: Segment, index: ActiveIndex) -> None:
        """No offset may be given out twice, also not one of a row that was forgotten with its segment."""
        if self._known_offsets is None and not found.offsets_are_known(active):
            raise DamagedLog(
                "the index of the log's first segment cannot be read, and it alone knew the offsets of rows that were "
                "forgotten: open the log with the offsets of a checkpoint",
                segment=str((found.sealed[0] if found.sealed else active).name),
            )
        known = self._known_offsets() if self._known_offsets is not None else {}
        offsets = index.next_offsets()
        for key, following in known.items():
            offsets[key] = max(offsets.get(key, 0), following)

    def _write_again(self, file: File, newest: NewestScan, report: RecoveryReport) -> None:
        """Write and sync what no mark covers: after a failed sync the page cache can hold bytes, marked clean,
        that no later sync would write."""
        mark = self._mark
        start = SEGMENT_FRAME_BYTES
        if mark is not None and mark.segment == newest.index.first_lsn:
            start = min(max(mark.position, start), newest.position)
        else:
            start = 0
        position = start
        while position < newest.position:
            size = min(self._place.settings.scan_chunk_bytes, newest.position - position)
            file.write_at(position, file.read_at(position, size))
            position += size
        if position > start:
            file.sync_all()
            report.bytes_rewritten = position - start

    def _own(
        self,
        lock: Lock,
        claim: Claim,
        active: Segment,
        file: File,
        end: ChainEnd,
        position: int,
        index: ActiveIndex,
        sealed: tuple[Segment, ...],
    ) -> tuple[Owner, View]:
        active.set_index(index)
        # The claim's mark is durable before its first frame: see WHY in mark.py.
        first = Mark(
            counter=self._mark.counter if self._mark is not None else 0,
            log_id=active.opening.header.log_id,
            durable_lsn=end.next_lsn - 1,
            segment=active.first_lsn,
            position=position,
            epoch=claim.epoch,
        )
        writer = MarkWriter(self._open_mark_for_writing(), first)
        if self._mark is not None:
            # After a failed sync the mark that was read can be in the page cache alone, and the slot that is written
            # next can be the only one on disk: no power loss may take both.
            writer.write_again(self._mark)
            writer.sync()
        writer.write(durable_lsn=first.durable_lsn, segment=first.segment, position=first.position)
        writer.sync()
        self._place.files.sync_directory(self._place.directory)
        owner = Owner(claim, lock, file, writer, end, position, index, active)
        return owner, View((*sealed, active), Lsn(first.durable_lsn), position)

    @property
    def _mark_epoch(self) -> int:
        return self._mark.epoch if self._mark is not None else 0

    def _open_mark_for_writing(self) -> File:
        place = self._place
        try:
            return place.files.open(place.path(MARK), writable=True)
        except FileNotFoundError:
            return place.files.create(place.path(MARK))

    def _remove_leftovers(self, found: FoundSegments, view: View, report: RecoveryReport) -> None:
        """Our own temporaries, replaced generations, and indexes without a segment.  Segments whose deletion was
        intended before a crash stay until forget() is called: a reader may hold them by a pin."""
        kept = {segment.name for segment in view.segments} | set(found.forgotten)
        names = [
            *found.listing.temporaries,
            *(str(name) for name in found.superseded),
            *(name.index for name in found.listing.indexes if name not in kept),
        ]
        report.removed.extend(unlink_all(self._place, names))


def _what_was_found(found: FoundSegments, newest: NewestScan | None) -> Found:
    if found.newest_name is None:
        return Found.NOTHING
    if newest is not None:
        return newest.found
    # Whole bytes that break a rule come from another version, not from a crash.
    return Found.UNKNOWN if found.newest_opening in (NoFrame.RULE, NoFrame.KIND) else Found.HEADLESS


def _plainly(verb: Callable[[], None]) -> None:
    """While a log is being claimed nothing has been promised yet: a failed sync only fails the claim."""
    verb()
