"""A log with a keyed topic, landed into a SQLite lake and merged by this process's Spark.

with keyed_lake(tmp_path) as lake:
    lake.topic.upsert([...]); lake.log.land(); lake.merge()
    assert lake.state() == lake.expected()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import headwater as hw
from headwater.clock import ManualClock, SystemClock, system_entropy
from headwater.lake.care import Care, TableUpkeep
from headwater.lake.catalog import CatalogPlace, catalog_place
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.landing import _identity
from headwater.lake.ledger import Ledger
from headwater.lake.ledger_records import CheckedCatalog
from headwater.lake.state_table import MergeMode
from headwater.lake.tables import TableState
from headwater.lake.upkeep import UpkeepSettings
from headwater.metadata.operations import TopicRecord
from headwater.storage.disk import DiskFiles
from tests.lake_spark.sessions import SqliteLake, session_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headwater.spark.merge import TopicMerge

SCHEMA = {"id": int, "name": str}
TABLE, CHANGES = "crm.customers", "crm.customers_changes"
DAY_S = 86_400.0


@dataclass
class KeyedLake:
    log: hw.Log
    topic: hw.Topic
    lake: SqliteLake
    ledger: Ledger
    clock: ManualClock = field(default_factory=lambda: ManualClock(SystemClock().now_us()))
    """Upkeep's and the merge's: it can be sent days ahead."""

    @property
    def place(self) -> CatalogPlace:
        return catalog_place(self.lake.pyiceberg_properties, directory=str(self.lake.folder))

    @cached_property
    def spark(self) -> SparkSession:
        return session_on(self.lake)

    @property
    def record(self) -> TopicRecord:
        found = self.log._engine.topic(self.topic.name)
        assert isinstance(found, TopicRecord)
        return found

    def connect(self) -> IcebergTables:
        return self.place.connect()

    def load(self, table: str = TABLE) -> TableState:
        tables = self.connect()
        try:
            state = tables.load(table)
        finally:
            tables.close()
        assert state is not None
        return state

    def land(self) -> hw.LandingReport:
        return self.log.land()

    def merge(self, mode: MergeMode = "copy-on-write", **options: Any) -> TopicMerge:
        from headwater.spark.merge import merge_topic

        return merge_topic(
            self.spark,
            self.lake.name,
            self.place,
            self.record,
            self.ledger,
            self.clock,
            system_entropy,
            mode,
            **options,
        )

    def care(self, **settings: Any) -> dict[str, TableUpkeep]:
        care = Care(
            self.connect,
            self.ledger,
            clock=self.clock,
            entropy=system_entropy,
            settings=UpkeepSettings(**settings),
        )
        return {told.table: told for told in care.of_topic(self.record)}

    def state(self, columns: str = "id, name") -> list[tuple[Any, ...]]:
        """The state table as Spark reads it."""
        return self.sql(f"SELECT {columns} FROM lake.{TABLE} ORDER BY id")

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(statement).collect()]


@contextmanager
def keyed_lake(folder: Path, *, schema: Any = None, key: str | tuple[str, ...] = "id") -> Iterator[KeyedLake]:
    lake = SqliteLake(folder)
    data = folder / "data"
    with hw.open(data, catalog=lake.pyiceberg_properties) as log:
        topic = log.topic("customers", schema=schema or SCHEMA, key=key, table=TABLE)
        ledger = Ledger(DiskFiles(data), clock=SystemClock(), entropy=system_entropy)
        keyed = KeyedLake(log, topic, lake, ledger)
        # That a SQLite catalog keeps its word is shown elsewhere, and takes seconds.
        ledger.record([CheckedCatalog(catalog=_identity(keyed.place), passed=True, properties={}, at_us=1)])
        try:
            yield keyed
        finally:
            ledger.close()
