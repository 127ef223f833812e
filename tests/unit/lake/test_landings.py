"""What the ledger says the tables hold: for the log that may forget it, and never more than was verified."""

from __future__ import annotations

import logging
from random import Random

import pytest

from headwater.clock import ManualClock
from headwater.lake.landings import LedgerLandings
from headwater.lake.ledger import Ledger
from headwater.lake.ledger_records import Audited, Decided, HaltedLanding, Landed, LedgerRecord, Verified
from headwater.storage.simulated import SimulatedFiles
from tests.unit.topics.keyed_logs import keyed_topic

TOPIC = keyed_topic(table="lake.t")
TOPIC_ID = TOPIC.topic_id.hex()


def ledger_on(files: SimulatedFiles) -> Ledger:
    return Ledger(files, clock=ManualClock(), entropy=Random(1).randbytes)


def landed(lsn_from: int, lsn_to: int) -> Landed:
    return Landed(
        topic_id=TOPIC_ID, topic="t", table="lake.t", table_uuid="u", commit_id=f"c{lsn_to}", snapshot=lsn_to,
        lsn_from=lsn_from, lsn_to=lsn_to, rows=1, digest=None, total="0" * 16, columns=(), max_row_lsn=lsn_to,
        epoch=1, at_us=lsn_to,
    )  # fmt: skip


def verified(lsn: int, at_us: int) -> Verified:
    return Verified(
        topic_id=TOPIC_ID, table="lake.t", commit_id=f"c{lsn}", snapshot=lsn, lsn_to=lsn, mode="read-back", at_us=at_us
    )


def halted(cause: str) -> HaltedLanding:
    return HaltedLanding(topic_id=TOPIC_ID, table="lake.t", cause=cause, message="look at it", at_us=9)


LANDED: list[LedgerRecord] = [landed(0, 10), verified(10, 100), landed(10, 20), verified(20, 200), landed(20, 30)]


def test_only_what_was_verified_counts_and_since_it_was() -> None:
    ledger = ledger_on(SimulatedFiles())
    ledger.record(LANDED)

    landings = LedgerLandings(ledger)

    assert landings.verified_lsn(TOPIC) == 20
    asked = [landings.verified_before(TOPIC, before_us) for before_us in (99, 100, 199, 200, 10**9)]
    assert asked == [None, (10, 100), (10, 100), (20, 200), (20, 200)]
    assert landings.notes() == ()


def test_without_a_ledger_nothing_has_landed_and_nothing_is_made() -> None:
    files = SimulatedFiles()
    landings = LedgerLandings(ledger_on(files))

    assert landings.verified_lsn(TOPIC) == 0 and landings.verified_before(TOPIC, 10**18) is None
    assert landings.notes() == () and files.list("ledger") == []


def test_another_topic_of_the_same_name_has_landed_nothing() -> None:
    ledger = ledger_on(SimulatedFiles())
    ledger.record(LANDED)

    assert LedgerLandings(ledger).verified_lsn(keyed_topic(2, table="lake.t")) == 0


@pytest.mark.parametrize("cause", ["gap", "mark-unproven", "foreign-mark", "verification", "log-behind", "catalog"])
def test_while_a_table_is_in_doubt_nothing_of_it_is_let_go(cause: str) -> None:
    ledger = ledger_on(SimulatedFiles())
    ledger.record([*LANDED, halted(cause)])
    landings = LedgerLandings(ledger)

    assert landings.verified_lsn(TOPIC) == 0 and landings.verified_before(TOPIC, 10**9) is None
    assert landings.notes() == (f"landing into lake.t is halted ({cause}): look at it",)


@pytest.mark.parametrize("cause", ["schema", "format-version", "spec"])
def test_a_halt_that_keeps_new_rows_out_says_nothing_against_those_in_the_table(cause: str) -> None:
    ledger = ledger_on(SimulatedFiles())
    ledger.record([*LANDED, halted(cause)])
    landings = LedgerLandings(ledger)

    assert landings.verified_lsn(TOPIC) == 20
    assert len(landings.notes()) == 1


def test_after_a_persons_decision_what_was_rolled_back_is_not_verified_any_more() -> None:
    ledger = ledger_on(SimulatedFiles())
    decided = Decided(topic_id=TOPIC_ID, table="lake.t", act="after-rollback", lsn=10, lsn_before=30, at_us=300)
    ledger.record([*LANDED, halted("gap"), decided])
    landings = LedgerLandings(ledger)

    assert landings.verified_lsn(TOPIC) == 10
    assert landings.verified_before(TOPIC, 10**9) == (10, 100)
    assert landings.notes() == ()


def test_a_ledger_that_cannot_be_read_has_verified_nothing_and_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    files = SimulatedFiles()
    ledger = ledger_on(files)
    ledger.record(LANDED)
    landings = LedgerLandings(ledger)
    assert landings.verified_lsn(TOPIC) == 20

    files.fail(1, 5, for_ever=True, verbs=["read_at", "read_into"])
    with caplog.at_level(logging.WARNING, "headwater.lake"):
        assert landings.verified_lsn(TOPIC) == 0
        assert landings.verified_before(TOPIC, 10**9) is None
    assert len(landings.notes()) == 1 and "the ledger cannot be read" in landings.notes()[0]
    assert len(caplog.records) == 1, "the same trouble is told once"

    files.heal()
    assert landings.verified_lsn(TOPIC) == 20
    assert landings.notes() == ()


def test_records_that_came_since_are_seen() -> None:
    files = SimulatedFiles()
    landings = LedgerLandings(ledger_on(files))
    assert landings.verified_lsn(TOPIC) == 0

    ledger_on(files).record(LANDED)

    assert landings.verified_lsn(TOPIC) == 20


def audited(lsn_to: int, *, passed: bool = True) -> Audited:
    return Audited(
        topic_id=TOPIC_ID, table="lake.t", table_uuid="u", snapshot=1, lsn_to=lsn_to, rows=1, full=True, passed=passed,
        at_us=300,
    )  # fmt: skip


def test_where_an_audit_comes_first_nothing_counts_above_what_it_passed_over() -> None:
    ledger = ledger_on(SimulatedFiles())
    ledger.record(LANDED)
    landings = LedgerLandings(ledger, audit_first=True)

    assert landings.verified_lsn(TOPIC) == 0 and landings.verified_before(TOPIC, 10**9) is None
    ledger.record([audited(15)])
    assert landings.verified_lsn(TOPIC) == 15 and landings.verified_before(TOPIC, 10**9) == (15, 200)
    assert landings.verified_before(TOPIC, 150) == (10, 100)
    ledger.record([audited(30)])
    assert landings.verified_lsn(TOPIC) == 20, "it was not verified above that"


def test_an_audit_that_failed_lets_go_of_nothing_until_one_passes() -> None:
    ledger = ledger_on(SimulatedFiles())
    ledger.record([*LANDED, audited(20), audited(20, passed=False)])
    landings = LedgerLandings(ledger, audit_first=True)

    assert landings.verified_lsn(TOPIC) == 0 and landings.verified_before(TOPIC, 10**9) is None
    assert LedgerLandings(ledger).verified_lsn(TOPIC) == 20
    ledger.record([audited(20)])
    assert landings.verified_lsn(TOPIC) == 20
