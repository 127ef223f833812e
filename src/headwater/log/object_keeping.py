"""What an owner keeps in order on an object store: its sign of life, and what lies below the walk.

    lease      written once a second, on the etag that was written last
    absorb     of each sealed segment: its index, and where its slots are small one object with all of them; then one
               swap of trim that names it and moves `next` behind it; then its small slots are deleted, but for fences
    forget     one swap of trim without some segments; then their objects are deleted
    replace    one swap of trim with another generation of a segment; then the old one's objects are deleted

PROMISE  Whatever is deleted was unnamed by a swap of trim before, so nobody can name it again.
         A deletion that fails leaves an object that nothing names; `headwater log verify` lists such.
THREADS  One lock for trim, held for a swap; one for what makes segments ready for it.  The keeper's own threads end
         when the log is closed or fenced.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headwater.errors import Fenced, HeadwaterError
from headwater.log.file_actions import write_aside
from headwater.log.index import ActiveIndex
from headwater.log.log_lease import RENEW_S, Lease, pack_lease, read_lease
from headwater.log.manifest import KeptSegment, Manifest
from headwater.log.segments import LogPlace, Segment, lost
from headwater.log.slot_segment import SlotSegment, kept_segment
from headwater.log.slots import LEASE, slot_name
from headwater.log.takeover import move_trim, read_trim
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.objects import Changed, StoreUnsure
from headwater.storage.store_patience import put_new

if TYPE_CHECKING:
    from headwater.log.object_device import ObjectOwner

logger = logging.getLogger("headwater.log")

DELETERS = 8
ABSORBED_BYTES = 64 * 1024 * 1024
ABSORBED_SEGMENTS = 64
"""So much is taken in by one swap, and one segment at least."""
MERGE_BELOW_BYTES = 256 * 1024
"""A segment whose slots are smaller than this on average is merged into one object."""


@dataclass(frozen=True)
class SealedRun:
    """A segment that is sealed and durable, and the slot with which the next one begins."""

    segment: Segment
    next_slot: int


Swap = Callable[[Sequence[Segment], Sequence[Segment]], None]


class Keeper:
    def __init__(
        self,
        place: LogPlace,
        bucket: BucketFiles,
        lease: Lease | None,
        *,
        asked: Callable[[Any], Any],
        fenced: Callable[[Fenced], None],
    ) -> None:
        self._place = place
        self._bucket = bucket
        self._lease = lease
        self._lease_etag = ""
        self._asked = asked
        self._fenced = fenced
        self._lock = threading.Lock()
        self._absorbing = threading.Lock()
        self._due = threading.Event()
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._owner: ObjectOwner
        self._swap: Swap

    def start(self, owner: ObjectOwner, swap: Swap) -> None:
        self._owner = owner
        self._swap = swap
        if self._lease is None:
            return
        self.announce()
        if self._bucket.threads:
            # Two, because what is taken in may be large, and no sign of life for seconds would cost the log.
            for work in (self._keep_renewing, self._keep_absorbing):
                thread = threading.Thread(target=work, name="headwater-keeper", daemon=True)
                self._threads.append(thread)
                thread.start()

    def wake(self) -> None:
        """Something was sealed.  Without a thread of its own it is taken in when something else needs that."""
        self._due.set()

    def stop(self, *, clean: bool) -> None:
        self._over.set()
        self._due.set()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        if clean and self._lease is not None:
            try:
                self._bucket.objects.put_if_match(
                    self._path(LEASE), pack_lease(self._lease.given_up()), self._lease_etag
                )
            except (Changed, StoreUnsure) as error:
                # Whoever comes next waits a few seconds, and no row depends on it.
                logger.info("the lease was not given up: %s", error)

    def _keep_renewing(self) -> None:
        while not self._over.wait(RENEW_S) and self._tried(self.renew):
            pass

    def _keep_absorbing(self) -> None:
        while not self._over.is_set() and self._tried(self.absorb):
            self._due.wait()
            self._due.clear()

    def _tried(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except Fenced as fenced:
            self._fenced(fenced)
            return False
        except (HeadwaterError, OSError) as error:
            logger.warning("the log's upkeep on the store was put off: %s", error)
        return True

    # The lease -------------------------------------------------------------------------------

    def announce(self) -> None:
        """Write the lease over whatever is there: an owner that is alive finds that out and stops."""
        lease = self._lease
        assert lease is not None
        self._lease_etag = self._bucket.patience.ask(
            lambda: self._bucket.objects.put(self._path(LEASE), pack_lease(lease))
        )

    def renew(self) -> None:
        """Give a sign of life; Fenced where somebody else has written the lease."""
        if self._lease is None:
            return
        lease = self._lease.renewed()
        try:
            self._lease_etag = self._bucket.objects.put_if_match(self._path(LEASE), pack_lease(lease), self._lease_etag)
            self._lease = lease
        except (Changed, StoreUnsure) as error:
            self._look_whose_it_is(error)

    def _look_whose_it_is(self, why: OSError) -> None:
        try:
            found = self._bucket.objects.get(self._path(LEASE))
        except FileNotFoundError:
            self.announce()
            return
        there = read_lease(found.data)
        assert self._lease is not None
        if there is not None and there.token != self._lease.token:
            raise Fenced(
                f"{there.holder} takes the log over: nothing more is written here; open it again to go on",
                where=self._bucket.url,
                epoch=self._owner.claim.epoch,
            ) from why
        self._lease_etag = found.etag

    # Below the walk --------------------------------------------------------------------------

    def absorb(self) -> None:
        """Take what is sealed into trim: by parts, so that an owner that ends in the middle leaves the next one less to
        do, and small segments together, because each swap puts all of trim."""
        # Indexes and merged objects take their time, and nobody else waits for them.
        with self._absorbing:
            while self._owner.sealed:
                self._absorb(_some_of(self._owner.sealed))

    def _absorb(self, sealed: Sequence[SealedRun]) -> None:
        owner = self._owner
        old = [each.segment for each in sealed]
        kept = [self._keep(segment) for segment in old]
        with self._lock:
            manifest = owner.manifest
            segments = (*manifest.segments, *kept)
            self._move(replace(manifest, next=sealed[-1].next_slot, segments=segments, base=None, end=kept[-1].end))
            del owner.sealed[: len(sealed)]
            self._swap(old, [kept_segment(self._place, each) for each in kept])
        if manifest.base is not None:
            self._delete([self._index_of(manifest.base)])
        self._delete(
            [
                name
                for segment, now in zip(old, kept, strict=True)
                if not now.slots
                for name in self._slots_to_delete(segment)
            ]
        )

    def _keep(self, segment: Segment) -> KeptSegment:
        assert isinstance(segment, SlotSegment)
        run = segment.run
        assert isinstance(run.index, ActiveIndex)
        index = run.index.pack(run.opening.data, run.end, run.size, segment.created_us)
        write_aside(self._place, segment.name.index, index)
        stays = len(run.slots) == 1 or run.size >= MERGE_BELOW_BYTES * len(run.slots)
        if not stays:
            self._merge(segment)
        return KeptSegment(
            first_lsn=run.first_lsn,
            generation=0,
            size=run.size,
            created_us=segment.created_us,
            end=run.end,
            opening=run.opening.data,
            slots=run.slots if stays else (),
            fences=run.fences if stays else (),
        )

    def _merge(self, segment: SlotSegment) -> None:
        """All its bytes as one object.  An earlier owner may have come so far: then it is there, the same."""
        source = segment.open_file()
        try:
            data = source.read_at(0, segment.run.size)
        except FileNotFoundError as error:
            raise self._why_gone(segment) from error
        finally:
            source.close()
        put_new(self._bucket.patience, self._bucket.objects, self._path(str(segment.name)), data)

    def _why_gone(self, segment: Segment) -> HeadwaterError:
        """Slots that were ours are gone: a successor has merged them, or somebody has deleted what was durable."""
        self.check_owner()
        return lost(segment.first_lsn, segment.last_lsn)

    def check_owner(self) -> None:
        """Fenced where trim says that the log is another's."""
        claim = self._owner.claim
        found = self._asked(read_trim(self._place.directory))
        if found is not None and (found[0].epoch, found[0].token) != (claim.epoch, claim.token):
            raise Fenced(
                "another process has taken the log over: nothing more is written here; open it again to go on",
                where=self._bucket.url,
                epoch=claim.epoch,
            )

    def names(self, segment: Segment) -> bool:
        """Does trim name it?"""
        return any(each.first_lsn == segment.first_lsn for each in self._owner.manifest.segments)

    def forget(self, going: Sequence[Segment]) -> list[str]:
        """Let go of these, which are the first that trim names."""
        if not going:
            return []
        with self._lock:
            manifest = self._owner.manifest
            names = {segment.first_lsn for segment in going}
            left = tuple(each for each in manifest.segments if each.first_lsn not in names)
            gone = [each for each in manifest.segments if each.first_lsn in names]
            # Where none is left, the index of the last one stays: it knows every partition's next offset.
            base = None if left else gone[-1]
            self._move(replace(manifest, segments=left, base=base))
            self._swap(going, [])
        for each in gone:
            self._delete_segment(each, but_index=base is each)
        return [str(segment.name) for segment in going]

    def replace(self, old: Segment, new: Segment) -> None:
        """Name another generation of a segment."""
        self.absorb()
        with self._lock:
            manifest = self._owner.manifest
            made = KeptSegment(
                first_lsn=new.first_lsn,
                generation=new.name.generation,
                size=new.size,
                created_us=new.created_us,
                end=new.end,
                opening=new.opening.data,
            )
            (gone,) = (each for each in manifest.segments if each.first_lsn == old.first_lsn)
            segments = tuple(made if each is gone else each for each in manifest.segments)
            self._move(replace(manifest, segments=segments, end=segments[-1].end))
            self._swap([old], [new])
        self._delete_segment(gone)

    def _move(self, manifest: Manifest) -> None:
        owner = self._owner
        try:
            owner.etag = self._asked(move_trim(self._place.directory, manifest, owner.etag))
        except Fenced as fenced:
            self._fenced(fenced)
            raise
        owner.manifest = manifest

    # Deleting --------------------------------------------------------------------------------

    def _delete_segment(self, kept: KeptSegment, *, but_index: bool = False) -> None:
        segment = kept_segment(self._place, kept)
        names = [] if but_index else [self._index_of(kept)]
        if kept.slots:
            fences = set(kept.fences)
            names += [self._path(slot_name(slot)) for slot, _ in kept.slots if slot not in fences]
        else:
            names.append(self._path(str(segment.name)))
        self._delete(names)

    def _slots_to_delete(self, segment: Segment) -> list[str]:
        assert isinstance(segment, SlotSegment)
        fences = set(segment.run.fences)
        return [self._path(slot_name(slot)) for slot, _ in segment.slots if slot not in fences]

    def _delete(self, names: Sequence[str]) -> None:
        if self._bucket.threads and len(names) > 1:
            with ThreadPoolExecutor(DELETERS, thread_name_prefix="headwater-deletes") as together:
                list(together.map(self._delete_one, names))
        else:
            for name in names:
                self._delete_one(name)

    def _delete_one(self, name: str) -> None:
        try:
            self._bucket.patience.ask(lambda: self._bucket.objects.delete(name))
        except OSError as error:
            self._place.counters.unlinks_failed += 1
            logger.warning("could not delete %s, which nothing names any more: %s", name, error)

    def _index_of(self, kept: KeptSegment) -> str:
        return self._path(kept_segment(self._place, kept).name.index)

    def _path(self, name: str) -> str:
        return f"{self._place.directory}/{name}"


def _some_of(sealed: Sequence[SealedRun]) -> list[SealedRun]:
    taken: list[SealedRun] = []
    size = 0
    for each in sealed[:ABSORBED_SEGMENTS]:
        size += each.segment.size
        if taken and size > ABSORBED_BYTES:
            break
        taken.append(each)
    return taken
