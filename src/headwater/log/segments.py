"""The sealed segments of a log, as found in its directory, and the newest one after them.

PROMISE  Names, headers, footers and chain values fit together, or it halts by name: LostSegment,
         DuplicateLsn, ForeignLog, DamagedLog, UnknownFormat.  Nothing is changed here.
RULES    Of several generations of a segment the highest with a valid header wins.  Segments wholly below the
         log's start were meant to be deleted and are left out (`forgotten`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headwater.errors import DamagedLog, DuplicateLsn, ForeignLog, Forgotten, Halted, LostSegment, UnknownFormat
from headwater.frames.frame import NoFrame
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, decode_segment_frame
from headwater.log.chain import ChainBreak, ChainEnd, ChainWalker
from headwater.log.index import (
    ActiveIndex,
    Footer,
    SealedIndex,
    SegmentIndex,
    open_sealed,
    read_footer,
    read_next_offsets,
)
from headwater.log.names import DirectoryListing, SegmentName, sort_names
from headwater.log.segment import Memory, Opening, Scan, cleared_memory, read_opening
from headwater.metrics import LogCounters
from headwater.settings import LogSettings
from headwater.storage.files import File, Files

logger = logging.getLogger("headwater.log")


@dataclass(frozen=True)
class LogPlace:
    """Where a log lives and how it is read."""

    files: Files
    directory: str
    settings: LogSettings
    counters: LogCounters
    memory: Memory = cleared_memory

    def path(self, name: str | SegmentName) -> str:
        return f"{self.directory}/{name}"


class Segment:
    """One segment as an open log knows it; its file and index are opened when they are needed."""

    def __init__(self, place: LogPlace, name: SegmentName, opening: Opening) -> None:
        self._place = place
        self.name = name
        self.opening = opening
        self._index: SegmentIndex | None = None
        self.end = ChainEnd(opening.header.first_lsn, opening.chain, opening.header.epoch, 0)
        self.size = SEGMENT_FRAME_BYTES
        self.created_us = opening.header.created_us

    @property
    def first_lsn(self) -> int:
        return self.name.first_lsn

    @property
    def last_lsn(self) -> int:
        return self.end.next_lsn - 1

    @property
    def packed_slots(self) -> bytes:
        """Where it lies, as a plan carries it (opened_segment.py), if that is in slots of an object store."""
        return b""

    def open_file(self) -> File:
        """A handle of the caller's own: it goes on reading the same bytes whatever becomes of the name."""
        return self._place.files.open(self._place.path(self.name))

    def seal(self, end: ChainEnd, size: int) -> None:
        """From here on it does not change."""
        self.end = end
        self.size = size

    def set_index(self, index: SegmentIndex | None) -> None:
        self._index = index

    @property
    def loaded_index(self) -> SegmentIndex | None:
        return self._index

    def read_index(self) -> SealedIndex | None:
        """Its index from its file, checked whole; nothing where there is none that fits."""
        opened = self._open_index()
        if opened is None:
            return None
        file, footer = opened
        index = open_sealed(file, footer, chunk_bytes=self._place.settings.scan_chunk_bytes)
        if index is None:
            file.close()
        return index

    def read_next_offsets(self) -> dict[int, int] | None:
        """Every partition's next offset at its end, from its index file alone."""
        return self._saved_offsets(any_age=False)

    def base_offsets(self) -> dict[int, int] | None:
        """Next offsets that were true at some point of this segment, from its own index file even if that is old.
        For the first segment of a log that has let go of those before it: nobody else knows them."""
        return self._saved_offsets(any_age=True)

    def _saved_offsets(self, *, any_age: bool) -> dict[int, int] | None:
        opened = self._open_index(any_age=any_age)
        if opened is None:
            return None
        file, footer = opened
        try:
            return read_next_offsets(file, footer)
        finally:
            file.close()

    def _open_index(self, *, any_age: bool = False) -> tuple[File, Footer] | None:
        try:
            file = self._place.files.open(self._place.path(self.name.index))
        except FileNotFoundError:
            return None
        footer = read_footer(file)
        if footer is not None and (self._is_mine(footer) or (any_age and self._begins_like(footer))):
            return file, footer
        file.close()
        return None

    def _begins_like(self, footer: Footer) -> bool:
        decoded = decode_segment_frame(memoryview(footer.opening))
        return not isinstance(decoded, NoFrame) and decoded[0] == self.opening.header

    def _is_mine(self, footer: Footer) -> bool:
        return (
            footer.first_lsn == self.first_lsn
            and footer.segment_bytes == self.size
            and footer.last_lsn == self.last_lsn
            and footer.chain == self.end.chain
        )

    def rebuild_index(self, next_offsets_before: Mapping[int, int]) -> ActiveIndex:
        """Scan the segment to its end; DamagedLog where it does not get there."""
        self._place.counters.indexes_rebuilt += 1
        # No fault where a reader meets a segment before its owner has saved the index; an owner reports it by itself.
        logger.info("index rebuilt from its segment: %s", self.name.index)
        index = ActiveIndex(self.first_lsn, next_offsets_before)
        file = self.open_file()
        try:
            size = file.size()
            end = scan_whole(self._place, self.name, self.opening, file, size, index)
        finally:
            file.close()
        self.seal(end, size)
        return index

    def __repr__(self) -> str:
        return f"Segment({self.name}, lsn {self.first_lsn}..{self.last_lsn}, {self.size} bytes)"


