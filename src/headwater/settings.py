"""Settings are frozen numbers with their units in their names; components are constructor arguments."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB

WRITE_BODY_BYTES_CEILING = 256 * MIB
"""`write_body_bytes_max` may be raised to this, and no further."""


@dataclass(frozen=True)
class LogSettings:
    """How one log behaves.  The defaults suit a shard's log on a disk."""

    segment_size_bytes_max: int = 256 * MIB
    """A segment is sealed before a write would make it larger than this."""

    segment_age_s_max: float = 3600.0
    """A segment older than this is sealed before the next write."""

    write_body_bytes_max: int = 64 * MIB
    """The bodies of one write, together."""

    in_flight_bytes_max: int = 64 * MIB
    """Bytes that callers may have waiting for a sync, before the next one has to wait."""

    append_timeout_s: float = 30.0
    """How long an append waits for room in flight before it is refused as Unavailable."""

    slot_bytes_target: int = 4 * MIB
    """Where several commits can be in flight, one takes about this much of what is queued at most ..."""

    slot_bytes_enough: int = 960 * KIB
    """... and goes at once if this much is there or nothing is in flight ..."""

    commit_interval_s: float = 0.05
    """... and otherwise this long after the one before it, with what has come by then: a request to a store costs."""

    mark_sync_idle_s: float = 0.1
    """The mark is synced once the log has been idle for this long."""

    follow_poll_s: float = 0.01
    """How often a follower in another process looks at the mark."""

    reserve_bytes: int = 16 * MIB
    """Kept allocated, and given up on a full disk so that deletion can go on; 0 keeps none."""

    deletion_grace_s: float = 600.0
    """How long a verified segment is kept after its verification."""

    scan_chunk_bytes: int = 1 * MIB
    """How much a scan reads at a time."""

    def __post_init__(self) -> None:
        if not 0 < self.write_body_bytes_max <= WRITE_BODY_BYTES_CEILING:
            raise ValueError(f"write_body_bytes_max is above 0 and at most {WRITE_BODY_BYTES_CEILING}")
        if self.write_body_bytes_max > self.segment_size_bytes_max:
            raise ValueError("write_body_bytes_max is at most segment_size_bytes_max: a write never spans segments")


@dataclass(frozen=True)
class LandingSettings:
    """How rows are landed."""

    freshness_s: float = 60.0
    """A topic is landed once its oldest row that is not in the table is this old ..."""

    target_file_bytes: int = 128 * MIB
    """... or once it has so many bytes that are not, whichever comes first."""

    round_bytes_max: int = 4096 * MIB
    """One round reads about this much of the log; the rest is for the next."""

    item_bytes: int = 64 * MIB
    """A task reads about this much."""

    commit_threads: int = 8
    """So many topics are loaded and committed at a time; 1: one after the other, in the caller's thread."""

    attempts_max: int = 5
    """How often a round begins anew for a topic whose commit was refused or whose outcome is unknown."""

    audit_before_delete: bool = False
    """The log lets go of what has landed only once an audit has passed over it."""


@dataclass(frozen=True)
class Settings:
    """How an open Headwater behaves: its log, its journal, its topics, its landings."""

    log: LogSettings = LogSettings()
    """Of the log that rows are appended to."""

    journal: LogSettings = LogSettings(
        segment_size_bytes_max=64 * MIB, segment_age_s_max=float("inf"), reserve_bytes=1 * MIB
    )
    """The journal rolls at its checkpoints, never by age."""

    landing: LandingSettings = LandingSettings()
    """Of landings, and of what comes after them."""

    partitions_default: int = 1
    """Of a topic that is created without saying how many."""

    join_bytes_max: int = 64 * KIB
    """A request of fewer bytes than this, outside a transaction, is joined with others into one frame."""

    frame_bytes_max: int = 16 * MIB
    """Rows of a request are split into frames of at most this many bytes; a row above it is refused."""

    shard_checkpoint_bytes: int = 64 * MIB
    """The shard's state is checkpointed after this many bytes of the log, and at every roll."""

    lease_s: float = 10.0
    """How long a member of a group keeps its partitions without being heard of."""

    upkeep_interval_s: float = 60.0
    """How often the owner cleans up by itself; 0: only when it is asked to."""

    def __post_init__(self) -> None:
        if not 0 < self.frame_bytes_max <= 64 * MIB:
            raise ValueError("frame_bytes_max is above 0 and at most 64 MiB")
        if not 0 <= self.join_bytes_max <= self.frame_bytes_max:
            raise ValueError("join_bytes_max is at least 0 and at most frame_bytes_max")
        if self.partitions_default < 1:
            raise ValueError("partitions_default is at least 1")


@dataclass(frozen=True)
class ClientSettings:
    """How a client of a server behaves (docs/clients.md)."""

    retry_s: float = 30.0
    """How long it tries again where a server does not answer; then Unavailable, or OutcomeUnknown."""

    call_s: float = 600.0
    """How long one call may take: a compaction of a large topic takes its time."""

    silence_s: float = 20.0
    """A stream of appends that is owed an answer for so long is taken for broken, and begun anew."""

    linger_s: float = 0.002
    """How long `append_future` waits for more rows, to send them together, while others are on their way; with nothing
    on its way it waits for none, and neither does an append that blocks."""

    batch_bytes: int = 1 * MIB
    """Rows of small appends that are sent together, at most ..."""

    batch_rows: int = 65_536
    """... and so many of them."""

    in_flight_max: int = 32
    """Messages of a topic on their way at a time; a log remembers the last 64 answers of a producer."""

    queued_bytes_max: int = 64 * MIB
    """Bytes that may wait to be sent; then `append_future` waits as well."""

    def __post_init__(self) -> None:
        if not 1 <= self.in_flight_max <= 64:
            raise ValueError("in_flight_max is 1 to 64: a log remembers the last 64 answers of a producer")


def bucket_settings() -> Settings:
    """The defaults for a log in a bucket: smaller segments, because opening reads the newest one slot by slot; rarer
    looks, because each is a request; and no room kept in reserve, because there is none to run out of."""
    return Settings(
        log=LogSettings(segment_size_bytes_max=64 * MIB, follow_poll_s=0.25, reserve_bytes=0),
        journal=LogSettings(
            segment_size_bytes_max=64 * MIB, segment_age_s_max=float("inf"), follow_poll_s=0.25, reserve_bytes=0
        ),
    )
