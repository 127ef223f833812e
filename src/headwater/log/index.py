"""Where the frames of a segment are, by LSN, by time, and by partition and offset.

An index is rebuilt from its segment when it is missing or wrong, and never trusted for content: whoever
follows it reads a frame with its own checksum, and checks that it is the one that was sought.

ActiveIndex    of the segment that is being written, or has been scanned: typed arrays in memory.
SealedIndex    of a sealed segment: the file below, read in place.
Both answer the same questions (SegmentIndex).

The file, little-endian (docs/formats/segment-index.md):

frames       lsn - first LSN u32 × n, position / 128 u32 × n, append time i64 × n (the running maximum)
entries      base offset u64 × m, offset count u32 × m, ordinal of its frame u32 × m
partitions   topic u32 × p, partition u32 × p, next offset u64 × p, first entry u32 × p, entries u32 × p
topics       topic u32 × t, frames u32 × t, bytes u64 × t, rows u64 × t, last LSN u64 × t
footer       512 bytes, below

Entries are data and sparse frames only, grouped by partition in the order of `partitions`, which is sorted by
(topic, partition) and holds every partition of the log so far, also those without a frame in this segment:
its next offset is the one at the segment's end.  So whoever opens the log reads the last footer and its
partitions, and scans only the newest segment.

footer at 0  magic C8 48 57 49 · 4 footer crc (of the footer from byte 8) · 8 version u32 · 12 sections crc u32
16 frames n u32 · 20 entries m u32 · 24 partitions p u32 · 28 topics t u32
32 first LSN u64 · 40 last LSN u64 · 48 chain value of the last frame u64 · 56 segment bytes u64
64 last append time i64 · 72 epoch u32 · 76 zero u32 · 80 created i64 · 88 partitions crc u32 · 92 zeroes
256 a copy of the segment's first 256 bytes: its header, in case that is damaged

VALID    magic, version, crc of the footer, the file is exactly as long as the counts say, sections crc.
TIED     It belongs to a segment if first LSN, size, last LSN and chain value are the segment's own.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

from headwater.frames.bodies import unpack_gap
from headwater.frames.checksum import crc32c
from headwater.frames.frame import UNIT_BYTES, Header, Kind
from headwater.log.chain import ChainEnd
from headwater.storage.files import File

MAGIC = b"\xc8HWI"
VERSION = 1
FOOTER_BYTES = 512
_FOOTER = struct.Struct("<4sIIIIIIIQQQQqIIqI164x256s")
assert _FOOTER.size == FOOTER_BYTES

_DATA, _SPARSE, _GAP = int(Kind.DATA), int(Kind.SPARSE), int(Kind.GAP)
_U32, _U64, _I64 = struct.Struct("<I"), struct.Struct("<Q"), struct.Struct("<q")
_WINDOW_FRAMES = 4096
"""How many frames' places are read from an index file at a time."""
_PARTITION_MASK = (1 << 32) - 1


def partition_key(topic_number: int, partition: int) -> int:
    """One number for a partition of a topic; keys sort as (topic, partition) does."""
    return topic_number << 32 | partition


@dataclass(frozen=True, slots=True)
class Place:
    """A frame in a segment, as an index remembers it."""

    lsn: int
    position: int


@dataclass(slots=True)
class TopicShare:
    """What a topic has in a segment; topic 0 stands for the frames of none.  Gaps belong to nobody."""

    frames: int = 0
    bytes: int = 0
    rows: int = 0
    last_lsn: int = 0


class SegmentIndex(Protocol):
    """The questions that readers ask."""

    def place_of(self, lsn: int) -> Place | None:
        """The first frame whose LSN is at or above this one (a gap has the last LSN it stands for)."""
        ...

    def place_at_time(self, time_us: int) -> Place | None:
        """The first frame appended at or after this time."""
        ...

    def places(self, key: int, offset: int) -> Iterator[Place]:
        """The frames of a partition that hold this offset or a later one, in order."""
        ...

    def places_of_topic(self, topic_number: int, from_lsn: int) -> Iterator[Place]:
        """The data and sparse frames of a topic, of all its partitions, from this LSN on, in LSN order."""
        ...

    def next_offset(self, key: int) -> int:
        """The offset after the partition's last at the segment's end; 0 where it has none yet."""
        ...

    def next_offsets(self) -> dict[int, int]:
        """The same for every partition."""
        ...

    def topics(self) -> Mapping[int, TopicShare]: ...

    def share_of(self, topic_number: int) -> TopicShare | None:
        """What one topic has here, without looking at the others."""
        ...


