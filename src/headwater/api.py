"""Log and Topic: what a user has in hand.  Thin: parse, name, hand on to the engine.

    import headwater as hw

    with hw.open("data/") as log:
        orders = log.topic("orders", schema={"order_id": int, "amount": float})
        orders.append([{"order_id": 1, "amount": 9.5}])          # durable when it returns
        orders.read().to_pylist()

NOT HERE What any of it does: topics/engine.py and its neighbours.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import pyarrow as pa

from headwater.clock import Clock, Entropy, SystemClock, system_entropy
from headwater.errors import Closed, InvalidRequest, UnknownTopic
from headwater.lake.landing import Lake, chosen, from_the_extra
from headwater.lake.ledger_records import Verification
from headwater.lake.report import LandingReport
from headwater.settings import LandingSettings, LogSettings, Settings
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files
from headwater.storage.simulated import SimulatedFiles
from headwater.topics.answers import (
    Appended,
    GroupDescription,
    OffsetRange,
    SourcePosition,
    Status,
    TopicDescription,
    TopicStatus,
)
from headwater.topics.appending import OnRejected, key_hash
from headwater.topics.cleanup import CleanupReport
from headwater.topics.compaction import Compacted, CompactionReport
from headwater.topics.consumer import Consumer
from headwater.topics.describing import describe, describe_groups, describe_topic, describe_topics
from headwater.topics.engine import Engine
from headwater.topics.notebook import html_of_topic, html_of_topics
from headwater.topics.positions import Lsn, Where
from headwater.topics.producers import Producer
from headwater.topics.reading import Rows, Wanted
from headwater.topics.requests import Identity
from headwater.topics.retention import Landings
from headwater.topics.schema import BYTES, unpack_schema
from headwater.topics.topic import Duration, NewTopic
from headwater.topics.transactions import Transaction

if TYPE_CHECKING:
    from headwater.lake.catalog_check import CheckedProperty
    from headwater.lake.maintenance import MaintenanceReport
    from headwater.lake.state_table import MergeMode
    from headwater.lake.upkeep import UpkeepSettings
    from headwater.spark.merge import TopicMerge

__all__ = [
    "open",
    "Log",
    "Topic",
    "NewTopic",
    "BYTES",
    "Lsn",
    "Settings",
    "LogSettings",
    "LandingSettings",
    "Appended",
    "LandingReport",
    "Rows",
    "Consumer",
    "Producer",
    "Transaction",
]

MEMORY = ":memory:"
_ALL_AT_ONCE_ROWS = 65_536


def open(
    where: str | os.PathLike[str] | Files,
    *,
    catalog: str | Mapping[str, Any] | None = None,
    spark_catalog: str | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
    landings: Landings | None = None,
) -> Log:
    """Open a data directory; it is made when something is first written.

    Reading claims nothing.  The first write takes the lock, and this process owns the log until it closes it.
    ":memory:" keeps everything in memory, for trying things out: it is gone when the log is closed.

    `catalog` is where the tables are: a name of pyiceberg's configuration, or its properties; without it SQLite, in the
    data directory.  `spark_catalog` is what Spark calls it, where that is another name.
    """
    files: Files
    if isinstance(where, str) and where == MEMORY:
        files = SimulatedFiles(remember_calls=False)
        directory = MEMORY
    elif isinstance(where, str | os.PathLike):
        directory = _checked_directory(os.fspath(where))
        files = DiskFiles(directory)
    else:
        files = where
        directory = type(where).__name__
    clock = clock if clock is not None else SystemClock()
    lake = Lake(files, directory, catalog=catalog, spark_catalog=spark_catalog, clock=clock, entropy=entropy)
    try:
        engine = Engine(
            files,
            directory=directory,
            settings=settings if settings is not None else Settings(),
            clock=clock,
            entropy=entropy,
            landings=landings if landings is not None else lake.landings,
        )
    except NotADirectoryError as error:
        raise InvalidRequest(f"{directory} is a file, and a log is a directory", directory=directory) from error
    return Log(engine, directory, lake)


def _checked_directory(where: str) -> str:
    if not where:
        raise InvalidRequest("say which directory is to be opened; '.' is this one")
    if "://" in where:
        raise InvalidRequest(f"{where!r} is not a directory of this machine, and no other place can be opened yet")
    return str(Path(where).expanduser())


class Log:
    """An open data directory: its topics, and what spans them.  Close it, or use it in a `with`."""

    def __init__(self, engine: Engine, directory: str, lake: Lake | None = None) -> None:
        self._engine = engine
        self._lake = lake
        self.directory = directory

    # Topics ------------------------------------------------------------------------------------

    def topic(
        self,
        name: str,
        schema: object = None,
        *,
        partitions: int | None = None,
        key: str | Sequence[str] | None = None,
        time: str | None = None,
        table: str | None = None,
        partition_by: str | Sequence[str] | None = None,
        cleanup: str | None = None,
        retention: Duration | None = None,
        retention_bytes: int | str | None = None,
        tombstones: Duration | None = None,
        changes_retention: Duration | None = None,
    ) -> Topic:
        """The topic of this name; with `schema` it is created if it is not there.

        `schema` is a dataclass, a pydantic model, a `pa.Schema` or a dict of types; `hw.BYTES` for bytes.  Asking for
        what is there is nothing; asking for something else is a TopicExists that names the difference.
        `table` is where its rows land; `partition_by` is how that table is made if it is not there: "day(created_at)",
        "bucket(16, id)", "region".
        """
        wanted = NewTopic(
            name,
            schema,
            partitions=partitions,
            key=key,
            time=time,
            table=table,
            partition_by=partition_by,
            cleanup=cleanup,
            retention=retention,
            retention_bytes=retention_bytes,
            tombstones=tombstones,
            changes_retention=changes_retention,
        )
        if schema is None:
            # Without a schema a name that is not there is more likely mistyped than meant.
            self._engine.topic(name)
        return self.create_topics([wanted])[0]

    def create_topics(self, topics: Iterable[NewTopic]) -> list[Topic]:
        """All of these topics, created together as far as they are not there: one write of the journal."""
        records = self._engine.create_topics(list(topics))
        return [Topic(self._engine, record.number, record.name) for record in records]

    def topics(self) -> list[TopicStatus]:
        """Every topic, by name."""
        return describe_topics(self._engine)

    def delete_topic(self, name: str, *, force: bool = False) -> None:
        """Delete a topic; its table stays.  Refused while rows are not in the table yet, unless forced."""
        self._engine.delete_topic(name, force=force)

    def __getitem__(self, name: str) -> Topic:
        return Topic(self._engine, self._engine.topic(name).number, name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._engine.metadata().topic_named(name) is not None

    # Over topics -------------------------------------------------------------------------------

    def transaction(
        self, *, producer: Producer | None = None, idempotency_key: str | bytes | None = None
    ) -> Transaction:
        """Rows of any topics, consumer offsets and source positions, as one write."""
        return Transaction(self._engine, producer=producer, idempotency_key=idempotency_key)

    def producer(self, name: str) -> Producer:
        """A producer whose requests are applied once; whoever had this name before is fenced."""
        return Producer(self._engine, name)

    def source_position(self, name: str) -> SourcePosition | None:
        """How far an outside source has been taken in, by the last transaction that said so."""
        return self._engine.source_position(name)

    def consumer(
        self,
        topic: str,
        *,
        group: str,
        start: Literal["earliest", "latest"] = "earliest",
        batch_rows: int = 65_536,
        timeout_s: float | None = None,
    ) -> Consumer:
        """A member of a group, which shares the topic's partitions with the others.  See docs/consumer-groups.md."""
        return self._engine.consumer(topic, group, start=start, batch_rows=batch_rows, timeout_s=timeout_s)

    def groups(self) -> list[GroupDescription]:
        return describe_groups(self._engine)

    # The lake ----------------------------------------------------------------------------------

    def land(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        due_only: bool = False,
        spark: Any = None,
        verify: Verification = "read-back",
        after_rollback: str | Iterable[str] = (),
        landed_lsn: Mapping[str, int] | None = None,
    ) -> LandingReport:
        """Land once: put the rows of these topics, or of all that have a table, into their tables, exactly once.  With
        `due_only`, those whose oldest row is older than `freshness_s`, or that have enough for a file.

        With `spark` its tasks write the files, else processes of this machine.  A topic that needs a person is in the
        report as halted, and the others are landed: docs/landing.md says what each cause means, and when to give
        `after_rollback` or `landed_lsn`.
        """
        runner = None
        if spark is not None:
            from headwater.spark.run import SparkRunner

            runner = SparkRunner(spark)
        return self._beside().land(
            self._engine,
            topics,
            due_only=due_only,
            runner=runner,
            verify=verify,
            after_rollback=after_rollback,
            landed_lsn=landed_lsn,
        )

    def merge(
        self,
        topics: str | Iterable[str] | None = None,
        *,
        spark: Any,
        mode: MergeMode = "copy-on-write",
        after_rollback: str | Iterable[str] = (),
    ) -> tuple[TopicMerge, ...]:
        """Bring the tables of keyed topics up to the changes that have landed, by a MERGE in Spark."""
        with from_the_extra():
            from headwater.spark.tables import merge_tables
        wanted = chosen(self._engine, topics)
        return merge_tables(spark, self._beside(), wanted, mode=mode, after_rollback=after_rollback)

    def maintain(
        self, topics: str | Iterable[str] | None = None, *, spark: Any = None, settings: UpkeepSettings | None = None
    ) -> MaintenanceReport:
        """Look after the tables: expire snapshots, remove orphans, say what others did; with Spark, compact."""
        with from_the_extra():
            from headwater.lake.upkeep import UpkeepSettings
            from headwater.spark.tables import keep_tables
        return keep_tables(spark, self._beside(), chosen(self._engine, topics), settings or UpkeepSettings())

    def spark_config(self, spark_version: str | None = None) -> dict[str, str]:
        """The settings of a Spark session that reaches the tables: `SparkSession.builder.config(map=...)`."""
        from headwater.spark.session import spark_config

        lake = self._beside()
        return spark_config(lake.place, lake.spark_catalog, spark_version=spark_version)

    def check_catalog(self) -> tuple[CheckedProperty, ...]:
        """Race real commits on a table of its own: whether the catalog keeps what exactly-once needs."""
        return self._beside().check_catalog()

    def _beside(self) -> Lake:
        self._engine.metadata()
        if self._lake is None:
            raise InvalidRequest("this log was opened without a lake beside it")
        return self._lake

    # Upkeep ------------------------------------------------------------------------------------

    def cleanup(self) -> CleanupReport:
        """Do now what the topics' policies ask for; the owner also does it by itself, once a minute."""
        return self._engine.cleanup()

    def compact(self, *topics: str) -> CompactionReport:
        """Compact these topics now; without a name, all whose policy says so."""
        if topics:
            numbers = [self._engine.topic(name).number for name in topics]
        else:
            records = self._engine.metadata().topics.values()
            numbers = [each.number for each in records if each.key and each.policy.cleanup != "delete"]
        return self._engine.compact(numbers)

    def checkpoint(self) -> bool:
        """Make checkpoints now, so that the next opening has nothing to replay; False where nothing was new."""
        return self._engine.checkpoint()

    def flush(self) -> None:
        """Return when everything that was asked for before is durable.  An append that has returned is so already."""
        self._engine.flush()

    def status(self) -> Status:
        found = describe(self._engine, self.directory)
        return found if self._lake is None else self._lake.completed(found, self._engine)

    def close(self) -> None:
        """Serve what is queued and let go of the log; twice is nothing."""
        try:
            self._engine.close()
        finally:
            if self._lake is not None:
                self._lake.close()

    def __enter__(self) -> Self:
        self._engine.metadata()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Log({self.directory!r})"

    def _repr_html_(self) -> str | None:
        try:
            return html_of_topics(f"Headwater log {self.directory}", self.topics())
        except Closed:
            return None  # a notebook then shows its repr


