"""Files of a snapshot: read once, with the deletes that apply to them; what cannot be read is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import DataFile, DataFileContent, ManifestFile

from headwater.errors import Unavailable
from headwater.lake import file_cache
from headwater.lake.file_cache import FileCache, LiveFile
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.tables import TableState
from tests.unit.lake.delete_files import add_delete_file
from tests.unit.lake.scratch_tables import connected, land, loaded, native, shape_of, sqlite_place

BY_REGION = shape_of(
    pa.field("id", pa.int64(), nullable=False), pa.field("region", pa.string()), partition_by=("region",)
)


@pytest.fixture
def tables(tmp_path: Path) -> Iterator[IcebergTables]:
    with connected(sqlite_place(tmp_path)) as connection:
        yield connection


@pytest.fixture
def cache() -> FileCache:
    return FileCache()


def head(state: TableState) -> int:
    snapshot = state.head()
    assert snapshot is not None
    return snapshot.snapshot_id


@contextmanager
def manifests_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The paths of the manifests that are read meanwhile."""
    read: list[str] = []
    fetch = ManifestFile.fetch_manifest_entry

    def watched(self: ManifestFile, *given: Any, **options: Any) -> Any:
        read.append(self.manifest_path)
        return fetch(self, *given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(ManifestFile, "fetch_manifest_entry", watched)
        yield read


def test_a_snapshot_shows_its_files_and_counts_their_rows(tables: IcebergTables, cache: FileCache) -> None:
    land(tables, lsn=1, rows=3)
    land(tables, lsn=2, rows=2)
    state = loaded(tables)

    found = cache.files(state, head(state))

    assert sorted(live.file.record_count for live in found.data) == [2, 3]
    assert found.rows == 5
    assert all(Path(live.path.removeprefix("file://")).exists() for live in found.data)


def test_a_new_snapshot_reads_only_what_is_new_in_it(
    tables: IcebergTables, cache: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    for lsn in range(1, 4):
        land(tables, lsn=lsn)
    first = loaded(tables)

    with manifests_read(monkeypatch) as read:
        cache.files(first, head(first))
    assert len(read) == 3
    with manifests_read(monkeypatch) as read:
        cache.files(first, head(first))
    assert read == []

    land(tables, lsn=4)
    second = loaded(tables)
    with manifests_read(monkeypatch) as read:
        found = cache.files(second, head(second))
    assert len(read) == 1 and len(found.data) == 4


def test_what_was_not_asked_for_lately_is_read_again(
    tables: IcebergTables, cache: FileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_cache, "MANIFESTS_KEPT", 2)
    monkeypatch.setattr(file_cache, "SNAPSHOTS_KEPT", 1)
    for lsn in range(1, 5):
        land(tables, lsn=lsn)
    state = loaded(tables)
    oldest = min(state.snapshots.values(), key=lambda each: each.timestamp_ms).snapshot_id

    found = [len(cache.files(state, snapshot).data) for snapshot in (head(state), oldest, head(state), oldest)]

    assert found == [4, 1, 4, 1]


def test_a_snapshot_that_is_gone_is_told(tables: IcebergTables, cache: FileCache) -> None:
    land(tables)

    with pytest.raises(Unavailable, match="no longer has this snapshot"):
        cache.files(loaded(tables), 42)


def test_manifests_that_are_gone_are_told(tables: IcebergTables, cache: FileCache) -> None:
    land(tables)
    state = loaded(tables)
    for path in Path(native(state).location().removeprefix("file://")).glob("metadata/*.avro"):
        path.unlink()

    with pytest.raises(Unavailable, match="manifests of 'sales.orders' cannot be read".replace(".", r"\.")):
        cache.files(state, head(state))


def test_a_delete_file_is_with_the_files_that_it_applies_to(tables: IcebergTables, cache: FileCache) -> None:
    land(tables, lsn=1, rows=3)
    path = add_delete_file(native(loaded(tables)))
    land(tables, lsn=2, rows=2)
    state = loaded(tables)

    found = cache.files(state, head(state))

    deletes = {live.file.record_count: [each.file_path for each in live.deletes] for live in found.data}
    assert deletes[3] == [path]
    assert deletes[2] == [], "it was written before these rows were"
    assert found.rows is None


def test_files_of_a_partition_have_the_deletes_of_that_partition(tables: IcebergTables, cache: FileCache) -> None:
    land(tables, lsn=1, rows=4, shape=BY_REGION, region=["eu", "eu", "us", "us"])
    table = native(loaded(tables))
    tasks = {str(task.file.partition[0]): task.file for task in table.scan().plan_files()}
    path = add_delete_file(table, partition=tasks["us"].partition, data=tasks["us"].file_path)
    state = loaded(tables)

    found = cache.files(state, head(state))

    assert {str(live.file.partition[0]): len(live.deletes) for live in found.data} == {"eu": 0, "us": 1}
    assert [each.file_path for live in found.data for each in live.deletes] == [path]


def test_equality_deletes_are_refused(tables: IcebergTables, cache: FileCache) -> None:
    land(tables, rows=2)
    add_delete_file(native(loaded(tables)), content=DataFileContent.EQUALITY_DELETES)
    state = loaded(tables)

    with pytest.raises(Unavailable, match="equality deletes"):
        cache.files(state, head(state))


def test_a_file_without_bounds_says_none() -> None:
    silent = LiveFile(DataFile.from_args(file_path="a", lower_bounds=None, upper_bounds=None))
    half = LiveFile(DataFile.from_args(file_path="a", lower_bounds={1: b"\0" * 8}, upper_bounds={}))

    assert silent.bounds(1) is None and half.bounds(1) is None
    assert LiveFile(
        DataFile.from_args(file_path="a", lower_bounds={1: b"\1" + b"\0" * 7}, upper_bounds={1: b"\2" + b"\0" * 7})
    ).bounds(1) == (1, 2)
