"""What a ledger's records fold to, whoever wrote them, in whatever order landers came to write them."""

from __future__ import annotations

import msgspec
import pytest

from headwater.lake.ledger_records import CheckedCatalog, Kept
from headwater.lake.ledger_state import IN_FLIGHT_US_MAX, VERIFICATIONS_KEPT, LedgerState, TopicLedger
from tests.unit.lake.ledger_entries import (
    TABLE,
    audited,
    begun,
    decided,
    ended,
    erased,
    folded,
    halted,
    intended,
    landed,
    merged,
    restored,
    topic_after,
    verified,
)


def test_of_a_topic_that_never_landed_nothing_is_known_and_asking_makes_nothing() -> None:
    state = LedgerState()

    assert state.topic("somebody") == TopicLedger()
    assert state.topics == {}
    assert state.checked("headwater") is None


# Landings -------------------------------------------------------------------------------------------------------------


def test_a_landing_moves_the_topic_and_is_unverified() -> None:
    topic = topic_after(landed(0, 10, rows=4), landed(10, 20, rows=5, table_uuid="v"))

    assert (topic.landed_lsn, topic.table, topic.table_uuid) == (20, TABLE, "v")
    assert topic.last == landed(10, 20, rows=5, table_uuid="v")
    assert topic.landings == [(0, 10, 4), (10, 20, 5)]
    assert list(topic.unverified) == ["c10", "c20"]
    assert topic.hole_lsn is None


def test_a_landing_without_rows_has_nothing_to_verify() -> None:
    topic = topic_after(landed(0, 10), landed(10, 15, rows=0))

    assert (topic.landed_lsn, topic.landings, list(topic.unverified)) == (15, [(0, 10, 1)], ["c10"])


def test_rows_after_an_lsn_are_those_of_the_landings_that_end_behind_it() -> None:
    topic = topic_after(landed(0, 10, rows=4), landed(10, 20, rows=5), landed(20, 30, rows=6))

    assert [topic.rows_after(lsn) for lsn in (0, 10, 19, 20, 30)] == [15, 11, 11, 6, 0]


def test_a_landing_that_two_landers_wrote_down_landed_once() -> None:
    # Given a lander that adopts two landings while another has written down the first, and writes the second later.
    topic = topic_after(landed(0, 10), landed(0, 10, adopted=True), landed(10, 20), landed(0, 10), landed(10, 20))

    assert topic.landings == [(0, 10, 1), (10, 20, 1)]
    assert topic.last == landed(10, 20)


def test_a_landing_that_is_written_down_late_does_not_come_back_once_it_is_verified() -> None:
    topic = topic_after(landed(0, 10), landed(10, 20), verified(10), verified(20), landed(0, 10))

    assert topic.unverified == {}


def test_a_landing_that_others_have_landed_over_holds_nothing_up() -> None:
    # Given a lander that committed up to 30 and slept, a rollback to 20, and another that landed 20 to 35.
    topic = topic_after(
        landed(0, 20), begun("c30"), landed(20, 35), landed(20, 30), verified(20, 100), verified(35, 200)
    )

    assert (topic.unverified, topic.in_flight) == ({}, {})
    assert topic.verified_lsn == 35


def test_a_landing_that_was_never_written_down_leaves_a_hole_above_which_nothing_is_verified() -> None:
    topic = topic_after(landed(0, 10), landed(20, 30), landed(30, 40), verified(10), verified(30), verified(40))

    assert topic.hole_lsn == 10
    assert topic.verified_lsn == 10
    assert topic.unverified == {}


def test_the_first_hole_counts() -> None:
    assert topic_after(landed(0, 10), landed(20, 30), landed(40, 50)).hole_lsn == 10


