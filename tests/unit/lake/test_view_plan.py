"""Which parts make up a topic: of any table, at any LSN, every LSN once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import CutExpired
from headwater.lake.cut import TopicCut
from headwater.lake.view_plan import TablePart, ViewPlan, plan_keyed, plan_rows
from tests.unit.lake.view_states import TOPIC_ID, snapshot, table


def shown(plan: ViewPlan) -> list[tuple[int, int, int, bool, bool]]:
    return [(part.snapshot_id, part.lsn_from, part.lsn_to, part.whole, part.unmarked) for part in plan.parts]


# ------------------------------------------------------------------------------------------------- without a key


def test_a_topic_without_a_table_is_the_log_alone() -> None:
    plan = plan_rows(7, None)

    assert plan.parts == () and plan.tail == (0, 7)


def test_a_table_without_a_snapshot_adds_nothing() -> None:
    plan = plan_rows(7, table())

    assert plan.parts == () and plan.tail == (0, 7)


def test_a_table_is_read_whole_and_the_log_from_where_it_ends() -> None:
    plan = plan_rows(7, table(snapshot(1, lsn=5), lsn=5))

    assert shown(plan) == [(1, 0, 5, True, True)]
    assert plan.tail == (5, 7)


def test_nothing_is_read_of_the_log_where_everything_has_landed() -> None:
    assert plan_rows(5, table(snapshot(1, lsn=5), lsn=5)).tail == (5, 5)


def test_of_a_table_that_is_ahead_only_rows_up_to_the_point_are_read() -> None:
    plan = plan_rows(4, table(snapshot(1, lsn=9), lsn=9))

    assert shown(plan) == [(1, 0, 4, False, True)]
    assert plan.tail == (4, 4)


def test_a_table_that_only_has_rows_of_its_owner_is_read() -> None:
    plan = plan_rows(4, table(snapshot(1)))

    assert shown(plan) == [(1, 0, 0, True, True)]
    assert plan.tail == (0, 4)


def test_a_cut_is_read_by_its_own_snapshot_then_the_head_then_the_log() -> None:
    cut = TopicCut(TOPIC_ID, snapshot=1, landed_lsn=5)
    now = table(snapshot(1, lsn=5), snapshot(2, 1, lsn=8), lsn=8)

    plan = plan_rows(10, now, cut)

    assert shown(plan) == [(1, 0, 5, True, True), (2, 5, 8, False, False)]
    assert plan.tail == (8, 10)


def test_of_the_head_a_cut_shows_nothing_that_came_later() -> None:
    cut = TopicCut(TOPIC_ID, snapshot=1, landed_lsn=5)

    plan = plan_rows(7, table(snapshot(1, lsn=5), snapshot(2, 1, lsn=20), lsn=20), cut)

    assert shown(plan) == [(1, 0, 5, True, True), (2, 5, 7, False, False)]
    assert plan.tail == (7, 7)


def test_a_cut_whose_snapshot_holds_all_of_it_reads_nothing_else() -> None:
    cut = TopicCut(TOPIC_ID, snapshot=1, landed_lsn=5)

    plan = plan_rows(5, table(snapshot(1, lsn=5), snapshot(2, 1, lsn=20), lsn=20), cut)

    assert shown(plan) == [(1, 0, 5, True, True)]
    assert plan.tail == (5, 5)


def test_a_cut_whose_snapshot_has_expired_is_read_by_lsn() -> None:
    cut = TopicCut(TOPIC_ID, snapshot=1, landed_lsn=5)

    plan = plan_rows(7, table(snapshot(2, 1, lsn=20), lsn=20), cut)

    assert shown(plan) == [(2, 0, 7, False, True)]


def test_a_cut_that_was_taken_before_anything_landed_is_read_by_lsn() -> None:
    plan = plan_rows(7, table(snapshot(2, lsn=20), lsn=20), TopicCut(TOPIC_ID))

    assert shown(plan) == [(2, 0, 7, False, True)]


def test_a_cut_of_a_table_with_rows_of_its_owner_alone_shows_those_once() -> None:
    cut = TopicCut(TOPIC_ID, snapshot=1, landed_lsn=0)

    plan = plan_rows(7, table(snapshot(1), snapshot(2, 1, lsn=9), lsn=9), cut)

    assert shown(plan) == [(1, 0, 0, True, True), (2, 0, 7, False, False)]


def test_a_table_that_was_rolled_back_below_a_cut_leaves_its_snapshot_and_the_log() -> None:
    cut = TopicCut(TOPIC_ID, snapshot=2, landed_lsn=8)

    plan = plan_rows(10, table(snapshot(1, lsn=5), snapshot(2, 1, lsn=8), lsn=5, head=1), cut)

    assert shown(plan) == [(2, 0, 8, True, True)]
    assert plan.tail == (8, 10)


LSNS = st.integers(0, 30)


@given(at=LSNS, landed=LSNS, cut_landed=LSNS, has_cut=st.booleans(), has_snapshot=st.booleans())
def test_every_lsn_up_to_the_point_is_in_one_part(
    at: int, landed: int, cut_landed: int, has_cut: bool, has_snapshot: bool
) -> None:
    cut = TopicCut(TOPIC_ID, snapshot=1, landed_lsn=min(cut_landed, at)) if has_cut else None
    snapshots = [snapshot(1, lsn=min(cut_landed, at))] if has_snapshot else []

    plan = plan_rows(at, table(*snapshots, snapshot(2, 1, lsn=landed), lsn=landed), cut)

    assert every_lsn_once(plan, at, 2, landed)


@given(
    at=LSNS,
    landed=LSNS,
    merged=LSNS,
    forgotten=LSNS,
    earlier=st.lists(LSNS, max_size=4),
    cut_merged=st.none() | LSNS,
)
def test_every_change_after_the_state_is_in_one_part_or_the_point_has_expired(
    at: int, landed: int, merged: int, forgotten: int, earlier: list[int], cut_merged: int | None
) -> None:
    # As it is in any lake: what is merged has landed, what is forgotten is merged, states rise.
    merged, forgotten = min(merged, landed), min(forgotten, merged, landed)
    line = [*sorted(each for each in earlier if each <= merged), merged]
    snapshots = [snapshot(place + 1, place or None, lsn=lsn) for place, lsn in enumerate(line)]
    cut = None
    if cut_merged is not None and cut_merged <= min(merged, at):
        snapshots.insert(0, snapshot(99, lsn=cut_merged))
        cut = TopicCut(TOPIC_ID, state_snapshot=99, merged_lsn=cut_merged)
    states = [*line, *([cut_merged] if cut is not None and cut_merged is not None else [])]
    usable = [lsn for lsn in (0, *states) if forgotten <= lsn <= at]

    try:
        plan = plan_keyed(
            at, table(*snapshots, lsn=merged), table(snapshot(70, lsn=landed), lsn=landed, forgotten=forgotten), cut
        )
    except CutExpired:
        assert not usable
        return

    base = plan.base.lsn_to if plan.base is not None else 0
    assert base in usable
    assert every_lsn_once(plan, at, 70, landed)


def every_lsn_once(plan: ViewPlan, at: int, head: int, head_lsn: int) -> bool:
    """Each LSN that a row may have, up to the point, is in one part, or in the log, and none above it."""

    def holds(part: TablePart, lsn: int) -> bool:
        # What is read whole shows all that its snapshot has, asked or not.
        last = head_lsn if part.whole and part.snapshot_id == head else part.lsn_to
        return part.lsn_from < lsn <= last

    for lsn in range(1, 40):
        times = sum(holds(part, lsn) for part in plan.parts) + (plan.tail[0] < lsn <= plan.tail[1])
        if times != (lsn <= at):
            return False
    return sum(part.unmarked for part in plan.tables) <= 1


# -------------------------------------------------------------------------------------------------------- keyed


def test_a_keyed_topic_that_nobody_merged_is_its_changes_and_the_log() -> None:
    plan = plan_keyed(9, None, table(snapshot(1, lsn=6), lsn=6))

    assert plan.base is None
    assert shown(plan) == [(1, 0, 6, False, False)] and plan.tail == (6, 9)


def test_a_keyed_topic_of_which_nothing_has_landed_is_the_log() -> None:
    plan = plan_keyed(9, None, None)

    assert plan.parts == () and plan.tail == (0, 9)
    assert plan_keyed(9, None, table()).tail == (0, 9)


def test_a_keyed_topic_is_its_state_the_changes_after_it_and_the_log() -> None:
    plan = plan_keyed(9, table(snapshot(1, lsn=4), lsn=4), table(snapshot(2, lsn=6), lsn=6))

    assert plan.base is not None and plan.base.whole
    assert shown(plan) == [(1, 0, 4, True, True), (2, 4, 6, False, False)] and plan.tail == (6, 9)


def test_a_state_that_has_all_changes_leaves_only_the_log() -> None:
    plan = plan_keyed(9, table(snapshot(1, lsn=6), lsn=6), table(snapshot(2, lsn=6), lsn=6))

    assert plan.tables == () and plan.tail == (6, 9)


def test_a_state_table_without_a_snapshot_is_no_state() -> None:
    assert plan_keyed(9, table(), table(snapshot(2, lsn=6), lsn=6)).base is None


def test_before_the_last_merge_an_older_state_is_read() -> None:
    # Somebody's compaction lies between the merges: it has no mark, and is passed by.
    state = table(snapshot(1, lsn=4), snapshot(2, 1), snapshot(3, 2, lsn=8), lsn=8)

    plan = plan_keyed(6, state, table(snapshot(9, lsn=8), lsn=8))

    assert shown(plan) == [(1, 0, 4, True, True), (9, 4, 6, False, False)] and plan.tail == (6, 6)


def test_where_no_state_is_old_enough_all_changes_are_read() -> None:
    plan = plan_keyed(2, table(snapshot(3, 1, lsn=8), lsn=8), table(snapshot(9, lsn=8), lsn=8))

    assert plan.base is None
    assert shown(plan) == [(9, 0, 2, False, False)]


def test_where_a_state_that_begins_the_history_is_too_new_all_changes_are_read() -> None:
    assert plan_keyed(2, table(snapshot(3, lsn=8), lsn=8), table(snapshot(9, lsn=8), lsn=8)).base is None


CUT = TopicCut(TOPIC_ID, snapshot=9, landed_lsn=6, state_snapshot=1, merged_lsn=4)
"""State up to 4, changes up to 6."""


def test_a_cut_reads_its_own_state_and_its_own_changes_while_they_are_there() -> None:
    state = table(snapshot(1, lsn=4), snapshot(3, 1, lsn=6), lsn=6)
    changes = table(snapshot(9, lsn=6), snapshot(10, 9, lsn=8), lsn=8, forgotten=6)

    plan = plan_keyed(7, state, changes, CUT)

    assert shown(plan) == [(1, 0, 4, True, True), (9, 4, 6, False, False), (10, 6, 7, False, False)]


def test_a_cut_that_was_taken_before_the_first_merge_reads_its_own_changes() -> None:
    cut = TopicCut(TOPIC_ID, snapshot=9, landed_lsn=6)
    changes = table(snapshot(9, lsn=6), snapshot(10, 9, lsn=8), lsn=8, forgotten=6)

    plan = plan_keyed(6, table(snapshot(1, lsn=8), lsn=8), changes, cut)

    assert plan.base is None and shown(plan) == [(9, 0, 6, False, False)] and plan.tail == (6, 6)


def test_a_cut_whose_changes_were_behind_its_state_reads_nothing_of_them() -> None:
    # The state was loaded first, and merged in between what the changes showed before.
    cut = TopicCut(TOPIC_ID, snapshot=9, landed_lsn=4, state_snapshot=1, merged_lsn=6)

    plan = plan_keyed(7, table(snapshot(1, lsn=6), lsn=6), table(snapshot(9, lsn=4), lsn=4), cut)

    assert plan.base is not None and plan.base.lsn_to == 6 and plan.tail == (6, 7)
    assert all(part.lsn_from >= part.lsn_to for part in plan.tables)


def test_a_cut_whose_state_is_gone_reads_the_newest_that_is_old_enough() -> None:
    plan = plan_keyed(7, table(snapshot(3, 1, lsn=6), lsn=6), table(snapshot(9, lsn=8), lsn=8), CUT)

    assert shown(plan) == [(3, 0, 6, True, True), (9, 6, 7, False, False)]


def test_a_cut_whose_state_table_is_gone_reads_all_changes() -> None:
    plan = plan_keyed(7, None, table(snapshot(9, lsn=8), lsn=8), CUT)

    assert shown(plan) == [(9, 0, 7, False, False)]


def test_a_cut_whose_state_is_older_than_the_changes_that_are_left_reads_a_newer_state() -> None:
    state = table(snapshot(1, lsn=4), snapshot(3, 1, lsn=6), lsn=6)

    plan = plan_keyed(7, state, table(snapshot(10, lsn=8), lsn=8, forgotten=5), CUT)

    assert shown(plan) == [(3, 0, 6, True, True), (10, 6, 7, False, False)]


def test_a_cut_reads_its_own_state_though_mains_history_no_longer_leads_to_it() -> None:
    state = table(snapshot(1, lsn=4), snapshot(3, 2, lsn=8), lsn=8)

    plan = plan_keyed(7, state, table(snapshot(10, lsn=8), lsn=8, forgotten=4), CUT)

    assert shown(plan) == [(1, 0, 4, True, True), (10, 4, 7, False, False)]


def test_where_the_changes_before_a_point_are_past_their_retention_it_has_expired() -> None:
    state = table(snapshot(3, 1, lsn=8), lsn=8)

    with pytest.raises(CutExpired, match="past their retention") as expired:
        plan_keyed(6, state, table(snapshot(9, lsn=8), lsn=8, forgotten=3))

    assert expired.value.facts["changes_since_lsn"] == 3