@dataclass(frozen=True, slots=True)
class PlacedSegment:
    """A segment as one View shows it: name, index and end belong together, whatever replaces it later."""

    name: str
    index: SegmentIndex
    end: int
    slots: bytes = b""
    """Where it lies, if that is in slots of an object store (opened_segment.py)."""


class ActiveIndex:
    """Arrays that grow with the segment.  One writer adds; readers look at any time.

    About 32 bytes a frame.  A reader sees a frame only once all arrays hold it, because `_count`
    is raised last.
    """

    def __init__(self, first_lsn: int, next_offsets: Mapping[int, int]) -> None:
        self.first_lsn = first_lsn
        self._lsns = array("I")
        self._units = array("I")
        self._times = array("q")
        self._bases = array("Q")
        self._counts = array("I")
        self._ordinals: dict[int, array[int]] = {}
        self._by_topic: dict[int, list[array[int]]] = {}
        self._next_offsets = dict(next_offsets)
        self._topics: dict[int, TopicShare] = {}
        self._count = 0

    def add(self, header: Header, position: int, body: memoryview) -> None:
        """Take in a frame that has been read."""
        if header.kind == _GAP:
            gap = unpack_gap(body)
            assert gap is not None, "the chain walker lets no other gap through"
            for topic_number, partition, following in gap.next_offsets:
                key = topic_number << 32 | partition
                self._next_offsets[key] = max(self._next_offsets.get(key, 0), following)
        self.add_frame(
            header.lsn,
            position,
            header.kind,
            header.topic_number,
            header.partition,
            header.base_offset,
            header.row_count,
            header.offset_count,
            header.frame_size,
            header.append_time_us,
        )

    def add_frame(
        self,
        lsn: int,
        position: int,
        kind: int,
        topic_number: int,
        partition: int,
        base_offset: int,
        row_count: int,
        offset_count: int,
        size: int,
        append_time_us: int,
    ) -> None:
        times = self._times
        ordinal = self._count
        self._lsns.append(lsn - self.first_lsn)
        self._units.append(position // UNIT_BYTES)
        # The running maximum, so that a search by time is right whatever a clock has done.
        times.append(append_time_us if not ordinal or append_time_us >= times[-1] else times[-1])
        self._bases.append(base_offset)
        self._counts.append(offset_count)
        if kind == _DATA or kind == _SPARSE:
            key = topic_number << 32 | partition
            ordinals = self._ordinals.get(key)
            if ordinals is None:
                ordinals = self._add_partition(key, array("I"))
            ordinals.append(ordinal)
            self._next_offsets[key] = base_offset + offset_count
        if kind != _GAP:
            share = self._topics.get(topic_number)
            if share is None:
                share = self._topics[topic_number] = TopicShare()
            share.frames += 1
            share.bytes += size
            share.rows += row_count
            share.last_lsn = lsn
        self._count = ordinal + 1

    def _add_partition(self, key: int, ordinals: array[int]) -> array[int]:
        self._ordinals[key] = ordinals
        self._by_topic.setdefault(key >> 32, []).append(ordinals)
        return ordinals

    def place_of(self, lsn: int) -> Place | None:
        return self._place(self._first_at(lsn))

    def _first_at(self, lsn: int) -> int:
        return bisect_left(self._lsns, max(lsn - self.first_lsn, 0), 0, self._count)

    def place_at_time(self, time_us: int) -> Place | None:
        return self._place(bisect_left(self._times, time_us, 0, self._count))

    def places(self, key: int, offset: int) -> Iterator[Place]:
        ordinals = self._ordinals.get(key)
        if ordinals is None:
            return
        bases, counts = self._bases, self._counts
        at = bisect_left(ordinals, offset, key=lambda ordinal: bases[ordinal] + counts[ordinal] - 1)
        while at < len(ordinals):
            place = self._place(ordinals[at])
            if place is None:
                return
            yield place
            at += 1

    def places_of_topic(self, topic_number: int, from_lsn: int) -> Iterator[Place]:
        first = self._first_at(from_lsn)
        # Slices are copies, so that the writer can go on adding to the arrays.
        parts = [own[bisect_left(own, first) :] for own in tuple(self._by_topic.get(topic_number, ()))]
        for ordinal in parts[0] if len(parts) == 1 else sorted(chain.from_iterable(parts)):
            place = self._place(ordinal)
            if place is None:
                return
            yield place

    def next_offset(self, key: int) -> int:
        return self._next_offsets.get(key, 0)

    def next_offsets(self) -> dict[int, int]:
        return self._next_offsets

    def topics(self) -> Mapping[int, TopicShare]:
        return self._topics

    def share_of(self, topic_number: int) -> TopicShare | None:
        return self._topics.get(topic_number)

    def pack(self, opening: bytes, end: ChainEnd, segment_bytes: int, created_us: int) -> bytes:
        """The index file of the segment that begins with `opening` and ends here."""
        bases, counts, ordinals = array("Q"), array("I"), array("I")
        keys = sorted(self._next_offsets)
        topics, partitions, nexts, firsts, sizes = array("I"), array("I"), array("Q"), array("I"), array("I")
        for key in keys:
            topics.append(key >> 32)
            partitions.append(key & _PARTITION_MASK)
            nexts.append(self._next_offsets[key])
            own = self._ordinals.get(key)
            firsts.append(len(ordinals))
            sizes.append(len(own) if own is not None else 0)
            if own is not None:
                bases.extend(map(self._bases.__getitem__, own))
                counts.extend(map(self._counts.__getitem__, own))
                ordinals.extend(own)
        shares = sorted(self._topics.items())
        by_topic = [
            array("I", [topic for topic, _ in shares]),
            array("I", [share.frames for _, share in shares]),
            array("Q", [share.bytes for _, share in shares]),
            array("Q", [share.rows for _, share in shares]),
            array("Q", [share.last_lsn for _, share in shares]),
        ]
        frames = _pack_arrays([self._lsns, self._units, self._times])
        entries = _pack_arrays([bases, counts, ordinals])
        directory = _pack_arrays([topics, partitions, nexts, firsts, sizes])
        sections = frames + entries + directory + _pack_arrays(by_topic)
        footer = _FOOTER.pack(
            MAGIC,
            0,
            VERSION,
            crc32c(sections),
            self._count,
            len(ordinals),
            len(keys),
            len(shares),
            self.first_lsn,
            end.next_lsn - 1,
            end.chain,
            segment_bytes,
            end.append_time_us,
            end.epoch,
            0,
            created_us,
            crc32c(directory),
            opening,
        )
        return sections + footer[:4] + _U32.pack(crc32c(footer[8:])) + footer[8:]

    def _place(self, ordinal: int) -> Place | None:
        if ordinal >= self._count:
            return None
        return Place(self._lsns[ordinal] + self.first_lsn, self._units[ordinal] * UNIT_BYTES)


def _pack_arrays(arrays: list[array[int]]) -> bytes:
    if sys.byteorder == "big":  # pragma: no cover  The format is little-endian; no such machine is tested.
        for each in arrays:
            each.byteswap()
    return b"".join(each.tobytes() for each in arrays)


@dataclass(frozen=True, slots=True)
class Footer:
    """The last 512 bytes of an index file."""

    sections_crc: int
    frames: int
    entries: int
    partitions: int
    topics: int
    first_lsn: int
    last_lsn: int
    chain: int
    segment_bytes: int
    append_time_us: int
    epoch: int
    created_us: int
    partitions_crc: int
    opening: bytes

    @property
    def sections_bytes(self) -> int:
        return self.frames * 16 + self.entries * 16 + self.partitions * 24 + self.topics * 32

    @property
    def partitions_position(self) -> int:
        return self.frames * 16 + self.entries * 16

    @property
    def end(self) -> ChainEnd:
        return ChainEnd(self.last_lsn + 1, self.chain, self.epoch, self.append_time_us)


def read_footer(file: File) -> Footer | None:
    """The footer, or nothing where it is not valid or the file has another size than it says."""
    size = file.size()
    if size < FOOTER_BYTES:
        return None
    data = bytearray(FOOTER_BYTES)
    if file.read_into(size - FOOTER_BYTES, memoryview(data)) < FOOTER_BYTES:
        return None
    magic, crc, version, sections_crc, n, m, p, t, *rest = _FOOTER.unpack(data)
    if magic != MAGIC or crc32c(memoryview(data)[8:]) != crc or version != VERSION:
        return None
    first_lsn, last_lsn, chain, segment_bytes, append_time_us, epoch, _, created_us, partitions_crc, opening = rest
    footer = Footer(
        sections_crc,
        n,
        m,
        p,
        t,
        first_lsn,
        last_lsn,
        chain,
        segment_bytes,
        append_time_us,
        epoch,
        created_us,
        partitions_crc,
        opening,
    )
    return footer if size == footer.sections_bytes + FOOTER_BYTES else None


def read_next_offsets(file: File, footer: Footer) -> dict[int, int] | None:
    """Every partition's next offset at the segment's end, or nothing where they are damaged."""
    count = footer.partitions
    data = bytearray(count * 24)
    got = file.read_into(footer.partitions_position, memoryview(data))
    if got < len(data) or crc32c(data) != footer.partitions_crc:
        return None
    view = memoryview(data)
    topics = view[: 4 * count].cast("I")
    partitions = view[4 * count : 8 * count].cast("I")
    nexts = view[8 * count : 16 * count].cast("Q")
    return {
        topic << 32 | partition: following
        for topic, partition, following in zip(topics, partitions, nexts, strict=True)
    }


class SealedIndex:
    """An index file, read in place by binary search.  Made only by `open_sealed`, which checks it whole."""

    def __init__(self, file: File, footer: Footer) -> None:
        self._file = file
        self.footer = footer
        n, m, p = footer.frames, footer.entries, footer.partitions
        self._units_at = 4 * n
        self._times_at = 8 * n
        self._bases_at = 16 * n
        self._counts_at = self._bases_at + 8 * m
        self._ordinals_at = self._counts_at + 4 * m
        self._topics_at = self._bases_at + 16 * m
        self._partitions_at = self._topics_at + 4 * p
        self._nexts_at = self._partitions_at + 4 * p
        self._firsts_at = self._nexts_at + 8 * p
        self._sizes_at = self._firsts_at + 4 * p
        self._shares_at = self._sizes_at + 4 * p

    def place_of(self, lsn: int) -> Place | None:
        return self._place(self._first_at(lsn))

    def _first_at(self, lsn: int) -> int:
        return bisect_left(range(self.footer.frames), max(lsn - self.footer.first_lsn, 0), key=self._lsn_at)

    def place_at_time(self, time_us: int) -> Place | None:
        return self._place(bisect_left(range(self.footer.frames), time_us, key=self._time_at))

    def places(self, key: int, offset: int) -> Iterator[Place]:
        at = self._partition_at(key)
        if at is None:
            return
        first = self._u32(self._firsts_at, at)
        last = first + self._u32(self._sizes_at, at)
        entry = bisect_left(range(last), offset, lo=first, key=self._last_offset_at)
        for each in range(entry, last):
            place = self._place(self._u32(self._ordinals_at, each))
            assert place is not None
            yield place

    def places_of_topic(self, topic_number: int, from_lsn: int) -> Iterator[Place]:
        ordinals = self._ordinals_of_topic(topic_number)
        first_lsn, frames = self.footer.first_lsn, self.footer.frames
        lsns = units = array("I")
        start = end = 0
        for at in range(bisect_left(ordinals, self._first_at(from_lsn)), len(ordinals)):
            ordinal = ordinals[at]
            if ordinal >= end:
                start, end = ordinal, min(ordinal + _WINDOW_FRAMES, frames)
                lsns = _read_array(self._file, "I", 4 * start, end - start)
                units = _read_array(self._file, "I", self._units_at + 4 * start, end - start)
            yield Place(lsns[ordinal - start] + first_lsn, units[ordinal - start] * UNIT_BYTES)

    def _ordinals_of_topic(self, topic_number: int) -> array[int]:
        """Of its data and sparse frames, rising.  The entries of a topic lie together, one partition after another."""
        partitions = range(self.footer.partitions)
        low = bisect_left(partitions, topic_number << 32, key=self._key_at)
        high = bisect_left(partitions, topic_number + 1 << 32, lo=low, key=self._key_at)
        if low == high:
            return array("I")
        firsts = _read_array(self._file, "I", self._firsts_at + 4 * low, high - low)
        sizes = _read_array(self._file, "I", self._sizes_at + 4 * low, high - low)
        ordinals = _read_array(self._file, "I", self._ordinals_at + 4 * firsts[0], sum(sizes))
        return ordinals if high - low == 1 else array("I", sorted(ordinals))

    def next_offset(self, key: int) -> int:
        at = self._partition_at(key)
        return 0 if at is None else self._u64(self._nexts_at, at)

    def next_offsets(self) -> dict[int, int]:
        nexts = read_next_offsets(self._file, self.footer)
        assert nexts is not None, "the sections were checked when this index was opened"
        return nexts

    def topics(self) -> Mapping[int, TopicShare]:
        t, at = self.footer.topics, self._shares_at
        columns = [
            _read_array(self._file, "I", at, t),
            _read_array(self._file, "I", at + 4 * t, t),
            _read_array(self._file, "Q", at + 8 * t, t),
            _read_array(self._file, "Q", at + 16 * t, t),
            _read_array(self._file, "Q", at + 24 * t, t),
        ]
        return {topic: TopicShare(*share) for topic, *share in zip(*columns, strict=True)}

    def share_of(self, topic_number: int) -> TopicShare | None:
        t, at = self.footer.topics, self._shares_at
        i = bisect_left(range(t), topic_number, key=lambda each: self._u32(at, each))
        return self._share(i) if i < t and self._u32(at, i) == topic_number else None

    def _share(self, i: int) -> TopicShare:
        t, at = self.footer.topics, self._shares_at
        return TopicShare(
            self._u32(at + 4 * t, i), self._u64(at + 8 * t, i), self._u64(at + 16 * t, i), self._u64(at + 24 * t, i)
        )

    def close(self) -> None:
        self._file.close()

    def _partition_at(self, key: int) -> int | None:
        count = self.footer.partitions
        at = bisect_left(range(count), key, key=self._key_at)
        return at if at < count and self._key_at(at) == key else None

    def _key_at(self, at: int) -> int:
        return self._u32(self._topics_at, at) << 32 | self._u32(self._partitions_at, at)

    def _place(self, ordinal: int) -> Place | None:
        if ordinal >= self.footer.frames:
            return None
        lsn = self._lsn_at(ordinal) + self.footer.first_lsn
        return Place(lsn, self._u32(self._units_at, ordinal) * UNIT_BYTES)

    def _last_offset_at(self, entry: int) -> int:
        return self._u64(self._bases_at, entry) + self._u32(self._counts_at, entry) - 1

    def _lsn_at(self, at: int) -> int:
        return self._u32(0, at)

    def _time_at(self, at: int) -> int:
        value: int = _I64.unpack(self._file.read_at(self._times_at + 8 * at, 8))[0]
        return value

    def _u32(self, base: int, at: int) -> int:
        value: int = _U32.unpack(self._file.read_at(base + 4 * at, 4))[0]
        return value

    def _u64(self, base: int, at: int) -> int:
        value: int = _U64.unpack(self._file.read_at(base + 8 * at, 8))[0]
        return value


def open_sealed(file: File, footer: Footer, *, chunk_bytes: int) -> SealedIndex | None:
    """The index in this file, or nothing where a section does not match its checksum."""
    crc = 0
    position = 0
    buffer = memoryview(bytearray(min(chunk_bytes, max(footer.sections_bytes, 1))))
    while position < footer.sections_bytes:
        got = file.read_into(position, buffer[: min(len(buffer), footer.sections_bytes - position)])
        if got == 0:
            return None
        crc = crc32c(buffer[:got], crc)
        position += got
    return SealedIndex(file, footer) if crc == footer.sections_crc else None


def load_active(file: File, footer: Footer) -> ActiveIndex | None:
    """The index in this file as one that can grow: for a segment that was closed cleanly and is not yet sealed."""
    sealed = open_sealed(file, footer, chunk_bytes=1 << 20)
    nexts = read_next_offsets(file, footer)
    if sealed is None or nexts is None:
        return None
    n, m, p = footer.frames, footer.entries, footer.partitions
    index = ActiveIndex(footer.first_lsn, nexts)
    index._lsns = _read_array(file, "I", 0, n)
    index._units = _read_array(file, "I", 4 * n, n)
    index._times = _read_array(file, "q", 8 * n, n)
    index._bases = array("Q", bytes(8 * n))
    index._counts = array("I", bytes(4 * n))
    at = 16 * n
    bases = _read_array(file, "Q", at, m)
    counts = _read_array(file, "I", at + 8 * m, m)
    ordinals = _read_array(file, "I", at + 12 * m, m)
    at += 16 * m
    firsts = _read_array(file, "I", at + 16 * p, p)
    sizes = _read_array(file, "I", at + 20 * p, p)
    for entry, ordinal in enumerate(ordinals):
        index._bases[ordinal] = bases[entry]
        index._counts[ordinal] = counts[entry]
    for key, first, size in zip(sorted(nexts), firsts, sizes, strict=True):
        if size:
            index._add_partition(key, ordinals[first : first + size])
    index._topics = dict(sealed.topics())
    index._count = n
    return index


def _read_array(file: File, typecode: str, position: int, count: int) -> array[int]:
    values: array[int] = array(typecode)
    values.frombytes(file.read_at(position, count * values.itemsize))
    if sys.byteorder == "big":  # pragma: no cover  As in _pack_arrays.
        values.byteswap()
    return values
