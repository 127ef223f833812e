"""What a table holds of a topic now: rows, digest, and which offsets of each partition.

It is what a log that takes a table over can know of the rows that it did not land itself: later audits compare with it,
and its partitions' next offsets come after it.

PROMISE  Rows that no landing brought, which have no LSN, are not among them.  Rows that were deleted are not either,
         and an offset that only they had is not known any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table import Table
from pyiceberg.types import NestedField

from headwater.errors import LandingHalted
from headwater.lake.data_files import arrow_type
from headwater.lake.digest import combine, digest_of
from headwater.lake.file_cache import FileCache
from headwater.lake.fitting import spelled
from headwater.lake.offset_runs import OffsetRuns, Run
from headwater.lake.shape import SYSTEM_COLUMNS
from headwater.lake.table_rows import read_part
from headwater.lake.tables import TableState
from headwater.lake.view_plan import TablePart
from headwater.lake.work import Column, Digest

_PLACES = pa.schema([SYSTEM_COLUMNS.field(name) for name in ("_hw_lsn", "_hw_partition", "_hw_offset", "_hw_time")])


@dataclass
class Places:
    """Which offsets of which partitions rows have, and the latest time of any."""

    time_us: int = 0
    _runs: list[Run] = field(default_factory=list)

    def take(self, rows: pa.Table) -> None:
        self._runs += OffsetRuns.of_rows(rows).runs
        latest = pc.max(rows.column("_hw_time")).cast(pa.int64()).as_py()
        self.time_us = max(self.time_us, latest or 0)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Rising and apart."""
        return OffsetRuns.of(self._runs).runs

    @property
    def offsets(self) -> dict[int, tuple[int, int]]:
        """The first and the last of each partition."""
        found: dict[int, tuple[int, int]] = {}
        for partition, first, last in self.runs:
            found[partition] = found.get(partition, (first, last))[0], last
        return found


@dataclass(frozen=True)
class Baseline:
    """A table's rows up to an LSN."""

    digest: Digest
    columns: tuple[Column, ...]
    """Of the table as it is, by field id: of these is the digest."""
    places: Places

    @property
    def rows(self) -> int:
        return self.digest.rows


def check_system_columns(state: TableState) -> None:
    """LandingHalted where the table has lost a column without which nobody knows which rows it holds."""
    names = {field.name for field in _table(state).schema().fields}
    for name in SYSTEM_COLUMNS.names:
        if name not in names:
            raise LandingHalted(
                "schema", f"{state.name!r} has no column {name!r} any more: put it back", table=state.name, column=name
            )


def baseline_of(state: TableState, lsn_to: int, cache: FileCache) -> Baseline:
    """Read every row of main's head up to an LSN."""
    columns = tuple(Column(each.field_id, each.name, spelled(each.field_type)) for each in _fields(state))
    places = Places()
    digests = []
    for rows in _rows(state, columns_now(state), lsn_to, cache):
        places.take(rows)
        digests.append(digest_of(rows))
    return Baseline(combine(digests), columns, places)


def columns_now(state: TableState) -> pa.Schema:
    """Every column of the table, in order of field id: a digest is of these."""
    return pa.schema([pa.field(each.name, arrow_type(each.field_type)) for each in _fields(state)])


def _fields(state: TableState) -> list[NestedField]:
    return sorted(_table(state).schema().fields, key=lambda each: each.field_id)


def places_of(state: TableState, lsn_to: int, cache: FileCache) -> Places:
    """The offsets alone, which are quicker to read."""
    places = Places()
    for rows in _rows(state, _PLACES, lsn_to, cache):
        places.take(rows)
    return places


def _rows(state: TableState, schema: pa.Schema, lsn_to: int, cache: FileCache) -> Iterator[pa.Table]:
    head = state.head()
    assert head is not None, "a table that was stamped has a snapshot"
    return read_part(TablePart(state, head.snapshot_id, 0, lsn_to, whole=False, unmarked=False), schema, None, cache)


def _table(state: TableState) -> Table:
    assert isinstance(state.native, Table), "a table of pyiceberg"
    return state.native
