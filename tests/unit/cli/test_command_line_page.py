"""docs/command-line.md shows what the commands really say: every `$` line of it is run, in order, and compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.cli.shown_pages import ROOT, said_and_shown

PAGE = ROOT / "docs" / "command-line.md"


def test_every_command_of_the_page_says_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    said, shown = said_and_shown(PAGE.read_text())

    assert len(said) > 15
    assert said == shown
