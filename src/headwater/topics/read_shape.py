"""The form in which a read gives its rows: the topic's columns in one version of its schema, and the system's.

PROMISE  What a read gives stays as it was when it began, whatever becomes of the topic's schema meanwhile.
NOT HERE Which rows: reading.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidRequest
from headwater.frames.frame import Flag, Header
from headwater.metadata.operations import TopicRecord
from headwater.topics.batches import FrameRows, concat, decode_rows
from headwater.topics.schema import adapt, unpack_schema

OP_COLUMN = "_hw_op"
_OP = pa.field(OP_COLUMN, pa.string(), nullable=False)
SYSTEM_COLUMNS = [
    pa.field("_hw_lsn", pa.int64(), nullable=False),
    pa.field("_hw_partition", pa.int32(), nullable=False),
    pa.field("_hw_offset", pa.int64(), nullable=False),
    pa.field("_hw_time", pa.timestamp("us", "UTC"), nullable=False),
]


class ReadShape:
    """The columns that a read gives, and how a frame's rows are brought into them."""

    def __init__(self, topic: TopicRecord, columns: Sequence[str] | None, *, system_columns: bool) -> None:
        self._schemas = [unpack_schema(each) for each in topic.schemas]
        self._version = len(self._schemas)
        self._present = self._schemas[-1]
        self._keyed = bool(topic.key)
        self._system = system_columns
        system = SYSTEM_COLUMNS if system_columns else []
        full = pa.schema([*self._row_fields(), *([_OP] if self._keyed else []), *system])
        self._columns = [columns] if isinstance(columns, str) else list(columns) if columns is not None else None
        if self._columns is not None:
            if not self._columns:
                raise InvalidRequest("columns names at least one; leave it out for all of them")
            unknown = [name for name in self._columns if name not in full.names]
            if unknown:
                raise InvalidRequest(
                    f"{topic.name!r} has no column {unknown[0]!r}; it has {', '.join(full.names)}", column=unknown[0]
                )
        self.schema = full if self._columns is None else pa.schema([full.field(name) for name in self._columns])

    def _row_fields(self) -> list[pa.Field]:
        if not self._keyed:
            return list(self._present)
        # A delete has nulls in every column but its key, whatever the schema says of upserts.
        return [each.with_nullable(True) for each in self._present]

    def knows(self, version: int) -> bool:
        return version <= len(self._schemas)

    def learn(self, topic: TopicRecord) -> None:
        """Versions that were added since the read began; what it gives stays as it was."""
        self._schemas = [unpack_schema(each) for each in topic.schemas]

    def rows(self, header: Header, body: memoryview) -> FrameRows:
        """The rows as the frame holds them."""
        return decode_rows(header, body, self._schemas[header.schema_version - 1])

    def give(self, frames: Sequence[tuple[Header, FrameRows]]) -> pa.RecordBatch:
        """The rows of these frames, which are of one schema version, in the form that was asked for.

        Of many small ones at once, because the system's columns of a frame with one row cost as much as those of all.
        """
        version = frames[0][0].schema_version
        batches = [rows.batch for _, rows in frames]
        batch = concat(batches)
        if version < self._version:
            batch = adapt(batch, self._present)
        elif version > self._version:
            batch = self._as_before(batch)
        if not self._keyed and not self._system and self._columns is None:
            return batch
        headers = [header for header, _ in frames]
        spread = _Spread([each.num_rows for each in batches])
        columns = list(batch.columns)
        names = list(self._present.names)
        if self._keyed:
            columns.append(spread.of(["D" if each.flags & Flag.TOMBSTONES else "U" for each in headers], _OP.type))
            names.append(OP_COLUMN)
        if self._system:
            offsets = [
                dense(header.base_offset, rows.batch.num_rows) if rows.offsets is None else rows.offsets
                for header, rows in frames
            ]
            lsn, partition, _, time = (each.type for each in SYSTEM_COLUMNS)
            columns += [
                spread.of([each.lsn for each in headers], lsn),
                spread.of([each.partition for each in headers], partition),
                pa.concat_arrays(offsets),
                spread.of([each.append_time_us for each in headers], time),
            ]
            names += [each.name for each in SYSTEM_COLUMNS]
        if self._columns is not None:
            columns = [columns[names.index(name)] for name in self._columns]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    @property
    def own_columns(self) -> tuple[str, ...]:
        """Those of the topic itself that the read gives."""
        return tuple(name for name in self._present.names if name in self.schema.names)

    def give_older(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a table, which come in the topic's newest types, in the form that was asked for."""
        try:
            columns = [batch.column(field.name).cast(field.type) for field in self.schema]
        except pa.ArrowInvalid as error:
            raise _widened(error) from error
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _as_before(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Rows of a version that is newer than the read: without the columns that it does not have."""
        promised = pa.schema(self._row_fields())
        try:
            return batch.select(promised.names).cast(promised)
        except pa.ArrowInvalid as error:
            raise _widened(error) from error


class _Spread:
    """Values of frames, each given to all rows of its own."""

    def __init__(self, counts: Sequence[int]) -> None:
        self._ends = pa.array(list(accumulate(counts)), pa.int32())

    def of(self, values: Sequence[object], type_: pa.DataType) -> pa.Array:
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(self._ends, pa.array(values, type_)))


def _widened(error: pa.ArrowInvalid) -> InvalidRequest:
    return InvalidRequest(
        f"a column was widened while it was read, and a value does not fit its old type ({error}): begin the read again"
    )


def dense(first: int, count: int) -> pa.Array:
    return pa.arange(first, first + count)
