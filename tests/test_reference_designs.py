"""docs/reference-designs.md, held by a machine: every row is there once, and every test that it names exists.

RULE     A row of a part that is not built yet may name its part in place of a test; these rows are listed here.
NOT HERE Whether a test shows what its row says: that is for its reader.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference-designs.md"
ROWS = range(1, 141)
LATER: dict[int, str] = {}
"""Rows that need a later part whole."""
ANSWERS = ("The same", "Different: ", "Not inherited: ")
PARTS = {"server"}

ROW = re.compile(r"^\| S(\d+) \|(.*)\|(.*)\|(.*)\|$")
SCENARIO = re.compile(r"^\| ([a-z][^|]*) \| (S\d+(?:, S\d+)*) \|(.*)\|$")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


class Row(NamedTuple):
    number: int
    behaviour: str
    does: str
    shown_by: str


def rows() -> list[Row]:
    found = filter(None, map(ROW.match, PAGE.read_text(encoding="utf-8").splitlines()))
    return [Row(int(match[1]), match[2].strip(), match[3].strip(), match[4].strip()) for match in found]


def scenarios() -> list[tuple[str, str, str]]:
    found = filter(None, map(SCENARIO.match, PAGE.read_text(encoding="utf-8").splitlines()))
    return [(match[1], match[2], match[3]) for match in found]


@cache
def names_in(path: str) -> frozenset[str]:
    """The tests of a file: functions of the module, and methods of its classes."""
    file = ROOT / path
    if not file.is_file():
        return frozenset()
    tree = ast.parse(file.read_text(encoding="utf-8"))
    classes: Iterable[ast.Module | ast.ClassDef] = [each for each in tree.body if isinstance(each, ast.ClassDef)]
    found = [node for scope in (tree, *classes) for node in scope.body]
    return frozenset(node.name for node in found if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def missing(text: str) -> list[str]:
    return [f"{path}::{name}" for path, name in TEST.findall(text) if name not in names_in(path)]


def test_every_row_is_there_once_and_in_order() -> None:
    assert [row.number for row in rows()] == list(ROWS)


def test_every_row_says_what_the_designs_do_and_what_headwater_does() -> None:
    for row in rows():
        assert row.behaviour, f"S{row.number}"
        assert row.does.startswith(ANSWERS), f"S{row.number}: {row.does}"


def test_every_test_that_the_page_names_exists() -> None:
    text = PAGE.read_text(encoding="utf-8")

    assert len(TEST.findall(text)) > 200
    assert missing(text) == []


def test_a_test_that_does_not_exist_is_noticed() -> None:
    here = "tests/test_reference_designs.py"

    assert missing(f"`{here}::test_a_test_that_does_not_exist_is_noticed`") == []
    assert missing(f"`{here}::test_of_nothing` `tests/test_nowhere.py::test_it`") == [
        f"{here}::test_of_nothing",
        "tests/test_nowhere.py::test_it",
    ]


def test_every_row_of_log_and_topics_names_a_test_and_the_others_their_part() -> None:
    for row in rows():
        named = TEST.findall(row.shown_by)
        if row.number in LATER:
            assert row.shown_by == f"*{LATER[row.number]}*", f"S{row.number}"
        else:
            assert 1 <= len(named) <= 3, f"S{row.number} names {len(named)} tests"
            assert TEST.sub("", row.shown_by).replace("<br>", "").strip() == "", f"S{row.number}: {row.shown_by}"


def test_parts_that_are_to_come_are_called_by_their_names() -> None:
    marked = {part for row in rows() for part in re.findall(r"\*([^*]+)\*", row.does + row.shown_by)}

    assert marked == PARTS


def test_every_scenario_names_rows_and_a_test() -> None:
    found = scenarios()

    assert len(found) == 20
    for what, numbers, shown_by in found:
        assert all(int(number) in ROWS for number in re.findall(r"S(\d+)", numbers)), what
        assert TEST.search(shown_by), what
