"""The end of the ledger: each record is read once, few are kept, and a landing is told once."""

from __future__ import annotations

from headwater.lake.ledger import LedgerPage
from headwater.lake.ledger_records import Ended, Landed, LedgerRecord, Restored, Verified, pack_ledger_record
from headwater.page.ledger_tail import LANDINGS_KEPT, RECORDS_READ_MAX, LedgerTail
from tests.unit.page.seen_logs import an_audit


class Written:
    """A ledger in memory, of which one record is told at a time."""

    def __init__(self, *records: LedgerRecord) -> None:
        self.records = list(records)
        self.asked: list[int] = []

    def after(self, lsn: int) -> LedgerPage:
        self.asked.append(lsn)
        told = [pack_ledger_record(each) for each in self.records[lsn : lsn + 1]]
        return LedgerPage(lsn + len(told), told, more=lsn + 1 < len(self.records))


def landed(commit_id: str, rows: int = 1) -> Landed:
    return Landed(
        at_us=1,
        topic_id="t",
        topic="orders",
        table="lake.orders",
        table_uuid="u",
        commit_id=commit_id,
        snapshot=7,
        lsn_from=0,
        lsn_to=1,
        rows=rows,
        digest=None,
        total="ab" * 8,
        columns=(),
        max_row_lsn=1,
        epoch=1,
    )


def verified(commit_id: str, at_us: int = 9) -> Verified:
    return Verified(
        at_us=at_us, topic_id="t", table="lake.orders", commit_id=commit_id, snapshot=7, lsn_to=1, mode="read-back"
    )


def test_landings_are_told_the_latest_first_with_when_they_were_read_back() -> None:
    ledger = Written(landed("a"), landed("b"), verified("a"), verified("a", 20), verified("unknown"), an_audit())
    tail = LedgerTail(ledger.after)

    tail.read()

    assert [(each.commit_id, each.verified_us) for each in tail.landings()] == [("b", None), ("a", 9)]
    assert [each.topic_id for each in tail.audits()] == ["orders"]
    assert tail.names == {"t": "orders"}


def test_what_was_read_is_not_read_again() -> None:
    ledger = Written(landed("a"), landed("b"))
    tail = LedgerTail(ledger.after)
    tail.read()
    ledger.records.append(landed("c"))

    tail.read()
    tail.read()

    assert ledger.asked == [0, 1, 2, 3]
    assert [each.commit_id for each in tail.landings()] == ["c", "b", "a"]


def test_a_landing_that_two_have_told_and_one_without_rows_are_not_told_twice_or_at_all() -> None:
    ended = Ended(at_us=1, topic_id="t", table="lake.orders", commit_id="x", why="failed")
    tail = LedgerTail(Written(landed("a"), landed("a"), landed("b", rows=0), ended).after)

    tail.read()

    assert [each.commit_id for each in tail.landings()] == ["a"]


def test_few_landings_are_kept_of_many() -> None:
    tail = LedgerTail(Written(*(landed(str(number)) for number in range(LANDINGS_KEPT + 5))).after)

    tail.read()

    assert len(tail.landings()) == LANDINGS_KEPT
    assert tail.landings()[0].commit_id == str(LANDINGS_KEPT + 4)


def test_of_a_long_ledger_only_the_end_is_read() -> None:
    ledger = Written(*(landed(str(number)) for number in range(3)))
    tail = LedgerTail(ledger.after, end_lsn=RECORDS_READ_MAX + 2)

    tail.read()

    assert ledger.asked == [2]


def test_a_topic_that_was_restored_has_its_name() -> None:
    restored = Restored(
        at_us=1,
        topic_id="t",
        topic="orders",
        table="lake.orders",
        table_uuid="u",
        log_id_before="x",
        snapshot=1,
        lsn_before=1,
        lsn_to=1,
        rows=1,
        digest=None,
        columns=(),
    )
    tail = LedgerTail(Written(restored).after)

    tail.read()

    assert tail.names == {"t": "orders"}
