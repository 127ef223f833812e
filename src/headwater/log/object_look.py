"""A log on an object store, looked at from outside: what its trim and its slots say, healthy or not.

PROMISE  It reads and changes nothing, and may run beside an owner: a look counts only if trim is the same afterwards.
         It goes on behind damage, so that one finding does not hide the next.
HELD     The slots of the walk are kept in memory: about one segment.
NOT HERE What is wrong: object_verify.py.  How an owner reads: walk.py and the device.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from headwater.errors import HeadwaterError, Unavailable
from headwater.frames.frame import NoFrame, decode_header
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.log.manifest import KeptSegment, Manifest, unpack_manifest
from headwater.log.names import SegmentName
from headwater.log.slots import TRIM, Slot, follows, is_slot_name, read_slot, slot_name
from headwater.log.walk import Walk
from headwater.storage.objects import Found, Listed, Objects
from headwater.storage.store_patience import Patience

LOOKS = 5
"""How often a look begins anew because an owner has moved trim."""


@dataclass(frozen=True)
class SeenSlot:
    """A slot that the walk has come to."""

    number: int
    data: bytes
    slot: Slot | None
    damage: str = ""
    """Why it cannot be read, where it cannot."""


@dataclass(frozen=True)
class Piece:
    """What one object holds of a segment."""

    object: str
    skipped: int
    """Bytes of the object before it: an envelope."""
    bytes: int


@dataclass
class SeenRun:
    """A segment that lies in slots of the walk."""

    name: SegmentName
    slots: list[SeenSlot]

    @property
    def pieces(self) -> list[Piece]:
        return _pieces_of((each.number, len(each.data)) for each in self.slots)


@dataclass
class SeenLog:
    """One log, as a look has found it."""

    directory: str
    sizes: dict[str, int] = field(default_factory=dict)
    """Every name of the directory, as it was listed, and its bytes."""
    manifest: Manifest | None = None
    trim_damage: str = ""
    """Why there is no manifest, where there is a trim object."""
    runs: list[SeenRun] = field(default_factory=list)
    lost: list[tuple[int, int]] = field(default_factory=list)
    """Slots, from and to, that are not there, although later ones say that they were acknowledged."""
    next_slot: int = 1
    """The first that is not there, and may be."""
    broken: HeadwaterError | None = None
    """Where an owner's walk would end by name."""
    broken_at: int = 0
    durable_lsn: int = 0
    epoch: int = 0

    @property
    def slots(self) -> list[SeenSlot]:
        return [slot for run in self.runs for slot in run.slots]

    @property
    def kept(self) -> tuple[KeptSegment, ...]:
        return self.manifest.segments if self.manifest is not None else ()

    def segments(self) -> dict[str, list[Piece]]:
        """What holds each segment, by its name, in order."""
        found = {str(name_of(each)): self.pieces_of(each) for each in self.kept}
        return found | {str(run.name): run.pieces for run in self.runs}

    def pieces_of(self, kept: KeptSegment) -> list[Piece]:
        if kept.slots:
            return _pieces_of(kept.slots)
        name = str(name_of(kept))
        return [Piece(name, 0, self.sizes.get(name, 0))]

    def missing(self, kept: KeptSegment) -> list[str]:
        """The objects of a kept segment that are not there."""
        return [piece.object for piece in self.pieces_of(kept) if piece.object not in self.sizes]


class SlotPlaces:
    """Which slot holds a position of a segment."""

    def __init__(self, seen: SeenLog) -> None:
        self._places: dict[str, tuple[list[int], list[int]]] = {}
        for name, pieces in seen.segments().items():
            if all(is_slot_name(piece.object) for piece in pieces):
                ends = list(accumulate(piece.bytes for piece in pieces))
                self._places[name] = ends, [int(piece.object) for piece in pieces]

    def at(self, segment: str, position: int) -> int | None:
        """Nothing where the segment is one object, or ends before."""
        ends, slots = self._places.get(segment, ([], []))
        at = bisect_right(ends, position)
        return slots[at] if at < len(slots) else None


