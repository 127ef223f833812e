"""Files on a real disk: the verbs of `files.py` by way of the operating system.

PROMISE  Each verb keeps its row of the table in files.py.  A short write is continued until all
         bytes are in the file or the system says why not; no error is hidden and none is retried.
FORK     A child gets none of its parent's open files and locks: they are closed in the child as
         soon as fork returns there, and using one raises Closed.  The child only closes; it never
         unlocks, because a flock belongs to the open file that parent and child share.
CLOSE    A file may be closed while other threads read it: the descriptor is given back when the
         last call that uses it has returned, so no call can meet a number that was used again.
NOT HERE Deciding what to do after an error, and which order of syncs makes something durable.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Sequence
from typing import NamedTuple, NoReturn
from weakref import WeakSet

from headwater.errors import Closed
from headwater.storage.files import Buffer, LockHeld, ShortRead

# The kernel takes at most 1,024 buffers in one call (IOV_MAX).
BUFFERS_PER_WRITE_MAX = 1_000
# What a lock file holds is always this long: writing another note over it needs no new block, so
# that a lock can be taken on a full disk.
NOTE_SIZE_BYTES = 128
ZEROES_PER_WRITE_BYTES = 1 << 20

_CLOSED = -1
_LEFT_WITH_PARENT = -2


class _Descriptor:
    """A file descriptor that is closed when nobody refers to it any more."""

    __slots__ = ("__weakref__", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def close(self) -> None:
        fd, self.fd = self.fd, _CLOSED
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


_NO_DESCRIPTOR = _Descriptor(_CLOSED)
_open_descriptors: WeakSet[_Descriptor] = WeakSet()
# A fork must not fall between opening a descriptor and noting it down: the child would keep it,
# and with it perhaps a lock, for as long as it lives.
_fork_guard = threading.RLock()


def _open_descriptor(path: str, flags: int) -> _Descriptor:
    with _fork_guard:
        descriptor = _Descriptor(os.open(path, flags | os.O_CLOEXEC, 0o644))
        _open_descriptors.add(descriptor)
    return descriptor


def _close_all_in_child() -> None:
    try:
        for descriptor in _open_descriptors:
            fd, descriptor.fd = descriptor.fd, _LEFT_WITH_PARENT
            if fd >= 0:
                os.close(fd)
        _open_descriptors.clear()
    finally:
        _fork_guard.release()


os.register_at_fork(before=_fork_guard.acquire, after_in_parent=_fork_guard.release, after_in_child=_close_all_in_child)


def _raise_closed(name: str, descriptor: _Descriptor) -> NoReturn:
    if descriptor.fd == _LEFT_WITH_PARENT:
        raise Closed("this file was opened by the process that forked this one: open it again here", name=name)
    raise Closed("this file was closed", name=name)


def _size_bytes(buffer: Buffer) -> int:
    return buffer.nbytes if isinstance(buffer, memoryview) else len(buffer)


def _write_all(fd: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write all buffers from this position on, and say where they end."""
    for start in range(0, len(buffers), BUFFERS_PER_WRITE_MAX):
        part = buffers[start : start + BUFFERS_PER_WRITE_MAX] if len(buffers) > BUFFERS_PER_WRITE_MAX else buffers
        wanted = sum([b.nbytes if type(b) is memoryview else len(b) for b in part])
        written = os.pwritev(fd, part, position) if wanted else 0
        if written != wanted:
            _write_rest(fd, part, position, written)
        position += wanted
    return position


def _write_rest(fd: int, buffers: Sequence[Buffer], position: int, written: int) -> None:
    """Go on after a short write: the system stopped early and says why, if anything is wrong, at the next call."""
    skip = written
    position += written
    for buffer in buffers:
        size = _size_bytes(buffer)
        if skip >= size:
            skip -= size
            continue
        rest = memoryview(buffer).cast("B")[skip:]
        skip = 0
        while rest:
            written = os.pwrite(fd, rest, position)
            if written == 0:
                raise OSError(errno.EIO, "the system wrote nothing and gave no reason")
            position += written
            rest = rest[written:]


