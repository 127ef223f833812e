"""Reading a topic: frames in the order of the log, as batches in the topic's present schema.

PROMISE  Only what is durable is read, and a write is read whole.  Rows come in LSN order, which within a partition is
         the order of offsets.  Rows of older schema versions come in the present one.
BATCHES  Small frames are put together; a frame that is large enough is given as it lies in the file's bytes, uncopied.
         A batch has at most `batch_rows` rows.
COLUMNS  A keyed topic's rows carry `_hw_op`: "U" for an upsert, "D" for a delete, which has its key and else nulls.
         `system_columns` adds `_hw_lsn`, `_hw_partition`, `_hw_offset` and `_hw_time`.
TABLE    Where the topic has one, what the log has let go of is read from it, in the same order and form, and the read
         goes on in the log from where that is whole; however often rows land and go meanwhile, each is given once.
NOT HERE Where a read begins: positions.py.  Where the log is whole: older.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from headwater.errors import Forgotten, InvalidRequest, MetadataBehindLog, UnknownTopic
from headwater.frames.frame import Header, Kind
from headwater.ids import Lsn
from headwater.log.device import Frame
from headwater.log.frame_log import FrameLog
from headwater.metadata.operations import TopicRecord
from headwater.topics.batches import OFFSET_COLUMN, FrameRows
from headwater.topics.names import whole_number
from headwater.topics.older import OlderRange, OlderRows, is_read_from_its_table, log_id_of, whole_from
from headwater.topics.positions import THE_BEGINNING, Place, Where, check_partition, find_place, lsn_of_offset
from headwater.topics.positions import Lsn as PlaceLsn
from headwater.topics.read_shape import ReadShape, dense

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

_DIRECT_BYTES = 256 * 1024
"""A frame of at least this many bytes is a batch of its own."""
_TOGETHER_BYTES = 4 * 1024 * 1024
_APART_BYTES = 64 * 1024 * 1024
_GONE_LOOK_S = 0.5
_COLUMNS_SHOWN = 12

TopicNow = Callable[[], "TopicRecord | None"]
"""The topic as it is now; nothing where it was deleted."""


class Rows:
    """Rows to be read: iterate over it for batches, or take all of them in one form."""

    def __init__(self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]]) -> None:
        self.schema = schema
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self._batches()

    def to_arrow(self) -> pa.Table:
        """All of them, in memory, as one table of pyarrow's."""
        return pa.Table.from_batches(self, schema=self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """All of them, in memory; needs pandas."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """All of them, in memory; needs polars."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pylist(self) -> list[dict[str, Any]]:
        """All of them, in memory, a dict each.  InvalidRequest where a column holds what Python has not."""
        table = self.to_arrow()
        try:
            rows: list[dict[str, Any]] = table.to_pylist()
        except (OverflowError, ValueError) as error:
            name = next((name for name in table.column_names if not _is_python(table.column(name))), "")
            raise InvalidRequest(
                f"the column {name!r} holds values that Python has not, as times beyond the year 9999 ({error}): take "
                "to_arrow() or to_polars()",
                column=name,
            ) from error
        return rows

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The rows as an Arrow stream, for any library that takes one."""
        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        """Which columns they have.  No row is read for it."""
        shown = [f"{column.name}: {column.type}" for column in list(self.schema)[:_COLUMNS_SHOWN]]
        more = len(self.schema) - len(shown)
        columns = ", ".join([*shown, f"and {more} more"] if more else shown)
        return f"<{type(self).__name__} of {columns}; take them with to_arrow(), to_pandas(), to_polars(), to_pylist()>"


def _is_python(column: pa.ChunkedArray) -> bool:
    """Whether its values are Python's too."""
    try:
        column.to_pylist()
    except (OverflowError, ValueError):
        return False
    return True


@dataclass(frozen=True)
class Wanted:
    """What of a topic is to be read."""

    start: Where = "earliest"
    stop: Where | None = None
    limit: int | None = None
    batch_rows: int = 65_536
    follow: bool = False
    timeout_s: float | None = None
    columns: Sequence[str] | None = None
    partition: int | None = None
    system_columns: bool | Sequence[str] = False
    """All of them, or which."""
    up_to_lsn: int | None = None
    """Nothing behind this LSN, wherever the log has come to."""
    bytes_max: int | None = None
    """Nothing behind the topic's frame with which so many bytes of them have been read."""
    gone: Callable[[], bool] | None = None
    """Whether nobody reads any more: a follower looks now and then, and ends."""
    wait: Callable[[int, int, float], bool] | None = None
    """How a follower waits where many do: of which topic, beyond which LSN, how long; whether rows may have come."""


def read_rows(
    log: FrameLog, topic_now: TopicNow, wanted: Wanted, older: OlderRows | None = None, *, at: Place | None = None
) -> Rows:
    """The rows of a topic; its schema is looked at when the reading begins.  `at` is where it begins, if it was looked
    up already."""
    topic = topic_now()
    if topic is None:
        raise UnknownTopic("the topic was deleted")
    if not is_read_from_its_table(topic):
        older = None
    if wanted.partition is not None:
        check_partition(topic, whole_number(wanted.partition, "partition"))
    if wanted.limit is not None and whole_number(wanted.limit, "limit") < 0:
        raise InvalidRequest("limit is at least 0", limit=wanted.limit)
    if whole_number(wanted.batch_rows, "batch_rows") < 1:
        raise InvalidRequest("batch_rows is at least 1", batch_rows=wanted.batch_rows)
    shape = ReadShape(topic, wanted.columns, system_columns=wanted.system_columns)
    # Looked up now, so that what a caller gets does not depend on when the iteration begins.
    whole = None if older is None else partial(whole_from, log, topic, older)
    start = at if at is not None else find_place(log, topic, wanted.start, wanted.partition, whole)
    stop = None if wanted.stop is None else find_place(log, topic, wanted.stop, wanted.partition)
    last = None if wanted.follow else log.durable_lsn()
    if stop is not None and stop.offsets is None and not (wanted.follow and stop.time_us is not None):
        last = Lsn(stop.lsn - 1) if last is None else Lsn(min(last, stop.lsn - 1))
    if wanted.up_to_lsn is not None:
        last = Lsn(wanted.up_to_lsn) if last is None else Lsn(min(last, wanted.up_to_lsn))
    reading = _Reading(log, topic_now, topic.number, wanted, shape, start, stop, last, older)
    return Rows(shape.schema, reading.batches)


class _Reading:
    """One pass over a topic."""

    def __init__(
        self,
        log: FrameLog,
        topic_now: TopicNow,
        topic_number: int,
        wanted: Wanted,
        shape: ReadShape,
        start: Place,
        stop: Place | None,
        last: Lsn | None,
        older: OlderRows | None,
    ) -> None:
        self._log = log
        self._older = older
        self._topic_now = topic_now
        self._number = topic_number
        self._wanted = wanted
        self._shape = shape
        self._start = start
        self._from = start.offsets
        self._until: Mapping[int, int] | None = stop.offsets if stop is not None else None
        self._not_before_us = start.time_us or 0
        self._not_from_us = stop.time_us if stop is not None else None
        self._last = last
        self._read_bytes = 0
        self._seen: dict[int, int] = {}
        """By partition, the offset after the last frame that was met."""
        self._ends = {} if wanted.follow else _next_offsets(log, topic_number, topic_now, wanted.partition)
        """By partition, the offset after the last row that there was when the read was made."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        left = self._wanted.limit
        if self._topic_now() is None:
            raise UnknownTopic("the topic was deleted")
        if left == 0:
            return
        for batch in self._together():
            at = 0
            while at < batch.num_rows:
                count = min(batch.num_rows - at, self._wanted.batch_rows)
                if left is not None:
                    count = min(count, left)
                    left -= count
                if count:
                    yield batch if count == batch.num_rows else batch.slice(at, count)
                if left == 0:
                    return
                at += count

    def _together(self) -> Iterator[pa.RecordBatch]:
        """Batches of a useful size; in order."""
        waiting: list[tuple[Frame, FrameRows]] = []
        rows = size = 0
        enough = self._wanted.batch_rows if self._wanted.limit is None else self._wanted.limit
        for piece in self._pieces():
            found: FrameRows | None = None
            if isinstance(piece, Frame):
                found = self._rows_of(piece)
                if found is None:
                    continue
                small = piece.header.body_size < _DIRECT_BYTES
                if waiting and not (small and _go_together(waiting[0][0], piece)):
                    yield self._given(waiting)
                    waiting, rows, size = [], 0, 0
                waiting.append((piece, found))
                rows += found.batch.num_rows
                size += piece.header.body_size
                if small and rows < enough and size < _TOGETHER_BYTES:
                    continue
            if waiting:
                yield self._given(waiting)
                waiting, rows, size = [], 0, 0
            if piece is not None and found is None:
                yield piece
        if waiting:
            yield self._given(waiting)

    def _given(self, frames: list[tuple[Frame, FrameRows]]) -> pa.RecordBatch:
        return self._shape.give([(frame.header, rows) for frame, rows in frames])

    def _pieces(self) -> Iterator[Frame | pa.RecordBatch | None]:
        """The topic's rows, as batches of its table and then as frames; None where a follower has come to the end and
        waits."""
        lsn = self._start.lsn
        segment = ""
        wanted = self._wanted
        clock = self._log.clock
        waited_s = 0.0
        while True:
            durable = self._log.durable_lsn()
            last = durable if self._last is None else Lsn(min(durable, self._last))
            whole = self._whole_from(lsn)
            if lsn < whole and lsn <= last:
                whole = min(whole, last + 1)
                yield from self._older_rows(lsn, whole - 1)
                # More may have gone by now: what comes next is looked at again.
                lsn, segment, waited_s = Lsn(whole), "", 0.0
                continue
            for frame in self._frames_between(lsn, last):
                if frame.segment != segment:
                    if self._is_gone(lsn, segment):
                        break
                    segment = frame.segment
                header = frame.header
                if self._not_from_us is not None and header.append_time_us >= self._not_from_us:
                    return
                lsn = Lsn(header.lsn + 1)
                self._seen[header.partition] = header.base_offset + header.offset_count
                if header.append_time_us >= self._not_before_us:
                    yield frame
                self._read_bytes += header.body_size
                if wanted.bytes_max is not None and self._read_bytes >= wanted.bytes_max:
                    return
                waited_s = 0.0
            if lsn <= last and self._is_gone(lsn, segment):
                continue
            lsn = Lsn(max(lsn, last + 1))
            if not wanted.follow or (self._last is not None and lsn > self._last) or self._reached_the_stop():
                return
            yield None
            # Only waiting counts as idle, not what the caller does with its rows; other topics' rows do not end it.
            left_s = None if wanted.timeout_s is None else wanted.timeout_s - waited_s
            begun_s = clock.monotonic_s()
            if not self._waited(last, left_s):
                return
            waited_s += clock.monotonic_s() - begun_s
            if self._topic_now() is None:
                raise UnknownTopic("the topic was deleted while it was read")

    def _waited(self, last: Lsn, left_s: float | None) -> bool:
        """Whether something came in this time, before whoever reads had gone."""
        gone = self._wanted.gone
        if gone is None:
            return self._log.wait_beyond(last, left_s)
        while not gone():
            wait_s = _GONE_LOOK_S if left_s is None else min(left_s, _GONE_LOOK_S)
            wait = self._wanted.wait
            if self._log.wait_beyond(last, wait_s) if wait is None else wait(self._number, last, wait_s):
                return True
            if left_s is not None:
                left_s -= wait_s
                if left_s <= 0:
                    return False
        return False

    def _whole_from(self, lsn: int) -> int:
        """From which LSN on the log has all rows of the topic; this one where there is no table that could help."""
        if self._older is None:
            return lsn
        topic = self._topic_now()
        if topic is None:
            raise UnknownTopic("the topic was deleted while it was read")
        return whole_from(self._log, topic, self._older)

    def _is_gone(self, lsn: int, segment: str) -> bool:
        """Whether the log has let go of rows after those that were given, which the table then has."""
        if self._older is not None:
            return self._whole_from(lsn) > lsn
        if segment:
            self._check_not_forgotten(lsn)
        return False

    def _older_rows(self, lsn: int, lsn_to: int) -> Iterator[pa.RecordBatch]:
        """Rows of the table from this LSN on and up to another."""
        topic = self._topic_now()
        if topic is None:
            raise UnknownTopic("the topic was deleted while it was read")
        assert self._older is not None
        offsets = None
        if self._from is not None:
            offsets = {number: max(at, self._seen.get(number, 0)) for number, at in self._from.items()}
        range_ = OlderRange(
            log_id_of(self._log),
            lsn - 1,
            lsn_to,
            self._shape.own_columns,
            partition=self._wanted.partition,
            offsets=offsets,
            until=self._until,
            missing=frozenset(
                number
                for number, at in (offsets or {}).items()
                if lsn_of_offset(self._log, topic.number, number, at) == THE_BEGINNING
            ),
            time_from_us=self._start.time_us,
            time_to_us=self._not_from_us,
            from_the_first=self._wanted.start == "earliest" and not self._seen,
        )
        for batch in self._told(topic, self._older.read(topic, range_)):
            offsets = pa.table(batch.select(["_hw_partition", "_hw_offset"])).group_by("_hw_partition")
            for row in offsets.aggregate([("_hw_offset", "max")]).to_pylist():
                self._seen[row["_hw_partition"]] = row["_hw_offset_max"] + 1
            yield self._shape.give_older(batch)

    def _told(self, topic: TopicRecord, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The same; where a partition's rows are past their retention, with the first offset that can be read."""
        try:
            yield from batches
        except Forgotten as error:
            partition = self._wanted.partition
            if partition is None or "first_offset" in error.facts:
                raise
            first = self._log.first_offset(topic.number, partition)
            if first is None:
                first = self._log.next_offset(topic.number, partition)
            raise Forgotten(error.message, **{**error.facts, "partition": partition, "first_offset": first}) from error

    def _frames_between(self, lsn: Lsn, last: Lsn) -> Iterator[Frame]:
        """The topic's frames in this range, or one partition's, where the index leads straight to its first."""
        partition = self._wanted.partition
        if partition is None or self._from is None:
            yield from self._log.read_topic(self._number, lsn, last)
            return
        if partition not in self._from:
            return
        offset = max(self._from[partition], self._seen.get(partition, 0))
        for frame in self._log.read_partition(self._number, partition, offset):
            if frame.header.lsn > last:
                return
            if frame.header.lsn >= lsn:
                yield frame

    def _reached_the_stop(self) -> bool:
        """Every partition that is read has come to the offset at which it is to stop."""
        if self._until is None:
            return False
        begun = self._from or {}
        return all(
            max(self._seen.get(partition, 0), begun.get(partition, 0)) >= stop
            for partition, stop in self._until.items()
        )

    def _check_not_forgotten(self, lsn: int) -> None:
        """Raise Forgotten where rows after those that were met have gone, as a deletion of old segments takes them."""
        segments = self._log.device.view.segments
        if not segments or segments[0].first_lsn <= lsn:
            return
        for partition, following in self._seen.items():
            if following >= self._ends.get(partition, following + 1):
                # All that it was asked for was given; what came later is not this read's.
                continue
            first = self._log.first_offset(self._number, partition)
            if first is None:
                first = self._log.next_offset(self._number, partition)
            if first > following:
                raise Forgotten(
                    "rows were cleaned up while they were read: begin again at 'earliest'",
                    partition=partition,
                    offset=following,
                    first_offset=first,
                )

    def _rows_of(self, frame: Frame) -> FrameRows | None:
        """The rows of a frame that were asked for; nothing where there are none."""
        header = frame.header
        if header.kind != Kind.DATA and header.kind != Kind.SPARSE:
            return None
        partition = header.partition
        wanted = self._wanted.partition
        if wanted is not None and partition != wanted:
            return None
        low, high = 0, header.base_offset + header.offset_count
        if self._from is not None:
            if partition not in self._from:
                return None
            low = self._from[partition]
        if self._until is not None:
            if partition not in self._until:
                return None
            high = min(high, self._until[partition])
        if low >= high or header.base_offset >= high or header.base_offset + header.offset_count <= low:
            return None
        if not self._shape.knows(header.schema_version):
            topic = self._topic_now()
            if topic is None:
                raise UnknownTopic("the topic was deleted while it was read")
            self._shape.learn(topic)
            if not self._shape.knows(header.schema_version):
                raise MetadataBehindLog(
                    "the log holds rows of a schema version that the journal does not know: the journal was put back; "
                    "put back the newer one, or run `headwater log rebuild DATA --to DIR`",
                    topic=topic.name,
                    version=header.schema_version,
                )
        rows = self._shape.rows(header, frame.body)
        if low > header.base_offset or high < header.base_offset + header.offset_count:
            rows = _between(header, rows, low, high)
        return rows if rows.batch.num_rows else None


def _go_together(first: Frame, later: Frame) -> bool:
    """Whether the two may be in one batch: of one schema, and near, because each keeps that part of the file in memory
    in which it lies."""
    return (
        later.header.schema_version == first.header.schema_version
        and later.segment == first.segment
        and later.position - first.position < _APART_BYTES
    )


def _next_offsets(log: FrameLog, topic_number: int, topic_now: TopicNow, only: int | None) -> dict[int, int]:
    """Of one partition where one is read: a consumer's poll must not cost more the more partitions there are."""
    topic = topic_now()
    log.durable_lsn()
    count = topic.partitions if topic is not None else 0
    wanted = range(count) if only is None else range(only, min(only + 1, count))
    return {partition: log.device.next_offset(topic_number, partition) for partition in wanted}


def _between(header: Header, rows: FrameRows, low: int, high: int) -> FrameRows:
    """The rows with an offset from `low` on and below `high`."""
    if rows.offsets is None:
        first = max(low - header.base_offset, 0)
        count = min(high, header.base_offset + header.offset_count) - header.base_offset - first
        batch = rows.batch.slice(first, count)
        return FrameRows(batch, dense(header.base_offset + first, batch.num_rows))
    kept = pc.and_(pc.greater_equal(rows.offsets, low), pc.less(rows.offsets, high))
    return FrameRows(rows.batch.filter(kept), rows.offsets.filter(kept))


def partition_rows(partition: int, offset: int, rows_max: int) -> Wanted:
    """What a consumer asks for: at most so many rows of one partition, with their offsets."""
    return Wanted(
        start=offset, partition=partition, limit=rows_max, batch_rows=rows_max, system_columns=[OFFSET_COLUMN]
    )


class OlderPart:
    """Rows of one partition that the log has let go of, for a consumer that takes some at a time: the table is loaded
    once for all of them."""

    def __init__(self, rows: Rows, offset: int) -> None:
        self.offset = offset
        """The next one to be taken."""
        self._batches = iter(rows)
        self._left: pa.RecordBatch | None = None

    def take(self, rows_max: int) -> tuple[pa.RecordBatch, int] | None:
        """Rows, without the system's columns, and the offset after the last; nothing where the log goes on."""
        batch = self._left if self._left is not None else next(self._batches, None)
        if batch is None:
            return None
        self._left = batch.slice(rows_max) if batch.num_rows > rows_max else None
        taken = _without_offsets(batch.slice(0, rows_max))
        self.offset = taken[1]
        return taken


def older_part(
    log: FrameLog, topic_now: TopicNow, partition: int, offset: int, older: OlderRows | None
) -> OlderPart | None:
    """The rows of a partition from an offset on that are to be read from the topic's table; nothing where the log
    has them."""
    topic = topic_now()
    if older is None or topic is None or not is_read_from_its_table(topic):
        return None
    log.durable_lsn()
    whole = whole_from(log, topic, older)
    at = lsn_of_offset(log, topic.number, partition, offset) if whole > 1 else None
    if at is None or at >= whole:
        return None
    wanted = Wanted(start=offset, stop=PlaceLsn(whole), partition=partition, system_columns=[OFFSET_COLUMN])
    return OlderPart(read_rows(log, topic_now, wanted, older), offset)


def rows_and_next_offset(rows: Rows) -> tuple[pa.RecordBatch, int] | None:
    """The first batch of rows, without their offsets, and the offset after the last; nothing where there are none."""
    batch = next(iter(rows), None)
    return None if batch is None else _without_offsets(batch)


def _without_offsets(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    following: int = batch.column(OFFSET_COLUMN)[-1].as_py() + 1
    return batch.drop_columns([OFFSET_COLUMN]), following
