"""Segments of a log on an object store, as readers see them."""

from __future__ import annotations

from typing import cast

from headwater.log.manifest import KeptSegment
from headwater.log.names import SegmentName
from headwater.log.opened_segment import open_slots, pack_slots
from headwater.log.segment import opening_of
from headwater.log.segments import LogPlace, Segment
from headwater.log.slot_cache import SlotCache
from headwater.log.slot_run import SlotRun
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.files import File
from headwater.storage.objects import Objects

Slots = tuple[tuple[int, int], ...]


class SlotSegment(Segment):
    """A segment that lies in slots."""

    def __init__(self, place: LogPlace, run: SlotRun, cache: SlotCache) -> None:
        super().__init__(place, SegmentName(run.first_lsn, 0), run.opening)
        self.run = run
        self._cache = cache

    @property
    def slots(self) -> Slots:
        return self.run.slots

    @property
    def packed_slots(self) -> bytes:
        return pack_slots(self.slots)

    def open_file(self) -> File:
        return open_slots(cast(Objects, self._cache), self._place.directory, str(self.name), self.run.slots)


class KeptSlots(Segment):
    """A sealed segment whose slots were large enough to stay."""

    def __init__(self, place: LogPlace, kept: KeptSegment) -> None:
        super().__init__(place, SegmentName(kept.first_lsn, kept.generation), opening_of(kept.opening))
        self.slots = kept.slots

    @property
    def packed_slots(self) -> bytes:
        return pack_slots(self.slots)

    def open_file(self) -> File:
        return open_slots(bucket_of(self._place).objects, self._place.directory, str(self.name), self.slots)


def kept_segment(place: LogPlace, kept: KeptSegment) -> Segment:
    """A segment that `trim` names."""
    segment: Segment
    if kept.slots:
        segment = KeptSlots(place, kept)
    else:
        segment = Segment(place, SegmentName(kept.first_lsn, kept.generation), opening_of(kept.opening))
    segment.created_us = kept.created_us
    segment.seal(kept.end, kept.size)
    return segment


def bucket_of(place: LogPlace) -> BucketFiles:
    assert isinstance(place.files, BucketFiles), "an ObjectDevice is given a bucket"
    return place.files
