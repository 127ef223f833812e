"""The whole writes of a log as they lie in its files: what its next owner would recover, whatever the mark says.

After a power loss the mark may be behind what is durable; then a reader, who goes by it, sees less than an owner will.

PROMISE  Valid frames only, of whole writes, in order and chained; it ends where that ends, and says nothing of why.
"""

from __future__ import annotations

from collections.abc import Iterator

from headwater.errors import UnknownFormat
from headwater.frames.frame import NoFrame
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.log.chain import ChainEnd, ChainWalker
from headwater.log.device import Frame
from headwater.log.names import SegmentName, sort_names
from headwater.log.segment import Opening, Scan, cleared_memory, read_opening
from headwater.log.verify import choose_segments
from headwater.storage.files import File, Files


class StoredFrames:
    """A log's directory, as it was when it was listed."""

    def __init__(self, files: Files, directory: str, *, chunk_bytes: int) -> None:
        self._files = files
        self.directory = directory
        self._chunk_bytes = chunk_bytes
        self._segments = choose_segments(files, directory, sort_names(files.list(directory)).segments).names

    @property
    def first_lsn(self) -> int | None:
        """Where the first segment begins; None where there is none."""
        return self._segments[0].first_lsn if self._segments else None

    def chain_before_first(self) -> int | None:
        """The chain value of the frame before the first segment; None where its header does not say so."""
        file = self._open(self._segments[0])
        try:
            opening = _opening(file)
            return opening.header.prev if opening is not None else None
        finally:
            file.close()

    def read(self, from_lsn: int) -> Iterator[Frame]:
        """From the frame with this LSN on, or from the first; a gap counts by the last LSN that it stands for."""
        numbers = range(len(self._segments))
        first = max((number for number in numbers if self._segments[number].first_lsn <= from_lsn), default=0)
        end: ChainEnd | None = None
        for name in self._segments[first:]:
            file = self._open(name)
            try:
                opening = _opening(file)
                if opening is None or not _continues(end, name, opening):
                    return
                walker = ChainWalker(ChainEnd(name.first_lsn, opening.chain, opening.header.epoch, 0))
                for frame in self._whole_writes(file, str(name), opening, walker):
                    if frame.lsn >= from_lsn:
                        yield frame
                end = walker.whole_end
            finally:
                file.close()

    def _whole_writes(self, file: File, name: str, opening: Opening, walker: ChainWalker) -> Iterator[Frame]:
        scan = Scan(
            file, SEGMENT_FRAME_BYTES, file.size(), opening.salted, chunk_bytes=self._chunk_bytes, memory=cleared_memory
        )
        write: list[Frame] = []
        for position, header, body in scan:
            if walker.step(header, body) is not None:
                return
            write.append(Frame(header, body, name, position))
            if walker.whole_end.next_lsn == walker.next_lsn:
                yield from write
                write.clear()

    def _open(self, name: SegmentName) -> File:
        return self._files.open(f"{self.directory}/{name}")


def _opening(file: File) -> Opening | None:
    try:
        opening = read_opening(file)
    except UnknownFormat:
        return None
    return None if isinstance(opening, NoFrame) else opening


def _continues(end: ChainEnd | None, name: SegmentName, opening: Opening) -> bool:
    return end is None or (end.next_lsn, end.chain) == (name.first_lsn, opening.header.prev)
