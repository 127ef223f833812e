"""The page itself: what it may load, that it asks nobody else, and that no text of a log becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

import pytest

from headwater.page.assets import ASSETS, HEADERS, asset, file_page

HOSTILE = "</script><script>alert(1)</script><!-- <img src=x onerror=alert(2)> ]]> \\u003c ' \" & \u2028"


class Elements(HTMLParser):
    """Every element, with its attributes, and the text of scripts and styles."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._inside = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside in {"script", "style"}:
            self.texts.append((self._inside, data))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""


@pytest.mark.parametrize("path", ASSETS)
def test_no_asset_names_another_host(path: str) -> None:
    text = asset(path).content.decode()

    # The name of the SVG namespace is no address that is asked for.
    addresses = [
        each for each in re.findall(r"(?:https?|wss?):\\?/\\?/[^\s'\")]+", text) if "www.w3.org/2000/svg" not in each
    ]

    assert addresses == []
    assert "@import" not in text and "//fonts" not in text


def test_the_script_puts_nothing_in_as_markup() -> None:
    script = asset("/page.js").content.decode()

    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "DOMParser",
    ):
        assert word not in script


def test_the_page_has_no_script_style_or_handler_in_it_that_its_policy_would_refuse() -> None:
    elements = Elements(asset("/").content.decode())

    assert elements.texts == []
    for _, attributes in elements.found:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    assert "default-src 'none'" in HEADERS["content-security-policy"]
    assert "unsafe" not in HEADERS["content-security-policy"]


def test_every_place_that_the_script_asks_for_is_in_the_page() -> None:
    ids = {attributes["id"] for _, attributes in Elements(asset("/").content.decode()).found if "id" in attributes}
    asked = set(re.findall(r'byId\("([\w-]+)"\)', asset("/page.js").content.decode())) - {"document"}

    assert asked <= ids


def test_a_field_and_a_graph_have_names() -> None:
    elements = Elements(asset("/").content.decode())
    labelled = {attributes.get("for") for tag, attributes in elements.found if tag == "label"}

    assert {attributes.get("id") for tag, attributes in elements.found if tag == "input"} <= labelled
    assert ("html", {"lang": "en"}) in elements.found


def test_a_file_page_holds_the_document_and_no_text_of_it_is_markup() -> None:
    document: dict[str, object] = {"notes": [HOSTILE], "topics": {HOSTILE: HOSTILE}}

    elements = Elements(file_page(document).decode())

    scripts = [attributes for tag, attributes in elements.found if tag == "script"]
    assert scripts == [{"type": "application/json", "id": "document"}, {}]
    assert not [tag for tag, attributes in elements.found if tag == "img" or "onerror" in attributes]
    (data, _) = [text for tag, text in elements.texts if tag == "script"]
    assert json.loads(data) == document


def test_the_policy_of_a_file_page_allows_its_own_script_and_style_and_nothing_else() -> None:
    elements = Elements(file_page({"a": 1}).decode())
    (policy,) = [
        attributes["content"]
        for tag, attributes in elements.found
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    texts = dict(elements.texts)

    assert policy is not None
    for kind, text in (("script-src", texts["script"]), ("style-src", texts["style"])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe" not in policy and "connect-src" not in policy
    assert not [attributes for tag, attributes in elements.found if tag == "link" and attributes["rel"] == "stylesheet"]
