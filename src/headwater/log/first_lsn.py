"""What is known of a log before it is opened: by the names of its segments on a disk, by `trim` in a bucket."""

from __future__ import annotations

from headwater.log.manifest import Manifest, unpack_manifest
from headwater.log.names import sort_names
from headwater.log.slots import TRIM
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.files import Files


def first_lsn_in(files: Files, directory: str) -> int | None:
    """The first LSN that the segments of a log may hold; None where there is no log."""
    if isinstance(files, BucketFiles):
        manifest = trim_in(files, directory)
        if manifest is None:
            return None
        return manifest.segments[0].first_lsn if manifest.segments else manifest.end.next_lsn
    segments = sort_names(files.list(directory)).segments
    return segments[0].first_lsn if segments else None


def trim_in(files: BucketFiles, directory: str) -> Manifest | None:
    """The `trim` of a log in a bucket; None where there is no log."""
    try:
        file = files.open(f"{directory}/{TRIM}")
    except FileNotFoundError:
        return None
    try:
        return unpack_manifest(file.read_at(0, file.size()))
    finally:
        file.close()
