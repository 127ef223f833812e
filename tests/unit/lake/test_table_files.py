"""The files of a real table: what its snapshots added, what lies in its place, and taking some away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.io.fsspec import FsspecFileIO

from headwater.errors import Unavailable
from headwater.lake.shape import table_shape
from headwater.lake.table_files import (
    added_files,
    data_files,
    listed_files,
    place_of,
    referenced_files,
    remove_files,
)
from headwater.lake.upkeep import plain_path
from tests.unit.lake.delete_files import add_delete_file
from tests.unit.lake.kept_tables import TABLE, Kept, kept

DATA = Path("lake") / "sales" / "orders" / "data"


def paths_of(lake: Kept) -> set[str]:
    return {file.path for file in data_files(lake.load())[0]}


def test_a_snapshot_added_its_own_files_and_not_those_before_it(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        before = paths_of(lake)
        lake.land(2)
        state = lake.load()

        [added] = added_files(state, state.branches["main"])

        assert paths_of(lake) - before == {added}


def test_a_landing_added_its_own_files_where_its_manifest_took_in_those_of_others(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2)
        with lake.pyiceberg().transaction() as change:
            change.set_properties({"commit.manifest.min-count-to-merge": "1"})
        lake.land(3)
        before = paths_of(lake)
        lake.land(4)
        state = lake.load()

        assert set(added_files(state, state.branches["main"])) == paths_of(lake) - before


def test_a_table_without_a_snapshot_has_no_data_files(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.place.connect().create(TABLE, table_shape(lake.record))

        assert data_files(lake.load()) == ([], 0)


def test_files_that_say_which_rows_are_gone_are_counted_and_are_no_data_files(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2)
        files, deletes = data_files(lake.load())
        assert (len(files), deletes) == (2, 0)

        path = add_delete_file(lake.pyiceberg())

        assert data_files(lake.load()) == (files, 1)
        assert path in referenced_files(lake.load())


def test_a_listing_shows_files_and_no_folders(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        deep = tmp_path / DATA / "region=eu"
        deep.mkdir()
        (deep / "a.parquet").write_bytes(b"abc")
        state = lake.load()
        place = place_of(state)
        assert place is not None

        listed = listed_files(state, place)

        assert {plain_path(each.path) for each in listed} == lake.data_paths()
        assert [each.bytes for each in listed if each.path.endswith("/a.parquet")] == [3]


def test_the_files_of_a_store_that_is_not_arrow_s_cannot_be_listed(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        native = lake.pyiceberg()
        native.io = FsspecFileIO({})

        assert place_of(replace(lake.load(), native=native)) is None


def test_what_is_gone_already_counts_as_gone_and_what_cannot_be_removed_stays(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        there, missing, folder = (str(tmp_path / DATA / name) for name in ("a.parquet", "b.parquet", "c.parquet"))
        Path(there).write_bytes(b"x")
        Path(folder).mkdir()

        assert remove_files(lake.load(), [there, missing, folder]) == ([there, missing], [folder])
        assert not Path(there).exists() and Path(folder).exists()


def test_references_that_cannot_all_be_read_are_not_told_in_part(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2)
        state = lake.load()
        lists = sorted((tmp_path / "lake" / "sales" / "orders" / "metadata").glob("snap-*.avro"))
        lists[0].unlink()

        with pytest.raises(Unavailable, match="cannot be looked at"):
            referenced_files(state)
