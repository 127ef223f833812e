"""Is the table what the log is?  Asked of DuckDB, which knows neither our reader, our digest nor our walk.

    compare(log_rows, table)     EXCEPT ALL in both directions, every column, row for row
    check_history(table, ...)    L1 and L5 from the metadata alone: landings join end to end, no data file stands twice

NOT HERE What the rows should be: they are read from the log, with their offsets, before it forgets them.
"""

from __future__ import annotations

import itertools
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg
import pyarrow as pa
from pyiceberg.table import Table


def _duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        assert package.__file__ is not None
        (extension,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def table_rows(table: Table) -> pa.Table:
    """All rows of the table's head, as DuckDB reads them."""
    if table.metadata.current_snapshot_id is None:
        return pa.table({})
    with _duck() as duck:
        return duck.execute(f"SELECT * FROM iceberg_scan('{table.metadata_location}')").to_arrow_table()


def compare(log_rows: pa.Table, table: Table) -> None:
    """Fail with the rows that only one of the two has."""
    if table.metadata.current_snapshot_id is None:
        assert log_rows.num_rows == 0, f"{log_rows.num_rows} rows in the log, and the table is empty"
        return
    columns = ", ".join(f'"{name}"' for name in log_rows.schema.names)
    with _duck() as duck:
        duck.register("log_rows", log_rows)
        duck.execute(f"CREATE VIEW landed AS SELECT {columns} FROM iceberg_scan('{table.metadata_location}')")
        missing = duck.execute(
            f"SELECT {columns} FROM log_rows EXCEPT ALL SELECT {columns} FROM landed"
        ).to_arrow_table()
        extra = duck.execute(f"SELECT {columns} FROM landed EXCEPT ALL SELECT {columns} FROM log_rows").to_arrow_table()
    assert not missing.num_rows and not extra.num_rows, (
        f"{missing.num_rows} rows of the log are not in the table: {missing.slice(0, 3).to_pylist()}; "
        f"{extra.num_rows} rows of the table are not in the log: {extra.slice(0, 3).to_pylist()}"
    )


def check_history(table: Table) -> list[tuple[int, int]]:
    """The LSN ranges of the landings on main, the oldest first; fails unless they join (L1) and no file is named twice
    (L5)."""
    ranges: list[tuple[int, int]] = []
    snapshot = table.current_snapshot()
    while snapshot is not None:
        summary = snapshot.summary.additional_properties if snapshot.summary is not None else {}
        if "headwater.commit-id" in summary:
            ranges.append((int(summary["headwater.lsn-from"]), int(summary["headwater.lsn-to"])))
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None
    ranges.reverse()
    for before, after in itertools.pairwise(ranges):
        assert before[1] == after[0], f"landings do not join: {before} is followed by {after}"
    paths = table.inspect.data_files().column("file_path").to_pylist()
    assert len(paths) == len(set(paths)), "a data file stands in the table twice"
    return ranges
