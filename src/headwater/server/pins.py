"""Pins that are held for clients: a client names each, and it lasts as long as the client is heard of.

PROMISE  A pin that its client has not renewed for LEASE_S is released, whatever became of the client; so is every pin
         when the server stops, and its lock dies with the process.
         Only the principal that made a pin renews or releases it.
LIMIT    PINS_MAX of one principal; the next is refused.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.errors import Closed, HeadwaterError, Unavailable
from headwater.lake.engine_log import EngineLog
from headwater.lake.view_source import Pins
from headwater.protocol.lake_calls import LEASE_S

PINS_MAX = 10_000

logger = logging.getLogger("headwater.server")

Named = tuple[str, bytes]
"""A principal's name, and the name that it gave the pin."""


@dataclass
class _Held:
    hold: Pins
    until_s: float


class ServedPins:
    """Safe for threads."""

    def __init__(self, log: EngineLog, clock: Clock, lease_s: float = LEASE_S) -> None:
        self._log = log
        self._clock = clock
        self._lease_s = lease_s
        self._guard = threading.Lock()
        self._held: dict[Named, _Held] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, principal: str, pin: bytes, lsn: int | None, snapshots: Sequence[int]) -> int:
        """Hold the log; what is held under this name already is renewed.  Says from which LSN on it is held."""
        with self._guard:
            if self._over.is_set():
                raise Closed("the server is being stopped")
            known = self._held.get((principal, pin))
            if known is not None:
                known.until_s = self._lease_end_s()
                return known.hold.lsn
            if sum(1 for name, _ in self._held if name == principal) >= PINS_MAX:
                raise Unavailable(f"{principal} holds as many pins as one may: close scans that are over")
            hold = self._log.hold(lsn, snapshots)
            self._held[principal, pin] = _Held(hold, self._lease_end_s())
            if self._thread is None:
                self._thread = threading.Thread(target=self._look_after, name="headwater-served-pins", daemon=True)
                self._thread.start()
            return hold.lsn

    def renew(self, principal: str, pins: Iterable[bytes]) -> list[bytes]:
        """Those that are not held, or not any more."""
        with self._guard:
            missing = []
            for pin in pins:
                known = self._held.get((principal, pin))
                if known is None:
                    missing.append(pin)
                else:
                    known.until_s = self._lease_end_s()
            return missing

    def release(self, principal: str, pins: Iterable[bytes]) -> None:
        with self._guard:
            found = [self._held.pop((principal, pin), None) for pin in pins]
        self._let_go(each for each in found if each is not None)

    def expire(self) -> None:
        """Release those whose clients were not heard of."""
        now_s = self._clock.monotonic_s()
        with self._guard:
            old = [named for named, held in self._held.items() if held.until_s <= now_s]
            found = [self._held.pop(named) for named in old]
        self._let_go(found)

    def close(self) -> None:
        self._over.set()
        with self._guard:
            found = list(self._held.values())
            self._held.clear()
            thread = self._thread
        self._let_go(found)
        if thread is not None:
            thread.join()

    def _lease_end_s(self) -> float:
        return self._clock.monotonic_s() + self._lease_s

    def _look_after(self) -> None:
        while not self._over.wait(self._lease_s / 4):
            self.expire()

    @staticmethod
    def _let_go(found: Iterable[_Held]) -> None:
        for held in found:
            try:
                held.hold.release()
            except (HeadwaterError, OSError) as error:
                # Nobody renews its lock any more, so it is passed over soon.
                logger.warning("a pin could not be released: %s", error)
