"""How far a topic lets go of its rows: by age, by size, by deletion; and when the clock is not believed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from headwater.ids import Lsn
from headwater.log import SegmentInfo
from headwater.log.deletion import Release, SegmentUse, past_grace
from headwater.log.device import TopicInSegment
from headwater.metadata.operations import TopicRecord
from headwater.topics.retention import NOTHING_LANDED, ClockCaution, releases
from tests.unit.topics.keyed_logs import deleted_topic, keyed_topic
from tests.unit.topics.known_landings import KnownLandings, landed_at_once

NOW_US = 1_700_000_000_000_000
HOUR_US = 3_600_000_000
S = 1_000_000


def use(number: int, topics: Mapping[int, int], *, age_us: int, sealed: bool = True) -> SegmentUse:
    """A segment of 10 LSNs whose last frame is so old and which was begun an hour before; of each topic its bytes."""
    first, last = number * 10 + 1, number * 10 + 10
    end_us = NOW_US - age_us
    segment = SegmentInfo(f"{number}", Lsn(first), Lsn(last), 0, 1000, end_us - HOUR_US, end_us, sealed)
    return SegmentUse(segment, {topic: TopicInSegment(1, size, 1, Lsn(last)) for topic, size in topics.items()})


def hourly(*sizes: int, topic: int = 1) -> list[SegmentUse]:
    """Sealed segments that follow each other by the hour, the last one sealed now, and an active one of no topic."""
    count = len(sizes)
    uses = [use(at, {topic: size}, age_us=(count - 1 - at) * HOUR_US) for at, size in enumerate(sizes)]
    return [*uses, use(count, {}, age_us=-HOUR_US, sealed=False)]


def released(
    topic: TopicRecord,
    uses: list[SegmentUse],
    *,
    verified: int | list[tuple[int, int]] = 0,
    may_expire_by_age: bool = True,
    grace_s: float = 0.0,
    now_us: int = NOW_US,
) -> Release | None:
    found = releases(
        [topic],
        [],
        uses,
        now_us=now_us,
        landings=landed_at_once(topic.number, verified)
        if isinstance(verified, int)
        else KnownLandings({topic.number: verified}),
        may_expire_by_age=may_expire_by_age,
        grace_s=grace_s,
    )
    assert found.keys() <= {topic.number}
    return found.get(topic.number)


def test_without_a_policy_rows_are_kept() -> None:
    assert released(keyed_topic(cleanup="delete"), hourly(10, 10, 10)) is None
    assert released(keyed_topic(cleanup="both"), hourly(10, 10, 10)) is None


def test_by_age_a_segment_goes_once_its_last_frame_is_older() -> None:
    topic = keyed_topic(cleanup="delete", retention_s=3600.0)

    assert released(topic, hourly(10, 10, 10)) == Release(Lsn(20), NOW_US)
    assert released(topic, hourly(10, 10, 10), now_us=NOW_US - 1) == Release(Lsn(10), NOW_US - HOUR_US)


def test_the_segment_that_is_being_written_does_not_expire() -> None:
    topic = keyed_topic(cleanup="delete", retention_s=1.0)
    uses = [use(0, {1: 10}, age_us=HOUR_US), use(1, {1: 10}, age_us=HOUR_US, sealed=False)]

    assert released(topic, uses) == Release(Lsn(10), NOW_US - HOUR_US + S)


def test_by_size_the_oldest_go_until_the_rest_is_within_the_limit() -> None:
    uses = hourly(10, 10, 10, 10)

    def with_limit(limit: int) -> Lsn | None:
        found = released(keyed_topic(cleanup="delete", retention_bytes=limit), uses)
        return found.lsn if found is not None else None

    assert [with_limit(limit) for limit in (40, 39, 30, 29, 10, 9, 0)] == [None, 10, 10, 20, 30, 40, 40]


def test_a_size_counts_what_is_being_written_and_does_not_release_it() -> None:
    uses = [use(0, {1: 10}, age_us=HOUR_US), use(1, {1: 50}, age_us=0, sealed=False)]

    assert released(keyed_topic(cleanup="delete", retention_bytes=55), uses) == Release(Lsn(10), NOW_US - HOUR_US)
    assert released(keyed_topic(cleanup="delete", retention_bytes=5), uses) == Release(Lsn(10), NOW_US - HOUR_US)


def test_a_size_is_exceeded_since_the_segment_in_which_the_limit_was_passed_began() -> None:
    uses = hourly(10, 10, 10, 10)

    found = released(keyed_topic(cleanup="delete", retention_bytes=25), uses)

    # The second segment's turn came in the last one, which was begun an hour ago.
    assert found == Release(Lsn(20), NOW_US - HOUR_US)


def test_a_segment_that_is_too_much_by_itself_could_go_since_it_was_sealed() -> None:
    found = released(keyed_topic(cleanup="delete", retention_bytes=5), hourly(10, 10))

    assert found == Release(Lsn(20), NOW_US)


def test_what_lies_behind_a_part_could_not_go_before_it() -> None:
    # The wall clock was set back by hours while the second segment was written.
    uses = [
        use(0, {1: 10}, age_us=0),
        use(1, {1: 10}, age_us=-HOUR_US),
        use(2, {1: 10}, age_us=7 * HOUR_US, sealed=False),
    ]

    found = released(keyed_topic(cleanup="delete", retention_bytes=15), uses)

    assert found == Release(Lsn(20), NOW_US)


def test_of_age_and_size_the_one_that_reaches_further_counts() -> None:
    uses = hourly(10, 10, 10, 10)

    by_size = keyed_topic(cleanup="delete", retention_s=3 * 3600.0, retention_bytes=15)
    by_age = keyed_topic(cleanup="delete", retention_s=3600.0, retention_bytes=35)

    assert released(by_size, uses) == Release(Lsn(30), NOW_US - HOUR_US)
    assert released(by_age, uses) == Release(Lsn(30), NOW_US)


def test_other_topics_do_not_count() -> None:
    uses = [use(0, {1: 10, 2: 1000}, age_us=HOUR_US), use(1, {2: 1000}, age_us=0)]

    assert released(keyed_topic(cleanup="delete", retention_bytes=10), uses) is None
    assert released(keyed_topic(3, cleanup="delete", retention_bytes=0, retention_s=0.0), uses) is None


def test_a_topic_that_is_only_compacted_keeps_its_latest_rows_for_ever() -> None:
    uses = hourly(10, 10)

    assert released(keyed_topic(cleanup="compact", retention_s=0.0, retention_bytes=0), uses) is None
    assert released(keyed_topic(cleanup="both", retention_s=0.0, retention_bytes=0), uses) is not None


@pytest.mark.parametrize("retention", [{}, {"retention_s": 0.0}, {"retention_bytes": 0}])
def test_of_a_topic_with_a_table_nothing_above_the_verified_lsn_is_released(retention: dict[str, Any]) -> None:
    topic = keyed_topic(cleanup="delete", table="lake.t", **retention)
    uses = hourly(10, 10, 10)

    reached = [released(topic, uses, verified=verified) for verified in (0, 9, 10, 29, 30, 99)]

    # By size whole segments go, because a size is counted by segments; else all that is verified.
    wanted = [None, None, 10, 20, 30, 30] if "retention_bytes" in retention else [None, 9, 10, 29, 30, 99]
    assert [each.lsn if each is not None else None for each in reached] == wanted


LANDED = [(10, NOW_US - 3 * HOUR_US), (25, NOW_US - 2 * HOUR_US), (40, NOW_US - HOUR_US)]


def test_a_topic_with_a_table_keeps_what_was_verified_within_the_grace_alone() -> None:
    topic = keyed_topic(cleanup="delete", table="lake.t")

    def after(grace_us: int) -> Release | None:
        found = released(topic, hourly(10, 10, 10, 10), verified=LANDED, grace_s=grace_us / S)
        assert found is None or past_grace({1: found}, NOW_US, grace_us / S)
        return found

    assert after(0) == after(HOUR_US) == Release(Lsn(40), NOW_US - HOUR_US)
    assert after(HOUR_US + 1) == after(2 * HOUR_US) == Release(Lsn(25), NOW_US - 2 * HOUR_US)
    assert after(3 * HOUR_US) == Release(Lsn(10), NOW_US - 3 * HOUR_US)
    assert after(3 * HOUR_US + 1) is None


def test_the_retention_of_a_topic_with_a_table_counts_from_the_verification() -> None:
    topic = keyed_topic(cleanup="delete", table="lake.t", retention_s=2 * 3600.0)

    # All its segments are older than the retention; what counts is when they were seen in the table.
    assert released(topic, hourly(10, 10, 10, 10), verified=LANDED) == Release(Lsn(25), NOW_US)
    assert released(topic, hourly(10, 10, 10, 10), verified=LANDED, grace_s=3600.0) == Release(
        Lsn(10), NOW_US - HOUR_US
    )
    assert released(topic, hourly(10, 10, 10, 10), verified=LANDED[2:]) is None


def test_of_a_landed_topics_age_and_size_the_one_that_reaches_further_counts() -> None:
    uses = hourly(10, 10, 10, 10)

    by_size = keyed_topic(cleanup="delete", table="lake.t", retention_s=3 * 3600.0, retention_bytes=15)
    by_age = keyed_topic(cleanup="delete", table="lake.t", retention_s=3600.0, retention_bytes=35)

    assert released(by_size, uses, verified=LANDED) == Release(Lsn(30), NOW_US - HOUR_US)
    assert released(by_age, uses, verified=LANDED) == Release(Lsn(40), NOW_US)


def test_a_landing_is_believed_while_the_clock_is_not_but_no_retention_after_it() -> None:
    kept_for_a_while = keyed_topic(cleanup="delete", table="lake.t", retention_s=0.0)
    not_kept = keyed_topic(cleanup="delete", table="lake.t")

    assert released(kept_for_a_while, hourly(10), verified=LANDED, may_expire_by_age=False) is None
    assert released(not_kept, hourly(10), verified=LANDED, may_expire_by_age=False) == Release(
        Lsn(40), NOW_US - HOUR_US
    )


def test_what_is_only_compacted_stays_though_it_has_landed() -> None:
    assert released(keyed_topic(cleanup="compact", table="lake.t"), hourly(10, 10), verified=LANDED) is None
    assert released(keyed_topic(cleanup="both", table="lake.t"), hourly(10, 10), verified=LANDED) is not None


def test_of_a_topic_with_a_table_only_what_has_landed_counts_towards_its_size() -> None:
    topic = keyed_topic(cleanup="delete", table="lake.t", retention_bytes=20)

    assert released(topic, hourly(10, 10, 10, 10), verified=20) is None
    assert released(topic, hourly(10, 10, 10, 10), verified=30) is not None


def test_a_topic_without_a_table_is_not_asked_how_far_it_has_landed() -> None:
    topic = keyed_topic(cleanup="delete", retention_s=0.0)

    landings = KnownLandings()

    found = releases([topic], [], hourly(10), now_us=NOW_US, landings=landings, may_expire_by_age=True)

    assert found == {1: Release(Lsn(10), NOW_US)}
    assert landings.asked == []


def test_of_a_deleted_topic_everything_goes_since_it_was_deleted() -> None:
    deleted = deleted_topic(keyed_topic(), NOW_US - 5)
    uses = [*hourly(10, 10)[:2], use(2, {1: 10}, age_us=0, sealed=False)]

    def go(uses: list[SegmentUse]) -> dict[int, Release]:
        return releases([], [deleted], uses, now_us=NOW_US, landings=NOTHING_LANDED, may_expire_by_age=False)

    assert go(uses) == {1: Release(Lsn(30), NOW_US - 5)}
    assert go(hourly(10, topic=2)) == {}
    assert go([]) == {}


def test_nothing_goes_by_age_while_the_clock_is_not_believed() -> None:
    by_age = keyed_topic(cleanup="delete", retention_s=0.0)
    by_size = keyed_topic(cleanup="delete", retention_s=0.0, retention_bytes=5)

    assert released(by_age, hourly(10, 10), may_expire_by_age=False) is None
    assert released(by_size, hourly(10, 10), may_expire_by_age=False) == Release(Lsn(20), NOW_US)


def test_what_expires_all_the_time_still_passes_its_grace() -> None:
    # Segments are sealed every minute and grace is ten: there is always one that has only just expired.
    uses = [use(at, {1: 10}, age_us=(60 - at) * 60 * S) for at in range(60)]
    topic = keyed_topic(cleanup="delete", retention_s=0.0)

    found = released(topic, uses, grace_s=600.0)

    assert found == Release(Lsn(510), NOW_US - 600 * S)
    assert past_grace({1: found}, NOW_US, 600.0)


def test_a_clock_that_agrees_with_the_log_is_believed_at_once() -> None:
    for opened_us in (NOW_US, NOW_US + S, NOW_US + 24 * HOUR_US):
        caution = ClockCaution(opened_us, NOW_US)
        assert caution.may_expire(0.0)
        assert caution.note(0.0) == ""


def test_a_clock_behind_the_newest_frame_is_not_believed_for_an_hour() -> None:
    caution = ClockCaution(NOW_US - 90 * S, NOW_US)

    assert not caution.may_expire(0.0) and not caution.may_expire(3599.9)
    assert caution.may_expire(3600.0)
    assert caution.note(600.0) == (
        "nothing expires by age for 3000 s more: the clock was 90.0 s behind the newest frame when the log was opened"
    )
    assert caution.note(3600.0) == ""


def test_a_clock_a_day_past_the_newest_frame_is_not_believed_for_an_hour() -> None:
    caution = ClockCaution(NOW_US + 24 * HOUR_US + 1, NOW_US)

    assert not caution.may_expire(3599.9)
    assert caution.may_expire(3600.0)
    assert "1.0 days past the newest frame" in caution.note(0.0)


def test_a_log_without_a_frame_leaves_nothing_to_doubt() -> None:
    assert ClockCaution(NOW_US, 0).may_expire(0.0)


def test_segments_in_which_a_compaction_has_left_no_row_are_let_go_of_from_the_oldest_on() -> None:
    topic = keyed_topic(1, cleanup="compact")

    def described(number: int, rows: int) -> SegmentUse:
        """A segment with a schema frame of the topic, and so many of its rows."""
        found = use(number, {1: 100}, age_us=HOUR_US)
        return SegmentUse(found.segment, {1: TopicInSegment(1 + rows, 100, rows, found.segment.last_lsn)})

    assert released(topic, [described(0, 0), described(1, 0), described(2, 1), described(3, 0)]) == Release(Lsn(20), 0)
    assert released(topic, [described(0, 1), described(1, 0)]) is None
    assert released(topic, [use(0, {2: 100}, age_us=HOUR_US), described(1, 0), described(2, 1)]) == Release(Lsn(20), 0)


def test_what_is_being_written_is_not_let_go_of_however_few_rows_it_has() -> None:
    topic = keyed_topic(1, cleanup="compact")
    active = use(0, {1: 100}, age_us=0, sealed=False)

    assert released(topic, [SegmentUse(active.segment, {1: TopicInSegment(1, 100, 0, Lsn(10))})]) is None
