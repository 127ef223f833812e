"""Views in DuckDB: a topic as a relation, topics at one cut as the views of a connection.

    append-only   iceberg_scan of each part ∪ tail
    keyed         iceberg_scan of the state, without every key that changed ∪ the latest of each key that is no delete,
                  of (iceberg_scan of the changes ∪ tail)

DuckDB's own filters and columns reach the files; of a keyed topic filters on the key reach all of them.  What
iceberg_scan does not read right is read by our own reader: the rule is in duckdb_sql.py.  A scan with a condition of
its own is, too, because the language of that is pyiceberg's.

PROMISE  Columns have the topic's types; float16 becomes FLOAT, and fixed binary BLOB: DuckDB has nothing nearer.
PIN      What a relation reads refers to its scan.  So it is held for as long as anything in DuckDB can read it: the
         relation, what was made of it, and the connection in which it is a view.
LIMIT    A relation begins at the table's metadata file, which a table lets go of after some commits (20, as we make
         tables): what is run after that ends with DuckDB's IOException, and is to be scanned again.
NOT HERE What a view is made of: view_plan.py.  SQL: duckdb_sql.py.  Statements of a user: duckdb_query.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from headwater.errors import InvalidRequest

try:
    import duckdb
    import duckdb_extension_avro
    import duckdb_extension_iceberg
    import pyiceberg.table  # noqa: F401  with which duckdb_sql.py looks at tables
except ImportError as error:
    raise InvalidRequest(
        "DuckDB needs further packages: pip install 'headwater[duckdb]'", missing=error.name
    ) from error

from headwater.lake.duckdb_sql import dropped_columns, kept_from_files, part_query, quoted, sql_type, text
from headwater.lake.scan import Scan, Wanted
from headwater.lake.shape import OPERATION_COLUMN, SYSTEM_COLUMNS, lake_schema
from headwater.lake.source import Hold
from headwater.lake.view_plan import ViewPlan
from headwater.metadata.operations import TopicRecord
from headwater.topics.schema import unpack_schema

if TYPE_CHECKING:
    from headwater.lake.view import AsOf, Views

_ORDER = ("_hw_lsn", "_hw_offset")
_EXTENSIONS = (duckdb_extension_avro, duckdb_extension_iceberg)


# ------------------------------------------------------------------------------------------------- connections


def connect() -> duckdb.DuckDBPyConnection:
    """A connection that reads tables, keeps nothing, shows times in UTC, and knows no names but its own."""
    # The packages are signed, and whoever installed them has checked them: to do it again takes 0.4 s each time.
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    _load_extensions(connection)
    connection.execute("SET TimeZone = 'UTC'")
    # Else a name that is no view would be looked for among the variables of whoever calls.
    connection.execute("SET python_enable_replacements = false")
    return connection


def _load_extensions(connection: duckdb.DuckDBPyConnection) -> None:
    """What reads Iceberg tables comes in packages of its own: nothing is fetched from elsewhere."""
    for package in _EXTENSIONS:
        name = package.__name__.removeprefix("duckdb_extension_")
        file = Path(package.__path__[0], "extensions", f"v{duckdb.__version__}", f"{name}.duckdb_extension")
        connection.execute(f"LOAD {text(str(file))}")


def connect_topics(
    views: Views, topics: Sequence[TopicRecord], as_of: AsOf = None, *, system_columns: bool = True
) -> duckdb.DuckDBPyConnection:
    """A connection with a view for each of these topics, by its name, all of them at one cut."""
    return with_topics(connect(), scans_at_one_cut(views, topics, as_of, system_columns=system_columns))


def with_topics(connection: duckdb.DuckDBPyConnection, scans: Sequence[Scan]) -> duckdb.DuckDBPyConnection:
    for scan in scans:
        relation(scan, connection).create_view(scan.topic.name, replace=False)
    return connection


def scans_at_one_cut(
    views: Views, topics: Sequence[TopicRecord], as_of: AsOf = None, *, system_columns: bool = True
) -> list[Scan]:
    """The topics whole, but for columns that the owner of a table has dropped."""
    resolved = views.resolve(topics, as_of)
    with ExitStack() as until_shared:
        until_shared.callback(resolved.hold.release)
        plans = [resolved.plans[topic.number] for topic in topics]
        wanted = [
            Wanted(topic, _columns_left(topic, plan, system_columns)) for topic, plan in zip(topics, plans, strict=True)
        ]
        until_shared.pop_all()
    hold = _SharedHold(resolved.hold, len(topics))
    return [Scan(views, each, plan, resolved.cut, hold) for each, plan in zip(wanted, plans, strict=True)]


def _columns_left(topic: TopicRecord, plan: ViewPlan, system_columns: bool) -> list[str]:
    own = unpack_schema(topic.schemas[-1])
    dropped = {name for part in plan.parts for name in dropped_columns(part, own)}
    return [name for name in own.names if name not in dropped] + (SYSTEM_COLUMNS.names if system_columns else [])


class _SharedHold:
    """A hold that is let go of when all who share it have."""

    def __init__(self, hold: Hold, count: int) -> None:
        self._hold = hold
        self._others = [None] * (count - 1)

    def release(self) -> None:
        try:
            # Whatever thread it is in: of two that come at once both take one out, and none is counted twice.
            self._others.pop()
        except IndexError:
            self._hold.release()


# --------------------------------------------------------------------------------------------------- relations


def relation(scan: Scan, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
    """The rows of a scan as DuckDB can ask for them, in this connection or in one of its own."""
    for part in scan.plan.parts:
        for name in dropped_columns(part, scan.schema):
            raise InvalidRequest(
                f"{part.state.name!r} no longer has the column {name!r}, which its owner dropped: leave it out",
                column=name,
            )
    if connection is None:
        connection = connect()
    else:
        _load_extensions(connection)
    rows = None
    if scan.wanted.conditions[0] is None:
        rows = _Keyed(scan, connection).rows() if scan.topic.key else _rows(scan, connection)
    if rows is None:
        rows = connection.from_arrow(_Streamed(scan, lambda: _reader(scan)))
    return rows.project(", ".join(_as_own(field) for field in scan.schema))


def _rows(scan: Scan, connection: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyRelation | None:
    """The parts of a topic without a key; None where our own reader must give one of them."""
    columns = scan.wanted.read()
    return _united(connection, [part_query(part, columns) for part in scan.plan.tables], _tail(scan, columns))


class _Keyed:
    """A keyed topic: its latest rows."""

    def __init__(self, scan: Scan, connection: duckdb.DuckDBPyConnection) -> None:
        self._scan = scan
        self._connection = connection
        self._columns = scan.wanted.read(*scan.topic.key, *_ORDER)

    def rows(self) -> duckdb.DuckDBPyRelation | None:
        changes = self._changes()
        base = self._scan.plan.base
        if changes is None or base is None:
            return self._latest(changes) if changes is not None else None
        query = part_query(base, self._columns)
        return self._without(query, changes).union(self._latest(changes)) if query is not None else None

    def _changes(self) -> duckdb.DuckDBPyRelation | None:
        """What came after the state."""
        columns = self._columns.append(OPERATION_COLUMN.with_nullable(True))
        queries = [part_query(part, columns) for part in self._scan.plan.tables]
        return _united(self._connection, queries, _tail(self._scan, columns))

    def _latest(self, changes: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
        key = ", ".join(quoted(name) for name in self._scan.topic.key)
        order = ", ".join(f"{name} DESC" for name in _ORDER)
        aged = changes.project(f"*, row_number() OVER (PARTITION BY {key} ORDER BY {order}) AS _hw_age")
        kept = aged.filter("_hw_age = 1 AND _hw_op = 'U'")
        return kept.project(", ".join(quoted(name) for name in self._columns.names))

    def _without(self, state: str, changes: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
        keys = changes.project(", ".join(quoted(name) for name in self._scan.topic.key))
        equal = " AND ".join(f"s.{quoted(name)} = c.{quoted(name)}" for name in self._scan.topic.key)
        return self._connection.sql(state).set_alias("s").join(keys.set_alias("c"), equal, how="anti")


def _united(
    connection: duckdb.DuckDBPyConnection, queries: Sequence[str | None], tail: _Streamed
) -> duckdb.DuckDBPyRelation | None:
    found = [query for query in queries if query is not None]
    if len(found) < len(queries):
        return None
    # The tail is there even where it is empty: it is what holds the scan.
    parts = [*(connection.sql(query) for query in found), connection.from_arrow(tail)]
    return reduce(lambda left, right: left.union(right), parts)


def _as_own(field: pa.Field) -> str:
    """A column of a table as the topic has it."""
    name = quoted(field.name)
    own, there = sql_type(field.type), sql_type(lake_schema(pa.schema([field])).field(0).type)
    shown = name if own == there else f"CAST({name} AS {own})"
    return f"{kept_from_files(shown, field.type)} AS {name}"


# -------------------------------------------------------------------------------------------------------- rows


class _Streamed:
    """Rows for DuckDB, as often as it asks for them.  It refers to the scan, and DuckDB to it."""

    def __init__(self, scan: Scan, opened: Callable[[], pa.RecordBatchReader]) -> None:
        self._scan = scan
        self._opened = opened

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._opened().__arrow_c_stream__(requested_schema)


def _tail(scan: Scan, columns: pa.Schema) -> _Streamed:
    return _Streamed(scan, scan.tail(columns).to_reader)


def _reader(scan: Scan) -> pa.RecordBatchReader:
    """All rows by our own reader, in the types of the table, which DuckDB knows."""
    return pa.RecordBatchReader.from_batches(scan.schema, scan.batches()).cast(lake_schema(scan.schema))
