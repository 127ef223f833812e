"""Byte runs of a segment, read once for all topics that are wanted from them: rows in the columns of their tables.

PROMISE  Rows of a topic after its `lsn_from` and up to its `lsn_to`, each once, in LSN order; frames of other topics
         and LSNs are passed over by their headers, and their bodies are not looked at.
         Rows of older schema versions come in the newest; all are in the one Arrow schema that the caller gives.
         The frames of a run follow each other: every LSN is there, and each frame names the one before it.
FAULTS   A frame with rows that cannot be read fails its topic alone.  Where it cannot be told whose frame it is, or
         the segment is gone (a rewrite has replaced it), every topic of the work fails, and the round plans it again.
VECTORS  What is done for each frame is its checksum and Arrow's own decoding; small frames are put together first,
         and the system's columns are made for all rows of a topic at once.
SERVED   The frames of a log behind a server come from there as they lie in it, and only those of the topics that are
         wanted: each is checked here, by the checksums that it was written with, and that their LSNs rise.
NOT HERE Which runs: plan.py and source.py.  Writing rows: data_files.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headwater.errors import CorruptData, HeadwaterError, UnknownFormat
from headwater.frames.bodies import unpack_gap
from headwater.frames.frame import UNIT_BYTES, Flag, Header, Kind, NoFrame, chain_value, check_body, decode_header
from headwater.frames.segment_header import decode_segment_frame
from headwater.lake.elsewhere import frames_elsewhere, is_elsewhere
from headwater.lake.work import LandWork, TopicWork
from headwater.log.opened_segment import open_segment
from headwater.log.segment import Opening, Scan, opening_of, read_opening
from headwater.storage.files import File
from headwater.storage.places import open_files
from headwater.topics.batches import arrow_memory, concat, decode_rows
from headwater.topics.schema import adapt, unpack_schema

Integers = npt.NDArray[np.int64]

_CHUNK_BYTES = 4 * 1024 * 1024
_DIRECT_ROWS = 65_536
"""A frame of so many rows stays as it lies; smaller ones are put together ..."""
_TOGETHER_BYTES = 256 * 1024 * 1024
"""... up to this size: Arrow's columns of text end at 2 GiB."""
_DATA, _SPARSE, _GAP = int(Kind.DATA), int(Kind.SPARSE), int(Kind.GAP)
_TOMBSTONES = int(Flag.TOMBSTONES)


@dataclass(frozen=True)
class TopicRows:
    """The rows of one topic."""

    rows: pa.Table
    max_lsn: int = 0
    """The highest LSN of a row; 0: there are none."""
    time_max_us: int | None = None


@dataclass(frozen=True)
class ReadRows:
    topics: dict[int, TopicRows]
    """By topic number; those with an error are not in it."""
    errors: Mapping[int, str]
    bytes_read: int


Frames = Callable[[LandWork], Iterator[memoryview]]


def read_rows(work: LandWork, columns: Mapping[int, pa.Schema], served: Frames = frames_elsewhere) -> ReadRows:
    """The rows of each topic, in its table's columns; `columns` are by topic number, names as the topic has them.  Of a
    log behind a server `served` gets the frames."""
    reading = _Reading(work, served)
    try:
        reading.read()
    except (OSError, HeadwaterError) as error:
        reason = f"{work.segment}: {error}"
        return ReadRows({}, {topic.number: reason for topic in work.topics}, reading.bytes_read)
    topics: dict[int, TopicRows] = {}
    for topic in work.topics:
        if topic.number not in reading.errors:
            topics[topic.number] = reading.frames[topic.number].rows(work.shard, columns[topic.number])
    return ReadRows(topics, reading.errors, reading.bytes_read)


