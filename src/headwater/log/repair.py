"""Mending a halted log, when a person has decided to: what is lost is declared, and nothing else is.

Frames before and behind the damage are kept byte for byte; the LSNs between become a GAP whose reason is damage, so
that no LSN is ever given out again and no reader mistakes the loss for silence.  Of every damaged file
a copy with `.damaged` at the end of its name stays in the directory.

PLAN     is pure reading: it says which LSNs would be lost, and refuses by name what it cannot mend.
CARRYING OUT takes the log's lock, and plans again under it: what a person was shown is what is done.  Every step
         makes new files aside and renames; a crash leaves a log that halts again, or is mended, and the damaged bytes
         either way.
ORDER    Copies aside, synced; then the segment behind a mended end; then the mended segment, under its name; then the
         damaged file goes.  So the mark never meets a newest segment whose bytes have moved.
OFFSETS  of lost rows are not given out again as far as an index, or a header among the damage, still knows them:
         the gap says so.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from headwater.clock import Clock, Entropy
from headwater.errors import Conflict, CorruptData, LogLocked, Unavailable, UnknownFormat
from headwater.frames.bodies import GapReason
from headwater.frames.frame import Header, Kind, NoFrame, salt_crc
from headwater.frames.segment_header import SegmentHeader, decode_segment_frame, pack_segment_frame
from headwater.log.chain import ChainEnd
from headwater.log.file_actions import create_segment, write_aside
from headwater.log.index import Footer, partition_key, read_footer, read_next_offsets
from headwater.log.mark import Mark, read_mark
from headwater.log.names import DAMAGED, LOCK, MARK, DirectoryListing, SegmentName, sort_names
from headwater.log.rewrite import SegmentRewrite
from headwater.log.salvage import Broken, Salvage
from headwater.log.segment import Opening, read_opening, valid_headers_after
from headwater.log.segments import LogPlace, Segment, next_offsets_after
from headwater.log.verify import Finding, FindingName, NoteName, VerifyReport, choose_segments, verify_log
from headwater.metrics import LogCounters
from headwater.settings import LogSettings
from headwater.storage.files import File, Files, LockHeld

_MENDABLE = frozenset(
    {
        FindingName.DAMAGED_FRAME,
        FindingName.BROKEN_CHAIN,
        FindingName.STALE_FRAME,
        FindingName.TORN_WRITE,
        FindingName.HEADLESS_SEGMENT,
        FindingName.LOST_LSNS,
        FindingName.LOST_SEGMENT,
        FindingName.WRONG_INDEX,
    }
)


@dataclass(frozen=True)
class LostRange:
    """LSNs that are gone for good once the repair is carried out."""

    first_lsn: int
    last_lsn: int
    segment: str
    why: str


@dataclass(frozen=True)
class RepairStep:
    what: str
    segment: str


@dataclass
class RepairPlan:
    """What a repair would do."""

    log_id: str = ""
    log_start: int | None = None
    steps: list[RepairStep] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list, repr=False)
    stillborn: list[str] = field(default_factory=list, repr=False)
    """A roll that was never finished: it goes, as the next owner would have it."""
    headless: list[str] = field(default_factory=list, repr=False)
    """Generations without a header beside one that has one."""
    begin_behind: bool = field(default=False, repr=False)
    """The last segment is not one to go on with: a new one is begun."""

    @property
    def needed(self) -> bool:
        return bool(self.steps or self.refusals)

    def as_dict(self) -> dict[str, object]:
        return {
            "needed": self.needed,
            "log_id": self.log_id,
            "steps": [asdict(step) for step in self.steps],
            "lost": [asdict(lost) for lost in self.lost],
            "refusals": [asdict(refusal) for refusal in self.refusals],
        }


@dataclass(frozen=True)
class RepairResult:
    aside: list[str]
    """Damaged files, kept under these names."""
    made: list[str]


@dataclass
class Piece:
    """One segment of the mended log: an old one as it is, an old one to be rewritten, or a gap alone."""

    first_lsn: int
    name: SegmentName | None
    opening: Opening | None
    end: ChainEnd
    breaks: list[Broken] = field(default_factory=list)
    damaged: bool = False
    wrong_index: bool = False
    mark: Mark | None = None
    """Of the newest segment: what it says is stale."""
    tail: int | None = None
    """Where a torn tail begins, which goes."""
    last_lsn: int = 0
    """Where it must end."""
    next_prev: int | None = None
    """The chain value that the next segment names."""
    shown: dict[int, int] = field(default_factory=dict)
    """The next offset of each partition as the frames that are left show it."""
    known: dict[int, int] = field(default_factory=dict)
    """The same as indexes, and headers among the damage, remember it."""


def plan_repair(
    files: Files, directory: str = "log", *, log_start: int | None = None, settings: LogSettings | None = None
) -> RepairPlan:
    """What would have to be done, and which LSNs would be lost.  Changes nothing."""
    settings = settings if settings is not None else LogSettings()
    report = verify_log(files, directory, log_start=log_start, settings=settings)
    plan = RepairPlan(log_id=report.log_id, log_start=log_start)
    plan.refusals = [finding for finding in report.findings if finding.name not in _MENDABLE]
    if report.ok or plan.refusals:
        return plan
    place = LogPlace(files, directory, settings, LogCounters())
    mark = _read_mark(place)
    listing = sort_names(files.list(directory))
    pieces = _find_pieces(place, listing, plan, report, mark)
    plan.log_id = plan.log_id or next((each.opening.header.log_id.hex() for each in pieces if each.opening), "")
    _settle_ends(plan, pieces, log_start or (pieces[0].first_lsn if pieces else 1), report.durable_lsn)
    _settle_newest(plan, mark)
    for piece in plan.pieces:
        _gather_offsets(place, listing, piece)
    return plan


def _read_mark(place: LogPlace) -> Mark | None:
    try:
        file = place.files.open(place.path(MARK))
    except FileNotFoundError:
        return None
    try:
        return read_mark(file)
    finally:
        file.close()


def _find_pieces(
    place: LogPlace, listing: DirectoryListing, plan: RepairPlan, report: VerifyReport, mark: Mark | None
) -> list[Piece]:
    """The segments that are there, each walked over its damage."""
    choice = choose_segments(place.files, place.directory, listing.segments)
    names = choice.names
    while plan.log_start is not None and len(names) > 1 and names[1].first_lsn <= plan.log_start:
        names.pop(0)
    for headless in choice.headless:
        plan.headless.append(str(headless))
        plan.steps.append(RepairStep("set aside a generation that has no header", str(headless)))
    wrong = {finding.segment for finding in report.findings if finding.name == FindingName.WRONG_INDEX}
    stillborn = {note.segment for note in report.notes if note.name == NoteName.STILLBORN_ROLL}
    pieces = []
    for name in names:
        if str(name) in stillborn:
            plan.stillborn.append(str(name))
            plan.steps.append(RepairStep("remove a roll that was never finished", str(name)))
            continue
        piece = _look_at(place, name, mark, newest=name == names[-1])
        piece.wrong_index = name.index in wrong
        pieces.append(piece)
    return pieces


def _look_at(place: LogPlace, name: SegmentName, mark: Mark | None, *, newest: bool) -> Piece:
    file = place.files.open(place.path(name))
    try:
        opening = read_opening(file)
        headless = isinstance(opening, NoFrame)
        if isinstance(opening, NoFrame):
            remembered = _remembered_opening(place, name)
            if remembered is None:
                return Piece(name.first_lsn, name, None, ChainEnd(name.first_lsn, 0, 0, 0), damaged=True)
            opening = remembered
        piece = Piece(name.first_lsn, name, opening, ChainEnd(name.first_lsn, opening.chain, opening.header.epoch, 0))
        piece.mark = mark if newest else None
        _walk(place, file, piece, newest=newest)
        piece.damaged = headless or bool(piece.breaks)
        return piece
    finally:
        file.close()


def _walk(place: LogPlace, file: File, piece: Piece, *, newest: bool) -> None:
    assert piece.opening is not None
    chunk_bytes = place.settings.scan_chunk_bytes
    salvage = Salvage(file, piece.opening, file.size(), chunk_bytes=chunk_bytes, mark=piece.mark)
    durable_lsn = piece.mark.durable_lsn if piece.mark is not None else 0
    for each in salvage:
        if not isinstance(each, Broken):
            _note_offset(piece.shown, each[1])
        elif newest and each.end.next_lsn - 1 >= max(durable_lsn, each.durable_lsn):
            # A torn tail: never acknowledged, and no part of the log.
            piece.tail = each.position
            piece.end = each.end
            break
        else:
            piece.breaks.append(each)
    else:
        piece.end = salvage.end
    if piece.breaks:
        start = piece.breaks[0].position
        for _, header in valid_headers_after(file, start, file.size(), piece.opening.salted, chunk_bytes=chunk_bytes):
            _note_offset(piece.known, header)


def _note_offset(offsets: dict[int, int], header: Header) -> None:
    if header.kind == Kind.DATA or header.kind == Kind.SPARSE:
        key = partition_key(header.topic_number, header.partition)
        offsets[key] = max(offsets.get(key, 0), header.base_offset + header.offset_count)


def _gather_offsets(place: LogPlace, listing: DirectoryListing, piece: Piece) -> None:
    """Take in what index files know of the LSNs of a piece, also those whose segment is gone."""
    for name in listing.indexes:
        if piece.damaged and piece.first_lsn <= name.first_lsn <= piece.last_lsn:
            remembered = _remembered(place, name)
            if remembered is not None and remembered[0].last_lsn <= piece.last_lsn:
                for key, following in remembered[1].items():
                    piece.known[key] = max(piece.known.get(key, 0), following)


def _remembered(place: LogPlace, name: SegmentName) -> tuple[Footer, dict[int, int]] | None:
    """What an index file says: its footer, and every partition's next offset as far as it can be read."""
    try:
        file = place.files.open(place.path(name.index))
    except FileNotFoundError:
        return None
    try:
        footer = read_footer(file)
        if footer is None or footer.first_lsn != name.first_lsn:
            return None
        return footer, read_next_offsets(file, footer) or {}
    finally:
        file.close()


