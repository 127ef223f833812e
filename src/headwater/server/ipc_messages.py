"""An Arrow IPC stream as its messages, and what they say of themselves, read before anything is decoded.

    stream    schema message, record batch messages, the end marker (FF FF FF FF 00 00 00 00), and nothing after it
    message   its metadata is a flatbuffer (org.apache.arrow.flatbuf.Message), its body is the buffers

    Message      0 version   1 header type   2 header   3 body length   4 custom metadata
    RecordBatch  0 length    1 nodes         2 buffers (position, length: two int64 each)   3 compression
    Schema       0 endianness (int16, 0 is little)      1 fields        2 custom metadata
    A buffer of a compressed body begins with an int64: how many bytes it becomes; -1 means that it is not compressed.

PROMISE  Every position is checked against the bytes that are there; what leads out of them is InvalidRequest.
         A body that says it would become too large is TooLarge before one byte of it is decompressed.  A decompressor
         gets exactly the room that the buffer asked for, so a buffer that says too little is an error, not more bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from headwater.errors import InvalidRequest, TooLarge
from headwater.server.settings import ServerLimits

MESSAGES_MAX = 4_096
"""Of one stream, without the schema."""
END = b"\xff\xff\xff\xff\x00\x00\x00\x00"
NOT_COMPRESSED = -1
FREE_BYTES = 1 << 20
"""So much may come out of any message: a column of zeroes is compressed a thousandfold, and a short one is no bomb."""

_SCHEMA, _RECORD_BATCH = "schema", "record batch"
_HEADER_SLOT, _BUFFERS_SLOT, _COMPRESSION_SLOT, _ENDIANNESS_SLOT = 2, 2, 3, 0
_BUFFER_BYTES = 16


def messages_of(data: bytes | memoryview) -> Iterator[pa.ipc.Message]:
    """The schema's message, then those of the batches.  Raises what pyarrow does on bytes that are no messages."""
    if bytes(data[-len(END) :]) != END:
        raise InvalidRequest("an Arrow IPC stream ends with its end marker: this one was cut, or is none")
    source = pa.BufferReader(data)
    reader = pa.ipc.MessageReader.open_stream(source)
    for number in range(MESSAGES_MAX + 2):
        try:
            message = reader.read_next_message()
        except StopIteration:
            if not number:
                raise InvalidRequest("an Arrow IPC stream begins with a schema") from None
            if source.tell() != len(data):
                raise InvalidRequest("bytes follow the end of an Arrow IPC stream") from None
            return
        wanted = _RECORD_BATCH if number else _SCHEMA
        if message.type != wanted:
            raise InvalidRequest(f"an Arrow IPC stream holds a schema, then batches: a {message.type} is neither")
        yield message
    raise TooLarge("an Arrow IPC stream has too many batches: join them", batches_max=MESSAGES_MAX)


def check_schema_message(message: pa.ipc.Message) -> None:
    """InvalidRequest where the bytes are of the other endianness: Arrow would turn them before they are checked."""
    metadata = memoryview(message.metadata)
    header = _table_in(metadata, _root(metadata), _HEADER_SLOT)
    if header is None:
        raise InvalidRequest("a message without its header")
    place = _slot(metadata, header, _ENDIANNESS_SLOT)
    if place is not None and _number(metadata, place, "<h"):
        raise InvalidRequest("the rows are of the other endianness")


def check_compression(message: pa.ipc.Message, limits: ServerLimits) -> None:
    """TooLarge where the body of a record batch would become too large."""
    metadata = memoryview(message.metadata)
    header = _table_in(metadata, _root(metadata), _HEADER_SLOT)
    if header is None:
        raise InvalidRequest("a message without its header")
    if _slot(metadata, header, _COMPRESSION_SLOT) is None:
        return
    body = memoryview(message.body)
    sent = len(metadata) + len(body)
    allowed = min(max(sent * limits.expansion_max, FREE_BYTES), limits.message_bytes_max)
    total = 0
    for position, length in _buffers(metadata, header):
        total += _grown(body, position, length)
        if total > allowed:
            raise TooLarge(
                "compressed rows would become too large: send them in parts",
                sent_bytes=sent,
                bytes_max=allowed,
                at_least=total,
            )


def _grown(body: memoryview, position: int, length: int) -> int:
    """How many bytes a buffer of a compressed body becomes."""
    if length == 0:
        return 0
    if position < 0 or length < 8 or position + length > len(body):
        raise InvalidRequest("a buffer leads out of its message", position=position, length=length, body=len(body))
    size = _number(body, position, "<q")
    if size == NOT_COMPRESSED:
        return length - 8
    if size < 0:
        raise InvalidRequest("a buffer becomes fewer than no bytes", bytes=size)
    return size


def _buffers(metadata: memoryview, header: int) -> Iterator[tuple[int, int]]:
    place = _slot(metadata, header, _BUFFERS_SLOT)
    if place is None:
        return
    vector = place + _number(metadata, place, "<I")
    count = _number(metadata, vector, "<I")
    start = vector + 4
    if start + count * _BUFFER_BYTES > len(metadata):
        raise InvalidRequest("a list of buffers leads out of its message", buffers=count)
    for number in range(count):
        at = start + number * _BUFFER_BYTES
        yield _number(metadata, at, "<q"), _number(metadata, at + 8, "<q")


# Flatbuffers: a table begins with the distance back to its vtable, which says where each field lies. -----------------


def _root(data: memoryview) -> int:
    return _number(data, 0, "<I")


def _slot(data: memoryview, table: int, slot: int) -> int | None:
    """Where a field of a table lies; None where it has none."""
    vtable = table - _number(data, table, "<i")
    if vtable < 0:
        raise InvalidRequest("a flatbuffer leads out of its bytes")
    at = 4 + 2 * slot
    if at + 2 > _number(data, vtable, "<H"):
        return None
    distance = _number(data, vtable + at, "<H")
    return table + distance if distance else None


def _table_in(data: memoryview, table: int, slot: int) -> int | None:
    place = _slot(data, table, slot)
    return None if place is None else place + _number(data, place, "<I")


def _number(data: memoryview, position: int, form: str) -> int:
    if position < 0 or position + struct.calcsize(form) > len(data):
        raise InvalidRequest("a flatbuffer leads out of its bytes")
    number: int = struct.unpack_from(form, data, position)[0]
    return number
