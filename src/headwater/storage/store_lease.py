"""Leases: locks in a bucket, which die with their holders because nobody renews them any more.

A lease is an object that its holder writes anew every RENEW_S: {"holder": note, "token": 32 hex digits, "count": n}.
Whoever finds it does not look at any clock but its own: a lease that has not changed for STALE_S since it was first
seen is dead, and whoever wants it takes it.  One that was released is left behind with "free": true.  Byte by byte:
docs/formats/pins.md.

every change is a conditional put   so of all who want a lease one gets it, a holder that was paused cannot renew what
                                    another has taken, and nothing that is done late can hurt
LOST     A holder whose lease was taken notices when it renews it: `is_held` is False from then on, and releasing it is
         nothing.  Between the two there are two who believe that they hold it: a lease only keeps others waiting, and
         whatever must not be done by two needs a conditional put of its own.
THREAD   One renews all leases of a StoreLeases, and ends when there are none.  A lease whose lock nobody refers to any
         more is not renewed.
FORK     The thread stays in the parent, and so do the leases.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from dataclasses import dataclass
from weakref import WeakValueDictionary

from headwater.clock import Clock, Entropy
from headwater.storage.files import LockHeld
from headwater.storage.objects import Changed, Exists, Objects, StoreUnsure
from headwater.storage.store_patience import Patience

logger = logging.getLogger("headwater.storage")

RENEW_S = 5.0
STALE_S = 20.0
# Others may come between a look at a lease and an attempt at it; so often in a row they hold it.
ROUNDS = 8
# Whoever renews or lets go does not wait long for a store that does not answer: others are to be renewed too, and what
# is not renewed becomes stale by itself.
TRIES = 2
# What was first seen so long ago, and is still remembered, is nobody's lease any more.
SEEN_S_MAX = 3600.0
SEEN_MAX = 4096


@dataclass(frozen=True)
class Written:
    """What stands in a lease."""

    holder: str
    token: str
    count: int
    free: bool = False

    def pack(self) -> bytes:
        fields = {"holder": self.holder, "token": self.token, "count": self.count}
        return json.dumps({**fields, "free": True} if self.free else fields).encode()


def read_lease(data: bytes) -> Written:
    """What these bytes say.  Where they say nothing that we understand, somebody holds it, and we do not know who."""
    try:
        fields = json.loads(data)
        return Written(str(fields["holder"]), str(fields["token"]), int(fields["count"]), fields.get("free") is True)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Written("", "", 0)


@dataclass(frozen=True)
class _Look:
    written: Written
    etag: str
    may_be_taken: bool
    """It was released, or is stale."""


class StoreLock:
    """A lease that is held until it is released, is lost, or its process ends."""

    def __init__(self, leases: StoreLeases, name: str, note: str, token: str) -> None:
        self._leases = leases
        self._pid = os.getpid()
        self.name = name
        self.note = note
        self.token = token
        self.etag = ""
        """Of our last write that is known to have been done."""
        self.count = 0
        self.renewed_s = 0.0
        """When the last write that is known to have been done was begun, by the monotonic clock."""
        self.ended = False

    def is_held(self) -> bool:
        """False once it was released or lost, or was not renewed for so long that it may have been taken."""
        return not self.ended and self._leases.is_fresh(self)

    def written(self) -> bytes:
        return Written(self.note, self.token, self.count).pack()

    def written_free(self) -> bytes:
        """Without the token, so that a renewal that was under way does not take it for its own."""
        return Written(self.note, "", self.count, free=True).pack()

    def release(self) -> None:
        """Let others have it; twice, in a forked child, or after it was lost, is nothing."""
        if self._pid == os.getpid():
            self._leases.release(self)


class StoreLeases:
    """The leases that are held through one BucketFiles."""

    def __init__(
        self,
        objects: Objects,
        patience: Patience,
        *,
        clock: Clock,
        entropy: Entropy,
        seen: dict[str, tuple[str, float]],
        renew_s: float,
        stale_s: float,
        threads: bool,
    ) -> None:
        self._objects = objects
        self._patience = patience
        self._clock = clock
        self._entropy = entropy
        self._seen = seen
        self._renew_s = renew_s
        self._stale_s = stale_s
        self._threads = threads
        self._guard = threading.Lock()
        self._held: WeakValueDictionary[str, StoreLock] = WeakValueDictionary()
        self._renewing: threading.Thread | None = None

    # Taking ----------------------------------------------------------------------------------------

    def take(self, name: str, note: str) -> StoreLock:
        with self._guard:
            ours = self._held.get(name)
        if ours is not None:
            raise LockHeld(name, ours.note)
        lock = StoreLock(self, name, note, self._entropy(16).hex())
        lock.renewed_s = self._clock.monotonic_s()
        holder = ""
        # What was seen before is most likely still there; what was not is most likely new, as a pin's name is.
        looking = name in self._seen
        for _ in range(ROUNDS):
            found = self._look(name) if looking else None
            if found is not None:
                holder = found.written.holder
                if found.written.token == lock.token:
                    # A try of ours of which the store did not say what became of it.
                    return self._hold(lock, found.etag)
                if not found.may_be_taken:
                    break
            try:
                return self._hold(lock, self._put_first(lock, found))
            except (Exists, Changed):
                looking = True
        raise LockHeld(name, holder)

    def _put_first(self, lock: StoreLock, found: _Look | None) -> str:
        name, data = lock.name, lock.written()
        if found is None:
            return self._patience.ask(lambda: self._objects.put_if_absent(name, data))
        return self._patience.ask(lambda: self._objects.put_if_match(name, data, found.etag))

    def _look(self, name: str) -> _Look | None:
        """What stands in the lease, and whether it may be taken; None where there is none."""
        asked_s = self._clock.monotonic_s()
        try:
            found = self._patience.ask(lambda: self._objects.get(name))
        except FileNotFoundError:
            return None
        written = read_lease(found.data)
        etag, first_s = self._seen.get(name, ("", 0.0))
        if etag != found.etag:
            # Now, and not when we asked: it may have been renewed while the answer was on its way.
            first_s = self._clock.monotonic_s()
            self._remember(name, found.etag, first_s)
        return _Look(written, found.etag, written.free or asked_s - first_s >= self._stale_s)

    def _remember(self, name: str, etag: str, first_s: float) -> None:
        if len(self._seen) >= SEEN_MAX:
            # Nobody says when a lease that we looked at has gone.  One that lives, and is looked at, is seen anew
            # whenever it was renewed; so what is old is forgotten.
            for old in [old for old, (_, at_s) in list(self._seen.items()) if first_s - at_s > SEEN_S_MAX]:
                self._seen.pop(old, None)
        self._seen[name] = (etag, first_s)

    def _hold(self, lock: StoreLock, etag: str) -> StoreLock:
        lock.etag = etag
        self._seen.pop(lock.name, None)
        with self._guard:
            self._held[lock.name] = lock
            if self._threads and (self._renewing is None or not self._renewing.is_alive()):
                self._renewing = threading.Thread(target=self._keep_renewing, name="headwater-leases", daemon=True)
                self._renewing.start()
        return lock

    # Renewing --------------------------------------------------------------------------------------

    def is_fresh(self, lock: StoreLock) -> bool:
        return self._clock.monotonic_s() - lock.renewed_s < self._stale_s

    def renew_all(self) -> None:
        with self._guard:
            locks = list(self._held.values())
        for lock in locks:
            self._renew(lock)

    def _renew(self, lock: StoreLock) -> None:
        begun_s = self._clock.monotonic_s()
        lock.count += 1
        try:
            written = self._swap(lock, lock.written())
            if written is not None:
                lock.etag, lock.renewed_s = written, begun_s
                return
        except OSError as error:
            # It stands until it is stale: the next round tries again.
            logger.warning("could not renew the lease %s, will try again: %s", lock.name, error)
            return
        if self._end(lock):
            logger.warning("the lease %s was lost: nobody heard from us for too long, and somebody took it", lock.name)

    def _swap(self, lock: StoreLock, data: bytes) -> str | None:
        """Write our lease anew, and give its etag; None where it is no longer ours."""
        etag = lock.etag
        for _ in range(ROUNDS):
            try:
                return self._put_over(lock.name, data, etag)
            except Changed:
                try:
                    found = self._patience.ask(lambda: self._objects.get(lock.name), tries=TRIES)
                except FileNotFoundError:
                    return None
                if read_lease(found.data).token != lock.token:
                    return None
                # A write of ours of which the store did not say what became of it: go on from there.
                etag = found.etag
        raise StoreUnsure(f"{lock.name} changes whenever it is written, and is still ours")

    def _put_over(self, name: str, data: bytes, etag: str) -> str:
        return self._patience.ask(lambda: self._objects.put_if_match(name, data, etag), tries=TRIES)

    def _keep_renewing(self) -> None:
        nobody = threading.Event()
        while True:
            nobody.wait(self._renew_s)
            with self._guard:
                if not self._held:
                    self._renewing = None
                    return
            try:
                self.renew_all()
            except BaseException as ending:
                if isinstance(ending, Exception):
                    raise
                return  # the process is being ended: there is nobody to tell, and nothing to renew for

    # Letting go ------------------------------------------------------------------------------------

    # Neither waits for a renewal that is under way, which may take as long as the store lets it: it is bound to what it
    # was to replace, and comes to nothing.

    def release(self, lock: StoreLock) -> None:
        if not self._end(lock):
            return
        try:
            self._swap(lock, lock.written_free())
        except OSError as error:
            # Not renewed any more, it will be stale soon; whoever lets go has nothing better to do about it.
            logger.warning("could not release the lease %s, others wait until it is stale: %s", lock.name, error)

    def forget(self, name: str) -> None:
        """Its file is being removed: it is neither renewed nor released any more."""
        self._seen.pop(name, None)
        with self._guard:
            lock = self._held.get(name)
        if lock is not None:
            self._end(lock)

    def _end(self, lock: StoreLock) -> bool:
        """False where it has ended before."""
        with self._guard:
            if lock.ended:
                return False
            lock.ended = True
            self._held.pop(lock.name, None)
            return True
