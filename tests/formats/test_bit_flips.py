"""No changed bit, lost byte or misplaced sector of a segment goes unnoticed.

The segment is 64 KiB and holds every frame kind.  Each bit of it is flipped, and the frame at the place is read
again with its header, body and padding, and its links to its neighbours: what is found must be a report, and the
report that the rules of docs/formats/frame.md give for that byte.

HEADWATER_BIT_FLIPS   how many changes the test of random segments makes; by default few.
HEADWATER_BIT_SEED    the seed of the first of them, by default the test's own.  A seed is the whole repro.
NOT HERE              Index and mark: they have formats of their own.  What recovery makes of a report.
"""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import pytest

from headwater.frames.bodies import Gap, GapReason, pack_epoch
from headwater.frames.frame import UNIT_BYTES, Codec, Flag, Header, Kind, NoFrame, check_body, decode_header, salt_crc
from headwater.frames.segment_header import decode_segment_frame
from tests.formats.segments import (
    LOG_ID,
    TOKEN,
    Met,
    Neighbour,
    SegmentBuilder,
    broken_link,
    frame_at,
    segment_header,
    walk,
)

SEGMENT_BYTES = 64 * 1024
SECTOR_BYTES = 512
FLIPS = int(os.environ.get("HEADWATER_BIT_FLIPS", "100000"))
FLIPS_PER_SEGMENT = 20_000


class Place(NamedTuple):
    """A frame of the segment as it was before anything happened to it."""

    at: int
    size: int
    before: Neighbour


