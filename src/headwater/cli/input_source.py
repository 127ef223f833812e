"""The bytes that `headwater append` is given: a file, compressed or not, or a pipe.

PROMISE  Memory is flat: a block at a time is held, and one line that is not whole yet.
         A pipe that gives little is not waited for: what has come is given out after a moment of silence.
ORDER    Blocks are whole lines of the input, in its order; each knows the number of its first line.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from headwater.errors import InvalidRequest, TooLarge

BLOCK_BYTES = 4 * 1024 * 1024
LINE_BYTES_MAX = 64 * 1024 * 1024
LINGER_S = 0.05
"""How long a pipe may be silent before what it gave is appended."""

_BOM = b"\xef\xbb\xbf"
_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}


@dataclass(frozen=True)
class Block:
    """Whole lines, and the number of the first of them, from 1."""

    data: bytes
    first_line: int


class Source:
    """One input, from its beginning to its end."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        name = getattr(file, "name", "")
        self.name = name if isinstance(name, str) else ""
        self.is_file = bool(self.name) and Path(self.name).is_file()
        self.size_bytes = Path(self.name).stat().st_size if self.is_file else None
        """What the file has on disk; None for a pipe."""
        self._read = self._reader()
        self._read_bytes = 0

    @property
    def is_terminal(self) -> bool:
        return self.file.isatty()

    @property
    def done_bytes(self) -> int:
        """How much of `size_bytes` has been read."""
        return self.file.tell() if self.is_file else self._read_bytes

    def read_some(self) -> bytes:
        """The next bytes: a block of a file, or what a pipe has given; nothing at the end."""
        data = self._read()
        self._read_bytes += len(data)
        return data

    def blocks(self, cut: Callable[[bytes], int]) -> Iterator[Block]:
        """Blocks of whole lines; `cut` says where the last whole line of some bytes ends, 0 if nowhere."""
        rest = b""
        line = 1
        first = True
        while data := self.read_some():
            if first:
                data = data.removeprefix(_BOM)
                first = False
            rest = rest + data if rest else data
            end = cut(rest)
            if end:
                yield Block(rest[:end], line)
                line += rest.count(b"\n", 0, end)
                rest = rest[end:]
            if len(rest) > LINE_BYTES_MAX:
                raise TooLarge(
                    f"the line from line {line} on is longer than {LINE_BYTES_MAX >> 20} MiB: put each row on a "
                    "line of its own"
                )
        if rest:
            yield Block(rest, line)

    def _reader(self) -> Callable[[], bytes]:
        codec = _CODECS.get(Path(self.name).suffix) if self.is_file else None
        if codec is not None:
            return self._compressed(codec)
        if self.is_file:
            return lambda: self.file.read(BLOCK_BYTES)
        try:
            pipe = _Pipe(self.file.fileno(), getattr(self.file, "raw", self.file))
        except OSError:
            # It has no descriptor, so there is nothing to wait for.
            return lambda: self.file.read(BLOCK_BYTES)
        return pipe.read_some

    def _compressed(self, codec: str) -> Callable[[], bytes]:
        import pyarrow as pa

        stream = pa.CompressedInputStream(pa.PythonFile(self.file, "r"), codec)

        def read() -> bytes:
            try:
                data: bytes = stream.read(BLOCK_BYTES)
            except (OSError, ValueError) as error:
                raise InvalidRequest(f"{self.name} is not whole, or is not {codec}: {error}") from error
            return data

        return read


class _Unbuffered(Protocol):
    def read(self, size: int, /) -> bytes | None: ...


class _Pipe:
    """Reads what there is, and a little longer: many small writes become one block."""

    def __init__(self, descriptor: int, raw: _Unbuffered) -> None:
        self._descriptor = descriptor
        self._raw = raw
        self._ended = False

    def read_some(self) -> bytes:
        parts: list[bytes] = []
        wanted = BLOCK_BYTES
        while wanted and not self._ended:
            if parts and not select.select([self._descriptor], [], [], LINGER_S)[0]:
                break
            data = self._raw.read(wanted)
            self._ended = not data
            if data:
                parts.append(data)
                wanted -= len(data)
        return b"".join(parts)


def last_newline(data: bytes) -> int:
    """Where the last whole line ends."""
    return data.rfind(b"\n") + 1
