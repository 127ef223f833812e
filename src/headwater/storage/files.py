"""The few verbs through which every byte reaches a disk, and what each promises about a crash.

WORDS    A *crash* ends the process; a *power loss* also loses what was not synced.
NAMES    Relative, with `/`: "log/mark".  A directory is made by `make_directory` alone.
ERRORS   Verbs raise OSError (ShortRead and LockHeld are kinds of it) and hide none.

verb             when it has returned                            after a power loss without a later sync
create           the file is there, empty, for every process     the name may be gone, or be there with a size of 0
append           all bytes are in the file, or it raised          any 512-byte sector may be old, new, zero or garbage;
                 the size and the data are lost or kept apart
write_at         as append, in place                              as append; a byte that is on disk and is written again
                 with the same value stays
sync_data        all bytes appended or written before the call,   they stay; the *name* may still be gone
                 and the size needed to read them, are on disk
sync_all         as sync_data, and all metadata of the file       as sync_data
truncate         the size is this for every process               the old size and bytes may come back, until a sync
rename           the new name shows the file, atomically          old or new name, never neither, until sync_directory
unlink           the name is gone; open handles still read        the name may come back, until sync_directory
sync_directory   every name made, renamed or removed before the   they stay so
                 call stays so
make_directory   it and its parents exist, and are synced         they stay
lock             nobody else holds it, in this process or another  a lock dies with its process

A failed sync_data or sync_all may have dropped bytes and marked them clean: calling it
again would succeed and lie.  Whoever gets the error stops promising (Poisoned).

Per platform: sync_data is fdatasync on Linux and F_FULLFSYNC on macOS (where fsync leaves
data in the drive's cache); sync_all is fsync on Linux and F_FULLFSYNC on macOS;
sync_directory is fsync of the directory on both; lock is flock on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

Buffer = bytes | bytearray | memoryview


class ShortRead(OSError):
    """The file ended before all bytes that were asked for."""


class LockHeld(OSError):
    """Somebody else holds the lock; `holder` is the note that they left."""

    def __init__(self, name: str, holder: str) -> None:
        super().__init__(f"{name} is locked by {holder or 'an unknown holder'}")
        self.name = name
        self.holder = holder


class File(Protocol):
    """One open file.  Safe for one writer and many readers at the same time."""

    @property
    def name(self) -> str: ...

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers, one after the other, at the end that this handle knows, and return where
        they begin.  On an error that end does not move, and what lies after it is unknown."""
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Write all of it at this position; beyond the end the bytes between are zero, and the end moves."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Exactly `size` bytes, or ShortRead."""
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill the buffer and say how many bytes it got: fewer only where the file ends."""
        ...

    def sync_data(self) -> None: ...

    def sync_all(self) -> None: ...

    def truncate(self, size: int) -> None:
        """Cut to `size`, and go on appending there; ValueError for a size above the present one."""
        ...

    def size(self) -> int: ...

    def close(self) -> None:
        """Let go of it; closing twice is nothing, and any other use afterwards raises headwater.errors.Closed."""
        ...


class Lock(Protocol):
    """A lock that is held until it is released, or its process ends."""

    def release(self) -> None:
        """Let others have it; twice, or in a forked child, is nothing."""
        ...


class Files(Protocol):
    """A directory tree."""

    def create(self, name: str) -> File:
        """A new, empty file, open for writing.  FileExistsError if the name is taken."""
        ...

    def open(self, name: str, *, writable: bool = False) -> File:
        """An existing file; appends go on at its present size.  FileNotFoundError if absent."""
        ...

    def list(self, directory: str) -> list[str]:
        """The names in a directory, sorted; nothing if there is no such directory."""
        ...

    def rename(self, old: str, new: str) -> None:
        """Within one directory (else ValueError); replaces what has the new name."""
        ...

    def unlink(self, name: str) -> None: ...

    def sync_directory(self, directory: str) -> None: ...

    def make_directory(self, directory: str) -> None:
        """With its parents, all synced; nothing if it is there."""
        ...

    def allocate(self, name: str, size: int) -> None:
        """Make a file of `size` zero bytes whose blocks are really taken; ENOSPC leaves no file behind.  It is not
        synced: nobody relies on its being there."""
        ...

    def lock(self, name: str, note: str) -> Lock:
        """Take the lock file's lock at once or raise LockHeld; `note` tells others who holds it."""
        ...
