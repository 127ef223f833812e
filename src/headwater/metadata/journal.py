"""The metadata journal: operations on a log of their own, the state that they make, and checkpoints of it.

`journal/` is a frame log: one METADATA frame an operation, the operations of one append one write.  An operation's
number is its frame's LSN; the frames with which an owner begins its epoch take LSNs too.  `journal/checkpoints/` holds
two checkpoints of the state.

OPEN     1. Of the checkpoints the newest valid one is taken; a damaged one is passed over, and reported.
         2. The journal must hold every LSN after it: else CheckpointLost, or LostSegment.  Without any checkpoint it
            must begin at LSN 1.  Numbering never begins again.
         3. The chain value in the checkpoint must be the journal's at that LSN.
         4. The operations after it are applied in order; one that is refused, unknown or undecodable halts.
APPEND   Applied to a copy of the state, made durable as one write, and only then published.  What the state refuses
         is not written.  If the ring has no room for it, a checkpoint comes first, or the append is not made.
CHECKPOINT, each step durable before the next, and one that fails by its name leaves all before it standing:
         roll      the journal's segment ends at the state's LSN, and the next one is there.  So any reader that finds
                   the checkpoint finds the journal durable up to it, whatever became of the mark.
         write     aside, sync, rename, sync directory: checkpoint.py
         compact   all but two checkpoints go, then the segments that the older of the two covers, oldest first
         cover     the ring's mark rises, last
THREADS  One lock for appends, checkpoints and looks.  `state` is published whole and never changed: read it freely.
PROMISE  After any crash the state is the one before an append or the one after it.
NOT HERE What an operation does: state.py.  Frames, locks and torn tails: headwater.log.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

import msgspec

from headwater.clock import Clock, Entropy
from headwater.errors import (
    CheckpointFailed,
    CheckpointLost,
    Closed,
    DamagedLog,
    Forgotten,
    InvalidRequest,
    LostSegment,
    OutcomeUnknown,
    Poisoned,
    TooLarge,
    Unavailable,
    UnknownFormat,
)
from headwater.frames.frame import Header, Kind, chain_value
from headwater.ids import Lsn
from headwater.log import Draft, FrameLog, open_log
from headwater.log.device import Claim
from headwater.log.first_lsn import first_lsn_in
from headwater.log.names import RESERVE
from headwater.log.object_device import ObjectDevice
from headwater.metadata.checkpoint import KEPT, Checkpoint, CheckpointFile, CheckpointKind, Checkpoints
from headwater.metadata.operations import Operation, decode_operation, encode_operation
from headwater.metadata.recovery import JournalReport, Start, apply_frame, choose_start, log_start
from headwater.metadata.ring import MARGIN, SLOTS, Ring
from headwater.metadata.state import MetadataState, Refused
from headwater.settings import LogSettings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.files import Files

logger = logging.getLogger("headwater.metadata")

OPERATIONS_MAX = SLOTS - 1
"""Operations of one append: they must fit in the ring together, after the frame that begins an epoch."""

EARLY = 2 * MARGIN
"""With fewer slots than this after an append a checkpoint is tried, while nothing yet depends on its success."""

_LOOKS_MAX = 5
"""A list of a bucket may not know yet of what was put a moment ago: so often it is asked before one is lost."""

_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True)
class Dropped:
    """What a compaction of the journal let go of."""

    first_lsn: int
    last_lsn: int
    segments: tuple[str, ...]
    """Those whose files are gone; one that could not be unlinked is tried again by the next compaction."""


class Journal:
    """An open journal.  Opening reads and claims nothing; the first append or checkpoint makes this the owner."""

    _opened: FrameLog | None = None

    def __init__(self, files: Files, directory: str, *, settings: LogSettings, clock: Clock, entropy: Entropy) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock
        self._checkpoints = Checkpoints(files, f"{directory}/checkpoints", CheckpointKind.JOURNAL)
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._ring = Ring()
        self._current = False
        """This is the owner, and `state` holds all that the journal does."""
        self.state = MetadataState()
        self.report = JournalReport()
        self.dropped: Dropped | None = None
        """What the last compaction that dropped anything has dropped."""
        self.checkpoints_failed = 0
        self._settings = settings
        self._entropy = entropy
        try:
            self._recover()
        except BaseException:
            if self._opened is not None:
                self._opened.close()
            raise

    # Opening ---------------------------------------------------------------------------------

    def _look(self) -> tuple[list[CheckpointFile], int | None]:
        """The checkpoints, and where the first segment begins."""
        found = self._checkpoints.read()
        return found, first_lsn_in(self._files, self._directory)

    def _log_start(self) -> int:
        return log_start(*self._look())

    def _recover(self) -> None:
        """Checkpoint, journal, replay; anew if an owner elsewhere has compacted meanwhile."""
        looks = _LOOKS_MAX if isinstance(self._files, BucketFiles) else 1
        while True:
            # The checkpoints before the journal: what they cover is in any journal that is read after them.
            seen = self._look()
            try:
                start = choose_start(*seen)
                self._look_at_log()
                self._replay(start)
                return
            except (Forgotten, LostSegment, CheckpointLost):
                looks -= 1
                if self._look() == seen and looks <= 0:
                    raise

    def _look_at_log(self) -> None:
        if self._opened is None:
            self._opened = open_log(
                self._files,
                self._directory,
                settings=self._settings,
                clock=self._clock,
                entropy=self._entropy,
                log_start=self._log_start,
                # No frame of a journal has rows, so no offset can be given out twice.
                known_offsets=dict,
            )
        elif not self._opened.device.claimed:
            self._opened.device.recover()

    @property
    def _log(self) -> FrameLog:
        assert self._opened is not None, "a journal without its log is not given out"
        return self._opened

    def _replay(self, start: Start) -> None:
        durable_lsn = self._log.durable_lsn()
        if start.checkpoint is not None:
            self._check_continues(start.checkpoint, durable_lsn)
        state, covered_lsn = start.state, start.state.lsn
        segments = self._log.segments()
        first_lsn = segments[0].first_lsn if segments else Lsn(0)
        ring = Ring()
        replayed = skipped = 0
        for frame in self._log.read(first_lsn, durable_lsn) if segments else ():
            ring.push(frame.header)
            is_operation = frame.header.kind == Kind.METADATA
            if frame.lsn <= covered_lsn:
                skipped += is_operation
            else:
                apply_frame(state, frame)
                replayed += is_operation
        ring.extend_to(durable_lsn)
        ring.cover(covered_lsn)
        self._ring = ring
        self.state = state
        self.report = JournalReport(
            found=bool(segments),
            checkpoint=start.name,
            checkpoint_lsn=covered_lsn,
            damaged=start.damaged,
            replayed=replayed,
            skipped=skipped,
            first_lsn=first_lsn,
            last_lsn=durable_lsn,
            epoch=self._log.recovery_report.epoch,
        )
        for name, reason in start.damaged:
            logger.warning("the checkpoint %s was passed over: %s", name, reason)
        logger.info("journal read: %s", self.report)

    def _check_continues(self, checkpoint: Checkpoint, durable_lsn: int) -> None:
        if checkpoint.lsn > durable_lsn:
            raise CheckpointLost(
                "the newest checkpoint is ahead of the journal: operations that were acknowledged are missing there; "
                "restore `journal/` from a backup",
                checkpoint_lsn=checkpoint.lsn,
                journal_lsn=durable_lsn,
            )
        chain = self._chain_at(checkpoint.lsn)
        if chain != checkpoint.chain:
            raise CheckpointLost(
                "the newest checkpoint is of another history than the journal: the directory was mixed with another; "
                "restore `journal/` from a backup",
                checkpoint_lsn=checkpoint.lsn,
                checkpoint_chain=f"{checkpoint.chain:016x}",
                journal_chain=f"{chain:016x}",
            )

    def _chain_at(self, lsn: int) -> int:
        """The chain value of the frame at this LSN: the segment after it knows it, also when it is forgotten."""
        for segment in self._log.segments():
            if segment.first_lsn == lsn + 1:
                return self._log.device.segment_named(segment.name).opening.header.prev
        (frame,) = self._log.read(Lsn(lsn), Lsn(lsn))
        return chain_value(frame.header, frame.body)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """The lock; in the child of a fork it may be held for ever by a thread that is not there."""
        if os.getpid() != self._pid:
            raise Closed(
                "this journal was opened by another process, which forked this one: open it here", pid=self._pid
            )
        with self._lock:
            yield

    # Looking ---------------------------------------------------------------------------------

    def refresh(self) -> MetadataState:
        """The state as it is now.  An owner's is; a reader in another process looks again."""
        with self._held():
            if not self._current:
                self._catch_up()
            return self.state

    def _catch_up(self) -> None:
        try:
            self._read_on()
        except (Forgotten, LostSegment):
            # The owner has compacted what was to be read: its checkpoint holds it.
            self._recover()

    def _read_on(self) -> None:
        """Apply what has become durable since."""
        durable_lsn = self._log.durable_lsn()
        if durable_lsn == self.state.lsn:
            return
        state = self.state.copy()
        frames = list(self._log.read(Lsn(state.lsn + 1), durable_lsn))
        for frame in frames:
            apply_frame(state, frame)
        for frame in frames:
            self._ring.push(frame.header)
        self.state = state

    def claim(self) -> None:
        """Become the owner now rather than at the first append."""
        with self._held():
            self._own()

    def follow(self, leader: Claim) -> None:
        """In a bucket: own it only as the owner of the log, and not after a later one of those."""
        device = self._log.device
        assert isinstance(device, ObjectDevice)
        device.follow(leader)

    def _own(self) -> None:
        if self._current:
            return
        self._log.claim()
        try:
            self._catch_up()
        except OSError as error:
            raise Unavailable(f"the journal could not be read: {error}", directory=self._directory) from error
        self._current = True
        self.report = replace(self.report, last_lsn=self.state.lsn, epoch=self._log.recovery_report.epoch)

    # Appending -------------------------------------------------------------------------------

    def append(self, operations: Sequence[Operation]) -> MetadataState:
        """Make the operations durable as one write and apply them: all or none."""
        if not operations:
            raise InvalidRequest("an append has at least one operation")
        if len(operations) > OPERATIONS_MAX:
            raise TooLarge(
                "an append has too many operations: use several, which are not atomic together",
                operations=len(operations),
                limit=OPERATIONS_MAX,
            )
        bodies = [_encode(number, operation) for number, operation in enumerate(operations)]
        drafts = [Draft(Kind.METADATA, body) for body, _ in bodies]
        with self._held():
            self._own()
            state = self.state.copy()
            for number, (_, operation) in enumerate(bodies):
                try:
                    state.apply(self.state.lsn + number + 1, operation)
                except Refused as refused:
                    raise refused.error(refused.reason, operation=number) from refused
            self._make_room(len(drafts))
            receipt = self._log.append(drafts)
            # The frame that begins an epoch may have come before them.
            state.lsn = receipt.last_lsn
            self._ring.extend_to(state.lsn)
            self.state = state
            self._checkpoint_early()
            return state

    def _make_room(self, operations: int) -> None:
        """Let nothing be evicted that no checkpoint covers, and see to it before anything is written."""
        frames = operations + 1
        if not self._ring.has_room(frames, margin=MARGIN):
            self._checkpoint()
            assert self._ring.has_room(frames), "a checkpoint empties the ring, and an append fits in it"

    def _checkpoint_early(self) -> None:
        if self._ring.has_room(EARLY):
            return
        try:
            self._checkpoint()
        except (CheckpointFailed, Poisoned) as error:
            # The append that has just been made is durable whatever happens here; the next one will see.
            logger.warning("no checkpoint was made in time: %s", error)

    # Checkpoints -----------------------------------------------------------------------------

    def checkpoint(self) -> bool:
        """Write the state down and let go of the operations that two checkpoints cover; False where nothing is new.
        CheckpointFailed names the stage that failed."""
        with self._held():
            self._own()
            return self._checkpoint()

    def _checkpoint(self) -> bool:
        state = self.state
        if state.lsn == self._ring.checkpoint_lsn:
            return False
        try:
            with _stage("roll", state.lsn):
                self._log.roll()
            self._write(
                Checkpoint(
                    CheckpointKind.JOURNAL,
                    state.lsn,
                    chain=self._chain_at(state.lsn),
                    journal_lsn=state.lsn,
                    created_us=self._clock.now_us(),
                    body=state.pack(),
                )
            )
            with _stage("compact", state.lsn):
                self._compact()
        except CheckpointFailed:
            self.checkpoints_failed += 1
            raise
        self._ring.cover(state.lsn)
        return True

    def _write(self, checkpoint: Checkpoint) -> None:
        try:
            self._checkpoints.write(checkpoint)
        except CheckpointFailed as failed:
            if failed.facts["stage"] == "sync directory":
                # Whether its name is on disk is not known, and a second sync may lie about the first.
                self._log.device.poison(failed)
            if not _is_full(failed) or not self._give_up_reserve():
                raise
            self._checkpoints.write(checkpoint)

    def _give_up_reserve(self) -> bool:
        """On a full disk this is what the reserve is for: the checkpoint after which segments can go."""
        try:
            if RESERVE not in self._files.list(self._directory):
                return False
            logger.warning("the disk is full: giving up the journal's reserve for a checkpoint")
            self._files.unlink(f"{self._directory}/{RESERVE}")
        except OSError as error:
            # The checkpoint has failed by its own name, which is what the caller is told.
            logger.warning("the journal's reserve could not be given up: %s", error)
            return False
        return True

    def _compact(self) -> None:
        """Keep two checkpoints, and of the journal what the older one needs."""
        log = self._log
        if isinstance(log.device, ObjectDevice):
            # A journal in a bucket has nobody else who takes what is sealed into trim, and only that can be forgotten.
            log.device.keep()
        valid = [file.lsn for file in self._checkpoints.read() if file.checkpoint is not None]
        self._checkpoints.keep_newest(KEPT)
        if len(valid) < KEPT:
            return
        before_lsn = log.segments()[0].first_lsn
        gone = log.exclusively(lambda: log.device.forget(Lsn(valid[KEPT - 1] + 1)))
        first_lsn = log.segments()[0].first_lsn
        if first_lsn > before_lsn:
            self._ring.drop_below(first_lsn)
            self.dropped = Dropped(before_lsn, first_lsn - 1, tuple(gone))
            logger.info("journal compacted: %s", self.dropped)

    # About it --------------------------------------------------------------------------------

    @property
    def log(self) -> FrameLog:
        return self._log

    @property
    def last_lsn(self) -> int:
        """The last LSN of the journal; 0 where it is empty."""
        return self._ring.last_lsn

    @property
    def checkpoint_lsn(self) -> int:
        """The last LSN that a checkpoint covers; 0 where there is none."""
        return self._ring.checkpoint_lsn

    @property
    def remaining_capacity(self) -> int:
        """How many frames fit in the ring before a checkpoint must be made."""
        return self._ring.remaining_capacity

    def header(self, lsn: int) -> Header | None:
        """The header of a recent frame; nothing where the ring does not hold it, or no longer."""
        return self._filled_ring().header(lsn)

    def previous(self, lsn: int) -> Header | None:
        """The header of the frame before this LSN; there is none before the first."""
        return self._filled_ring().previous(lsn)

    def headers_from(self, lsn: int) -> list[Header]:
        """The headers of the recent frames from this LSN on, in order."""
        return self._filled_ring().headers_from(lsn)

    def operation(self, lsn: int) -> Operation | None:
        """The operation at this LSN; nothing where the ring has no header of one there."""
        header = self.header(lsn)
        if header is None or header.kind != Kind.METADATA:
            return None
        (frame,) = self._log.read(Lsn(lsn), Lsn(lsn))
        return decode_operation(frame.body, lsn)

    def _filled_ring(self) -> Ring:
        """The ring, with the headers of what this process has appended since: an append does not wait for them."""
        with self._held():
            ring = self._ring
            if ring.filled_lsn < ring.last_lsn:
                first_lsn = max(ring.filled_lsn + 1, ring.last_lsn - SLOTS + 1, self._log.segments()[0].first_lsn)
                for frame in self._log.read(Lsn(first_lsn), Lsn(ring.last_lsn)):
                    ring.push(frame.header)
            return ring

    def close(self) -> None:
        """Let go of it; twice is nothing."""
        self._log.close()

    def __enter__(self) -> Self:
        self._log.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _encode(number: int, operation: Operation) -> tuple[bytes, Operation]:
    """The body of an operation's frame, and the operation as replay will read it: what cannot be read back is not
    written."""
    try:
        body = encode_operation(operation)
        return body, decode_operation(body, 0)
    except (DamagedLog, UnknownFormat, TypeError, OverflowError, msgspec.MsgspecError) as error:
        raise InvalidRequest(f"this is not an operation: {error}", operation=number) from error


@contextmanager
def _stage(stage: str, lsn: int) -> Iterator[None]:
    try:
        yield
    except (Unavailable, OutcomeUnknown, OSError) as error:
        raise CheckpointFailed(
            f"a checkpoint could not be finished: {error}; the older ones stand", stage=stage, lsn=lsn
        ) from error


def _is_full(failed: CheckpointFailed) -> bool:
    cause = failed.__cause__
    return isinstance(cause, OSError) and cause.errno in _FULL


def open_journal(
    files: Files, directory: str = "journal", *, settings: LogSettings, clock: Clock, entropy: Entropy
) -> Journal:
    """Open the journal for reading; the first append makes this process its owner."""
    return Journal(files, directory, settings=settings, clock=clock, entropy=entropy)
