"""Mending a halted log, when a person has decided to: what is lost is declared, and nothing else is.

Frames before and behind the damage are kept byte for byte; the LSNs between become a GAP whose reason is damage, so
that no LSN is ever given out again and no reader mistakes the loss for silence.  Of every damaged file
a copy with `.damaged` at the end of its name stays in the directory.

PLAN     is pure reading: it says which LSNs would be lost, and refuses by name what it cannot mend.
CARRYING OUT takes the log's lock.  Every step makes new files aside and renames; a crash leaves a log that halts
         again, or is mended, and the damaged bytes either way.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace

from headwater.clock import Clock, Entropy
from headwater.errors import LogLocked, UnknownFormat
from headwater.frames.bodies import GapReason
from headwater.frames.frame import Header, Kind, NoFrame, salt_crc
from headwater.frames.segment_header import SegmentHeader, decode_segment_frame, pack_segment_frame
from headwater.log.chain import ChainEnd
from headwater.log.file_actions import create_anew, create_segment
from headwater.log.index import read_footer
from headwater.log.mark import Mark, read_mark
from headwater.log.names import DAMAGED, LOCK, MARK, SegmentName, sort_names
from headwater.log.rewrite import SegmentRewrite
from headwater.log.salvage import Broken, Salvage
from headwater.log.segment import Opening, read_opening
from headwater.log.segments import LogPlace, Segment, next_offsets_after
from headwater.log.verify import Finding, FindingName, verify_log
from headwater.metrics import LogCounters
from headwater.settings import LogSettings
from headwater.storage.files import Files, LockHeld

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
    steps: list[RepairStep] = field(default_factory=list)
    lost: list[LostRange] = field(default_factory=list)
    refusals: list[Finding] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list, repr=False)

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
    newest: bool = False
    damaged: bool = False
    last_lsn: int = 0
    """Where it must end."""
    next_prev: int | None = None
    """The chain value that the next segment names."""


def plan_repair(
    files: Files, directory: str = "log", *, log_start: int | None = None, settings: LogSettings | None = None
) -> RepairPlan:
    """What would have to be done, and which LSNs would be lost.  Changes nothing."""
    settings = settings if settings is not None else LogSettings()
    report = verify_log(files, directory, log_start=log_start, settings=settings)
    plan = RepairPlan(log_id=report.log_id)
    plan.refusals = [finding for finding in report.findings if finding.name not in _MENDABLE]
    if report.ok or plan.refusals:
        return plan
    place = LogPlace(files, directory, settings, LogCounters())
    mark = _read_mark(place)
    pieces = list(_pieces(place, mark))
    _settle_ends(plan, pieces, log_start or (pieces[0].first_lsn if pieces else 1), report.durable_lsn)
    for finding in report.findings:
        if finding.name == FindingName.WRONG_INDEX:
            plan.steps.append(RepairStep("remove an index that is wrong; it is rebuilt", finding.segment))
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


def _pieces(place: LogPlace, mark: Mark | None) -> Iterator[Piece]:
    """The segments that are there, each walked over its damage."""
    highest: dict[int, SegmentName] = {}
    for name in sort_names(place.files.list(place.directory)).segments:
        if name.first_lsn not in highest or not isinstance(_opening(place, name), NoFrame):
            highest[name.first_lsn] = name
    names = list(highest.values())
    for number, name in enumerate(names):
        newest = number == len(names) - 1
        file = place.files.open(place.path(name))
        try:
            opening = read_opening(file)
            headless = isinstance(opening, NoFrame)
            if isinstance(opening, NoFrame):
                remembered = _remembered_opening(place, name)
                if remembered is None:
                    end = ChainEnd(name.first_lsn, 0, 0, 0)
                    yield Piece(name.first_lsn, name, None, end, newest=newest, damaged=True)
                    continue
                opening = remembered
            salvage = Salvage(
                file,
                opening,
                file.size(),
                chunk_bytes=place.settings.scan_chunk_bytes,
                mark=mark if newest else None,
            )
            breaks = [each for each in salvage if isinstance(each, Broken)]
            yield Piece(
                name.first_lsn,
                name,
                opening,
                salvage.end,
                breaks,
                newest=newest,
                damaged=headless or bool(breaks),
            )
        finally:
            file.close()


def _opening(place: LogPlace, name: SegmentName) -> Opening | NoFrame:
    file = place.files.open(place.path(name))
    try:
        return read_opening(file)
    finally:
        file.close()


def _remembered_opening(place: LogPlace, name: SegmentName) -> Opening | None:
    """A segment's header from the copy that its index keeps."""
    try:
        file = place.files.open(place.path(name.index))
    except FileNotFoundError:
        return None
    try:
        footer = read_footer(file)
    finally:
        file.close()
    if footer is None or footer.first_lsn != name.first_lsn:
        return None
    try:
        decoded = decode_segment_frame(memoryview(footer.opening))
    except UnknownFormat:
        return None
    if isinstance(decoded, NoFrame):
        return None
    header, chain = decoded
    return Opening(header, chain, salt_crc(header.salt), footer.opening)


