"""Owners and readers of a log in slots, as state machines over the generators of the product.

OWNER    Claims, commits with up to W slots in flight, rolls segments, absorbs sealed ones (merge, move trim, delete
         slots, never a fence), lets go of old segments, is fenced, and claims again.  It is what an ObjectDevice does,
         without threads and without a writer above it.
READER   Walks, and goes on with its walk later, whatever happened since.
Each asks the store through the world, and does nothing else: what comes between two requests is the scheduler's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headwater.errors import Fenced
from headwater.frames.bodies import pack_epoch
from headwater.frames.frame import Kind, salt_crc
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, SegmentHeader
from headwater.log import slots as slots_module
from headwater.log import takeover, window
from headwater.log.asks import Asking, Unsure
from headwater.log.chain import ChainEnd, seal_writes
from headwater.log.drafts import Draft
from headwater.log.manifest import KeptSegment, Manifest
from headwater.log.segment import opening_of
from headwater.log.slots import CONTINUES, FENCE, Slot, slot_name
from headwater.log.walk import Walk
from tests.simulation.slot_world import DIRECTORY, Delete, Packed, SlotWorld, Violation

TIME_US = 1_700_000_000_000_000


@dataclass
class Commit:
    content: bytes
    lsn: int
    slot: int


class Run:
    """A segment in slots, as its owner knows it."""

    __slots__ = ("contents", "end", "fences", "first_lsn", "opens_at", "salt", "slots")

    def __init__(self, first_lsn: int, salt: bytes, opens_at: int) -> None:
        self.first_lsn = first_lsn
        self.salt = salt
        self.opens_at = opens_at
        self.slots: list[int] = []
        self.fences: set[int] = set()
        self.contents: list[tuple[int, bytes]] = []
        self.end = ChainEnd(1, 0, 0, 0)


class WatchedWalk(Walk):
    """A walk that tells what it takes in."""

    def __init__(self, manifest: Manifest, etag: str, world: SlotWorld, who: str) -> None:
        super().__init__(manifest, etag, {})
        self._world = world
        self._who = who
        self.contents: list[tuple[int, int, bytes]] = []

    def add(self, data: bytes) -> Slot:
        slot = super().add(data)
        packed = self._world.packed[data]
        if packed.content:
            self.contents.append((slot.number, packed.lsn, packed.content))
        return slot


def packed_slot(
    world: SlotWorld,
    log_id: bytes,
    number: int,
    end: ChainEnd,
    epoch: int,
    content: bytes,
    run: Run | None,
    salt: bytes,
) -> tuple[bytes, ChainEnd]:
    """A slot of a segment, or one that opens a segment: with one frame, or with none where there is no content."""
    fence = len(content) == 16
    header = SegmentHeader(
        log_id,
        salt,
        end.next_lsn,
        end.chain,
        epoch,
        TIME_US,
        previous_first_lsn=run.first_lsn if run is not None else 0,
        slot=number,
        flags=(0 if run is None else CONTINUES) | (FENCE if fence else 0),
    )
    if run is None:
        opening = opening_of(slots_module.pack_slot(header, ()))
        start = ChainEnd(end.next_lsn, opening.chain, epoch, TIME_US)
    else:
        start = end
    draft = Draft(Kind.EPOCH, pack_epoch(epoch, content)) if fence else Draft(Kind.METADATA, content)
    writes = [((draft,), (0,))] if content else []
    sealed = seal_writes(writes, start, salt_crc(salt), durable_lsn=0, epoch=epoch, append_time_us=TIME_US)
    data = slots_module.pack_slot(header, sealed.buffers)
    world.packed[data] = Packed(end.next_lsn, epoch, content, fence, number)
    return data, sealed.end


class Actor:
    def __init__(self, world: SlotWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.paused_until = 0

    def act(self) -> None:
        """Something of its own choice."""
        raise NotImplementedError


class Owner(Actor):
    def __init__(self, world: SlotWorld, name: str, log_id: bytes, rolls: float) -> None:
        super().__init__(world, name)
        self._own_log_id = log_id
        self._rolls = rolls
        self.phase = "idle"
        self.claims = 0
        self._forget()

    def _forget(self) -> None:
        self.token = b""
        self.epoch = 0
        self.runs: list[Run] = []
        self.current: Run | None = None
        self.trimming: Asking[str | None] | None = None
        self.last_acknowledged = 0
        self.window: window.Window[Commit] = window.Window(1, 1)

    # What it does by itself ------------------------------------------------------------------------------------------

    def act(self) -> None:
        chance = self.world.chance
        if self.phase == "idle":
            self.claim()
        elif self.phase == "owning":
            draw = chance.random()
            if self.trimming is not None and draw < 0.25:
                self.give_up_trim()
            elif draw < self._rolls:
                self.roll()
            elif draw < 3 * self._rolls and self.absorb():
                return
            elif self.window.has_room:
                self.commit()
        elif self.phase == "fenced" and (not self.window.in_flight or chance.random() < 0.1):
            self.stop(late_share=0.5)

    def stop(self, *, late_share: float) -> None:
        """It dies, or closes: nobody waits for its requests any more."""
        self.world.note(self.name, "stops")
        self.world.drop(self, late_share=late_share)
        self.phase = "idle"
        self._forget()

    # Claiming --------------------------------------------------------------------------------------------------------

    def claim(self) -> None:
        self.phase = "claiming"
        self.claims += 1
        self.world.note(self.name, "claims the log")
        self.token = self._new_token()
        self.world.start(self, self._claiming(), self._claimed)

    def _new_token(self) -> bytes:
        return self.world.number().to_bytes(16, "big")

    def _claiming(self) -> Asking[takeover.Taken | None]:
        world = self.world
        salt = world.chance.randbytes(8)

        def make_fence(walk: Walk, epoch: int) -> bytes:
            run = None
            if walk.runs:
                # It goes on with the last segment: a claim makes no segment.
                last = walk.runs[-1].opening.header
                run = Run(last.first_lsn, last.salt, 0)
            at = walk.next_slot
            log_id = walk.manifest.log_id
            return packed_slot(world, log_id, at, walk.end, epoch, self.token, run, run.salt if run else salt)[0]

        if not world.trims:
            # As far as it can know there is no log yet; another may begin one at the same time.
            yield from takeover.begin(DIRECTORY, Manifest(self._own_log_id, world.window))
        try:
            return (
                yield from takeover.take_over(
                    DIRECTORY,
                    self.token,
                    lambda manifest, etag: WatchedWalk(manifest, etag, world, self.name),
                    make_fence,
                )
            )
        except Fenced:
            return None

    def _claimed(self, taken: takeover.Taken | None) -> None:
        world = self.world
        if taken is None:
            world.counts["claims lost"] += 1
            self.stop(late_share=0.5)
            return
        world.counts["claims"] += 1
        world.note(self.name, f"owns the log: epoch {taken.epoch}, first slot {taken.first_slot}")
        walk = taken.walk
        assert isinstance(walk, WatchedWalk)
        for _, lsn, content in walk.contents:
            world.believes(f"{self.name}, who owns the log,", lsn, content)
        if world.history.epochs.get(taken.epoch) != self.token:
            raise Violation(f"O6: {self.name} owns epoch {taken.epoch}, and its fence is not in the history")
        if not any(trim.epoch == taken.epoch and trim.token == self.token for trim in world.trims):
            raise Violation(f"O6: {self.name} owns epoch {taken.epoch}, and trim never said so")
        self.phase = "owning"
        self.epoch = taken.epoch
        self.manifest = taken.manifest
        self.etag = taken.etag
        self.window = window.Window(taken.first_slot, world.window)
        self.end = walk.end
        contents = {slot: (lsn, content) for slot, lsn, content in walk.contents}
        for found in walk.runs:
            run = Run(found.first_lsn, found.opening.header.salt, found.slots[0][0])
            run.slots = [slot for slot, _ in found.slots]
            run.fences = set(found.fences)
            run.contents = [contents[slot] for slot in run.slots if slot in contents]
            run.end = found.end
            self.runs.append(run)
        self.current = self.runs[-1]

    # Committing ------------------------------------------------------------------------------------------------------

    def commit(self, *, empty: bool = False) -> None:
        """A slot with a frame; or with none, where it only opens a segment."""
        world = self.world
        content = b"" if empty else f"{self.name}{world.number()}".encode()
        commit = Commit(content, self.end.next_lsn, 0)
        commit.slot = self.window.issue(commit)
        run = self.current
        salt = world.chance.randbytes(8) if run is None else run.salt
        data, self.end = packed_slot(world, self.manifest.log_id, commit.slot, self.end, self.epoch, content, run, salt)
        if run is None:
            run = self.current = Run(commit.lsn, salt, commit.slot)
            self.runs.append(run)
        run.slots.append(commit.slot)
        if content:
            run.contents.append((commit.lsn, content))
        run.end = self.end
        world.note(self.name, f"commits LSN {commit.lsn} in slot {commit.slot}")
        name = f"{DIRECTORY}/{slot_name(commit.slot)}"
        world.start(self, window.write_slot(name, data), lambda ours: self._written(commit, ours))

    def _written(self, commit: Commit, ours: bool) -> None:
        if ours:
            for each in self.window.settle(commit.slot, True):
                if not each.content:
                    continue
                if each.lsn <= self.last_acknowledged:
                    raise Violation(f"{self.name} acknowledges LSN {each.lsn} after {self.last_acknowledged}")
                self.last_acknowledged = each.lsn
                self.world.acknowledge(self.name, each.lsn, each.content)
        else:
            self.world.start(self, self._look_at(commit.slot), lambda walked: self._foreign(commit, walked))

    def _look_at(self, slot: int) -> Asking[bool]:
        """Whether what was found in a slot is the log's history."""
        return takeover.still_walked(DIRECTORY, slot)

    def _foreign(self, commit: Commit, walked: bool) -> None:
        world = self.world
        world.counts["fenced" if walked else "outcome unknown"] += 1
        world.note(self.name, f"slot {commit.slot} is another's{'' if walked else ', and may have been ours'}")
        world.fenced_by(self.name, self.epoch)
        self.window.settle(commit.slot, False)
        self.phase = "fenced"
        if walked:
            # These, and all after, are certainly not in the log: their callers are told so.
            world.fenced.update(
                each.content for each in self.window._waiting.values() if each.slot >= commit.slot and each.content
            )

    # Absorbing -------------------------------------------------------------------------------------------------------

    def roll(self) -> None:
        """The next commit opens a segment; or a slot with no frame does, at once."""
        if self.current is not None and self.current.contents:
            self.world.note(self.name, "rolls")
            self.current = None
            if self.window.has_room and self.world.chance.random() < 0.5:
                self.commit(empty=True)

    def absorb(self) -> bool:
        """Sealed segments leave the walk, if there are any."""
        if self.trimming is not None:
            return False
        # Up to a slot that opens a segment, and is confirmed: no fence can lie before it that is not known here.
        count = sum(run.opens_at < self._confirmed_below() for run in self.runs[1:])
        if not count:
            return False
        world = self.world
        count = 1 + int(world.chance.random() * count)
        absorbed = self.runs[:count]
        kept = list(self.manifest.segments)
        deleted: list[int] = []
        for run in absorbed:
            stays = world.chance.random() < 0.3
            generation = world.number()
            world.merged[generation] = run.contents
            large = tuple((slot, SEGMENT_FRAME_BYTES) for slot in run.slots) if stays else ()
            kept.append(
                KeptSegment(
                    run.first_lsn, generation, len(run.slots), TIME_US, run.end, b"", large, tuple(sorted(run.fences))
                )
            )
            if not stays:
                deleted += self._deletable(run.slots, run.fences)
        while kept and world.chance.random() < 0.3:
            gone = kept.pop(0)
            deleted += self._deletable([slot for slot, _ in gone.slots], set(gone.fences))
        manifest = replace(
            self.manifest,
            next=self.runs[count].opens_at,
            segments=tuple(kept),
            end=absorbed[-1].end,
        )
        self.trimming = self._moving(manifest)
        world.note(self.name, f"moves trim to slot {manifest.next}")
        world.start(self, self.trimming, lambda etag: self._moved(etag, manifest, deleted))
        return True

    def give_up_trim(self) -> None:
        """It has waited long enough, and does not know whether trim has moved: it deletes nothing, and tries later."""
        self.world.note(self.name, "gives up to move trim")
        self.world.counts["trims given up"] += 1
        self.world.drop(self, late_share=0.8, only=self.trimming)
        self.trimming = None

    def _confirmed_below(self) -> int:
        return self.window.lowest_unconfirmed

    def _deletable(self, numbers: list[int], fences: set[int]) -> list[int]:
        return [slot for slot in numbers if slot not in fences]

    def _moving(self, manifest: Manifest) -> Asking[str | None]:
        try:
            return (yield from takeover.move_trim(DIRECTORY, manifest, self.etag))
        except Fenced:
            return None

    def _moved(self, etag: str | None, manifest: Manifest, deleted: list[int]) -> None:
        self.trimming = None
        if etag is None:
            self.world.note(self.name, "finds trim another's")
            self.world.fenced_by(self.name, self.epoch)
            self.phase = "fenced"
            return
        self.world.counts["trims"] += 1
        self.etag = etag
        self.manifest = manifest
        while self.runs[0].opens_at < manifest.next:
            del self.runs[0]
        self._delete(deleted)

    def _delete(self, numbers: list[int]) -> None:
        for slot in numbers:
            self.world.start(self, _deleting(slot), lambda _: None)


