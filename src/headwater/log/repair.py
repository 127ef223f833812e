"""Mending a halted log, when a person has decided to: what is lost is declared, and nothing else is.

Frames before and behind the damage are kept byte for byte; the LSNs between become a GAP whose reason is damage, so
that no LSN is ever given out again and no reader mistakes the loss for silence.  Of every damaged file
a copy with `.damaged` at the end of its name stays in the directory.

PROMISE  It takes the log's lock, and plans again under it: what a person was shown is what is done.  Every step makes
         new files aside and renames; a crash leaves a log that halts again, or is mended, and the damaged bytes
         either way.
ORDER    Copies aside, synced; then the segment behind a mended end; then the mended segment, under its name; then the
         damaged file goes.  So the mark never meets a newest segment whose bytes have moved.
NOT HERE What is to be done: repair_plan.py.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headwater.clock import Clock, Entropy
from headwater.errors import Conflict, LogLocked, Unavailable
from headwater.frames.bodies import GapReason
from headwater.frames.frame import Header, Kind, salt_crc
from headwater.frames.segment_header import SegmentHeader, pack_segment_frame
from headwater.log.chain import ChainEnd
from headwater.log.file_actions import create_segment, write_aside
from headwater.log.names import DAMAGED, LOCK, SegmentName
from headwater.log.repair_plan import Piece, RepairPlan, plan_repair
from headwater.log.rewrite import SegmentRewrite
from headwater.log.salvage import Broken, Salvage
from headwater.log.segment import Opening
from headwater.log.segments import LogPlace, Segment, next_offsets_after
from headwater.metrics import LogCounters
from headwater.settings import LogSettings
from headwater.storage.files import File, Files, LockHeld


@dataclass(frozen=True)
class RepairResult:
    aside: list[str]
    """Damaged files, kept under these names."""
    made: list[str]


def carry_out(
    files: Files,
    directory: str,
    plan: RepairPlan,
    *,
    clock: Clock,
    entropy: Entropy,
    settings: LogSettings | None = None,
) -> RepairResult:
    """Do what the plan says.  LogLocked where somebody owns the log; Conflict where it has changed since the plan."""
    assert not plan.refusals
    settings = settings if settings is not None else LogSettings()
    place = LogPlace(files, directory, settings, LogCounters())
    try:
        lock = files.lock(place.path(LOCK), f"pid {os.getpid()}")
    except LockHeld as error:
        raise LogLocked(f"the log is owned by {error.holder}: stop that process first", directory=directory) from error
    try:
        again = plan_repair(files, directory, log_start=plan.log_start, settings=settings)
        if again.as_dict() != plan.as_dict():
            raise Conflict("the log has changed since this was planned: plan again", directory=directory)
        return _Repair(place, again, clock, entropy).run() if again.needed else RepairResult([], [])
    except OSError as error:
        raise Unavailable(
            f"the repair stopped half-way: {error}; what is damaged is still there: run it again", directory=directory
        ) from error
    finally:
        lock.release()


class _Repair:
    def __init__(self, place: LogPlace, plan: RepairPlan, clock: Clock, entropy: Entropy) -> None:
        self._place = place
        self._plan = plan
        self._clock = clock
        self._entropy = entropy
        # Where nothing is left that knows the log's id, any will do.
        self._log_id = bytes.fromhex(plan.log_id) or entropy(16)
        self._aside: list[str] = []
        self._made: list[str] = []
        self._segments: list[Segment] = []

    def run(self) -> RepairResult:
        plan = self._plan
        for name in plan.headless:
            self._copy_aside(name)
        self._unlink([*plan.headless, *plan.stillborn])
        end = ChainEnd(1, 0, 0, 0)
        for piece in plan.pieces:
            if not piece.damaged:
                segment = self._keep(piece, end)
            elif piece.is_empty:
                self._set_aside(piece)
                continue
            else:
                segment = self._mend(piece, end, last=piece is plan.pieces[-1])
            self._segments.append(segment)
            end = segment.end
        last = plan.pieces[-1]
        if plan.begin_behind and (last.is_empty or not last.damaged):
            self._begin_behind(last.last_lsn + 1, end)
        self._place.files.sync_directory(self._place.directory)
        return RepairResult(self._aside, self._made)

    def _offsets_before(self, segment: Segment) -> dict[int, int]:
        if self._segments:
            return next_offsets_after(self._segments, len(self._segments))
        return {} if segment.first_lsn == 1 else segment.base_offsets() or {}

    def _keep(self, piece: Piece, before: ChainEnd) -> Segment:
        """A segment that stays as it is; its index is made anew where it is wrong."""
        assert piece.name is not None and piece.opening is not None
        segment = Segment(self._place, piece.name, piece.opening)
        file = segment.open_file()
        # Nothing in an empty segment says when the last frame before it was appended.
        append_time_us = max(piece.end.append_time_us, before.append_time_us)
        segment.seal(replace(piece.end, append_time_us=append_time_us), file.size())
        file.close()
        if piece.wrong_index:
            offsets = self._offsets_before(segment)
            end = segment.end
            index = segment.rebuild_index(offsets)
            segment.seal(end, segment.size)
            data = index.pack(piece.opening.data, end, segment.size, segment.created_us)
            write_aside(self._place, piece.name.index, data)
            self._made.append(piece.name.index)
        return segment

    def _mend(self, piece: Piece, before: ChainEnd, *, last: bool) -> Segment:
        """Make the next generation of a piece, with a gap for what is lost, and keep the damaged one aside."""
        opening = piece.opening if piece.opening is not None else self._invented(piece, before)
        if self._segments and opening.header.prev != before.chain:
            opening = replace(opening, header=replace(opening.header, prev=before.chain))
        name = piece.name if piece.name is not None else SegmentName(piece.first_lsn, 0)
        old = Segment(self._place, name, opening)
        old.seal(replace(piece.end, next_lsn=piece.last_lsn + 1), 0)
        offsets = self._offsets_before(old)
        present = self._place.files.list(self._place.directory)
        damaged = [each for each in (str(name), name.index) if each in present]
        for each in damaged:
            self._copy_aside(each)
        if piece.tail is not None:
            self._cut_tail(name, piece.tail)
        made = SegmentRewrite(self._place, old, offsets, GapReason.DAMAGED, token=self._entropy(4))
        try:
            self._fill(made, piece, name, before, _lost_offsets(piece, offsets))
            made.seal()
            if last:
                self._begin_behind(piece.last_lsn + 1, made.end, piece.first_lsn)
            new = made.publish()
        except BaseException:
            made.give_up()
            raise
        self._unlink(damaged)
        self._made.append(str(new.name))
        return new

    def _fill(
        self,
        made: SegmentRewrite,
        piece: Piece,
        name: SegmentName,
        before: ChainEnd,
        lost_offsets: tuple[tuple[int, int, int], ...],
    ) -> None:
        """Copy whole writes, each frame held back until the last of its write has come, and declare the rest lost."""
        if piece.opening is not None:
            file = self._place.files.open(self._place.path(name))
            try:
                lost_offsets = self._copy(made, piece, piece.opening, file, lost_offsets)
            finally:
                file.close()
        if made.next_lsn <= piece.last_lsn:
            # Where nothing follows, any chain value will do: the next frame names whatever stands here.
            chain = piece.next_prev if piece.next_prev is not None else int.from_bytes(self._entropy(8), "little")
            epoch = max(piece.end.epoch, before.epoch)
            made.declare_lost(piece.last_lsn, chain, epoch, before.append_time_us, lost_offsets)

    def _copy(
        self,
        made: SegmentRewrite,
        piece: Piece,
        opening: Opening,
        file: File,
        lost_offsets: tuple[tuple[int, int, int], ...],
    ) -> tuple[tuple[int, int, int], ...]:
        held: list[tuple[int, Header, bytes]] = []

        def let_go() -> None:
            for position, header, body in held:
                made.keep(header, memoryview(body), file, position)
            held.clear()

        chunk_bytes = self._place.settings.scan_chunk_bytes
        for each in Salvage(file, opening, file.size(), chunk_bytes=chunk_bytes, mark=piece.mark):
            if isinstance(each, Broken):
                held.clear()
                resume = each.resume
                if resume is None or resume.next_lsn > piece.last_lsn:
                    break
                if resume.next_lsn > made.next_lsn:
                    made.declare_lost(
                        resume.next_lsn - 1, resume.chain, resume.epoch, resume.append_time_us, lost_offsets
                    )
                    lost_offsets = ()
                continue
            position, header, body = each
            if header.kind == Kind.GAP:
                let_go()
                made.gap(header, body)
                continue
            held.append((position, header, bytes(body)))
            if header.write_index == header.write_count - 1:
                let_go()
        return lost_offsets

    def _invented(self, piece: Piece, before: ChainEnd) -> Opening:
        """A header for a segment of which nothing is left."""
        header = SegmentHeader(
            log_id=self._log_id,
            salt=self._entropy(8),
            first_lsn=piece.first_lsn,
            prev=before.chain,
            epoch=before.epoch,
            created_us=self._clock.now_us(),
            previous_first_lsn=self._segments[-1].first_lsn if self._segments else 0,
            generation=piece.name.generation if piece.name is not None else 0,
        )
        chain = int.from_bytes(self._entropy(8), "little")
        return Opening(header, chain, salt_crc(header.salt), pack_segment_frame(header))

    def _set_aside(self, piece: Piece) -> None:
        """A damaged segment that held nothing: one is begun in its place."""
        assert piece.name is not None
        self._copy_aside(str(piece.name))
        self._unlink([str(piece.name)])

    def _begin_behind(self, first_lsn: int, end: ChainEnd, previous_first_lsn: int | None = None) -> None:
        """An empty newest segment, for the next owner to go on with."""
        if previous_first_lsn is None:
            previous_first_lsn = self._segments[-1].first_lsn if self._segments else 0
        index = SegmentName(first_lsn, 0).index
        if index in self._place.files.list(self._place.directory):
            # Of a segment of that name that is gone.
            self._unlink([index])
        header = SegmentHeader(
            log_id=self._log_id,
            salt=self._entropy(8),
            first_lsn=first_lsn,
            prev=end.chain,
            epoch=end.epoch,
            created_us=self._clock.now_us(),
            previous_first_lsn=previous_first_lsn,
        )
        segment, file = create_segment(self._place, header, lambda verb: verb())
        file.close()
        self._made.append(str(segment.name))

    def _copy_aside(self, name: str) -> None:
        """A copy of the damaged bytes under a name that nobody but a person touches."""
        place = self._place
        aside = _free_name(name, place.files.list(place.directory))
        source = place.files.open(place.path(name))
        copy = place.files.create(place.path(aside))
        try:
            position, size = 0, source.size()
            while position < size:
                chunk = source.read_at(position, min(place.settings.scan_chunk_bytes, size - position))
                copy.append([chunk])
                position += len(chunk)
            copy.sync_all()
        finally:
            source.close()
            copy.close()
        place.files.sync_directory(place.directory)
        self._aside.append(aside)

    def _cut_tail(self, name: SegmentName, position: int) -> None:
        """A torn tail goes before a segment is begun behind it: it may hold frames with the LSNs of that one."""
        file = self._place.files.open(self._place.path(name), writable=True)
        try:
            file.truncate(position)
            file.sync_all()
        finally:
            file.close()

    def _unlink(self, names: Sequence[str]) -> None:
        for name in names:
            self._place.files.unlink(self._place.path(name))


def _lost_offsets(piece: Piece, before: dict[int, int]) -> tuple[tuple[int, int, int], ...]:
    """(topic, partition, next offset) of each partition whose last rows are among what is lost, for a gap to say."""
    lost = {
        key: following
        for key, following in piece.known.items()
        if following > max(piece.shown.get(key, 0), before.get(key, 0))
    }
    return tuple((key >> 32, key & 0xFFFFFFFF, following) for key, following in sorted(lost.items()))


def _free_name(name: str, present: list[str]) -> str:
    """What an earlier repair has kept aside is not written over."""
    aside = name + DAMAGED
    number = 1
    while aside in present:
        number += 1
        aside = f"{name}.{number}{DAMAGED}"
    return aside
