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


Frames = Sequence[tuple[Header, FrameRows]]


class ReadShape:
    """The columns that a read gives, and how a frame's rows are brought into them."""

    def __init__(
        self, topic: TopicRecord, columns: Sequence[str] | None, *, system_columns: bool | Sequence[str]
    ) -> None:
        self._schemas = [unpack_schema(each) for each in topic.schemas]
        self._version = len(self._schemas)
        self._present = self._schemas[-1]
        self._keyed = bool(topic.key)
        some = system_columns if isinstance(system_columns, list | tuple) else None
        system = [each for each in SYSTEM_COLUMNS if (bool(system_columns) if some is None else each.name in some)]
        self._as_stored = not (self._keyed or system or columns is not None)
        full = pa.schema([*self._row_fields(), *([_OP] if self._keyed else []), *system])
        names = [columns] if isinstance(columns, str) else list(columns) if columns is not None else full.names
        if columns is not None:
            if not names:
                raise InvalidRequest("columns names at least one; leave it out for all of them")
            unknown = [name for name in names if name not in full.names]
            if unknown:
                raise InvalidRequest(
                    f"{topic.name!r} has no column {unknown[0]!r}; it has {', '.join(full.names)}", column=unknown[0]
                )
        self.schema = pa.schema([full.field(name) for name in names])

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

    def give(self, frames: Frames) -> pa.RecordBatch:
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
        if self._as_stored:
            return batch
        spread = _Spread([each.num_rows for each in batches])
        own = dict(zip(self._present.names, batch.columns, strict=True))
        columns = [own[name] if name in own else _SYSTEM[name](frames, spread) for name in self.schema.names]
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
        self._counts = counts
        self._ends = pa.array(list(accumulate(counts)), pa.int32()) if len(counts) > 1 else None

    def of(self, values: Sequence[object], type_: pa.DataType) -> pa.Array:
        if self._ends is None:
            return pa.repeat(pa.scalar(values[0], type_), self._counts[0])
        return pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(self._ends, pa.array(values, type_)))


def _ops(frames: Frames, spread: _Spread) -> pa.Array:
    return spread.of(["D" if header.flags & Flag.TOMBSTONES else "U" for header, _ in frames], _OP.type)


def _lsns(frames: Frames, spread: _Spread) -> pa.Array:
    return spread.of([header.lsn for header, _ in frames], pa.int64())


def _partitions(frames: Frames, spread: _Spread) -> pa.Array:
    return spread.of([header.partition for header, _ in frames], pa.int32())


def _offsets(frames: Frames, _: _Spread) -> pa.Array:
    found = [
        dense(header.base_offset, rows.batch.num_rows) if rows.offsets is None else rows.offsets
        for header, rows in frames
    ]
    return found[0] if len(found) == 1 else pa.concat_arrays(found)


def _times(frames: Frames, spread: _Spread) -> pa.Array:
    return spread.of([header.append_time_us for header, _ in frames], pa.timestamp("us", "UTC"))


_SYSTEM = {OP_COLUMN: _ops, "_hw_lsn": _lsns, "_hw_partition": _partitions, "_hw_offset": _offsets, "_hw_time": _times}


def _widened(error: pa.ArrowInvalid) -> InvalidRequest:
    return InvalidRequest(
        f"a column was widened while it was read, and a value does not fit its old type ({error}): begin the read again"
    )


def dense(first: int, count: int) -> pa.Array:
    return pa.arange(first, first + count)
