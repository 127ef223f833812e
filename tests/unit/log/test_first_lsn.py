"""Where a log begins is known from names on a disk, and from one object in a bucket."""

from __future__ import annotations

import pytest

from headwater.clock import ManualClock
from headwater.errors import CorruptData
from headwater.log.chain import ChainEnd
from headwater.log.first_lsn import first_lsn_in
from headwater.log.manifest import KeptSegment, Manifest, pack_manifest
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.simulated_store import SimulatedStore
from tests.unit.log.small_logs import simulated, three_segments


def bucket() -> BucketFiles:
    return BucketFiles(SimulatedStore(), clock=ManualClock(), threads=False)


def test_on_a_disk_it_is_the_first_segment_by_name() -> None:
    files, world = simulated()
    assert first_lsn_in(files, "log") is None

    names = three_segments(world)
    assert first_lsn_in(files, "log") == 1

    files.unlink(f"log/{names[0]}")
    assert first_lsn_in(files, "log") == 5


def test_in_a_bucket_it_is_the_first_segment_that_trim_names() -> None:
    files = bucket()
    kept = KeptSegment(41, 0, 512, 1, ChainEnd(50, 7, 1, 1), b"opening")

    files.objects.put("log/trim", pack_manifest(Manifest(b"i" * 16, 8, 3, segments=(kept,), end=kept.end)))

    assert first_lsn_in(files, "log") == 41
    assert first_lsn_in(files, "journal") is None


def test_in_a_bucket_without_a_sealed_segment_it_is_where_the_slots_begin() -> None:
    files = bucket()

    files.objects.put("log/trim", pack_manifest(Manifest(b"i" * 16, 8, 3, end=ChainEnd(90, 7, 1, 1))))

    assert first_lsn_in(files, "log") == 90


def test_a_trim_that_cannot_be_read_is_no_empty_log() -> None:
    files = bucket()
    files.objects.put("log/trim", b"{}")

    with pytest.raises(CorruptData):
        first_lsn_in(files, "log")
