"""How far a table has come is read from its history, and where that does not tell, from its property with proof.

Snapshots are written here as (id, parent); a landing of LSN n has the snapshot id n.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from headwater.errors import LandingHalted
from headwater.lake.mark import Mark, property_name
from headwater.lake.marks import SOURCE_SNAPSHOT, Standing, landing_in_history, landings_after, standing_of
from headwater.lake.tables import TableSnapshot, TableState

LOG, TOPIC = "0a" * 16, "0b" * 16


def mark(lsn_to: int, *, lsn_from: int | None = None, log_id: str = LOG, topic_id: str = TOPIC) -> Mark:
    before = lsn_to - 10 if lsn_from is None else lsn_from
    return Mark(
        log_id,
        topic_id,
        f"commit-{lsn_to}",
        shard=0,
        lsn_from=before,
        lsn_to=lsn_to,
        rows=3,
        digest="0" * 16,
        epoch=1,
        max_row_lsn=lsn_to - 1,
        watermark_us=lsn_to * 1000,
    )


def landing(lsn_to: int, parent: int | None) -> TableSnapshot:
    return TableSnapshot(lsn_to, parent, "append", mark(lsn_to).summary())


def foreign(number: int, parent: int | None, **summary: str) -> TableSnapshot:
    return TableSnapshot(number, parent, "replace", {key.replace("_", "-"): value for key, value in summary.items()})


def picked(number: int, parent: int | None, source: int) -> TableSnapshot:
    return TableSnapshot(number, parent, "append", {SOURCE_SNAPSHOT: str(source)})


def table(*snapshots: TableSnapshot, property_of: Mark | None = None, head: int | None = None) -> TableState:
    heads = {"main": head if head is not None else snapshots[-1].snapshot_id} if snapshots else {}
    properties = {}
    if property_of is not None:
        properties[property_name()] = property_of.property_value(property_of.snapshot or property_of.lsn_to)
    return TableState("sales.orders", "u", 2, 0, 0, properties, heads, {each.snapshot_id: each for each in snapshots})


def not_asked() -> int:
    raise AssertionError("no proof is needed here")


def bound(lsn: int) -> Callable[[], int]:
    return lambda: lsn


def standing(state: TableState, max_row_lsn: Callable[[], int] = not_asked) -> Standing:
    return standing_of(state, log_id=LOG, topic_id=TOPIC, max_row_lsn=max_row_lsn)


def unproven(state: TableState, max_row_lsn: Callable[[], int]) -> LandingHalted:
    with pytest.raises(LandingHalted) as halted:
        standing(state, max_row_lsn)
    assert halted.value.cause == "mark-unproven"
    assert "--landed-lsn" in halted.value.message
    return halted.value


# (a) A mark in the history --------------------------------------------------------------------------------------------


def test_the_mark_of_the_head_says_how_far_the_table_has_come() -> None:
    found = standing(table(landing(10, None), landing(20, 10)))

    assert found == Standing(20, 19, 20_000, mark(20), 20)


def test_a_mark_behind_the_commits_of_others_counts() -> None:
    found = standing(table(landing(10, None), foreign(11, 10), foreign(12, 11)))

    assert (found.landed_lsn, found.snapshot, found.by_property) == (10, 10, False)


def test_a_rolled_back_table_has_come_as_far_as_its_head_whatever_its_property_says() -> None:
    found = standing(table(landing(10, None), landing(20, 10), head=10, property_of=mark(20)))

    assert found.landed_lsn == 10


def test_a_cherry_picked_landing_counts_as_the_one_that_it_was_picked_from() -> None:
    found = standing(table(landing(10, None), landing(20, 10), foreign(11, 10), picked(12, 11, 20)))

    assert (found.landed_lsn, found.snapshot) == (20, 20)


def test_a_landing_that_was_picked_onto_a_history_that_lacks_the_one_before_it_halts() -> None:
    # Given landings of 10, 20 and 30, a rollback to 10, and the last of them picked onto that.
    state = table(landing(10, None), landing(20, 10), landing(30, 20), picked(12, 10, 30))

    with pytest.raises(LandingHalted, match="after lsn 20 was cherry-picked") as halted:
        standing(state)

    assert (halted.value.cause, halted.value.facts["landed_lsn"]) == ("gap", 10)


def test_the_first_landing_may_be_picked_onto_a_table_of_others() -> None:
    assert standing(table(landing(10, None), foreign(1, None), foreign(2, 1), picked(12, 2, 10))).landed_lsn == 10


def test_the_first_landing_picked_onto_rows_that_may_be_its_own_halts() -> None:
    """CREATE OR REPLACE AS SELECT keeps the property and the rows, and no mark: what landed before is not known."""
    state = table(landing(10, None), foreign(1, None), foreign(2, 1), picked(12, 2, 10), property_of=mark(20))

    assert "cherry-picked" in unproven(state, not_asked).message


def test_a_landing_that_was_picked_onto_a_history_that_has_expired_halts() -> None:
    for state in (
        table(landing(20, 10), foreign(11, 5), picked(12, 11, 20)),
        table(landing(20, 10), picked(12, 11, 20)),
    ):
        assert "cherry-picked" in unproven(state, not_asked).message


def test_a_landing_that_was_picked_twice_halts_also_when_its_own_snapshot_has_expired() -> None:
    state = table(landing(10, None), picked(12, 10, 20), picked(13, 12, 20), property_of=mark(20))

    assert "cherry-picked" in unproven(state, not_asked).message


def test_a_cherry_picked_commit_of_somebody_else_is_passed_over() -> None:
    found = standing(table(landing(10, None), foreign(15, 10), foreign(11, 10), picked(12, 11, 15)))

    assert found.landed_lsn == 10


@pytest.mark.parametrize(
    ("other", "what"), [(mark(10, log_id="ff"), "another log"), (mark(10, topic_id="ff"), "an earlier topic")]
)
def test_a_table_with_the_landings_of_another_log_or_topic_is_left_alone(other: Mark, what: str) -> None:
    with pytest.raises(LandingHalted, match=what) as halted:
        standing(table(TableSnapshot(10, None, "append", other.summary())))

    assert halted.value.cause == "foreign-mark"


def test_a_mark_of_a_snapshot_that_cannot_be_read_halts() -> None:
    summary = {**mark(10).summary(), "headwater.lsn-to": "ten"}

    with pytest.raises(LandingHalted, match="cannot be read") as halted:
        standing(table(TableSnapshot(10, None, "append", summary)))

    assert halted.value.cause == "mark-unproven"


def test_a_snapshot_that_was_picked_from_something_that_is_none_halts() -> None:
    odd = TableSnapshot(10, None, "append", {SOURCE_SNAPSHOT: "-7"})

    with pytest.raises(LandingHalted, match="cannot be read") as halted:
        standing(table(odd))

    assert halted.value.cause == "mark-unproven"


# (b) A history that ends ----------------------------------------------------------------------------------------------


def test_a_table_without_a_snapshot_has_nothing_landed_whatever_its_property_says() -> None:
    assert standing(table(property_of=mark(20))) == Standing()


def test_a_history_of_others_alone_has_nothing_landed() -> None:
    assert standing(table(foreign(1, None), foreign(2, 1)), bound(0)) == Standing()


def test_a_replaced_table_has_nothing_landed_though_its_property_is_still_there() -> None:
    assert standing(table(landing(20, None), foreign(21, None), property_of=mark(20)), bound(0)) == Standing()


def test_a_history_that_was_cut_by_a_writer_who_forgets_parents_goes_by_the_property_if_the_rows_prove_it() -> None:
    # Given a table whose landings pyiceberg has expired: it takes the parent's id from the snapshot that stays.
    state = table(foreign(21, None), property_of=mark(20))

    found = standing(state, bound(19))

    assert (found.landed_lsn, found.by_property, found.snapshot) == (20, True, 20)


def test_a_cut_history_with_rows_and_no_proof_halts() -> None:
    halted = unproven(table(foreign(21, None), property_of=mark(20)), bound(9))

    assert halted.facts["newest_row_lsn"] == 9
    assert halted.facts["property_lsn"] == 20


def test_a_cut_history_with_rows_and_no_property_halts() -> None:
    halted = unproven(table(foreign(21, None)), bound(9))

    assert "nothing says of which" in halted.message


# (c) A parent that has expired ----------------------------------------------------------------------------------------


def test_a_property_whose_snapshot_is_the_expired_parent_is_proven_without_looking_at_rows() -> None:
    found = standing(table(foreign(21, 20), property_of=mark(20)))

    assert found == Standing(20, 19, 20_000, replace(mark(20), snapshot=20), 20, by_property=True)


def test_a_property_whose_newest_row_is_in_the_table_is_proven() -> None:
    found = standing(table(foreign(31, 30), property_of=mark(20)), bound(19))

    assert (found.landed_lsn, found.by_property) == (20, True)


def test_a_property_that_says_less_than_the_rows_show_is_of_another_history_and_halts() -> None:
    unproven(table(foreign(31, 30), property_of=mark(20)), bound(29))


def test_a_property_that_says_more_than_the_rows_show_halts() -> None:
    # Given a table that was rolled back, written by somebody else, and whose old snapshots have expired.
    halted = unproven(table(foreign(11, 10), property_of=mark(20)), bound(9))

    assert halted.facts["expected_row_lsn"] == 19


def test_without_a_property_and_without_rows_nothing_had_ever_landed() -> None:
    assert standing(table(foreign(21, 20)), bound(0)) == Standing()


def test_without_a_property_rows_of_a_log_halt() -> None:
    unproven(table(foreign(21, 20)), bound(5))


def test_a_property_that_cannot_be_read_halts() -> None:
    state = table(foreign(21, 20))
    spoilt = replace(state, properties={property_name(): "spoilt"})

    with pytest.raises(LandingHalted, match="cannot be read") as halted:
        standing(spoilt)

    assert halted.value.cause == "mark-unproven"


def test_a_proven_property_of_another_topic_is_foreign() -> None:
    with pytest.raises(LandingHalted) as halted:
        standing(table(foreign(21, 20), property_of=mark(20, topic_id="ff")))

    assert halted.value.cause == "foreign-mark"


def test_a_cherry_pick_whose_source_has_expired_goes_by_the_property() -> None:
    # Given a landing that was picked, and its own snapshot expired: the property names it.
    state = table(landing(10, None), picked(12, 10, 20), property_of=mark(20))

    assert standing(state).landed_lsn == 20


def test_a_cherry_pick_of_an_expired_snapshot_that_the_property_does_not_name_needs_the_rows() -> None:
    state = table(landing(10, None), picked(12, 10, 15), property_of=mark(20))

    assert standing(state, bound(19)).landed_lsn == 20
    unproven(state, bound(9))


def test_a_pick_of_an_expired_landing_onto_a_history_that_lacks_the_one_before_it_halts() -> None:
    state = table(landing(10, None), picked(12, 10, 30), property_of=mark(30))

    with pytest.raises(LandingHalted, match="after lsn 20 was cherry-picked") as halted:
        standing(state)

    assert halted.value.cause == "gap"


def test_a_property_that_names_no_snapshot_is_no_proof_of_a_history_that_ends() -> None:
    state = table(foreign(21, None))
    value = json.dumps({name.removeprefix("headwater."): value for name, value in mark(20).summary().items()})

    unproven(replace(state, properties={property_name(): value}), bound(9))


# Landings in a history ------------------------------------------------------------------------------------------------


def test_the_landings_after_an_lsn_come_oldest_first_with_their_snapshots() -> None:
    state = table(landing(10, None), landing(20, 10), foreign(21, 20), landing(30, 21), landing(40, 30))

    found = landings_after(state, 10, topic_id=TOPIC)

    assert [(each.lsn_to, snapshot) for each, snapshot in found] == [(20, 20), (30, 30), (40, 40)]


def test_the_landings_of_an_expired_history_are_those_that_it_still_shows() -> None:
    assert [each.lsn_to for each, _ in landings_after(table(landing(20, 10), landing(30, 20)), 0, topic_id=TOPIC)] == [
        20,
        30,
    ]
    assert landings_after(table(), 0, topic_id=TOPIC) == []


def test_the_landings_of_another_topic_end_the_search() -> None:
    other = TableSnapshot(20, 10, "append", mark(20, topic_id="ff").summary())

    found = landings_after(table(landing(10, None), other, landing(30, 20)), 0, topic_id=TOPIC)

    assert [each.lsn_to for each, _ in found] == [30]


def test_a_landing_is_found_by_its_own_commit_id() -> None:
    state = table(landing(10, None), foreign(11, 10), landing(20, 11))

    found = landing_in_history(state, "commit-10")

    assert found is not None
    assert found.snapshot_id == 10


def test_a_landing_that_was_rolled_back_or_has_expired_is_not_in_the_history() -> None:
    state = table(landing(10, None), landing(20, 10), head=10)

    assert landing_in_history(state, "commit-20") is None
    assert landing_in_history(table(landing(20, 10)), "commit-10") is None
    assert landing_in_history(table(), "commit-10") is None
