"""A real file system that loses, on command, everything that was not synced.

HOLDS    A tree of files and directories with two views (below), the FUSE server that shows it to the kernel (a process
         of its own: `python tests/e2e/lossy_filesystem.py BACKING MOUNTPOINT`), and `LossyMount`, with which a test
         starts the server, takes its power away and mounts what is left.
PROMISE  *Cache* is what processes see.  *Disk* is what a power loss leaves: the backing directory.  Data and size of a
         file go from cache to disk at fsync or fdatasync of that file and at no other time; a name goes there at fsync
         of its directory and at no other time: syncing a file does not sync its name.
LOSS     A power loss keeps nothing unsynced, all of it, or a part that the seed chooses: of each file a size (old, new
         or between) and, sector by sector of 512 bytes, old or new bytes, and behind the durable end also zeroes or
         garbage; of each directory any subset of the changes of its names.  A sector that holds durable bytes is old
         or new, never garbage, and a renamed file keeps at least one of its names: disks and journals promise both.
         After the loss every request fails with EIO until the server ends, as if nobody were there to answer.
CACHES   The kernel caches neither data (direct I/O) nor names nor attributes (valid for 0 seconds), and each loss is
         followed by a new mount, so nothing that was lost can be read from memory.
NOT HERE Locks: the kernel keeps flock for a file system that does not ask for it.  Hard links, symbolic links, renames
         from one directory into another (EXDEV), permissions.

It speaks the kernel's protocol (linux/fuse.h, version 7.31) on /dev/fuse itself rather than through libfuse: a test
machine then needs the device and root and nothing else, and a file that was unlinked while it is open stays a number,
where libfuse's path interface would give it a hidden name that our directory listings would see.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import json
import os
import random
import select
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from pathlib import Path
from types import TracebackType
from typing import Any, Final

SECTOR_SIZE: Final = 512
ROOT_NUMBER: Final = 1
DIRECTORY_SUFFIX: Final = ".names"

# ------------------------------------------------------------------------------------------------ the two views


@dataclass
class Loss:
    """What one power loss did; zero `sectors_dropped` and `names_dropped` mean that it was only a crash."""

    seed: int
    kept: str
    sectors_kept: int = 0
    sectors_dropped: int = 0
    names_kept: int = 0
    names_dropped: int = 0


class LossyFile:
    """One file: its cache in memory, its disk in the backing file with its number."""

    def __init__(self, number: int, stored: Path) -> None:
        self.number = number
        self._stored = stored
        self._resized = False
        self._dirty: set[int] = set()
        if not stored.exists():
            stored.write_bytes(b"")
        self.cache = bytearray(stored.read_bytes())

    def write(self, position: int, data: bytes) -> None:
        if position > len(self.cache):
            self.resize(position)
        end = position + len(data)
        if end > len(self.cache):
            self._resized = True
        self.cache[position:end] = data
        self._dirty.update(range(position // SECTOR_SIZE, -(-end // SECTOR_SIZE)))

    def resize(self, size: int) -> None:
        old_size = len(self.cache)
        if size == old_size:
            return
        if size > old_size:
            self.cache.extend(bytes(size - old_size))
            self._dirty.update(range(old_size // SECTOR_SIZE, -(-size // SECTOR_SIZE)))
        else:
            del self.cache[size:]
            self._dirty = {sector for sector in self._dirty if sector * SECTOR_SIZE < size}
        self._resized = True

    def sync(self) -> None:
        """The disk is the cache from here on."""
        descriptor = os.open(self._stored, os.O_WRONLY)
        try:
            if self._dirty:
                # Sectors between two dirty ones are the same in both views: one write does for all of them.
                start, end = min(self._dirty) * SECTOR_SIZE, (max(self._dirty) + 1) * SECTOR_SIZE
                os.pwrite(descriptor, self.cache[start:end], start)
            os.ftruncate(descriptor, len(self.cache))
        finally:
            os.close(descriptor)
        self._dirty.clear()
        self._resized = False

    def lose(self, rng: random.Random, keep_chance: float, loss: Loss) -> None:
        """Keep the part of the unsynced bytes, and the size, that `rng` chooses."""
        if not self._dirty and not self._resized:
            return
        disk = self._stored.read_bytes()
        size = self._surviving_size(rng, len(disk), keep_chance)
        result = bytearray(disk[:size]) + bytes(max(0, size - len(disk)))
        for sector in sorted(self._dirty):
            start = sector * SECTOR_SIZE
            new = self.cache[start : min(start + SECTOR_SIZE, size)]
            if start >= size:
                loss.sectors_dropped += 1
            elif rng.random() < keep_chance:
                result[start : start + len(new)] = new
                loss.sectors_kept += 1
            else:
                # The disk's own promise is that a sector it held before is old or new.  One that was never written
                # may show whatever lay there: zeroes, or something that somebody else deleted.
                if start >= len(disk) and rng.random() < 0.3:
                    result[start : start + len(new)] = rng.randbytes(len(new))
                loss.sectors_dropped += 1
        self._stored.write_bytes(result)

    def _surviving_size(self, rng: random.Random, old: int, keep_chance: float) -> int:
        new = len(self.cache)
        if keep_chance <= 0:
            return old
        if new > old and rng.random() < 0.4:
            return rng.randint(old, new)
        return rng.choice((old, new, new))


@dataclass(frozen=True)
class NameChange:
    """One change of a directory's names that no sync of the directory has covered yet."""

    verb: str
    name: str
    number: int
    new_name: str = ""

    def apply_to(self, names: dict[str, int]) -> None:
        if self.verb == "make":
            names[self.name] = self.number
        elif self.verb == "remove":
            if names.get(self.name) == self.number:
                del names[self.name]
        else:
            names[self.new_name] = self.number
            if names.get(self.name) == self.number:
                del names[self.name]


