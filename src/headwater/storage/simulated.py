"""Files in memory that crash, lose power and fail as badly as the table in files.py allows.

VIEWS    Every file has two: the *cache* is what processes read, also after kill -9 (`restart`);
         the *disk* is what a power loss leaves (`crash`).  power_loss.py says how one becomes the other.
NAMES    A create, rename or unlink is pending until sync_directory; on a power loss each pending
         change, by itself, is kept or lost.  A rename is one change: old or new name.
SYNC     A sync_data or sync_all that fails drops what is dirty, for ever, and leaves it readable.
LOCKS    Die with the process.  A lock file's name and note decide nothing, so a crash keeps them.
SEED     No clock, no entropy: the same calls, seeds and `chance` arguments give the same bytes.

One guard serialises all verbs, so one writer and many readers may share an instance.  An instance
that `crash` or `restart` returns is independent of the one it came from; contents are shared
until one of them writes.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from threading import Lock as Guard
from typing import Final

from headwater.errors import Closed
from headwater.storage.files import Buffer, LockHeld, ShortRead
from headwater.storage.power_loss import (
    ZERO_SECTOR,
    Fate,
    Inode,
    MixedPlan,
    Pending,
    Plan,
    overwritten,
    plans,
    sector_of,
    with_sector,
)

# `crash_states` ends when this many random states in a row have been seen before.
REPEATS_MAX: Final = 32


class Choice(Enum):
    """What a power loss keeps of all that was not synced."""

    NOTHING = "nothing"
    EVERYTHING = "everything"
    MIXED = "each sector, size and name by itself, drawn at random"


@dataclass(slots=True)
class _Change:
    """A pending change of names: `inode` gets the name `new` and loses every other; None is an unlink."""

    directory: str
    inode: Inode
    old: str | None
    new: str | None

    def apply(self, names: dict[str, Inode]) -> None:
        # By identity: if an earlier change was lost, the old name may belong to another file by now.
        for name in [name for name, inode in names.items() if inode is self.inode]:
            del names[name]
        if self.new is not None:
            names[self.new] = self.inode


@dataclass(slots=True)
class _Fault:
    calls_left: int
    error: int
    for_ever: bool
    verbs: frozenset[str] | None
    short: bool


class SimulatedFile:
    """One open file of a SimulatedFiles."""

    __slots__ = ("_closed", "_end", "_files", "_inode", "_name", "_writable")

    def __init__(self, files: SimulatedFiles, name: str, inode: Inode, *, writable: bool) -> None:
        self._files = files
        self._name = name
        self._inode = inode
        self._end = len(inode.cache)
        self._writable = writable
        self._closed = False

    @property
    def name(self) -> str:
        return self._name

    def append(self, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        position = self._end
        self._write("append", position, data)
        self._end = position + len(data)
        return position

    def write_at(self, position: int, data: Buffer) -> None:
        data = bytes(data)
        self._write("write_at", position, data)
        if data:
            self._end = max(self._end, position + len(data))

    def read_at(self, position: int, size: int) -> bytes:
        with self._begin("read_at"):
            data = bytes(memoryview(self._inode.cache)[position : position + size])
        if len(data) != size:
            raise ShortRead(f"{self._name} has {len(data)} bytes at {position} where {size} were wanted")
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        with self._begin("read_into"):
            data = memoryview(self._inode.cache)[position : position + buffer.nbytes]
            size = len(data)
            buffer.cast("B")[:size] = data
            data.release()
        return size

    def sync_data(self) -> None:
        self._sync("sync_data")

    def sync_all(self) -> None:
        self._sync("sync_all")

    def truncate(self, size: int) -> None:
        with self._begin("truncate"):
            present = len(self._inode.cache)
            if size > present:
                raise ValueError(f"{self._name} has {present} bytes and cannot be cut to {size}")
            if not self._writable:
                raise _error(errno.EINVAL, self._name)
            if size < present:
                self._inode.cut(size)
            self._end = size

    def size(self) -> int:
        with self._begin("size"):
            return len(self._inode.cache)

    def close(self) -> None:
        self._closed = True

    def _begin(self, verb: str) -> Guard:
        if self._closed:
            raise Closed("this file was closed", name=self._name)
        fault = self._files._count(verb, self._name)
        if fault is not None:
            raise _error(fault.error, self._name)
        return self._files._guard

    def _write(self, verb: str, position: int, data: bytes) -> None:
        if self._closed:
            raise Closed("this file was closed", name=self._name)
        if not self._writable:
            raise _error(errno.EBADF, self._name)
        files = self._files
        fault = files._count(verb, self._name)
        with files._guard:
            if fault is not None:
                if fault.short:
                    self._inode.write(position, data[: files._random().randrange(len(data) + 1)])
                raise _error(fault.error, self._name)
            if files.capacity_bytes is not None:
                room = files.capacity_bytes - files._used_bytes() + len(self._inode.cache) - position
                if room < len(data):
                    self._inode.write(position, data[: max(0, room)])
                    raise _error(errno.ENOSPC, self._name)
            self._inode.write(position, data)

    def _sync(self, verb: str) -> None:
        if self._closed:
            raise Closed("this file was closed", name=self._name)
        fault = self._files._count(verb, self._name)
        with self._files._guard:
            if fault is not None:
                self._inode.drop()
                raise _error(fault.error, self._name)
            self._inode.sync()


class SimulatedLock:
    """A held lock."""

    __slots__ = ("_files", "_inode")

    def __init__(self, files: SimulatedFiles, inode: Inode) -> None:
        self._files = files
        self._inode: Inode | None = inode

    def release(self) -> None:
        with self._files._guard:
            if self._inode is not None:
                del self._files._locks[self._inode]
                self._inode = None


# Verbs that change nothing and sync nothing: `before_call` does not hear of them.
_READS: Final = frozenset({"open", "list", "read_at", "read_into", "size"})


class SimulatedFiles:
    """A directory tree in memory.

    `calls`          every call so far, as (verb, name), unless made with remember_calls=False
    `before_call`    is told (verb, name) before each call that changes or syncs something; it may
                     take crash states, and what it raises goes to the caller in place of the call
    `capacity_bytes` the sum of all sizes at which ENOSPC begins, after a part that still fitted
    """

    __slots__ = (
        "_changes", "_directories", "_disk_names", "_faults", "_freed", "_guard", "_last_number",
        "_locks", "_names", "_remember_calls", "_short_sizes", "before_call", "calls", "capacity_bytes", "seed",
    )  # fmt: skip

    def __init__(self, seed: int = 0, *, remember_calls: bool = True) -> None:
        self.seed = seed
        self.calls: list[tuple[str, str]] = []
        self._remember_calls = remember_calls
        self.before_call: Callable[[str, str], None] | None = None
        self.capacity_bytes: int | None = None
        self._guard = Guard()
        self._names: dict[str, Inode] = {}
        self._disk_names: dict[str, Inode] = {}
        self._changes: list[_Change] = []
        self._directories: frozenset[str] = frozenset({""})
        self._locks: dict[Inode, str] = {}
        self._faults: list[_Fault] = []
        self._last_number = 0
        self._freed = b""  # what the next new file's blocks held in the file that was removed last
        self._short_sizes: Random | None = None

    # ------------------------------------------------------------------------------------ the verbs

    def create(self, name: str) -> SimulatedFile:
        with self._begin("create", name):
            return SimulatedFile(self, name, self._create(name), writable=True)

    def open(self, name: str, *, writable: bool = False) -> SimulatedFile:
        with self._begin("open", name):
            if name in self._directories:
                raise _error(errno.EISDIR, name)
            return SimulatedFile(self, name, self._find(name), writable=writable)

    def list(self, directory: str) -> list[str]:
        with self._begin("list", directory):
            if directory in self._names:
                raise _error(errno.ENOTDIR, directory)
            prefix = f"{directory}/" if directory else ""
            start = len(prefix)
            return sorted(
                path[start:]
                for path in (*self._names, *self._directories)
                if path.startswith(prefix) and len(path) > start and "/" not in path[start:]
            )

    def rename(self, old: str, new: str) -> None:
        if _directory_of(old) != _directory_of(new):
            raise ValueError(f"{old} and {new} are not in one directory")
        with self._begin("rename", old):
            inode = self._find(old)
            if new in self._directories:
                raise _error(errno.EISDIR, new)
            if new == old:
                return
            if new in self._names:
                self._free(self._names[new])
            self._change(_Change(_directory_of(new), inode, old, new))

    def unlink(self, name: str) -> None:
        with self._begin("unlink", name):
            if name in self._directories:
                raise _error(errno.EISDIR, name)
            inode = self._find(name)
            self._free(inode)
            self._change(_Change(_directory_of(name), inode, name, None))

    def sync_directory(self, directory: str) -> None:
        with self._begin("sync_directory", directory):
            if directory not in self._directories:
                raise _error(errno.ENOTDIR if directory in self._names else errno.ENOENT, directory)
            later = []
            for change in self._changes:
                if change.directory == directory:
                    change.apply(self._disk_names)
                else:
                    later.append(change)
            self._changes = later

    def make_directory(self, directory: str) -> None:
        with self._begin("make_directory", directory):
            self._make_directory(directory)

    def allocate(self, name: str, size: int) -> None:
        with self._begin("allocate", name):
            if self.capacity_bytes is not None and self._used_bytes() + size > self.capacity_bytes:
                raise _error(errno.ENOSPC, name)
            inode = self._create(name)
            if size:
                # Taken and never written: such blocks read as zeroes whatever happens, so only the size is pending.
                inode.cache = bytes(size)
                inode.sizes.append(size)

    def lock(self, name: str, note: str) -> SimulatedLock:
        with self._begin("lock", name):
            if name in self._directories:
                raise _error(errno.EISDIR, name)
            inode = self._names.get(name)
            if inode is None:
                self._check_parent(name)
                inode = self._new_inode()
                self._names[name] = self._disk_names[name] = inode
            if inode in self._locks:
                raise LockHeld(name, self._locks[inode])
            inode.cache = inode.disk = note.encode()
            self._locks[inode] = note
            return SimulatedLock(self, inode)

    # --------------------------------------------------------------------------------------- crashes

    def crash(self, chance: Random, *, choice: Choice = Choice.MIXED) -> SimulatedFiles:
        """What survives a power loss now, as a new instance; this one goes on untouched."""
        if choice is Choice.MIXED:
            return self._after_power_loss(MixedPlan(chance))
        return self._after_power_loss(Plan(chance, Fate.OLD if choice is Choice.NOTHING else Fate.NEW))

    def restart(self) -> SimulatedFiles:
        """What the next process finds after kill -9, as a new instance.

        What was dirty, dropped or pending is so still: a power loss after the restart loses it as before.
        """
        with self._guard:
            after = SimulatedFiles(self.seed)
            twins: dict[Inode, Inode] = {}

            def twin(inode: Inode) -> Inode:
                other = twins.get(inode)
                if other is None:
                    other = twins[inode] = inode.twin()
                return other

            after.capacity_bytes = self.capacity_bytes
            after._directories = self._directories
            after._last_number = self._last_number
            after._freed = self._freed
            after._names = {name: twin(inode) for name, inode in self._names.items()}
            after._disk_names = {name: twin(inode) for name, inode in self._disk_names.items()}
            after._changes = [_Change(c.directory, twin(c.inode), c.old, c.new) for c in self._changes]
            return after

    def pending(self) -> tuple[Pending, ...]:
        """Everything that a power loss now would keep or lose by itself."""
        with self._guard:
            items = [Pending(0, index) for index in range(len(self._changes))]
            inodes = {inode.number: inode for inode in self._disk_names.values()}
            inodes.update((change.inode.number, change.inode) for change in self._changes)
            for number, inode in sorted(inodes.items()):
                if inode.sizes:
                    items.append(Pending(number, -1))
                items.extend(Pending(number, sector) for sector in sorted(inode.dirty))
            return tuple(items)

    def crash_states(self, chance: Random, limit: int) -> Iterator[SimulatedFiles]:
        """At most `limit` different states that a power loss now may leave.

        First the extremes, then those where one thing is lost or one survives, then every subset if
        there are few, then random mixes.  A state whose names and bytes were given before is not
        given again, so there may be fewer than `limit`.  Take them before the next call changes something.
        """
        seen: set[int] = set()
        repeats = 0
        for plan in plans(chance, self.pending(), limit):
            if len(seen) >= limit or repeats >= REPEATS_MAX:
                return
            state = self._after_power_loss(plan)
            fingerprint = hash(frozenset((name, inode.cache) for name, inode in state._names.items()))
            if fingerprint not in seen:
                seen.add(fingerprint)
                repeats = 0
                yield state
            elif type(plan) is MixedPlan:
                repeats += 1

    def _after_power_loss(self, plan: Plan) -> SimulatedFiles:
        with self._guard:
            after = SimulatedFiles(self.seed)
            after.capacity_bytes = self.capacity_bytes
            after._directories = self._directories
            after._last_number = self._last_number
            after._freed = self._freed
            names = self._disk_names
            if self._changes:
                names = dict(names)
                for index, change in enumerate(self._changes):
                    if plan.keeps(index):
                        change.apply(names)
                    elif change.old is None:
                        # A file that nobody will find: its blocks go to the next one that is made.
                        change.inode.freeze()
                        after._freed = bytes(change.inode.cache)
            after._names = {name: inode.after_power_loss(plan) for name, inode in names.items()}
            after._disk_names = dict(after._names)
            return after

    # ---------------------------------------------------------------------------------------- faults

    def fail(
        self,
        nth_call: int,
        error: int,
        *,
        for_ever: bool = False,
        verbs: Sequence[str] | None = None,
        short: bool = False,
    ) -> None:
        """Let the n-th call from now (1 is the next) of these verbs, or of all, raise OSError(error).

        `for_ever` fails every such call after it too.  `short` lets an append or write_at write a
        first part of its bytes (how much, the seed decides; all and none are possible) and then raise.
        A sync that fails drops what is dirty; any other verb that fails does nothing.
        """
        if nth_call < 1:
            raise ValueError("the next call is call 1")
        with self._guard:
            wanted = None if verbs is None else frozenset(verbs)
            self._faults.append(_Fault(nth_call, error, for_ever, wanted, short))

    def heal(self) -> None:
        """Forget every fault that is still to come."""
        with self._guard:
            self._faults.clear()

    def flip_bit(self, name: str, bit: int) -> None:
        """Turn one bit over, in both views."""
        at, mask = bit // 8, 1 << bit % 8

        def flipped(data: bytes) -> bytes:
            return overwritten(data, at, bytes([data[at] ^ mask])) if at < len(data) else data

        with self._guard:
            self._find(name).damage(flipped)

    def zero_sector(self, name: str, sector: int) -> None:
        """Let a sector read as zeroes, in both views."""
        with self._guard:
            self._find(name).damage(lambda data: with_sector(data, sector, ZERO_SECTOR))

    def swap_sectors(self, name: str, a: int, b: int) -> None:
        """Let two sectors change places, in both views; the file keeps its size."""

        def swapped(data: bytes) -> bytes:
            return with_sector(with_sector(data, a, sector_of(data, b)), b, sector_of(data, a))

        with self._guard:
            self._find(name).damage(swapped)

    def misdirect(self, name: str, sector: int, to: int) -> None:
        """As if the write of `sector` had gone to `to`: there its bytes are, and here what was before."""
        with self._guard:
            inode = self._find(name)
            before = inode.ghosts.get(sector, ZERO_SECTOR)
            inode.damage(lambda data: with_sector(with_sector(data, sector, before), to, sector_of(data, sector)))

    def contents(self, name: str) -> bytes:
        """What a process reads now."""
        with self._guard:
            return bytes(self._find(name).cache)

    def contents_on_disk(self, name: str) -> bytes | None:
        """What a power loss leaves at the least; None if the name is not there for certain."""
        with self._guard:
            inode = self._disk_names.get(name)
            return None if inode is None else bytes(inode.disk)

    def put(self, name: str, data: bytes) -> None:
        """Make a file of these bytes, or replace its bytes, as if it had always been so: all synced."""
        with self._guard:
            self._make_directory(_directory_of(name))
            inode = self._names.get(name) or self._new_inode()
            inode.become(bytes(data))
            self._changes = [change for change in self._changes if change.inode is not inode]
            _Change(_directory_of(name), inode, None, name).apply(self._disk_names)
            self._names[name] = inode

    # ----------------------------------------------------------------------------------------- inside

    def _begin(self, verb: str, name: str) -> Guard:
        fault = self._count(verb, name)
        if fault is not None:
            raise _error(fault.error, name)
        return self._guard

    def _count(self, verb: str, name: str) -> _Fault | None:
        """Note the call down, and find the fault that it meets."""
        if self.before_call is not None and verb not in _READS:
            self.before_call(verb, name)
        if self._remember_calls:
            self.calls.append((verb, name))
        if not self._faults:
            return None
        with self._guard:
            met = None
            for fault in self._faults:
                if fault.verbs is None or verb in fault.verbs:
                    fault.calls_left -= 1
                    if fault.calls_left == 0 or (fault.calls_left < 0 and fault.for_ever):
                        met = met or fault
            self._faults = [fault for fault in self._faults if fault.calls_left > 0 or fault.for_ever]
            return met

    def _random(self) -> Random:
        if self._short_sizes is None:
            self._short_sizes = Random(self.seed)
        return self._short_sizes

    def _used_bytes(self) -> int:
        return sum(len(inode.cache) for inode in self._names.values())

    def _find(self, name: str) -> Inode:
        inode = self._names.get(name)
        if inode is None:
            raise _error(errno.ENOENT, name)
        return inode

    def _check_parent(self, name: str) -> None:
        directory = _directory_of(name)
        if directory not in self._directories:
            raise _error(errno.ENOTDIR if directory in self._names else errno.ENOENT, name)

    def _new_inode(self) -> Inode:
        self._last_number += 1
        return Inode(self._last_number, b"", b"", self._freed)

    def _create(self, name: str) -> Inode:
        self._check_parent(name)
        if name in self._names or name in self._directories:
            raise _error(errno.EEXIST, name)
        inode = self._new_inode()
        self._change(_Change(_directory_of(name), inode, None, name))
        return inode

    def _change(self, change: _Change) -> None:
        change.apply(self._names)
        self._changes.append(change)

    def _free(self, inode: Inode) -> None:
        inode.freeze()
        self._freed = bytes(inode.cache)

    def _make_directory(self, directory: str) -> None:
        made = set()
        while directory not in self._directories:
            if directory in self._names:
                raise _error(errno.ENOTDIR, directory)
            made.add(directory)
            directory = _directory_of(directory)
        self._directories |= made


def _directory_of(name: str) -> str:
    return name.rpartition("/")[0]


def _error(number: int, name: str) -> OSError:
    return OSError(number, os.strerror(number), name)
