"""Words: every value, and then every row, of an Arrow batch as one number of 64 bits (docs/formats/digest.md).

    X(b)           XXH64 of bytes, seed 42: polars-hash
    C(w1, w2, ..)  h = 42, then h = XXH64(8 little-endian bytes of w, seed h) in turn: numpy, because each row has its
                   own seed; of 8 bytes XXH64 is a short formula

PROMISE  Equal values have equal words whatever Arrow holds them in: a slice, large or plain, any chunk, with or without
         garbage below a null.  The words are the ones that digest_sql.py computes in Spark.
         No loop runs per row.
NOT HERE Casting to the table's types: the caller has done it, since the digest is of values as the table has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
import polars_hash
import pyarrow as pa

from headwater.errors import InvalidRequest

SEED = 42
NULL = 0x9E37_79B9_7F4A_7C15
NAN = 0x7FF8_0000_0000_0000
_ROWS_IN_CACHE = 16 * 1024  # with what is mixed into them and two scratch numbers each: half a megabyte
LONG_DIGITS_MAX = 18  # Spark keeps a decimal of up to 18 digits as an int64, and hashes that.

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]
_Number = TypeVar("_Number", bound=np.generic)

_P1 = np.uint64(0x9E37_79B1_85EB_CA87)
_P2 = np.uint64(0xC2B2_AE3D_27D4_EB4F)
_P3 = np.uint64(0x1656_67B1_9E37_79F9)
_P4 = np.uint64(0x85EB_CA77_C2B2_AE63)
_P5_8 = np.uint64(0x27D4_EB2F_1656_67C5 + 8)
_SHIFT = [np.uint64(bits) for bits in range(64)]
_HEX = np.array([list(f"{byte:02x}".encode()) for byte in range(256)], dtype=np.uint8)
_UUID_HEX = np.array([place for place in range(36) if place not in {8, 13, 18, 23}])  # where a uuid has no dash
_X = polars_hash.col("x").nchash.xxhash64(seed=SEED)
_X_NULL = _X.fill_null(pl.lit(NULL, dtype=pl.UInt64))


def block_digests(batches: Sequence[pa.RecordBatch], block_bits: int) -> Iterator[tuple[int, int, int, int]]:
    """(partition, block, rows, sum of their words modulo 2^64) in order; no batch is empty."""
    if not batches:
        return
    runs = [_runs(batch, block_bits) for batch in batches]
    partitions, blocks, rows, totals = (np.concatenate(parts) for parts in zip(*runs, strict=True))
    order = np.lexsort((blocks, partitions))
    partitions, blocks, rows, totals = partitions[order], blocks[order], rows[order], totals[order]
    starts = _starts(partitions, blocks)
    yield from zip(
        partitions[starts].tolist(),
        blocks[starts].tolist(),
        np.add.reduceat(rows, starts).tolist(),
        np.add.reduceat(totals, starts).tolist(),
        strict=True,
    )


def _runs(batch: pa.RecordBatch, block_bits: int) -> tuple[Integers, Integers, Integers, Words]:
    """Neighbouring rows of the same block, added up."""
    partitions = batch.column("_hw_partition").to_numpy().astype(np.int64)
    blocks = batch.column("_hw_offset").to_numpy() >> block_bits
    starts = _starts(partitions, blocks)
    rows = np.diff(starts, append=batch.num_rows)
    return partitions[starts], blocks[starts], rows, np.add.reduceat(row_words(batch), starts)


def _starts(partitions: Integers, blocks: Integers) -> Integers:
    """Where another block begins."""
    changes = (partitions[1:] != partitions[:-1]) | (blocks[1:] != blocks[:-1])
    return np.append(0, np.flatnonzero(changes) + 1)


def row_words(batch: pa.RecordBatch) -> Words:
    """C of the words of the columns, in their order, for every row."""
    return _chain(batch.num_rows, [words_of(column) for column in batch.columns])


def words_of(values: pa.Array) -> Words:
    """The word of every value.  Not to be written to: it may be Arrow's own memory."""
    if len(values) == 0:
        return np.empty(0, dtype=np.uint64)
    type_, types = values.type, pa.types
    if types.is_string(type_) or types.is_binary(type_) or types.is_large_string(type_) or types.is_large_binary(type_):
        return _of_bytes(values)
    if types.is_boolean(type_) or (types.is_integer(type_) and not types.is_uint64(type_)):
        words = _integers(values.cast(pa.int64()))
    elif types.is_timestamp(type_) and type_.unit != "ns":
        words = _integers(values.cast(pa.timestamp("us", type_.tz)))
    elif types.is_date32(type_):
        words = _integers(values.view(pa.int32()).cast(pa.int64()))
    elif types.is_floating(type_):
        words = _of_floats(values)
    elif types.is_decimal128(type_):
        words = _of_decimals(values)
    elif types.is_fixed_size_binary(type_):
        return _of_bytes(values.cast(pa.binary()))
    elif isinstance(type_, pa.UuidType):
        words = _of_uuids(values.storage)
    elif types.is_struct(type_):
        words = _chain(len(values), [words_of(values.field(place)) for place in range(type_.num_fields)])
    elif types.is_list(type_) or types.is_large_list(type_):
        words = _of_lists(values, [values.values])
    elif types.is_map(type_):
        words = _of_lists(values, [values.keys, values.items])
    else:
        raise InvalidRequest(f"a column of {type_} has no digest: no table holds it as it is")
    if values.null_count:
        words = np.where(values.is_valid().to_numpy(zero_copy_only=False), words, np.uint64(NULL))
    return words


