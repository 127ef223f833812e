"""One open file of a bucket: bytes in memory that become an object, or an object that is read.

DRAFT    What is being written lies in memory, shared by all handles of its name, until it is synced: then it is put,
         whole.  To the others it is not there before, as on a disk after a power loss.
OBJECT   What is only read is read from the store: a segment by ranges, of which the request that opens it gets the
         first, and all else whole by the request that opens it.  So a checkpoint or an index costs one request and is
         what it was at one moment; a segment costs one a read, and its bytes never change (bucket_files.py).
REMOVED  A segment that was removed is no longer read by those who have it open: FileNotFoundError.
FORK     A child has none of its parent's files: using one raises Closed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from threading import Lock as Guard
from typing import Protocol

from headwater.errors import Closed
from headwater.storage.files import Buffer, ShortRead
from headwater.storage.objects import Objects
from headwater.storage.store_patience import Patience


class Content(Protocol):
    """Bytes, wherever they lie."""

    def read(self, position: int, size: int) -> bytes:
        """Fewer than `size` only where they end."""
        ...

    def size(self) -> int: ...


class Draft:
    """The bytes of a file that is being written."""

    def __init__(self, name: str, data: bytearray, etag: str | None) -> None:
        self.name = name
        self.etag = etag
        """Of the object that it was last put as, or read from; None where it never was one."""
        self.dirty = etag is None
        """It holds something that no object does; what has a temporary name always does."""
        self.linked = True
        """It still has its name."""
        self.writers = 0
        self.writing = Guard()
        """Held by whoever changes the bytes or puts them: a put needs them to stay as they are."""
        self._guard = Guard()
        self._data = data

    def read(self, position: int, size: int) -> bytes:
        with self._guard, memoryview(self._data) as view:
            return bytes(view[position : position + size])

    def size(self) -> int:
        return len(self._data)

    def write(self, position: int, data: Buffer) -> None:
        """All of it; beyond the end the bytes between are zero."""
        with self.writing, self._guard:
            size = len(self._data)
            if position > size:
                self._data.extend(bytes(position - size))
            self._data[position : position + len(data)] = data
            self.dirty = True

    def cut(self, size: int) -> None:
        with self.writing, self._guard:
            if size > len(self._data):
                raise ValueError(f"{self.name} has {len(self._data)} bytes and cannot be cut to {size}")
            del self._data[size:]
            self.dirty = True

    def put(self, put: Callable[[Buffer], str]) -> None:
        """Give all bytes to `put`, which says the etag.  Only by who holds `writing`."""
        with memoryview(self._data) as view, view.toreadonly() as whole:
            self.etag = put(whole)
        self.dirty = False


class Whole:
    """The bytes of an object, all here."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, position: int, size: int) -> bytes:
        return self._data[position : position + size]

    def size(self) -> int:
        return len(self._data)


class Ranged:
    """The bytes of an object, of which the first `head_bytes` are here, or fewer if it has fewer."""

    def __init__(self, objects: Objects, patience: Patience, name: str, head_bytes: int) -> None:
        self._objects = objects
        self._patience = patience
        self._name = name
        self._head = patience.ask(lambda: objects.get_range(name, 0, head_bytes))
        self._is_whole = len(self._head) < head_bytes
        self._size = len(self._head) if self._is_whole else None

    def read(self, position: int, size: int) -> bytes:
        if self._is_whole or position + size <= len(self._head):
            return self._head[position : position + size]
        return self._patience.ask(lambda: self._objects.get_range(self._name, position, size))

    def size(self) -> int:
        if self._size is None:
            self._size = self._patience.ask(lambda: self._objects.size(self._name))
        return self._size


class BucketFile:
    """One open file; `sync` and `leave` are what its BucketFiles does when it is synced and closed."""

    __slots__ = ("_content", "_draft", "_end", "_leave", "_name", "_pid", "_sync")

    def __init__(
        self,
        name: str,
        content: Content,
        draft: Draft | None = None,
        *,
        sync: Callable[[Draft], None],
        leave: Callable[[Draft], None],
    ) -> None:
        self._name = name
        self._content: Content | None = content
        self._draft = draft
        """Where writes go; None for a file that is only read."""
        self._end = draft.size() if draft is not None else 0
        self._sync = sync
        self._leave = leave
        self._pid = os.getpid()

    @property
    def name(self) -> str:
        return self._name

    def append(self, buffers: Sequence[Buffer]) -> int:
        draft = self._writable()
        position = self._end
        data = b"".join(buffers)
        if data:
            draft.write(position, data)
        self._end = position + len(data)
        return position

    def write_at(self, position: int, data: Buffer) -> None:
        draft = self._writable()
        written = bytes(data)
        if written:
            draft.write(position, written)
            self._end = max(self._end, position + len(written))

    def read_at(self, position: int, size: int) -> bytes:
        data = self._open().read(position, size) if size else b""
        if len(data) != size:
            raise ShortRead(f"{self._name} has {len(data)} bytes at {position} where {size} were wanted")
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        content = self._open()
        if not buffer.nbytes:
            return 0
        data = content.read(position, buffer.nbytes)
        buffer.cast("B")[: len(data)] = data
        return len(data)

    def sync_data(self) -> None:
        self._open()
        if self._draft is not None:
            self._sync(self._draft)

    def sync_all(self) -> None:
        self.sync_data()

    def truncate(self, size: int) -> None:
        draft = self._writable()
        draft.cut(size)
        self._end = size

    def size(self) -> int:
        return self._open().size()

    def close(self) -> None:
        self._content = None
        draft, self._draft = self._draft, None
        if draft is not None and self._pid == os.getpid():
            self._leave(draft)

    def __del__(self) -> None:
        # What nobody closed must not keep its bytes in memory.
        self.close()

    def _open(self) -> Content:
        content = self._content
        if content is None:
            raise Closed("this file was closed", name=self._name)
        if self._pid != os.getpid():
            raise Closed(
                "this file was opened by the process that forked this one: open it again here", name=self._name
            )
        return content

    def _writable(self) -> Draft:
        self._open()
        if self._draft is None:
            raise OSError(errno.EBADF, "this file was opened to be read", self._name)
        return self._draft
