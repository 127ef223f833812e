"""What the README and docs show works as it is shown: the quick start, every command line, every option in them."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner

import headwater as hw
from headwater.cli.main import app
from headwater.log.verify import FindingName, NoteName
from tests.servers.headwater import ServerProcess

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]

# A command at the beginning of a line of code, behind a prompt or not, or between backticks.
_COMMAND = re.compile(r"(?:^(?: {4}|\$ )+|`)(headwater(?: [^`\n]*)?)", re.MULTILINE)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_WORD = re.compile(r"[a-z]+")


def command_lines(text: str) -> list[str]:
    """Every command line of ours in a page, without its comment."""
    fenced = [
        line for _, block in _FENCED.findall(text) for line in block.splitlines() if line.startswith("headwater ")
    ]
    return [*(found.partition("  #")[0].strip() for found in _COMMAND.findall(text)), *fenced]


def subcommand(words: list[str]) -> list[str]:
    """The words that name a command: those before the first that cannot be one."""
    named: list[str] = []
    for word in words:
        if len(named) == 2 or not _WORD.fullmatch(word):
            break
        named.append(word)
    return named


SHOWN = sorted(
    {(page.relative_to(ROOT).as_posix(), line) for page in PAGES for line in command_lines(page.read_text())}
)


def quick_start() -> str:
    blocks: list[str] = [block for language, block in _FENCED.findall(README.read_text()) if language == "python"]
    assert len(blocks) == 1
    return blocks[0]


@pytest.fixture(scope="module")
def after_the_quick_start(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An empty directory in which somebody has followed the quick start, and what it printed."""
    place = tmp_path_factory.mktemp("newcomer")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", quick_start()], cwd=place, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return place, done.stdout


def test_the_quick_start_works_as_it_is_written(after_the_quick_start: tuple[Path, str]) -> None:
    _, printed = after_the_quick_start

    shown = [block for language, block in _FENCED.findall(README.read_text()) if language == "text"]

    assert printed == shown[0]


def test_the_commands_behind_the_quick_start_work_as_they_are_written(after_the_quick_start: tuple[Path, str]) -> None:
    place, _ = after_the_quick_start
    commands = [line for page, line in SHOWN if page == "README.md" and " data" in line and " serve " not in line]

    done = [
        subprocess.run(
            [sys.executable, "-m", *shlex.split(line)], cwd=place, capture_output=True, text=True, timeout=60
        )
        for line in commands
    ]

    assert len(commands) >= 2
    assert [each.returncode for each in done] == [0] * len(commands), [each.stderr for each in done]


def test_the_server_of_the_page_takes_a_row_over_http_and_gives_it_to_a_client(
    after_the_quick_start: tuple[Path, str],
) -> None:
    place, _ = after_the_quick_start
    (body, path) = re.findall(r"curl -d '([^']*)' http://127.0.0.1:7071(\S+)", README.read_text())[0]
    shutil.copytree(place / "data", place / "served")
    with ServerProcess(place / "served") as server:
        request = urllib.request.Request(
            f"{server.url}{path}", data=body.encode(), headers={"content-type": "application/x-www-form-urlencoded"}
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 200
        with hw.connect(server.address) as log:
            rows = log["orders"].read().to_pylist()

    assert json.loads(body).items() <= rows[-1].items()


@pytest.mark.parametrize(("page", "line"), SHOWN)
def test_every_command_that_is_shown_exists(page: str, line: str) -> None:
    words = line.split()[1:]
    result = CliRunner().invoke(app, [*subcommand(words), "--help"], env={"COLUMNS": "200"})

    assert result.exit_code == 0, f"{page} shows `{line}`"
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    assert not [option for option in options if option not in result.stdout], f"{page} shows `{line}`"


def test_commands_were_found_in_every_form_that_pages_use() -> None:
    page = "Run `headwater a b` or:\n\n    headwater c d --e\n\n```\n$ headwater f\n```\n\n```\nheadwater g\n```\n"

    assert sorted(command_lines(page)) == ["headwater a b", "headwater c d --e", "headwater f", "headwater g"]
    assert len(SHOWN) >= 5


def test_every_finding_and_note_is_explained() -> None:
    text = (ROOT / "docs" / "tools.md").read_text()

    unexplained = [name for name in (*FindingName, *NoteName) if f"| `{name}` |" not in text]

    assert not unexplained
