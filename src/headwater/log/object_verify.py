"""What only a log on an object store can have wrong: its trim, its slots, and objects that are not there.

FINDING, NOTE as in verify.py, which looks at the frames themselves; an object's path in place of a segment's name.
PROMISE  It reads and changes nothing, and may run beside an owner.

| seen | said |
|---|---|
| no trim, but slots or segments | LostTrim: nothing else says where the log begins |
| a trim that does not match its checksum, or whose parts do not fit together | DamagedTrim |
| a slot that an owner's walk would halt at | DamagedSlot |
| a slot that is not there, though a later one shows that it was acknowledged | LostSlot |
| a segment that trim names, and one of its objects is not there, or of another size | LostSegmentObject |
| slots behind the end of the walk | note InFlight: never acknowledged, an owner at work or one that was killed |
| slots in the void behind a fence | note VoidSlot: of a fenced owner, never acknowledged |
| slots below the walk that are neither kept nor a fence; `.seg` and `.idx` that trim does not name | note Orphan |
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from enum import StrEnum

from headwater.errors import HeadwaterError
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.log.manifest import KeptSegment, Manifest
from headwater.log.names import sort_names
from headwater.log.object_look import Asking, SeenLog, SlotPlaces, name_of
from headwater.log.segment import opening_of
from headwater.log.slots import TRIM, is_slot_name, read_slot, slot_name
from headwater.log.verify import Finding


class ObjectFinding(StrEnum):
    LOST_TRIM = "LostTrim"
    DAMAGED_TRIM = "DamagedTrim"
    DAMAGED_SLOT = "DamagedSlot"
    LOST_SLOT = "LostSlot"
    LOST_OBJECT = "LostSegmentObject"


class ObjectNote(StrEnum):
    IN_FLIGHT = "InFlight"
    VOID_SLOT = "VoidSlot"
    ORPHAN = "Orphan"


def findings_of(seen: SeenLog) -> list[Finding]:
    """What no crash and no fenced owner leaves."""
    return list(_findings(seen))


def _findings(seen: SeenLog) -> Iterator[Finding]:
    manifest = seen.manifest
    if manifest is None:
        names = sort_names(list(seen.sizes))
        if seen.trim_damage:
            yield _finding(seen, ObjectFinding.DAMAGED_TRIM, seen.trim_damage, TRIM)
        elif names.segments or any(map(is_slot_name, seen.sizes)):
            yield _finding(seen, ObjectFinding.LOST_TRIM, "nothing says where the log begins, and who owns it", TRIM)
        return
    yield from _of_trim(seen, manifest)
    if seen.broken is not None:
        yield _finding(seen, ObjectFinding.DAMAGED_SLOT, seen.broken.message, slot_name(seen.broken_at))
    for each in seen.slots:
        if each.slot is None and each.number != seen.broken_at:
            yield _finding(seen, ObjectFinding.DAMAGED_SLOT, each.damage, slot_name(each.number))
    for first, last in seen.lost:
        more = ", which are void if it was a fence" if last - first + 1 == manifest.window else ""
        rest = f"; nor are those up to {slot_name(last)}{more}" if last > first else ""
        detail = f"it was acknowledged, and is not there{rest}"
        yield _finding(seen, ObjectFinding.LOST_SLOT, detail, slot_name(first))


def _of_trim(seen: SeenLog, manifest: Manifest) -> Iterator[Finding]:
    following: KeptSegment | None = None
    for kept in reversed(manifest.segments):
        name = str(name_of(kept))
        missing = seen.missing(kept)
        if missing:
            lsns = (kept.first_lsn, kept.last_lsn)
            which = "it" if missing == [name] else f"{missing[0]}, in which it lies,"
            yield replace(
                _finding(seen, ObjectFinding.LOST_OBJECT, f"trim names it, and {which} is not there", name),
                first_lsn=lsns[0],
                last_lsn=lsns[1],
            )
        elif sum(piece.bytes for piece in seen.pieces_of(kept)) != kept.size:
            detail = f"trim says that it has {kept.size:,} bytes, and it has another size"
            yield _finding(seen, ObjectFinding.LOST_OBJECT, detail, name)
        after = following.first_lsn if following is not None else manifest.end.next_lsn
        chain = opening_of(following.opening).header.prev if following is not None else manifest.end.chain
        if (kept.end.next_lsn, kept.end.chain) != (after, chain):
            detail = f"what it says of {name} does not fit what comes after it"
            yield _finding(seen, ObjectFinding.DAMAGED_TRIM, detail, TRIM)
        following = kept


def notes_of(seen: SeenLog, objects: Asking) -> list[Finding]:
    """What a crash, a fenced owner or one at work may leave."""
    return [] if seen.manifest is None else list(_notes(seen, seen.manifest, objects))


def _notes(seen: SeenLog, manifest: Manifest, objects: Asking) -> Iterator[Finding]:
    kept = {piece.object for each in manifest.segments for piece in seen.pieces_of(each)}
    walked = {slot_name(each.number) for each in seen.slots}
    named = {name_of(each) for each in (*manifest.segments, *([manifest.base] if manifest.base is not None else []))}
    for name in sorted(seen.sizes):
        if is_slot_name(name) and name not in kept | walked:
            yield from _note_of_slot(seen, manifest, objects, name)
    listing = sort_names(list(seen.sizes))
    orphans = [str(each) for each in listing.segments if str(each) not in kept]
    orphans += [each.index for each in listing.indexes if each not in named]
    for name in sorted(orphans):
        yield _finding(
            seen, ObjectNote.ORPHAN, "trim does not name it: its owner deletes it, or has just made it", name
        )


def _note_of_slot(seen: SeenLog, manifest: Manifest, objects: Asking, name: str) -> Iterator[Finding]:
    number = int(name)
    if number >= seen.next_slot:
        detail = f"the log ends before slot {seen.next_slot}: an owner is at work, or this was never acknowledged"
        yield _finding(seen, ObjectNote.IN_FLIGHT, detail, name)
    elif number >= manifest.next:
        yield _finding(seen, ObjectNote.VOID_SLOT, "left by an owner that was fenced; never acknowledged", name)
    elif not _is_fence(seen, objects, name):
        yield _finding(
            seen, ObjectNote.ORPHAN, "its rows are in a segment, or were let go of: its owner deletes it", name
        )


def _is_fence(seen: SeenLog, objects: Asking, name: str) -> bool:
    """A fence is never deleted, however old it is."""
    try:
        return read_slot(int(name), objects.get_range(f"{seen.directory}/{name}", 0, SEGMENT_FRAME_BYTES)).is_fence
    except FileNotFoundError:
        return True  # its owner has deleted it meanwhile: nothing is left to say
    except HeadwaterError:
        return False


def with_slot(finding: Finding, places: Mapping[str, SlotPlaces]) -> Finding:
    """A finding of verify.py, with the slot in which it lies: that is what can be put back."""
    directory, _, name = finding.segment.rpartition("/")
    there = places.get(directory or "log")
    slot = there.at(name, finding.position) if there is not None else None
    return finding if slot is None else replace(finding, detail=f"{finding.detail} (in slot {slot_name(slot)})")


def _finding(seen: SeenLog, name: str, detail: str, object_: str) -> Finding:
    return Finding(name, detail, f"{seen.directory}/{object_}")