class _Reading:
    """One pass over the runs of a work."""

    def __init__(self, work: LandWork, served: Frames) -> None:
        self._work = work
        self._served = served
        self._file = _CountedReads()
        self.frames = {topic.number: _TopicFrames(topic) for topic in work.topics}
        self.errors: dict[int, str] = {}

    @property
    def bytes_read(self) -> int:
        return self._file.bytes_read

    def read(self) -> None:
        work = self._work
        if is_elsewhere(work.directory):
            self._read_served(self._served(work))
            return
        file = open_segment(open_files(work.directory), "log", work.segment, work.slots)
        try:
            self._file.file = file
            opening = read_opening(self._file.as_file)
            if isinstance(opening, NoFrame):
                raise CorruptData(f"the segment's header cannot be read: {opening.value}; run `headwater log verify`")
            for start, end in work.runs:
                self._read_run(opening, start, end)
        finally:
            file.close()

    def _read_run(self, opening: Opening, start: int, end: int) -> None:
        is_wanted = _wanted_of(self._work.topics)
        lsn = chain = None
        position = start
        while position < end:
            scan = Scan(
                self._file.as_file,
                position,
                end,
                opening.salted,
                chunk_bytes=_CHUNK_BYTES,
                memory=arrow_memory,
                wanted=is_wanted,
            )
            for position, header, body in scan:
                if (lsn is not None and header.lsn != lsn and not _follows(header, body, lsn)) or (
                    chain is not None and header.prev != chain
                ):
                    raise CorruptData("frames of two histories; run `headwater log verify`", position=position)
                if body and header.kind != _GAP:
                    self._add(header, body)
                lsn = header.lsn + 1
                # A rewritten frame keeps its chain value in its body, which may not have been wanted.
                chain = chain_value(header, body) if body or not header.rewritten else None
            position = scan.stop.position
            if position < end:
                position, lsn, chain = self._pass_over(opening, position, scan.stop.reason), None, None

    def _read_served(self, frames: Iterator[memoryview]) -> None:
        """Frames that a server has sent: they are what lies in its log, or their checksums say so here."""
        is_wanted = _wanted_of(self._work.topics)
        opening: Opening | None = None
        lsn = 0
        for data in frames:
            self._file.bytes_read += len(data)
            if opening is None:
                opening = _opening_sent(data)
                continue
            header = decode_header(data, 0, opening.salted)
            if isinstance(header, NoFrame):
                raise CorruptData(f"a frame that was sent cannot be read: {header.value}")
            if header.frame_size != len(data) or header.lsn <= lsn or header.kind == _GAP or not is_wanted(header):
                raise CorruptData("a frame that was not asked for, or not in its place, was sent", lsn=header.lsn)
            lsn = header.lsn
            broken = check_body(header, data, 0)
            if broken is None:
                start = header.header_units * UNIT_BYTES
                self._add(header, data[start : start + header.body_size])
            else:
                reason = f"{self._work.segment}: a frame that was sent cannot be read: {broken.value}"
                self.errors.setdefault(header.topic_number, reason)

    def _add(self, header: Header, body: memoryview) -> None:
        number = header.topic_number
        if number in self.errors:
            return
        try:
            self.frames[number].add(header, body)
        except (CorruptData, UnknownFormat) as error:
            self.errors[number] = f"{self._work.segment}: {error}"

    def _pass_over(self, opening: Opening, position: int, reason: NoFrame) -> int:
        """Where the frame after a broken one begins: its header is whole, so it is known whose it is."""
        broken = CorruptData(
            f"a durable frame cannot be read: {reason.value}; run `headwater log verify`", position=position
        )
        if reason not in (NoFrame.BODY_CRC, NoFrame.PADDING):
            raise broken
        headers = Scan(
            self._file.as_file,
            position,
            self._work.runs[-1][1],
            opening.salted,
            chunk_bytes=0,
            wanted=lambda _: False,
        )
        _, header, _ = next(iter(headers))
        if header.kind == _GAP:
            raise broken
        self.errors.setdefault(header.topic_number, f"{self._work.segment}: {broken}")
        return position + header.frame_size


def _opening_sent(data: memoryview) -> Opening:
    if not isinstance(decode_segment_frame(data), NoFrame):
        return opening_of(bytes(data))
    raise CorruptData("the segment's header that was sent cannot be read")


def _wanted_of(topics: tuple[TopicWork, ...]) -> Callable[[Header], bool]:
    """Which frames are looked into: rows that are wanted, and gaps, which say in their bodies where they begin."""
    bounds = {topic.number: (topic.lsn_from, topic.lsn_to) for topic in topics}

    def is_wanted(header: Header) -> bool:
        kind = header.kind
        if kind == _DATA or kind == _SPARSE:
            between = bounds.get(header.topic_number)
            return between is not None and between[0] < header.lsn <= between[1]
        return kind == _GAP

    return is_wanted


def _follows(header: Header, body: memoryview, lsn: int) -> bool:
    """Is it a gap that begins at this LSN?"""
    if header.kind != _GAP:
        return False
    gap = unpack_gap(body)
    return gap is not None and gap.first_lsn == lsn