def _sync_data(fd: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def _sync_all(fd: int) -> None:
    if sys.platform == "darwin":
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fsync(fd)


def _sync_directory(path: str) -> None:
    descriptor = _open_descriptor(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor.fd)
    finally:
        descriptor.close()


def sync_files(paths: Sequence[str]) -> None:
    """Make files that somebody else wrote durable, by their absolute paths: their bytes, and their names with those of
    the directories above them."""
    directories: set[str] = set()
    for path in paths:
        descriptor = _open_descriptor(path, os.O_RDONLY)
        try:
            _sync_all(descriptor.fd)
        finally:
            descriptor.close()
        above = os.path.dirname(path)
        while above not in directories:
            directories.add(above)
            above = os.path.dirname(above)
    # The deepest first: a directory's own name is in the one above it.
    for directory in sorted(directories, key=len, reverse=True):
        try:
            _sync_directory(directory)
        except PermissionError:
            # A directory that we may not read was made by somebody else: its names are theirs to sync.
            continue


class DiskFile:
    """One open file."""

    # Every verb keeps the descriptor in a variable of its own while it works: that reference is
    # what keeps the number from being closed, and used again, under it.
    __slots__ = ("_descriptor", "_end", "_name")

    def __init__(self, name: str, descriptor: _Descriptor, end: int) -> None:
        self._name = name
        self._descriptor = descriptor
        self._end = end

    @property
    def name(self) -> str:
        return self._name

    def append(self, buffers: Sequence[Buffer]) -> int:
        descriptor = self._descriptor
        if descriptor.fd < 0:
            _raise_closed(self._name, descriptor)
        position = self._end
        self._end = _write_all(descriptor.fd, buffers, position)
        return position

    def write_at(self, position: int, data: Buffer) -> None:
        descriptor = self._descriptor
        if descriptor.fd < 0:
            _raise_closed(self._name, descriptor)
        size = _size_bytes(data)
        if not size:
            return
        written = os.pwrite(descriptor.fd, data, position)
        if written != size:
            _write_rest(descriptor.fd, (data,), position, written)
        self._end = max(self._end, position + size)

    def read_at(self, position: int, size: int) -> bytes:
        descriptor = self._descriptor
        if descriptor.fd < 0:
            _raise_closed(self._name, descriptor)
        data = os.pread(descriptor.fd, size, position)
        if len(data) == size:
            return data
        parts = [data]
        got = len(data)
        while got < size and parts[-1]:
            parts.append(os.pread(descriptor.fd, size - got, position + got))
            got += len(parts[-1])
        if got < size:
            raise ShortRead(f"{self._name} has {got} bytes at {position} where {size} were wanted")
        return b"".join(parts)

    def read_into(self, position: int, buffer: memoryview) -> int:
        descriptor = self._descriptor
        if descriptor.fd < 0:
            _raise_closed(self._name, descriptor)
        size = buffer.nbytes
        if not size:
            return 0
        got = now = os.preadv(descriptor.fd, (buffer,), position)
        while now and got < size:
            now = os.preadv(descriptor.fd, (buffer.cast("B")[got:],), position + got)
            got += now
        return got

    def sync_data(self) -> None:
        descriptor = self._descriptor
        if descriptor.fd < 0:
            _raise_closed(self._name, descriptor)
        _sync_data(descriptor.fd)

    def sync_all(self) -> None:
        descriptor = self._descriptor
        if descriptor.fd < 0:
            _raise_closed(self._name, descriptor)
        _sync_all(descriptor.fd)

    def truncate(self, size: int) -> None:
        descriptor = self._descriptor
        if descriptor.fd < 0:
            _raise_closed(self._name, descriptor)
        present = os.fstat(descriptor.fd).st_size
        if size > present:
            raise ValueError(f"{self._name} has {present} bytes and cannot be cut to {size}")
        os.ftruncate(descriptor.fd, size)
        self._end = size

    def size(self) -> int:
        descriptor = self._descriptor
        if descriptor.fd < 0:
            _raise_closed(self._name, descriptor)
        return os.fstat(descriptor.fd).st_size

    def close(self) -> None:
        self._descriptor = _NO_DESCRIPTOR


class DiskLock:
    """A flock on a lock file; it ends with `release`, with this object, or with the process."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: _Descriptor) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Let others have it; releasing twice, or what a parent holds, is nothing."""
        descriptor, self._descriptor = self._descriptor, _NO_DESCRIPTOR
        if descriptor.fd < 0:
            return
        try:
            # Closing alone would not do while a child that was forked without Python's knowledge
            # still has this open file.
            fcntl.flock(descriptor.fd, fcntl.LOCK_UN)
        finally:
            descriptor.close()


class DiskFiles:
    """The directory tree under `root`, which need not exist before `make_directory`."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.path.abspath(os.fspath(root))

    def __repr__(self) -> str:
        return f"DiskFiles({self._root!r})"

    def create(self, name: str) -> DiskFile:
        return DiskFile(name, _open_descriptor(self._path(name), os.O_RDWR | os.O_CREAT | os.O_EXCL), 0)

    def open(self, name: str, *, writable: bool = False) -> DiskFile:
        descriptor = _open_descriptor(self._path(name), os.O_RDWR if writable else os.O_RDONLY)
        status = os.fstat(descriptor.fd)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
        return DiskFile(name, descriptor, status.st_size)

    def list(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self._path(directory)))
        except FileNotFoundError:
            return []

    def rename(self, old: str, new: str) -> None:
        if os.path.dirname(old) != os.path.dirname(new):
            raise ValueError(f"{old} and {new} are not in one directory")
        os.replace(self._path(old), self._path(new))

    def unlink(self, name: str) -> None:
        os.unlink(self._path(name))

    def sync_directory(self, directory: str) -> None:
        _sync_directory(self._path(directory))

    def make_directory(self, directory: str) -> None:
        path = self._path(directory)
        self._make_root()
        below = self._root
        for part in path[len(self._root) :].split("/"):
            if part:
                parent, below = below, f"{below}/{part}"
                _make_one_directory(below)
                # Also where it was there before: whoever made it may have been killed before its sync.
                _sync_directory(parent)

    def allocate(self, name: str, size: int) -> None:
        path = self._path(name)
        descriptor = _open_descriptor(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            _take_blocks(descriptor.fd, size)
        except OSError:
            os.unlink(path)
            raise
        finally:
            descriptor.close()

    def lock(self, name: str, note: str) -> DiskLock:
        path = self._path(name)
        while True:
            descriptor = _open_descriptor(path, os.O_RDWR | os.O_CREAT)
            try:
                fcntl.flock(descriptor.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                holder = os.pread(descriptor.fd, NOTE_SIZE_BYTES, 0).decode("utf-8", "replace").strip()
                raise LockHeld(name, holder) from error
            if _is_still_named(descriptor.fd, path):
                break
            # The last holder removed the file between our open and our lock: what we hold now
            # has no name, and nobody else would meet it.
            descriptor.close()
        os.pwrite(descriptor.fd, note.encode()[: NOTE_SIZE_BYTES - 1].ljust(NOTE_SIZE_BYTES - 1) + b"\n", 0)
        return DiskLock(descriptor)

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root

    def _make_root(self) -> None:
        missing = []
        path = self._root
        while not os.path.isdir(path):
            missing.append(path)
            path = os.path.dirname(path)
        for path in reversed(missing):
            _make_one_directory(path)
            _sync_directory(os.path.dirname(path))
        if not missing:
            try:
                _sync_directory(os.path.dirname(self._root))
            except PermissionError:
                # Somebody else made the root in a directory that we may not read: its name is theirs to sync.
                return


def _make_one_directory(path: str) -> None:
    try:
        os.mkdir(path, 0o755)
    except FileExistsError as error:
        if not os.path.isdir(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from error


def _take_blocks(fd: int, size: int) -> None:
    if not size:
        return
    if sys.platform != "darwin":
        try:
            os.posix_fallocate(fd, 0, size)
            return
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise
    zeroes = bytes(min(size, ZEROES_PER_WRITE_BYTES))
    for position in range(0, size, len(zeroes)):
        _write_all(fd, (memoryview(zeroes)[: size - position],), position)


def _is_still_named(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


class Space(NamedTuple):
    """What the file system of a directory has."""

    free_bytes: int
    """For whoever is not root."""
    size_bytes: int


def space_of(directory: str) -> Space:
    """The space of the file system in which this directory is."""
    found = os.statvfs(directory)
    return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


def file_system_of(directory: str) -> str:
    """The kind of the file system in which this directory is ("ext4", "nfs4", "tmpfs"); "" where nothing says so."""
    path = os.path.realpath(directory)
    try:
        with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:
        return ""  # not a Linux
    found = ("", "")
    for line in lines:
        mounted, _, rest = line.partition(" - ")
        place = mounted.split(" ")[4].replace("\\040", " ")
        # The last of two mounts at one place lies over the first.
        if os.path.commonpath([place, path]) == place and len(place) >= len(found[0]):
            found = (place, rest.split(" ")[0])
    return found[1]


def mode_of(path: str) -> int:
    """Who may do what with it, as `chmod` says it."""
    return stat.S_IMODE(os.stat(path).st_mode)


def may_write(directory: str) -> bool:
    """May this user make files there?"""
    return os.access(directory, os.W_OK | os.X_OK)


def new_temporary_directory(beginning: str) -> str:
    """A new directory for a while, where the system keeps such; whoever asks for it removes it."""
    return tempfile.mkdtemp(prefix=beginning)


def remove_directory(path: str) -> None:
    """A directory and all that is in it; what somebody else removes meanwhile is no error."""
    shutil.rmtree(path, ignore_errors=True)
