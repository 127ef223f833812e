"""The bodies that the log itself writes, byte by byte."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.frames.bodies import GAP_BODY_BYTES, Gap, GapReason, pack_epoch, pack_gap, unpack_epoch, unpack_gap
from headwater.frames.frame import CHAIN_VALUE_BYTES, pack_chain_value

TOKEN = bytes(range(16))


def test_an_epoch_body_is_its_number_zeroes_and_the_owner_s_token() -> None:
    body = pack_epoch(0x01020304, TOKEN)

    assert body == bytes.fromhex("04030201" + "00000000") + TOKEN
    assert len(body) == 24


@given(epoch=st.integers(0, 2**32 - 1), token=st.binary(min_size=16, max_size=16))
def test_an_epoch_body_says_what_was_packed(epoch: int, token: bytes) -> None:
    body = pack_epoch(epoch, token)

    assert unpack_epoch(body) == (epoch, token)
    assert unpack_epoch(memoryview(body)) == (epoch, token)


@pytest.mark.parametrize("size", [0, 23, 25])
def test_a_body_of_another_size_is_no_epoch(size: int) -> None:
    assert unpack_epoch(bytes(size)) is None


def test_a_gap_body_has_its_fields_where_the_table_says_and_ends_in_its_chain_value() -> None:
    gap = Gap(first_lsn=0x11, last_lsn=0x22, frames=0x33, reason=GapReason.DAMAGED, chain=0xA1B2C3D4E5F60718)

    body = pack_gap(gap)

    assert body == struct.pack("<QQQIIQ", 0x11, 0x22, 0x33, 3, 0, 0xA1B2C3D4E5F60718)
    assert body[-CHAIN_VALUE_BYTES:] == pack_chain_value(gap.chain)
    assert len(body) == GAP_BODY_BYTES == 40


numbers = st.integers(0, 2**64 - 1)


@given(first=numbers, last=numbers, frames=numbers, reason=st.integers(0, 2**32 - 1), chain=numbers)
def test_a_gap_body_says_what_was_packed(first: int, last: int, frames: int, reason: int, chain: int) -> None:
    gap = Gap(first, last, frames, reason, chain)

    body = pack_gap(gap)

    assert unpack_gap(body) == gap
    assert unpack_gap(memoryview(body)) == gap


@pytest.mark.parametrize("size", [0, 8, 39, 41, 80])
def test_a_body_of_another_size_is_no_gap(size: int) -> None:
    assert unpack_gap(bytes(size)) is None


def test_the_reasons_of_a_gap_have_the_numbers_that_are_written_on_disks() -> None:
    reasons = {reason.name: int(reason) for reason in GapReason}

    assert reasons == {"DRAINED": 1, "COMPACTED": 2, "DAMAGED": 3, "ERASED": 4}
