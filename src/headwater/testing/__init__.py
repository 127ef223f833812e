"""For tests of programs that use Headwater: a log that can be crashed, on files that lose what was not synced.

    from headwater.testing import CrashableLog

    def test_my_loader_survives_a_power_loss():
        world = CrashableLog()
        load_everything(world.log)
        log = world.lose_power(seed=7)
        assert log["orders"].read().to_arrow().num_rows == 100

With pytest the fixture `headwater_log` gives one, and closes it.

PROMISE  Nothing touches a disk.  Time moves only when `clock` is told to.  A seed is the whole repro: the same seed
         loses the same sectors.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from headwater.clock import ManualClock
from headwater.settings import LogSettings, Settings
from headwater.storage.simulated import SimulatedFiles

if TYPE_CHECKING:
    from headwater.api import Log

__all__ = ["CrashableLog"]


class CrashableLog:
    """A log in a world that can end at any moment.  After `kill` and `lose_power` use the log that they return: the
    old one belongs to a process that is no more."""

    def __init__(self, *, seed: int = 0, settings: Settings | None = None) -> None:
        self.clock = ManualClock()
        self.files = SimulatedFiles(seed)
        self._random = Random(seed)
        self._settings = (
            settings if settings is not None else Settings(log=LogSettings(reserve_bytes=0), upkeep_interval_s=0)
        )
        self.log = self._open()

    def _open(self) -> Log:
        from headwater import api

        return api.open(self.files, settings=self._settings, clock=self.clock, entropy=self._random.randbytes)

    def reopen(self) -> Log:
        """Close it, and open it again."""
        self.log.close()
        self.log = self._open()
        return self.log

    def kill(self) -> Log:
        """The process dies: what it had written, synced or not, is still there for the next one."""
        self.files = self.files.restart()
        self.log = self._open()
        return self.log

    def lose_power(self, seed: int = 0) -> Log:
        """The machine dies: of what was not synced each sector may be old, new, zero or garbage."""
        self.files = self.files.crash(Random(seed))
        self.log = self._open()
        return self.log

    def close(self) -> None:
        """Close the log, as a program that ends well does."""
        self.log.close()