def test_a_hole_is_filled_by_the_landing_that_is_told_late() -> None:
    holed = (landed(0, 10), landed(20, 30), landed(30, 40))

    filled = topic_after(*holed, landed(10, 20))
    in_part = topic_after(*holed, landed(10, 15))
    to_the_end = topic_after(*holed, landed(10, 40))
    beyond = topic_after(landed(0, 10), landed(20, 30, rows=0), landed(10, 35))

    assert (filled.hole_lsn, list(filled.unverified)) == (None, ["c10", "c30", "c40", "c20"])
    assert (in_part.hole_lsn, in_part.landed_lsn) == (15, 40)
    assert to_the_end.hole_lsn is None
    assert (beyond.hole_lsn, beyond.landed_lsn) == (None, 35)


# Verifications --------------------------------------------------------------------------------------------------------


def test_verifications_rise_and_say_since_when() -> None:
    topic = topic_after(landed(0, 10), landed(10, 20), verified(10, at_us=100), verified(20, at_us=200))

    assert topic.verified == [(10, 100), (20, 200)]
    assert [topic.verified_before(at_us) for at_us in (99, 100, 199, 200, 10**9)] == [
        None,
        (10, 100),
        (10, 100),
        (20, 200),
        (20, 200),
    ]
    assert TopicLedger().verified_lsn == 0


def test_a_landing_that_two_landers_verified_counts_from_the_first_time() -> None:
    assert topic_after(landed(0, 10), verified(10, at_us=100), verified(10, at_us=200)).verified == [(10, 100)]


def test_a_verification_out_of_order_does_not_fall() -> None:
    topic = topic_after(landed(0, 10), landed(10, 20), verified(20, at_us=100), verified(10, at_us=200))

    assert topic.verified == [(20, 100)]


def test_a_verification_that_comes_after_a_person_has_decided_releases_nothing() -> None:
    # Given a lander that has read back the landing up to 30 and sleeps before it says so, and a rollback to 10.
    topic = topic_after(landed(0, 10), verified(10), landed(10, 30), decided(10, before=30), verified(30))

    assert topic.verified_lsn == 10


def test_only_the_latest_verifications_are_kept() -> None:
    count = VERIFICATIONS_KEPT + 5
    state = LedgerState()
    for lsn in range(1, count + 1):
        state.apply(landed(lsn - 1, lsn))
        state.apply(verified(lsn, at_us=lsn))

    (topic,) = state.topics.values()

    assert len(topic.verified) == VERIFICATIONS_KEPT
    assert topic.verified_lsn == count


# Attempts and halts ---------------------------------------------------------------------------------------------------


def test_files_are_in_flight_from_the_beginning_of_an_attempt_to_its_end() -> None:
    flights = [
        topic_after(begun("a")).in_flight,
        topic_after(begun("a"), intended("a")).in_flight,
        topic_after(begun("a"), intended("a"), ended("a", "lost")).in_flight,
        topic_after(begun("c10"), intended("c10"), landed(0, 10)).in_flight,
        topic_after(ended("a", "failed")).in_flight,
    ]

    assert flights == [{"a": begun("a")}, {"a": intended("a")}, {}, {}, {}]


def test_the_files_of_an_attempt_whose_outcome_is_unknown_stay_in_flight() -> None:
    assert topic_after(begun("a"), intended("a"), ended("a", "unknown")).in_flight == {"a": intended("a")}


def test_an_attempt_of_weeks_ago_is_forgotten_when_another_begins() -> None:
    later = IN_FLIGHT_US_MAX + 2

    assert list(topic_after(begun("old"), begun("new", at_us=later - 1)).in_flight) == ["old", "new"]
    assert list(topic_after(begun("old"), begun("new", at_us=later)).in_flight) == ["new"]


@pytest.mark.parametrize(("why", "failures"), [("failed", 2), ("unknown", 2), ("lost", 0), ("nothing", 0)])
def test_failures_are_counted_until_something_else_comes_of_an_attempt(why: str, failures: int) -> None:
    assert topic_after(ended("a", "failed"), ended("b", why)).failures == failures
    assert topic_after(ended("a", "failed"), landed(0, 10)).failures == 0


