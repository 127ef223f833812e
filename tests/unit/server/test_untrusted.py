"""Rows from anybody: hostile batches and hostile bytes are refused by name, and nothing is decoded to find that out."""

from __future__ import annotations

import struct
import tracemalloc
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from headwater.errors import InvalidRequest, TooLarge
from headwater.server.ipc_messages import END, MESSAGES_MAX
from headwater.server.settings import ServerLimits
from headwater.server.untrusted import check_schema, checked_batch, read_ipc
from headwater.settings import MIB
from headwater.topics.schema import normal_schema

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("note", pa.string()),
        pa.field("tags", pa.list_(pa.field("item", pa.string(), nullable=False))),
        pa.field("address", pa.struct([pa.field("zip", pa.int32(), nullable=False), pa.field("city", pa.string())])),
        pa.field("counts", pa.map_(pa.string(), pa.int64())),
        pa.field("price", pa.decimal128(10, 2)),
    ]
)
LIMITS = ServerLimits()
ROWS: list[dict[str, object]] = [
    {
        "id": 1,
        "note": "a",
        "tags": ["x", "y"],
        "address": {"zip": 1, "city": None},
        "counts": [("k", 1)],
        "price": None,
    },
    {"id": 2, "note": None, "tags": None, "address": None, "counts": None, "price": None},
    {"id": 3, "note": "ü" * 50, "tags": [], "address": {"zip": 2, "city": "z"}, "counts": [], "price": None},
]
NUMBERS = pa.schema([pa.field("id", pa.int64(), nullable=False)])
TEXTS = pa.schema([pa.field("text", pa.string())])


def batch_of(rows: list[dict[str, object]] | None = None) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(ROWS if rows is None else rows, schema=SCHEMA)


def stream(*batches: pa.RecordBatch, schema: pa.Schema | None = None, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    schema = batches[0].schema if schema is None else schema
    with pa.ipc.new_stream(sink, schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def zeroes(rows: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(np.zeros(rows, dtype=np.int64))], schema=NUMBERS)


# Batches --------------------------------------------------------------------------------------------------------------


def test_good_rows_come_out_as_they_went_in() -> None:
    batch = batch_of()

    assert checked_batch(batch, SCHEMA, LIMITS) is batch


def test_metadata_of_the_sender_is_not_kept() -> None:
    fields = [field.with_metadata({"evil": "x" * 100}) for field in SCHEMA]
    batch = pa.RecordBatch.from_arrays(batch_of().columns, schema=pa.schema(fields, metadata={"evil": "y"}))

    checked = checked_batch(batch, SCHEMA, LIMITS)

    assert checked.schema.equals(SCHEMA, check_metadata=True)
    assert checked.to_pylist() == batch_of().to_pylist()


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([]),
        pa.schema([pa.field("id", pa.int64())]),
        pa.schema([pa.field("id", pa.int32(), nullable=False)]),
        pa.schema([pa.field("Id", pa.int64(), nullable=False)]),
        pa.schema([pa.field("id", pa.dictionary(pa.int8(), pa.int64()), nullable=False)]),
        pa.schema([pa.field("id", pa.uint64(), nullable=False)]),
        pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("more", pa.int64())]),
    ],
)
def test_another_schema_is_refused(schema: pa.Schema) -> None:
    with pytest.raises(InvalidRequest):
        check_schema(schema, NUMBERS)
    with pytest.raises(InvalidRequest):
        checked_batch(pa.RecordBatch.from_pylist([], schema=schema), NUMBERS, LIMITS)


