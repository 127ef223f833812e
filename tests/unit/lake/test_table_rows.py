"""Rows of a snapshot: the columns, LSNs and condition that were asked for, whatever its owner has made of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.types import LongType, StringType

from headwater.errors import InvalidRequest, Unavailable
from headwater.lake import table_rows
from headwater.lake.file_cache import FileCache
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.shape import SYSTEM_COLUMNS
from headwater.lake.table_rows import count_part, read_part
from headwater.lake.tables import TableShape, TableState
from headwater.lake.view_plan import TablePart
from headwater.lake.where import Condition, condition
from tests.unit.lake import scratch_tables
from tests.unit.lake.delete_files import add_delete_file
from tests.unit.lake.scratch_tables import TABLE, connected, loaded, native, shape_of, sqlite_place

ID, CITY = pa.field("id", pa.int64()), pa.field("city", pa.string())
LSN = pa.field("_hw_lsn", pa.int64())
LAKE = pa.schema([ID, CITY, *SYSTEM_COLUMNS])
BOTH = shape_of(ID, CITY)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[IcebergTables]:
    with connected(sqlite_place(tmp_path)) as connection:
        yield connection


def land(tables: IcebergTables, *, shape: TableShape = BOTH, **given: Any) -> None:
    scratch_tables.land(tables, shape=shape, **given)


def part_of(
    state: TableState, lsn_from: int = 0, lsn_to: int = 100, *, whole: bool = True, unmarked: bool = True
) -> TablePart:
    head = state.head()
    assert head is not None
    return TablePart(state, head.snapshot_id, lsn_from, lsn_to, whole, unmarked)


def between(state: TableState, lsn_from: int, lsn_to: int, *, unmarked: bool = False) -> TablePart:
    return part_of(state, lsn_from, lsn_to, whole=False, unmarked=unmarked)


def rows(part: TablePart, *fields: pa.Field, where: str | Condition | None = None) -> list[dict[str, Any]]:
    """What is read; that as many are counted is looked at too."""
    asked = condition(where, LAKE) if isinstance(where, str) else where
    schema = pa.schema(fields or [ID, CITY])
    found = list(read_part(part, schema, asked, FileCache()))
    assert all(table.schema.types == schema.types and table.column_names == schema.names for table in found)
    read: list[dict[str, Any]] = [row for table in found for row in table.to_pylist()]
    assert count_part(part, asked, FileCache()) == len(read)
    return read


def ids(part: TablePart, where: str | Condition | None = None) -> list[int]:
    return sorted(row["id"] for row in rows(part, ID, where=where))


# -------------------------------------------------------------------------------------------------------- LSNs


def test_a_whole_part_is_every_row_and_a_part_by_lsn_only_those_between(tables: IcebergTables) -> None:
    for lsn in range(1, 6):
        land(tables, lsn=lsn, id=[lsn * 10])
    state = loaded(tables)

    assert ids(part_of(state)) == [10, 20, 30, 40, 50]
    assert ids(between(state, 1, 3)) == [20, 30]
    assert ids(between(state, 0, 2, unmarked=True)) == [10, 20]
    assert ids(between(state, 5, 9)) == []


def test_of_a_file_with_many_lsns_the_rows_between_are_read(tables: IcebergTables) -> None:
    land(tables, lsn=5, rows=5, id=[1, 2, 3, 4, 5], _hw_lsn=[1, 2, 3, 4, 5])
    state = loaded(tables)

    assert ids(between(state, 1, 3)) == [2, 3]
    assert ids(between(state, 0, 2, unmarked=True)) == [1, 2]
    assert rows(between(state, 3, 4), LSN, ID) == [{"_hw_lsn": 4, "id": 4}]


def test_files_outside_the_lsns_and_the_condition_are_not_opened(
    tables: IcebergTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lsn in range(1, 5):
        land(tables, lsn=lsn, id=[lsn])
    state = loaded(tables)
    opened: list[str] = []
    read = table_rows.PartReading.read

    def watched(self: Any, live: Any) -> Any:
        opened.append(live.path)
        return read(self, live)

    monkeypatch.setattr(table_rows.PartReading, "read", watched)

    list(read_part(between(state, 2, 3), pa.schema([ID]), None, FileCache()))
    assert len(opened) == 1
    list(read_part(part_of(state), pa.schema([ID]), condition("id > 3", LAKE), FileCache()))
    assert len(opened) == 2
    assert count_part(between(state, 1, 3), None, FileCache()) == 2 and len(opened) == 2, "counted without reading"


def test_rows_of_the_owner_are_in_the_first_part_alone(tables: IcebergTables) -> None:
    # A table that was there before the topic: its rows have no LSN.  The topic lands into it, and all is compacted.
    tables.catalog.create_namespace("sales")
    table = tables.catalog.create_table(TABLE, schema=pa.schema([ID]))
    table.append(pa.table({"id": [-1, -2]}, schema=pa.schema([ID])))
    assert ids(part_of(loaded(tables))) == [-2, -1]
    assert ids(between(loaded(tables), 0, 9, unmarked=True)) == [-2, -1]
    land(tables, lsn=4, rows=2, id=[7, 8], shape=shape_of(ID))
    apart = loaded(tables)
    assert ids(between(apart, 0, 9, unmarked=True)) == [-2, -1, 7, 8]
    assert ids(between(apart, 0, 9)) == [7, 8]

    together = native(apart)
    together.overwrite(together.scan().to_arrow())
    state = loaded(tables)

    assert ids(between(state, 0, 9, unmarked=True)) == [-2, -1, 7, 8]
    assert ids(between(state, 0, 9)) == [7, 8]
    assert ids(between(state, 0, 3, unmarked=True)) == [-2, -1]
    assert ids(between(state, 0, 9, unmarked=True), "id > 7") == [8]


def test_rows_that_somebody_gave_lsn_zero_are_in_the_first_part_alone(tables: IcebergTables) -> None:
    land(tables, lsn=4, rows=3, id=[-1, 7, 8], _hw_lsn=[0, 4, 4])
    state = loaded(tables)

    assert ids(between(state, 0, 9, unmarked=True)) == [-1, 7, 8]
    assert ids(between(state, 0, 9)) == [7, 8]


# ----------------------------------------------------------------------------------------------------- columns


def test_a_renamed_column_is_the_same_column(tables: IcebergTables) -> None:
    land(tables, lsn=1, rows=2, city=["a", "b"])
    with native(loaded(tables)).update_schema() as update:
        update.rename_column("city", "title")
    title = pa.field("title", pa.string())
    renamed = pa.schema([ID, title, *SYSTEM_COLUMNS])

    found = rows(part_of(loaded(tables)), title, where=condition("title = 'b'", renamed))

    assert found == [{"title": "b"}]


def test_names_that_were_exchanged_are_not_taken_for_each_other(tables: IcebergTables) -> None:
    land(tables, lsn=1, rows=2, shape=shape_of(ID, pa.field("b", pa.int64())), id=[1, 2], b=[20, 10])
    with native(loaded(tables)).update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("id", "c")
    with native(loaded(tables)).update_schema(allow_incompatible_changes=True) as update:
        update.rename_column("b", "id")
    state = loaded(tables)

    assert ids(part_of(state)) == [10, 20]
    assert ids(part_of(state), "id > 10") == [20]


def test_a_column_that_a_file_does_not_have_is_null_in_it(tables: IcebergTables) -> None:
    land(tables, lsn=1, rows=1, id=[1], shape=shape_of(ID))
    land(tables, lsn=2, rows=1, id=[2], city=["two"], shape=shape_of(ID, CITY))
    state = loaded(tables)

    assert sorted(rows(part_of(state)), key=lambda row: row["id"]) == [
        {"id": 1, "city": None},
        {"id": 2, "city": "two"},
    ]
    assert ids(part_of(state), "city is null") == [1]
    assert ids(part_of(state), "city = 'two'") == [2]


def test_a_column_that_the_table_never_had_is_null(tables: IcebergTables) -> None:
    land(tables, lsn=1, rows=2, id=[1, 2], shape=shape_of(ID))
    state = loaded(tables)

    assert rows(part_of(state), CITY) == [{"city": None}] * 2
    assert ids(part_of(state), "city is null") == [1, 2]
    assert ids(part_of(state), "city = 'two'") == []


def test_a_column_that_the_owner_dropped_is_named(tables: IcebergTables) -> None:
    land(tables, lsn=1, rows=2, id=[1, 2])
    with native(loaded(tables)).update_schema() as update:
        update.delete_column("city")
    state = loaded(tables)

    assert ids(part_of(state)) == [1, 2]
    with pytest.raises(InvalidRequest, match="no longer has the column 'city'"):
        rows(part_of(state))


def test_a_column_that_was_widened_is_read_wide(tables: IcebergTables) -> None:
    narrow = shape_of(pa.field("id", pa.int32()), pa.field("f", pa.float32()))
    wide = shape_of(ID, pa.field("f", pa.float64()))
    land(tables, lsn=1, rows=2, shape=narrow, id=[1, 2], f=[0.5, 1.5])
    land(tables, lsn=2, rows=1, shape=wide, id=[2**40], f=[2.5])
    state = loaded(tables)

    assert ids(part_of(state)) == [1, 2, 2**40]
    assert ids(part_of(state), "id >= 2") == [2, 2**40]
    assert ids(part_of(state), condition("f < 1.0", pa.schema([ID, pa.field("f", pa.float64())]))) == [1]


def test_a_null_list_of_structs_stays_null(tables: IcebergTables) -> None:
    tags = pa.field("tags", pa.list_(pa.field("element", pa.struct([pa.field("k", pa.string())]))))
    land(tables, lsn=1, rows=3, shape=shape_of(ID, tags), tags=[None, [], [{"k": "a"}]])

    found = rows(part_of(loaded(tables)), tags)

    assert [row["tags"] for row in found] == [None, [], [{"k": "a"}]]


def test_no_column_at_all_is_still_so_many_rows(tables: IcebergTables) -> None:
    land(tables, lsn=1, rows=3)

    [found] = read_part(part_of(loaded(tables)), pa.schema([]), None, FileCache())

    assert (found.num_rows, found.num_columns) == (3, 0)


def test_a_file_that_was_not_written_for_iceberg_is_read_by_name(tables: IcebergTables, tmp_path: Path) -> None:
    land(tables, lsn=1, rows=1, id=[1], shape=shape_of(ID))
    path = tmp_path / "foreign.parquet"
    fields = [pa.field("id", pa.int64()), *SYSTEM_COLUMNS]
    values = [[5, 6], [0, 0], [3, 4], [0, 0], [1, 2], [0, 0]]
    columns = [pa.array(value).cast(field.type) for value, field in zip(values, fields, strict=True)]
    pq.write_table(pa.table(columns, schema=pa.schema(fields)), path)
    native(loaded(tables)).add_files([str(path)])
    state = loaded(tables)

    assert ids(part_of(state)) == [1, 5, 6]
    assert ids(between(state, 3, 4)) == [6]


def test_a_partitioned_table_is_read_whole_and_by_its_partitions(tables: IcebergTables) -> None:
    shape = shape_of(ID, CITY, partition_by=("city", "bucket(4, id)"))
    land(tables, lsn=1, rows=6, shape=shape, id=list(range(6)), city=["eu", "us", None] * 2)
    state = loaded(tables)

    assert ids(part_of(state)) == [0, 1, 2, 3, 4, 5]
    assert ids(part_of(state), "city = 'eu'") == [0, 3]
    assert ids(part_of(state), "city is null and id > 2") == [5]


# ----------------------------------------------------------------------------------------------------- deletes


def test_deleted_rows_are_gone_before_anything_is_asked_of_them(tables: IcebergTables) -> None:
    land(tables, lsn=5, rows=5, id=[1, 2, 3, 4, 5], _hw_lsn=[1, 2, 3, 4, 5])
    for place in (1, 3):
        add_delete_file(native(loaded(tables)), place)
    state = loaded(tables)

    assert ids(part_of(state)) == [1, 3, 5]
    assert ids(part_of(state), "id >= 2") == [3, 5]
    assert ids(between(state, 1, 4)) == [3]


def test_deletes_are_found_by_their_place_in_the_file_across_its_row_groups(tables: IcebergTables) -> None:
    land(tables, lsn=1, rows=300_000, id=list(range(300_000)))
    for place in (0, 131_071, 131_072, 299_999):
        add_delete_file(native(loaded(tables)), place)
    part = part_of(loaded(tables))

    assert count_part(part, None, FileCache()) == 299_996
    left = {row["id"] for row in rows(part, ID, where="id < 2 or id > 131069 and id < 131074 or id > 299997")}
    assert left == {1, 131_070, 131_073, 299_998}


def test_a_delete_file_that_speaks_of_another_file_takes_nothing(tables: IcebergTables) -> None:
    land(tables, lsn=1, rows=2, id=[1, 2])
    add_delete_file(native(loaded(tables)), data="somewhere/else.parquet")

    assert ids(part_of(loaded(tables))) == [1, 2]


# --------------------------------------------------------------------------------------------------- the files


def test_a_data_file_that_is_gone_is_told(tables: IcebergTables) -> None:
    land(tables, lsn=1)
    state = loaded(tables)
    files = FileCache().files(state, part_of(state).snapshot_id)
    Path(files.data[0].path.removeprefix("file://")).unlink()

    with pytest.raises(Unavailable, match="is gone: scan again"):
        rows(part_of(state))


def test_many_files_come_in_their_order_and_may_be_left_half_read(tables: IcebergTables) -> None:
    for lsn in range(1, 13):
        land(tables, lsn=lsn, id=[lsn])
    part = part_of(loaded(tables))
    order = [live.bounds(1) for live in FileCache().files(part.state, part.snapshot_id).data]

    found = [table["id"][0].as_py() for table in read_part(part, pa.schema([ID]), None, FileCache())]
    assert [(each, each) for each in found] == order

    reading = read_part(part, pa.schema([ID]), None, FileCache())
    assert next(iter(reading)).num_rows == 1
    assert isinstance(reading, Iterator)
    reading.close()  # type: ignore[attr-defined]  # it is a generator


def test_rows_in_the_types_of_another_writer_are_read_in_those_of_the_topic(tables: IcebergTables) -> None:
    # Others name the inside of a list otherwise, and write a text that is large.
    tags = pa.field("tags", pa.list_(pa.field("element", pa.string())))
    land(tables, lsn=1, rows=1, shape=shape_of(ID, tags), tags=[["a"]])
    table = native(loaded(tables))
    table.append(table.scan().to_arrow())
    wanted: Sequence[pa.Field] = [pa.field("tags", pa.list_(pa.field("item", pa.string())))]

    assert rows(part_of(loaded(tables)), *wanted) == [{"tags": ["a"]}] * 2


def test_a_column_that_the_owner_added_can_be_asked_for(tables: IcebergTables) -> None:
    land(tables, lsn=1, rows=1)
    with native(loaded(tables)).update_schema() as update:
        update.add_column("score", LongType())
        update.add_column("remark", StringType())

    assert rows(part_of(loaded(tables)), pa.field("score", pa.int64())) == [{"score": None}]
