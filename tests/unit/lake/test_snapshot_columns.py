"""The names that columns had in a snapshot, whatever a table's owner has named them since."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from headwater.errors import InvalidRequest
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.snapshot_columns import names_in_snapshot
from tests.unit.lake.scratch_tables import connected, land, loaded, native, shape_of, sqlite_place

SHAPE = shape_of(pa.field("id", pa.int64()), pa.field("city", pa.string()), pa.field("street", pa.string()))


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[IcebergTables]:
    with connected(sqlite_place(tmp_path)) as connection:
        land(connection, shape=SHAPE)
        yield connection


def names(tables: IcebergTables, *asked: str) -> list[str | None]:
    state = loaded(tables)
    head = state.head()
    assert head is not None
    return names_in_snapshot(state, head.snapshot_id, asked)


def test_a_column_that_was_renamed_and_one_that_came_later_are_found_for_what_they_are(tables: IcebergTables) -> None:
    assert names(tables, "street", "id") == ["street", "id"]

    with native(loaded(tables)).update_schema() as update:
        update.rename_column("city", "town")
    with native(loaded(tables)).update_schema() as update:
        update.add_column("city", StringType())

    assert names(tables, "town", "city", "never", "_hw_lsn") == ["city", None, None, "_hw_lsn"]


def test_a_column_that_the_owner_dropped_is_refused(tables: IcebergTables) -> None:
    with native(loaded(tables)).update_schema() as update:
        update.delete_column("city")

    with pytest.raises(InvalidRequest, match="no longer has the column 'city'"):
        names(tables, "id", "city")
