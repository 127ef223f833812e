"""Runners: every work is answered, whoever dies; attempts have numbers of their own; few bytes stay in this process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import headwater as hw
import headwater.lake.runner
from headwater.errors import InvalidRequest
from headwater.lake.digest import combine
from headwater.lake.runner import InProcess, LocalProcesses
from headwater.lake.work import Done, LandDone, LandWork, ReadBackDone, ReadBackWork, failed
from tests.unit.lake.landing_works import done_for, record_of, rows_in, rows_read, target_for, works_for

SCHEMA = {"id": int, "name": str | None}


@pytest.fixture
def processes() -> Iterator[LocalProcesses]:
    """Two, for however little there is to do."""
    with LocalProcesses(2, in_process_bytes_max=0) as runner:
        yield runner


def works(folder: Path, count: int = 6) -> tuple[list[LandWork], hw.Topic, bytes]:
    with hw.open(folder / "data") as log:
        topic = log.topic("t", schema=SCHEMA)
        for number in range(60):
            topic.append([{"id": number * 10 + each, "name": "x"} for each in range(10)])
        target = target_for(record_of(topic), folder / "table")
        found = works_for(log, {record_of(topic): target}, item_bytes=60 * 1_000 // count)
        assert len(found) > 2
    return found, topic, target


def landed(done: list[Done]) -> list[LandDone]:
    return [each for each in done if isinstance(each, LandDone)]


def test_local_processes_write_what_this_one_writes(tmp_path: Path, processes: LocalProcesses) -> None:
    given, topic, target = works(tmp_path)

    apart = landed(list(processes.run(given)))
    here = landed(list(InProcess().run(given)))

    assert len(apart) == len(here) == len(given)
    own = done_for(apart, topic.number)
    assert [each.error for each in own if each.error] == []
    assert combine(each.digest for each in own) == combine(each.digest for each in done_for(here, topic.number))
    with hw.open(tmp_path / "data") as log:
        rows = rows_in(target, own)
        assert rows.equals(rows_read(log["t"], rows.schema))


def test_processes_are_kept_from_one_run_to_the_next(tmp_path: Path, processes: LocalProcesses) -> None:
    given, _, _ = works(tmp_path)

    list(processes.run(given))
    first = {worker._process.pid for worker in processes._idle}
    list(processes.run(given))
    second = {worker._process.pid for worker in processes._idle}
    processes.close()
    processes.close()

    assert first == second and 1 <= len(first) <= 2
    assert not processes._idle
    for pid in first:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("runner", [InProcess(), LocalProcesses(2, in_process_bytes_max=0)], ids=["here", "apart"])
def test_no_two_attempts_of_a_runner_write_the_same_name(tmp_path: Path, runner: InProcess | LocalProcesses) -> None:
    given, topic, _ = works(tmp_path)

    done = [*runner.run(given), *runner.run(given)]
    if isinstance(runner, LocalProcesses):
        runner.close()

    paths = [file.path for each in done_for(landed(done), topic.number) for file in each.files]
    assert len(paths) == len(set(paths)) == 2 * len(given)


def test_little_work_is_done_in_this_process(tmp_path: Path) -> None:
    given, topic, _ = works(tmp_path)
    with LocalProcesses(2) as runner:
        done = landed(list(runner.run(given)))

        assert not runner._idle
    assert sum(each.digest.rows for each in done_for(done, topic.number)) == 600


def test_works_whose_processes_die_fail_alone(tmp_path: Path, processes: LocalProcesses) -> None:
    """A file that is a FIFO without a writer holds its process, which is then killed, as by a machine out of memory."""
    given, topic, _ = works(tmp_path)
    held = tmp_path / "data" / "log" / "held.seg"
    os.mkfifo(held)
    # Larger than the others, so that they are begun first.
    stuck = LandWork(given[0].directory, held.name, ((0, 1 << 30),), 0, given[0].topics)
    list(processes.run(given))
    workers = list(processes._idle)

    def kill() -> None:
        for worker in workers:
            worker._process.kill()

    killing = threading.Timer(1.0, kill)
    killing.start()
    done = landed(list(processes.run([*given, *([stuck] * len(workers))])))
    killing.join()

    own = done_for(done, topic.number)
    failed = [each.error for each in own if each.error]
    assert len(own) == len(given) + len(workers)
    assert len(failed) == len(workers) and all("ended with -9" in error for error in failed)
    assert sum(each.digest.rows for each in own) == 600


def test_a_process_that_has_ended_between_two_runs_is_replaced(tmp_path: Path, processes: LocalProcesses) -> None:
    given, topic, _ = works(tmp_path)
    list(processes.run(given))
    for worker in processes._idle:
        worker._process.kill()
        worker._process.wait()

    again = done_for(landed(list(processes.run(given))), topic.number)

    assert [each.error for each in again if each.error] == []
    assert sum(each.digest.rows for each in again) == 600


def test_leaving_a_run_half_way_ends_its_processes(tmp_path: Path, processes: LocalProcesses) -> None:
    given, topic, _ = works(tmp_path)

    running = processes.run(given)
    next(running)
    running.close()  # type: ignore[attr-defined]  # it is a generator

    assert not processes._idle
    again = landed(list(processes.run(given)))
    assert sum(each.digest.rows for each in done_for(again, topic.number)) == 600


def test_read_back_runs_apart_too_and_errors_stay_with_their_work(tmp_path: Path, processes: LocalProcesses) -> None:
    given, topic, target = works(tmp_path)
    done = done_for(landed(list(InProcess().run(given))), topic.number)
    back = [ReadBackWork(target, tuple(file.path for file in each.files), number) for number, each in enumerate(done)]
    back.append(ReadBackWork(target, ("/nowhere/at-all.parquet",), 99))
    back.append(ReadBackWork(b"no target", ("/nowhere/at-all.parquet",), 100))

    told = {each.number: each for each in processes.run(back) if isinstance(each, ReadBackDone)}

    assert [told[number].digest for number in range(len(done))] == [each.digest for each in done]
    assert "at-all.parquet" in (told[99].error or "")
    assert told[100].error is not None


def test_a_work_that_cannot_even_be_begun_fails_alone_and_its_process_goes_on(
    tmp_path: Path, processes: LocalProcesses
) -> None:
    given, topic, _ = works(tmp_path)
    unread = tuple(msgspec.structs.replace(each, schemas=(b"no schema",)) for each in given[0].topics)
    garbled = msgspec.structs.replace(given[0], topics=unread)

    own = done_for(landed(list(processes.run([garbled, *given]))), topic.number)

    (error,) = [each.error for each in own if each.error]
    assert "ended with" not in error
    assert sum(each.digest.rows for each in own) == 600


def test_a_work_that_was_not_done_counts_for_nothing(tmp_path: Path) -> None:
    given, topic, target = works(tmp_path)

    told = failed(given[0], "why")
    back = failed(ReadBackWork(target, ("x.parquet",), 7, item=2), "why")

    assert isinstance(told, LandDone) and [(each.number, each.error, each.files) for each in told.topics] == [
        (topic.number, "why", ())
    ]
    assert isinstance(back, ReadBackDone) and (back.number, back.item, back.unread, back.error) == (7, 2, "why", None)


def test_where_no_process_can_be_started_that_is_said(
    tmp_path: Path, processes: LocalProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, _, _ = works(tmp_path)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))

    with pytest.raises(FileNotFoundError, match="no-python"):
        list(processes.run(given))

    assert not processes._idle


def test_a_process_that_does_not_end_by_itself_is_ended(
    tmp_path: Path, processes: LocalProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, _, _ = works(tmp_path)
    list(processes.run(given))
    pids = [worker._process.pid for worker in processes._idle]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(headwater.lake.runner, "_END_WITHIN_S", 0.1)

    processes.close()

    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_without_a_package_that_landing_needs_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given, _, _ = works(tmp_path)
    for module in ("headwater.lake.task", "headwater.lake.data_files"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, "numpy", None)

    with pytest.raises(InvalidRequest, match=r"landing needs numpy: pip install 'headwater\[lake\]'"):
        list(InProcess().run(given))


PROGRAM = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from headwater.lake.runner import LocalProcesses
from tests.unit.lake.test_runner import works

given, topic, _ = works(Path({folder!r}))
print(sum(1 for _ in LocalProcesses(2, in_process_bytes_max=0).run(given)) == len(given))
"""


def test_a_plain_program_needs_no_guard_and_leaves_no_process_behind(tmp_path: Path) -> None:
    """Processes of `multiprocessing` import the program again, and one without a guard would start itself over."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(root=str(Path(__file__).resolve().parents[3]), folder=str(tmp_path)))

    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120)

    assert done.stdout == "True\n", done.stderr
    assert done.returncode == 0
