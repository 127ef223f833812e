"""Rows of one snapshot of a table: the columns, the LSNs and the condition that were asked for, and no more is read.

    files        those whose bounds rule out the LSNs or the condition are not opened
    row groups   the same, by Arrow, where a file has the columns as the table has them
    columns      found by field id, so that a renamed column is the same column; one that a file does not have is null

PROMISE  Rows come in exactly the types that were asked for, values unchanged: pyiceberg's own projection, which
         makes empty lists of null ones, is passed by.  Position deletes are applied before any condition is asked.
ORDER    Files in the order of the snapshot's manifests, rows as they lie in them.
NOT HERE Which snapshot and which LSNs: view_plan.py.  Files of a snapshot: file_cache.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import _read_deletes
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from headwater.errors import InvalidRequest, Unavailable
from headwater.lake.data_files import arrow_type
from headwater.lake.file_cache import FileCache, LiveFile
from headwater.lake.retyping import as_type
from headwater.lake.view_plan import TablePart
from headwater.lake.where import Condition

LSN = "_hw_lsn"
FILES_AT_ONCE = 4
_PARQUET = ds.ParquetFileFormat(default_fragment_scan_options=ds.ParquetFragmentScanOptions(pre_buffer=True))
_FIELD_ID = b"PARQUET:field_id"


def read_part(part: TablePart, columns: pa.Schema, where: Condition | None, cache: FileCache) -> Iterator[pa.Table]:
    """The rows of a part that fulfil the condition, in these columns.  Names in the condition are the table's."""
    reading = PartReading(part, columns, where)
    files = reading.chosen(cache.files(part.state, part.snapshot_id).data)
    return _several(reading.read, files)


def count_part(part: TablePart, where: Condition | None, cache: FileCache) -> int:
    """How many rows of a part fulfil the condition: by what files say of themselves where that is enough."""
    reading = PartReading(part, pa.schema([pa.field(LSN, pa.int64())]), where)
    count, files = 0, []
    for live in reading.chosen(cache.files(part.state, part.snapshot_id).data):
        if where is None and not live.deletes and reading.is_within(live):
            count += int(live.file.record_count)
        else:
            files.append(live)
    for table in _several(reading.read, files):
        count += table.num_rows
    return count


