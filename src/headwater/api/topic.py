"""A topic of an open log.  Thin: parse, name, hand on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal

import pyarrow as pa

from headwater.api.scan import Scan
from headwater.errors import Closed, InvalidRequest, UnknownTopic
from headwater.lake.view import AsOf, Views
from headwater.metadata.operations import TopicRecord
from headwater.topics.answers import (
    Appended,
    OffsetRange,
    TopicDescription,
)
from headwater.topics.appending import OnRejected, key_hash
from headwater.topics.compaction import Compacted
from headwater.topics.debezium import append_debezium
from headwater.topics.notebook import html_of_topic
from headwater.topics.positions import Where
from headwater.topics.reading import Rows, Wanted
from headwater.topics.requests import Identity
from headwater.topics.schema import unpack_schema
from headwater.topics.topic import Duration
from headwater.topics.verbs import Verbs

_ALL_AT_ONCE_ROWS = 65_536


class Topic:
    """A topic: append to it, read it, change it."""

    def __init__(self, engine: Verbs, number: int, name: str, views: Callable[[], Views]) -> None:
        self._engine = engine
        self._views = views
        self._number = number
        self._name = name

    # About it ----------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What it is called in its log."""
        return self._name

    @property
    def number(self) -> int:
        """What frames of the log call it; never given to another topic."""
        return self._number

    @property
    def topic_id(self) -> str:
        """Which incarnation this is: a topic that is deleted and created again has another."""
        return self._record().topic_id.hex()

    @property
    def schema(self) -> pa.Schema:
        """Its columns now: those of the latest version."""
        return unpack_schema(self._record().schemas[-1])

    @property
    def partitions(self) -> int:
        """How many it has now; there may be more later, and never fewer."""
        return self._record().partitions

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that say which row replaces which; empty where it has no key."""
        return self._record().key

    def _record(self) -> TopicRecord:
        return self._engine.topic_numbered(self._number)

    def describe(self) -> TopicDescription:
        """All that is known of it: schema versions, partitions with their offsets, policy, table."""
        return self._engine.describe_topic(self._number)

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
        format: Literal["debezium"] | None = None,
    ) -> Appended:
        """Append one row or many; they are durable, all of them, when it returns.

        Rows that do not fit the schema are refused by number and reason, and nothing is appended; with
        `rejected="keep"` they go to `<topic>.rejected` in the same write, and the others are appended.
        With `format="debezium"` the rows are change events of Debezium, for a keyed topic: upserts and deletes, each
        taken in once by its position in the source (docs/http.md).
        """
        if format is not None:
            if format != "debezium":
                raise InvalidRequest(f"format is 'debezium', or is left out, not {format!r}")
            if partition is not None or expect_offset is not None or idempotency_key is not None:
                raise InvalidRequest("change events go by their keys and their positions: give nothing else with them")
            events = rows if isinstance(rows, Sequence) and not isinstance(rows, str | bytes) else [rows]
            return append_debezium(self._engine, self._record(), events, rejected=rejected)
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
        topic = self._record()
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

    def scan(self, columns: Sequence[str] | None = None, where: str | None = None, *, as_of: AsOf = None) -> Scan:
        """The topic as it is now, table and tail as one, no row twice and none missing; of a keyed topic the latest
        row of each key.

        `where` is a condition as text, "amount > 100 and region in ('eu', 'us')".  `as_of` is a cut of `log.cut(...)`,
        or its text, a time with its zone, or `hw.Lsn(n)`: the same rows today and later.
        """
        topic = self._record()
        return self._views().scan_as(Scan, topic, columns, where, as_of)

    def get(self, key: object, *, as_of: AsOf = None) -> dict[str, Any] | None:
        """The row of this key, or None: `get(42)`, or `get({"region": "eu", "id": 42})` where the key has more columns
        than one."""
        from headwater.lake.point import get_row

        return get_row(self._views(), self._record(), key, as_of=as_of)

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
