"""A segment file, read: where a scan goes on, where it stops and why, and what lies behind a break."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headwater.errors import CorruptData
from headwater.frames.frame import Kind, NoFrame, reseal_header
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, pack_segment_frame
from headwater.log.segment import (
    Memory,
    Opening,
    Scan,
    Stop,
    cleared_memory,
    opening_of,
    read_frame,
    read_opening,
    valid_headers_after,
)
from headwater.storage.files import File
from headwater.storage.simulated import SimulatedFiles
from tests.formats.segments import SALT, SegmentBuilder, frame_at, segment_header

LONGEST_HEADER_BYTES = 255 * 128


def file_of(data: bytes | bytearray) -> File:
    files = SimulatedFiles()
    files.put("s", bytes(data))
    return files.open("s")


def begun() -> SegmentBuilder:
    return SegmentBuilder(segment_header())


def some_frames(count: int = 3, body: bytes = b"rows") -> SegmentBuilder:
    built = begun()
    for _ in range(count):
        built.add(Kind.DATA, body)
    return built


class Counted:
    """A file that counts the bytes that are asked of it."""

    def __init__(self, file: File) -> None:
        self._file = file
        self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_at(self, position: int, size: int) -> bytes:
        self.bytes += size
        return self._file.read_at(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self.bytes += len(buffer)
        return self._file.read_into(position, buffer)


def scan_of(
    built: SegmentBuilder, data: bytes | bytearray | None = None, *, end: int | None = None, chunk_bytes: int = 1
) -> tuple[list[int], Stop]:
    """The LSNs that a scan finds, and where it stops."""
    content = built.data if data is None else data
    scan = Scan(
        file_of(content),
        SEGMENT_FRAME_BYTES,
        len(content) if end is None else end,
        built.salted,
        chunk_bytes=chunk_bytes,
    )
    return [header.lsn for _, header, _ in scan], scan.stop


# The opening ----------------------------------------------------------------------------------------------------------


def test_the_opening_is_what_the_segment_says_of_itself() -> None:
    built = some_frames()

    opening = read_opening(file_of(built.data))

    assert isinstance(opening, Opening)
    assert opening.header == built.segment
    assert opening.chain == built.segment_chain
    assert opening.salted == built.salted
    assert opening.data == built.data[:SEGMENT_FRAME_BYTES]
    assert opening_of(pack_segment_frame(built.segment)) == opening


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", NoFrame.END),
        (bytes(256), NoFrame.END),
        (bytes(begun().data[:100]), NoFrame.SHORT),
        (bytes(begun().data[:200]), NoFrame.SHORT),
        (b"x" * 256, NoFrame.MAGIC),
        (bytes(begun().data[:255]) + b"x", NoFrame.BODY_CRC),
    ],
)
def test_without_a_whole_segment_frame_the_opening_is_the_reason(data: bytes, why: NoFrame) -> None:
    opening = read_opening(file_of(data))

    assert opening is why


# Scanning -------------------------------------------------------------------------------------------------------------


def test_a_scan_yields_every_frame_with_its_place_and_body() -> None:
    built = begun()
    built.add(Kind.DATA, b"one")
    built.add(Kind.SCHEMA, b"")
    built.add(Kind.DATA, b"three" * 100)

    scan = Scan(file_of(built.data), SEGMENT_FRAME_BYTES, len(built.data), built.salted, chunk_bytes=1 << 20)
    found = [(position, header.lsn, bytes(body)) for position, header, body in scan]

    assert found == [(256, 1, b"one"), (512, 2, b""), (640, 3, b"three" * 100)]
    assert scan.stop == Stop(len(built.data), NoFrame.END)


@pytest.mark.parametrize("body_bytes", [0, 1, 1000, LONGEST_HEADER_BYTES, 3 * LONGEST_HEADER_BYTES])
def test_frames_are_found_whatever_chunk_they_cross(body_bytes: int) -> None:
    built = some_frames(200, bytes(body_bytes)) if body_bytes < 2000 else some_frames(4, bytes(body_bytes))

    found, stop = scan_of(built)

    assert found == [laid.facts["lsn"] for laid in built.laid]
    assert stop == Stop(len(built.data), NoFrame.END)


def test_bodies_may_be_kept_unless_the_scan_reuses_its_memory() -> None:
    built = begun()
    for number in range(100):
        built.add(Kind.DATA, bytes([number]) * 1000)

    scan = Scan(file_of(built.data), 256, len(built.data), built.salted, chunk_bytes=1, memory=cleared_memory)
    bodies = [body for _, _, body in scan]

    assert [bytes(body) for body in bodies] == [bytes([number]) * 1000 for number in range(100)]


def test_a_scan_with_reuse_reads_many_chunks_into_the_same_memory() -> None:
    built = begun()
    for number in range(100):
        built.add(Kind.DATA, bytes([number]) * 1000)

    scan = Scan(file_of(built.data), 256, len(built.data), built.salted, chunk_bytes=1)
    bodies = [body for _, _, body in scan]

    assert len({id(body.obj) for body in bodies}) == 1


@pytest.mark.parametrize("memory", [None, cleared_memory])
@pytest.mark.parametrize("body_bytes", [100, 40_000, 3 * LONGEST_HEADER_BYTES])
def test_frames_that_are_all_as_long_are_read_once(body_bytes: int, memory: Memory | None) -> None:
    built = some_frames(40, bytes(body_bytes))
    file: Any = Counted(file_of(built.data))

    scan = Scan(file, 256, len(built.data), built.salted, chunk_bytes=1 << 16, memory=memory)
    found = [header.lsn for _, header, _ in scan]

    assert found == list(range(1, 41))
    # Before the first frame nobody knows how long they are.
    assert file.bytes <= len(built.data) + (1 << 16)


def test_frames_of_any_lengths_are_found_whichever_came_before() -> None:
    chance = Random(3)
    built = begun()
    for _ in range(300):
        units = chance.choice([0, 0, 0, 20, 200, 254])
        built.add(Kind.DATA, bytes(chance.choice([0, 5, 9_000, 20_000, 40_000])), extension=bytes(units * 128))

    found, stop = scan_of(built)

    assert found == list(range(1, 301))
    assert stop == Stop(len(built.data), NoFrame.END)


@pytest.mark.parametrize("memory", [None, cleared_memory])
def test_a_frame_that_is_not_wanted_comes_without_a_body_which_is_neither_checked_nor_read(
    memory: Memory | None,
) -> None:
    built = begun()
    for number in range(10):
        built.add(Kind.DATA, b"even" if number % 2 else bytes(200_000))
    data = bytearray(built.data)
    data[built.laid[4].at + 150_000] ^= 1
    file: Any = Counted(file_of(data))

    scan = Scan(
        file, 256, len(data), built.salted, chunk_bytes=1, memory=memory, wanted=lambda header: header.lsn % 2 == 0
    )
    found = [(header.lsn, bytes(body)) for _, header, body in scan]

    assert found == [(lsn, b"" if lsn % 2 else b"even") for lsn in range(1, 11)]
    assert scan.stop == Stop(len(data), NoFrame.END)
    assert file.bytes < 11 * LONGEST_HEADER_BYTES


def test_a_frame_that_is_not_wanted_and_whose_end_is_missing_is_short() -> None:
    built = some_frames(2, bytes(100_000))
    last = built.laid[1].at

    scan = Scan(file_of(built.data), 256, len(built.data) - 1, built.salted, chunk_bytes=1, wanted=lambda header: False)
    found = [header.lsn for _, header, _ in scan]

    assert found == [1]
    assert scan.stop == Stop(last, NoFrame.SHORT)


def test_a_scan_that_keeps_bodies_stops_where_the_file_ends_even_if_it_was_told_of_more() -> None:
    built = some_frames()

    scan = Scan(file_of(built.data), 256, len(built.data) + 4096, built.salted, chunk_bytes=1, memory=cleared_memory)
    found = [header.lsn for _, header, _ in scan]

    assert found == [1, 2, 3]
    assert scan.stop == Stop(len(built.data), NoFrame.END)


def test_zeroes_behind_the_frames_are_an_end() -> None:
    built = some_frames()
    end = len(built.data)

    assert scan_of(built, built.data + bytes(512)) == ([1, 2, 3], Stop(end, NoFrame.END))
    assert scan_of(built, built.data + bytes(100)) == ([1, 2, 3], Stop(end, NoFrame.END))


@pytest.mark.parametrize("left", [1, 127, 128, 200, 255])
def test_a_frame_whose_end_is_missing_is_short(left: int) -> None:
    built = some_frames()
    last = built.laid[-1].at

    found, stop = scan_of(built, built.data[: last + left])

    assert found == [1, 2]
    assert stop == Stop(last, NoFrame.SHORT)


def test_a_scan_stops_where_it_was_told_even_if_the_file_goes_on() -> None:
    built = some_frames()

    assert scan_of(built, end=built.laid[2].at) == ([1, 2], Stop(built.laid[2].at, NoFrame.END))
    assert scan_of(built, end=built.laid[2].at + 128) == ([1, 2], Stop(built.laid[2].at, NoFrame.SHORT))


def test_a_scan_stops_where_the_file_ends_even_if_it_was_told_of_more() -> None:
    built = some_frames()

    found, stop = scan_of(built, end=len(built.data) + 4096)

    assert found == [1, 2, 3]
    assert stop == Stop(len(built.data), NoFrame.END)


@pytest.mark.parametrize(
    ("at", "why"),
    [(0, NoFrame.MAGIC), (4, NoFrame.HEADER_CRC), (130, NoFrame.BODY_CRC), (255, NoFrame.PADDING)],
)
def test_a_scan_stops_at_the_first_broken_frame_and_says_why(at: int, why: NoFrame) -> None:
    built = some_frames()
    second = built.laid[1].at
    data = bytearray(built.data)
    data[second + at] ^= 1

    found, stop = scan_of(built, data)

    assert found == [1]
    assert stop == Stop(second, why)


def test_a_longer_header_of_a_later_version_is_read_over() -> None:
    built = begun()
    built.add(Kind.DATA, b"one", extension=bytes(254 * 128))
    built.add(Kind.DATA, b"two", extension=bytes(128))

    found, stop = scan_of(built)

    assert found == [1, 2]
    assert stop.position == len(built.data)


def test_a_longer_header_that_is_cut_is_short() -> None:
    built = begun()
    built.add(Kind.DATA, b"one")
    built.add(Kind.DATA, b"two", extension=bytes(128 * 3))
    second = built.laid[1].at

    found, stop = scan_of(built, built.data[: second + 256])

    assert found == [1]
    assert stop == Stop(second, NoFrame.SHORT)


# Behind a break -------------------------------------------------------------------------------------------------------


def behind(built: SegmentBuilder, data: bytes | bytearray, start: int = 256, chunk_bytes: int = 1 << 20) -> list[int]:
    found = valid_headers_after(file_of(data), start, len(data), built.salted, chunk_bytes=chunk_bytes)
    return [position for position, _ in found]


def test_every_valid_header_is_found_whatever_lies_before_it() -> None:
    built = some_frames(4)
    data = bytearray(built.data)
    data[built.laid[0].at] ^= 1
    data[built.laid[2].at + 50] ^= 1

    found = behind(built, data)

    assert found == [built.laid[1].at, built.laid[3].at]


@pytest.mark.parametrize("chunk_bytes", [1, 512, 640])
def test_headers_are_found_in_chunks_of_any_size(chunk_bytes: int) -> None:
    built = some_frames(50, b"x" * 200)

    found = behind(built, built.data, chunk_bytes=chunk_bytes)

    assert found == [laid.at for laid in built.laid]


def test_the_search_begins_at_the_unit_that_holds_its_start() -> None:
    built = some_frames()

    found = behind(built, built.data, start=built.laid[1].at + 5)

    assert found == [laid.at for laid in built.laid[1:]]


def test_a_header_whose_body_is_damaged_still_counts() -> None:
    built = some_frames()
    data = bytearray(built.data)
    data[built.laid[1].at + 130] ^= 1

    found = behind(built, data)

    assert found == [laid.at for laid in built.laid]


def test_a_header_in_a_body_counts_only_with_this_segments_salt_and_never_as_a_segment() -> None:
    other = SegmentBuilder(segment_header(salt=b"othersal"))
    other.add(Kind.DATA, b"", durable_lsn=1 << 40)
    forged = bytes(other.data)
    built = begun()
    built.add(Kind.DATA, forged)

    found = behind(built, built.data)

    assert found == [256]
    assert forged[:4] == b"\xc8HWF"


def test_a_magic_that_stands_off_the_grid_is_no_header() -> None:
    built = begun()
    copy = bytes(some_frames(1).data[256:])
    built.add(Kind.DATA, bytes(5) + copy)

    found = behind(built, built.data)

    assert found == [256]


def test_a_header_of_many_units_is_read_whole_where_it_lies() -> None:
    built = begun()
    built.add(Kind.DATA, b"", extension=bytes(254 * 128))

    found = behind(built, built.data, chunk_bytes=512)

    assert found == [256]


def test_less_than_a_unit_at_the_end_holds_no_header() -> None:
    built = some_frames(1)

    found = behind(built, built.data + b"\xc8HWF", start=len(built.data))

    assert found == []


# One frame ------------------------------------------------------------------------------------------------------------


def test_the_frame_at_a_known_place_is_read_with_its_body() -> None:
    built = begun()
    built.add(Kind.DATA, b"one")
    built.add(Kind.DATA, b"two" * 100, extension=bytes(256))
    built.add(Kind.SCHEMA, b"")

    found = [read_frame(file_of(built.data), laid.at, built.salted) for laid in built.laid]

    assert [(header.lsn, bytes(body)) for header, body in found] == [(1, b"one"), (2, b"two" * 100), (3, b"")]


@pytest.mark.parametrize(
    ("at", "why"),
    [(0, NoFrame.MAGIC), (20, NoFrame.HEADER_CRC), (130, NoFrame.BODY_CRC), (255, NoFrame.PADDING)],
)
def test_a_frame_that_is_not_valid_is_corrupt_and_named_by_file_and_position(at: int, why: NoFrame) -> None:
    built = some_frames()
    data = bytearray(built.data)
    data[256 + at] ^= 1

    with pytest.raises(CorruptData) as found:
        read_frame(file_of(data), 256, built.salted)

    assert why.value in found.value.message
    assert found.value.facts == {"file": "s", "position": 256}


def test_a_frame_beyond_the_end_of_the_file_is_corrupt() -> None:
    built = some_frames(1)
    longer = begun()
    longer.add(Kind.DATA, b"one", extension=bytes(256))

    for data, position in [
        (built.data, 512),
        (built.data[:300], 256),
        (built.data[:390], 256),
        (longer.data[:400], 256),
    ]:
        with pytest.raises(CorruptData):
            read_frame(file_of(data), position, built.salted)


def test_a_whole_frame_that_breaks_a_rule_is_corrupt() -> None:
    built = some_frames(1)
    met = frame_at(memoryview(built.data), 256, built.salted)
    assert not isinstance(met, NoFrame)
    broken = reseal_header(met.header._replace(kind=100), built.salted)
    data = bytearray(built.data)
    data[256 + 4 : 256 + 8] = broken.header_crc.to_bytes(4, "little")
    data[256 + 13] = 100

    with pytest.raises(CorruptData, match="a kind that this version does not know"):
        read_frame(file_of(data), 256, built.salted)

    assert built.segment.salt == SALT
