"""Where a read begins and ends, in the words of whoever asks.

    "earliest"             the first row that the log still holds
    "latest"               after the last row that is durable now
    a time                 an aware datetime, or ISO 8601 text with a zone: the first row appended at or after it
    Lsn(7)                 the frame with this number
    {0: 120, 3: 7}         offsets, of the partitions that are to be read; or one number, with `partition=`

Times mean append times.  A stop is meant exclusively.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headwater.errors import InvalidRequest, UnknownPartition
from headwater.ids import Lsn as LogLsn
from headwater.log.frame_log import FrameLog
from headwater.metadata.operations import TopicRecord
from headwater.topics.names import whole_number

_UNIX_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Lsn(int):
    """An LSN, where a bare number would mean an offset."""

    def __repr__(self) -> str:
        return f"Lsn({int(self)})"


Where = str | int | Lsn | datetime | Mapping[int, int]


@dataclass(frozen=True)
class Place:
    """A position that was looked up: from this LSN on, and per partition not before this offset."""

    lsn: LogLsn
    offsets: Mapping[int, int] | None = None
    """Only these partitions, and of each only the rows from its offset on."""
    time_us: int | None = None
    """The time that was asked for: rows that are not there yet may come before it."""


def time_us_of(moment: datetime) -> int:
    """Microseconds since 1970, exactly."""
    if not isinstance(moment, datetime):
        raise InvalidRequest(f"a time is a datetime with its zone, not {moment!r}")
    if moment.tzinfo is None:
        raise InvalidRequest("a time needs a zone, because without one it means another moment on every machine")
    return (moment - _UNIX_EPOCH) // timedelta(microseconds=1)


def time_of(time_us: int) -> datetime:
    return _UNIX_EPOCH + timedelta(microseconds=time_us)


def find_place(log: FrameLog, topic: TopicRecord, where: Where, partition: int | None) -> Place:
    """The place that `where` names now."""
    if isinstance(where, Lsn):
        return Place(LogLsn(max(int(where), 1)))
    if isinstance(where, bool):
        raise _not_a_place(where)
    if isinstance(where, int):
        if partition is None:
            raise InvalidRequest("a bare number is an offset: say of which partition, or write hw.Lsn(n)", start=where)
        return _at_offsets(log, topic, {partition: where})
    if isinstance(where, datetime):
        return _at_time(log, time_us_of(where))
    if isinstance(where, Mapping):
        return _at_offsets(log, topic, where)
    if where == "earliest":
        return Place(LogLsn(1))
    if where == "latest":
        return Place(LogLsn(log.durable_lsn() + 1))
    if isinstance(where, str):
        try:
            moment = datetime.fromisoformat(where)
        except ValueError:
            raise _not_a_place(where) from None
        return _at_time(log, time_us_of(moment))
    raise _not_a_place(where)


def _at_time(log: FrameLog, time_us: int) -> Place:
    lsn = log.find_time(time_us)
    return Place(lsn if lsn is not None else LogLsn(log.durable_lsn() + 1), time_us=time_us)


def _at_offsets(log: FrameLog, topic: TopicRecord, given: Mapping[int, int]) -> Place:
    offsets = {whole_number(each, "a partition"): whole_number(at, "an offset") for each, at in given.items()}
    first = LogLsn(log.durable_lsn() + 1)
    for partition, offset in offsets.items():
        check_partition(topic, partition)
        if offset < 0:
            raise InvalidRequest("an offset is at least 0", partition=partition, offset=offset)
        found = log.find(topic.number, partition, offset)
        if found is not None:
            first = min(first, found.lsn)
    return Place(first, offsets)


def check_partition(topic: TopicRecord, partition: int) -> None:
    if not 0 <= partition < topic.partitions:
        raise UnknownPartition(
            f"{topic.name!r} has no partition {partition}: it has {topic.partitions}, from 0 on", partition=partition
        )


def _not_a_place(where: object) -> InvalidRequest:
    return InvalidRequest(
        f"{where!r} is no place to read from: give 'earliest', 'latest', a time with its zone, hw.Lsn(n), or offsets"
    )
