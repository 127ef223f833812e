"""Reading a log on an object store: what an owner and a reader anywhere have in common.

    trim       where the walk begins, and the segments before it; read when the log is opened, and when nothing new
               is found, because what is not there may have been merged and deleted
    slots      from there on, one after the other, up to the first that is not there

PROMISE  As on files: readers see whole, durable writes only, in LSN order, and never wait for the owner.
         What a reader sees is exact: a slot that is there is durable, and the first that is not is the log's end.
REQUESTS Opening: trim, the index of the last segment before the walk, and a request a slot, PREFETCH of them side by
         side.  Looking again: one for each new slot, one for the first that is not there, one for trim.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Protocol

from headwater.errors import CorruptData, DamagedLog, Halted, LostSegment, Unavailable
from headwater.frames.frame import NO_SALT_CRC, UNIT_BYTES, NoFrame, decode_header, salt_crc
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, decode_segment_frame
from headwater.ids import Lsn
from headwater.log.asks import Asking, T, Waits, carry_out
from headwater.log.file_reads import FileReads, View
from headwater.log.manifest import Manifest
from headwater.log.recovery import RecoveryReport
from headwater.log.segments import LogPlace, Segment, lost, next_offsets_after
from headwater.log.slot_cache import SlotCache
from headwater.log.slot_segment import SlotSegment, bucket_of, kept_segment
from headwater.log.slots import slot_name
from headwater.log.takeover import read_trim
from headwater.log.walk import Walk
from headwater.storage.objects import Objects, StoreUnsure

PREFETCH = 16
_WALKS_MAX = 20
_CACHED_SEGMENTS = 2
"""One is merged while the next is written."""


class _Looks(Protocol):
    def __call__(self, look: Callable[[str], T], names: list[str]) -> list[T]: ...


class ObjectReads(FileReads):
    """The reading half of ObjectDevice."""

    def __init__(self, place: LogPlace, log_start: Callable[[], int]) -> None:
        super().__init__(place, log_start)
        self._bucket = bucket_of(place)
        self._objects: Objects = self._bucket.objects
        self._walk: Walk | None = None
        self._etag = ""
        """Of trim as it was read last."""
        # What a walk has fetched is not asked for again by whoever reads it.
        self._cache = SlotCache(self._objects, _CACHED_SEGMENTS * place.settings.segment_size_bytes_max)

    def _asked(self, asking: Asking[T]) -> T:
        """Carry it out, with patience for a store that does not answer."""
        try:
            return carry_out(asking, self._objects, Waits(self._bucket.pause).unsure)
        except StoreUnsure as error:
            self._place.counters.io_errors += 1
            raise Unavailable(f"the store does not answer: {error}", where=self._objects.url) from error

    # Reading what is there -------------------------------------------------------------------

    def recover(self, *, undamaged_part: bool = False) -> RecoveryReport:
        """Read trim and walk.  With `undamaged_part` a halted log shows what lies before the damage."""
        with self._looking:
            self._walk = None
            found = self._asked(read_trim(self._place.directory))
            if found is None:
                if self._log_start() > 1:
                    raise lost(1, self._log_start())
                self._show(View((), Lsn(0), 0))
                self.report = RecoveryReport(verdict="no log yet", clean=True)
                return self.report
            walk, kept = self._begin_walk(*found)
            halt: Halted | None = None
            try:
                self._check_start(walk.manifest)
                walk, kept = self._walk_to_the_end(walk, kept)
                self._check_ahead(walk)
            except (Halted, CorruptData) as error:
                if not undamaged_part:
                    raise
                halt = error if isinstance(error, Halted) else DamagedLog(error.message, **error.facts)
            self._halted = halt
            self._show_walk(walk, kept)
            self._walk = walk if halt is None else None
            view = self._view
            self.report = RecoveryReport(
                verdict=halt.message if halt is not None else "read to its end",
                log_id=walk.manifest.log_id.hex(),
                segments=len(view.segments),
                first_lsn=view.segments[0].first_lsn if view.segments else 0,
                last_lsn=view.durable_lsn,
                durable_lsn=view.durable_lsn,
                epoch=walk.epoch,
                clean=True,
            )
            return self.report

    def _begin_walk(self, manifest: Manifest, etag: str) -> tuple[Walk, list[Segment]]:
        """A walk from this trim, or from one that has taken its place since: then what it named may be gone."""
        for _ in range(_WALKS_MAX):
            kept = [kept_segment(self._place, each) for each in manifest.segments]
            try:
                return Walk(manifest, etag, self._offsets_before(manifest, kept)), kept
            except (FileNotFoundError, DamagedLog) as error:
                found = self._asked(read_trim(self._place.directory))
                if found is None or found[1] == etag:
                    if isinstance(error, DamagedLog):
                        raise
                    raise lost(kept[-1].first_lsn, kept[-1].last_lsn) from error
                manifest, etag = found
        raise _too_fast()

    def _offsets_before(self, manifest: Manifest, kept: Sequence[Segment]) -> Mapping[int, int]:
        """Every partition's next offset where the walk begins."""
        if kept:
            return next_offsets_after(list(kept), len(kept))
        if manifest.base is None:
            return {}
        offsets = kept_segment(self._place, manifest.base).read_next_offsets()
        if offsets is None:
            raise DamagedLog(
                "the index of the last segment that was let go of cannot be read, and it alone knows the offsets of "
                "rows that were forgotten: put it back from a copy",
                index=kept_segment(self._place, manifest.base).name.index,
            )
        return offsets

    def _check_start(self, manifest: Manifest) -> None:
        first_lsn = manifest.segments[0].first_lsn if manifest.segments else manifest.end.next_lsn
        log_start = self._log_start()
        if first_lsn > max(log_start, 1):
            raise lost(log_start, first_lsn - 1)

    def _walk_to_the_end(self, walk: Walk, kept: list[Segment]) -> tuple[Walk, list[Segment]]:
        """Walk until trim, read after the walk, has not passed what was walked: what is not there may have been merged
        and deleted, and a fence in a deleted slot is none."""
        for _ in range(_WALKS_MAX):
            first = walk.next_slot
            damage: Halted | CorruptData | None = None
            try:
                self._walk_on(walk)
            except (Halted, CorruptData) as error:
                damage = error
            found = self._asked(read_trim(self._place.directory))
            if found is None:
                raise lost(1, walk.end.next_lsn - 1)
            if _holds(walk, first, found[0].next):
                if damage is not None:
                    raise damage
                self._etag = found[1]
                return walk, kept
            walk, kept = self._begin_walk(*found)
        raise _too_fast()

    def _check_ahead(self, walk: Walk) -> None:
        """Where a walk ends, a slot may be missing that was durable: those after it tell.  An owner sends the slot W
        after one only once that one is confirmed, and each frame says what was durable when it was made."""
        window = walk.manifest.window
        ahead = range(walk.next_slot + 1, walk.next_slot + window + 1)
        durable_lsn = walk.end.next_lsn - 1
        with self._many() as look:
            beginnings = look(self._beginning, [self._slot_path(slot) for slot in ahead])
        for slot, beginning in zip(ahead, beginnings, strict=True):
            header = decode_header(memoryview(beginning)[SEGMENT_FRAME_BYTES:], 0, _salt_of(beginning))
            if not isinstance(header, NoFrame):
                durable_lsn = max(durable_lsn, header.durable_lsn)
            if beginning and slot == ahead[-1]:
                durable_lsn = max(durable_lsn, walk.end.next_lsn)
        if durable_lsn < walk.end.next_lsn or self._slot(self._slot_path(walk.next_slot)) is not None:
            return
        found = self._asked(read_trim(self._place.directory))
        if found is not None and found[0].next <= walk.next_slot:
            raise LostSegment(
                "a slot of the log is gone, though later ones tell that it was durable: put it back from a copy",
                slot=walk.next_slot,
                first_lsn=walk.end.next_lsn,
                durable_lsn=durable_lsn,
            )

    def _beginning(self, name: str) -> bytes:
        """Its envelope and the header of its first frame; nothing where there is no such slot."""
        try:
            size = SEGMENT_FRAME_BYTES + UNIT_BYTES
            return self._bucket.patience.ask(lambda: self._objects.get_range(name, 0, size))
        except FileNotFoundError:
            return b""

    def _walk_on(self, walk: Walk) -> None:
        """Take in every slot that is there: the first alone, because mostly there is none, and then many at a time."""
        if self._take_slots(walk, [self._slot(self._slot_path(walk.next_slot))]):
            with self._many() as look:
                while self._take_slots(walk, look(self._slot, self._paths_ahead(walk))):
                    pass

    def _paths_ahead(self, walk: Walk) -> list[str]:
        count = PREFETCH if self._bucket.threads else 1
        return [self._slot_path(walk.next_slot + each) for each in range(count)]

    def _take_slots(self, walk: Walk, found: Iterable[bytes | None]) -> bool:
        """Go on with what these slots hold, in order; False at the first that is not there."""
        for data in found:
            if data is None:
                return False
            expected = walk.next_slot + 1
            slot = walk.add(data)
            self._cache.keep(self._slot_path(slot.number), data)
            if walk.next_slot != expected:
                # After a fence the slots that were asked for ahead are void.
                break
        return True

    @contextmanager
    def _many(self) -> Iterator[_Looks]:
        """Looks at many names at a time, if there may be threads."""
        if not self._bucket.threads:
            yield lambda look, names: [look(name) for name in names]
            return
        with ThreadPoolExecutor(PREFETCH, thread_name_prefix="headwater-walk") as together:
            yield lambda look, names: list(together.map(look, names))

    def _slot_path(self, slot: int) -> str:
        return f"{self._place.directory}/{slot_name(slot)}"

    def _slot(self, name: str) -> bytes | None:
        try:
            return self._bucket.patience.ask(lambda: self._objects.get(name)).data
        except FileNotFoundError:
            return None

    def _show_walk(self, walk: Walk, kept: Sequence[Segment]) -> None:
        segments = [*kept, *self._segments_on(walk)]
        position = walk.runs[-1].size if walk.runs else (kept[-1].size if kept else SEGMENT_FRAME_BYTES)
        self._show(View(tuple(segments), Lsn(walk.end.next_lsn - 1), position))

    def _segments_on(self, walk: Walk) -> list[Segment]:
        segments: list[Segment] = []
        shown = {segment.run: segment for segment in self._view.segments if isinstance(segment, SlotSegment)}
        for run in walk.runs:
            segment = shown.get(run)
            if segment is None:
                segment = SlotSegment(self._place, run, self._cache)
                segment.set_index(run.index)
            segment.seal(run.end, run.size)
            segments.append(segment)
        return segments

    def _look_again(self) -> Lsn:
        walk = self._walk
        if self._halted is not None:
            return self._view.durable_lsn
        if walk is None:
            self.recover()
            return self._view.durable_lsn
        # If this fails half-way, the walk has gone further than the View: then the next look begins anew.
        self._walk = None
        kept = [each for each in self._view.segments if not isinstance(each, SlotSegment)]
        walk, kept = self._walk_to_the_end(walk, kept)
        if self._etag != walk.etag:
            # Segments were taken in, or let go of: show what trim names now.
            self.recover()
        else:
            self._show_walk(walk, kept)
            self._walk = walk
        return self._view.durable_lsn


def _salt_of(slot: bytes) -> int:
    decoded = decode_segment_frame(memoryview(slot)[:SEGMENT_FRAME_BYTES])
    return NO_SALT_CRC if isinstance(decoded, NoFrame) else salt_crc(decoded[0].salt)


def _holds(walk: Walk, first: int, trim: int) -> bool:
    """Was what a walk met from slot `first` on the log's history, if trim is here now?  An end below trim may be a slot
    that was deleted, and a fence below trim one that somebody put into a deleted slot.  All else is."""
    fences = (fence for run in walk.runs for fence in run.fences)
    return trim <= walk.next_slot and not any(first <= fence < trim for fence in fences)


def _too_fast() -> Unavailable:
    return Unavailable("the log's trim object changes faster than it can be followed: try again")
