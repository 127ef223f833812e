"""The first frame of every segment: who wrote it, and what a reader must understand.

Kind SEGMENT, one header unit, a body of 128 bytes: 256 bytes in every version.
docs/formats/segment.md has a worked example.

at   size  field
0    16    log id
16   8     salt                        header checksums of this segment begin with it
24   8     slot                        on an object store; else 0
32   8     previous segment's first LSN; 0: none
40   8     incompatible features       a bit that is not known here: refused, naming both versions
48   8     compatible features         unknown bits are passed over
56   8     created_us
64   4+4   shard, generation           generation 0: as first written; above: rewritten
72   2+2   format, flags
76   4     alignment                   128
80   8     last LSN                    in a rewritten segment; else 0
88   24    writer version              UTF-8, zero-padded; for people
112  8     zeroes
120  8     old chain                   in a rewritten segment the chain value of the segment frame it
                                       replaces (so these are the last 8 bytes of a REWRITTEN body); else 0

The frame's `lsn` is the first LSN after it, its `prev` the chain value of the previous segment's
last frame, and the first frame's `prev` is this frame's chain value.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from headwater.errors import UnknownFormat
from headwater.frames.frame import (
    NO_SALT_CRC,
    UNIT_BYTES,
    Codec,
    Flag,
    Header,
    Kind,
    NoFrame,
    body_crc,
    chain_value,
    check_body,
    decode_header,
    seal_header,
)

FORMAT = 1
WRITER_VERSION = "headwater 0.1"
INCOMPATIBLE_FEATURES_KNOWN = 0
SEGMENT_FRAME_BYTES = 2 * UNIT_BYTES

_BODY = struct.Struct("<16s8sQQQQqIIHHIQ24s8xQ")
assert _BODY.size == UNIT_BYTES


@dataclass(frozen=True)
class SegmentHeader:
    """What a segment says of itself."""

    log_id: bytes
    salt: bytes
    first_lsn: int
    prev: int
    epoch: int
    created_us: int
    previous_first_lsn: int = 0
    slot: int = 0
    shard: int = 0
    generation: int = 0
    last_lsn: int = 0
    old_chain: int = 0
    incompatible_features: int = 0
    compatible_features: int = 0
    format: int = FORMAT
    flags: int = 0
    writer_version: str = WRITER_VERSION


def pack_segment_frame(segment: SegmentHeader) -> bytes:
    """The 256 bytes that a segment begins with."""
    assert len(segment.log_id) == 16 and len(segment.salt) == 8
    body = _BODY.pack(
        segment.log_id,
        segment.salt,
        segment.slot,
        segment.previous_first_lsn,
        segment.incompatible_features,
        segment.compatible_features,
        segment.created_us,
        segment.shard,
        segment.generation,
        segment.format,
        segment.flags,
        UNIT_BYTES,
        segment.last_lsn,
        segment.writer_version.encode()[:24],
        segment.old_chain,
    )
    header, _ = seal_header(
        NO_SALT_CRC,
        body_crc=body_crc(body),
        kind=Kind.SEGMENT,
        codec=Codec.NONE,
        flags=Flag.REWRITTEN if segment.generation else 0,
        body_size=len(body),
        lsn=segment.first_lsn,
        prev=segment.prev,
        durable_lsn=0,
        epoch=segment.epoch,
        write_index=0,
        write_count=1,
        topic_number=0,
        partition=0,
        base_offset=0,
        row_count=0,
        offset_count=0,
        schema_version=0,
        producer_epoch=0,
        producer_id=0,
        sequence=0,
        append_time_us=segment.created_us,
        time_min_us=0,
        time_max_us=0,
    )
    return header + body


def decode_segment_frame(data: memoryview) -> tuple[SegmentHeader, int] | NoFrame:
    """What the segment that begins with these bytes says of itself, and its chain value.

    Raises UnknownFormat where the bytes are whole but of a version that this one must not read.
    """
    header = decode_header(data, 0, NO_SALT_CRC)
    if isinstance(header, NoFrame):
        return header
    if header.kind != Kind.SEGMENT or header.header_units != 1 or header.body_size != UNIT_BYTES:
        return NoFrame.RULE
    broken = check_body(header, data, 0)
    if broken is not None:
        return broken
    body = data[UNIT_BYTES:SEGMENT_FRAME_BYTES]
    return _segment_of(header, body), chain_value(header, body)


def _segment_of(header: Header, body: memoryview) -> SegmentHeader:
    (
        log_id,
        salt,
        slot,
        previous_first_lsn,
        incompatible_features,
        compatible_features,
        created_us,
        shard,
        generation,
        format_number,
        flags,
        alignment,
        last_lsn,
        writer_version,
        old_chain,
    ) = _BODY.unpack(body)
    writer = writer_version.rstrip(b"\0").decode("utf-8", "replace")
    unknown = incompatible_features & ~INCOMPATIBLE_FEATURES_KNOWN
    if format_number != FORMAT or unknown:
        raise UnknownFormat(
            f"this segment was written by {writer!r} and {WRITER_VERSION!r} does not understand it: "
            "read it with the version that wrote it, or a later one",
            format=format_number,
            unknown_features=hex(unknown),
        )
    if alignment != UNIT_BYTES:
        raise UnknownFormat(
            "a segment header whose alignment is not 128: read it with the version that wrote it", alignment=alignment
        )
    return SegmentHeader(
        log_id=log_id,
        salt=salt,
        first_lsn=header.lsn,
        prev=header.prev,
        epoch=header.epoch,
        created_us=created_us,
        previous_first_lsn=previous_first_lsn,
        slot=slot,
        shard=shard,
        generation=generation,
        last_lsn=last_lsn,
        old_chain=old_chain,
        incompatible_features=incompatible_features,
        compatible_features=compatible_features,
        format=format_number,
        flags=flags,
        writer_version=writer,
    )