@pytest.mark.parametrize(
    "type_",
    [pa.string_view(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary(), pa.null(), pa.uuid()],
)
def test_another_encoding_of_the_same_values_is_refused(type_: pa.DataType) -> None:
    batch = pa.record_batch([pa.nulls(1, type_)], names=["text"])

    with pytest.raises(InvalidRequest, match="wanted=text string"):
        checked_batch(batch, TEXTS, LIMITS)


@pytest.mark.parametrize("nested", [False, True])
def test_a_name_that_is_no_text_is_refused_like_any_other(nested: bool) -> None:
    column = pa.field("namename", pa.int64())
    schema = pa.schema([pa.field("outer", pa.struct([column])) if nested else column])
    sent = pa.ipc.open_stream(stream(schema=schema).replace(b"namename", b"name\xff\xfe\xfd\xfc")).schema

    with pytest.raises(InvalidRequest, match="another schema"):
        check_schema(sent, schema)


def smuggled(batch: pa.RecordBatch, before: bytes, after: bytes) -> pa.RecordBatch:
    """The batch with some of its bytes changed on the way: reading a stream checks none of them."""
    data = stream(batch)
    assert before in data and len(before) == len(after)
    return pa.ipc.open_stream(data.replace(before, after)).read_next_batch()


@pytest.mark.parametrize(
    "offsets", [(0, 1 << 30, 10), (0, 7, 2), (-(1 << 30), 0, 10), (0, 5, 1 << 30), (0, 5, -1), (1, 5, 11)]
)
def test_offsets_that_lead_out_of_their_buffer_are_found_before_a_value_is_read(offsets: tuple[int, ...]) -> None:
    texts = pa.record_batch([["hello", "world"]], schema=TEXTS)
    batch = smuggled(texts, struct.pack("<3i", 0, 5, 10), struct.pack("<3i", *offsets))

    with pytest.raises(InvalidRequest, match="no valid Arrow"):
        checked_batch(batch, TEXTS, LIMITS)


def test_a_length_that_no_buffer_has_is_found() -> None:
    for rows in (12_346, 1_000_000):
        batch = smuggled(zeroes(12_345), struct.pack("<q", 12_345), struct.pack("<q", rows))
        assert batch.num_rows == rows

        with pytest.raises(InvalidRequest, match="no valid Arrow"):
            checked_batch(batch, NUMBERS, LIMITS)


def test_text_that_is_no_utf8_is_found() -> None:
    with pytest.raises(InvalidRequest, match="no valid Arrow"):
        checked_batch(smuggled(pa.record_batch([["hello"]], schema=TEXTS), b"hello", b"hel\xff\xfe"), TEXTS, LIMITS)


def test_a_count_of_nulls_that_lies_is_found() -> None:
    texts = pa.record_batch([["a", None, "b"]], schema=TEXTS)
    batch = smuggled(texts, struct.pack("<qq", 3, 1), struct.pack("<qq", 3, 2))

    with pytest.raises(InvalidRequest, match="no valid Arrow"):
        checked_batch(batch, TEXTS, LIMITS)


def test_a_null_where_none_may_be_is_refused_at_any_depth() -> None:
    nullable = pa.schema(
        [
            pa.field("id", pa.int64()),
            SCHEMA.field("note"),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("address", pa.struct([("zip", pa.int32()), ("city", pa.string())])),
            SCHEMA.field("counts"),
            SCHEMA.field("price"),
        ]
    )
    changes: list[dict[str, object]] = [{"id": None}, {"tags": ["x", None]}, {"address": {"zip": None, "city": "z"}}]
    for changed in changes:
        loose = pa.RecordBatch.from_pylist([{**ROWS[0], **changed}], schema=nullable)
        # The same buffers under the topic's own schema: nothing in Arrow's validation minds them.
        arrays = [
            pa.Array.from_buffers(
                field.type, 1, column.buffers()[: field.type.num_buffers], children=list(_children(column, field.type))
            )
            for column, field in zip(loose.columns, SCHEMA, strict=True)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        batch.validate(full=True)

        with pytest.raises(InvalidRequest, match="null") as refused:
            checked_batch(batch, SCHEMA, LIMITS)

        assert refused.value.facts == {"column": next(iter(changed))}
        assert checked_batch(batch, SCHEMA, LIMITS, nulls_in_any=True).num_rows == 1


def _children(column: pa.Array, type_: pa.DataType) -> list[pa.Array]:
    if pa.types.is_struct(type_):
        return [column.field(place) for place in range(type_.num_fields)]
    if pa.types.is_map(type_):
        return [pa.StructArray.from_arrays([column.keys, column.items], fields=[type_.key_field, type_.item_field])]
    return [column.values] if pa.types.is_list(type_) else []


def test_too_many_rows_and_too_many_bytes_are_refused() -> None:
    with pytest.raises(TooLarge, match="rows"):
        checked_batch(zeroes(11), NUMBERS, ServerLimits(rows_max=10))
    with pytest.raises(TooLarge, match="bytes"):
        checked_batch(zeroes(11), NUMBERS, ServerLimits(message_bytes_max=80))
    assert checked_batch(zeroes(10), NUMBERS, ServerLimits(rows_max=10, message_bytes_max=80)).num_rows == 10


def test_buffers_that_are_one_and_the_same_count_for_each_column() -> None:
    schema = pa.schema([pa.field(f"c{number}", pa.int64()) for number in range(100)])
    column = pa.array(np.zeros(1_000, dtype=np.int64))
    batch = pa.RecordBatch.from_arrays([column] * 100, schema=schema)
    assert batch.get_total_buffer_size() < 10_000

    with pytest.raises(TooLarge):
        checked_batch(batch, schema, ServerLimits(message_bytes_max=100_000))


# Bytes ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_a_stream_is_read_as_it_was_written(compression: str | None) -> None:
    batch = batch_of()

    found = read_ipc(stream(batch, batch, compression=compression), SCHEMA, LIMITS)

    assert [each.to_pylist() for each in found] == [batch.to_pylist()] * 2
    assert read_ipc(memoryview(stream(schema=SCHEMA)), SCHEMA, LIMITS) == []


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_bomb_is_refused_before_anything_of_it_is_decompressed(compression: str) -> None:
    bomb = stream(zeroes(12 * MIB), compression=compression)
    assert len(bomb) < 2 * MIB
    before = pa.total_allocated_bytes()

    for limits in (LIMITS, ServerLimits(message_bytes_max=1 << 40, rows_max=1 << 40, expansion_max=10)):
        with pytest.raises(TooLarge, match="would become"):
            read_ipc(bomb, NUMBERS, limits)

    assert pa.total_allocated_bytes() <= before


def test_honest_compression_is_no_bomb() -> None:
    batch = zeroes(100_000)
    packed = stream(batch, compression="zstd")
    assert batch.nbytes / len(packed) > LIMITS.expansion_max

    assert read_ipc(packed, NUMBERS, LIMITS)[0].num_rows == 100_000


def claimed(data: bytes, size: int) -> bytes:
    """A stream whose first compressed buffer says that it becomes `size` bytes."""
    place = data.index(struct.pack("<q", 800_000))
    return data[:place] + struct.pack("<q", size) + data[place + 8 :]


@pytest.mark.parametrize("size", [0, 1, 799_999, 800_001, 1 << 62, -2, -(1 << 63), 1 << 40, 81 * MIB])
def test_a_buffer_that_lies_about_its_size_is_refused(size: int) -> None:
    lie = claimed(stream(zeroes(100_000), compression="zstd"), size)

    with pytest.raises(InvalidRequest):
        read_ipc(lie, NUMBERS, LIMITS)


def test_all_buffers_of_a_batch_count_together_and_none_takes_anything_off() -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64())])
    column = pa.array(np.zeros(100_000, dtype=np.int64))
    packed = stream(pa.RecordBatch.from_arrays([column, column], schema=schema), compression="zstd")
    enough, too_little = (
        ServerLimits(message_bytes_max=size, expansion_max=1_000_000) for size in (1_600_000, 1_599_999)
    )

    assert read_ipc(packed, schema, enough)[0].num_rows == 100_000
    with pytest.raises(TooLarge, match="would become"):
        read_ipc(packed, schema, too_little)
    with pytest.raises(InvalidRequest, match="fewer than no bytes"):
        read_ipc(claimed(packed, -(1 << 62)), schema, too_little)


