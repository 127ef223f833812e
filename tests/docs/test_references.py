"""Pages that are written from the code say what the code says; what guarantees name as their tests is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks_of, pages
from tests.docs.reference_metrics import declared
from tests.docs.references import FOLDER
from tests.docs.references import pages as written

GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "text"), list(written()), ids=lambda value: value if len(value) < 40 else "")
def test_a_reference_page_is_what_the_code_gives(name: str, text: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == text, "run: python -m tests.docs.references"


def test_the_reference_has_no_page_that_nobody_writes() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {name for name, _ in written()}


def test_every_metric_of_the_reference_is_explained_in_its_page() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")

    assert not [each.name for each in declared() if each.name not in page]
    assert len(list(declared())) > 30


def test_every_guarantee_names_tests_that_are_there() -> None:
    promised = re.findall(r"^\*\*(G\d+) ", GUARANTEES, re.MULTILINE)
    rows = dict(re.findall(r"^\| (G\d+) \| (\[.*\)) \|$", GUARANTEES, re.MULTILINE))

    assert list(rows) == promised
    for name, row in rows.items():
        named = re.findall(r"\]\(\.\./(tests/[^)]+)\)", row)
        assert len(named) >= 2, name
        assert not [path for path in named if not (ROOT / path).is_file()], name


def test_every_test_that_a_page_names_is_there() -> None:
    named = {
        (page, path)
        for page in pages()
        if page not in ("CHANGELOG.md", "docs/bugs-found.md")
        for path in re.findall(
            r"\b((?:tests|bench|examples|deploy)/[\w/]+\.(?:py|yml|yaml|json|service))\b", _text(page)
        )
    }

    assert len(named) > 50
    assert not sorted((page, path) for page, path in named if not (ROOT / path).is_file())


def test_a_block_that_another_test_runs_names_one_that_is_there() -> None:
    run_by = [(page, block.run_by) for page in pages() for block in blocks_of(_text(page)) if block.run_by]

    assert run_by
    assert not [(page, test) for page, test in run_by if not (ROOT / test).is_file()]


def test_every_dump_of_bytes_is_compared_by_a_test_of_its_format() -> None:
    dumped = {Path(page).name for page in pages() for block in blocks_of(_text(page)) if block.language == "hexdump"}
    tests = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests" / "formats").glob("*.py"))

    assert dumped
    assert not [name for name in dumped if name not in tests]


def _text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")
