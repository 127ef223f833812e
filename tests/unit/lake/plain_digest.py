"""The digest once more, from docs/formats/digest.md and in the plainest Python, sharing nothing with the product.

A value is what the page calls it: an int for an integer, a date (days) and a timestamp (microseconds), a bool, a float,
a str, bytes, an unscaled int for a decimal, the 16 bytes of a uuid, a tuple for a struct, a list for a list, a list of
pairs for a map, None for null.  Its type is Arrow's.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

MASK = 2**64 - 1
P1, P2, P3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
P4, P5 = 9650029242287828579, 2870177450012600261
NULL = 0x9E3779B97F4A7C15


def rotated(x: int, bits: int) -> int:
    return (x << bits | x >> 64 - bits) & MASK


def xxh64(data: bytes, seed: int = 42) -> int:
    """XXH64 as its specification tells it (github.com/Cyan4973/xxHash, doc/xxhash_spec.md)."""

    def rounded(lane_sum: int, lane: int) -> int:
        return rotated((lane_sum + lane * P2) & MASK, 31) * P1 & MASK

    rest = data
    if len(data) >= 32:
        sums = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while len(rest) >= 32:
            sums = [rounded(a, lane) for a, lane in zip(sums, struct.unpack("<4Q", rest[:32]), strict=True)]
            rest = rest[32:]
        h = sum(rotated(a, bits) for a, bits in zip(sums, (1, 7, 12, 18), strict=True)) & MASK
        for a in sums:
            h = ((h ^ rounded(0, a)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + len(data)) & MASK
    while len(rest) >= 8:
        h = (rotated(h ^ rounded(0, int.from_bytes(rest[:8], "little")), 27) * P1 + P4) & MASK
        rest = rest[8:]
    if len(rest) >= 4:
        h = (rotated(h ^ int.from_bytes(rest[:4], "little") * P1 & MASK, 23) * P2 + P3) & MASK
        rest = rest[4:]
    for byte in rest:
        h = rotated(h ^ byte * P5 & MASK, 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


def chain(words: Iterable[int]) -> int:
    h = 42
    for word in words:
        h = xxh64(struct.pack("<Q", word), h)
    return h


def word(type_: pa.DataType, value: Any) -> int:
    types = pa.types
    if value is None:
        return NULL
    if isinstance(type_, pa.UuidType):
        return xxh64(str(uuid.UUID(bytes=value)).encode())
    if types.is_boolean(type_) or types.is_integer(type_) or types.is_date(type_) or types.is_timestamp(type_):
        return int(value) & MASK
    if types.is_floating(type_):
        if value != value:  # noqa: PLR0124  NaN
            return xxh64(bytes.fromhex("000000000000f87f"))
        return xxh64(struct.pack("<d", 0.0 if value == 0 else value))
    if types.is_string(type_):
        return xxh64(value.encode())
    if types.is_binary(type_) or types.is_fixed_size_binary(type_):
        return xxh64(value)
    if types.is_decimal(type_):
        if type_.precision <= 18:
            return xxh64(struct.pack("<q", value))
        length = next(n for n in range(1, 17) if -(2 ** (8 * n - 1)) <= value < 2 ** (8 * n - 1))
        return xxh64(value.to_bytes(length, "big", signed=True))
    if types.is_struct(type_):
        return chain(word(field.type, part) for field, part in zip(type_, value, strict=True))
    if types.is_list(type_):
        return of_list([word(type_.value_type, item) for item in value])
    if types.is_map(type_):
        return of_list([chain([word(type_.key_type, key), word(type_.item_type, item)]) for key, item in value])
    raise AssertionError(f"the page has no word for {type_}")


def of_list(words: Sequence[int]) -> int:
    folded = 0
    for place, item in enumerate(words):
        folded ^= chain([place, item])
    return chain([len(words), folded])


def digest(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> dict[tuple[int, int], tuple[int, int]]:
    """(rows, total) of each (partition, block)."""
    blocks: dict[tuple[int, int], tuple[int, int]] = {}
    for row in rows:
        named = dict(zip(schema.names, row, strict=True))
        place = named["_hw_partition"], named["_hw_offset"] // 65_536
        count, total = blocks.get(place, (0, 0))
        row_word = chain(word(field.type, value) for field, value in zip(schema, row, strict=True))
        blocks[place] = count + 1, (total + row_word) % 2**64
    return blocks