def scan_whole(
    place: LogPlace, name: SegmentName, opening: Opening, file: File, size: int, index: ActiveIndex
) -> ChainEnd:
    """Follow a sealed segment to its very end and fill its index."""
    walker = ChainWalker(ChainEnd(opening.header.first_lsn, opening.chain, opening.header.epoch, 0))
    scan = Scan(file, SEGMENT_FRAME_BYTES, size, opening.salted, chunk_bytes=place.settings.scan_chunk_bytes)
    for position, header, body in scan:
        broken = walker.step(header, body)
        if broken is not None:
            raise damaged(name, walker.next_lsn, position, broken)
        index.add(header, position, body)
    if scan.stop.reason in (NoFrame.RULE, NoFrame.KIND) and scan.stop.position < size:
        raise unknown_format(name, scan.stop.position, scan.stop.reason)
    if scan.stop.position < size:
        raise damaged(name, walker.next_lsn, scan.stop.position, scan.stop.reason)
    if walker.whole_end.next_lsn != walker.next_lsn:
        raise damaged(name, walker.whole_end.next_lsn, size, ChainBreak.WRITE)
    return walker.whole_end


def damaged(name: SegmentName, lsn: int, position: int, why: NoFrame | ChainBreak) -> DamagedLog:
    return DamagedLog(
        f"a sealed segment is damaged: {why.value}; run `headwater log verify`, then `headwater log repair`",
        segment=str(name),
        lsn=lsn,
        position=position,
    )


def unknown_format(name: SegmentName, position: int, why: NoFrame) -> UnknownFormat:
    return UnknownFormat(
        f"{why.value}: read it with the version that wrote it, or a later one", segment=str(name), position=position
    )


_Candidate = tuple[SegmentName, Opening | NoFrame | UnknownFormat]


@dataclass
class FoundSegments:
    """A directory, read."""

    listing: DirectoryListing
    sealed: list[Segment] = field(default_factory=list)
    newest_name: SegmentName | None = None
    newest_opening: Opening | NoFrame = NoFrame.END
    forgotten: list[SegmentName] = field(default_factory=list)
    """Below the log's start: meant to be deleted."""
    superseded: list[SegmentName] = field(default_factory=list)
    """Generations that a later one has replaced."""
    rebuilt: list[str] = field(default_factory=list)
    log_id: bytes | None = None
    halt: Halted | None = None

    @property
    def end(self) -> ChainEnd:
        """Where the sealed segments end."""
        return self.sealed[-1].end if self.sealed else ChainEnd(1, 0, 0, 0)

    def offsets_before(self, segment: Segment) -> dict[int, int]:
        """Every partition's next offset after the sealed segments, before `segment`."""
        if self.sealed:
            return next_offsets_after(self.sealed, len(self.sealed))
        return segment.base_offsets() or {}

    def offsets_are_known(self, newest: Segment) -> bool:
        """False where rows were forgotten with their segments, and no index says how far their offsets went."""
        first = self.sealed[0] if self.sealed else newest
        return first.first_lsn == 1 or first.base_offsets() is not None


def segment_named(segments: Iterable[Segment], name: str) -> Segment:
    """The segment of this name, if it is still among these."""
    for segment in segments:
        if str(segment.name) == name:
            return segment
    raise Forgotten("this segment was forgotten or replaced: plan again", segment=name)


def next_offsets_after(segments: list[Segment] | tuple[Segment, ...], count: int) -> dict[int, int]:
    """Every partition's next offset after the first `count` segments."""
    if count == 0:
        return segments[0].base_offsets() or {} if segments else {}
    segment = segments[count - 1]
    index = segment.loaded_index
    if index is not None:
        return index.next_offsets()
    nexts = segment.read_next_offsets()
    if nexts is not None:
        return nexts
    rebuilt = segment.rebuild_index(next_offsets_after(segments, count - 1))
    segment.set_index(rebuilt)
    return rebuilt.next_offsets()


def find_segments(place: LogPlace, log_start: int, *, undamaged_part: bool = False) -> FoundSegments:
    """Read the directory and check that all but the newest segment fit together.

    With `undamaged_part` a halt ends the list instead of being raised, and stands in `halt`.
    """
    found = FoundSegments(sort_names(place.files.list(place.directory)))
    chosen = list(_choose_generations(place, found))
    # A segment whose successor begins at or below the log's start holds nothing that is to be kept.
    while len(chosen) > 1 and chosen[1][0].first_lsn <= log_start:
        found.forgotten.append(chosen.pop(0)[0])
    if not chosen:
        return found
    if chosen[0][0].first_lsn > log_start:
        raise lost(log_start, chosen[0][0].first_lsn - 1)
    found.newest_name, opening = chosen[-1]
    found.newest_opening = NoFrame.RULE if isinstance(opening, UnknownFormat) else opening
    try:
        _link_segments(place, found, chosen)
    except Halted as halt:
        if not undamaged_part:
            raise
        found.halt = halt
    return found


