"""Records of the log: what is packed is unpacked as it was, and what another version wrote is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from headwater.errors import CorruptData
from headwater.metadata.records import (
    CommittedOffset,
    OffsetsRecord,
    Part,
    ProducerRecord,
    SchemaRecord,
    SequenceEntry,
    SourceRecord,
    pack_record,
    unpack_offsets,
    unpack_producer,
    unpack_schema_record,
    unpack_sequences,
    unpack_source,
)

SCHEMA = SchemaRecord("orders", bytes(16), 2, b"an Arrow schema", 4, 1_700, ("id",), "created_at")
PRODUCER = ProducerRecord(7, 3, "loader-1")
SEQUENCES = (
    SequenceEntry(7, 3, 41, b"", (Part(1, 0, 100, 2), Part(1, 3, 7, 1))),
    SequenceEntry(0, 0, 0, bytes(range(16)), (Part(2, 0, 0, 1),)),
)
OFFSETS = OffsetsRecord("billing", 1, (CommittedOffset(0, 100, 2, 9), CommittedOffset(3, 8, 2, 10)))
SOURCE = SourceRecord("pg", {"lsn": "0/16B3748", "seen": [1, 2]}, 1_699)

RECORDS: list[tuple[Any, Callable[[bytes], Any]]] = [
    (SCHEMA, unpack_schema_record),
    (PRODUCER, unpack_producer),
    (SEQUENCES, unpack_sequences),
    (OFFSETS, unpack_offsets),
    (SOURCE, unpack_source),
]


@pytest.mark.parametrize(("record", "unpack"), RECORDS)
def test_a_record_is_unpacked_as_it_was_packed(record: Any, unpack: Callable[[Any], Any]) -> None:
    body = pack_record(record)

    assert unpack(body) == record
    assert unpack(memoryview(body)) == record


@pytest.mark.parametrize(("record", "unpack"), RECORDS)
def test_a_record_that_is_cut_short_is_corrupt_data(record: Any, unpack: Callable[[bytes], Any]) -> None:
    with pytest.raises(CorruptData, match="log verify"):
        unpack(pack_record(record)[:-1])


@pytest.mark.parametrize(("record", "unpack"), [pair for pair in RECORDS if not isinstance(pair[0], tuple)])
def test_a_map_with_a_field_that_is_not_known_is_refused(record: Any, unpack: Callable[[bytes], Any]) -> None:
    fields = msgspec.msgpack.decode(pack_record(record))

    with pytest.raises(CorruptData, match="unknown field `later`"):
        unpack(msgspec.msgpack.encode({**fields, "later": 1}))


@pytest.mark.parametrize(("record", "unpack"), RECORDS)
def test_a_record_of_another_kind_is_refused(record: Any, unpack: Callable[[bytes], Any]) -> None:
    for other, _ in RECORDS:
        if other is not record:
            with pytest.raises(CorruptData):
                unpack(pack_record(other))


def test_what_has_a_default_may_be_left_out() -> None:
    body = msgspec.msgpack.encode(
        {"name": "a", "topic_id": bytes(16), "version": 1, "schema": b"", "partitions": 1, "created_us": 0}
    )

    assert unpack_schema_record(body) == SchemaRecord("a", bytes(16), 1, b"", 1, 0)
    assert unpack_source(msgspec.msgpack.encode({"name": "a", "position": None})) == SourceRecord("a", None)