def test_a_stream_that_was_cut_anywhere_is_refused() -> None:
    whole = stream(batch_of(), batch_of())

    for length in range(len(whole)):
        with pytest.raises(InvalidRequest):
            read_ipc(whole[:length], SCHEMA, LIMITS)


@pytest.mark.parametrize("rest", [b"x", END, bytes(8), bytes(8) + END])
def test_bytes_after_the_end_are_refused(rest: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_ipc(stream(batch_of()) + rest, SCHEMA, LIMITS)


def test_other_messages_are_refused() -> None:
    dictionary = pa.record_batch([pa.array(["x"]).dictionary_encode()], names=["text"])
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(np.zeros(3)), sink)
    tensor = bytes(sink.getvalue())
    schema = stream(schema=NUMBERS).removesuffix(END)

    for data in (
        stream(dictionary),
        tensor + END,
        schema + tensor + END,
        schema + schema + END,
        stream(zeroes(1))[len(schema) :],
        END,
        b"",
    ):
        with pytest.raises(InvalidRequest):
            read_ipc(data, NUMBERS, LIMITS)


def test_the_other_endianness_is_refused_before_arrow_turns_anything() -> None:
    data = bytearray(stream(zeroes(2)))
    root = 8 + struct.unpack_from("<I", data, 8)[0]
    vtable = root - struct.unpack_from("<i", data, root)[0]
    header = root + struct.unpack_from("<H", data, vtable + 4 + 2 * 2)[0]
    table = header + struct.unpack_from("<I", data, header)[0]
    fields = table - struct.unpack_from("<i", data, table)[0]
    # Little is the default and not written; a table has room behind its first four bytes, where its fields' place is.
    struct.pack_into("<H", data, fields + 4, struct.unpack_from("<H", data, fields + 4 + 2)[0])

    with pytest.raises(InvalidRequest, match="the rows are of the other endianness"):
        read_ipc(bytes(data), NUMBERS, LIMITS)


