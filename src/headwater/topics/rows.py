"""Rows through the door of a topic: whatever a caller has, as one record batch of the topic's schema.

Rows come as dicts, dataclasses, pydantic models, pandas, or Arrow in any of its forms (polars and others through the
PyCapsule protocol).  All of them become columns, and each column is read on its own:

1  the fast way, for the whole column at once: nothing to do, one cast, or one call of pyarrow
2  if that is refused, value by value (values.py), which finds every row that does not fit, and why

PROMISE  A batch that leaves here holds exactly the schema's columns, valid to the last byte, with no null where none
         may be: nothing behind the door checks again.  Rows are accepted, or refused by number and reason; accepted
         and refused together are what was sent.  No value is changed on the way but in its encoding.
ORDER    Accepted rows keep their order.
NOT HERE Where the rows go: partitioning.py.  Whether a request with refused rows is appended: the caller decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import InvalidRequest, RefusedRow, TooLarge
from headwater.topics.columns import may_lack_values, python_values, recast, utf8_or_reasons
from headwater.topics.rejected import rejected_batch
from headwater.topics.schema import BYTES
from headwater.topics.values import MISSING, Unfit, ValueReader, fit_or_none, mapping_of, reader_of, show, take

REASONS_MAX = 1_000  # refused rows that are listed one by one; all are counted

# So few that the calls, one for each column, cost more than the values: one call for all is then faster.
_FEW_ROWS = 64

# What pyarrow raises on a value that it cannot put into a column: ArrowInvalid and UnicodeEncodeError are
# ValueErrors, ArrowTypeError is a TypeError.
_PYARROW_REFUSES = (ValueError, TypeError, OverflowError, pa.ArrowNotImplementedError)


@dataclass(frozen=True)
class Accepted:
    """What became of a request's rows: batch.num_rows + refused_count = rows, unless all were turned away."""

    batch: pa.RecordBatch  # the rows that fit; empty if any did not, and the others were not to be kept
    refused: tuple[RefusedRow, ...]  # by number, at most REASONS_MAX of them
    rejected: pa.RecordBatch | None  # the rows that do not fit (rejected.py), all of them, if they are to be kept
    rows: int  # how many were sent
    refused_count: int = 0


class _Reasons:
    """Why rows do not fit: every reason of every row."""

    def __init__(self) -> None:
        self.by_row: dict[int, list[str]] = {}

    def add(self, number: int, reason: str) -> None:
        self.by_row.setdefault(number, []).append(reason)

    def add_missing(self, number: int, column: str) -> None:
        # Text that is no UTF-8 was put away as null already, with its own reason.
        if not any(reason.startswith(f"{column}: ") for reason in self.by_row.get(number, ())):
            self.add(number, f"{column}: {MISSING}")

    def listed(self, numbers: Sequence[int]) -> list[RefusedRow]:
        return [RefusedRow(number, "; ".join(self.by_row[number])) for number in numbers]


class _Column:
    """One column of the schema: a name, and both ways to read it."""

    def __init__(self, field: pa.Field) -> None:
        self.name: str = field.name
        self.type: pa.DataType = field.type
        self.nullable: bool = field.nullable
        self.reader: ValueReader = reader_of(field.type)
        self.may_lack_values = may_lack_values(field)

    def of_values(self, values: list[object], reasons: _Reasons) -> pa.Array:
        """The column from Python values; where one does not fit there is a reason, and null in its place."""
        array = self._at_once(values)
        if array is None:
            array = self._one_by_one(values, reasons)
        elif array.null_count and not self.nullable:
            for number, value in enumerate(values):
                if value is None:
                    reasons.add_missing(number, self.name)
        return array

    def _at_once(self, values: list[object]) -> pa.Array | None:
        if not self.reader.exact(values):
            return None
        try:
            return _one_chunk(pa.array(values, type=self.type), self.name)
        except _PYARROW_REFUSES:
            return None  # one of them does not fit: the other way finds out which

    def _one_by_one(self, values: Iterable[object], reasons: _Reasons) -> pa.Array:
        fitting: list[object] = []
        for number, value in enumerate(values):
            try:
                fitting.append(fit_or_none(self.reader, value, self.nullable))
            except Unfit as unfit:
                reasons.add(number, unfit.of(self.name))
                fitting.append(None)
        return _one_chunk(pa.array(fitting, type=self.type), self.name)

    def of_array(self, array: pa.Array, reasons: _Reasons) -> pa.Array:
        """The column from an Arrow array that is known to be valid."""
        cast = array if array.type.equals(self.type) else recast(array, self.type)
        if cast is None or self.may_lack_values(cast):
            return self._one_by_one(python_values(array), reasons)
        if cast.null_count and not self.nullable:
            for number in pc.indices_nonzero(cast.is_null()).to_pylist():
                reasons.add_missing(number, self.name)
        return cast


