"""A log in slots of a simulated store, written by hand: what an owner leaves, without an owner.

log = SlotLog(store)     trim
log.fence()              an owner begins an epoch; the slots behind it are void
log.commit(3)            one slot of three writes of one row
log.seal()               all slots so far become segments that trim names; `merged` ones are one object with its index
"""

from __future__ import annotations

from dataclasses import replace

from headwater.clock import ManualClock
from headwater.frames.bodies import pack_epoch
from headwater.frames.frame import Kind, salt_crc
from headwater.frames.segment_header import SegmentHeader, decode_segment_frame, pack_segment_frame
from headwater.log.chain import ChainEnd, seal_writes
from headwater.log.drafts import Draft
from headwater.log.manifest import KeptSegment, Manifest, pack_manifest
from headwater.log.names import SegmentName
from headwater.log.object_look import Asking
from headwater.log.slot_run import SlotRun
from headwater.log.slots import CONTINUES, FENCE, pack_slot, slot_name
from headwater.log.walk import Walk
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.simulated_store import SimulatedStore

LOG_ID = bytes(range(16))
WINDOW = 4
DIRECTORY = "log"


def asking(store: SimulatedStore) -> Asking:
    return Asking(store, bucket(store).patience)


def bucket(store: SimulatedStore) -> BucketFiles:
    return BucketFiles(store, clock=ManualClock(), threads=False)


class SlotLog:
    def __init__(self, store: SimulatedStore, *, window: int = WINDOW) -> None:
        self.store = store
        self.manifest = Manifest(LOG_ID, window)
        self.epoch = 0
        self._salt = b""
        self._opens = True
        self._walk = Walk(self.manifest, "", {})
        self._put_trim()

    def _put_trim(self) -> None:
        self.store.put(f"{DIRECTORY}/trim", pack_manifest(self.manifest))

    @property
    def next_slot(self) -> int:
        return self._walk.next_slot

    @property
    def last_lsn(self) -> int:
        return self._walk.end.next_lsn - 1

    def fence(self) -> int:
        """The slot of the fence."""
        self.epoch += 1
        token = self.epoch.to_bytes(16, "big")
        slot = self._put([Draft(Kind.EPOCH, pack_epoch(self.epoch, token))], FENCE, durable_lsn=0)
        self.manifest = self.manifest.owned_by(self.epoch, token)
        self._put_trim()
        return slot

    def commit(self, writes: int = 1, *, size: int = 40, durable_lsn: int | None = None) -> int:
        """The slot of a commit."""
        drafts = [Draft(Kind.DATA, b"r" * size, topic_number=1, row_count=1) for _ in range(writes)]
        return self._put(drafts, 0, durable_lsn)

    def in_flight(self, ahead: int, *, durable_lsn: int = 0) -> int:
        """A slot that an owner has put while those before it are not there."""
        slot = self.next_slot + ahead
        data = self._sealed([Draft(Kind.DATA, b"ahead", topic_number=1, row_count=1)], 0, slot, durable_lsn)[0]
        self.store.put(f"{DIRECTORY}/{slot_name(slot)}", data)
        return slot

    def roll(self) -> None:
        """The next commit opens a segment."""
        self._opens = True

    def seal(self, *, merged: bool = True) -> list[str]:
        """The names of the segments that trim names from now on."""
        names = []
        kept = list(self.manifest.segments)
        for run in self._walk.runs:
            kept.append(self._kept(run, merged))
            names.append(f"{DIRECTORY}/{SegmentName(run.first_lsn, 0)}")
        self.manifest = replace(self.manifest, next=self.next_slot, segments=tuple(kept), end=self._walk.end)
        self._put_trim()
        self._walk = Walk(self.manifest, "", self._walk.next_offsets)
        self._opens = True
        return names

    def _kept(self, run: SlotRun, merged: bool) -> KeptSegment:
        name = SegmentName(run.first_lsn, 0)
        opening, created_us = run.opening.data, run.opening.header.created_us
        self.store.put(f"{DIRECTORY}/{name.index}", run.index.pack(opening, run.end, run.size, created_us))
        if merged:
            parts = [self.store.contents(f"{DIRECTORY}/{slot_name(slot)}") for slot, _ in run.slots]
            self.store.put(f"{DIRECTORY}/{name}", b"".join([parts[0], *(part[256:] for part in parts[1:])]))
            for slot, _ in run.slots:
                if slot not in run.fences:
                    self.store.delete(f"{DIRECTORY}/{slot_name(slot)}")
        return KeptSegment(
            first_lsn=run.first_lsn,
            generation=0,
            size=run.size,
            created_us=created_us,
            end=run.end,
            opening=opening,
            slots=() if merged else run.slots,
            fences=() if merged else run.fences,
        )

    def _put(self, drafts: list[Draft], flags: int, durable_lsn: int | None = None) -> int:
        slot = self.next_slot
        data = self._sealed(drafts, flags, slot, self.last_lsn if durable_lsn is None else durable_lsn)[0]
        self.store.put(f"{DIRECTORY}/{slot_name(slot)}", data)
        self._opens = False
        self._walk.add(data)
        return slot

    def _sealed(self, drafts: list[Draft], flags: int, slot: int, durable_lsn: int) -> tuple[bytes, ChainEnd]:
        end = self._walk.end
        if self._opens:
            self._salt = end.next_lsn.to_bytes(8, "big")
        header = SegmentHeader(
            log_id=LOG_ID,
            salt=self._salt,
            first_lsn=end.next_lsn,
            prev=end.chain,
            epoch=self.epoch,
            created_us=end.next_lsn,
            slot=slot,
            previous_first_lsn=0 if self._opens else self._walk.runs[-1].first_lsn,
            flags=flags | (0 if self._opens else CONTINUES),
        )
        if self._opens:
            decoded = decode_segment_frame(memoryview(pack_segment_frame(header)))
            assert isinstance(decoded, tuple)
            end = replace(end, chain=decoded[1])
        offsets = self._walk.next_offsets.get(1 << 32, 0)
        placed = [([draft], [offsets + at if draft.topic_number else 0]) for at, draft in enumerate(drafts)]
        sealed = seal_writes(
            placed,
            end,
            salt_crc(self._salt),
            durable_lsn=durable_lsn,
            epoch=self.epoch,
            append_time_us=end.next_lsn,
        )
        return pack_slot(header, sealed.buffers), sealed.end
