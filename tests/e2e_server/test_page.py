"""The web page in a real browser, of a real server over a log that has really landed: what a person would see.

BROWSER  Headless Chromium.  It can find no host but this machine, and what it asks for is written down.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import headwater as hw
from headwater.clock import SystemClock, system_entropy
from headwater.lake.ledger import Ledger
from headwater.lake.ledger_records import HaltedLanding
from headwater.server.access import parse_grant
from headwater.server.settings import ServerSettings
from headwater.server.tokens import create
from headwater.storage.disk import DiskFiles
from tests.servers.chromium import Chromium, found
from tests.servers.headwater import serving
from tests.unit.cli.topics import run

HOSTILE = "</script><img src=x onerror=\"document.title='owned'\"><b>gone</b> & &lt;"
ROWS = "[...document.querySelectorAll('#%s tbody tr')].map((row) => [...row.cells].map((cell) => cell.innerText))"
HTTP = ServerSettings(listen=("127.0.0.1", 0), http=("127.0.0.1", 0), stop_s=5.0)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics that have landed and were audited, and one that is halted for a reason full of markup."""
    data = tmp_path_factory.mktemp("page") / "data"
    with hw.open(data) as log:
        for name in ("orders", "payments"):
            log.topic(name, schema={"x": int}, table=f"sales.{name}").append([{"x": each} for each in range(1234)])
        log.topic("clicks", schema={"x": int}).append([{"x": 1}])
        log.land()
        log.audit()
        consumer = log.consumer("orders", group="billing")
        consumer.poll(max_rows=1000, timeout_s=5)
        consumer.commit()
        consumer.close()
        topic_id = log["payments"].describe().topic_id
    ledger = Ledger(DiskFiles(data), clock=SystemClock(), entropy=system_entropy)
    ledger.record([HaltedLanding(at_us=1, topic_id=topic_id, table="sales.payments", cause="gap", message=HOSTILE)])
    ledger.close()
    return data


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if found() is None:
        if os.environ.get("CI") == "true":
            pytest.fail("chromium is not installed; in CI this suite must run")
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    with Chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture
def browser(started: Chromium) -> Iterator[Chromium]:
    yield started
    # A page asks again and again: of a server that is gone by then, in the next test.
    started.open("about:blank")
    started.wait_for("location.href == 'about:blank'")
    started.errors.clear()
    started.asked.clear()


def rows(browser: Chromium, table: str) -> list[list[str]]:
    browser.wait_for(f"document.querySelectorAll('#{table} tbody tr').length")
    found: list[list[str]] = browser.ask(ROWS % table)
    return found


def check_calm(browser: Chromium, *begins: str) -> None:
    """Nothing was complained of, and nobody else was asked for anything."""
    assert browser.errors == []
    assert [url for url in browser.asked if not url.startswith((*begins, "data:"))] == []


def test_the_page_of_a_server_shows_what_the_log_holds(data: Path, browser: Chromium) -> None:
    with serving(data, settings=HTTP) as server:
        url = f"http://127.0.0.1:{server.http_port}/"
        browser.open(url)

        topics = rows(browser, "topics")
        assert [each[0].split("\n")[0] for each in topics] == ["clicks", "orders", "payments"]
        assert topics[1][1] == "1,234"
        assert "none" in topics[1][6] and "halted" in topics[2][6]
        landings = rows(browser, "landings")
        assert {each[1].split("\n")[0] for each in landings} == {"orders", "payments"}
        assert all(re.fullmatch(r"[0-9a-f]{16}", each[4]) and "verified" in each[6] for each in landings)
        assert [each[4] for each in rows(browser, "audits")] == ["✓ pass", "✓ pass"]
        assert rows(browser, "groups")[0][:2] == ["billing\norders", "234 rows"]
        maps = browser.ask("[...document.querySelectorAll('svg.lsns')].map((map) => map.getAttribute('aria-label'))")
        assert len(maps) == 2 and "in log and table, verified" in maps[0]
        # The reason of the halt is text, whatever it says.
        assert browser.ask("document.querySelector('.halt .message').innerText") == HOSTILE
        assert browser.ask("document.querySelectorAll('.halt img, .halt b').length") == 0
        assert browser.ask("document.title") == "▲ 1 halted · Headwater"
        assert f"--after-rollback payments --data {data}" in browser.ask(
            "document.querySelector('.halt code').innerText"
        )

        _new_rows_are_seen_without_a_reload(browser, server.served.engine)
        _keys_are_enough(browser)
        _no_width_scrolls_sideways(browser)
        check_calm(browser, url)


