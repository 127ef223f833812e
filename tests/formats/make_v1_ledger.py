"""Makes the golden files of the ledger, once: `python -m tests.formats.make_v1_ledger [DIRECTORY]`.

records.ledger   a segment of a ledger: an epoch's beginning, then the records of a landing and of those around it, in
                 the writes in which landers, operators and upkeep write them; a landing does not say its offsets
checks.ledger    the same of what came later: a landing that says them, an audit, an erasure, a table of a lost log

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

Writes = list[list[dict[str, Any]]]

CHECKS: Writes = [
    [
        {
            "is": "restored",
            "topic_id": TOPIC_ID,
            "topic": "orders",
            "table": TABLE,
            "table_uuid": TABLE_UUID,
            "log_id_before": "1f" * 16,
            "snapshot": 11,
            "lsn_before": 20,
            "lsn_to": (1 << 32) - 1,
            "rows": 2,
            "digest": [[[0, 0, 2, 0x00000000000000FF]]],
            "columns": [[1, "id", "long"]],
            "offsets": [[0, 0, 1]],
            "max_row_lsn": 19,
            "at_us": CREATED_US + 10,
        }
    ],
    [
        {
            **{name: value for name, value in WRITES[3][0].items() if name != "at_us"},
            "lsn_from": (1 << 32) - 1,
            "lsn_to": (1 << 32) + 8,
            "max_row_lsn": (1 << 32) + 8,
            "offsets": [[0, 2, 70_001]],
            "at_us": CREATED_US + 11,
        }
    ],
    [
        {
            "is": "audited",
            **OF_TOPIC,
            "table_uuid": TABLE_UUID,
            "snapshot": 4_611_686_018_427_387_905,
            "lsn_to": (1 << 32) + 8,
            "rows": 70_002,
            "full": True,
            "passed": False,
            "differences": 3,
            "state_snapshot": None,
            "at_us": CREATED_US + 12,
        }
    ],
    [
        {
            "is": "erased",
            "topic_id": TOPIC_ID,
            "topic": "orders",
            "table": TABLE,
            "erasure_id": SECOND,
            "reason": "asked for",
            "condition_hash": "ab" * 32,
            "lsn_to": (1 << 32) + 8,
            "rows": 2,
            "offsets": [[0, 7, 8]],
            "parts": [
                {
                    "columns": [[1, "id", "long"], [2, "note", "string"]],
                    "digest": [[[0, 0, 2, 0x0123456789ABCDEF]]],
                }
            ],
            "done": ["table", "snapshots", "log"],
            "at_us": CREATED_US + 13,
        }
    ],
]


def built(writes: Writes = WRITES) -> SegmentBuilder:
    segment = SegmentBuilder(segment_header())
    segment.add(Kind.EPOCH, pack_epoch(1, TOKEN))
    for write in writes:
        for number, fields in enumerate(write):
            segment.add(Kind.LEDGER, msgspec.msgpack.encode(fields), write_index=number, write_count=len(write))
    return segment


def golden_files() -> Iterator[GoldenFile]:
    first = "A segment of a ledger: an epoch's beginning, then one record of every kind."
    later = "A segment of a ledger: an epoch's beginning, then what restores, audits and erasures write."
    for name, writes, about in (("records.ledger", WRITES, first), ("checks.ledger", CHECKS, later)):
        segment = built(writes)
        bodies = [fields for write in writes for fields in write]
        records = [
            {"lsn": laid.facts["lsn"], "at": laid.at, "body": readable(fields)}
            for laid, fields in zip(segment.laid[1:], bodies, strict=True)
        ]
        yield GoldenFile(name, bytes(segment.data), {"about": about, "records": records})


def main(directory: Path = DIRECTORY) -> list[Path]:
    return make_missing(golden_files(), directory)


if __name__ == "__main__":
    run_maker(main)
