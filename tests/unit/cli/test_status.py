"""`headwater status`: all at a glance, once or every second, for people and for programs."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import headwater as hw
from headwater.cli import status as command
from headwater.cli.exit_codes import ExitCode
from headwater.cli.plain_table import size_cell
from headwater.clock import ManualClock
from headwater.topics.answers import Status
from tests.unit.cli.topics import SETTINGS, make_topics, run, run_json


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_topics(tmp_path / "data")


def seen(data: Path) -> Status:
    with hw.open(data, settings=SETTINGS) as log:
        return log.status()


def terminal(width: int = 80, height: int = 24) -> tuple[Console, io.StringIO]:
    text = io.StringIO()
    console = Console(
        file=text, width=width, height=height, force_terminal=True, color_system=None, legacy_windows=False
    )
    return console, text


def test_the_log_comes_first_then_the_topics(data: Path) -> None:
    result = run(data, "status")

    lines = result.stdout.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["data", "log", "checkpoint", "journal"]
    assert lines[5].split() == ["TOPIC", "ROWS", "BYTES", "PARTS", "KEY", "CLEANUP", "TABLE"]
    assert [line.split()[0] for line in lines[6:]] == ["customers", "orders", "raw"]
    assert result.stderr == ""


def test_groups_and_what_else_there_is_are_shown(data: Path) -> None:
    with hw.open(data, settings=SETTINGS) as log:
        consumer = log.consumer("orders", group="billing")
        consumer.poll(max_rows=1, timeout_s=5)
        consumer.commit()
        consumer.close()
        log.producer("loader").append("orders", [{"order_id": 4}])
        log.delete_topic("raw")

    result = run(data, "status")
    told = run_json(data, "status")

    assert "also        1 producer, 1 deleted topic" in result.stdout
    assert result.stdout.splitlines()[-1].split()[:2] == ["billing", "orders"]
    (group,) = told["groups"]
    assert (group["group"], group["topic"]) == ("billing", "orders")
    assert group["lag"] == sum(each["lag"] for each in group["partitions"]) == 3
    assert (told["producers"], told["deleted_topics"]) == (1, 1)


def test_programs_get_one_object(data: Path) -> None:
    told = run_json(data, "status")

    assert (told["owner"], told["log"]["first_lsn"], told["log"]["segments"]) == (False, 1, 1)
    assert told["log"]["durable_lsn"] >= 3
    assert told["journal"]["remaining"] > 0
    assert [(each["name"], each["rows"], each["appended"]) for each in told["topics"]] == [
        ("customers", 0, 0),
        ("orders", 3, 3),
        ("raw", 0, 0),
    ]


def test_watching_is_for_people(data: Path) -> None:
    assert run(data, "status", "--watch", "--json").exit_code == ExitCode.USAGE


def test_notes_are_shown(data: Path) -> None:
    found = replace(seen(data), notes=["the clock went back"])

    lines = command.render(found, terminal()[0], None)

    assert [line.plain for line in lines[-2:]] == ["NOTES", "- the clock went back"]


def test_without_topics_it_says_how_to_make_one(data: Path) -> None:
    lines = command.render(replace(seen(data), topics=[]), terminal()[0], None)

    assert "headwater topic create" in lines[-1].plain


def test_no_line_is_wider_than_the_terminal(data: Path) -> None:
    found = seen(data)
    topics = [replace(each, name=each.name * 20, table="a.long.name.of.a.table" * 3) for each in found.topics]

    for width in (80, 120):
        lines = command.render(replace(found, topics=topics), terminal(width)[0], {})

        assert max(len(line.plain) for line in lines[5:]) <= width


def test_where_there_is_no_room_the_busiest_topics_are_shown(data: Path) -> None:
    found = seen(data)
    topics = [replace(found.topics[0], name=f"topic-{number:03}") for number in range(300)]
    rates: dict[str, float | None] = {"topic-250": 9.0, "topic-100": 10.0}

    lines = [line.plain for line in command.render(replace(found, topics=topics), terminal()[0], rates, lines_max=23)]

    assert len(lines) == 23
    assert [line.split()[0] for line in lines[6:9]] == ["topic-100", "topic-250", "topic-000"]
    assert lines[-1] == "... and 284 topics more, with no higher rate"


class _Watcher:
    """Plays the event that ends the watching: time goes on by two seconds a look, and after some looks it ends."""

    def __init__(self, clock: ManualClock, looks: int) -> None:
        self._clock = clock
        self._looks = looks

    def wait(self, seconds: float) -> bool:
        assert seconds == command.EVERY_S
        self._clock.advance(2.0)
        self._looks -= 1
        if not self._looks:
            raise KeyboardInterrupt
        return False


def test_watching_shows_the_rate_since_the_look_before_until_it_is_interrupted(data: Path) -> None:
    first = seen(data)
    second = replace(first, topics=[replace(each, appended=each.appended + 1_000) for each in first.topics])
    looks = iter([first, second])
    console, text = terminal()
    clock = ManualClock()

    command._watch(console, lambda: next(looks), clock, _Watcher(clock, 2))  # type: ignore[arg-type]

    assert "ROWS/S" in text.getvalue()
    assert "orders        3  1.5 kB     500 " in text.getvalue()


def test_a_topic_that_was_not_there_has_no_rate() -> None:
    look = command.Look(10.0, {"old": 5})

    assert look.rate("new", 5, 11.0) is None
    assert look.rate("old", 5, 10.0) is None
    assert look.rate("old", 15, 12.0) == 5.0


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (-2_400, "-2.4 kB"),
        (999, "999 B"),
        (1_000, "1.0 kB"),
        (99_949, "99.9 kB"),
        (99_950, "100 kB"),
        (999_499, "999 kB"),
        (999_500, "1.0 MB"),
        (5 * 10**15, "5000 TB"),
    ],
)
def test_a_size_has_three_digits_or_so(size: int, text: str) -> None:
    assert size_cell(size) == text
