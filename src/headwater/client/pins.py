"""Pins of a client: the server holds the log for it, for as long as it is heard of.

PROMISE  While a pin is held a thread renews it every RENEW_S.  A server that was restarted is asked for it again; where
         the log has let go of something meanwhile, that is logged, and the reader finds it Forgotten.
RELEASE  A scan that nobody has closed lets go when Python collects it: in any thread, with any lock held.  So the
         thread does it, and releasing asks for nothing itself.
"""

from __future__ import annotations

import atexit
import logging
import os
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from threading import Lock, Thread

from headwater.client.connection import Connection
from headwater.errors import Closed, HeadwaterError
from headwater.protocol.lake_calls import (
    HOLD_PIN,
    RELEASE_PINS,
    RENEW_PINS,
    RENEW_S,
    HoldPin,
    SomePins,
)

logger = logging.getLogger("headwater.client")


class ServedPin:
    """A hold on the log, until it is released."""

    def __init__(self, name: bytes, lsn: int, snapshots: tuple[int, ...], leave: SimpleQueue[bytes | None]) -> None:
        self.name = name
        self.lsn = lsn
        self.snapshots = snapshots
        self._leave = leave
        self._pid = os.getpid()

    def release(self) -> None:
        """Let go, soon; twice is nothing, and in a forked child too: the pin is its parent's."""
        if os.getpid() == self._pid:
            self._leave.put(self.name)


class ClientPins:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._guard = Lock()
        self._held: dict[bytes, ServedPin] = {}
        self._left: SimpleQueue[bytes | None] = SimpleQueue()
        """Names of pins to be released; nothing: it is over."""
        self._thread: Thread | None = None
        self._over = False

    def hold(self, lsn: int | None, snapshots: Sequence[int]) -> ServedPin:
        name = self._connection.entropy(16)
        held = self._connection.call(HOLD_PIN, HoldPin(name, lsn, tuple(snapshots)))
        pin = ServedPin(name, held, tuple(snapshots), self._left)
        with self._guard:
            if self._over:
                raise Closed("this log is closed")
            self._held[name] = pin
            if self._thread is None:
                self._thread = Thread(target=self._work, name="headwater-client-pins", daemon=True)
                self._thread.start()
                # A thread that is inside gRPC when the interpreter ends takes the process with it.
                atexit.register(self._end)
        return pin

    def close(self) -> None:
        """Release all; twice is nothing."""
        self._release(list(self._held))
        self._end()

    def _end(self) -> None:
        """End the thread; what is still held then ends by itself."""
        with self._guard:
            thread, self._thread = self._thread, None
            self._over = True
        if thread is not None:
            atexit.unregister(self._end)
            self._left.put(None)
            thread.join()

    def _work(self) -> None:
        while True:
            try:
                name = self._left.get(timeout=RENEW_S)
            except Empty:
                self._renew()
                continue
            if name is None:
                return
            self._release([name])

    def _release(self, names: list[bytes]) -> None:
        with self._guard:
            held = [name for name in names if self._held.pop(name, None) is not None]
        try:
            if held:
                self._connection.call(RELEASE_PINS, SomePins(tuple(held)))
        except HeadwaterError as error:
            # Nobody renews them any more, so they end by themselves.
            logger.info("a pin was left to end by itself: %s", error)

    def _renew(self) -> None:
        with self._guard:
            held = dict(self._held)
        if not held:
            return
        try:
            for name in self._connection.call(RENEW_PINS, SomePins(tuple(held))):
                pin = held[name]
                lsn = self._connection.call(HOLD_PIN, HoldPin(name, pin.lsn, pin.snapshots))
                if lsn > pin.lsn:
                    logger.warning("the log let go of rows while its server was away: held from lsn %d on", lsn)
                    pin.lsn = lsn
        except HeadwaterError as error:
            logger.warning("pins could not be renewed, and are tried again: %s", error)
