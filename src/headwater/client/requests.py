"""What a topic's pipe carries: the rows of one call, and the message in which they travel with others'.

JOINED   Small appends without conditions are put together into one message, which is one write: whole or absent, all of
         them.  Each call is told its own rows, offsets and LSNs.
ALONE    What has a condition, a number or a key of its own, keys to delete, rejected rows, or is large; and all rows of
         a keyed topic with several partitions, because only the server's answer says how they were spread.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace

import pyarrow as pa

from headwater.client.preparing import Preparing, ReadRows, ipc_bytes
from headwater.errors import HeadwaterError, RowsRefused
from headwater.metadata.operations import TopicRecord
from headwater.protocol.codec import pack
from headwater.protocol.streams import RowsRequest, WireIdentity
from headwater.topics.answers import Appended, OffsetRange
from headwater.topics.requests import Identity

_LARGE_BYTES = 256 * 1024


@dataclass(eq=False)
class Item:
    """The rows of one call, and who waits for them."""

    rows: ReadRows
    partition: int | None = None
    expect_offset: int | None = None
    identity: Identity | None = None
    future: Future[Appended] = field(default_factory=Future)
    alone: bool = False
    """It was in a message that was too large: now it travels by itself."""

    def __post_init__(self) -> None:
        # A caller who has given up cannot take back what is on its way.
        self.future.set_running_or_notify_cancel()

    @property
    def bytes(self) -> int:
        return self.rows.bytes + 64

    @property
    def version(self) -> int:
        return len(self.rows.topic.schemas)

    @property
    def joins(self) -> bool:
        rows, topic = self.rows, self.rows.topic
        return (
            not self.alone
            and self.identity is None
            and self.expect_offset is None
            and rows.keys is None
            and (rows.rejected is None or not rows.rejected.num_rows)
            and rows.bytes < _LARGE_BYTES
            and (topic.partitions == 1 or not topic.key)
        )


@dataclass(eq=False)
class Message:
    """Items that travel as one request."""

    items: list[Item]
    batch: pa.RecordBatch
    number: int = 0
    sequence: int | None = None
    """The pipe's own number for it; nothing where its item has an identity of its own."""
    producer: tuple[int, int] = (0, 0)
    """The producer's id and epoch, where it is numbered by the pipe."""
    sent_s: float = 0.0
    sends: int = 0

    def metadata(self) -> bytes:
        first = self.items[0]
        identity = first.identity
        if self.sequence is not None:
            identity = Identity(*self.producer, self.sequence)
        return pack(
            RowsRequest(
                number=self.number,
                partition=first.partition,
                identity=None if identity is None else WireIdentity(*identity),
                expect_offset=first.expect_offset,
                deletes=ipc_bytes(first.rows.keys),
                rejected=ipc_bytes(first.rows.rejected),
            )
        )

    def tell(self, appended: Appended) -> None:
        """Each caller is told of its own rows."""
        if len(self.items) == 1:
            self.items[0].future.set_result(appended)
            return
        # Joined rows all went to one partition, one after the other.
        ((partition, offsets),) = appended.offsets.items()
        at = offsets.first
        for item in self.items:
            count = item.rows.count
            own = {partition: OffsetRange(at, at + count)}
            item.future.set_result(replace(appended, rows=count, offsets=own))
            at += count

    def fail(self, error: BaseException) -> None:
        for item in self.items:
            item.future.set_exception(error)


def message_of(items: Sequence[Item], preparing: Preparing) -> Message | None:
    """One message of these items; an item whose row does not fit after all is refused alone, and left out."""
    topic = items[0].rows.topic
    fitting = list(items)
    try:
        batch = _joined(topic, fitting, preparing)
    except HeadwaterError:
        fitting = [item for item in items if _fits(topic, item, preparing)]
        if not fitting:
            return None
        batch = _joined(topic, fitting, preparing)
    return Message(fitting, batch)


def _fits(topic: TopicRecord, item: Item, preparing: Preparing) -> bool:
    try:
        _joined(topic, [item], preparing)
        return True
    except HeadwaterError as error:
        item.future.set_exception(error)
        return False


def _joined(topic: TopicRecord, items: Sequence[Item], preparing: Preparing) -> pa.RecordBatch:
    reader = preparing.reader(topic)
    if len(items) == 1 and items[0].rows.batch is not None:
        return items[0].rows.batch
    batches: list[pa.RecordBatch] = []
    plain: list[dict[str, object]] = []
    for item in items:
        if item.rows.row is not None:
            plain.append(item.rows.row)
            continue
        if plain:
            batches.append(_of_plain(topic, plain, preparing))
            plain = []
        if item.rows.batch is not None:
            batches.append(item.rows.batch)
    if plain:
        batches.append(_of_plain(topic, plain, preparing))
    if not batches:
        return pa.RecordBatch.from_pylist([], schema=reader.schema)
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _of_plain(topic: TopicRecord, rows: list[dict[str, object]], preparing: Preparing) -> pa.RecordBatch:
    accepted = preparing.reader(topic).read(rows)
    if accepted.refused:
        raise RowsRefused(topic.name, accepted.refused, accepted.rows, accepted.refused_count)
    return accepted.batch
