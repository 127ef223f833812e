"""Rows of a topic, read through a server: planned when the read is made, streamed when it is iterated over.

PROMISE  As an embedded read: where it begins and ends is looked up when it is made, and each iteration gives the same
         rows.  A stream that breaks goes on with the row after the last that was given, so no row comes twice and none
         is left out: rows come in the order of LSNs, and those of one LSN in the order of offsets.
HOW      So the LSN and the offset of each row are always asked for, and left out of what is given unless they are
         wanted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import flight

from headwater.client.connection import Connection
from headwater.errors import InvalidRequest, Unavailable
from headwater.protocol.codec import pack, unpack
from headwater.protocol.places import AtLsn, AtOffset, AtOffsets, wire_place
from headwater.protocol.streams import ReadRows
from headwater.topics.ahead import OFFSET, PARTITION
from headwater.topics.names import whole_number
from headwater.topics.read_shape import SYSTEM_COLUMNS
from headwater.topics.reading import Rows, Wanted

LSN = "_hw_lsn"
_SYSTEM = tuple(each.name for each in SYSTEM_COLUMNS)
_PLACE = (LSN, PARTITION, OFFSET)
_PAUSE_S = 0.1


def rows_of(connection: Connection, topic_id: bytes, wanted: Wanted) -> Rows:
    asked = _asked(topic_id, wanted)
    descriptor = flight.FlightDescriptor.for_command(pack(asked))
    info = connection.asked(lambda client, options: client.get_flight_info(descriptor, options))
    ticket = unpack(info.endpoints[0].ticket.ticket, ReadRows)
    names = [name for name in info.schema.names if wanted.system_columns or name not in _SYSTEM]
    if wanted.columns is not None:
        names = [wanted.columns] if isinstance(wanted.columns, str) else list(wanted.columns)
    given = pa.schema([info.schema.field(name) for name in names])
    return Rows(given, lambda: _Stream(connection, ticket, names, wanted.gone).batches())


def _asked(topic_id: bytes, wanted: Wanted) -> ReadRows:
    if wanted.limit is not None and whole_number(wanted.limit, "limit") < 0:
        raise InvalidRequest("limit is at least 0", limit=wanted.limit)
    if whole_number(wanted.batch_rows, "batch_rows") < 1:
        raise InvalidRequest("batch_rows is at least 1", batch_rows=wanted.batch_rows)
    return ReadRows(
        topic=topic_id,
        start=wire_place(wanted.start),
        stop=None if wanted.stop is None else wire_place(wanted.stop),
        limit=wanted.limit,
        batch_rows=min(wanted.batch_rows, 1 << 24),
        follow=wanted.follow,
        timeout_s=None if wanted.timeout_s is None else float(wanted.timeout_s),
        columns=_columns(wanted),
        partition=None if wanted.partition is None else whole_number(wanted.partition, "partition"),
        system_columns=True,
    )


def _columns(wanted: Wanted) -> tuple[str, ...] | None:
    """What is wanted, and by what a row's place is known."""
    if wanted.columns is None:
        return None
    names = (wanted.columns,) if isinstance(wanted.columns, str) else tuple(wanted.columns)
    if not names:
        raise InvalidRequest("columns names at least one; leave it out for all of them")
    hidden = [name for name in names if name in _SYSTEM and not wanted.system_columns]
    if hidden:
        raise InvalidRequest(
            f"{hidden[0]!r} is a column of the system's: ask for system_columns=True", column=hidden[0]
        )
    return (*names, *(name for name in _PLACE if name not in names))


class _Stream:
    """One iteration over a read."""

    def __init__(
        self, connection: Connection, ticket: ReadRows, names: list[str], gone: Callable[[], bool] | None
    ) -> None:
        self._connection = connection
        self._gone = gone
        self._ticket = ticket
        self._names = names
        self._last: tuple[int, int] | None = None
        """The LSN and the offset of the last row that was given."""
        self._next: dict[int, int] = {}
        """By partition, the offset after it."""
        self._given = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        clock = self._connection.clock
        broken_s: float | None = None
        while True:
            given = self._given
            try:
                for batch, _ in self._connection.get(self._resumed(), self._gone):
                    fresh = self._fresh(batch)
                    if fresh.num_rows:
                        yield fresh.select(self._names)
                    if self._given == self._ticket.limit:
                        return
                return
            except Unavailable:
                if self._gone is not None and self._gone():
                    return
                if self._connection.is_closed:
                    raise
                now_s = clock.monotonic_s()
                if broken_s is None or self._given > given:
                    broken_s = now_s
                elif now_s - broken_s > self._connection.settings.retry_s:
                    raise
                self._connection.pause(_PAUSE_S)

    def _resumed(self) -> ReadRows:
        """What is left to be read."""
        if self._last is None:
            return self._ticket
        start = self._ticket.start
        partition = self._ticket.partition
        if isinstance(start, AtOffset) and partition is not None:
            start = AtOffset(self._next.get(partition, start.offset))
        elif isinstance(start, AtOffsets):
            start = AtOffsets({each: max(at, self._next.get(each, 0)) for each, at in start.offsets.items()})
        else:
            start = AtLsn(self._last[0])
        # Rows of the last LSN come again and are left out, so the limit is counted here.
        return msgspec.structs.replace(self._ticket, start=start, limit=None)

    def _fresh(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows that were not given yet; from then on they count as given."""
        if self._last is not None and batch.num_rows and batch.column(LSN)[0].as_py() <= self._last[0]:
            lsn, offset = self._last
            later = pc.greater(batch.column(LSN), lsn)
            behind = pc.and_(pc.equal(batch.column(LSN), lsn), pc.greater(batch.column(OFFSET), offset))
            batch = batch.filter(pc.or_(later, behind))
        if self._ticket.limit is not None:
            batch = batch.slice(0, self._ticket.limit - self._given)
        if batch.num_rows:
            self._last = (batch.column(LSN)[-1].as_py(), batch.column(OFFSET)[-1].as_py())
            self._given += batch.num_rows
            if isinstance(self._ticket.start, AtOffset | AtOffsets):
                self._note(batch)
        return batch

    def _note(self, batch: pa.RecordBatch) -> None:
        # By plain kernels: Arrow's aggregations complain of each buffer that a network did not align.
        partitions, offsets = batch.column(PARTITION), batch.column(OFFSET)
        for partition in pc.unique(partitions).to_pylist():
            highest = pc.max(offsets.filter(pc.equal(partitions, partition))).as_py()
            self._next[partition] = highest + 1