class RowReader:
    """Reads rows of one schema, which is in normal form; make it once, and use it for every request."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self._columns = [_Column(field) for field in schema]
        self._names = frozenset(schema.names)
        self._required = [place for place, field in enumerate(schema) if not field.nullable]
        self._nested_checks = [
            (place, column.may_lack_values)
            for place, column in enumerate(self._columns)
            if pa.types.is_nested(column.type)
        ]
        self._empty = pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in schema], schema=schema)
        self._struct = pa.struct(list(schema))
        self._is_bytes = schema.equals(BYTES)

    def read(self, rows: object, *, keep_rejected: bool = False) -> Accepted:
        """The rows as one batch of the schema; see the file's promise.  InvalidRequest if they are no rows at all."""
        if isinstance(rows, pa.RecordBatch):
            return self._read_batch(rows, keep_rejected)
        if isinstance(rows, list) and rows and set(map(type, rows)) == {dict}:
            return self._read_dicts(rows, keep_rejected)
        if isinstance(rows, Mapping):
            return self._read_dicts([rows], keep_rejected)
        library = type(rows).__module__.partition(".")[0]
        if library == "pandas":
            return self._read_pandas(rows, keep_rejected)
        if isinstance(rows, pa.Table) or hasattr(rows, "__arrow_c_stream__"):
            return self._read_batch(_batch_of_table(pa.table(rows)), keep_rejected)
        if hasattr(rows, "__arrow_c_array__"):
            return self._read_batch(pa.record_batch(rows), keep_rejected)
        return self._read_objects(_objects(rows), keep_rejected)

    # ------------------------------------------------------------------------------------------ Python values

    def _read_objects(self, objects: list[object], keep_rejected: bool) -> Accepted:
        reasons = _Reasons()
        rows: list[Mapping[str, object]] = []
        for number, each in enumerate(objects):
            row = mapping_of(each)
            if row is None and self._is_bytes and isinstance(each, bytes | bytearray | memoryview):
                row = {"value": each}
            if row is None:
                reasons.add(number, f"{show(each)} is not a row: a dict, a dataclass or a pydantic model is")
                row = {}
            rows.append(row)
        return self._read_dicts(rows, keep_rejected, reasons, objects)

    def _read_dicts(
        self,
        rows: Sequence[Mapping[str, object]],
        keep_rejected: bool,
        reasons: _Reasons | None = None,
        originals: Sequence[object] | None = None,
    ) -> Accepted:
        if reasons is None and len(rows) <= _FEW_ROWS:
            batch = self._at_once(rows)
            if batch is not None:
                return Accepted(batch, (), None, len(rows))
        no_rows = set(reasons.by_row) if reasons is not None else set()  # their reason is given, and is the only one
        reasons = reasons or _Reasons()
        if not set().union(*rows) <= self._names:
            for number, row in enumerate(rows):
                for name in row:
                    if name not in self._names:
                        reasons.add(number, f"{name}: no such column")
        arrays = []
        for column in self._columns:
            arrays.append(column.of_values(take(rows, column.name), reasons))
        for number in no_rows:
            del reasons.by_row[number][1:]
        sent = rows if originals is None else originals
        return self._accept(arrays, len(rows), reasons, keep_rejected, lambda bad: [sent[number] for number in bad])

    def _at_once(self, rows: Sequence[Mapping[str, object]]) -> pa.RecordBatch | None:
        """All columns in one call of pyarrow, which would pass over names that it does not know, and round."""
        if not set().union(*rows) <= self._names:
            return None
        for column in self._columns:
            if not column.reader.exact(take(rows, column.name), column.nullable):
                return None
        try:
            return pa.RecordBatch.from_struct_array(pa.array(rows, type=self._struct))
        except (*_PYARROW_REFUSES, AttributeError):  # AttributeError: a struct in more than one chunk is no array
            return None

    def _read_pandas(self, frame: object, keep_rejected: bool) -> Accepted:
        """An index is not a column; NaN and the like are null, as everywhere in pandas."""
        if not hasattr(frame, "columns"):
            raise InvalidRequest(f"rows from pandas are a DataFrame, not a {type(frame).__name__}")
        if not frame.columns.is_unique:
            raise InvalidRequest("two columns of the frame have the same name")
        lost = [name for name in frame.index.names if name in self._names and name not in frame.columns]  # type: ignore[attr-defined]
        if lost:
            raise InvalidRequest(f"{lost[0]!r} is the frame's index: reset_index() makes it a column")
        try:
            table = pa.Table.from_pandas(frame, preserve_index=False)
        except _PYARROW_REFUSES:
            # A column of mixed objects is no Arrow column: its values are looked at one by one.
            plain_frame = frame.astype(object)  # type: ignore[attr-defined]
            plain_frame = plain_frame.where(plain_frame.notna(), None)
            return self._read_objects(plain_frame.to_dict("records"), keep_rejected)
        return self._read_batch(_batch_of_table(table), keep_rejected)

    # -------------------------------------------------------------------------------------------------- Arrow

    def _read_batch(self, batch: pa.RecordBatch, keep_rejected: bool) -> Accepted:
        try:
            batch.validate(full=True)
        except pa.ArrowInvalid:
            return self._read_doubtful(batch, keep_rejected)
        if batch.schema.equals(self.schema) and self._has_all(batch):
            # Metadata of a caller's own schema is not kept; most have none, and their batch is taken as it is.
            if not batch.schema.equals(self.schema, check_metadata=True):
                batch = pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)
            return Accepted(batch, (), None, batch.num_rows)
        return self._read_columns(batch, batch.columns, _Reasons(), keep_rejected)

    def _has_all(self, batch: pa.RecordBatch) -> bool:
        """No value is missing that may not be null, at any depth."""
        return not any(batch.column(place).null_count for place in self._required) and not any(
            lacks(batch.column(place)) for place, lacks in self._nested_checks
        )

    def _read_doubtful(self, batch: pa.RecordBatch, keep_rejected: bool) -> Accepted:
        """Bytes that are no UTF-8 in a column of text are a matter of their rows; all else, of the request."""
        reasons = _Reasons()
        columns = []
        for name, column in zip(batch.schema.names, batch.columns, strict=True):
            try:
                column.validate(full=True)
            except pa.ArrowInvalid as error:
                column, invalid = utf8_or_reasons(column, name, error)  # noqa: PLW2901 (the same column, mended)
                for number, reason in invalid:
                    reasons.add(number, reason)
            columns.append(column)
        return self._read_columns(batch, columns, reasons, keep_rejected)

    def _read_columns(
        self, batch: pa.RecordBatch, columns: Sequence[pa.Array], reasons: _Reasons, keep_rejected: bool
    ) -> Accepted:
        count = batch.num_rows
        names = batch.schema.names
        if len(set(names)) != len(names):
            raise InvalidRequest("two columns of the rows have one name", columns=names)
        for name in names:
            if name not in self._names:
                for number in range(count):
                    reasons.add(number, f"{name}: no such column")
        given = dict(zip(names, columns, strict=True))
        arrays = []
        for column in self._columns:
            array = given.get(column.name)
            arrays.append(column.of_array(pa.nulls(count) if array is None else array, reasons))

        def originals(bad: list[int]) -> list[object]:
            taken = [python_values(column.take(pa.array(bad))) for column in batch.columns]
            return [dict(zip(names, values, strict=True)) for values in zip(*taken, strict=True)]

        return self._accept(arrays, count, reasons, keep_rejected, originals)

    # -------------------------------------------------------------------------------------------------- result

    def _accept(
        self,
        arrays: list[pa.Array],
        count: int,
        reasons: _Reasons,
        keep_rejected: bool,
        originals: Callable[[list[int]], list[object]],
    ) -> Accepted:
        bad = sorted(reasons.by_row)
        if not bad:
            return Accepted(pa.RecordBatch.from_arrays(arrays, schema=self.schema), (), None, count)
        refused = tuple(reasons.listed(bad[:REASONS_MAX]))
        if not keep_rejected:
            return Accepted(self._empty, refused, None, count, len(bad))
        good = pa.array(sorted(set(range(count)).difference(bad)), pa.int64())
        batch = pa.RecordBatch.from_arrays([array.take(good) for array in arrays], schema=self.schema)
        rejected = rejected_batch(originals(bad), reasons.listed(bad))
        return Accepted(batch, refused, rejected, count, len(bad))


