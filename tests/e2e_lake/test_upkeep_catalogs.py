"""Upkeep and the commits of a merge on the other catalogs: PostgreSQL, and REST, which is Java's own code."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headwater.clock import SystemClock
from headwater.lake.mark import FORGOTTEN, mark_in_property, property_name
from headwater.lake.stamping import own_standing, stamp_of
from headwater.lake.table_changes import drop_branches, drop_files, make_branch, move_main
from headwater.lake.table_files import data_files
from headwater.lake.tables import CommitRefused
from headwater.lake.upkeep import forgettable_changes, merge_branch
from tests.e2e_lake.catalog_servers import lake_catalog
from tests.unit.lake.kept_tables import Kept, compact, kept

pytestmark = pytest.mark.parametrize("kind", ["postgres", "rest"])


def test_a_catalog_of_each_kind_takes_the_commits_of_upkeep_and_of_merges(tmp_path: Path, kind: str) -> None:
    with lake_catalog(kind, tmp_path) as properties, kept(tmp_path / "data", properties) as lake:
        snapshots_expire_and_landing_goes_on(lake)
        main_moves_once_and_only_from_where_it_was_read(lake)
        files_go_by_what_their_rows_are(lake)
        lake.land(100)
        assert 100 in lake.ids()


def snapshots_expire_and_landing_goes_on(lake: Kept) -> None:
    lake.land(1, 2, 3, 4, 5)
    compact(lake)

    told = lake.care(snapshots_kept=1)

    assert told.stamped and told.left == [] and len(lake.load().snapshots) == 1
    lake.land(6)
    assert lake.ids() == [1, 2, 3, 4, 5, 6]


def main_moves_once_and_only_from_where_it_was_read(lake: Kept) -> None:
    # Given two merges that began at the same snapshot, each with a snapshot on its branch.
    before = lake.load()
    base = before.branches["main"]
    branches = [merge_branch(commit_id, 1) for commit_id in ("aaaa", "bbbb")]
    for branch in branches:
        with closing(lake.place.connect()) as tables:
            tables.commit(make_branch(before, branch, {"write.merge.mode": "copy-on-write"}))
        table = lake.pyiceberg()
        rows = table.scan(limit=1).to_arrow()
        table.append(rows.set_column(0, rows.schema.field("id"), pa.array([7], pa.int64())), branch=branch)

    state = lake.load()
    assert state.properties["write.merge.mode"] == "copy-on-write"
    with closing(lake.place.connect()) as tables:
        mark = stamp_of(own_standing(tables, state, lake.record.topic_id.hex()), "the-merge")
        tables.commit(move_main(state, branches[0], base, mark))
    with closing(lake.place.connect()) as tables, pytest.raises(CommitRefused):
        tables.commit(move_main(state, branches[1], base, replace(mark, commit_id="late")))

    # Then main is at the first one's, which is gone as a branch, and the other is dropped.
    moved = lake.load()
    assert moved.branches["main"] == state.branches[branches[0]] and branches[0] not in moved.branches
    assert mark_in_property(moved.properties[property_name()]).commit_id == "the-merge"
    with closing(lake.place.connect()) as tables:
        tables.commit(drop_branches(moved, [branches[1]]))
    assert list(lake.load().branches) == ["main"]


def files_go_by_what_their_rows_are(lake: Kept) -> None:
    state = lake.load()
    files, _ = data_files(state)
    newest = max(file.lsn_max or 0 for file in files)
    before_us = SystemClock().now_us() + 1
    old = forgettable_changes(files, merged_lsn=newest - 1, before_us=before_us)
    assert 0 < len(old) < len(files)

    with closing(lake.place.connect()) as tables:
        mark = stamp_of(own_standing(tables, state, lake.record.topic_id.hex()), "retention")
        staged = drop_files(state, old, mark, lsn_to=newest - 1, before_us=before_us)
        assert staged is not None
        tables.commit(staged[0])

    after = lake.load()
    assert {file.path for file in data_files(after)[0]} == {file.path for file in files} - {file.path for file in old}
    assert int(after.properties[FORGOTTEN]) == max(file.lsn_max or 0 for file in old)
