"""The ledger is written by any number of processes in turn, and says to each what all of them wrote."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from random import Random

import pytest

from headwater.clock import ManualClock, SystemClock
from headwater.errors import CorruptData, Unavailable
from headwater.frames.frame import Kind
from headwater.lake.ledger import DIRECTORY, LOCK_TIMEOUT_S, SETTINGS, Ledger
from headwater.lake.ledger_records import LedgerRecord, pack_ledger_record, unpack_ledger_record
from headwater.log.drafts import Draft
from headwater.log.frame_log import FrameLog, open_log
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files
from headwater.storage.simulated import SimulatedFiles
from tests.unit.lake.ledger_entries import TOPIC, begun, landed, verified


def ledger_on(files: Files, seed: int = 1) -> Ledger:
    return Ledger(files, clock=SystemClock(), entropy=Random(seed).randbytes)


def bare_log(files: Files) -> FrameLog:
    """The ledger's frames, written by hand."""
    return open_log(files, DIRECTORY, settings=SETTINGS, clock=ManualClock(), entropy=Random(9).randbytes)


def test_what_was_recorded_is_in_the_state() -> None:
    ledger = ledger_on(SimulatedFiles())

    ledger.record([begun("c10"), landed(0, 10)])
    ledger.record([verified(10, at_us=50)])

    assert ledger.state().topic(TOPIC).landed_lsn == 10
    assert ledger.state().topic(TOPIC).verified == [(10, 50)]


def test_pages_of_the_ledger_hold_every_record_once_in_order() -> None:
    ledger = ledger_on(SimulatedFiles())
    written = [begun(f"c{number}") for number in range(9)]
    assert ledger.page(0, 100) == (0, [], False)
    for record in written:
        ledger.record([record])

    pages = [ledger.page(0, 1)]
    while pages[-1].more:
        pages.append(ledger.page(pages[-1].lsn, 1))
    told = [unpack_ledger_record(each) for page in pages for each in page.records]

    assert told == written and [len(page.records) for page in pages] == [1] * 9
    assert ledger.page(0, 1 << 20).records == [pack_ledger_record(each) for each in written]
    assert ledger.page(pages[-1].lsn, 1) == (pages[-1].lsn, [], False)
    ledger.close()


def test_records_are_told_from_the_first_as_they_were_written() -> None:
    ledger = ledger_on(SimulatedFiles())
    written: list[LedgerRecord] = [begun("c10"), landed(0, 10), verified(10, at_us=50)]

    ledger.record(written[:2])
    ledger.record(written[2:])

    assert list(ledger.records()) == written
    assert list(ledger_on(SimulatedFiles()).records()) == []


def test_a_ledger_that_was_never_written_says_nothing_and_makes_no_file() -> None:
    files = SimulatedFiles()

    state = ledger_on(files).state()

    assert state.topics == {}
    assert files.list(DIRECTORY) == []


def test_recording_nothing_writes_nothing() -> None:
    files = SimulatedFiles()

    ledger_on(files).record([])

    assert files.list(DIRECTORY) == []


def test_records_stay_when_the_power_is_lost_right_after() -> None:
    files = SimulatedFiles()
    ledger_on(files).record([landed(0, 10)])

    for seed in range(5):
        reopened = ledger_on(files.crash(Random(seed)))
        assert reopened.state().topic(TOPIC).landed_lsn == 10


def test_one_reader_sees_what_another_writes_without_opening_anything_again() -> None:
    files = SimulatedFiles()
    writer, reader = ledger_on(files, 1), ledger_on(files, 2)

    seen = []
    for lsn in (10, 20, 30):
        writer.record([landed(lsn - 10, lsn)])
        seen.append(reader.state().topic(TOPIC).landed_lsn)

    assert seen == [10, 20, 30]
    assert writer.state().topic(TOPIC).landed_lsn == 30


def test_two_ledgers_write_in_turn_and_both_know_all() -> None:
    files = SimulatedFiles()
    ledgers = ledger_on(files, 1), ledger_on(files, 2)

    for number in range(6):
        ledgers[number % 2].record([begun(f"c{number}", epoch=number)])

    assert [sorted(ledger.state().topic(TOPIC).in_flight) for ledger in ledgers] == [
        [f"c{number}" for number in range(6)]
    ] * 2


def test_the_records_of_one_call_are_one_write() -> None:
    files = SimulatedFiles()

    ledger_on(files).record([begun("a"), begun("b"), begun("c")])

    with bare_log(files) as log:
        writes = [
            (frame.header.write_index, frame.header.write_count)
            for frame in log.read()
            if frame.header.kind == Kind.LEDGER
        ]
    assert writes == [(0, 3), (1, 3), (2, 3)]


