"""Reading a log on files: what an owner and a reader in another process have in common.

PROMISE  Readers see whole, durable writes only, in LSN order.  They never wait for the owner's I/O: they
         look at a View, which is replaced whole and never changed.
         A reader that has opened a segment goes on reading it, whatever becomes of its name; one that comes
         too late for a file that was replaced plans again with the new View.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from headwater.errors import CorruptData, DamagedLog, Forgotten, Halted
from headwater.frames.frame import Header, chain_value
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.ids import Lsn
from headwater.log.chain import ChainBreak, ChainWalker
from headwater.log.device import Frame, FrameRef, SegmentInfo, TopicInSegment
from headwater.log.index import ActiveIndex, Place, PlacedSegment, SegmentIndex, TopicShare, partition_key
from headwater.log.mark import Mark, read_mark
from headwater.log.names import MARK
from headwater.log.read_findings import check_mark, misled, unchained, why_not_up_to
from headwater.log.recovery import RecoveryReport, cleanly_closed
from headwater.log.segment import Opening, Scan, read_frame, read_header
from headwater.log.segments import (
    FoundSegments,
    LogPlace,
    Segment,
    find_segments,
    next_offsets_after,
)
from headwater.log.wanted_frames import has_rows_of, is_wanted_for, stands_for
from headwater.storage.files import File

INDEXES_OPEN_MAX = 64
_RELOADS_MAX = 10
_PLANS_MAX = 10
SCAN_PERCENT_MIN = 50
"""A topic with at least this part of a segment is read by reading the segment through."""


T = TypeVar("T")


class View(NamedTuple):
    """What can be read: the segments, and how far."""

    segments: tuple[Segment, ...]
    durable_lsn: Lsn
    position: int
    """Where the durable part of the last segment ends."""


class FileReads:
    """The reading half of FileDevice."""

    def __init__(self, place: LogPlace, log_start: Callable[[], int]) -> None:
        self._place = place
        self._log_start = log_start
        self._view = View((), Lsn(0), 0)
        self._indexes: OrderedDict[int, Segment] = OrderedDict()
        self._mark_file: File | None = None
        self._walker: ChainWalker | None = None
        self._looking = threading.RLock()
        self._halted: Halted | None = None
        self.report = RecoveryReport()

    def _show(self, view: View) -> None:
        self._view = view

    def _plan_again(self) -> None:
        """A file of the View was gone when it was to be opened: look at the directory again."""
        self.recover()

    # Reading what is there -------------------------------------------------------------------

    def recover(self, *, undamaged_part: bool = False) -> RecoveryReport:
        """Read the directory as anybody may, up to the mark.  With `undamaged_part` a halted log shows
        what lies before the damage, and the report says what stopped it."""
        with self._looking:
            for _ in range(_RELOADS_MAX - 1):
                try:
                    self._load_for_reading(undamaged_part)
                    return self.report
                except FileNotFoundError:
                    # An owner has replaced or deleted a file since the directory was read: read it again.
                    continue
            self._load_for_reading(undamaged_part)
            return self.report

    def _load_for_reading(self, undamaged_part: bool) -> None:
        place = self._place
        # The mark first: what it names is in any directory that is read after it, however fast an owner rolls.
        mark = self._read_mark()
        log_start = self._log_start()
        found = find_segments(place, log_start, undamaged_part=undamaged_part)
        check_mark(found, mark)
        newest = found.newest_name
        halt = found.halt or why_not_up_to(mark, found, log_start)
        segments = list(found.sealed)
        # While a roll is under way the newest file has no header yet, and the last sealed segment ends the log.
        position = segments[-1].size if segments else 0
        self._walker = None
        durable = found.end.next_lsn - 1
        clean = False
        if newest is not None and isinstance(found.newest_opening, Opening) and halt is None:
            segment = Segment(place, newest, found.newest_opening)
            segments.append(segment)
            position, durable, clean, halt = self._load_newest(segment, found, mark)
        if halt is not None and not undamaged_part:
            raise halt
        self._show(View(tuple(segments), Lsn(durable), position))
        self._halted = halt
        self.report = RecoveryReport(
            verdict=halt.message if halt is not None else "read up to the mark",
            log_id=found.log_id.hex() if found.log_id is not None else "",
            segments=len(segments),
            first_lsn=segments[0].first_lsn if segments else 0,
            last_lsn=durable,
            durable_lsn=durable,
            epoch=mark.epoch if mark is not None else 0,
            clean=clean,
            indexes_rebuilt=found.rebuilt,
            foreign=found.listing.foreign,
        )

    def _load_newest(
        self, segment: Segment, found: FoundSegments, mark: Mark | None
    ) -> tuple[int, int, bool, DamagedLog | None]:
        """Where the newest segment's durable part ends, its last LSN, whether the log was closed there, and what is
        damaged before the mark.  After a clean close its index says so; otherwise its frames are read up to the mark.
        The mark alone is not believed: after a power loss it can be that of an earlier close."""
        file = segment.open_file()
        try:
            trusted = cleanly_closed(self._place, segment.name, segment.opening, file, mark)
        finally:
            file.close()
        if trusted is not None:
            segment.set_index(trusted.index)
            self._walker = ChainWalker(trusted.end)
            return trusted.position, trusted.durable_lsn, True, None
        index = ActiveIndex(segment.first_lsn, found.offsets_before(segment))
        segment.set_index(index)
        self._walker = ChainWalker(segment.end)
        if mark is None or mark.segment != segment.first_lsn:
            return SEGMENT_FRAME_BYTES, segment.first_lsn - 1, False, None
        position, halt = self._extend(segment, index, self._walker, SEGMENT_FRAME_BYTES, mark)
        return position, self._walker.whole_end.next_lsn - 1, False, halt

    def _extend(
        self, segment: Segment, index: ActiveIndex, walker: ChainWalker, position: int, mark: Mark
    ) -> tuple[int, DamagedLog | None]:
        """Take in the newest segment's frames up to the mark; they cannot change any more.  Returns where the last
        whole write ends, and what is wrong where that is not the mark."""
        file = segment.open_file()
        broken: ChainBreak | None = None
        try:
            scan = Scan(
                file, position, mark.position, segment.opening.salted, chunk_bytes=self._place.settings.scan_chunk_bytes
            )
            for at, header, body in scan:
                broken = walker.step(header, body)
                if broken is not None:
                    break
                index.add(header, at, body)
                if walker.whole_end.next_lsn == walker.next_lsn:
                    position = at + header.frame_size
        finally:
            file.close()
        if position == mark.position and walker.whole_end.next_lsn - 1 == mark.durable_lsn:
            return position, None
        return position, DamagedLog(
            f"the log cannot be read up to its mark: {(broken or scan.stop.reason).value}; run `headwater log verify`",
            segment=str(segment.name),
            lsn=walker.next_lsn,
            durable_lsn=mark.durable_lsn,
        )

    def refresh(self) -> Lsn:
        """Look at the mark again."""
        with self._looking:
            return self._look_again()

    def _look_again(self) -> Lsn:
        mark = self._read_mark()
        view = self._view
        if mark is None or mark.durable_lsn <= view.durable_lsn or self._halted is not None:
            return view.durable_lsn
        newest = view.segments[-1] if view.segments else None
        walker = self._walker
        if newest is None or newest.first_lsn != mark.segment or walker is None:
            self.recover()
            return self._view.durable_lsn
        index = newest.loaded_index
        assert isinstance(index, ActiveIndex)
        # If this fails half-way, the walker has gone further than the View: then the next look begins anew.
        self._walker = None
        position, halt = self._extend(newest, index, walker, view.position, mark)
        if halt is not None:
            raise halt
        self._walker = walker
        self._show(View(view.segments, Lsn(mark.durable_lsn), position))
        return self._view.durable_lsn

    def _read_mark(self) -> Mark | None:
        if self._mark_file is None:
            try:
                self._mark_file = self._place.files.open(self._place.path(MARK))
            except FileNotFoundError:
                return None
        return read_mark(self._mark_file)

    # What there is ---------------------------------------------------------------------------

    @property
    def place(self) -> LogPlace:
        return self._place

    @property
    def view(self) -> View:
        return self._view

    def durable(self) -> Lsn:
        return self._view.durable_lsn

    def segments(self) -> Sequence[SegmentInfo]:
        view = self._view
        infos = []
        for segment in view.segments:
            newest = segment is view.segments[-1]
            infos.append(
                SegmentInfo(
                    name=str(segment.name),
                    first_lsn=Lsn(segment.first_lsn),
                    last_lsn=view.durable_lsn if newest else Lsn(segment.last_lsn),
                    generation=segment.name.generation,
                    bytes=view.position if newest else segment.size,
                    created_us=segment.created_us,
                    last_append_time_us=segment.end.append_time_us,
                    sealed=not newest,
                )
            )
        return infos

    def topics_in(self, segment: SegmentInfo) -> dict[int, TopicInSegment]:
        """What each topic has in a segment; nothing where it was deleted since it was listed."""

        def look(view: View) -> Mapping[int, TopicShare]:
            if segment.first_lsn < view.segments[0].first_lsn:
                return {}
            return self._index(view, self._number_of(view, segment.first_lsn)).topics()

        shares = self._looked_up(look)
        return {
            topic: TopicInSegment(share.frames, share.bytes, share.rows, Lsn(share.last_lsn))
            # A copy, because the writer may add a topic to the newest segment's while this looks.
            for topic, share in dict(shares).items()
        }

    def placed(self, first_lsn: Lsn) -> PlacedSegment:
        """The segment that holds this LSN, for plans of which of its bytes to read."""

        def look(view: View) -> PlacedSegment:
            number = self._number_of(view, first_lsn)
            segment = view.segments[number]
            end = view.position if segment is view.segments[-1] else segment.size
            return PlacedSegment(str(segment.name), self._index(view, number), end, segment.packed_slots)

        return self._looked_up(look)

    # By LSN ----------------------------------------------------------------------------------

    def frames(self, from_lsn: Lsn, to_lsn: Lsn) -> Iterator[Frame]:
        """The durable frames from one LSN to another, both included.  A gap is one frame, with the last LSN it
        stands for, and is given if the range touches it.  Forgotten where the log no longer reaches back that far."""
        lsn = from_lsn
        plans = 0
        while lsn <= to_lsn:
            view = self._view
            last = min(to_lsn, view.durable_lsn)
            if lsn > last:
                return
            number = self._number_of(view, lsn)
            before = lsn
            try:
                for frame in self._frames_in(view, number, lsn, last):
                    yield frame
                    lsn = Lsn(frame.header.lsn + 1)
            except FileNotFoundError:
                plans += 1
                if plans == _PLANS_MAX:
                    raise
                self._plan_again()
                continue
            plans = 0
            if lsn == before:
                raise CorruptData("an index leads to no frame; run `headwater log verify`", lsn=lsn)

    def _frames_in(
        self, view: View, number: int, from_lsn: int, to_lsn: int, topic_number: int | None = None
    ) -> Iterator[Frame]:
        """The frames of a segment in this range, read one after the other; of one topic its rows alone."""
        segment = view.segments[number]
        newest = number == len(view.segments) - 1
        file = segment.open_file()
        try:
            index = self._index(view, number)
            place = index.place_of(from_lsn)
            if place is None:
                return
            # Where the range ends inside a gap, the gap is its last frame.
            last = index.place_of(to_lsn)
            behind = index.place_of(last.lsn + 1) if last is not None else None
            end = behind.position if behind is not None else (view.position if newest else segment.size)
            scan = Scan(
                file,
                place.position,
                end,
                segment.opening.salted,
                chunk_bytes=self._place.settings.scan_chunk_bytes,
                memory=self._place.memory,
                wanted=None if topic_number is None else is_wanted_for(topic_number),
            )
            name = str(segment.name)
            lsn = from_lsn
            # A valid frame with the right LSN can still be of another history, as a stale mirror gives it back.
            chain = segment.opening.chain if place.position == SEGMENT_FRAME_BYTES else None
            for position, header, body in scan:
                if header.lsn != lsn and not stands_for(header, body, lsn):
                    raise misled(name, position, lsn, header)
                if chain is not None and header.prev != chain:
                    raise unchained(name, position, lsn)
                if topic_number is None or has_rows_of(header, topic_number):
                    yield Frame(header, body, name, position)
                lsn = header.lsn + 1
                # A rewritten frame keeps its chain value in its body, which may not have been wanted.
                chain = chain_value(header, body) if body or not header.rewritten else None
            if (
                behind is None
                and not newest
                and scan.stop.position == end
                and chain is not None
                and chain != segment.end.chain
            ):
                raise unchained(name, end, lsn)
            if scan.stop.position != end:
                raise CorruptData(
                    f"a durable frame cannot be read: {scan.stop.reason.value}; run `headwater log verify`",
                    segment=name,
                    position=scan.stop.position,
                    lsn=lsn,
                )
        finally:
            file.close()

    # By topic --------------------------------------------------------------------------------

    def frames_of_topic(self, topic_number: int, from_lsn: Lsn, to_lsn: Lsn) -> Iterator[Frame]:
        """The durable frames with a topic's rows, DATA and SPARSE, from one LSN to another, both included, in order.

        LSNs that the log has let go of are passed over.  Where the topic has most of a segment, the segment is read
        in large chunks; elsewhere its index says where the topic's frames are."""
        lsn: int = from_lsn
        plans = 0
        while True:
            view = self._view
            last = min(to_lsn, view.durable_lsn)
            if view.segments:
                lsn = max(lsn, view.segments[0].first_lsn)
            if lsn > last:
                return
            number = self._number_of(view, lsn)
            newest = number == len(view.segments) - 1
            end = last if newest else min(last, view.segments[number].last_lsn)
            try:
                for frame in self._frames_of_topic_in(view, number, topic_number, lsn, end):
                    yield frame
                    lsn = frame.header.lsn + 1
                    plans = 0
            except FileNotFoundError:
                plans += 1
                if plans == _PLANS_MAX:
                    raise
                self._plan_again()
                continue
            lsn = max(lsn, end + 1)

    def _frames_of_topic_in(
        self, view: View, number: int, topic_number: int, from_lsn: int, to_lsn: int
    ) -> Iterator[Frame]:
        segment = view.segments[number]
        index = self._index(view, number)
        share = index.share_of(topic_number)
        if share is None or share.last_lsn < from_lsn:
            return iter(())
        size = view.position if number == len(view.segments) - 1 else segment.size
        if share.bytes * 100 >= size * SCAN_PERCENT_MIN or self._is_one_read(index, from_lsn, to_lsn, size):
            return self._frames_in(view, number, from_lsn, to_lsn, topic_number)
        return self._frames_of_topic_by_index(segment, index, topic_number, from_lsn, to_lsn)

    def _frames_of_topic_by_index(
        self, segment: Segment, index: SegmentIndex, topic_number: int, from_lsn: int, to_lsn: int
    ) -> Iterator[Frame]:
        name = str(segment.name)
        file = segment.open_file()
        try:
            for place in index.places_of_topic(topic_number, from_lsn):
                if place.lsn > to_lsn:
                    return
                header, body = read_frame(file, place.position, segment.opening.salted, self._place.memory)
                if header.lsn != place.lsn or not has_rows_of(header, topic_number):
                    raise misled(name, place.position, place.lsn, header)
                yield Frame(header, body, name, place.position)
        finally:
            file.close()

    def _is_one_read(self, index: SegmentIndex, from_lsn: int, to_lsn: int, size: int) -> bool:
        """Is this range so short that it takes no more than one chunk?  So it is for whoever follows the log."""
        first, behind = index.place_of(from_lsn), index.place_of(to_lsn + 1)
        end = behind.position if behind is not None else size
        return first is not None and end - first.position <= self._place.settings.scan_chunk_bytes

    # By partition and offset, by time ----------------------------------------------------------

    def frames_of(self, topic_number: int, partition: int, offset: int) -> Iterator[Frame]:
        """The durable frames of a partition that hold this offset or a later one, in order.

        Offsets that were removed, or forgotten with their segments, are passed over."""
        key = partition_key(topic_number, partition)
        plans = 0
        while True:
            view = self._view
            try:
                for each in range(self._first_with(view, key, offset), len(view.segments)):
                    for frame in self._frames_of_in(view, each, key, offset):
                        yield frame
                        offset = frame.header.base_offset + frame.header.offset_count
                return
            except FileNotFoundError:
                plans += 1
                if plans == _PLANS_MAX:
                    raise
                self._plan_again()

    def _frames_of_in(self, view: View, number: int, key: int, offset: int) -> Iterator[Frame]:
        segment = view.segments[number]
        newest = number == len(view.segments) - 1
        file = segment.open_file()
        try:
            for place in self._index(view, number).places(key, offset):
                if newest and place.lsn > view.durable_lsn:
                    return
                header, body = read_frame(file, place.position, segment.opening.salted, self._place.memory)
                if header.lsn != place.lsn or partition_key(header.topic_number, header.partition) != key:
                    raise misled(str(segment.name), place.position, place.lsn, header)
                yield Frame(header, body, str(segment.name), place.position)
        finally:
            file.close()

    def find(self, topic_number: int, partition: int, offset: int) -> FrameRef | None:
        """The first durable frame of a partition that holds this offset or a later one."""
        return self._find(partition_key(topic_number, partition), offset, self._ref)

    def find_header(self, topic_number: int, partition: int, offset: int) -> Header | None:
        """Of that frame its header; the body is not read."""
        key = partition_key(topic_number, partition)
        return self._find(key, offset, partial(self._header, key))

    def _find(self, key: int, offset: int, get: Callable[[View, int, Place], T | None]) -> T | None:
        def look(view: View) -> T | None:
            for number in range(self._first_with(view, key, offset), len(view.segments)):
                place = next(self._index(view, number).places(key, offset), None)
                if place is not None:
                    return get(view, number, place)
            return None

        return self._looked_up(look)

    def find_lsn(self, lsn: int) -> FrameRef | None:
        """Where the frame with this LSN is, or the gap that stands for it."""

        def look(view: View) -> FrameRef | None:
            number = self._number_of(view, lsn)
            place = self._index(view, number).place_of(lsn)
            return None if place is None else self._ref(view, number, place)

        return self._looked_up(look)

    def next_offset(self, topic_number: int, partition: int) -> int:
        """The offset after the last row of a partition, whether or not the log still holds that row."""
        key = partition_key(topic_number, partition)
        return self._looked_up(
            lambda view: self._index(view, len(view.segments) - 1).next_offset(key) if view.segments else 0
        )

    def find_time(self, time_us: int) -> Lsn | None:
        """The LSN of the first durable frame appended at or after this time."""

        def look(view: View) -> Lsn | None:
            for number in range(self._first_at(view, time_us), len(view.segments)):
                place = self._index(view, number).place_at_time(time_us)
                if place is not None and place.lsn <= view.durable_lsn:
                    return Lsn(place.lsn)
            return None

        return self._looked_up(look)

    def _looked_up(self, look: Callable[[View], T]) -> T:
        """What indexes say; asked again where a segment was replaced or deleted under the look."""
        for _ in range(_PLANS_MAX - 1):
            try:
                return look(self._view)
            except FileNotFoundError:
                self._plan_again()
        return look(self._view)

    def _ref(self, view: View, number: int, place: Place) -> FrameRef | None:
        if place.lsn > view.durable_lsn:
            return None
        return FrameRef(Lsn(place.lsn), str(view.segments[number].name), place.position)

    def _header(self, key: int, view: View, number: int, place: Place) -> Header | None:
        if place.lsn > view.durable_lsn:
            return None
        segment = view.segments[number]
        file = segment.open_file()
        try:
            header = read_header(file, place.position, segment.opening.salted)
        finally:
            file.close()
        if header.lsn != place.lsn or partition_key(header.topic_number, header.partition) != key:
            raise misled(str(segment.name), place.position, place.lsn, header)
        return header

    def _first_with(self, view: View, key: int, offset: int) -> int:
        """The number of the first segment at whose end the partition is past this offset."""
        low, high = 0, len(view.segments)
        while low < high:
            middle = (low + high) // 2
            if self._index(view, middle).next_offset(key) > offset:
                high = middle
            else:
                low = middle + 1
        return low

    def _first_at(self, view: View, time_us: int) -> int:
        """The number of the first segment that can hold a frame of this time or later."""
        low, high = 0, max(len(view.segments) - 1, 0)
        while low < high:
            middle = (low + high) // 2
            if view.segments[middle].end.append_time_us >= time_us:
                high = middle
            else:
                low = middle + 1
        return low

    def _number_of(self, view: View, lsn: int) -> int:
        """The number of the segment that holds this LSN."""
        number = bisect_right(view.segments, lsn, key=lambda segment: segment.first_lsn) - 1
        if number < 0:
            raise Forgotten(
                "the log has let go of this LSN: read it from the table",
                lsn=lsn,
                first_lsn=view.segments[0].first_lsn if view.segments else 0,
            )
        return number

    def _drop_indexes(self) -> None:
        """Let go of the index files of segments that are no longer shown; their readers keep them until they end."""
        shown = set(self._view.segments)
        for first_lsn, segment in list(self._indexes.items()):
            if segment not in shown:
                del self._indexes[first_lsn]
                segment.set_index(None)

    def _index(self, view: View, number: int) -> SegmentIndex:
        segment = view.segments[number]
        index = segment.loaded_index
        if index is None:
            index = segment.read_index()
            if index is None:
                index = segment.rebuild_index(next_offsets_after(view.segments, number))
            segment.set_index(index)
            # Of the index files that are read in place only the latest stay open; dropping the reference
            # closes one when its last reader is done.
            self._indexes[segment.first_lsn] = segment
            if len(self._indexes) > INDEXES_OPEN_MAX:
                _, oldest = self._indexes.popitem(last=False)
                oldest.set_index(None)
        return index
