"""The small acts on a log's directory that its owner repeats: make a segment, write a file aside, unlink.

Each says what it leaves behind when it fails.  Who calls them decides what a failure means.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from headwater.frames.segment_header import SegmentHeader, pack_segment_frame
from headwater.log.names import RESERVE, TEMPORARY, SegmentName
from headwater.log.segment import opening_of
from headwater.log.segments import LogPlace, Segment
from headwater.storage.files import File

logger = logging.getLogger("headwater.log")

Sync = Callable[[Callable[[], None]], None]
"""Runs one sync verb; what it raises when the verb fails is its own affair."""


def create_segment(place: LogPlace, header: SegmentHeader, sync: Sync) -> tuple[Segment, File]:
    """A new segment with its header, durable by name and content.  An OSError from here means that it is not
    there; what `sync` raises means that it may be."""
    name = SegmentName(header.first_lsn, header.generation)
    data = pack_segment_frame(header)
    file = place.files.create(place.path(name))
    try:
        file.append([data])
    except OSError:
        # Nothing of it may stay: the next try needs its name.
        file.close()
        sync(lambda: place.files.unlink(place.path(name)))
        sync(lambda: place.files.sync_directory(place.directory))
        raise
    sync(file.sync_all)
    sync(lambda: place.files.sync_directory(place.directory))
    return Segment(place, name, opening_of(data)), file


def write_aside(place: LogPlace, name: str, data: bytes) -> None:
    """A small file, whole under its name or not there."""
    temporary = place.path(name + TEMPORARY)
    file = create_anew(place, temporary)
    try:
        file.append([data])
        file.sync_data()
    finally:
        file.close()
    place.files.rename(temporary, place.path(name))


def create_anew(place: LogPlace, path: str) -> File:
    """An empty file of this path, whatever an attempt that failed has left there."""
    try:
        return place.files.create(path)
    except FileExistsError:
        place.files.unlink(path)
        return place.files.create(path)


def unlink_all(place: LogPlace, names: Sequence[str]) -> list[str]:
    """Unlink what can be unlinked, and say what was; the rest is counted, and tried again by whoever asks again."""
    removed = []
    for name in names:
        try:
            place.files.unlink(place.path(name))
        except FileNotFoundError:
            continue
        except OSError as error:
            place.counters.unlinks_failed += 1
            place.counters.io_errors += 1
            logger.warning("could not unlink %s, will try again: %s", name, error)
            continue
        removed.append(name)
    if removed:
        place.files.sync_directory(place.directory)
    return removed


def restore_reserve(place: LogPlace) -> None:
    """Take the room that is given up when the disk is full, if there is room to take."""
    if not place.settings.reserve_bytes:
        return
    try:
        if RESERVE not in place.files.list(place.directory):
            place.files.allocate(place.path(RESERVE), place.settings.reserve_bytes)
    except OSError as error:
        place.counters.io_errors += 1
        logger.warning("no room for the reserve file: %s", error)
