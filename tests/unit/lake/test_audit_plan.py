"""What a table owes, by the ledger's records alone."""

from __future__ import annotations

from typing import Any

import msgspec

from headwater.lake.audit_plan import Expectation, Owed, eras_of, expectation_of, places_of, selected
from headwater.lake.ledger_records import Erased, ErasedPart, Landed, LedgerRecord, Restored
from headwater.lake.work import Block, Column, Digest
from tests.unit.lake.ledger_entries import TOPIC, decided, erased, halted, landed, restored

A, B = (Column(1, "x", "int"),), (Column(1, "x", "long"), Column(2, "y", "string"))


def a_landing(lsn_from: int, lsn_to: int, first: int, last: int, *, partition: int = 0, **other: Any) -> Landed:
    """A landing of offsets first..last, in block 0."""
    rows = last - first + 1
    given = {
        "digest": Digest((Block(partition, first >> 16, rows, 100 * rows),)),
        "total": f"{100 * rows:016x}",
        "columns": A,
        "offsets": ((partition, first, last),),
        **other,
    }
    return landed(lsn_from, lsn_to, rows=rows, **given)


def expected(*records: LedgerRecord) -> Expectation:
    return expectation_of(records, TOPIC)


def lsns(found: Expectation | tuple[Owed, ...]) -> list[tuple[int, int]]:
    return [each.range for each in (found.landings if isinstance(found, Expectation) else found)]


def a_receipt(first: int, last: int, *, of: str = "e", done: tuple[str, ...] = ("table",)) -> Erased:
    rows = last - first + 1
    return msgspec.structs.replace(
        erased(99, rows=rows, done=done),
        erasure_id=of,
        offsets=((0, first, last),),
        parts=(ErasedPart(columns=A, digest=Digest((Block(0, first >> 16, rows, 100 * rows),))),),
    )


def test_landings_of_other_topics_and_other_records_are_passed_over() -> None:
    other = msgspec.structs.replace(a_landing(0, 5, 0, 4), topic_id="0c" * 16)

    found = expected(other, halted("gap"), a_landing(0, 7, 0, 1))

    assert lsns(found) == [(0, 7)] and found.rows == 2 and found.holes(7) == ()


def test_a_landing_that_two_have_told_is_owed_once_and_by_who_knows_more_of_it() -> None:
    told = a_landing(0, 5, 0, 4)
    found_in_table = msgspec.structs.replace(told, digest=None, adopted=True, offsets=())

    assert expected(told, found_in_table).landings[0].digest is not None
    assert expected(found_in_table, told).landings[0].digest is not None
    assert expected(found_in_table, told, told).rows == 5


def test_what_was_set_back_is_owed_no_more_and_what_landed_again_is() -> None:
    again = a_landing(5, 12, 5, 9, commit_id="again")

    found = expected(a_landing(0, 5, 0, 4), a_landing(5, 9, 5, 7), decided(5, before=9), again)

    assert lsns(found) == [(0, 5), (5, 12)] and found.rows == 10


def test_a_person_answers_for_what_they_have_said_is_there() -> None:
    found = expected(a_landing(0, 5, 0, 4), decided(9, act="landed-lsn"), a_landing(9, 12, 8, 9))

    assert found.answered == found.by_word == ((5, 9),) and found.holes(12) == ()
    # If that is set back too, as far as it still holds.
    assert expected(decided(9, act="landed-lsn"), decided(7)).answered == ((0, 7),)


def test_a_landing_of_no_rows_leaves_no_hole() -> None:
    found = expected(a_landing(0, 5, 0, 4), landed(5, 9, rows=0), a_landing(9, 12, 5, 9))

    assert lsns(found) == [(0, 5), (9, 12)] and found.holes(12) == ()


def test_lsns_in_no_landing_are_holes_and_the_offsets_that_they_leave_out_are_known() -> None:
    found = expected(a_landing(0, 5, 0, 4), a_landing(9, 12, 8, 9), a_landing(9, 12, 8, 9))

    holes = found.holes(14)

    assert holes == ((5, 9), (12, 14))
    assert [each.offsets for each in found.skipped(holes)] == [((0, 5, 7),), ()]


def test_a_landing_that_was_found_has_the_offsets_that_its_neighbours_leave() -> None:
    unknown: dict[str, Any] = {"digest": None, "offsets": (), "adopted": True}
    before, after = a_landing(0, 5, 0, 4), a_landing(9, 12, 8, 9)

    assert expected(before, a_landing(5, 9, 5, 7, **unknown), after).landings[1].offsets == ((0, 5, 7),)
    # Fewer rows than offsets: some were compacted away before they landed, and nobody knows which.
    assert expected(before, a_landing(5, 9, 5, 6, **unknown), after).landings[1].offsets == ()
    # Two side by side: nobody knows where one ends.
    two = expected(before, a_landing(5, 6, 5, 5, **unknown), a_landing(6, 9, 6, 7, **unknown), after)
    assert [each.offsets_known for each in two.landings] == [True, False, False, True]
    assert two.rows_by_place() == {}


