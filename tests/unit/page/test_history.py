"""The hour before now: what is kept, what is added up, and how often a log is looked at."""

from __future__ import annotations

from headwater.clock import ManualClock
from headwater.page.history import POINTS_OF_SOME_MAX, TOPICS_KEPT, History
from headwater.page.looking import Looking, Seen
from headwater.topics.answers import Status
from tests.unit.page.seen_logs import a_standing, a_status, a_topic


def every(name: str) -> bool:
    return True


def grown(appended: dict[str, int], lags: dict[str, int] | None = None) -> Status:
    return a_status(
        [a_topic(name, appended=rows) for name, rows in sorted(appended.items())],
        [a_standing(name, lag_rows=rows, lag_s=float(rows)) for name, rows in (lags or {}).items()],
    )


def test_rates_and_lags_of_all_and_of_some_are_worked_out() -> None:
    history = History()
    history.add(grown({"a": 0, "b": 0}, {"a": 1, "b": 2}), 0, 0.0)
    history.add(grown({"a": 10, "b": 100}, {"a": 3, "b": 4}), 5_000_000, 5.0)

    assert [(each.rows_per_s, each.lag_rows, each.lag_s) for each in history.of_all()] == [
        (None, 3, 2.0),
        (22.0, 7, 4.0),
    ]
    of_a = history.of_some(lambda name: name == "a", every)
    assert [(each.rows_per_s, each.lag_rows, each.lag_s) for each in of_a] == [(None, 1, 1.0), (2.0, 3, 3.0)]


def test_a_topic_that_is_new_or_was_made_anew_has_no_rate_below_zero() -> None:
    history = History()
    history.add(grown({"a": 50}), 0, 0.0)
    history.add(grown({"a": 0, "b": 1_000}), 5_000_000, 5.0)

    assert [each.rows_per_s for each in history.of_some(every, every)] == [None, 0.0]


def test_there_is_no_more_than_an_hour_of_it_and_no_more_than_so_many_topics() -> None:
    history = History(samples_max=3)
    names = {f"t{number:04}": number for number in range(3 * TOPICS_KEPT)}
    for number in range(10):
        history.add(grown(names, {"t0299": 1}), number * 5_000_000, number * 5.0)

    assert [each.at_us for each in history.of_all()] == [35_000_000, 40_000_000, 45_000_000]
    # Those that land come first.
    assert history.of_some(lambda name: name == "t0299", every)[-1].lag_rows == 1
    assert len(history._samples[-1].names) == TOPICS_KEPT
    assert history._samples[-1].names is history._samples[0].names


def test_topics_that_are_gone_make_room_for_others() -> None:
    history = History()
    history.add(grown({f"t{number:04}": 1 for number in range(TOPICS_KEPT)}), 0, 0.0)
    history.add(grown({"new": 5, "t0001": 2}), 5_000_000, 5.0)

    assert set(history._samples[-1].names) == {"new", "t0001"}


def test_many_samples_of_some_topics_are_fewer_points_and_the_last_is_among_them() -> None:
    history = History()
    for number in range(720):
        history.add(grown({"a": number * 10}), number * 5_000_000, number * 5.0)

    points = history.of_some(every, every)

    assert len(points) <= POINTS_OF_SOME_MAX
    assert points[-1].at_us == 719 * 5_000_000
    assert {each.rows_per_s for each in points[1:]} == {2.0}


class Log:
    """A log at which looks are counted, and take a while."""

    def __init__(self, clock: ManualClock, takes_s: float = 0.0) -> None:
        self.clock = clock
        self.takes_s = takes_s
        self.looks = 0
        self.appended = 0

    def see(self) -> Seen:
        self.looks += 1
        self.clock.advance(self.takes_s)
        return Seen(grown({"a": self.appended}))


def test_a_log_is_looked_at_once_a_second_however_many_ask() -> None:
    clock = ManualClock()
    log = Log(clock)
    looking = Looking(log.see, clock)

    for _ in range(100):
        looking.now()
        clock.advance(0.05)

    assert log.looks == 5


def test_a_log_at_which_a_look_takes_long_is_looked_at_less_often() -> None:
    clock = ManualClock()
    log = Log(clock, takes_s=0.5)
    looking = Looking(log.see, clock)

    for _ in range(100):
        looking.now()
        clock.advance(0.5)

    assert 4 <= log.looks <= 6


def test_rates_are_over_about_ten_seconds() -> None:
    clock = ManualClock()
    log = Log(clock)
    looking = Looking(log.see, clock)
    assert looking.now().rates == {}
    for _ in range(30):
        clock.advance(1.0)
        log.appended += 7
        looking.now()
    clock.advance(1.0)
    log.appended += 70

    assert looking.now().rates == {"a": (7 * 9 + 70) / 10}


def test_a_sample_is_taken_every_five_seconds_and_not_at_every_look() -> None:
    clock = ManualClock()
    looking = Looking(Log(clock).see, clock)

    for _ in range(21):
        looking.now()
        clock.advance(1.0)

    assert len(looking.points(None, every)) == 5
    assert len(looking.points(lambda name: name == "a", every)) == 5
