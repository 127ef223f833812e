"""The logs of a data directory on an object store, as files would show them.

A segment is a file, whether it lies in slots or in one object, and the end of the walk is a mark.  So whatever looks at
the files of a log looks at a bucket too: verify.py, and what dumps and rebuilds.

PROMISE  Only read.  Each list of a log looks at it anew; what is opened afterwards is what that look has found.
HELD     The slots of the walk, about one segment, and of all others one segment at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from headwater.errors import Unavailable
from headwater.log.mark import Mark
from headwater.log.mark import pack_slot as pack_mark
from headwater.log.names import MARK, parse_segment_name
from headwater.log.object_look import Asking, Piece, SeenLog, look, name_of
from headwater.log.slots import LEASE, TRIM, is_slot_name
from headwater.storage.files import File, Files, ShortRead

LOGS = ("log", "journal", "ledger")


class LogsAsFiles:
    """The files of a data directory on an object store, with each log in it as if it were on a disk.  Only read."""

    def __init__(self, files: Files, objects: Asking) -> None:
        self._files = files
        self.objects = objects
        self._seen: dict[str, SeenLog] = {}
        self._held: dict[str, dict[int, bytes]] = {directory: {} for directory in LOGS}
        self._last: tuple[str, Sequence[Piece], bytes] = ("", (), b"")
        """The segment that was read last, as it was then: whoever opens it again does not ask for it again."""

    def as_files(self) -> Files:
        return cast(Files, self)  # nobody writes through it

    def look(self, directory: str) -> SeenLog:
        seen = self._seen[directory] = look(self.objects, directory, self._held[directory])
        return seen

    def list(self, directory: str) -> list[str]:
        if directory not in LOGS:
            return self._files.list(directory)
        seen = self.look(directory)
        segments = [name_of(each) for each in seen.kept if not seen.missing(each)] + [run.name for run in seen.runs]
        others = [name for name in seen.sizes if not (is_slot_name(name) or name in (TRIM, LEASE) or _is_segment(name))]
        return sorted({*map(str, segments), *others, *([MARK] if seen.manifest is not None else [])})

    def open(self, name: str, *, writable: bool = False) -> File:
        assert not writable
        directory, _, rest = name.partition("/")
        if directory in LOGS and rest == MARK:
            mark = self._mark(directory)
            return cast(File, HeldFile(name, len(mark), lambda: mark))
        pieces = self._seen_before(directory).segments().get(rest) if directory in LOGS else None
        if pieces is None:
            return self._files.open(name)
        size = sum(piece.bytes for piece in pieces)
        return cast(File, HeldFile(name, size, lambda: self._read(directory, rest, pieces)))

    def _seen_before(self, directory: str) -> SeenLog:
        return self._seen[directory] if directory in self._seen else self.look(directory)

    def _mark(self, directory: str) -> bytes:
        seen = self.look(directory)
        if seen.manifest is None:
            raise FileNotFoundError(f"{directory}/{TRIM}")
        segments = [*map(name_of, seen.kept), *(run.name for run in seen.runs)]
        last = segments[-1].first_lsn if segments else 0
        # Where all has been deleted, nothing that was durable is missing.
        durable = seen.durable_lsn if last else 0
        return pack_mark(Mark(1, seen.manifest.log_id, durable, last, 0, seen.epoch))

    def _read(self, directory: str, name: str, pieces: Sequence[Piece]) -> bytes:
        path = f"{directory}/{name}"
        if self._last[:2] != (path, pieces):
            data = b"".join(self._object(directory, piece.object)[piece.skipped :] for piece in pieces)
            self._last = path, pieces, data
        return self._last[2]

    def _object(self, directory: str, name: str) -> bytes:
        held = self._held[directory]
        if is_slot_name(name) and int(name) in held:
            return held[int(name)]
        try:
            return self.objects.get(f"{directory}/{name}").data
        except FileNotFoundError as error:
            # It was there when the log was looked at.
            raise Unavailable(
                "a segment has gone while it was looked at, its owner is at work: try again",
                object=f"{directory}/{name}",
            ) from error


def _is_segment(name: str) -> bool:
    """One that trim does not name is no part of the log."""
    return parse_segment_name(name) is not None


class HeldFile:
    """A file whose bytes are fetched whole when they are first read."""

    def __init__(self, name: str, size: int, fetch: Callable[[], bytes]) -> None:
        self.name = name
        self._size = size
        self._fetch = fetch

    def size(self) -> int:
        return self._size

    def read_at(self, position: int, size: int) -> bytes:
        data = self._fetch()[position : position + size]
        if len(data) < size:
            raise ShortRead(f"{self.name}: {size} bytes at {position} go beyond its end")
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self._fetch()[position : position + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Nothing is open."""
