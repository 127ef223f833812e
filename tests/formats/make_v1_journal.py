"""Makes the golden files of the metadata journal, once: `python -m tests.formats.make_v1_journal [DIRECTORY]`.

operations.journal   a segment of a journal: an epoch's beginning, then one write with one operation of every kind
operations.ckpt      the journal's checkpoint after it, with the chain value of its last frame

As in make_v1.py a file that is there is never made again, and the facts beside it are what is written here by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from headwater.frames.bodies import pack_epoch
from headwater.frames.frame import Kind
from headwater.metadata.checkpoint import Checkpoint, CheckpointKind, pack_checkpoint
from headwater.metadata.state import MetadataState
from tests.formats.golden_files import GoldenFile, make_missing, run_maker
from tests.formats.segments import CREATED_US, TOKEN, SegmentBuilder, segment_header

DIRECTORY = Path(__file__).parent / "v1_journal"

ID_1, ID_2 = bytes(range(16)), bytes(range(16, 32))

OPERATIONS: list[dict[str, Any]] = [
    {
        "op": "create_topic",
        "topic": {
            "number": 1,
            "name": "orders",
            "topic_id": ID_1,
            "created_us": CREATED_US,
            "schemas": [b"an Arrow schema"],
            "partitions": 4,
            "key": ["id"],
            "time_column": "created_at",
            "policy": {
                "cleanup": "both",
                "retention_s": 604800.0,
                "retention_bytes": None,
                "tombstones_s": 86400.0,
                "changes_retention_s": 2592000.0,
            },
            "table": None,
        },
    },
    {"op": "add_schema", "number": 1, "version": 2, "schema": b"a wider one"},
    {"op": "add_partitions", "number": 1, "partitions": 8},
    {
        "op": "set_policy",
        "number": 1,
        "policy": {
            "cleanup": "compact",
            "retention_s": None,
            "retention_bytes": 1073741824,
            "tombstones_s": 3600.0,
            "changes_retention_s": 2592000.0,
        },
    },
    {"op": "set_table", "number": 1, "table": "sales.orders"},
    {
        "op": "create_topic",
        "topic": {
            "number": 2,
            "name": "clicks",
            "topic_id": ID_2,
            "created_us": CREATED_US,
            "schemas": [b"another"],
            "partitions": 1,
        },
    },
    {"op": "delete_topic", "number": 2, "deleted_us": CREATED_US + 5},
    {"op": "forget_topics", "numbers": [2]},
    {"op": "create_group", "name": "billing", "created_us": CREATED_US + 6},
    {"op": "create_group", "name": "audit", "created_us": CREATED_US + 7},
    {"op": "delete_group", "name": "audit"},
    {"op": "set_log_start", "lsn": 17, "segments": ["00000000000000000001.0.seg"]},
]
"""The bodies as maps, by the words of docs/formats/journal.md; what has a default may be left out."""

AFTERWARDS: dict[str, Any] = {
    "lsn": 13,
    "log_start": 17,
    "next_topic_number": 3,
    "topics": [
        {
            **OPERATIONS[0]["topic"],
            "schemas": [b"an Arrow schema", b"a wider one"],
            "partitions": 8,
            "policy": OPERATIONS[3]["policy"],
            "table": "sales.orders",
        }
    ],
    "deleted": [],
    "groups": [{"name": "billing", "created_us": CREATED_US + 6}],
}
"""The state that they make."""


def built() -> SegmentBuilder:
    segment = SegmentBuilder(segment_header())
    segment.add(Kind.EPOCH, pack_epoch(1, TOKEN))
    for number, fields in enumerate(OPERATIONS):
        segment.add(Kind.METADATA, msgspec.msgpack.encode(fields), write_index=number, write_count=len(OPERATIONS))
    return segment


def readable(value: Any) -> Any:
    """The same with bytes as hex, for JSON."""
    if isinstance(value, dict):
        return {key: readable(each) for key, each in value.items()}
    if isinstance(value, list):
        return [readable(each) for each in value]
    return value.hex() if isinstance(value, bytes) else value


def golden_files() -> Iterator[GoldenFile]:
    segment = built()
    operations = [
        {"lsn": laid.facts["lsn"], "at": laid.at, "body": readable(fields)}
        for laid, fields in zip(segment.laid[1:], OPERATIONS, strict=True)
    ]
    about = "A segment of a journal: an epoch's beginning, then one write with one operation of every kind."
    yield GoldenFile("operations.journal", bytes(segment.data), {"about": about, "operations": operations})
    state = MetadataState.unpack(msgspec.msgpack.encode(AFTERWARDS))
    checkpoint = Checkpoint(CheckpointKind.JOURNAL, 13, segment.chain, 13, CREATED_US + 9, state.pack())
    facts = {
        "about": "The journal's checkpoint after operations.journal.",
        "kind": 1,
        "lsn": 13,
        "chain": f"{segment.chain:016x}",
        "journal_lsn": 13,
        "created_us": CREATED_US + 9,
        "state": readable(AFTERWARDS),
    }
    yield GoldenFile("operations.ckpt", pack_checkpoint(checkpoint), facts)


def main(directory: Path = DIRECTORY) -> list[Path]:
    return make_missing(golden_files(), directory)


if __name__ == "__main__":
    run_maker(main)
