"""Callers' rows as Arrow, read here as an embedded log reads them: what does not fit is refused before it is sent.

PROMISE  The same rows are taken and refused, by the same numbers and reasons, as by a log in this process.
         A topic that has got a column meanwhile is asked for once more before a row is refused for it.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from headwater.errors import InvalidRequest, RowsRefused
from headwater.metadata.operations import TopicRecord
from headwater.topics.appending import OnRejected, rows_of_keys
from headwater.topics.names import whole_number
from headwater.topics.positions import check_partition
from headwater.topics.readers import RowReaders

PLAIN_BYTES_MAX = 64 * 1024


@dataclass(frozen=True)
class ReadRows:
    """Rows of one call."""

    topic: TopicRecord
    """As it was when they were read: the batch is of its newest schema."""
    batch: pa.RecordBatch | None = None
    row: dict[str, object] | None = None
    """One row that will surely fit, to become columns with others'."""
    rejected: pa.RecordBatch | None = None
    keys: pa.RecordBatch | None = None
    """Keys to delete."""
    bytes: int = 0

    @property
    def count(self) -> int:
        if self.row is not None:
            return 1
        return self.batch.num_rows if self.batch is not None else 0


class Preparing:
    """Reads rows; safe for threads."""

    def __init__(self) -> None:
        self._readers = RowReaders()
        self.reader = self._readers.reader

    def plain(self, topic: TopicRecord, rows: object) -> ReadRows | None:
        """One row whose Python types say that it will fit; nothing for all else."""
        if type(rows) is not dict:
            return None
        size = self._readers.check(topic).size_of(rows)
        if size is None or size > PLAIN_BYTES_MAX:
            return None
        return ReadRows(topic, row=dict(rows), bytes=size)

    def rows(self, topic: TopicRecord, rows: object, *, partition: int | None, rejected: OnRejected) -> ReadRows:
        if rejected not in ("refuse", "keep"):
            raise InvalidRequest(f"rejected is 'refuse' or 'keep', not {rejected!r}")
        self.check_partition(topic, partition)
        accepted = self.reader(topic).read(rows, keep_rejected=rejected == "keep")
        if accepted.refused and rejected == "refuse":
            raise RowsRefused(topic.name, accepted.refused, accepted.rows, accepted.refused_count)
        return ReadRows(topic, accepted.batch, rejected=accepted.rejected, bytes=accepted.batch.nbytes)

    def check_partition(self, topic: TopicRecord, partition: int | None) -> None:
        if partition is None:
            return
        if topic.key:
            raise InvalidRequest(f"the rows of {topic.name!r} go by their key: leave out partition=")
        check_partition(topic, whole_number(partition, "partition"))

    def keys(self, topic: TopicRecord, keys: object) -> ReadRows:
        if not topic.key:
            raise InvalidRequest(f"{topic.name!r} has no key, so there is nothing to delete by", topic=topic.name)
        accepted = self.reader(topic, keys_only=True).read(rows_of_keys(topic, keys))
        if accepted.refused:
            raise RowsRefused(topic.name, accepted.refused, accepted.rows, accepted.refused_count)
        return ReadRows(topic, keys=accepted.batch, bytes=accepted.batch.nbytes)


def ipc_bytes(batch: pa.RecordBatch | None) -> bytes:
    """An Arrow IPC stream; nothing where there are no rows."""
    if batch is None or not batch.num_rows:
        return b""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
