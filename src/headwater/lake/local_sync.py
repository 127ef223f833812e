"""Files of a table that lie on this machine's disk: made to survive a power loss before the log forgets their rows.

PROMISE  When `sync_local` has returned, the bytes of each file that is on this disk and its name, with those of its
         directories, stay; what lies elsewhere (an object store) is its store's to keep, and is passed over.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import urlparse

from headwater.storage.disk import sync_files


def local_path(location: str) -> str | None:
    """The path of a file on this machine; None where the location is anywhere else."""
    if location.startswith("/"):
        return location
    parsed = urlparse(location)
    if parsed.scheme != "file" or parsed.netloc not in ("", "localhost"):
        return None
    return parsed.path


def sync_local(locations: Iterable[str]) -> None:
    """Make these files durable.  FileNotFoundError, naming it, where one is not there."""
    paths = [path for path in map(local_path, locations) if path is not None]
    if paths:
        sync_files(paths)