# ------------------------------------------------------------------------------------------------------ hashes


def _chain(length: int, columns: list[Words]) -> Words:
    """C(w1, w2, ...) for every row, by so many rows at once as stay in the processor's cache."""
    hashed = np.full(length, SEED, dtype=np.uint64)
    scratch = np.empty((2, min(length, _ROWS_IN_CACHE)), dtype=np.uint64)
    for start in range(0, length, _ROWS_IN_CACHE):
        h = hashed[start : start + _ROWS_IN_CACHE]
        a, b = scratch[:, : len(h)]
        for words in columns:
            _mix(h, words[start : start + _ROWS_IN_CACHE], a, b)
    return hashed


def _mix(h: Words, words: Words, a: Words, b: Words) -> None:
    """h = XXH64(8 little-endian bytes of the word, seed h), in place; a and b are scratch."""
    np.multiply(words, _P2, out=a)
    np.left_shift(a, _SHIFT[31], out=b)
    np.right_shift(a, _SHIFT[33], out=a)
    np.bitwise_or(a, b, out=a)
    np.multiply(a, _P1, out=a)
    np.add(h, _P5_8, out=h)
    np.bitwise_xor(h, a, out=h)
    np.left_shift(h, _SHIFT[27], out=b)
    np.right_shift(h, _SHIFT[37], out=h)
    np.bitwise_or(h, b, out=h)
    np.multiply(h, _P1, out=h)
    np.add(h, _P4, out=h)
    np.right_shift(h, _SHIFT[33], out=b)
    np.bitwise_xor(h, b, out=h)
    np.multiply(h, _P2, out=h)
    np.right_shift(h, _SHIFT[29], out=b)
    np.bitwise_xor(h, b, out=h)
    np.multiply(h, _P3, out=h)
    np.right_shift(h, _SHIFT[32], out=b)
    np.bitwise_xor(h, b, out=h)


def _of_bytes(values: pa.Array) -> Words:
    """X of every value's bytes."""
    column = pl.DataFrame([pl.Series("x", values)])
    hashed = column.select(_X_NULL if values.null_count else _X).to_series().to_numpy()
    return hashed


# ------------------------------------------------------------------------------------------------------- types


def _memory(values: pa.Array, number: type[_Number], bytes_each: int) -> npt.NDArray[_Number]:
    """The fixed-size values of an array as numbers, without a copy."""
    data = memoryview(values.buffers()[1])[values.offset * bytes_each :][: len(values) * bytes_each]
    return np.frombuffer(data, dtype=number)


def _integers(values: pa.Array) -> Words:
    return _memory(values, np.uint64, 8)


def _of_floats(values: pa.Array) -> Words:
    doubles = _memory(values.cast(pa.float64()), np.float64, 8)
    with np.errstate(invalid="ignore"):  # a signalling NaN
        bits = (doubles + np.float64(0.0)).view(np.uint64)  # -0.0 + 0.0 is 0.0
    bits[np.isnan(doubles)] = np.uint64(NAN)
    return _chain(len(values), [bits])


def _of_decimals(values: pa.Array) -> Words:
    if values.type.precision <= LONG_DIGITS_MAX:
        unscaled = _memory(values, np.uint64, 16).reshape(-1, 2)[:, 0]
        return _chain(len(values), [unscaled])
    digits = _memory(values, np.uint8, 16).reshape(-1, 16)[:, ::-1]
    # The shortest form leaves out every leading byte that only repeats the sign.
    sign = np.where(digits[:, :1] >= 0x80, np.uint8(0xFF), np.uint8(0))
    differs = (digits ^ sign) != 0
    first = np.where(differs.any(axis=1), differs.argmax(axis=1), 15)
    needs_sign = ((np.take_along_axis(digits, first[:, None], axis=1) ^ sign) >= 0x80)[:, 0]
    first -= needs_sign
    return _of_pieces(digits[np.arange(16) >= first[:, None]], 16 - first)


def _of_uuids(values: pa.Array) -> Words:
    text = np.full((len(values), 36), ord("-"), dtype=np.uint8)
    text[:, _UUID_HEX] = _HEX[_memory(values, np.uint8, 16)].reshape(-1, 32)
    return _of_pieces(text.reshape(-1), np.full(len(values), 36))


def _of_pieces(data: npt.NDArray[np.uint8], lengths: Integers) -> Words:
    """X of consecutive pieces of these bytes."""
    ends = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=ends[1:])
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(data))]
    return _of_bytes(pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers))


def _of_lists(values: pa.Array, items: list[pa.Array]) -> Words:
    """C(length, XOR over i of C(i, word of item i)); a map's item has the word C(key, value)."""
    ends = values.offsets.to_numpy().astype(np.int64)
    first, lengths = ends[:-1] - ends[0], np.diff(ends)
    count = int(ends[-1] - ends[0])
    parts = [words_of(item.slice(int(ends[0]), count)) for item in items]
    words = parts[0] if len(parts) == 1 else _chain(count, parts)
    places = np.arange(count) - np.repeat(first, lengths)
    # One more item at the end, so that a list that begins there has an item to point to.
    mixed = np.append(_chain(count, [places.astype(np.uint64), words]), np.uint64(0))
    folded = np.where(lengths > 0, np.bitwise_xor.reduceat(mixed, first), np.uint64(0))
    return _chain(len(values), [lengths.astype(np.uint64), folded])
