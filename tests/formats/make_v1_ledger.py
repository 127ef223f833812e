"""Makes the golden file of the ledger, once: `python -m tests.formats.make_v1_ledger [DIRECTORY]`.

records.ledger   a segment of a ledger: an epoch's beginning, then the records of a landing and one of every other kind,
                 in the writes in which landers, operators and upkeep write them

As in make_v1.py a file that is there is never made again, and the facts beside it are what is written here by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from headwater.frames.bodies import pack_epoch
from headwater.frames.frame import Kind
from tests.formats.golden_files import GoldenFile, make_missing, run_maker
from tests.formats.make_v1_journal import readable
from tests.formats.segments import CREATED_US, TOKEN, SegmentBuilder, segment_header

DIRECTORY = Path(__file__).parent / "v1_ledger"

TOPIC_ID, TABLE = bytes(range(16)).hex(), "sales.orders"
FIRST, SECOND, THIRD = (f"6b5bd1cf-4b9d-4a4b-9f6d-00000000000{number}" for number in (1, 2, 3))
TABLE_UUID = "0d4f7b52-6a0b-4f0e-9a3e-8e1d2c3b4a59"
OF_TOPIC = {"topic_id": TOPIC_ID, "table": TABLE}

WRITES: list[list[dict[str, Any]]] = [
    [
        {
            "is": "checked-catalog",
            "catalog": "headwater",
            "passed": True,
            "properties": {"raced": True, "late": True, "re-sent": False},
            "at_us": CREATED_US,
        }
    ],
    [{"is": "begun", **OF_TOPIC, "epoch": 1, "commit_id": FIRST, "at_us": CREATED_US + 1}],
    [
        {
            "is": "intended",
            **OF_TOPIC,
            "commit_id": FIRST,
            "base": None,
            "lsn_from": 0,
            "lsn_to": 17,
            "files": ["lake/sales/orders/data/00000-1000000-6b5bd1cf.parquet"],
            "at_us": CREATED_US + 2,
        }
    ],
    [
        {
            "is": "landed",
            "topic_id": TOPIC_ID,
            "topic": "orders",
            "table": TABLE,
            "table_uuid": TABLE_UUID,
            "commit_id": FIRST,
            "snapshot": 4_611_686_018_427_387_905,
            "lsn_from": 0,
            "lsn_to": 17,
            "rows": 70_000,
            "digest": [[[0, 0, 65_536, 0x0123456789ABCDEF], [0, 1, 4_464, 0xFEDCBA9876543210]]],
            "total": "ffffffffffffffff",
            "columns": [[1, "id", "long"], [2, "note", "string"]],
            "max_row_lsn": 16,
            "epoch": 1,
            "adopted": False,
            "at_us": CREATED_US + 3,
        },
        {"is": "ended", **OF_TOPIC, "commit_id": SECOND, "why": "lost", "at_us": CREATED_US + 3},
    ],
    [
        {
            "is": "verified",
            **OF_TOPIC,
            "commit_id": FIRST,
            "snapshot": 4_611_686_018_427_387_905,
            "lsn_to": 17,
            "mode": "read-back",
            "at_us": CREATED_US + 4,
        }
    ],
    [
        {
            "is": "landed",
            "topic_id": TOPIC_ID,
            "topic": "orders",
            "table": TABLE,
            "table_uuid": TABLE_UUID,
            "commit_id": THIRD,
            "snapshot": 7,
            "lsn_from": 17,
            "lsn_to": 20,
            "rows": 1,
            "digest": None,
            "total": "00000000000000ff",
            "columns": [],
            "max_row_lsn": 20,
            "epoch": 2,
            "adopted": True,
            "at_us": CREATED_US + 5,
        }
    ],
    [
        {
            "is": "halted",
            **OF_TOPIC,
            "cause": "gap",
            "message": "the table of 'orders' was rolled back or replaced",
            "at_us": CREATED_US + 6,
        }
    ],
    [
        {
            "is": "decided",
            **OF_TOPIC,
            "act": "after-rollback",
            "lsn": 17,
            "lsn_before": 20,
            "table_uuid": TABLE_UUID,
            "at_us": CREATED_US + 7,
        }
    ],
    [
        {
            "is": "merged",
            **OF_TOPIC,
            "commit_id": THIRD,
            "snapshot": 9,
            "lsn_from": 0,
            "lsn_to": 17,
            "at_us": CREATED_US + 8,
        },
        {"is": "kept", "table": TABLE, "what": "compacted", "detail": "12 files to 1", "at_us": CREATED_US + 9},
    ],
]
"""The bodies as maps, by the words of docs/formats/ledger.md, write by write."""


def built() -> SegmentBuilder:
    segment = SegmentBuilder(segment_header())
    segment.add(Kind.EPOCH, pack_epoch(1, TOKEN))
    for write in WRITES:
        for number, fields in enumerate(write):
            segment.add(Kind.LEDGER, msgspec.msgpack.encode(fields), write_index=number, write_count=len(write))
    return segment


def golden_files() -> Iterator[GoldenFile]:
    segment = built()
    bodies = [fields for write in WRITES for fields in write]
    records = [
        {"lsn": laid.facts["lsn"], "at": laid.at, "body": readable(fields)}
        for laid, fields in zip(segment.laid[1:], bodies, strict=True)
    ]
    about = "A segment of a ledger: an epoch's beginning, then one record of every kind."
    yield GoldenFile("records.ledger", bytes(segment.data), {"about": about, "records": records})


def main(directory: Path = DIRECTORY) -> list[Path]:
    return make_missing(golden_files(), directory)


if __name__ == "__main__":
    run_maker(main)