def test_processes_write_in_turn_and_no_record_is_lost(tmp_path: Path) -> None:
    program = (
        "import sys\n"
        "from headwater.clock import SystemClock, system_entropy\n"
        "from headwater.lake.ledger import Ledger\n"
        "from headwater.storage.disk import DiskFiles\n"
        "from tests.unit.lake.ledger_entries import begun\n"
        "ledger = Ledger(DiskFiles(sys.argv[1]), clock=SystemClock(), entropy=system_entropy)\n"
        "for number in range(8):\n"
        "    ledger.record([begun(f'{sys.argv[2]}-{number}')])\n"
    )
    root = Path(__file__).parents[3]

    processes = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), str(name)], cwd=root) for name in range(3)
    ]
    for process in processes:
        assert process.wait(60) == 0

    known = ledger_on(DiskFiles(tmp_path)).state().topic(TOPIC)
    assert sorted(known.in_flight) == sorted(f"{name}-{number}" for name in range(3) for number in range(8))


def test_threads_write_in_turn(tmp_path: Path) -> None:
    ledger = ledger_on(DiskFiles(tmp_path))

    def write(name: int) -> None:
        for each in range(5):
            ledger.record([begun(f"{name}-{each}")])

    threads = [threading.Thread(target=write, args=[name]) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert len(ledger.state().topic(TOPIC).in_flight) == 20


# The lock -------------------------------------------------------------------------------------------------------------


def test_a_lander_waits_for_one_that_is_writing(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    ledger = ledger_on(files)
    other = bare_log(files)
    other.append([Draft(Kind.LEDGER, pack_ledger_record(begun("other")))])

    waiting = threading.Thread(target=lambda: ledger.record([begun("mine")]))
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    other.close()
    waiting.join(20)

    assert sorted(ledger.state().topic(TOPIC).in_flight) == ["mine", "other"]


class LateClock(ManualClock):
    """Time passes whenever somebody asks for it."""

    def monotonic_s(self) -> float:
        self.advance(LOCK_TIMEOUT_S / 3)
        return super().monotonic_s()


def test_a_ledger_that_stays_locked_is_unavailable_and_nothing_was_recorded() -> None:
    files = SimulatedFiles()
    other = bare_log(files)
    other.append([Draft(Kind.LEDGER, pack_ledger_record(begun("other")))])
    ledger = Ledger(files, clock=LateClock(), entropy=Random(1).randbytes)

    with pytest.raises(Unavailable, match="locked by another lander"):
        ledger.record([begun("mine")])

    other.close()
    assert list(ledger.state().topic(TOPIC).in_flight) == ["other"]


def test_reading_takes_no_lock(tmp_path: Path) -> None:
    files = DiskFiles(tmp_path)
    other = bare_log(files)
    other.append([Draft(Kind.LEDGER, pack_ledger_record(begun("other")))])

    known = ledger_on(files).state().topic(TOPIC)

    assert list(known.in_flight) == ["other"]
    other.close()


# Reading --------------------------------------------------------------------------------------------------------------


def test_a_closed_ledger_opens_itself_again_and_closing_twice_is_nothing() -> None:
    ledger = ledger_on(SimulatedFiles())
    ledger.record([landed(0, 10)])
    assert ledger.state().topic(TOPIC).landed_lsn == 10

    ledger.close()
    ledger.close()
    ledger.record([landed(10, 20)])

    assert ledger.state().topic(TOPIC).landed_lsn == 20


def test_frames_of_other_kinds_are_passed_over() -> None:
    files = SimulatedFiles()
    with bare_log(files) as log:
        log.append([Draft(Kind.LEDGER, pack_ledger_record(landed(0, 10)))])
        log.append([Draft(200, b"of a later version")])

    state = ledger_on(files).state()

    assert state.topic(TOPIC).landed_lsn == 10
    with bare_log(files) as log:
        assert state.lsn == log.durable_lsn()


def test_a_record_that_cannot_be_read_is_not_passed_over() -> None:
    files = SimulatedFiles()
    with bare_log(files) as log:
        log.append([Draft(Kind.LEDGER, pack_ledger_record(landed(0, 10)))])
        log.append([Draft(Kind.LEDGER, b"\xc1")])
    ledger = ledger_on(files)

    for _ in range(2):
        with pytest.raises(CorruptData, match="cannot be read"):
            ledger.state()


def test_a_record_with_a_field_that_is_not_known_here_is_refused() -> None:
    packed = pack_ledger_record(begun("a"))
    # A map of one pair more.
    longer = bytes([packed[0] + 1]) + packed[1:] + b"\xa3new\x01"

    with pytest.raises(CorruptData, match="unknown field"):
        unpack_ledger_record(longer)


def test_a_state_goes_on_from_where_it_was() -> None:
    ledger = ledger_on(SimulatedFiles())
    ledger.record([begun(f"c{number}") for number in range(300)])
    first = ledger.state()
    lsn = first.lsn

    ledger.record([begun("one more")])

    # Then it is the same state, and only what is behind it was read: what was taken out by hand stays out.
    del first.topics[TOPIC]
    assert ledger.state() is first
    assert list(first.topic(TOPIC).in_flight) == ["one more"]
    assert first.lsn > lsn
