"""The log on files: one directory, one owner by its lock, any number of readers by the mark.

PROMISE  commit() returns only after a sync that began after the last byte of the commit was written (G1).
         What a failed write left behind is cut and the cut is synced before the commit is refused (G7).
         After a failed sync nothing is promised any more: Poisoned (G12).
ORDER    A roll syncs the old segment and saves its index, then makes the new segment and syncs its name,
         and only then lets the first frame into it.
NOT HERE Who may append when, and offsets: writer.py.  What a finding means: recovery.py.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headwater.clock import Clock, Entropy
from headwater.errors import (
    Closed,
    InvalidRequest,
    LogLocked,
    OutcomeUnknown,
    Poisoned,
    Unavailable,
)
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, SegmentHeader
from headwater.ids import Epoch, Lsn
from headwater.log.chain import ChainEnd, Sealed, seal_writes
from headwater.log.device import Claim, PlacedWrite
from headwater.log.file_actions import create_segment, restore_reserve, unlink_all, write_aside
from headwater.log.file_reads import FileReads, View
from headwater.log.index import ActiveIndex
from headwater.log.names import LOCK, RESERVE, SegmentName
from headwater.log.ownership import Claimed, Claiming, KnownOffsets, Owner
from headwater.log.segments import LogPlace, Segment, next_offsets_after, segment_named
from headwater.storage.files import Lock, LockHeld

logger = logging.getLogger("headwater.log")

_FULL = (errno.ENOSPC, errno.EDQUOT)
_NOT_OURS = (errno.EROFS, errno.EACCES, errno.EPERM)


class DurableTicket(NamedTuple):
    """The ticket of a commit that was durable when commit() returned."""

    first_lsn: Lsn

    def wait(self) -> None:
        """Nothing to wait for."""


class FileDevice(FileReads):
    """See device.py for what each verb promises."""

    window = 1

    def __init__(
        self,
        place: LogPlace,
        *,
        clock: Clock,
        entropy: Entropy,
        log_start: Callable[[], int],
        known_offsets: KnownOffsets | None = None,
        shard: int = 0,
    ) -> None:
        super().__init__(place, log_start)
        self._clock = clock
        self._entropy = entropy
        self._shard = shard
        self._known_offsets = known_offsets
        self._owner: Owner | None = None
        self._poisoned: OSError | BaseException | None = None
        self._pid = os.getpid()
        self._closed = False
        self._forgotten: list[SegmentName] = []
        self._replaced: list[SegmentName] = []

    def refresh(self) -> Lsn:
        """How far the log is durable; an owner knows without looking."""
        if self._owner is not None or self._closed:
            return self._view.durable_lsn
        return super().refresh()

    def _look_again(self) -> Lsn:
        # It may have become the owner's since this reader came.
        return super()._look_again() if self._owner is None else self._view.durable_lsn

    def _plan_again(self) -> None:
        """An owner's View is already the new one."""
        with self._looking:
            if self._owner is None:
                super()._plan_again()

    # Owning it -------------------------------------------------------------------------------

    @property
    def claimed(self) -> bool:
        return self._owner is not None

    def claim(self) -> Claim:
        """Take the lock, recover, raise the epoch.  LogLocked names the process that has it."""
        self._check_usable()
        if self._owner is not None:
            return self._owner.claim
        place = self._place
        try:
            place.files.make_directory(place.directory)
            lock = place.files.lock(place.path(LOCK), f"pid {os.getpid()}")
            claimed = self._claim_under(lock)
        except LockHeld as error:
            raise LogLocked(
                f"the log is owned by {error.holder}: stop that process, or open the log there",
                directory=place.directory,
                holder=error.holder,
            ) from error
        except OSError as error:
            if error.errno in _NOT_OURS:
                raise InvalidRequest(
                    f"the directory cannot be written ({error}): only reading works here", directory=place.directory
                ) from error
            place.counters.io_errors += 1
            raise Unavailable(f"the log could not be recovered: {error}", directory=place.directory) from error
        # A reader of this open log that is still looking would show an older View over the owner's.
        with self._looking:
            self._owner = claimed.owner
            self._forgotten = claimed.forgotten
            self.report = claimed.report
            self._show(claimed.view)
        self._save_rebuilt_indexes()
        return claimed.owner.claim

    def _save_rebuilt_indexes(self) -> None:
        """An index that had to be rebuilt is saved again, so that the next opening need not."""
        for segment in self._view.segments[:-1]:
            if isinstance(segment.loaded_index, ActiveIndex) and self._save_rebuilt(segment):
                segment.set_index(None)

    def _claim_under(self, lock: Lock) -> Claimed:
        try:
            claiming = Claiming(
                self._place,
                clock=self._clock,
                entropy=self._entropy,
                log_start=self._log_start,
                shard=self._shard,
                mark=self._read_mark(),
                known_offsets=self._known_offsets,
            )
            return claiming.run(lock)
        except BaseException:
            # Whatever went wrong, the next try must find the lock free.
            lock.release()
            raise

    # Writing ---------------------------------------------------------------------------------

    def next_lsn(self) -> Lsn:
        return Lsn(self._owned().end.next_lsn)

    def last_append_time_us(self) -> int:
        return self._owned().end.append_time_us

    def next_offsets(self) -> dict[int, int]:
        return self._owned().index.next_offsets()

    def commit(self, writes: Sequence[PlacedWrite], append_time_us: int) -> DurableTicket:
        """Append the writes and sync them.  Unavailable: nothing of it is or will be there.
        OutcomeUnknown: it may be, and this open log is poisoned."""
        owner = self._owned()
        self.make_room(sum([draft.frame_size for drafts, _ in writes for draft in drafts]), append_time_us)
        sealed = seal_writes(
            writes,
            owner.end,
            owner.active.opening.salted,
            durable_lsn=self._view.durable_lsn,
            epoch=owner.claim.epoch,
            append_time_us=append_time_us,
        )
        try:
            owner.file.append(sealed.buffers)
        except OSError as error:
            raise self._take_back(owner, error) from error
        self._sync(owner.file.sync_data)
        return self._made_durable(owner, sealed, append_time_us)

    def make_room(self, size: int, append_time_us: int) -> Lsn:
        """Roll if a commit of this size and time would; returns the first LSN of the segment it will go into."""
        owner = self._owned()
        if self._is_time_to_roll(owner, size, append_time_us):
            self._roll(owner)
        return Lsn(owner.active.first_lsn)

    @property
    def poisoned_by(self) -> BaseException | None:
        """What ended this open log's promises; nothing while they hold."""
        return self._poisoned

    def end(self) -> ChainEnd:
        """Where the owner's log ends: the next LSN, and the chain value, epoch and append time of the last frame."""
        owner = self._owned()
        if owner.position > SEGMENT_FRAME_BYTES:
            return owner.end
        # Nothing is in this segment yet: the last frame is the one before it.
        return ChainEnd(owner.end.next_lsn, owner.active.opening.header.prev, owner.end.epoch, owner.end.append_time_us)

    def _is_time_to_roll(self, owner: Owner, size: int, now_us: int) -> bool:
        settings = self._place.settings
        if owner.position == SEGMENT_FRAME_BYTES:
            return False
        return (
            owner.position + size > settings.segment_size_bytes_max
            or now_us - owner.active.created_us > settings.segment_age_s_max * 1_000_000
        )

    def _made_durable(self, owner: Owner, sealed: Sealed, append_time_us: int) -> DurableTicket:
        position = owner.position
        first_lsn = lsn = owner.end.next_lsn
        add_frame = owner.index.add_frame
        for at, draft, base_offset in sealed.frames:
            add_frame(
                lsn,
                position + at,
                draft.kind,
                draft.topic_number,
                draft.partition,
                base_offset,
                draft.row_count,
                draft.row_count,
                draft.frame_size,
                append_time_us,
            )
            lsn += 1
        owner.end = sealed.end
        owner.position = position + sealed.size
        self._place.counters.commits += 1
        self._place.counters.append_bytes += sealed.size
        self._write_mark(owner, lsn - 1)
        self._show(View(self._view.segments, Lsn(lsn - 1), owner.position))
        return DurableTicket(Lsn(first_lsn))

    def _write_mark(self, owner: Owner, durable_lsn: int, *, clean: bool = False) -> None:
        try:
            owner.mark.write(
                durable_lsn=durable_lsn, segment=owner.active.first_lsn, position=owner.position, clean=clean
            )
        except OSError as error:
            self._place.counters.io_errors += 1
            raise self.poison(error) from error

    def _take_back(self, owner: Owner, error: OSError) -> Unavailable | OutcomeUnknown:
        """A write failed half-way.  Cut what it left, sync the cut, and only then refuse: a refused row must
        not appear after a crash."""
        place = self._place
        place.counters.io_errors += 1
        try:
            owner.file.truncate(owner.position)
            owner.file.sync_all()
            # The next write goes to the same place and may be lost there, and a file system that gives old blocks
            # back would show the refused one, which continues the chain as well as it: a new epoch makes it stale.
            claim = Claim(Epoch(owner.claim.epoch + 1), owner.claim.token)
            owner.mark.begin_epoch(claim.epoch)
            owner.claim = claim
            if error.errno in _FULL:
                self._give_up_reserve()
        except OSError as second:
            place.counters.io_errors += 1
            return self.poison(second)
        if error.errno in _FULL:
            return Unavailable("the disk is full: nothing was appended; free space, then try again")
        return Unavailable(f"the write failed and was taken back: {error}")

    def _give_up_reserve(self) -> None:
        place = self._place
        if RESERVE in place.files.list(place.directory):
            logger.warning("the disk is full: giving up the reserve so that deletion can go on")
            unlink_all(self._place, [RESERVE])

    def _sync(self, sync: Callable[[], None]) -> None:
        counters = self._place.counters
        started = self._clock.monotonic_s()
        try:
            sync()
        except OSError as error:
            # The kernel may have dropped the dirty pages and marked them clean: a second sync would
            # succeed and lie.  Nothing may be acknowledged any more.
            counters.io_errors += 1
            raise self.poison(error) from error
        seconds = self._clock.monotonic_s() - started
        counters.syncs += 1
        counters.sync_seconds += seconds
        counters.sync_durations.observe(seconds)

    def poison(self, cause: BaseException) -> OutcomeUnknown:
        """Promise nothing any more; returns what requests in flight are told."""
        self._poisoned = cause
        logger.error("poisoned: %r", cause)
        return OutcomeUnknown(
            f"it is not known whether this is durable ({cause}): close the log, open it again, "
            "and retry with the same sequence number"
        )

    def roll(self) -> Lsn | None:
        """Seal the active segment and begin the next; returns the first LSN of the one just sealed, or
        nothing where there was nothing to seal."""
        owner = self._owned()
        if owner.position == SEGMENT_FRAME_BYTES:
            return None
        sealed = owner.active
        self._roll(owner)
        return Lsn(sealed.first_lsn)

    def _roll(self, owner: Owner) -> None:
        place = self._place
        self._sync(owner.file.sync_all)
        old = owner.active
        saved = self._save_index(owner)
        header = SegmentHeader(
            log_id=old.opening.header.log_id,
            salt=self._entropy(8),
            first_lsn=owner.end.next_lsn,
            prev=owner.end.chain,
            epoch=owner.claim.epoch,
            created_us=max(self._clock.now_us(), owner.end.append_time_us),
            previous_first_lsn=old.first_lsn,
            shard=self._shard,
        )
        try:
            active, file = create_segment(place, header, self._sync)
        except OSError as error:
            place.counters.io_errors += 1
            if error.errno in _FULL:
                self._sync(self._give_up_reserve)
            raise Unavailable(f"a new segment could not be begun: {error}", first_lsn=header.first_lsn) from error
        old.seal(owner.end, owner.position)
        old.set_index(None if saved else owner.index)
        owner.file.close()
        owner.file = file
        owner.active = active
        owner.index = ActiveIndex(header.first_lsn, owner.index.next_offsets())
        active.set_index(owner.index)
        owner.end = ChainEnd(header.first_lsn, active.opening.chain, owner.claim.epoch, owner.end.append_time_us)
        owner.position = SEGMENT_FRAME_BYTES
        durable = self._view.durable_lsn
        self._write_mark(owner, durable)
        self._show(View((*self._view.segments, active), durable, owner.position))
        place.counters.rolls += 1
        logger.info("rolled: %s sealed at %d bytes, %s begun", old.name, old.size, active.name)
        restore_reserve(place)

    def _save_index(self, owner: Owner) -> bool:
        """Write the active segment's index beside it.  It can be rebuilt, so a failure is only counted."""
        active = owner.active
        data = owner.index.pack(active.opening.data, owner.end, owner.position, active.created_us)
        return self._save(active.name.index, data)

    def _save(self, name: str, data: bytes) -> bool:
        try:
            write_aside(self._place, name, data)
        except OSError as error:
            self._place.counters.io_errors += 1
            logger.warning("the index %s could not be saved: %s", name, error)
            if error.errno in _FULL:
                # Without an index the segments before it cannot be let go, and nothing would free space any more.
                self._sync(self._give_up_reserve)
            return False
        return True

    # Letting go ------------------------------------------------------------------------------

    def forget(self, log_start: Lsn) -> list[str]:
        """Unlink the segments that lie wholly below `log_start`, which must be recorded as the log's start by now;
        returns the names of those that are gone.  What cannot be unlinked is tried again at the next call."""
        owner = self._owned()
        view = self._view
        going, kept = self._divide(log_start)
        if going and not self._remembers_offsets(owner, kept[0]):
            # The offsets of what goes would be known nowhere, and could be given out again.
            return []
        self._forgotten.extend(going)
        self._show(View(tuple(kept), view.durable_lsn, view.position))
        self._drop_indexes()
        self._replaced = [name for name in self._replaced if not self._unlink_segment(name)]
        gone = []
        # In order, up to the first that cannot be unlinked: what stays on disk has no hole.
        while self._forgotten and self._unlink_segment(self._forgotten[0]):
            gone.append(str(self._forgotten.pop(0)))
        self._place.counters.segments_deleted += len(gone)
        if gone:
            logger.info("forgot %d segments below lsn %d", len(gone), log_start)
        return gone

    def remember_offsets(self, log_start: Lsn) -> bool:
        """Save the offsets of what lies below `log_start` in the index of what will be the first segment; False where
        that cannot be done now.  Call it before that start is recorded: from then on nobody else knows them."""
        going, kept = self._divide(log_start)
        return not going or self._remembers_offsets(self._owned(), kept[0])

    def _divide(self, log_start: Lsn) -> tuple[list[SegmentName], list[Segment]]:
        """The segments that lie wholly below `log_start`, and the others; the last one always stays."""
        kept = list(self._view.segments)
        going = []
        while len(kept) > 1 and kept[1].first_lsn <= log_start:
            going.append(kept.pop(0).name)
        return going, kept

    def _remembers_offsets(self, owner: Owner, first: Segment) -> bool:
        """True once the index file of the segment that will be the first holds every partition's next offset."""
        if first is owner.active:
            saved = self._save_index(owner)
        else:
            saved = first.read_next_offsets() is not None or self._save_rebuilt(first)
        if saved:
            self._sync(lambda: self._place.files.sync_directory(self._place.directory))
        return saved

    def _save_rebuilt(self, segment: Segment) -> bool:
        index = segment.loaded_index
        if not isinstance(index, ActiveIndex):
            number = self._view.segments.index(segment)
            index = segment.rebuild_index(next_offsets_after(self._view.segments, number))
        data = index.pack(segment.opening.data, segment.end, segment.size, segment.created_us)
        return self._save(segment.name.index, data)

    @property
    def to_be_forgotten(self) -> Sequence[SegmentName]:
        """Segments below the log's start that are still there."""
        return self._forgotten

    def replace(self, old: SegmentName, new: Segment) -> None:
        """Show a rewritten generation of a sealed segment in place of the one it was made from."""
        self._owned()
        view = self._view
        segments = tuple(new if segment.name == old else segment for segment in view.segments)
        self._show(View(segments, view.durable_lsn, view.position))
        self._drop_indexes()
        self._place.counters.segments_rewritten += 1
        if not self._unlink_segment(old):
            self._replaced.append(old)

    def take_in(self) -> None:
        """Nothing: every sealed segment of a directory can be forgotten or replaced."""

    @staticmethod
    def next_generation(old: SegmentName) -> int:
        """Of a rewritten segment."""
        return old.generation + 1

    @property
    def active_segment(self) -> Segment:
        """The segment that is being written."""
        return self._owned().active

    def segment_named(self, name: str) -> Segment:
        """The segment of this name, as it is now."""
        return segment_named(self._view.segments, name)

    def _unlink_segment(self, name: SegmentName) -> bool:
        """The index goes first, so that no index is ever left without its segment."""
        try:
            unlink_all(self._place, [name.index])
            unlink_all(self._place, [str(name)])
            return str(name) not in self._place.files.list(self._place.directory)
        except OSError as error:
            self._place.counters.io_errors += 1
            raise self.poison(error) from error

    # Ending ----------------------------------------------------------------------------------

    def sync_mark(self) -> None:
        """Make the mark durable; called when the log is idle."""
        owner = self._owner
        if owner is None or not owner.mark.dirty or self._poisoned is not None:
            return
        self._sync(owner.mark.sync)

    @property
    def mark_is_dirty(self) -> bool:
        return self._owner is not None and self._owner.mark.dirty

    def close(self) -> None:
        """Say in the mark that it was a clean close, and let the lock go.  Closing twice is nothing."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid:
            # In the child of a fork: the lock, the files and the mark are the parent's.
            return
        owner = self._owner
        try:
            if owner is not None and self._poisoned is None:
                self._save_index(owner)
                self._sync(lambda: self._place.files.sync_directory(self._place.directory))
                self._write_mark(owner, self._view.durable_lsn, clean=True)
                self._sync(owner.mark.sync)
        finally:
            if owner is not None:
                owner.file.close()
                owner.mark.close()
                owner.lock.release()
            if self._mark_file is not None:
                self._mark_file.close()

    def _owned(self) -> Owner:
        self._check_usable()
        if self._owner is None:
            raise AssertionError("claim() comes first")
        return self._owner

    def _check_usable(self) -> None:
        if self._closed:
            raise Closed("this log is closed")
        if os.getpid() != self._pid:
            raise Closed("this log was opened by another process, which forked this one: open it here", pid=self._pid)
        if self._poisoned is not None:
            raise Poisoned(
                f"a sync failed earlier ({self._poisoned}): close this log and open it again, which recovers it"
            )
        if self._halted is not None:
            raise self._halted