@dataclass(frozen=True)
class PartReading:
    """How files of one part are read; a field-id for each column that is asked for or looked at."""

    part: TablePart
    columns: pa.Schema
    where: Condition | None

    @cached_property
    def _table(self) -> Table:
        table = self.part.state.native
        assert isinstance(table, Table), "a table of pyiceberg"
        return table

    @cached_property
    def _schema(self) -> Schema:
        return self._table.metadata.schema()

    @cached_property
    def _ids(self) -> dict[str, int]:
        return {field.name: field.field_id for field in self._schema.fields}

    def field_id(self, name: str) -> int:
        """The id of a column; -1, which no column has, where the table does not have it."""
        return self._ids.get(name, -1)

    @cached_property
    def _read(self) -> pa.Schema:
        """What is read of a file: the columns that were asked for, and those that are only looked at."""
        fields = list(self.columns)
        names = set(self.columns.names)
        looked_at = set(self.where.columns) if self.where is not None else set()
        if not self.part.whole:
            looked_at.add(LSN)
        for name in sorted(looked_at - names):
            fields.append(pa.field(name, self._type(name)))
        return pa.schema(fields)

    def _type(self, name: str) -> pa.DataType:
        field = next((each for each in self._schema.fields if each.name == name), None)
        return pa.null() if field is None else arrow_type(field.field_type)

    @cached_property
    def _filter(self) -> pc.Expression | None:
        """The LSNs and the condition as one."""
        found = self.where.expression if self.where is not None else None
        if self.part.whole:
            return found
        lsn = pc.field(LSN)
        between = lsn <= self.part.lsn_to
        if self.part.unmarked:
            between |= lsn.is_null()
        else:
            between &= lsn > self.part.lsn_from
        return between if found is None else between & found

    # Files -------------------------------------------------------------------------------------

    def chosen(self, files: Sequence[LiveFile]) -> list[LiveFile]:
        """The files that may hold such rows."""
        kept = list(files) if self.part.whole else [live for live in files if self._may_hold(live)]
        parsed = self.where.parsed if self.where is not None else None
        if isinstance(parsed, BooleanExpression) and self._asks_known_columns():
            evaluator = _InclusiveMetricsEvaluator(self._schema, parsed, True)
            kept = [live for live in kept if evaluator.eval(live.file)]
        return kept

    def _asks_known_columns(self) -> bool:
        assert self.where is not None
        return all(name in self._ids for name in self.where.columns)

    def _may_hold(self, live: LiveFile) -> bool:
        bounds = live.bounds(self.field_id(LSN))
        if bounds is None or (self.part.unmarked and _nulls(live.file, self.field_id(LSN))):
            return True
        return bounds[0] <= self.part.lsn_to and (self.part.unmarked or bounds[1] > self.part.lsn_from)

    def is_within(self, live: LiveFile) -> bool:
        """Whether every row of the file is of this part, by its bounds."""
        if self.part.whole:
            return True
        bounds = live.bounds(self.field_id(LSN))
        if bounds is None or bounds[1] > self.part.lsn_to:
            return False
        return self.part.unmarked or (bounds[0] > self.part.lsn_from and not _nulls(live.file, self.field_id(LSN)))

    # Rows --------------------------------------------------------------------------------------

    def read(self, live: LiveFile) -> list[pa.Table]:
        """The rows of one file."""
        try:
            return [table.select(self.columns.names) for table in self._tables(live) if table.num_rows]
        except FileNotFoundError as error:
            raise Unavailable(
                f"a data file of {self.part.state.name!r} is gone: scan again; if that does not help, audit it",
                path=live.path,
            ) from error

    def _tables(self, live: LiveFile) -> Iterator[pa.Table]:
        io = self._table.io
        with io.new_input(live.path).open() as stream:
            fragment = _PARQUET.make_fragment(stream)
            stored = _StoredColumns(fragment.physical_schema)
            names = [self._stored_name(field.name, stored) for field in self._read]
            wanted = sorted({name for name in names if name is not None})
            asked = self._filter
            early = asked if asked is not None and not live.deletes and self._may_ask_file(stored) else None
            scanner = fragment.scanner(columns=wanted, filter=early)
            if not live.deletes:
                found = scanner.to_table()
                yield self._shaped(found, names, None if early is not None else asked)
                return
            gone = _deleted_positions(io, live)
            position = 0
            for batch in scanner.to_batches():
                kept = ~np.isin(np.arange(position, position + batch.num_rows), gone)
                position += batch.num_rows
                rows = pa.Table.from_batches([batch]).filter(pa.array(kept))
                yield self._shaped(rows, names, asked)

    def _stored_name(self, name: str, stored: _StoredColumns) -> str | None:
        field_id = self._ids.get(name)
        if field_id is None:
            self._check_not_dropped(name)
            return None
        found = stored.find(field_id, name)
        return found.name if found is not None else None

    def _check_not_dropped(self, name: str) -> None:
        """A column that the table never had is null in all its rows; one that it had is lost to it."""
        if any(field.name == name for schema in self._table.metadata.schemas for field in schema.fields):
            raise InvalidRequest(
                f"{self.part.state.name!r} no longer has the column {name!r}, which its owner dropped: leave it out",
                column=name,
            )

    def _may_ask_file(self, stored: _StoredColumns) -> bool:
        """Whether the condition can be asked of the file itself: what it looks at is there, in name and type, and its
        statistics do not mislead."""
        if self.where is not None and self.where.parsed is None:
            return False
        looked_at = set(self.where.columns) if self.where is not None else set()
        if not self.part.whole:
            looked_at.add(LSN)
        for name in looked_at:
            found = stored.find(self.field_id(name), name)
            if found is None or found.name != name or not found.type.equals(self._read.field(name).type):
                return False
        return True

    def _shaped(self, rows: pa.Table, names: Sequence[str | None], asked: pc.Expression | None) -> pa.Table:
        columns = [
            pa.chunked_array([pa.nulls(rows.num_rows, field.type)])
            if name is None
            else as_type(rows.column(name), field.type)
            for name, field in zip(names, self._read, strict=True)
        ]
        if not columns:
            return rows
        shaped = pa.table(columns, schema=pa.schema([field.with_nullable(True) for field in self._read]))
        return shaped if asked is None else shaped.filter(asked)


class _StoredColumns:
    """A file's columns by field id; by name where it has no ids, as files have that were not written for Iceberg."""

    def __init__(self, schema: pa.Schema) -> None:
        ids = {(field.metadata or {}).get(_FIELD_ID): field for field in schema}
        self._by_id = {int(field_id): field for field_id, field in ids.items() if field_id is not None}
        self._by_name = {} if self._by_id else {field.name: field for field in schema}

    def find(self, field_id: int, name: str) -> pa.Field | None:
        return self._by_id.get(field_id) if self._by_id else self._by_name.get(name)


def _nulls(file: DataFile, field_id: int) -> bool:
    """Whether the file may hold rows without an LSN."""
    return (file.null_value_counts or {}).get(field_id, 1) != 0


def _deleted_positions(io: FileIO, live: LiveFile) -> np.ndarray:
    found = [
        positions.to_numpy()
        for delete in live.deletes
        for path, positions in _read_deletes(io, delete).items()
        if path == live.path
    ]
    return np.concatenate(found) if found else np.array([], np.int64)


def _several(read: Callable[[LiveFile], list[pa.Table]], files: Sequence[LiveFile]) -> Iterator[pa.Table]:
    """The rows of all files in their order, some files ahead of the one that is asked for."""
    if len(files) <= 1:
        for live in files:
            yield from read(live)
        return
    waiting: deque[Future[list[pa.Table]]] = deque()
    with ThreadPoolExecutor(FILES_AT_ONCE, thread_name_prefix="headwater-scan") as pool:
        try:
            for live in files:
                waiting.append(pool.submit(read, live))
                if len(waiting) > FILES_AT_ONCE:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()
