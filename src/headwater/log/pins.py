"""Pins: a reader's hold on what its cut needs.

A pin is a file `pins/<32 hex digits>` that its holder keeps locked, with the note "pid <pid> lsn <lsn>": the log
is not to let go of this LSN or a later one.  The lock is the pin; it dies with its holder, and whoever meets
the file unlocked removes it.  In a bucket the lock is a lease (storage/store_lease.py), and dies some seconds after
its holder was last heard of.

ORDER    A pin is made first, and then the log's start is read.  A deletion records the new start first, and then
         reads the pins.  So one of the two sees the other: a pin that came too late is PinExpired, a pin that came
         in time is seen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from headwater.clock import Entropy, system_entropy
from headwater.errors import PinExpired
from headwater.ids import Lsn
from headwater.storage.files import Files, Lock, LockHeld

_NAME = re.compile(r"[0-9a-f]{32}")
_NOTE = re.compile(r"pid (\d+) lsn (\d+)( .*)?")


@dataclass(frozen=True)
class PinFound:
    """A pin that somebody holds; LSN 0, which holds everything, where its note cannot be read."""

    name: str
    holder: str
    lsn: Lsn
    note: str = ""
    """What the holder said besides."""


class Pin:
    """A hold on the log from an LSN on, until it is released or its process ends."""

    def __init__(self, files: Files, path: str, lock: Lock, lsn: Lsn) -> None:
        self._files = files
        self._path = path
        self._lock: Lock | None = lock
        self._pid = os.getpid()
        self.lsn = lsn

    def release(self) -> None:
        """Let go; twice is nothing, and in a forked child too: the pin is its parent's."""
        lock, self._lock = self._lock, None
        if lock is None or os.getpid() != self._pid:
            return
        try:
            self._files.unlink(self._path)
        except FileNotFoundError:
            pass  # the data directory was removed, and the pin with it
        finally:
            lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Pins:
    """The pins of a data directory."""

    def __init__(self, files: Files, directory: str = "pins", *, entropy: Entropy = system_entropy) -> None:
        self._files = files
        self._directory = directory
        self._entropy = entropy
        self._has_directory = False

    def hold(self, lsn: Lsn, log_start: Callable[[], int], *, note: str = "") -> Pin:
        """Hold the log from this LSN on, or raise PinExpired where it has let go of it already.  `note` is for others
        who look at pins: which snapshots of tables are being read."""
        if not self._has_directory:
            # Once: it syncs, and a pin that dies with its holder needs none.
            self._files.make_directory(self._directory)
            self._has_directory = True
        pin = self._make(lsn, note)
        start = log_start()
        if start > lsn:
            pin.release()
            raise PinExpired("the log has let go of this LSN already: take a new cut", lsn=lsn, log_start=start)
        return pin

    def _make(self, lsn: Lsn, note: str) -> Pin:
        while True:
            path = f"{self._directory}/{self._entropy(16).hex()}"
            try:
                lock = self._files.lock(path, f"pid {os.getpid()} lsn {lsn}" + (f" {note}" if note else ""))
            except LockHeld:
                # A deletion looked at the file before it was locked, and took it for a dead one: another name.
                continue
            return Pin(self._files, path, lock, lsn)

    def read(self) -> list[PinFound]:
        """The pins that are held now.  Those whose holder is gone are removed."""
        found = []
        for name in self._files.list(self._directory):
            if not _NAME.fullmatch(name):
                continue
            path = f"{self._directory}/{name}"
            try:
                lock = self._files.lock(path, "a deletion that looks for dead pins")
            except LockHeld as held:
                note = _NOTE.fullmatch(held.holder)
                lsn, said = (int(note[2]), (note[3] or "").strip()) if note is not None else (0, "")
                found.append(PinFound(name, held.holder, Lsn(lsn), said))
                continue
            # Unlinked under its lock, so that nobody can be given a lock on a file that has no name any more.
            try:
                self._files.unlink(path)
            finally:
                lock.release()
        return found
