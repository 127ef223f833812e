"""Pages of the docs that show programs and their output: run as they stand, and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.shown_pages import ROOT, said_and_shown, steps_of, written_anew

PAGES = ["README.md", "docs/views.md", "docs/audit.md"]


@pytest.mark.parametrize("name", PAGES)
def test_every_program_and_command_of_a_page_says_what_the_page_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    said, shown = said_and_shown((ROOT / name).read_text())

    assert len(said) >= 2
    assert said == shown


def test_programs_share_a_session_and_what_a_page_shows_is_found_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = """
```python
a = 1
```

```python
print(a + 1)
```

```text
3
```

```python
spark.read
```

```text
$ echo 4
five
$ echo 6
```
"""

    assert [step.shown for step in steps_of(page)] == ["", "3\n", "five\n", ""]
    assert written_anew(page) == page.replace("\n3\n", "\n2\n").replace("five\n", "4\n").replace(
        "$ echo 6\n", "$ echo 6\n6\n"
    )
