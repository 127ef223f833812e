"""Files in a bucket of which nothing stays in memory: what one process writes is put at once, and another one reads it.

The contract speaks of what a process sees, and of its own unsynced bytes a BucketFiles shows it its memory.  Here every
sentence goes by way of the store.
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.clock import ManualClock
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.files import Buffer, File, Lock
from headwater.storage.objects import Objects


class SyncedFile:
    """An open file that is synced by whatever changes it."""

    def __init__(self, file: File) -> None:
        self._file = file

    @property
    def name(self) -> str:
        return self._file.name

    def append(self, buffers: Sequence[Buffer]) -> int:
        position = self._file.append(buffers)
        self._file.sync_data()
        return position

    def write_at(self, position: int, data: Buffer) -> None:
        self._file.write_at(position, data)
        self._file.sync_data()

    def read_at(self, position: int, size: int) -> bytes:
        return self._file.read_at(position, size)

    def read_into(self, position: int, buffer: memoryview) -> int:
        return self._file.read_into(position, buffer)

    def sync_data(self) -> None:
        self._file.sync_data()

    def sync_all(self) -> None:
        self._file.sync_all()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)
        self._file.sync_data()

    def size(self) -> int:
        return self._file.size()

    def close(self) -> None:
        self._file.close()


class SyncedFiles:
    """One process writes, another one reads, and each lock is taken by one of its own."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._writing = self._process()
        self._reading = self._process()

    def _process(self) -> BucketFiles:
        return BucketFiles(self._objects, clock=ManualClock(), threads=False)

    def create(self, name: str) -> SyncedFile:
        file = self._writing.create(name)
        file.sync_all()
        return SyncedFile(file)

    def open(self, name: str, *, writable: bool = False) -> File:
        return SyncedFile(self._writing.open(name, writable=True)) if writable else self._reading.open(name)

    def list(self, directory: str) -> list[str]:
        return self._reading.list(directory)

    def rename(self, old: str, new: str) -> None:
        self._writing.rename(old, new)

    def unlink(self, name: str) -> None:
        self._writing.unlink(name)

    def sync_directory(self, directory: str) -> None:
        self._writing.sync_directory(directory)

    def make_directory(self, directory: str) -> None:
        self._writing.make_directory(directory)

    def allocate(self, name: str, size: int) -> None:
        self._writing.allocate(name, size)

    def lock(self, name: str, note: str) -> Lock:
        return self._process().lock(name, note)
