"""What a lander is told of a log: real logs on simulated files, whose frames are then looked for in the byte runs."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.frames.bodies import GapReason
from headwater.frames.frame import Header, Kind, chain_value
from headwater.frames.segment_header import SEGMENT_FRAME_BYTES
from headwater.ids import Lsn
from headwater.lake.plan import PlannedRange, plan_landing
from headwater.lake.source import RUN_GAP_BYTES, EngineSource, Runs
from headwater.log import Draft, FrameLog
from headwater.log.rewrite import KEEP, REMOVE, rewrite_segment
from headwater.storage.simulated import SimulatedFiles
from headwater.topics.engine import Engine
from tests.unit.log.small_logs import Stored, fill, record, rows, simulated, stored, stored_in, three_segments

TOPICS = (1, 2, 3)
SIZES = (1, 300, 20_000, 70_000)
"""Of bodies: some lie close together, some further apart than is read in one go."""


def source_of(log: FrameLog) -> EngineSource:
    engine = SimpleNamespace(shard=SimpleNamespace(log=log))
    return EngineSource(cast("Engine", engine), "/data")


@dataclass(frozen=True)
class Written:
    """A log as it lies in its files."""

    files: SimulatedFiles
    log: FrameLog

    @property
    def source(self) -> EngineSource:
        return source_of(self.log)

    def frames(self, segment: str) -> list[Stored]:
        return stored_in(self.files, f"log/{segment}")


drafts = st.builds(
    lambda topic, size: rows(topic, body=b"r" * size) if topic else record(b"s" * size),
    st.sampled_from((0, *TOPICS)),
    st.sampled_from(SIZES),
)
writes = st.lists(drafts, min_size=1, max_size=3)
segments = st.lists(st.lists(writes, min_size=1, max_size=8), min_size=1, max_size=3)


def written(content: list[list[list[Draft]]]) -> Written:
    files, world = simulated()
    log = world.open()
    fill(log, content)
    return Written(files, log)


def covered(frames: list[Stored], runs: Runs) -> list[list[Stored]]:
    """The frames of each run; a run that does not begin and end with a frame is a failure."""
    found = []
    for start, end in runs:
        inside = [frame for frame in frames if start <= frame.position < end]
        assert inside, "an empty run"
        assert inside[0].position == start
        assert inside[-1].position + inside[-1].header.frame_size == end
        found.append(inside)
    return found


def is_wanted(header: Header, planned: PlannedRange) -> bool:
    return (
        header.kind == Kind.DATA
        and header.topic_number in planned.topics
        and planned.lsn_from < header.lsn <= planned.lsn_to
    )


# Runs -----------------------------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(segments, st.data())
def test_the_runs_of_a_range_hold_every_frame_of_it_once_and_no_other(
    content: list[list[list[Draft]]], data: st.DataObject
) -> None:
    made = written(content)
    info = data.draw(st.sampled_from(made.source.segments()))
    first = data.draw(st.integers(info.first_lsn - 1, info.last_lsn - 1))
    last = data.draw(st.integers(first + 1, info.last_lsn))
    item_bytes = data.draw(st.sampled_from((1, 1_000, 50_000, 10**9)))
    planned = PlannedRange(info.name, first, last, TOPICS, False, info.bytes, item_bytes)

    items = made.source.runs(planned, item_bytes)

    frames = made.frames(info.name)
    inside = [frame for _, runs, _ in items for each in covered(frames, runs) for frame in each]
    assert [frame.lsn for frame in inside] == list(range(first + 1, last + 1))
    assert {name for name, _, _ in items} == {info.name}


@settings(max_examples=60, deadline=None)
@given(segments, st.data())
def test_the_runs_by_index_hold_every_wanted_frame_once_and_only_what_lies_close_between(
    content: list[list[list[Draft]]], data: st.DataObject
) -> None:
    made = written(content)
    info = data.draw(st.sampled_from(made.source.segments()))
    first = data.draw(st.integers(info.first_lsn - 1, info.last_lsn - 1))
    last = data.draw(st.integers(first + 1, info.last_lsn))
    topics = tuple(sorted(data.draw(st.sets(st.sampled_from(TOPICS), min_size=1))))
    item_bytes = data.draw(st.sampled_from((1, 50_000, 10**9)))
    planned = PlannedRange(info.name, first, last, topics, True, info.bytes, item_bytes)

    items = made.source.runs(planned, item_bytes)

    frames = made.frames(info.name)
    runs = [run for _, item, _ in items for run in covered(frames, item)]
    inside = [frame for run in runs for frame in run]
    assert [frame.lsn for frame in inside if is_wanted(frame.header, planned)] == [
        frame.lsn for frame in frames if is_wanted(frame.header, planned)
    ]
    positions = [frame.position for frame in inside]
    assert positions == sorted(set(positions))
    for run in runs:
        wanted = [frame for frame in run if is_wanted(frame.header, planned)]
        # A run begins and ends with a wanted frame, and no two of them lie far apart.
        assert (wanted[0], wanted[-1]) == (run[0], run[-1])
        gaps = [after.position - before.position for before, after in pairwise(wanted)]
        assert all(gap <= RUN_GAP_BYTES for gap in gaps)
    for _, item, _ in items[:-1]:
        assert sum(end - start for start, end in item) >= item_bytes


@settings(max_examples=60, deadline=None)
@given(segments, st.data())
def test_a_whole_plan_reads_every_row_that_is_not_landed_once(
    content: list[list[list[Draft]]], data: st.DataObject
) -> None:
    made = written(content)
    source = made.source
    durable_lsn = source.durable_lsn()
    landed = {topic: data.draw(st.integers(0, durable_lsn)) for topic in TOPICS}
    plan = plan_landing(landed, source.segments(), durable_lsn=durable_lsn, budget_bytes=10**9, item_bytes=40_000)

    read = [
        (frame.lsn, frame.header.topic_number)
        for planned in plan.ranges
        for name, runs, _ in source.runs(planned, planned.item_bytes)
        for run in covered(made.frames(name), runs)
        for frame in run
        if is_wanted(frame.header, planned) and frame.lsn > landed[frame.header.topic_number]
    ]

    due = [
        (lsn, frame.header.topic_number)
        for lsn, frame in sorted(stored(made.files).items())
        if frame.header.kind == Kind.DATA and lsn > landed[frame.header.topic_number]
    ]
    assert read == due


@pytest.mark.parametrize("item_bytes", [2_000, 10_000, 64_000])
def test_the_items_of_a_range_are_about_equal_and_about_as_large_as_asked(item_bytes: int) -> None:
    made = written([[[rows(1, body=b"r" * 500)] for _ in range(100)]])
    (info,) = made.source.segments()
    planned = PlannedRange(info.name, 0, info.last_lsn, (1,), False, info.bytes, item_bytes)

    sizes = [end - start for _, ((start, end),), _ in made.source.runs(planned, item_bytes)]

    frame_bytes = made.frames(info.name)[-1].header.frame_size
    assert max(sizes) - min(sizes) <= 2 * frame_bytes
    assert abs(sum(sizes) / len(sizes) - item_bytes) <= item_bytes / 2
    assert sum(sizes) == info.bytes - SEGMENT_FRAME_BYTES


def test_a_frame_that_is_larger_than_an_item_is_an_item() -> None:
    made = written([[[rows(1, body=b"r" * 60_000)], [rows(1)], [rows(1, body=b"r" * 60_000)]]])
    (info,) = made.source.segments()
    planned = PlannedRange(info.name, 0, info.last_lsn, (1,), False, info.bytes, 10_000)

    items = made.source.runs(planned, 10_000)

    assert [len(run) for _, runs, _ in items for run in covered(made.frames(info.name), runs)] == [2, 2]


def test_a_topic_without_a_frame_in_the_range_has_no_runs() -> None:
    made = written([[[rows(1)], [rows(2)]]])
    (info,) = made.source.segments()

    assert made.source.runs(PlannedRange(info.name, 0, 2, (2,), True, info.bytes, 10**9), 10**9) == []


def test_a_range_that_a_rewrite_has_moved_to_another_file_is_found_there() -> None:
    files, world = simulated()
    names = three_segments(world)
    log = world.open()
    planned = PlannedRange(names[0], 0, 4, (1,), False, 1, 10**9)
    rewrite_segment(log, names[0], lambda header, body: REMOVE if header.lsn == 3 else KEEP, reason=GapReason.DRAINED)

    ((name, runs, _),) = source_of(log).runs(planned, 10**9)

    assert name != names[0]
    inside = [frame.lsn for run in covered(stored_in(files, f"log/{name}"), runs) for frame in run]
    assert inside == [1, 2, 3, 4]


# What there is --------------------------------------------------------------------------------------------------------


def test_a_log_that_was_never_written_has_nothing() -> None:
    _, world = simulated()
    source = source_of(world.open())

    assert (source.directory, source.shard, source.log_id) == ("/data", 0, "")
    assert (source.durable_lsn(), source.segments()) == (0, [])
    assert (source.chain_at(1), source.rows_between(1, 0, 10), source.holds_all(1, 0, 10)) == ("", 0, False)


def test_each_segment_says_what_it_has_of_each_topic() -> None:
    _, world = simulated()
    three_segments(world)
    log = world.open()
    source = source_of(log)

    found = source.segments()

    assert [(each.first_lsn, each.last_lsn, each.sealed) for each in found] == [
        (1, 4, True),
        (5, 8, True),
        (9, 10, False),
    ]
    assert {topic: share.rows for topic, share in found[0].topics.items() if topic} == {1: 4, 2: 2}
    assert source.log_id == log.recovery_report.log_id
    assert (source.shard, source.durable_lsn()) == (0, 10)


def test_rows_are_counted_after_one_lsn_and_up_to_another() -> None:
    _, world = simulated()
    three_segments(world)
    source = source_of(world.open())

    counted = [source.rows_between(1, first, last) for first, last in ((0, 10), (2, 10), (2, 9), (9, 10), (4, 7))]

    assert counted == [12, 9, 9, 0, 3]


def test_a_log_holds_all_of_a_range_while_nothing_was_taken_away_there() -> None:
    _, world = simulated()
    names = three_segments(world)
    log = world.open()
    log.claim()
    source = source_of(log)
    assert source.holds_all(1, 0, 10)

    rewrite_segment(log, names[1], lambda header, body: KEEP, reason=GapReason.DRAINED)

    # Whose frames went, a rewritten segment does not say.
    assert not source.holds_all(1, 0, 10)
    assert source.holds_all(1, 0, 4)
    assert source.holds_all(1, 8, 10)
    assert not source.holds_all(1, 4, 5)
    # Nor does anybody know what comes behind the end.
    assert not source.holds_all(1, 8, 99)


def test_a_log_that_has_forgotten_its_beginning_does_not_hold_all_of_it() -> None:
    _, world = simulated()
    three_segments(world)
    log = world.open()
    log.claim()
    log.exclusively(lambda: log.device.forget(Lsn(5)))
    source = source_of(log)

    assert not source.holds_all(1, 3, 10)
    assert source.holds_all(1, 4, 10)


def test_the_chain_value_of_a_frame_is_told_while_the_log_has_it() -> None:
    files, world = simulated()
    names = three_segments(world)
    log = world.open()
    log.claim()
    source = source_of(log)
    frame = stored(files)[6]
    assert source.chain_at(6) == f"{chain_value(frame.header, memoryview(frame.body)):016x}"
    assert source.chain_at(99) == ""

    rewrite_segment(log, names[1], lambda header, body: REMOVE if header.lsn == 6 else KEEP, reason=GapReason.DRAINED)
    assert source.chain_at(6) == ""
    assert source.chain_at(7) != ""
    log.exclusively(lambda: log.device.forget(Lsn(9)))

    assert source.chain_at(7) == ""
