"""The bodies of the log's frames that are not rows: schemas, producers, sequences, committed offsets, source positions.

Each is one msgpack value of the struct below (docs/formats/records.md): arrays where many stand in one body, maps where
a person or another program will look at one.  A map with a field that is not known here is refused: a version that
adds one takes a new kind or a feature bit.

kind       body
SCHEMA     SchemaRecord, a map: all that is needed to read the topic's rows, before the first of them in a segment
PRODUCER   ProducerRecord, a map: a producer begins its next epoch
SEQUENCES  an array of SequenceEntry: the requests of this write that can be told again, and where their rows are
OFFSETS    OffsetsRecord, a map: how far a group has come in a topic
SOURCE     SourceRecord, a map: how far an outside source has been taken in
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from headwater.errors import CorruptData

T = TypeVar("T")


class SchemaRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A schema version of a topic, with what is needed to make the topic known again."""

    name: str
    topic_id: bytes
    version: int
    schema: bytes
    partitions: int
    created_us: int
    key: tuple[str, ...] = ()
    time_column: str | None = None


class ProducerRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A producer, by name, begins an epoch."""

    producer_id: int
    epoch: int
    name: str


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Rows of one request in one partition."""

    topic_number: int
    partition: int
    base_offset: int
    rows: int


class SequenceEntry(msgspec.Struct, frozen=True, array_like=True):
    """One request that can be told again: by its producer's sequence number, by its key, or by both."""

    producer_id: int
    epoch: int
    sequence: int
    key: bytes
    """128 bits of the caller's idempotency key; empty: none."""
    parts: tuple[Part, ...]


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """The offset from which a group reads on in a partition, under the generation of the lease that committed it."""

    partition: int
    offset: int
    epoch: int
    counter: int


class OffsetsRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group: str
    topic_number: int
    offsets: tuple[CommittedOffset, ...]


class SourceRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A source's position, in whatever form its reader keeps it (any msgpack value), and its event-time watermark."""

    name: str
    position: Any
    watermark_us: int | None = None


_ENCODER = msgspec.msgpack.Encoder()
_SCHEMA = msgspec.msgpack.Decoder(SchemaRecord)
_PRODUCER = msgspec.msgpack.Decoder(ProducerRecord)
_SEQUENCES = msgspec.msgpack.Decoder(tuple[SequenceEntry, ...])
_OFFSETS = msgspec.msgpack.Decoder(OffsetsRecord)
_SOURCE = msgspec.msgpack.Decoder(SourceRecord)


def pack_record(
    record: SchemaRecord | ProducerRecord | OffsetsRecord | SourceRecord | tuple[SequenceEntry, ...],
) -> bytes:
    return _ENCODER.encode(record)


def unpack_schema_record(body: memoryview | bytes) -> SchemaRecord:
    return _unpack(_SCHEMA, body)


def unpack_producer(body: memoryview | bytes) -> ProducerRecord:
    return _unpack(_PRODUCER, body)


def unpack_sequences(body: memoryview | bytes) -> tuple[SequenceEntry, ...]:
    return _unpack(_SEQUENCES, body)


def unpack_offsets(body: memoryview | bytes) -> OffsetsRecord:
    return _unpack(_OFFSETS, body)


def unpack_source(body: memoryview | bytes) -> SourceRecord:
    return _unpack(_SOURCE, body)


def _unpack(decoder: msgspec.msgpack.Decoder[T], body: memoryview | bytes) -> T:
    try:
        return decoder.decode(body)
    except msgspec.DecodeError as error:
        # Its checksum held, so another version wrote it, or a mistake of ours did.
        raise CorruptData(f"a record that cannot be read: {error}; run `headwater log verify`") from error