class LossyDirectory:
    """One directory: its names in memory, and those on disk in the backing file with its number."""

    def __init__(self, number: int, stored: Path) -> None:
        self.number = number
        self._stored = stored
        self._changes: list[NameChange] = []
        if not stored.exists():
            stored.write_text("{}")
        self.names: dict[str, int] = json.loads(stored.read_text())

    def change(self, change: NameChange) -> None:
        change.apply_to(self.names)
        self._changes.append(change)

    def sync(self) -> None:
        self._stored.write_text(json.dumps(self.names))
        self._changes.clear()

    def lose(self, rng: random.Random, keep_chance: float, loss: Loss) -> None:
        names: dict[str, int] = json.loads(self._stored.read_text())
        for change in self._changes:
            if rng.random() < keep_chance:
                change.apply_to(names)
                loss.names_kept += 1
            else:
                loss.names_dropped += 1
        self._stored.write_text(json.dumps(names))


Node = LossyFile | LossyDirectory


class LossyTree:
    """All nodes, by number; 1 is the root.  Nodes without a name go when the tree is opened, as fsck would have it."""

    def __init__(self, backing: Path) -> None:
        self._backing = backing
        self.nodes: dict[int, Node] = {}
        self._load(ROOT_NUMBER, is_directory=True)
        for stored in backing.iterdir():
            if int(stored.name.removesuffix(DIRECTORY_SUFFIX)) not in self.nodes:
                stored.unlink()
        self._next_number = max(self.nodes) + 1

    def _load(self, number: int, *, is_directory: bool) -> None:
        if not is_directory:
            self.nodes[number] = LossyFile(number, self._backing / str(number))
            return
        directory = LossyDirectory(number, self._backing / f"{number}{DIRECTORY_SUFFIX}")
        self.nodes[number] = directory
        for child in directory.names.values():
            # A name can be durable before anything of what it names is: then it names an empty file.
            self._load(child, is_directory=(self._backing / f"{child}{DIRECTORY_SUFFIX}").exists())

    def make(self, parent: LossyDirectory, name: str, *, is_directory: bool) -> Node:
        if name in parent.names:
            raise FileExistsError(errno.EEXIST, name)
        number = self._next_number
        self._next_number += 1
        self._load(number, is_directory=is_directory)
        parent.change(NameChange("make", name, number))
        return self.nodes[number]

    def lose(self, seed: int, kept: str) -> Loss:
        """`kept`: "nothing", "everything", or "some", where the seed also says about how much."""
        rng = random.Random(seed)
        keep_chance = {"nothing": 0.0, "everything": 1.1, "some": rng.choice((0.1, 0.5, 0.9))}[kept]
        loss = Loss(seed, kept)
        for node in self.nodes.values():
            if kept == "everything":
                node.sync()
            else:
                node.lose(rng, keep_chance, loss)
        return loss


