"""The sealed segments of a directory: what is read of them, what is believed, and what is rebuilt (G14, V10)."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from headwater.errors import DamagedLog, Halted, LostSegment, UnknownFormat
from headwater.frames.frame import NoFrame, pack_header, reseal_header
from headwater.frames.segment_header import pack_segment_frame
from headwater.log.chain import ChainBreak, ChainEnd
from headwater.log.index import SealedIndex
from headwater.log.names import SegmentName
from headwater.log.segments import FoundSegments, LogPlace, find_segments, next_offsets_after
from headwater.metrics import LogCounters
from tests.unit.log.device_world import DIRECTORY, World, commit, index_path, lsns, path, rows, three_segments

P1, P2 = 1 << 32, 2 << 32


def closed_log() -> World:
    """Three segments of two frames each, closed cleanly."""
    world = World()
    three_segments(world).close()
    return world


def find(world: World, *, undamaged_part: bool = False) -> tuple[FoundSegments, LogPlace]:
    place = LogPlace(world.files, DIRECTORY, world.settings, LogCounters())
    return find_segments(place, world.log_start, undamaged_part=undamaged_part), place


def first_lsns(found: FoundSegments) -> list[int]:
    return [segment.first_lsn for segment in found.sealed]


# What is found --------------------------------------------------------------------------------------------------------


def test_the_sealed_segments_are_read_from_their_footers_alone() -> None:
    world = closed_log()
    world.files.calls.clear()

    found, place = find(world)

    assert first_lsns(found) == [1, 3]
    assert found.newest_name == SegmentName(5, 0)
    assert [(segment.last_lsn, segment.size) for segment in found.sealed] == [(2, 768), (4, 768)]
    assert found.end.next_lsn == 5
    assert found.rebuilt == []
    assert place.counters.indexes_rebuilt == 0
    assert "1..2, 768 bytes" in repr(found.sealed[0])


def test_a_directory_that_is_not_there_holds_no_segments() -> None:
    found, _ = find(World())

    assert found.sealed == []
    assert found.newest_name is None
    assert found.end == ChainEnd(1, 0, 0, 0)


def test_segments_wholly_below_the_log_start_are_left_out_and_remembered() -> None:
    world = closed_log()

    for log_start, sealed, forgotten in [(2, [1, 3], []), (3, [3], [1]), (5, [], [1, 3]), (100, [], [1, 3])]:
        world.log_start = log_start
        found, _ = find(world)

        assert first_lsns(found) == sealed
        assert [name.first_lsn for name in found.forgotten] == forgotten


def test_an_unknown_format_below_the_log_start_is_nobodys_concern() -> None:
    world = closed_log()
    header, _ = world.opening(1)
    world.change(path(1), 0, pack_segment_frame(replace(header, incompatible_features=1)))

    with pytest.raises(UnknownFormat):
        find(world)
    world.log_start = 3
    found, _ = find(world)

    assert first_lsns(found) == [3]


def test_a_later_generation_of_an_unknown_format_is_refused_not_passed_over() -> None:
    world = closed_log()
    header, chain = world.opening(1)
    later = replace(header, generation=1, last_lsn=2, old_chain=chain, incompatible_features=1)
    world.files.put(path(1, 1), pack_segment_frame(later))

    with pytest.raises(UnknownFormat):
        find(world)


# Footers and rebuilding -----------------------------------------------------------------------------------------------


def index_of(world: World, first_lsn: int) -> bytes:
    return world.files.contents(index_path(first_lsn))


def test_a_missing_index_is_rebuilt_and_answers_the_same() -> None:
    world = closed_log()
    before, _ = find(world)
    saved = before.sealed[1].read_index()
    world.remove(index_path(3))

    found, place = find(world)

    assert found.rebuilt == [SegmentName(3, 0).index]
    assert place.counters.indexes_rebuilt == 1
    rebuilt = found.sealed[1].loaded_index
    assert rebuilt is not None
    assert saved is not None
    assert rebuilt.next_offsets() == saved.next_offsets() == {P1: 4, P2: 6}
    assert rebuilt.topics() == saved.topics()
    assert [rebuilt.place_of(lsn) for lsn in range(7)] == [saved.place_of(lsn) for lsn in range(7)]
    assert found.sealed[1].end == before.sealed[1].end


@pytest.mark.parametrize("which", ["footer damaged", "cut", "empty", "of the other segment", "of a shorter segment"])
def test_an_index_that_is_not_this_segments_is_rebuilt(which: str) -> None:
    world = closed_log()
    data = index_of(world, 1)
    if which == "footer damaged":
        world.change(index_path(1), len(data) - 3, b"\xff")
    elif which == "cut":
        world.cut(index_path(1), len(data) - 1)
    elif which == "empty":
        world.files.put(index_path(1), b"")
    elif which == "of the other segment":
        world.files.put(index_path(1), index_of(world, 3))
    else:
        shorter = World()
        device = shorter.owner()
        commit(device, [rows(2)])
        device.close()
        world.files.put(index_path(1), shorter.files.contents(index_path(1)))

    found, _ = find(world)

    assert found.rebuilt == [SegmentName(1, 0).index]
    assert found.sealed[0].last_lsn == 2


def test_an_index_with_another_chain_value_than_the_next_segment_names_is_rebuilt() -> None:
    world, other = closed_log(), World(7)
    three_segments(other).close()
    world.files.put(index_path(1), other.files.contents(index_path(1)))

    found, _ = find(world)

    assert found.rebuilt == [SegmentName(1, 0).index]
    assert lsns(world.reader()) == [1, 2, 3, 4, 5, 6]


def test_before_a_newest_segment_without_a_header_the_footer_is_believed() -> None:
    world = closed_log()
    world.cut(path(5), 100)

    found, _ = find(world)

    assert first_lsns(found) == [1, 3]
    assert found.newest_opening is NoFrame.SHORT
    assert found.rebuilt == []


def test_an_index_whose_sections_are_damaged_is_not_opened() -> None:
    world = closed_log()
    world.change(index_path(1), 0, b"\xff")

    found, place = find(world)

    assert found.rebuilt == []
    assert found.sealed[0].read_index() is None
    assert found.sealed[0].read_next_offsets() == {P1: 2, P2: 3}
    reader = world.reader()
    assert lsns(reader) == [1, 2, 3, 4, 5, 6]
    assert reader.place.counters.indexes_rebuilt == 1
    assert place.counters.indexes_rebuilt == 0


def test_the_index_of_a_segment_is_read_from_its_file() -> None:
    found, _ = find(closed_log())

    index = found.sealed[0].read_index()

    assert isinstance(index, SealedIndex)
    assert index.next_offsets() == {P1: 2, P2: 3}


def test_without_an_index_file_neither_index_nor_offsets_can_be_read() -> None:
    world = closed_log()
    found, _ = find(world)
    world.remove(index_path(1))

    segment = found.sealed[0]

    assert segment.read_index() is None
    assert segment.read_next_offsets() is None
    assert segment.base_offsets() is None


# Offsets --------------------------------------------------------------------------------------------------------------


def test_next_offsets_come_from_the_memory_the_file_or_a_rebuild_and_are_the_same() -> None:
    world = closed_log()
    found, _ = find(world)

    from_file = next_offsets_after(found.sealed, 2)
    for number in (1, 3):
        world.remove(index_path(number))
    rebuilt = next_offsets_after(found.sealed, 2)
    index = found.sealed[1].loaded_index

    assert from_file == rebuilt == {P1: 4, P2: 6}
    assert index is not None
    assert next_offsets_after(found.sealed, 2) is index.next_offsets()
    assert next_offsets_after([], 0) == {}
    assert next_offsets_after(found.sealed[1:], 0) == {}


def test_the_offsets_before_the_first_segment_that_is_left_are_in_its_index_even_if_that_is_old() -> None:
    world = World()
    device = three_segments(world)
    device.roll()
    world.log_start = 7
    device.forget(device.next_lsn())
    commit(device, [rows(5, partition=3)])
    world = world.restarted()

    found, place = find(world)

    assert found.newest_name == SegmentName(7, 0)
    again = world.owner()
    assert again.next_offsets() == {P1: 6, P1 + 3: 5, P2: 9}
    assert place.counters.indexes_rebuilt == 0


def test_an_old_index_of_another_segment_says_nothing_of_this_one() -> None:
    world, other = World(), World(3)
    for each in (world, other):
        device = each.owner()
        commit(device, [rows(2)])
        device.close()
    device = world.owner()
    commit(device, [rows(2)])
    device.roll()
    segment = find(world)[0].sealed[0]

    world.files.put(index_path(1), other.files.contents(index_path(1)))

    assert segment.base_offsets() is None


# Damage ---------------------------------------------------------------------------------------------------------------


def rebuild(world: World) -> Halted:
    """What is found when the first segment has to be scanned."""
    world.remove(index_path(1))
    with pytest.raises(Halted) as halt:
        find(world)
    return halt.value


def test_a_scan_of_a_sealed_segment_halts_at_the_first_broken_frame() -> None:
    world = closed_log()
    at = world.frame_positions()[1]
    world.change(path(1), at + 130, b"\xff")

    halt = rebuild(world)

    assert isinstance(halt, DamagedLog)
    assert halt.facts == {"segment": str(SegmentName(1, 0)), "lsn": 2, "position": at}
    assert NoFrame.BODY_CRC.value in halt.message


def test_a_scan_of_a_sealed_segment_halts_where_the_chain_breaks() -> None:
    world = closed_log()
    first, second = world.frame_positions()
    data = world.files.contents(path(1))
    world.change(path(1), second, data[first:second])

    halt = rebuild(world)

    assert halt.facts == {"segment": str(SegmentName(1, 0)), "lsn": 2, "position": second}
    assert ChainBreak.PREV.value in halt.message


def test_a_scan_of_a_sealed_segment_refuses_a_frame_of_an_unknown_kind() -> None:
    world = closed_log()
    at = world.frame_positions()[1]
    odd = reseal_header(world.header_at(at)._replace(kind=99), world.salted())
    world.change(path(1), at, pack_header(odd))

    halt = rebuild(world)

    assert isinstance(halt, UnknownFormat)
    assert halt.facts == {"segment": str(SegmentName(1, 0)), "position": at}


def test_a_sealed_segment_that_is_cut_at_a_frame_has_lost_lsns() -> None:
    world = closed_log()
    world.cut(path(1), world.frame_positions()[1])

    halt = rebuild(world)

    assert isinstance(halt, LostSegment)
    assert halt.facts == {"first_lsn": 2, "last_lsn": 2}


# The undamaged part ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [1, 3])
def test_with_undamaged_part_the_list_ends_before_the_damage_and_says_what_stopped_it(number: int) -> None:
    world = closed_log()
    world.change(path(number), 0, b"xxxx")

    found, _ = find(world, undamaged_part=True)

    assert isinstance(found.halt, DamagedLog)
    assert found.halt.facts["segment"] == str(SegmentName(number, 0))
    assert first_lsns(found) == [first for first in (1, 3) if first < number]


@pytest.mark.parametrize("number", [1, 3, 5])
def test_with_undamaged_part_the_list_ends_before_an_unknown_format(number: int) -> None:
    world = closed_log()
    header, _ = world.opening(number)
    world.change(path(number), 0, pack_segment_frame(replace(header, incompatible_features=1)))

    found, _ = find(world, undamaged_part=True)

    assert isinstance(found.halt, UnknownFormat)
    assert first_lsns(found) == [first for first in (1, 3) if first < number]


def test_every_segment_names_the_one_before_it() -> None:
    world = closed_log()

    openings = [world.opening(first)[0] for first in (1, 3, 5)]

    assert [each.previous_first_lsn for each in openings] == [0, 1, 3]
    assert all(before.log_id == after.log_id and before.salt != after.salt for before, after in pairwise(openings))
