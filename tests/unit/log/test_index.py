"""Where frames are, by LSN, time, partition and offset: the index in memory, its file, its rebuild (V10, V11)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.frames.bodies import Gap, GapReason, pack_gap
from headwater.frames.frame import Header, Kind
from headwater.log.chain import ChainEnd
from headwater.log.index import (
    FOOTER_BYTES,
    ActiveIndex,
    Footer,
    Place,
    SealedIndex,
    SegmentIndex,
    TopicShare,
    load_active,
    open_sealed,
    partition_key,
    read_footer,
    read_next_offsets,
)
from headwater.storage.disk import DiskFiles
from headwater.storage.files import File
from headwater.storage.simulated import SimulatedFiles

OPENING = bytes(range(256))
NO_BODY = memoryview(b"")
GAP = pack_gap(Gap(5, 7, 3, GapReason.DRAINED, 0))


def frame(lsn: int, **fields: Any) -> Header:
    """The header of a frame, as far as an index looks at it."""
    values: dict[str, Any] = dict.fromkeys(Header._fields, 0)
    values |= {"magic": b"", "header_units": 1, "kind": Kind.DATA, "lsn": lsn, "topic_number": 1}
    values |= {"row_count": 1, "offset_count": fields.get("row_count", 1), "append_time_us": lsn * 10}
    return Header(**(values | fields))


def index_of(*frames: Header, first_lsn: int = 1, before: dict[int, int] | None = None) -> ActiveIndex:
    index = ActiveIndex(first_lsn, before or {})
    for number, header in enumerate(frames):
        index.add(header, 256 + 128 * number, memoryview(GAP if header.kind == Kind.GAP else b""))
    return index


def packed(index: ActiveIndex, last_lsn: int = 0, segment_bytes: int = 4096) -> bytes:
    return index.pack(OPENING, ChainEnd(last_lsn + 1, 0xC0FFEE, 3, 777), segment_bytes, 555)


def file_of(data: bytes) -> File:
    files = SimulatedFiles()
    files.put("i", data)
    return files.open("i")


def sealed(index: ActiveIndex) -> SealedIndex:
    file = file_of(packed(index))
    footer = read_footer(file)
    assert footer is not None
    opened = open_sealed(file, footer, chunk_bytes=100)
    assert opened is not None
    return opened


def loaded(index: ActiveIndex) -> ActiveIndex:
    file = file_of(packed(index))
    footer = read_footer(file)
    assert footer is not None
    grown = load_active(file, footer)
    assert grown is not None
    return grown


def same(index: ActiveIndex) -> ActiveIndex:
    return index


FORMS: list[Callable[[ActiveIndex], SegmentIndex]] = [same, sealed, loaded]
every_form = pytest.mark.parametrize("form", FORMS, ids=["active", "sealed", "loaded"])

SMALL = index_of(
    frame(1, kind=Kind.EPOCH, topic_number=0, row_count=0),
    frame(2, partition=2, row_count=3, base_offset=40),
    frame(3, topic_number=2, row_count=5),
    frame(4, partition=2, row_count=2, base_offset=43),
    frame(7, kind=Kind.GAP, topic_number=0, row_count=0, body_size=40, padding_size=88),
    frame(8, kind=Kind.SPARSE, partition=2, row_count=1, offset_count=4, base_offset=45),
    before={partition_key(9, 9): 70},
)
P12 = partition_key(1, 2)


@every_form
def test_a_frame_is_found_by_its_lsn_and_a_gap_by_every_lsn_it_stands_for(
    form: Callable[[ActiveIndex], SegmentIndex],
) -> None:
    index = form(SMALL)

    found = [index.place_of(lsn) for lsn in range(10)]

    gap = Place(7, 256 + 4 * 128)
    assert found == [
        Place(1, 256), Place(1, 256), Place(2, 384), Place(3, 512), Place(4, 640), gap, gap, gap, Place(8, 896), None,
    ]  # fmt: skip


@every_form
def test_the_first_frame_at_or_after_a_time_is_found(form: Callable[[ActiveIndex], SegmentIndex]) -> None:
    index = form(SMALL)

    found = [index.place_at_time(time_us) for time_us in (0, 10, 11, 70, 71, 80, 81)]

    assert [place.lsn if place else None for place in found] == [1, 1, 2, 7, 8, 8, None]


@every_form
def test_a_time_that_falls_back_hides_no_frame_from_a_search(form: Callable[[ActiveIndex], SegmentIndex]) -> None:
    times = [100, 50, 60, 200, 10]
    index = form(index_of(*(frame(lsn, append_time_us=time) for lsn, time in enumerate(times, 1))))

    found = [index.place_at_time(time_us) for time_us in (10, 55, 100, 101, 200, 201)]

    assert [place.lsn if place else None for place in found] == [1, 1, 1, 4, 4, None]


@every_form
def test_the_frames_of_a_partition_are_found_from_an_offset_on(form: Callable[[ActiveIndex], SegmentIndex]) -> None:
    index = form(SMALL)

    found = {offset: [place.lsn for place in index.places(P12, offset)] for offset in (0, 40, 42, 43, 45, 48, 49)}

    assert found == {0: [2, 4, 8], 40: [2, 4, 8], 42: [2, 4, 8], 43: [4, 8], 45: [8], 48: [8], 49: []}


@every_form
def test_a_partition_without_a_frame_here_has_no_places(form: Callable[[ActiveIndex], SegmentIndex]) -> None:
    index = form(SMALL)

    assert list(index.places(partition_key(1, 3), 0)) == []
    assert list(index.places(partition_key(9, 9), 0)) == []
    assert list(index.places(partition_key(99, 0), 0)) == []


OF_TWO_TOPICS = index_of(
    frame(11, partition=3),
    frame(12, topic_number=2, partition=1),
    frame(13, partition=1),
    frame(14, kind=Kind.SCHEMA, row_count=0),
    frame(15, partition=3, base_offset=1),
    frame(16, topic_number=2, partition=1, base_offset=1),
    frame(19, kind=Kind.GAP, topic_number=0, row_count=0, body_size=40, padding_size=88),
    frame(20, kind=Kind.SPARSE, partition=0, row_count=1, offset_count=4),
    frame(21, partition=1, base_offset=1),
    first_lsn=11,
    before={partition_key(1, 2): 8, partition_key(3, 0): 5},
)


@every_form
def test_the_rows_of_a_topic_are_found_in_lsn_order_over_its_partitions(
    form: Callable[[ActiveIndex], SegmentIndex],
) -> None:
    index = form(OF_TWO_TOPICS)

    found = {lsn: [place.lsn for place in index.places_of_topic(1, lsn)] for lsn in (1, 11, 12, 16, 20, 21, 22)}

    every = [11, 13, 15, 20, 21]
    assert found == {1: every, 11: every, 12: every[1:], 16: [20, 21], 20: [20, 21], 21: [21], 22: []}
    assert list(index.places_of_topic(2, 0)) == [Place(12, 384), Place(16, 256 + 5 * 128)]


@every_form
def test_a_topic_without_rows_here_has_no_places(form: Callable[[ActiveIndex], SegmentIndex]) -> None:
    index = form(OF_TWO_TOPICS)

    assert [list(index.places_of_topic(topic, 0)) for topic in (0, 3, 4)] == [[], [], []]


@every_form
def test_the_rows_of_a_topic_are_found_however_many_frames_lie_between(
    form: Callable[[ActiveIndex], SegmentIndex],
) -> None:
    own = {1, 4096, 4097, 4098, 9000, 9999}
    index = form(index_of(*(frame(lsn, topic_number=1 if lsn in own else 2) for lsn in range(1, 10_001))))

    assert list(index.places_of_topic(1, 2)) == [Place(lsn, 128 * lsn + 128) for lsn in sorted(own - {1})]


@every_form
def test_the_share_of_one_topic_is_the_one_among_all(form: Callable[[ActiveIndex], SegmentIndex]) -> None:
    index = form(OF_TWO_TOPICS)

    assert {topic: index.share_of(topic) for topic in range(5)} == {
        **dict.fromkeys(range(5), None),
        **index.topics(),
    }


@every_form
def test_the_next_offset_of_every_partition_of_the_log_is_known(form: Callable[[ActiveIndex], SegmentIndex]) -> None:
    index = form(SMALL)

    assert index.next_offset(P12) == 49
    assert index.next_offset(partition_key(9, 9)) == 70
    assert index.next_offset(partition_key(1, 3)) == 0
    assert index.next_offset(partition_key(99, 0)) == 0
    assert index.next_offsets() == {P12: 49, partition_key(2, 0): 5, partition_key(9, 9): 70}


@every_form
def test_the_share_of_each_topic_is_known_and_a_gap_belongs_to_nobody(
    form: Callable[[ActiveIndex], SegmentIndex],
) -> None:
    index = form(SMALL)

    assert index.topics() == {
        0: TopicShare(frames=1, bytes=128, rows=0, last_lsn=1),
        1: TopicShare(frames=3, bytes=384, rows=6, last_lsn=8),
        2: TopicShare(frames=1, bytes=128, rows=5, last_lsn=3),
    }


@every_form
def test_an_index_of_nothing_answers_nothing(form: Callable[[ActiveIndex], SegmentIndex]) -> None:
    index = form(ActiveIndex(1, {}))

    assert index.place_of(1) is None
    assert index.place_at_time(0) is None
    assert index.topics() == {}
    assert index.next_offsets() == {}


def test_a_reader_does_not_see_a_frame_before_all_of_it_is_there() -> None:
    index = index_of(frame(1), frame(2, base_offset=1), frame(3, base_offset=2))

    index._count = 2  # as while the third is being added

    assert index.place_of(3) is None
    assert [place.lsn for place in index.places(partition_key(1, 0), 0)] == [1, 2]
    assert [place.lsn for place in index.places_of_topic(1, 0)] == [1, 2]


def test_a_gap_hands_on_the_next_offsets_of_what_it_stands_for_and_never_lowers_one() -> None:
    index = ActiveIndex(1, {partition_key(1, 1): 50})
    gap = Gap(1, 3, 3, GapReason.DRAINED, 0, next_offsets=((1, 0, 30), (1, 1, 40)))

    index.add(frame(3, kind=Kind.GAP, topic_number=0, row_count=0), 256, memoryview(pack_gap(gap)))

    assert index.next_offsets() == {partition_key(1, 0): 30, partition_key(1, 1): 50}
    assert index.topics() == {}


def test_a_loaded_index_grows_as_the_one_it_was_saved_from() -> None:
    grown, never_saved = loaded(SMALL), copy.deepcopy(SMALL)

    for index in (grown, never_saved):
        index.add(frame(9, partition=2, row_count=2, base_offset=49, append_time_us=5), 1024, NO_BODY)
        index.add(frame(10, topic_number=77), 1152, NO_BODY)

    assert [place.lsn for place in grown.places(P12, 47)] == [8, 9]
    assert grown.place_at_time(80) == Place(8, 896)
    assert grown.place_at_time(81) == Place(10, 1152)
    assert packed(grown) == packed(never_saved)


HEADERS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([Kind.DATA, Kind.DATA, Kind.SCHEMA, Kind.GAP]),
        "topic_number": st.integers(0, 3),
        "partition": st.integers(0, 2),
        "row_count": st.integers(0, 4),
        "append_time_us": st.integers(-5, 20),
    }
)


@given(st.lists(HEADERS, max_size=30))
def test_an_index_equals_its_file_whatever_it_holds(drawn: list[dict[str, Any]]) -> None:
    nexts: dict[int, int] = {}
    frames = []
    for number, fields in enumerate(drawn):
        key = partition_key(fields["topic_number"], fields["partition"])
        base = nexts.get(key, 0)
        if fields["kind"] == Kind.DATA:
            nexts[key] = base + fields["row_count"]
        frames.append(frame(number + 5, base_offset=base, **fields))

    active = index_of(*frames, first_lsn=5)

    for other in (sealed(active), loaded(active)):
        assert [other.place_of(lsn) for lsn in range(40)] == [active.place_of(lsn) for lsn in range(40)]
        assert [other.place_at_time(t) for t in range(-6, 22)] == [active.place_at_time(t) for t in range(-6, 22)]
        assert other.next_offsets() == active.next_offsets() == nexts
        assert other.topics() == active.topics()
        for key, following in nexts.items():
            for offset in range(following + 1):
                assert list(other.places(key, offset)) == list(active.places(key, offset))
    assert packed(loaded(active)) == packed(active)


# The file -------------------------------------------------------------------------------------------------------------


def footer_of(data: bytes) -> Footer:
    footer = read_footer(file_of(data))
    assert footer is not None
    return footer


def test_the_footer_says_where_the_segment_ends_and_keeps_a_copy_of_its_header() -> None:
    footer = footer_of(packed(SMALL, last_lsn=8, segment_bytes=1024))

    assert (footer.frames, footer.entries, footer.partitions, footer.topics) == (6, 4, 3, 3)
    assert (footer.first_lsn, footer.last_lsn, footer.segment_bytes, footer.created_us) == (1, 8, 1024, 555)
    assert footer.end == ChainEnd(9, 0xC0FFEE, 3, 777)
    assert footer.opening == OPENING
    assert footer.partitions_position == 16 * 6 + 16 * 4
    assert footer.sections_bytes == footer.partitions_position + 24 * 3 + 32 * 3


@pytest.mark.parametrize("size", [0, 1, FOOTER_BYTES - 1])
def test_a_file_shorter_than_a_footer_has_none(size: int, tmp_path: Path) -> None:
    (tmp_path / "i").write_bytes(packed(SMALL)[-size:] if size else b"")

    footer = read_footer(DiskFiles(tmp_path).open("i"))

    assert footer is None


@pytest.mark.parametrize("byte", [0, 4, 8, 16, 90, 511])
def test_a_footer_with_a_changed_byte_is_none(byte: int) -> None:
    data = bytearray(packed(SMALL))
    data[len(data) - FOOTER_BYTES + byte] ^= 0x10

    footer = read_footer(file_of(bytes(data)))

    assert footer is None


def test_a_footer_of_another_version_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.log.index.VERSION", 2)
    data = packed(SMALL)
    monkeypatch.undo()

    footer = read_footer(file_of(data))

    assert footer is None


def test_a_file_of_another_size_than_its_footer_says_is_no_index() -> None:
    data = packed(SMALL)

    assert read_footer(file_of(b"x" + data)) is None
    assert read_footer(file_of(data[1:])) is None


class ShrinkingFile:
    """A file that becomes shorter after its size was asked."""

    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def size(self) -> int:
        return self._size


def test_a_file_that_ends_before_what_its_size_was_is_no_index() -> None:
    data = packed(SMALL)
    file: Any = ShrinkingFile(file_of(data[:100]), len(data))

    assert read_footer(file) is None
    assert open_sealed(file, footer_of(data), chunk_bytes=1000) is None
    assert read_next_offsets(file, footer_of(data)) is None


def test_a_changed_byte_in_any_section_is_found_when_the_index_is_opened() -> None:
    data = packed(SMALL)
    footer = footer_of(data)

    for byte in range(footer.sections_bytes):
        changed = bytearray(data)
        changed[byte] ^= 1
        file = file_of(bytes(changed))
        assert open_sealed(file, footer, chunk_bytes=64) is None
        assert load_active(file, footer) is None


def test_the_partitions_have_a_checksum_of_their_own_so_that_they_can_be_read_alone() -> None:
    data = packed(SMALL)
    footer = footer_of(data)
    elsewhere, inside = bytearray(data), bytearray(data)
    elsewhere[0] ^= 1
    inside[footer.partitions_position] ^= 1

    assert read_next_offsets(file_of(bytes(elsewhere)), footer) == SMALL.next_offsets()
    assert read_next_offsets(file_of(bytes(inside)), footer) is None


def test_an_index_that_is_closed_is_read_no_more() -> None:
    index = sealed(SMALL)

    index.close()

    with pytest.raises(Exception, match="closed"):
        index.place_of(1)