def _settle_ends(plan: RepairPlan, pieces: list[Piece], start: int, durable_lsn: int) -> None:
    """Give every piece the LSN where it must end, put gaps where a segment is missing, and say what is lost."""
    settled: list[Piece] = []
    expected = start
    for number, piece in enumerate(pieces):
        if piece.first_lsn > expected:
            settled.append(_missing(expected, piece))
            plan.steps.append(RepairStep("make a segment that declares the loss", f"{expected:020}"))
            plan.lost.append(LostRange(expected, piece.first_lsn - 1, "", "the segment is missing"))
        following = pieces[number + 1] if number + 1 < len(pieces) else None
        piece.last_lsn = following.first_lsn - 1 if following is not None else piece.end.next_lsn - 1
        if following is not None:
            piece.next_prev = following.opening.header.prev if following.opening is not None else None
            if piece.end.next_lsn <= piece.last_lsn:
                piece.damaged = True
        elif piece.end.next_lsn - 1 < durable_lsn:
            piece.last_lsn = durable_lsn
            piece.damaged = True
        if piece.damaged:
            _settle_damage(plan, piece)
        settled.append(piece)
        expected = piece.last_lsn + 1
    if not pieces:
        settled.append(Piece(start, None, None, ChainEnd(start, 0, 0, 0), damaged=True, last_lsn=durable_lsn))
        plan.steps.append(RepairStep("make a segment that declares the loss", f"{start:020}"))
        plan.lost.append(LostRange(start, durable_lsn, "", "every segment is missing"))
    plan.pieces = settled


def _settle_damage(plan: RepairPlan, piece: Piece) -> None:
    segment = str(piece.name)
    plan.steps.append(RepairStep("rewrite it without the damage, and keep the damaged file aside", segment))
    for broken in piece.breaks:
        if broken.resume is not None and broken.resume.next_lsn > broken.end.next_lsn:
            plan.lost.append(LostRange(broken.end.next_lsn, broken.resume.next_lsn - 1, segment, broken.why.value))
    if piece.end.next_lsn <= piece.last_lsn:
        why = piece.breaks[-1].why.value if piece.breaks else "its end is missing"
        plan.lost.append(LostRange(piece.end.next_lsn, piece.last_lsn, segment, why))
    if piece.newest:
        plan.steps.append(RepairStep("begin a new segment behind it", f"{piece.last_lsn + 1:020}"))


def _missing(first_lsn: int, following: Piece) -> Piece:
    next_prev = following.opening.header.prev if following.opening is not None else None
    return Piece(
        first_lsn,
        None,
        None,
        ChainEnd(first_lsn, 0, 0, 0),
        damaged=True,
        last_lsn=following.first_lsn - 1,
        next_prev=next_prev,
    )


def carry_out(
    files: Files,
    directory: str,
    plan: RepairPlan,
    *,
    clock: Clock,
    entropy: Entropy,
    settings: LogSettings | None = None,
) -> RepairResult:
    """Do what the plan says.  LogLocked where somebody owns the log."""
    assert not plan.refusals
    place = LogPlace(files, directory, settings if settings is not None else LogSettings(), LogCounters())
    try:
        lock = files.lock(place.path(LOCK), f"pid {os.getpid()}")
    except LockHeld as error:
        raise LogLocked(f"the log is owned by {error.holder}: stop that process first", directory=directory) from error
    try:
        return _Repair(place, plan, clock, entropy).run()
    finally:
        lock.release()


