"""The log on an object store: one prefix of a bucket, one owner by its fence, any number of readers.

PROMISE  A commit is acknowledged once its slot and every slot before it are known to hold what was sent (G1).
         Whoever took the log over has fenced this owner: its next slot, its next trim or its next sign of life finds
         that out, and from then on everything here is Fenced.
ORDER    A slot opens the next segment where the last one is full; nothing else is written for a roll.  What was sealed
         is taken into trim afterwards, by the keeper (object_keeping.py): index, merged object, swap, deletion.
REQUESTS One put a commit.  No list, and no get but to resolve an outcome that the store did not tell.
NOT HERE Who may append when, and offsets: writer.py.  How a log is taken over: takeover.py.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from headwater.clock import Clock, Entropy
from headwater.errors import Closed, Fenced, LogLocked, LostSegment, OutcomeUnknown, Poisoned, Unavailable
from headwater.frames.frame import Kind
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.ids import Epoch, Lsn
from headwater.log.chain import ChainEnd, Sealed, seal_writes
from headwater.log.device import Claim, PlacedWrite
from headwater.log.file_reads import View
from headwater.log.index import ActiveIndex
from headwater.log.log_lease import POLL_S, STALE_S, Lease, read_lease
from headwater.log.manifest import Manifest
from headwater.log.names import SegmentName
from headwater.log.object_keeping import Keeper, SealedRun
from headwater.log.object_reads import ObjectReads
from headwater.log.ownership import KnownOffsets
from headwater.log.segments import LogPlace, Segment, segment_named
from headwater.log.slot_flights import Flight, Flights, SlotTicket
from headwater.log.slot_packing import continuing_slot, fence, next_opening, opening_slot
from headwater.log.slot_run import SlotRun
from headwater.log.slot_segment import SlotSegment
from headwater.log.slots import LEASE, is_slot_name
from headwater.log.takeover import Taken, begin, read_trim, still_walked, take_over
from headwater.log.walk import Walk
from headwater.log.window import Window
from headwater.storage.objects import StoreUnsure

logger = logging.getLogger("headwater.log")

_FOLLOWING_SHIFT = 8
"""Epochs of a log that follows another are so much larger than its own first ones, with which it was begun."""
SLOTS_MAX = 1_000
"""A segment is sealed once it lies in so many slots."""


@dataclass
class ObjectOwner:
    """What only the owner of a log has: how far commits were issued, which is further than they are durable."""

    claim: Claim
    manifest: Manifest
    etag: str
    flights: Flights
    run: SlotRun
    end: ChainEnd
    position: int
    slots: int
    offsets: dict[int, int]
    keeper: Keeper
    rewrites: int = 0
    sealed: list[SealedRun] = field(default_factory=list)
    """Sealed and durable segments that trim does not name yet."""


class ObjectDevice(ObjectReads):
    """See device.py for what each verb promises."""

    def __init__(
        self,
        place: LogPlace,
        *,
        clock: Clock,
        entropy: Entropy,
        log_start: Callable[[], int],
        known_offsets: KnownOffsets | None = None,
        shard: int = 0,
        window: int = 1,
        leased: bool = False,
    ) -> None:
        super().__init__(place, log_start)
        self._clock = clock
        self._entropy = entropy
        self._shard = shard
        self._known_offsets = known_offsets
        self._wanted_window = window
        self._leased = leased
        self._leader: Claim | None = None
        self._owner: ObjectOwner | None = None
        self._poisoned: BaseException | None = None
        self._pid = os.getpid()
        self._closed = False
        self._showing = threading.Lock()

    @property
    def window(self) -> int:
        """How many commits may be on their way at a time."""
        return self._owner.manifest.window if self._owner is not None else self._wanted_window

    # Reading ---------------------------------------------------------------------------------

    def refresh(self) -> Lsn:
        """How far the log is durable; an owner knows without looking."""
        if self._owner is not None or self._closed:
            return self._view.durable_lsn
        return super().refresh()

    def _look_again(self) -> Lsn:
        return super()._look_again() if self._owner is None else self._view.durable_lsn

    def _plan_again(self) -> None:
        """An owner's View is already the new one, unless it was taken over and does not know it yet."""
        with self._looking:
            if self._owner is None:
                super()._plan_again()
            else:
                self._owner.keeper.check_owner()

    # Owning it -------------------------------------------------------------------------------

    @property
    def claimed(self) -> bool:
        return self._owner is not None

    def claim(self) -> Claim:
        """Take the log over, if its owner is gone or may be fenced out.  LogLocked names an owner that is alive."""
        self._check_usable()
        if self._owner is not None:
            return self._owner.claim
        with self._looking:
            token = self._leader.token if self._leader is not None else self._entropy(16)
            keeper = self._make_keeper(token)
            if self._leased:
                if not self._bucket.take_over:
                    self._wait_until_stale()
                keeper.announce()
            if self._walk is None:
                self._begin_if_new()
            # Now, because this look asks for many slots at a time.
            super()._look_again()
            walk, self._walk = self._walk, None
            assert walk is not None, "there is a log by now, and it is not halted"
            # A fence in the place of a slot that was lost would hide that.
            self._check_ahead(walk)
            taken = self._asked(
                take_over(
                    self._place.directory,
                    token,
                    lambda manifest, etag: self._begin_walk(manifest, etag)[0],
                    lambda onto, epoch: self._fence(onto, epoch, token),
                    walk=walk,
                    as_epoch=self._leader.epoch << _FOLLOWING_SHIFT if self._leader is not None else None,
                )
            )
            self._check_start(taken.manifest)
            return self._own(taken, token, keeper)

    def follow(self, leader: Claim) -> None:
        """Claim it from now on only as the owner of another log, and only from those that owned that one before: an
        owner that has lost the one, and does not know it yet, cannot take the other from its successor."""
        self._leader = leader

    def _wait_until_stale(self) -> None:
        """Return once no owner gives a sign of life; LogLocked where one does while it is watched."""
        name = f"{self._place.directory}/{LEASE}"
        watched = ""
        while True:
            try:
                found = self._bucket.patience.ask(lambda: self._objects.get(name))
            except FileNotFoundError:
                return
            lease = read_lease(found.data)
            if lease is None or lease.released:
                return
            now_s = self._clock.monotonic_s()
            etag, since_s = self._bucket.seen.get(name, ("", now_s))
            if etag != found.etag:
                self._bucket.seen[name] = (found.etag, now_s)
                since_s = now_s
            if now_s - since_s >= STALE_S:
                return
            if watched not in ("", found.etag) or not self._bucket.threads:
                raise self._locked(lease)
            watched = found.etag
            self._bucket.pause(POLL_S)

    def _locked(self, lease: Lease) -> LogLocked:
        return LogLocked(
            f"the log is owned by {lease.holder}, which is alive: stop that process, or take the log over from it "
            "(take_over=True, --take-over), which fences it out",
            where=self._objects.url,
            owner=lease.holder,
            since_us=lease.since_us,
        )

    def _begin_if_new(self) -> None:
        directory = self._place.directory
        if self._asked(read_trim(directory)) is not None:
            return
        names = self._bucket.list(directory)
        left = [name for name in names if is_slot_name(name) or name.endswith(".seg")]
        if left:
            if self._asked(read_trim(directory)) is not None:
                # Somebody else has begun it between the two looks.
                return
            raise LostSegment(
                "the log's trim object is gone, though its slots are there: put it back from a copy",
                directory=directory,
                first=left[0],
            )
        manifest = Manifest(log_id=self._entropy(16), window=self._wanted_window)
        self._asked(begin(directory, manifest))

    def _fence(self, walk: Walk, epoch: int, token: bytes) -> bytes:
        return fence(walk, epoch, token, now_us=self._clock.now_us(), entropy=self._entropy, shard=self._shard)

    def _make_keeper(self, token: bytes) -> Keeper:
        lease = Lease(token.hex(), self._bucket.host, os.getpid(), self._clock.now_us()) if self._leased else None
        return Keeper(self._place, self._bucket, lease, asked=self._asked, fenced=self._be_fenced)

    def _own(self, taken: Taken, token: bytes, keeper: Keeper) -> Claim:
        walk = taken.walk
        run = walk.runs[-1]
        offsets = run.index.next_offsets()
        for key, following in (self._known_offsets() if self._known_offsets is not None else {}).items():
            offsets[key] = max(offsets.get(key, 0), following)
        _, kept = self._begin_walk(taken.manifest, taken.etag)
        self._show_walk(walk, kept)
        segments = [each for each in self._view.segments if isinstance(each, SlotSegment)]
        flights = Flights(
            Window(taken.first_slot, taken.manifest.window),
            self._objects,
            self._slot_path,
            self._bucket.pause,
            confirmed=self._confirmed,
            broken=self.poison,
            foreign=self._found_foreign,
            threads=self._bucket.threads,
        )
        owner = ObjectOwner(
            claim=Claim(Epoch(taken.epoch), token, begun=True),
            manifest=taken.manifest,
            etag=taken.etag,
            flights=flights,
            run=run,
            end=run.end,
            position=run.size,
            slots=len(run.slots),
            offsets=dict(offsets),
            keeper=keeper,
            sealed=[SealedRun(segment, following.run.slots[0][0]) for segment, following in pairwise(segments)],
        )
        self._owner = owner
        self.report.owner = True
        self.report.verdict = "taken over"
        self.report.epoch = taken.epoch
        self.report.last_lsn = self.report.durable_lsn = self._view.durable_lsn
        self.report.segments = len(self._view.segments)
        self.report.first_lsn = self._view.segments[0].first_lsn
        self.report.log_id = taken.manifest.log_id.hex()
        keeper.start(owner, self._swap_segments)
        logger.info("opened for writing: %s", self.report)
        return owner.claim

    # Writing ---------------------------------------------------------------------------------

    def next_lsn(self) -> Lsn:
        return Lsn(self._owned().end.next_lsn)

    def last_append_time_us(self) -> int:
        return self._owned().end.append_time_us

    def next_offsets(self) -> dict[int, int]:
        """As far as commits were issued."""
        return self._owned().offsets

    def make_room(self, size: int, append_time_us: int) -> Lsn:
        """Roll if a commit of this size and time would; returns the first LSN of the segment it will go into."""
        owner = self._owned()
        if self._is_time_to_roll(owner, size, append_time_us):
            self._roll(owner)
        return Lsn(owner.run.first_lsn)

    def _is_time_to_roll(self, owner: ObjectOwner, size: int, now_us: int) -> bool:
        settings = self._place.settings
        if owner.position == SEGMENT_FRAME_BYTES:
            return False
        return (
            owner.position + size > settings.segment_size_bytes_max
            or owner.slots >= SLOTS_MAX
            or now_us - owner.run.opening.header.created_us > settings.segment_age_s_max * 1_000_000
        )

    def commit(self, writes: Sequence[PlacedWrite], append_time_us: int) -> SlotTicket:
        """Send the writes as one slot.  Unavailable: nothing of it was sent.  The ticket says what became of it."""
        owner = self._owned()
        self.make_room(sum([draft.frame_size for drafts, _ in writes for draft in drafts]), append_time_us)
        owner.flights.wait_for_room(self._place.settings.append_timeout_s)
        sealed = seal_writes(
            writes,
            owner.end,
            owner.run.opening.salted,
            durable_lsn=self._view.durable_lsn,
            epoch=owner.claim.epoch,
            append_time_us=append_time_us,
        )
        for _, draft, base_offset in sealed.frames:
            if draft.kind == Kind.DATA:
                owner.offsets[draft.topic_number << 32 | draft.partition] = base_offset + draft.row_count
        return self._send(owner, sealed, append_time_us)

    def _send(self, owner: ObjectOwner, sealed: Sealed, append_time_us: int) -> SlotTicket:
        ticket = SlotTicket(Lsn(owner.end.next_lsn))
        data = self._packed(owner, sealed, append_time_us)
        flight = Flight(owner.run, data, sealed, append_time_us, ticket, self._clock.monotonic_s())
        owner.end = sealed.end
        owner.position += sealed.size
        owner.slots += 1
        owner.flights.send(flight)
        return ticket

    def _packed(self, owner: ObjectOwner, sealed: Sealed, now_us: int) -> bytes:
        if not owner.slots:
            return opening_slot(owner.run, sealed)
        slot = owner.flights.next_slot
        return continuing_slot(owner.run, owner.end, sealed, owner.claim.epoch, slot, now_us=now_us, shard=self._shard)

    def _confirmed(self, flight: Flight) -> None:
        """A slot and all before it are durable: show it.  Called in order."""
        owner = self._owner
        assert owner is not None
        run = flight.run
        with self._showing:
            segments = self._view.segments
            newest = segments[-1]
            assert isinstance(newest, SlotSegment)
            if newest.run is not run:
                # The first slot of a segment ends the one before it.
                newest.seal(newest.run.end, newest.run.size)
                owner.sealed.append(SealedRun(newest, flight.slot))
                run.index = ActiveIndex(run.first_lsn, newest.run.index.next_offsets())
                newest = SlotSegment(self._place, run, self._cache)
                newest.set_index(run.index)
                segments = (*segments, newest)
                owner.keeper.wake()
            position = run.size if run.slots else SEGMENT_FRAME_BYTES
            lsn = run.end.next_lsn
            for at, draft, base_offset in flight.sealed.frames:
                run.index.add_frame(
                    lsn,
                    position + at,
                    draft.kind,
                    draft.topic_number,
                    draft.partition,
                    base_offset,
                    draft.row_count,
                    draft.row_count,
                    draft.frame_size,
                    flight.append_time_us,
                )
                lsn += 1
            self._cache.keep(self._slot_path(flight.slot), flight.data)
            run.took(flight.slot, len(flight.data), flight.sealed.size, flight.end)
            newest.seal(run.end, run.size)
            counters = self._place.counters
            counters.commits += bool(flight.sealed.frames)
            counters.syncs += 1
            counters.sync_durations.observe(self._clock.monotonic_s() - flight.sent_s)
            counters.append_bytes += flight.sealed.size
            self._show(View(segments, Lsn(lsn - 1), run.size))

    def settle(self) -> None:
        """Return when no commit is on its way any more."""
        if self._owner is not None:
            self._owner.flights.settle()

    def roll(self) -> Lsn | None:
        """Seal the segment that is being written and begin the next; returns the first LSN of the one just sealed, or
        nothing where there was nothing to seal."""
        owner = self._owned()
        owner.flights.settle()
        if owner.position == SEGMENT_FRAME_BYTES:
            return None
        sealed = owner.run
        self._roll(owner)
        # Written now, without a frame: trim may only name a slot that is there.
        self._send(owner, Sealed([], 0, owner.end, []), owner.end.append_time_us).wait()
        return Lsn(sealed.first_lsn)

    def _roll(self, owner: ObjectOwner) -> None:
        epoch = owner.claim.epoch
        opening = next_opening(
            owner.run,
            owner.end,
            epoch,
            owner.flights.next_slot,
            now_us=self._clock.now_us(),
            entropy=self._entropy,
            shard=self._shard,
        )
        owner.run = SlotRun(opening, {}, owner.end.append_time_us)
        owner.end = ChainEnd(owner.end.next_lsn, opening.chain, epoch, owner.end.append_time_us)
        owner.position = SEGMENT_FRAME_BYTES
        owner.slots = 0
        self._place.counters.rolls += 1

    def end(self) -> ChainEnd:
        """Where the owner's log ends: the next LSN, and the chain value, epoch and append time of the last frame."""
        owner = self._owned()
        if owner.position > SEGMENT_FRAME_BYTES:
            return owner.end
        # Nothing is in this segment yet: the last frame is the one before it.
        return ChainEnd(owner.end.next_lsn, owner.run.opening.header.prev, owner.end.epoch, owner.end.append_time_us)

    # Letting go ------------------------------------------------------------------------------

    def remember_offsets(self, log_start: Lsn) -> bool:
        """Every segment that trim names has an index, and no other is forgotten."""
        self._owned()
        return True

    def forget(self, log_start: Lsn) -> list[str]:
        """Let go of the segments that lie wholly below `log_start`: trim first, then their objects.  What trim does not
        name yet goes at a later call."""
        owner = self._owned()
        segments = list(self._view.segments)
        going: list[Segment] = []
        while len(segments) > 1 and segments[1].first_lsn <= log_start and owner.keeper.names(segments[0]):
            going.append(segments.pop(0))
        gone = owner.keeper.forget(going)
        self._place.counters.segments_deleted += len(gone)
        return gone

    @property
    def to_be_forgotten(self) -> Sequence[SegmentName]:
        """Nothing: what trim does not name is forgotten."""
        return ()

    def next_generation(self, old: SegmentName) -> int:
        """Of a rewritten segment: none is given twice, by no two owners either, so that none can touch an object of
        another, or of a try that was given up."""
        owner = self._owned()
        owner.rewrites += 1
        return max(old.generation, owner.claim.epoch << 12) + owner.rewrites

    def replace(self, old: SegmentName, new: Segment) -> None:
        """Show a rewritten generation of a sealed segment in place of the one it was made from."""
        owner = self._owned()
        owner.keeper.replace(self.segment_named(str(old)), new)
        self._place.counters.segments_rewritten += 1

    def _swap_segments(self, going: Sequence[Segment], coming: Sequence[Segment]) -> None:
        """Show other segments in the place of some; nothing in the place of what was forgotten."""
        with self._showing:
            view = self._view
            places = dict(zip(going, coming, strict=False))
            shown = []
            for segment in view.segments:
                new = places.get(segment, None if segment in going else segment)
                if new is not None:
                    shown.append(new)
            self._show(View(tuple(shown), view.durable_lsn, view.position))
        self._drop_indexes()

    @property
    def active_segment(self) -> Segment:
        """The segment that is being written."""
        self._owned()
        return self._view.segments[-1]

    def segment_named(self, name: str) -> Segment:
        """The segment of this name, as it is now."""
        return segment_named(self._view.segments, name)

    def keep(self) -> None:
        """What the keeper's threads do, once: give a sign of life, and take what is sealed into trim.  What the store
        does not answer is put off."""
        keeper = self._owned().keeper
        try:
            keeper.renew()
            keeper.absorb()
        except Fenced as fenced:
            self._be_fenced(fenced)
            raise
        except (Unavailable, StoreUnsure) as error:
            logger.warning("the log's upkeep on the store was put off: %s", error)

    def take_in(self) -> None:
        """Take what is sealed into trim, so that it can be forgotten or replaced: not under the baton, it may be
        much."""
        self._owned().keeper.absorb()

    # Ending ----------------------------------------------------------------------------------

    def sync_mark(self) -> None:
        """There is no mark: what is there is durable."""

    @property
    def mark_is_dirty(self) -> bool:
        return False

    @property
    def poisoned_by(self) -> BaseException | None:
        """What ended this open log's promises; nothing while they hold."""
        return self._poisoned

    def poison(self, cause: BaseException) -> OutcomeUnknown:
        """Promise nothing any more; returns what requests in flight are told."""
        self._poisoned = self._poisoned if self._poisoned is not None else cause
        logger.error("poisoned: %r", cause)
        return OutcomeUnknown(
            f"it is not known whether this is durable ({cause}): close the log, open it again, "
            "and retry with the same sequence number"
        )

    def _found_foreign(self, slot: int) -> BaseException:
        """A slot of ours holds another's bytes.  It and all after it are not in the log, if the slot is still on the
        walk: below it lies what was deleted, where a claim that came too late may have left a fence."""
        fenced = Fenced(
            "another process has taken the log over: nothing of this was appended, and nothing more is written here; "
            "open it again to go on",
            where=self._objects.url,
            slot=slot,
        )
        self._be_fenced(fenced)
        if self._asked(still_walked(self._place.directory, slot)):
            return fenced
        return OutcomeUnknown(
            "another process has taken the log over, and it is not known whether this was appended before: open the "
            "log again, and retry with the same sequence number",
            where=self._objects.url,
        )

    def _be_fenced(self, fenced: Fenced) -> None:
        """The keeper has found it out.  What is on its way finds its own slots taken, or was in time."""
        self._poisoned = self._poisoned if self._poisoned is not None else fenced
        logger.error("fenced: %s", fenced)

    def close(self) -> None:
        """Let go of it; closing twice is nothing."""
        if self._closed:
            return
        self._closed = True
        if os.getpid() != self._pid or self._owner is None:
            return
        self._owner.flights.settle()
        self._owner.flights.stop()
        self._owner.keeper.stop(clean=not isinstance(self._poisoned, Fenced))

    def _owned(self) -> ObjectOwner:
        self._check_usable()
        if self._owner is None:
            raise AssertionError("claim() comes first")
        return self._owner

    def _check_usable(self) -> None:
        if self._closed:
            raise Closed("this log is closed")
        if os.getpid() != self._pid:
            raise Closed("this log was opened by another process, which forked this one: open it here", pid=self._pid)
        if isinstance(self._poisoned, Fenced):
            raise Fenced(self._poisoned.message, **self._poisoned.facts)
        if self._poisoned is not None:
            raise Poisoned(
                f"the store did not answer earlier ({self._poisoned}): close this log and open it again, "
                "which recovers it"
            )
        if self._halted is not None:
            raise self._halted
