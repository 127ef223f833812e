"""Rows that the log has let go of: they are in the topic's table, where a read that begins before the log begins.

    LSN    1 ............................ W - 1 | W ..................... durable
           read from the table                  | read from the log

W is the first LSN from which the log holds every row of the topic.  Deletion takes segments from the log's beginning
and makes others smaller; neither goes beyond what has landed.  So what lies before W can be read from the table.

PROMISE  The log is read for all that it holds whole.  A segment that was rewritten does not say whose rows went, so
         what has landed is read from the table up to the last of those, unless the log has as many rows as landed.
         W never falls while a log is open, but for what a person decides at a halt of the landing.
NOT HERE Reading the table: lake/older_rows.py.  Going from one to the other: reading.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from headwater.ids import Lsn
from headwater.log.frame_log import FrameLog
from headwater.metadata.operations import TopicRecord


@dataclass(frozen=True)
class OlderRange:
    """Which rows of a table are wanted."""

    log_id: str
    lsn_from: int
    """Rows after this LSN ..."""
    lsn_to: int
    """... and up to this one."""
    columns: tuple[str, ...]
    """Of the topic's own; the system's are always given."""
    partition: int | None = None
    """Of this one alone."""
    offsets: Mapping[int, int] | None = None
    """Only these partitions, and of each the rows from its offset on."""
    until: Mapping[int, int] | None = None
    """Only these partitions, and of each the rows below its offset."""
    missing: frozenset[int] = frozenset()
    """The partitions of `offsets` whose offset the log no longer has."""
    time_from_us: int | None = None
    time_to_us: int | None = None
    """Appended from one time on, and before another."""
    from_the_first: bool = False
    """Whatever is the first that there is: that there once were others before it is no error."""


class OlderRows(Protocol):
    """The tables, as a read needs them."""

    def landed_lsn(self, topic: TopicRecord) -> int:
        """Up to which LSN rows of the topic have ever landed: what is above it the log holds, all of it.  It is asked
        often."""
        ...

    def landed_rows(self, topic: TopicRecord, lsn: int) -> int | None:
        """How many rows of the topic have ever landed up to this LSN; none where that cannot be told."""
        ...

    def read(self, topic: TopicRecord, wanted: OlderRange) -> Iterator[pa.RecordBatch]:
        """The rows, each once, in the order of their LSNs, in the types of the topic's newest schema: the columns that
        are wanted, `_hw_op` where the topic has a key, then `_hw_lsn`, `_hw_partition`, `_hw_offset` and `_hw_time`.

        Forgotten where changes of a keyed topic are past their retention; LandingHalted where the table does not hold
        what it should."""
        ...


def whole_from(log: FrameLog, topic: TopicRecord, older: OlderRows) -> int:
    """The first LSN from which the log holds every row of the topic."""
    segments = log.device.view.segments
    gone = segments[0].first_lsn - 1 if segments else log.device.durable()
    for segment in reversed(segments):
        if segment.name.generation:
            gone = max(gone, segment.last_lsn)
            break
    # Asked after the segments were looked at: whatever is gone from them had landed by then.
    lsn = min(gone, older.landed_lsn(topic)) if gone else 0
    return 1 if not lsn or _holds(log, topic, lsn, older.landed_rows(topic, lsn)) else lsn + 1


def _holds(log: FrameLog, topic: TopicRecord, lsn: int, rows: int | None) -> bool:
    """Whether the log still has as many rows of the topic up to this LSN: those of other topics may have gone from a
    segment that was rewritten, and a table that was dropped must not keep anybody from reading what is here."""
    if rows is None:
        return False
    held = 0
    for segment in log.segments():
        share = log.device.topics_in(segment).get(topic.number)
        if share is None or segment.first_lsn > lsn:
            continue
        if share.last_lsn <= lsn:
            held += share.rows
        else:
            frames = log.read_topic(topic.number, segment.first_lsn, Lsn(lsn))
            held += sum(frame.header.row_count for frame in frames)
    return held == rows


def is_read_from_its_table(topic: TopicRecord) -> bool:
    """Whether what the log has let go of is to be had elsewhere.  A policy that only compacts takes away no row that
    was not superseded: there the log is all that is wanted."""
    return topic.table is not None and topic.policy.cleanup != "compact"


def log_id_of(log: FrameLog) -> str:
    segments = log.device.view.segments
    return segments[0].opening.header.log_id.hex() if segments else ""