class _Repair:
    def __init__(self, place: LogPlace, plan: RepairPlan, clock: Clock, entropy: Entropy) -> None:
        self._place = place
        self._plan = plan
        self._clock = clock
        self._entropy = entropy
        self._aside: list[str] = []
        self._made: list[str] = []
        self._segments: list[Segment] = []

    def run(self) -> RepairResult:
        end = ChainEnd(1, 0, 0, 0)
        for piece in self._plan.pieces:
            segment = self._mend(piece, end) if piece.damaged else self._kept(piece)
            self._segments.append(segment)
            end = segment.end
        if self._plan.pieces and self._plan.pieces[-1].damaged:
            self._begin_behind(self._plan.pieces[-1], end)
        for step in self._plan.steps:
            if step.segment.endswith(".idx"):
                self._unlink(step.segment)
        self._place.files.sync_directory(self._place.directory)
        return RepairResult(self._aside, self._made)

    def _kept(self, piece: Piece) -> Segment:
        assert piece.name is not None and piece.opening is not None
        segment = Segment(self._place, piece.name, piece.opening)
        file = segment.open_file()
        segment.seal(piece.end, file.size())
        file.close()
        return segment

    def _mend(self, piece: Piece, before: ChainEnd) -> Segment:
        """Make the next generation of a piece, with a gap for what is lost, and keep the damaged one aside."""
        opening = piece.opening if piece.opening is not None else self._invented(piece, before)
        name = piece.name if piece.name is not None else SegmentName(piece.first_lsn, 0)
        old = Segment(self._place, name, opening)
        old.seal(replace(piece.end, next_lsn=piece.last_lsn + 1), 0)
        if self._segments:
            next_offsets = next_offsets_after(self._segments, len(self._segments))
        else:
            next_offsets = old.base_offsets() or {}
        present = self._place.files.list(self._place.directory)
        for damaged in (str(name), name.index, str(SegmentName(name.first_lsn, name.generation + 1))):
            if damaged in present:
                self._copy_aside(damaged)
        made = SegmentRewrite(self._place, old, next_offsets, GapReason.DAMAGED, token=self._entropy(4))
        if piece.opening is not None:
            self._copy(name, opening, made)
        if made.next_lsn <= piece.last_lsn:
            # Where nothing follows, any chain value will do: the next frame names whatever stands here.
            chain = piece.next_prev if piece.next_prev is not None else int.from_bytes(self._entropy(8), "little")
            made.declare_lost(piece.last_lsn, chain, max(piece.end.epoch, before.epoch), before.append_time_us)
        made.seal()
        new = made.publish()
        for replaced in (str(name), name.index):
            if replaced in present:
                self._unlink(replaced)
        self._made.append(str(new.name))
        return new

    def _copy(self, name: SegmentName, opening: Opening, made: SegmentRewrite) -> None:
        """Copy whole writes: the frames of one are held back until its last has come."""
        file = self._place.files.open(self._place.path(name))
        held: list[tuple[int, Header, bytes]] = []

        def let_go() -> None:
            for position, header, body in held:
                made.keep(header, memoryview(body), file, position)
            held.clear()

        try:
            for each in Salvage(file, opening, file.size(), chunk_bytes=self._place.settings.scan_chunk_bytes):
                if isinstance(each, Broken):
                    held.clear()
                    resume = each.resume
                    if resume is not None and resume.next_lsn > made.next_lsn:
                        made.declare_lost(resume.next_lsn - 1, resume.chain, resume.epoch, resume.append_time_us)
                    continue
                position, header, body = each
                if header.kind == Kind.GAP:
                    let_go()
                    made.gap(header, body)
                    continue
                held.append((position, header, bytes(body)))
                if header.write_index == header.write_count - 1:
                    let_go()
            let_go()
        finally:
            file.close()

    def _invented(self, piece: Piece, before: ChainEnd) -> Opening:
        """A header for a segment of which nothing is left."""
        header = SegmentHeader(
            log_id=bytes.fromhex(self._plan.log_id),
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
            log_id=bytes.fromhex(self._plan.log_id),
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
        source = place.files.open(place.path(name))
        copy = create_anew(place, place.path(name + DAMAGED))
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
        self._aside.append(name + DAMAGED)

    def _unlink(self, name: str) -> None:
        self._place.files.unlink(self._place.path(name))
