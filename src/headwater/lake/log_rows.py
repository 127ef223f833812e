"""Rows of a topic between two LSNs, from wherever the log lies: planned by its segments, read as tasks read them.

PROMISE  Every row of the topic after one LSN and up to another that the log holds, once, in LSN order.
         Where a rewrite has replaced a segment since it was planned, the same LSNs are planned again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from headwater.errors import CorruptData
from headwater.lake.plan import PlannedRange, plan_landing
from headwater.lake.source import RowSource
from headwater.lake.work import LandWork, TopicWork
from headwater.metadata.operations import TopicRecord

ITEM_BYTES = 32 * 1024 * 1024
LOOKS_MAX = 3
_NO_BUDGET = 1 << 62


def log_rows(
    source: RowSource, topic: TopicRecord, columns: pa.Schema, lsn_from: int, lsn_to: int, *, looks: int = LOOKS_MAX
) -> Iterator[pa.Table]:
    """The rows in these columns, a table for each piece; CorruptData where they cannot be read."""
    plan = plan_landing(
        {topic.number: lsn_from},
        source.segments(),
        durable_lsn=lsn_to,
        budget_bytes=_NO_BUDGET,
        item_bytes=ITEM_BYTES,
    )
    for planned in plan.ranges:
        pieces = _range(source, topic, columns, planned, lsn_from, lsn_to)
        if isinstance(pieces, str):
            if looks <= 1:
                raise CorruptData(f"rows of the log cannot be read: {pieces}")
            yield from log_rows(source, topic, columns, max(planned.lsn_from, lsn_from), lsn_to, looks=looks - 1)
            return
        yield from pieces


def _range(
    source: RowSource, topic: TopicRecord, columns: pa.Schema, planned: PlannedRange, lsn_from: int, lsn_to: int
) -> list[pa.Table] | str:
    """The rows of a planned range, all of them, or why they cannot be read."""
    wanted = TopicWork(topic.number, "", lsn_from, lsn_to, topic.schemas, b"", changes=bool(topic.key))
    found = []
    for segment, runs, slots in source.runs(planned, planned.item_bytes):
        work = LandWork(source.directory, segment, runs, source.shard, (wanted,), slots)
        read = source.read(work, {topic.number: columns})
        if read.errors:
            return read.errors[topic.number]
        found.append(read.topics[topic.number].rows)
    return found
