"""Every block of every page is run, read or marked; what is run says what the page shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Kind, blocks_of, looks_runnable, pages
from tests.docs.running import said_and_shown, written_anew

TYPED = {"docs/tutorial.md"}
"""Typed into a terminal by `python -m tests.tutorial`."""

ELSEWHERE = {"README.md", "docs/views.md", "docs/audit.md", "docs/command-line.md"}
"""Run by tests/unit/cli, where the branches that they take are counted."""

PAGES = pages()
RUN = [page for page in PAGES if page not in ELSEWHERE | TYPED and blocks_of((ROOT / page).read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", RUN)
def test_every_program_and_command_of_a_page_says_what_the_page_shows(page: str, tmp_path: Path) -> None:
    said, shown = said_and_shown((ROOT / page).read_text(encoding="utf-8"), tmp_path)

    assert said == shown, f"if the product is right: python -m tests.docs.running {page}"


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_says_what_it_is(page: str) -> None:
    blocks = blocks_of((ROOT / page).read_text(encoding="utf-8"))

    unnamed = [f"{page}:{block.line}" for block in blocks if block.kind is Kind.UNNAMED and not block.not_run]
    hidden = [
        f"{page}:{block.line}"
        for block in blocks
        if block.language == "indented" and not block.not_run and looks_runnable(block.text)
    ]

    assert not unnamed, "a block has a language: python, console, sh, text, json, ..."
    assert not hidden, "what can be run stands in a block that is run, or is marked *Not run here: why.*"


def test_blocks_are_found_with_what_stands_above_them() -> None:
    page = """
```python
a = 1
```

*Not run here: it needs two of
them.*

```sh
rm -rf /
```

<!-- file: x.toml -->
```toml
a = 1
```

    A picture ..
    of two lines

- a list

    and its second paragraph
"""
    found = blocks_of(page)

    assert [block.kind for block in found] == [Kind.PROGRAM, Kind.SCRIPT, Kind.DATA, Kind.PICTURE]
    assert [block.not_run for block in found] == ["", "it needs two of them.", "", ""]
    assert found[2].file == "x.toml"
    assert page[found[3].begin : found[3].end] == "    A picture ..\n    of two lines\n"


def test_a_page_is_a_session_and_what_it_shows_is_found_and_replaced(tmp_path: Path) -> None:
    page = """
```python
a = 1
```

```python
async def more():
    return a + 1

print(await more())
```

```text
3
```

```console
$ echo 4
five
$ echo 6
```
"""

    said, shown = said_and_shown(page, tmp_path)
    anew = written_anew(page, tmp_path)

    assert [each for _, each in said] == ["", "2\n", "4\n", "6\n"]
    assert [each for _, each in shown] == ["", "3\n", "five\n", ""]
    assert anew == page.replace("\n3\n", "\n2\n").replace("five\n", "4\n").replace("$ echo 6\n", "$ echo 6\n6\n")


@pytest.mark.parametrize(
    "block", ["```json\n{\n```\n", '```sh\npip install "headwater[lak]"\n```\n', "```sh\nfalse\n```\n"]
)
def test_a_block_that_is_wrong_is_found(block: str, tmp_path: Path) -> None:
    with pytest.raises((ValueError, AssertionError)):
        said_and_shown(block, tmp_path)
