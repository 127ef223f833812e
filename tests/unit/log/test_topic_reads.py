"""Reading one topic: the same frames as reading everything would give, by whichever way they are reached (G4)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any

import pytest

from headwater.errors import CorruptData, LostSegment
from headwater.frames.bodies import GapReason
from headwater.frames.frame import Header, Kind
from headwater.ids import Lsn
from headwater.log import Draft, Frame, FrameLog, file_reads
from headwater.log.index import ActiveIndex, Place
from headwater.log.rewrite import KEEP, REMOVE, Sparse, rewrite_segment
from headwater.storage.files import File
from headwater.storage.simulated import SimulatedFiles
from tests.unit.log.small_logs import (
    SETTINGS,
    WAIT_S,
    World,
    fill,
    rows,
    simulated,
    spoil,
    stored_in,
)

ROWS = (Kind.DATA, Kind.SPARSE)
CHUNK = 32_768
SMALL_CHUNKS = replace(SETTINGS, scan_chunk_bytes=CHUNK, follow_poll_s=0.002)
"""So that a few frames take more than one chunk."""


def schema(topic: int) -> Draft:
    return Draft(Kind.SCHEMA, b"columns", topic_number=topic)


def large(topic: int, number: int = 0, partition: int = 0) -> Draft:
    """A frame of which four do not fit into a chunk."""
    return rows(topic, 1 + number % 3, partition=partition, body=bytes([number % 251]) * 9_000)


def facts(frames: list[Frame]) -> list[tuple[Header, bytes, str, int]]:
    return [(frame.header, bytes(frame.body), frame.segment, frame.position) for frame in frames]


def lsns_of(log: FrameLog, topic: int, from_lsn: int = 1, to_lsn: int | None = None) -> list[int]:
    return [frame.lsn for frame in log.read_topic(topic, Lsn(from_lsn), None if to_lsn is None else Lsn(to_lsn))]


def one_in_five(world: World) -> list[str]:
    """A log of two segments in which topic 1 has a fifth: LSNs 2, 7, 12 ... 57, and 62, 67; closed.  The names of
    its segments."""
    with world.open() as log:
        fill(log, [[[large(1 if at % 5 == 0 else 2, at, at % 3)] for at in range(count)] for count in (60, 10)])
        return [segment.name for segment in log.segments()]


# The same as reading everything ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("scan_percent", [0, 50, 101], ids=["always scan", "as it is", "never scan"])
@pytest.mark.parametrize("seed", range(12))
def test_a_topic_is_given_as_reading_everything_would_give_it(
    seed: int, scan_percent: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_reads, "SCAN_PERCENT_MIN", scan_percent)
    chance = Random(seed)
    _, world = simulated(seed, settings=SMALL_CHUNKS)
    log = world.open()
    for _ in range(chance.randint(1, 4)):
        for _ in range(chance.randint(1, 25)):
            topic = chance.choice([1, 1, 2, 3])
            body = chance.randbytes(chance.choice([0, 50, 5_000, 20_000, 70_000]))
            draft = Draft(Kind.DATA, body, topic_number=topic, partition=chance.randrange(3), row_count=2)
            log.append([draft] if chance.random() < 0.7 else [schema(topic), draft])
        log.roll()
    for segment in log.segments()[:-1]:
        if chance.random() < 0.6:
            rewrite_segment(log, segment.name, some_of(chance), reason=GapReason.COMPACTED)
    log.append([rows(1)])
    everything = list(log.read())
    last = everything[-1].lsn
    readers = [log, world.open()]

    for topic in range(5):
        for from_lsn, to_lsn in [(1, last)] + [(chance.randint(1, last), chance.randint(1, last)) for _ in range(4)]:
            expected = [
                frame
                for frame in everything
                if frame.header.kind in ROWS and frame.header.topic_number == topic and from_lsn <= frame.lsn <= to_lsn
            ]
            for reader in readers:
                found = list(reader.read_topic(topic, Lsn(from_lsn), Lsn(to_lsn)))
                assert facts(found) == facts(expected)
    log.close()


def some_of(chance: Random) -> Callable[[Header, memoryview], bool | Sparse]:
    def decide(header: Header, body: memoryview) -> bool | Sparse:
        if header.kind == Kind.DATA and chance.random() < 0.3:
            return Sparse(bytes(body), 1)
        return chance.choice([KEEP, KEEP, REMOVE])

    return decide


def test_a_frame_can_be_kept_while_others_are_read() -> None:
    _, world = simulated(settings=SMALL_CHUNKS)
    with world.open() as log:
        fill(log, [[[large(1, at)] for at in range(20)]])

        frames = list(log.read_topic(1))

    assert [bytes(frame.body[:1]) for frame in frames] == [bytes([at]) for at in range(20)]


def test_schemas_and_other_frames_of_a_topic_are_not_given() -> None:
    _, world = simulated()
    log = world.open()
    log.append([schema(1), rows(1), Draft(Kind.OFFSETS, b"", topic_number=1), rows(2)])

    assert lsns_of(log, 1) == [3]
    assert lsns_of(log, 9) == []
    assert list(log.read_topic(1, Lsn(4), Lsn(3))) == []
    log.close()


def test_an_empty_log_has_no_frames_of_any_topic() -> None:
    _, world = simulated()

    assert lsns_of(world.open(), 1) == []


def test_what_the_log_has_let_go_of_is_passed_over() -> None:
    _, world = simulated()
    log = world.open()
    fill(log, [[[rows(1)], [rows(2)]], [[rows(2)], [rows(1)]], [[rows(1)]]])

    log.exclusively(lambda: log.device.forget(Lsn(4)))

    assert lsns_of(log, 1) == [5, 6]
    assert lsns_of(log, 1, 2, 5) == [5]
    assert lsns_of(log, 1, 1, 3) == []
    log.close()


def test_what_is_written_but_not_yet_durable_is_not_given() -> None:
    _, world = simulated()
    log = world.open()
    log.append([rows(1)])
    log.roll()
    log.exclusively(lambda: log.device.forget(Lsn(3)))
    index = log.device.active_segment.loaded_index
    assert isinstance(index, ActiveIndex)

    # As while the next frame is on its way to the disk.
    index.add_frame(3, 256, Kind.DATA, 1, 0, 1, 1, 1, 256, 0)

    assert lsns_of(log, 1) == []


# How it gets there ----------------------------------------------------------------------------------------------------


class Watched:
    """Files that remember what was read of segments."""

    def __init__(self, files: SimulatedFiles) -> None:
        self._files = files
        self.opened: list[str] = []
        self.reads = 0
        self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def open(self, name: str, *, writable: bool = False) -> Any:
        file = self._files.open(name, writable=writable)
        if not name.endswith(".seg"):
            return file
        self.opened.append(name)
        return WatchedFile(file, self)


class WatchedFile:
    def __init__(self, file: File, watched: Watched) -> None:
        self._file = file
        self._watched = watched

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def read_at(self, position: int, size: int) -> bytes:
        self._watched.reads += 1
        self._watched.bytes += size
        return self._file.read_at(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        self._watched.reads += 1
        self._watched.bytes += len(buffer)
        return self._file.read_into(position, buffer)


def watched_reader(files: SimulatedFiles, world: World) -> tuple[Any, FrameLog]:
    """What it reads from here on, and the reader, which knows its indexes already."""
    watched: Any = Watched(files)
    reader = world.open(watched)
    list(reader.read_topic(99))
    watched.opened.clear()
    watched.reads = watched.bytes = 0
    return watched, reader


def test_a_topic_with_a_small_part_of_a_segment_is_read_without_the_rest() -> None:
    files, world = simulated(settings=SMALL_CHUNKS)
    one_in_five(world)
    watched, reader = watched_reader(files, world)

    found = lsns_of(reader, 1)

    assert found == [*range(2, 62, 5), 62, 67]
    assert watched.bytes < 12 * 9_500 + 10 * 9_500  # of the first segment its own, of the second, a short one, all


def test_a_topic_with_most_of_a_segment_is_read_in_chunks_and_nothing_twice() -> None:
    files, world = simulated(settings=SMALL_CHUNKS)
    names = one_in_five(world)
    size = sum(len(files.contents(f"log/{name}")) for name in names)
    watched, reader = watched_reader(files, world)

    found = lsns_of(reader, 2)

    assert len(found) == 56
    # A chunk is read to learn how long frames are, and the last of a segment is shorter than the others.
    assert watched.bytes <= size + 2 * CHUNK


def test_whoever_follows_the_end_of_a_segment_reads_the_end_alone_and_at_once() -> None:
    files, world = simulated(settings=SMALL_CHUNKS)
    with world.open() as log:
        fill(log, [[[large(2, at)] for at in range(20)] + [[rows(1), rows(2)] for _ in range(5)]])
    watched, reader = watched_reader(files, world)

    found = lsns_of(reader, 1, 24)

    assert found == [24, 26, 28, 30]
    assert watched.reads <= 2  # the second finds the end
    assert watched.bytes < 9 * 256


def test_a_segment_without_the_topic_is_not_opened() -> None:
    files, world = simulated()
    with world.open() as log:
        fill(log, [[[rows(1)]], [[rows(2)]], [[rows(1)]]])
        names = [segment.name for segment in log.segments()]
    watched, reader = watched_reader(files, world)

    found = lsns_of(reader, 1)

    assert found == [2, 4]
    assert watched.opened == [f"log/{names[0]}", f"log/{names[2]}"]


# A file that is gone --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [1, 2], ids=["by the index", "by a scan"])
def test_a_reader_of_a_topic_plans_again_when_a_segment_was_replaced(topic: int) -> None:
    _, world = simulated(settings=SMALL_CHUNKS)
    names = one_in_five(world)
    reader = world.open()
    owner = world.open()
    owner.append([rows(3)])
    before = lsns_of(reader, topic)
    frames = reader.read_topic(topic)
    first = next(frames)

    for name in (names[0], names[0].replace(".0.", ".1.")):
        rewrite_segment(owner, name, lambda header, body: header.lsn % 2 == 0, reason=GapReason.COMPACTED)
    owner.roll()
    rewrite_segment(owner, names[1], lambda header, body: header.lsn % 2 == 0, reason=GapReason.COMPACTED)

    after = [frame.lsn for frame in (first, *frames)]
    # The segment that it had open it has read to its end; the next one it found rewritten.
    assert after == [lsn for lsn in before if lsn < 62 or lsn % 2 == 0]
    owner.close()


@pytest.mark.parametrize("topic", [1, 2], ids=["by the index", "by a scan"])
def test_a_file_that_stays_away_is_an_error_for_a_reader_of_a_topic_too(topic: int) -> None:
    files, world = simulated(settings=SMALL_CHUNKS)
    names = one_in_five(world)
    reader = world.open()
    owner = world.open()
    owner.append([rows(3)])
    list(owner.read_topic(topic))

    files.unlink(f"log/{names[0]}")

    with pytest.raises(LostSegment):
        list(reader.read_topic(topic))
    with pytest.raises(FileNotFoundError):
        list(owner.read_topic(topic))
    owner.close()


# Damage ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topic", [1, 2], ids=["by the index", "by a scan"])
def test_no_damaged_row_is_given_and_damage_elsewhere_does_not_stop_a_topic(topic: int) -> None:
    files, world = simulated(settings=SMALL_CHUNKS)
    names = one_in_five(world)
    path = f"log/{names[0]}"
    own = next(each for each in stored_in(files, path) if each.lsn > 20 and each.header.topic_number == topic)
    other = next(each for each in stored_in(files, path) if each.lsn > 20 and each.header.topic_number == 3 - topic)
    whole = lsns_of(world.open(), topic)

    spoil(files, path, other, body=True)
    beside = lsns_of(world.open(), topic)
    spoil(files, path, own, body=True)
    frames = world.open().read_topic(topic)
    before = sum(lsn < own.lsn for lsn in whole)
    found = [frame.lsn for frame in islice(frames, before)]

    assert beside == whole
    assert found == whole[:before]
    with pytest.raises(CorruptData):
        next(frames)


@pytest.mark.parametrize("shift", ["another LSN", "another topic"])
def test_an_index_that_leads_a_reader_of_a_topic_to_another_frame_is_said(
    shift: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, world = simulated(settings=SMALL_CHUNKS)
    names = one_in_five(world)
    stored = {each.lsn: each for each in stored_in(files, f"log/{names[0]}")}
    wrong = Place(2, stored[7].position) if shift == "another LSN" else Place(3, stored[3].position)
    monkeypatch.setattr("headwater.log.index.SealedIndex.places_of_topic", lambda *_: iter([wrong]))

    with pytest.raises(CorruptData, match="another frame than it says"):
        lsns_of(world.open(), 1)


# Following ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_the_owner", [True, False])
def test_a_follower_of_a_topic_is_given_its_frames_until_an_lsn(by_the_owner: bool) -> None:
    _, world = simulated(settings=SMALL_CHUNKS)
    log = world.open()
    log.append([rows(1)])
    followed = log if by_the_owner else world.open()
    frames = followed.read_topic(1, to_lsn=Lsn(7), follow=True, timeout_s=WAIT_S)

    found = [next(frames).lsn]
    log.append([rows(2), rows(1)])
    found.append(next(frames).lsn)
    log.append([rows(2), rows(2)])
    log.roll()
    log.append([rows(1), rows(1)])
    found += [frame.lsn for frame in frames]

    assert found == [2, 4, 7]
    log.close()


def test_following_a_topic_ends_when_the_log_is_closed() -> None:
    _, world = simulated(settings=SMALL_CHUNKS)
    log = world.open()
    log.append([rows(1)])
    frames = log.read_topic(1, follow=True)
    first = next(frames)

    log.close()

    assert (first.lsn, list(frames)) == (2, [])


@pytest.mark.parametrize("by_the_owner", [True, False])
def test_following_a_topic_ends_when_nothing_of_it_has_come_for_a_time(by_the_owner: bool) -> None:
    _, world = simulated(settings=SMALL_CHUNKS)
    log = world.open()
    log.append([rows(1)])
    followed = log if by_the_owner else world.open()

    assert [frame.lsn for frame in followed.read_topic(1, follow=True, timeout_s=0.01)] == [2]
    assert list(followed.read_topic(9, follow=True, timeout_s=0.0)) == []
    log.close()


def test_frames_of_other_topics_do_not_put_off_the_end_of_following() -> None:
    _, world = simulated(settings=SMALL_CHUNKS)
    log = world.open()
    log.append([rows(1)])
    waits: list[float | None] = []

    def busy(lsn: Lsn, timeout_s: float | None) -> bool:
        # Somebody appends to another topic at each look, and after three looks once to this one.
        waits.append(timeout_s)
        world.clock.advance(4.0)
        log.append([rows(1 if len(waits) == 3 else 2)])
        return True

    log.wait_beyond = busy  # type: ignore[method-assign]
    found = [frame.lsn for frame in log.read_topic(1, follow=True, timeout_s=10.0)]

    assert found == [2, 5]
    assert waits == [10.0, 6.0, 2.0, 10.0, 6.0, 2.0]
    log.close()


def test_bodies_that_are_read_lie_in_the_memory_that_was_given() -> None:
    _, world = simulated()
    one_in_five(world)
    given: list[memoryview] = []

    def memory(size: int) -> memoryview:
        given.append(memoryview(bytearray(size)))
        return given[-1]

    with world.open(memory=memory) as log:
        for frames in (log.read(), log.read_topic(1), log.read_topic(2), log.read_partition(1, 0)):
            given.clear()
            bodies = [frame.body for frame in frames if frame.body]
            assert bodies
            assert {id(body.obj) for body in bodies} <= {id(each.obj) for each in given}
