"""Commits of upkeep that drop data files: which go, what they leave behind, and what is not sent."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.errors import Unavailable
from headwater.lake.mark import FORGOTTEN, Mark, mark_in_property, mark_in_summary, property_name
from headwater.lake.stamping import own_standing, stamp_of
from headwater.lake.table_changes import drop_files, make_branch
from headwater.lake.table_files import data_files
from headwater.lake.tables import CommitRefused, TableState
from headwater.lake.upkeep import DataFileFacts
from tests.unit.lake.kept_tables import Kept, kept


def facts(lake: Kept) -> tuple[TableState, list[DataFileFacts], Mark, int]:
    """The table, its data files by age, the mark that a commit would leave, and a time after all its rows."""
    state = lake.load()
    files, _ = data_files(state)
    with closing(lake.place.connect()) as tables:
        mark = stamp_of(own_standing(tables, state, lake.record.topic_id.hex()), "the-drop")
    in_order = sorted(files, key=lambda file: file.lsn_max or 0)
    return state, in_order, mark, 1 + max(file.time_max_us or 0 for file in files)


def test_files_of_nothing_but_old_rows_go_and_the_head_has_the_mark(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2, 3)
        state, files, mark, after_us = facts(lake)
        first_lsn = files[0].lsn_max
        assert first_lsn is not None

        staged = drop_files(state, files, mark, lsn_to=first_lsn, before_us=after_us)

        # Nothing is sent until it is committed.
        assert staged is not None and staged[1] == (files[0],) and lake.ids() == [1, 2, 3]
        with closing(lake.place.connect()) as tables:
            tables.commit(staged[0])
        dropped = lake.load()
        head = dropped.head()
        assert lake.ids() == [2, 3] and head is not None and mark_in_summary(head.summary) == mark
        assert mark_in_property(dropped.properties[property_name()]).snapshot == head.snapshot_id
        assert dropped.properties[FORGOTTEN] == str(first_lsn)
        lake.land(4)
        assert lake.ids() == [2, 3, 4]


def test_what_was_forgotten_never_becomes_less(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        with lake.pyiceberg().transaction() as change:
            change.set_properties({FORGOTTEN: "1000"})
        state, files, mark, after_us = facts(lake)

        staged = drop_files(state, files, mark, lsn_to=999, before_us=after_us)

        assert staged is not None
        with closing(lake.place.connect()) as tables:
            tables.commit(staged[0])
        assert lake.load().properties[FORGOTTEN] == "1000"


def test_where_no_file_is_old_enough_nothing_is_staged(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2)
        state, files, mark, after_us = facts(lake)

        assert drop_files(state, files, mark, lsn_to=0, before_us=after_us) is None
        assert drop_files(state, files, mark, lsn_to=1 << 40, before_us=0) is None


def test_a_file_that_may_not_go_keeps_all_of_them(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2)
        state, files, mark, after_us = facts(lake)

        with pytest.raises(Unavailable, match="cannot be told"):
            drop_files(state, files[:1], mark, lsn_to=1 << 40, before_us=after_us)


def test_a_commit_that_cannot_be_prepared_sends_nothing(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        state, files, mark, after_us = facts(lake)
        for manifest in (tmp_path / "lake" / "sales" / "orders" / "metadata").glob("*.avro"):
            manifest.unlink()

        with pytest.raises(Unavailable, match="cannot be prepared"):
            drop_files(state, files, mark, lsn_to=1 << 40, before_us=after_us)

        assert lake.load().branches == state.branches


def test_files_are_not_dropped_from_a_table_that_has_moved(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        state, files, mark, after_us = facts(lake)
        staged = drop_files(state, files, mark, lsn_to=1 << 40, before_us=after_us)
        assert staged is not None
        lake.land(2)

        with closing(lake.place.connect()) as tables, pytest.raises(CommitRefused):
            tables.commit(staged[0])

        assert lake.ids() == [1, 2]


def test_what_an_owner_has_set_about_main_stays_when_files_go(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        state, files, mark, after_us = facts(lake)
        native = lake.pyiceberg()
        main = native.metadata.refs["main"]
        native.metadata.refs["main"] = main.model_copy(update={"min_snapshots_to_keep": 7})
        state = replace(state, native=native)

        staged = drop_files(state, files, mark, lsn_to=1 << 40, before_us=after_us)

        assert staged is not None
        with closing(lake.place.connect()) as tables:
            tables.commit(staged[0])
        assert lake.pyiceberg().metadata.refs["main"].min_snapshots_to_keep == 7


def test_a_branch_takes_the_properties_that_differ_with_it(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        before = lake.load()
        for name, properties in (("one", {}), ("two", {"write.merge.mode": "copy-on-write"})):
            with closing(lake.place.connect()) as tables:
                tables.commit(make_branch(lake.load(), name, properties))

        after = lake.load()
        assert set(after.branches.values()) == {before.branches["main"]} and len(after.branches) == 3
        assert after.properties == {**before.properties, "write.merge.mode": "copy-on-write"}
