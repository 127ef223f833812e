"""The commands on topics as processes: pipes, a follower beside a writer, a signal, an owner elsewhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headwater as hw
from tests.unit.cli.topics import ORDERS, SETTINGS, make_topics, rows_of

HEADWATER = [sys.executable, "-W", "error", "-m", "headwater"]
TIMEOUT_S = 60


def environment(data: Path) -> dict[str, str]:
    # Buffered, as it is for most people: what a follower sees must not depend on it.
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**kept, "HEADWATER_DATA": str(data)}


def headwater(data: Path, *arguments: str | Path, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*HEADWATER, *map(str, arguments)],
        input=given,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(data),
    )


@contextmanager
def started(data: Path, *arguments: str, stdin: int | None = None) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*HEADWATER, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(data),
        # As on a terminal, whatever the shell that started the tests does with interrupts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        stdin=stdin,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_topics(tmp_path / "data")


def test_a_topic_is_made_filled_and_read_by_three_processes(tmp_path: Path) -> None:
    data = tmp_path / "data"

    made = headwater(data, "topic", "create", "orders", "--schema", ORDERS)
    filled = headwater(data, "append", "orders", given='{"order_id":1,"amount":9.5}\n{"order_id":2}\n')
    read = headwater(data, "read", "orders", "--columns", "order_id")

    assert (made.returncode, filled.returncode, read.returncode) == (0, 0, 0)
    assert (made.stderr, filled.stderr, read.stderr) == ("", "", "")
    assert read.stdout == '{"order_id":1}\n{"order_id":2}\n'


def test_a_follower_sees_each_row_when_it_is_appended_and_ends_well_by_an_interrupt(data: Path) -> None:
    with started(data, "read", "orders", "--follow", "--columns", "order_id") as follower:
        assert follower.stdout is not None
        there = [follower.stdout.readline() for _ in range(3)]
        with hw.open(data, settings=SETTINGS) as log:
            log["orders"].append([{"order_id": 4}])
            fourth = follower.stdout.readline()
            log["orders"].append([{"order_id": 5}])
            fifth = follower.stdout.readline()
        follower.send_signal(signal.SIGINT)
        rest, complaint = follower.communicate(timeout=TIMEOUT_S)

    assert [json.loads(line)["order_id"] for line in (*there, fourth, fifth)] == [1, 2, 3, 4, 5]
    assert (follower.returncode, rest, complaint) == (0, "", "")


def test_rows_of_a_pipe_that_stays_open_are_appended_as_they_come_and_an_interrupt_says_how_many(data: Path) -> None:
    with started(data, "append", "orders", stdin=subprocess.PIPE) as loader:
        assert loader.stdin is not None
        loader.stdin.write('{"order_id":4}\n{"order_id":5}\n')
        loader.stdin.flush()
        with hw.open(data, settings=SETTINGS) as log:
            batches = iter(log["orders"].read(start={0: 0, 1: 0}, follow=True, timeout_s=TIMEOUT_S, batch_rows=1))
            for _ in range(5):
                next(batches)
        loader.send_signal(signal.SIGINT)
        told, complaint = loader.communicate(timeout=TIMEOUT_S)

    assert loader.returncode == 130
    assert told.startswith("orders: 2 rows appended")
    assert complaint == "Interrupted: go on with --skip-rows 2.\n"


def test_an_owner_in_another_process_is_named(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as owner:
        owner["orders"].append([{"order_id": 4}])

        appended = headwater(data, "append", "orders", given='{"order_id":5}\n')
        read = headwater(data, "read", "orders")

    assert appended.returncode == 75
    assert f"pid {os.getpid()}" in appended.stderr
    assert "Traceback" not in appended.stderr
    assert read.returncode == 0
    assert len(read.stdout.splitlines()) == 4


def test_a_pipe_that_is_closed_early_ends_a_read_without_a_word(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        for _ in range(20):
            log["orders"].append([{"order_id": number, "note": "x" * 100} for number in range(1_000)])

    with started(data, "read", "orders") as reader:
        assert reader.stdout is not None
        reader.stdout.readline()
        reader.stdout.close()
        reader.stdout = None
        _, complaint = reader.communicate(timeout=TIMEOUT_S)

    assert (reader.returncode, complaint) == (75, "")


def test_a_file_larger_than_a_block_is_appended_whole(data: Path, tmp_path: Path) -> None:
    rows = 120_000
    (tmp_path / "rows.ndjson").write_text(
        "".join(f'{{"order_id":{number},"note":"{"x" * 40}"}}\n' for number in range(rows))
    )

    done = headwater(data, "append", "orders", tmp_path / "rows.ndjson", "--json")

    told = json.loads(done.stdout)
    assert (told["rows"], told["error"]) == (rows, None)
    assert told["writes"] > 1
    assert sum(row["order_id"] for row in rows_of(data, "orders")[3:]) == rows * (rows - 1) // 2
