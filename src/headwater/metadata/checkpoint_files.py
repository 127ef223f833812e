"""Every checkpoint file of a directory, looked at offline: what it says of itself, or what is wrong with it.

PROMISE  One file that cannot be read hides no other.  Nothing is changed, and nothing is chosen: which of them an
         opening takes is for recovery.py and the shard to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headwater.errors import CorruptData
from headwater.metadata.checkpoint import (
    SUFFIX,
    TEMPORARY,
    Checkpoint,
    CheckpointFile,
    CheckpointKind,
    name_of,
    unpack_checkpoint,
)
from headwater.metadata.shard_state import ShardState
from headwater.metadata.state import MetadataState
from headwater.storage.files import Files

State = MetadataState | ShardState


@dataclass
class SeenCheckpoint:
    """A checkpoint file and what became known of it."""

    directory: str
    file: CheckpointFile
    bytes: int = 0
    contents: dict[str, int] = field(default_factory=dict)
    """How much its state holds of what."""
    equals_fold: bool | None = None
    """Whether folding what it stands for gives the same; None where that could not be asked."""

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.file.name}"

    def as_dict(self) -> dict[str, object]:
        checkpoint = self.file.checkpoint
        content: dict[str, object] = {
            "file": self.path,
            "lsn": self.file.lsn,
            "valid": checkpoint is not None,
            "damage": self.file.damage,
            "bytes": self.bytes,
            "equals_fold": self.equals_fold,
        }
        if checkpoint is not None:
            content |= {
                "kind": checkpoint.kind.name.lower(),
                # 64 bits: many readers of JSON would round the number.
                "chain": f"{checkpoint.chain:016x}",
                "journal_lsn": checkpoint.journal_lsn,
                "created_us": checkpoint.created_us,
                "contents": self.contents,
            }
        return content


@dataclass
class SeenDirectory:
    """A directory of checkpoints, the highest LSN first."""

    checkpoints: list[SeenCheckpoint] = field(default_factory=list)
    temporaries: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def valid(self) -> list[tuple[SeenCheckpoint, Checkpoint]]:
        return [(each, each.file.checkpoint) for each in self.checkpoints if each.file.checkpoint is not None]


def look_at_checkpoints(files: Files, directory: str, kind: CheckpointKind) -> SeenDirectory:
    seen = SeenDirectory()
    for name in reversed(files.list(directory)):
        lsn = _lsn_in(name)
        if lsn is not None:
            found = _look_at(files, directory, name, lsn, kind)
            if found is not None:
                seen.checkpoints.append(found)
        elif name.endswith(TEMPORARY) and _lsn_in(name.removesuffix(TEMPORARY)) is not None:
            seen.temporaries.append(f"{directory}/{name}")
        else:
            seen.foreign.append(f"{directory}/{name}")
    return seen


def _lsn_in(name: str) -> int | None:
    number = name.removesuffix(SUFFIX)
    return int(number) if number.isascii() and number.isdigit() and name == name_of(int(number)) else None


def _look_at(files: Files, directory: str, name: str, lsn: int, kind: CheckpointKind) -> SeenCheckpoint | None:
    try:
        file = files.open(f"{directory}/{name}")
    except FileNotFoundError:
        # An owner at work has put a newer one in its place.
        return None
    try:
        data = file.read_at(0, file.size())
    except OSError as error:
        return SeenCheckpoint(directory, CheckpointFile(name, lsn, None, f"it cannot be read: {error}"))
    finally:
        file.close()
    found = unpack_checkpoint(data, kind)
    if isinstance(found, str):
        unknown = "format version" in found
        return SeenCheckpoint(directory, CheckpointFile(name, lsn, None, found, unknown), len(data))
    damage = f"its name is not its own: it is of lsn {found.lsn}" if found.lsn != lsn else ""
    contents: dict[str, int] = {}
    if not damage:
        try:
            state = unpack_state(found)
        except CorruptData as error:
            damage = error.message
        else:
            contents = contents_of(state)
            damage = f"its state is of lsn {state.lsn}" if state.lsn != lsn else ""
    return SeenCheckpoint(directory, CheckpointFile(name, lsn, None if damage else found, damage), len(data), contents)


def unpack_state(checkpoint: Checkpoint) -> State:
    if checkpoint.kind is CheckpointKind.JOURNAL:
        return MetadataState.unpack(checkpoint.body)
    return ShardState.unpack(checkpoint.body)


def contents_of(state: State) -> dict[str, int]:
    """How much a state holds, by the words that its users know."""
    if isinstance(state, MetadataState):
        return {
            "topics": len(state.topics),
            "deleted_topics": len(state.deleted),
            "groups": len(state.groups),
            "next_topic_number": state.next_topic_number,
            "log_start": state.log_start,
        }
    return {
        "partitions": len(state.next_offsets),
        "producers": len(state.producers),
        "idempotency_keys": len(state.keys),
        "group_topics": len(state.groups),
        "sources": len(state.sources),
    }
