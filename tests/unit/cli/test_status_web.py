"""`headwater status --web DIR`: the page of a log in one file."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.cli import web_page
from headwater.cli.exit_codes import ExitCode
from headwater.cli.web_page import write_page
from headwater.clock import SystemClock
from tests.servers.headwater import serving
from tests.unit.cli.topics import SETTINGS, make_topics, run


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return make_topics(tmp_path / "data")


def document(directory: Path) -> dict[str, Any]:
    """What the page in this directory shows."""
    page = (directory / "index.html").read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="document">(.*)</script>', page)
    assert found is not None
    told: dict[str, Any] = json.loads(found[1])
    return told


def test_the_page_holds_the_topics_and_nothing_else_is_written(data: Path, tmp_path: Path) -> None:
    result = run(data, "status", "--web", tmp_path / "deep" / "web")

    assert result.stdout == f"wrote {tmp_path}/deep/web/index.html\n"
    assert [path.name for path in (tmp_path / "deep" / "web").iterdir()] == ["index.html"]
    told = document(tmp_path / "deep" / "web")
    assert [each["name"] for each in told["topics"]["items"]] == ["customers", "orders", "raw"]
    assert (told["source"], told["again_s"]) == ("file", None)
    assert told["log"]["directory"] == str(data) and told["place"]["kind"] == "disk"


def test_it_is_written_over_and_what_a_killed_one_left_does_not_matter(data: Path, tmp_path: Path) -> None:
    web = tmp_path / "web"
    web.mkdir()
    (web / "index.html").write_text("old")
    (web / "index.html.tmp").write_text("half")
    (web / "notes.txt").write_text("mine")

    assert run(data, "status", "--web", web).exit_code == ExitCode.DONE

    assert sorted(path.name for path in web.iterdir()) == ["index.html", "notes.txt"]
    assert document(web)["format"] == 1


def test_of_a_server_the_same_is_written(data: Path, tmp_path: Path) -> None:
    with serving(data, log_settings=SETTINGS) as server:
        result = run(server.address, "status", "--web", tmp_path / "web")

    assert result.exit_code == ExitCode.DONE, result.stderr
    assert len(document(tmp_path / "web")["topics"]["items"]) == 3


def test_a_watch_writes_again_and_tells_the_page_at_its_end(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_page, "EVERY_S", 0.05)
    web = tmp_path / "web"
    ended = threading.Event()
    with hw.open(data, settings=SETTINGS) as log:
        arguments = (log, str(data), str(web), SystemClock())
        watching = threading.Thread(target=lambda: write_page(*arguments, watch=True, ended=ended))
        watching.start()
        while not (web / "index.html").exists():
            threading.Event().wait(0.01)
        during = document(web)
        log["raw"].append([b"x"])
        while sum(each["rows"] for each in document(web)["topics"]["items"]) < 4:
            threading.Event().wait(0.05)
        ended.set()
        watching.join()

    assert during["again_s"] == 0.05
    assert document(web)["again_s"] is None


def test_what_does_not_go_together_is_refused(data: Path, tmp_path: Path) -> None:
    with_json = run(data, "status", "--web", tmp_path, "--json")
    in_a_bucket = run(data, "status", "--web", "s3://bucket/prefix")

    assert (with_json.exit_code, in_a_bucket.exit_code) == (ExitCode.USAGE, ExitCode.USAGE)
    assert "--web writes into a directory" in in_a_bucket.stderr