def name_of(kept: KeptSegment) -> SegmentName:
    return SegmentName(kept.first_lsn, kept.generation)


def _pieces_of(slots: Iterable[tuple[int, int]]) -> list[Piece]:
    """The slot that opens a segment is its beginning; of the others the first bytes are only an envelope."""
    found: list[Piece] = []
    for number, size in slots:
        skipped = SEGMENT_FRAME_BYTES if found else 0
        found.append(Piece(slot_name(number), skipped, max(size - skipped, 0)))
    return found


class Asking:
    """Reads of a store that are sent again where it says nothing, for as long as there is patience."""

    def __init__(self, objects: Objects, patience: Patience) -> None:
        self._objects = objects
        self._ask = patience.ask

    def get(self, name: str) -> Found:
        return self._ask(lambda: self._objects.get(name))

    def get_range(self, name: str, start: int, size: int) -> bytes:
        return self._ask(lambda: self._objects.get_range(name, start, size))

    def size(self, name: str) -> int | None:
        try:
            return self._ask(lambda: self._objects.size(name))
        except FileNotFoundError:
            return None

    def list_after(self, prefix: str, after: str) -> list[Listed]:
        return self._ask(lambda: self._objects.list_after(prefix, after))


def look(objects: Asking, directory: str, held: dict[int, bytes] | None = None) -> SeenLog:
    """One log as it is now.  `held` keeps what was read of slots, for the next look: a slot never changes."""
    held = {} if held is None else held
    for _ in range(LOOKS):
        seen, etag = _look(objects, directory, held)
        if _trim(objects, directory)[1] == etag:
            return seen
    raise Unavailable("the log's owner changes it faster than it can be read: try again", directory=directory)


def _trim(objects: Asking, directory: str) -> tuple[bytes, str]:
    try:
        found = objects.get(f"{directory}/{TRIM}")
    except FileNotFoundError:
        return b"", ""
    return found.data, found.etag


def _look(objects: Asking, directory: str, held: dict[int, bytes]) -> tuple[SeenLog, str]:
    data, etag = _trim(objects, directory)
    seen = SeenLog(directory)
    # The list before the walk: a slot that is missing on the walk, and of which a listed one says that it was there,
    # is not only late.
    seen.sizes = dict(_names(objects, directory))
    try:
        seen.manifest = unpack_manifest(data) if etag else None
    except HeadwaterError as error:
        seen.trim_damage = error.message
    if seen.manifest is not None:
        for name in {each for kept in seen.kept for each in seen.missing(kept)}:
            # A list may be behind; nothing is said to be lost by a list alone.
            size = objects.size(f"{directory}/{name}")
            if size is not None:
                seen.sizes[name] = size
        _Looking(objects, seen, seen.manifest, held).run()
    return seen, etag


def _names(objects: Asking, directory: str) -> Iterator[tuple[str, int]]:
    prefix, after = f"{directory}/", ""
    while page := objects.list_after(prefix, after):
        for each in page:
            name = each.name.removeprefix(prefix)
            if "/" not in name:
                yield name, each.size
        after = page[-1].name


