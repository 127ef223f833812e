"""Every finding and every note, each from a directory that was broken by hand; and silence over healthy ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from headwater.errors import Halted
from headwater.frames.bodies import GapReason
from headwater.frames.segment_header import pack_segment_frame
from headwater.ids import Lsn
from headwater.log.mark import SLOT_POSITIONS, Mark, pack_slot, read_mark
from headwater.log.repair import carry_out
from headwater.log.repair_plan import plan_repair
from headwater.log.rewrite import KEEP, REMOVE, rewrite_segment
from headwater.log.segment import Opening, read_opening
from headwater.log.verify import Finding, FindingName, NoteName, VerifyReport, verify_log
from headwater.storage.simulated import Choice, SimulatedFiles
from tests.unit.log.small_logs import (
    LOG_ID,
    SETTINGS,
    HandMade,
    World,
    change,
    cut,
    fill,
    names_of,
    record,
    rows,
    segment_names,
    simulated,
    snapshot,
    spoil,
    stored_in,
    three_segments,
)

Case = Callable[[], VerifyReport]


def look(files: SimulatedFiles, **more: int | None) -> VerifyReport:
    return verify_log(files, "log", settings=SETTINGS, **more)  # type: ignore[arg-type]


def put_mark(files: SimulatedFiles, mark: Mark) -> None:
    files.put("log/mark", pack_slot(mark).ljust(SLOT_POSITIONS[1], b"\0"))


def mark_of(files: SimulatedFiles) -> Mark:
    mark = read_mark(files.open("log/mark"))
    assert mark is not None
    return mark


def healthy() -> tuple[SimulatedFiles, list[str]]:
    files, world = simulated()
    return files, three_segments(world)


# Healthy logs -------------------------------------------------------------------------------------


def test_a_healthy_log_passes_and_is_counted() -> None:
    files, names = healthy()

    report = look(files, log_start=1)

    assert report.ok and report.notes == []
    assert (report.segments, report.frames, report.first_lsn, report.last_lsn) == (3, 10, 1, 10)
    assert report.durable_lsn == 10 and report.epoch == 1
    assert report.bytes == sum(len(files.contents(f"log/{name}")) for name in names)
    assert report.log_id == mark_of(files).log_id.hex()
    assert report.as_dict()["ok"] is True


def test_verifying_changes_nothing() -> None:
    files, names = healthy()
    spoil(files, f"log/{names[0]}", stored_in(files, f"log/{names[0]}")[1])
    before = snapshot(files)
    calls: list[str] = []
    files.before_call = lambda verb, name: calls.append(verb)

    look(files)

    assert calls == [] and snapshot(files) == before


def test_no_directory_at_all_is_an_empty_log() -> None:
    report = look(SimulatedFiles())

    assert report.ok and report.segments == 0
    assert names_of(report.notes) == [NoteName.NO_MARK]


def test_a_log_that_was_claimed_and_never_written_passes() -> None:
    files, world = simulated()
    with world.open() as log:
        log.claim()

    assert look(files, log_start=1).ok
    assert world.verify().last_lsn == 0


def test_a_log_whose_newest_segment_is_empty_passes() -> None:
    files, world = simulated()
    with world.open() as log:
        fill(log, [[[rows(1)]], [[rows(2)]]])
        log.roll()

    report = look(files, log_start=1)

    assert report.ok and report.notes == [] and report.segments == 3


def test_a_log_whose_first_segments_were_deleted_passes_with_the_offsets_only_its_index_knows() -> None:
    files, world = simulated()
    with world.open() as log:
        fill(log, [[[rows(7, 3)]], [[rows(1)]], [[rows(1)]]])
        log.exclusively(lambda: log.device.forget(Lsn(3)))

    report = look(files, log_start=3)

    assert report.ok and report.notes == [] and report.first_lsn == 3


def test_settings_are_the_usual_ones_unless_given() -> None:
    files, _ = healthy()

    report = verify_log(files)

    assert report.ok and report.notes == []


def test_progress_is_told_in_bytes_of_bytes() -> None:
    files, world = simulated()
    with world.open() as log:
        fill(
            log, [[[rows(1, body=bytes(40_000))] for _ in range(4)], [[rows(1, body=bytes(40_000))] for _ in range(4)]]
        )
    told: list[tuple[int, int]] = []

    report = verify_log(files, settings=SETTINGS, progress=lambda done, of: told.append((done, of)))

    assert report.ok
    assert len(told) == 2 and told == sorted(told)
    assert {of for _, of in told} == {report.bytes}
    assert all(0 < done < report.bytes for done, _ in told)


def test_only_segments_up_to_an_lsn_are_looked_at() -> None:
    files, names = healthy()
    spoil(files, f"log/{names[2]}", stored_in(files, f"log/{names[2]}")[0])

    assert look(files, to_lsn=8).ok
    assert look(files, to_lsn=8).segments == 2
    assert look(files, to_lsn=9).segments == 3
    assert names_of(look(files, to_lsn=9).findings) == [FindingName.DAMAGED_FRAME]


def test_no_segment_up_to_an_lsn_is_no_finding() -> None:
    files, names = healthy()
    for suffix in (names[0], names[0].replace("seg", "idx")):
        files.unlink(f"log/{suffix}")

    report = look(files, to_lsn=2)

    assert report.ok and report.segments == 0


def test_what_lies_below_the_log_start_is_not_looked_at() -> None:
    files, names = healthy()
    spoil(files, f"log/{names[0]}", stored_in(files, f"log/{names[0]}")[1])
    files.unlink(f"log/{names[1]}")

    report = look(files, log_start=9)

    assert report.ok
    assert [(note.name, note.segment) for note in report.notes] == [(NoteName.LEFT_OVER, names[0])]


# One of each --------------------------------------------------------------------------------------


def a_damaged_frame() -> VerifyReport:
    files, names = healthy()
    frame = stored_in(files, f"log/{names[1]}")[3]
    spoil(files, f"log/{names[1]}", frame, body=True)
    report = look(files)
    assert report.findings == [
        Finding("DamagedFrame", "the body does not match its checksum", names[1], frame.position, 8, 8),
        Finding("LostSegment", "LSNs 8 to 8 are in no segment", names[2], 0, 8, 8),
    ]
    return report


def a_broken_chain() -> VerifyReport:
    files = SimulatedFiles()
    HandMade().write().write(chain=77).write().put(files).next().write().put(files)
    report = look(files)
    [finding] = report.findings
    assert (finding.first_lsn, finding.last_lsn) == (2, 2) and "does not name" in finding.detail
    return report


def a_segment_that_does_not_continue_the_one_before() -> VerifyReport:
    files = SimulatedFiles()
    HandMade().write().put(files).next(prev=5).write().put(files)
    report = look(files)
    assert [finding.position for finding in report.findings] == [0]
    return report


def a_stale_frame() -> VerifyReport:
    files = SimulatedFiles()
    first = HandMade(epoch=3).write()
    first.write(epoch=2).put(files)
    HandMade(first_lsn=3, epoch=3, salt=b"saltsal2", prev=first.end.chain).write(epoch=3).put(files)
    return look(files)


def a_torn_write() -> VerifyReport:
    files, names = healthy()
    path = f"log/{names[1]}"
    cut(files, path, stored_in(files, path)[2].position)
    report = look(files)
    assert report.findings[0].first_lsn == 5  # the write of three is lost whole
    return report


def a_headless_segment() -> VerifyReport:
    files, names = healthy()
    change(files, f"log/{names[1]}", 0, b"junk")
    report = look(files)
    assert names_of(report.findings) == ["HeadlessSegment"]
    return report


def a_headless_newest_segment() -> VerifyReport:
    files, names = healthy()
    change(files, f"log/{names[2]}", 0, b"junk")
    return look(files)


def a_headless_newest_segment_of_one_frame() -> VerifyReport:
    files, world = simulated()
    with world.open() as log:
        fill(log, [[[rows(1)]], [[rows(1)]]])
    change(files, f"log/{segment_names(files)[1]}", 0, b"junk")
    return look(files)


def a_headless_generation() -> VerifyReport:
    files, names = healthy()
    files.put(f"log/{names[0].replace('.0.', '.1.')}", b"junk" * 200)
    report = look(files)
    assert report.findings[0].segment.endswith(".1.seg") and report.frames == 10
    return report


def lost_lsns() -> VerifyReport:
    files, names = healthy()
    path = f"log/{names[2]}"
    cut(files, path, stored_in(files, path)[1].position)
    report = look(files)
    assert (report.findings[0].first_lsn, report.findings[0].last_lsn) == (10, 10)
    return report


def a_lost_first_segment() -> VerifyReport:
    files, names = healthy()
    files.unlink(f"log/{names[0]}")
    report = look(files, log_start=1)
    assert (report.findings[0].first_lsn, report.findings[0].last_lsn) == (1, 4)
    return report


def a_lost_middle_segment() -> VerifyReport:
    files, names = healthy()
    files.unlink(f"log/{names[1]}")
    report = look(files)
    assert (report.findings[0].first_lsn, report.findings[0].last_lsn) == (5, 8)
    return report


def a_lost_newest_segment_that_was_empty() -> VerifyReport:
    files, world = simulated()
    with world.open() as log:
        log.append([rows(1)])
        log.roll()
    files.unlink(f"log/{segment_names(files)[1]}")
    with pytest.raises(Halted):
        world.open()
    return look(files)


def every_segment_lost() -> VerifyReport:
    files, names = healthy()
    for name in names:
        files.unlink(f"log/{name}")
    report = look(files)
    assert (report.findings[0].first_lsn, report.findings[0].last_lsn) == (1, 10)
    assert look(files, log_start=5).findings[0].first_lsn == 5
    return report


def a_duplicate_lsn() -> VerifyReport:
    files = SimulatedFiles()
    first = HandMade().write().write().write().put(files)
    HandMade(first_lsn=3, prev=first.end.chain, salt=b"saltsal2").write().put(files)
    report = look(files)
    assert (report.findings[0].first_lsn, report.findings[0].last_lsn) == (3, 3)
    return report


def a_misnamed_segment() -> VerifyReport:
    files, names = healthy()
    files.rename(f"log/{names[2]}", "log/00000000000000000012.0.seg")
    report = look(files)
    assert f"it says that it is {names[2]}" in [finding.detail for finding in report.findings]
    return report


def a_segment_of_another_log() -> VerifyReport:
    files, names = healthy()
    file = files.open(f"log/{names[1]}")
    opening = read_opening(file)
    assert isinstance(opening, Opening)
    change(files, f"log/{names[1]}", 0, pack_segment_frame(replace(opening.header, log_id=LOG_ID)))
    return look(files)


def an_unknown_segment_format() -> VerifyReport:
    files, names = healthy()
    file = files.open(f"log/{names[1]}")
    opening = read_opening(file)
    assert isinstance(opening, Opening)
    change(files, f"log/{names[1]}", 0, pack_segment_frame(replace(opening.header, format=2)))
    report = look(files)
    assert "does not understand it" in report.findings[0].detail
    return report


def an_unknown_format_of_a_rewritten_generation() -> VerifyReport:
    files, names = healthy()
    file = files.open(f"log/{names[1]}")
    opening = read_opening(file)
    assert isinstance(opening, Opening)
    newer = pack_segment_frame(replace(opening.header, generation=1, incompatible_features=4))
    files.put(f"log/{names[1].replace('.0.', '.1.')}", newer)
    return look(files)


def an_unknown_kind_of_frame() -> VerifyReport:
    files = SimulatedFiles()
    unknown = record()
    unknown.kind = 77
    HandMade().write().write(unknown).put(files)
    return look(files)


def a_time_that_fell() -> VerifyReport:
    files = SimulatedFiles()
    HandMade().write(time_us=2_000_000_000_000_000).write(time_us=1_900_000_000_000_000).put(files)
    report = look(files)
    assert report.findings[0].first_lsn == 2
    return report


def a_wrong_index() -> VerifyReport:
    files, names = healthy()
    files.flip_bit(f"log/{names[0].replace('seg', 'idx')}", 8 * 100)
    report = look(files)
    assert report.findings[0].segment == names[0].replace("seg", "idx")
    return report


def an_index_that_is_cut_short() -> VerifyReport:
    files, names = healthy()
    cut(files, f"log/{names[0].replace('seg', 'idx')}", 20)
    return look(files)


FINDINGS: list[tuple[FindingName, Case]] = [
    (FindingName.DAMAGED_FRAME, a_damaged_frame),
    (FindingName.BROKEN_CHAIN, a_broken_chain),
    (FindingName.BROKEN_CHAIN, a_segment_that_does_not_continue_the_one_before),
    (FindingName.STALE_FRAME, a_stale_frame),
    (FindingName.TORN_WRITE, a_torn_write),
    (FindingName.HEADLESS_SEGMENT, a_headless_segment),
    (FindingName.HEADLESS_SEGMENT, a_headless_newest_segment),
    (FindingName.HEADLESS_SEGMENT, a_headless_newest_segment_of_one_frame),
    (FindingName.HEADLESS_SEGMENT, a_headless_generation),
    (FindingName.LOST_LSNS, lost_lsns),
    (FindingName.LOST_SEGMENT, a_lost_first_segment),
    (FindingName.LOST_SEGMENT, a_lost_middle_segment),
    (FindingName.LOST_SEGMENT, a_lost_newest_segment_that_was_empty),
    (FindingName.LOST_SEGMENT, every_segment_lost),
    (FindingName.DUPLICATE_LSN, a_duplicate_lsn),
    (FindingName.MISNAMED_SEGMENT, a_misnamed_segment),
    (FindingName.FOREIGN_LOG, a_segment_of_another_log),
    (FindingName.UNKNOWN_FORMAT, an_unknown_segment_format),
    (FindingName.UNKNOWN_FORMAT, an_unknown_format_of_a_rewritten_generation),
    (FindingName.UNKNOWN_FORMAT, an_unknown_kind_of_frame),
    (FindingName.TIME_FELL, a_time_that_fell),
    (FindingName.WRONG_INDEX, a_wrong_index),
    (FindingName.WRONG_INDEX, an_index_that_is_cut_short),
]


@pytest.mark.parametrize(("name", "case"), FINDINGS, ids=[case.__name__ for _, case in FINDINGS])
def test_what_no_crash_leaves_is_a_finding_by_its_name(name: FindingName, case: Case) -> None:
    report = case()

    assert name in names_of(report.findings)
    assert not report.ok and report.as_dict()["ok"] is False


def test_every_finding_has_a_case() -> None:
    assert {name for name, _ in FINDINGS} == set(FindingName)


def a_torn_tail() -> VerifyReport:
    files, names = healthy()
    path = f"log/{names[2]}"
    files.put(path, files.contents(path) + b"half a frame")
    report = look(files)
    assert "12 bytes behind LSN 10" in report.notes[0].detail
    return report


def a_torn_tail_with_valid_frames_in_it() -> VerifyReport:
    files = SimulatedFiles()
    made = HandMade().write().write()
    size = len(made.data)
    made.write(rows(1), durable_lsn=2).write(rows(1), durable_lsn=2)
    files.put(f"log/{made.name}", made.data[:size] + bytes(256) + made.data[size + 256 :])
    report = look(files)
    assert report.last_lsn == 2
    return report


def a_stillborn_roll() -> VerifyReport:
    files, _ = healthy()
    files.put("log/00000000000000000011.0.seg", b"")
    return look(files)


def a_stillborn_roll_in_the_blocks_of_a_removed_one() -> VerifyReport:
    files, _ = healthy()
    files.put("log/00000000000000000011.0.seg", HandMade(first_lsn=5).data)
    return look(files)


def a_replaced_generation() -> VerifyReport:
    files, world = simulated()
    names = three_segments(world)
    old = files.contents(f"log/{names[0]}")
    with world.open() as log:
        rewrite_segment(log, names[0], lambda header, body: header.lsn != 2, reason=GapReason.DRAINED)
    files.put(f"log/{names[0]}", old)
    report = look(files)
    assert report.notes[0].segment == names[0] and report.notes[0].detail.endswith(".1.seg")
    return report


def a_left_over() -> VerifyReport:
    files, names = healthy()
    files.put(f"log/{names[0]}.tmp", b"half")
    return look(files)


def damaged_bytes_set_aside() -> VerifyReport:
    files, names = healthy()
    files.put(f"log/{names[0]}.damaged", b"junk")
    return look(files)


def a_file_of_somebody_else() -> VerifyReport:
    files, _ = healthy()
    files.put("log/notes.txt", b"buy milk")
    return look(files)


def no_index() -> VerifyReport:
    files, names = healthy()
    files.unlink(f"log/{names[0].replace('seg', 'idx')}")
    files.unlink(f"log/{names[2].replace('seg', 'idx')}")  # of the newest segment it is no news
    report = look(files)
    assert [note.segment for note in report.notes] == [names[0]]
    return report


def no_index_where_rows_were_forgotten() -> VerifyReport:
    files, world = simulated()
    with world.open() as log:
        fill(log, [[[rows(7, 3)]], [[rows(1)]], [[rows(1)]]])
        log.exclusively(lambda: log.device.forget(Lsn(3)))
    files.unlink("log/00000000000000000003.0.idx")
    report = look(files, log_start=3)
    assert "checkpoint" in report.notes[0].detail
    return report


def no_mark() -> VerifyReport:
    files, _ = healthy()
    files.unlink("log/mark")
    return look(files)


def an_unreadable_mark() -> VerifyReport:
    files, _ = healthy()
    files.put("log/mark", b"\0" * 5000)
    report = look(files)
    assert report.log_id != "" and report.epoch == 1
    return report


def a_log_that_begins_later() -> VerifyReport:
    files, names = healthy()
    files.unlink(f"log/{names[0]}")
    return look(files)


def a_declared_loss() -> VerifyReport:
    files, world = simulated()
    names = three_segments(world)
    spoil(files, f"log/{names[0]}", stored_in(files, f"log/{names[0]}")[1])
    plan = plan_repair(files, settings=SETTINGS)
    carry_out(files, "log", plan, clock=world.clock, entropy=Random(0).randbytes, settings=SETTINGS)
    report = look(files)
    [note] = [note for note in report.notes if note.name == NoteName.DECLARED_LOSS]
    assert note.detail == "LSNs 2 to 2 were lost, and a repair has said so"
    return report


NOTES: list[tuple[NoteName, Case]] = [
    (NoteName.TORN_TAIL, a_torn_tail),
    (NoteName.TORN_TAIL, a_torn_tail_with_valid_frames_in_it),
    (NoteName.STILLBORN_ROLL, a_stillborn_roll),
    (NoteName.STILLBORN_ROLL, a_stillborn_roll_in_the_blocks_of_a_removed_one),
    (NoteName.SUPERSEDED_GENERATION, a_replaced_generation),
    (NoteName.LEFT_OVER, a_left_over),
    (NoteName.SET_ASIDE, damaged_bytes_set_aside),
    (NoteName.FOREIGN_FILE, a_file_of_somebody_else),
    (NoteName.NO_INDEX, no_index),
    (NoteName.NO_INDEX, no_index_where_rows_were_forgotten),
    (NoteName.NO_MARK, no_mark),
    (NoteName.NO_MARK, an_unreadable_mark),
    (NoteName.BEGINS_LATER, a_log_that_begins_later),
    (NoteName.DECLARED_LOSS, a_declared_loss),
]


@pytest.mark.parametrize(("name", "case"), NOTES, ids=[case.__name__ for _, case in NOTES])
def test_what_a_crash_or_an_owner_may_leave_is_a_note_and_passes(name: NoteName, case: Case) -> None:
    report = case()

    assert name in names_of(report.notes)
    assert report.ok


def test_every_note_has_a_case() -> None:
    assert {name for name, _ in NOTES} == set(NoteName)


# Behind damage ------------------------------------------------------------------------------------


def test_one_finding_does_not_hide_the_next() -> None:
    files, names = healthy()
    first, second, third = (f"log/{name}" for name in names)
    spoil(files, first, stored_in(files, first)[1])
    spoil(files, second, stored_in(files, second)[3], body=True)
    spoil(files, third, stored_in(files, third)[0])

    report = look(files)

    found = [(finding.name, finding.first_lsn, finding.last_lsn) for finding in report.findings]
    assert found == [("DamagedFrame", 2, 2), ("DamagedFrame", 8, 8), ("LostSegment", 8, 8), ("DamagedFrame", 9, 9)]


def test_damage_below_what_was_durable_is_no_torn_tail() -> None:
    files, names = healthy()
    path = f"log/{names[2]}"
    spoil(files, path, stored_in(files, path)[1])

    report = look(files)

    assert [(finding.name, finding.first_lsn, finding.last_lsn) for finding in report.findings] == [
        ("DamagedFrame", 10, 10)
    ]


def test_without_a_mark_a_later_frame_says_what_was_durable() -> None:
    files, names = healthy()
    files.unlink("log/mark")
    path = f"log/{names[2]}"
    spoil(files, path, stored_in(files, path)[0])

    report = look(files)

    assert report.durable_lsn == 9
    assert names_of(report.findings) == [FindingName.DAMAGED_FRAME]


def test_a_ghost_that_the_mark_says_was_written_is_a_finding() -> None:
    files, _ = healthy()
    files.put("log/00000000000000000011.0.seg", HandMade(first_lsn=5).data)
    put_mark(files, mark_of(files)._replace(counter=99, durable_lsn=12, segment=11))

    assert names_of(look(files).findings) == [FindingName.HEADLESS_SEGMENT]


def test_an_owner_that_rolls_while_the_check_begins_is_not_taken_for_a_loss() -> None:
    files, world = simulated()
    with world.open() as log:
        log.append([rows(1)])

        class Busy:
            """Between two looks of the check the owner goes on in a new segment."""

            def __getattr__(self, name: str) -> Any:
                return getattr(files, name)

            def list(self, directory: str) -> list[str]:
                found = files.list(directory)
                log.roll()
                log.append([rows(1)])
                return found

        report = verify_log(Busy(), "log", settings=SETTINGS)

    assert report.findings == [] and report.last_lsn == 2


def test_where_a_log_begins_is_asked_once_its_directory_was_read() -> None:
    files, _ = healthy()
    looks: list[int] = []

    def asked() -> int:
        looks.append(len(files.calls))
        return 5

    files.calls.clear()
    report = verify_log(files, "log", log_start=asked, settings=SETTINGS)

    assert report.ok and names_of(report.notes) == [NoteName.LEFT_OVER]
    assert [call for call in files.calls[: looks[0]] if call[0] == "list"] == [("list", "log")]


def test_an_index_of_an_earlier_close_is_no_finding_while_the_roll_that_replaces_it_is_under_way() -> None:
    files, world = simulated()
    with world.open() as log:
        log.append([rows(1)])
    name, index = "00000000000000000001.0.seg", "log/00000000000000000001.0.idx"
    of_the_close = files.contents(index)
    with world.open() as log:
        log.append([rows(1)])
        log.roll()
        reports = [look(files)]
        files.put(index, of_the_close)
        reports.append(look(files))
        log.append([rows(1)])

    assert [report.ok for report in reports] == [True, True]
    assert [(finding.name, finding.segment) for finding in look(files).findings] == [
        (FindingName.WRONG_INDEX, name.replace("seg", "idx"))
    ]


def test_an_empty_segment_behind_all_that_was_forgotten_passes() -> None:
    files, world = simulated()
    with world.open() as log:
        log.append([rows(1)])
        log.roll()
        log.exclusively(lambda: log.device.forget(Lsn(3)))

    report = look(files, log_start=3)

    assert segment_names(files) == ["00000000000000000003.0.seg"]
    assert report.ok and report.notes == []


def test_an_index_behind_lost_rows_may_know_more_than_the_frames_show() -> None:
    files, world = simulated()
    with world.open() as log:
        fill(log, [[[rows(1)], [rows(5, 9)]], [[rows(1)]], [[rows(1)]]])
    path = f"log/{segment_names(files)[0]}"
    spoil(files, path, stored_in(files, path)[2], body=True)  # all that the log had of topic 5

    report = look(files)

    assert FindingName.WRONG_INDEX not in names_of(report.findings)


def test_an_index_that_forgets_a_partition_is_wrong_also_behind_lost_rows() -> None:
    files, world = simulated()
    with world.open() as log:
        fill(log, [[[rows(1)], [rows(5, 9)]], [[rows(1)]], [[rows(1)]]])
    names = segment_names(files)
    path = f"log/{names[0]}"
    spoil(files, path, stored_in(files, path)[1], body=True)
    files.flip_bit(f"log/{names[1].replace('seg', 'idx')}", 3)

    assert FindingName.WRONG_INDEX in names_of(look(files).findings)


@pytest.mark.parametrize("choice", list(Choice))
def test_whatever_a_power_loss_leaves_of_a_healthy_log_passes(choice: Choice, seed: int) -> None:
    files = SimulatedFiles(seed)
    world = World(files, seed)
    chance = Random(seed)
    reports: list[VerifyReport] = []

    def examine(verb: str, name: str) -> None:
        reports.append(look(files.crash(chance, choice=choice)))
        reports.append(look(files.restart()))

    files.before_call = examine
    with world.open() as log:
        fill(log, [[[rows(1)], [rows(2), rows(3)]], [[rows(1)], [record()]]])
        rewrite_segment(
            log,
            log.segments()[0].name,
            lambda header, body: REMOVE if header.lsn == 2 else KEEP,
            reason=GapReason.DRAINED,
        )

    assert len(reports) > 40
    assert [report.findings for report in reports if not report.ok] == []
