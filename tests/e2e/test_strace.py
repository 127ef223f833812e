"""The real disk code, watched and disturbed by strace, and a real full disk.

A kill proves nothing about syncs, because the page cache survives it.  Here the order of the system calls is read from
a trace of the real process: nothing is acknowledged before a sync that covers it has returned (G1).
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from headwater.errors import Unavailable
from headwater.log import FrameLog, open_log
from headwater.settings import LogSettings
from headwater.storage.disk import DiskFiles
from tests.e2e.appender import AppenderSettings, drafts_of
from tests.e2e.appender_process import AppenderProcess, running_appender
from tests.e2e.machine import require_root, require_strace, small_file_system
from tests.e2e.trace import TRACED, Trace, parse_trace
from tests.e2e.workload import Acknowledgement, Failure, History, Violation, WriteName, parse_line, read_frames

KIB = 1024
Said = Acknowledgement | Failure


def open_here(root: Path, **settings: int) -> FrameLog:
    given = {"segment_size_bytes_max": 64 * KIB, "write_body_bytes_max": 32 * KIB, "reserve_bytes": 0} | settings
    return open_log(DiskFiles(root), "log", settings=LogSettings(**given))


def run_under_strace(root: Path, settings: AppenderSettings, *options: str) -> tuple[AppenderProcess, str]:
    """A whole run of an appender, and its trace."""
    output = root.with_suffix(".strace")
    under = ["strace", "-f", "-ttt", "-y", "-x", "-s", "128", "-o", str(output), "-e", f"trace={TRACED}", *options]
    with running_appender(root, settings, under=under) as appender:
        exit_code = appender.wait()
    assert exit_code == 0, appender.lines[-3:]
    assert appender.lines[-1] == b"d", "the process lives to its own end"
    return appender, output.read_text()


def check_recovered(root: Path, history: History) -> None:
    """Open as a writer, twice: all that is promised is there, both times."""
    for _ in range(2):
        with open_here(root) as log:
            log.claim()
            history.check_recovered(read_frames(log))


# ------------------------------------------------------------------------------------------------- the order of calls


@pytest.fixture
def traced(tmp_path: Path, seed: int) -> tuple[Trace, History, Path]:
    require_strace()
    return trace_appender(tmp_path / "root", AppenderSettings(seed, writes_max=60, segment_size_bytes_max=64 * KIB))


def trace_appender(root: Path, settings: AppenderSettings) -> tuple[Trace, History, Path]:
    appender, text = run_under_strace(root, settings)
    history = History(settings.seed)
    failures = history.add_lines(0, appender.lines)
    assert not failures
    return Trace(parse_trace(text), root / "log"), history, root


def test_nothing_is_acknowledged_before_a_sync_that_covers_it_has_returned(
    traced: tuple[Trace, History, Path],
) -> None:
    trace, history, root = traced

    with open_here(root) as log:
        frames = read_frames(log)

    trace.check_synced_before_acknowledged(frames)
    assert len(trace.acknowledgements) == len(history.acknowledged) == 3 * 60
    history.check_recovered(frames)


def test_a_segments_name_is_synced_before_a_row_in_it_is_acknowledged_and_its_predecessor_before_its_first_byte(
    traced: tuple[Trace, History, Path],
) -> None:
    trace, _, root = traced

    with open_here(root) as log:
        frames = read_frames(log)

    assert len(trace.segments) >= 4, "small segments, so that there are rolls to look at"
    trace.check_names_synced_before_acknowledged(frames)
    trace.check_old_segment_synced_first()


def test_no_mark_names_a_byte_that_no_returned_sync_covered(traced: tuple[Trace, History, Path]) -> None:
    trace, _, _ = traced

    marks = trace.check_mark_behind_syncs()

    assert marks > 20


@pytest.mark.parametrize("disabled", ["fdatasync", "fsync", "fdatasync,fsync"])
def test_the_trace_shows_an_appender_that_does_not_sync(tmp_path: Path, seed: int, disabled: str) -> None:
    require_strace()
    settings = AppenderSettings(seed, writes_max=30, segment_size_bytes_max=64 * KIB, disabled=disabled)

    trace, _, root = trace_appender(tmp_path / "root", settings)
    with open_here(root) as log:
        frames = read_frames(log)

    if "fdatasync" in disabled:
        with pytest.raises(Violation, match="written and not synced"):
            trace.check_synced_before_acknowledged(frames)
        with pytest.raises(Violation, match="the mark of LSN"):
            trace.check_mark_behind_syncs()
    if "fsync" in disabled.split(","):
        with pytest.raises(Violation, match="its directory was not synced"):
            trace.check_names_synced_before_acknowledged(frames)
    if disabled == "fdatasync,fsync":
        # Either of the two alone covers the end of the old segment.
        with pytest.raises(Violation, match=r"before .* was synced to its end"):
            trace.check_old_segment_synced_first()


# ------------------------------------------------------------------------------------------------------ failing calls


def run_with_a_failing_call(root: Path, seed: int, call: str, error: str, nth: int) -> tuple[list[Said], History]:
    """An appender of one thread whose `nth` such call fails; it goes on for five failures, and just ends.

    strace counts the calls of each thread for itself, so with one appending thread there is one failure."""
    settings = AppenderSettings(
        seed, threads=1, writes_max=40, failures_max=5, segment_size_bytes_max=64 * KIB, close=0
    )
    appender, text = run_under_strace(root, settings, "-e", f"inject={call}:error={error}:when={nth}")
    assert text.count("(INJECTED)") == 1
    history = History(seed)
    history.add_lines(0, appender.lines)
    return [said for said in map(parse_line, appender.lines) if said is not None], history


@pytest.mark.parametrize("nth", [2, 3, 4, 5, 6, 8, 12, 20])
def test_a_failed_sync_poisons_the_log_and_opening_it_again_recovers_what_was_acknowledged(
    tmp_path: Path, seed: int, nth: int
) -> None:
    require_strace()
    root = tmp_path / "root"

    said, history = run_with_a_failing_call(root, seed, "fdatasync", "EIO", nth)

    acknowledged = len(history.acknowledged)
    assert all(isinstance(one, Acknowledgement) for one in said[:acknowledged])
    errors = [one.error for one in said[acknowledged:] if isinstance(one, Failure)]
    assert errors == ["OutcomeUnknown", *["Poisoned"] * 4], "and nothing is acknowledged any more"
    check_recovered(root, history)


def test_a_failed_sync_of_the_claim_refuses_and_the_next_append_claims_again(tmp_path: Path, seed: int) -> None:
    require_strace()
    root = tmp_path / "root"

    said, history = run_with_a_failing_call(root, seed, "fdatasync", "EIO", 1)

    assert isinstance(said[0], Failure)
    assert said[0].error == "Unavailable"
    assert len(history.acknowledged) == 39
    check_recovered(root, history)


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_failed_sync_of_a_name_never_leads_to_an_acknowledgement_that_is_lost(
    tmp_path: Path, seed: int, nth: int
) -> None:
    require_strace()
    root = tmp_path / "root"

    said, history = run_with_a_failing_call(root, seed, "fsync", "EIO", nth)

    failures = [one for one in said if isinstance(one, Failure)]
    assert failures[0].error in ("OutcomeUnknown", "Unavailable")
    if failures[0].error == "OutcomeUnknown":
        assert [one.error for one in failures[1:]] == ["Poisoned"] * 4
        assert said[-5:] == failures, "and nothing is acknowledged any more"
    else:
        assert len(failures) == 1
    check_recovered(root, history)


@pytest.mark.parametrize("error", ["ENOSPC", "EIO"])
@pytest.mark.parametrize("nth", [1, 2, 5, 9])
def test_a_refused_write_never_appears_and_the_next_one_goes_on(
    tmp_path: Path, seed: int, nth: int, error: str
) -> None:
    require_strace()
    root = tmp_path / "root"

    said, history = run_with_a_failing_call(root, seed, "pwritev,pwritev2", error, nth)

    assert [one.error for one in said if isinstance(one, Failure)] == ["Unavailable"]
    assert len(history.acknowledged) == 39
    check_recovered(root, history)


@pytest.mark.parametrize("reserve_bytes", [0, 256 * KIB])
def test_a_full_disk_refuses_and_goes_on_when_there_is_room_again(
    tmp_path: Path, seed: int, reserve_bytes: int
) -> None:
    require_root()
    history = History(seed)
    counter = 0

    def append_until(log: FrameLog, *, acknowledged: int, refused: int) -> None:
        """Go on until there were this many of either."""
        nonlocal counter
        while acknowledged > 0 and refused > 0:
            name = WriteName(seed, 0, 0, counter)
            counter += 1
            drafts, checksum = drafts_of(name)
            try:
                receipt = log.append(drafts)
            except Unavailable:
                history.refused.add(name)
                refused -= 1
            else:
                history.acknowledged[name] = Acknowledgement(
                    0, name.counter, receipt.first_lsn, receipt.last_lsn, checksum
                )
                acknowledged -= 1

    with small_file_system(tmp_path / "small", 2 * 1024 * KIB) as root:
        ballast = root / "ballast"
        ballast.write_bytes(bytes(512 * KIB))

        with open_here(root, reserve_bytes=reserve_bytes) as log:
            append_until(log, acknowledged=100_000, refused=20)
            acknowledged_when_full = len(history.acknowledged)
            history.check_shown(read_frames(log))
            ballast.unlink()
            append_until(log, acknowledged=20, refused=1)
            assert len(history.acknowledged) > acknowledged_when_full, "there is room again"

        assert acknowledged_when_full > 50
        check_recovered(root, history)


def test_a_log_that_was_killed_on_a_full_disk_opens_again(tmp_path: Path, seed: int) -> None:
    require_root()
    history = History(seed)

    with small_file_system(tmp_path / "small", 2 * 1024 * KIB) as root:
        settings = AppenderSettings(seed, failures_max=10, segment_size_bytes_max=64 * KIB, close=0)
        with running_appender(root, settings) as appender:
            assert appender.wait() == 0
        failures = history.add_lines(0, appender.lines)
        assert {failure.error for failure in failures} == {"Unavailable"}

        # Neither a reader nor a writer needs room: what the claim writes lies where its predecessor's lay.
        with open_here(root) as log:
            history.check_shown(read_frames(log))
        check_recovered(root, history)


def test_the_errors_of_this_machine_are_the_ones_that_are_meant(tmp_path: Path) -> None:
    require_root()

    with small_file_system(tmp_path / "small", 64 * KIB) as root, (root / "file").open("wb", buffering=0) as file:
        written = file.write(bytes(256 * KIB))
        with pytest.raises(OSError, match="No space left") as caught:
            file.write(b"more")

    assert caught.value.errno == errno.ENOSPC
    assert written == 64 * KIB - os.sysconf("SC_PAGE_SIZE") or written == 64 * KIB, "a short write comes first"
