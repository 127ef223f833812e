"""Landers for tests of real processes: put together from the parts themselves, so that each seam can be stopped.

lander(log, place)             a Lander on an open log and a catalog
python -m tests.e2e_lake.landers DIRECTORY CATALOG-JSON
                               a process that runs one round for each line it reads, and says what came of it
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import headwater as hw
from headwater.clock import SystemClock, system_entropy
from headwater.lake.catalog import CatalogPlace, catalog_place
from headwater.lake.lander import Lander
from headwater.lake.ledger import LandingLedger, Ledger
from headwater.lake.runner import InProcess, Runner
from headwater.lake.source import EngineSource
from headwater.lake.tables import Tables
from headwater.metadata.operations import TopicRecord
from headwater.settings import LandingSettings
from headwater.storage.places import open_files
from tests.unit.topics.small_engines import engine_of


def ledger_in(directory: str) -> Ledger:
    return Ledger(open_files(directory), clock=SystemClock(), entropy=system_entropy)


def lander(
    log: hw.Log,
    place: CatalogPlace,
    *,
    runner: Runner | None = None,
    ledger: LandingLedger | None = None,
    connect: Callable[[], Tables] | None = None,
) -> Lander:
    return Lander(
        EngineSource(engine_of(log), log.directory),
        connect or place.connect,
        ledger or ledger_in(log.directory),
        runner or InProcess(),
        clock=SystemClock(),
        entropy=system_entropy,
        settings=LandingSettings(commit_threads=2),
    )


def topics_with_tables(log: hw.Log) -> list[TopicRecord]:
    return [topic for topic in engine_of(log).metadata().topics.values() if topic.table is not None]


def main() -> None:
    directory, catalog = sys.argv[1:]
    place = catalog_place(json.loads(catalog), directory=directory)
    with hw.open(directory) as log:
        print("ready", flush=True)
        for _ in sys.stdin:
            report = lander(log, place).round(topics_with_tables(log))
            print(json.dumps([[each.outcome, each.rows, each.message] for each in report]), flush=True)


if __name__ == "__main__":
    main()
