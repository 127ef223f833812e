"""What an owner finds when it opens a log, and what is done about it: a complete table of cases.

G   the last LSN of the unbroken chain of whole writes.
D   the greatest of the mark and the durable LSN in every valid header of the newest segment, also
    behind a break: the log is known to have been durable up to D.

Only bytes behind G, with G at or above D, are ever cut: nothing acknowledged is among them.  Whatever
else is wrong halts by name.  In any segment but the newest every break is damage (segments.py).

found in the newest segment            and                              verdict
there is none                          D = 0, the log starts at 1       START     a new log
there is none                          otherwise                        LOST      LostSegment
a whole header of an unknown format                                     UNKNOWN   UnknownFormat
no valid segment header                G >= D, and it need not have one REMOVE    a roll that was never finished
no valid segment header                otherwise                        DAMAGED   DamagedLog
frames to the end of the file          G >= D                           KEEP
frames, then something else            G >= D                           CUT       a torn tail
frames                                 G < D                            DAMAGED   DamagedLog

A newest segment need not have a valid header if it is no longer than one, because a segment's first frame is
written only after its header is durable; and if a sealed one comes before it, or the log starts at 1 (then it is
the first one ever): without either, the segments before it were deleted only once it was durable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum

from headwater.errors import CorruptData
from headwater.frames.frame import Header, Kind, NoFrame, chain_value
from headwater.log.chain import ChainBreak, ChainEnd, ChainWalker
from headwater.log.index import ActiveIndex, load_active, read_footer
from headwater.log.mark import Mark
from headwater.log.names import SegmentName
from headwater.log.segment import Opening, Scan, read_frame, valid_headers_after
from headwater.log.segments import LogPlace
from headwater.storage.files import File

_NO_BODY = memoryview(b"")


class Found(Enum):
    """What the newest segment looks like."""

    NOTHING = "there is no segment"
    UNKNOWN = "it holds a whole header of an unknown format"
    HEADLESS = "it has no valid segment header"
    WHOLE = "its frames reach to its end"
    TORN = "something else follows its frames"


class Verdict(Enum):
    START = "a new log"
    LOST = "halt: segments are missing"
    UNKNOWN = "halt: the format is not known"
    REMOVE = "a roll that was never finished is removed"
    DAMAGED = "halt: durable bytes cannot be read back"
    KEEP = "nothing is cut"
    CUT = "a torn tail is cut"


@dataclass(frozen=True)
class Evidence:
    """All that a verdict rests on."""

    found: Found
    good_lsn: int
    durable_lsn: int
    header_needed: bool
    log_start: int

    @property
    def acknowledged_is_there(self) -> bool:
        return self.good_lsn >= self.durable_lsn


CASES: list[tuple[str, Callable[[Evidence], bool], Verdict]] = [
    (
        "a new log",
        lambda e: e.found is Found.NOTHING and e.durable_lsn == 0 and e.log_start == 1,
        Verdict.START,
    ),
    (
        "every segment is gone",
        lambda e: e.found is Found.NOTHING and (e.durable_lsn > 0 or e.log_start > 1),
        Verdict.LOST,
    ),
    (
        "an unknown format",
        lambda e: e.found is Found.UNKNOWN,
        Verdict.UNKNOWN,
    ),
    (
        "a stillborn roll",
        lambda e: e.found is Found.HEADLESS and not e.header_needed and e.acknowledged_is_there,
        Verdict.REMOVE,
    ),
    (
        "a lost segment header",
        lambda e: e.found is Found.HEADLESS and (e.header_needed or not e.acknowledged_is_there),
        Verdict.DAMAGED,
    ),
    (
        "an intact segment",
        lambda e: e.found is Found.WHOLE and e.acknowledged_is_there,
        Verdict.KEEP,
    ),
    (
        "a torn tail",
        lambda e: e.found is Found.TORN and e.acknowledged_is_there,
        Verdict.CUT,
    ),
    (
        "damage below what was durable",
        lambda e: e.found in (Found.WHOLE, Found.TORN) and not e.acknowledged_is_there,
        Verdict.DAMAGED,
    ),
]


def judge(evidence: Evidence) -> Verdict:
    """The verdict of the one case that fits."""
    verdicts = [verdict for _, fits, verdict in CASES if fits(evidence)]
    assert len(verdicts) == 1, (evidence, verdicts)
    return verdicts[0]


@dataclass
class NewestScan:
    """What a scan of the newest segment has shown."""

    found: Found
    end: ChainEnd
    position: int
    """Where the last whole write ends."""
    file_bytes: int
    durable_lsn: int
    """The highest that any valid header knew of."""
    frames: int
    index: ActiveIndex
    why: NoFrame | ChainBreak | None
    """Why the chain does not go on."""


def scan_newest(
    file: File,
    opening: Opening,
    opening_bytes: int,
    start: ChainEnd,
    next_offsets: dict[int, int],
    *,
    mark: Mark | None,
    chunk_bytes: int,
) -> NewestScan:
    """Follow the chain of the newest segment as far as it goes, then look at all that lies behind it."""
    size = file.size()
    walker = ChainWalker(
        start,
        floor_epoch=mark.epoch if mark is not None else 0,
        floor_after_lsn=mark.durable_lsn if mark is not None else 0,
    )
    index = ActiveIndex(opening.header.first_lsn, next_offsets)
    scan = Scan(file, opening_bytes, size, opening.salted, chunk_bytes=chunk_bytes)
    pending: list[tuple[Header, int, memoryview]] = []
    position = opening_bytes
    durable_lsn = 0
    frames = 0
    why: NoFrame | ChainBreak | None = None
    for at, header, body in scan:
        broken = walker.step(header, body)
        if broken is not None:
            why = broken
            break
        durable_lsn = max(durable_lsn, header.durable_lsn)
        # A frame joins the index only with its whole write: a write that is torn leaves no trace.
        pending.append((header, at, memoryview(bytes(body)) if header.kind == Kind.GAP else _NO_BODY))
        if walker.whole_end.next_lsn == walker.next_lsn:
            for each in pending:
                index.add(*each)
            frames += len(pending)
            pending.clear()
            position = at + header.frame_size
    else:
        why = scan.stop.reason if scan.stop.position < size else None
    found = Found.WHOLE if position == size else Found.TORN
    if why in (NoFrame.RULE, NoFrame.KIND):
        found = Found.UNKNOWN
    if found is not Found.WHOLE:
        for _, header in valid_headers_after(file, position, size, opening.salted, chunk_bytes=chunk_bytes):
            durable_lsn = max(durable_lsn, header.durable_lsn)
    return NewestScan(found, walker.whole_end, position, size, durable_lsn, frames, index, why)


def cleanly_closed(
    place: LogPlace, name: SegmentName, opening: Opening, file: File, mark: Mark | None
) -> NewestScan | None:
    """The newest segment without a scan, if the log was closed cleanly, and mark, index, size and last frame agree."""
    if mark is None or not mark.clean or mark.segment != name.first_lsn:
        return None
    try:
        index_file = place.files.open(place.path(name.index))
    except FileNotFoundError:
        return None
    try:
        footer = read_footer(index_file)
        if (
            footer is None
            or footer.first_lsn != name.first_lsn
            or footer.last_lsn != mark.durable_lsn
            or not (footer.segment_bytes == mark.position == file.size())
        ):
            return None
        index = load_active(index_file, footer)
    finally:
        index_file.close()
    if index is None:
        return None
    last = index.place_of(footer.last_lsn)
    if last is None:
        chain = opening.chain
    else:
        try:
            chain = chain_value(*read_frame(file, last.position, opening.salted))
        except CorruptData:
            # A scan says by name what is wrong.
            return None
    if chain != footer.chain:
        return None
    return NewestScan(Found.WHOLE, footer.end, mark.position, mark.position, mark.durable_lsn, 0, index, None)


@dataclass
class RecoveryReport:
    """What opening found and did.  The command line prints it; tests compare it."""

    verdict: str = ""
    owner: bool = False
    log_id: str = ""
    segments: int = 0
    frames_scanned: int = 0
    first_lsn: int = 0
    last_lsn: int = 0
    durable_lsn: int = 0
    epoch: int = 0
    bytes_cut: int = 0
    why_cut: str = ""
    bytes_rewritten: int = 0
    clean: bool = False
    indexes_rebuilt: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)
