"""The frames of a log as they lie on the disk, for `headwater log dump`: healthy, torn or damaged.

It goes by the files alone and not by the mark or an index, because both may be what is wrong.  Where the chain does
not go on it says so (Break) and goes on behind it, as `headwater log repair` would.

PROMISE  It reads and changes nothing, and holds one segment's chunk and one write's headers at most, and its bodies if
         they are asked for.
         Frames of a write that is not whole are not shown: no reader will ever see them.
NOT HERE What each kind of damage is called: log/verify.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headwater.errors import CorruptData, UnknownFormat
from headwater.frames.bodies import Gap, unpack_gap
from headwater.frames.frame import Header, Kind, NoFrame
from headwater.log.chain import ChainEnd
from headwater.log.mark import read_mark_of
from headwater.log.names import SegmentName, sort_names
from headwater.log.salvage import Broken, Salvage
from headwater.log.segment import Opening, read_opening
from headwater.log.verify import choose_segments
from headwater.settings import LogSettings
from headwater.storage.files import File, Files

NOT_LINKED = "it does not continue the segment before it"


@dataclass(frozen=True, slots=True)
class SegmentStart:
    """From here on frames are of this segment."""

    name: SegmentName
    opening: Opening


@dataclass(frozen=True, slots=True)
class SeenFrame:
    header: Header
    position: int
    segment: SegmentName
    gap: Gap | None
    beyond_mark: bool
    """Behind the mark: written, but not known to be acknowledged."""
    body: bytes | None = None
    """As it is stored, if bodies were asked for."""

    @property
    def first_lsn(self) -> int:
        return self.gap.first_lsn if self.gap is not None else self.header.lsn


@dataclass(frozen=True, slots=True)
class Break:
    """Where the chain does not go on."""

    why: str
    segment: str
    position: int
    first_lsn: int
    last_lsn: int
    """The LSNs that cannot be read, as far as is known."""
    bytes: int
    torn_tail: bool
    """True where it is what a crash may leave: nothing acknowledged is in it."""


Seen = SegmentStart | SeenFrame | Break


def walk_log(
    files: Files,
    directory: str,
    *,
    from_lsn: int = 1,
    to_lsn: int | None = None,
    bodies: bool = False,
    settings: LogSettings | None = None,
) -> Iterator[Seen]:
    """What lies from one LSN to another, both included, in order."""
    walk = _Walk(files, directory, settings if settings is not None else LogSettings(), bodies)
    for seen in walk.run(from_lsn):
        if not isinstance(seen, SegmentStart):
            if to_lsn is not None and seen.first_lsn > to_lsn:
                return
            last_lsn = seen.header.lsn if isinstance(seen, SeenFrame) else seen.last_lsn
            if last_lsn < from_lsn:
                continue
        yield seen


class _Walk:
    def __init__(self, files: Files, directory: str, settings: LogSettings, bodies: bool) -> None:
        self._files = files
        self._directory = directory
        self._settings = settings
        self._bodies = bodies
        self._mark = read_mark_of(self._files, self._directory)
        self._end: ChainEnd | None = None

    def run(self, from_lsn: int) -> Iterator[Seen]:
        listing = sort_names(self._files.list(self._directory))
        chosen = choose_segments(self._files, self._directory, listing.segments).names
        numbers = range(len(chosen))
        first = max((number for number in numbers if chosen[number].first_lsn <= from_lsn), default=0)
        for number in numbers[first:]:
            following = chosen[number + 1] if number + 1 < len(chosen) else None
            yield from self._segment(chosen[number], following)
        durable = self._mark.durable_lsn if self._mark is not None else 0
        if not chosen and durable:
            yield Break("there is no segment", "", 0, 1, durable, 0, torn_tail=False)

    def _segment(self, name: SegmentName, following: SegmentName | None) -> Iterator[Seen]:
        file = self._files.open(f"{self._directory}/{name}")
        try:
            size = file.size()
            try:
                opening = read_opening(file)
            except (UnknownFormat, CorruptData) as error:
                yield self._unopened(name, following, str(error), size, unknown=True)
                return
            if isinstance(opening, NoFrame):
                why = f"it has no valid segment header: {opening.value}"
                yield self._unopened(name, following, why, size, unknown=False)
                return
            yield from self._link(name, opening)
            yield SegmentStart(name, opening)
            yield from self._frames(name, opening, file, size, newest=following is None)
        finally:
            file.close()

    def _unopened(
        self, name: SegmentName, following: SegmentName | None, why: str, size: int, *, unknown: bool
    ) -> Break:
        """A segment of which no frame can be read; the newest may be a roll that was never finished."""
        self._end = None
        durable = self._mark.durable_lsn if self._mark is not None else 0
        stillborn = following is None and durable < name.first_lsn and not unknown
        last_lsn = following.first_lsn - 1 if following is not None else max(durable, name.first_lsn)
        return Break(why, str(name), 0, name.first_lsn, last_lsn, size, torn_tail=stillborn)

    def _link(self, name: SegmentName, opening: Opening) -> Iterator[Break]:
        end = self._end
        if end is None:
            return
        if end.next_lsn < name.first_lsn:
            last_lsn = name.first_lsn - 1
            yield Break("they are in no segment", "", 0, end.next_lsn, last_lsn, 0, torn_tail=False)
        elif end.next_lsn > name.first_lsn or opening.header.prev != end.chain:
            yield Break(NOT_LINKED, str(name), 0, name.first_lsn, name.first_lsn, 0, torn_tail=False)

    def _frames(
        self, name: SegmentName, opening: Opening, file: File, size: int, *, newest: bool
    ) -> Iterator[SeenFrame | Break]:
        mark = self._mark if newest else None
        durable = mark.durable_lsn if mark is not None else 0
        salvage = Salvage(file, opening, size, chunk_bytes=self._settings.scan_chunk_bytes, mark=mark)
        held: list[SeenFrame] = []
        torn = False
        for each in salvage:
            if isinstance(each, Broken):
                yield from (frame for frame in held if frame.header.lsn < each.end.next_lsn)
                held.clear()
                durable = max(durable, each.durable_lsn)
                torn = newest and each.end.next_lsn > durable
                lost_to = each.lost_to if each.lost_to is not None else max(durable, each.end.next_lsn)
                lost_bytes = size - each.position if torn or each.resume is None else 0
                yield Break(
                    each.why.value, str(name), each.position, each.end.next_lsn, lost_to, lost_bytes, torn_tail=torn
                )
                if torn:
                    break
                continue
            position, header, body = each
            gap = unpack_gap(body) if header.kind == Kind.GAP else None
            beyond_mark = mark is not None and header.lsn > mark.durable_lsn
            stored = bytes(body) if self._bodies else None
            held.append(SeenFrame(header, position, name, gap, beyond_mark, stored))
            if gap is not None or header.write_index + 1 == header.write_count:
                yield from held
                held.clear()
        if newest and not torn and salvage.end.next_lsn <= durable:
            yield Break(
                "they were durable, but the log ends before them",
                str(name),
                size,
                salvage.end.next_lsn,
                durable,
                0,
                torn_tail=False,
            )
        self._end = salvage.end