class _Looking:
    """The walk over the slots of one log that does not end at damage."""

    def __init__(self, objects: Asking, seen: SeenLog, manifest: Manifest, held: dict[int, bytes]) -> None:
        self._objects = objects
        self._seen = seen
        self._manifest = manifest
        self._held = held
        self._listed = sorted(int(name) for name in seen.sizes if is_slot_name(name))
        self._walk = Walk(manifest, "", {})

    def run(self) -> None:
        seen, manifest = self._seen, self._manifest
        found: list[SeenSlot] = []
        number = manifest.next
        while True:
            data = self._get(number)
            if data is not None:
                found.append(self._slot(number, data))
                number = self._following(found[-1])
                continue
            resumed = self._first_after_loss(number)
            if resumed is None:
                break
            seen.lost.append((number, resumed - 1))
            self._break(number, None)
            number = resumed
        seen.next_slot = number
        seen.runs = _runs(found, manifest)
        seen.durable_lsn = max(self._walk.end.next_lsn - 1, *(_last_lsn(each) for each in found[-1:]), 0)
        if found and seen.broken is not None:
            # What the last slot holds was acknowledged, whether or not it can be read.
            seen.durable_lsn = max(seen.durable_lsn, self._walk.end.next_lsn)
        seen.epoch = self._walk.epoch
        self._forget(found)

    def _get(self, number: int) -> bytes | None:
        if number not in self._held:
            try:
                self._held[number] = self._objects.get(self._path(number)).data
            except FileNotFoundError:
                return None
        return self._held[number]

    def _path(self, number: int) -> str:
        return f"{self._seen.directory}/{slot_name(number)}"

    def _forget(self, found: list[SeenSlot]) -> None:
        """What was absorbed since the last look need not be held any more."""
        for number in self._held.keys() - {each.number for each in found}:
            del self._held[number]

    def _slot(self, number: int, data: bytes) -> SeenSlot:
        try:
            slot = read_slot(number, data)
        except HeadwaterError as error:
            self._break(number, error)
            return SeenSlot(number, data, None, error.message)
        if self._seen.broken is None and not self._seen.lost:
            try:
                self._walk.add(data)
            except HeadwaterError as error:
                self._break(number, error)
        return SeenSlot(number, data, slot)

    def _break(self, number: int, error: HeadwaterError | None) -> None:
        if self._seen.broken is None and error is not None:
            self._seen.broken, self._seen.broken_at = error, number

    def _following(self, seen: SeenSlot) -> int:
        window = self._manifest.window
        if seen.slot is not None:
            return follows(seen.slot, window)
        # It does not say whether it is a fence; where the next one is a window away, it was.
        following = next((number for number in self._listed if number > seen.number), 0)
        return seen.number + window if following == seen.number + window else seen.number + 1

    def _first_after_loss(self, absent: int) -> int | None:
        """The next slot that is there, where it or a later one shows that the absent one was acknowledged."""
        later = [number for number in self._listed if number > absent and self._get(number) is not None]
        return later[0] if any(self._shows_loss(absent, number) for number in later) else None

    def _shows_loss(self, absent: int, later: int) -> bool:
        """An owner is at most a window ahead of what it knows to be there, and says in each frame how far that goes; a
        fence is put where the walk ends."""
        if later >= absent + self._manifest.window:
            return True
        try:
            slot = read_slot(later, self._held[later])
        except HeadwaterError:
            return False
        header = decode_header(slot.frames, 0, slot.opening.salted)
        known = 0 if isinstance(header, NoFrame) else header.durable_lsn
        return slot.is_fence or known >= self._walk.end.next_lsn


def _runs(found: list[SeenSlot], manifest: Manifest) -> list[SeenRun]:
    """The slots as segments.  One that cannot be read goes on with the segment before, unless the next says
    otherwise."""
    runs: list[SeenRun] = []
    for at, each in enumerate(found):
        begins = _begins(found, at, runs[-1].name.first_lsn if runs else 0, manifest.end.next_lsn)
        if begins is not None or not runs:
            runs.append(SeenRun(begins or SegmentName(manifest.end.next_lsn, 0), [each]))
        else:
            runs[-1].slots.append(each)
    return runs


def _begins(found: list[SeenSlot], at: int, current: int, otherwise: int) -> SegmentName | None:
    """The segment that a slot opens; nothing where it goes on."""
    slot = found[at].slot
    if slot is not None:
        return SegmentName(slot.header.first_lsn, slot.header.generation) if slot.opens else None
    following = next((each.slot for each in found[at + 1 :] if each.slot is not None), None)
    if following is None or following.opens or following.header.previous_first_lsn in (current, otherwise):
        return None
    return SegmentName(following.header.previous_first_lsn, 0)


def _last_lsn(seen: SeenSlot) -> int:
    """The last LSN of a slot, as far as its headers can be read; 0 where they cannot."""
    if seen.slot is None:
        return 0
    last, at = seen.slot.header.first_lsn - 1, 0
    while not isinstance(header := decode_header(seen.slot.frames, at, seen.slot.opening.salted), NoFrame):
        last = header.lsn
        at += header.frame_size
    return last
