"""Upkeep of real tables in a SQLite catalog, without Spark."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headwater.clock import system_entropy
from headwater.lake.care import COMPACTION, TableUpkeep, _Keeping, note_of
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.ledger_records import Begun
from headwater.lake.ledger_records import Kept as LedgerKept
from headwater.lake.ledger_state import TopicLedger
from headwater.lake.maintenance import maintain_without_spark
from headwater.lake.mark import mark_in_summary
from headwater.lake.shape import table_shape
from headwater.lake.stamping import own_standing, stage_stamp, stamp_of
from headwater.lake.table_changes import make_branch
from headwater.lake.tables import CommitRefused, CommitUncertain
from headwater.lake.upkeep import UpkeepSettings, history, merge_branch
from headwater.lake.verification import Verdict, Verifying
from tests.unit.lake.kept_tables import TABLE, Kept, age, compact, kept

# Snapshots ----------------------------------------------------------------------------------------------------------


def test_old_snapshots_expire_and_the_table_still_says_how_far_it_has_landed(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2, 3, 4, 5)
        compact(lake)

        told = lake.care(snapshots_kept=2)

        # Then the head was stamped first, and the mark is on it.
        assert told.stamped and told.left == []
        state = lake.load()
        head = state.head()
        assert head is not None
        mark = mark_in_summary(head.summary)
        assert mark is not None and mark.rows == 0 and mark.lsn_from == mark.lsn_to
        # The stamp, the two of the compaction, and the landing on which they rest.
        assert len(state.snapshots) == 4
        assert lake.ids() == [1, 2, 3, 4, 5]

        # And the next landing goes on from there.
        lake.land(6)
        assert lake.ids() == [1, 2, 3, 4, 5, 6]


def test_a_head_that_has_its_mark_gets_no_stamp(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2, 3, 4)

        told = lake.care(snapshots_kept=2)

        assert (told.stamped, told.expired_snapshots) == (False, 2)
        assert lake.care(snapshots_kept=2).did_something is False


def test_landing_and_upkeep_in_turn_keep_the_table_small_and_whole(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        for number in range(12):
            lake.land(number)
            lake.care(snapshots_kept=3)
            assert len(lake.load().snapshots) <= 3

        assert lake.ids() == list(range(12))


def test_a_landing_that_nobody_has_read_back_is_kept_with_its_way_from_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        # Given a landing after which no verification was possible, and two more.
        monkeypatch.setattr(Verifying, "verify", lambda _, topics, mode: {each.number: Verdict() for each in topics})
        lake.land(2, 3, 4)
        line = [each.snapshot_id for each in history(lake.load(), lake.load().branches["main"])]

        told = lake.care(snapshots_kept=1)

        assert told.expired_snapshots == 1 and list(lake.load().snapshots) == line[2::-1]

        # When they are read back, they can go.
        monkeypatch.undo()
        lake.land(5)
        assert lake.care(snapshots_kept=1).expired_snapshots == 3


def test_a_landing_that_the_ledger_does_not_know_yet_counts_as_not_read_back(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2, 3)
        line = history(lake.load(), lake.load().branches["main"])
        first = mark_in_summary(line[2].summary)
        assert first is not None
        # Given a ledger as it was before the last two landings were written down in it.
        known = TopicLedger(landed_lsn=first.lsn_to, verified=[(first.lsn_to, 1)])

        keeping = _Keeping(lake.record, table_shape(lake.record), known, TableUpkeep("orders", TABLE), True)

        assert keeping.unverified(lake.load()) == {each.snapshot_id for each in line[:2]}


def test_files_that_only_expired_snapshots_needed_are_removed_once_nobody_reads_them(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2, 3)
        small = {path for path in lake.data_paths() if path.endswith(".parquet")}
        compact(lake)

        # At once a reader may still be at it; two hours later nobody is.
        lake.clock.advance(60)
        assert lake.care(snapshots_kept=4).removed_files == 0
        assert small <= lake.data_paths()
        lake.clock.advance(7200)
        told = lake.care(snapshots_kept=1)

        assert told.removed_files >= 3
        assert not small & lake.data_paths()
        assert lake.ids() == [1, 2, 3]


def test_files_of_snapshots_that_were_just_replaced_stay_until_they_are_orphans(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2, 3)
        small = {path for path in lake.data_paths() if path.endswith(".parquet")}
        compact(lake)

        lake.care(snapshots_kept=1)

        assert small <= lake.data_paths()
        for path in small:
            age(path, 4)
        told = lake.care(snapshots_kept=1)
        assert {path.removeprefix("file://") for path in told.orphans} == small
        assert lake.ids() == [1, 2, 3]


def test_a_table_whose_files_are_shared_loses_nothing(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2, 3)
        with lake.pyiceberg().transaction() as change:
            change.set_properties({"gc.enabled": "false"})

        told = lake.care(snapshots_kept=1)

        assert "gc.enabled" in told.left[0] and len(lake.load().snapshots) == 3


def test_an_expiry_that_is_overtaken_is_made_again_and_given_up_after_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2, 3, 4)
        commit = IcebergTables.commit
        left = [CommitRefused("another"), CommitUncertain("lost")]

        def trouble(self: IcebergTables, staged: Any) -> None:
            if left:
                raise left.pop()
            commit(self, staged)

        monkeypatch.setattr(IcebergTables, "commit", trouble)
        assert lake.care(snapshots_kept=2).expired_snapshots == 2

        left = [CommitRefused("another")] * 99
        told = lake.care(snapshots_kept=1)
        assert told.left == ["old snapshots stay: other commits came first each time"]


def test_an_expiry_is_refused_by_a_table_that_has_moved(tmp_path: Path) -> None:
    from headwater.lake.table_changes import expire

    with kept(tmp_path) as lake:
        lake.land(1, 2)
        before = lake.load()
        oldest = min(before.snapshots.values(), key=lambda each: each.timestamp_ms).snapshot_id
        # Given a rollback to the very snapshot that is to go.
        lake.pyiceberg().manage_snapshots().rollback_to_snapshot(oldest).commit()

        with closing(lake.place.connect()) as tables, pytest.raises(CommitRefused):
            tables.commit(expire(before, [oldest]))


# Orphans ------------------------------------------------------------------------------------------------------------


def orphan(lake: Kept, name: str, days: float) -> str:
    path = lake.folder / "lake" / "sales" / "orders" / "data" / name
    path.write_bytes(b"x")
    age(str(path), days)
    return str(path)


def test_old_orphans_are_removed_and_nothing_else(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2)
        for path in lake.data_paths():
            age(path, 30)
        before = lake.data_paths()
        old = orphan(lake, "00000-0-deadbeef.parquet", 4)
        young = orphan(lake, "00000-1-deadbeef.parquet", 2)
        stranger = orphan(lake, "README.txt", 400)

        listed = lake.care(dry_run=True)
        assert listed.orphans == (old,) and old in lake.data_paths()
        told = lake.care()

        assert told.orphans == (old,)
        assert lake.data_paths() == before | {young, stranger}
        assert lake.ids() == [1, 2]
        assert [each.what for each in lake.ledger.state().kept[TABLE]] == ["orphans"]


def test_files_of_a_landing_in_flight_stay_though_they_look_old(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        commit_id = "6a204bd8-9e62-4d12-8d29-5b5b2b3a1f00"
        begun = Begun(
            topic_id=lake.record.topic_id.hex(), table=TABLE, epoch=9, commit_id=commit_id, at_us=lake.clock.now_us()
        )
        lake.ledger.record([begun])
        path = orphan(lake, f"00000-1-{commit_id}-00001.parquet", 4)

        assert lake.care().orphans == ()
        lake.clock.advance(4 * 86_400)
        assert lake.care().orphans == (path,)


def test_a_lander_that_was_paused_for_days_cannot_bring_a_removed_file_into_the_table(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        # Given a landing that has written its files and staged its commit, and is then paused for four days.
        with closing(lake.place.connect()) as paused:
            before = lake.load()
            standing = own_standing(paused, before, lake.record.topic_id.hex())
            late = stage_stamp(paused, before, table_shape(lake.record), stamp_of(standing, "late"))
            path = orphan(lake, "00000-0-written-since.parquet", 0)
            lake.clock.advance(4 * 86_400)

            told = lake.care()

            # Then its file goes only after main has moved, and its commit is refused.
            assert path in told.orphans and told.stamped
            with pytest.raises(CommitRefused):
                paused.commit(late)


def test_what_a_lander_of_a_deleted_topic_has_in_flight_into_the_same_table_stays(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        commit_id = "6a204bd8-9e62-4d12-8d29-5b5b2b3a1f00"
        begun = Begun(topic_id="ff" * 16, table=TABLE, epoch=1, commit_id=commit_id, at_us=lake.clock.now_us())
        elsewhere = Begun(topic_id="ff" * 16, table="a.b", epoch=1, commit_id="6a204bd8", at_us=lake.clock.now_us())
        lake.ledger.record([begun, elsewhere])
        orphan(lake, f"00000-1-{commit_id}-00001.parquet", 4)
        gone = orphan(lake, "00000-1-6a204bd8.parquet", 4)

        assert lake.care().orphans == (gone,)


def test_what_a_dropped_table_left_in_the_same_place_stays(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        lake.place.connect().catalog.drop_table(TABLE)
        for path in lake.data_paths():
            age(path, 30)
        before = lake.data_paths()
        assert lake.log.land(after_rollback=["orders"]).rows == 1

        told = lake.care()

        assert told.orphans == () and "files of another table" in told.left[0]
        assert before <= lake.data_paths()


def test_a_compaction_that_the_ledger_knows_as_ours_is_not_told_as_others(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        lake.pyiceberg().delete("id = 1")
        deleted = lake.load().branches["main"]
        assert [each.snapshot for each in lake.care(dry_run=True).others] == [deleted]

        note = LedgerKept(table=TABLE, what=COMPACTION, detail=note_of(deleted, "2 files became 1"), at_us=1)
        lake.ledger.record([note])

        assert lake.care().others == ()


# Others, branches, halts --------------------------------------------------------------------------------------------


def test_commits_by_others_are_told_once_in_the_ledger_and_each_time_in_the_report(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2, 3)
        lake.pyiceberg().delete("id = 1")

        for _ in range(2):
            assert [each.what for each in lake.care().others] == ["deletes"]

        assert [each.what for each in lake.ledger.state().kept[TABLE]] == ["others"]


def test_a_table_that_was_rolled_back_is_told_and_left_alone(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        first = lake.load().branches["main"]
        lake.land(2, 3)
        lake.pyiceberg().manage_snapshots().rollback_to_snapshot(first).commit()
        lake.clock.advance(30 * 86_400)

        told = lake.care(snapshots_kept=1)

        assert [each.what for each in told.others] == ["rollback", "rollback"]
        assert told.cause == "gap" and len(lake.load().snapshots) == 3


def test_a_branch_that_a_merge_left_behind_goes_once_it_is_old(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        branch = merge_branch("abc", lake.clock.now_us())
        with closing(lake.place.connect()) as tables:
            tables.commit(make_branch(lake.load(), branch, {}))

        lake.care()
        assert branch in lake.load().branches
        lake.clock.advance(4 * 86_400)
        lake.care()
        assert list(lake.load().branches) == ["main"]


def test_a_table_that_is_not_there_yet_or_has_nothing_landed_is_left_alone(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        assert lake.care().left == ["there is no table yet"]
        lake.place.connect().catalog.create_namespace("sales")
        table = lake.place.connect().catalog.create_table(TABLE, pa.schema([("id", pa.int64())]))
        for number in range(3):
            table.append(pa.table({"id": [number]}))

        told = lake.care(snapshots_kept=1)

        assert told.left == ["nothing has come into it yet"] and len(lake.load().snapshots) == 3
        assert [each.what for each in told.others] == ["append"] * 3


def test_without_spark_what_can_be_done_is_done_and_compaction_is_named_as_left(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2, 3)

        report = maintain_without_spark(
            lake.place,
            [lake.record],
            lake.ledger,
            lake.clock,
            system_entropy,
            UpkeepSettings(snapshots_kept=1, small_files_min=2),
        )

        assert report[TABLE].expired_snapshots == 2
        assert report.left == ("sales.orders: small files stay as they are: compaction needs Spark",)
        assert report.halted == () and [each.table for each in report] == [TABLE]
        assert repr(report).startswith("Maintained(sales.orders: 2 snapshots expired")


def test_upkeep_beside_landings_loses_nothing_and_holds_nothing_up(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(0)
        ended = threading.Event()
        told: list[TableUpkeep] = []

        def keep() -> None:
            while not ended.is_set():
                told.append(lake.care(snapshots_kept=2, attempts_max=20, readers_s=0.0, orphan_age_s=3600.0))

        keeper = threading.Thread(target=keep)
        keeper.start()
        try:
            lake.land(*range(1, 25))
        finally:
            ended.set()
            keeper.join()

        assert lake.ids() == list(range(25))
        assert sum(each.expired_snapshots for each in told) > 0
        assert not [each for each in told if each.cause]
        lake.land(25)
        assert lake.ids() == list(range(26))
