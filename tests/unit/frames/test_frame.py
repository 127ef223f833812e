"""The frame, rule by rule: what seals, what is valid, and which report is given for what is not."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headwater.frames.frame import (
    BODY_SIZE_BYTES_MAX,
    MAGIC,
    NO_SALT_CRC,
    SKIPPABLE_KIND_FIRST,
    UNIT_BYTES,
    WRITE_FRAMES_MAX,
    Codec,
    Flag,
    Header,
    Kind,
    NoFrame,
    body_crc,
    chain_value,
    check_body,
    decode_header,
    frame_size,
    pack_chain_value,
    pack_header,
    padding_size,
    payload,
    reseal_header,
    salt_crc,
    seal_header,
)
from tests.formats.segments import lengthen_header

SALT = b"8 bytes!"
SALTED = salt_crc(SALT)
OTHER_SALTED = salt_crc(b"another.")

# Where each field stands, and how: written here a second time, so that a change of the format does not go by.
BYTE_TABLE = {
    "magic": (0, "4s"),
    "header_crc": (4, "I"),
    "body_crc": (8, "I"),
    "header_units": (12, "B"),
    "kind": (13, "B"),
    "codec": (14, "B"),
    "flags": (15, "B"),
    "body_size": (16, "I"),
    "padding_size": (20, "H"),
    "reserved": (22, "H"),
    "lsn": (24, "Q"),
    "prev": (32, "Q"),
    "durable_lsn": (40, "Q"),
    "epoch": (48, "I"),
    "write_index": (52, "H"),
    "write_count": (54, "H"),
    "topic_number": (56, "I"),
    "partition": (60, "I"),
    "base_offset": (64, "Q"),
    "row_count": (72, "I"),
    "offset_count": (76, "I"),
    "schema_version": (80, "I"),
    "producer_epoch": (84, "I"),
    "producer_id": (88, "Q"),
    "sequence": (96, "Q"),
    "append_time_us": (104, "q"),
    "time_min_us": (112, "q"),
    "time_max_us": (120, "q"),
}
FIELDS: dict[str, Any] = {
    "body_crc": body_crc(b"a body"),
    "kind": int(Kind.DATA),
    "codec": int(Codec.NONE),
    "flags": 0,
    "body_size": 6,
    "lsn": 12,
    "prev": 0x0102030405060708,
    "durable_lsn": 11,
    "epoch": 3,
    "write_index": 1,
    "write_count": 2,
    "topic_number": 4,
    "partition": 5,
    "base_offset": 600,
    "row_count": 7,
    "offset_count": 7,
    "schema_version": 8,
    "producer_epoch": 9,
    "producer_id": 10,
    "sequence": 13,
    "append_time_us": 14,
    "time_min_us": -15,
    "time_max_us": 16,
}


def sealed(salted: int = SALTED, **changes: int) -> bytes:
    header, _ = seal_header(salted, **(FIELDS | changes))
    return header


def whole(body: bytes = b"a body", salted: int = SALTED, **changes: int) -> bytes:
    """A valid frame around a body."""
    given_fields = {"body_size": len(body), "body_crc": body_crc(body)} | changes
    return sealed(salted, **given_fields) + body + bytes(-len(body) % UNIT_BYTES)


def resealed(salted: int = SALTED, **fields: Any) -> bytes:
    """A header with these fields as they are, also those that seal_header would not write, and a fitting checksum."""
    header = Header._make(struct.unpack("<4sIIBBBBIHHQQQIHHIIQIIIIQQqqq", sealed()))
    return pack_header(reseal_header(header._replace(**fields), salted))


def decoded(data: bytes, at: int = 0, salted: int = SALTED) -> Header | NoFrame:
    return decode_header(memoryview(data), at, salted)


def decoded_header(data: bytes, at: int = 0, salted: int = SALTED) -> Header:
    header = decoded(data, at, salted)
    assert isinstance(header, Header), header
    return header


# Sealing -------------------------------------------------------------------------------------------------------------


def test_every_field_stands_at_the_byte_that_the_table_gives_it() -> None:
    written = {"magic": MAGIC, "header_units": 1, "padding_size": 122, "reserved": 0} | FIELDS

    data = sealed()

    read = {name: struct.unpack_from("<" + form, data, at)[0] for name, (at, form) in BYTE_TABLE.items()}
    assert read == written | {"header_crc": read["header_crc"]}
    assert tuple(BYTE_TABLE) == Header._fields
    assert len(data) == UNIT_BYTES == 128


def test_the_header_checksum_covers_the_salt_and_all_bytes_after_itself() -> None:
    data, header_crc = seal_header(SALTED, **FIELDS)

    wanted = crc32c(SALT + data[8:])

    assert header_crc == wanted
    assert data[4:8] == wanted.to_bytes(4, "little")


def test_the_checksum_is_the_castagnoli_one() -> None:
    assert body_crc(b"123456789") == 0xE3069283


def test_a_body_in_parts_has_the_checksum_of_the_whole() -> None:
    parts = (b"one", bytearray(b"two"), memoryview(b"three"))

    value = body_crc(*parts)

    assert value == body_crc(b"onetwothree")
    assert body_crc() == body_crc(b"") == 0


def test_a_salt_has_eight_bytes() -> None:
    assert salt_crc(bytes(8)) == NO_SALT_CRC
    with pytest.raises(AssertionError):
        salt_crc(bytes(7))


@pytest.mark.parametrize(("body", "padding"), [(0, 0), (1, 127), (127, 1), (128, 0), (129, 127), (256, 0)])
def test_padding_takes_a_frame_to_the_next_multiple_of_128(body: int, padding: int) -> None:
    assert padding_size(body) == padding
    assert frame_size(body) == 128 + body + padding
    assert decoded_header(sealed(body_size=body)).frame_size == frame_size(body)
    assert decoded_header(sealed(body_size=body)).padding_size == padding


u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
i64 = st.integers(-(2**63), 2**63 - 1)


@given(
    salt=st.binary(min_size=8, max_size=8),
    body=st.binary(max_size=300),
    kind=st.sampled_from([kind for kind in Kind if kind not in (Kind.SPARSE, Kind.GAP)]) | st.integers(128, 255),
    flags=st.sampled_from([0, 4, 8, 12]),
    codec=st.sampled_from([0, 1]),
    write=st.tuples(u16, u16).filter(lambda write: write[0] < write[1]),
    rows=u32,
    wide=st.fixed_dictionaries(
        {"lsn": st.integers(1, 2**64 - 1)}
        | dict.fromkeys(("prev", "durable_lsn", "base_offset", "producer_id", "sequence"), u64)
        | dict.fromkeys(("epoch", "topic_number", "partition", "schema_version", "producer_epoch"), u32)
        | dict.fromkeys(("append_time_us", "time_min_us", "time_max_us"), i64)
    ),
    lead=st.integers(0, 3),
)
def test_what_was_sealed_is_what_is_decoded(
    salt: bytes,
    body: bytes,
    kind: int,
    flags: int,
    codec: int,
    write: tuple[int, int],
    rows: int,
    wide: dict[str, int],
    lead: int,
) -> None:
    fields = {"kind": int(kind), "flags": flags, "codec": codec, "row_count": rows, "offset_count": rows} | wide
    fields |= {"write_index": write[0], "write_count": write[1]}
    at = lead * UNIT_BYTES
    salted = NO_SALT_CRC if kind == Kind.SEGMENT else salt_crc(salt)

    data = bytes(at) + whole(body, salted, **fields)

    header = decoded_header(data, at, salt_crc(salt))
    assert {name: getattr(header, name) for name in fields} == fields
    assert check_body(header, memoryview(data), at) is None
    assert at + header.frame_size == len(data)


def test_a_header_is_packed_as_it_is() -> None:
    data = sealed()

    header = decoded_header(data)

    assert pack_header(header) == data
    assert pack_header(header._replace(lsn=99))[4:8] == data[4:8]


def test_a_resealed_header_has_the_checksum_that_its_fields_need() -> None:
    header = decoded_header(sealed())._replace(lsn=99)

    again = reseal_header(header, OTHER_SALTED)

    assert decoded(pack_header(header)) is NoFrame.HEADER_CRC
    assert decoded_header(pack_header(again), salted=OTHER_SALTED).lsn == 99
    assert pack_header(reseal_header(decoded_header(sealed()), SALTED)) == sealed()


def test_a_header_of_more_units_is_neither_packed_nor_resealed_because_its_later_units_are_not_known() -> None:
    header = decoded_header(lengthen_header(sealed(), SALTED, bytes(128)))

    with pytest.raises(AssertionError):
        pack_header(header)
    with pytest.raises(AssertionError):
        reseal_header(header, SALTED)


# The place -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", [0, 1, 127, 128, 129, 1000])
def test_zeroes_or_nothing_are_the_end(left: int) -> None:
    data = sealed() + bytes(left)

    assert decoded(data, UNIT_BYTES) is NoFrame.END


@pytest.mark.parametrize("left", [1, 4, 8, 64, 127])
def test_a_file_that_ends_inside_a_header_is_short(left: int) -> None:
    data = sealed() + sealed()[:left]

    assert decoded(data, UNIT_BYTES) is NoFrame.SHORT


def test_less_than_a_header_is_short_also_where_its_first_bytes_are_zero() -> None:
    assert decoded(bytes(60) + b"\1") is NoFrame.SHORT


@pytest.mark.parametrize("data", [b"\xff" * 128, bytes(127) + b"\1", b"HWF\xc8" + bytes(124), bytes(4) + sealed()[4:]])
def test_bytes_without_the_magic_are_no_frame(data: bytes) -> None:
    assert decoded(data) is NoFrame.MAGIC


@pytest.mark.parametrize("size", [1, 127, 128, 129, 512, 4096])
@pytest.mark.parametrize("byte", [b"\0", b"\xff"])
def test_all_zeroes_and_all_ones_are_never_a_frame(byte: bytes, size: int) -> None:
    for salt in (bytes(8), b"\xff" * 8, SALT):
        assert isinstance(decoded(byte * size, salted=salt_crc(salt)), NoFrame)


@given(data=st.binary(max_size=400), at=st.integers(0, 400), start=st.sampled_from([b"", MAGIC]))
def test_any_bytes_give_a_report_and_never_an_exception(data: bytes, at: int, start: bytes) -> None:
    found = decoded(start + data, min(at, len(data)))

    assert isinstance(found, NoFrame)


# The checksum and the salt -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", range(4, UNIT_BYTES))
def test_a_header_with_another_byte_does_not_fit_its_checksum(at: int) -> None:
    data = bytearray(sealed() + bytes(256 * UNIT_BYTES))

    data[at] ^= 0xFF

    assert decoded(bytes(data)) is NoFrame.HEADER_CRC


def test_a_frame_of_another_salt_does_not_fit_its_checksum() -> None:
    assert decoded(sealed(OTHER_SALTED)) is NoFrame.HEADER_CRC
    assert decoded(sealed(NO_SALT_CRC)) is NoFrame.HEADER_CRC


def test_a_segment_frame_is_sealed_without_salt_and_read_whatever_the_salt() -> None:
    fields = {"kind": int(Kind.SEGMENT), "body_size": 128}

    assert decoded_header(sealed(NO_SALT_CRC, **fields), salted=SALTED).kind == Kind.SEGMENT
    assert decoded_header(sealed(NO_SALT_CRC, **fields), salted=OTHER_SALTED).kind == Kind.SEGMENT
    assert decoded(sealed(SALTED, **fields)) is NoFrame.HEADER_CRC


def test_a_header_of_no_units_is_no_header_even_with_a_checksum_of_nothing() -> None:
    data = sealed()[:12] + b"\0" + sealed()[13:]
    nothing = data[:4] + SALTED.to_bytes(4, "little") + data[8:]

    assert decoded(data) is NoFrame.HEADER_CRC
    assert decoded(nothing) is NoFrame.HEADER_CRC


@pytest.mark.parametrize("units", [2, 3, 255])
def test_a_longer_header_is_read_and_its_later_units_are_passed_over(units: int) -> None:
    extension = b"\x5a" * ((units - 1) * UNIT_BYTES)
    data = lengthen_header(sealed(), SALTED, extension) + b"a body" + bytes(122)

    header = decoded_header(data)

    assert (header.header_units, header.lsn) == (units, FIELDS["lsn"])
    assert header.frame_size == len(data)
    assert check_body(header, memoryview(data), 0) is None


def test_the_checksum_covers_the_later_units_of_a_longer_header() -> None:
    data = bytearray(lengthen_header(sealed(), SALTED, bytes(128)))

    data[255] ^= 1

    assert decoded(bytes(data)) is NoFrame.HEADER_CRC


def test_a_file_that_ends_inside_a_longer_header_is_short() -> None:
    data = lengthen_header(sealed(), SALTED, bytes(256))

    for size in (128, 255, 256, 383):
        assert decoded(data[:size]) is NoFrame.SHORT
    assert isinstance(decoded(data), Header)


# Rules ---------------------------------------------------------------------------------------------------------------


def kinds_with_their_reports() -> list[tuple[int, NoFrame | None]]:
    unknown = dict.fromkeys(range(13, 128), NoFrame.KIND)
    return [(kind, {0: NoFrame.RULE}.get(kind) or unknown.get(kind)) for kind in range(256)]


@pytest.mark.parametrize(("kind", "report"), kinds_with_their_reports())
def test_a_kind_is_known_or_refused_by_name_or_passed_over(kind: int, report: NoFrame | None) -> None:
    salted = NO_SALT_CRC if kind == Kind.SEGMENT else SALTED

    found = decoded(sealed(salted, kind=kind, flags=Flag.REWRITTEN, body_size=8))

    if report is None:
        assert isinstance(found, Header)
        assert found.kind == kind
    else:
        assert found is report


def test_the_kinds_have_the_numbers_that_are_written_on_disks() -> None:
    names = "SEGMENT EPOCH SCHEMA DATA SPARSE OFFSETS SEQUENCES PRODUCER METADATA GAP LEDGER SOURCE"

    assert [kind.name for kind in sorted(Kind)] == names.split()
    assert sorted(Kind) == list(range(1, 13))
    assert {flag.name: int(flag) for flag in Flag} == {"REWRITTEN": 1, "TRANSACTION": 4, "TOMBSTONES": 8}
    assert {codec.name: int(codec) for codec in Codec} == {"NONE": 0, "ZSTD": 1}
    assert (SKIPPABLE_KIND_FIRST, WRITE_FRAMES_MAX, BODY_SIZE_BYTES_MAX) == (128, 65_535, 64 * 1024 * 1024)


@pytest.mark.parametrize(
    "broken",
    [
        {"kind": 0},
        {"codec": 2},
        {"codec": 255},
        {"flags": 2},
        {"flags": 16},
        {"flags": 32},
        {"flags": 64},
        {"flags": 128},
        {"flags": 2 | Flag.TRANSACTION},
        {"body_size": BODY_SIZE_BYTES_MAX + 128, "padding_size": 0},
        {"body_size": 2**32 - 128, "padding_size": 0},
        {"padding_size": 121},
        {"padding_size": 122 + 128},
        {"body_size": 128, "padding_size": 128},
        {"reserved": 1},
        {"reserved": 2**15},
        {"lsn": 0},
        {"write_index": 2},
        {"write_index": 3},
        {"write_index": 0, "write_count": 0},
        {"row_count": 8},
        {"row_count": 6},
        {"kind": Kind.SPARSE, "flags": Flag.REWRITTEN, "body_size": 128, "padding_size": 0, "row_count": 8},
        {"kind": 200, "row_count": 6},
        {"flags": Flag.REWRITTEN, "body_size": 7, "padding_size": 121},
        {"flags": Flag.REWRITTEN, "body_size": 0, "padding_size": 0},
        {"kind": Kind.SPARSE},
        {"kind": Kind.SPARSE, "flags": Flag.TRANSACTION | Flag.TOMBSTONES},
        {"kind": Kind.GAP},
    ],
)
def test_a_whole_header_that_breaks_a_rule_is_said_to_break_a_rule(broken: dict[str, int]) -> None:
    data = resealed(**broken)

    assert decoded(data) is NoFrame.RULE


@pytest.mark.parametrize(
    "odd",
    [
        {"codec": 1},
        {"flags": Flag.TRANSACTION},
        {"flags": Flag.TOMBSTONES},
        {"flags": Flag.REWRITTEN | Flag.TRANSACTION | Flag.TOMBSTONES, "body_size": 8, "padding_size": 120},
        {"body_size": BODY_SIZE_BYTES_MAX, "padding_size": 0},
        {"body_size": 0, "padding_size": 0},
        {"lsn": 1},
        {"lsn": 2**64 - 1},
        {"write_index": 0, "write_count": 1},
        {"write_index": 65_534, "write_count": 65_535},
        {"row_count": 0, "offset_count": 0},
        {"kind": Kind.SPARSE, "flags": Flag.REWRITTEN, "body_size": 8, "padding_size": 120, "row_count": 0},
        {"kind": Kind.SPARSE, "flags": Flag.REWRITTEN, "body_size": 8, "padding_size": 120},
        {"kind": Kind.GAP, "flags": Flag.REWRITTEN, "body_size": 40, "padding_size": 88},
        {"time_min_us": 1, "time_max_us": 0},
    ],
)
def test_a_header_at_the_edge_of_a_rule_is_valid(odd: dict[str, int]) -> None:
    data = resealed(**odd)

    header = decoded_header(data)

    assert {name: getattr(header, name) for name in odd} == odd


def test_rot_never_shows_as_an_unknown_kind_or_a_broken_rule() -> None:
    unsealed = sealed()[:13] + b"\x4d" + sealed()[14:]
    broken = sealed()[:22] + b"\1" + sealed()[23:]

    assert decoded(unsealed) is NoFrame.HEADER_CRC
    assert decoded(broken) is NoFrame.HEADER_CRC


def test_an_unknown_kind_is_said_before_a_rule_that_its_version_may_have_changed() -> None:
    assert decoded(resealed(kind=77, flags=2, reserved=9, codec=5)) is NoFrame.KIND


# The body ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 6, 127, 128, 129, 5000])
def test_a_whole_body_has_nothing_wrong_wherever_the_frame_is(size: int) -> None:
    for at in (0, 128, 640):
        data = bytes(at) + whole(bytes(index % 251 for index in range(size)))

        assert check_body(decoded_header(data, at), memoryview(data), at) is None


def test_a_file_that_ends_inside_the_body_or_its_padding_is_short() -> None:
    data = whole(b"x" * 200)
    header = decoded_header(data)

    for size in (128, 129, 327, 328, 383):
        assert check_body(header, memoryview(data)[:size], 0) is NoFrame.SHORT
    assert check_body(header, memoryview(data), 0) is None


def test_a_changed_body_does_not_fit_its_checksum() -> None:
    for at in (128, 200, 327):
        data = bytearray(whole(b"x" * 200))
        data[at] ^= 1

        assert check_body(decoded_header(bytes(data)), memoryview(data), 0) is NoFrame.BODY_CRC


def test_padding_that_is_not_zero_is_reported() -> None:
    for at in (328, 350, 383):
        data = bytearray(whole(b"x" * 200))
        data[at] = 1

        assert check_body(decoded_header(bytes(data)), memoryview(data), 0) is NoFrame.PADDING


def test_a_body_that_fills_its_units_has_no_padding_and_does_not_look_at_the_frame_after_it() -> None:
    data = whole(b"x" * 128) + b"\xff" * 128

    assert check_body(decoded_header(data), memoryview(data), 0) is None


def test_the_first_fault_is_the_one_that_is_said() -> None:
    data = bytearray(whole(b"x" * 200))
    header = decoded_header(bytes(data))
    data[200] ^= 1
    data[383] = 1

    assert check_body(header, memoryview(data), 0) is NoFrame.BODY_CRC
    assert check_body(header, memoryview(data)[:-1], 0) is NoFrame.SHORT


# The chain -----------------------------------------------------------------------------------------------------------


def test_a_chain_value_is_both_checksums_of_the_frame() -> None:
    data = whole(b"a body")
    header = decoded_header(data)

    value = chain_value(header, b"a body")

    assert value == header.header_crc << 32 | header.body_crc
    assert value.to_bytes(8, "little") == data[8:12] + data[4:8]


def test_the_chain_value_of_a_rewritten_frame_is_the_one_it_replaces() -> None:
    body = b"what is left" + pack_chain_value(0xA1B2C3D4E5F60718)
    header = decoded_header(whole(body, flags=Flag.REWRITTEN))

    assert chain_value(header, body) == 0xA1B2C3D4E5F60718
    assert chain_value(header, memoryview(body)) == 0xA1B2C3D4E5F60718
    assert pack_chain_value(0xA1B2C3D4E5F60718) == bytes.fromhex("1807f6e5d4c3b2a1")


@pytest.mark.parametrize("changes", [{"lsn": 13}, {"prev": 1}, {"epoch": 4}, {"body_crc": 5}])
def test_frames_that_differ_have_different_chain_values(changes: dict[str, int]) -> None:
    one, other = decoded_header(sealed()), decoded_header(sealed(**changes))

    assert chain_value(one, b"") != chain_value(other, b"")


def test_a_payload_is_the_body_without_the_chain_value_of_a_rewritten_frame() -> None:
    body = memoryview(b"rows" + pack_chain_value(1))
    plain, rewritten = decoded_header(sealed()), decoded_header(sealed(flags=Flag.REWRITTEN, body_size=12))

    assert bytes(payload(plain, body)) == bytes(body)
    assert bytes(payload(rewritten, body)) == b"rows"
    assert bytes(payload(rewritten, body[4:])) == b""


def test_a_header_knows_whether_its_frame_was_rewritten() -> None:
    assert not decoded_header(sealed(flags=Flag.TRANSACTION | Flag.TOMBSTONES)).rewritten
    assert decoded_header(sealed(flags=Flag.REWRITTEN | Flag.TRANSACTION, body_size=8)).rewritten


def test_every_report_says_what_it_means() -> None:
    names = [report.name for report in NoFrame]

    assert names == ["END", "SHORT", "MAGIC", "HEADER_CRC", "RULE", "KIND", "BODY_CRC", "PADDING"]
    assert all(len(report.value) > 10 for report in NoFrame)
