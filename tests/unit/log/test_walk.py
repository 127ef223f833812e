"""A walk takes in what goes on where the slot before ended, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater.errors import CorruptData, DamagedLog, ForeignLog
from headwater.frames.bodies import pack_epoch
from headwater.frames.frame import Kind, salt_crc
from headwater.frames.segment_header import SegmentHeader, pack_segment_frame
from headwater.log.chain import ChainEnd, seal_writes
from headwater.log.drafts import Draft
from headwater.log.index import partition_key
from headwater.log.manifest import Manifest
from headwater.log.segment import opening_of
from headwater.log.slots import CONTINUES, FENCE, pack_slot, read_slot
from headwater.log.walk import Walk, token_of

LOG_ID = bytes(range(16))
SALT = b"saltsalt"
TOKEN = b"t" * 16
EPOCH = Draft(Kind.EPOCH, pack_epoch(1, TOKEN))
ROW = Draft(Kind.DATA, b"row", topic_number=1, row_count=1)


def walk(window: int = 4) -> Walk:
    return Walk(Manifest(LOG_ID, window), "etag", {})


def slot(onto: Walk, *drafts: Draft, flags: int = CONTINUES, epoch: int = 1, **other: object) -> bytes:
    """A slot that goes on with this walk, unless `other` says otherwise."""
    end = onto.end
    header = SegmentHeader(
        LOG_ID,
        SALT,
        end.next_lsn,
        end.chain,
        epoch,
        0,
        previous_first_lsn=onto.runs[-1].first_lsn if onto.runs else 0,
        slot=onto.next_slot,
        flags=flags,
    )
    header = replace(header, **other)  # type: ignore[arg-type]
    start = end
    if not flags & CONTINUES:
        start = ChainEnd(end.next_lsn, opening_of(pack_segment_frame(header)).chain, epoch, 0)
    writes = [((draft,), (0,)) for draft in drafts]
    sealed = seal_writes(writes, start, salt_crc(SALT), durable_lsn=0, epoch=epoch, append_time_us=0)
    return pack_slot(header, sealed.buffers)


def begun(window: int = 4) -> Walk:
    """A walk that has met a fence, which opens the log's first segment."""
    made = walk(window)
    made.add(slot(made, EPOCH, flags=FENCE))
    return made


def test_a_walk_goes_from_slot_to_slot_and_over_what_a_fence_makes_void() -> None:
    made = begun()

    assert (made.fence, made.next_slot, made.epoch, made.end.next_lsn) == ((1, TOKEN), 5, 1, 2)
    made.add(slot(made, ROW))
    made.add(slot(made, ROW, ROW))
    assert (made.fence, made.next_slot, made.end.next_lsn) == (None, 7, 5)
    (run,) = made.runs
    assert ([number for number, _ in run.slots], tuple(run.fences)) == ([1, 5, 6], (1,))
    assert run.size == 256 + 256 + 3 * 256


def test_a_walk_over_an_empty_log_is_where_trim_says() -> None:
    end = ChainEnd(9, 77, 3, 0)
    made = Walk(Manifest(LOG_ID, 4, next=21, epoch=5, end=end), "etag", {partition_key(1, 0): 4})

    assert (made.next_slot, made.end, made.epoch, made.runs) == (21, end, 5, [])
    assert made.next_offsets == {partition_key(1, 0): 4}


def test_a_slot_that_opens_a_segment_seals_the_one_before_and_knows_its_offsets() -> None:
    made = begun()
    made.add(slot(made, ROW))

    made.add(slot(made, ROW, flags=0))

    assert [run.first_lsn for run in made.runs] == [1, 3]
    assert made.next_offsets[partition_key(1, 0)] == 1


def test_a_slot_without_frames_opens_a_segment_and_nothing_else_can_be_without() -> None:
    made = begun()

    made.add(slot(made, flags=0))
    assert (made.end.next_lsn, made.runs[-1].first_lsn, [run.size for run in made.runs]) == (2, 2, [512, 256])

    with pytest.raises(DamagedLog, match="does not continue the write"):
        made.add(slot(made))


def test_another_logs_slot_is_refused_by_name() -> None:
    made = begun()

    with pytest.raises(ForeignLog):
        made.add(slot(made, ROW, log_id=bytes(16)))


@pytest.mark.parametrize("other", [{"first_lsn": 3}, {"prev": 1}, {"epoch": 0}])
def test_a_slot_that_does_not_go_on_where_the_one_before_ended_is_damage(other: dict[str, int]) -> None:
    made = begun()

    with pytest.raises(DamagedLog, match="does not go on where"):
        made.add(slot(made, ROW, **other))


@pytest.mark.parametrize("first", [True, False])
def test_a_slot_that_goes_on_with_a_segment_that_is_not_there_is_damage(first: bool) -> None:
    made = walk() if first else begun()

    with pytest.raises(DamagedLog, match="a segment that is not there"):
        made.add(slot(made, ROW, previous_first_lsn=9))


def test_a_slot_of_another_number_is_refused() -> None:
    made = begun()

    with pytest.raises(CorruptData, match="not its own"):
        made.add(slot(made, ROW, slot=6))


@pytest.mark.parametrize("at", [256, 300, 384])
def test_a_slot_with_a_changed_frame_is_damage_and_is_not_taken_in(at: int) -> None:
    made = begun()
    data = bytearray(slot(made, ROW))
    data[at] ^= 1

    with pytest.raises(DamagedLog, match="a slot of the log is damaged"):
        made.add(bytes(data))
    assert (made.next_slot, made.end.next_lsn, made.runs[-1].slots[-1][0]) == (5, 2, 1)


def test_a_slot_whose_frames_do_not_follow_each_other_is_damage() -> None:
    made = begun()
    data = slot(made, ROW, ROW)

    with pytest.raises(DamagedLog, match="does not name the frame before"):
        made.add(data[:256] + data[512:])


def test_a_slot_with_a_part_of_a_write_is_damage() -> None:
    made = begun()
    end = made.end
    header = read_slot(5, slot(made, ROW)).header
    sealed = seal_writes([((ROW, ROW), (0, 1))], end, salt_crc(SALT), durable_lsn=0, epoch=1, append_time_us=0)
    data = pack_slot(header, [b"".join(sealed.buffers)[:256]])

    with pytest.raises(DamagedLog, match="does not continue the write"):
        made.add(data)


def test_a_fence_without_an_epoch_is_damage() -> None:
    made = begun()

    with pytest.raises(DamagedLog, match="a fence without an epoch"):
        made.add(slot(made, flags=FENCE))
    assert token_of(read_slot(1, slot(walk(), EPOCH, flags=FENCE))) == TOKEN
