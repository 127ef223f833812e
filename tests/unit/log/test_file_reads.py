"""Reading a log: exactly what is durable, in order, whatever an owner does meanwhile (G4, G10)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NoReturn

import pytest

from headwater.errors import CorruptData, DamagedLog, Forgotten, LostSegment, UnknownFormat
from headwater.frames.bodies import Gap, GapReason, pack_gap
from headwater.frames.frame import Flag, Kind, chain_value, pack_header, padding_size, reseal_header
from headwater.frames.frame import body_crc as crc_of
from headwater.frames.segment_header import pack_segment_frame
from headwater.ids import Lsn
from headwater.log.device import FrameRef, SegmentInfo, TopicInSegment
from headwater.log.file_device import FileDevice
from headwater.log.file_reads import INDEXES_OPEN_MAX
from headwater.log.index import ActiveIndex, Place
from headwater.log.mark import pack_slot
from headwater.log.names import SegmentName
from headwater.storage.files import File
from headwater.storage.simulated import SimulatedFiles
from tests.unit.log.device_world import (
    DIRECTORY,
    MARK_PATH,
    World,
    commit,
    headers,
    index_path,
    lsns,
    path,
    rows,
    three_segments,
)

# Up to the mark -------------------------------------------------------------------------------------------------------


def test_a_reader_sees_exactly_what_the_mark_says_and_no_byte_beyond() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows(2)], [rows(1)])
    reader = world.reader()
    file = world.files.open(path(1), writable=True)

    file.append([b"not yet under any sync"])
    again = world.reader()

    assert lsns(reader) == lsns(again) == [1, 2]
    assert reader.durable() == reader.refresh() == again.durable() == 2
    assert not reader.claimed


def test_a_reader_of_nothing_sees_nothing_until_there_is_something() -> None:
    world = World()
    reader = world.reader()

    seen = [reader.refresh()]
    device = world.owner()
    seen.append(reader.refresh())
    commit(device, [rows()])
    seen.append(reader.refresh())

    assert seen == [0, 0, 1]
    assert lsns(reader) == [1]
    assert reader.segments() == device.segments()


def test_a_reader_that_looks_again_reads_only_what_is_new() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows(2, body=bytes(1000))])
    reader = world.reader()
    commit(device, [rows(1), rows(1)])
    world.files.calls.clear()

    durable = reader.refresh()

    assert durable == 3
    assert lsns(reader) == [1, 2, 3]
    assert ("list", DIRECTORY) not in world.files.calls


def test_a_reader_follows_across_rolls() -> None:
    world = World()
    device = world.owner()
    reader = world.reader()

    seen = []
    for _ in range(4):
        commit(device, [rows()])
        device.roll()
        commit(device, [rows()])
        seen.append(reader.refresh())

    assert seen == [2, 4, 6, 8]
    assert lsns(reader) == list(range(1, 9))


def test_where_the_roll_is_further_than_the_mark_the_sealed_segments_are_all_there_is() -> None:
    world = World()
    device = three_segments(world)
    mark = world.files.contents(MARK_PATH)
    device.roll()
    world.files.put(MARK_PATH, mark)

    reader = world.reader()

    assert lsns(reader) == [1, 2, 3, 4, 5, 6]
    assert [info.first_lsn for info in reader.segments()] == [1, 3, 5, 7]


def test_without_a_mark_a_reader_sees_the_sealed_segments_only() -> None:
    world = World()
    three_segments(world)
    world.remove(MARK_PATH)

    reader = world.reader()

    assert lsns(reader) == [1, 2, 3, 4]
    assert reader.refresh() == 4


def test_a_reader_that_opens_while_a_roll_has_no_header_yet_sees_all_before_it() -> None:
    world = World()
    three_segments(world)
    world.files.put(path(7), b"")
    mark = world.mark()
    world.files.put(MARK_PATH, pack_slot(mark._replace(segment=5)))

    # The active segment is sealed by the roll: what ends it is the file that follows.
    reader = world.reader()

    assert lsns(reader) == [1, 2, 3, 4, 5, 6]
    assert [info.bytes for info in reader.segments()] == [768, 768, 768]


def test_the_report_of_a_reader_says_what_it_can_see() -> None:
    world = World()
    three_segments(world).close()
    world.files.put(f"{DIRECTORY}/notes", b"")
    world.remove(index_path(1))

    report = world.reader().report

    assert (report.verdict, report.owner, report.clean) == ("read up to the mark", False, True)
    assert (report.segments, report.first_lsn, report.last_lsn, report.durable_lsn) == (3, 1, 6, 6)
    assert (report.epoch, report.foreign) == (1, ["notes"])
    assert report.indexes_rebuilt == [SegmentName(1, 0).index]


# What an owner does meanwhile -----------------------------------------------------------------------------------------


class Watched:
    """Files that let something happen right before one of them is opened, once for each act."""

    def __init__(self, files: SimulatedFiles, name: str, *acts: Callable[[], None]) -> None:
        self._files = files
        self._name = name
        self._acts = list(acts)

    def __getattr__(self, verb: str) -> Any:
        return getattr(self._files, verb)

    def open(self, name: str, *, writable: bool = False) -> File:
        if name == self._name and self._acts:
            self._acts.pop()()
        return self._files.open(name, writable=writable)


def rewritten(world: World, first_lsn: int) -> None:
    """Put the next generation of a segment in its place, as a rewrite does."""
    header, chain = world.opening(first_lsn)
    data = world.files.contents(path(first_lsn))
    new = pack_segment_frame(replace(header, generation=1, last_lsn=first_lsn + 1, old_chain=chain))
    world.files.put(path(first_lsn, 1), new + data[256:])
    world.remove(path(first_lsn))
    world.remove(index_path(first_lsn))


def test_a_reader_that_opens_while_a_file_is_replaced_reads_the_directory_again() -> None:
    world = World()
    three_segments(world)
    watched: Any = Watched(world.files, path(3), lambda: rewritten(world, 3))
    reader = world.device(files=watched)

    reader.recover()

    assert lsns(reader) == [1, 2, 3, 4, 5, 6]
    assert [info.generation for info in reader.segments()] == [0, 1, 0]


def test_a_reader_plans_again_when_a_file_of_its_plan_was_replaced() -> None:
    world = World()
    three_segments(world)
    reader = world.reader()
    frames = reader.frames(Lsn(1), Lsn(6))
    first = next(frames)

    rewritten(world, 3)

    assert [frame.lsn for frame in (first, *frames)] == [1, 2, 3, 4, 5, 6]
    assert [info.generation for info in reader.segments()] == [0, 1, 0]


def test_a_reader_that_has_opened_a_segment_goes_on_with_the_same_bytes() -> None:
    world = World()
    three_segments(world)
    reader = world.reader()
    frames = reader.frames(Lsn(3), Lsn(4))
    first = next(frames)

    rewritten(world, 3)

    assert [frame.segment for frame in (first, *frames)] == [str(SegmentName(3, 0))] * 2


def test_a_reader_of_a_partition_plans_again_too() -> None:
    world = World()
    three_segments(world)
    reader = world.reader()
    frames = reader.frames_of(1, 0, 0)
    first = next(frames)

    rewritten(world, 3)

    found = [(frame.lsn, frame.header.base_offset) for frame in (first, *frames)]
    assert found == [(1, 0), (3, 2), (5, 4)]


def test_a_file_that_stays_away_is_an_error_of_the_directory_for_a_reader() -> None:
    world = World()
    three_segments(world)
    reader = world.reader()

    world.remove(path(3))

    with pytest.raises(LostSegment):
        lsns(reader)
    with pytest.raises(LostSegment):
        list(reader.frames_of(1, 0, 0))


def test_a_file_that_stays_away_from_its_owner_is_an_error_after_a_few_plans() -> None:
    world = World()
    device = three_segments(world)

    world.remove(path(3))

    with pytest.raises(FileNotFoundError):
        lsns(device)
    with pytest.raises(FileNotFoundError):
        list(device.frames_of(1, 0, 0))


def test_a_look_at_an_index_that_stays_away_is_an_error_after_a_few_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    device = three_segments(world)
    looks: list[int] = []

    def gone(view: object, number: int) -> NoReturn:
        looks.append(number)
        raise FileNotFoundError(errno.ENOENT, "replaced meanwhile")

    monkeypatch.setattr(device, "_index", gone)

    with pytest.raises(FileNotFoundError):
        device.next_offset(1, 0)
    assert len(looks) > 2


@pytest.mark.parametrize("changes", [1, 9, 10])
def test_a_directory_that_changes_at_every_look_is_an_error_only_in_the_end(changes: int) -> None:
    world = World()
    three_segments(world)

    def gone() -> None:
        raise FileNotFoundError(errno.ENOENT, "replaced meanwhile")

    watched: Any = Watched(world.files, path(3), *[gone] * changes)
    reader = world.device(files=watched)

    if changes == 10:
        with pytest.raises(FileNotFoundError):
            reader.recover()
    else:
        reader.recover()

    assert lsns(reader) == ([] if changes == 10 else [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("nth", range(1, 8))
def test_an_error_while_looking_again_leaves_a_reader_that_can_look_once_more(nth: int) -> None:
    world = World()
    device = world.owner()
    commit(device, [rows(1, body=bytes(40_000))])
    reader = world.reader()
    commit(device, [rows(1, body=bytes(40_000))], [rows(1, body=bytes(40_000))])

    # Two reads are of the mark, the others of the two frames, which take several chunks.
    world.files.fail(nth, errno.EIO, verbs=["read_into"])
    failed = False
    try:
        reader.refresh()
    except OSError:
        failed = True
        assert lsns(reader) == [1]
    world.files.heal()

    assert failed == (nth <= 6)
    assert reader.refresh() == 3
    assert lsns(reader) == [1, 2, 3]


def test_one_thread_looks_at_a_time() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    other = ThreadPoolExecutor(1)

    def meanwhile() -> None:
        looks.append(other.submit(reader.refresh))
        with pytest.raises(TimeoutError):
            looks[0].result(timeout=0.2)

    looks: list[Future[Lsn]] = []
    watched: Any = Watched(world.files, path(1))
    reader = world.device(files=watched)
    reader.recover()
    commit(device, [rows()])

    watched._acts.append(meanwhile)
    mine = reader.refresh()

    assert mine == looks[0].result() == 2
    other.shutdown()


def test_threads_that_look_at_the_same_time_do_not_disturb_each_other() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    reader = world.reader()

    def look() -> bool:
        durable = reader.refresh()
        return lsns(reader, 1, durable) == list(range(1, durable + 1))

    with ThreadPoolExecutor(4) as threads:
        for _ in range(30):
            commit(device, [rows()] * 50)
            looks = [threads.submit(look) for _ in range(4)]
            assert all(each.result() for each in looks)

    assert reader.refresh() == 1501


# Damage ---------------------------------------------------------------------------------------------------------------


def damaged_newest() -> World:
    """LSNs 5 and 6 are in the newest segment, and 6 is damaged."""
    world = World()
    three_segments(world)
    world.change(path(5), world.frame_positions(5)[1] + 130, b"\xff")
    return world


def test_damage_below_the_mark_halts_a_reader_by_name() -> None:
    world = damaged_newest()

    with pytest.raises(DamagedLog) as halt:
        world.reader()

    assert halt.value.facts == {"segment": str(SegmentName(5, 0)), "lsn": 6, "durable_lsn": 6}


def test_damage_that_is_met_while_looking_again_halts_and_goes_on_halting() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    reader = world.reader()
    commit(device, [rows()])
    world.change(path(1), world.frame_positions()[1] + 130, b"\xff")

    for _ in range(2):
        with pytest.raises(DamagedLog):
            reader.refresh()

    assert lsns(reader) == [1]


def test_a_chain_that_breaks_below_the_mark_halts_a_reader() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()], [rows()])
    first, second = world.frame_positions()
    world.change(path(1), second, world.files.contents(path(1))[first:second])

    commit(device, [rows()])

    with pytest.raises(DamagedLog, match="it does not name the frame before it"):
        world.reader()
    partly = world.reader(undamaged_part=True)

    assert device.durable() == 3
    assert lsns(partly) == [1]
    assert partly.segments()[0].bytes == second


def test_a_newest_segment_whose_header_is_damaged_below_the_mark_halts_a_reader() -> None:
    world = World()
    three_segments(world)
    world.change(path(5), 0, b"xxxx")

    with pytest.raises(DamagedLog) as halt:
        world.reader()
    partly = world.reader(undamaged_part=True)

    assert halt.value.facts["segment"] == str(SegmentName(5, 0))
    assert lsns(partly) == [1, 2, 3, 4]


def test_with_undamaged_part_a_halted_log_can_be_read_up_to_the_damage_and_not_written() -> None:
    world = damaged_newest()

    reader = world.reader(undamaged_part=True)

    assert lsns(reader) == [1, 2, 3, 4, 5]
    assert reader.refresh() == reader.durable() == 5
    assert "cannot be read up to its mark" in reader.report.verdict
    assert [frame.lsn for frame in reader.frames_of(2, 0, 0)] == [2, 4]
    assert reader.find(2, 0, 6) is None
    with pytest.raises(DamagedLog):
        reader.claim()


def test_with_undamaged_part_a_write_that_is_not_whole_is_not_shown() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()])
    commit(device, [rows(2), rows(2, topic=2), rows(2)])
    world.change(path(1), world.frame_positions()[3] + 130, b"\xff")

    reader = world.reader(undamaged_part=True)

    assert lsns(reader) == [1]
    assert lsns(reader, 1, 99) == [1]
    assert reader.segments()[0].bytes == world.frame_positions()[1]
    assert [frame.lsn for frame in reader.frames_of(1, 0, 0)] == [1]
    assert reader.find(2, 0, 0) is None and reader.find_header(2, 0, 0) is None
    assert reader.find_time(device.last_append_time_us()) is None


@pytest.mark.parametrize(
    ("breaks", "seen"),
    [
        (lambda world: world.change(path(3), 0, b"xxxx"), [1, 2]),
        # How far the last one that is there reaches, only its successor could say.
        (lambda world: world.remove(path(5)), [1, 2]),
        (lambda world: world.remove(path(3)), [1, 2]),
        (
            lambda world: world.change(
                path(5), 0, pack_segment_frame(replace(world.opening(5)[0], incompatible_features=1))
            ),
            [1, 2, 3, 4],
        ),
    ],
    ids=["a sealed header", "the newest is gone", "one in the middle is gone", "an unknown format"],
)
def test_with_undamaged_part_whatever_halts_the_log_what_lies_before_it_can_be_read(
    breaks: Callable[[World], None], seen: list[int]
) -> None:
    world = World()
    three_segments(world)
    breaks(world)

    with pytest.raises((DamagedLog, LostSegment, UnknownFormat)):
        world.reader()
    reader = world.reader(undamaged_part=True)

    assert lsns(reader) == seen
    assert reader.report.verdict != "read up to the mark"


# By LSN ---------------------------------------------------------------------------------------------------------------


def test_a_range_of_lsns_is_read_with_both_its_ends_and_across_segments() -> None:
    world = World()
    device = three_segments(world)

    found = {
        (first, last): lsns(device, first, last) for first, last in [(1, 6), (2, 3), (4, 4), (6, 99), (7, 9), (3, 2)]
    }

    assert found == {(1, 6): [1, 2, 3, 4, 5, 6], (2, 3): [2, 3], (4, 4): [4], (6, 99): [6], (7, 9): [], (3, 2): []}


def test_a_frame_says_where_it_was_read_and_what_it_holds() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows(3, topic=7, partition=2, body=b"these rows")])

    (frame,) = device.frames(Lsn(1), Lsn(1))

    assert (frame.lsn, frame.segment, frame.position) == (1, str(SegmentName(1, 0)), 256)
    assert bytes(frame.body) == b"these rows"
    assert (frame.header.topic_number, frame.header.partition, frame.header.row_count) == (7, 2, 3)


def test_lsns_below_the_first_segment_are_forgotten() -> None:
    world = World()
    device = three_segments(world)
    device.forget(Lsn(5))

    with pytest.raises(Forgotten) as found:
        lsns(device, 4)

    assert found.value.facts == {"lsn": 4, "first_lsn": 5}
    assert lsns(device, 5) == [5, 6]


def with_gap(world: World, first: int, last: int) -> FileDevice:
    """A log of LSNs 1 to 6 in its first segment, in which a gap stands for some."""
    device = world.owner()
    commit(device, *([rows(1)] for _ in range(6)))
    device.roll()
    data = world.files.contents(path(1))
    positions = world.frame_positions()
    salted, (segment, chain) = world.salted(), world.opening()
    end = chain_value(world.header_at(positions[last - 1]), b"")
    body = pack_gap(Gap(first, last, last - first + 1, GapReason.DRAINED, end))
    gap = reseal_header(
        world.header_at(positions[first - 1])._replace(
            kind=Kind.GAP, flags=Flag.REWRITTEN, lsn=last, topic_number=0, base_offset=0, row_count=0, offset_count=0,
            body_size=len(body), padding_size=padding_size(len(body)), body_crc=crc_of(body),
        ),
        salted,
    )  # fmt: skip
    new = pack_segment_frame(replace(segment, generation=1, last_lsn=6, old_chain=chain))
    behind = data[positions[last] :] if last < 6 else b""
    new += data[256 : positions[first - 1]] + pack_header(gap) + body + bytes(gap.padding_size) + behind
    world.files.put(path(1, 1), new)
    device.close()
    return world.owner()


@pytest.mark.parametrize("gap", [(1, 2), (3, 5), (4, 6)])
def test_a_range_that_touches_a_gap_gets_the_gap_wherever_it_begins_and_ends(gap: tuple[int, int]) -> None:
    world = World()
    device = with_gap(world, *gap)

    for first in range(1, 7):
        for last in range(first, 7):
            wanted = [lsn for lsn in range(first, last + 1) if not gap[0] <= lsn <= gap[1]]
            if first <= gap[1] and last >= gap[0]:
                wanted = sorted([*wanted, gap[1]])
            assert lsns(device, first, last) == wanted, (first, last)


# By partition, offset and time ----------------------------------------------------------------------------------------


def test_the_frames_of_a_partition_are_read_from_an_offset_on() -> None:
    world = World()
    device = three_segments(world)

    found = {offset: [frame.lsn for frame in device.frames_of(2, 0, offset)] for offset in (0, 2, 3, 8, 9)}

    assert found == {0: [2, 4, 6], 2: [2, 4, 6], 3: [4, 6], 8: [6], 9: []}
    assert list(device.frames_of(3, 0, 0)) == []
    assert list(device.frames_of(1, 1, 0)) == []


def test_the_place_of_an_offset_is_found_and_nothing_behind_the_end() -> None:
    world = World()
    device = three_segments(world)

    found = [device.find(1, 0, offset) for offset in range(7)]

    first, second, third = (FrameRef(Lsn(lsn), str(SegmentName(lsn, 0)), 256) for lsn in (1, 3, 5))
    assert found == [first, first, second, second, third, third, None]


def test_the_header_of_an_offset_is_found_and_its_body_is_not_looked_at() -> None:
    world = World()
    device = three_segments(world)
    position = world.frame_positions(3)[0]
    world.change(path(3), position + 130, b"\xff")

    found = [device.find_header(1, 0, offset) for offset in range(7)]

    assert [None if each is None else (each.lsn, each.base_offset) for each in found] == [
        (1, 0), (1, 0), (3, 2), (3, 2), (5, 4), (5, 4), None,
    ]  # fmt: skip
    with pytest.raises(CorruptData):
        list(device.frames_of(1, 0, 2))


def test_an_offset_whose_rows_are_gone_is_found_at_the_next_that_is_there() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows(2)])
    device.roll()
    commit(device, [rows(2, topic=2)])
    device.roll()
    commit(device, [rows(2)])
    device.forget(Lsn(2))

    found = device.find(1, 0, 0)

    assert found is not None
    assert found.lsn == 3
    assert [frame.lsn for frame in device.frames_of(1, 0, 0)] == [3]


def test_the_first_frame_at_or_after_a_time_is_found_across_segments() -> None:
    world = World()
    device = world.owner()
    for number in range(3):
        if number:
            device.roll()
        commit(device, [rows()], time_us=1000 * number + 100)
        commit(device, [rows()], time_us=1000 * number + 200)

    found = {time_us: device.find_time(time_us) for time_us in (0, 100, 101, 201, 1100, 1150, 2200, 2201)}

    assert found == {0: 1, 100: 1, 101: 2, 201: 3, 1100: 3, 1150: 4, 2200: 6, 2201: None}
    assert World().reader().find_time(0) is None


def test_what_each_topic_has_in_a_segment_is_told() -> None:
    world = World()
    device = three_segments(world)
    infos = device.segments()

    topics = [device.topics_in(info) for info in infos]

    assert topics[1] == {1: TopicInSegment(1, 256, 2, Lsn(3)), 2: TopicInSegment(1, 256, 3, Lsn(4))}
    assert topics[2] == {1: TopicInSegment(1, 256, 2, Lsn(5)), 2: TopicInSegment(1, 256, 3, Lsn(6))}
    assert isinstance(infos[0], SegmentInfo)
    assert [(info.first_lsn, info.last_lsn, info.sealed) for info in infos] == [
        (1, 2, True),
        (3, 4, True),
        (5, 6, False),
    ]


def test_a_segment_that_was_deleted_since_it_was_listed_holds_nothing() -> None:
    """Whoever counts rows while another thread cleans up meets one now and then."""
    device = three_segments(World())
    first, second, _ = device.segments()
    device.forget(Lsn(3))

    assert device.topics_in(first) == {}
    assert set(device.topics_in(second)) == {1, 2}


# An index is never trusted for content --------------------------------------------------------------------------------


class Liar:
    """An index that answers with one place, whatever it is asked."""

    def __init__(self, place: Place | None, behind: Place | None = None) -> None:
        self.place = place
        self.behind = behind

    def place_of(self, lsn: int) -> Place | None:
        return self.place if lsn == 1 or self.place is None else self.behind

    def places(self, key: int, offset: int) -> Iterator[Place]:
        return iter([self.place] if self.place is not None else [])

    def next_offset(self, key: int) -> int:
        return 1 << 40


def lied_to(world: World, liar: Liar) -> FileDevice:
    device = three_segments(world)
    device.view.segments[0].set_index(liar)  # type: ignore[arg-type]
    return device


def test_an_index_that_leads_to_another_frame_is_found_out() -> None:
    device = lied_to(World(), Liar(Place(1, 512), Place(2, 768)))

    with pytest.raises(CorruptData, match="leads to another frame") as found:
        lsns(device, 1, 1)
    with pytest.raises(CorruptData, match="leads to another frame"):
        list(device.frames_of(1, 0, 0))
    with pytest.raises(CorruptData, match="leads to another frame"):
        device.find_header(1, 0, 0)

    assert found.value.facts["found_lsn"] == 2


def test_an_index_that_leads_to_another_frame_of_the_same_partition_is_found_out() -> None:
    device = World().owner()
    commit(device, [rows()], [rows()])
    device.roll()
    device.view.segments[0].set_index(Liar(Place(1, 512)))  # type: ignore[arg-type]

    with pytest.raises(CorruptData, match="leads to another frame"):
        list(device.frames_of(1, 0, 0))


def test_an_index_that_leads_to_another_partition_is_found_out() -> None:
    device = lied_to(World(), Liar(Place(1, 256)))

    with pytest.raises(CorruptData, match="leads to another frame"):
        list(device.frames_of(2, 0, 0))
    with pytest.raises(CorruptData, match="leads to another frame"):
        device.find_header(2, 0, 0)


def test_an_index_that_leads_to_no_frame_is_found_out() -> None:
    device = lied_to(World(), Liar(None))

    with pytest.raises(CorruptData, match="leads to no frame"):
        lsns(device, 1, 1)


def test_an_index_that_leads_into_the_middle_of_a_frame_is_found_out() -> None:
    device = lied_to(World(), Liar(Place(1, 384)))

    with pytest.raises(CorruptData, match="cannot be read"):
        lsns(device, 1, 1)
    with pytest.raises(CorruptData, match="cannot be read"):
        list(device.frames_of(1, 0, 0))


def test_a_durable_frame_that_is_damaged_is_corrupt_and_named() -> None:
    world = World()
    device = three_segments(world)
    at = world.frame_positions(3)[1]
    world.change(path(3), at + 130, b"\xff")

    with pytest.raises(CorruptData) as found:
        lsns(device)

    assert found.value.facts == {"segment": str(SegmentName(3, 0)), "position": at, "lsn": 4}
    with pytest.raises(CorruptData):
        list(device.frames_of(2, 0, 0))


def two_histories(frames: int) -> tuple[World, FileDevice, bytes]:
    """A sealed segment of that many frames, and the bytes that its file would hold in another history of the log."""
    world = World()
    world.owner()
    other = world.restarted()
    world = world.restarted()
    device, other_device = world.owner(), other.owner()
    for each, body in ((device, b"ours"), (other_device, b"else")):
        commit(each, *([rows(1, body=body)] for _ in range(frames)))
    device.roll()
    return world, device, other.files.contents(path(1))


def test_a_whole_frame_of_another_history_that_has_the_right_lsn_is_found_out() -> None:
    world, device, other = two_histories(2)
    at = world.frame_positions()[1]
    world.change(path(1), at, other[at:])

    with pytest.raises(CorruptData, match="does not name the frame before it") as found:
        lsns(device)

    assert found.value.facts == {"segment": str(SegmentName(1, 0)), "position": at, "lsn": 2}


def test_a_segment_that_ends_in_another_history_than_it_was_sealed_with_is_found_out() -> None:
    world, device, other = two_histories(1)
    assert lsns(device) == [1]
    world.change(path(1), 256, other[256:])

    with pytest.raises(CorruptData, match="does not name the frame before it"):
        lsns(device)


def test_a_gap_that_the_index_gives_for_an_lsn_outside_it_is_found_out() -> None:
    world = World()
    device = with_gap(world, 3, 5)
    device.view.segments[0].set_index(Liar(Place(1, 256 + 2 * 256)))  # type: ignore[arg-type]

    with pytest.raises(CorruptData, match="leads to another frame"):
        lsns(device, 1, 1)


# Indexes that are open ------------------------------------------------------------------------------------------------


def test_an_index_that_is_gone_when_it_is_asked_is_rebuilt() -> None:
    world = World()
    three_segments(world)
    reader = world.reader()
    for first in (1, 3):
        world.remove(index_path(first))

    found = [frame.lsn for frame in reader.frames_of(1, 0, 0)]

    assert found == [1, 3, 5]
    assert reader.place.counters.indexes_rebuilt == 2


def test_only_the_latest_indexes_stay_open_and_every_segment_can_still_be_read() -> None:
    world = World()
    device = world.owner()
    count = INDEXES_OPEN_MAX + 3
    for _ in range(count):
        commit(device, [rows()])
        device.roll()
    commit(device, [rows()])

    found = lsns(device)

    assert found == list(range(1, count + 2))
    indexes = [segment.loaded_index for segment in device.view.segments]
    assert [index is None for index in indexes] == [True] * 3 + [False] * INDEXES_OPEN_MAX + [False]
    assert isinstance(indexes[-1], ActiveIndex)
    assert lsns(device) == found


def test_the_indexes_of_segments_that_are_forgotten_are_let_go() -> None:
    world = World()
    device = three_segments(world)
    lsns(device)
    segments = device.view.segments
    assert all(segment.loaded_index is not None for segment in segments)

    device.forget(Lsn(3))

    assert segments[0].loaded_index is None
    assert segments[1].loaded_index is not None
    assert [header.lsn for header in headers(device, 3)] == [3, 4, 5, 6]