def _link_segments(place: LogPlace, found: FoundSegments, chosen: list[_Candidate]) -> None:
    for number, (name, opening) in enumerate(chosen):
        newest = number == len(chosen) - 1
        if isinstance(opening, UnknownFormat):
            raise opening
        if isinstance(opening, NoFrame):
            if newest:
                return
            raise damaged(name, name.first_lsn, 0, opening)
        if newest and number and _is_ghost(place, found, name, opening):
            found.newest_opening = NoFrame.HEADER_CRC
            return
        _check_identity(found, name, opening)
        if number:
            _check_link(found.sealed[-1], name, opening)
        if not newest:
            segment = Segment(place, name, opening)
            _read_end(segment, found, *chosen[number + 1])
            found.sealed.append(segment)


def _choose_generations(place: LogPlace, found: FoundSegments) -> Iterator[_Candidate]:
    by_lsn: dict[int, list[SegmentName]] = {}
    for name in found.listing.segments:
        by_lsn.setdefault(name.first_lsn, []).append(name)
    for names in by_lsn.values():
        candidates = []
        for name in reversed(names):
            candidates.append((name, _read_opening(place, name)))
        best = next((each for each in candidates if not isinstance(each[1], NoFrame)), candidates[-1])
        # What a complete generation has replaced goes; one without a valid header is kept for people to see.
        for each in candidates:
            if each[0].generation < best[0].generation:
                found.superseded.append(each[0])
        yield best


def _read_opening(place: LogPlace, name: SegmentName) -> Opening | NoFrame | UnknownFormat:
    file = place.files.open(place.path(name))
    try:
        return read_opening(file)
    except UnknownFormat as unknown:
        return unknown
    finally:
        file.close()


def _is_ghost(place: LogPlace, found: FoundSegments, name: SegmentName, opening: Opening) -> bool:
    """A roll that was cut short can show the header of a file that was removed before, from whose blocks the new
    file was made.  With nothing behind it, it holds no rows: it is a header that was never written."""
    header = opening.header
    if (header.log_id, header.first_lsn, header.generation) == (found.log_id, name.first_lsn, name.generation):
        return False
    file = place.files.open(place.path(name))
    try:
        return file.size() <= SEGMENT_FRAME_BYTES
    finally:
        file.close()


def _check_identity(found: FoundSegments, name: SegmentName, opening: Opening) -> None:
    header = opening.header
    if found.log_id is None:
        found.log_id = header.log_id
    if header.log_id != found.log_id:
        raise ForeignLog(
            "a segment belongs to another log: move it out of this directory",
            segment=str(name),
            log_id=header.log_id.hex(),
            this_log=found.log_id.hex(),
        )
    if header.first_lsn != name.first_lsn or header.generation != name.generation:
        raise DuplicateLsn(
            "a segment's name is not its own: it was renamed or copied; move it out of this directory",
            segment=str(name),
            first_lsn=header.first_lsn,
            generation=header.generation,
        )


def _check_link(before: Segment, name: SegmentName, opening: Opening) -> None:
    if before.last_lsn >= name.first_lsn:
        raise DuplicateLsn(
            "two segments hold the same LSNs: run `headwater log verify`",
            segments=f"{before.name} {name}",
            lsn=name.first_lsn,
        )
    if before.last_lsn < name.first_lsn - 1:
        raise lost(before.last_lsn + 1, name.first_lsn - 1)
    if opening.header.prev != before.end.chain:
        raise damaged(name, name.first_lsn, 0, ChainBreak.PREV)


def lost(first: int, last: int) -> LostSegment:
    return LostSegment(
        "LSNs of this log are in no segment: restore the file from a backup, or run `headwater log repair`",
        first_lsn=first,
        last_lsn=last,
    )


def _read_end(
    segment: Segment, found: FoundSegments, following: SegmentName, opening: Opening | NoFrame | UnknownFormat
) -> None:
    """Learn where a sealed segment ends: from its footer if that fits, else from a scan of it."""
    place = segment._place
    file = segment.open_file()
    size = file.size()
    file.close()
    try:
        index_file = place.files.open(place.path(segment.name.index))
    except FileNotFoundError:
        footer = None
    else:
        footer = read_footer(index_file)
        index_file.close()
    if (
        footer is not None
        and footer.first_lsn == segment.first_lsn
        and footer.segment_bytes == size
        and footer.last_lsn == following.first_lsn - 1
        # The next segment names the chain value that this one ends in, if it can be read.
        and (not isinstance(opening, Opening) or footer.chain == opening.header.prev)
    ):
        segment.seal(footer.end, size)
        return
    found.rebuilt.append(segment.name.index)
    segment.set_index(segment.rebuild_index(found.offsets_before(segment)))