def _remembered_opening(place: LogPlace, name: SegmentName) -> Opening | None:
    """A segment's header from the copy that its index keeps."""
    remembered = _remembered(place, name)
    if remembered is None:
        return None
    data = remembered[0].opening
    try:
        decoded = decode_segment_frame(memoryview(data))
    except (UnknownFormat, CorruptData):
        return None
    if isinstance(decoded, NoFrame):
        return None
    header, chain = decoded
    return Opening(header, chain, salt_crc(header.salt), data)


def _settle_ends(plan: RepairPlan, pieces: list[Piece], start: int, durable_lsn: int) -> None:
    """Give every piece the LSN where it must end, put gaps where a segment is missing, and say what is lost."""
    if pieces and pieces[0].first_lsn > start:
        missing = Piece(start, None, None, ChainEnd(start, 0, 0, 0), damaged=True)
        pieces.insert(0, missing)
    if not pieces:
        pieces.append(Piece(start, None, None, ChainEnd(start, 0, 0, 0), damaged=True))
    for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
        end_lsn = piece.end.next_lsn - 1
        if following is None:
            piece.last_lsn = max(end_lsn, durable_lsn)
        else:
            piece.last_lsn = following.first_lsn - 1
            piece.next_prev = following.opening.header.prev if following.opening is not None else None
            if end_lsn == piece.last_lsn and piece.next_prev not in (None, piece.end.chain):
                following.damaged = True
                plan.steps.append(RepairStep("join it to the segment before it", str(following.name)))
        if end_lsn < piece.last_lsn:
            piece.damaged = True
        if piece.damaged:
            _settle_damage(plan, piece)
        elif piece.wrong_index and piece.name is not None:
            plan.steps.append(RepairStep("rebuild an index that is wrong", piece.name.index))
    plan.pieces = pieces


