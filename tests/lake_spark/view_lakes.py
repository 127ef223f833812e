"""Logs whose topics are read as views in this process's Spark, and what each view must show: the log replayed.

with view_lake(tmp_path) as lake:
    lake.append(range(10)); lake.change({1: "Ann"}, gone=[2]); lake.log.land()
    assert lake.in_spark(scan) == lake.replayed(scan)
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import headwater as hw
from headwater.clock import SystemClock, system_entropy
from headwater.lake.catalog import catalog_place
from headwater.lake.landing import _identity
from headwater.lake.ledger import Ledger
from headwater.lake.ledger_records import CheckedCatalog
from headwater.lake.shape import SYSTEM_COLUMNS, lake_schema
from headwater.lake.upkeep import UpkeepSettings
from headwater.settings import KIB, LogSettings
from headwater.storage.disk import DiskFiles
from tests.lake_spark.sessions import local_spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS, CUSTOMERS = "sales.orders", "crm.customers"
SMALL_SEGMENTS = hw.Settings(
    log=LogSettings(
        segment_size_bytes_max=8 * KIB, write_body_bytes_max=8 * KIB, reserve_bytes=0, deletion_grace_s=0.0
    ),
    upkeep_interval_s=0.0,
)
"""A few rows of some size fill a segment, and what may be deleted goes at once."""
EAGER = UpkeepSettings(small_files_min=2, snapshots_kept=1, readers_s=0.0, orphan_age_s=0.0)
"""Compaction of any two files, and nothing is kept that need not be."""

FOR_FEW_ROWS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Compiling a query takes longer than these tests' rows do."""

Rows = list[dict[str, Any]]


@contextmanager
def opened(folder: Path, **options: Any) -> Iterator[hw.Log]:
    """A log whose catalog is taken to keep its word: that a SQLite one does is shown elsewhere, and takes seconds."""
    place = catalog_place(None, directory=str(folder))
    ledger = Ledger(DiskFiles(folder), clock=SystemClock(), entropy=system_entropy)
    try:
        ledger.record([CheckedCatalog(catalog=_identity(place), passed=True, properties={}, at_us=1)])
    finally:
        ledger.close()
    with hw.open(folder, settings=SMALL_SEGMENTS, **options) as log:
        yield log


def session_for(log: hw.Log, **settings: str) -> SparkSession:
    """A session of its own, on this process's Spark, that knows the log's catalog."""
    session = local_spark().newSession()
    for name, value in {**log.spark_config(), **FOR_FEW_ROWS, **settings}.items():
        if session.conf.isModifiable(name) or name.startswith("spark.sql.catalog."):
            session.conf.set(name, value)
    return session


def in_order(rows: Rows) -> Rows:
    return sorted(rows, key=repr)


def from_spark(frame: DataFrame) -> Rows:
    return in_order(frame.toArrow().to_pylist())


def several_from_spark(frames: Sequence[DataFrame]) -> list[Rows]:
    """The rows of several frames, of plain values, by one job: small ones are mostly waiting."""
    together = [
        frame.selectExpr(f"{number} AS number", "to_json(struct(*), map('ignoreNullFields', 'false')) AS row")
        for number, frame in enumerate(frames)
    ]
    found: list[Rows] = [[] for _ in frames]
    for number, row in reduce(lambda one, other: one.union(other), together).collect():
        found[number].append(json.loads(row))
    return [in_order(rows) for rows in found]


def from_arrow(scan: hw.Scan) -> Rows:
    """The same without Spark, in the types that tables have."""
    full = pa.schema([*lake_schema(scan.wanted.own), *SYSTEM_COLUMNS])
    types = pa.schema([full.field(name).with_nullable(True) for name in scan.schema.names])
    return in_order(scan.to_arrow().cast(types).to_pylist())


@dataclass
class ViewLake:
    """A topic without a key and one with a key, and all that was ever written to them."""

    log: hw.Log
    orders: hw.Topic
    customers: hw.Topic
    spark: SparkSession
    appended: list[tuple[int, Rows]] = field(default_factory=list)
    """By LSN."""
    changed: list[tuple[int, dict[int, str | None]]] = field(default_factory=list)
    """By LSN: names, or None for what was deleted."""

    def append(self, numbers: Iterable[int], padding: int = 100) -> None:
        rows = [{"id": each, "amount": each / 2, "note": "x" * padding} for each in numbers]
        self.appended.append((self.orders.append(rows).lsn, rows))

    def change(self, names: Mapping[int, str], gone: Iterable[int] = ()) -> None:
        if names:
            told = self.customers.upsert([{"id": each, "name": name} for each, name in names.items()])
            self.changed.append((told.lsn, dict(names)))
        if gone:
            told = self.customers.delete([{"id": each} for each in gone])
            self.changed.append((told.lsn, dict.fromkeys(gone)))

    def replayed(self, scan: hw.Scan) -> Rows:
        """What a scan of a whole topic must show: everything that was written up to its cut, again."""
        lsn = scan.cut.lsn
        if not scan.topic.key:
            return in_order([row for at, rows in self.appended if at <= lsn for row in rows])
        names: dict[int, str | None] = {}
        for at, changes in self.changed:
            if at <= lsn:
                names.update(changes)
        return in_order([{"id": each, "name": name} for each, name in names.items() if name is not None])

    def in_spark(self, *scans: hw.Scan) -> list[Rows]:
        return several_from_spark([scan.to_spark(self.spark) for scan in scans])

    def scans(self, as_of: Any = None) -> tuple[hw.Scan, hw.Scan]:
        return self.orders.scan(as_of=as_of), self.customers.scan(as_of=as_of)

    def keep(self) -> Any:
        return self.log.maintain(spark=self.spark, settings=EAGER)


@contextmanager
def view_lake(folder: Path) -> Iterator[ViewLake]:
    with opened(folder) as log:
        orders = log.topic("orders", schema={"id": int, "amount": float, "note": str}, table=ORDERS, partitions=2)
        customers = log.topic("customers", schema={"id": int, "name": str}, key="id", table=CUSTOMERS)
        yield ViewLake(log, orders, customers, session_for(log))
