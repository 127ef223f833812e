"""Makes the golden files of records and rows, once: `python -m tests.formats.make_v1_records [DIRECTORY]`.

records.seg     a segment of a shard's log: a producer begins, an append with its schema and sequences, deletes, and a
                transaction with a group's offsets and a source's position
rewritten.seg   the same after a compaction: one frame of rows is sparse

As in make_v1.py a file that is there is never made again, and the facts beside it are what is written here by hand:
a later pyarrow may lay the same rows out in other bytes, and must read these.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from headwater.frames.bodies import pack_epoch
from headwater.frames.frame import Flag, Kind
from headwater.frames.segment_header import SegmentHeader
from tests.formats.golden_files import GoldenFile, make_missing, run_maker
from tests.formats.make_v1_journal import readable
from tests.formats.segments import CREATED_US, TOKEN, SegmentBuilder, segment_header

DIRECTORY = Path(__file__).parent / "v1_records"

TOPIC_ID = bytes(range(16))
KEY = bytes.fromhex("6b6579206f6620612072657175657374")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("note", pa.string())])

RECORDS: dict[str, Any] = {
    "PRODUCER": {"producer_id": 1, "epoch": 1, "name": "loader-1"},
    "SCHEMA": {
        "name": "orders",
        "topic_id": TOPIC_ID,
        "version": 1,
        "schema": SCHEMA.serialize().to_pybytes(),
        "partitions": 4,
        "created_us": CREATED_US,
        "key": ["id"],
        "time_column": None,
    },
    "SEQUENCES": [
        [1, 1, 0, b"", [[1, 2, 0, 2]]],
        [0, 0, 0, KEY, [[1, 2, 2, 1]]],
    ],
    "OFFSETS": {"group": "billing", "topic_number": 1, "offsets": [[2, 3, 1, 7]]},
    "SOURCE": {"name": "pg", "position": {"lsn": "0/16B3748"}, "watermark_us": CREATED_US + 5},
}
"""The bodies as values, by the words of docs/formats/records.md; one of every kind."""

APPENDED: list[dict[str, Any]] = [{"id": 10, "note": "a"}, {"id": 11, "note": None}, {"id": 12, "note": "ccc"}]
DELETED: list[dict[str, Any]] = [{"id": 10, "note": None}]
LAST: list[dict[str, Any]] = [{"id": 13, "note": "d"}]
LEFT = [APPENDED[1], APPENDED[2]]
LEFT_OFFSETS = [1, 2]


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def body_of(rows: list[dict[str, Any]]) -> bytes:
    return bytes(batch(rows).serialize().to_pybytes())


def sparse_body(rows: list[dict[str, Any]], offsets: list[int]) -> bytes:
    field = pa.field("_hw_offset", pa.int64(), nullable=False)
    return bytes(batch(rows).append_column(field, pa.array(offsets, pa.int64())).serialize().to_pybytes())


def built() -> SegmentBuilder:
    segment = SegmentBuilder(segment_header())

    def record(kind: str, index: int = 0, count: int = 1, topic_number: int = 0, schema_version: int = 0) -> None:
        segment.add(
            Kind[kind], msgspec.msgpack.encode(RECORDS[kind]), write_index=index, write_count=count,
            topic_number=topic_number, schema_version=schema_version,
        )  # fmt: skip

    def rows(given: list[dict[str, Any]], base_offset: int, index: int = 0, count: int = 1, flags: int = 0) -> None:
        segment.add(
            Kind.DATA, body_of(given), topic_number=1, partition=2, base_offset=base_offset, row_count=len(given),
            schema_version=1, write_index=index, write_count=count, flags=flags,
        )  # fmt: skip

    segment.add(Kind.EPOCH, pack_epoch(1, TOKEN))
    record("PRODUCER")
    record("SCHEMA", 0, 3, topic_number=1, schema_version=1)
    record("SEQUENCES", 1, 3)
    rows(APPENDED, 0, 2, 3)
    rows(DELETED, 3, flags=Flag.TOMBSTONES)
    rows(LAST, 4, 0, 3, flags=Flag.TRANSACTION)
    record("OFFSETS", 1, 3)
    record("SOURCE", 2, 3)
    return segment


def rewritten(old: SegmentBuilder) -> SegmentBuilder:
    """The same after a compaction: the first of the appended rows is gone, because a delete of its key came later."""
    segment = old.segment
    made = SegmentBuilder(
        SegmentHeader(
            log_id=segment.log_id,
            salt=segment.salt,
            first_lsn=segment.first_lsn,
            prev=segment.prev,
            epoch=segment.epoch,
            created_us=segment.created_us + 60_000_000,
            generation=1,
            last_lsn=old.laid[-1].facts["lsn"],
            old_chain=old.segment_chain,
        )
    )
    for frame in old.laid:
        facts = frame.facts
        if facts["kind"] == Kind.DATA and facts["base_offset"] == 0:
            same = ("topic_number", "partition", "base_offset", "offset_count", "schema_version", "write_index")
            made.add(
                Kind.SPARSE, sparse_body(LEFT, LEFT_OFFSETS), replaces=frame.chain, lsn=facts["lsn"],
                row_count=len(LEFT), write_count=facts["write_count"], append_time_us=facts["append_time_us"],
                durable_lsn=facts["durable_lsn"], **{name: facts[name] for name in same},
            )  # fmt: skip
        else:
            made.copy(old, frame)
    return made


def facts_of(segment: SegmentBuilder, rows: list[dict[str, Any]]) -> dict[str, Any]:
    records = [
        {
            "lsn": laid.facts["lsn"],
            "at": laid.at,
            "kind": Kind(laid.facts["kind"]).name,
            "body": readable(RECORDS[name]),
        }
        for laid in segment.laid
        if (name := Kind(laid.facts["kind"]).name) in RECORDS
    ]
    return {"records": records, "rows": rows}


def golden_files() -> Iterator[GoldenFile]:
    segment = built()
    appended = {"lsn": 5, "kind": "DATA", "flags": 0, "offsets": [0, 1, 2], "rows": APPENDED}
    others: list[dict[str, Any]] = [
        {"lsn": 6, "kind": "DATA", "flags": int(Flag.TOMBSTONES), "offsets": [3], "rows": DELETED},
        {"lsn": 7, "kind": "DATA", "flags": int(Flag.TRANSACTION), "offsets": [4], "rows": LAST},
    ]
    about = "One record of every kind, rows, deletes and a transaction."
    yield GoldenFile("records.seg", bytes(segment.data), {"about": about, **facts_of(segment, [appended, *others])})
    again = rewritten(segment)
    left = {"lsn": 5, "kind": "SPARSE", "flags": int(Flag.REWRITTEN), "offsets": LEFT_OFFSETS, "rows": LEFT}
    about = "records.seg after a compaction: a frame of rows is sparse, all others are as they were."
    yield GoldenFile("rewritten.seg", bytes(again.data), {"about": about, **facts_of(again, [left, *others])})


def main(directory: Path = DIRECTORY) -> list[Path]:
    return make_missing(golden_files(), directory)


if __name__ == "__main__":
    run_maker(main)
