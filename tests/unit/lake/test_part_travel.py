"""Data files of a part travel as bytes, and are read where they arrive as they are read here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.errors import CorruptData
from headwater.lake.file_cache import FileCache
from headwater.lake.part_travel import pack_files, unpack_files
from headwater.lake.table_rows import PartReading
from headwater.lake.view_plan import TablePart
from headwater.lake.where import Condition, condition
from tests.unit.lake.delete_files import add_delete_file
from tests.unit.lake.scratch_tables import connected, land, loaded, native, sqlite_place

COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("_hw_lsn", pa.int64())])


def test_the_rows_of_files_are_the_same_after_a_journey_with_deletes_and_conditions(tmp_path: Path) -> None:
    with connected(sqlite_place(tmp_path)) as tables:
        land(tables, lsn=1, rows=4)
        land(tables, lsn=2, rows=3)
        files = [task.file.file_path for task in native(loaded(tables)).scan("_hw_lsn = 1").plan_files()]
        add_delete_file(native(loaded(tables)), 1, data=files[0])
        state = loaded(tables)
        head = state.head()
        assert head is not None
        live = FileCache().files(state, head.snapshot_id).data

        def read(part: TablePart, given: Any, where: Condition | None) -> list[dict[str, Any]]:
            reading = PartReading(part, COLUMNS, where)
            return [row for each in given for table in reading.read(each) for row in table.to_pylist()]

        for whole, where in ((True, None), (False, condition("id > 0", COLUMNS))):
            part = TablePart(state, head.snapshot_id, 1, 2, whole, unmarked=False)
            travelled, arrived = unpack_files(pack_files(part, live))
            light = Condition(where.expression, where.columns) if where is not None else None
            found = read(travelled, arrived, light)

            assert found == read(part, live, where) and found
            assert len(found) == (6 if whole else 2)
            assert (travelled.lsn_from, travelled.lsn_to, travelled.snapshot_id) == (1, 2, head.snapshot_id)


def test_bytes_that_are_no_files_are_refused() -> None:
    with pytest.raises(CorruptData, match="cannot be read"):
        unpack_files(b"nothing")
