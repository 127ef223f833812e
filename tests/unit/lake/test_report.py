"""What a round did, as a person and a program read it."""

from __future__ import annotations

import pytest

from headwater.lake.report import LandingReport, Outcome, TopicLanding


def told(outcome: Outcome, topic: str = "orders", **facts: object) -> TopicLanding:
    return TopicLanding(topic, f"lake.{topic}", outcome, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("landing", "text"),
    [
        (told("landed", rows=1, lsn_from=3, lsn_to=4), "orders: 1 row, lsn 4..4"),
        (told("landed", rows=20, lsn_to=9), "orders: 20 rows, lsn 1..9"),
        (told("nothing"), "orders: nothing"),
        (told("failed", message="the disk is full"), "orders: failed (the disk is full)"),
        (told("halted", cause="gap", message="the table is gone"), "orders: halted (gap)"),
    ],
)
def test_a_landing_is_told_in_one_line(landing: TopicLanding, text: str) -> None:
    assert str(landing) == text


def test_a_report_sorts_topics_by_what_became_of_them() -> None:
    landed, nothing = told("landed", "a", rows=3), told("nothing", "b")
    halted, failed, lost = told("halted", "c", rows=9), told("failed", "d"), told("lost", "e")

    report = LandingReport((landed, nothing, halted, failed, lost))

    assert (report.landed, report.halted, report.failed) == ((landed,), (halted,), (failed,))
    assert report.rows == 3
    assert list(report) == [landed, nothing, halted, failed, lost]
    assert report["d"] is failed


def test_a_report_shows_the_topics_of_which_there_is_something_to_say() -> None:
    report = LandingReport((told("nothing", "a"), told("landed", "b", rows=2, lsn_to=5), told("lost", "c")))

    assert repr(report) == "Landed(b: 2 rows, lsn 1..5; c: lost)"
    assert repr(LandingReport((told("nothing"),))) == "Landed(nothing)"
