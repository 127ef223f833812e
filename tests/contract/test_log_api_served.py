"""The contract of the log, run against a log behind a server, over a real connection: on simulated files and on a disk.

Each `open()` starts a server in this process and connects to it.  The settings and the clock of a test are those of the
server's engine; the client has the same clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
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
from tests.servers.headwater import serving


class ServedPlace:
    """Files behind one server at a time: that of the `open()` before is stopped first."""

    def __init__(self, files: Files, running: ExitStack) -> None:
        self._files = files
        self._running = running

    def open(self, settings: hw.Settings = SETTINGS, clock: Clock | None = None) -> hw.Log:
        self._running.close()
        server = self._running.enter_context(serving(self._files, log_settings=settings, clock=clock))
        log: hw.Log = hw.connect(server.address)
        return log


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    files: Files = DiskFiles(tmp_path / "data") if request.param == "disk" else SimulatedFiles()
    with ExitStack() as running:
        yield ServedPlace(files, running)


@pytest.fixture
def log(place: Place) -> Iterator[hw.Log]:
    with place.open() as opened:
        yield opened


@pytest.mark.parametrize("place", ["simulated"], indirect=True)
class TestAnyPlace(Topics, Rows, Reading, Transactions, Groups, Upkeep):
    """All that is promised while a log is open."""


@pytest.mark.parametrize("place", ["disk", "simulated"], indirect=True)
class TestKeptPlace(TopicsKept, RowsKept, ReadingKept, TransactionsKept, GroupsKept, UpkeepKept):
    """All that is promised over a close."""