# ------------------------------------------------------------------------------------------- the kernel's protocol

IN_HEADER: Final = struct.Struct("<IIQQIIIHH")
OUT_HEADER: Final = struct.Struct("<IiQ")
ATTRIBUTES: Final = struct.Struct("<6Q3I7I")
MAX_WRITE_SIZE: Final = 1024 * 1024
REQUEST_SIZE_MAX: Final = MAX_WRITE_SIZE + 64 * 1024

DIRECT_IO: Final = 1
SET_SIZE: Final = 1 << 3
BIG_WRITES, MAX_PAGES = 1 << 5, 1 << 22


class Request(IntEnum):
    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    MKDIR = 9
    UNLINK = 10
    RMDIR = 11
    RENAME = 12
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    OPENDIR = 27
    READDIR = 28
    RELEASEDIR = 29
    FSYNCDIR = 30
    ACCESS = 34
    CREATE = 35
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42
    RENAME2 = 45


NAMING: Final = frozenset(
    (Request.MKDIR, Request.UNLINK, Request.RMDIR, Request.RENAME, Request.CREATE, Request.RENAME2)
)
"""Those that make, move or remove a name."""
CHANGING: Final = NAMING | {Request.SETATTR, Request.WRITE, Request.FSYNC, Request.FSYNCDIR}
"""Those that change or sync something: the places where a power loss makes a difference."""
UNANSWERED: Final = frozenset((Request.FORGET, Request.INTERRUPT, Request.BATCH_FORGET))
ANSWERED_IN_THE_DARK: Final = frozenset(
    (Request.RELEASE, Request.FLUSH, Request.INIT, Request.RELEASEDIR, Request.DESTROY)
)
"""Letting go of a file works also without power.  FLUSH, which is sent at close(), is answered with "no such request":
the kernel then never asks again, and closing a file of a mount that is long gone is no error either."""


@dataclass
class Order:
    """To lose power, and when."""

    seed: int
    kept: str
    after_changes: int
    """This many changing requests are still counted, and the last of them is no longer answered; 0 is now."""
    from_next_name: bool = False
    """The count begins with the next request that makes, moves or removes a name: a roll, on a log."""


