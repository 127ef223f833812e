"""The contract of the log, run against the embedded one: on a real disk, on simulated files, in memory, in a bucket on
a simulated store, and what is kept over a close in a bucket of a real S3 server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.clock import Clock
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files
from headwater.storage.objects import Objects
from headwater.storage.s3 import S3Objects
from headwater.storage.simulated import SimulatedFiles
from headwater.storage.simulated_store import SimulatedStore
from tests.contract.log_api import SETTINGS, Place
from tests.contract.log_api_groups import Groups, GroupsKept
from tests.contract.log_api_reading import Reading, ReadingKept
from tests.contract.log_api_rows import Rows, RowsKept
from tests.contract.log_api_topics import Topics, TopicsKept
from tests.contract.log_api_transactions import Transactions, TransactionsKept
from tests.contract.log_api_upkeep import Upkeep, UpkeepKept
from tests.servers.versitygw import BUCKET, S3Server, versitygw


class FilesPlace:
    def __init__(self, files: Files) -> None:
        self._files = files

    def open(self, settings: hw.Settings = SETTINGS, clock: Clock | None = None) -> hw.Log:
        return hw.open(self._files, settings=settings, clock=clock)


class MemoryPlace:
    """A new log each time."""

    def open(self, settings: hw.Settings = SETTINGS, clock: Clock | None = None) -> hw.Log:
        return hw.open(":memory:", settings=settings, clock=clock)


class BucketPlace:
    """A prefix in a bucket.  Each open is another process as far as the bucket can tell."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def open(self, settings: hw.Settings = SETTINGS, clock: Clock | None = None) -> hw.Log:
        return hw.open(BucketFiles(self._objects, clock=clock), settings=settings, clock=clock)


def place_named(name: str, root: Path) -> Place:
    if name == "simulated store":
        return BucketPlace(SimulatedStore())
    if name == "versitygw":
        return BucketPlace(S3Objects(f"s3://{BUCKET}/{root.parent.name}/{root.name}"))
    if name == "memory":
        return MemoryPlace()
    return FilesPlace(DiskFiles(root / "data") if name == "disk" else SimulatedFiles())


@pytest.fixture
def log(place: Place) -> Iterator[hw.Log]:
    with place.open() as opened:
        yield opened


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with versitygw() as server, server.in_environment():
        yield server


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "versitygw":
        request.getfixturevalue("s3")
    return place_named(request.param, tmp_path)


@pytest.mark.parametrize("place", ["disk", "simulated", "memory", "simulated store"], indirect=True)
class TestAnyPlace(Topics, Rows, Reading, Transactions, Groups, Upkeep):
    """All that is promised while a log is open."""


@pytest.mark.parametrize("place", ["disk", "simulated", "simulated store", "versitygw"], indirect=True)
class TestKeptPlace(TopicsKept, RowsKept, ReadingKept, TransactionsKept, GroupsKept, UpkeepKept):
    """All that is promised over a close."""