def to_batch(rows: object, schema: pa.Schema, *, keep_rejected: bool = False) -> Accepted:
    """Rows as one batch of a schema in normal form; who has many requests for one schema keeps a RowReader."""
    return _reader(schema).read(rows, keep_rejected=keep_rejected)


@lru_cache(maxsize=256)
def _reader(schema: pa.Schema) -> RowReader:
    return RowReader(schema)


def _objects(rows: object) -> list[object]:
    """The rows of a request that is neither Arrow nor a dict, as a list; one row is a list of one."""
    if isinstance(rows, bytes | bytearray | memoryview) or (is_dataclass(rows) and not isinstance(rows, type)):
        return [rows]
    if hasattr(type(rows), "model_fields"):  # an instance of a pydantic model is iterable too: over its fields
        return [rows]
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        raise InvalidRequest(
            "rows are dicts, dataclasses, pydantic models, Arrow data or a DataFrame, one or many, "
            f"not {show(rows)} ({type(rows).__name__})"
        )
    return list(rows)


def _batch_of_table(table: pa.Table) -> pa.RecordBatch:
    batches = table.combine_chunks().to_batches()
    if not batches:
        return pa.RecordBatch.from_arrays([pa.nulls(0, field.type) for field in table.schema], schema=table.schema)
    if len(batches) > 1:
        raise TooLarge("a column of the rows is above 2 GiB: append them in parts", rows=table.num_rows)
    return batches[0]


def _one_chunk(array: pa.Array | pa.ChunkedArray, name: str) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        raise TooLarge(f"{name}: the column is above 2 GiB: append the rows in parts", rows=len(array))
    return array
