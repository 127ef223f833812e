"""The site builds without a warning, and no page of it asks another host for anything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT

FETCHED = {
    "link": ["href"],
    "script": ["src"],
    "img": ["src", "srcset"],
    "source": ["src", "srcset"],
    "iframe": ["src"],
    "object": ["data"],
    "video": ["src"],
    "use": ["href", "xlink:href"],
    "form": ["action"],
}
"""What a browser fetches, or sends to, without being asked by the reader."""

_ELSEWHERE = re.compile(r"(?:[a-z]+:)?//[\w.-]", re.IGNORECASE)
_CSS = re.compile(r"url\(\s*['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)")


class _Fetches(HTMLParser):
    """The places that a page makes a browser go to."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name in FETCHED.get(tag, []) and value:
                self.found.append(value)
            if name == "style" and value:
                self.found += styled(value)


def styled(text: str) -> list[str]:
    return [first or second for first, second in _CSS.findall(text)]


def fetches(text: str) -> list[str]:
    parser = _Fetches()
    parser.feed(text)
    return parser.found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("built") / "site"
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(place)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return place


def test_no_page_of_the_site_asks_another_host_for_anything(site: Path) -> None:
    asked = [(page.name, place) for page in site.rglob("*.html") for place in fetches(page.read_text(encoding="utf-8"))]
    asked += [(page.name, place) for page in site.rglob("*.css") for place in styled(page.read_text(encoding="utf-8"))]

    assert len(asked) > 100
    assert not [(page, place) for page, place in asked if _ELSEWHERE.match(place)]


def test_every_page_of_the_docs_is_in_the_site(site: Path) -> None:
    pages = {path.relative_to(ROOT / "docs").with_suffix("") for path in (ROOT / "docs").rglob("*.md")}
    missing = [page for page in pages - {Path("decisions/template")} if not any(_places(site, page))]

    assert not missing
    assert (site / "project" / "SECURITY" / "index.html").exists()
    assert "Deployment" in (site / "source" / "deploy" / "kubernetes" / "bucket.yaml" / "index.html").read_text()


def test_a_page_that_asks_another_host_would_be_found() -> None:
    page = '<script src="https://cdn.example/x.js"></script><a href="https://example.com">a</a>'
    page += '<p style="background:url(//x.example/y)">'

    assert [place for place in fetches(page) if _ELSEWHERE.match(place)] == [
        "https://cdn.example/x.js",
        "//x.example/y",
    ]


def _places(site: Path, page: Path) -> Iterator[bool]:
    yield (site / page / "index.html").exists()
    yield page.name in ("README", "index") and (site / page.parent / "index.html").exists()
