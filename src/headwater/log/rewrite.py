"""A sealed segment, made again without some of its frames: what drain, compaction and erasure have in common.

Files are immutable once sealed.  A rewrite makes the next generation beside the old one: kept frames are copied
byte for byte with their salt; a run of removed frames becomes one GAP; a frame that loses rows becomes SPARSE, with
a body that the caller makes.  GAP, SPARSE and the segment frame carry the chain value of what they replace, so
that every `prev` still fits.

ORDER    Index aside, segment aside, sync, rename, sync the directory; only then the open log shows it, and the old
         generation is unlinked.  A crash leaves the old one, or both, and then the higher generation wins.
NOT HERE Which frames may go: deletion.py and whoever asks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from headwater.errors import InvalidRequest, Unavailable
from headwater.frames.bodies import Gap, GapReason, pack_gap, unpack_gap
from headwater.frames.frame import (
    BODY_SIZE_BYTES_MAX,
    Codec,
    Flag,
    Header,
    Kind,
    NoFrame,
    body_crc,
    chain_value,
    decode_header,
    pack_chain_value,
    pack_header,
    padding_size,
    reseal_header,
    seal_header,
)
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, pack_segment_frame
from headwater.ids import Lsn
from headwater.log.chain import ChainEnd, ChainWalker
from headwater.log.devices import LogDevice
from headwater.log.file_actions import create_anew, unlink_all, write_aside
from headwater.log.frame_log import FrameLog
from headwater.log.index import ActiveIndex
from headwater.log.names import TEMPORARY, SegmentName
from headwater.log.segment import Scan, opening_of
from headwater.log.segments import LogPlace, Segment, damaged, next_offsets_after
from headwater.storage.files import File


@dataclass(frozen=True)
class Sparse:
    """A frame that keeps some of its rows: the stored body with `_hw_offset` in it, and how many rows that has."""

    body: bytes
    row_count: int
    codec: int = Codec.NONE


KEEP = True
REMOVE = False
Decide = Callable[[Header, memoryview], "bool | Sparse"]
"""KEEP, REMOVE, or the sparse form of a data frame.  Gaps are not asked about."""


@dataclass(frozen=True)
class Rewritten:
    """What a rewrite did."""

    old: str
    new: str
    first_lsn: Lsn
    last_lsn: Lsn
    frames_removed: int
    rows_removed: int
    bytes_before: int
    bytes_after: int


def rewrite_segment(log: FrameLog, name: str, decide: Decide, *, reason: GapReason) -> Rewritten:
    """Make the next generation of a sealed segment and put it in the old one's place."""
    log.claim()
    device = log.device
    device.take_in()
    segment = device.segment_named(name)
    if segment is device.active_segment:
        raise InvalidRequest("the segment that is being written cannot be rewritten: roll first", segment=name)
    try:
        made = SegmentRewrite(
            device.place,
            segment,
            _next_offsets_before(device, segment),
            reason,
            token=device.claim().token,
            generation=device.next_generation(segment.name),
        )
        new = _make(log, segment, decide, made)
    except OSError as error:
        device.place.counters.io_errors += 1
        raise Unavailable(f"the segment could not be rewritten, and is as it was: {error}", segment=name) from error
    return Rewritten(
        old=name,
        new=str(new.name),
        first_lsn=Lsn(segment.first_lsn),
        last_lsn=Lsn(segment.last_lsn),
        frames_removed=made.frames_removed,
        rows_removed=made.rows_removed,
        bytes_before=segment.size,
        bytes_after=new.size,
    )


def _make(log: FrameLog, segment: Segment, decide: Decide, made: SegmentRewrite) -> Segment:
    def publish() -> Segment:
        log.device.segment_named(str(segment.name))
        new = made.publish()
        log.device.replace(segment.name, new)
        return new

    try:
        _copy(segment, decide, made)
        made.seal()
        # Under the baton, which only the owner gets: by now the log may have been closed here and be another's.
        return log.exclusively(publish)
    except BaseException:
        made.give_up()
        raise


def _copy(segment: Segment, decide: Decide, made: SegmentRewrite) -> None:
    opening = segment.opening
    # A rewrite must not make damage look like a choice: what breaks the chain is not copied, and not left out.
    walker = ChainWalker(ChainEnd(segment.first_lsn, opening.chain, opening.header.epoch, 0))
    file = segment.open_file()
    try:
        scan = Scan(
            file,
            SEGMENT_FRAME_BYTES,
            segment.size,
            opening.salted,
            chunk_bytes=made.place.settings.scan_chunk_bytes,
        )
        for position, header, body in scan:
            broken = walker.step(header, body)
            if broken is not None:
                raise damaged(segment.name, walker.next_lsn, position, broken)
            if header.kind == Kind.GAP:
                made.gap(header, body)
                continue
            decision = decide(header, body)
            if isinstance(decision, Sparse):
                made.thin(header, body, decision)
            elif decision is KEEP:
                made.keep(header, body, file, position)
            else:
                made.remove(header, body)
    finally:
        file.close()
    if scan.stop.position != segment.size:
        raise damaged(segment.name, made.next_lsn, scan.stop.position, scan.stop.reason)


