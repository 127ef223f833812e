"""Arrow IPC that means harm: schemas that nobody asked for, bodies that lead astray, bodies that grow.

A message is a pair: its metadata (a flatbuffer) and its body, as Flight carries them (data_header, data_body).
Messages are made by Arrow from good rows and are then changed as bytes, so no invalid array is ever held here.
"""

from __future__ import annotations

import functools
import random
import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.hostile.mutations import LIES, bad_offsets, mutated

Message = tuple[bytes, bytes]

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("note", pa.string()),
        pa.field("tags", pa.list_(pa.field("element", pa.int32()))),
        pa.field("place", pa.struct([pa.field("x", pa.float64()), pa.field("name", pa.string())])),
        pa.field("raw", pa.binary()),
        pa.field("price", pa.decimal128(10, 2)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("ok", pa.bool_()),
    ]
)
"""Of the topic that is attacked: every sort of buffer that a topic can have."""

BOMB_BYTES = 24 << 20
"""What a bomb becomes: large enough to be seen in memory, small enough for many of them in a short run."""


def rows(chance: random.Random, count: int) -> pa.RecordBatch:
    made: list[dict[str, Any]] = [
        {
            "id": each,
            "note": chance.choice((None, "", "größe " * chance.randrange(4))),
            "tags": chance.choice((None, [], [1, None, 3])),
            "place": chance.choice((None, {"x": 0.5, "name": "here"})),
            "raw": chance.choice((None, chance.randbytes(5))),
            "price": Decimal(each) / 4 if each % 3 else None,
            "at": datetime(2026, 11, 15, tzinfo=UTC),
            "ok": each % 2 == 0,
        }
        for each in range(count)
    ]
    return pa.RecordBatch.from_pylist(made, schema=SCHEMA)


def messages(batch: pa.RecordBatch, compression: str | None = None) -> list[Message]:
    """The schema's message, and those of the batch (with dictionaries, if it has some)."""
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(stream_of(batch, compression)))
    return [(bytes(each.metadata), bytes(each.body)) for each in reader]


@functools.cache
def good_messages(seed: int, count: int, compression: str | None) -> list[Message]:
    """Messages of so many good rows, made once."""
    return messages(rows(random.Random(seed), count), compression)


