"""What a task is given and what it gives back: plain values that travel to any worker as msgpack.

A work item names bytes of one segment and says, topic by topic, which LSNs of it go into which table.  The same item
runs in this process, in a local one, or in a Spark task (task.py); the commit does not know where it ran.
"""

from __future__ import annotations

import builtins

import msgspec


class Column(msgspec.Struct, frozen=True, array_like=True):
    """A column that a landing writes: its digest is over these, in order of field id."""

    field_id: int
    name: str
    type: str
    """As Iceberg spells it: "long", "decimal(10, 2)", "struct<...>"."""


class Block(msgspec.Struct, frozen=True, array_like=True):
    """The digest of the rows of one partition in one block of 65,536 offsets."""

    partition: int
    block: int
    rows: int
    total: int


class Digest(msgspec.Struct, frozen=True, array_like=True):
    """Rows and the sum of their words modulo 2^64, by block (docs/formats/digest.md).  digest.py computes it."""

    blocks: tuple[Block, ...] = ()

    @property
    def rows(self) -> int:
        return sum(block.rows for block in self.blocks)

    @property
    def total(self) -> int:
        return sum(block.total for block in self.blocks) & 0xFFFF_FFFF_FFFF_FFFF

    def __str__(self) -> str:
        return f"{self.total:016x}"


class TopicWork(msgspec.Struct, frozen=True):
    """What a task does with the rows of one topic."""

    number: int
    commit_id: str
    """A uuid: data files are named by it."""
    lsn_from: int
    """Rows after this LSN ..."""
    lsn_to: int
    """... and up to this one."""
    schemas: tuple[bytes, ...]
    """The topic's schema versions, packed, from version 1 on (TopicRecord.schemas)."""
    target: bytes
    """Fit.target."""
    changes: bool = False
    """A change table: `_hw_op` says "U" or "D"."""
    time_column: bool = False
    """The topic declares an event-time column: frames say in their headers how far it goes."""


class LandWork(msgspec.Struct, frozen=True, tag="land"):
    """Bytes of one segment, and the topics whose rows are wanted from them."""

    directory: str
    """The data directory, as a path or a url that workers reach."""
    segment: str
    """The segment's name in `log/`."""
    runs: tuple[tuple[int, int], ...]
    """Byte ranges, each from a frame's beginning to a frame's end, in order."""
    shard: int
    topics: tuple[TopicWork, ...]
    slots: builtins.bytes = b""
    """Where the segment lies, if it is no file (log/opened_segment.py)."""


class WrittenFile(msgspec.Struct, frozen=True):
    """A data file that a task wrote."""

    path: str
    rows: int
    size_bytes: int
    stats: builtins.bytes = b""
    """What the commit needs to know of it: opaque, for write_target.py."""


class TopicDone(msgspec.Struct, frozen=True):
    """What a task did for one topic."""

    number: int
    files: tuple[WrittenFile, ...] = ()
    digest: Digest = Digest()
    max_lsn: int = 0
    """The highest LSN of a row that was written; 0: none."""
    time_max_us: int | None = None
    """The highest event time, where the topic declares a time column."""
    error: str | None = None
    """Why this topic's rows were not written, all of them."""
    offsets: tuple[tuple[int, int, int], ...] = ()
    """(partition, first offset, last offset) of the rows that were written."""


class LandDone(msgspec.Struct, frozen=True, tag="land"):
    topics: tuple[TopicDone, ...]
    bytes_read: int = 0
    cpu_s: dict[str, float] = {}
    """CPU seconds of the worker's process by part: read, digest, write."""


class ReadBackWork(msgspec.Struct, frozen=True, tag="read-back"):
    """Data files of one landing, to be read again, and made to survive a power loss where they are on this disk."""

    target: bytes
    files: tuple[str, ...]
    number: int = 0
    """The topic's."""
    size_bytes: int = 0
    """How large the files are together, for whoever shares out works."""
    item: int = 0
    """Told back, so that whoever asked knows which landing it was of."""
    between: tuple[int, int] | None = None
    """Files that others may have written since, with other rows beside: only rows after the first LSN and up to the
    second count."""


class ReadBackDone(msgspec.Struct, frozen=True, tag="read-back"):
    number: int
    digest: Digest = Digest()
    error: str | None = None
    """What is wrong with the files: one is missing, or does not hold what data files hold."""
    unread: str | None = None
    """Why nobody could look at them."""
    item: int = 0


Work = LandWork | ReadBackWork
Done = LandDone | ReadBackDone

_work: msgspec.msgpack.Decoder[Work] = msgspec.msgpack.Decoder(Work)
_done: msgspec.msgpack.Decoder[Done] = msgspec.msgpack.Decoder(Done)
pack = msgspec.msgpack.encode
"""A work, or what came of one, as bytes."""


def unpack_work(data: bytes) -> Work:
    return _work.decode(data)


def unpack_done(data: bytes) -> Done:
    return _done.decode(data)


def failed(work: Work, error: str) -> Done:
    """What is said of a work that was not done: nothing of it counts."""
    if isinstance(work, ReadBackWork):
        return ReadBackDone(work.number, unread=error, item=work.item)
    return LandDone(tuple(TopicDone(topic.number, error=error) for topic in work.topics))
