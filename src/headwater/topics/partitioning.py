"""Which partition a keyed row belongs to: a hash of its key that never changes, and the split of a batch by it.

All arithmetic is on unsigned 64-bit numbers, modulo 2^64.

    M(x)       fmix64, the end of MurmurHash3:  x ^= x >> 33;  x *= 0xFF51AFD7ED558CCD;  x ^= x >> 33;
               x *= 0xC4CEB9FE1A85EC53;  x ^= x >> 33
    W(v)       of a column of integers, bool (0, 1), date32 (days), timestamp (microseconds):  M(v as int64)
               of text (UTF-8), bytes, fixed bytes, decimal128 (its unscaled value, 16 bytes little-endian):
               M(length + b0 B + b1 B^2 + b2 B^3 + ...),  B = 0x9E3779B97F4A7C15
    hash       of one key column: W(v1);  of more: h = W(v1), then h = M(h B + W(vi)) for each further one in turn
    partition  hash mod the number of partitions

PROMISE  Stable for ever (docs/formats/partitioning.md has test vectors): a key's rows stay in one partition, whoever
         computes it, and a column that is widened keeps its hashes.
ORDER    Rows of a partition keep the order they had in the batch.
NOT HERE Rows without a key: the engine chooses for them.

The sum over bytes is a difference of prefix sums over the column's whole value buffer, times B to the power of minus
the row's place in it; so no Python runs per row.  Blocks bound the memory; a few small keys are faster in plain Python.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

_MASK = (1 << 64) - 1
_BASE = 0x9E3779B97F4A7C15
_INVERSE = pow(_BASE, -1, 1 << 64)  # B is odd, so there is one
_MIX_1, _MIX_2 = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53

_BLOCK_BYTES = 1 << 16  # of keys hashed at once: some ten numbers of 8 bytes are held for each of them
_FEW_ROWS, _FEW_BYTES = 8, 512  # below these a call of pyarrow costs more than the work

_U64 = pa.uint64()


def hash_keys(batch: pa.RecordBatch, key: Sequence[str]) -> pa.UInt64Array:
    """The hash of every row's key, by the columns `key` of a schema in normal form; they hold no nulls."""
    columns = [batch.column(name) for name in key]
    assert columns, "a topic without a key has no hashes"
    assert not any(column.null_count for column in columns), "a key is never null"
    if batch.num_rows <= _FEW_ROWS and sum(column.nbytes for column in columns) <= _FEW_BYTES:
        return _hash_few(columns)
    hashes = _hash_column(columns[0])
    for column in columns[1:]:
        hashes = _mix(pc.add(pc.multiply(hashes, _u64(_BASE)), _hash_column(column)))
    return hashes


def partition_ids(batch: pa.RecordBatch, key: Sequence[str], partitions: int) -> pa.Int32Array:
    """The partition of every row: its key's hash modulo the number of partitions."""
    assert partitions > 0
    if partitions == 1:
        return pa.repeat(pa.scalar(0, pa.int32()), batch.num_rows)
    hashes = hash_keys(batch, key)
    count = _u64(partitions)
    return pc.subtract(hashes, pc.multiply(pc.divide(hashes, count), count)).cast(pa.int32())


def split_by_partition(batch: pa.RecordBatch, ids: pa.Array, partitions: int) -> list[tuple[int, pa.RecordBatch]]:
    """The rows of each partition that has any, by ascending partition; rows of one keep their order."""
    assert len(ids) == batch.num_rows
    counts = sorted((entry["values"], entry["counts"]) for entry in ids.value_counts().to_pylist())
    assert not counts or 0 <= counts[0][0] <= counts[-1][0] < partitions, "a partition that the topic does not have"
    if len(counts) == 1:
        return [(counts[0][0], batch)]
    in_order = batch.take(pc.array_sort_indices(ids))  # the sort is stable
    parts = []
    first = 0
    for partition, count in counts:
        parts.append((partition, in_order.slice(first, count)))
        first += count
    return parts


# -------------------------------------------------------------------------------------------------- vectorised


def _hash_column(column: pa.Array) -> pa.UInt64Array:
    numbers = _as_int64(column)
    if numbers is not None:
        return _mix(numbers.view(_U64))
    offsets, data = _offsets_and_bytes(column)
    return _hash_bytes(offsets, data, len(column))


def _as_int64(column: pa.Array) -> pa.Int64Array | None:
    """The column's values as int64, so that widening it changes nothing; None if it is one of bytes."""
    types = pa.types
    if types.is_timestamp(column.type):
        return column.view(pa.int64())
    if types.is_date32(column.type):
        return column.view(pa.int32()).cast(pa.int64())
    if types.is_integer(column.type) or types.is_boolean(column.type):
        return column.cast(pa.int64())
    return None


def _offsets_and_bytes(column: pa.Array) -> tuple[memoryview, pa.Buffer]:
    """Where each value begins and the last one ends, and the buffer that they are in."""
    count, types = len(column), pa.types
    if types.is_string(column.type) or types.is_binary(column.type):
        _, places, data = column.buffers()
        offsets = memoryview(places).cast("i")[column.offset : column.offset + count + 1] if count else memoryview(b"")
    else:
        assert types.is_fixed_size_binary(column.type) or types.is_decimal128(column.type), f"a key of {column.type}"
        width = column.type.byte_width
        data = column.buffers()[1]
        steps = pc.cumulative_sum(pa.repeat(pa.scalar(width, pa.int64()), count + 1))
        places = pc.add(steps, pa.scalar((column.offset - 1) * width, pa.int64()))
        offsets = memoryview(places.buffers()[1]).cast("b").cast("q")
    return offsets, data if data is not None else pa.py_buffer(b"")


