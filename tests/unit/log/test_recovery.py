"""What an owner finds and does: the table is complete, and each verdict comes from real bytes (G5, G6, V9).

A log is written, its files are changed as a crash or rot would change them, and the next owner is asked.  Besides its
verdict it must leave what halts untouched, and what it cut must not come back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headwater.errors import DamagedLog, DuplicateLsn, ForeignLog, Halted, LostSegment, UnknownFormat
from headwater.frames.frame import NO_SALT_CRC, Kind, NoFrame, decode_header, pack_header, reseal_header
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES, pack_segment_frame
from headwater.log.chain import ChainBreak
from headwater.log.drafts import Draft
from headwater.log.file_device import FileDevice
from headwater.log.mark import SLOT_POSITIONS, pack_slot
from headwater.log.names import SegmentName
from headwater.log.recovery import CASES, Evidence, Found, Verdict, judge
from tests.formats.segments import segment_header
from tests.unit.log.device_world import (
    DIRECTORY,
    MARK_PATH,
    World,
    commit,
    index_path,
    lsns,
    path,
    rows,
    three_segments,
)

# The table ------------------------------------------------------------------------------------------------------------

RELATIONS = {
    "G < D": (4, 5),
    "G = D": (5, 5),
    "G > D": (6, 5),
    "D = 0": (6, 0),
    "G = D = 0": (0, 0),
    "G = 0 < D": (0, 5),
}


@pytest.mark.parametrize("found", Found, ids=lambda found: found.name)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("header_needed", [False, True], ids=["header not needed", "header needed"])
@pytest.mark.parametrize("log_start", [1, 2, 1000])
def test_every_combination_of_evidence_meets_exactly_one_case(
    found: Found, relation: str, header_needed: bool, log_start: int
) -> None:
    good_lsn, durable_lsn = RELATIONS[relation]
    evidence = Evidence(found, good_lsn, durable_lsn, header_needed, log_start)

    met = [(name, verdict) for name, fits, verdict in CASES if fits(evidence)]

    assert len(met) == 1, met
    assert judge(evidence) is met[0][1]


def test_every_case_of_the_table_is_met_by_some_evidence_and_every_verdict_is_given() -> None:
    evidence = [
        Evidence(found, *relation, header_needed, log_start)
        for found, relation, header_needed, log_start in itertools.product(
            Found, RELATIONS.values(), [False, True], [1, 2]
        )
    ]

    met = {name for each in evidence for name, fits, _ in CASES if fits(each)}

    assert met == {name for name, _, _ in CASES}
    assert {judge(each) for each in evidence} == set(Verdict)


def test_only_bytes_that_nobody_was_told_of_are_ever_cut_or_removed() -> None:
    for found, (good, durable), needed in itertools.product(Found, RELATIONS.values(), [False, True]):
        verdict = judge(Evidence(found, good, durable, needed, 1))

        if good < durable:
            assert verdict in (Verdict.LOST, Verdict.UNKNOWN, Verdict.DAMAGED)
        if verdict in (Verdict.CUT, Verdict.REMOVE):
            assert good >= durable


def test_a_table_with_a_hole_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.log.recovery.CASES", CASES[1:])

    with pytest.raises(AssertionError):
        judge(Evidence(Found.NOTHING, 0, 0, False, 1))


# Support --------------------------------------------------------------------------------------------------------------


def two_commits(world: World) -> FileDevice:
    """An owner with two commits in its one segment: LSN 1, and a write of LSNs 2 and 3."""
    device = world.owner()
    commit(device, [rows(2)])
    commit(device, [rows(1), rows(4, topic=2)])
    return device


def halts(world: World, kind: type[Halted]) -> Halted:
    """The next owner halts so, and changes nothing."""
    before = world.contents()
    device = world.device()
    with pytest.raises(kind) as found:
        device.claim()
    assert world.contents() == before
    assert not device.claimed
    # The lock is free: the next try gets as far as this one.
    with pytest.raises(kind):
        world.device().claim()
    return found.value


def is_kept_cut(world: World, device: FileDevice, expected: list[int]) -> None:
    """What was recovered is this, and recovering it again changes nothing (V8)."""
    assert lsns(device) == expected
    commit(device, [rows(1, body=b"after the recovery")])
    device.close()
    again = world.owner()
    assert again.report.bytes_cut == 0
    assert lsns(again) == [*expected, len(expected) + 1]


# A new log, and one that is gone --------------------------------------------------------------------------------------


def test_an_empty_directory_becomes_a_new_log() -> None:
    world = World()

    device = world.owner()

    assert device.report.verdict == Verdict.START.value
    assert (device.report.segments, device.report.first_lsn, device.report.last_lsn) == (1, 1, 0)
    assert (device.report.epoch, device.report.owner) == (1, True)
    assert str(SegmentName(1, 0)) in world.names()
    assert commit(device, [rows()]) == 1


def test_a_log_whose_segments_are_all_gone_is_lost_and_never_begun_anew() -> None:
    world = World()
    two_commits(world).close()
    for name in world.names():
        if name.endswith((".seg", ".idx")):
            world.remove(f"{DIRECTORY}/{name}")

    halt = halts(world, LostSegment)

    assert halt.facts == {"first_lsn": 1, "last_lsn": 3}
    with pytest.raises(LostSegment):
        world.reader()


def test_a_log_that_began_later_and_has_no_segment_is_lost_even_without_a_mark() -> None:
    world = World()
    world.files.make_directory(DIRECTORY)
    world.log_start = 17

    halt = halts(world, LostSegment)

    assert halt.facts == {"first_lsn": 17, "last_lsn": 17}
    with pytest.raises(LostSegment):
        world.reader()


def test_a_claim_that_wrote_nothing_and_lost_its_segment_is_a_new_log() -> None:
    world = World()
    world.owner().close()
    world.remove(path(1))

    reader = world.reader()
    device = world.owner()

    assert reader.durable() == 0

    assert device.report.verdict == Verdict.START.value
    assert device.report.epoch == 2
    assert commit(device, [rows()]) == 1


# Unknown formats ------------------------------------------------------------------------------------------------------


def test_a_newest_segment_with_an_unknown_feature_is_refused_by_name() -> None:
    world = World()
    world.files.put(path(1), pack_segment_frame(segment_header(incompatible_features=4, writer_version="headwater 9")))

    halt = halts(world, UnknownFormat)

    assert "headwater 9" in halt.message
    with pytest.raises(UnknownFormat):
        world.reader()


def test_a_first_frame_that_is_whole_and_not_a_segments_is_of_an_unknown_format_not_a_stillborn_roll() -> None:
    world = World()
    device = two_commits(world)
    device.roll()
    device.close()
    header = decode_header(memoryview(world.files.contents(path(4))), 0, NO_SALT_CRC)
    assert not isinstance(header, NoFrame)
    odd = reseal_header(header._replace(body_size=0, padding_size=0), NO_SALT_CRC)
    world.files.put(path(4), pack_header(odd))

    halt = halts(world, UnknownFormat)

    assert NoFrame.RULE.value in halt.message
    assert halt.facts == {"segment": str(SegmentName(4, 0)), "position": 0}


@pytest.mark.parametrize(("changes", "why"), [({"kind": 100}, NoFrame.KIND), ({"codec": 77}, NoFrame.RULE)])
def test_a_whole_frame_of_an_unknown_kind_or_rule_is_refused_and_never_cut(
    changes: dict[str, Any], why: NoFrame
) -> None:
    world = World()
    device = two_commits(world)
    mark = world.files.contents(MARK_PATH)
    commit(device, [rows(1, body=b"of a later version")])
    world = world.restarted()
    world.files.put(MARK_PATH, mark)
    at = world.frame_positions()[-1]
    odd = world.header_at(at)._replace(**changes)
    world.change(path(1), at, pack_header(reseal_header(odd, world.salted())))

    halt = halts(world, UnknownFormat)

    assert why.value in halt.message
    assert halt.facts == {"segment": str(SegmentName(1, 0)), "position": at}


# Stillborn rolls ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "left_over",
    [b"", bytes(100), bytes(256), b"\xc8HWF" + b"x" * 100, pack_segment_frame(segment_header())[:255]],
    ids=["empty", "zeroes", "zeroes of its size", "a partial header", "all but the last byte"],
)
def test_a_roll_that_was_never_finished_is_removed(left_over: bytes) -> None:
    world = World()
    two_commits(world)
    world = world.restarted()
    world.files.put(path(4), left_over)

    device = world.owner()

    assert device.report.removed == [str(SegmentName(4, 0))]
    assert str(SegmentName(4, 0)) not in world.names()
    is_kept_cut(world, device, [1, 2, 3])


def test_a_first_segment_that_was_never_finished_is_removed_and_the_log_is_new() -> None:
    world = World()
    world.files.put(path(1), b"\xc8HWF")

    device = world.owner()

    assert device.report.verdict == Verdict.START.value
    assert device.report.removed == [str(SegmentName(1, 0))]
    assert commit(device, [rows()]) == 1


def test_a_finished_roll_without_a_frame_is_kept() -> None:
    world = World()
    device = two_commits(world)
    device.roll()

    device = world.restarted().owner()

    assert device.report.verdict == Verdict.KEEP.value
    assert [info.first_lsn for info in device.segments()] == [1, 4]
    assert commit(device, [rows()]) == 4


def test_the_header_of_a_removed_file_in_the_blocks_of_a_new_one_is_no_header() -> None:
    world = World()
    two_commits(world)
    world = world.restarted()
    world.files.put(path(4), pack_segment_frame(segment_header(first_lsn=4, salt=b"earlier!")))

    device = world.owner()

    assert device.report.removed == [str(SegmentName(4, 0))]
    is_kept_cut(world, device, [1, 2, 3])


def test_a_newest_segment_without_a_header_below_what_was_durable_is_damage() -> None:
    world = World()
    device = two_commits(world)
    device.roll()
    commit(device, [rows(1)])
    world = world.restarted()
    world.change(path(4), 0, b"xxxx")

    halt = halts(world, DamagedLog)

    assert halt.facts == {"segment": str(SegmentName(4, 0)), "first_lsn_missing": 4, "durable_lsn": 4}
    assert NoFrame.MAGIC.value in halt.message


def test_a_headless_file_longer_than_a_header_is_no_roll_even_if_no_mark_knows_of_it() -> None:
    world = World()
    device = two_commits(world)
    old_mark = world.files.contents(MARK_PATH)
    device.roll()
    commit(device, [rows(1)])
    world = world.restarted()
    world.files.put(MARK_PATH, old_mark)
    world.change(path(4), 0, b"xxxx")

    halt = halts(world, DamagedLog)

    assert halt.facts["segment"] == str(SegmentName(4, 0))


def test_the_only_segment_of_a_log_that_began_later_must_have_its_header() -> None:
    world = World()
    device = two_commits(world)
    device.roll()
    device.forget(device.next_lsn())
    device.close()
    world.log_start = 4
    assert [name for name in world.names() if name.endswith(".seg")] == [str(SegmentName(4, 0))]
    world.forget_the_mark()
    world.files.put(path(4), b"")

    halt = halts(world, DamagedLog)

    assert halt.facts["segment"] == str(SegmentName(4, 0))


# Intact ---------------------------------------------------------------------------------------------------------------


def test_a_killed_log_whose_last_commit_is_whole_loses_nothing() -> None:
    world = World()
    two_commits(world)

    device = world.restarted().owner()

    report = device.report
    assert report.verdict == Verdict.KEEP.value
    assert (report.frames_scanned, report.last_lsn, report.durable_lsn, report.epoch) == (3, 3, 3, 2)
    assert (report.bytes_cut, report.why_cut, report.clean) == (0, "", False)
    assert report.as_dict()["log_id"] == report.log_id != ""


def test_a_cleanly_closed_log_opens_without_a_scan() -> None:
    world = World()
    two_commits(world).close()

    device = world.owner()

    assert device.report.clean
    assert device.report.frames_scanned == 0
    assert device.report.bytes_rewritten == 0
    assert lsns(device) == [1, 2, 3]
    assert device.find(2, 0, 3) is not None
    is_kept_cut(world, device, [1, 2, 3])


def test_a_log_that_was_closed_before_its_first_frame_opens_without_a_scan() -> None:
    world = World()
    world.owner().close()

    device = world.owner()

    assert device.report.clean
    assert commit(device, [rows()]) == 1


@pytest.mark.parametrize("change", ["gone", "damaged", "footer damaged", "stale", "of another chain", "segment longer"])
def test_after_a_clean_close_the_index_is_trusted_only_if_everything_agrees(change: str) -> None:
    world = World()
    device = two_commits(world)
    device.close()
    saved = world.files.contents(index_path(1))
    if change == "gone":
        world.remove(index_path(1))
    elif change == "damaged":
        world.change(index_path(1), 0, b"\xff")
    elif change == "footer damaged":
        world.change(index_path(1), len(saved) - 1, b"\xff")
    elif change == "stale":
        device = world.owner()
        commit(device, [rows()])
        device.close()
        world.files.put(index_path(1), saved)
    elif change == "of another chain":
        owner = world.restarted().owner()
        data = owner.active_segment.opening.data
        index = owner.active_segment.loaded_index
        end = owner._owned().end
        end.chain ^= 1
        world.files.put(index_path(1), index.pack(data, end, owner.view.position, 0))  # type: ignore[union-attr]
    else:
        world.files.put(path(1), world.files.contents(path(1)) + bytes(128))

    expected = [1, 2, 3, 4] if change == "stale" else [1, 2, 3]
    reader = world.reader()
    device = world.owner()

    assert lsns(reader) == expected
    assert device.report.frames_scanned == len(expected)
    is_kept_cut(world, device, expected)


def test_after_a_clean_close_a_damaged_last_frame_is_found_without_a_scan_of_the_rest() -> None:
    world = World()
    two_commits(world).close()
    at = world.frame_positions()[-1]
    world.change(path(1), at + 130, b"\xff")

    halt = halts(world, DamagedLog)

    assert halt.facts["first_lsn_missing"] == 2
    with pytest.raises(DamagedLog):
        world.reader()


# Torn tails -----------------------------------------------------------------------------------------------------------


def torn(make: Callable[[bytes, int], bytes]) -> tuple[World, int]:
    """A log of LSNs 1 to 3 under a mark, and a fourth write behind it, changed as told."""
    world = World()
    two_commits(world)
    before = len(world.files.contents(path(1)))
    later = world.restarted()
    later_owner = later.owner()
    mark = later.files.contents(MARK_PATH)
    commit(later_owner, [rows(1, body=b"torn" * 100)])
    whole = later.files.contents(path(1))
    after = later.restarted()
    after.files.put(MARK_PATH, mark)
    after.files.put(path(1), make(whole, before))
    return after, before


def broken_at(byte: int) -> Callable[[bytes, int], bytes]:
    def make(data: bytes, start: int) -> bytes:
        changed = bytearray(data)
        changed[start + byte] ^= 0xFF
        return bytes(changed)

    return make


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda data, start: data[: start + 1], NoFrame.SHORT),
        (lambda data, start: data[: start + 127], NoFrame.SHORT),
        (lambda data, start: data[: start + 128], NoFrame.SHORT),
        (lambda data, _start: data[:-1], NoFrame.SHORT),
        (lambda data, start: data[:start] + bytes(len(data) - start), NoFrame.END),
        (lambda data, start: data[:start] + b"garbage!" * 64, NoFrame.MAGIC),
        (broken_at(5), NoFrame.HEADER_CRC),
        (broken_at(130), NoFrame.BODY_CRC),
        (broken_at(639), NoFrame.PADDING),
        (lambda data, start: data[:start] + data[256:start], ChainBreak.PREV),
        (lambda data, start: data[:start] + data[:256], ChainBreak.PREV),
    ],
    ids=["1 byte", "no whole header", "no body", "all but a byte", "zeroes", "garbage", "header", "body", "padding",
         "stale frames", "a segment header"],
)  # fmt: skip
def test_a_torn_tail_is_cut_whatever_it_looks_like(
    make: Callable[[bytes, int], bytes], why: NoFrame | ChainBreak
) -> None:
    world, size = torn(make)
    torn_size = len(world.files.contents(path(1)))

    device = world.owner()

    assert device.report.verdict == Verdict.CUT.value
    assert device.report.why_cut == why.value
    assert device.report.bytes_cut == torn_size - size
    assert len(world.files.contents(path(1))) == size
    is_kept_cut(world, device, [1, 2, 3])


def test_the_cut_of_a_torn_tail_is_synced_before_anything_is_written() -> None:
    world, size = torn(lambda data, start: data[: start + 200])
    world.files.calls.clear()

    world.owner()

    changes = [
        verb for verb, name in world.files.calls if name == path(1) and verb in ("truncate", "sync_all", "append")
    ]
    assert changes[:2] == ["truncate", "sync_all"]
    assert world.files.contents_on_disk(path(1)) == world.files.contents(path(1))
    assert len(world.files.contents(path(1))) == size


def test_a_whole_commit_behind_the_mark_is_kept_although_nobody_was_told() -> None:
    world, _ = torn(lambda data, _start: data)

    device = world.owner()

    assert device.report.verdict == Verdict.KEEP.value
    is_kept_cut(world, device, [1, 2, 3, 4])


@pytest.mark.parametrize("frames_left", [1, 2])
def test_a_write_that_is_incomplete_at_the_tail_is_cut_from_its_first_frame(frames_left: int) -> None:
    world = World()
    two_commits(world)
    mark = world.files.contents(MARK_PATH)
    later = world.restarted()
    commit(later.owner(), [rows(1, body=b"a"), rows(1, body=b"b"), rows(1, body=b"c")])
    at = later.frame_positions()[2 + frames_left]
    after = later.restarted()
    after.files.put(MARK_PATH, mark)
    after.cut(path(1), at + 256)

    device = after.owner()

    assert device.report.why_cut == "an unfinished write"
    assert device.report.bytes_cut == 256 * frames_left
    assert device.next_offsets() == {1 << 32: 3, 2 << 32: 4}
    is_kept_cut(after, device, [1, 2, 3])


def test_valid_frames_behind_a_tear_are_cut_with_it() -> None:
    world = World()
    two_commits(world)
    mark = world.files.contents(MARK_PATH)
    later = world.restarted()
    commit(later.owner(), [rows(1, body=b"a")], [rows(1, body=b"b")], [rows(1, body=b"c")])
    at = later.frame_positions()[3]
    after = later.restarted()
    after.files.put(MARK_PATH, mark)
    after.change(path(1), at, bytes(128))

    device = after.owner()

    assert device.report.bytes_cut == 3 * 256
    is_kept_cut(after, device, [1, 2, 3])


def test_a_stale_frame_of_an_earlier_epoch_behind_the_mark_is_cut() -> None:
    world = World()
    two_commits(world)
    size = len(world.files.contents(path(1)))
    killed = world.restarted()
    commit(killed.owner(), [rows(1, body=b"of the second life")])
    stale = killed.files.contents(path(1))[size:]
    # The second life lost its frame with the power; the third has claimed the log, and then the frame comes back.
    third = world.restarted()
    third.owner()
    third = third.restarted()
    third.owner()
    after = third.restarted()
    after.files.put(path(1), after.files.contents(path(1)) + stale)

    device = after.owner()

    assert device.report.why_cut == ChainBreak.EPOCH.value
    assert device.report.bytes_cut == len(stale)
    is_kept_cut(after, device, [1, 2, 3])


# Damage below D -------------------------------------------------------------------------------------------------------


def test_damage_below_the_mark_halts_naming_what_is_missing() -> None:
    world = World()
    two_commits(world)
    world = world.restarted()
    at = world.frame_positions()[1]
    world.change(path(1), at + 130, b"\xff")

    halt = halts(world, DamagedLog)

    assert halt.facts == {"segment": str(SegmentName(1, 0)), "first_lsn_missing": 2, "durable_lsn": 3}
    assert NoFrame.BODY_CRC.value in halt.message
    assert "headwater log repair" in halt.message


def test_a_segment_that_is_cut_below_the_mark_halts() -> None:
    world = World()
    two_commits(world)
    world = world.restarted()
    at = world.frame_positions()[1]
    world.cut(path(1), at)

    halt = halts(world, DamagedLog)

    assert halt.facts["first_lsn_missing"] == 2
    assert "its end is missing" in halt.message


def test_damage_below_what_a_later_header_knows_to_be_durable_halts_without_any_mark() -> None:
    world = World()
    device = two_commits(world)
    commit(device, [rows(1)])
    world = world.restarted()
    world.forget_the_mark()
    at = world.frame_positions()[0]
    world.change(path(1), at, bytes(128))

    halt = halts(world, DamagedLog)

    assert halt.facts == {"segment": str(SegmentName(1, 0)), "first_lsn_missing": 1, "durable_lsn": 3}


def test_damage_in_the_last_commit_that_no_mark_covers_cannot_be_told_from_a_tear() -> None:
    world = World()
    two_commits(world)
    world = world.restarted()
    world.forget_the_mark()
    at = world.frame_positions()[1]
    world.change(path(1), at + 130, b"\xff")

    device = world.owner()

    assert device.report.verdict == Verdict.CUT.value
    assert lsns(device) == [1]


def test_a_write_that_is_incomplete_below_the_mark_is_damage() -> None:
    world = World()
    two_commits(world)
    world = world.restarted()
    at = world.frame_positions()[2]
    world.cut(path(1), at)

    halt = halts(world, DamagedLog)

    assert halt.facts["first_lsn_missing"] == 2


def test_a_write_that_is_incomplete_in_a_sealed_segment_is_damage() -> None:
    world = World()
    device = two_commits(world)
    device.roll()
    commit(device, [rows(1)])
    device.close()
    at = world.frame_positions()[2]
    world.cut(path(1), at)

    halt = halts(world, DamagedLog)

    assert halt.facts == {"segment": str(SegmentName(1, 0)), "lsn": 2, "position": at}
    assert ChainBreak.WRITE.value in halt.message


# Other people's files, and our own left-overs -------------------------------------------------------------------------


def test_foreign_files_are_reported_and_never_touched() -> None:
    world = World()
    two_commits(world)
    world = world.restarted()
    world.files.put(f"{DIRECTORY}/notes.txt", b"mine")
    world.files.put(f"{DIRECTORY}/other.tmp", b"mine too")

    device = world.owner()

    assert device.report.foreign == ["notes.txt", "other.tmp"]
    assert world.files.contents(f"{DIRECTORY}/notes.txt") == b"mine"
    assert world.files.contents(f"{DIRECTORY}/other.tmp") == b"mine too"
    assert device.report.removed == []


def test_our_own_temporaries_and_indexes_without_a_segment_are_removed() -> None:
    world = World()
    two_commits(world)
    world = world.restarted()
    left = [f"{SegmentName(1, 1)}.tmp", f"{SegmentName(1, 0).index}.tmp", SegmentName(1, 7).index]
    for name in left:
        world.files.put(f"{DIRECTORY}/{name}", b"left")

    device = world.owner()

    assert sorted(device.report.removed) == sorted(left)
    assert not set(left) & set(world.names())


def test_a_reader_removes_nothing() -> None:
    world = World()
    two_commits(world)
    world.files.put(f"{DIRECTORY}/{SegmentName(1, 1)}.tmp", b"left")
    world.files.put(path(4), b"")
    before = world.contents()

    reader = world.reader()

    assert lsns(reader) == [1, 2, 3]
    assert world.contents() == before


# Segments that do not fit together ------------------------------------------------------------------------------------


def test_the_highest_complete_generation_wins_and_what_it_replaced_is_removed() -> None:
    world = World()
    three_segments(world).close()
    header, chain = world.opening()
    rewritten = pack_segment_frame(replace(header, generation=1, last_lsn=2, old_chain=chain))
    world.files.put(path(1, 1), rewritten + world.files.contents(path(1))[SEGMENT_FRAME_BYTES:])
    world.files.put(path(1, 2), b"\xc8HWF not complete")

    device = world.owner()

    assert device.segments()[0].name == str(SegmentName(1, 1))
    assert str(SegmentName(1, 0)) in device.report.removed
    assert str(SegmentName(1, 2)) in world.names(), "one without a valid header is kept for people to see"
    assert lsns(device) == [1, 2, 3, 4, 5, 6]


def test_two_segments_that_hold_the_same_lsns_halt_as_duplicate() -> None:
    world = World()
    device = world.owner()
    commit(device, [rows()], [rows()], [rows()])
    device.close()
    first, _ = world.opening()
    world.files.put(path(3), pack_segment_frame(replace(first, first_lsn=3)) + bytes(128))
    world.forget_the_mark()

    halt = halts(world, DuplicateLsn)

    assert halt.facts == {"segments": f"{SegmentName(1, 0)} {SegmentName(3, 0)}", "lsn": 3}


def test_a_segment_under_another_name_halts_as_duplicate() -> None:
    world = World()
    three_segments(world).close()
    world.files.put(path(3, 1), world.files.contents(path(3)))

    halt = halts(world, DuplicateLsn)

    assert halt.facts == {"segment": str(SegmentName(3, 1)), "first_lsn": 3, "generation": 0}


@pytest.mark.parametrize("number", [3, 5], ids=["a sealed one", "the newest"])
def test_a_segment_of_another_log_halts_as_foreign(number: int) -> None:
    world, other = World(1), World(2)
    three_segments(world).close()
    three_segments(other).close()
    world.files.put(path(number), other.files.contents(path(number)))

    halt = halts(world, ForeignLog)

    assert halt.facts["segment"] == str(SegmentName(number, 0))
    assert halt.facts["log_id"] != halt.facts["this_log"]


def test_the_mark_of_another_log_halts_as_foreign() -> None:
    world, other = World(1), World(2)
    three_segments(world).close()
    three_segments(other).close()
    world.files.put(MARK_PATH, other.files.contents(MARK_PATH))

    halts(world, ForeignLog)

    with pytest.raises(ForeignLog):
        world.reader()


def test_a_segment_missing_in_the_middle_is_lost() -> None:
    world = World()
    three_segments(world).close()
    world.remove(path(3))

    halt = halts(world, LostSegment)

    assert halt.facts == {"first_lsn": 3, "last_lsn": 4}


def test_a_newest_segment_that_is_missing_is_damage_below_the_mark() -> None:
    world = World()
    three_segments(world).close()
    world.remove(path(5))

    halt = halts(world, Halted)

    assert isinstance(halt, DamagedLog)
    assert halt.facts["first_lsn_missing"] == 5
    with pytest.raises(LostSegment):
        world.reader()


def test_segments_missing_at_or_above_the_log_start_are_lost_and_below_it_are_not() -> None:
    world = World()
    three_segments(world).close()
    world.remove(path(1))

    halt = halts(world, LostSegment)
    world.log_start = 3
    device = world.owner(known_offsets=dict)

    assert halt.facts == {"first_lsn": 1, "last_lsn": 2}
    assert lsns(device, 3) == [3, 4, 5, 6]


def test_a_segment_that_does_not_continue_the_one_before_is_damage() -> None:
    world = World()
    three_segments(world).close()
    header, _ = world.opening(5)
    world.change(path(5), 0, pack_segment_frame(replace(header, prev=1)))

    halt = halts(world, DamagedLog)

    assert halt.facts["segment"] == str(SegmentName(5, 0))
    assert ChainBreak.PREV.value in halt.message


def test_a_sealed_segment_without_its_header_is_damage() -> None:
    world = World()
    three_segments(world).close()
    world.change(path(3), 0, b"xxxx")

    halt = halts(world, DamagedLog)

    assert halt.facts == {"segment": str(SegmentName(3, 0)), "lsn": 3, "position": 0}


# The mark -------------------------------------------------------------------------------------------------------------


def test_with_one_damaged_slot_the_other_still_tells_damage_from_a_tear() -> None:
    for slot in SLOT_POSITIONS:
        world = World()
        device = two_commits(world)
        device.sync_mark()
        world = world.restarted()
        world.change(MARK_PATH, slot, bytes(64))
        at = world.frame_positions()[0]
        world.change(path(1), at, bytes(128))

        halt = halts(world, DamagedLog)

        assert halt.facts["first_lsn_missing"] == 1


def test_a_mark_beyond_the_log_halts() -> None:
    world = World()
    two_commits(world)
    mark = world.mark()
    world = world.restarted()
    world.files.put(MARK_PATH, pack_slot(mark._replace(durable_lsn=9)))

    halt = halts(world, DamagedLog)

    assert halt.facts["durable_lsn"] == 9


def test_frames_of_kinds_that_readers_skip_are_recovered_like_any_other() -> None:
    world = World()
    device = world.owner()
    commit(device, [Draft(200, b"of a later version")], [Draft(Kind.SCHEMA, b"s", topic_number=1)])

    device = world.restarted().owner()

    assert lsns(device) == [1, 2]