def _deleting(slot: int) -> Asking[None]:
    while True:
        reply = yield Delete(f"{DIRECTORY}/{slot_name(slot)}")  # type: ignore[misc]
        if not isinstance(reply, Unsure):
            return


class Reader(Actor):
    """Walks and never writes."""

    def __init__(self, world: SlotWorld, name: str) -> None:
        super().__init__(world, name)
        self._walk: WatchedWalk | None = None
        self._busy = False

    def act(self) -> None:
        if not self._busy:
            self._busy = True
            if self.world.chance.random() < 0.2:
                self._walk = None
            self.world.start(self, self._looking(), self._looked)

    def _looking(self) -> Asking[None]:
        walk = self._walk
        if walk is not None:
            yield from takeover.walk_on(DIRECTORY, walk)
        found = yield from takeover.read_trim(DIRECTORY)
        if found is None:
            return
        manifest, etag = found
        if walk is None or manifest.next > walk.next_slot:
            self._check()
            self._walk = walk = WatchedWalk(manifest, etag, self.world, self.name)
            yield from takeover.walk_on(DIRECTORY, walk)

    def _looked(self, _: Any) -> None:
        self._busy = False
        self.world.counts["looks"] += 1
        self._check()

    def _check(self) -> None:
        if self._walk is not None:
            for _, lsn, content in self._walk.contents:
                self.world.believes(self.name, lsn, content)
