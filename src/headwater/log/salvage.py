"""A walk over a segment that does not end at damage: it says what is broken, and goes on behind it.

Behind a break the next valid header with a later LSN counts again, from the beginning of a whole write: frames of a
write that has lost others do not.  The frame where it goes on names its predecessor, so a gap that stands for the
lost ones can carry the chain value that is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.errors import CorruptData
from headwater.frames.bodies import unpack_gap
from headwater.frames.frame import UNIT_BYTES, Header, Kind, NoFrame
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.log.chain import ChainBreak, ChainEnd, ChainWalker
from headwater.log.mark import Mark
from headwater.log.segment import Opening, Scan, read_frame, valid_headers_after
from headwater.storage.files import File

WalkedFrame = tuple[int, Header, memoryview]


@dataclass(frozen=True)
class Broken:
    """A place where the chain does not go on."""

    position: int
    why: NoFrame | ChainBreak
    end: ChainEnd
    """Where the last whole write before it ended."""
    resume: ChainEnd | None
    """Where the chain goes on behind it; nothing where it does not."""
    durable_lsn: int
    """The highest that a valid header from here on knew to be durable."""

    @property
    def lost_to(self) -> int | None:
        """The last LSN that is lost, as far as this segment tells."""
        return self.resume.next_lsn - 1 if self.resume is not None else None


class Salvage:
    """One segment, walked to its end over every break.  `end` is where its chain ends."""

    def __init__(
        self,
        file: File,
        opening: Opening,
        size: int,
        *,
        chunk_bytes: int,
        mark: Mark | None = None,
        append_time_us: int = 0,
    ) -> None:
        self._file = file
        self._opening = opening
        self._size = size
        self._chunk_bytes = chunk_bytes
        self._floor = {"floor_epoch": mark.epoch, "floor_after_lsn": mark.durable_lsn} if mark is not None else {}
        header = opening.header
        self.end = ChainEnd(header.first_lsn, opening.chain, header.epoch, append_time_us)

    def __iter__(self) -> Iterator[WalkedFrame | Broken]:
        position = SEGMENT_FRAME_BYTES
        while True:
            walker = ChainWalker(self.end, **self._floor)
            scan = Scan(self._file, position, self._size, self._opening.salted, chunk_bytes=self._chunk_bytes)
            why: NoFrame | ChainBreak | None = None
            step = walker.step
            for frame in scan:
                why = step(frame[1], frame[2])
                if why is not None:
                    position = frame[0]
                    break
                yield frame
            else:
                position = scan.stop.position
                if position < self._size:
                    why = scan.stop.reason
                elif walker.whole_end.next_lsn != walker.next_lsn:
                    why = ChainBreak.WRITE
            self.end = walker.whole_end
            if why is None:
                return
            resumed = self._resume(position)
            yield Broken(position, why, self.end, resumed[1] if resumed else None, self._durable_from(position))
            if resumed is None:
                return
            position, self.end = resumed

    def _headers_from(self, position: int) -> Iterator[tuple[int, Header]]:
        return valid_headers_after(
            self._file, position, self._size, self._opening.salted, chunk_bytes=self._chunk_bytes
        )

    def _durable_from(self, position: int) -> int:
        return max((header.durable_lsn for _, header in self._headers_from(position)), default=0)

    def _resume(self, position: int) -> tuple[int, ChainEnd] | None:
        """The first place behind a break where a later write begins."""
        for at, header in self._headers_from(position + UNIT_BYTES):
            if header.write_index or header.epoch < self.end.epoch:
                continue
            first_lsn = self._first_lsn_of_gap(at) if header.kind == Kind.GAP else header.lsn
            if first_lsn >= self.end.next_lsn:
                return at, ChainEnd(first_lsn, header.prev, header.epoch, header.append_time_us)
        return None

    def _first_lsn_of_gap(self, position: int) -> int:
        """Where a gap begins; 0, which is before everything, where it cannot be read."""
        try:
            _, body = read_frame(self._file, position, self._opening.salted)
        except CorruptData:
            return 0
        gap = unpack_gap(body)
        return gap.first_lsn if gap is not None else 0