def test_too_many_batches_are_refused() -> None:
    with pytest.raises(TooLarge, match="batches"):
        read_ipc(stream(*[zeroes(0)] * (MESSAGES_MAX + 1)), NUMBERS, LIMITS)
    assert len(read_ipc(stream(*[zeroes(0)] * MESSAGES_MAX), NUMBERS, LIMITS)) == MESSAGES_MAX


def test_rows_and_bytes_of_all_batches_are_counted_together() -> None:
    two = stream(zeroes(6), zeroes(6))

    with pytest.raises(TooLarge):
        read_ipc(two, NUMBERS, ServerLimits(rows_max=10))
    with pytest.raises(TooLarge):
        read_ipc(two, NUMBERS, ServerLimits(message_bytes_max=len(two) - 1))
    assert len(read_ipc(two, NUMBERS, ServerLimits(rows_max=12))) == 2


def mutated(data: bytes, chance: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 5, 20])):
        place = chance.randrange(len(changed))
        how = chance.randrange(5)
        if how == 0:
            changed[place] ^= 1 << chance.randrange(8)
        elif how == 1:
            number = chance.choice([0, 1, -1, 1 << 31, (1 << 31) - 1, 1 << 62, -(1 << 63), 8, 1 << 20])
            changed[place : place + 8] = struct.pack("<q", number)[: len(changed) - place]
        elif how == 2:
            del changed[place : place + chance.randrange(1, 64)]
        elif how == 3:
            changed[place:place] = chance.randbytes(chance.randrange(1, 32))
        else:
            other = chance.randrange(len(changed))
            changed[place : place + 16] = changed[other : other + 16]
        if not changed:
            return b""
    return bytes(changed)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_comes_in_the_answer_is_rows_or_a_refusal(seed: int) -> None:
    chance = Random(seed)
    good = [stream(batch_of(), compression=compression) for compression in (None, "zstd", "lz4")]
    read = refused = longest = 0
    tracemalloc.start()
    try:
        for _ in range(1_000):
            data = mutated(chance.choice(good), chance)
            try:
                for batch in read_ipc(data, SCHEMA, LIMITS):
                    batch.to_pylist()
                read += 1
            except InvalidRequest as error:
                longest = max(longest, len(str(error)))
                refused += 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert refused > 500 and read > 5, "both kinds were met"
    assert longest < 1_000, "what came in is not told back at length"
    assert peak < 64 * MIB and pa.total_allocated_bytes() < 64 * MIB


def test_the_schemas_of_these_tests_are_schemas_of_topics() -> None:
    for schema in (SCHEMA, NUMBERS, TEXTS):
        assert normal_schema(schema).equals(schema)
