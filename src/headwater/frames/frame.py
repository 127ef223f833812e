"""The frame: a header of 128 bytes, a body, and zeroes up to the next multiple of 128.

All numbers are little-endian.  docs/formats/frame.md has a worked example.

at   size  field            rule
0    4     magic            C8 48 57 46
4    4     header_crc       CRC-32C of the segment's 8 salt bytes, then of the header from byte 8 to its end;
                            the salt counts as zero for kind SEGMENT
8    4     body_crc         CRC-32C of the stored body
12   1     header_units     header length / 128; 1 today, readers accept more
13   1     kind             Kind below; unknown below 128: refused by name; 128 and above: skipped
14   1     codec            0 none, 1 zstd (codecs.py)
15   1     flags            Flag below, all other bits zero
16   4     body_size        at most 64 MiB
20   2     padding_size     zero bytes after the body; the next frame begins at a multiple of 128
22   2     reserved         0
24   8     lsn              previous + 1; SEGMENT takes none and holds the first LSN after it
32   8     prev             the chain value of the frame before
40   8     durable_lsn      the highest LSN under a returned sync when this was written
48   4     epoch            never falls along the chain
52   2+2   write_index, write_count   this is frame `index` of a write of `count` frames
56   4+4   topic_number, partition    topic 0: none
64   8     base_offset
72   4+4   row_count, offset_count    equal unless SPARSE
80   4+4   schema_version, producer_epoch
88   8+8   producer_id, sequence      id 0: none, or joined
104  8     append_time_us             the writer's clock at the commit, never falls
112  8+8   time_min_us, time_max_us   of the topic's declared time column, else append time

CHAIN    A frame's chain value is header_crc << 32 | body_crc, or, where REWRITTEN is set, the last
         8 bytes of its body: the chain value of what it replaces.
VALID    A frame is valid if and only if every rule above holds for it, its checksums agree, its
         padding is zero, and: SPARSE and GAP are REWRITTEN; a REWRITTEN body has at least 8 bytes;
         write_index < write_count; row_count <= offset_count.
READER   Decoding reports the first rule that is broken (NoFrame).  What that means, a torn tail or
         damage, is recovery's to say.
CHANGE   New kinds from 128 on, longer headers, compatible feature bits: old readers go on.  All else
         takes an incompatible feature bit in the segment header, and old readers refuse it.
"""

from __future__ import annotations

import struct
from enum import Enum, IntEnum, IntFlag
from typing import NamedTuple

from headwater.frames.checksum import crc32c

MAGIC = b"\xc8HWF"
UNIT_BYTES = 128
BODY_SIZE_BYTES_MAX = 64 * 1024 * 1024
WRITE_FRAMES_MAX = 65_535
CHAIN_VALUE_BYTES = 8
SKIPPABLE_KIND_FIRST = 128

_HEADER = struct.Struct("<4sIIBBBBIHHQQQIHHIIQIIIIQQqqq")
_SEALED_PART = struct.Struct("<IBBBBIHHQQQIHHIIQIIIIQQqqq")
_START = struct.Struct("<4sI")
_CHAIN_VALUE = struct.Struct("<Q")
assert _HEADER.size == UNIT_BYTES == _START.size + _SEALED_PART.size

NO_SALT_CRC: int = crc32c(bytes(8))
"""What SEGMENT frames are sealed with: their salt stands in their own body."""


class Kind(IntEnum):
    SEGMENT = 1
    EPOCH = 2
    SCHEMA = 3
    DATA = 4
    SPARSE = 5
    OFFSETS = 6
    SEQUENCES = 7
    PRODUCER = 8
    METADATA = 9
    GAP = 10
    LEDGER = 11
    SOURCE = 12


class Flag(IntFlag):
    REWRITTEN = 1
    TRANSACTION = 4
    TOMBSTONES = 8


class Codec(IntEnum):
    NONE = 0
    ZSTD = 1


_KIND_LAST = int(max(Kind))
_CODEC_LAST = int(max(Codec))
_FLAGS_KNOWN = int(Flag.REWRITTEN | Flag.TRANSACTION | Flag.TOMBSTONES)
_REWRITTEN = int(Flag.REWRITTEN)
_SEGMENT, _SPARSE, _GAP = int(Kind.SEGMENT), int(Kind.SPARSE), int(Kind.GAP)


class NoFrame(Enum):
    """Why there is no valid frame at a place: the first rule that is broken."""

    END = "zeroes or nothing: nothing was written here"
    SHORT = "the file ends inside the frame"
    MAGIC = "no frame begins here"
    HEADER_CRC = "the header does not match its checksum"
    RULE = "the header is whole but breaks a rule of the format"
    KIND = "the header is whole but of a kind that this version does not know"
    BODY_CRC = "the body does not match its checksum"
    PADDING = "the padding is not zero"


class Header(NamedTuple):
    magic: bytes
    header_crc: int
    body_crc: int
    header_units: int
    kind: int
    codec: int
    flags: int
    body_size: int
    padding_size: int
    reserved: int
    lsn: int
    prev: int
    durable_lsn: int
    epoch: int
    write_index: int
    write_count: int
    topic_number: int
    partition: int
    base_offset: int
    row_count: int
    offset_count: int
    schema_version: int
    producer_epoch: int
    producer_id: int
    sequence: int
    append_time_us: int
    time_min_us: int
    time_max_us: int

    @property
    def frame_size(self) -> int:
        """Header, body and padding, in bytes."""
        return self.header_units * UNIT_BYTES + self.body_size + self.padding_size

    @property
    def rewritten(self) -> bool:
        return bool(self.flags & _REWRITTEN)


