"""An open data directory.  Thin: parse, name, hand on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

from headwater.api.topic import Topic
from headwater.errors import Closed, InvalidRequest
from headwater.lake.cut import Cut
from headwater.lake.extra import from_the_extra
from headwater.lake.landing import Lake, chosen
from headwater.lake.ledger_records import Verification
from headwater.lake.report import LandingReport
from headwater.lake.runner import Runner
from headwater.lake.view import AsOf, Views
from headwater.topics.answers import (
    GroupDescription,
    SourcePosition,
    Status,
    TopicStatus,
)
from headwater.topics.cleanup import CleanupReport
from headwater.topics.compaction import CompactionReport
from headwater.topics.consumer import Consumer
from headwater.topics.notebook import html_of_topics
from headwater.topics.producers import Producer
from headwater.topics.redrive import Redriven, counts, redrive
from headwater.topics.store_status import StoreWatch
from headwater.topics.topic import Duration, NewTopic
from headwater.topics.transactions import Transaction
from headwater.topics.verbs import Verbs

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from headwater.lake.audit_report import AuditReport
    from headwater.lake.catalog_check import CheckedProperty
    from headwater.lake.duckdb_query import Selected
    from headwater.lake.erasure_report import ErasureReport
    from headwater.lake.maintenance import MaintenanceReport
    from headwater.lake.restoring import RestoreReport
    from headwater.lake.state_table import MergeMode
    from headwater.lake.tracing import RowTrace
    from headwater.lake.upkeep import UpkeepSettings
    from headwater.spark.merge import TopicMerge
    from headwater.topics.engine import Engine


class Log:
    """An open data directory, or bucket: its topics, and what spans them.  Close it, or use it in a `with`."""

    def __init__(
        self, engine: Verbs, directory: str, lake: Lake | None = None, store: StoreWatch | None = None
    ) -> None:
        self._engine = engine
        self._lake = lake
        self._store = store
        self._views: Views | None = None
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
        return [Topic(self._engine, record.number, record.name, self._viewed) for record in records]

    def topics(self) -> list[TopicStatus]:
        """Every topic, by name."""
        return self._engine.describe_topics()

    def delete_topic(self, name: str, *, force: bool = False) -> None:
        """Delete a topic; its table stays.  Refused while rows are not in the table yet, unless forced."""
        self._engine.delete_topic(name, force=force)

    def __getitem__(self, name: str) -> Topic:
        return Topic(self._engine, self._engine.topic(name).number, name, self._viewed)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._engine.topic_named(name) is not None

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

    def redrive(
        self, topic: str, *, corrected: Iterable[Mapping[str, Any]] | None = None, dry_run: bool = False
    ) -> Redriven:
        """Append the rejected rows of a topic that fit now, or these corrected ones, once each."""
        return redrive(self._engine, self._engine.topic(topic), corrected=corrected, dry_run=dry_run)

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
        """The consumer groups: their members, what each has committed, and how far behind it is."""
        return self._engine.describe_groups()

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
        return self._beside().land(
            self._viewed().source,
            topics,
            due_only=due_only,
            runner=self._runner(spark),
            verify=verify,
            after_rollback=after_rollback,
            landed_lsn=landed_lsn,
        )

    @staticmethod
    def _runner(spark: Any) -> Runner | None:
        if spark is None:
            return None
        from headwater.spark.run import SparkRunner

        return SparkRunner(spark)

    def cut(self, *topics: str) -> Cut:
        """These topics as they are now, all of them if none is named, to be read again later with the same rows:
        `topic.scan(as_of=cut)`.  No transaction is in it by half.  `str(cut)` is a small token."""
        names = topics or tuple(each.name for each in self._engine.topics())
        return self._viewed().cut([self._engine.topic(name) for name in names])

    def _viewed(self) -> Views:
        if self._views is None:
            lake = self._beside()
            self._views = Views(lake, lake.log_of(self._engine))
        return self._views

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
        wanted = chosen(self._viewed().source, topics)
        return merge_tables(spark, self._beside(), wanted, mode=mode, after_rollback=after_rollback)

    def maintain(
        self, topics: str | Iterable[str] | None = None, *, spark: Any = None, settings: UpkeepSettings | None = None
    ) -> MaintenanceReport:
        """Look after the tables: expire snapshots, remove orphans, say what others did; with Spark, compact."""
        with from_the_extra():
            from headwater.lake.upkeep import UpkeepSettings
            from headwater.spark.tables import keep_tables
        log = self._viewed().source
        return keep_tables(spark, self._beside(), log, chosen(log, topics), settings or UpkeepSettings())

    def audit(self, topics: str | Iterable[str] | None = None, *, full: bool = False, spark: Any = None) -> AuditReport:
        """Compare the tables of these topics, or of all, with the log, or with the ledger where it has forgotten: rows,
        missing, extra, doubled and altered offsets by name.  Only what has changed since the last audit that passed,
        unless `full`.  With `spark` the table is read there."""
        with from_the_extra():
            from headwater.lake.audit import Audit
        lake = self._beside()
        measure = None
        if spark is not None:
            from headwater.spark.audit import SparkMeasure

            measure = SparkMeasure(spark, lake)
        audit = Audit(
            self._viewed().source,
            lake.place.connect,
            lake.ledger,
            clock=lake.clock,
            measure=measure,
            counted=lambda topic: counts(self._engine, topic),
        )
        return audit.run(chosen(self._viewed().source, topics), full=full)

    def erase(self, topic: str, where: str, *, reason: str, spark: Any = None, dry_run: bool = False) -> ErasureReport:
        """Take the rows that fulfil the condition out of the log, the tables and their older snapshots, for good; the
        ledger keeps a receipt, and audits go on to pass.  Rows of a keyed topic are named by their key.  With `dry_run`
        it says what would go."""
        with from_the_extra():
            from headwater.lake.erasing import erase
        return erase(
            self._beside(),
            self._owner(),
            self._engine.topic(topic),
            where,
            reason,
            runner=self._runner(spark),
            dry_run=dry_run,
        )

    def restore(self, topic: str, *, as_of: AsOf, to: str, spark: Any = None) -> RestoreReport:
        """Make a new table, `to`, with the topic as it was at a cut, a time or an LSN, and compare the two."""
        with from_the_extra():
            from headwater.lake.restoring import restore_table
        copying = None
        if spark is not None:
            from headwater.spark.restore import SparkCopying

            copying = SparkCopying(spark, self._beside())
        return restore_table(self._viewed(), self._engine.topic(topic), as_of=as_of, to=to, copying=copying)

    def trace(self, topic: str, *, partition: int, offset: int) -> RowTrace:
        """Where a row is and where it came from: data file, landing, segment, write, producer."""
        with from_the_extra():
            from headwater.lake.tracing import trace_row
        return trace_row(self._owner(), self._beside(), self._engine.topic(topic), partition, offset)

    def query(self, statement: str, *, as_of: AsOf = None) -> Selected:
        """One SELECT in DuckDB's SQL over the topics that it names, all at one cut."""
        with from_the_extra():
            from headwater.lake.duckdb_query import select
        return select(self._viewed(), statement, as_of)

    def duckdb(self, *topics: str, as_of: AsOf = None) -> DuckDBPyConnection:
        """A DuckDB connection with a view of each of these topics, of all if none is named, at one cut."""
        with from_the_extra():
            from headwater.lake.duckdb_view import connect_topics
        names = topics or tuple(each.name for each in self._engine.topics())
        return connect_topics(self._viewed(), [self._engine.topic(name) for name in names], as_of)

    def spark_config(self, spark_version: str | None = None) -> dict[str, str]:
        """The settings of a Spark session that reaches the tables: `SparkSession.builder.config(map=...)`."""
        from headwater.spark.session import spark_config

        lake = self._beside()
        return spark_config(lake.place, lake.spark_catalog, spark_version=spark_version)

    def check_catalog(self) -> tuple[CheckedProperty, ...]:
        """Race real commits on a table of its own: whether the catalog keeps what exactly-once needs."""
        return self._beside().check_catalog()

    def _owner(self) -> Engine:
        from headwater.topics.engine import Engine

        if not isinstance(self._engine, Engine):
            raise InvalidRequest(
                "this is not done through a server: run it beside the log, with headwater.open", where=self.directory
            )
        return self._engine

    def _beside(self) -> Lake:
        self._engine.check_open()
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
            numbers = [each.number for each in self._engine.topics() if each.key and each.policy.cleanup != "delete"]
        return self._engine.compact(numbers)

    def checkpoint(self) -> bool:
        """Make checkpoints now, so that the next opening has nothing to replay; False where nothing was new."""
        return self._engine.checkpoint()

    def flush(self) -> None:
        """Return when everything that was asked for before is durable.  An append that has returned is so already."""
        self._engine.flush()

    def status(self) -> Status:
        """What there is at a glance; of a log in a bucket also who owns it, and how many requests were sent."""
        found = self._engine.status()
        if self._store is not None:
            found = replace(found, store=self._store.look(owner_here=found.owner))
        return found if self._lake is None else self._lake.completed(found, self._viewed().source)

    def close(self) -> None:
        """Serve what is queued and let go of the log; twice is nothing."""
        with ExitStack() as closing:
            if self._lake is not None:
                closing.callback(self._lake.close)
            closing.callback(self._engine.close)
            if self._views is not None:
                # First: behind a server pins are released over the engine's connection.
                closing.callback(self._views.close)

    def __enter__(self) -> Self:
        self._engine.check_open()
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
