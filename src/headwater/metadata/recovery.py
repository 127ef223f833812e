"""What opening the journal rests on, without effects: where replay begins, and what a frame does to the state.

checkpoints                                   the journal's first segment         outcome
none, or only damaged ones                    begins at LSN 1                     replay from LSN 1
none                                          there is none                       an empty start
only damaged ones                             there is none                       CheckpointLost
none, or only damaged ones                    begins after LSN 1                  CheckpointLost
a valid one, perhaps behind damaged ones      begins at its LSN + 1 or before     replay from its LSN + 1
a valid one, perhaps behind damaged ones      begins after its LSN + 1            CheckpointLost
a valid one                                   there is none                       LostSegment, from the log
one of a later version before any valid one   whatever there is                   UnknownFormat

Nothing is guessed: an operation that is refused, unknown or undecodable halts, and none is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headwater.errors import CheckpointLost, CorruptData, DamagedLog, OperationRefused, UnknownFormat
from headwater.frames.frame import SKIPPABLE_KIND_FIRST, Codec, Kind
from headwater.log.device import Frame
from headwater.metadata.checkpoint import Checkpoint, CheckpointFile
from headwater.metadata.operations import decode_operation
from headwater.metadata.state import MetadataState, Refused


@dataclass(frozen=True)
class JournalReport:
    """What opening the journal has found."""

    found: bool = False
    """False: nothing at all, an empty start."""
    checkpoint: str = ""
    """The file whose state was taken; empty where there was none."""
    checkpoint_lsn: int = 0
    damaged: tuple[tuple[str, str], ...] = ()
    """Checkpoints that were passed over, and why."""
    replayed: int = 0
    skipped: int = 0
    """Operations that the journal still holds and the checkpoint covers: they were not applied again."""
    first_lsn: int = 0
    last_lsn: int = 0
    epoch: int = 0


@dataclass(frozen=True)
class Start:
    """Where replay begins."""

    state: MetadataState
    checkpoint: Checkpoint | None
    name: str
    damaged: tuple[tuple[str, str], ...]


def choose_start(found: Sequence[CheckpointFile], first_lsn: int | None) -> Start:
    """The newest valid checkpoint, if a journal whose first segment begins at `first_lsn` continues it.

    `found` is newest first; `first_lsn` is None where there is no segment."""
    damaged: list[tuple[str, str]] = []
    for file in found:
        if file.unknown:
            raise UnknownFormat(f"the checkpoint {file.name} cannot be read: {file.damage}; use that version")
        decoded = _decode(file)
        if isinstance(decoded, str):
            damaged.append((file.name, decoded))
            continue
        if first_lsn is not None and file.lsn + 1 < first_lsn:
            raise _checkpoint_lost(
                "the journal begins after the newest checkpoint that can be read", damaged, first_lsn
            )
        return Start(decoded, file.checkpoint, file.name, tuple(damaged))
    if first_lsn is None and damaged:
        raise _checkpoint_lost("there are only damaged checkpoints, and no journal", damaged, 0)
    if first_lsn is not None and first_lsn > 1:
        raise _checkpoint_lost("the journal does not reach back to its first operation", damaged, first_lsn)
    return Start(MetadataState(), None, "", tuple(damaged))


def log_start(found: Sequence[CheckpointFile], first_lsn: int | None) -> int:
    """The first LSN that the journal must hold: that after the oldest checkpoint which it still continues.  An older
    one, whose unlinking failed or was lost, says nothing."""
    if first_lsn == 1:
        return 1
    continued = [
        file.lsn for file in found if file.checkpoint is not None and (first_lsn is None or file.lsn + 1 >= first_lsn)
    ]
    return min(continued, default=0) + 1


def apply_frame(state: MetadataState, frame: Frame) -> None:
    """Take in a frame of the journal, in replay."""
    header = frame.header
    if header.kind == Kind.METADATA and header.codec == Codec.NONE:
        operation = decode_operation(frame.body, header.lsn)
        try:
            state.apply(header.lsn, operation)
        except Refused as refused:
            raise OperationRefused(
                f"an operation of the journal does not apply: {refused.reason}; nothing was skipped; "
                "run `headwater log verify`, or restore `journal/` from a backup",
                lsn=header.lsn,
            ) from refused
    elif header.kind == Kind.EPOCH or header.kind >= SKIPPABLE_KIND_FIRST:
        state.lsn = header.lsn
    else:
        raise DamagedLog(
            "the journal holds a frame that is no operation; run `headwater log verify`",
            lsn=header.lsn,
            kind=header.kind,
            codec=header.codec,
        )


def _decode(file: CheckpointFile) -> MetadataState | str:
    if file.checkpoint is None:
        return file.damage
    try:
        state = MetadataState.unpack(file.checkpoint.body)
    except CorruptData as error:
        return error.message
    if state.lsn != file.lsn:
        return f"its state is of lsn {state.lsn}"
    return state


def _checkpoint_lost(why: str, damaged: Sequence[tuple[str, str]], first_lsn: int) -> CheckpointLost:
    return CheckpointLost(
        f"the metadata cannot be read: {why}; restore `journal/` from a backup, or run `headwater log rebuild`",
        damaged=", ".join(f"{name} ({reason})" for name, reason in damaged) or "none",
        journal_first_lsn=first_lsn,
    )
