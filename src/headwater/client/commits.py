"""A transaction as one message: rows as Arrow IPC, offsets and sources beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from headwater.client.preparing import ReadRows, ipc_bytes
from headwater.protocol.calls import Commit, TransactionOffset, TransactionRows, TransactionSource
from headwater.protocol.streams import WireIdentity
from headwater.topics.appending import Prepared
from headwater.topics.requests import GroupOffset, Identity, PartitionRows, SourceAt

ANYWHERE = -1
"""The partition of rows that the server is to place."""


@dataclass(frozen=True)
class ClientRows(PartitionRows):
    """Rows that were read here; the server finds their partitions."""

    rejected: pa.RecordBatch | None = None


def client_rows(taken: ReadRows, partition: int | None) -> Prepared:
    batch = taken.keys if taken.keys is not None else taken.batch
    assert batch is not None
    rejected = taken.rejected.num_rows if taken.rejected is not None else 0
    if not batch.num_rows and not rejected:
        return Prepared([], 0, 0)
    at = ANYWHERE if partition is None else partition
    rows = ClientRows(taken.topic, at, batch, tombstones=taken.keys is not None, rejected=taken.rejected)
    return Prepared([rows], batch.num_rows, rejected)


def commit_request(
    rows: Sequence[PartitionRows],
    groups: Sequence[GroupOffset],
    sources: Sequence[SourceAt],
    identity: Identity | None,
    expected: Mapping[int, int],
    id_of: Callable[[int], bytes],
) -> Commit:
    return Commit(
        rows=tuple(_wire_rows(each) for each in rows),
        offsets=tuple(
            TransactionOffset(
                each.group, id_of(each.topic_number), each.partition, each.offset, each.epoch, each.counter
            )
            for each in groups
        ),
        sources=tuple(TransactionSource(each.name, each.position, each.watermark_us) for each in sources),
        identity=None if identity is None else WireIdentity(*identity),
        expected=tuple((id_of(key >> 32), key & 0xFFFF_FFFF, offset) for key, offset in sorted(expected.items())),
    )


def _wire_rows(rows: PartitionRows) -> TransactionRows:
    rejected = rows.rejected if isinstance(rows, ClientRows) else None
    return TransactionRows(
        rows.topic.topic_id,
        ipc_bytes(rows.batch),
        partition=None if rows.partition == ANYWHERE else rows.partition,
        deletes=rows.tombstones,
        rejected=ipc_bytes(rejected),
    )
