"""The contract of the log, run against the embedded one: on a real disk, on simulated files, and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater as hw
from headwater.clock import Clock
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files
from headwater.storage.simulated import SimulatedFiles
from tests.contract.log_api import SETTINGS, Place
from tests.contract.log_api_groups import Groups, GroupsKept
from tests.contract.log_api_reading import Reading, ReadingKept
from tests.contract.log_api_rows import Rows, RowsKept
from tests.contract.log_api_topics import Topics, TopicsKept
from tests.contract.log_api_transactions import Transactions, TransactionsKept
from tests.contract.log_api_upkeep import Upkeep, UpkeepKept


class FilesPlace:
    def __init__(self, files: Files) -> None:
        self._files = files

    def open(self, settings: hw.Settings = SETTINGS, clock: Clock | None = None) -> hw.Log:
        return hw.open(self._files, settings=settings, clock=clock)


class MemoryPlace:
    """A new log each time."""

    def open(self, settings: hw.Settings = SETTINGS, clock: Clock | None = None) -> hw.Log:
        return hw.open(":memory:", settings=settings, clock=clock)


def place_named(name: str, root: Path) -> Place:
    if name == "memory":
        return MemoryPlace()
    return FilesPlace(DiskFiles(root / "data") if name == "disk" else SimulatedFiles())


@pytest.fixture
def log(place: Place) -> Iterator[hw.Log]:
    with place.open() as opened:
        yield opened


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return place_named(request.param, tmp_path)


@pytest.mark.parametrize("place", ["disk", "simulated", "memory"], indirect=True)
class TestAnyPlace(Topics, Rows, Reading, Transactions, Groups, Upkeep):
    """All that is promised while a log is open."""


@pytest.mark.parametrize("place", ["disk", "simulated"], indirect=True)
class TestKeptPlace(TopicsKept, RowsKept, ReadingKept, TransactionsKept, GroupsKept, UpkeepKept):
    """All that is promised over a close."""
