"""What can be wrong with a log on an object store alone: each kind of damage has a name, and nothing legal has one."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from headwater.log.chain import ChainEnd
from headwater.log.manifest import pack_manifest
from headwater.log.object_files import LogsAsFiles
from headwater.log.object_look import SeenLog, SlotPlaces, look
from headwater.log.object_verify import ObjectFinding, ObjectNote, findings_of, notes_of, with_slot
from headwater.log.slots import slot_name
from headwater.log.verify import FindingName, verify_log
from headwater.storage.simulated_store import SimulatedStore
from tests.unit.log.slot_logs import SlotLog, asking, bucket


def made(*, merged: bool = True) -> tuple[SimulatedStore, SlotLog]:
    """One segment that trim names, and one on the walk: a commit, a second owner's fence, three commits."""
    store = SimulatedStore()
    log = SlotLog(store)
    log.fence()
    log.commit(2)
    log.seal(merged=merged)
    log.commit(1)
    log.fence()
    for _ in range(3):
        log.commit(1)
    return store, log


def seen_in(store: SimulatedStore) -> SeenLog:
    return look(asking(store), "log")


def found(store: SimulatedStore) -> list[tuple[str, str]]:
    return [(each.name, each.segment) for each in findings_of(seen_in(store))]


def noted(store: SimulatedStore) -> list[tuple[str, str]]:
    return [(each.name, each.segment) for each in notes_of(seen_in(store), asking(store))]


def of_frames(store: SimulatedStore) -> list[str]:
    return [each.name for each in verify_log(LogsAsFiles(bucket(store), asking(store)).as_files(), "log").findings]


def path(slot: int) -> str:
    return f"log/{slot_name(slot)}"


@pytest.mark.parametrize("merged", [True, False])
def test_a_healthy_log_has_neither_findings_nor_notes(merged: bool) -> None:
    store, _ = made(merged=merged)

    assert (found(store), noted(store), of_frames(store)) == ([], [], [])


def test_a_prefix_with_nothing_in_it_is_no_finding() -> None:
    assert found(SimulatedStore()) == noted(SimulatedStore()) == []


def test_without_trim_nothing_says_where_the_log_begins() -> None:
    store, _ = made()
    store.delete("log/trim")

    assert found(store) == [(ObjectFinding.LOST_TRIM, "log/trim")]
    assert noted(store) == []


@pytest.mark.parametrize("how", ["a bit", "not JSON", "a later format"])
def test_a_trim_that_is_not_what_was_written_is_damaged(how: str) -> None:
    store, _ = made()
    content = store.contents("log/trim")
    if how == "a bit":
        store.put("log/trim", content.replace(b'"next":6', b'"next":7'))
        assert store.contents("log/trim") != content
    elif how == "not JSON":
        store.put("log/trim", b"\x00")
    else:
        store.put("log/trim", json.dumps({**json.loads(content), "crc": 1}).encode())

    assert found(store) == [(ObjectFinding.DAMAGED_TRIM, "log/trim")]


def test_a_trim_whose_parts_do_not_fit_together_is_damaged() -> None:
    store, log = made()
    kept = log.manifest.segments[0]
    wrong = replace(kept, end=ChainEnd(kept.end.next_lsn, 7, kept.end.epoch, kept.end.append_time_us))
    store.put("log/trim", pack_manifest(replace(log.manifest, segments=(wrong,))))

    assert found(store) == [(ObjectFinding.DAMAGED_TRIM, "log/trim")]


def test_a_kept_segment_must_fit_the_one_after_it() -> None:
    store, log = made()
    log.seal()
    assert found(store) == []
    first, second = log.manifest.segments
    wrong = replace(first, end=replace(first.end, next_lsn=first.end.next_lsn + 1))
    store.put("log/trim", pack_manifest(replace(log.manifest, segments=(wrong, second))))

    assert found(store) == [(ObjectFinding.DAMAGED_TRIM, "log/trim")]


@pytest.mark.parametrize("at", [40, 300], ids=["the envelope", "a frame"])
def test_a_bit_that_fell_over_in_a_slot_is_named_with_its_slot(at: int) -> None:
    store, log = made()
    slot = log.next_slot - 2
    store.flip_bit(path(slot), 8 * at)

    assert found(store) == [(ObjectFinding.DAMAGED_SLOT, path(slot))]
    assert of_frames(store) == ([] if at == 40 else [FindingName.DAMAGED_FRAME])


def test_damage_in_the_last_slot_is_no_torn_tail() -> None:
    store, log = made()
    store.flip_bit(path(log.next_slot - 1), 8 * 300)

    files = LogsAsFiles(bucket(store), asking(store)).as_files()
    report = verify_log(files, "log")

    assert [each.name for each in report.findings] == [FindingName.DAMAGED_FRAME]
    assert report.notes == []


def test_every_damaged_slot_is_named() -> None:
    store, log = made()
    slots = [log.next_slot - 3, log.next_slot - 1]
    for slot in slots:
        store.flip_bit(path(slot), 8 * 40)

    assert found(store) == [(ObjectFinding.DAMAGED_SLOT, path(slot)) for slot in slots]


def test_a_damaged_fence_does_not_make_its_void_slots_lost() -> None:
    store, log = made()
    fence = log.next_slot - 3 - 4
    store.flip_bit(path(fence), 8 * 40)

    assert found(store) == [(ObjectFinding.DAMAGED_SLOT, path(fence))]


