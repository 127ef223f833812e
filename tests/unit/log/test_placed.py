"""Where a planner finds a segment's frames: its file, its index and its end, all of one View."""

from __future__ import annotations

import pytest

from headwater.errors import Forgotten
from headwater.frames.bodies import GapReason
from headwater.ids import Lsn
from headwater.log.rewrite import KEEP, rewrite_segment
from tests.unit.log.small_logs import rows, simulated, stored_in, three_segments


def test_the_segment_that_holds_an_lsn_is_given_with_its_index_and_its_end() -> None:
    files, world = simulated()
    names = three_segments(world)
    log = world.open()

    for lsn, name in ((1, names[0]), (4, names[0]), (5, names[1]), (8, names[1]), (9, names[2]), (10, names[2])):
        placed = log.device.placed(Lsn(lsn))

        frames = stored_in(files, f"log/{name}")
        assert placed.name == name
        assert placed.end == frames[-1].position + frames[-1].header.frame_size
        place = placed.index.place_of(lsn)
        assert place is not None
        assert place.position == next(frame.position for frame in frames if frame.lsn == lsn)


def test_the_newest_segment_ends_where_it_is_durable() -> None:
    files, world = simulated()
    three_segments(world)
    log = world.open()
    before = log.device.placed(Lsn(10))

    log.append([rows(1, 2)])

    after = log.device.placed(Lsn(10))
    assert (after.name, after.end > before.end) == (before.name, True)
    place = after.index.place_of(11)
    assert place is not None and place.position == before.end
    assert stored_in(files, f"log/{after.name}")[-1].position < after.end


def test_a_reader_beside_the_owner_finds_what_it_has_seen() -> None:
    _, world = simulated()
    three_segments(world)
    owner, reader = world.open(), world.open()
    seen = reader.device.placed(Lsn(10))

    owner.append([rows(1, 2)])

    assert reader.device.placed(Lsn(10)).end == seen.end
    reader.durable_lsn()
    assert reader.device.placed(Lsn(10)).end == owner.device.placed(Lsn(10)).end > seen.end


def test_a_segment_that_was_replaced_under_a_reader_is_found_under_its_new_name() -> None:
    _, world = simulated()
    names = three_segments(world)
    owner = world.open()
    owner.claim()
    reader = world.open()
    rewrite_segment(owner, names[0], lambda header, body: KEEP, reason=GapReason.DRAINED)

    placed = reader.device.placed(Lsn(2))

    assert placed.name == owner.segments()[0].name != names[0]


def test_an_lsn_that_the_log_has_let_go_of_is_forgotten() -> None:
    _, world = simulated()
    three_segments(world)
    log = world.open()
    log.claim()
    log.exclusively(lambda: log.device.forget(Lsn(5)))

    with pytest.raises(Forgotten):
        log.device.placed(Lsn(4))
    assert log.device.placed(Lsn(5)).end > 0
