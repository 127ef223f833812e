"""A scan: one topic at one cut, table and tail as one.

    with topic.scan(columns=["id"], where="amount > 100") as scan:
        scan.to_polars(); scan.count(); scan.cut

COLUMNS  The topic's own, in its types; the system's (`_hw_lsn`, `_hw_partition`, `_hw_offset`, `_hw_time`, `_hw_shard`)
         where they are named.  A keyed topic gives one row a key, its latest.
WHERE    A condition reaches the files: of a topic without a key all of it; of a keyed one all of it reaches the state,
         and what it says of the key alone reaches the changes, because what a later change replaces must not show.
PIN      The scan holds what it reads until it is closed, or nobody has it any more, or its process ends.
THREADS  Each form may be asked for any number of times, by any thread.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from headwater.errors import Closed, InvalidRequest
from headwater.lake.cut import Cut
from headwater.lake.extra import from_the_extra
from headwater.lake.shape import OPERATION_COLUMN, SYSTEM_COLUMNS, lake_schema
from headwater.lake.source import Hold
from headwater.lake.view_plan import TablePart, ViewPlan
from headwater.lake.where import Condition, condition_and_part
from headwater.metadata.operations import TopicRecord
from headwater.topics.reading import Rows
from headwater.topics.schema import unpack_schema

if TYPE_CHECKING:
    import duckdb

    from headwater.lake.view import Views

_ORDER = ("_hw_lsn", "_hw_offset")


@dataclass(frozen=True)
class Wanted:
    """What of a topic a scan gives, checked."""

    topic: TopicRecord
    columns: Sequence[str] | None = None
    where: str | None = None

    def __post_init__(self) -> None:
        self.schema  # noqa: B018  so that a wrong name is told before anything is looked up
        self.conditions  # noqa: B018  and a wrong condition

    @cached_property
    def own(self) -> pa.Schema:
        """The topic's columns.  Of a keyed one no row is a delete, so they are as the schema says."""
        return unpack_schema(self.topic.schemas[-1])

    @cached_property
    def lake(self) -> pa.Schema:
        """All that a condition may look at, in the types of the table.  Rows that were in the table before the topic
        may lack any of it."""
        return pa.schema([field.with_nullable(True) for field in (*lake_schema(self.own), *SYSTEM_COLUMNS)])

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns that come out."""
        if self.columns is None:
            return self.own
        names = [self.columns] if isinstance(self.columns, str) else list(self.columns)
        if not names:
            raise InvalidRequest("columns names at least one; leave it out for all of them")
        known = pa.schema([*self.own, *SYSTEM_COLUMNS])
        for name in names:
            if name not in known.names:
                raise InvalidRequest(
                    f"{self.topic.name!r} has no column {name!r}; it has {', '.join(known.names)}", column=name
                )
        return pa.schema([known.field(name) for name in names])

    @cached_property
    def conditions(self) -> tuple[Condition | None, Condition | None]:
        """The whole condition, and what of it concerns the key alone."""
        if self.where is None:
            return None, None
        return condition_and_part(self.where, self.lake, frozenset(self.topic.key))

    def read(self, *also: str) -> pa.Schema:
        """What must be read, in the types of the table: the columns that come out, those that the condition looks at,
        and these."""
        whole = self.conditions[0]
        names = dict.fromkeys([*self.schema.names, *sorted(whole.columns if whole is not None else ()), *also])
        full = pa.schema([*self.lake, OPERATION_COLUMN])
        return pa.schema([full.field(name).with_nullable(True) for name in names])


class Scan(Rows):
    """Rows of a topic at a cut: iterate over it for batches, or take all of them in one form."""

    def __init__(self, views: Views, wanted: Wanted, plan: ViewPlan, cut: Cut, hold: Hold) -> None:
        # Not told to Rows as a callable of its own: a scan that refers to itself would not be let go of at once.
        self.schema = wanted.schema
        self._views = views
        self._wanted = wanted
        self.plan = plan
        self.cut = cut
        self._let_go = weakref.finalize(self, hold.release)

    @property
    def topic(self) -> TopicRecord:
        """The topic, as the metadata had it when the scan was made."""
        return self._wanted.topic

    @property
    def wanted(self) -> Wanted:
        """Which columns and rows were asked for."""
        return self._wanted

    @property
    def views(self) -> Views:
        """Where it came from."""
        return self._views

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches()

    # Forms -------------------------------------------------------------------------------------

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batches of rows; in no order."""
        for table in self._tables():
            columns = [_as_own(table.column(field.name), field.type) for field in self.schema]
            for batch in pa.table(columns, schema=self.schema).to_batches():
                if batch.num_rows:
                    yield batch

    def count(self) -> int:
        """How many rows there are: what files say of themselves is not read."""
        self.check_open()
        if self.topic.key:
            counted = Wanted(self.topic, self.topic.key, self._wanted.where)
            return sum(table.num_rows for table in self._latest(counted))
        whole = self._wanted.conditions[0]
        landed = sum(self._count(part, whole) for part in self.plan.tables)
        lsn_from, lsn_to = self.plan.tail
        if lsn_from == lsn_to:
            return landed
        if whole is None:
            return landed + self._views.source.rows_between(self.topic.number, lsn_from, lsn_to)
        kept: int = _kept(self.tail(), whole).num_rows
        return landed + kept

    def _count(self, part: TablePart, whole: Condition | None) -> int:
        from headwater.lake.table_rows import count_part

        return count_part(part, whole, self._views.cache)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """A DuckDB relation: its own filters and columns reach the table's files."""
        from headwater.lake.duckdb_view import relation

        self.check_open()
        return relation(self, connection)

    def __len__(self) -> int:
        return self.count()

    # Parts -------------------------------------------------------------------------------------

    def tail(self, columns: pa.Schema | None = None) -> pa.Table:
        """The rows of the log that are in the cut and not in the tables, changes of a keyed topic: in the types of the
        table, with all system columns unless some are named."""
        self.check_open()
        if columns is None:
            keyed = [OPERATION_COLUMN] if self.topic.key else []
            columns = pa.schema([field.with_nullable(True) for field in (*self._wanted.lake, *keyed)])
        lsn_from, lsn_to = self.plan.tail
        if lsn_from == lsn_to:
            return columns.empty_table()
        return self._views.source.tail(self.topic, columns, lsn_from, lsn_to)

    def _tables(self) -> Iterator[pa.Table]:
        """The rows, in the types of the table, in at least the columns that come out."""
        self.check_open()
        if self.topic.key:
            yield from self._latest(self._wanted)
            return
        whole = self._wanted.conditions[0]
        read = self._wanted.read()
        for part in self.plan.tables:
            yield from self._rows(part, read, whole)
        tail = self.tail(read)
        if tail.num_rows:
            yield _kept(tail, whole)

    def _latest(self, wanted: Wanted) -> Iterator[pa.Table]:
        """One row a key: the state without the keys that have changed since, and their latest changes."""
        with from_the_extra():
            from headwater.lake.latest import latest_rows
        whole, of_key = wanted.conditions
        read = wanted.read(*self.topic.key, *_ORDER, OPERATION_COLUMN.name)
        changes = [table for part in self.plan.tables for table in self._rows(part, read, of_key)]
        changes.append(_kept(self.tail(read), of_key))
        base = self.plan.base
        state_columns = pa.schema([field for field in read if field.name != OPERATION_COLUMN.name])
        state = self._rows(base, state_columns, whole) if base is not None else iter(())
        for rows in latest_rows(state, pa.concat_tables(changes), self.topic.key):
            yield _kept(rows, whole)

    def _rows(self, part: TablePart, columns: pa.Schema, where: Condition | None) -> Iterator[pa.Table]:
        from headwater.lake.table_rows import read_part

        return read_part(part, columns, where, self._views.cache)

    # Its life ----------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of what it holds; twice is nothing."""
        self._let_go()

    def check_open(self) -> None:
        """Closed where it was closed."""
        if not self._let_go.alive:
            raise Closed("this scan is closed: scan again")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Scan({self.topic.name!r} at lsn {self.cut.lsn})"


def _kept(rows: pa.Table, condition: Condition | None) -> pa.Table:
    return rows if condition is None else rows.filter(condition.expression)


def _as_own(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    return column if column.type.equals(type_) else column.cast(type_)
