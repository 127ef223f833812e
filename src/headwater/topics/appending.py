"""From rows as callers have them to a request that the log takes.

    rows  →  one batch of the topic's schema (rows.py)  →  partitions (partitioning.py)  →  TopicRequest (requests.py)

All of it runs in the caller's thread, without any lock of the log.

PARTITIONS  A keyed topic's rows go by the hash of their key.  Others go where the caller says, or stay with one
            partition for a while and then move on (sticky), so that small requests can be joined.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

import pyarrow as pa

from headwater.errors import InvalidRequest, RowsRefused, TooLarge
from headwater.frames.frame import WRITE_FRAMES_MAX, Flag
from headwater.log.drafts import Draft, check_write
from headwater.log.index import partition_key
from headwater.metadata.operations import TopicRecord
from headwater.settings import Settings
from headwater.topics.batches import encode_batch
from headwater.topics.names import whole_number
from headwater.topics.partitioning import partition_ids, split_by_partition
from headwater.topics.plain_rows import PlainRow
from headwater.topics.positions import check_partition
from headwater.topics.readers import RowReaders
from headwater.topics.requests import (
    MESSAGE_BYTES,
    GroupOffset,
    Identity,
    PartitionRows,
    SourceAt,
    Told,
    TopicRequest,
    drafts_of,
    merged,
    record_drafts,
    row_too_large,
    size_of,
)

_STICKY_ROWS = 1_024
_KEY_BYTES_MAX = 255

OnRejected = Literal["refuse", "keep"]
RejectedTopic = Callable[[TopicRecord], TopicRecord]
"""The topic that keeps the rows that do not fit another one; made if it is not there."""


@dataclass(frozen=True)
class Prepared:
    """Rows of one call, ready for their partitions."""

    rows: list[PartitionRows]
    accepted: int
    rejected: int


class Preparation:
    """Turns callers' rows into rows of partitions; safe for threads."""

    def __init__(self, settings: Settings, rejected_topic: RejectedTopic) -> None:
        self._settings = settings
        self._rejected_topic = rejected_topic
        self._readers = RowReaders()
        self._sticky: dict[int, tuple[int, int]] = {}
        self._moving = threading.Lock()

    def rows(
        self, topic: TopicRecord, rows: object, *, partition: int | None = None, rejected: OnRejected = "refuse"
    ) -> Prepared:
        """Rows to append, or to upsert where the topic is keyed."""
        if rejected not in ("refuse", "keep"):
            raise InvalidRequest(f"rejected is 'refuse' or 'keep', not {rejected!r}")
        if partition is not None:
            partition = whole_number(partition, "partition")
        accepted = self._readers.reader(topic).read(rows, keep_rejected=rejected == "keep")
        if accepted.refused and rejected == "refuse":
            raise RowsRefused(topic.name, accepted.refused, accepted.rows, accepted.refused_count)
        self._check_row_sizes(topic, accepted.batch)
        prepared = self._place(topic, accepted.batch, partition, tombstones=False)
        if accepted.rejected is not None and accepted.rejected.num_rows:
            kept = self._rejected_topic(topic)
            prepared += self._place(kept, accepted.rejected, None, tombstones=False)
        return Prepared(prepared, accepted.batch.num_rows, accepted.refused_count)

    def row_request(
        self,
        topic: TopicRecord,
        rows: object,
        *,
        partition: int | None = None,
        rejected: OnRejected = "refuse",
        expect_offset: int | None = None,
        identity: Identity | None = None,
        future: Future[Any] | None = None,
        told_as: Callable[[Told], Any] | None = None,
    ) -> TopicRequest | None:
        """The request of one plain row, which is read with others' when the commit is formed; nothing for all else."""
        plain = self._plain(topic, rows, partition) if rejected == "refuse" else None
        if plain is None:
            return None
        row, size = plain
        expected = None
        if expect_offset is not None:
            key = partition_key(topic.number, row.partition)
            expected = {key: whole_number(expect_offset, "expect_offset")}
        return TopicRequest(
            [],
            frame_bytes=size + MESSAGE_BYTES,
            identity=identity,
            expected=expected,
            plain=row,
            future=future,
            told_as=told_as,
        )

    def _plain(self, topic: TopicRecord, rows: object, partition: int | None) -> tuple[PlainRow, int] | None:
        """One row that will surely fit, and about how many bytes it takes."""
        if type(rows) is not dict or (topic.key and topic.partitions > 1):
            return None
        size = self._readers.check(topic).size_of(rows)
        if size is None or size >= min(self._settings.join_bytes_max, self._settings.frame_bytes_max // 2):
            return None
        if partition is not None:
            partition = whole_number(partition, "partition")
        return PlainRow(topic, self._partition_of(topic, partition, 1), dict(rows), self._readers.reader(topic)), size

    def keys(self, topic: TopicRecord, keys: object) -> Prepared:
        """Keys to delete: each becomes a row with its key, and nulls."""
        if not topic.key:
            raise InvalidRequest(f"{topic.name!r} has no key, so there is nothing to delete by", topic=topic.name)
        accepted = self._readers.reader(topic, keys_only=True).read(rows_of_keys(topic, keys))
        if accepted.refused:
            raise RowsRefused(topic.name, accepted.refused, accepted.rows, accepted.refused_count)
        schema = self._readers.reader(topic).schema
        count = accepted.batch.num_rows
        columns = [
            accepted.batch.column(each.name) if each.name in topic.key else pa.nulls(count, each.type)
            for each in schema
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=schema)
        return Prepared(self._place(topic, batch, None, tombstones=True), count, 0)

    def _check_row_sizes(self, topic: TopicRecord, batch: pa.RecordBatch) -> None:
        """A row above the limit of a frame is refused by its number, before it is lost among those of a partition."""
        limit = self._settings.frame_bytes_max
        around = 1024 + 256 * batch.num_columns
        if batch.get_total_buffer_size() + around <= limit:
            return
        pending = [(0, batch)]
        while pending:
            first, piece = pending.pop()
            if piece.nbytes + around <= limit:
                continue
            if piece.num_rows > 1:
                half = piece.num_rows // 2
                pending += [(first + half, piece.slice(half)), (first, piece.slice(0, half))]
            elif encode_batch(piece).nbytes > limit:
                raise row_too_large(topic.name, first, piece.nbytes, limit)

    def _place(
        self, topic: TopicRecord, batch: pa.RecordBatch, partition: int | None, *, tombstones: bool
    ) -> list[PartitionRows]:
        if not batch.num_rows:
            return []
        if partition is not None or topic.partitions == 1 or not topic.key:
            partition = self._partition_of(topic, partition, batch.num_rows)
            return [PartitionRows(topic, partition, batch, tombstones)]
        ids = partition_ids(batch, topic.key, topic.partitions)
        return [
            PartitionRows(topic, number, part, tombstones)
            for number, part in split_by_partition(batch, ids, topic.partitions)
        ]

    def _partition_of(self, topic: TopicRecord, partition: int | None, rows: int) -> int:
        """Where rows go that do not go by their key: where the caller says, or where the last ones went."""
        if partition is not None:
            if topic.key:
                raise InvalidRequest(f"the rows of {topic.name!r} go by their key: leave out partition=")
            check_partition(topic, partition)
            return partition
        return 0 if topic.partitions == 1 else self._sticky_partition(topic, rows)

    def _sticky_partition(self, topic: TopicRecord, rows: int) -> int:
        with self._moving:
            partition, left = self._sticky.get(topic.number, (0, _STICKY_ROWS))
            if left <= 0:
                partition, left = (partition + 1) % topic.partitions, _STICKY_ROWS
            self._sticky[topic.number] = (partition, left - rows)
            return partition

    # Requests ----------------------------------------------------------------------------------

    def request(
        self,
        rows: list[PartitionRows],
        *,
        identity: Identity | None = None,
        expected: dict[int, int] | None = None,
        groups: Sequence[GroupOffset] = (),
        sources: Sequence[SourceAt] = (),
        transaction: bool = False,
        future: Future[Any] | None = None,
        told_as: Callable[[Told], Any] | None = None,
    ) -> TopicRequest:
        """One write: small ones keep their rows as they are, to be joined; large ones are encoded here."""
        size = size_of(rows)
        drafts: list[Draft] | None = None
        if transaction or size >= self._settings.join_bytes_max:
            rows = merged(rows)
            flags = int(Flag.TRANSACTION) if transaction else 0
            drafts = []
            for each in rows:
                drafts += drafts_of(
                    each, frame_bytes_max=self._settings.frame_bytes_max, flags=flags, identity=identity
                )
            drafts += record_drafts(groups, sources)
            versions = {(each.topic.number, len(each.topic.schemas)) for each in rows}
            if len(drafts) + len(versions) + 1 > WRITE_FRAMES_MAX:
                raise TooLarge(
                    "a write has too many frames: rows for so many partitions, or so many sources, take several",
                    frames=len(drafts) + len(versions) + 1,
                    limit=WRITE_FRAMES_MAX,
                )
            size = check_write(drafts, self._settings.log)
        return TopicRequest(
            rows,
            drafts=drafts,
            frame_bytes=size,
            identity=identity,
            expected=expected,
            groups=tuple(groups),
            alone=transaction,
            future=future,
            told_as=told_as,
        )


def key_hash(key: str | bytes, topic_id: bytes = b"") -> bytes:
    """128 bits that stand for an idempotency key in the log: of one topic, or of transactions."""
    if not isinstance(key, str | bytes):
        raise InvalidRequest(f"an idempotency key is text or bytes, not {type(key).__name__}")
    try:
        data = key.encode() if isinstance(key, str) else key
    except UnicodeEncodeError:
        raise InvalidRequest(f"an idempotency key is text that UTF-8 can hold: {key!r} is not") from None
    if not 1 <= len(data) <= _KEY_BYTES_MAX:
        raise InvalidRequest(f"an idempotency key has 1 to {_KEY_BYTES_MAX} bytes", bytes=len(data))
    return blake2b(data, digest_size=16, key=topic_id).digest()


def expected_offset(topic: TopicRecord, rows: Sequence[PartitionRows], offset: int) -> dict[int, int]:
    """`expect_offset` as the log checks it: it means one partition."""
    offset = whole_number(offset, "expect_offset")
    partitions = {each.key for each in rows if each.topic.number == topic.number}
    if len(partitions) != 1:
        raise InvalidRequest(
            "expect_offset means one partition: say which, with partition=",
            topic=topic.name,
            partitions=len(partitions),
        )
    return {partitions.pop(): offset}


def rows_of_keys(topic: TopicRecord, keys: object) -> object:
    """Keys may be given bare where the key is one column: `delete(42)`, `delete(["a", "b"])`."""
    if len(topic.key) != 1:
        return keys
    name = topic.key[0]
    if isinstance(keys, str | bytes | int):
        return [{name: keys}]
    if isinstance(keys, list | tuple) and keys and all(isinstance(each, str | bytes | int) for each in keys):
        return [{name: each} for each in keys]
    return keys
