"""The mark: two slots in turn, the newer valid one counts, and at worst it is old (G10)."""

from __future__ import annotations

from random import Random

import pytest

from headwater.errors import Closed
from headwater.log.mark import CLEAN, SLOT_BYTES, SLOT_POSITIONS, Mark, MarkWriter, pack_slot, read_mark, unpack_slot
from headwater.storage.simulated import Choice, SimulatedFiles

LOG_ID = bytes(range(16))
FIRST = Mark(counter=4, log_id=LOG_ID, durable_lsn=10, segment=7, position=1024, epoch=3)


def files_with(*slots: tuple[int, bytes]) -> SimulatedFiles:
    data = bytearray(SLOT_POSITIONS[1] + SLOT_BYTES)
    for position, slot in slots:
        data[position : position + len(slot)] = slot
    files = SimulatedFiles()
    files.put("mark", bytes(data))
    return files


def chance() -> Random:
    return Random(0)


@pytest.mark.parametrize("clean", [False, True])
def test_a_slot_is_read_back_as_it_was_written(clean: bool) -> None:
    mark = FIRST._replace(clean=clean)

    slot = pack_slot(mark)

    assert len(slot) == SLOT_BYTES
    assert unpack_slot(slot) == mark
    assert slot[60:64] == (CLEAN if clean else 0).to_bytes(4, "little")


def test_no_slot_with_a_flipped_bit_is_valid() -> None:
    slot = pack_slot(FIRST)

    for bit in range(SLOT_BYTES * 8):
        flipped = bytearray(slot)
        flipped[bit // 8] ^= 1 << bit % 8
        assert unpack_slot(bytes(flipped)) is None


@pytest.mark.parametrize("slot", [b"", bytes(64), b"\xff" * 64, pack_slot(FIRST)[:63], pack_slot(FIRST) + b"\0"])
def test_zeroes_ones_and_other_lengths_are_no_slot(slot: bytes) -> None:
    mark = unpack_slot(slot)

    assert mark is None


def test_of_two_valid_slots_the_one_with_the_greater_counter_is_the_mark() -> None:
    older, newer = pack_slot(FIRST), pack_slot(FIRST._replace(counter=5, durable_lsn=11))

    one_way = files_with((0, older), (4096, newer))
    other_way = files_with((0, newer), (4096, older))

    assert read_mark(one_way.open("mark")) == read_mark(other_way.open("mark")) == unpack_slot(newer)


@pytest.mark.parametrize("position", SLOT_POSITIONS)
def test_where_one_slot_is_not_valid_the_other_is_the_mark(position: int) -> None:
    files = files_with((position, pack_slot(FIRST)))

    mark = read_mark(files.open("mark"))

    assert mark == FIRST


def test_without_a_valid_slot_there_is_no_mark() -> None:
    empty, short = SimulatedFiles(), files_with()
    empty.put("mark", b"")

    assert read_mark(empty.open("mark")) is None
    assert read_mark(short.open("mark")) is None


def test_a_writer_writes_the_slots_in_turn_and_counts() -> None:
    files = files_with()
    writer = MarkWriter(files.open("mark", writable=True), FIRST)

    writer.write(durable_lsn=11, segment=7, position=2048)
    first = files.contents("mark")
    writer.write(durable_lsn=12, segment=12, position=256, clean=True)
    second = files.contents("mark")

    assert unpack_slot(first[4096:4160]) == FIRST._replace(counter=5, durable_lsn=11, position=2048)
    assert first[:4096] == bytes(4096)
    assert second[4096:] == first[4096:]
    assert unpack_slot(second[:64]) == Mark(6, LOG_ID, 12, 12, 256, 3, clean=True)
    assert read_mark(files.open("mark")) == writer.last


def test_a_torn_write_of_one_slot_leaves_the_mark_before_it(seed: int) -> None:
    files = SimulatedFiles(seed)
    files.create("mark")
    files.sync_directory("")
    writer = MarkWriter(files.open("mark", writable=True), FIRST)
    writer.write(durable_lsn=11, segment=7, position=2048)
    writer.sync()

    files.fail(1, 5, verbs=["write_at"], short=True)
    with pytest.raises(OSError, match="mark"):
        writer.write(durable_lsn=12, segment=7, position=4096)

    mark = read_mark(files.open("mark"))
    assert mark is not None
    assert mark.durable_lsn in (11, 12)
    assert writer.last.durable_lsn == 11


def test_a_mark_is_dirty_until_it_is_synced() -> None:
    files = files_with()
    writer = MarkWriter(files.open("mark", writable=True), FIRST)
    dirty = writer.dirty

    writer.write(durable_lsn=11, segment=7, position=2048)
    before = read_mark(files.crash(chance(), choice=Choice.NOTHING).open("mark"))
    writer.sync()
    after = read_mark(files.crash(chance(), choice=Choice.NOTHING).open("mark"))

    assert (dirty, writer.dirty) == (True, False)
    assert before is None
    assert after == writer.last


def test_a_new_epoch_is_durable_at_the_same_place_when_it_has_begun() -> None:
    files = files_with()
    writer = MarkWriter(files.open("mark", writable=True), FIRST)
    writer.write(durable_lsn=11, segment=7, position=2048)

    writer.begin_epoch(9)
    writer.write(durable_lsn=12, segment=7, position=4096)

    kept = read_mark(files.crash(chance(), choice=Choice.NOTHING).open("mark"))
    assert kept == Mark(6, LOG_ID, 11, 7, 2048, 9)
    assert writer.last == Mark(7, LOG_ID, 12, 7, 4096, 9)


def test_a_mark_that_was_read_is_written_again_into_its_own_slot() -> None:
    files = files_with((4096, pack_slot(FIRST._replace(counter=7))))
    writer = MarkWriter(files.open("mark", writable=True), FIRST)

    for counter in (7, 8):
        writer.write_again(FIRST._replace(counter=counter))

    assert unpack_slot(files.contents("mark")[:64]) == FIRST._replace(counter=8)
    assert unpack_slot(files.contents("mark")[4096:]) == FIRST._replace(counter=7)
    assert writer.last == FIRST


def test_a_closed_mark_is_written_no_more() -> None:
    files = files_with()
    writer = MarkWriter(files.open("mark", writable=True), FIRST)

    writer.close()

    with pytest.raises(Closed):
        writer.write(durable_lsn=11, segment=7, position=2048)
