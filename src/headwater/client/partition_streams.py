"""Streams of partitions, kept open between a consumer's polls, so that the next rows are on their way before they are
asked for.

PROMISE  `take` gives the rows from an offset on, each once, in order: a stream is used only where it stands exactly
         there.
LIMIT    A few streams more than are in use stay open; the one not used for longest is let go.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from headwater.client.connection import Connection
from headwater.errors import Unavailable
from headwater.protocol.codec import unpack
from headwater.protocol.streams import ReadPartition, ReadPartitions, ReadTo
from headwater.topics.ahead import OFFSET, PARTITION

KEPT = 64

Key = tuple[bytes, int, int]
"""A topic, a partition, and the offset at which a stream stands."""


class _Standing:
    """A stream, and what is left of the batch that came last."""

    def __init__(self, batches: Iterator[tuple[pa.RecordBatch, bytes | None]]) -> None:
        self.batches = batches
        self.left: pa.RecordBatch | None = None
        self.left_to = 0


class PartitionStreams:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._standing: dict[Key, _Standing] = {}
        self._lock = threading.Lock()

    def take(self, topic_id: bytes, partition: int, offset: int, rows_max: int) -> tuple[pa.RecordBatch | None, int]:
        """The next rows, and the offset after them; it waits until the server has some, or says that there are none
        up to a later offset."""
        with self._lock:
            standing = self._standing.pop((topic_id, partition, offset), None)
        found = None
        if standing is not None:
            try:
                found = self._next(standing, rows_max, offset)
            except Unavailable:
                # It broke since it was last used, or ended because the topic's schema is another one now.
                self._connection.check_open()
        if standing is None or found is None:
            standing = _Standing(self._connection.get(ReadPartition(topic_id, partition, offset)))
            found = self._next(standing, rows_max, offset)
        batch, after = found
        self._keep((topic_id, partition, after), standing)
        return batch, after

    def gather(self, topic_id: bytes, offsets: Mapping[int, int]) -> list[pa.RecordBatch]:
        """Some rows of many partitions by one message, with their partitions and offsets."""
        found: list[pa.RecordBatch] = []
        try:
            for batch, _ in self._connection.get(ReadPartitions(topic_id, dict(offsets))):
                found.append(batch)
        except Unavailable:
            # What came before it broke is right, and whoever reads on asks for the rest, or hears why it cannot.
            self._connection.check_open()
        self._end_overtaken(topic_id, offsets, found)
        return found

    def _end_overtaken(self, topic_id: bytes, asked: Mapping[int, int], found: list[pa.RecordBatch]) -> None:
        """Streams of these partitions would be sent again what has come, and stand where nobody asks again."""
        numbers = {number for batch in found for number in pc.unique(batch.column(PARTITION)).to_pylist()}
        with self._lock:
            keys = [(topic_id, number, asked[number]) for number in numbers]
            old = [self._standing.pop(key) for key in keys if key in self._standing]
        for each in old:
            _end(each)

    def standing(self, topic_id: bytes) -> list[tuple[int, int]]:
        """The partitions of which streams are open, and the offset at which each stands."""
        with self._lock:
            return [(number, at) for topic, number, at in self._standing if topic == topic_id]

    def _next(self, standing: _Standing, rows_max: int, offset: int) -> tuple[pa.RecordBatch | None, int]:
        batch, to = standing.left, standing.left_to
        standing.left = None
        if batch is None:
            found = next(standing.batches, None)
            if found is None:
                raise Unavailable("the server ended a stream of rows", offset=offset)
            data, metadata = found
            read = unpack(metadata or b"", ReadTo)
            batch, to = data, read.next_offset
        if not batch.num_rows:
            return None, to
        if batch.num_rows > rows_max:
            standing.left, standing.left_to = batch.slice(rows_max), to
            batch = batch.slice(0, rows_max)
            to = batch.column(OFFSET)[-1].as_py() + 1
        return batch.drop_columns([OFFSET]), to

    def _keep(self, key: Key, standing: _Standing) -> None:
        old: list[_Standing] = []
        with self._lock:
            replaced = self._standing.pop(key, None)
            if replaced is not None:
                old.append(replaced)
            self._standing[key] = standing
            while len(self._standing) > KEPT:
                old.append(self._standing.pop(next(iter(self._standing))))
        for each in old:
            _end(each)

    def close(self) -> None:
        with self._lock:
            standing = list(self._standing.values())
            self._standing.clear()
        for each in standing:
            _end(each)


def _end(standing: _Standing) -> None:
    """A generator that is closed cancels its stream."""
    close = getattr(standing.batches, "close", None)
    if close is not None:
        close()
