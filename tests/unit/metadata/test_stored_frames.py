"""A log's whole writes as they lie in its files: beyond the mark, and up to the first break."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.frames.segment_header import pack_segment_frame
from headwater.metadata.fold_check import frames_until_gone
from headwater.metadata.stored_frames import StoredFrames
from headwater.storage.simulated import SimulatedFiles
from tests.unit.log.small_logs import HandMade, change, record, rows, simulated, spoil, stored_in, three_segments


def stored(files: SimulatedFiles) -> StoredFrames:
    return StoredFrames(files, "log", chunk_bytes=1 << 16)


def lsns(files: SimulatedFiles, from_lsn: int = 1) -> list[int]:
    return [frame.lsn for frame in stored(files).read(from_lsn)]


def healthy() -> tuple[SimulatedFiles, list[str]]:
    files, world = simulated()
    return files, three_segments(world)


def test_every_frame_of_a_healthy_log_is_given_as_a_reader_has_it() -> None:
    files, world = simulated()
    three_segments(world)

    found = list(stored(files).read(1))

    expected = list(world.open().read())
    assert [(each.header, bytes(each.body), each.segment, each.position) for each in found] == [
        (each.header, bytes(each.body), each.segment, each.position) for each in expected
    ]


@pytest.mark.parametrize("from_lsn", [1, 4, 5, 6, 10, 11])
def test_it_begins_at_an_lsn(from_lsn: int) -> None:
    files, _ = healthy()

    assert lsns(files, from_lsn) == list(range(from_lsn, 11))


def test_what_is_behind_the_mark_is_given_because_an_owner_would_recover_it() -> None:
    files, world = simulated()
    with world.open() as log:
        log.append([rows(1)])
        mark = files.contents("log/mark")
        log.append([rows(1), rows(2)])
    files.put("log/mark", mark)

    assert lsns(files) == [1, 2, 3, 4]


def test_a_write_that_is_not_whole_is_not_given() -> None:
    files, names = healthy()
    path = f"log/{names[1]}"
    third = stored_in(files, path)[2]  # the last of a write of three
    files.put(path, files.contents(path)[: third.position])

    assert lsns(files) == [1, 2, 3, 4]


@pytest.mark.parametrize("body", [False, True])
def test_it_ends_at_the_first_break(body: bool) -> None:
    files, names = healthy()
    path = f"log/{names[1]}"
    spoil(files, path, stored_in(files, path)[3], body=body)

    assert lsns(files) == [1, 2, 3, 4, 5, 6, 7]
    assert lsns(files, 9) == [9, 10]


def test_a_frame_that_does_not_continue_the_chain_ends_it() -> None:
    files = SimulatedFiles()
    HandMade().write(record()).write(record()).write(record(), chain=1).put(files)

    assert lsns(files) == [1, 2]


def test_a_segment_that_does_not_continue_the_one_before_ends_it() -> None:
    for gap in ({"prev": 1}, {"first_lsn": 9}):
        files = SimulatedFiles()
        first = HandMade().write(record()).put(files)
        first.next(**gap).write(record()).put(files)

        assert lsns(files) == [1]


def test_a_segment_whose_header_cannot_be_read_ends_it() -> None:
    files, names = healthy()
    change(files, f"log/{names[1]}", 0, b"xxxx")
    unknown = SimulatedFiles()
    header = replace(HandMade().header, incompatible_features=1)
    unknown.put("log/00000000000000000001.0.seg", pack_segment_frame(header))

    assert lsns(files) == [1, 2, 3, 4]
    assert lsns(unknown) == []
    assert stored(unknown).chain_before_first() is None


def test_the_first_segment_knows_what_was_before_it() -> None:
    files, _ = healthy()
    later = SimulatedFiles()
    HandMade(first_lsn=8, prev=77).write(record()).put(later)

    assert (stored(later).first_lsn, stored(later).chain_before_first()) == (8, 77)
    assert (stored(files).first_lsn, stored(SimulatedFiles()).first_lsn) == (1, None)


def test_reading_ends_at_an_lsn_or_where_a_file_has_gone() -> None:
    files, names = healthy()
    log = stored(files)

    some = [frame.lsn for frame in frames_until_gone(log, 2, 6)]
    files.unlink(f"log/{names[1]}")
    rest = [frame.lsn for frame in frames_until_gone(log, 1)]

    assert some == [2, 3, 4, 5, 6]
    assert rest == [1, 2, 3, 4]
