"""The bench of peers: a part that fails, hangs or dies costs its own figures, and nothing else."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers import _part, run
from bench.peers._part import TINY, Book
from bench.peers._record import Taken, as_report, merged
from bench.peers._running import run_part
from tests.unit.peers.ill_part import PART

NAMES = [f"ill.{name}{end}" for name in ("first_s", "second_ms") for end in ("", "_lowest", "_highest")]


@pytest.fixture(autouse=True)
def in_a_place_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("HEADWATER_BENCH_DIRECTORY", str(tmp_path))
    yield tmp_path
    assert list(tmp_path.iterdir()) == []


def taken(monkeypatch: pytest.MonkeyPatch, told: str, limit_s: float = 60.0) -> Taken:
    monkeypatch.setenv("ILL_PART", told)
    found = run_part(PART, TINY, limit_s)
    if found.settings:
        assert is_gone(int(found.settings["left"])), "what the part started outlives it"
    return found


def is_gone(pid: int) -> bool:
    for _ in range(100):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_part_that_ends_well_has_medians_and_ranges_and_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    found = taken(monkeypatch, "end")

    assert found.failed == ""
    assert list(found.figures()) == NAMES
    assert list(found.figures().values()) == [2.0, 1.0, 3.0, 5.0, 5.0, 5.0]
    assert found.bar().holds


def test_a_part_that_fails_keeps_what_it_measured_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    found = taken(monkeypatch, "fail")

    assert found.failed == "RuntimeError: no such luck"
    assert list(found.figures()) == NAMES
    assert list(found.figures().values()) == [2.0, 1.0, 3.0, None, None, None]
    assert not found.bar().holds


def test_a_part_that_hangs_is_ended_at_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = taken(monkeypatch, "hang", limit_s=4.0)

    assert found.failed == "it was not done in 4 s"
    assert not found.bar().holds


def test_a_part_that_dies_is_told_by_its_code(monkeypatch: pytest.MonkeyPatch) -> None:
    found = taken(monkeypatch, "die")

    assert found.failed == "its process ended with -9"
    assert found.figures()["ill.first_s"] == 2.0
    assert not found.bar().holds


def test_a_part_for_which_no_time_is_left_has_its_names_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    report = as_report([taken(monkeypatch, "end", limit_s=0.0)], TINY)

    assert list(report.figures) == NAMES
    assert set(report.figures.values()) == {None}
    assert not report.holds
    assert report.settings["ill.failed"] == "not begun: the time of the whole run was over"
    json.dumps(report.as_dict(), allow_nan=False)


def test_a_part_run_again_takes_the_place_of_what_it_measured_before() -> None:
    before = merged(None, [Taken(PART, {"first_s": [1.0]}, {"old": 1}, 1.0, "it failed")], TINY)
    before["figures"]["other.a_s"] = 7.0
    before["settings"]["other.failed"] = ""
    before["bars"].append({"name": "other: share of its figures measured", "holds": True})

    now = merged(before, [Taken(PART, {"first_s": [2.0], "second_ms": [3.0]}, {}, 1.0)], TINY)

    assert now["figures"]["ill.first_s"] == 2.0
    assert now["figures"]["other.a_s"] == 7.0
    assert "ill.old" not in now["settings"]
    assert [bar["holds"] for bar in now["bars"]] == [True, True]


def test_a_figure_that_was_not_declared_is_refused() -> None:
    with pytest.raises(AssertionError, match="ill has no figure third_s"):
        Book(PART).add("third_s", 1.0)


def test_each_side_goes_first_by_turns() -> None:
    went: list[str] = []
    _part.in_turn({"a": lambda: went.append("a"), "b": lambda: went.append("b")}, 3, Book(PART))

    assert "".join(went) == "abbaab"


def test_a_part_that_is_not_there_is_refused_before_anything_runs() -> None:
    with pytest.raises(SystemExit, match="there is no part kafk: there are kafka, "):
        run(quick=True, only=["kafk"])
