"""docs/benchmarks.md: it says what the record says, and every figure of every part has a name and a sentence."""

from __future__ import annotations

import json
import re
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.peers import PARTS, part_named
from bench.peers._part import FULL, QUICK, Part
from bench.peers._record import Taken, merged
from bench.peers.page import PAGE, PICTURES, ROOT, newest, pages

EVERY_PART = [part_named(name) for name in PARTS]


def record_of(better: float) -> dict[str, Any]:
    """A record in which ours is this many times as good as the peers wherever the two are compared."""
    found = []
    for part in EVERY_PART:
        values = {figure.name: [8.0, 10.0, 12.0] for figure in part.figures}
        for each in part.compared:
            ours = 10.0 * better if each.better == "higher" else 10.0 / better
            values[each.ours] = [ours, ours]
        found.append(Taken(part, values, {"rounds": 3}, 1.0))
    return merged(None, found, QUICK)


def test_the_page_and_its_pictures_are_what_the_newest_record_gives() -> None:
    record = newest()
    for relative, text in pages(json.loads(record.read_text(encoding="utf-8")), record.name).items():
        assert (ROOT / relative).read_text(encoding="utf-8") == text, f"{relative}: run python -m bench.peers.page"
    shown = {path.name for path in (ROOT / PICTURES).glob("*")}
    assert shown == {path.name for path in pages(record_of(1.0), "x.json") if path.suffix == ".svg"}


def test_the_newest_record_has_every_figure_of_every_part() -> None:
    figures = json.loads(newest().read_text(encoding="utf-8"))["figures"]

    missing = [f"{part.name}.{figure.name}" for part in EVERY_PART for figure in part.figures]
    assert [name for name in missing if name not in figures] == []


def test_the_page_says_which_parts_are_of_a_smaller_run() -> None:
    quick = record_of(1.0)
    again = [Taken(EVERY_PART[0], {}, {}, 1.0)]

    page = pages(merged(quick, again, FULL), "x.json")[PAGE]

    assert "**All figures are of a quick run" in pages(quick, "x.json")[PAGE]
    said = re.search(r"\*\*Some figures are of a quick run.*These are: (.*)\.\*\*", page)
    assert said is not None and said[1].split("; ") == [part.title for part in EVERY_PART[1:]]
    whole = merged(None, [Taken(part, {}, {}, 1.0) for part in EVERY_PART], FULL)
    assert "figures are of" not in pages(whole, "x.json")[PAGE]


@pytest.mark.parametrize("part", EVERY_PART, ids=PARTS)
def test_every_figure_has_a_name_with_a_unit_and_a_sentence(part: Part) -> None:
    names = [figure.name for figure in part.figures]

    assert len(set(names)) == len(names)
    for figure in part.figures:
        assert re.fullmatch(r"[a-z][a-z0-9_]+", figure.name)
        assert figure.unit is not None
        assert figure.says[0].isupper() or figure.says[0] == "`", figure.says
        assert figure.says.endswith("."), figure.says
    assert {name for each in part.compared for name in (each.ours, each.theirs)} <= set(names)
    assert {name for chart in part.charts for _, name in chart.bars} <= set(names)
    assert part.question.endswith("?")
    assert part.method.endswith(".")


def test_what_compares_with_a_peer_says_what_lies_behind_a_peer_that_is_ahead() -> None:
    record = json.loads(newest().read_text(encoding="utf-8"))
    page = pages(record, "x.json")[PAGE]

    lost = re.search(r"## Where a peer does better today\n\n(.*?)\n\n", page, re.DOTALL)
    assert lost is not None
    rows = lost[1].splitlines()[2:]
    assert len(rows) >= 3, "at least three things that a peer does better, with figures"
    assert [row for row in rows if row.endswith("|  |")] == [], "each with its reason"


def test_where_a_peer_is_ahead_comes_of_the_figures() -> None:
    ahead, behind = (pages(record_of(better), "x.json")[PAGE] for better in (2.0, 0.5))

    assert "| what | Headwater | peer | how far | why |" not in ahead
    assert behind.count("| **behind**, 2 times |") == sum(len(part.compared) for part in EVERY_PART)
    assert "**behind**" not in ahead


def test_a_figure_that_was_not_measured_is_shown_as_such_with_the_reason() -> None:
    record = merged(None, [Taken(part, {}, {}, 1.0, "the broker did not start") for part in EVERY_PART], QUICK)
    page = pages(record, "x.json")

    assert page[PAGE].count("This part did not come to its end: the broker did not start") == len(EVERY_PART)
    assert page[PAGE].count("not measured") >= sum(len(part.figures) for part in EVERY_PART)


def test_pictures_are_well_formed_and_show_each_bar_to_its_scale() -> None:
    for path, text in pages(record_of(2.0), "x.json").items():
        if path.suffix != ".svg":
            continue
        root = ElementTree.fromstring(text)
        bars = [float(each.get("width", "0")) for each in root.iter() if each.get("class") in ("ours", "peer")]
        assert bars, path
        assert max(bars) <= 720
        assert root.get("aria-label")
