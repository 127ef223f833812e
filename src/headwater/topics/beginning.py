"""A log that does not begin at LSN 1: for a data directory that goes on where a lost one ended.

What it holds when it is done is what a log holds that has let go of everything before an LSN: a journal that says where
the log begins, a checkpoint of the shard just before that, and one empty segment, which in a bucket is a slot that
opens it, and `trim`.

ORDER    Checkpoint, journal, segment.  Until the segment is there every opening halts by name (LostSegment,
         CheckpointLost), so that nobody can write into a log that is half made.
PROMISE  Nothing is begun where there is anything of a log: InvalidRequest.
NOT HERE What is known of the lost log: lake/from_lake.py.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from headwater.clock import Clock, Entropy
from headwater.errors import InvalidRequest
from headwater.frames.segment_header import SegmentHeader
from headwater.ids import Lsn
from headwater.log.chain import ChainEnd
from headwater.log.file_actions import create_segment
from headwater.log.index import partition_key
from headwater.log.manifest import Manifest, pack_manifest
from headwater.log.segments import LogPlace
from headwater.log.slots import TRIM, WINDOW, pack_slot, slot_name
from headwater.metadata.checkpoint import Checkpoint, CheckpointKind, Checkpoints
from headwater.metadata.journal import open_journal
from headwater.metadata.operations import (
    TOPIC_ID_BYTES,
    AddSchema,
    CreateGroup,
    CreateTopic,
    DeleteTopic,
    ForgetTopics,
    Operation,
    SetLogStart,
    TopicRecord,
)
from headwater.metadata.shard_state import Committed, ShardState
from headwater.metrics import LogCounters
from headwater.settings import Settings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.files import Files
from headwater.topics.shard import CHECKPOINTS

LOG = "log"
JOURNAL = "journal"
JOURNAL_CHECKPOINTS = f"{JOURNAL}/checkpoints"
OPERATIONS_PER_WRITE = 500

_NO_TOPIC_ID = bytes(TOPIC_ID_BYTES)


@dataclass(frozen=True)
class Beginning:
    """What a log begins with."""

    log_id: bytes
    first_lsn: int
    topics: Sequence[TopicRecord]
    number_max: int = 0
    """Topic numbers up to this were given out once, and are not given out again."""
    next_offsets: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """By topic number and partition."""
    time_us: int = 0
    """The latest append time of what came before."""
    groups: Mapping[str, int] = field(default_factory=dict)
    """Groups that are to read on after the offsets before these, by name, with when they were created."""


def files_of_a_log(files: Files) -> list[str]:
    """Everything that a log has left in a data directory, beside its ledger; in the order in which it can go, so that
    what is left of it can never be opened."""
    return [
        f"{directory}/{name}"
        for directory in (LOG, JOURNAL, JOURNAL_CHECKPOINTS, CHECKPOINTS)
        for name in files.list(directory)
        if f"{directory}/{name}" != JOURNAL_CHECKPOINTS
    ]


def begin_log(files: Files, beginning: Beginning, *, settings: Settings, clock: Clock, entropy: Entropy) -> None:
    """Make the journal, the checkpoint and the first segment; durable when it returns."""
    there = files_of_a_log(files)
    if there:
        raise InvalidRequest(f"{there[0]} is there: a log can only begin where there is none")
    operations = list(_operations(beginning))
    _write_checkpoint(files, beginning, clock)
    with open_journal(files, JOURNAL, settings=settings.journal, clock=clock, entropy=entropy) as journal:
        for start in range(0, len(operations), OPERATIONS_PER_WRITE):
            journal.append(operations[start : start + OPERATIONS_PER_WRITE])
        journal.checkpoint()
    header = SegmentHeader(
        log_id=beginning.log_id,
        salt=entropy(8),
        first_lsn=beginning.first_lsn,
        prev=0,
        epoch=1,
        created_us=max(clock.now_us(), beginning.time_us),
    )
    if isinstance(files, BucketFiles):
        _begin_in_bucket(files, header)
        return
    files.make_directory(LOG)
    _, file = create_segment(LogPlace(files, LOG, settings.log, LogCounters()), header, lambda sync: sync())
    file.close()


def _begin_in_bucket(files: BucketFiles, header: SegmentHeader) -> None:
    """The same as slots: one that opens the segment, and `trim`, with which the log is there."""
    manifest = Manifest(header.log_id, WINDOW, end=ChainEnd(header.first_lsn, header.prev, 0, 0))
    for name, data in (
        (slot_name(manifest.next), pack_slot(dataclasses.replace(header, slot=manifest.next), ())),
        (TRIM, pack_manifest(manifest)),
    ):
        file = files.create(f"{LOG}/{name}")
        try:
            file.append([data])
            file.sync_all()
        finally:
            file.close()


def _operations(beginning: Beginning) -> Iterator[Operation]:
    # Where the log begins comes first: a journal that is cut short must not look like that of a new log.
    yield SetLogStart(beginning.first_lsn, ())
    topics = {topic.number: topic for topic in beginning.topics}
    for number in range(1, max([beginning.number_max, *topics]) + 1):
        yield from _creation(topics[number]) if number in topics else _passed_over(number)
    for name, created_us in sorted(beginning.groups.items()):
        yield CreateGroup(name, created_us)


def _creation(topic: TopicRecord) -> Iterator[Operation]:
    """A topic begins with one schema, and gets the others one by one."""
    yield CreateTopic(replace(topic, schemas=topic.schemas[:1]))
    for version, schema in enumerate(topic.schemas[1:], 2):
        yield AddSchema(topic.number, version, schema)


def _passed_over(number: int) -> Iterator[Operation]:
    """Numbers are dense, and none is given out twice."""
    # No topic can have this name, which holds characters that a name may not.
    name = f"(number {number})"
    yield CreateTopic(
        TopicRecord(number=number, name=name, topic_id=_NO_TOPIC_ID, created_us=0, schemas=(b"",), partitions=1)
    )
    yield DeleteTopic(number, 0)
    yield ForgetTopics((number,))


def _write_checkpoint(files: Files, beginning: Beginning, clock: Clock) -> None:
    state = ShardState()
    last_lsn = beginning.first_lsn - 1
    state.move_to(last_lsn, 0, beginning.time_us)
    state.next_offsets = {partition_key(*place): offset for place, offset in beginning.next_offsets.items()}
    for group in beginning.groups:
        for (number, partition), offset in beginning.next_offsets.items():
            committed = state.groups.setdefault((group, number), {})
            committed[partition] = Committed(offset, 0, 0, Lsn(last_lsn))
    checkpoint = Checkpoint(
        CheckpointKind.SHARD,
        lsn=last_lsn,
        chain=0,
        # No operation of the journal is older than it.
        journal_lsn=0,
        created_us=clock.now_us(),
        body=state.pack(),
    )
    Checkpoints(files, CHECKPOINTS, CheckpointKind.SHARD).write(checkpoint)
