"""Every example runs as it stands, is short, and says what it shows."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.versitygw import versitygw

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
LINES_BELOW = 40
NEEDS = {"17_fastapi": "fastapi"}
"""What an example needs beyond Headwater's own dependencies: without it the example is skipped."""


def run_twice(example: Path, directory: Path, **environment: str) -> str:
    """What it said the second time."""
    said = ""
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, str(example)],
            cwd=directory,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

        assert run.returncode == 0, run.stderr
        said = run.stdout
        assert said.strip(), "an example that prints nothing shows nothing"
    return said


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_twice_in_an_empty_directory(example: Path, tmp_path: Path) -> None:
    if example.stem in NEEDS:
        pytest.importorskip(NEEDS[example.stem], reason=f"{example.name} needs {NEEDS[example.stem]}")

    run_twice(example, tmp_path, HEADWATER_EXAMPLE_BUCKET="")


def test_the_example_of_a_bucket_runs_on_a_real_store(tmp_path: Path) -> None:
    (example,) = [path for path in EXAMPLES if path.stem == "15_bucket"]
    with versitygw() as server:
        where = {"HEADWATER_EXAMPLE_BUCKET": server.url("example"), **server.environment}

        said = run_twice(example, tmp_path, **where)

    assert "the first owner: another process has taken the log over" in said
    assert "orders [1, 2, 3]" in said


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_says_what_it_shows(example: Path) -> None:
    text = example.read_text(encoding="utf-8")

    assert text.count("\n") < LINES_BELOW
    assert ast.get_docstring(ast.parse(text))
    assert re.fullmatch(r"\d\d_[a-z_]+\.py", example.name)


def test_there_are_examples_and_their_numbers_are_dense() -> None:
    assert [int(path.name[:2]) for path in EXAMPLES] == list(range(1, len(EXAMPLES) + 1))
    assert len(EXAMPLES) >= 8