def stream_of(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def joined(parts: list[Message]) -> bytes:
    """An IPC stream of these messages, whatever is in them."""
    out = bytearray()
    for metadata, body in parts:
        padded = metadata + b"\0" * (-len(metadata) % 8)
        out += struct.pack("<Ii", 0xFFFFFFFF, len(padded)) + padded + body
    return bytes(out) + b"\xff\xff\xff\xff\0\0\0\0"


def hostile_messages(chance: random.Random) -> list[Message]:
    """A schema and a batch, one of which is wrong in one of many ways."""
    kind = chance.choices(
        ("body", "metadata", "schema", "other schema", "nulls", "bomb", "order"), (6, 5, 3, 3, 1, 1, 2)
    )[0]
    if kind == "other schema":
        return messages(other_rows(chance))
    if kind == "nulls":
        return [good_messages(0, 1, None)[0], messages(null_keys())[1]]
    if kind == "bomb":
        return bomb(chance)
    compression = chance.choice((None, None, None, "zstd", "lz4"))
    parts = good_messages(chance.randrange(4), chance.choice((0, 1, 5, 60)), compression)
    (schema, nothing), (metadata, body) = parts
    if kind == "schema":
        return [(mutated(schema, chance), nothing), (metadata, body)]
    if kind == "metadata":
        return [(schema, nothing), (_lying(metadata, chance), body)]
    if kind == "body":
        return [(schema, nothing), (metadata, chance.choice((bad_offsets, mutated))(body, chance))]
    return chance.choice(
        (
            [parts[1], parts[0]],
            [parts[1]],
            [parts[0], parts[0], parts[1]],
            [parts[0], (metadata, b"")],
            [parts[0], (metadata, body[: len(body) // 2])],
            [parts[0], (metadata, body + b"\0" * 64)],
            [parts[0], (b"", body)],
            [parts[0], (schema, body)],
            [parts[0], *[parts[1]] * 5],
        )
    )


def hostile_stream(chance: random.Random) -> bytes:
    """The same as one run of bytes, cut and mutated too."""
    data = joined(hostile_messages(chance))
    what = chance.randrange(5)
    if what == 0:
        return mutated(data, chance)
    if what == 1:
        return data[: chance.randrange(len(data) + 1)]
    return data


def other_rows(chance: random.Random) -> pa.RecordBatch:
    """Good rows of a schema that the topic does not have."""
    numbers = pa.array([1, 2, 3])
    words = pa.array(["a", "b", "a"])
    made: list[tuple[str, pa.Array]] = [
        ("id", words.dictionary_encode()),
        ("id", words.cast(pa.string_view())),
        ("id", words.cast(pa.binary()).cast(pa.binary_view())),
        ("id", pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"u" * 16], pa.binary(16)))),
        ("id", pa.array([[1], [2, 3]], pa.list_view(pa.int64()))),
        ("id", pa.nulls(5)),
        ("id", pa.RunEndEncodedArray.from_arrays(pa.array([3], pa.int32()), pa.array([7]))),
        ("id", numbers.cast(pa.uint8())),
        ("\0" * 1_000, numbers),
        ("", numbers),
        ("id", deep(chance.choice((10, 40, 60)))),
    ]
    name, column = chance.choice(made)
    columns = chance.choice((1, 1, 1, 2, 500))
    size = chance.choice((1, 100_000 if columns < 3 else 100))
    metadata = {b"k" * 10: b"v" * size} if chance.random() < 0.3 else None
    fields = [pa.field(name, column.type, metadata=metadata)] * columns
    return pa.RecordBatch.from_arrays([column] * columns, schema=pa.schema(fields))


def deep(levels: int) -> pa.Array:
    """A list of lists of lists."""
    column = pa.array([1])
    for _ in range(levels):
        column = pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
    return column


def null_keys() -> pa.RecordBatch:
    """Null where none may be."""
    return pa.RecordBatch.from_arrays([pa.nulls(3, each.type) for each in SCHEMA], names=SCHEMA.names)


def bomb(chance: random.Random) -> list[Message]:
    """A few kilobytes that become BOMB_BYTES, or say that they become anything at all."""
    compression = chance.choice(("zstd", "lz4"))
    parts = good_messages(0, 20, compression)
    if chance.random() < 0.3:
        (_, (metadata, body)) = parts
        lie = chance.choice(LIES)
        # The first buffer of a compressed body begins with how many bytes it becomes; so do the others, behind it.
        out = bytearray(body)
        at = chance.randrange(max(len(out) // 64, 1)) * 64
        out[at : at + 8] = struct.pack("<q", lie)
        return [parts[0], (metadata, bytes(out))]
    return many_rows(compression) if chance.random() < 0.2 else large_messages(compression)


@functools.cache
def many_rows(compression: str) -> list[Message]:
    """One row more than a message may have."""
    count = (1 << 20) + 1
    columns = [pa.nulls(count, each.type) for each in SCHEMA]
    columns[0] = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(bytes(8 * count))])
    return messages(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), compression)


@functools.cache
def large_messages(compression: str) -> list[Message]:
    good = rows(random.Random(0), 20)
    note = pa.array([" " * BOMB_BYTES, *[None] * 19], pa.string())
    columns = [note if name == "note" else good.column(name) for name in SCHEMA.names]
    return messages(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), compression)


def _lying(metadata: bytes, chance: random.Random) -> bytes:
    """Lengths of nodes and places of buffers are 64-bit numbers of the flatbuffer, in its order."""
    if chance.random() < 0.3:
        return mutated(metadata, chance)
    out = bytearray(metadata)
    for _ in range(chance.choice((1, 1, 3))):
        at = chance.randrange(len(out) // 8) * 8
        struct.pack_into("<Q", out, at, chance.choice(LIES) & 0xFFFFFFFFFFFFFFFF)
    return bytes(out)
