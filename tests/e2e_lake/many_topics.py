"""Twenty topics, one of them keyed, in one log: what they hold, and whether their tables hold the same.

NOT HERE The comparison itself: same_rows.py, which asks another engine.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa

import headwater as hw
from headwater.lake.catalog import catalog_place
from headwater.lake.shape import landing_table
from tests.e2e_lake.land_driver import SETTINGS
from tests.e2e_lake.same_rows import check_history, compare

ROW = pa.schema([("id", pa.int64()), ("note", pa.string()), ("price", pa.decimal128(12, 2))])


def fill(directory: Path, seed: int, *, topics: int = 20, writes: int = 8, rows: int = 400) -> dict[str, pa.Table]:
    """Rows of all topics, mixed; returns what the log holds of each, with where each row lies."""
    drawn = random.Random(seed)
    with hw.open(directory, settings=SETTINGS) as log:
        names = [f"topic_{number:02}" for number in range(topics)]
        keyed = names[-1]
        handles = {
            name: log.topic(name, schema=ROW, partitions=2, table=f"sales.{name}", key="id" if name == keyed else None)
            for name in names
        }
        for write in range(writes):
            for name in drawn.sample(names, topics):
                numbers = [drawn.randrange(200) if name == keyed else write * rows + each for each in range(rows)]
                notes = [f"{name} {number} " * drawn.randrange(1, 4) for number in numbers]
                prices = pa.array([number % 977 for number in numbers], pa.int32()).cast(pa.decimal128(12, 2))
                handles[name].append(pa.table([pa.array(numbers), pa.array(notes), prices], schema=ROW))
            handles[keyed].delete([{"id": number} for number in drawn.sample(range(200), 5)])
        return {name: handles[name].read(system_columns=True).to_arrow() for name in names}


def check_tables(directory: Path, expected: dict[str, pa.Table]) -> None:
    """Every table has the rows of its topic, each once, and landings that join end to end."""
    place = catalog_place(None, directory=str(directory))
    tables = place.connect()
    try:
        with hw.open(directory, settings=SETTINGS) as log:
            for name, rows in expected.items():
                state = tables.load(landing_table(log._engine.topic(name)))
                assert state is not None, f"{name} has no table"
                compare(rows, state.native)  # type: ignore[arg-type]
                assert check_history(state.native)  # type: ignore[arg-type]
    finally:
        tables.close()


def check_outcomes(expected: dict[str, pa.Table], printed: str) -> str:
    """All topics landed, all their rows; returns the version of the Spark that did it."""
    told = json.loads(printed.strip().splitlines()[-1])
    assert {name: (each["outcome"], each["rows"]) for name, each in told["topics"].items()} == {
        name: ("landed", rows.num_rows) for name, rows in expected.items()
    }, told["messages"]
    return str(told["version"])
