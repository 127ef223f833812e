"""The contract of the log, run against the embedded one: on a real disk, on simulated files, in memory, in a bucket on
a simulated store, and what is kept over a close in a bucket of a real S3 server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
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
from tests.contract.log_api_upkeep import Unclaimed, Upkeep, UpkeepKept
from tests.servers.stores import s3_server, store_kinds
from tests.servers.versitygw import S3Server


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
    if name == "memory":
        return MemoryPlace()
    return FilesPlace(DiskFiles(root / "data") if name == "disk" else SimulatedFiles())


@pytest.fixture
def log(place: Place) -> Iterator[hw.Log]:
    with place.open() as opened:
        yield opened


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], S3Server]]:
    """S3 servers, each begun when the first of this module asks for it."""
    with ExitStack() as running:
        yield cache(lambda kind: running.enter_context(s3_server(kind)))


@pytest.fixture
def place(request: pytest.FixtureRequest, servers: Callable[[str], S3Server], tmp_path: Path) -> Iterator[Place]:
    if request.param not in store_kinds():
        yield place_named(request.param, tmp_path)
        return
    server = servers(request.param)
    with server.in_environment():
        yield BucketPlace(S3Objects(server.url(f"{tmp_path.parent.name}/{tmp_path.name}")))


@pytest.mark.parametrize("place", ["disk", "simulated", "memory", "simulated store"], indirect=True)
class TestAnyPlace(Topics, Rows, Reading, Transactions, Groups, Upkeep):
    """All that is promised while a log is open."""


@pytest.mark.parametrize("place", ["disk", "simulated", "simulated store", *store_kinds()], indirect=True)
class TestKeptPlace(TopicsKept, RowsKept, ReadingKept, TransactionsKept, GroupsKept, UpkeepKept, Unclaimed):
    """All that is promised over a close."""
