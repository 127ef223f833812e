"""An object store in memory that loses replies, applies late and fails as badly as objects.py allows.

SURE     Without faults every verb does what its row in objects.py says, at once.  An etag is a digest of the content,
         as S3's is: the same bytes have the same etag again.
FATES    What may become of a request, drawn by the seed (`StoreFaults`) or said beforehand (`next_fate`):
         LOST       it is done, and the reply is not heard
         LATE       it is not heard of, and is done at some later call, or never; never twice
         FAILED     5xx: not done     CONFLICT  409, "try again": not done     THROTTLED  503, "slow down": not done
         Each of them is StoreUnsure, and whoever gets it cannot tell which it was.
LISTS    May miss what was written a moment ago and show what was deleted a moment ago, where faults ask for that.
SEED     No clock of its own and no entropy: the same calls give the same store.
BY HAND  `begin` gives a request that is neither done nor heard: a scheduler says when it is applied, if ever, and
         whether its reply arrives.

One guard serialises all verbs, so any number of threads may share an instance.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from hashlib import md5
from random import Random
from threading import Lock as Guard
from typing import Final

from headwater.clock import Clock, ManualClock
from headwater.storage.files import Buffer
from headwater.storage.objects import Changed, Exists, Found, Listed, StoreCounters, StoreUnsure

# So many changes back a stale list may see.
_RECENT: Final = 16

_WRITES: Final = frozenset({"put", "put_if_absent", "put_if_match", "delete"})


class Fate(Enum):
    """What becomes of a request."""

    DONE = "done, and the reply is heard"
    LOST = "done, and the reply is lost"
    LATE = "a time-out; it is done later, or never"
    FAILED = "500: not done"
    CONFLICT = "409, try again: not done"
    THROTTLED = "503, slow down: not done"


@dataclass(frozen=True)
class StoreFaults:
    """How often each fate is drawn, as shares of all requests."""

    lost: float = 0.0
    late: float = 0.0
    failed: float = 0.0
    conflict: float = 0.0
    """Of writes only."""
    throttled: float = 0.0
    stale_lists: float = 0.0
    """How much of what was changed a moment ago a list does not know of."""
    late_arrives: float = 0.3
    """With which chance a late request is applied at each later call."""
    late_vanishes: float = 0.1
    """With which chance it is not applied at all, at each later call."""

    @classmethod
    def some(cls, share: float = 0.05) -> StoreFaults:
        """Every kind of them, each this often."""
        return cls(lost=share, late=share, failed=share, conflict=share, throttled=share, stale_lists=0.3)


class Request:
    """One request on its way."""

    __slots__ = ("_error", "_found", "_store", "applied", "data", "etag", "name", "verb")

    def __init__(self, store: SimulatedStore, verb: str, name: str, data: bytes, etag: str) -> None:
        self._store = store
        self.verb = verb
        self.name = name
        self.data = data
        self.etag = etag
        self.applied = False
        self._error: OSError | None = None
        self._found = Found(b"", "")

    def apply(self) -> None:
        """It reaches the store, and takes effect there: once at most."""
        with self._store._guard:
            self._store._apply(self)

    def reply(self) -> Found:
        """What the store answers: the etag of a put, what a get found; or raises what it refuses with."""
        if not self.applied:
            raise StoreUnsure(f"{self.verb} {self.name}: no reply")
        if self._error is not None:
            raise self._error
        return self._found


class SimulatedStore:
    """All names below one prefix of a store in memory.

    `faults`         what goes wrong, by chance; None: nothing.  It may be set and cleared between calls.
    `calls`          every call so far, as (verb, name), unless made with remember_calls=False
    `before_call`    is told (verb, name) before each call; what it raises goes to the caller in place of the call
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        faults: StoreFaults | None = None,
        clock: Clock | None = None,
        remember_calls: bool = True,
    ) -> None:
        self.seed = seed
        self.faults = faults
        self.calls: list[tuple[str, str]] = []
        self.before_call: Callable[[str, str], None] | None = None
        self.counters = StoreCounters()
        self.url = f"simulated://store-{seed}"
        self._remember_calls = remember_calls
        self._clock = ManualClock() if clock is None else clock
        self._chance = Random(seed)
        self._guard = Guard()
        self._held: dict[str, tuple[Found, int]] = {}
        self._recent: deque[tuple[str, Listed | None]] = deque(maxlen=_RECENT)
        self._late: list[Request] = []
        self._next_fates: list[tuple[str, str, Fate]] = []

    # ------------------------------------------------------------------------------------ the verbs

    def put(self, name: str, data: Buffer) -> str:
        return self._ask("put", name, bytes(data)).etag

    def put_if_absent(self, name: str, data: Buffer) -> str:
        return self._ask("put_if_absent", name, bytes(data)).etag

    def put_if_match(self, name: str, data: Buffer, etag: str) -> str:
        return self._ask("put_if_match", name, bytes(data), etag).etag

    def get(self, name: str) -> Found:
        found = self._ask("get", name)
        with self._guard:
            self.counters.bytes_got += len(found.data)
        return found

    def get_range(self, name: str, start: int, size: int) -> bytes:
        data = self._ask("get_range", name).data[start : start + size]
        with self._guard:
            self.counters.bytes_got += len(data)
        return data

    def size(self, name: str) -> int:
        return len(self._ask("size", name).data)

    def delete(self, name: str) -> None:
        self._ask("delete", name)

    def list_after(self, prefix: str, after: str = "", *, limit: int = 1000) -> list[Listed]:
        self._ask("list_after", prefix)
        with self._guard:
            names = {name: self._listed(name) for name in self._held}
            for name, before in self._forgotten():
                if before is None:
                    names.pop(name, None)
                else:
                    names[name] = before
        found = sorted(name for name in names if name.startswith(prefix) and name > after)
        return [names[name] for name in found[:limit]]

    # ----------------------------------------------------------------------------------- by hand

    def begin(self, verb: str, name: str, data: Buffer = b"", etag: str = "") -> Request:
        """A request that somebody else decides the fate of."""
        with self._guard:
            self._count(verb, name, data)
        return Request(self, verb, name, bytes(data), etag)

    def next_fate(self, fate: Fate, *, verb: str = "", name: str = "") -> None:
        """What becomes of the next request, or of the next of this verb or for this name; asked for twice, of the
        next two."""
        with self._guard:
            self._next_fates.append((verb, name, fate))

    def late_requests(self) -> tuple[Request, ...]:
        """Which requests are still on their way."""
        with self._guard:
            return tuple(self._late)

    def deliver_late(self) -> None:
        """All that is still on its way is applied now."""
        with self._guard:
            late, self._late = self._late, []
            for request in late:
                self._apply(request)

    def restart(self) -> SimulatedStore:
        """The store after all processes were killed, as a new instance; what was on its way is so still."""
        with self._guard:
            after = SimulatedStore(
                self.seed, faults=self.faults, clock=self._clock, remember_calls=self._remember_calls
            )
            after._chance.setstate(self._chance.getstate())
            after._held = dict(self._held)
            after._recent = deque(self._recent, maxlen=_RECENT)
            after._late = [Request(after, each.verb, each.name, each.data, each.etag) for each in self._late]
            return after

    # ------------------------------------------------------------------------------------- to look at

    def names(self) -> list[str]:
        """What is there, without a request."""
        with self._guard:
            return sorted(self._held)

    def contents(self, name: str) -> bytes:
        with self._guard:
            return self._found(name).data

    def flip_bit(self, name: str, bit: int) -> None:
        """Damage: the store gives back another content than it was given."""
        with self._guard:
            data = bytearray(self._found(name).data)
            data[bit // 8] ^= 1 << bit % 8
            self._hold(name, bytes(data))

    # ---------------------------------------------------------------------------------------- inside

    def _ask(self, verb: str, name: str, data: bytes = b"", etag: str = "") -> Found:
        if self.before_call is not None:
            self.before_call(verb, name)
        with self._guard:
            self._count(verb, name, data)
            self._time_passes()
            request = Request(self, verb, name, data, etag)
            fate = self._fate(verb, name)
            if fate in (Fate.DONE, Fate.LOST):
                self._apply(request)
            elif fate is Fate.LATE and verb in _WRITES:
                self._late.append(request)
            if fate is not Fate.DONE:
                self.counters.unsure += 1
                raise StoreUnsure(f"{verb} {name}: {'no reply' if fate in (Fate.LOST, Fate.LATE) else fate.value}")
        return request.reply()

    def _count(self, verb: str, name: str, data: Buffer) -> None:
        counters = self.counters
        if self._remember_calls:
            self.calls.append((verb, name))
        if verb == "delete":
            counters.deletes += 1
        elif verb == "list_after":
            counters.lists += 1
        elif verb in _WRITES:
            counters.puts += 1
            counters.bytes_put += len(data)
        else:
            counters.gets += 1

    def _fate(self, verb: str, name: str) -> Fate:
        for index, (for_verb, for_name, fate) in enumerate(self._next_fates):
            if for_verb in ("", verb) and for_name in ("", name):
                del self._next_fates[index]
                return fate
        faults = self.faults
        if faults is None:
            return Fate.DONE
        draw = self._chance.random()
        for share, fate in (
            (faults.lost, Fate.LOST),
            (faults.late, Fate.LATE),
            (faults.failed, Fate.FAILED),
            (faults.throttled, Fate.THROTTLED),
            (faults.conflict if verb in _WRITES else 0.0, Fate.CONFLICT),
        ):
            if draw < share:
                return fate
            draw -= share
        return Fate.DONE

    def _time_passes(self) -> None:
        """Late requests arrive, or are lost for good."""
        if not self._late:
            return
        faults = self.faults or StoreFaults()
        waiting, self._late = self._late, []
        for request in waiting:
            draw = self._chance.random()
            if draw < faults.late_arrives:
                self._apply(request)
            elif draw >= faults.late_arrives + faults.late_vanishes:
                self._late.append(request)

    def _forgotten(self) -> list[tuple[str, Listed | None]]:
        """What a list does not know of yet: of each name its latest changes, newest first."""
        stale = 0.0 if self.faults is None else self.faults.stale_lists
        forgotten: list[tuple[str, Listed | None]] = []
        seen: set[str] = set()
        for name, before in reversed(self._recent) if stale else ():
            if name not in seen and self._chance.random() < stale:
                forgotten.append((name, before))
            else:
                seen.add(name)
        return forgotten

    def _apply(self, request: Request) -> None:
        assert not request.applied, "a request takes effect once at most"
        request.applied = True
        try:
            request._found = self._perform(request)
        except OSError as error:
            request._error = error

    def _perform(self, request: Request) -> Found:
        verb, name = request.verb, request.name
        held = self._held.get(name)
        if verb == "list_after":
            return Found(b"", "")
        if verb == "put_if_absent" and held is not None:
            raise Exists(f"{name} holds something already")
        if verb == "put_if_match" and (held is None or held[0].etag != request.etag):
            raise Changed(f"{name} holds something else")
        if verb == "delete":
            if held is not None:
                self._recent.append((name, self._listed(name)))
                del self._held[name]
            return Found(b"", "")
        if verb in _WRITES:
            return self._hold(name, request.data)
        return self._found(name)

    def _hold(self, name: str, data: bytes) -> Found:
        self._recent.append((name, self._listed(name) if name in self._held else None))
        found = Found(data, f'"{md5(data, usedforsecurity=False).hexdigest()}"')
        self._held[name] = (found, self._clock.now_us())
        return found

    def _found(self, name: str) -> Found:
        held = self._held.get(name)
        if held is None:
            raise FileNotFoundError(f"{name} holds nothing")
        return held[0]

    def _listed(self, name: str) -> Listed:
        found, modified_us = self._held[name]
        return Listed(name, len(found.data), modified_us)