_new_header = tuple.__new__
"""What Header._make does, without its check of the length, which the struct has made."""


def padding_size(body_size: int) -> int:
    """How many zeroes follow a body of this size."""
    return -body_size % UNIT_BYTES


def frame_size(body_size: int) -> int:
    """A frame with this body, header and padding included."""
    return UNIT_BYTES + body_size + (-body_size % UNIT_BYTES)


def salt_crc(salt: bytes) -> int:
    """What a header's checksum begins with, in a segment with this salt."""
    assert len(salt) == 8
    return crc32c(salt)


def body_crc(*parts: bytes | bytearray | memoryview) -> int:
    """CRC-32C of the parts, one after the other."""
    value = 0
    for part in parts:
        value = crc32c(part, value)
    return value


def seal_header(  # The fields are the format's; a parameter object would be the header again.
    salted: int,
    body_crc: int,
    kind: int,
    codec: int,
    flags: int,
    body_size: int,
    lsn: int,
    prev: int,
    durable_lsn: int,
    epoch: int,
    write_index: int,
    write_count: int,
    topic_number: int,
    partition: int,
    base_offset: int,
    row_count: int,
    offset_count: int,
    schema_version: int,
    producer_epoch: int,
    producer_id: int,
    sequence: int,
    append_time_us: int,
    time_min_us: int,
    time_max_us: int,
) -> tuple[bytes, int]:
    """The 128 bytes of a header, and its header_crc.  `salted` is salt_crc() of the segment."""
    part = _SEALED_PART.pack(
        body_crc,
        1,
        kind,
        codec,
        flags,
        body_size,
        -body_size % UNIT_BYTES,
        0,
        lsn,
        prev,
        durable_lsn,
        epoch,
        write_index,
        write_count,
        topic_number,
        partition,
        base_offset,
        row_count,
        offset_count,
        schema_version,
        producer_epoch,
        producer_id,
        sequence,
        append_time_us,
        time_min_us,
        time_max_us,
    )
    header_crc = crc32c(part, salted)
    return _START.pack(MAGIC, header_crc) + part, header_crc


def reseal_header(header: Header, salted: int) -> Header:
    """The same header, of one unit, with the checksum that its fields now need."""
    assert header.header_units == 1
    sealed = _HEADER.pack(*header)
    return header._replace(header_crc=crc32c(memoryview(sealed)[8:], salted))


def pack_header(header: Header) -> bytes:
    """The bytes of a header of one unit, as it is: its checksum is not made anew."""
    assert header.header_units == 1
    return _HEADER.pack(*header)


def decode_header(data: memoryview, at: int, salted: int) -> Header | NoFrame:
    """The header at `at`, if it is valid by itself; its body has not been looked at."""
    available = len(data) - at
    if available < UNIT_BYTES:
        return NoFrame.SHORT if any(data[at:]) else NoFrame.END
    fields = _HEADER.unpack_from(data, at)
    # Names for all at once, and the Header last: this runs for every frame that is read.
    (
        magic, header_crc, _, header_units, kind, codec, flags, body_size, padding, reserved,
        lsn, _, _, _, write_index, write_count, _, _, _, row_count, offset_count, _, _, _, _, _, _, _,
    ) = fields  # fmt: skip
    if magic != MAGIC:
        return NoFrame.MAGIC if any(data[at : at + UNIT_BYTES]) else NoFrame.END
    size = header_units * UNIT_BYTES
    if size == 0:
        return NoFrame.HEADER_CRC
    if size > available:
        return NoFrame.SHORT
    seed = NO_SALT_CRC if kind == _SEGMENT else salted
    if crc32c(data[at + 8 : at + size], seed) != header_crc:
        return NoFrame.HEADER_CRC
    if _KIND_LAST < kind < SKIPPABLE_KIND_FIRST:
        return NoFrame.KIND
    if (
        kind == 0
        or codec > _CODEC_LAST
        or flags & ~_FLAGS_KNOWN
        or body_size > BODY_SIZE_BYTES_MAX
        or padding != -body_size % UNIT_BYTES
        or reserved
        or lsn == 0
        or write_index >= write_count
        or row_count > offset_count
        or (row_count != offset_count and kind != _SPARSE)
        or (flags & _REWRITTEN and body_size < CHAIN_VALUE_BYTES)
        or ((kind == _SPARSE or kind == _GAP) and not flags & _REWRITTEN)
    ):
        return NoFrame.RULE
    return _new_header(Header, fields)


def check_body(header: Header, data: memoryview, at: int) -> NoFrame | None:
    """What is wrong with the body and padding of the frame that begins at `at`, if anything is."""
    start = at + header.header_units * UNIT_BYTES
    end = start + header.body_size
    if end + header.padding_size > len(data):
        return NoFrame.SHORT
    if crc32c(data[start:end]) != header.body_crc:
        return NoFrame.BODY_CRC
    if header.padding_size and any(data[end : end + header.padding_size]):
        return NoFrame.PADDING
    return None


def chain_value(header: Header, body: memoryview | bytes) -> int:
    """What the next frame's `prev` must be."""
    if header.flags & _REWRITTEN:
        value: int = _CHAIN_VALUE.unpack_from(body, len(body) - CHAIN_VALUE_BYTES)[0]
        return value
    return header.header_crc << 32 | header.body_crc


def pack_chain_value(value: int) -> bytes:
    """The last 8 bytes of a REWRITTEN body."""
    return _CHAIN_VALUE.pack(value)


def payload(header: Header, body: memoryview) -> memoryview:
    """The stored body without the chain value that a REWRITTEN frame ends in."""
    return body[:-CHAIN_VALUE_BYTES] if header.flags & _REWRITTEN else body
