"""`headwater land` as a process of its own, beside one that writes: signals, exit codes, and what is in the table.

A table is compared with the log by DuckDB (same_rows.py), after the writer has ended and before the log forgets.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

import headwater as hw
from headwater.lake.catalog import catalog_place
from tests.e2e_lake.same_rows import check_history, compare

WAIT_S = 120.0
WRITER = """
import select, sys
import headwater as hw

with hw.open(sys.argv[1]) as log:
    topics = [log.topic(name, {"x": int, "note": str}, table=f"lake.{name}", partitions=2) for name in sys.argv[2:]]
    number = 0
    while number == 0 or not select.select([sys.stdin], [], [], 0.02)[0]:
        for topic in topics:
            topic.append([{"x": number + each, "note": "n" * (each % 7)} for each in range(50)])
        number += 50
        if number == 50:
            print("ready", flush=True)
    print(number, flush=True)
"""


def headwater(data: Path, *arguments: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "headwater", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "HEADWATER_DATA": str(data), **(env or {})},
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=WAIT_S)
    return process.returncode, out, err


def told(data: Path, *arguments: str) -> dict[str, Any]:
    code, out, err = ended(headwater(data, *arguments, "--json"))
    assert out, f"exit code {code}: {err}"
    found: dict[str, Any] = json.loads(out)
    return {**found, "exit_code": code}


@contextmanager
def writer(data: Path, *topics: str) -> Iterator[subprocess.Popen[str]]:
    """A process that appends until its stdin says something."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(data), *topics], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def stop(process: subprocess.Popen[str]) -> int:
    """How many rows of each topic it has appended."""
    out, _ = process.communicate("stop\n", timeout=WAIT_S)
    return int(out.split()[-1])


def wait_until(what: str, holds: Any) -> None:
    end = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < end, f"{what} has not come to be"
        time.sleep(0.2)


def check(data: Path, *topics: str) -> int:
    """Each table holds what its log holds, once; the number of rows."""
    tables = catalog_place(None, directory=str(data)).connect()
    rows = 0
    with hw.open(data) as log:
        for topic in topics:
            table = tables.catalog.load_table(f"lake.{topic}")
            found: pa.Table = log[topic].read(system_columns=True).to_arrow()
            compare(found, table)
            check_history(table)
            rows += found.num_rows
    tables.close()
    return rows


def test_a_lander_beside_a_writer_keeps_up_and_ends_cleanly_on_a_signal(tmp_path: Path) -> None:
    with writer(tmp_path, "orders", "clicks") as writing:
        lander = headwater(tmp_path, "land", "--every", "500ms", "--freshness", "500ms")
        try:
            landed: list[int] = []

            def has_landed_thrice() -> bool:
                lsn = min(each["landed_lsn"] for each in told(tmp_path, "status")["landing"])
                if lsn and lsn not in landed:
                    landed.append(lsn)
                return len(landed) >= 3

            wait_until("a third landing", has_landed_thrice)
            appended = stop(writing)
            wait_until(
                "the last landing",
                lambda: all(each["lag_rows"] == 0 for each in told(tmp_path, "status")["landing"]),
            )
            lander.send_signal(signal.SIGTERM)
            code, out, err = ended(lander)
        finally:
            lander.kill()
            lander.communicate()

    assert code == 0, err
    assert check(tmp_path, "orders", "clicks") == 2 * appended
    lines = [line for line in out.splitlines() if " rows into lake." in line]
    assert len(lines) >= 6 and all("commit" in line and "lag" in line for line in lines)
    assert "MB/s" in err
    assert sum(int(line.split(": ")[1].split(" row")[0].replace(",", "")) for line in lines) == 2 * appended


def test_whenever_it_is_stopped_or_killed_the_next_one_goes_on_from_the_table(tmp_path: Path) -> None:
    with writer(tmp_path, "orders") as writing:
        for number, (how, after_s) in enumerate(
            [(signal.SIGINT, 4.0), (signal.SIGTERM, 5.0), (signal.SIGKILL, 4.5), (signal.SIGTERM, 2.0)]
        ):
            lander = headwater(tmp_path, "land", "--every", "50ms", "--freshness", "1ms")
            time.sleep(after_s + number * 0.07)
            lander.send_signal(how)
            code, _, err = ended(lander)
            # Before its signals are its own, a process that is told to end ends, as any other.
            assert code in ({-9} if how is signal.SIGKILL else {0, 1, -2, -15, 130}), err
        appended = stop(writing)

    last = told(tmp_path, "land")

    assert (last["exit_code"], last["topics"][0]["verified"]) == (0, True)
    assert check(tmp_path, "orders") == appended


def test_a_second_signal_abandons_the_round_and_loses_nothing(tmp_path: Path) -> None:
    with hw.open(tmp_path) as log:
        topic = log.topic("orders", {"x": int, "note": str}, table="lake.orders")
        for _ in range(10):
            topic.append([{"x": number, "note": "n" * 50} for number in range(20_000)])

    lander = headwater(tmp_path, "land")
    wait_until("the round", lambda: (tmp_path / "ledger").exists() or lander.poll() is not None)
    lander.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    lander.send_signal(signal.SIGTERM)
    code, _, err = ended(lander)

    assert code in {0, 130}, err
    assert ("abandoned" in err) == (code == 130)
    assert told(tmp_path, "land")["exit_code"] == 0
    assert check(tmp_path, "orders") == 200_000


def test_what_a_script_is_told(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with hw.open(data) as log:
        for name in ("orders", "clicks"):
            log.topic(name, {"x": int}, table=f"lake.{name}").append([{"x": 1}])
    assert told(data, "land")["exit_code"] == 0
    assert told(data, "land")["exit_code"] == 0, "nothing to do"

    # One table is gone: a person decides about it, and the other one is landed all the same.
    tables = catalog_place(None, directory=str(data)).connect()
    tables.catalog.drop_table("lake.orders")
    tables.close()
    with hw.open(data) as log:
        log["orders"].append([{"x": 2}])
        log["clicks"].append([{"x": 2}])
    halted = told(data, "land")
    assert halted["exit_code"] == 3
    assert [(each["topic"], each["outcome"], each["cause"]) for each in halted["topics"]] == [
        ("clicks", "landed", ""),
        ("orders", "halted", "gap"),
    ]
    assert told(data, "land", "--after-rollback", "orders")["exit_code"] == 0
    assert check(data, "orders", "clicks") == 4

    # Nobody answers where the catalog should be.
    away = {"PYICEBERG_CATALOG__AWAY__URI": "http://127.0.0.1:9", "PYICEBERG_CATALOG__AWAY__TYPE": "rest"}
    code, out, err = ended(headwater(data, "land", "--catalog", "away", "--json", env=away))
    assert code == 75, err
    assert json.loads(out)["error"]["exit_code"] == 75

    assert ended(headwater(tmp_path / "nothing", "land"))[0] == 2
    assert ended(headwater(data, "land", "nope"))[0] == 2
    assert ended(headwater(data, "check", "--catalog"))[0] == 0
