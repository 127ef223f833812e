"""Every byte of a ledger is looked at, and every record in it read."""

from __future__ import annotations

from random import Random

from headwater.clock import ManualClock
from headwater.frames.frame import Kind
from headwater.lake.ledger import DIRECTORY, SETTINGS, Ledger
from headwater.lake.ledger_verify import LedgerSeen, check_log_reaches, verify_ledger
from headwater.log.drafts import Draft
from headwater.log.frame_log import open_log
from headwater.log.verify import FindingName, NoteName, VerifyReport
from headwater.metadata.fold_check import MetadataFinding
from headwater.storage.simulated import SimulatedFiles
from tests.unit.lake.ledger_entries import TABLE, TOPIC, begun, halted, landed, verified


def ledger_on(files: SimulatedFiles) -> Ledger:
    return Ledger(files, clock=ManualClock(), entropy=Random(1).randbytes)


def small_ledger() -> SimulatedFiles:
    files = SimulatedFiles()
    ledger = ledger_on(files)
    ledger.record([begun("c10"), landed(0, 10)])
    ledger.record([verified(10), landed(10, 25), halted("gap")])
    return files


def segment_of(files: SimulatedFiles) -> str:
    (name,) = (name for name in files.list(DIRECTORY) if name.endswith(".seg"))
    return f"{DIRECTORY}/{name}"


def seen_in(files: SimulatedFiles) -> LedgerSeen:
    seen = verify_ledger(files)
    assert seen is not None
    return seen


def test_where_nothing_has_landed_there_is_no_ledger() -> None:
    assert verify_ledger(SimulatedFiles()) is None


def test_a_healthy_ledger_has_no_findings_and_says_what_it_holds() -> None:
    seen = verify_ledger(small_ledger(), settings=SETTINGS)

    assert seen is not None
    assert (seen.findings, seen.notes) == ([], [])
    assert (seen.records, seen.landed_lsn, seen.halted) == (5, 25, 1)
    told = seen.as_dict()
    assert told["topics"] == {TOPIC: {"table": TABLE, "landed_lsn": 25, "verified_lsn": 10, "halted": "gap"}}
    assert (told["records"], told["landed_lsn"], told["segments"]) == (5, 25, 1)
    assert "findings" not in told


def test_a_topic_that_goes_on_is_not_told_as_halted() -> None:
    files = SimulatedFiles()
    ledger_on(files).record([landed(0, 10)])

    seen = seen_in(files)

    assert seen.halted == 0
    assert seen.as_dict()["topics"] == {TOPIC: {"table": TABLE, "landed_lsn": 10, "verified_lsn": 0, "halted": None}}


def test_a_changed_byte_is_a_finding_that_names_the_file() -> None:
    files = small_ledger()
    file = files.open(segment_of(files), writable=True)
    file.write_at(700, b"\xff")
    file.close()

    seen = seen_in(files)

    assert [(each.name, each.segment) for each in seen.findings] == [(FindingName.DAMAGED_FRAME, segment_of(files))]


def test_a_ledger_without_its_mark_has_a_note() -> None:
    files = small_ledger()
    files.unlink(f"{DIRECTORY}/mark")

    seen = seen_in(files)

    assert seen.findings == []
    assert [(each.name, each.segment.partition("/")[0]) for each in seen.notes] == [(NoteName.NO_MARK, DIRECTORY)]


def test_a_record_that_cannot_be_read_is_a_finding_and_the_next_ones_are_read() -> None:
    files = small_ledger()
    with open_log(files, DIRECTORY, settings=SETTINGS, clock=ManualClock(), entropy=Random(2).randbytes) as log:
        log.append([Draft(Kind.LEDGER, b"\xc1"), Draft(200, b"of a later version")])
    ledger_on(files).record([landed(25, 40)])

    seen = seen_in(files)

    (finding,) = seen.findings
    assert finding.name == MetadataFinding.BAD_RECORD
    assert finding.segment == segment_of(files)
    assert finding.first_lsn == finding.last_lsn > 0
    assert (seen.records, seen.landed_lsn) == (6, 40)


def test_a_log_that_ends_before_what_has_landed_has_lost_its_end() -> None:
    seen = seen_in(small_ledger())

    assert check_log_reaches(seen, VerifyReport("log", last_lsn=25)) == []
    (finding,) = check_log_reaches(seen, VerifyReport("log", last_lsn=20))
    assert (finding.name, finding.segment, finding.first_lsn, finding.last_lsn) == ("LostLsns", "log", 21, 25)
