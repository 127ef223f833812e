"""A part of a view as DuckDB SQL: `iceberg_scan` of one snapshot, in the columns and the LSNs that are wanted.  Pure.

iceberg_scan reads a part where all of this holds; where not, our own reader does (table_rows.py), and DuckDB is given
its rows:

    the table    is on this machine's disk, of format 2 at most, its metadata not compressed, its files' columns found
                 by field id and not by a mapping of names; and the snapshot says which schema it was written under
    each column  is in that schema with the type that is wanted, or with a plain type that can be cast to it, or is not
                 in it at all, which is null.  A nested column that has changed since, or one of uuids, is none of these

A snapshot has the names and types of its own day in DuckDB, so columns are found by their field ids.

Both iceberg_scan and DuckDB's scan of Arrow rows pass over a NaN where a filter of DuckDB's would keep it: they ask
bounds, or Arrow, which know no place for it, and DuckDB holds it above every number.  So no filter on a floating column
may reach them: `kept_from_files` hides such a column in an expression, and DuckDB asks its rows itself.

NOT HERE Who runs it: duckdb_view.py.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import NestedField

from headwater.lake.data_files import arrow_type
from headwater.lake.view_plan import TablePart

LSN = "_hw_lsn"
NAME_MAPPING = "schema.name-mapping.default"


def quoted(name: str) -> str:
    """A column or a view, whatever characters are in its name."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


# ------------------------------------------------------------------------------------------------------- types

_PLAIN = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.uint8(): "UTINYINT",
    pa.uint16(): "USMALLINT",
    pa.uint32(): "UINTEGER",
    pa.float16(): "FLOAT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
    pa.timestamp("us"): "TIMESTAMP",
    pa.timestamp("us", "UTC"): "TIMESTAMP WITH TIME ZONE",
}


def sql_type(type_: pa.DataType) -> str:
    """DuckDB's type for a column of a topic or a table; "" where no topic has such a column."""
    types = pa.types
    if types.is_decimal(type_):
        return f"DECIMAL({type_.precision}, {type_.scale})"
    if types.is_fixed_size_binary(type_):
        return "BLOB"
    if types.is_list(type_):
        return f"{sql_type(type_.value_type)}[]"
    if types.is_map(type_):
        return f"MAP({sql_type(type_.key_type)}, {sql_type(type_.item_type)})"
    if types.is_struct(type_):
        return f"STRUCT({', '.join(f'{quoted(field.name)} {sql_type(field.type)}' for field in type_)})"
    return _PLAIN.get(type_, "")


def kept_from_files(column: str, type_: pa.DataType) -> str:
    """The column as an expression that no filter can be asked through of files or of Arrow, if it has floats."""
    return f"CASE WHEN {column} IS NULL THEN NULL ELSE {column} END" if _has_floats(type_) else column


def _has_floats(type_: pa.DataType) -> bool:
    """Of lists and maps no filter reaches what is in them."""
    if pa.types.is_struct(type_):
        return any(_has_floats(field.type) for field in type_)
    return bool(pa.types.is_floating(type_))


# ------------------------------------------------------------------------------------------------------- parts


def part_query(part: TablePart, columns: pa.Schema) -> str | None:
    """The rows of a part in these columns, by their names here; None where our own reader must give them."""
    table = _table(part)
    written = _schema_of(table.metadata, part.snapshot_id)
    if written is None or not _is_scanned(table, part.state.format_version):
        return None
    found = _Columns(table.metadata.schema(), written)
    selected = [found.expression(field) for field in columns]
    if None in selected:
        return None
    names = (f"{expression} AS {quoted(name)}" for expression, name in zip(selected, columns.names, strict=True))
    scan = f"iceberg_scan({text(table.metadata_location)}, snapshot_from_id={part.snapshot_id})"
    return f"SELECT {', '.join(names)} FROM {scan}{_between(part, found)}"


def dropped_columns(part: TablePart, columns: pa.Schema) -> list[str]:
    """Those that the part's table had once, and that its owner has dropped."""
    metadata = _table(part).metadata
    there = set(metadata.schema().column_names)
    once = {field.name for schema in metadata.schemas for field in schema.fields}
    return [name for name in columns.names if name in once and name not in there]


def folders_of(part: TablePart) -> list[str]:
    """Where the files of a part's table are."""
    table = _table(part)
    named = (table.properties.get(name) for name in ("write.data.path", "write.metadata.path"))
    return [table.location(), *(each for each in named if each)]


def _table(part: TablePart) -> Table:
    table = part.state.native
    assert isinstance(table, Table), "a table of pyiceberg"
    return table


def _schema_of(metadata: TableMetadata, snapshot_id: int) -> Schema | None:
    snapshot = metadata.snapshot_by_id(snapshot_id)
    written = snapshot.schema_id if snapshot is not None else None
    return next((schema for schema in metadata.schemas if schema.schema_id == written), None)


def _is_scanned(table: Table, format_version: int) -> bool:
    where = table.metadata_location
    return (
        urlsplit(where).scheme in ("", "file")
        and not where.endswith(".gz.metadata.json")
        and format_version <= 2
        and NAME_MAPPING not in table.properties
    )


class _Columns:
    """Columns by their names now, in the schema that a snapshot was written under."""

    def __init__(self, now: Schema, written: Schema) -> None:
        self._ids = {field.name: field.field_id for field in now.fields}
        self._written = {field.field_id: field for field in written.fields}

    def find(self, name: str) -> NestedField | None:
        return self._written.get(self._ids.get(name, -1))

    def expression(self, wanted: pa.Field) -> str | None:
        """The column in the type that is wanted; None where DuckDB does not give it so."""
        field = self.find(wanted.name)
        type_ = sql_type(wanted.type)
        if field is None:
            return f"CAST(NULL AS {type_})"
        if "uuid" in str(field.field_type):
            return None
        written = arrow_type(field.field_type)
        if sql_type(written) == type_:
            return quoted(field.name)
        return None if pa.types.is_nested(written) else f"CAST({quoted(field.name)} AS {type_})"


def _between(part: TablePart, columns: _Columns) -> str:
    """The LSNs of the part, in words that a file's bounds can answer."""
    lsn = columns.find(LSN)
    if part.whole or (lsn is None and part.unmarked):
        return ""
    if lsn is None:
        return " WHERE false"
    name = quoted(lsn.name)
    asked = f"{name} <= {part.lsn_to}"
    if not part.unmarked:
        asked = f"{name} > {part.lsn_from} AND {asked}"
    elif not lsn.required:
        asked = f"{asked} OR {name} IS NULL"
    return f" WHERE {asked}"
