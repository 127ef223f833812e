"""Two and three landers at once, each a process of its own, on real catalogs: whoever wins, every row is in once.

A race: rows are appended, every lander is told to land in the same moment, and when all have answered the table is
compared with the log by another engine.  HEADWATER_RACES says how many, over all catalogs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import headwater as hw
from headwater.lake.catalog import catalog_place
from tests.e2e_lake.catalog_servers import lake_catalog
from tests.e2e_lake.landers import lander, topics_with_tables
from tests.e2e_lake.same_rows import check_history, compare

RACES = int(os.environ.get("HEADWATER_RACES", "100"))
KINDS = ("sqlite", "postgres", "rest")
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def landers(count: int, directory: str, catalog: dict[str, str]) -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that land when they are told to, and end with the test."""
    command = [sys.executable, "-m", "tests.e2e_lake.landers", directory, json.dumps(catalog)]
    started = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT)
        for _ in range(count)
    ]
    try:
        for each in started:
            assert each.stdout is not None and each.stdout.readline() == "ready\n"
        yield started
    finally:
        for each in started:
            with each:  # closes its pipes, and waits
                each.kill()


def race(racers: list[subprocess.Popen[str]]) -> list[list[tuple[str, int, str]]]:
    """All at once; what each says of its topics."""
    for each in racers:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    answers = []
    for each in racers:
        assert each.stdout is not None
        line = each.stdout.readline()
        assert line, "a lander ended"
        answers.append(json.loads(line))
    return answers


@pytest.mark.timeout(600)
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_landers_that_race_leave_every_row_in_the_table_once(kind: str, count: int, tmp_path: Path) -> None:
    races = -(-RACES // (len(KINDS) * 2))
    with lake_catalog(kind, tmp_path) as catalog, hw.open(tmp_path / "data") as log:
        place = catalog_place(catalog, directory=log.directory)
        orders = log.topic("orders", schema={"id": int, "name": str}, table="sales.orders", partitions=2)
        orders.append([{"id": 0, "name": "first"}])
        with landers(count, log.directory, catalog) as racers:
            landed = 0
            for number in range(races):
                orders.append([{"id": number * 100 + each, "name": f"row {each}"} for each in range(50)])

                answers = race(racers)

                told = [answer[0] for answer in answers]
                # A database that refuses one of two tables of a name may say so before the other is there to be seen.
                unmade = [message for outcome, _, message in told if outcome == "failed" and "be made" in message]
                assert not unmade or number == 0, told
                assert all(outcome in {"landed", "lost", "nothing"} for outcome, _, _ in told) or unmade, told
                landed += sum(rows for outcome, rows, _ in told if outcome == "landed")
                # Whoever came too early for the last rows may have been told that another was faster: land the rest.
                landed += lander(log, place).round(topics_with_tables(log)).rows
                tables = place.connect()
                state = tables.load("sales.orders")
                assert state is not None
                compare(orders.read(system_columns=True).to_arrow(), state.native)  # type: ignore[arg-type]
                check_history(state.native)  # type: ignore[arg-type]
                tables.close()
            assert landed == races * 50 + 1
