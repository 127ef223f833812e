"""Mending a halted log: what is declared lost, that nothing else is, and what a crash in the middle leaves."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random

import pytest

from headwater.clock import ManualClock
from headwater.errors import Conflict, Halted, LogLocked, Unavailable
from headwater.frames.bodies import GapReason, unpack_gap
from headwater.frames.frame import Kind
from headwater.frames.segment_header import pack_segment_frame
from headwater.ids import Lsn
from headwater.log.chain import ChainEnd
from headwater.log.index import ActiveIndex, partition_key
from headwater.log.names import parse_segment_name
from headwater.log.repair import RepairResult, carry_out
from headwater.log.repair_plan import LostRange, RepairPlan, plan_repair
from headwater.log.rewrite import rewrite_segment
from headwater.log.verify import FindingName, NoteName
from headwater.storage.simulated import SimulatedFiles
from tests.unit.log.small_logs import (
    SETTINGS,
    HandMade,
    Stored,
    World,
    change,
    crashing_at_every_call,
    cut,
    fill,
    names_of,
    record,
    rows,
    segment_names,
    simulated,
    snapshot,
    spoil,
    stored,
    stored_in,
    three_segments,
)


def planned(files: SimulatedFiles, log_start: int | None = 1) -> RepairPlan:
    return plan_repair(files, "log", log_start=log_start, settings=SETTINGS)


def mend(files: SimulatedFiles, plan: RepairPlan, seed: int = 0) -> RepairResult:
    return carry_out(files, "log", plan, clock=ManualClock(), entropy=Random(seed).randbytes, settings=SETTINGS)


def lost_lsns(plan: RepairPlan) -> list[int]:
    return [lsn for lost in plan.lost for lsn in range(lost.first_lsn, lost.last_lsn + 1)]


@dataclass
class Mended:
    plan: RepairPlan
    result: RepairResult
    frames: dict[int, Stored]


def check_mended(
    files: SimulatedFiles, world: World, before: dict[int, Stored], *, log_start: int = 1, last: int = 0
) -> Mended:
    """Plan, look that nothing has changed, mend, and hold the result against every promise."""
    untouched = snapshot(files)
    plan = planned(files, log_start)
    assert snapshot(files) == untouched, "a plan is only reading"
    assert plan.needed and not plan.refusals

    result = mend(files, plan)

    report = world.verify(files, log_start=log_start)
    assert report.ok, report.findings
    after = stored(files)
    lost = set(lost_lsns(plan))
    last = max([*before, *lost, last])
    for lsn, frame in before.items():
        if lsn >= log_start:
            assert lsn in lost or after[lsn].data == frame.data, f"LSN {lsn} is not what it was"
    assert not [lsn for lsn in lost if lsn in after and after[lsn].header.kind != Kind.GAP]
    aside = snapshot(files)
    for name in result.aside:
        original = name.split(".seg")[0] + ".seg" if ".seg" in name else name.split(".idx")[0] + ".idx"
        assert aside[name] == untouched[original], "the damaged bytes are kept as they were"
    world.log_start = log_start
    with world.open(files) as log:
        receipt = log.append([rows(1)])
        assert receipt.last_lsn == last + 2, "the epoch of this life is the first new LSN, and none is given twice"
        assert [frame.lsn for frame in log.read(receipt.first_lsn)] == [receipt.first_lsn]
    assert world.verify(files, log_start=log_start).ok
    assert not planned(files, log_start).needed
    return Mended(plan, result, after)


Damage = Callable[[SimulatedFiles, list[str]], None]


def broken_log(damage: Damage) -> tuple[SimulatedFiles, World, list[str], dict[int, Stored]]:
    files, world = simulated()
    names = three_segments(world)
    before = stored(files)
    damage(files, names)
    return files, world, names, before


# Each finding that can be mended ------------------------------------------------------------------


def a_damaged_body(files: SimulatedFiles, names: list[str]) -> None:
    spoil(files, f"log/{names[0]}", stored_in(files, f"log/{names[0]}")[1], body=True)


def a_damaged_header(files: SimulatedFiles, names: list[str]) -> None:
    spoil(files, f"log/{names[0]}", stored_in(files, f"log/{names[0]}")[1])


def a_damaged_last_frame(files: SimulatedFiles, names: list[str]) -> None:
    spoil(files, f"log/{names[0]}", stored_in(files, f"log/{names[0]}")[-1])


def damage_in_a_write_of_three(files: SimulatedFiles, names: list[str]) -> None:
    spoil(files, f"log/{names[1]}", stored_in(files, f"log/{names[1]}")[1])


def damage_in_the_newest_segment(files: SimulatedFiles, names: list[str]) -> None:
    spoil(files, f"log/{names[2]}", stored_in(files, f"log/{names[2]}")[0])


def damage_at_the_very_end(files: SimulatedFiles, names: list[str]) -> None:
    spoil(files, f"log/{names[2]}", stored_in(files, f"log/{names[2]}")[1])


def a_sealed_segment_cut_short(files: SimulatedFiles, names: list[str]) -> None:
    cut(files, f"log/{names[1]}", stored_in(files, f"log/{names[1]}")[3].position + 50)


def a_torn_write(files: SimulatedFiles, names: list[str]) -> None:
    cut(files, f"log/{names[1]}", stored_in(files, f"log/{names[1]}")[2].position)


def the_end_of_the_newest_gone(files: SimulatedFiles, names: list[str]) -> None:
    cut(files, f"log/{names[2]}", stored_in(files, f"log/{names[2]}")[1].position)


def a_lost_header_that_the_index_remembers(files: SimulatedFiles, names: list[str]) -> None:
    change(files, f"log/{names[1]}", 0, b"junk")


def a_lost_header_that_nobody_remembers(files: SimulatedFiles, names: list[str]) -> None:
    change(files, f"log/{names[1]}", 0, b"junk")
    files.unlink(f"log/{names[1].replace('seg', 'idx')}")


def a_lost_header_and_a_damaged_index(files: SimulatedFiles, names: list[str]) -> None:
    change(files, f"log/{names[1]}", 0, b"junk")
    cut(files, f"log/{names[1].replace('seg', 'idx')}", 300)


def a_lost_header_of_the_newest(files: SimulatedFiles, names: list[str]) -> None:
    change(files, f"log/{names[2]}", 0, b"junk")


def a_lost_header_of_the_newest_that_nobody_remembers(files: SimulatedFiles, names: list[str]) -> None:
    change(files, f"log/{names[2]}", 0, b"junk")
    files.unlink(f"log/{names[2].replace('seg', 'idx')}")


def a_lost_header_before_a_lost_header(files: SimulatedFiles, names: list[str]) -> None:
    a_lost_header_that_nobody_remembers(files, names)
    a_lost_header_of_the_newest_that_nobody_remembers(files, names)


def the_first_segment_gone(files: SimulatedFiles, names: list[str]) -> None:
    files.unlink(f"log/{names[0]}")


def the_first_segment_gone_and_the_next_header_lost(files: SimulatedFiles, names: list[str]) -> None:
    files.unlink(f"log/{names[0]}")
    a_lost_header_that_nobody_remembers(files, names)


def the_middle_segment_gone(files: SimulatedFiles, names: list[str]) -> None:
    files.unlink(f"log/{names[1]}")


def the_newest_segment_gone(files: SimulatedFiles, names: list[str]) -> None:
    files.unlink(f"log/{names[2]}")


def every_segment_gone(files: SimulatedFiles, names: list[str]) -> None:
    for name in names:
        files.unlink(f"log/{name}")


def damage_before_a_torn_tail(files: SimulatedFiles, names: list[str]) -> None:
    """In the newest segment: a damaged frame that was acknowledged, and a tail that never was."""
    damage_in_the_newest_segment(files, names)
    path = f"log/{names[2]}"
    files.put(path, files.contents(path) + bytes(128) + b"half a frame")


def damage_elsewhere_and_a_torn_tail(files: SimulatedFiles, names: list[str]) -> None:
    a_damaged_body(files, names)
    path = f"log/{names[2]}"
    files.put(path, files.contents(path) + b"half a frame")


def damage_before_a_stillborn_roll(files: SimulatedFiles, names: list[str]) -> None:
    a_damaged_body(files, names)
    files.put("log/00000000000000000011.0.seg", b"")


def damage_in_the_last_segment_before_a_stillborn_roll(files: SimulatedFiles, names: list[str]) -> None:
    damage_at_the_very_end(files, names)
    files.put("log/00000000000000000011.0.seg", b"\0" * 100)


def everywhere(files: SimulatedFiles, names: list[str]) -> None:
    a_damaged_header(files, names)
    damage_in_a_write_of_three(files, names)
    damage_in_the_newest_segment(files, names)
    files.put(f"log/{names[0].replace('.0.', '.1.')}", b"junk")


MENDABLE: list[tuple[Damage, list[int]]] = [
    (a_damaged_body, [2]),
    (a_damaged_header, [2]),
    (a_damaged_last_frame, [4]),
    (damage_in_a_write_of_three, [5, 6, 7]),
    (damage_in_the_newest_segment, [9]),
    (damage_at_the_very_end, [10]),
    (a_sealed_segment_cut_short, [8]),
    (a_torn_write, [5, 6, 7, 8]),
    (the_end_of_the_newest_gone, [10]),
    (a_lost_header_that_the_index_remembers, []),
    (a_lost_header_that_nobody_remembers, [5, 6, 7, 8]),
    (a_lost_header_and_a_damaged_index, [5, 6, 7, 8]),
    (a_lost_header_of_the_newest, []),
    (a_lost_header_of_the_newest_that_nobody_remembers, [9, 10]),
    (a_lost_header_before_a_lost_header, [5, 6, 7, 8, 9, 10]),
    (the_first_segment_gone, [1, 2, 3, 4]),
    (the_first_segment_gone_and_the_next_header_lost, [1, 2, 3, 4, 5, 6, 7, 8]),
    (the_middle_segment_gone, [5, 6, 7, 8]),
    (the_newest_segment_gone, [9, 10]),
    (every_segment_gone, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
    (damage_before_a_torn_tail, [9]),
    (damage_elsewhere_and_a_torn_tail, [2]),
    (damage_before_a_stillborn_roll, [2]),
    (damage_in_the_last_segment_before_a_stillborn_roll, [10]),
    (everywhere, [2, 5, 6, 7, 9]),
]
IDS = [damage.__name__ for damage, _ in MENDABLE]


@pytest.mark.parametrize(("damage", "lost"), MENDABLE, ids=IDS)
def test_exactly_what_cannot_be_read_is_lost_and_the_log_goes_on(damage: Damage, lost: list[int]) -> None:
    files, world, _, before = broken_log(damage)

    mended = check_mended(files, world, before)

    assert lost_lsns(mended.plan) == lost


def test_a_lost_range_says_where_and_why() -> None:
    files, _, names, _ = broken_log(a_damaged_body)

    plan = planned(files)

    assert plan.lost == [LostRange(2, 2, names[0], "the body does not match its checksum")]
    assert [step.segment for step in plan.steps] == [names[0]]
    assert plan.as_dict()["lost"] == [
        {"first_lsn": 2, "last_lsn": 2, "segment": names[0], "why": "the body does not match its checksum"}
    ]


def test_the_damaged_files_are_kept_aside() -> None:
    files, world, names, before = broken_log(a_damaged_body)

    mended = check_mended(files, world, before)

    index = names[0].replace("seg", "idx")
    assert mended.result.aside == [f"{names[0]}.damaged", f"{index}.damaged"]
    assert mended.result.made == [names[0].replace(".0.", ".1.")]
    assert names_of(world.verify(files, log_start=1).notes).count(NoteName.SET_ASIDE) == 2


def test_what_an_earlier_repair_kept_aside_is_not_written_over() -> None:
    files, world, names, before = broken_log(a_damaged_body)
    files.put(f"log/{names[0]}.damaged", b"from an earlier time")
    files.put(f"log/{names[0]}.2.damaged", b"and another")

    plan = planned(files)
    result = mend(files, plan)

    assert result.aside[0] == f"{names[0]}.3.damaged"
    assert names[0] not in files.list("log") and names[0].replace("seg", "idx") not in files.list("log")
    assert files.contents(f"log/{names[0]}.damaged") == b"from an earlier time"
    assert world.verify(files).ok and set(stored(files)) == set(before)


def test_a_gap_stands_for_the_loss_and_reading_goes_over_it() -> None:
    files, world, _, before = broken_log(damage_in_a_write_of_three)

    mended = check_mended(files, world, before)

    gap = unpack_gap(mended.frames[7].body)
    assert gap is not None and (gap.first_lsn, gap.last_lsn, gap.reason) == (5, 7, GapReason.DAMAGED)
    with world.open(files) as log:
        assert [frame.lsn for frame in log.read(Lsn(4), Lsn(9))] == [4, 7, 8, 9]


def test_a_headless_generation_beside_a_good_one_is_set_aside_without_a_loss() -> None:
    files, world = simulated()
    names = three_segments(world)
    before = stored(files)
    extra = names[0].replace(".0.", ".1.")
    files.put(f"log/{extra}", b"junk" * 100)

    plan = planned(files)
    result = mend(files, plan)

    assert plan.lost == [] and result.aside == [f"{extra}.damaged"]
    assert files.contents(f"log/{extra}.damaged") == b"junk" * 100
    assert world.verify(files).ok and stored(files) == before


def test_a_wrong_index_is_rebuilt_and_nothing_is_lost() -> None:
    files, world = simulated()
    names = three_segments(world)
    good = snapshot(files)
    for name in names:
        files.flip_bit(f"log/{name.replace('seg', 'idx')}", 8 * 40)

    plan = planned(files)
    result = mend(files, plan)

    indexes = [name.replace("seg", "idx") for name in names]
    assert plan.lost == [] and result.made == indexes and result.aside == []
    assert {name: snapshot(files)[name] for name in good} == good


def test_a_wrong_index_of_an_empty_newest_segment_is_rebuilt() -> None:
    files, world = simulated()
    with world.open() as log:
        log.append([rows(1)])
        log.roll()
    good = snapshot(files)
    files.flip_bit("log/00000000000000000003.0.idx", 8 * 20)

    mend(files, planned(files))

    assert {name: snapshot(files)[name] for name in good} == good


def test_a_segment_with_a_wrong_index_that_must_be_rewritten_is_rewritten() -> None:
    files, world, names, before = broken_log(the_middle_segment_gone)
    files.flip_bit(f"log/{names[0].replace('seg', 'idx')}", 8 * 40)

    check_mended(files, world, before)


def test_an_index_that_alone_knows_forgotten_offsets_is_rebuilt_with_them() -> None:
    files, world = simulated()
    with world.open() as log:
        fill(log, [[[rows(7, 3)]], [[rows(1)]], [[rows(1)]]])
        log.exclusively(lambda: log.device.forget(Lsn(3)))
    world.log_start = 3
    files.flip_bit("log/00000000000000000003.0.idx", 8 * 4)

    mend(files, planned(files, 3))

    assert world.verify(files, log_start=3).ok
    with world.open(files) as log:
        assert log.append([rows(7)]).base_offsets == (3,)


def test_a_newest_segment_that_was_empty_and_is_gone_is_begun_again() -> None:
    files, world = simulated()
    with world.open() as log:
        log.append([rows(1)])
        log.roll()
    before = stored(files)
    files.unlink("log/00000000000000000003.0.seg")

    mended = check_mended(files, world, before)

    assert mended.plan.lost == [] and mended.result.made == ["00000000000000000003.0.seg"]
    assert mended.result.aside == []


def test_a_newest_segment_that_was_empty_and_does_not_continue_the_one_before_is_begun_again() -> None:
    files, world = simulated()
    first = HandMade().write(rows(1)).put(files)
    empty = first.next(prev=5).put(files)
    before = stored(files)

    mended = check_mended(files, world, before)

    assert mended.plan.lost == []
    assert mended.result.made == [empty.name] and mended.result.aside == [f"{empty.name}.damaged"]


def test_a_sealed_segment_cut_short_before_a_roll_that_was_never_finished_loses_its_end() -> None:
    files, world = simulated()
    first = HandMade().write(rows(1)).put(files)
    files.put("log/00000000000000000004.0.seg", b"")
    before = stored(files)

    mended = check_mended(files, world, before)

    assert lost_lsns(mended.plan) == [2, 3]
    assert first.name.replace(".0.", ".1.") in mended.result.made


def test_a_segment_that_does_not_continue_the_one_before_is_joined_to_it() -> None:
    files, world = simulated()
    first = HandMade().write(rows(1)).write(rows(1)).put(files)
    second = first.next(prev=5).write(rows(2)).put(files)
    second.next(salt=b"saltsal3").write(rows(3)).put(files)
    before = stored(files)

    mended = check_mended(files, world, before)

    assert mended.plan.lost == []
    assert mended.plan.steps[0].what == "join it to the segment before it"
    assert [step.segment for step in mended.plan.steps] == [second.name, second.name]


def test_frames_of_an_earlier_life_in_the_middle_are_lost() -> None:
    files, world = simulated()
    first = HandMade(epoch=3).write()
    good = first.end
    first.write(epoch=2)
    first.end = replace(good, next_lsn=3, chain=99)
    first.write(rows(1)).put(files)
    first.next(salt=b"saltsal2").write(rows(3)).put(files)
    before = {lsn: frame for lsn, frame in stored(files).items() if lsn != 2}

    mended = check_mended(files, world, before)

    assert lost_lsns(mended.plan) == [2]


def test_damage_beside_a_gap_of_an_earlier_rewrite_leaves_the_gap() -> None:
    files, world = simulated()
    with world.open() as log:
        fill(log, [[[rows(1)], [rows(2)], [rows(3), rows(4)], [rows(1)]], [[rows(1)]]])
        rewrite_segment(log, log.segments()[0].name, lambda header, body: header.lsn != 4, reason=GapReason.DRAINED)
    name = segment_names(files)[0]
    before = stored(files)
    spoil(files, f"log/{name}", before[2])

    mended = check_mended(files, world, before)

    assert lost_lsns(mended.plan) == [2]
    assert mended.frames[4].data == before[4].data


def test_a_stray_copy_of_an_old_frame_goes_and_nothing_is_lost() -> None:
    files, world = simulated()
    first = HandMade().write(rows(1)).write(rows(2))
    first.data += first.data[256:512]
    first.write(rows(3)).put(files)
    first.next(salt=b"saltsal2").write(rows(3)).put(files)
    before = {lsn: stored_in(files, f"log/{first.name}")[lsn - 1] for lsn in (1, 2)}

    mended = check_mended(files, world, before, last=4)

    assert mended.plan.lost == [] and sorted(mended.frames) == [1, 2, 3, 4]


@pytest.mark.parametrize("damaged_lsn", [1, 3])
def test_frames_of_a_torn_tail_that_nobody_was_promised_do_not_come_back(damaged_lsn: int) -> None:
    files, world = simulated()
    first = HandMade().write(rows(1, body=b"one")).write(rows(1, body=b"two")).put(files)
    newest = first.next(salt=b"saltsal2").write(rows(1, body=b"three")).write(rows(1, body=b"four"))
    acknowledged = len(newest.data)
    newest.write(rows(1, body=b"five"), durable_lsn=4).write(rows(1, body=b"six"), durable_lsn=4).put(files)
    before = {lsn: frame for lsn, frame in stored(files).items() if lsn <= 4}
    change(files, f"log/{newest.name}", acknowledged, bytes(128))  # of a commit of two writes the first is torn
    spoil(files, f"log/{first.name if damaged_lsn < 3 else newest.name}", before[damaged_lsn])

    mended = check_mended(files, world, before)

    assert lost_lsns(mended.plan) == [damaged_lsn]
    with world.open(files) as log:
        assert b"six" not in [bytes(frame.body) for frame in log.read()]


def test_a_log_without_any_name_left_gets_a_new_one() -> None:
    files, world, names, before = broken_log(a_lost_header_before_a_lost_header)
    change(files, f"log/{names[0]}", 0, b"junk")
    files.unlink(f"log/{names[0].replace('seg', 'idx')}")
    files.unlink("log/mark")
    files.put("log/00000000000000000012.0.seg", b"")  # a stillborn roll, so that none of the others is the newest

    plan = planned(files)
    mend(files, plan)

    assert plan.log_id == "" and lost_lsns(plan) == list(range(1, 12))
    assert world.verify(files, log_start=1).ok
    with world.open(files) as log:
        assert log.append([rows(1)]).last_lsn == 13
    assert before


def test_the_name_of_the_log_comes_from_an_index_where_nothing_else_has_it() -> None:
    files, world, names, before = broken_log(a_lost_header_that_the_index_remembers)
    log_id = planned(files).log_id
    files.unlink("log/mark")
    for name in names:
        change(files, f"log/{name}", 0, b"junk")
    files.put("log/00000000000000000011.0.seg", b"")

    assert planned(files).log_id == log_id
    check_mended(files, world, before)


def test_segments_below_the_log_start_are_left_alone() -> None:
    files, world, names, before = broken_log(damage_in_the_newest_segment)
    spoil(files, f"log/{names[0]}", before[2])
    files.unlink(f"log/{names[1]}")
    world.log_start = 9

    plan = planned(files, 9)
    mend(files, plan)

    assert lost_lsns(plan) == [9]
    assert names[0] in files.list("log")
    assert world.verify(files, log_start=9).ok


# Offsets ------------------------------------------------------------------------------------------


def test_offsets_of_lost_rows_are_not_given_out_again_where_an_index_knows_them() -> None:
    files, world = simulated()
    with world.open() as log:
        fill(log, [[[rows(1)], [rows(5, 9)]], [[rows(1)]]])
    path = f"log/{segment_names(files)[0]}"
    change(files, path, stored_in(files, path)[2].position, bytes(128))  # all that the log had of topic 5
    files.unlink(f"log/{segment_names(files)[1].replace('seg', 'idx')}")

    mend(files, planned(files))
    for name in files.list("log"):
        if name.endswith(".idx"):
            files.unlink(f"log/{name}")

    with world.open(files) as log:
        assert log.append([rows(5), rows(1)]).base_offsets == (9, 2)


def test_offsets_of_lost_rows_are_not_given_out_again_where_their_header_is_left() -> None:
    files, world = simulated()
    log = world.open()
    fill(log, [[[rows(1)], [rows(5, 9)]]])
    path = f"log/{segment_names(files)[0]}"
    files = files.restart()  # killed: there is no index
    spoil(files, path, stored_in(files, path)[2], body=True)

    mend(files, planned(files))

    with world.open(files) as log:
        assert log.append([rows(5), rows(1)]).base_offsets == (9, 1)


def test_offsets_of_a_lost_segment_are_not_given_out_again_where_its_index_is_left() -> None:
    files, world = simulated()
    with world.open() as log:
        fill(log, [[[rows(1)]], [[rows(5, 9)]], [[rows(1)]]])
    names = segment_names(files)
    files.unlink(f"log/{names[1]}")
    files.unlink(f"log/{names[2].replace('seg', 'idx')}")

    mend(files, planned(files))

    with world.open(files) as log:
        assert log.append([rows(5), rows(1)]).base_offsets == (9, 2)


def test_an_index_that_speaks_of_later_lsns_is_not_believed() -> None:
    files, world, names, _ = broken_log(a_damaged_last_frame)
    opening = files.contents(f"log/{names[0]}")[:256]
    later = ActiveIndex(1, {partition_key(9, 0): 50}).pack(opening, ChainEnd(100, 0, 1, 0), 4096, 0)
    files.put(f"log/{names[0].replace('seg', 'idx')}", later)

    mend(files, planned(files))

    assert world.verify(files, log_start=1).ok
    with world.open(files) as log:
        assert log.append([rows(9)]).base_offsets == (0,)


# What a repair does not touch ---------------------------------------------------------------------


def test_a_healthy_log_needs_nothing() -> None:
    files, _ = simulated()

    plan = planned(files)

    assert not plan.needed and plan.as_dict() == {
        "needed": False, "log_id": "", "steps": [], "lost": [], "refusals": [],
    }  # fmt: skip


def test_carrying_out_a_plan_of_nothing_does_nothing() -> None:
    files, world = simulated()
    three_segments(world)
    before = snapshot(files)

    result = mend(files, planned(files))

    assert result == RepairResult([], [])
    assert snapshot(files) == before


def test_the_usual_settings_hold_unless_others_are_given() -> None:
    files, world, _, _ = broken_log(a_damaged_body)

    plan = plan_repair(files)
    carry_out(files, "log", plan, clock=ManualClock(), entropy=Random(1).randbytes)

    assert world.verify(files).ok


def duplicate(files: SimulatedFiles) -> None:
    HandMade().write().write().put(files)
    HandMade(first_lsn=2).write().put(files)


def misnamed(files: SimulatedFiles) -> None:
    files.put("log/00000000000000000001.0.seg", HandMade(generation=3).write().data)


def foreign(files: SimulatedFiles) -> None:
    HandMade().write().put(files).next(log_id=bytes(16)).write().put(files)


def unknown(files: SimulatedFiles) -> None:
    made = HandMade()
    files.put("log/00000000000000000001.0.seg", pack_segment_frame(replace(made.header, format=2)))


def fallen_time(files: SimulatedFiles) -> None:
    HandMade().write(time_us=1_800_000_000_000_000).write(time_us=1_700_000_000_000_001).put(files)


REFUSED: list[tuple[FindingName, Callable[[SimulatedFiles], None]]] = [
    (FindingName.DUPLICATE_LSN, duplicate),
    (FindingName.MISNAMED_SEGMENT, misnamed),
    (FindingName.FOREIGN_LOG, foreign),
    (FindingName.UNKNOWN_FORMAT, unknown),
    (FindingName.TIME_FELL, fallen_time),
]


@pytest.mark.parametrize(("name", "make"), REFUSED, ids=[name.value for name, _ in REFUSED])
def test_what_cannot_be_mended_is_refused_by_name(name: FindingName, make: Callable[[SimulatedFiles], None]) -> None:
    files = SimulatedFiles()
    make(files)

    plan = planned(files, None)

    assert name in names_of(plan.refusals)
    assert plan.needed and plan.steps == [] and plan.lost == []
    with pytest.raises(AssertionError):
        mend(files, plan)


def test_every_finding_is_mended_or_refused() -> None:
    mended = {
        finding.name
        for damage, _ in MENDABLE
        for files, world, _, _ in [broken_log(damage)]
        for finding in world.verify(files, log_start=1).findings
    }

    by_hand = {"BrokenChain", "StaleFrame", "WrongIndex"}  # each has a test of its own above
    assert mended | by_hand | {name.value for name, _ in REFUSED} == {name.value for name in FindingName}


def test_a_log_that_somebody_owns_is_not_repaired() -> None:
    files, world = simulated()
    names = three_segments(world)
    owner = world.open()
    owner.claim()
    spoil(files, f"log/{names[0]}", stored_in(files, f"log/{names[0]}")[1])
    before = snapshot(files)

    with pytest.raises(LogLocked, match="pid"):
        mend(files, planned(files))

    assert snapshot(files) == before


def test_a_log_that_changed_since_the_plan_is_not_repaired() -> None:
    files, _, names, before = broken_log(a_damaged_body)
    plan = planned(files)
    spoil(files, f"log/{names[1]}", before[8])
    untouched = snapshot(files)

    with pytest.raises(Conflict, match="plan again"):
        mend(files, plan)

    assert {name: data for name, data in snapshot(files).items() if name != "lock"} == {
        name: data for name, data in untouched.items() if name != "lock"
    }


def test_an_index_of_another_version_does_not_give_its_header_back() -> None:
    files, world, names, before = broken_log(a_lost_header_that_nobody_remembers)
    name = parse_segment_name(names[1])
    assert name is not None
    original = stored_in(files, f"log/{names[0]}")
    made = HandMade(first_lsn=name.first_lsn)
    for opening in (
        pack_segment_frame(replace(made.header, format=2)),
        b"junk".ljust(256, b"\0"),
    ):
        data = ActiveIndex(name.first_lsn, {}).pack(opening, replace(made.end, next_lsn=9), 256, 0)
        files.put(f"log/{name.index}", data)

        assert lost_lsns(planned(files)) == [5, 6, 7, 8]
    assert original and world.seed == 0 and before


# Faults and crashes -------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["create", "append", "sync_all", "rename", "sync_directory", "unlink"])
def test_a_repair_that_meets_an_error_can_be_run_again(verb: str) -> None:
    files, world, _, before = broken_log(everywhere)

    failed = 0
    while failed < 100:
        files.fail(failed + 1, errno.ENOSPC, verbs=[verb])
        try:
            mend(files, planned(files))
            break
        except Unavailable:
            failed += 1
        finally:
            files.heal()

    assert failed > 0
    report = world.verify(files, log_start=1)
    assert report.ok, report.findings
    after = stored(files)
    assert [lsn for lsn in before if after.get(lsn) is None or after[lsn].data != before[lsn].data] == [2, 5, 6, 7, 9]


@pytest.mark.parametrize("damage", [everywhere, damage_before_a_torn_tail, every_segment_gone, the_middle_segment_gone])
def test_a_crash_at_any_call_of_a_repair_leaves_a_log_that_halts_or_is_mended(damage: Damage, seed: int) -> None:
    chance = Random(seed)
    broken, world, _, before = broken_log(damage)
    damaged_bytes = [data for name, data in snapshot(broken).items() if name.endswith(".seg")]
    plan = planned(broken)
    lost = set(lost_lsns(plan))
    outcomes = set()

    for number, files in crashing_at_every_call(broken.restart, lambda files: mend(files, plan)):
        for after in (files.restart(), *files.crash_states(chance, 5)):
            at = f"call {number}: {files.calls[-1:]} has been done"
            there = snapshot(after)
            for data in damaged_bytes:
                assert any(data in kept or kept[: len(data)] == data for kept in there.values()), at
            try:
                world.open(after.restart()).claim()
                outcomes.add("opens")
            except Halted:
                outcomes.add("halts")
            again = planned(after)
            assert not again.refusals, (at, again.refusals)
            if again.needed:
                mend(after, again, seed=number)
            report = world.verify(after, log_start=1)
            assert report.ok, (at, report.findings)
            kept_frames = stored(after)
            for lsn, frame in before.items():
                assert lsn in lost or kept_frames[lsn].data == frame.data, (at, lsn)
            with world.open(after) as log:
                assert log.append([rows(1)]).first_lsn > max(before), at

    assert "opens" in outcomes


# Random damage ------------------------------------------------------------------------------------


def random_log(chance: Random, world: World) -> None:
    """Some segments, now and then drained, closed or killed."""
    log = world.open()
    for number in range(chance.randrange(1, 5)):
        if number:
            log.roll()
        for _ in range(chance.randrange(1, 6)):
            drafts = [
                rows(chance.randrange(1, 4), chance.randrange(1, 5), body=chance.randbytes(chance.randrange(1, 400)))
                for _ in range(chance.choice([1, 1, 1, 2, 4]))
            ]
            log.append([*drafts, record()] if chance.random() < 0.2 else drafts)
    if chance.random() < 0.4 and len(log.segments()) > 1:
        topic = chance.randrange(1, 4)
        rewrite_segment(
            log,
            chance.choice(log.segments()[:-1]).name,
            lambda header, body: header.topic_number != topic,
            reason=GapReason.DRAINED,
        )
    if chance.random() < 0.5:
        log.close()


def random_damage(chance: Random, files: SimulatedFiles) -> str:
    present = [name for name in files.list("log") if name.endswith((".seg", ".idx"))]
    if not present:
        return "nothing left"
    name = chance.choice(present)
    path = f"log/{name}"
    size = len(files.contents(path))
    what = chance.choice(["flip", "flip", "flip", "zero", "overwrite", "truncate", "delete"])
    if what == "delete":
        files.unlink(path)
    elif what == "truncate":
        cut(files, path, chance.randrange(size) if size else 0)
    elif what == "zero":
        files.zero_sector(path, chance.randrange(size // 512 + 1))
    elif size:
        at = chance.randrange(size)
        if what == "flip":
            files.flip_bit(path, at * 8 + chance.randrange(8))
        else:
            junk = chance.randbytes(min(chance.randrange(1, 300), size - at))
            change(files, path, at, junk)
    return f"{what} {name}"


@pytest.mark.parametrize("round_", range(8))
def test_whatever_is_damaged_everything_that_is_not_declared_lost_is_still_there(round_: int, seed: int) -> None:
    mended = 0
    for number in range(40):
        case = Random(seed * 1000 + round_ * 100 + number)
        files, world = simulated(case.randrange(1 << 30))
        random_log(case, world)
        files = files.restart()
        before = stored(files)
        acknowledged = max(before)
        done = [random_damage(case, files) for _ in range(case.choice([1, 1, 2, 3]))]
        say = f"case {number}: {done}"

        plan = planned(files)
        assert not plan.refusals, (say, plan.refusals)
        if plan.needed:
            mended += 1
            mend(files, plan, seed=number)

        report = world.verify(files, log_start=1)
        assert report.ok, (say, report.findings)
        lost = set(lost_lsns(plan))
        after = stored(files)
        for lsn, frame in before.items():
            assert lsn in lost or (lsn in after and after[lsn].data == frame.data), (say, lsn)
        with world.open(files) as log:
            first = log.append([rows(1)]).first_lsn
        assert first > acknowledged, say
        assert world.verify(files, log_start=1).ok, say

    assert mended > 20
