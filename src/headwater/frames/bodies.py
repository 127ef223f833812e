"""The bodies that the log itself writes: an epoch's beginning, and a gap.

EPOCH, 24 bytes: epoch u32, zero u32, owner token 16 bytes.  The first frame of each life of the writer.

GAP, 40 bytes and 16 a partition: first LSN u64, last LSN u64, frames u64, reason u32, partitions u32; then for each
partition topic u32, partition u32, next offset u64; then the chain value u64.
It stands for the frames from first to last, which are gone.  Its own LSN is the last one it stands for;
it begins at the previous frame's LSN + 1; the frame after it has its LSN + 1 and, as `prev`, the chain
value that it carries.  `frames` counts those removed.  The partitions are those whose rows were removed, sorted, with
the offset after the last row: offsets are never given out twice, also where a log has forgotten the rows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

_EPOCH = struct.Struct("<II16s")
_GAP = struct.Struct("<QQQII")
_PARTITION = struct.Struct("<IIQ")
_CHAIN = struct.Struct("<Q")

GAP_BODY_BYTES = _GAP.size + _CHAIN.size
"""Of a gap in which no partition has lost rows."""


class GapReason(IntEnum):
    """Why the frames of a gap are gone."""

    DRAINED = 1
    COMPACTED = 2
    DAMAGED = 3
    ERASED = 4


@dataclass(frozen=True)
class Gap:
    first_lsn: int
    last_lsn: int
    frames: int
    reason: int
    chain: int
    next_offsets: tuple[tuple[int, int, int], ...] = ()
    """(topic, partition, next offset) of each partition whose rows were removed, sorted."""


def pack_epoch(epoch: int, token: bytes) -> bytes:
    assert len(token) == 16
    return _EPOCH.pack(epoch, 0, token)


def unpack_epoch(body: memoryview | bytes) -> tuple[int, bytes] | None:
    """The epoch and its owner's token, or nothing where the body is not one."""
    if len(body) != _EPOCH.size:
        return None
    epoch, _, token = _EPOCH.unpack(body)
    return epoch, token


def pack_gap(gap: Gap) -> bytes:
    fixed = _GAP.pack(gap.first_lsn, gap.last_lsn, gap.frames, gap.reason, len(gap.next_offsets))
    partitions = b"".join(_PARTITION.pack(*each) for each in gap.next_offsets)
    return fixed + partitions + _CHAIN.pack(gap.chain)


def unpack_gap(body: memoryview | bytes) -> Gap | None:
    """The gap, or nothing where the body is not one."""
    if len(body) < GAP_BODY_BYTES:
        return None
    first_lsn, last_lsn, frames, reason, partitions = _GAP.unpack_from(body)
    if len(body) != GAP_BODY_BYTES + partitions * _PARTITION.size:
        return None
    next_offsets = tuple(_PARTITION.iter_unpack(body[_GAP.size : -_CHAIN.size]))
    (chain,) = _CHAIN.unpack_from(body, len(body) - _CHAIN.size)
    return Gap(first_lsn, last_lsn, frames, reason, chain, next_offsets)