def _next_offsets_before(device: LogDevice, segment: Segment) -> dict[int, int]:
    segments = device.view.segments
    return next_offsets_after(segments, segments.index(segment))


class SegmentRewrite:
    """A segment's next generation in the making: give it the old frames in order, then finish."""

    def __init__(
        self,
        place: LogPlace,
        segment: Segment,
        next_offsets_before: dict[int, int],
        reason: GapReason,
        *,
        token: bytes,
        generation: int | None = None,
    ) -> None:
        self.place = place
        self._old = segment
        self._reason = reason
        old = segment.opening.header
        generation = old.generation + 1 if generation is None else generation
        self._header = replace(
            old,
            generation=generation,
            last_lsn=segment.last_lsn,
            old_chain=segment.opening.chain,
        )
        self._name = SegmentName(segment.first_lsn, generation)
        # Named for its owner, so that an owner who has been closed meanwhile cannot touch the next one's.
        self._temporary = f"{self._name}.{token[:4].hex()}{TEMPORARY}"
        self._index = ActiveIndex(segment.first_lsn, next_offsets_before)
        self._opening = pack_segment_frame(self._header)
        self._file = create_anew(place, place.path(self._temporary))
        try:
            self._file.append([self._opening])
        except OSError:
            self.give_up()
            raise
        self._position = SEGMENT_FRAME_BYTES
        self._end = ChainEnd(segment.first_lsn, segment.opening.chain, old.epoch, 0)
        self._gap: Gap | None = None
        self._gap_prev = 0
        self._gap_offsets: dict[tuple[int, int], int] = {}
        self._gap_last: Header | None = None
        self.frames_removed = 0
        self.rows_removed = 0

    @property
    def next_lsn(self) -> int:
        return self._end.next_lsn

    @property
    def end(self) -> ChainEnd:
        """Where its chain stands."""
        return self._end

    def keep(self, header: Header, body: memoryview, file: File, position: int) -> None:
        """Copy a frame as it is."""
        self._write_gap()
        self._append(header, [file.read_at(position, header.frame_size)], body)

    def thin(self, header: Header, body: memoryview, sparse: Sparse) -> None:
        """Put the sparse form of a data frame in its place."""
        stored = sparse.body + pack_chain_value(chain_value(header, body))
        rows_are_some_of_its_own = header.kind in (Kind.DATA, Kind.SPARSE) and 0 <= sparse.row_count <= header.row_count
        if not rows_are_some_of_its_own or len(stored) > BODY_SIZE_BYTES_MAX:
            raise InvalidRequest(
                "not a sparse form of this frame: some of the rows of a data frame, in a body within the limit",
                lsn=header.lsn,
                kind=header.kind,
                rows_before=header.row_count,
                rows=sparse.row_count,
                body_bytes=len(stored),
            )
        self._write_gap()
        new = reseal_header(
            header._replace(
                kind=Kind.SPARSE,
                flags=header.flags | Flag.REWRITTEN,
                codec=sparse.codec,
                row_count=sparse.row_count,
                body_size=len(stored),
                padding_size=padding_size(len(stored)),
                body_crc=body_crc(stored),
                header_units=1,
            ),
            self._old.opening.salted,
        )
        self.rows_removed += header.row_count - sparse.row_count
        self._append(new, [pack_header(new), stored, bytes(new.padding_size)], memoryview(stored))

    def remove(self, header: Header, body: memoryview) -> None:
        """Leave a frame out."""
        self.frames_removed += 1
        self.rows_removed += header.row_count
        offsets: tuple[tuple[int, int, int], ...] = ()
        if header.kind == Kind.DATA or header.kind == Kind.SPARSE:
            offsets = ((header.topic_number, header.partition, header.base_offset + header.offset_count),)
        self._widen_gap(Gap(header.lsn, header.lsn, 1, self._reason, 0, offsets), header, body)

    def gap(self, header: Header, body: memoryview) -> None:
        """A gap of an earlier rewrite; it becomes one with what is removed beside it for the same reason."""
        gap = unpack_gap(body)
        assert gap is not None
        if self._reason == GapReason.DRAINED and gap.reason == GapReason.COMPACTED:
            # A drain is of what is covered whole, so that both are one: gaps of one frame each would add up.
            gap = replace(gap, reason=GapReason.DRAINED)
        self._widen_gap(gap, header, body)

    def declare_lost(
        self,
        last_lsn: int,
        chain: int,
        epoch: int,
        append_time_us: int,
        next_offsets: tuple[tuple[int, int, int], ...] = (),
    ) -> None:
        """Everything from here to `last_lsn` is gone; the next frame's `prev` is `chain`."""
        self._write_gap()
        first_lsn = self._end.next_lsn
        gap = Gap(first_lsn, last_lsn, last_lsn - first_lsn + 1, self._reason, chain, next_offsets)
        self._write(gap, self._end.chain, epoch, max(append_time_us, self._end.append_time_us))

    def _widen_gap(self, gap: Gap, header: Header, body: memoryview) -> None:
        chain = chain_value(header, body)
        open_gap = self._gap
        if open_gap is not None and open_gap.reason != gap.reason:
            self._write_gap()
            open_gap = None
        if open_gap is None:
            self._gap_prev = self._end.chain
            open_gap = Gap(gap.first_lsn, gap.first_lsn, 0, gap.reason, 0)
            self._gap_offsets.clear()
        for topic_number, partition, following in gap.next_offsets:
            # Offsets only rise along a log, so the later one holds.
            self._gap_offsets[topic_number, partition] = following
        self._gap = Gap(open_gap.first_lsn, header.lsn, open_gap.frames + gap.frames, gap.reason, chain)
        self._gap_last = header
        self._end = ChainEnd(header.lsn + 1, chain, header.epoch, header.append_time_us)

    def _write_gap(self) -> None:
        gap, last = self._gap, self._gap_last
        if gap is None or last is None:
            return
        self._gap = None
        offsets = tuple((*partition, following) for partition, following in sorted(self._gap_offsets.items()))
        self._write(replace(gap, next_offsets=offsets), self._gap_prev, last.epoch, last.append_time_us)

    def _write(self, gap: Gap, prev: int, epoch: int, append_time_us: int) -> None:
        body = pack_gap(gap)
        header_bytes, _ = seal_header(
            self._old.opening.salted,
            body_crc=body_crc(body),
            kind=Kind.GAP,
            codec=Codec.NONE,
            flags=Flag.REWRITTEN,
            body_size=len(body),
            lsn=gap.last_lsn,
            prev=prev,
            durable_lsn=0,
            epoch=epoch,
            write_index=0,
            write_count=1,
            topic_number=0,
            partition=0,
            base_offset=0,
            row_count=0,
            offset_count=0,
            schema_version=0,
            producer_epoch=0,
            producer_id=0,
            sequence=0,
            append_time_us=append_time_us,
            time_min_us=append_time_us,
            time_max_us=append_time_us,
        )
        header = decode_header(memoryview(header_bytes), 0, self._old.opening.salted)
        assert not isinstance(header, NoFrame)
        self._append(header, [header_bytes, body, bytes(header.padding_size)], memoryview(body))

    def _append(self, header: Header, buffers: list[bytes], body: memoryview) -> None:
        self._file.append(buffers)
        self._index.add(header, self._position, body)
        self._position += header.frame_size
        append_time_us = max(self._end.append_time_us, header.append_time_us)
        self._end = ChainEnd(header.lsn + 1, chain_value(header, body), header.epoch, append_time_us)

    def seal(self) -> None:
        """All frames are there: make the bytes durable."""
        self._write_gap()
        self._file.sync_all()
        self._file.close()

    def publish(self) -> Segment:
        """Give the new generation its name, durably, with its index there before it."""
        place = self.place
        index = self._index.pack(self._opening, self._end, self._position, self._header.created_us)
        write_aside(place, self._name.index, index)
        # Durable before the segment has its name: the index of a log's first segment alone knows the offsets of what
        # was forgotten, and no power loss may leave this generation without it.
        place.files.sync_directory(place.directory)
        place.files.rename(place.path(self._temporary), place.path(self._name))
        try:
            place.files.sync_directory(place.directory)
        except OSError:
            # Nobody was shown it yet, so it goes again; if a crash brings it back, it is as good as the old one.
            if unlink_all(place, [str(self._name)]):
                unlink_all(place, [self._name.index])
            raise
        segment = Segment(place, self._name, opening_of(self._opening))
        segment.seal(self._end, self._position)
        return segment

    def give_up(self) -> None:
        """Leave nothing behind, as far as that can be had: what is left is removed when the log is next claimed."""
        self._file.close()
        unlink_all(self.place, [self._temporary])
