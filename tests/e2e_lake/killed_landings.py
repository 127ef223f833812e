"""A lander dies at a point of the landing; whoever lands next makes it whole.

    rows = lands_although_it_dies(point, directory, catalog, killed)

`directory` is a data directory or a bucket; `killed` runs killed_driver.py, on Spark or by local processes, and says
with which code it ended.  After each death a lander without any memory of it runs; then the table is what the log was,
row for row, as another engine reads it, landings join end to end, and nothing is in flight for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

import headwater as hw
from headwater.lake.catalog import catalog_place
from tests.e2e_lake.killed_driver import LATE_S, SETTINGS
from tests.e2e_lake.landers import lander, ledger_in, topics_with_tables
from tests.e2e_lake.same_rows import check_history, compare
from tests.unit.topics.small_engines import engine_of

POINTS = [f"P{number}" for number in range(1, 15)]
LIVES = {"P3"}
"""Here a worker dies and its driver goes on."""
TOPICS = ("orders", "payments")

Catalog = Mapping[str, Any]
Killed = Callable[[str, str, Catalog], int]
"""Runs a driver to a point, on a log and a catalog, and gives its exit code."""


def append_rows(directory: str, first: int, count: int) -> dict[str, pa.Table]:
    """Rows of two topics, a segment after each; returns all that the log holds of both, with offsets."""
    with hw.open(directory, settings=SETTINGS) as log:
        for name in TOPICS:
            topic = log.topic(name, schema={"id": int, "note": str}, table=f"sales.{name}", partitions=2)
            topic.append([{"id": first + each, "note": f"{name} {each}" * 8} for each in range(count)])
        engine_of(log).shard.log.roll()
        return {name: log[name].read(system_columns=True).to_arrow() for name in TOPICS}


def lands_although_it_dies(point: str, directory: str, catalog: Catalog, killed: Killed, *, rows: int = 4000) -> None:
    place = catalog_place(catalog, directory=directory)
    append_rows(directory, 0, rows)
    with hw.open(directory, settings=SETTINGS) as log:
        lander(log, place).round(topics_with_tables(log))
    expected = append_rows(directory, 1_000_000, rows)

    assert killed(point, directory, catalog) == (0 if point in LIVES else -9)
    if point == "P14":
        # The lander that was to make it whole dies too, before it has written down what it found.
        assert killed("P9", directory, catalog) == -9
    if point == "P8":
        time.sleep(LATE_S + 1)

    with hw.open(directory, settings=SETTINGS) as log:
        report = lander(log, place).round(topics_with_tables(log))
        assert not report.halted and not report.failed, report
        again = lander(log, place).round(topics_with_tables(log))
        assert [each.outcome for each in again] == ["nothing", "nothing"]
        assert all(each.verified for each in again), again
        log.cleanup()
        tables = place.connect()
        ledger = ledger_in(directory)
        for name in TOPICS:
            state = tables.load(f"sales.{name}")
            assert state is not None
            compare(expected[name], state.native)  # type: ignore[arg-type]
            check_history(state.native)  # type: ignore[arg-type]
            assert ledger.state().topic(log[name].topic_id).landed_lsn > 0
        ledger.close()
        tables.close()
