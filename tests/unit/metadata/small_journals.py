"""Small journals on simulated files, for tests: a set-up, the operations in short, and a world with one step a call."""

from __future__ import annotations

from random import Random

from headwater.clock import ManualClock
from headwater.metadata.checkpoint import CheckpointFile, CheckpointKind, Checkpoints
from headwater.metadata.journal import Journal, open_journal
from headwater.metadata.operations import (
    AddPartitions,
    AddSchema,
    CreateGroup,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    ForgetTopics,
    Operation,
    Policy,
    SetLogStart,
    SetPolicy,
    SetTable,
    TopicRecord,
)
from headwater.metadata.state import MetadataState
from headwater.settings import LogSettings
from headwater.storage.simulated import SimulatedFiles

SETTINGS = LogSettings(mark_sync_idle_s=0.0, reserve_bytes=0, scan_chunk_bytes=4096)
CHECKPOINTS = "journal/checkpoints"


def journal_on(files: SimulatedFiles, *, seed: int = 1, settings: LogSettings = SETTINGS) -> Journal:
    return open_journal(files, settings=settings, clock=ManualClock(), entropy=Random(seed).randbytes)


def topic(number: int, name: str | None = None, **fields: object) -> TopicRecord:
    given: dict[str, object] = {
        "number": number,
        "name": f"topic-{number}" if name is None else name,
        "topic_id": number.to_bytes(16, "little"),
        "created_us": 1_000 + number,
        "schemas": (b"schema",),
        "partitions": 1,
    }
    return TopicRecord(**{**given, **fields})  # type: ignore[arg-type]


def create(number: int, name: str | None = None, **fields: object) -> CreateTopic:
    return CreateTopic(topic(number, name, **fields))


def group(number: int) -> CreateGroup:
    return CreateGroup(f"group-{number}", number)


def groups(first: int, count: int) -> list[Operation]:
    return [group(number) for number in range(first, first + count)]


ONE_OF_EACH: list[Operation] = [
    create(1),
    create(2, "orders", key=("id",), time_column="at", partitions=4),
    AddSchema(2, 2, b"wider"),
    AddPartitions(2, 8),
    SetPolicy(2, Policy(cleanup="compact", retention_s=60.0, retention_bytes=1_000)),
    SetTable(2, "lake.orders"),
    create(3),
    DeleteTopic(1, 5_000),
    DeleteTopic(3, 5_001),
    ForgetTopics((3,)),
    CreateGroup("billing", 6_000),
    CreateGroup("audit", 6_001),
    DeleteGroup("audit"),
    SetLogStart(17, ("00000000000000000001.0.seg",)),
]
"""Every kind of operation, in an order in which each applies."""


def facts(state: MetadataState) -> bytes:
    """All that a state says, apart from the LSN: a frame that begins an epoch raises that alone."""
    copy = state.copy()
    copy.lsn = 0
    return copy.pack()


def folded(operations: list[Operation]) -> MetadataState:
    state = MetadataState()
    for number, operation in enumerate(operations):
        state.apply(number + 1, operation)
    return state


def checkpoint_files(files: SimulatedFiles) -> list[CheckpointFile]:
    return Checkpoints(files, CHECKPOINTS, CheckpointKind.JOURNAL).read()


def segment_names(files: SimulatedFiles) -> list[str]:
    return [name for name in files.list("journal") if name.endswith(".seg")]
