"""Which device a log lies on: files have one, a bucket has another."""

from __future__ import annotations

from collections.abc import Callable

from headwater.clock import Clock, Entropy
from headwater.log.file_device import FileDevice
from headwater.log.object_device import ObjectDevice
from headwater.log.ownership import KnownOffsets
from headwater.log.segments import LogPlace
from headwater.log.slots import WINDOW
from headwater.storage.bucket_files import BucketFiles

LogDevice = FileDevice | ObjectDevice

_SHARD = "log"
"""The directory of a shard's log.  It alone has commits by the window and an owner that others wait for; a journal is
claimed with it, and a ledger is written by whoever has something to say."""


def make_device(
    place: LogPlace,
    *,
    clock: Clock,
    entropy: Entropy,
    log_start: Callable[[], int],
    known_offsets: KnownOffsets | None,
) -> LogDevice:
    if isinstance(place.files, BucketFiles):
        shard = place.directory == _SHARD
        return ObjectDevice(
            place,
            clock=clock,
            entropy=entropy,
            log_start=log_start,
            known_offsets=known_offsets,
            window=WINDOW if shard else 1,
            leased=shard,
        )
    return FileDevice(place, clock=clock, entropy=entropy, log_start=log_start, known_offsets=known_offsets)
