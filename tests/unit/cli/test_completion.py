"""What a shell puts in: commands, and the names of topics, by a look that changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.formats.make_directories import unpack

SHELLS = ("bash", "zsh", "fish")


def completed(*words: str, at: Path, **environment: str) -> list[str]:
    """What bash would be told for the last of these words."""
    asked = {
        "COMP_WORDS": " ".join(("headwater", *words)),
        "COMP_CWORD": str(len(words)),
        "_HEADWATER_COMPLETE": "complete_bash",
    }
    done = subprocess.run(
        [sys.executable, "-m", "headwater"],
        cwd=at,
        env={**os.environ, **asked, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stderr == ""
    return done.stdout.split()


def test_commands_are_completed(tmp_path: Path) -> None:
    assert set(completed("re", at=tmp_path)) == {"read", "restore", "registry"}


def test_topics_are_completed_from_the_directory_that_is_meant_by_a_look_that_changes_nothing(tmp_path: Path) -> None:
    unpack("topics-killed", tmp_path)  # an owner would recover it
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    named = completed("read", "--data", "data", "or", at=tmp_path)
    from_environment = completed("topic", "describe", "c", at=tmp_path, HEADWATER_DATA="data")

    assert named == ["orders", "orders.rejected"]
    assert from_environment == ["customers"]
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("data", ["nothing-there", "s3://bucket/prefix", "hw://host:1", "damaged"])
def test_what_cannot_be_looked_at_gives_no_names_and_no_noise(data: str, tmp_path: Path) -> None:
    unpack("topics", tmp_path)
    (tmp_path / "data").rename(tmp_path / "damaged")
    for path in (tmp_path / "damaged" / "journal").rglob("*.*"):
        path.write_bytes(b"\xff" * 300)

    assert completed("read", "--data", data, "", at=tmp_path) == []


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_is_told_how_to_ask(shell: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headwater", "--show-completion", shell],
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 0, done.stderr
    assert "_HEADWATER_COMPLETE" in done.stdout
    found = shutil.which(shell)
    if found is not None:
        syntax = subprocess.run([found, "-n"], input=done.stdout, capture_output=True, text=True, timeout=60)
        assert syntax.returncode == 0, syntax.stderr
