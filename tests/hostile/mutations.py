"""Bytes made wrong, each from a seeded chance: the same number gives the same bytes for ever."""

from __future__ import annotations

import random
import struct

HEADS = bytes.fromhex(
    "80 81 8f 90 91 9f a0 a1 bf c0 c1 c2 c4 c5 c6 c7 c8 c9 ca cb cc cf d0 d3 d4 d7 d8 d9 da db dc dd de df ff"
)
"""First bytes of every kind of msgpack value."""

LIES = (-1, -2, 0, 1, 7, 1 << 15, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 40, 1 << 62, (1 << 63) - 1, -(1 << 63))
"""Numbers that stand where a length, a count or an offset should."""


def mutated_msgpack(data: bytes, chance: random.Random) -> bytes:
    """Bytes changed, cut, doubled, moved, or with a length that lies."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(out) + 1)
        what = chance.randrange(7)
        if what == 0 and at < len(out):
            out[at] = chance.choice(HEADS)
        elif what == 1 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif what == 2:
            del out[at:]
        elif what == 3:
            out[at:at] = chance.choice(HEADS).to_bytes() * chance.choice((1, 4, 2_000))
        elif what == 4:
            del out[at : at + chance.randrange(8)]
        elif what == 5:
            out[at:at] = out[: chance.randrange(40)]
        else:
            out[at:at] = chance.choice((b"\xdd", b"\xdf", b"\xdb", b"\xc6")) + chance.randbytes(4)
    return bytes(out)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Bytes of any format: flipped, cut, doubled, with numbers that lie where numbers may be."""
    out = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4, 16))):
        if not out:
            return bytes(out)
        at = chance.randrange(len(out))
        what = chance.randrange(8)
        if what <= 1:
            out[at] ^= 1 << chance.randrange(8)
        elif what == 2:
            out[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
        elif what == 3:
            width = chance.choice((4, 8))
            at -= at % width
            lie = chance.choice(LIES) & ((1 << 8 * width) - 1)
            out[at : at + width] = lie.to_bytes(width, "little")[: len(out) - at]
        elif what == 4:
            del out[at:]
        elif what == 5:
            del out[at : at + chance.choice((1, 4, 8, 64))]
        elif what == 6:
            out[at:at] = out[at : at + chance.choice((1, 8, 64))]
        else:
            other = chance.randrange(len(out))
            out[at : at + 8], out[other : other + 8] = out[other : other + 8], out[at : at + 8]
    return bytes(out)


def bad_offsets(body: bytes, chance: random.Random) -> bytes:
    """A few of the 32-bit numbers of a body replaced: offsets of strings and lists are among them."""
    out = bytearray(body)
    for _ in range(chance.choice((1, 2, 8))):
        if len(out) < 4:
            break
        at = chance.randrange(len(out) // 4) * 4
        struct.pack_into("<I", out, at, chance.choice(LIES) & 0xFFFFFFFF)
    return bytes(out)