@dataclass(frozen=True)
class Whole:
    """A segment of exactly 64 KiB, and where its frames are; the first place is the SEGMENT frame's."""

    data: bytes
    salted: int
    places: list[Place]
    frame_of_unit: list[int]

    def place_of(self, at: int) -> Place:
        return self.places[self.frame_of_unit[at // UNIT_BYTES]]


def whole_segment(seed: int) -> Whole:
    """Every kind, both codecs, all flags, a longer header, frames of one unit and of many; sizes by the seed."""
    draw = random.Random(seed)
    built = SegmentBuilder(
        segment_header(
            log_id=LOG_ID,
            salt=draw.randbytes(8),
            first_lsn=draw.randrange(1, 2**40),
            prev=draw.getrandbits(64),
            epoch=draw.randrange(1, 2**20),
            generation=1,
            old_chain=draw.getrandbits(64),
        )
    )
    built.add(Kind.EPOCH, pack_epoch(built.segment.epoch, TOKEN))
    kinds = [int(kind) for kind in Kind if kind not in (Kind.SEGMENT, Kind.EPOCH, Kind.SPARSE, Kind.GAP)]
    for kind in [*kinds, 128, 255]:
        built.add(kind, draw.randbytes(draw.randrange(1, 300)), topic_number=draw.getrandbits(32), row_count=1)
    built.add(Kind.DATA, draw.randbytes(40) * 40, codec=Codec.ZSTD, row_count=40)
    built.add(Kind.DATA, draw.randbytes(70), extension=draw.randbytes(2 * UNIT_BYTES))
    built.add(Kind.SPARSE, draw.randbytes(50), replaces=draw.getrandbits(64), row_count=1, offset_count=9)
    gone = draw.randrange(1, 1000)
    gap = Gap(built.next_lsn, built.next_lsn + gone - 1, gone, GapReason.DRAINED, draw.getrandbits(64))
    built.add_gap(gap)
    flags = int(Flag.TRANSACTION | Flag.TOMBSTONES)
    for index in range(3):
        built.add(Kind.DATA, draw.randbytes(10), write_index=index, write_count=3, flags=flags)
    # Frames that begin and end with a sector: moved elsewhere they are still whole, and only the links tell.
    while len(built.data) % SECTOR_BYTES:
        built.add(Kind.DATA)
    for _ in range(16):
        built.add(
            Kind.DATA, draw.randbytes(draw.randrange(SECTOR_BYTES - 2 * UNIT_BYTES + 1, SECTOR_BYTES - UNIT_BYTES))
        )
    while len(built.data) < SEGMENT_BYTES - 8 * UNIT_BYTES:
        room = SEGMENT_BYTES - len(built.data) - 8 * UNIT_BYTES
        built.add(Kind.DATA, draw.randbytes(min(int(draw.paretovariate(0.7) * 20), 6_000, room)))
    while len(built.data) < SEGMENT_BYTES:
        built.add(Kind.OFFSETS)
    return map_of(built)


def map_of(built: SegmentBuilder) -> Whole:
    """The places of a built segment, with what each frame's neighbour says of it."""
    data = bytes(built.data)
    assert len(data) == SEGMENT_BYTES
    found = walk(data)
    assert found.segment is not None
    assert (found.end_at, found.why) == (SEGMENT_BYTES, "END")
    segment = found.segment
    before = Neighbour(segment.first_lsn - 1, found.segment_chain, segment.epoch)
    places = [Place(0, found.frames[0].at, before)]
    for frame in found.frames:
        places.append(Place(frame.at, frame.size, before))
        before = before.after(frame)
    units = [number for number, place in enumerate(places) for _ in range(place.size // UNIT_BYTES)]
    return Whole(data, salt_crc(segment.salt), places, units)


def report_at(data: memoryview, place: Place, salted: int) -> str:
    """What a reader who comes along the chain says of the frame at a place; nothing where it finds no fault."""
    if place.at == 0:
        found = decode_segment_frame(data)
        return found.name if isinstance(found, NoFrame) else ""
    frame = frame_at(data, place.at, salted)
    if isinstance(frame, NoFrame):
        return frame.name
    return broken_link(place.before, frame) or ""


def report_of_change(data: memoryview, place: Place, salted: int) -> str:
    """As report_at, in the fewest steps, for millions of changes: a link is looked at where a frame is valid."""
    header = decode_header(data, place.at, salted)
    if isinstance(header, NoFrame):
        return header.name
    broken = check_body(header, data, place.at)
    return broken.name if broken is not None else report_at(data, place, salted)


def header_of(data: memoryview, place: Place, salted: int) -> Header:
    header = decode_header(data, place.at, salted)
    assert isinstance(header, Header)
    return header


def due_report(header: Header, at_in_frame: int) -> set[str]:
    """What the rules allow to be said of one flipped bit in this byte of a frame."""
    header_size = header.header_units * UNIT_BYTES
    if at_in_frame < 4:
        return {"MAGIC"}
    if at_in_frame == 12:
        return {"HEADER_CRC", "SHORT"}  # A longer header may reach beyond the end of the file.
    if at_in_frame < header_size:
        return {"HEADER_CRC"}
    return {"BODY_CRC"} if at_in_frame < header_size + header.body_size else {"PADDING"}


@pytest.fixture(scope="module")
def whole() -> Whole:
    return whole_segment(20_260_101)


def test_the_segment_under_test_holds_every_kind(whole: Whole) -> None:
    frames = walk(whole.data).frames

    kinds = {frame.header.kind for frame in frames} | {Kind.SEGMENT}

    assert kinds == {*Kind, 128, 255}
    assert {frame.header.codec for frame in frames} == set(Codec)
    assert {frame.header.header_units for frame in frames} == {1, 3}
    assert len(whole.data) == SEGMENT_BYTES


def test_every_flipped_bit_of_a_segment_is_noticed_and_said_by_its_name(whole: Whole) -> None:
    changed = bytearray(whole.data)
    view = memoryview(changed)
    tally: Counter[str] = Counter()
    wrong: list[tuple[int, int, str]] = []

    for place in whole.places:
        header = header_of(view, place, whole.salted)
        for at in range(place.at, place.at + place.size):
            due = due_report(header, at - place.at)
            for bit in range(8):
                changed[at] ^= 1 << bit
                report = report_of_change(view, place, whole.salted)
                changed[at] ^= 1 << bit
                tally[report] += 1
                if report not in due:
                    wrong.append((at, bit, report))

    print(f"{sum(tally.values()):,} flips: {dict(tally)}")
    assert wrong == []
    assert sum(tally.values()) == SEGMENT_BYTES * 8
    assert set(tally) == {"MAGIC", "HEADER_CRC", "SHORT", "BODY_CRC", "PADDING"}
    assert changed == whole.data


@pytest.mark.timeout(120 + FLIPS // 20_000)
def test_random_changes_of_random_segments_are_noticed(seed: int, request: pytest.FixtureRequest) -> None:
    first = int(os.environ.get("HEADWATER_BIT_SEED", seed))

    started = time.perf_counter()
    done, missed = change_at_random(first, FLIPS)
    seconds = time.perf_counter() - started

    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        print(f"\n{done:,} changes from seed {first}, {len(missed)} unnoticed, {done / seconds:,.0f} a second")
    assert missed == []
    assert done >= FLIPS


def change_at_random(first_seed: int, count: int) -> tuple[int, list[tuple[int, list[int]]]]:
    """Make so many changes, each of one bit or of several in one frame; say those that nobody would notice.

    Two changes of three are of one bit.  The others are of 2 to 8 bits anywhere in a frame, or a burst of up to
    32 bits.  CRC-32C notices every burst of 32 bits, every odd number of bits and all that are fewer than 4;
    more than that get by once in 2**32, so a miss here is one in a thousand runs of 20 million: look at it.
    """
    missed: list[tuple[int, list[int]]] = []
    done = 0
    seed = first_seed
    while done < count:
        draw = random.Random(seed)
        segment = whole_segment(seed)
        changed = bytearray(segment.data)
        view = memoryview(changed)
        for _ in range(min(FLIPS_PER_SEGMENT, count - done)):
            bit = int(draw.random() * SEGMENT_BYTES * 8)
            place = segment.place_of(bit >> 3)
            bits = [bit] if draw.random() < 2 / 3 else several_bits(draw, place, bit)
            for each in bits:
                changed[each >> 3] ^= 1 << (each & 7)
            if not report_of_change(view, place, segment.salted):
                missed.append((seed, bits))
            for each in bits:
                changed[each >> 3] ^= 1 << (each & 7)
            done += 1
        assert changed == segment.data
        seed += 1
    return done, missed


def several_bits(draw: random.Random, place: Place, bit: int) -> list[int]:
    """Bits of the frame at a place: scattered, or close together from `bit` on."""
    start, end = place.at * 8, (place.at + place.size) * 8
    if draw.random() < 1 / 2:
        return draw.sample(range(start, end), draw.randrange(2, 9))
    pattern = draw.getrandbits(32) | 1
    return [bit + number for number in range(32) if pattern >> number & 1 and bit + number < end]


# Lost and misplaced bytes --------------------------------------------------------------------------------------------


def last_places(whole: Whole) -> list[Place]:
    """The last frames that have bodies, and those after them."""
    return [place for place in whole.places if place.at >= SEGMENT_BYTES - 12 * 1024]


def test_a_file_cut_at_any_byte_of_its_last_frames_ends_there(whole: Whole) -> None:
    view = memoryview(whole.data)
    tally: Counter[str] = Counter()

    for place in last_places(whole):
        for size in range(place.at, place.at + place.size):
            report = report_at(view[:size], place, whole.salted)
            tally[report] += 1
            assert report == ("END" if size == place.at else "SHORT"), f"cut at {size}"

    assert tally["END"] == len(last_places(whole)) > 8


def test_a_file_cut_anywhere_in_its_segment_frame_has_none(whole: Whole) -> None:
    view = memoryview(whole.data)

    reports = [report_at(view[:size], whole.places[0], whole.salted) for size in range(2 * UNIT_BYTES)]

    assert reports == ["END"] + ["SHORT"] * (2 * UNIT_BYTES - 1)


def test_a_file_whose_last_bytes_are_still_zero_ends_in_the_frame_that_lost_some(whole: Whole) -> None:
    unnoticed = []

    for place in last_places(whole):
        end = place.at + place.size
        for kept in range(place.at, end):
            if not any(whole.data[kept:end]):
                continue  # Only padding was there: nothing is lost.
            data = memoryview(whole.data[:kept] + bytes(SEGMENT_BYTES - kept))
            report = report_at(data, place, whole.salted)
            if not report or (kept == place.at and report != "END"):
                unnoticed.append((kept, report))

    assert unnoticed == []


def first_change(old: bytes, new: bytes) -> int | None:
    """The first byte that is another one now."""
    if old == new:
        return None
    return next(at for at, (before, after) in enumerate(zip(old, new, strict=True)) if before != after)


def noticed(whole: Whole, data: bytearray, sectors: list[int]) -> str | None:
    """The report at the first frame that changed; nothing where these sectors are as they were."""
    for number in sorted(sectors):
        start = number * SECTOR_BYTES
        change = first_change(whole.data[start : start + SECTOR_BYTES], bytes(data[start : start + SECTOR_BYTES]))
        if change is not None:
            return report_at(memoryview(data), whole.place_of(start + change), whole.salted)
    return None


def sector(data: bytes, number: int) -> bytes:
    return data[number * SECTOR_BYTES : (number + 1) * SECTOR_BYTES]


def put(data: bytearray, number: int, content: bytes) -> None:
    data[number * SECTOR_BYTES : (number + 1) * SECTOR_BYTES] = content


@pytest.mark.parametrize("content", [b"\0", b"\xff"], ids=["zeroes", "ones"])
def test_a_sector_that_is_all_zero_or_all_ones_is_noticed_at_the_first_frame_it_touches(
    whole: Whole, content: bytes
) -> None:
    tally: Counter[str | None] = Counter()

    for number in range(SEGMENT_BYTES // SECTOR_BYTES):
        data = bytearray(whole.data)
        put(data, number, content * SECTOR_BYTES)
        tally[noticed(whole, data, [number])] += 1

    print(dict(tally))
    assert "" not in tally
    assert None not in tally
    assert sum(tally.values()) == SEGMENT_BYTES // SECTOR_BYTES


def test_two_sectors_in_each_other_s_place_are_noticed_at_the_first_frame_they_touch(whole: Whole) -> None:
    count = SEGMENT_BYTES // SECTOR_BYTES
    tally: Counter[str | None] = Counter()
    data = bytearray(whole.data)

    for first in range(count):
        for second in range(first + 1, count):
            put(data, first, sector(whole.data, second))
            put(data, second, sector(whole.data, first))
            tally[noticed(whole, data, [first, second])] += 1
            put(data, first, sector(whole.data, first))
            put(data, second, sector(whole.data, second))

    print(dict(tally))
    assert "" not in tally
    assert sum(tally.values()) == count * (count - 1) // 2
    # Some sectors hold whole frames: those are valid wherever they are, and only the chain knows their place.
    assert tally["PREV"] > 0


def test_a_sector_that_also_stands_in_another_s_place_is_noticed_at_the_first_frame_it_touches(whole: Whole) -> None:
    count = SEGMENT_BYTES // SECTOR_BYTES
    tally: Counter[str | None] = Counter()
    data = bytearray(whole.data)

    for source in range(count):
        for target in range(count):
            if source != target:
                put(data, target, sector(whole.data, source))
                tally[noticed(whole, data, [target])] += 1
                put(data, target, sector(whole.data, target))

    print(dict(tally))
    assert "" not in tally
    assert sum(tally.values()) == count * (count - 1)
    assert tally["PREV"] > 0


def test_a_valid_frame_in_the_place_of_another_is_noticed_by_the_frame_after_it(whole: Whole) -> None:
    """Same salt, LSN and `prev`, another body: a frame of a life that recovery had cut off."""
    place = next(place for place in whole.places[3:] if place.size == UNIT_BYTES)
    number = whole.places.index(place)
    old = header_of(memoryview(whole.data), place, whole.salted)
    other = old._replace(sequence=old.sequence + 1)
    stale = SegmentBuilder(segment_header())
    stale.salted, stale.chain, stale.next_lsn = whole.salted, old.prev, old.lsn
    laid = stale.add(old.kind, epoch=old.epoch, sequence=other.sequence)
    data = bytearray(whole.data)
    data[place.at : place.at + place.size] = stale.data[laid.at : laid.at + laid.size]

    here = frame_at(memoryview(data), place.at, whole.salted)
    assert isinstance(here, Met)
    after = frame_at(memoryview(data), whole.places[number + 1].at, whole.salted)
    assert isinstance(after, Met)

    assert broken_link(place.before, here) is None
    assert broken_link(place.before.after(here), after) == "PREV"


def test_a_frame_of_another_segment_is_not_one_of_this(whole: Whole) -> None:
    other = whole_segment(7)

    reports = Counter(
        frame_at(memoryview(other.data), place.at, whole.salted) for place in other.places if place.at > 0
    )

    assert reports == {NoFrame.HEADER_CRC: len(other.places) - 1}
