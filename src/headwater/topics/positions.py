"""Where a read begins and ends, in the words of whoever asks.

    "earliest"             the first row that there is: of the topic's table, or that the log still holds
    "latest"               after the last row that is durable now
    a time                 an aware datetime, or ISO 8601 text with a zone: the first row appended at or after it
    Lsn(7)                 the frame with this number
    {0: 120, 3: 7}         offsets, of the partitions that are to be read; or one number, with `partition=`

Times mean append times.  A stop is meant exclusively.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from headwater.errors import InvalidRequest, UnknownPartition
from headwater.ids import Lsn as LogLsn
from headwater.log.frame_log import FrameLog
from headwater.metadata.operations import TopicRecord
from headwater.topics.names import whole_number

THE_BEGINNING = LogLsn(1)
"""No row has this LSN: a log's first frame says whose it is."""
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


def find_place(
    log: FrameLog,
    topic: TopicRecord,
    where: Where,
    partition: int | None,
    whole_from: Callable[[], int] | None = None,
) -> Place:
    """The place that `where` names now.

    `whole_from` is of a topic whose older rows are in a table: before that LSN they may be there alone.  A place that
    is not in the log is the beginning, and whoever reads passes over what lies before it."""
    if isinstance(where, Lsn):
        return Place(LogLsn(max(int(where), 1)))
    if isinstance(where, bool):
        raise _not_a_place(where)
    if isinstance(where, int):
        if partition is None:
            raise InvalidRequest("a bare number is an offset: say of which partition, or write hw.Lsn(n)", start=where)
        return _at_offsets(log, topic, {partition: where}, whole_from is not None)
    if isinstance(where, datetime):
        return _at_time(log, time_us_of(where), whole_from)
    if isinstance(where, Mapping):
        return _at_offsets(log, topic, where, whole_from is not None)
    if where == "earliest":
        return Place(THE_BEGINNING)
    if where == "latest":
        return Place(LogLsn(log.durable_lsn() + 1))
    if isinstance(where, str):
        try:
            moment = datetime.fromisoformat(where)
        except ValueError:
            raise _not_a_place(where) from None
        return _at_time(log, time_us_of(moment), whole_from)
    raise _not_a_place(where)


def _at_time(log: FrameLog, time_us: int, whole_from: Callable[[], int] | None) -> Place:
    lsn = log.find_time(time_us)
    if lsn is None:
        lsn = LogLsn(log.durable_lsn() + 1)
    elif whole_from is not None and lsn <= whole_from():
        # A gap has the time of the last frame that it stands for, and before the log's first there were others.
        lsn = THE_BEGINNING
    return Place(lsn, time_us=time_us)


def _at_offsets(log: FrameLog, topic: TopicRecord, given: Mapping[int, int], has_older: bool) -> Place:
    offsets = {whole_number(each, "a partition"): whole_number(at, "an offset") for each, at in given.items()}
    first = LogLsn(log.durable_lsn() + 1)
    for partition, offset in offsets.items():
        check_partition(topic, partition)
        if offset < 0:
            raise InvalidRequest("an offset is at least 0", partition=partition, offset=offset)
        found = lsn_of_offset(log, topic.number, partition, offset, has_older=has_older)
        if found is not None:
            first = min(first, found)
    return Place(first, offsets)


def lsn_of_offset(
    log: FrameLog, topic_number: int, partition: int, offset: int, *, has_older: bool = True
) -> LogLsn | None:
    """From which LSN on a partition is read that is read from this offset on; None where nothing was appended there
    yet.  Where older rows are in a table, and this one is not in the log, that is the beginning."""
    header = log.find_header(topic_number, partition, offset)
    if header is not None:
        return THE_BEGINNING if has_older and header.base_offset > offset else LogLsn(header.lsn)
    return THE_BEGINNING if has_older and log.next_offset(topic_number, partition) > offset else None


def check_partition(topic: TopicRecord, partition: int) -> None:
    if not 0 <= partition < topic.partitions:
        raise UnknownPartition(
            f"{topic.name!r} has no partition {partition}: it has {topic.partitions}, from 0 on", partition=partition
        )


def _not_a_place(where: object) -> InvalidRequest:
    return InvalidRequest(
        f"{where!r} is no place to read from: give 'earliest', 'latest', a time with its zone, hw.Lsn(n), or offsets"
    )
