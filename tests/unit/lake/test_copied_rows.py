"""Rows that many tasks write into a new table: the files and what is told of them, together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.lake import copied_rows
from headwater.lake.copied_rows import CopiedTable, columns_by_id, together, write_rows
from headwater.lake.restoring import LocalCopying, all_columns, restored_shape
from tests.unit.lake.scratch_tables import a_commit_id, loaded
from tests.unit.lake.small_lakes import SmallLake, lakes

TO = "copies.orders"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path)


def test_what_tasks_wrote_is_what_the_table_holds_however_the_rows_were_shared_out(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.topic("orders", partitions=2)
    for count in (3, 2, 4):
        lake.append("orders", count)
    views, record = lake.log._viewed(), lake.record("orders")
    scan = views.scan(record, columns=all_columns(record))
    monkeypatch.setattr(copied_rows, "BYTES_AT_ONCE", 100)
    commit_id = a_commit_id()

    with closing(CopiedTable(lake.place.connect, TO, restored_shape(record, "{}"), commit_id)) as table:
        rows = scan.to_arrow()
        shares = [rows.slice(0, 4).to_batches(max_chunksize=2), rows.slice(4).to_batches(max_chunksize=2), []]
        dones = [write_rows(table.target, commit_id, number, share) for number, share in enumerate(shares, 1)]
        files, given = together(dones)
        table.add(files)
        table.commit()

    with closing(lake.place.connect()) as tables:
        state = loaded(tables, TO)
        assert LocalCopying(views).contents(state) == given
        assert [column.name for column in columns_by_id(state)] == all_columns(record)
    assert given.rows == 9 and len({file.path for file in files}) == len(files) > 2
    first = dict(zip(rows["_hw_partition"].to_pylist(), rows["_hw_offset"].to_pylist(), strict=True))
    assert {partition: ends[1] for partition, ends in given.offsets.items()} == first
    assert all(ends[0] == 0 for ends in given.offsets.values())


def test_rows_come_in_any_order_of_columns_and_in_the_types_of_any_arrow(lake: SmallLake) -> None:
    lake.topic("orders", pa.schema([("x", pa.int32()), ("name", pa.string())]))
    lake.log["orders"].append([{"x": 1, "name": "a"}])
    record = lake.record("orders")
    rows = lake.log._viewed().scan(record, columns=all_columns(record)).to_arrow()
    large = rows.set_column(1, "name", rows["name"].cast(pa.large_string())).select(rows.column_names[::-1])

    with closing(CopiedTable(lake.place.connect, TO, restored_shape(record, "{}"), a_commit_id())) as table:
        plain, other = (write_rows(table.target, a_commit_id(), 1, each.to_batches()) for each in (rows, large))

    assert plain.topics[0].digest == other.topics[0].digest
    assert plain.topics[0].offsets == other.topics[0].offsets == ((0, 0, 0),)
