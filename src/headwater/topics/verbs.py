"""What Log, Topic, Producer, Transaction and Consumer ask of an engine: the owner's own, or a client's.

    topics.embedded.EmbeddedEngine     a log in this process
    client.engine.ClientEngine         a log behind a server

PROMISE  Each verb means the same over both, and raises the same errors: one suite is run against both
         (tests/contract/log_api.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import pyarrow as pa

from headwater.metadata.operations import TopicRecord
from headwater.settings import Settings
from headwater.topics.answers import (
    Appended,
    CommittedTransaction,
    GroupDescription,
    OffsetRange,
    SourcePosition,
    Status,
    TopicDescription,
    TopicStatus,
)
from headwater.topics.appending import OnRejected, Prepared
from headwater.topics.cleanup import CleanupReport
from headwater.topics.compaction import CompactionReport
from headwater.topics.consumer import Consumer, Coordinator
from headwater.topics.groups import Generation
from headwater.topics.reading import OlderPart, Rows, Wanted
from headwater.topics.requests import GroupOffset, Identity, PartitionRows, Registered, SourceAt
from headwater.topics.topic import NewTopic


class Verbs(Protocol):
    @property
    def settings(self) -> Settings: ...

    def check_open(self) -> None:
        """Closed where it was closed, or in a forked child."""
        ...

    # Topics

    def topic(self, name: str) -> TopicRecord: ...

    def topic_named(self, name: str) -> TopicRecord | None: ...

    def topic_numbered(self, number: int) -> TopicRecord: ...

    def topics(self) -> Sequence[TopicRecord]: ...

    def create_topics(self, wanted: Sequence[NewTopic]) -> list[TopicRecord]: ...

    def alter_topic(self, number: int, **changes: Any) -> TopicRecord: ...

    def delete_topic(self, name: str, *, force: bool = False) -> None: ...

    def describe_topic(self, number: int) -> TopicDescription: ...

    def describe_topics(self) -> list[TopicStatus]: ...

    def describe_groups(self) -> list[GroupDescription]: ...

    def status(self) -> Status: ...

    # Writing

    def append(
        self,
        number: int,
        rows: object,
        *,
        partition: int | None = None,
        rejected: OnRejected = "refuse",
        expect_offset: int | None = None,
        identity: Identity | None = None,
    ) -> Appended: ...

    def append_future(
        self,
        number: int,
        rows: object,
        *,
        partition: int | None = None,
        rejected: OnRejected = "refuse",
        expect_offset: int | None = None,
        identity: Identity | None = None,
    ) -> Future[Appended]: ...

    def delete_keys(self, number: int, keys: object, *, identity: Identity | None = None) -> Appended: ...

    def prepare_rows(
        self, name: str, rows: object, *, partition: int | None = None, rejected: OnRejected = "refuse"
    ) -> Prepared: ...

    def prepare_keys(self, name: str, keys: object) -> Prepared: ...

    def commit_transaction(
        self,
        rows: list[PartitionRows],
        *,
        groups: Sequence[GroupOffset],
        sources: Sequence[SourceAt],
        identity: Identity | None,
        expected: dict[int, int] | None = None,
    ) -> tuple[CommittedTransaction, bool]: ...

    def register_producer(self, name: str) -> Registered: ...

    def source_position(self, name: str) -> SourcePosition | None: ...

    # Reading

    def read(self, number: int, wanted: Wanted) -> Rows: ...

    def offsets(self, number: int) -> dict[int, OffsetRange]: ...

    def durable_lsn(self) -> int: ...

    # Groups, as consumer.py asks for them

    @property
    def coordinator(self) -> Coordinator: ...

    def consumer(self, name: str, group: str, **options: Any) -> Consumer: ...

    def partitions_of(self, topic_number: int) -> int: ...

    def committed(self, group: str, topic_number: int) -> Mapping[int, int]: ...

    def commit_offsets(self, group: str, topic_number: int, offsets: Mapping[int, tuple[int, Generation]]) -> None: ...

    def first_offset(self, topic_number: int, partition: int) -> int: ...

    def next_offset(self, topic_number: int, partition: int) -> int: ...

    def read_rows(
        self, topic_number: int, partition: int, offset: int, rows_max: int
    ) -> tuple[pa.RecordBatch | None, int]: ...

    def older_rows(self, topic_number: int, partition: int, offset: int) -> OlderPart | None: ...

    def wait_for_rows(self, lsn: int, timeout_s: float) -> bool: ...

    # Upkeep

    def cleanup(self) -> CleanupReport: ...

    def compact(self, numbers: Iterable[int]) -> CompactionReport: ...

    def checkpoint(self) -> bool: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...
