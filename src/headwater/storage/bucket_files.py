"""Files in a bucket: the verbs of `files.py` by way of an object store.

A file is one object, which is put whole when it is synced.  What was written and not synced lies in the memory of this
BucketFiles: all who use it see it, nobody else does, and it is lost with the process.

verb             on a store
create           FileExistsError where the name holds something.  Nothing is put before the first sync, and then only if
                 the name still holds nothing: of two who create one name, one gets FileExistsError there
append, write_at, truncate    in memory
sync_data, sync_all           put the object, if it changed; only over what this handle has put or read, else ESTALE
rename           puts the new name, then deletes the old one; a crash between the two leaves both
unlink           an object that is not there is no error: to tell would cost a second request, and no caller asks
list             what is right below, and the names of directories that hold something
sync_directory, make_directory, allocate    nothing: names are durable when they are there, there are no directories,
                 and there is no room to run out of
lock             a lease (store_lease.py)

TEMPORARY  A name that ends in `.tmp` is never an object: it stays in memory until it is renamed, which puts it.
RENAMED    A segment is put only where nothing is: whoever was paused and does not know yet that another owns the log
           must not write over what the other has made.  All else replaces what is there, for it must be made anew when
           it is damaged, and whoever is late with it writes what was true: two checkpoints of one LSN hold one state
           (only what is durable is in one, and that has one history), two indexes of one segment are of the same
           bytes; and each reader checks that what it reads fits.
UNSURE     A request is asked again for about half a minute (store_patience.py), then StoreUnavailable.  A delete may
           be done late, and so may the put of a name that was unlinked since: whatever matters has a name that is not
           used twice, and is not believed to be there or gone because of its name alone.
FORK       A child has none of its parent's files and leases.
NOT HERE   What loses unsynced sectors one by one, flocks, full disks, and directories of which anything can be known:
           the sentences of the contract about them are for disks alone.
"""

from __future__ import annotations

import errno
import os
import platform
import posixpath
import threading
from collections.abc import Callable, Sequence

from headwater.clock import Clock, Entropy, SystemClock, system_entropy
from headwater.storage.bucket_file import BucketFile, Content, Draft, Ranged, Whole
from headwater.storage.files import Buffer
from headwater.storage.objects import Listed, Objects
from headwater.storage.store_lease import RENEW_S, STALE_S, StoreLeases, StoreLock
from headwater.storage.store_patience import Patience, put_anyway, put_new, put_over

TEMPORARY = ".tmp"
SEGMENT = ".seg"
# What the request that opens a segment fetches: its header is wanted most often, and small ones are all here then.
HEAD_BYTES = 16 << 10
LIST_LIMIT = 1000
# Sorts after every name that Headwater gives.  A list goes on there, to pass over what lies in a directory below.
_LAST = "zzzzzzzz"


