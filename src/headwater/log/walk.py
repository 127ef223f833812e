"""The history of a log on an object store: a walk over slots from where `trim` says that it begins.

    after a slot s comes s + 1; after a fence at c comes c + W; what the walk reaches is committed, and nothing else is.

PROMISE  Epochs never fall along a walk, and every slot goes on with the chain of the one before: else DamagedLog.
NOT HERE Asking the store: takeover.py, and the device.
"""

from __future__ import annotations

from collections.abc import Mapping

from headwater.errors import DamagedLog, ForeignLog
from headwater.frames.bodies import unpack_epoch
from headwater.frames.frame import UNIT_BYTES
from headwater.log.chain import ChainEnd
from headwater.log.manifest import Manifest
from headwater.log.slot_run import SlotRun
from headwater.log.slots import Slot, follows, read_slot


class Walk:
    """How far a walk has come."""

    def __init__(self, manifest: Manifest, etag: str, next_offsets: Mapping[int, int]) -> None:
        self.manifest = manifest
        self.etag = etag
        """Of `trim` as it was read before the walk began."""
        self.next_slot = manifest.next
        self.runs: list[SlotRun] = []
        """The segments that begin on the walk; all but the last are sealed."""
        self.fence: tuple[int, bytes] | None = None
        """The last fence that was met, if nothing came after it: its slot, and its owner's token."""
        self._next_offsets = next_offsets

    @property
    def end(self) -> ChainEnd:
        return self.runs[-1].end if self.runs else self.manifest.end

    @property
    def epoch(self) -> int:
        """The highest epoch that was met."""
        return max(self.end.epoch, self.manifest.epoch)

    @property
    def next_offsets(self) -> Mapping[int, int]:
        return self.runs[-1].index.next_offsets() if self.runs else self._next_offsets

    def add(self, data: bytes) -> Slot:
        """Take in what the next slot holds."""
        slot = read_slot(self.next_slot, data)
        header = slot.header
        if header.log_id != self.manifest.log_id:
            raise ForeignLog(
                "a slot belongs to another log: nothing but this log may write below its prefix; move it away",
                slot=slot.number,
                log_id=header.log_id.hex(),
                this_log=self.manifest.log_id.hex(),
            )
        end = self.end
        if header.first_lsn != end.next_lsn or header.prev != end.chain or header.epoch < end.epoch:
            raise DamagedLog(
                "a slot does not go on where the one before it ended; run `headwater log verify`",
                slot=slot.number,
                lsn=end.next_lsn,
            )
        if slot.opens:
            run = SlotRun(slot.opening, self.next_offsets, end.append_time_us)
            run.take(slot)
            self.runs.append(run)
        elif not self.runs or header.previous_first_lsn != self.runs[-1].first_lsn:
            raise DamagedLog(
                "a slot goes on with a segment that is not there; run `headwater log verify`",
                slot=slot.number,
                lsn=end.next_lsn,
            )
        else:
            self.runs[-1].take(slot)
        self.fence = (slot.number, token_of(slot)) if slot.is_fence else None
        self.next_slot = follows(slot, self.manifest.window)
        return slot


def token_of(fence: Slot) -> bytes:
    """Who made it: the token in its EPOCH frame."""
    body = fence.frames[UNIT_BYTES : UNIT_BYTES + 24]
    epoch = unpack_epoch(body)
    if epoch is None:
        raise DamagedLog("a fence without an epoch; run `headwater log verify`", slot=fence.number)
    return epoch[1]
