"""Files that hold a token, a certificate or a key: read whole, and small."""

from __future__ import annotations

from pathlib import Path

from headwater.errors import InvalidRequest
from headwater.storage.disk import DiskFiles

FILE_BYTES_MAX = 1 << 20


def read_credential(path: str, what: str) -> bytes:
    """What the file holds; InvalidRequest names it, and never shows what is in it."""
    place = Path(path).expanduser()
    try:
        file = DiskFiles(place.parent).open(place.name)
        try:
            size = file.size()
            if size > FILE_BYTES_MAX:
                raise InvalidRequest(f"{what} is far too large for what it should hold", file=path, bytes=size)
            return file.read_at(0, size)
        finally:
            file.close()
    except OSError as error:
        raise InvalidRequest(f"{what} cannot be read: {error.strerror or error}", file=path) from error
