"""Every example runs as it stands, is short, and says what it shows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LINES_BELOW = 40


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_twice_in_an_empty_directory(example: Path, tmp_path: Path) -> None:
    for _ in range(2):
        run = subprocess.run([sys.executable, str(example)], cwd=tmp_path, capture_output=True, text=True, timeout=60)

        assert run.returncode == 0, run.stderr
        assert run.stdout.strip(), "an example that prints nothing shows nothing"


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_shows(example: Path) -> None:
    text = example.read_text(encoding="utf-8")

    assert text.count("\n") < LINES_BELOW
    assert ast.get_docstring(ast.parse(text))
    assert re.fullmatch(r"\d\d_[a-z_]+\.py", example.name)


def test_there_are_examples_and_their_numbers_are_dense() -> None:
    assert [int(path.name[:2]) for path in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))
    assert len(EXAMPLES) >= 8
