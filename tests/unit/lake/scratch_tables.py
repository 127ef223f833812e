"""Tables to try things on: a catalog in a folder, shapes, rows in data files, and landings of them.

    with connected(sqlite_place(tmp_path)) as tables:
        landing = land(tables, rows=3)                     the table is made if it is not there

NOT HERE Logs and topics: nothing here reads one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
from pyiceberg.table import Table, Transaction
from pyiceberg.table.update import AssertRefSnapshotId, TableUpdate

from headwater.lake.catalog import CatalogPlace, catalog_place
from headwater.lake.data_files import DataFileWriter, columns_of
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.mark import MAIN, Mark
from headwater.lake.shape import CREATED_FOR, SYSTEM_COLUMNS, TABLE_PROPERTIES
from headwater.lake.tables import Fit, TableShape, TableState
from headwater.lake.work import WrittenFile

TABLE = "sales.orders"
LOG_ID, TOPIC_ID = "0a" * 16, "0b" * 16

_commits = itertools.count(1)


def shape_of(*fields: pa.Field, partition_by: Sequence[str] = ()) -> TableShape:
    """The shape of a topic with these columns."""
    return TableShape(
        pa.schema([*fields, *SYSTEM_COLUMNS]),
        partition_by=tuple(partition_by),
        properties={**TABLE_PROPERTIES, CREATED_FOR: TOPIC_ID},
    )


ORDERS = shape_of(pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string()))


def sqlite_place(folder: Path) -> CatalogPlace:
    return catalog_place(None, directory=str(folder))


@contextmanager
def connected(place: CatalogPlace) -> Iterator[IcebergTables]:
    tables = place.connect()
    try:
        yield tables
    finally:
        tables.close()


def loaded(tables: IcebergTables, name: str = TABLE) -> TableState:
    state = tables.load(name)
    assert state is not None
    return state


def native(state: TableState) -> Table:
    assert isinstance(state.native, Table)
    return state.native


def a_commit_id() -> str:
    """Another one each time, the same ones in each run."""
    return str(UUID(int=next(_commits), version=4))


def a_mark(lsn_to: int, *, rows: int = 0, commit_id: str | None = None, lsn_from: int | None = None) -> Mark:
    before = lsn_to - 1 if lsn_from is None else lsn_from
    return Mark(LOG_ID, TOPIC_ID, commit_id or a_commit_id(), 0, before, lsn_to, rows, "0" * 16, 1, lsn_to)


def rows_for(fit: Fit, count: int, lsn: int, **columns: list[Any]) -> pa.Table:
    """Rows in the columns that a landing writes: numbers count up, and all of one frame."""
    schema = columns_of(fit.target)
    values: dict[str, Any] = {"_hw_lsn": [lsn] * count, "_hw_shard": [0] * count, "_hw_partition": [0] * count}
    values.update(columns)
    arrays = []
    for field in schema:
        if field.name in values:
            arrays.append(pa.array(values[field.name], field.type))
        elif pa.types.is_string(field.type):
            arrays.append(pa.array([f"row {number}" for number in range(count)], field.type))
        elif pa.types.is_nested(field.type):
            arrays.append(pa.nulls(count, field.type))
        else:
            arrays.append(pa.array(range(count), pa.int64()).cast(field.type))
    return pa.table(arrays, schema=schema)


def written(fit: Fit, count: int, lsn: int, **columns: list[Any]) -> list[WrittenFile]:
    return DataFileWriter(fit.target, a_commit_id(), 0).write(rows_for(fit, count, lsn, **columns))


def land(
    tables: IcebergTables,
    *,
    lsn: int = 1,
    rows: int = 1,
    shape: TableShape = ORDERS,
    name: str = TABLE,
    **columns: list[Any],
) -> Mark:
    """One landing, as it should go; its mark."""
    state = tables.load(name) or tables.create(name, shape)
    fit = tables.fit(state, shape)
    mark = a_mark(lsn, rows=rows)
    tables.commit(tables.stage(state, fit, written(fit, rows, lsn, **columns) if rows else [], mark))
    return mark


def change(tables: IcebergTables, *updates: TableUpdate, name: str = TABLE) -> None:
    """What an owner of the table does to it."""
    tables.catalog.commit_table(native(loaded(tables, name)), (), updates)


def commit_of_another(tables: IcebergTables, *, name: str = TABLE) -> None:
    """A snapshot without a mark and without files."""
    table = native(loaded(tables, name))
    transaction = Transaction(table)
    transaction.update_snapshot().fast_append().commit()
    base = table.metadata.current_snapshot_id
    requirement = AssertRefSnapshotId.model_validate({"ref": MAIN, "snapshot-id": base})
    tables.catalog.commit_table(table, (requirement,), transaction._updates)


def rows_in(tables: IcebergTables, name: str = TABLE) -> list[dict[str, Any]]:
    """Every row, read by pyiceberg itself, in the order of the log."""
    table = native(loaded(tables, name)).scan().to_arrow()
    rows: list[dict[str, Any]] = table.sort_by([("_hw_lsn", "ascending"), ("_hw_offset", "ascending")]).to_pylist()
    return rows