@dataclass
class _TopicFrames:
    """The frames of one topic, decoded, and what their headers say."""

    topic: TopicWork
    lsns: list[int] = field(default_factory=list)
    partitions: list[int] = field(default_factory=list)
    base_offsets: list[int] = field(default_factory=list)
    row_counts: list[int] = field(default_factory=list)
    times_us: list[int] = field(default_factory=list)
    tombstones: list[bool] = field(default_factory=list)
    offsets: dict[int, pa.Array] = field(default_factory=dict)
    """Of sparse frames, by their place among the frames."""
    time_max_us: int | None = None

    def __post_init__(self) -> None:
        self._schemas = [unpack_schema(each) for each in self.topic.schemas]
        self._batches: list[pa.RecordBatch] = []
        self._versions: list[int] = []

    def add(self, header: Header, body: memoryview) -> None:
        version = header.schema_version
        if not 1 <= version <= len(self._schemas):
            raise UnknownFormat(
                "rows of a schema version that the landing does not know: land again",
                lsn=header.lsn,
                version=version,
                known=len(self._schemas),
            )
        rows = decode_rows(header, body, self._schemas[version - 1])
        if not header.row_count:
            return
        if rows.offsets is not None:
            self.offsets[len(self.lsns)] = rows.offsets
        self._batches.append(rows.batch)
        self._versions.append(version)
        self.lsns.append(header.lsn)
        self.partitions.append(header.partition)
        self.base_offsets.append(header.base_offset)
        self.row_counts.append(header.row_count)
        self.times_us.append(header.append_time_us)
        self.tombstones.append(bool(header.flags & _TOMBSTONES))
        if self.topic.time_column and (self.time_max_us is None or header.time_max_us > self.time_max_us):
            self.time_max_us = header.time_max_us

    def rows(self, shard: int, schema: pa.Schema) -> TopicRows:
        """All of them as one table of these columns."""
        if not self.lsns:
            return TopicRows(schema.empty_table())
        own = pa.Table.from_batches(self._together(), schema=self._schemas[-1])
        system = self._system_columns(shard)
        arrays = []
        for each in schema:
            column = system[each.name] if each.name in system else own.column(each.name)
            arrays.append(column if column.type.equals(each.type) else column.cast(each.type))
        return TopicRows(pa.Table.from_arrays(arrays, schema=schema), max(self.lsns), self.time_max_us)

    def _together(self) -> Iterator[pa.RecordBatch]:
        """Batches of a useful size in the newest schema version; in order."""
        newest = self._schemas[-1]
        waiting: list[pa.RecordBatch] = []
        size, version = 0, 0
        for batch, of_version in zip(self._batches, self._versions, strict=True):
            direct = batch.num_rows >= _DIRECT_ROWS
            if waiting and (direct or of_version != version or size >= _TOGETHER_BYTES):
                yield adapt(concat(waiting), newest)
                waiting, size = [], 0
            waiting.append(batch)
            size += batch.get_total_buffer_size()
            version = of_version
            if direct:
                size = _TOGETHER_BYTES
        yield adapt(concat(waiting), newest)

    def _system_columns(self, shard: int) -> dict[str, pa.Array]:
        counts = np.array(self.row_counts, np.int64)
        columns = system_columns(shard, self.lsns, self.partitions, self.base_offsets, counts, self.times_us)
        if self.offsets:
            ends = np.cumsum(counts)
            offsets = columns["_hw_offset"].to_numpy().copy()
            for place, sparse in self.offsets.items():
                offsets[ends[place] - counts[place] : ends[place]] = sparse.to_numpy()
            columns["_hw_offset"] = pa.array(offsets)
        if self.topic.changes:
            deleted = np.repeat(np.array(self.tombstones, np.int8), counts)
            columns["_hw_op"] = pa.array(["U", "D"]).take(pa.array(deleted))
        return columns


def system_columns(
    shard: int,
    lsns: Sequence[int],
    partitions: Sequence[int],
    base_offsets: Sequence[int],
    row_counts: Integers,
    times_us: Sequence[int],
) -> dict[str, pa.Array]:
    """The system's columns of the rows of these frames, whose offsets are dense."""
    ends = np.cumsum(row_counts)
    rows = int(ends[-1])
    offsets = np.arange(rows, dtype=np.int64)
    offsets += np.repeat(np.array(base_offsets, np.int64) - (ends - row_counts), row_counts)
    times = pa.array(np.repeat(np.array(times_us, np.int64), row_counts))
    return {
        "_hw_shard": pa.repeat(pa.scalar(shard, pa.int32()), rows),
        "_hw_lsn": pa.array(np.repeat(np.array(lsns, np.int64), row_counts)),
        "_hw_partition": pa.array(np.repeat(np.array(partitions, np.int32), row_counts)),
        "_hw_offset": pa.array(offsets),
        "_hw_time": times.cast(pa.timestamp("us", "UTC")),
    }


class _CountedReads:
    """A file that is only read, and how much was."""

    def __init__(self) -> None:
        self.file: File | None = None
        self.bytes_read = 0

    @property
    def as_file(self) -> File:
        return cast(File, self)  # a scan asks for nothing but this

    def read_into(self, position: int, buffer: memoryview) -> int:
        assert self.file is not None
        got = self.file.read_into(position, buffer)
        self.bytes_read += got
        return got
