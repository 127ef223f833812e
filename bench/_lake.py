"""A lake for benches: rows of about 128 bytes, a Spark on two cores, and rounds of landing with their accounts.

with spark_on_two_cores() as spark
    with lake(directory, spark) as place
        place.fill("topic", rows=4_000_000)
        landed = place.land("topic")
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa

import headwater as hw
from bench._engines import engine_of
from headwater.clock import SystemClock, system_entropy
from headwater.lake.catalog import CatalogPlace
from headwater.lake.lander import Lander
from headwater.lake.ledger_records import Verification
from headwater.lake.plan import plan_landing
from headwater.lake.report import LandingReport
from headwater.lake.runner import Runner
from headwater.lake.shape import LSN_METRICS, TABLE_PROPERTIES, landing_table, table_shape
from headwater.lake.source import EngineSource
from headwater.lake.tables import Staged, Tables
from headwater.lake.upkeep import UpkeepSettings
from headwater.lake.work import Done, LandDone, LandWork, TopicWork, Work
from headwater.metadata.operations import TopicRecord
from headwater.spark.maintain import maintain
from headwater.spark.run import SparkRunner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_APPEND = 10_000
TEXT_CHARACTERS = 72
START_US = 1_767_225_600_000_000  # 2026-01-01, UTC
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("customer", pa.int64(), nullable=False),
        pa.field("amount", pa.float64(), nullable=False),
        pa.field("created_at", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("region", pa.string()),
        pa.field("text", pa.string()),
    ]
)
REGIONS = np.array(["eu-west", "us-east", "ap-south"])


def batch_of(first: int, count: int, step_us: int = 1_000) -> pa.RecordBatch:
    """Rows of about 120 bytes; random text, so that nothing is cheaper than it would be for a user."""
    random = np.random.default_rng(first)
    text = random.bytes(count * TEXT_CHARACTERS // 2).hex().encode()
    ends = np.arange(0, (count + 1) * TEXT_CHARACTERS, TEXT_CHARACTERS, dtype=np.int32)
    ids = np.arange(first, first + count)
    return pa.record_batch(
        [
            pa.array(ids),
            pa.array(random.integers(0, 1_000_000, count)),
            pa.array(random.random(count) * 100),
            pa.array(START_US + ids * step_us).cast(pa.timestamp("us", "UTC")),
            pa.array(REGIONS[random.integers(0, len(REGIONS), count)]),
            pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(text)]),
        ],
        schema=SCHEMA,
    )


@contextmanager
def spark_on_two_cores(jars: Sequence[Path] = ()) -> Iterator[SparkSession]:
    """The one Spark of this process, with these jars besides; catalogs are added to sessions of it."""
    from pyspark.sql import SparkSession

    from headwater.spark.session import ICEBERG_EXTENSIONS, ICEBERG_PACKAGES, JDBC_PACKAGES

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    import pyspark

    version = ".".join(pyspark.__version__.split(".")[:2])
    settings = {
        "spark.jars.packages": ",".join([ICEBERG_PACKAGES[version], *JDBC_PACKAGES.values()]),
        "spark.sql.extensions": ICEBERG_EXTENSIONS,
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "4g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2]").appName("bench")
    if jars:
        settings["spark.jars"] = ",".join(map(str, jars))
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


# Accounts ---------------------------------------------------------------------------------------------------------


@dataclass
class Accounts:
    """A runner, and what its tasks have cost."""

    runner: Runner
    cpu_s: dict[str, float] = field(default_factory=dict)
    bytes_read: int = 0

    def run(self, works: Sequence[Work]) -> Iterator[Done]:
        for done in self.runner.run(works):
            if isinstance(done, LandDone):
                self.bytes_read += done.bytes_read
                for part, seconds in done.cpu_s.items():
                    self.cpu_s[part] = self.cpu_s.get(part, 0.0) + seconds
            yield done


class SlowCommits:
    """A connection whose commits take a while longer, as a catalog far away does."""

    def __init__(self, tables: Tables, seconds: float) -> None:
        self._tables = tables
        self._seconds = seconds

    def commit(self, staged: Staged) -> None:
        time.sleep(self._seconds)
        self._tables.commit(staged)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables, name)


@dataclass(frozen=True)
class Landed:
    """A round of landing."""

    report: LandingReport
    accounts: Accounts

    @property
    def seconds(self) -> float:
        """Without reading back."""
        return self.report.seconds - self.report.verify_s

    @property
    def digest_share(self) -> float:
        return self.accounts.cpu_s["digest"] / sum(self.accounts.cpu_s.values())


# The lake ---------------------------------------------------------------------------------------------------------


class BenchLake:
    """A log, its catalog and a Spark session that knows it."""

    def __init__(self, log: hw.Log, directory: Path, spark: SparkSession) -> None:
        self.log = log
        self.directory = directory
        self.spark = spark.newSession()
        assert log._lake is not None
        self._lake = log._lake
        for name, value in log.spark_config().items():
            if name.startswith("spark.sql.catalog."):
                self.spark.conf.set(name, value)
        self.catalog = self.place.name
        self._lake.check_catalog_once()

    @property
    def place(self) -> CatalogPlace:
        return self._lake.place

    def record(self, topic: str) -> TopicRecord:
        return self.log._engine.topic(topic)

    def fill(self, name: str, rows: int, *, partition_by: str | None = None, step_us: int = 1_000) -> None:
        """A topic with a table of its name, and this many rows, in segments of their own."""
        engine_of(self.log).shard.log.roll()
        topic = self.log.topic(name, schema=SCHEMA, table=f"bench.{name}", partition_by=partition_by)
        for first in range(0, rows, ROWS_PER_APPEND):
            topic.append(batch_of(first, min(ROWS_PER_APPEND, rows - first), step_us))

    def make_table(self, topic: str) -> None:
        """The topic's own table, empty: making one is not what a landing costs."""
        record = self.record(topic)
        with closing(self.place.connect()) as tables:
            tables.create(landing_table(record), table_shape(record))

    def land(
        self,
        *topics: str,
        runner: Runner | None = None,
        verify: Verification = "read-back",
        connect: Callable[[], Tables] | None = None,
    ) -> Landed:
        """Steps 1 to 8, by Spark unless another runner is given."""
        accounts = Accounts(runner if runner is not None else SparkRunner(self.spark))
        lander = Lander(
            EngineSource(engine_of(self.log), str(self.directory)),
            connect if connect is not None else self.place.connect,
            self._lake.ledger,
            accounts,
            clock=SystemClock(),
            entropy=system_entropy,
            settings=self.log._engine.settings.landing,
        )
        report = lander.round([self.record(topic) for topic in topics], verify=verify)
        bad = [each for each in report.topics if each.outcome != "landed"]
        assert not bad, bad
        return Landed(report, accounts)

    def slow_connect(self, seconds: float) -> Callable[[], Tables]:
        return lambda: cast(Tables, SlowCommits(self.place.connect(), seconds))

    def maintain(self, topic: str) -> None:
        """Upkeep, as if landings were minutes apart: no reader of an older snapshot is waited for."""
        report = maintain(
            self.spark,
            self.catalog,
            self.place,
            [self.record(topic)],
            self._lake.ledger,
            SystemClock(),
            system_entropy,
            UpkeepSettings(readers_s=0.0),
        )
        assert not any(table.cause or table.left for table in report.tables), report

    # What others do with the same rows ---------------------------------------------------------------------------

    def works(self, topic: str, target: bytes) -> list[LandWork]:
        """The works that landing a topic from its beginning is cut into."""
        source = EngineSource(engine_of(self.log), str(self.directory))
        settings = self.log._engine.settings.landing
        record = self.record(topic)
        plan = plan_landing(
            {record.number: 0},
            source.segments(),
            durable_lsn=source.durable_lsn(),
            budget_bytes=1 << 50,
            item_bytes=settings.item_bytes,
        )
        own = TopicWork(record.number, "6b5bd1cf-4b9d-4a4b-9f6d-0c8e0f6a7d11", 0, plan.lsn_to, record.schemas, target)
        return [
            LandWork(source.directory, segment, runs, source.shard, (own,), slots)
            for planned in plan.ranges
            for segment, runs, slots in source.runs(planned, settings.item_bytes)
        ]

    def table_like(self, topic: str, name: str) -> bytes:
        """An empty table of the same shape as the topic's; returns its write target."""
        with closing(self.place.connect()) as tables:
            shape = table_shape(self.record(topic))
            return tables.fit(tables.create(f"bench.{name}", shape), shape).target

    def append_by_spark(self, rows: DataFrame, table: str, *, partition_by: str | None = None) -> float:
        """Spark's own append into a table that Spark has made; the seconds that it took.

        Its columns may be null, as Spark makes them of files: into required ones Spark appends at half the rate."""
        properties = ", ".join(
            f"'{name}' = '{value}'"
            for name, value in TABLE_PROPERTIES.items()
            if name != LSN_METRICS or "_hw_lsn" in rows.columns
        )
        name = f"{self.catalog}.bench.{table}"
        rows.limit(0).writeTo(name).using("iceberg").create()
        self.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({properties})")
        if partition_by is not None:
            self.spark.sql(f"ALTER TABLE {name} ADD PARTITION FIELD {partition_by}")
        begun = time.perf_counter()
        rows.writeTo(name).append()
        return time.perf_counter() - begun

    def forget_files(self, table: str) -> None:
        """Give back the room of a table that is not needed any more."""
        for data in (self.directory / "lake").rglob(f"{table}/data"):
            shutil.rmtree(data)


@contextmanager
def lake(directory: Path, spark: SparkSession) -> Iterator[BenchLake]:
    """A lake of its own in this directory, which is removed at the end."""
    try:
        with hw.open(directory) as log:
            log.topic("warm-up", schema=SCHEMA)
            yield BenchLake(log, directory, spark)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
