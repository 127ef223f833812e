"""A screenshot, made smaller: with a palette where it has few colours, else packed as hard as can be.

A page has some hundred colours, most of them of the edges of letters.  With more than 256, those that are nearly alike
become one: channels are rounded, more coarsely until they fit.
"""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

COLOURS_MAX = 256
SIGNATURE = b"\x89PNG\r\n\x1a\n"


def smaller(picture: bytes) -> bytes:
    """The same picture with a palette of at most 256 colours."""
    pixels = _pixels(picture)
    height, width, _ = pixels.shape
    flat = pixels.reshape(-1, 3).astype(np.uint32)
    codes = (flat[:, 0] << 16) | (flat[:, 1] << 8) | flat[:, 2]
    colours, places, counts = np.unique(codes, return_inverse=True, return_counts=True)
    if len(colours) > COLOURS_MAX:
        colours, joined = _joined(colours, counts)
        places = joined[places]
    palette = b"".join(int(each).to_bytes(3, "big") for each in colours)
    rows = places.reshape(height, width).astype(np.uint8)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    return (
        SIGNATURE
        + _chunk(b"IHDR", header)
        + _chunk(b"PLTE", palette)
        + _chunk(b"IDAT", zlib.compress(raw, 9))
        + _chunk(b"IEND", b"")
    )


def _joined(colours: NDArray[np.uint32], counts: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Few colours for many, and for each of the many its place among the few."""
    for bits in range(7, 0, -1):
        coarse = sum(((colours >> shift) & 255) >> (8 - bits) << shift for shift in (16, 8, 0))
        kinds, kind_of = np.unique(np.asarray(coarse), return_inverse=True)
        if len(kinds) <= COLOURS_MAX:
            # Of those that are alike the one that is seen most stands for all: so grounds and lines stay as they are.
            seen_least_first = np.argsort(counts, kind="stable")
            few = np.zeros(len(kinds), dtype=np.uint32)
            few[kind_of[seen_least_first]] = colours[seen_least_first]
            return few, kind_of
    raise AssertionError("two values a channel are eight colours")


def _pixels(picture: bytes) -> NDArray[np.uint8]:
    """Of a PNG of 8 bits a channel, with or without transparency, as browsers write it."""
    assert picture.startswith(SIGNATURE)
    place, packed, width, height, channels = len(SIGNATURE), b"", 0, 0, 3
    while place < len(picture):
        (size,) = struct.unpack_from(">I", picture, place)
        kind, body = picture[place + 4 : place + 8], picture[place + 8 : place + 8 + size]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and colour in (2, 6) and not interlaced
            channels = 4 if colour == 6 else 3
        elif kind == b"IDAT":
            packed += body
        place += 12 + size
    raw = np.frombuffer(zlib.decompress(packed), dtype=np.uint8).reshape(height, 1 + width * channels)
    rows = np.zeros((height + 1, width + 1, channels), dtype=np.int32)
    for number in range(height):
        _unfilter(int(raw[number, 0]), raw[number, 1:].reshape(width, channels).astype(np.int32), rows, number)
    return rows[1:, 1:, :3].astype(np.uint8)


def _unfilter(kind: int, line: NDArray[np.int32], rows: NDArray[np.int32], number: int) -> None:
    """One line of a PNG, whose bytes are differences; row 0 and column 0 of `rows` are zeroes around the picture."""
    above, here = rows[number], rows[number + 1]
    match kind:
        case 0:
            here[1:] = line
        case 1:
            here[1:] = np.cumsum(line, axis=0) & 255
        case 2:
            here[1:] = (line + above[1:]) & 255
        case 3:
            for x in range(len(line)):
                here[x + 1] = (line[x] + (here[x] + above[x + 1]) // 2) & 255
        case _:
            for x in range(len(line)):
                left, up, corner = here[x], above[x + 1], above[x]
                guess = left + up - corner
                by_left, by_up, by_corner = abs(guess - left), abs(guess - up), abs(guess - corner)
                best = np.where(
                    (by_left <= by_up) & (by_left <= by_corner), left, np.where(by_up <= by_corner, up, corner)
                )
                here[x + 1] = (line[x] + best) & 255


def _chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
