"""Where the data is: the flag, then the environment, then headwater.toml; and nothing is made by looking."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli.exit_codes import ExitCode
from tests.unit.cli.topics import make_topics, run


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def listed(*arguments: str, **environment: str) -> str:
    result = run(Path(), "topic", "list", *arguments, **{"HEADWATER_DATA": "", **environment})
    assert result.exit_code == ExitCode.DONE, result.stderr
    return result.stdout


def test_the_flag_goes_before_the_environment_and_that_before_the_file(here: Path) -> None:
    make_topics(here / "a")
    for name in "bc":
        run(here / name, "topic", "create", f"only-in-{name}")
    (here / "headwater.toml").write_text('data = "a"\n\n[other]\nx = 1\n')

    assert "customers" in listed()
    assert "only-in-b" in listed(HEADWATER_DATA="b")
    assert "only-in-c" in listed("--data", "c", HEADWATER_DATA="b")


def test_nothing_that_says_where_is_refused_with_every_way_to_say_it(here: Path) -> None:
    result = run(Path(), "status", HEADWATER_DATA="")

    assert result.exit_code == ExitCode.USAGE
    for way in ("--data", "HEADWATER_DATA", "headwater.toml"):
        assert way in result.stderr


@pytest.mark.parametrize("text", ["data = ", "data = 7"])
def test_a_file_that_says_nothing_useful_is_refused_by_its_name(here: Path, text: str) -> None:
    (here / "headwater.toml").write_text(text)

    result = run(Path(), "status", HEADWATER_DATA="")

    assert result.exit_code == ExitCode.USAGE
    assert "headwater.toml" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["status"],
        ["topic", "list"],
        ["topic", "describe", "t"],
        ["topic", "alter", "t", "--partitions", "2"],
        ["topic", "delete", "t", "--yes"],
        ["topic", "compact", "t"],
        ["read", "t"],
        ["append", "t"],
    ],
    ids=" ".join,
)
def test_only_creating_a_topic_makes_a_directory(here: Path, arguments: list[str]) -> None:
    result = run(here / "typo", *arguments, given="")

    assert result.exit_code == ExitCode.USAGE
    assert "holds no log" in result.stderr and "headwater topic create" in result.stderr
    assert not (here / "typo").exists()


@pytest.mark.parametrize("left", ["catalog.db", "lake"])
def test_tables_without_their_log_are_told_how_to_get_it_back(here: Path, left: str) -> None:
    (here / "data" / left).mkdir(parents=True)

    result = run(here / "data", "read", "t")

    assert result.exit_code == ExitCode.USAGE
    assert "holds tables and no log" in result.stderr and "log restore" in result.stderr


def test_errors_are_told_to_programs_too(here: Path) -> None:
    result = run(here / "typo", "status", "--json")

    assert '"name": "InvalidRequest"' in result.stdout
    assert result.stderr.startswith("InvalidRequest: ")
