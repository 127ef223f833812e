"""What upkeep may do to a table."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from headwater.lake.ledger_records import Begun, Intended
from headwater.lake.mark import Mark, mark_in_summary
from headwater.lake.marks import Standing, standing_of
from headwater.lake.tables import TableSnapshot, TableState
from headwater.lake.upkeep import (
    DataFileFacts,
    ListedFile,
    Ref,
    UpkeepSettings,
    abandoned_branches,
    could_still_come,
    expirable,
    find_orphans,
    foreign_commits,
    forgettable_changes,
    history,
    merge_branch,
    needs_stamp,
    plain_path,
    unread,
    worth_compacting,
)

LOG, TOPIC = "0a" * 16, "0b" * 16
HOUR_MS = 3_600_000
DAY_US = 86_400_000_000
NOW_US = 100 * DAY_US
NOW_MS = NOW_US // 1000
FEW = UpkeepSettings(snapshots_kept=3)
COMMIT = "6a204bd8-9e62-4d12-8d29-5b5b2b3a1f00"


def mark(lsn_to: int, rows: int = 1) -> Mark:
    return Mark(LOG, TOPIC, f"commit-{lsn_to}", 0, lsn_to - 1, lsn_to, rows, "0" * 16, 1, lsn_to)


def landing(number: int, parent: int | None, *, lsn: int | None = None, age_ms: int = 0) -> TableSnapshot:
    return TableSnapshot(number, parent, "append", mark(lsn or number).summary(), NOW_MS - age_ms)


def other(number: int, parent: int | None, operation: str = "replace", **summary: str) -> TableSnapshot:
    return TableSnapshot(number, parent, operation, {key.replace("_", "-"): v for key, v in summary.items()}, NOW_MS)


def table(*snapshots: TableSnapshot, uuid: str = "t", **branches: int) -> TableState:
    heads = branches or ({"main": snapshots[-1].snapshot_id} if snapshots else {})
    by_id = {each.snapshot_id: each for each in snapshots}
    return TableState("sales.orders", uuid, 2, 0, 0, {}, heads, by_id)


def line_of_landings(count: int) -> TableState:
    """Landings 1 to count, each an hour after the one before; the last is now."""
    return table(*(landing(n, n - 1 or None, age_ms=(count - n) * HOUR_MS) for n in range(1, count + 1)))


def ids(snapshots: tuple[TableSnapshot, ...]) -> list[int]:
    return [each.snapshot_id for each in snapshots]


def refs_of(state: TableState) -> list[Ref]:
    return [Ref(name, head) for name, head in state.branches.items()]


def expired_of(
    state: TableState, *refs: Ref, settings: UpkeepSettings = FEW, unverified: tuple[int, ...] = ()
) -> list[int]:
    all_refs = [*refs_of(state), *refs]
    return ids(expirable(state, all_refs, unverified=unverified, now_ms=NOW_MS, settings=settings))


# Snapshots ----------------------------------------------------------------------------------------------------------


def test_main_keeps_its_newest_snapshots_and_the_older_ones_may_expire() -> None:
    assert expired_of(line_of_landings(6)) == [1, 2, 3]


def test_a_hundred_snapshots_are_kept_unless_the_settings_say_otherwise() -> None:
    assert len(expired_of(line_of_landings(130), settings=UpkeepSettings())) == 30


def test_nothing_expires_while_there_are_few() -> None:
    assert expired_of(line_of_landings(3)) == []
    assert expirable(table(), [], now_ms=NOW_MS, settings=FEW) == ()


def test_the_head_stays_even_if_only_one_is_kept() -> None:
    assert expired_of(line_of_landings(4), settings=UpkeepSettings(snapshots_kept=1)) == [1, 2, 3]


def test_what_a_tag_names_stays() -> None:
    assert expired_of(line_of_landings(6), Ref("audit", 2, is_branch=False)) == [1, 3]


def test_another_branch_keeps_its_head_and_what_its_mark_rests_on() -> None:
    # Given a branch whose own compactions stand on a landing far back.
    main = line_of_landings(6)
    state = replace(
        main,
        snapshots={**main.snapshots, 11: other(11, 2), 12: other(12, 11)},
        branches={"main": 6, "trial": 12},
    )

    expired = expired_of(state)

    # Then only what neither main nor the branch's mark needs may go.
    assert expired == [1, 3]


def test_a_branch_without_any_mark_keeps_all_its_history() -> None:
    state = table(other(1, None), other(2, 1), landing(3, 2), landing(4, 3), landing(5, 4), main=5, trial=2)

    assert expired_of(state, settings=UpkeepSettings(snapshots_kept=1)) == [3, 4]


def test_what_the_owner_of_a_branch_wants_kept_is_kept() -> None:
    state = line_of_landings(6)

    expired = expirable(state, [Ref("main", 6, snapshots_min=5)], now_ms=NOW_MS, settings=FEW)

    assert ids(expired) == [1]


def test_a_landing_that_nobody_has_read_back_stays_with_all_that_lies_before_it_from_the_head() -> None:
    assert expired_of(line_of_landings(6), unverified=(2,)) == [1]
    assert expired_of(line_of_landings(6), unverified=(5,)) == [1, 2, 3]


def test_a_snapshot_on_no_branch_expires_once_it_is_as_old_as_an_orphan() -> None:
    # Given one that was rolled back yesterday, and one last week.
    state = table(
        landing(1, None, age_ms=9 * 24 * HOUR_MS),
        landing(7, 1, age_ms=8 * 24 * HOUR_MS),
        landing(8, 1, age_ms=24 * HOUR_MS),
        landing(2, 1),
    )

    assert expired_of(state) == [7]


def test_whatever_expires_the_head_still_says_how_far_it_has_landed() -> None:
    """Histories by seed: after a stamp, if one is needed, the walk finds the same landed LSN as before."""
    for seed in range(300):
        state = a_history(random.Random(seed))
        head = state.head()
        assert head is not None
        before = standing(state)
        expired = expirable(state, refs_of(state), now_ms=NOW_MS, settings=FEW)

        if needs_stamp(state, before, expired):
            state = stamped(state, before)
        left = {key: each for key, each in state.snapshots.items() if key not in ids(expired)}

        # pyiceberg forgets the parent of the oldest that is left, Java's catalogs do not.
        forgetful = {
            key: each if each.parent_id in left else replace(each, parent_id=None) for key, each in left.items()
        }
        for snapshots in (left, forgetful):
            after = standing(replace(state, snapshots=snapshots))
            assert (after.landed_lsn, after.max_row_lsn) == (before.landed_lsn, before.max_row_lsn), f"seed {seed}"


def test_main_can_be_rolled_back_to_any_snapshot_that_is_left_and_says_how_far_it_had_landed() -> None:
    for seed in range(300):
        state = a_history(random.Random(seed))
        expired = ids(expirable(state, refs_of(state), now_ms=NOW_MS, settings=FEW))
        left = {
            key: each if each.parent_id not in expired else replace(each, parent_id=None)
            for key, each in state.snapshots.items()
            if key not in expired
        }
        for snapshot in left:
            before = standing(replace(state, branches={"main": snapshot}))
            after = standing(replace(state, snapshots=left, branches={"main": snapshot}))
            assert after.landed_lsn == before.landed_lsn, f"seed {seed}"


def test_main_is_cut_at_a_mark_and_no_mark_below_means_no_landing_below() -> None:
    state = table(landing(1, None), landing(2, 1), other(3, 2), other(4, 3), other(5, 4), other(6, 5))
    assert expired_of(state) == [1]

    adopted = table(other(1, None), other(2, 1), landing(3, 2), other(4, 3), landing(5, 4))
    assert expired_of(adopted, settings=UpkeepSettings(snapshots_kept=2)) == [1, 2]
    assert expired_of(table(other(1, None), other(2, 1), landing(3, 2)), settings=UpkeepSettings(snapshots_kept=2)) == [
        1
    ]


def a_history(chance: random.Random) -> TableState:
    """Landings, with compactions and deletes by anybody between them."""
    snapshots = [landing(1, None, age_ms=99 * HOUR_MS)]
    for number in range(2, chance.randrange(4, 16)):
        made = landing if chance.random() < 0.4 else other
        snapshots.append(made(number, number - 1))
    return table(*snapshots)


def stamped(state: TableState, before: Standing) -> TableState:
    head = state.head()
    assert head is not None and before.mark is not None
    stamp = replace(before.mark, commit_id="stamp", lsn_from=before.landed_lsn, rows=0)
    snapshot = TableSnapshot(999, head.snapshot_id, "append", stamp.summary(), NOW_MS)
    return replace(state, snapshots={**state.snapshots, 999: snapshot}, branches={"main": 999})


def standing(state: TableState) -> Standing:
    return standing_of(state, log_id=LOG, topic_id=TOPIC, max_row_lsn=lambda: 0)


def test_a_stamp_is_needed_only_where_the_head_has_no_mark_and_something_expires() -> None:
    marked = line_of_landings(6)
    compacted = table(*marked.snapshots.values(), other(7, 6))
    some = tuple(marked.snapshots.values())[:2]

    assert not needs_stamp(marked, standing(marked), some)
    assert needs_stamp(compacted, standing(compacted), some)
    assert not needs_stamp(compacted, standing(compacted), ())


def test_a_table_that_nothing_has_landed_in_gets_no_stamp() -> None:
    state = table(other(1, None, "append"), other(2, 1, "append"))

    assert not needs_stamp(state, standing(state), tuple(state.snapshots.values())[:1])
    assert not needs_stamp(table(), Standing(), ())


def test_the_files_of_a_snapshot_wait_until_nobody_can_be_reading_it() -> None:
    # Given landings an hour apart: 4 was replaced by 5 one hour ago, 5 by 6 just now.
    state = line_of_landings(6)
    expired = tuple(state.snapshots[number] for number in (3, 4, 5))

    assert unread(state, expired, now_ms=NOW_MS, settings=FEW) == {3, 4}


def test_the_files_of_a_snapshot_on_no_branch_wait_as_orphans() -> None:
    state = table(landing(1, None, age_ms=99 * HOUR_MS), landing(7, 1, age_ms=98 * HOUR_MS), landing(2, 1))

    assert unread(state, (state.snapshots[7],), now_ms=NOW_MS, settings=FEW) == frozenset()
    assert unread(table(), (), now_ms=NOW_MS, settings=FEW) == frozenset()


def test_a_history_ends_where_a_parent_has_expired() -> None:
    assert [each.snapshot_id for each in history(table(other(5, 4), other(6, 5)), 6)] == [6, 5]
    assert history(table(), 1) == []


def test_a_branch_that_a_merge_left_behind_is_dropped_once_it_is_old() -> None:
    old = Ref(merge_branch(COMMIT, NOW_US - 4 * DAY_US), 1)
    young = Ref(merge_branch(COMMIT, NOW_US - DAY_US), 1)
    others = [Ref("main", 1), Ref("headwater_merge_mine", 1), replace(old, is_branch=False)]

    assert abandoned_branches([old, young, *others], now_us=NOW_US, settings=FEW) == (old,)


# Files --------------------------------------------------------------------------------------------------------------

OLD_US = NOW_US - 4 * DAY_US
YOUNG_US = NOW_US - DAY_US


def file(name: str, modified_us: int = OLD_US, folder: str = "/lake/sales/orders/data") -> ListedFile:
    return ListedFile(f"{folder}/{name}", 10, modified_us)


def orphans(
    *listed: ListedFile, referenced: tuple[str, ...] = (), in_flight: tuple[Begun | Intended, ...] = ()
) -> list[str]:
    found = find_orphans(listed, referenced, in_flight, now_us=NOW_US, settings=FEW)
    return [each.path.rpartition("/")[2] for each in found.removable]


def test_a_file_that_nothing_references_is_an_orphan_once_it_is_old() -> None:
    found = find_orphans(
        [file("a.parquet"), file("b.parquet", YOUNG_US), file("c.parquet")],
        ["/lake/sales/orders/data/c.parquet"],
        (),
        now_us=NOW_US,
        settings=FEW,
    )

    assert [each.path for each in found.removable] == ["/lake/sales/orders/data/a.parquet"]
    assert (found.young, found.in_flight, found.strangers) == (1, 0, 0)


@pytest.mark.parametrize(
    "spelling",
    [
        "/lake/sales/orders/data/a.parquet",
        "file:/lake/sales/orders/data/a.parquet",
        "file:///lake/sales/orders/data/a.parquet",
        "file://localhost/elsewhere/a.parquet",
        "s3a://bucket/lake/sales/orders/data/a.parquet",
    ],
)
def test_a_file_is_referenced_whatever_way_its_place_is_spelled(spelling: str) -> None:
    assert orphans(file("a.parquet"), referenced=(spelling,)) == []


def test_one_store_under_two_schemes_is_one_store() -> None:
    assert plain_path("s3a://b/x") == plain_path("s3://b/x") == "s3://b/x"
    assert plain_path("hdfs://n/x") == "hdfs://n/x"
    assert plain_path("/a:b/c") == "/a:b/c"
    assert plain_path("lake/a/b:c") == "lake/a/b:c"


def test_files_of_a_commit_in_flight_stay_by_name_and_by_path() -> None:
    begun = Begun(topic_id=TOPIC, table="sales.orders", epoch=1, commit_id=COMMIT, at_us=YOUNG_US)
    intended = Intended(
        topic_id=TOPIC, table="sales.orders", commit_id="x", base=None, lsn_from=0, lsn_to=1,
        files=("file:/lake/sales/orders/data/named.parquet",), at_us=YOUNG_US,
    )  # fmt: skip
    listed = [file(f"00000-1-{COMMIT}.parquet"), file("named.parquet"), file("gone.parquet")]

    found = find_orphans(listed, (), (begun, intended), now_us=NOW_US, settings=FEW)

    assert [each.path.rpartition("/")[2] for each in found.removable] == ["gone.parquet"]
    assert found.in_flight == 2


def test_a_commit_that_began_longer_ago_than_the_age_holds_nothing_any_more() -> None:
    begun = Begun(topic_id=TOPIC, table="sales.orders", epoch=1, commit_id=COMMIT, at_us=OLD_US)

    assert orphans(file(f"00000-1-{COMMIT}.parquet"), in_flight=(begun,)) == [f"00000-1-{COMMIT}.parquet"]


def test_what_no_iceberg_writer_has_written_is_never_touched() -> None:
    found = find_orphans([file("notes.txt"), file("_SUCCESS")], (), (), now_us=NOW_US, settings=FEW)

    assert found.removable == () and found.strangers == 2


def test_a_checksum_beside_a_file_goes_where_the_file_goes() -> None:
    kept, gone = file(".a.parquet.crc"), file(".b.parquet.crc")

    assert orphans(kept, gone, referenced=("/lake/sales/orders/data/a.parquet",)) == [".b.parquet.crc"]


def test_a_commit_can_still_bring_a_file_in_while_main_has_not_moved_since_it_was_written() -> None:
    moved = table(landing(1, None, age_ms=2 * 24 * HOUR_MS))

    assert not could_still_come(moved, [file("a.parquet", NOW_US - 3 * DAY_US)])
    assert could_still_come(moved, [file("a.parquet", NOW_US - 3 * DAY_US), file("b.parquet", NOW_US - DAY_US)])
    assert could_still_come(moved, [file("a.parquet", NOW_US - 2 * DAY_US - 1)])
    assert not could_still_come(moved, [])


def test_enough_small_files_in_one_partition_are_worth_a_compaction() -> None:
    settings = UpkeepSettings(small_files_min=3, small_file_bytes=100)
    here = [DataFileFacts(f"{n}", 10, "day=1") for n in range(2)]

    assert not worth_compacting([*here, DataFileFacts("x", 10, "day=2"), DataFileFacts("y", 100, "day=1")], settings)
    assert worth_compacting([*here, DataFileFacts("x", 99, "day=1")], settings)
    assert not worth_compacting([], settings)


def test_only_files_whose_rows_are_all_merged_and_old_are_let_go() -> None:
    files = [
        DataFileFacts("gone", 1, "", lsn_max=7, time_max_us=99),
        DataFileFacts("unmerged", 1, "", lsn_max=8, time_max_us=99),
        DataFileFacts("young", 1, "", lsn_max=7, time_max_us=100),
        DataFileFacts("unknown", 1, "", lsn_max=None, time_max_us=99),
        DataFileFacts("timeless", 1, "", lsn_max=7, time_max_us=None),
    ]

    assert [each.path for each in forgettable_changes(files, merged_lsn=7, before_us=100)] == ["gone"]


def test_settings_that_would_lose_the_head_are_refused() -> None:
    with pytest.raises(ValueError, match="the head stays"):
        UpkeepSettings(snapshots_kept=0)
    with pytest.raises(ValueError, match="with itself"):
        UpkeepSettings(small_files_min=1)


# Others -------------------------------------------------------------------------------------------------------------


def test_landings_and_our_own_compactions_are_not_commits_by_others() -> None:
    state = table(landing(1, None), other(2, 1), landing(3, 2))

    assert foreign_commits(state, were_main=(1, 2, 3), table_uuid="t", landed_lsn=3, own=(2,)) == ()


REMOVED = {"deleted_records": "3"}


@pytest.mark.parametrize(
    ("operation", "summary", "what", "detail"),
    [
        ("replace", {"deleted_data_files": "7", "added_data_files": "1"}, "compaction", "7 data files became 1"),
        ("delete", {**REMOVED, "total_records": "0"}, "deletes", "3 rows went with their files, 0 are left"),
        ("overwrite", {"added_delete_files": "1"}, "deletes", "0 rows went with their files, 0 by position"),
        (
            "overwrite",
            {**REMOVED, "added_position_deletes": "2"},
            "deletes",
            "3 rows went with their files, 2 by position",
        ),
        ("overwrite", {**REMOVED, "added_records": "4"}, "overwrite", "3 rows went, 4 came"),
        ("append", {"added_records": "4"}, "append", "4 rows that are not of this log"),
        ("append", {"added_records": "4", "source_snapshot_id": "9"}, "append", "snapshot 9 was cherry-picked, 4 rows"),
    ],
)
def test_a_commit_by_others_is_told_by_what_it_did(
    operation: str, summary: dict[str, str], what: str, detail: str
) -> None:
    state = table(landing(1, None), other(2, 1, operation, **summary))

    found = foreign_commits(state, landed_lsn=1)

    assert [(each.what, each.detail, each.snapshot) for each in found] == [(what, detail, 2)]
    assert str(found[0]) == f"{what}: {detail}"


def test_a_rollback_is_seen_by_what_main_has_left() -> None:
    # Given a landing and a delete that main pointed to, and a staged snapshot that it never did.
    state = table(
        landing(1, None), landing(2, 1), other(3, 2, "delete"), other(4, 1, "append"), landing(5, 1, lsn=2), main=5
    )

    found = foreign_commits(state, were_main=(1, 2, 3, 5), landed_lsn=2)

    assert [(each.what, each.snapshot) for each in found] == [("rollback", 2), ("rollback", 3)]
    assert found[0].detail == "the landing up to LSN 2 was on main and is no longer"
    assert found[1].detail == "a commit (delete) was on main and is no longer"


def test_a_table_of_another_id_is_a_replacement() -> None:
    found = foreign_commits(table(landing(1, None), uuid="new"), table_uuid="old", landed_lsn=1)

    assert [each.what for each in found] == ["replacement"]


def test_main_begun_anew_is_a_replacement() -> None:
    begun_anew = table(
        landing(1, None, age_ms=2), landing(2, 1, age_ms=1), other(3, None, "overwrite", added_records="9")
    )

    found = foreign_commits(begun_anew, were_main=(1, 2, 3), table_uuid="t", landed_lsn=2)

    assert [each.what for each in found] == ["rollback", "rollback", "overwrite", "replacement"]
    assert [each.what for each in foreign_commits(table(), landed_lsn=2)] == ["replacement"]
    assert foreign_commits(table(), landed_lsn=0) == ()


def test_a_history_whose_beginning_has_expired_is_no_replacement() -> None:
    found = foreign_commits(table(other(3, 2), other(4, 3)), landed_lsn=2)

    assert [each.what for each in found] == ["compaction", "compaction"]


def test_a_mark_is_read_from_the_summaries_of_these_tests() -> None:
    assert mark_in_summary(landing(4, None).summary) == mark(4)
