"""Where a row is in its table: the data file, and the place in it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.table import Table

from headwater.lake.file_cache import FileCache
from headwater.lake.shape import SYSTEM_COLUMNS
from headwater.lake.table_rows import PartReading
from headwater.lake.tables import TableState
from headwater.lake.view_plan import TablePart
from headwater.lake.where import condition

_ALL_LSNS = (1 << 62) - 1
_PLACE = ["_hw_partition", "_hw_offset"]


@dataclass(frozen=True)
class FilePlace:
    """A row in a data file."""

    path: str
    snapshot: int
    """The table's head, which shows the file."""
    lsn: int
    time_us: int
    row_group: int
    row: int
    """Its number in the row group."""


def find_in_table(state: TableState, partition: int, offset: int, lsn: int | None) -> list[FilePlace]:
    """Where the table's head has this row: once, if all is well.  An LSN that is known makes the search shorter."""
    head = state.head()
    if head is None:
        return []
    where = condition(f"_hw_partition = {partition} and _hw_offset = {offset}", SYSTEM_COLUMNS)
    between = (lsn - 1, lsn) if lsn is not None else (0, _ALL_LSNS)
    part = TablePart(state, head.snapshot_id, *between, whole=False, unmarked=False)
    reading = PartReading(part, SYSTEM_COLUMNS, where)
    table = state.native
    assert isinstance(table, Table)
    found = []
    for live in reading.chosen(FileCache().files(state, head.snapshot_id).data):
        for rows in reading.read(live):
            for row in rows.select(["_hw_lsn", "_hw_time"]).to_pylist():
                time_us = int(row["_hw_time"].timestamp() * 1_000_000)
                group = _in_file(table.io, live.path, partition, offset)
                found.append(FilePlace(live.path, head.snapshot_id, row["_hw_lsn"], time_us, *group))
    return found


def _in_file(io: FileIO, path: str, partition: int, offset: int) -> tuple[int, int]:
    with io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
        groups = (file.read_row_group(group, columns=_PLACE) for group in range(file.num_row_groups))
        rows = (_row_in(group, partition, offset) for group in groups)
        return next((group, row) for group, row in enumerate(rows) if row >= 0)


def _row_in(rows: pa.Table, partition: int, offset: int) -> int:
    here = pc.and_(pc.equal(rows[_PLACE[0]], partition), pc.equal(rows[_PLACE[1]], offset))
    return int(pc.index(here, True).as_py())
