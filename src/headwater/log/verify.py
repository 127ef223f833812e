"""Every byte of a log, looked at: what is there, and every finding by its name.

PROMISE  It reads and changes nothing.  It goes on behind damage, so that one finding does not hide the next.
FINDING  is something that no legal crash leaves: it makes `headwater log verify` fail.
NOTE     is something that a crash, or another process at work, may leave, or that an owner mends by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum

from headwater.errors import UnknownFormat
from headwater.frames.bodies import GapReason, unpack_gap
from headwater.frames.frame import Kind, NoFrame
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.log.chain import ChainBreak, ChainEnd
from headwater.log.index import ActiveIndex, read_footer, read_next_offsets
from headwater.log.mark import Mark, read_mark
from headwater.log.names import DAMAGED, MARK, SegmentName, sort_names
from headwater.log.salvage import Broken, Salvage
from headwater.log.segment import Opening, read_opening
from headwater.settings import LogSettings
from headwater.storage.files import File, Files

_GAP = int(Kind.GAP)


class FindingName(StrEnum):
    DAMAGED_FRAME = "DamagedFrame"
    BROKEN_CHAIN = "BrokenChain"
    STALE_FRAME = "StaleFrame"
    TORN_WRITE = "TornWrite"
    HEADLESS_SEGMENT = "HeadlessSegment"
    LOST_LSNS = "LostLsns"
    LOST_SEGMENT = "LostSegment"
    DUPLICATE_LSN = "DuplicateLsn"
    MISNAMED_SEGMENT = "MisnamedSegment"
    FOREIGN_LOG = "ForeignLog"
    UNKNOWN_FORMAT = "UnknownFormat"
    TIME_FELL = "TimeFell"
    WRONG_INDEX = "WrongIndex"


class NoteName(StrEnum):
    TORN_TAIL = "TornTail"
    STILLBORN_ROLL = "StillbornRoll"
    SUPERSEDED_GENERATION = "SupersededGeneration"
    LEFT_OVER = "LeftOver"
    SET_ASIDE = "SetAside"
    FOREIGN_FILE = "ForeignFile"
    NO_INDEX = "NoIndex"
    NO_MARK = "NoMark"
    BEGINS_LATER = "BeginsLater"
    DECLARED_LOSS = "DeclaredLoss"


@dataclass(frozen=True)
class Finding:
    """Something that was seen: what, where, and what is known of it."""

    name: str
    detail: str
    segment: str = ""
    position: int = 0
    first_lsn: int = 0
    last_lsn: int = 0


@dataclass
class VerifyReport:
    """What a verification saw.  `ok` is the verdict."""

    directory: str
    log_id: str = ""
    segments: int = 0
    frames: int = 0
    bytes: int = 0
    first_lsn: int = 0
    last_lsn: int = 0
    durable_lsn: int = 0
    epoch: int = 0
    last_topic_number: int = 0
    """The highest that a frame carries."""
    findings: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings

    def as_dict(self) -> dict[str, object]:
        return {"ok": self.ok, **asdict(self)}


@dataclass
class SegmentChoice:
    """Of each first LSN the one file that counts, and what becomes of the others."""

    names: list[SegmentName] = field(default_factory=list)
    superseded: list[tuple[SegmentName, SegmentName]] = field(default_factory=list)
    """Replaced by a later generation."""
    headless: list[SegmentName] = field(default_factory=list)
    """Later generations without a valid header."""


def choose_segments(files: Files, directory: str, names: list[SegmentName]) -> SegmentChoice:
    """The highest generation with a valid header counts; `names` are sorted."""
    choice = SegmentChoice()
    for name in names:
        before = choice.names[-1] if choice.names and choice.names[-1].first_lsn == name.first_lsn else None
        if before is None:
            choice.names.append(name)
        elif _has_no_header(files, f"{directory}/{name}"):
            choice.headless.append(name)
        else:
            choice.superseded.append((before, name))
            choice.names[-1] = name
    return choice


def _has_no_header(files: Files, path: str) -> bool:
    file = files.open(path)
    try:
        return isinstance(read_opening(file), NoFrame)
    except UnknownFormat:
        return False
    finally:
        file.close()


Progress = Callable[[int, int], None]
"""Told, now and then, how many bytes of how many have been read."""

LogStart = int | Callable[[], int | None] | None
"""The first LSN that the log must still hold, or who knows it: asked once the directory has been read, because an owner
at work says so before it deletes.  None: the log may begin anywhere."""


def verify_log(
    files: Files,
    directory: str = "log",
    *,
    log_start: LogStart = None,
    to_lsn: int | None = None,
    settings: LogSettings | None = None,
    progress: Progress | None = None,
) -> VerifyReport:
    """Look at every frame of a log, or at those up to `to_lsn`.

    Without `log_start` the log may begin anywhere: whether what came before was deleted or lost is not known here."""
    verification = _Verification(files, directory, settings if settings is not None else LogSettings(), progress)
    verification.run(log_start, to_lsn)
    return verification.report


class _Verification:
    def __init__(self, files: Files, directory: str, settings: LogSettings, progress: Progress | None) -> None:
        self._files = files
        self._directory = directory
        self._settings = settings
        self._progress = progress
        self._bytes_all = 0
        self._end: ChainEnd | None = None
        self._next_offsets: dict[int, int] = {}
        self._forgotten_offsets = False
        """True where rows were forgotten, and no index has yet said how far their offsets went."""
        self._lost_offsets = False
        """True where rows were lost: an index from before that may know of offsets that no frame shows."""
        self._previous: SegmentName | None = None
        self._before_unused: SegmentName | None = None
        """The segment before one that holds nothing durable yet: its own end may still be on its way to the disk."""
        self.report = VerifyReport(directory)

    def run(self, log_start: LogStart, to_lsn: int | None) -> None:
        # The mark first: what it names is in any directory that is read after it, however fast an owner rolls.
        mark = self._look_at_mark()
        listing = sort_names(self._files.list(self._directory))
        log_start = log_start() if callable(log_start) else log_start
        for name in listing.foreign:
            if name.endswith(DAMAGED):
                self._note(NoteName.SET_ASIDE, "damaged bytes, kept by a repair; yours to remove", name)
            else:
                self._note(NoteName.FOREIGN_FILE, "not a file of this log; it is never touched", name)
        for name in listing.temporaries:
            self._note(NoteName.LEFT_OVER, "left by a crash; the next owner removes it", name)
        choice = choose_segments(self._files, self._directory, listing.segments)
        for headless in choice.headless:
            self._find(FindingName.HEADLESS_SEGMENT, "a rewritten generation has no valid header", str(headless))
        for old, new in choice.superseded:
            self._note(NoteName.SUPERSEDED_GENERATION, f"replaced by {new}", str(old))
        chosen = choice.names
        while log_start is not None and len(chosen) > 1 and chosen[1].first_lsn <= log_start:
            self._note(NoteName.LEFT_OVER, "below the log's start; its owner deletes it", str(chosen.pop(0)))
        wanted = [name for name in chosen if to_lsn is None or name.first_lsn <= to_lsn]
        self._bytes_all = sum(self._size(name) for name in wanted)
        self._forgotten_offsets = bool(chosen) and chosen[0].first_lsn > 1
        if chosen and log_start is None and chosen[0].first_lsn > 1:
            self._note(
                NoteName.BEGINS_LATER,
                f"the log begins at LSN {chosen[0].first_lsn}; what came before was deleted, or is lost",
                str(chosen[0]),
            )
        start = 1 if log_start is None and not chosen else (log_start or chosen[0].first_lsn)
        if chosen and chosen[0].first_lsn > start:
            self._find(
                FindingName.LOST_SEGMENT,
                f"LSNs {start} to {chosen[0].first_lsn - 1} are in no segment",
                lsns=(start, chosen[0].first_lsn - 1),
            )
        if len(chosen) > 1 and (mark is None or mark.durable_lsn < chosen[-1].first_lsn):
            self._before_unused = chosen[-2]
        for segment in wanted:
            self._look_at_segment(segment, mark, newest=segment == chosen[-1])
        if not chosen and mark is not None and mark.durable_lsn:
            self._find(
                FindingName.LOST_SEGMENT,
                f"there is no segment, but LSN {mark.durable_lsn} was durable",
                lsns=(start, mark.durable_lsn),
            )

    # The parts -------------------------------------------------------------------------------

    def _look_at_mark(self) -> Mark | None:
        try:
            file = self._files.open(f"{self._directory}/{MARK}")
        except FileNotFoundError:
            self._note(NoteName.NO_MARK, "there is no mark; recovery goes by the frames alone", MARK)
            return None
        mark = read_mark(file)
        file.close()
        if mark is None:
            self._note(NoteName.NO_MARK, "the mark cannot be read; recovery goes by the frames alone", MARK)
            return None
        self.report.durable_lsn = mark.durable_lsn
        self.report.epoch = mark.epoch
        self.report.log_id = mark.log_id.hex()
        return mark

    def _size(self, name: SegmentName) -> int:
        file = self._files.open(f"{self._directory}/{name}")
        try:
            return file.size()
        finally:
            file.close()

    def _look_at_segment(self, name: SegmentName, mark: Mark | None, *, newest: bool) -> None:
        report = self.report
        report.segments += 1
        file = self._files.open(f"{self._directory}/{name}")
        try:
            try:
                opening = read_opening(file)
            except UnknownFormat as error:
                # Its bytes are whole, so it is no damage: another version has written it.
                self._find(FindingName.UNKNOWN_FORMAT, error.message, str(name))
                self._end = None
                return
            if isinstance(opening, Opening) and newest and self._is_ghost(name, opening, file):
                opening = NoFrame.HEADER_CRC
            if isinstance(opening, NoFrame):
                self._headless(name, opening, mark, newest)
                return
            self._check_link(name, opening)
            self._scan(name, file, opening, mark, newest)
        finally:
            file.close()
            self._previous = name

    def _is_ghost(self, name: SegmentName, opening: Opening, file: File) -> bool:
        """A header that is not its own, with nothing behind it, where a log goes on: left of a file that was removed,
        in blocks that a roll was given which never wrote its own (segments.py)."""
        header = opening.header
        of_this_log = header.log_id.hex() == self.report.log_id
        is_its_own = of_this_log and (header.first_lsn, header.generation) == (name.first_lsn, name.generation)
        goes_on = self._previous is not None or of_this_log
        return goes_on and not is_its_own and file.size() <= SEGMENT_FRAME_BYTES

    def _headless(self, name: SegmentName, why: NoFrame, mark: Mark | None, newest: bool) -> None:
        durable = mark.durable_lsn if mark is not None else 0
        if newest and durable < name.first_lsn:
            self._note(NoteName.STILLBORN_ROLL, "a roll that was never finished; the next owner removes it", str(name))
            if self._end is not None and self._end.next_lsn < name.first_lsn:
                # A roll is begun only when all before it is durable.
                self._find_lost_before(name, self._end)
        else:
            self._find(FindingName.HEADLESS_SEGMENT, f"it has no valid segment header: {why.value}", str(name))
        self._end = None

    def _check_link(self, name: SegmentName, opening: Opening) -> None:
        header = opening.header
        report = self.report
        if not report.first_lsn:
            report.first_lsn = name.first_lsn
        if not report.log_id:
            report.log_id = header.log_id.hex()
        if header.log_id.hex() != report.log_id:
            self._find(FindingName.FOREIGN_LOG, f"it belongs to log {header.log_id.hex()}", str(name))
        if header.first_lsn != name.first_lsn or header.generation != name.generation:
            self._find(
                FindingName.MISNAMED_SEGMENT,
                f"it says that it is {SegmentName(header.first_lsn, header.generation)}",
                str(name),
            )
        end = self._end
        if end is None:
            return
        if end.next_lsn > name.first_lsn:
            self._find(
                FindingName.DUPLICATE_LSN,
                f"{self._previous} holds LSNs up to {end.next_lsn - 1}",
                str(name),
                lsns=(name.first_lsn, end.next_lsn - 1),
            )
        elif end.next_lsn < name.first_lsn:
            self._find_lost_before(name, end)
        elif header.prev != end.chain:
            self._find(FindingName.BROKEN_CHAIN, "it does not continue the segment before it", str(name))

    def _find_lost_before(self, name: SegmentName, end: ChainEnd) -> None:
        self._find(
            FindingName.LOST_SEGMENT,
            f"LSNs {end.next_lsn} to {name.first_lsn - 1} are in no segment",
            str(name),
            lsns=(end.next_lsn, name.first_lsn - 1),
        )

    def _scan(self, name: SegmentName, file: File, opening: Opening, mark: Mark | None, newest: bool) -> None:
        """Follow the chain to the segment's end, over every break."""
        report = self.report
        size = file.size()
        index = ActiveIndex(opening.header.first_lsn, self._next_offsets)
        salvage = Salvage(
            file,
            opening,
            size,
            chunk_bytes=self._settings.scan_chunk_bytes,
            mark=mark if newest else None,
            append_time_us=self._end.append_time_us if self._end is not None else 0,
        )
        intact = True
        time_us = told = 0
        add = index.add
        for each in salvage:
            if isinstance(each, Broken):
                intact = False
                end = each.end
                if self._is_torn_tail(name, each, size, mark, newest):
                    break
                continue
            position, header, body = each
            add(header, position, body)
            if header.kind == _GAP:
                self._look_at_gap(name, position, body)
            report.frames += 1
            if header.append_time_us < time_us:
                lsns = (header.lsn, header.lsn)
                self._find(FindingName.TIME_FELL, "it was appended before the one before it", str(name), position, lsns)
            time_us = header.append_time_us
            if self._progress is not None and position - told >= self._settings.scan_chunk_bytes:
                told = position
                self._progress(report.bytes + position, self._bytes_all)
        else:
            end = salvage.end
        if newest and intact:
            self._check_against_mark(name, end, size, mark)
        report.bytes += size
        report.last_lsn = end.next_lsn - 1
        report.last_topic_number = max(report.last_topic_number, *index.topics(), 0)
        report.epoch = max(report.epoch, end.epoch)
        self._end = end
        if intact:
            self._check_index(name, index, end, size, opening, newest)
        self._next_offsets = index.next_offsets()

    def _look_at_gap(self, name: SegmentName, position: int, body: memoryview) -> None:
        gap = unpack_gap(body)
        if gap is not None and gap.reason == GapReason.DAMAGED:
            detail = f"LSNs {gap.first_lsn} to {gap.last_lsn} were lost, and a repair has said so"
            self._note(NoteName.DECLARED_LOSS, detail, str(name), position)
            self._lost_offsets = True

    def _is_torn_tail(self, name: SegmentName, broken: Broken, size: int, mark: Mark | None, newest: bool) -> bool:
        """Behind the last durable LSN of the newest segment it is a torn tail; anywhere else it is damage."""
        why, end = broken.why, broken.end
        durable = max(mark.durable_lsn if mark is not None else 0, broken.durable_lsn) if newest else 0
        self.report.durable_lsn = max(self.report.durable_lsn, durable)
        name_of_it = _name_of(why)
        if newest and end.next_lsn - 1 >= durable and name_of_it is not FindingName.UNKNOWN_FORMAT:
            self._note(
                NoteName.TORN_TAIL,
                f"{size - broken.position} bytes behind LSN {end.next_lsn - 1}: {why.value}; "
                "never acknowledged, the next owner cuts them",
                str(name),
                broken.position,
            )
            return True
        last = broken.lost_to if broken.lost_to is not None else max(durable, end.next_lsn)
        self._find(name_of_it, why.value, str(name), broken.position, (end.next_lsn, last))
        return False

    def _check_against_mark(self, name: SegmentName, end: ChainEnd, position: int, mark: Mark | None) -> None:
        if mark is None:
            return
        if mark.segment > name.first_lsn and mark.durable_lsn == end.next_lsn - 1:
            self._find(
                FindingName.LOST_SEGMENT,
                f"the log went on in segment {mark.segment}, which held nothing yet, and it is not there",
                str(name),
                position,
            )
        if end.next_lsn - 1 < mark.durable_lsn:
            self._find(
                FindingName.LOST_LSNS,
                f"LSN {mark.durable_lsn} was durable, but the log ends at {end.next_lsn - 1}",
                str(name),
                position,
                (end.next_lsn, mark.durable_lsn),
            )

    def _check_index(
        self,
        name: SegmentName,
        index: ActiveIndex,
        end: ChainEnd,
        size: int,
        opening: Opening,
        newest: bool,
    ) -> None:
        """An index must equal what a rebuild would make."""
        try:
            saved = self._files.open(f"{self._directory}/{name.index}")
        except FileNotFoundError:
            if self._previous is None and name.first_lsn > 1:
                self._note(
                    NoteName.NO_INDEX,
                    "it has no index, which alone knew the offsets of what was forgotten before it: an owner needs "
                    "those of a checkpoint",
                    str(name),
                )
            elif not newest:
                self._note(NoteName.NO_INDEX, "it has no index; the next opening rebuilds it", str(name))
            return
        try:
            footer = read_footer(saved)
            is_open = newest or name == self._before_unused
            if is_open and footer is not None and footer.segment_bytes != size:
                # Of an open segment an index is saved at a clean close only, and replaced when it is sealed.
                return
            if footer is not None and (self._forgotten_offsets or self._lost_offsets):
                known = read_next_offsets(saved, footer)
                self._forgotten_offsets = known is None
                offsets = index.next_offsets()
                for key, following in (known or {}).items():
                    offsets[key] = max(offsets.get(key, 0), following)
            if footer is not None and self._previous is None and end.next_lsn == name.first_lsn:
                # It holds nothing, and what came before it is forgotten: it alone knows when that was.
                end = replace(end, append_time_us=footer.append_time_us)
            expected = index.pack(opening.data, end, size, opening.header.created_us)
            actual = saved.read_at(0, saved.size())
        finally:
            saved.close()
        if actual != expected:
            self._find(
                FindingName.WRONG_INDEX, "it is not what a rebuild would make; opening does not trust it", name.index
            )

    # Telling ---------------------------------------------------------------------------------

    def _find(
        self, name: FindingName, detail: str, segment: str = "", position: int = 0, lsns: tuple[int, int] = (0, 0)
    ) -> None:
        self.report.findings.append(Finding(name, detail, segment, position, *lsns))
        if name is not FindingName.WRONG_INDEX:
            self._lost_offsets = True

    def _note(self, name: NoteName, detail: str, segment: str = "", position: int = 0) -> None:
        self.report.notes.append(Finding(name, detail, segment, position))


def _name_of(why: NoFrame | ChainBreak) -> FindingName:
    if why in (NoFrame.RULE, NoFrame.KIND):
        return FindingName.UNKNOWN_FORMAT
    if isinstance(why, NoFrame):
        return FindingName.DAMAGED_FRAME
    if why is ChainBreak.EPOCH:
        return FindingName.STALE_FRAME
    return FindingName.TORN_WRITE if why is ChainBreak.WRITE else FindingName.BROKEN_CHAIN
