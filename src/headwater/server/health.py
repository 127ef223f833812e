"""Whether a server lives, and whether it should be sent work.

    alive    the process answers: only a restart would help where it does not
    ready    it owns its log and can make rows durable; false while it starts, stands by, stops, is poisoned or fenced,
             or its disk is full

PROMISE  Looking claims nothing, waits for no commit, and costs two system calls at most.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.errors import Closed, Fenced
from headwater.server.served import Served
from headwater.storage.disk import Space, space_of
from headwater.storage.places import is_bucket

DISK_FREE_BYTES_MIN = 64 << 20
"""With less than a write's size left the next append may be refused."""

Why = Callable[[], str]
"""Says why not; nothing where all is well."""


class Health:
    def __init__(self, served: Callable[[], Served | None], *, ready: Why, alive: Why) -> None:
        self._served = served
        self._ready = ready
        self._alive = alive

    def not_alive(self) -> str:
        return self._alive()

    def not_ready(self) -> str:
        why = self._alive() or self._ready()
        if why:
            return why
        served = self._served()
        if served is None:
            return "the log is not open yet"
        return _not_writable(served)

    def space(self) -> Space | None:
        """Of the disk under the log; nothing where it is in a bucket, or not open."""
        served = self._served()
        return None if served is None else _space(served)


def _not_writable(served: Served) -> str:
    try:
        served.engine.metadata()
    except Closed:
        return "the log is closed"
    poisoned_by = served.lost_by()
    if isinstance(poisoned_by, Fenced):
        return "another server has taken the log over"
    if poisoned_by is not None:
        return "a sync has failed: the log must be opened again"
    space = _space(served)
    if space is not None and space.free_bytes < DISK_FREE_BYTES_MIN:
        return "the disk is full"
    return ""


def _space(served: Served) -> Space | None:
    if is_bucket(served.directory):
        return None
    try:
        return space_of(served.directory)
    except FileNotFoundError:
        # It is made with the first write.
        return None