def _settle_damage(plan: RepairPlan, piece: Piece) -> None:
    if piece.name is None:
        segment, why = "", "the segment is missing"
        plan.steps.append(RepairStep("make a segment that declares the loss", f"{piece.first_lsn:020}"))
    else:
        segment, why = str(piece.name), "its end is missing"
        plan.steps.append(RepairStep("rewrite it without the damage, and keep the damaged file aside", segment))
    for broken in piece.breaks:
        why = broken.why.value
        if broken.resume is not None and broken.resume.next_lsn > broken.end.next_lsn:
            plan.lost.append(LostRange(broken.end.next_lsn, broken.resume.next_lsn - 1, segment, why))
    if piece.end.next_lsn <= piece.last_lsn:
        plan.lost.append(LostRange(piece.end.next_lsn, piece.last_lsn, segment, why))


def _settle_newest(plan: RepairPlan, mark: Mark | None) -> None:
    """A rewritten segment is never written again, and where the mark names a segment there must be one."""
    last = plan.pieces[-1]
    plan.begin_behind = last.damaged or (mark is not None and mark.segment > last.first_lsn and not plan.stillborn)
    if plan.begin_behind:
        plan.steps.append(RepairStep("begin a new segment", f"{last.last_lsn + 1:020}"))


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
        return _Repair(place, again, clock, entropy).run()
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
            last = piece is plan.pieces[-1]
            segment = self._mend(piece, end, last=last) if piece.damaged else self._keep(piece, end)
            self._segments.append(segment)
            end = segment.end
        if plan.begin_behind and not plan.pieces[-1].damaged:
            self._begin_behind(plan.pieces[-1], end)
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
                self._begin_behind(piece, made.end)
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
        )
        chain = int.from_bytes(self._entropy(8), "little")
        return Opening(header, chain, salt_crc(header.salt), pack_segment_frame(header))

    def _begin_behind(self, last: Piece, end: ChainEnd) -> None:
        """An empty newest segment, for the next owner to go on with."""
        header = SegmentHeader(
            log_id=self._log_id,
            salt=self._entropy(8),
            first_lsn=last.last_lsn + 1,
            prev=end.chain,
            epoch=end.epoch,
            created_us=self._clock.now_us(),
            previous_first_lsn=last.first_lsn,
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
