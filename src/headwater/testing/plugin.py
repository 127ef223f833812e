"""The pytest plugin: it is there wherever Headwater is installed, and loads nothing until its fixture is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from headwater.testing import CrashableLog


@pytest.fixture
def headwater_log() -> Iterator[CrashableLog]:
    """A log on simulated files that a test can kill, cut the power of, and reopen."""
    from headwater.testing import CrashableLog

    world = CrashableLog()
    yield world
    world.close()