def test_a_baseline_of_a_log_that_was_lost_is_owed_like_a_landing() -> None:
    known = Digest((Block(0, 0, 3, 7),))
    record: Restored = msgspec.structs.replace(restored(100, rows=3), digest=known, columns=A, offsets=((0, 0, 2),))

    found = expected(record, a_landing(100, 105, 3, 4))

    assert lsns(found) == [(0, 100), (100, 105)] and found.landings[0].total == 7
    assert expected(restored(100, rows=3)).landings[0].total is None


def test_eras_are_of_the_same_columns_in_the_same_types_and_their_blocks_add_up() -> None:
    found = expected(
        a_landing(0, 5, 0, 4),
        a_landing(5, 9, 5, 7, columns=B),
        a_landing(9, 12, 8, 9),
        a_landing(12, 13, 10, 10, digest=None, offsets=()),
    )

    first, second, alone = eras_of(found.landings, found.erased_parts)

    assert first.ranges == ((0, 5), (9, 12)) and first.blocks == {(0, 0): (7, 700)} and first.rows == 7
    assert second.ranges == ((5, 9),) and alone.blocks is None
    assert found.rows_by_place() == {}, "a landing that is known by its total alone may be in any block"


def test_what_was_erased_is_subtracted_once_however_often_it_is_told() -> None:
    landing = a_landing(0, 5, 0, 4)

    found = expected(landing, a_receipt(1, 2, done=()), a_receipt(1, 2), a_landing(5, 9, 5, 7))

    assert found.rows == 6 and found.erased_runs == ((0, 1, 2),) and found.unfinished == ()
    [era] = eras_of(found.landings, found.erased_parts)
    assert era.blocks == {(0, 0): (6, 600)} and found.rows_by_place() == {(0, 0): 6}
    assert era.rows == 6


def test_a_block_of_which_all_was_erased_owes_nothing() -> None:
    found = expected(a_landing(0, 5, 0, 4), a_receipt(0, 4))

    [era] = eras_of(found.landings, found.erased_parts)

    assert era.blocks == {} and found.rows == 0


def test_an_erasure_that_has_taken_nothing_out_yet_is_not_subtracted() -> None:
    records: list[LedgerRecord] = [a_landing(0, 5, 0, 4), a_receipt(1, 2, done=())]

    assert [each.erasure_id for each in expectation_of(records, TOPIC).unfinished] == ["e"]
    assert expectation_of(records, TOPIC, ["e"]).rows == 5


def test_what_was_erased_before_a_table_was_set_back_is_not_subtracted_from_what_lands_again() -> None:
    """It lands from a log that no longer has the erased rows."""
    first, second = a_landing(0, 5, 0, 4), a_landing(5, 9, 5, 9)
    again = msgspec.structs.replace(
        a_landing(5, 9, 5, 9, commit_id="again"), rows=4, digest=Digest((Block(0, 0, 4, 400),))
    )

    found = expected(first, second, a_receipt(6, 6), decided(5, before=9), again)

    assert found.rows == 9 and found.doubtful == {(0, 0)}, "the block is shared with a landing that stayed"
    [era] = eras_of(found.landings, found.erased_parts)
    assert era.blocks == {(0, 0): (9, 900)}


def test_a_receipt_of_landings_that_are_all_set_back_is_of_nothing() -> None:
    found = expected(a_landing(0, 5, 0, 4), a_receipt(1, 1), decided(0, before=5))

    assert found.erased_parts[0].digest.rows == 0 and found.doubtful == frozenset() and found.rows == 0


def test_an_incremental_audit_takes_what_was_touched_what_is_new_and_what_shares_an_erased_block() -> None:
    records = [a_landing(0, 5, 0, 4), a_landing(5, 9, 5, 7), a_landing(9, 12, 70_000, 70_001)]

    assert lsns(selected(expected(*records), [(3, 4)], 9)) == [(0, 5), (9, 12)]
    assert lsns(selected(expected(*records), [(5, 6)], 12)) == [(5, 9)]
    assert lsns(selected(expected(*records), [], 12)) == []
    erased_too = expected(*records, a_receipt(6, 6))
    assert lsns(selected(erased_too, [(3, 4)], 12)) == [(0, 5), (5, 9)]


def test_a_receipt_of_columns_that_no_chosen_landing_has_takes_nothing_from_them() -> None:
    found = expected(a_landing(0, 5, 0, 4), a_landing(5, 9, 70_000, 70_001), a_receipt(70_000, 70_000))

    [era] = eras_of(found.landings[:1], found.erased_parts)

    assert era.blocks == {(0, 0): (5, 500)}


def test_offsets_are_in_blocks() -> None:
    assert places_of([(1, 65_535, 65_536), (2, 0, 0)]) == {(1, 0), (1, 1), (2, 0)}
