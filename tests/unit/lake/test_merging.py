"""The steps around a MERGE on a real catalog: what is read, what the branch is for, and when main goes.

NOT HERE The MERGE itself, which is Spark's: tests/lake_spark/test_merge.py.
"""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.types import StringType

from headwater.errors import LandingHalted, Unavailable
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.mark import FORGOTTEN, mark_in_property, mark_in_summary, property_name
from headwater.lake.merging import Merging
from headwater.lake.shape import table_shape
from headwater.lake.stamping import own_standing, stage_stamp, stamp_of
from headwater.lake.state_table import state_shape
from headwater.lake.tables import CommitRefused, CommitUncertain
from tests.unit.lake.keyed_tables import CHANGES, STATE, Keyed, keyed

# What there is to merge ---------------------------------------------------------------------------------------------


def test_there_is_nothing_to_merge_until_something_has_landed(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        assert lake.begin() is None

        # Given a change table that was made, and that nothing has come into.
        with closing(lake.place.connect()) as tables:
            tables.create(CHANGES, table_shape(lake.record))
        assert lake.begin() is None

        with closing(lake.place.connect()) as tables:
            assert tables.load(STATE) is None


def test_the_first_merge_makes_the_state_table_and_the_next_goes_on_from_there(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"), (2, "b"))
        plan, mark = lake.begun()
        assert (plan.table, plan.changes, plan.lsn_from) == (STATE, CHANGES, 0)
        assert plan.base == lake.load().branches["main"] and plan.branch in lake.load().branches

        # Until it is finished main shows nothing of it.
        assert lake.ids() == []
        made = lake.merging.finish(plan, mark)

        state = lake.load()
        assert state.branches == {"main": made} and lake.ids() == [1, 2]
        assert mark_in_property(state.properties[property_name()]).commit_id == plan.commit_id
        assert lake.merged is not None
        assert (lake.merged.snapshot, lake.merged.lsn_to, lake.merged.commit_id) == (made, plan.lsn_to, plan.commit_id)
        assert lake.begin() is None

        lake.land((3, "c"))
        after, mark = lake.begun()
        assert (after.lsn_from, after.base) == (plan.lsn_to, made)
        assert lake.merging.finish(after, mark) is not None
        assert lake.ids() == [1, 2, 3]


def test_a_merge_says_in_its_snapshot_what_it_took_in(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"), (2, "b"))
        plan, mark = lake.begun()
        lake.merging.finish(plan, mark)

        head = lake.load().head()
        assert head is not None and mark_in_summary(head.summary) == mark
        assert (mark.rows, mark.lsn_from, mark.lsn_to) == (2, 0, plan.lsn_to)
        assert mark.log_id == plan.changes_mark.log_id and mark.topic_id == lake.record.topic_id.hex()


def test_a_topic_that_has_a_new_column_gets_it_in_the_state_table_before_the_merge(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        lake.merge()
        lake.topic.alter(schema={"id": int, "name": str, "city": str | None})
        lake.topic.upsert([{"id": 2, "name": "b", "city": "Bern"}])
        assert lake.log.land().rows == 1

        plan, mark = lake.begun()

        assert "city" in plan.columns and "city" in lake.pyiceberg().schema().column_names
        assert lake.merging.finish(plan, mark) is not None
        assert lake.ids() == [1, 2]


# Halts --------------------------------------------------------------------------------------------------------------


def test_a_state_table_that_is_gone_halts_and_is_made_again_from_all_changes_when_a_person_says_so(
    tmp_path: Path,
) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        lake.merge()
        lake.drop_table()

        with pytest.raises(LandingHalted, match="is gone") as halted:
            lake.begin()

        assert halted.value.cause == "gap"
        lake.merge(after_rollback=True)
        assert lake.ids() == [1]


def test_a_state_table_that_was_rolled_back_halts_until_a_person_says_so(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        first = lake.merge()
        lake.land((2, "b"))
        lake.merge()
        lake.roll_back(first)

        with pytest.raises(LandingHalted, match="rolled back or replaced") as halted:
            lake.begin()

        assert halted.value.cause == "gap"
        lake.merge(after_rollback=True)
        assert lake.ids() == [1, 2]


def test_a_state_behind_what_the_retention_of_changes_has_let_go_of_halts_whatever_a_person_says(
    tmp_path: Path,
) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        with lake.pyiceberg(CHANGES).transaction() as change:
            change.set_properties({FORGOTTEN: "1"})

        with pytest.raises(LandingHalted, match="past their retention") as halted:
            lake.begin(after_rollback=True)

        assert halted.value.cause == "gap"


def test_a_state_table_of_another_log_halts(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        # Given a state table whose mark is of the same topic and of another log.
        shape = state_shape(lake.record)
        with closing(lake.place.connect()) as tables:
            landed = own_standing(tables, lake.load(CHANGES), lake.record.topic_id.hex())
            mark = replace(stamp_of(landed, "of-another"), log_id="ff" * 16)
            tables.commit(stage_stamp(tables, tables.create(STATE, shape), shape, mark))

        with pytest.raises(LandingHalted, match="another log") as halted:
            lake.begin()

        assert halted.value.cause == "foreign-mark"


def test_a_merge_that_ended_before_the_ledger_knew_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        monkeypatch.setattr(Merging, "_record", lambda *_: None)
        made = lake.merge()
        monkeypatch.undo()
        before = lake.merged

        assert before is None and lake.begin() is None

        assert lake.merged is not None and lake.merged.snapshot == made


# Races and lost replies ---------------------------------------------------------------------------------------------


def foreign_commit(lake: Keyed) -> None:
    table = lake.pyiceberg()
    table.append(pa.Table.from_pylist([{"id": 99, "name": "of others"}], schema=table.schema().as_arrow()))


def test_of_two_merges_that_began_at_the_same_snapshot_the_second_changes_nothing(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        first, second = lake.begun(), lake.begun()

        assert lake.merging.finish(*first) is not None
        assert lake.merging.finish(*second) is None

        assert lake.ids() == [1]
        assert lake.merged is not None and lake.merged.commit_id == first[0].commit_id
        lake.merging.drop(second[0])
        assert list(lake.load().branches) == ["main"]


def test_a_commit_by_others_between_the_branch_and_the_move_comes_first(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        plan, mark = lake.begun()
        foreign_commit(lake)

        assert lake.merging.finish(plan, mark) is None
        assert lake.ids() == [99] and lake.merged is None


def test_a_branch_is_refused_where_main_has_moved_since_it_was_read(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        plan = lake.begin()
        assert plan is not None
        lake.merge()

        with pytest.raises(CommitRefused):
            lake.merging.branch(plan, "copy-on-write")


def test_a_merge_whose_table_has_another_schema_by_now_is_not_taken(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        plan, mark = lake.begun()
        with lake.pyiceberg().update_schema() as update:
            update.add_column("note", StringType())

        assert lake.merging.finish(plan, mark) is None
        assert lake.ids() == [] and lake.merged is None


@pytest.mark.parametrize("applied", [True, False])
def test_when_the_reply_to_the_move_is_lost_the_table_tells_whether_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        plan, mark = lake.begun()
        commit = IcebergTables.commit

        def lose_the_reply(self: IcebergTables, staged: Any) -> None:
            if applied:
                commit(self, staged)
            raise CommitUncertain("the reply was lost")

        monkeypatch.setattr(IcebergTables, "commit", lose_the_reply)

        made = lake.merging.finish(plan, mark)

        assert (made is not None) is applied is (lake.merged is not None)
        assert lake.ids() == ([1] if applied else [])


# Merges that made nothing -------------------------------------------------------------------------------------------


def test_a_merge_that_made_no_snapshot_fails_with_what_is_known_about_it(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        plan = lake.begin()
        assert plan is not None
        mark = plan.mark(1, plan.lsn_to)

        # Without a branch; with one that nothing was merged into; and with one that is of another merge.
        for _ in range(2):
            with pytest.raises(Unavailable, match="made no snapshot of its own") as failed:
                lake.merging.finish(plan, mark, "out of memory")
            assert "out of memory" in str(failed.value)
            if plan.branch not in lake.load().branches:
                lake.merging.branch(plan, "copy-on-write")
        lake.run(replace(plan, commit_id="of-another"))
        with pytest.raises(Unavailable, match="made no snapshot of its own"):
            lake.merging.finish(plan, mark)

        assert lake.ids() == [] and lake.merged is None


def test_a_merge_in_two_snapshots_is_not_taken(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        plan, mark = lake.begun()
        lake.run(plan)

        with pytest.raises(Unavailable, match="made no snapshot of its own"):
            lake.merging.finish(plan, mark)


def test_a_merge_whose_files_cannot_be_synced_is_not_taken(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        plan, mark = lake.begun()
        [file] = (tmp_path / "lake" / "crm" / "customers").rglob("*.parquet")
        file.unlink()

        with pytest.raises(Unavailable, match="cannot be synced"):
            lake.merging.finish(plan, mark)

        assert lake.load().branches["main"] == plan.base and lake.merged is None


def test_a_state_table_that_goes_while_it_is_merged_is_said_to_be_gone(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        plan, mark = lake.begun()
        lake.drop_table()

        with pytest.raises(Unavailable, match=f"{STATE!r} is gone"):
            lake.merging.finish(plan, mark)
        lake.merging.drop(plan)  # there is nothing to drop


# Branches -----------------------------------------------------------------------------------------------------------


def test_a_table_that_was_merged_in_another_way_is_told_the_new_one_with_the_branch(tmp_path: Path) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        plan = lake.begin()
        assert plan is not None and lake.load().properties["write.merge.mode"] == "copy-on-write"

        lake.merging.branch(plan, "merge-on-read")

        assert lake.load().properties["write.merge.mode"] == "merge-on-read"
        assert plan.branch in lake.load().branches


def test_a_branch_that_is_not_there_is_dropped_without_a_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        plan, mark = lake.begun()
        assert lake.merging.finish(plan, mark) is not None

        with caplog.at_level(logging.WARNING, "headwater.lake"):
            lake.merging.drop(plan)

        assert caplog.records == []


def test_a_branch_that_cannot_be_dropped_stays_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with keyed(tmp_path) as lake:
        lake.land((1, "a"))
        plan, _ = lake.begun()

        def refuse(*_: Any) -> None:
            raise CommitRefused("another came first")

        monkeypatch.setattr(IcebergTables, "commit", refuse)

        with caplog.at_level(logging.WARNING, "headwater.lake"):
            lake.merging.drop(plan)

        assert plan.branch in caplog.text and plan.branch in lake.load().branches
