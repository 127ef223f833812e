"""How a stored body relates to the body that was given.

NONE   as it is.
ZSTD   the raw size as u32, then a zstd frame.  The raw size is checked against the format's limit
       before anything is unpacked, so that a small body cannot become a large one.

The zstd at hand is pyarrow's, imported only when a body is packed or unpacked: the log itself
moves stored bodies and needs no pyarrow.
"""

from __future__ import annotations

import struct

from headwater.errors import CorruptData
from headwater.frames.frame import BODY_SIZE_BYTES_MAX, Codec

_RAW_SIZE = struct.Struct("<I")


def encode_body(codec: Codec, raw: bytes | bytearray | memoryview) -> bytes | bytearray | memoryview:
    """The stored form of a body."""
    if codec == Codec.NONE:
        return raw
    import pyarrow

    compressed: bytes = pyarrow.compress(raw, codec="zstd", asbytes=True)
    return _RAW_SIZE.pack(len(raw)) + compressed


def decode_body(codec: int, stored: memoryview) -> memoryview:
    """The body as it was given.  `stored` has no chain value at its end any more (frame.payload)."""
    if codec == Codec.NONE:
        return stored
    if len(stored) < _RAW_SIZE.size:
        raise CorruptData("a zstd body without its raw size", stored_bytes=len(stored))
    (raw_size,) = _RAW_SIZE.unpack_from(stored)
    if raw_size > BODY_SIZE_BYTES_MAX:
        raise CorruptData("a zstd body that claims to be above the limit", raw_bytes=raw_size)
    import pyarrow

    try:
        packed = stored[_RAW_SIZE.size :]
        raw: bytes = pyarrow.decompress(packed, decompressed_size=raw_size, codec="zstd", asbytes=True)
    except (OSError, ValueError) as error:
        raise CorruptData("a zstd body that does not unpack", stored_bytes=len(stored)) from error
    if len(raw) != raw_size:
        raise CorruptData("a zstd body of another size than it says", raw_bytes=raw_size, got=len(raw))
    return memoryview(raw)