def _hash_bytes(offsets: memoryview, data: pa.Buffer, count: int) -> pa.UInt64Array:
    done = []
    first = 0
    while first < count:
        # As many rows as fit into a block; a row that alone is longer than that goes by itself.
        last = bisect_right(offsets, offsets[first] + _BLOCK_BYTES, first, count + 1) - 1
        if last > first:
            done.append(_hash_block(offsets[first : last + 1], data))
        else:
            last = first + 1
            done.append(_hash_long(offsets[first], offsets[last], data))
        first = last
    if len(done) == 1:
        return done[0]
    return pa.concat_arrays(done) if done else pa.array([], _U64)


def _hash_block(offsets: memoryview, data: pa.Buffer) -> pa.UInt64Array:
    begin, size = offsets[0], offsets[-1] - offsets[0]
    powers, inverse_powers = _powers()
    places = pa.Array.from_buffers(
        pa.int32() if offsets.format == "i" else pa.int64(), len(offsets), [None, pa.py_buffer(offsets)]
    )
    places = pc.subtract(places, pa.scalar(begin, places.type))
    starts, ends = places.slice(0, len(places) - 1), places.slice(1)
    sums = pa.concat_arrays([pa.array([0], _U64), pc.cumulative_sum(_terms(data, begin, size, powers))])
    sums = pc.subtract(sums.take(ends), sums.take(starts))
    sums = pc.multiply(sums, inverse_powers.take(starts))
    return _mix(pc.add(sums, pc.subtract(ends, starts).cast(_U64)))


def _hash_long(start: int, end: int, data: pa.Buffer) -> pa.UInt64Array:
    """One value that is longer than a block: the sum, block by block."""
    powers, _ = _powers()
    total, power = end - start, 1
    for begin in range(start, end, _BLOCK_BYTES):
        size = min(_BLOCK_BYTES, end - begin)
        total += power * pc.cumulative_sum(_terms(data, begin, size, powers))[-1].as_py()
        power = power * pow(_BASE, size, 1 << 64) & _MASK
    return pa.array([mix_number(total & _MASK)], _U64)


def _terms(data: pa.Buffer, begin: int, size: int, powers: pa.UInt64Array) -> pa.UInt64Array:
    """b B^(i + 1) for the i-th byte b, from 0, of a part of the buffer."""
    values = pa.Array.from_buffers(pa.uint8(), size, [None, data], offset=begin)
    return pc.multiply(values.cast(_U64), powers.slice(1, size))


@lru_cache(maxsize=1)
def _powers() -> tuple[pa.UInt64Array, pa.UInt64Array]:
    """B^i and B^-i for every place in a block, its end included."""
    ones = pa.array([1], _U64)
    tables = []
    for base in (_BASE, _INVERSE):
        tables.append(pa.concat_arrays([ones, pc.cumulative_prod(pa.repeat(pa.scalar(base, _U64), _BLOCK_BYTES))]))
    return tables[0], tables[1]


def _mix(numbers: pa.UInt64Array) -> pa.UInt64Array:
    half = _u64(33)
    numbers = pc.multiply(pc.bit_wise_xor(numbers, pc.shift_right(numbers, half)), _u64(_MIX_1))
    numbers = pc.multiply(pc.bit_wise_xor(numbers, pc.shift_right(numbers, half)), _u64(_MIX_2))
    return pc.bit_wise_xor(numbers, pc.shift_right(numbers, half))


def _u64(number: int) -> pa.UInt64Scalar:
    return pa.scalar(number, _U64)


# ------------------------------------------------------------------------------------------------- plain Python


def mix_number(number: int) -> int:
    """M of the formula above."""
    number = (number ^ number >> 33) * _MIX_1 & _MASK
    number = (number ^ number >> 33) * _MIX_2 & _MASK
    return number ^ number >> 33


def _hash_few(columns: Sequence[pa.Array]) -> pa.UInt64Array:
    hashes = _few_of_column(columns[0])
    for column in columns[1:]:
        further = _few_of_column(column)
        hashes = [mix_number(h * _BASE + w & _MASK) for h, w in zip(hashes, further, strict=True)]
    return pa.array(hashes, _U64)


def _few_of_column(column: pa.Array) -> list[int]:
    numbers = _as_int64(column)
    if numbers is not None:
        return [mix_number(number & _MASK) for number in numbers.to_pylist()]
    offsets, data = _offsets_and_bytes(column)
    view = memoryview(data).cast("B")  # pyarrow shows its bytes as signed ones
    return [_hash_few_bytes(view[offsets[row] : offsets[row + 1]]) for row in range(len(column))]


def _hash_few_bytes(data: memoryview) -> int:
    total = 0
    for byte in reversed(data):
        total = (total + byte) * _BASE & _MASK
    return mix_number(total + len(data) & _MASK)
