"""What one process has of a simulated store: it can be killed before any call, or another process can act there.

KILLED   Its calls raise Killed from then on, which is no Exception: its threads end, and nobody catches it for long.
         The request with which it died was not sent, was done, or is on its way: a Ghost, that arrives later or never.
OUTAGE   The store says nothing: each call is StoreUnsure until `heal`; some of them have been done.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from headwater.storage.files import Buffer
from headwater.storage.objects import Found, Listed, StoreCounters, StoreUnsure
from headwater.storage.simulated_store import Request, SimulatedStore

WRITES = frozenset({"put", "put_if_absent", "put_if_match", "delete"})


class Killed(SystemExit):
    """The process has ended."""


class StoreProcess:
    """An Objects of one process."""

    def __init__(self, store: SimulatedStore, chance: Random) -> None:
        self.dead = False
        self.calls = 0
        self.ghosts: list[Request] = []
        """What it had sent when it was killed, and has not arrived."""
        self._store = store
        self._chance = chance
        self._at: tuple[int, Callable[[], None] | None] | None = None
        self._silent_from: int | None = None

    @property
    def url(self) -> str:
        return self._store.url

    @property
    def counters(self) -> StoreCounters:
        return self._store.counters

    # What becomes of it -----------------------------------------------------------------------

    def die_before(self, calls: int) -> None:
        """It is killed after so many more calls."""
        self._at = (self.calls + calls, None)

    def act_before(self, calls: int, act: Callable[[], None]) -> None:
        """Somebody else does something after so many more calls of this process, and it goes on."""
        self._at = (self.calls + calls, act)

    def go_silent_before(self, calls: int) -> None:
        self._silent_from = self.calls + calls

    def heal(self) -> None:
        """Nothing more becomes of it, and the store speaks again."""
        self._at = None
        self._silent_from = None

    def kill(self) -> None:
        self.dead = True

    # The verbs --------------------------------------------------------------------------------

    def put(self, name: str, data: Buffer) -> str:
        self._before("put", name, data)
        return self._store.put(name, data)

    def put_if_absent(self, name: str, data: Buffer) -> str:
        self._before("put_if_absent", name, data)
        return self._store.put_if_absent(name, data)

    def put_if_match(self, name: str, data: Buffer, etag: str) -> str:
        self._before("put_if_match", name, data, etag)
        return self._store.put_if_match(name, data, etag)

    def get(self, name: str) -> Found:
        self._before("get", name)
        return self._store.get(name)

    def get_range(self, name: str, start: int, size: int) -> bytes:
        self._before("get_range", name)
        return self._store.get_range(name, start, size)

    def size(self, name: str) -> int:
        self._before("size", name)
        return self._store.size(name)

    def list_after(self, prefix: str, after: str = "", *, limit: int = 1000) -> list[Listed]:
        self._before("list_after", prefix)
        return self._store.list_after(prefix, after, limit=limit)

    def delete(self, name: str) -> None:
        self._before("delete", name)
        self._store.delete(name)

    def _before(self, verb: str, name: str, data: Buffer = b"", etag: str = "") -> None:
        if self.dead:
            raise Killed
        self.calls += 1
        if self._at is not None and self.calls > self._at[0]:
            _, act = self._at
            self._at = None
            if act is None:
                self.dead = True
                self._die_with(verb, name, data, etag)
                raise Killed
            act()
        if self._silent_from is not None and self.calls > self._silent_from:
            if verb in WRITES and self._chance.random() < 0.2:
                self._store.begin(verb, name, data, etag).apply()
            raise StoreUnsure(f"{verb} {name}: the store is silent")

    def _die_with(self, verb: str, name: str, data: Buffer, etag: str) -> None:
        if verb not in WRITES:
            return
        request = self._store.begin(verb, name, data, etag)
        draw = self._chance.random()
        if draw < 0.35:
            request.apply()
        elif draw < 0.7:
            self.ghosts.append(request)
