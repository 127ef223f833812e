"""Checkpoints compared with what they stand for: the frames of their log, applied or folded again.

PROMISE  One finding does not hide the next: behind a record that does not apply, the next checkpoint's state is taken.
         Frames that cannot be read end the comparison and are not findings here: whoever verified the log has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum

from headwater.errors import HeadwaterError, UnknownFormat
from headwater.frames.bodies import GapReason, unpack_gap
from headwater.frames.frame import Kind, chain_value
from headwater.log.device import Frame
from headwater.log.verify import FindingName
from headwater.metadata.checkpoint import Checkpoint
from headwater.metadata.checkpoint_files import SeenCheckpoint, State, unpack_state
from headwater.metadata.recovery import apply_frame
from headwater.metadata.shard_state import ShardState
from headwater.metadata.state import MetadataState
from headwater.metadata.stored_frames import StoredFrames

_FORGETS_RECORDS = (GapReason.DRAINED, GapReason.DAMAGED)
"""Where frames went for these reasons, more than rows may be gone: a fold over them proves nothing."""


class MetadataFinding(StrEnum):
    DAMAGED_CHECKPOINT = "DamagedCheckpoint"
    WRONG_CHECKPOINT = "WrongCheckpoint"
    FOREIGN_CHECKPOINT = "ForeignCheckpoint"
    CHECKPOINT_LOST = "CheckpointLost"
    BAD_RECORD = "BadRecord"
    METADATA_BEHIND_LOG = "MetadataBehindLog"


Valid = list[tuple[SeenCheckpoint, Checkpoint]]
Find = Callable[[FindingName | MetadataFinding, str, str, tuple[int, int]], None]
"""Takes a finding: its name, what was seen, the file, and the LSNs."""


class FoldCheck:
    def __init__(self, find: Find) -> None:
        self._find = find

    def along(
        self,
        log: StoredFrames,
        from_lsn: int,
        state: State | None,
        valid: Valid,
        fold: Callable[[State, Frame], bool],
        to_lsn: int | None = None,
    ) -> Iterator[tuple[Frame, State | None]]:
        """Each frame and the state after it; checkpoints are compared on the way.  Behind an operation that does not
        apply the next checkpoint's state is taken, so that one finding does not hide the next."""
        by_lsn = {checkpoint.lsn: (each, checkpoint) for each, checkpoint in valid}
        self._check_before_first(log, by_lsn)
        folded = False
        for frame in frames_until_gone(log, from_lsn, to_lsn):
            if state is not None and frame.lsn > state.lsn:
                try:
                    folded = fold(state, frame)
                except HeadwaterError as error:
                    path = f"{log.directory}/{frame.segment}"
                    self._find(_name_of(error), error.message, path, (frame.lsn, frame.lsn))
                    folded = False
                state = state if folded else None
            if frame.lsn in by_lsn:
                # A checkpoint that the fold began with is not compared with itself.
                state = self._compare(*by_lsn[frame.lsn], frame, state if folded else None)
            yield frame, state

    def _compare(self, each: SeenCheckpoint, checkpoint: Checkpoint, frame: Frame, state: State | None) -> State | None:
        if chain_value(frame.header, frame.body) != checkpoint.chain:
            self._foreign(each)
            return state
        if state is None:
            return unpack_state(checkpoint)
        if isinstance(state, ShardState):
            # As its owner did when it made this checkpoint.
            state.prune()
        each.equals_fold = state.pack() == checkpoint.body
        if not each.equals_fold:
            detail = f"it is not what the frames up to LSN {checkpoint.lsn} give"
            self._find(MetadataFinding.WRONG_CHECKPOINT, detail, each.path, (checkpoint.lsn, checkpoint.lsn))
        return state

    def _check_before_first(self, log: StoredFrames, by_lsn: dict[int, tuple[SeenCheckpoint, Checkpoint]]) -> None:
        """The first segment knows the chain value of the frame before it."""
        before = by_lsn.get((log.first_lsn or 0) - 1)
        if before is not None and log.chain_before_first() not in (None, before[1].chain):
            self._foreign(before[0])

    def _foreign(self, each: SeenCheckpoint) -> None:
        self._find(
            MetadataFinding.FOREIGN_CHECKPOINT,
            "it is of another history than the log: its chain value differs",
            each.path,
            (each.file.lsn, each.file.lsn),
        )


def apply_operation(state: State, frame: Frame) -> bool:
    assert isinstance(state, MetadataState)
    apply_frame(state, frame)
    return True


def fold_frame(state: State, frame: Frame) -> bool:
    """Take in a frame of the log; False where frames are gone that were more than rows."""
    assert isinstance(state, ShardState)
    if frame.header.kind == Kind.GAP:
        gap = unpack_gap(frame.body)
        if gap is None or gap.reason in _FORGETS_RECORDS:
            return False
    state.fold(frame)
    return True


def frames_until_gone(log: StoredFrames, from_lsn: int, to_lsn: int | None = None) -> Iterator[Frame]:
    """The frames of a log, until an owner at work lets go of what was to be read."""
    try:
        for frame in log.read(from_lsn):
            if to_lsn is not None and frame.lsn > to_lsn:
                return
            yield frame
    except FileNotFoundError:
        return


def _name_of(error: HeadwaterError) -> FindingName | MetadataFinding:
    return FindingName.UNKNOWN_FORMAT if isinstance(error, UnknownFormat) else MetadataFinding.BAD_RECORD
