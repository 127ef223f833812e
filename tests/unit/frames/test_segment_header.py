"""The first frame of a segment: what it says, what it refuses, and how it hands on the chain."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.errors import UnknownFormat
from headwater.frames.frame import (
    NO_SALT_CRC,
    Flag,
    Header,
    Kind,
    NoFrame,
    body_crc,
    decode_header,
    pack_header,
    reseal_header,
)
from headwater.frames.segment_header import (
    FORMAT,
    INCOMPATIBLE_FEATURES_KNOWN,
    SEGMENT_FRAME_BYTES,
    WRITER_VERSION,
    SegmentHeader,
    decode_segment_frame,
    pack_segment_frame,
)
from tests.formats.segments import lengthen_header

SEGMENT = SegmentHeader(
    log_id=bytes(range(16)),
    salt=b"8 bytes!",
    first_lsn=101,
    prev=0x1122334455667788,
    epoch=3,
    created_us=1_767_225_600_000_000,
    previous_first_lsn=51,
    slot=4,
    shard=5,
    compatible_features=6,
    flags=7,
)


def header_of(frame: bytes) -> Header:
    header = decode_header(memoryview(frame), 0, NO_SALT_CRC)
    assert isinstance(header, Header)
    return header


def decoded(frame: bytes) -> tuple[SegmentHeader, int]:
    found = decode_segment_frame(memoryview(frame))
    assert not isinstance(found, NoFrame), found
    return found


def with_body(frame: bytes, body: bytes, **fields: Any) -> bytes:
    """The frame with another body, and checksums that fit."""
    header = header_of(frame)._replace(body_crc=body_crc(body), body_size=len(body), **fields)
    return pack_header(reseal_header(header, NO_SALT_CRC)) + body


def test_every_field_stands_at_the_byte_that_the_table_gives_it() -> None:
    segment = replace(SEGMENT, generation=8, last_lsn=900, old_chain=0xA1B2C3D4E5F60718)

    body = pack_segment_frame(segment)[128:]

    version = WRITER_VERSION.encode().ljust(24, b"\0")
    places = {0: segment.log_id, 16: segment.salt, 88: version, 112: bytes(8), 120: bytes.fromhex("1807f6e5d4c3b2a1")}
    assert all(body[at : at + len(value)] == value for at, value in places.items())
    assert struct.unpack_from("<QQQQq", body, 24) == (4, 51, 0, 6, 1_767_225_600_000_000)
    assert struct.unpack_from("<IIHHIQ", body, 64) == (5, 8, 1, 7, 128, 900)
    assert len(body) == 128


def test_the_frame_around_it_holds_the_first_lsn_and_the_chain_of_the_segment_before() -> None:
    frame = pack_segment_frame(SEGMENT)

    header = header_of(frame)

    assert (header.kind, header.codec, header.flags) == (Kind.SEGMENT, 0, 0)
    assert (header.lsn, header.prev, header.epoch) == (101, 0x1122334455667788, 3)
    assert (header.write_index, header.write_count, header.durable_lsn) == (0, 1, 0)
    assert (header.append_time_us, header.body_size, header.padding_size) == (SEGMENT.created_us, 128, 0)
    assert len(frame) == SEGMENT_FRAME_BYTES == 256


u32, u64 = st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1)


@given(
    segment=st.builds(
        SegmentHeader,
        log_id=st.binary(min_size=16, max_size=16),
        salt=st.binary(min_size=8, max_size=8),
        first_lsn=st.integers(1, 2**64 - 1),
        prev=u64,
        epoch=u32,
        created_us=st.integers(-(2**63), 2**63 - 1),
        previous_first_lsn=u64,
        slot=u64,
        shard=u32,
        generation=u32,
        last_lsn=u64,
        old_chain=u64,
        incompatible_features=st.just(0),
        compatible_features=u64,
        format=st.just(FORMAT),
        flags=st.integers(0, 2**16 - 1),
        writer_version=st.text("abc 0.1-é", max_size=11),
    ),
    after=st.binary(max_size=200),
)
def test_a_segment_frame_says_what_was_packed_whatever_follows_it(segment: SegmentHeader, after: bytes) -> None:
    frame = pack_segment_frame(segment)

    found, _ = decoded(frame + after)

    assert found == segment


def test_the_chain_value_of_a_segment_as_first_written_is_its_checksums() -> None:
    frame = pack_segment_frame(SEGMENT)

    _, chain = decoded(frame)

    assert chain == header_of(frame).header_crc << 32 | header_of(frame).body_crc


def test_a_rewritten_segment_hands_on_the_chain_value_of_the_one_it_replaces() -> None:
    _, chain = decoded(pack_segment_frame(SEGMENT))
    rewritten = replace(SEGMENT, generation=1, last_lsn=200, old_chain=chain, created_us=SEGMENT.created_us + 1)

    frame = pack_segment_frame(rewritten)

    assert header_of(frame).flags == Flag.REWRITTEN
    assert decoded(frame) == (rewritten, chain)


def test_a_long_writer_version_is_cut_and_one_that_is_not_text_is_shown_as_well_as_can_be() -> None:
    long = pack_segment_frame(replace(SEGMENT, writer_version="headwater 1.2.3-of-somebody-else"))
    odd = pack_segment_frame(SEGMENT)
    odd = with_body(odd, odd[128 : 128 + 88] + b"\xff\xfe".ljust(24, b"\0") + odd[240:])

    assert decoded(long)[0].writer_version == "headwater 1.2.3-of-somebody-else"[:24]
    assert decoded(odd)[0].writer_version == "\ufffd\ufffd"


# Refused -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bit", range(64))
def test_an_incompatible_feature_that_is_not_known_is_refused_naming_both_versions(bit: int) -> None:
    frame = pack_segment_frame(replace(SEGMENT, incompatible_features=1 << bit, writer_version="headwater 9.9"))

    with pytest.raises(UnknownFormat) as refusal:
        decode_segment_frame(memoryview(frame))

    assert "headwater 9.9" in str(refusal.value)
    assert WRITER_VERSION in str(refusal.value)
    assert refusal.value.facts == {"format": FORMAT, "unknown_features": hex(1 << bit)}
    assert INCOMPATIBLE_FEATURES_KNOWN == 0


@pytest.mark.parametrize("number", [0, 2, 65_535])
def test_another_format_is_refused_naming_both_versions(number: int) -> None:
    frame = pack_segment_frame(replace(SEGMENT, format=number, writer_version="headwater 9.9"))

    with pytest.raises(UnknownFormat, match=r"headwater 9\.9") as refusal:
        decode_segment_frame(memoryview(frame))

    assert refusal.value.facts == {"format": number, "unknown_features": "0x0"}


def test_an_unknown_format_is_said_before_an_alignment_that_it_may_have_changed() -> None:
    frame = pack_segment_frame(replace(SEGMENT, format=2))
    odd = with_body(frame, frame[128 : 128 + 76] + struct.pack("<I", 64) + frame[208:])

    with pytest.raises(UnknownFormat):
        decode_segment_frame(memoryview(odd))


@pytest.mark.parametrize("bit", range(64))
def test_a_compatible_feature_that_is_not_known_is_passed_over(bit: int) -> None:
    frame = pack_segment_frame(replace(SEGMENT, compatible_features=1 << bit))

    assert decoded(frame)[0].compatible_features == 1 << bit


@pytest.mark.parametrize("alignment", [0, 64, 127, 256])
def test_an_alignment_that_is_not_128_is_another_format(alignment: int) -> None:
    frame = pack_segment_frame(SEGMENT)
    odd = with_body(frame, frame[128 : 128 + 76] + struct.pack("<I", alignment) + frame[208:])

    with pytest.raises(UnknownFormat, match="alignment"):
        decode_segment_frame(memoryview(odd))


def test_rot_in_the_features_is_reported_as_rot_and_not_as_another_version() -> None:
    frame = bytearray(pack_segment_frame(SEGMENT))
    frame[128 + 40] ^= 1

    assert decode_segment_frame(memoryview(frame)) is NoFrame.BODY_CRC


# No segment frame ----------------------------------------------------------------------------------------------------


def test_an_empty_or_zeroed_file_has_nothing_in_it() -> None:
    assert decode_segment_frame(memoryview(b"")) is NoFrame.END
    assert decode_segment_frame(memoryview(bytes(4096))) is NoFrame.END


@pytest.mark.parametrize("size", [1, 127, 128, 200, 255])
def test_a_file_that_ends_inside_the_segment_frame_is_short(size: int) -> None:
    frame = pack_segment_frame(SEGMENT)

    assert decode_segment_frame(memoryview(frame[:size])) is NoFrame.SHORT


def test_a_changed_byte_is_reported_by_the_part_that_it_is_in() -> None:
    reports = {}

    for at in (0, 4, 60, 128, 144, 255):
        frame = bytearray(pack_segment_frame(SEGMENT))
        frame[at] ^= 1
        reports[at] = decode_segment_frame(memoryview(frame))

    header, body = NoFrame.HEADER_CRC, NoFrame.BODY_CRC
    assert reports == {0: NoFrame.MAGIC, 4: header, 60: header, 128: body, 144: body, 255: body}


@pytest.mark.parametrize("kind", [Kind.DATA, Kind.EPOCH, 200])
def test_a_frame_of_another_kind_does_not_begin_a_segment(kind: int) -> None:
    frame = pack_segment_frame(SEGMENT)
    other = with_body(frame, frame[128:], kind=int(kind))

    assert decode_segment_frame(memoryview(other)) is NoFrame.RULE


def test_a_segment_frame_with_a_body_of_another_size_is_none() -> None:
    frame = pack_segment_frame(SEGMENT)

    assert decode_segment_frame(memoryview(with_body(frame, bytes(256)))) is NoFrame.RULE
    assert decode_segment_frame(memoryview(with_body(frame, b""))) is NoFrame.RULE


def test_a_segment_frame_has_256_bytes_in_every_version_so_a_longer_header_is_none() -> None:
    frame = pack_segment_frame(SEGMENT)

    longer = lengthen_header(frame[:128], NO_SALT_CRC, bytes(128)) + frame[128:]

    assert header_of(longer).header_units == 2
    assert decode_segment_frame(memoryview(longer)) is NoFrame.RULE
