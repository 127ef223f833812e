"""A segment of a plan, read by position: from its file, from its slots, and from the one object they were merged into.

The bytes of a segment are drawn by a seed and cut into slots as slots.py says: the first whole, the others behind an
envelope that is no part of the segment.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headwater.errors import Closed, CorruptData
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.log import opened_segment
from headwater.log.opened_segment import open_segment, open_slots, pack_slots, unpack_slots
from headwater.log.slots import slot_name
from headwater.storage.files import ShortRead
from headwater.storage.objects import StoreUnsure
from headwater.storage.simulated import SimulatedFiles
from headwater.storage.simulated_store import Fate, SimulatedStore, StoreFaults

NAME = "00000000000000000001.0.seg"
Slots = tuple[tuple[int, int], ...]


class OneBucket:
    """As much of a bucket's files as a plan needs."""

    def __init__(self, objects: SimulatedStore) -> None:
        self.objects = objects


def in_slots(sizes: list[int], *, seed: int = 1) -> tuple[SimulatedStore, bytes, Slots]:
    """A store with a segment in slots that hold so many of its bytes each."""
    store = SimulatedStore()
    content = Random(seed).randbytes(sum(sizes))
    slots = []
    at = 0
    for number, size in enumerate(sizes):
        envelope = b"e" * SEGMENT_FRAME_BYTES if number else b""
        slot = 7 + 3 * number
        store.put(f"log/{slot_name(slot)}", envelope + content[at : at + size])
        slots.append((slot, len(envelope) + size))
        at += size
    return store, content, tuple(slots)


def asked_for(store: SimulatedStore) -> list[str]:
    found = [name for verb, name in store.calls if verb == "get_range"]
    store.calls.clear()
    return found


def test_the_slots_of_a_plan_travel_as_bytes() -> None:
    slots = ((1, 512), (2, 4096), (1 << 40, (1 << 32) - 1))

    assert unpack_slots(pack_slots(slots)) == slots
    assert pack_slots(()) == b""


def test_a_segment_without_slots_is_a_file() -> None:
    files = SimulatedFiles()
    files.make_directory("log")
    files.create(f"log/{NAME}").append([b"segment"])

    assert open_segment(files, "log", NAME, b"").read_at(0, 7) == b"segment"
    with pytest.raises(FileNotFoundError):
        open_segment(files, "log", "00000000000000000009.0.seg", b"")


@pytest.mark.parametrize("readers", [1, 4])
@pytest.mark.parametrize("seed", range(4))
def test_any_bytes_of_a_segment_are_the_same_in_slots_and_in_one_object(
    seed: int, readers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = Random(seed)
    monkeypatch.setattr(opened_segment, "READ_BYTES_MIN", 700)
    sizes = [SEGMENT_FRAME_BYTES + 128 * chance.randint(1, 9), *(128 * chance.randint(1, 20) for _ in range(9))]
    store, content, slots = in_slots(sizes, seed=seed)
    file = open_slots(store, "log", NAME, slots, readers=readers)
    assert (file.name, file.size()) == (f"log/{NAME}", len(content))

    for step in range(120):
        if step == 60:
            store.put(f"log/{NAME}", content)
            for slot, _ in slots:
                store.delete(f"log/{slot_name(slot)}")
        start = chance.randrange(len(content))
        size = chance.randint(0, 3000)
        buffer = memoryview(bytearray(size))
        got = file.read_into(start, buffer)
        assert bytes(buffer[:got]) == content[start : start + size]
        size = min(size, len(content) - start)
        assert file.read_at(start, size) == content[start : start + size]
    file.close()


def test_a_read_beyond_the_end_is_short() -> None:
    store, _, slots = in_slots([512, 256])
    file = open_slots(store, "log", NAME, slots)

    with pytest.raises(ShortRead):
        file.read_at(700, 100)
    assert file.read_into(768, memoryview(bytearray(10))) == 0
    assert file.read_at(768, 0) == b""


def test_a_scan_asks_for_each_small_slot_once() -> None:
    store, content, slots = in_slots([512, 256, 256, 256])
    file = open_slots(store, "log", NAME, slots)
    names = [f"log/{slot_name(slot)}" for slot, _ in slots]

    assert file.read_at(0, 640) == content[:640]
    assert asked_for(store) == names[:2]

    # The frame that begins at 600 was cut: it is read again from its beginning.
    assert file.read_at(600, 600) == content[600:1200]
    assert asked_for(store) == names[2:]
    assert file.read_at(1100, 180) == content[1100:1280]
    assert asked_for(store) == []


def test_a_large_slot_is_read_in_parts_and_no_part_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_segment, "READ_BYTES_MIN", 1000)
    store, content, slots = in_slots([10_000])
    file = open_slots(store, "log", NAME, slots)

    assert file.read_at(2000, 128) == content[2000:2128]
    assert file.read_at(2128, 500) == content[2128:2628]
    assert (store.counters.bytes_got, len(asked_for(store))) == (1000, 1)

    assert file.read_at(2900, 3100) == content[2900:6000]
    assert (store.counters.bytes_got, len(asked_for(store))) == (4000, 1)


def test_whoever_reads_a_plan_opens_the_slots_that_it_names() -> None:
    store, content, slots = in_slots([512, 256])
    bucket: Any = OneBucket(store)

    file = open_segment(bucket, "log", NAME, pack_slots(slots))

    assert file.read_at(0, 768) == content
    file.close()
    file.close()
    for use in (file.size, lambda: file.read_at(0, 1)):
        with pytest.raises(Closed):
            use()


def test_a_segment_that_is_in_no_slot_and_in_no_object_is_gone() -> None:
    store, content, slots = in_slots([512, 256])
    file = open_slots(store, "log", NAME, slots)
    store.delete(f"log/{slot_name(slots[1][0])}")

    # What is there still can be read; what is gone is gone for good.
    assert file.read_at(0, 512) == content[:512]
    for _ in range(2):
        with pytest.raises(FileNotFoundError):
            file.read_at(500, 100)


def test_a_slot_that_is_shorter_than_it_was_is_damage() -> None:
    store, _, slots = in_slots([512, 256, 256])
    file = open_slots(store, "log", NAME, slots)
    store.put(f"log/{slot_name(slots[1][0])}", b"short")

    with pytest.raises(CorruptData, match="shorter"):
        file.read_at(0, 1024)


def test_a_store_that_does_not_answer_is_asked_again() -> None:
    store, content, slots = in_slots([512, 256])
    file = open_slots(store, "log", NAME, slots)
    store.next_fate(Fate.THROTTLED)
    store.next_fate(Fate.LOST)

    assert file.read_at(0, 768) == content
    assert store.counters.unsure == 2


def test_a_store_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened_segment, "PATIENCE_S", 0.05)
    store, _, slots = in_slots([512])
    file = open_slots(store, "log", NAME, slots)
    store.faults = StoreFaults(failed=1.0)

    with pytest.raises(StoreUnsure):
        file.read_at(0, 10)