def test_a_segment_whose_first_slot_is_damaged_is_still_told_apart() -> None:
    store = SimulatedStore()
    log = SlotLog(store)
    log.fence()
    log.commit(1)
    log.roll()
    opened = log.commit(1)
    log.commit(1)
    store.flip_bit(path(opened), 8 * 40)

    seen = seen_in(store)

    assert [str(run.name) for run in seen.runs] == ["00000000000000000001.0.seg", "00000000000000000003.0.seg"]
    assert FindingName.HEADLESS_SEGMENT in of_frames(store)


def test_the_first_slot_of_all_may_be_damaged_too() -> None:
    store = SimulatedStore()
    log = SlotLog(store)
    first = log.fence()
    log.commit(1)
    store.flip_bit(path(first), 8 * 40)

    assert found(store) == [(ObjectFinding.DAMAGED_SLOT, path(first))]
    assert of_frames(store) == [FindingName.HEADLESS_SEGMENT]


def test_a_slot_of_another_log_is_damage() -> None:
    store, log = made()
    slot = log.next_slot - 1
    other = SimulatedStore()
    stranger = SlotLog(other)
    stranger.epoch = 9
    while stranger.next_slot <= slot:
        stranger.commit(1)
    store.put(path(slot), other.contents(path(slot)))

    assert found(store) == [(ObjectFinding.DAMAGED_SLOT, path(slot))]


def test_slots_that_are_missing_in_the_middle_are_lost() -> None:
    store, log = made()
    for slot in (log.next_slot - 3, log.next_slot - 2):
        store.delete(path(slot))

    (finding,) = findings_of(seen_in(store))

    assert (finding.name, finding.segment) == (ObjectFinding.LOST_SLOT, path(log.next_slot - 3))
    assert slot_name(log.next_slot - 2) in finding.detail
    assert of_frames(store) == [FindingName.BROKEN_CHAIN]


def test_a_fence_that_is_gone_is_told_apart_from_the_slots_that_it_made_void() -> None:
    store, log = made()
    fence = log.next_slot - 3 - 4
    store.delete(path(fence))

    (finding,) = findings_of(seen_in(store))

    assert (finding.name, finding.segment) == (ObjectFinding.LOST_SLOT, path(fence))
    assert "which are void if it was a fence" in finding.detail


@pytest.mark.parametrize("merged", [True, False])
def test_a_segment_whose_object_is_gone_is_lost(merged: bool) -> None:
    store, _ = made(merged=merged)
    name = "log/00000000000000000001.0.seg"
    store.delete(name if merged else path(5))

    (finding,) = findings_of(seen_in(store))

    assert (finding.name, finding.segment) == (ObjectFinding.LOST_OBJECT, name)
    assert (finding.first_lsn, finding.last_lsn) == (1, 3)
    assert of_frames(store) == []  # it begins later: whether that may be is the journal's to say
    files = LogsAsFiles(bucket(store), asking(store)).as_files()
    assert [each.name for each in verify_log(files, "log", log_start=1).findings] == [FindingName.LOST_SEGMENT]


def test_a_segment_of_another_size_is_lost() -> None:
    store, _ = made()
    store.put("log/00000000000000000001.0.seg", store.contents("log/00000000000000000001.0.seg")[:-128])

    assert found(store) == [(ObjectFinding.LOST_OBJECT, "log/00000000000000000001.0.seg")]


def test_what_fenced_owners_and_crashes_leave_is_noted() -> None:
    store, log = made()
    store.put(path(3), b"void")  # below trim, and no fence
    store.put(path(log.next_slot - 5), b"void")  # behind the fence of the walk
    ahead = log.in_flight(1, durable_lsn=log.last_lsn)
    store.put("log/00000000000000000001.1.seg", b"")
    store.put("log/00000000000000000099.0.idx", b"")

    assert found(store) == []
    assert noted(store) == [
        (ObjectNote.ORPHAN, path(3)),
        (ObjectNote.VOID_SLOT, path(log.next_slot - 5)),
        (ObjectNote.IN_FLIGHT, path(ahead)),
        (ObjectNote.ORPHAN, "log/00000000000000000001.1.seg"),
        (ObjectNote.ORPHAN, "log/00000000000000000099.0.idx"),
    ]


def test_a_slot_that_its_owner_deletes_meanwhile_is_no_orphan() -> None:
    store, _ = made()
    store.put(path(3), b"void")
    seen = seen_in(store)
    store.delete(path(3))

    assert notes_of(seen, asking(store)) == []


def test_the_index_of_what_was_let_go_of_last_is_no_orphan() -> None:
    store, log = made()
    base = log.manifest.segments[0]
    store.put("log/trim", pack_manifest(replace(log.manifest, segments=(), base=base)))
    store.delete("log/00000000000000000001.0.seg")

    assert (found(store), noted(store)) == ([], [])


def test_a_position_of_a_segment_is_told_with_its_slot() -> None:
    store, log = made()
    seen = seen_in(store)
    segment = str(seen.runs[-1].name)
    places = SlotPlaces(seen)

    assert places.at(segment, 0) == log.next_slot - 8
    assert places.at(segment, 512 + 256) == log.next_slot - 3
    assert places.at(segment, 1 << 30) is places.at("00000000000000000001.0.seg", 0) is None


def test_a_finding_in_a_slot_names_the_slot() -> None:
    store, log = made()
    slot = log.next_slot - 2
    store.flip_bit(path(slot), 8 * 300)
    files = LogsAsFiles(bucket(store), asking(store))
    (finding,) = verify_log(files.as_files(), "log").findings
    places = {"log": SlotPlaces(files.look("log"))}

    assert with_slot(finding, places).detail == f"{finding.detail} (in slot {slot_name(slot)})"
    assert with_slot(replace(finding, segment="journal/x"), places).detail == finding.detail
    assert with_slot(replace(finding, position=1 << 30), places).detail == finding.detail
