"""Pages of the docs that show most of the commands: run as they stand, and compared (tests/docs/running.py says how).

They are run here, and not with the other pages, because what they do counts for the branches of the lake.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from tests.docs.running import said_and_shown
from tests.docs.test_pages import ELSEWHERE


@pytest.mark.parametrize("page", sorted(ELSEWHERE))
def test_every_program_and_command_of_a_page_says_what_the_page_shows(page: str, tmp_path: Path) -> None:
    said, shown = said_and_shown((ROOT / page).read_text(encoding="utf-8"), tmp_path)

    assert len(said) >= 2
    assert said == shown, f"if the product is right: python -m tests.docs.running {page}"
