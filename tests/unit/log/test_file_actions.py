"""The small acts on a log's directory: what each leaves behind, also when it fails."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import replace as with_changes

import pytest

from headwater.frames.segment_header import pack_segment_frame
from headwater.log.file_actions import create_anew, create_segment, restore_reserve, unlink_all, write_aside
from headwater.log.names import SegmentName
from headwater.log.segments import LogPlace
from headwater.metrics import LogCounters
from headwater.storage.simulated import SimulatedFiles
from tests.formats.segments import segment_header
from tests.unit.log.device_world import SETTINGS

HEADER = segment_header(first_lsn=7)
NAME = str(SegmentName(7, 0))


def place_of(reserve_bytes: int = 0) -> tuple[LogPlace, SimulatedFiles]:
    files = SimulatedFiles()
    files.make_directory("log")
    settings = with_changes(SETTINGS, reserve_bytes=reserve_bytes)
    return LogPlace(files, "log", settings, LogCounters()), files


def plainly(verb: Callable[[], None]) -> None:
    verb()


def test_a_new_segment_is_durable_by_name_and_content() -> None:
    place, files = place_of()

    segment, file = create_segment(place, HEADER, plainly)

    assert files.contents_on_disk(f"log/{NAME}") == pack_segment_frame(HEADER)
    assert segment.opening.header == HEADER
    assert (segment.first_lsn, segment.last_lsn, segment.size) == (7, 6, 256)
    assert file.append([b"next"]) == 256


def test_a_segment_whose_header_cannot_be_written_leaves_its_name_free() -> None:
    place, files = place_of()
    files.fail(1, errno.ENOSPC, verbs=["append"], short=True)

    with pytest.raises(OSError, match="No space left"):
        create_segment(place, HEADER, plainly)

    assert files.list("log") == []
    assert not files.pending()
    create_segment(place, HEADER, plainly)
    assert files.list("log") == [NAME]


def test_every_sync_of_a_new_segment_goes_through_the_callers_hands() -> None:
    place, files = place_of()
    synced = []

    def noting(verb: Callable[[], None]) -> None:
        verb()
        synced.append(files.calls[-1])

    create_segment(place, HEADER, noting)
    files.fail(1, errno.EIO, verbs=["append"])
    with pytest.raises(OSError, match="Input/output"):
        create_segment(place, with_changes(HEADER, first_lsn=8), noting)

    assert synced[:2] == [("sync_all", f"log/{NAME}"), ("sync_directory", "log")]
    assert synced[2:] == [("unlink", f"log/{SegmentName(8, 0)}"), ("sync_directory", "log")]


def test_a_file_that_is_written_aside_is_whole_under_its_name_or_not_there() -> None:
    place, files = place_of()
    write_aside(place, "mark", b"first")

    for verb in ("append", "sync_data", "rename"):
        files.fail(1, errno.EIO, verbs=[verb], short=True)
        with pytest.raises(OSError, match="Input/output"):
            write_aside(place, "mark", b"second")
        assert files.contents("log/mark") == b"first"
    write_aside(place, "mark", b"third")

    assert files.contents("log/mark") == b"third"
    assert files.list("log") == ["mark"]


def test_what_a_failed_attempt_has_left_is_no_hindrance() -> None:
    place, files = place_of()
    files.put("log/x.tmp", b"left over")

    file = create_anew(place, "log/x.tmp")

    assert file.size() == 0
    assert files.contents("log/x.tmp") == b""


def test_what_can_be_unlinked_is_and_the_rest_is_counted() -> None:
    place, files = place_of()
    for name in ("a", "b", "c"):
        files.put(f"log/{name}", b"x")
    files.fail(2, errno.EPERM, verbs=["unlink"])

    removed = unlink_all(place, ["a", "b", "gone", "c"])

    assert removed == ["a", "c"]
    assert files.list("log") == ["b"]
    assert (place.counters.unlinks_failed, place.counters.io_errors) == (1, 1)
    assert not files.pending()


def test_where_nothing_was_unlinked_nothing_is_synced() -> None:
    place, files = place_of()

    removed = unlink_all(place, ["gone"])

    assert removed == []
    assert ("sync_directory", "log") not in files.calls


def test_the_reserve_is_taken_once_and_only_if_one_is_wanted() -> None:
    without, no_files = place_of(0)
    place, files = place_of(4096)

    restore_reserve(without)
    restore_reserve(place)
    restore_reserve(place)

    assert no_files.list("log") == []
    assert files.contents("log/reserve") == bytes(4096)
    assert place.counters.io_errors == 0


@pytest.mark.parametrize("verb", ["list", "allocate"])
def test_no_room_for_the_reserve_is_only_counted(verb: str) -> None:
    place, files = place_of(4096)
    files.fail(1, errno.ENOSPC, verbs=[verb])

    restore_reserve(place)

    assert place.counters.io_errors == 1
    assert files.list("log") == []