class BucketFiles:
    """All names below the prefix of `objects`.  Safe for any number of threads.

    `take_over` is for who claims a log: do so although its owner seems to be alive.  Without `threads` nothing happens
    in the background and nothing sleeps: leases are renewed by `renew_all` alone.
    """

    def __init__(
        self,
        objects: Objects,
        *,
        clock: Clock | None = None,
        entropy: Entropy = system_entropy,
        take_over: bool = False,
        threads: bool = True,
        host: str | None = None,
        renew_s: float = RENEW_S,
        stale_s: float = STALE_S,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self.objects = objects
        self.clock: Clock = clock if clock is not None else SystemClock()
        self.entropy = entropy
        self.take_over = take_over
        self.threads = threads
        self.host = host if host is not None else platform.node()
        self.seen: dict[str, tuple[str, float]] = {}
        """Leases of others: their etags, and when each was first seen, in seconds of our monotonic clock."""
        if pause is None:
            pause = threading.Event().wait if threads else _no_pause
        self.pause = pause
        self.patience = Patience(entropy, pause)
        self._renew_s = renew_s
        self._stale_s = stale_s
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._pid = os.getpid()
        # Whoever holds it may collect a handle that nobody closed, which then closes itself, and comes here again.
        self._guard = threading.RLock()
        self._drafts: dict[str, Draft] = {}
        self._leases = StoreLeases(
            self.objects,
            self.patience,
            clock=self.clock,
            entropy=self.entropy,
            seen=self.seen,
            renew_s=self._renew_s,
            stale_s=self._stale_s,
            threads=self.threads,
        )

    def __repr__(self) -> str:
        return f"BucketFiles({self.url!r})"

    @property
    def url(self) -> str:
        return self.objects.url

    # Files -----------------------------------------------------------------------------------------

    def create(self, name: str) -> BucketFile:
        draft = Draft(name, bytearray(), None)
        if self._draft(name) is None and not _is_temporary(name) and self._is_object(name):
            raise _exists(name)
        with self._guard:
            if self._drafts.setdefault(name, draft) is not draft:
                raise _exists(name)
            draft.writers += 1
        return self._writing(name, draft)

    def open(self, name: str, *, writable: bool = False) -> BucketFile:
        draft = self._draft(name)
        if draft is None:
            if _is_temporary(name):
                raise _absent(name)
            if name.endswith(SEGMENT) and not writable:
                return self._reading(name, Ranged(self.objects, self.patience, name, HEAD_BYTES))
            found = self.patience.ask(lambda: self.objects.get(name))
            if not writable:
                return self._reading(name, Whole(found.data))
            draft = Draft(name, bytearray(found.data), found.etag)
        if not writable:
            return self._reading(name, draft)
        with self._guard:
            draft = self._drafts.setdefault(name, draft)
            draft.writers += 1
        return self._writing(name, draft)

    def _reading(self, name: str, content: Content) -> BucketFile:
        return BucketFile(name, content, sync=self._sync, leave=self._leave)

    def _writing(self, name: str, draft: Draft) -> BucketFile:
        return BucketFile(name, draft, draft, sync=self._sync, leave=self._leave)

    def _sync(self, draft: Draft) -> None:
        with draft.writing:
            if draft.dirty and draft.linked and not _is_temporary(draft.name):
                draft.put(lambda data: self._put(draft.name, data, draft.etag))

    def _put(self, name: str, data: Buffer, etag: str | None) -> str:
        if etag is None:
            return put_new(self.patience, self.objects, name, data)
        return put_over(self.patience, self.objects, name, data, etag)

    def _leave(self, draft: Draft) -> None:
        """A handle was closed: what is durable need not be kept in memory any more."""
        with self._guard:
            draft.writers -= 1
            self._let_go(draft)

    def _let_go(self, draft: Draft) -> None:
        if not draft.writers and not draft.dirty and self._drafts.get(draft.name) is draft:
            del self._drafts[draft.name]

    # Names -----------------------------------------------------------------------------------------

    def list(self, directory: str) -> list[str]:
        prefix = f"{directory}/" if directory else ""
        self._check_process()
        with self._guard:
            drafts = list(self._drafts)
        paths = {name for name in drafts if name.startswith(prefix)}
        after = ""
        while True:
            page = self._page(prefix, after)
            paths.update(listed.name for listed in page)
            if len(page) < LIST_LIMIT:
                return sorted({path[len(prefix) :].partition("/")[0] for path in paths})
            after = page[-1].name
            below, slash, _ = after[len(prefix) :].partition("/")
            if slash:
                after = max(after, f"{prefix}{below}/{_LAST}")

    def _page(self, prefix: str, after: str) -> Sequence[Listed]:
        return self.patience.ask(lambda: self.objects.list_after(prefix, after, limit=LIST_LIMIT))

    def rename(self, old: str, new: str) -> None:
        """FileExistsError where another segment than this one has the new name."""
        if posixpath.dirname(old) != posixpath.dirname(new):
            raise ValueError(f"{old} and {new} are not in one directory")
        if _is_temporary(new):
            raise ValueError(f"{new} is a temporary name: a file in a bucket is renamed to what it shall be for good")
        draft = self._draft(old)
        if draft is None:
            if _is_temporary(old):
                raise _absent(old)
            found = self.patience.ask(lambda: self.objects.get(old))
            draft = Draft(old, bytearray(found.data), found.etag)
        if old == new:
            return
        with draft.writing:
            was_object = draft.etag is not None
            put = put_new if new.endswith(SEGMENT) else put_anyway
            draft.put(lambda data: put(self.patience, self.objects, new, data))
            with self._guard:
                self._drafts.pop(old, None)
                replaced = self._drafts.pop(new, None)
                if replaced is not None:
                    replaced.linked = False
                draft.name = new
                self._drafts[new] = draft
                self._let_go(draft)
        if was_object:
            self.patience.ask(lambda: self.objects.delete(old))

    def unlink(self, name: str) -> None:
        self._check_process()
        with self._guard:
            draft = self._drafts.pop(name, None)
        if draft is not None:
            # Under the lock of a sync, so that no put of it can follow the delete.
            with draft.writing:
                draft.linked = False
        if _is_temporary(name):
            if draft is None:
                raise _absent(name)
            return
        self._leases.forget(name)
        self.patience.ask(lambda: self.objects.delete(name))

    def sync_directory(self, directory: str) -> None:
        """Names are durable when they are there."""

    def make_directory(self, directory: str) -> None:
        """There are no directories."""

    def allocate(self, name: str, size: int) -> None:
        """A store has no room that could be taken beforehand."""

    # Leases ----------------------------------------------------------------------------------------

    def lock(self, name: str, note: str) -> StoreLock:
        self._check_process()
        return self._leases.take(name, note)

    def renew_all(self) -> None:
        """Renew every lease that is held here, now; a background thread does it where there are threads."""
        self._check_process()
        self._leases.renew_all()

    # Requests --------------------------------------------------------------------------------------

    def _draft(self, name: str) -> Draft | None:
        self._check_process()
        with self._guard:
            return self._drafts.get(name)

    def _check_process(self) -> None:
        if self._pid != os.getpid():
            # The parent's guards may be held for ever by threads that are not here.
            self._begin_anew()

    def _is_object(self, name: str) -> bool:
        try:
            self.patience.ask(lambda: self.objects.size(name))
        except FileNotFoundError:
            return False
        return True


def _is_temporary(name: str) -> bool:
    return name.endswith(TEMPORARY)


def _absent(name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)


def _exists(name: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)


def _no_pause(_seconds: float) -> None:
    """Where nothing sleeps, the store is asked again at once."""