class FuseServer:
    """Answers the kernel's requests from the tree, one after the other, and loses power when it is told to."""

    def __init__(self, tree: LossyTree, device: int, report: Callable[[Loss], None]) -> None:
        self._tree = tree
        self._device = device
        self._report = report
        self._dark = False
        self._armed: Order | None = None
        self._handlers: dict[int, Callable[[int, memoryview], bytes]] = {
            Request.LOOKUP: self._lookup,
            Request.GETATTR: self._getattr,
            Request.SETATTR: self._setattr,
            Request.MKDIR: self._mkdir,
            Request.UNLINK: self._unlink,
            Request.RMDIR: self._rmdir,
            Request.RENAME: self._rename,
            Request.OPEN: self._open,
            Request.READ: self._read,
            Request.WRITE: self._write,
            Request.STATFS: self._statfs,
            Request.RELEASE: self._nothing,
            Request.FSYNC: self._fsync,
            Request.INIT: self._init,
            Request.OPENDIR: self._opendir,
            Request.READDIR: self._readdir,
            Request.RELEASEDIR: self._nothing,
            Request.FSYNCDIR: self._fsync,
            Request.ACCESS: self._nothing,
            Request.CREATE: self._create,
            Request.DESTROY: self._nothing,
            Request.RENAME2: self._rename2,
        }

    def arm(self, order: Order) -> None:
        self._armed = order
        if order.after_changes == 0:
            self._lose_power(order)

    def serve_one(self) -> bool:
        """Read and answer one request; False when the file system has been unmounted."""
        try:
            request = os.read(self._device, REQUEST_SIZE_MAX)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return False
            if error.errno in (errno.ENOENT, errno.EINTR, errno.EAGAIN):
                return True  # The request was taken back before we could read it.
            raise
        _, opcode, unique, node, *_ = IN_HEADER.unpack_from(request)
        if opcode in UNANSWERED:
            return True
        try:
            self._answer(unique, 0, self._result(opcode, node, memoryview(request)[IN_HEADER.size :]))
        except OSError as error:
            self._answer(unique, -(error.errno or errno.EIO), b"")
        return True

    def _result(self, opcode: int, node: int, body: memoryview) -> bytes:
        order = self._armed
        if order is not None and opcode in CHANGING:
            order.from_next_name = order.from_next_name and opcode not in NAMING
            if not order.from_next_name:
                order.after_changes -= 1
            if order.after_changes == 0:
                self._lose_power(order)
        if self._dark and opcode not in ANSWERED_IN_THE_DARK:
            raise OSError(errno.EIO, "the power is gone")
        handler = self._handlers.get(opcode)
        if handler is None:
            raise OSError(errno.ENOSYS, f"request {opcode}")
        return handler(node, body)

    def _lose_power(self, order: Order) -> None:
        if not self._dark:
            self._dark = True
            self._report(self._tree.lose(order.seed, order.kept))

    def _answer(self, unique: int, error: int, result: bytes) -> None:
        try:
            os.writev(self._device, [OUT_HEADER.pack(OUT_HEADER.size + len(result), error, unique), result])
        except OSError as failure:
            if failure.errno not in (errno.ENOENT, errno.ENODEV):
                raise
            # The asker was killed and no longer waits, or the mount is gone.

    # ---- one method for each request

    def _file(self, number: int) -> LossyFile:
        node = self._tree.nodes[number]
        if isinstance(node, LossyDirectory):
            raise IsADirectoryError(errno.EISDIR, "a directory")
        return node

    def _directory(self, number: int) -> LossyDirectory:
        node = self._tree.nodes[number]
        if isinstance(node, LossyFile):
            raise NotADirectoryError(errno.ENOTDIR, "a file")
        return node

    def _child(self, parent: LossyDirectory, name: str) -> Node:
        if name not in parent.names:
            raise FileNotFoundError(errno.ENOENT, name)
        return self._tree.nodes[parent.names[name]]

    @staticmethod
    def _attributes(node: Node) -> bytes:
        is_file = isinstance(node, LossyFile)
        size = len(node.cache) if isinstance(node, LossyFile) else 0
        mode = stat.S_IFREG | 0o644 if is_file else stat.S_IFDIR | 0o755
        links = 1 if is_file else 2
        return ATTRIBUTES.pack(
            node.number, size, -(-size // SECTOR_SIZE), 0, 0, 0, 0, 0, 0, mode, links, 0, 0, 0, 4096, 0
        )

    def _entry(self, node: Node) -> bytes:
        return struct.pack("<QQQQII", node.number, 0, 0, 0, 0, 0) + self._attributes(node)

    def _nothing(self, node: int, body: memoryview) -> bytes:
        return b""

    def _init(self, node: int, body: memoryview) -> bytes:
        flags = BIG_WRITES | MAX_PAGES
        return struct.pack("<4I2H2I2HI7I", 7, 31, 0, flags, 16, 12, MAX_WRITE_SIZE, 1, 256, 0, 0, *([0] * 7))[:64]

    def _lookup(self, node: int, body: memoryview) -> bytes:
        return self._entry(self._child(self._directory(node), _one_name(body)))

    def _getattr(self, node: int, body: memoryview) -> bytes:
        return struct.pack("<QII", 0, 0, 0) + self._attributes(self._tree.nodes[node])

    def _setattr(self, node: int, body: memoryview) -> bytes:
        valid, _, _, size = struct.unpack_from("<IIQQ", body)
        if valid & SET_SIZE:
            self._file(node).resize(size)
        return self._getattr(node, body)

    def _mkdir(self, node: int, body: memoryview) -> bytes:
        return self._entry(self._tree.make(self._directory(node), _one_name(body[8:]), is_directory=True))

    def _create(self, node: int, body: memoryview) -> bytes:
        made = self._tree.make(self._directory(node), _one_name(body[16:]), is_directory=False)
        return self._entry(made) + self._open(made.number, body)

    def _unlink(self, node: int, body: memoryview) -> bytes:
        parent, name = self._directory(node), _one_name(body)
        child = self._child(parent, name)
        parent.change(NameChange("remove", name, self._file(child.number).number))
        return b""

    def _rmdir(self, node: int, body: memoryview) -> bytes:
        parent, name = self._directory(node), _one_name(body)
        child = self._directory(self._child(parent, name).number)
        if child.names:
            raise OSError(errno.ENOTEMPTY, name)
        parent.change(NameChange("remove", name, child.number))
        return b""

    def _rename(self, node: int, body: memoryview) -> bytes:
        return self._rename_to(node, struct.unpack_from("<Q", body)[0], body[8:])

    def _rename2(self, node: int, body: memoryview) -> bytes:
        new_directory, flags, _ = struct.unpack_from("<QII", body)
        if flags:
            raise OSError(errno.EINVAL, "renames with flags")
        return self._rename_to(node, new_directory, body[16:])

    def _rename_to(self, node: int, new_directory: int, names: memoryview) -> bytes:
        if new_directory != node:
            raise OSError(errno.EXDEV, "renames stay in their directory")
        parent = self._directory(node)
        old, new = (name.decode() for name in bytes(names).split(b"\0")[:2])
        parent.change(NameChange("rename", old, self._child(parent, old).number, new))
        return b""

    def _open(self, node: int, body: memoryview) -> bytes:
        return struct.pack("<QIi", self._file(node).number, DIRECT_IO, 0)

    def _opendir(self, node: int, body: memoryview) -> bytes:
        return struct.pack("<QIi", self._directory(node).number, 0, 0)

    def _read(self, node: int, body: memoryview) -> bytes:
        _, position, size = struct.unpack_from("<QQI", body)
        return bytes(self._file(node).cache[position : position + size])

    def _write(self, node: int, body: memoryview) -> bytes:
        _, position, size = struct.unpack_from("<QQI", body)
        self._file(node).write(position, bytes(body[40 : 40 + size]))
        return struct.pack("<II", size, 0)

    def _fsync(self, node: int, body: memoryview) -> bytes:
        self._tree.nodes[node].sync()
        return b""

    def _statfs(self, node: int, body: memoryview) -> bytes:
        return struct.pack("<5Q4I6I", 1 << 20, 1 << 19, 1 << 19, 1 << 20, 1 << 19, 4096, 255, 4096, 0, *([0] * 6))

    def _readdir(self, node: int, body: memoryview) -> bytes:
        _, start, size = struct.unpack_from("<QQI", body)
        directory = self._directory(node)
        listed = [(".", node), ("..", ROOT_NUMBER), *directory.names.items()]
        result = b""
        for position, (name, number) in enumerate(listed[start:], start + 1):
            kind = stat.S_IFDIR if isinstance(self._tree.nodes[number], LossyDirectory) else stat.S_IFREG
            entry = struct.pack("<QQII", number, position, len(name.encode()), kind >> 12) + name.encode()
            entry += bytes(-len(entry) % 8)
            if len(result) + len(entry) > size:
                break
            result += entry
        return result


def _one_name(body: memoryview) -> str:
    return bytes(body).split(b"\0", 1)[0].decode()


# ---------------------------------------------------------------------------------------------- the server process

DETACH: Final = 2


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def unmount(mountpoint: Path) -> None:
    """Take the mount away at once, busy or not; nothing if it is gone already."""
    if _libc().umount2(os.fsencode(mountpoint), DETACH) != 0:
        number = ctypes.get_errno()
        if number not in (errno.EINVAL, errno.ENOENT):
            raise OSError(number, os.strerror(number), str(mountpoint))


def serve(backing: Path, mountpoint: Path) -> None:
    """Mount, say so in a line on stdout, and serve until the mount or the asker at stdin is gone."""
    tree = LossyTree(backing)
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,max_read={MAX_WRITE_SIZE}"
    if _libc().mount(b"headwater-lossy", os.fsencode(mountpoint), b"fuse", 0, options.encode()) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(mountpoint))

    def tell(facts: dict[str, object]) -> None:
        os.write(1, json.dumps(facts).encode() + b"\n")

    server = FuseServer(tree, device, lambda loss: tell(asdict(loss)))
    poller = select.poll()
    poller.register(device, select.POLLIN)
    poller.register(0, select.POLLIN)
    commands = b""
    try:
        tell({"mounted": str(mountpoint)})
        while True:
            ready = dict(poller.poll())
            if 0 in ready:
                received = os.read(0, 4096)
                if not received:
                    return  # Whoever started us is gone, or wants us gone.
                *lines, commands = (commands + received).split(b"\n")
                for line in lines:
                    server.arm(Order(**json.loads(line)))
            if device in ready and not server.serve_one():
                return
    finally:
        os.close(device)  # Ends every request that still waits, so that nobody hangs on a dead mount.
        unmount(mountpoint)