def test_a_copy_stays_as_it_was() -> None:
    state = folded([begun("a"), landed(0, 10), verified(10), landed(10, 20), decided(10, before=20), landed(10, 20)])
    (topic,) = state.topics.values()
    kept = topic.copy()
    assert kept == topic

    for record in (begun("b"), verified(20), landed(20, 30), decided(10, before=30)):
        state.apply(record)

    assert kept.landed_lsn == 20
    assert (kept.verified, list(kept.unverified), list(kept.in_flight)) == ([(10, 4)], ["c20"], ["a"])
    assert kept.landings == [(0, 10, 1), (10, 20, 1)]


def test_an_epoch_never_falls() -> None:
    assert topic_after(begun("a", epoch=5), begun("b", epoch=3)).epoch == 5


def test_a_halt_stands_until_a_landing_or_a_decision() -> None:
    assert topic_after(halted("gap")).halted == halted("gap")
    assert topic_after(halted("gap"), landed(0, 10)).halted is None
    assert topic_after(halted("gap"), decided(0)).halted is None
    assert topic_after(halted("gap"), ended("a", "failed")).halted == halted("gap")


def test_a_table_that_was_read_without_a_halt_is_halted_no_more_unless_its_landing_could_not_be_verified() -> None:
    assert topic_after(halted("gap"), ended("a", "nothing")).halted is None
    assert topic_after(halted("verification"), ended("a", "nothing")).halted == halted("verification")
    assert topic_after(ended("a", "nothing")).halted is None


def test_a_landing_that_could_not_be_verified_and_then_was_halts_no_more() -> None:
    assert topic_after(landed(0, 10), halted("verification"), verified(10)).halted is None
    assert topic_after(landed(0, 10), halted("gap"), verified(10)).halted == halted("gap")
    assert topic_after(halted("verification"), verified(10)).halted == halted("verification")


# Decisions ------------------------------------------------------------------------------------------------------------


def test_a_decision_after_a_rollback_takes_back_what_was_known_above_it() -> None:
    topic = topic_after(
        landed(0, 10), landed(10, 20), landed(20, 30), verified(10, 100), verified(20, 200), decided(10, before=30)
    )

    assert topic.landed_lsn == 10
    assert topic.verified == [(10, 100)]
    assert topic.landings == [(0, 10, 1)]
    assert topic.unverified == {}


def test_what_was_decided_away_is_owed_until_it_has_landed_again() -> None:
    before = (landed(0, 10, rows=4), landed(10, 20, rows=5), landed(20, 30, rows=6), decided(10, before=30))

    owing = topic_after(*before)
    in_part = topic_after(*before, landed(10, 17, rows=3))
    again = topic_after(*before, landed(10, 17, rows=3), landed(17, 40, rows=9))

    assert (owing.owed_lsn, owing.rows_after(10)) == (30, 11)
    # A landing of what was owed may end anywhere inside it.
    assert (in_part.owed_lsn, in_part.rows_after(17), in_part.rows_after(10)) == (30, 8, 11)
    assert (again.owed, again.owed_lsn, again.rows_after(10)) == ([], 40, 12)


def test_what_is_owed_stays_so_when_a_person_decides_once_more() -> None:
    topic = topic_after(landed(0, 10), landed(10, 20), landed(20, 30), decided(20, before=30), decided(10, before=20))

    assert (topic.landed_lsn, topic.owed_lsn, topic.rows_after(10)) == (10, 30, 2)


def test_a_decision_says_which_table_it_was_for() -> None:
    before = landed(0, 10)

    assert topic_after(before, decided(0, before=10)).table_uuid == "u"
    assert topic_after(before, msgspec.structs.replace(decided(0), table_uuid="v")).table_uuid == "v"


def test_what_was_decided_away_lands_again_under_the_same_name_if_the_table_is_rolled_forward() -> None:
    topic = topic_after(landed(0, 10), landed(10, 30), decided(10, before=30), landed(10, 30, adopted=True))

    assert (topic.landed_lsn, topic.hole_lsn, list(topic.unverified)) == (30, None, ["c10", "c30"])


