"""What mending a halted log would take, and which LSNs it would cost: pure reading, and nothing is decided here.

Every segment is walked over its damage (salvage.py) and becomes a Piece: kept as it is, rewritten without the damage,
or a gap alone where nothing is left.  What cannot be mended is refused by the name of its finding.

OFFSETS  of lost rows are not given out again as far as an index, or a header among the damage, still knows them: each
         piece gathers them, for its gap to say.
NOT HERE Carrying a plan out: repair.py.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from headwater.errors import UnknownFormat
from headwater.frames.frame import Header, Kind, NoFrame, salt_crc
from headwater.frames.segment_header import decode_segment_frame
from headwater.log.chain import ChainEnd
from headwater.log.index import Footer, partition_key, read_footer, read_next_offsets
from headwater.log.mark import Mark, read_mark_of
from headwater.log.names import DirectoryListing, SegmentName, parse_segment_name, sort_names
from headwater.log.salvage import Broken, Salvage
from headwater.log.segment import Opening, read_opening, valid_headers_after
from headwater.log.segments import LogPlace
from headwater.log.verify import Finding, FindingName, NoteName, VerifyReport, choose_segments, verify_log
from headwater.metrics import LogCounters
from headwater.settings import LogSettings
from headwater.storage.files import File, Files

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

    @property
    def is_empty(self) -> bool:
        """It has no LSN: the newest segment, right after a roll."""
        return self.last_lsn < self.first_lsn


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
    mark = read_mark_of(files, directory)
    listing = sort_names(files.list(directory))
    pieces = _find_pieces(place, listing, plan, report, mark)
    plan.log_id = plan.log_id or next((each.opening.header.log_id.hex() for each in pieces if each.opening), "")
    _settle_ends(plan, pieces, log_start or (pieces[0].first_lsn if pieces else 1), _end_known(plan, report))
    _settle_newest(plan, mark)
    for piece in plan.pieces:
        _gather_offsets(place, listing, piece)
    return plan


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


def _end_known(plan: RepairPlan, report: VerifyReport) -> int:
    """The last LSN that the log is known to have had: it was durable, or a roll was begun behind it."""
    rolled = [parse_segment_name(name) for name in plan.stillborn]
    return max([report.durable_lsn, *(name.first_lsn - 1 for name in rolled if name is not None)])


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
    except UnknownFormat:
        return None
    if isinstance(decoded, NoFrame):
        return None
    header, chain = decoded
    return Opening(header, chain, salt_crc(header.salt), data)


def _settle_ends(plan: RepairPlan, pieces: list[Piece], start: int, end_known: int) -> None:
    """Give every piece the LSN where it must end, put gaps where a segment is missing, and say what is lost."""
    if pieces and pieces[0].first_lsn > start:
        missing = Piece(start, None, None, ChainEnd(start, 0, 0, 0), damaged=True)
        pieces.insert(0, missing)
    if not pieces:
        pieces.append(Piece(start, None, None, ChainEnd(start, 0, 0, 0), damaged=True))
    for piece, following in zip(pieces, [*pieces[1:], None], strict=True):
        end_lsn = piece.end.next_lsn - 1
        if following is None:
            piece.last_lsn = max(end_lsn, end_known)
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
    if piece.is_empty:
        plan.steps.append(RepairStep("set it aside: it is damaged, and held nothing", str(piece.name)))
        return
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
