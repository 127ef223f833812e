"""What callers are told: plain values, the same whether the log is in this process or behind a server."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from headwater.metadata.operations import Policy


class OffsetRange(NamedTuple):
    """The offsets of a partition that the log holds: from `first` on, below `next`."""

    first: int
    next: int


@dataclass(frozen=True)
class Appended:
    """Rows that are durable, and where they are."""

    topic: str
    rows: int
    first_lsn: int
    lsn: int
    offsets: dict[int, OffsetRange]
    """By partition; the rows of one request have consecutive offsets in each."""
    time: datetime
    rejected: int = 0
    """Rows that did not fit, and are in `<topic>.rejected` by the same write."""
    duplicate: bool = False
    """The request had been applied before; this is its first answer."""

    def __repr__(self) -> str:
        """As a prompt shows it: a time in ISO 8601, a range of offsets by its first and its last."""
        offsets = ", ".join(f"{partition}: {each.first}..{each.next - 1}" for partition, each in self.offsets.items())
        facts = [f"rows={self.rows}", f"first_lsn={self.first_lsn}", f"lsn={self.lsn}", f"offsets={{{offsets}}}"]
        rare = [f"rejected={self.rejected}"] * bool(self.rejected) + ["duplicate=True"] * self.duplicate
        told = ", ".join([f"topic={self.topic!r}", *facts, f"time={self.time.isoformat()}", *rare])
        return f"Appended({told})"


@dataclass(frozen=True)
class CommittedTransaction:
    """A transaction that is durable."""

    first_lsn: int
    lsn: int
    rows: int
    offsets: dict[str, dict[int, OffsetRange]]
    """By topic and partition."""
    time: datetime
    duplicate: bool = False


@dataclass(frozen=True)
class SourcePosition:
    """How far an outside source has been taken in."""

    position: Any
    watermark: datetime | None
    lsn: int
    time: datetime


@dataclass(frozen=True)
class TopicDescription:
    """A topic, for people and programs."""

    name: str
    number: int
    topic_id: str
    created: datetime
    schema: pa.Schema
    schema_version: int
    partitions: int
    key: tuple[str, ...]
    time_column: str | None
    policy: Policy
    table: str | None
    partition_by: tuple[str, ...]
    offsets: dict[int, OffsetRange]
    rows: int
    """Offsets from the first to the next, over all partitions: rows that compaction removed are counted."""
    bytes: int


@dataclass(frozen=True)
class GroupDescription:
    """How far a group has come in a topic."""

    group: str
    topic: str
    committed: dict[int, int]
    lag: dict[int, int]
    members: int

    @property
    def total_lag(self) -> int:
        return sum(self.lag.values())


@dataclass(frozen=True)
class TopicStatus:
    """One line about a topic."""

    name: str
    partitions: int
    rows: int
    bytes: int
    appended: int
    """Rows that were ever appended."""
    key: tuple[str, ...]
    table: str | None
    policy: Policy


@dataclass(frozen=True)
class LandingStatus:
    """How far a topic's table has come, as the ledger says."""

    topic: str
    table: str
    landed_lsn: int
    verified_lsn: int
    merged_lsn: int | None
    """How far the state of a keyed topic has come; None where the topic has no key."""
    lag_rows: int
    """About how many rows the log holds that the table does not."""
    lag_bytes: int
    lag_s: float
    """How old the oldest of them is."""
    halted: str = ""
    """The cause of a halt: docs/landing.md says what to do."""
    message: str = ""
    log_first_lsn: int = 0
    """Where the topic's first rows are that the log still holds, by segment; 0: it holds none."""
    audited_lsn: int = 0
    """Up to here the last audit that passed has compared the table with the log or the ledger."""
    audited_us: int = 0
    """When that was."""


@dataclass(frozen=True)
class StoreOwner:
    """Who has given the last sign of life for a log in a bucket."""

    host: str
    pid: int
    since_us: int
    alive: bool
    """False: nothing was heard of it for so long that whoever writes next takes the log over."""


@dataclass(frozen=True)
class StoreStatus:
    """A log in a bucket: what a directory does not have."""

    url: str
    window: int
    """Commits that may be on their way at a time."""
    slots: int
    """Commits since trim, each an object; an opening reads them."""
    kept_segments: int
    """What was sealed, and lies before them."""
    owner: StoreOwner | None
    """None: nobody writes there."""
    requests: dict[str, int]
    """Requests and bytes of this process, since it opened the log: puts, gets, lists, deletes, bytes_put, bytes_got."""


@dataclass(frozen=True)
class Status:
    """A data directory at a glance."""

    directory: str
    log_id: str
    owner: bool
    """This process owns the log."""
    epoch: int
    first_lsn: int
    durable_lsn: int
    segments: int
    log_bytes: int
    checkpoint_lsn: int
    replay_bytes: int
    """What an opening would have to fold."""
    journal_lsn: int
    journal_remaining: int
    """Operations that fit before the journal must be checkpointed."""
    topics: list[TopicStatus]
    groups: list[GroupDescription]
    producers: int
    sources: dict[str, SourcePosition]
    deleted_topics: int
    landing: list[LandingStatus] = field(default_factory=list)
    """One a topic with a table, by name."""
    notes: list[str] = field(default_factory=list)
    counters: dict[str, float] = field(default_factory=dict)
    store: StoreStatus | None = None
    """Of a log in a bucket."""
