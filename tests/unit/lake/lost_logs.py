"""A log that has landed, its data directory without the log, and what a restore makes of it.

lost = LostLog(tmp_path)                two topics, landed; the catalog is beside the data directory
lost.lose()                             log, journal, checkpoints and ledger are gone
report = lost.restore()
with lost.open() as log: ...
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

import headwater as hw
from headwater.clock import SystemClock
from headwater.frames.frame import Kind
from headwater.lake.catalog import catalog_place
from headwater.lake.from_lake import FromLake, RestoredLog
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.lander import Lander
from headwater.lake.ledger import Ledger
from headwater.lake.ledger_records import LedgerRecord, unpack_ledger_record
from headwater.lake.mark import Mark, mark_in_summary
from headwater.lake.report import LandingReport
from headwater.lake.runner import InProcess
from headwater.lake.source import EngineSource
from headwater.lake.tables import TableState
from headwater.log.frame_log import open_log
from headwater.storage.disk import DiskFiles
from tests.unit.lake.small_lakes import LOG, NARROW, SETTINGS
from tests.unit.topics.small_engines import engine_of

PARTS = ("log", "journal", "checkpoints", "ledger")


class LostLog:
    def __init__(self, folder: Path, seed: int = 1) -> None:
        self.folder = folder / "data"
        self.place = catalog_place(
            {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/lake"},
            directory=str(folder),
        )
        self.clock = SystemClock()
        self.entropy = Random(seed).randbytes

    @contextmanager
    def open(self, folder: Path | None = None) -> Iterator[hw.Log]:
        catalog = {"name": self.place.name, **self.place.properties}
        with hw.open(folder or self.folder, settings=SETTINGS, catalog=catalog, entropy=self.entropy) as log:
            yield log

    def land(self, log: hw.Log, *names: str) -> LandingReport:
        """As log.land() does, without the check of the catalog, which takes seconds and is shown elsewhere."""
        lake = log._lake
        assert lake is not None
        lander = Lander(
            EngineSource(engine_of(log), log.directory),
            self.place.connect,
            lake.ledger,
            InProcess(),
            clock=self.clock,
            entropy=self.entropy,
            settings=NARROW,
        )
        topics = engine_of(log).metadata().topics.values()
        return lander.round([each for each in topics if each.table is not None and (not names or each.name in names)])

    def lose(self, kept: Path | None = None) -> None:
        """The log is gone; `kept` is where a copy of it turns up again."""
        if kept is not None:
            shutil.copytree(self.folder, kept)
        for part in PARTS:
            shutil.rmtree(self.folder / part)

    def restoring(self, files: Any = None, connect: Any = None) -> FromLake:
        return FromLake(
            files if files is not None else DiskFiles(self.folder),
            str(self.folder),
            connect or self.place.connect,
            clock=self.clock,
            entropy=self.entropy,
            settings=SETTINGS,
        )

    def restore(self, **options: Any) -> RestoredLog:
        return self.restoring().restore(**options)

    # What is there -----------------------------------------------------------------------------

    def tables(self) -> IcebergTables:
        return self.place.connect()

    def state(self, name: str) -> TableState:
        with closing(self.tables()) as tables:
            state = tables.load(name)
        assert state is not None
        return state

    def marks(self, name: str) -> list[Mark]:
        """The landings of main's history, the oldest first."""
        state = self.state(name)
        found: list[Mark] = []
        snapshot = state.head()
        while snapshot is not None:
            mark = mark_in_summary(snapshot.summary)
            if mark is not None:
                found.append(mark)
            snapshot = state.snapshots.get(snapshot.parent_id) if snapshot.parent_id is not None else None
        return found[::-1]

    def change_properties(self, name: str, **changed: str | None) -> None:
        """What an owner does to a table's properties; names with _ for - and for the dot behind headwater."""
        named = {f"headwater.{key}": value for key, value in changed.items()}
        with closing(self.tables()) as tables, tables.catalog.load_table(name).transaction() as change:
            gone = [key for key, value in named.items() if value is None]
            if gone:
                change.remove_properties(*gone)
            change.set_properties({key: value for key, value in named.items() if value is not None})

    def ledger(self) -> list[LedgerRecord]:
        with open_log(DiskFiles(self.folder), "ledger", settings=LOG, clock=self.clock) as log:
            return [unpack_ledger_record(frame.body) for frame in log.read() if frame.header.kind == Kind.LEDGER]

    def known(self) -> Ledger:
        return Ledger(DiskFiles(self.folder), clock=self.clock, entropy=self.entropy)


def orders_and_customers(lost: LostLog) -> None:
    """Two landings: 11 rows of orders in two partitions, 3 changes of customers; two rows have not landed."""
    with lost.open() as log:
        orders = log.topic("orders", schema={"x": int}, table="lake.orders", partitions=2, retention="30d")
        customers = log.topic("customers", schema={"id": int, "name": str}, key="id", table="crm.customers")
        log.topic("notes", schema={"x": int})
        orders.append([{"x": number} for number in range(10)], partition=0)
        customers.upsert([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
        lost.land(log)
        orders.append([{"x": 10}], partition=1)
        customers.delete([{"id": 1}])
        lost.land(log)
        orders.append([{"x": 11}, {"x": 12}], partition=0)