# ------------------------------------------------------------------------------------------------ the test's side


@dataclass
class LossyMount:
    """The file system, mounted, in a process of its own.  A context manager; leaving it without a loss loses nothing
    but what was not synced."""

    backing: Path
    mountpoint: Path
    _process: subprocess.Popen[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self.backing.mkdir(parents=True, exist_ok=True)
        self.mountpoint.mkdir(parents=True, exist_ok=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(self.backing), str(self.mountpoint)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
        )
        try:
            self._line(timeout_s=20.0)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> LossyMount:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def arm(self, order: Order) -> None:
        """Lose power when the order says so; `wait_for_loss` says what was lost."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
        self._process.stdin.flush()

    def wait_for_loss(self, timeout_s: float) -> Loss | None:
        """What the loss did, or None if it has not come in this time."""
        try:
            return self._loss(timeout_s)
        except TimeoutError:
            return None

    def lose_power(self, *, seed: int, kept: str) -> Loss:
        """Now."""
        self.arm(Order(seed, kept, after_changes=0))
        return self._loss(timeout_s=20.0)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=10)
        finally:
            self._process.stdout.close()
            unmount(self.mountpoint)

    def _loss(self, timeout_s: float) -> Loss:
        facts: dict[str, Any] = json.loads(self._line(timeout_s))
        return Loss(**facts)

    def _line(self, timeout_s: float) -> bytes:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], timeout_s)
        if not ready:
            raise TimeoutError("the file system's process said nothing")
        line = self._process.stdout.readline()
        if not line:
            raise ConnectionError(f"the file system's process ended with {self._process.wait(timeout=10)}")
        return line


def main() -> None:
    parser = argparse.ArgumentParser(description="Serve a file system that loses unsynced data on command.")
    parser.add_argument("backing", type=Path)
    parser.add_argument("mountpoint", type=Path)
    arguments = parser.parse_args()
    serve(arguments.backing, arguments.mountpoint)


if __name__ == "__main__":
    main()