def _new_rows_are_seen_without_a_reload(browser: Chromium, engine: Any) -> None:
    browser.ask("window.before = true")
    engine.append(engine.topic("clicks").number, [{"x": 2}])

    browser.wait_for("document.querySelector('#topics tbody tr').cells[1].innerText == '2'")
    assert browser.ask("window.before")


def _keys_are_enough(browser: Chromium) -> None:
    browser.ask("document.body.focus()")
    browser.press("Tab")
    assert browser.ask("document.activeElement.innerText") == "Skip to the log"
    browser.press("/")
    assert browser.ask("document.activeElement.id") == "filter"
    browser.type("pay")
    browser.wait_for("document.querySelectorAll('#topics tbody tr').length == 1")
    browser.press("Escape")
    browser.wait_for("document.querySelectorAll('#topics tbody tr').length == 3")
    browser.ask("[...document.querySelectorAll('#topics th button')].find((each) => each.innerText == 'Rows').focus()")
    browser.press("Enter")
    browser.wait_for("document.querySelector('#topics tbody tr').cells[0].innerText.startsWith('payments')")
    assert browser.ask("document.activeElement.closest('th').getAttribute('aria-sort')") == "descending"


def _no_width_scrolls_sideways(browser: Chromium) -> None:
    for width in (1280, 900, 600, 390, 320):
        browser.resize(width, 800)
        assert browser.wait_for(f"window.innerWidth == {width} && document.documentElement.scrollWidth") <= width


def test_light_and_dark_are_the_systems_and_can_be_chosen(data: Path, browser: Chromium) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with serving(data, settings=HTTP) as server:
        browser.open(f"http://127.0.0.1:{server.http_port}/", dark=True)
        rows(browser, "topics")
        dark = browser.ask(ground)
        browser.ask("document.querySelector('#theme').click()")

        assert browser.ask(ground) != dark
        assert browser.ask("document.querySelector('#theme').innerText") == "Theme: light"
        assert browser.errors == []


def test_with_tokens_the_page_asks_for_one_and_keeps_it_out_of_every_address(data: Path, browser: Chromium) -> None:
    token = create(DiskFiles(data), "orders-only", (parse_grant("read:orders"),))
    settings = ServerSettings(listen=("127.0.0.1", 0), http=("127.0.0.1", 0), stop_s=5.0, tokens=True)
    with serving(data, settings=settings) as server:
        url = f"http://127.0.0.1:{server.http_port}/"
        browser.open(url)
        browser.wait_for("document.activeElement?.id == 'token'")
        browser.type(token)
        browser.press("Enter")

        assert [each[0].split("\n")[0] for each in rows(browser, "topics")] == ["orders"]
        assert "payments" not in browser.ask("document.body.innerText")
        assert not [each for each in browser.asked if token in each]
        assert token not in browser.ask("document.documentElement.outerHTML")
        # A refused call is written into the console by the browser itself.
        assert [each for each in browser.errors if "401" not in each] == []


def test_the_page_in_a_file_needs_no_server(data: Path, tmp_path: Path, browser: Chromium) -> None:
    result = run(data, "status", "--web", tmp_path / "web")
    assert result.exit_code == 0, result.stderr
    url = (tmp_path / "web" / "index.html").as_uri()

    browser.open(url)

    assert [each[0].split("\n")[0] for each in rows(browser, "topics")] == ["clicks", "orders", "payments"]
    assert len(rows(browser, "landings")) == 2
    assert browser.ask("document.querySelector('.halt .message').innerText") == HOSTILE
    check_calm(browser, url)
