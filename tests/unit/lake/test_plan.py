"""The plan of a round: every wanted row in exactly one range, within the budget, and no segment twice."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from headwater.ids import Lsn
from headwater.lake.plan import PlannedRange, SegmentContent, plan_landing
from headwater.log.device import TopicInSegment

MIB = 1024 * 1024


def segment(
    first_lsn: int, last_lsn: int, topics: Mapping[int, tuple[int, int]], *, size_bytes: int = 100 * MIB
) -> SegmentContent:
    """Topics as (bytes, last LSN)."""
    return SegmentContent(
        name=f"{first_lsn:020}.0.seg",
        first_lsn=first_lsn,
        last_lsn=last_lsn,
        bytes=size_bytes,
        sealed=True,
        topics={
            number: TopicInSegment(frames=1, bytes=bytes_, rows=1, last_lsn=Lsn(last))
            for number, (bytes_, last) in topics.items()
        },
    )


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[SegmentContent], dict[int, list[int]], dict[int, int], int]:
    """Segments one after the other; for each topic the LSNs of its frames; what has landed; how far it is durable."""
    numbers = list(range(1, draw(st.integers(1, 4)) + 1))
    lsns: dict[int, list[int]] = {number: [] for number in numbers}
    segments = []
    following = draw(st.integers(1, 50))
    for _ in range(draw(st.integers(0, 6))):
        owners = draw(st.lists(st.sampled_from([0, *numbers]), min_size=1, max_size=12))
        first = following
        topics: dict[int, tuple[int, int]] = {}
        for owner in owners:
            if owner:
                lsns[owner].append(following)
                topics[owner] = (topics.get(owner, (0, 0))[0] + MIB, following)
            following += 1
        size_bytes = len(owners) * MIB + draw(st.sampled_from([0, 40 * MIB]))
        segments.append(segment(first, following - 1, topics, size_bytes=size_bytes))
    landed = {number: draw(st.integers(0, following)) for number in draw(st.sets(st.sampled_from(numbers)))}
    last = segments[-1] if segments else None
    durable = draw(st.integers(last.first_lsn - 1, last.last_lsn)) if last is not None else 0
    return segments, lsns, landed, durable


@given(logs(), st.integers(1, 100), st.integers(1, 30))
def test_every_wanted_row_up_to_the_plans_lsn_is_in_exactly_one_range(
    log: tuple[list[SegmentContent], dict[int, list[int]], dict[int, int], int], budget_mib: int, item_mib: int
) -> None:
    segments, lsns, landed, durable = log

    plan = plan_landing(landed, segments, durable_lsn=durable, budget_bytes=budget_mib * MIB, item_bytes=item_mib * MIB)

    for number, own in lsns.items():
        for lsn in own:
            ranges = [each for each in plan.ranges if number in each.topics and each.lsn_from < lsn <= each.lsn_to]
            wanted = number in landed and landed[number] < lsn <= plan.lsn_to
            # A range begins where the topic that is furthest behind begins: the others have their own LSN besides.
            landed_already = number in landed and lsn <= landed[number]
            assert len(ranges) == 1 if wanted else (not ranges or landed_already)
    assert len({each.segment for each in plan.ranges}) == len(plan.ranges)
    assert plan.lsn_to == durable or plan.lsn_to in {each.last_lsn for each in segments}
    assert plan.lsn_to <= durable
    assert all(each.lsn_to <= plan.lsn_to for each in plan.ranges)


@given(logs(), st.integers(1, 100))
def test_a_plan_keeps_to_its_budget_unless_one_segment_alone_is_larger(
    log: tuple[list[SegmentContent], dict[int, list[int]], dict[int, int], int], budget_mib: int
) -> None:
    segments, lsns, landed, durable = log

    plan = plan_landing(landed, segments, durable_lsn=durable, budget_bytes=budget_mib * MIB, item_bytes=8 * MIB)

    waiting = any(landed[number] < lsn <= durable for number in landed for lsn in lsns[number])
    assert bool(plan.ranges) == waiting
    assert len(plan.ranges) <= 1 or plan.bytes <= budget_mib * MIB


@given(logs(), st.integers(1, 30))
def test_rounds_one_after_the_other_land_everything(
    log: tuple[list[SegmentContent], dict[int, list[int]], dict[int, int], int], budget_mib: int
) -> None:
    segments, lsns, landed, durable = log
    before = dict(landed)
    covered: list[tuple[int, int]] = []

    for _ in range(len(segments) + 1):
        plan = plan_landing(landed, segments, durable_lsn=durable, budget_bytes=budget_mib * MIB, item_bytes=MIB)
        for number in landed:
            covered += [(number, lsn) for lsn in lsns[number] if landed[number] < lsn <= plan.lsn_to]
            landed[number] = max(landed[number], plan.lsn_to)

    assert sorted(covered) == sorted(
        (number, lsn) for number in before for lsn in lsns[number] if before[number] < lsn <= durable
    )


def one_range(*segments: SegmentContent, landed: Mapping[int, int], durable: int) -> PlannedRange:
    plan = plan_landing(landed, segments, durable_lsn=durable, budget_bytes=1 << 40, item_bytes=30 * MIB)
    (planned,) = plan.ranges
    return planned


def test_topics_with_under_a_tenth_of_a_segment_are_read_by_the_index() -> None:
    sparse = segment(1, 100, {1: (5 * MIB, 90), 2: (4 * MIB, 80), 3: (80 * MIB, 100)})
    together = segment(1, 100, {1: (5 * MIB, 90), 2: (5 * MIB, 80), 3: (80 * MIB, 100)})

    few = one_range(sparse, landed={1: 0, 2: 0}, durable=100)
    enough = one_range(together, landed={1: 0, 2: 0}, durable=100)

    assert few.by_index and few.bytes == 9 * MIB
    assert not enough.by_index and enough.bytes == 100 * MIB


def test_a_topic_that_has_landed_already_does_not_make_a_segment_worth_reading_through() -> None:
    mixed = segment(1, 100, {1: (5 * MIB, 90), 3: (80 * MIB, 95)})

    planned = one_range(mixed, landed={1: 0, 3: 95}, durable=100)

    assert planned.topics == (1,)
    assert planned.by_index


def test_a_segment_that_has_landed_in_part_counts_in_part() -> None:
    half = segment(1, 100, {1: (90 * MIB, 100)})

    planned = one_range(half, landed={1: 50}, durable=100)

    assert (planned.lsn_from, planned.lsn_to) == (50, 100)
    assert planned.bytes == 50 * MIB


def test_work_items_of_a_range_are_about_equal() -> None:
    whole = segment(1, 100, {1: (90 * MIB, 100)})

    planned = one_range(whole, landed={1: 0}, durable=100)

    assert planned.item_bytes == 25 * MIB, "four of 25, not three of 30 and one of 10"


def test_segments_without_wanted_rows_are_passed_over_at_no_cost() -> None:
    segments = [
        segment(1, 10, {1: (90 * MIB, 10)}),
        segment(11, 20, {2: (90 * MIB, 20)}),
        segment(21, 30, {1: (90 * MIB, 30)}),
    ]

    plan = plan_landing({1: 0}, segments, durable_lsn=30, budget_bytes=100 * MIB, item_bytes=MIB)

    assert [each.lsn_to for each in plan.ranges] == [10]
    assert plan.lsn_to == 20, "what topic 2 has there is none of topic 1's business"


def test_nothing_to_land_is_landed_up_to_what_is_durable() -> None:
    segments = [segment(1, 10, {1: (90 * MIB, 10)}), segment(11, 20, {2: (90 * MIB, 20)})]

    plan = plan_landing({1: 10}, segments, durable_lsn=20, budget_bytes=MIB, item_bytes=MIB)

    assert plan.ranges == ()
    assert plan.lsn_to == 20
