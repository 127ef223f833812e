"""A shard: the log, the state that is folded from it, and the checkpoints that bound the fold.

    opening     the newest checkpoint that the log continues, and the frames after it; nothing before it is read
    owning      the state is kept current by every commit, under the baton; where several are in flight it is ahead
                of what is durable, and is looked at (`look`) when nothing is
    a checkpoint is made at every roll, after `shard_checkpoint_bytes`, and when the log is closed

PROMISE  A checkpoint equals the fold of the log at its LSN, whoever folds it (V10).  It is never a source: with no
         valid one the whole log is folded, and where the log no longer reaches back far enough it halts by name.
         The older of two checkpoints is what deletion goes by (covered_lsn), so that losing one loses nothing.
NOT HERE What a commit is made of: forming.py.  Which segments may go: cleanup.py.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headwater.clock import Clock, Entropy
from headwater.errors import (
    CheckpointLost,
    Closed,
    CorruptData,
    DamagedLog,
    Fenced,
    Forgotten,
    LostSegment,
    MetadataBehindLog,
    OutcomeUnknown,
    Poisoned,
    Unavailable,
)
from headwater.frames.bodies import GapReason, unpack_gap
from headwater.frames.frame import Kind, chain_value
from headwater.ids import Lsn
from headwater.log.device import Frame
from headwater.log.drafts import Receipt
from headwater.log.frame_log import FrameLog, open_log
from headwater.log.segment import Memory
from headwater.log.writer import FormedWrite, Request, Sequencer
from headwater.metadata.checkpoint import Checkpoint, CheckpointFile, CheckpointKind, Checkpoints
from headwater.metadata.operations import TopicRecord
from headwater.metadata.shard_state import ShardState, fold_frames
from headwater.metadata.state import MetadataState
from headwater.settings import Settings
from headwater.storage.files import Files
from headwater.topics.forming import JOINED_BYTES_MAX, CheckLease, Forming

logger = logging.getLogger("headwater.topics")

T = TypeVar("T")

CHECKPOINTS = "checkpoints"
_LOOKS_MAX = 5
"""How often checkpoints are listed again before one is said to be lost."""
_NOT_NOW = (Unavailable, OutcomeUnknown, Poisoned, Fenced, Closed)
"""Why a checkpoint cannot be made, while the rows that it would follow are safe."""


@dataclass(frozen=True)
class _Packed:
    lsn: int
    chain: int
    body: bytes
    append_bytes: int
    rolls: int


class Shard:
    """One log and what is known of it."""

    def __init__(
        self,
        files: Files,
        *,
        settings: Settings,
        clock: Clock,
        entropy: Entropy,
        memory: Memory,
        metadata: Callable[[], MetadataState],
        check_lease: CheckLease,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._metadata = metadata
        self._checkpoints = Checkpoints(files, CHECKPOINTS, CheckpointKind.SHARD)
        self._state = ShardState()
        self._loaded = False
        self._live = False
        self._checked = False
        self._looking = threading.Lock()
        self._checkpointing = threading.Lock()
        self._kept: list[int] = []
        """The LSNs of the checkpoints that are there and valid, newest first."""
        self._checkpointed_bytes = 0
        self._checkpointed_rolls = 0
        self._checkpoint_due = False
        self.frames_replayed = 0
        """How many frames were folded to come up to the present, by this open shard."""
        joined_bytes_max = min(JOINED_BYTES_MAX, settings.frame_bytes_max, settings.log.write_body_bytes_max)
        self._forming = Forming(self._state, metadata, check_lease, joined_bytes_max=joined_bytes_max)
        self.log: FrameLog = open_log(
            files,
            "log",
            settings=settings.log,
            clock=clock,
            entropy=entropy,
            log_start=lambda: metadata().log_start,
            known_offsets=self._known_offsets,
            form=self._form,
            committed=self._committed,
            memory=memory,
        )

    # The state -------------------------------------------------------------------------------

    def look(self, find: Callable[[ShardState], T]) -> T:
        """What `find` finds in the state, of which all is durable; not under the baton."""
        if self._live and self.log.pipelined:
            try:
                return self.log.exclusively(lambda: find(self._state))
            except (Poisoned, Fenced):
                # What this owner knows is ahead of the log for good: it reads on as any other reader.
                with self._looking:
                    self._loaded = self._live = False
        return find(self.state())

    def state(self) -> ShardState:
        """The state now: the owner's own, or folded up to what is durable."""
        if not self._live:
            with self._looking:
                if not self._live:
                    self._catch_up(self.log.durable_lsn())
        return self._state

    def next_offsets(self) -> Mapping[int, int]:
        """Every partition's next offset, by index.partition_key."""
        if self._live:
            # Through what is shown to readers, so that it can be asked of a poisoned log too.
            while True:
                index = self.log.device.view.segments[-1].loaded_index
                if index is not None:
                    return index.next_offsets()
                # It was sealed between the two looks, and let go of its index: by now the view has a newer one.
        return self.state().next_offsets

    def claim(self) -> None:
        """Become the owner, with the state at hand."""
        if not self._live:
            self.log.claim()
            self.log.exclusively(self._become_live)

    def _become_live(self) -> None:
        if self._live:
            return
        with self._looking:
            durable_lsn = self.log.device.durable()
            # Loaded again even if this process has looked before: an owner judges what a reader passes over.
            self._loaded = False
            self._catch_up(durable_lsn, as_owner=True)
            self._live = True
        counters = self.log.counters
        self._checkpointed_rolls = counters.rolls
        # What was replayed counts against the next checkpoint, so that replay stays bounded over many short lives.
        self._checkpointed_bytes = counters.append_bytes - self._bytes_after(self._kept[0] if self._kept else 0)

    def _catch_up(self, durable_lsn: Lsn, *, as_owner: bool = False) -> None:
        """Fold what is durable and not folded yet."""
        if not self._loaded:
            self._load(durable_lsn, as_owner=as_owner)
            self._loaded = True
        for _ in range(_LOOKS_MAX if self.log.is_on_a_store else 1):
            try:
                self._fold_to(durable_lsn)
                break
            except Forgotten:
                # The owner has checkpointed and let go of what this reader had not folded yet.
                self._load(durable_lsn, as_owner=as_owner)
        else:
            self._fold_or_lose(durable_lsn)
        if as_owner or not self._checked:
            self._check_metadata(self._metadata())
            self._checked = True

    def _fold_or_lose(self, durable_lsn: Lsn) -> None:
        try:
            self._fold_to(durable_lsn)
        except Forgotten as error:
            raise CheckpointLost(
                "the log has let go of state that no checkpoint holds which can be read: put back a file of "
                "checkpoints/ from a copy"
            ) from error

    def _check_metadata(self, metadata: MetadataState) -> None:
        """The journal must know what the log holds: a fact is in it before the first frame that needs it."""
        for key in self._state.next_offsets:
            number, partition = key >> 32, key & 0xFFFF_FFFF
            topic = metadata.topics.get(number)
            if number >= metadata.next_topic_number or (topic is not None and partition >= topic.partitions):
                raise MetadataBehindLog(
                    "the log holds rows of a topic or a partition that the journal does not know: the journal was put "
                    "back or lost; run `headwater log rebuild DATA --to DIR`",
                    topic_number=number,
                    partition=partition,
                )

    def _fold_to(self, durable_lsn: Lsn) -> None:
        before = self._state.lsn
        if before < durable_lsn:
            topics = self._metadata().topics
            for frame in self.log.device.frames(Lsn(before + 1), durable_lsn):
                _check_holds_state(frame)
                _check_version(frame, topics)
                self._state.fold(frame)
            self.frames_replayed += self._state.lsn - before

    def _load(self, durable_lsn: int, *, as_owner: bool) -> None:
        """Begin with the newest checkpoint that this log continues."""
        found = self._checkpoints.read()
        for _ in range(_LOOKS_MAX):
            try:
                self._load_from(found, durable_lsn, as_owner=as_owner)
                return
            except CheckpointLost:
                # A list may not know yet of what was put a moment ago, or an owner is replacing what it names.
                again = self._checkpoints.read()
                if [each.name for each in again] == [each.name for each in found] and not self.log.is_on_a_store:
                    raise
                found = again
        self._load_from(found, durable_lsn, as_owner=as_owner)

    def _load_from(self, found: Sequence[CheckpointFile], durable_lsn: int, *, as_owner: bool) -> None:
        self._kept = [each.lsn for each in found if each.checkpoint is not None]
        first_lsn = self._first_lsn()
        for each in found:
            if each.checkpoint is None:
                logger.warning("the checkpoint %s is passed over: %s", each.name, each.damage)
                continue
            if each.lsn > durable_lsn:
                if as_owner:
                    raise DamagedLog(
                        "the log ends before its own checkpoint: rows that were durable are gone; "
                        "run `headwater log verify`",
                        checkpoint=each.name,
                        durable_lsn=durable_lsn,
                    )
                # A reader goes by the mark, which a power loss can set back; the owner will find the rest.
                continue
            if each.lsn + 1 < first_lsn:
                break
            self._check_continues(each.checkpoint, first_lsn)
            if each.checkpoint.journal_lsn > self._metadata().lsn:
                raise MetadataBehindLog(
                    "the journal ends before what a checkpoint of the shard was made with: it was put back or lost; "
                    "put back the newer one, or run `headwater log rebuild DATA --to DIR`",
                    journal_lsn=self._metadata().lsn,
                    checkpoint_journal_lsn=each.checkpoint.journal_lsn,
                )
            self._replace_state(ShardState.unpack(each.checkpoint.body))
            return
        if first_lsn > 1:
            raise CheckpointLost(
                "no checkpoint of the shard can be read that its log continues, and the log no longer reaches back to "
                "its beginning: put back a file of checkpoints/ from a copy",
                first_lsn=first_lsn,
                checkpoints=", ".join(f"{each.name}: {each.damage or 'valid'}" for each in found) or "none",
            )
        self._replace_state(ShardState())

    def check_not_lost(self) -> None:
        """Raise LostSegment where a checkpoint tells of a log of which no segment is there: never numbered anew."""
        if self.log.device.segments():
            return
        newest = max((each.lsn for each in self._checkpoints.read() if each.checkpoint is not None), default=0)
        if newest and not self.log.segments():
            raise LostSegment(
                "the log has no segment, though a checkpoint tells of its rows: put the files of log/ back from a copy",
                first_lsn=1,
                last_lsn=newest,
            )

    def _replace_state(self, state: ShardState) -> None:
        self._state = state
        self._forming.state = state

    def _first_lsn(self) -> int:
        segments = self.log.device.segments()
        return segments[0].first_lsn if segments else 1

    def _check_continues(self, checkpoint: Checkpoint, first_lsn: int) -> None:
        """A checkpoint of another history must not be taken for this log's."""
        if not first_lsn <= checkpoint.lsn:
            return
        for frame in self.log.device.frames(Lsn(checkpoint.lsn), Lsn(checkpoint.lsn)):
            ends_there = frame.header.lsn == checkpoint.lsn
            if ends_there and chain_value(frame.header, frame.body) != checkpoint.chain:
                raise CheckpointLost(
                    "a checkpoint does not belong to this log: its chain value is another; remove it if a copy of "
                    "another log was mixed in",
                    lsn=checkpoint.lsn,
                )

    def _known_offsets(self) -> Mapping[int, int]:
        """The next offsets as the newest checkpoint has them, for a log whose index was lost."""
        for each in self._checkpoints.read():
            if each.checkpoint is not None:
                return ShardState.unpack(each.checkpoint.body).next_offsets
        return {}

    # Commits ---------------------------------------------------------------------------------

    def _form(self, requests: Sequence[Request], sequencer: Sequencer) -> list[FormedWrite]:
        self._become_live()
        return self._forming.form(requests, sequencer)

    def _committed(self, writes: Sequence[FormedWrite], receipts: Sequence[Receipt]) -> None:
        self._forming.committed(writes, receipts)
        counters = self.log.counters
        if (
            counters.rolls != self._checkpointed_rolls
            or counters.append_bytes - self._checkpointed_bytes >= self._settings.shard_checkpoint_bytes
        ):
            self._checkpoint_due = True

    # Checkpoints -----------------------------------------------------------------------------

    @property
    def checkpoint_lsn(self) -> int:
        return self._kept[0] if self._kept else 0

    @property
    def covered_lsn(self) -> Lsn:
        """Up to here two valid checkpoints hold the state."""
        return Lsn(self._kept[1] if len(self._kept) > 1 else 0)

    @property
    def replay_bytes(self) -> int:
        """About how many bytes of the log an opening would fold now."""
        if self._live:
            return self.log.counters.append_bytes - self._checkpointed_bytes
        return self._bytes_after(self.checkpoint_lsn)

    def _bytes_after(self, lsn: int) -> int:
        size = 0
        for segment in self.log.device.segments():
            if segment.first_lsn > lsn:
                size += segment.bytes
            elif segment.last_lsn > lsn:
                following = self.log.device.find_lsn(lsn + 1)
                size += segment.bytes - (following.position if following is not None else 0)
        return size

    def keep_up(self) -> None:
        """Make a checkpoint if one is due.  The rows it follows are durable whatever becomes of it, so a failure is
        logged and the next commit tries again."""
        if not self._checkpoint_due or not self._checkpointing.acquire(blocking=False):
            return
        try:
            self._checkpoint()
        except _NOT_NOW as error:
            logger.warning("the shard's checkpoint was not made: %s", error)
        finally:
            self._checkpointing.release()

    def checkpoint(self) -> bool:
        """Make a checkpoint now; False where nothing has come since the last."""
        with self._checkpointing:
            return self._checkpoint()

    def _checkpoint(self) -> bool:
        # What becomes due from here on is not in it.
        self._checkpoint_due = False
        try:
            return self._write_checkpoint(self.log.exclusively(self._pack))
        except BaseException:
            self._checkpoint_due = True
            raise

    def _write_checkpoint(self, packed: _Packed) -> bool:
        self._checkpointed_bytes = packed.append_bytes
        self._checkpointed_rolls = packed.rolls
        if packed.lsn == self.checkpoint_lsn:
            return False
        self._checkpoints.write(
            Checkpoint(
                CheckpointKind.SHARD,
                lsn=packed.lsn,
                chain=packed.chain,
                journal_lsn=self._metadata().lsn,
                created_us=self._clock.now_us(),
                body=packed.body,
            )
        )
        self._kept = [packed.lsn, *self._kept][:2]
        try:
            self._checkpoints.keep_newest(2)
        except OSError as error:
            # The new one is durable; an older one more does no harm, and goes with the next.
            self.log.counters.io_errors += 1
            logger.warning("older checkpoints stay for now: %s", error)
        return True

    def _pack(self) -> _Packed:
        """The state at the log's end; under the baton."""
        self._become_live()
        state = self._state
        end = self.log.device.end()
        state.move_to(end.next_lsn - 1, end.chain, end.append_time_us)
        state.next_offsets = dict(self.log.device.next_offsets())
        state.prune()
        counters = self.log.counters
        return _Packed(state.lsn, state.chain, state.pack(), counters.append_bytes, counters.rolls)

    def check_fold(self) -> None:
        """Raise CorruptData where the live state is not what the whole log folds to, which must reach back to LSN 1."""
        live = self.log.exclusively(self._pack)
        folded = fold_frames(ShardState(), self.log.read(Lsn(1), Lsn(live.lsn)))
        folded.prune()
        if live.body != folded.pack():
            raise CorruptData("the shard's state is not what its log folds to", lsn=live.lsn)

    def close(self) -> None:
        """Make a last checkpoint, so that the next opening folds nothing, and let go of the log."""
        try:
            if self._live:
                self.checkpoint()
        except _NOT_NOW as error:
            # Nothing depends on it: the older checkpoints stand, and the next opening folds a little more.
            logger.warning("no checkpoint at the close: %s", error)
        finally:
            self.log.close()


def _check_holds_state(frame: Frame) -> None:
    """Raise Forgotten at a gap in which a drain has let go of state, because checkpoints held it."""
    if frame.header.kind == Kind.GAP:
        gap = unpack_gap(frame.body)
        if gap is not None and gap.reason == GapReason.DRAINED:
            raise Forgotten("state was let go of that a checkpoint holds", first_lsn=gap.first_lsn, lsn=gap.last_lsn)


def _check_version(frame: Frame, topics: Mapping[int, TopicRecord]) -> None:
    """Rows of a schema version that the journal does not know: it was put back."""
    topic = topics.get(frame.header.topic_number)
    if topic is not None and frame.header.schema_version > len(topic.schemas):
        raise MetadataBehindLog(
            "the log holds rows of a schema version that the journal does not know: the journal was put back or lost; "
            "put back the newer one, or run `headwater log rebuild DATA --to DIR`",
            topic=topic.name,
            version=frame.header.schema_version,
            lsn=frame.header.lsn,
        )
