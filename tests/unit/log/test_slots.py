"""A slot's bytes: what is read is what was packed, and nothing else is read."""

from __future__ import annotations

import pytest

from headwater.errors import CorruptData
from headwater.frames.segment_header import SegmentHeader
from headwater.log.slots import (
    CONTINUES,
    FENCE,
    follows,
    is_slot_name,
    pack_slot,
    read_slot,
    says_fence,
    slot_name,
)

HEADER = SegmentHeader(bytes(range(16)), b"saltsalt", first_lsn=7, prev=5, epoch=3, created_us=11, slot=9)
BODY = b"f" * 128


def packed(flags: int = 0, slot: int = 9) -> bytes:
    header = SegmentHeader(**{**HEADER.__dict__, "flags": flags, "slot": slot})
    return pack_slot(header, [BODY, BODY])


def test_a_slots_name_sorts_as_its_number() -> None:
    names = [slot_name(number) for number in (1, 2, 10, 1 << 62)]

    assert names == sorted(names)
    assert all(is_slot_name(name) for name in names)
    assert not any(is_slot_name(name) for name in ("trim", "lease", names[0][1:], f"{names[0]}.0.seg", f"{names[0]}0"))


@pytest.mark.parametrize(
    ("flags", "opens", "is_fence"),
    [(0, True, False), (CONTINUES, False, False), (FENCE, True, True), (CONTINUES | FENCE, False, True)],
)
def test_a_slot_says_whether_it_opens_a_segment_and_whether_it_is_a_fence(
    flags: int, opens: bool, is_fence: bool
) -> None:
    data = packed(flags)

    slot = read_slot(9, data)

    assert (slot.opens, slot.is_fence, says_fence(data)) == (opens, is_fence, is_fence)
    assert bytes(slot.frames) == BODY * 2
    assert slot.segment_bytes == 256 + (256 if opens else 0)
    assert (slot.header.first_lsn, slot.header.prev, slot.header.epoch) == (7, 5, 3)
    assert slot.opening.data == data[:256]


def test_after_a_fence_a_windows_slots_are_passed_over() -> None:
    assert follows(read_slot(9, packed()), 8) == 10
    assert follows(read_slot(9, packed(FENCE)), 8) == 17
    assert follows(read_slot(9, packed(FENCE)), 1) == 10


def test_a_slot_under_another_name_is_refused() -> None:
    with pytest.raises(CorruptData, match="name is not its own"):
        read_slot(10, packed())


@pytest.mark.parametrize("at", [0, 4, 127, 128, 202, 255])
def test_a_slot_whose_envelope_was_changed_is_refused(at: int) -> None:
    data = bytearray(packed())
    data[at] ^= 1

    with pytest.raises(CorruptData, match="cannot be read"):
        read_slot(9, bytes(data))


def test_what_is_too_short_for_a_slot_says_nothing() -> None:
    assert not says_fence(packed(FENCE)[:255])
    with pytest.raises(CorruptData, match="cannot be read"):
        read_slot(9, packed()[:255])
