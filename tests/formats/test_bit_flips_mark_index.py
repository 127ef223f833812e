"""No changed bit of a mark or an index makes a log answer wrongly.

MARK     With any bit of its file changed the mark is what it was, or the older one of the other slot, which is true as
         well; a log whose mark has a changed bit is opened with all its rows.
INDEX    With any bit of its file changed an index is refused whole, its partitions too if the bit is theirs; a log
         with such an index answers every question as before, because the index is rebuilt.

Exhaustive: every bit of a small file of each.  NOT HERE Segments: test_bit_flips.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headwater.log.file_device import FileDevice
from headwater.log.index import load_active, open_sealed, read_footer, read_next_offsets
from headwater.log.mark import SLOT_BYTES, SLOT_POSITIONS, Mark, read_mark
from headwater.storage.files import ShortRead
from tests.formats.make_v1 import DIRECTORY as GOLDEN
from tests.unit.log.device_world import MARK_PATH, World, commit, headers, index_path, rows

PARTS = 4
"""The slow tests are cut into parts, so that they can run beside each other."""


class BytesFile:
    """A file to be read, as plain as can be: there are very many of them here."""

    name = "bytes"

    def __init__(self, data: bytes | bytearray) -> None:
        self._data = memoryview(data)

    def size(self) -> int:
        return len(self._data)

    def read_into(self, position: int, buffer: memoryview) -> int:
        part = self._data[position : position + len(buffer)]
        buffer[: len(part)] = part
        return len(part)

    def read_at(self, position: int, size: int) -> bytes:
        data = bytes(self._data[position : position + size])
        if len(data) < size:
            raise ShortRead(self.name)
        return data

    def close(self) -> None:
        """Nothing to let go of."""


def each_flip(data: bytes) -> Any:
    """The same bytearray once for every bit, with that bit turned over."""
    changed = bytearray(data)
    for bit in range(8 * len(data)):
        changed[bit // 8] ^= 1 << bit % 8
        yield bit, changed
        changed[bit // 8] ^= 1 << bit % 8


# The mark -------------------------------------------------------------------------------------------------------------


def marks_in(data: bytes | bytearray) -> Mark | None:
    file: Any = BytesFile(data)
    return read_mark(file)


def test_with_any_bit_of_its_file_changed_the_mark_is_one_of_the_two_that_were_written() -> None:
    data = (GOLDEN / "clean-close.mark").read_bytes()
    newest, older = marks_in(data), marks_in(bytes(64) + data[64:])
    assert newest is not None and older is not None and newest.counter == older.counter + 1

    answers = {"newest": 0, "older": 0}
    for bit, changed in each_flip(data):
        mark = marks_in(changed)
        in_newest_slot = bit < 8 * SLOT_BYTES
        assert mark == (older if in_newest_slot else newest), bit
        answers["older" if in_newest_slot else "newest"] += 1

    assert answers == {"newest": 8 * (len(data) - SLOT_BYTES), "older": 8 * SLOT_BYTES}


def test_with_any_bit_changed_in_both_slots_there_is_no_mark() -> None:
    data = (GOLDEN / "clean-close.mark").read_bytes()

    for bit in range(8 * SLOT_BYTES):
        changed = bytearray(data)
        for slot in SLOT_POSITIONS:
            changed[slot + bit // 8] ^= 1 << bit % 8
        assert marks_in(changed) is None, bit


def killed_log() -> World:
    """Two segments, LSNs 1 to 3 and 4 to 6, whose owner was killed after its last commit."""
    world = World()
    device = world.owner()
    commit(device, [rows(2)], [rows(3, topic=2), rows(1, partition=4)])
    device.roll()
    commit(device, [rows(1)])
    commit(device, [rows(2, topic=2), rows(2)])
    return world.restarted()


@pytest.mark.parametrize("closed", [False, True], ids=["killed", "closed"])
def test_a_log_whose_mark_has_a_changed_bit_is_opened_with_all_its_rows(closed: bool) -> None:
    world = killed_log()
    if closed:
        world.owner().close()
    expected = answers_of(world.restarted().owner())

    for slot in SLOT_POSITIONS:
        for bit in range(8 * slot, 8 * (slot + SLOT_BYTES)):
            after = world.restarted()
            after.files.flip_bit(MARK_PATH, bit)
            reader_lsns = [header.lsn for header in headers(after.reader())]
            owner = after.owner()
            assert answers_of(owner) == expected, bit
            assert reader_lsns == list(range(1, len(reader_lsns) + 1))
            assert owner.report.bytes_cut == 0


# The index ------------------------------------------------------------------------------------------------------------


def answers_of(device: FileDevice) -> dict[str, object]:
    """Everything that a log can be asked."""
    segments = device.segments()
    partitions = [(1, 0), (1, 4), (2, 0), (3, 0)]
    times = [header.append_time_us for header in headers(device)]
    return {
        "frames": headers(device),
        "segments": segments,
        "topics": [device.topics_in(segment) for segment in segments],
        "offsets": {key: [device.find(*key, offset) for offset in range(8)] for key in partitions},
        "partitions": {key: [frame.lsn for frame in device.frames_of(*key, 0)] for key in partitions},
        "times": [device.find_time(time_us + more) for time_us in times for more in (0, 1)],
    }


@pytest.mark.parametrize("name", ["smallest.idx", "rewritten.idx"])
def test_an_index_with_any_bit_changed_is_refused_whole(name: str) -> None:
    data = (GOLDEN / name).read_bytes()
    whole: Any = BytesFile(data)
    footer = read_footer(whole)
    assert footer is not None
    partitions = range(footer.partitions_position, footer.partitions_position + 24 * footer.partitions)

    refused = {"by its footer": 0, "by its sections": 0}
    for bit, changed in each_flip(data):
        file: Any = BytesFile(changed)
        found = read_footer(file)
        if bit // 8 >= footer.sections_bytes:
            assert found is None, bit
            refused["by its footer"] += 1
            continue
        assert found == footer, bit
        assert open_sealed(file, footer, chunk_bytes=1 << 16) is None, bit
        assert load_active(file, footer) is None, bit
        assert (read_next_offsets(file, footer) is None) == (bit // 8 in partitions), bit
        refused["by its sections"] += 1

    assert refused == {"by its footer": 8 * 512, "by its sections": 8 * footer.sections_bytes}


def sealed_log() -> World:
    return killed_log()


def closed_log() -> World:
    world = killed_log()
    world.owner().close()
    return world


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize(
    ("make", "first_lsn"), [(sealed_log, 1), (closed_log, 4)], ids=["of a sealed segment", "of a clean close"]
)
def test_a_log_whose_index_has_a_changed_bit_answers_every_question_as_before(
    make: Callable[[], World], first_lsn: int, part: int
) -> None:
    world = make()
    name = index_path(first_lsn)
    bits = 8 * len(world.files.contents(name))
    expected, offsets = answers_of(world.reader()), dict(world.restarted().owner().next_offsets())

    for bit in range(part, bits, PARTS):
        after = world.restarted()
        after.files.flip_bit(name, bit)
        assert answers_of(after.reader()) == expected, bit
        if bit % 16 == part:
            owner = after.owner()
            assert answers_of(owner) == expected | {"segments": owner.segments()}, bit
            assert owner.next_offsets() == offsets, bit
