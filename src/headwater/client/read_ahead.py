"""A stream from a server, read a little ahead: while a caller works on a batch, the next ones come.

PROMISE  Batches in order, each once; then how the stream ended.  At most `AHEAD_BYTES` wait, and always one batch.
THREADS  One of its own reads; one caller takes.  `cancel` may come from any.
"""

from __future__ import annotations

import threading
from collections import deque

import pyarrow as pa
from pyarrow import flight

from headwater.client.threads import join, started

AHEAD_BYTES = 8 * 1024 * 1024

Given = tuple[pa.RecordBatch, bytes | None]


class ReadAhead:
    def __init__(self, reader: flight.FlightStreamReader) -> None:
        self._reader = reader
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Given, int]] = deque()
        self._bytes = 0
        self._end: BaseException | None = None
        self._cancelled = False
        self._thread = started(self._read, "headwater-reads")

    def take(self, timeout_s: float | None = None) -> Given | None:
        """The next batch and what stands beside it; nothing where none came in this time.  StopIteration at the end, or
        whatever broke the stream."""
        with self._changed:
            if not self._waiting and self._end is None:
                self._changed.wait(timeout_s)
            if self._waiting:
                given, size = self._waiting.popleft()
                self._bytes -= size
                self._changed.notify_all()
                return given
            if self._end is not None:
                raise self._end
            return None

    def _read(self) -> None:
        try:
            while not self._cancelled:
                chunk = self._reader.read_chunk()
                metadata = None if chunk.app_metadata is None else chunk.app_metadata.to_pybytes()
                self._put((chunk.data, metadata))
        except BaseException as error:  # noqa: BLE001  whoever takes is told of it, whatever it is
            with self._changed:
                self._end = error
                self._changed.notify_all()

    def _put(self, given: Given) -> None:
        size = given[0].nbytes
        with self._changed:
            while self._waiting and self._bytes + size > AHEAD_BYTES and not self._cancelled:
                self._changed.wait()
            self._waiting.append((given, size))
            self._bytes += size
            self._changed.notify_all()

    def cancel(self) -> None:
        """Nobody wants more; twice is nothing."""
        with self._changed:
            self._cancelled = True
            self._changed.notify_all()
        self._reader.cancel()
        join(self._thread)
