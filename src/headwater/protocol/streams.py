"""Streams: rows that go in (DoPut), rows that come out (DoGet), and how reads are planned (GetFlightInfo).

APPEND   The descriptor's command is an AppendStream; the stream's Arrow schema is exactly the topic's, of the version
         that it names.  Each record batch is one request, with a RowsRequest as its metadata, and each is answered, in
         order, by a RowsAnswer.  A request that is refused does not end the stream.
READ     A ticket is a ReadRows, ReadPartition, ReadPartitions or ReadFrames; GetFlightInfo takes a ReadPlan as its
         command and gives endpoints, each with its ticket and where to go with it.
         ReadPartition: the topic's columns and `_hw_offset`; each batch has a ReadTo as its metadata, and one without
         rows moves the reader on all the same.
         ReadPartitions: the topic's columns, `_hw_partition` and `_hw_offset`.
         ReadFrames: one column `frame`, binary: frames of the log as they lie there, checksums and all.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from headwater.metadata.operations import PARTITIONS_MAX
from headwater.protocol.failures import Failure
from headwater.protocol.places import Number, WirePlace
from headwater.topics.answers import Appended

TopicId = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
Rows = Annotated[int, msgspec.Meta(ge=1, le=1 << 24)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""Thirty years is for ever; a wait cannot be told to last longer than some hundreds."""
Names = Annotated[tuple[str, ...], msgspec.Meta(max_length=10_000)]


class WireIdentity(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """By what a request can be told again: a producer's number, an idempotency key's hash (docs/protocol.md), both."""

    producer_id: Number = 0
    epoch: Number = 0
    sequence: Number = 0
    key: Annotated[bytes, msgspec.Meta(max_length=16)] = b""


class AppendStream(msgspec.Struct, frozen=True, tag="append", forbid_unknown_fields=True):
    topic: TopicId
    schema_version: Annotated[int, msgspec.Meta(ge=1)]
    """Which of the topic's schema versions the stream's schema is."""


class RowsRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Beside a record batch: one write, whole or absent."""

    number: Number
    """The client's own; it comes back in the answer."""
    partition: Number | None = None
    identity: WireIdentity | None = None
    expect_offset: Number | None = None
    deletes: bytes = b""
    """Keys to delete, and the batch has no rows: an Arrow IPC stream of the topic's key columns."""
    rejected: bytes = b""
    """Rows that did not fit, for `<topic>.rejected` by the same write: an Arrow IPC stream of its schema."""


class RowsAnswer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    number: Number
    appended: Appended | None = None
    failure: Failure | None = None


class ReadRows(msgspec.Struct, frozen=True, tag="rows", forbid_unknown_fields=True):
    """Rows of a topic in the order of the log."""

    topic: TopicId
    start: WirePlace
    stop: WirePlace | None = None
    limit: Number | None = None
    batch_rows: Rows = 65_536
    follow: bool = False
    timeout_s: Seconds | None = None
    columns: Names | None = None
    partition: Number | None = None
    system_columns: bool = False
    up_to_lsn: Number | None = None
    """Nothing behind this LSN, wherever the log has come to: so a ticket means the same rows at every use."""


class ReadPartition(msgspec.Struct, frozen=True, tag="partition", forbid_unknown_fields=True):
    """Rows of one partition from an offset on, for a consumer; it follows until the client has enough."""

    topic: TopicId
    partition: Number
    offset: Number
    batch_rows: Rows = 65_536


class ReadPartitions(msgspec.Struct, frozen=True, tag="partitions", forbid_unknown_fields=True):
    """Some rows of many partitions, each from its offset on, for a consumer: those that lie together in the log now."""

    topic: TopicId
    offsets: Annotated[dict[Number, Number], msgspec.Meta(min_length=1, max_length=PARTITIONS_MAX)]
    """By partition."""


class ReadTo(msgspec.Struct, frozen=True, array_like=True):
    """How far a batch of a partition goes: from `offset` to before `next_offset`."""

    offset: Number
    next_offset: Number


class ReadFrames(msgspec.Struct, frozen=True, tag="frames", forbid_unknown_fields=True):
    """Frames of these topics after one LSN and up to another, of one segment as it was planned."""

    segment: Annotated[str, msgspec.Meta(max_length=64)]
    topics: Annotated[tuple[tuple[TopicId, Number, Number], ...], msgspec.Meta(max_length=10_000)]
    """(topic, after this LSN, up to this LSN) of each."""


class ReadPlan(msgspec.Struct, frozen=True, tag="plan", forbid_unknown_fields=True):
    """How a topic's rows between two places are read by several readers side by side."""

    topic: TopicId
    start: WirePlace
    stop: WirePlace | None = None
    columns: Names | None = None
    endpoints_min: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1
    system_columns: bool = False


Ticket = ReadRows | ReadPartition | ReadPartitions | ReadFrames
Command = AppendStream | ReadPlan
FRAME_COLUMN = "frame"
Right = Literal["read", "write", "land", "admin"]
"""What a principal may do, by topic prefix: each is a word of its own, and none holds another."""