class Topic:
    """A topic: append to it, read it, change it."""

    def __init__(self, engine: Engine, number: int, name: str) -> None:
        self._engine = engine
        self._number = number
        self._name = name

    # About it ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        return self._name

    @property
    def number(self) -> int:
        return self._number

    @property
    def topic_id(self) -> str:
        """Which incarnation this is: a topic that is deleted and created again has another."""
        return self._engine.topic_numbered(self._number).topic_id.hex()

    @property
    def schema(self) -> pa.Schema:
        return unpack_schema(self._engine.topic_numbered(self._number).schemas[-1])

    @property
    def partitions(self) -> int:
        return self._engine.topic_numbered(self._number).partitions

    @property
    def key(self) -> tuple[str, ...]:
        return self._engine.topic_numbered(self._number).key

    def describe(self) -> TopicDescription:
        return describe_topic(self._engine, self._engine.topic_numbered(self._number))

    def offsets(self) -> dict[int, OffsetRange]:
        """Of each partition, the first offset that the log holds and the next that it will give."""
        return self._engine.offsets(self._number)

    def alter(
        self,
        *,
        schema: object = None,
        add: Mapping[str, object] | None = None,
        widen: Mapping[str, object] | None = None,
        partitions: int | None = None,
        table: str | None = None,
        partition_by: str | Sequence[str] | None = None,
        cleanup: str | None = None,
        retention: Duration | None = None,
        retention_bytes: int | str | None = None,
        tombstones: Duration | None = None,
        changes_retention: Duration | None = None,
    ) -> Topic:
        """Add nullable columns, widen types, add partitions, change the policy, name a table.

        What would lose or change rows that are there is refused: fewer partitions, a narrower type, a column less.
        """
        self._engine.alter_topic(
            self._number,
            schema=schema,
            add=add,
            widen=widen,
            partitions=partitions,
            table=table,
            partition_by=partition_by,
            cleanup=cleanup,
            retention=retention,
            retention_bytes=retention_bytes,
            tombstones=tombstones,
            changes_retention=changes_retention,
        )
        return self

    # Writing -----------------------------------------------------------------------------------

    def append(
        self,
        rows: object,
        *,
        partition: int | None = None,
        rejected: OnRejected = "refuse",
        expect_offset: int | None = None,
        idempotency_key: str | bytes | None = None,
    ) -> Appended:
        """Append one row or many; they are durable, all of them, when it returns.

        Rows that do not fit the schema are refused by number and reason, and nothing is appended; with
        `rejected="keep"` they go to `<topic>.rejected` in the same write, and the others are appended.
        """
        return self._engine.append(
            self._number,
            rows,
            partition=partition,
            rejected=rejected,
            expect_offset=expect_offset,
            identity=self._identity(idempotency_key),
        )

    def append_future(
        self,
        rows: object,
        *,
        partition: int | None = None,
        rejected: OnRejected = "refuse",
        expect_offset: int | None = None,
        idempotency_key: str | bytes | None = None,
    ) -> Future[Appended]:
        """The same without waiting; the future is done when the rows are durable.

        In asyncio: `await asyncio.wrap_future(topic.append_future(row))`."""
        return self._engine.append_future(
            self._number,
            rows,
            partition=partition,
            rejected=rejected,
            expect_offset=expect_offset,
            identity=self._identity(idempotency_key),
        )

    def append_all(self, batches: Iterable[object], *, rejected: OnRejected = "refuse") -> list[Appended]:
        """Append each item of an iterable, rows or a batch of them, as a write of its own.

        It is not atomic: where one is refused, those before it are durable, and it raises."""
        return [self.append(rows, rejected=rejected) for rows in batches]

    def upsert(self, rows: object, *, idempotency_key: str | bytes | None = None) -> Appended:
        """Each row is the latest of its key from now on."""
        if not self.key:
            raise InvalidRequest(f"{self.name!r} has no key: use append", topic=self.name)
        return self.append(rows, idempotency_key=idempotency_key)

    def delete(self, keys: object, *, idempotency_key: str | bytes | None = None) -> Appended:
        """These keys have no row from now on: `delete([{"id": 42}])`, or `delete(42)` where the key is one column."""
        return self._engine.delete_keys(self._number, keys, identity=self._identity(idempotency_key))

    def _identity(self, idempotency_key: str | bytes | None) -> Identity | None:
        """The topic's own: the same key in another topic is another request."""
        if idempotency_key is None:
            return None
        topic = self._engine.topic_numbered(self._number)
        return Identity(key=key_hash(idempotency_key, topic.topic_id))

    # Reading -----------------------------------------------------------------------------------

    def read(
        self,
        start: Where = "earliest",
        stop: Where | None = None,
        *,
        limit: int | None = None,
        batch_rows: int = _ALL_AT_ONCE_ROWS,
        follow: bool = False,
        timeout_s: float | None = None,
        columns: Sequence[str] | None = None,
        partition: int | None = None,
        system_columns: bool = False,
    ) -> Rows:
        """Rows in the order of the log: iterate over batches, or `to_arrow()`, `to_pandas()`, `to_polars()`,
        `to_pylist()`.

        `start` and `stop` (exclusive) are "earliest", "latest", a time with its zone, `hw.Lsn(n)`, or offsets:
        {partition: offset}, or a number with `partition=`.  With `follow` it waits for more, until nothing has come for
        `timeout_s`.
        """
        wanted = Wanted(
            start=start,
            stop=stop,
            limit=limit,
            batch_rows=batch_rows,
            follow=follow,
            timeout_s=timeout_s,
            columns=columns,
            partition=partition,
            system_columns=system_columns,
        )
        return self._engine.read(self._number, wanted)

    def compact(self) -> Compacted:
        """Compact it now: the latest row of each key stays; says what was saved."""
        report = self._engine.compact([self._number])
        for failure in report.failures:
            raise failure.error
        return report.compacted[0]

    def __repr__(self) -> str:
        return f"Topic({self.name!r})"

    def _repr_html_(self) -> str | None:
        try:
            return html_of_topic(self.describe())
        except (Closed, UnknownTopic):
            return None  # a notebook then shows its repr


def __dir__() -> list[str]:
    return __all__
