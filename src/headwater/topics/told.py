"""From what the log remembers of a request to what its caller is told."""

from __future__ import annotations

from collections.abc import Callable

from headwater.metadata.operations import TopicRecord
from headwater.metadata.shard_state import Source
from headwater.topics.answers import Appended, CommittedTransaction, OffsetRange, SourcePosition
from headwater.topics.positions import time_of
from headwater.topics.requests import Told


def appended(topic: TopicRecord, told: Told) -> Appended:
    """The answer to an append; what went to another topic are the rows that did not fit."""
    offsets: dict[int, OffsetRange] = {}
    rows = rejected = 0
    for part in told.answer.parts:
        if part.topic_number == topic.number:
            _widen(offsets, part.partition, part.base_offset, part.rows)
            rows += part.rows
        else:
            rejected += part.rows
    return Appended(
        topic=topic.name,
        rows=rows,
        first_lsn=told.answer.first_lsn,
        lsn=told.answer.last_lsn,
        offsets=offsets,
        time=time_of(told.answer.append_time_us),
        rejected=rejected,
        duplicate=told.duplicate,
    )


def committed_transaction(told: Told, name_of: Callable[[int], str]) -> CommittedTransaction:
    offsets: dict[str, dict[int, OffsetRange]] = {}
    for part in told.answer.parts:
        _widen(offsets.setdefault(name_of(part.topic_number), {}), part.partition, part.base_offset, part.rows)
    return CommittedTransaction(
        first_lsn=told.answer.first_lsn,
        lsn=told.answer.last_lsn,
        rows=sum(part.rows for part in told.answer.parts),
        offsets=offsets,
        time=time_of(told.answer.append_time_us),
        duplicate=told.duplicate,
    )


def source_position(source: Source) -> SourcePosition:
    watermark = None if source.watermark_us is None else time_of(source.watermark_us)
    return SourcePosition(source.position, watermark, source.lsn, time_of(source.time_us))


def _widen(offsets: dict[int, OffsetRange], partition: int, base_offset: int, rows: int) -> None:
    present = offsets.get(partition)
    first = base_offset if present is None else min(present.first, base_offset)
    offsets[partition] = OffsetRange(first, base_offset + rows)