def test_a_decision_at_or_below_a_hole_closes_it() -> None:
    holed = (landed(0, 10), landed(20, 30))

    assert topic_after(*holed, decided(20, before=30)).hole_lsn == 10
    assert topic_after(*holed, decided(10, before=30)).hole_lsn is None
    assert topic_after(landed(0, 10), decided(5, before=10)).hole_lsn is None


def test_whoever_says_how_far_a_table_holds_everything_answers_for_it() -> None:
    topic = topic_after(
        landed(0, 10), verified(10, 100), landed(20, 30), halted("verification"), decided(30, act="landed-lsn")
    )

    assert (topic.landed_lsn, topic.verified_lsn, topic.hole_lsn, topic.halted) == (30, 30, None, None)
    assert topic.unverified == {}


def test_an_answer_below_what_was_verified_takes_the_rest_back() -> None:
    topic = topic_after(landed(0, 10), landed(10, 20), verified(10), verified(20), decided(10, act="landed-lsn"))

    assert (topic.landed_lsn, topic.verified_lsn) == (10, 10)


# The rest -------------------------------------------------------------------------------------------------------------


def test_a_merge_is_remembered() -> None:
    assert topic_after(merged(10), merged(20)).merged == merged(20)


@pytest.mark.parametrize("passed", [True, False])
def test_the_last_check_of_a_catalog_counts(passed: bool) -> None:
    first = CheckedCatalog(catalog="headwater", passed=not passed, properties={"raced": not passed}, at_us=1)
    second = CheckedCatalog(catalog="headwater", passed=passed, properties={"raced": passed}, at_us=2)

    state = folded([first, second])

    assert state.checked("headwater") == second
    assert state.checked("other") is None


def test_upkeep_is_kept_by_table_in_order() -> None:
    first, second, other = (
        Kept(table=table, what=what, at_us=1) for table, what in (("a.t", "expired"), ("a.t", "compacted"), ("b.t", ""))
    )

    state = folded([first, other, second])

    assert state.kept == {"a.t": [first, second], "b.t": [other]}


def test_the_last_audit_is_told_and_the_last_that_passed_counts() -> None:
    topic = topic_after(landed(0, 10), audited(10), audited(20, differences=3))

    assert (topic.audited, topic.last_audit) == (audited(10), audited(20, differences=3))


def test_what_was_audited_of_a_table_that_was_rolled_back_counts_no_more() -> None:
    topic = topic_after(landed(0, 10), audited(10), decided(5, before=10))

    assert topic.audited is None and topic.last_audit == audited(10)


def test_erasures_are_counted() -> None:
    assert topic_after(landed(0, 10), erased(10), erased(10)).erasures == 2


def test_a_table_of_a_lost_log_is_landed_and_verified_up_to_where_the_new_one_begins() -> None:
    topic = topic_after(halted("gap", "it is gone"), restored(99, rows=5, at_us=7))

    assert (topic.landed_lsn, topic.verified, topic.landings, topic.halted) == (99, [(99, 7)], [(0, 99, 5)], None)


def test_an_empty_table_of_a_lost_log_has_no_landing() -> None:
    topic = topic_after(restored(99, rows=0))

    assert (topic.landed_lsn, topic.landings) == (99, [])


def test_how_many_rows_had_landed_up_to_an_lsn_is_told_where_no_landing_goes_across_it() -> None:
    topic = topic_after(landed(0, 10, rows=4), landed(10, 20, rows=3))

    assert [topic.rows_up_to(lsn) for lsn in (0, 5, 10, 20, 25)] == [0, None, 4, 7, 7]
    rolled_back = topic_after(landed(0, 10, rows=4), landed(10, 20, rows=3), decided(10, before=20))
    assert rolled_back.rows_up_to(20) == 7
    assert topic_after(landed(10, 20, rows=3)).rows_up_to(20) is None, "what came before it was not written down"
