"""The page itself, as it is served and as it is written into one file.

    page.html   the markup, with nothing in it but headings, empty tables and places
    page.css    how it looks
    page.js     asks for the document, and puts it in: as text, never as markup

SERVED   Three files, and a Content-Security-Policy by which the page can load nothing else, from nowhere else.
FILE     One file with all three and the document in it.  Its policy names the digests of that very style and script.
PROMISE  Nothing is asked of any other host.  Text of a document cannot end the element that holds it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import pkgutil
from functools import cache
from typing import NamedTuple

_HTML, _CSS, _JS = "page.html", "page.css", "page.js"
_STYLE_LINK = '<link rel="stylesheet" href="page.css">'
_SCRIPT_LINK = '<script src="page.js" defer></script>'
_POLICY_PLACE = '<meta name="referrer" content="no-referrer">'

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-cache",
}


class Asset(NamedTuple):
    content: bytes
    content_type: str


ASSETS = {
    "/": (_HTML, "text/html; charset=utf-8"),
    "/page.css": (_CSS, "text/css; charset=utf-8"),
    "/page.js": (_JS, "text/javascript; charset=utf-8"),
}
"""By path."""


@cache
def asset(path: str) -> Asset:
    name, content_type = ASSETS[path]
    return Asset(_packaged(name), content_type)


def file_page(document: dict[str, object]) -> bytes:
    """The page with this document in it: it needs no server, and no other file."""
    style, script = _packaged(_CSS).decode(), _packaged(_JS).decode()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # After `<` a text could close the script that it stands in, or begin a comment: JSON has another way to write it.
    data = json.dumps(document, separators=(",", ":")).replace("<", "\\u003c")
    page = _packaged(_HTML).decode()
    for place, content in (
        (_POLICY_PLACE, f'{_POLICY_PLACE}\n<meta http-equiv="Content-Security-Policy" content="{policy}">'),
        (_STYLE_LINK, f"<style>{style}</style>"),
        (_SCRIPT_LINK, ""),
        (
            "</body>",
            f'<script type="application/json" id="document">{data}</script>\n<script>{script}</script>\n</body>',
        ),
    ):
        assert page.count(place) == 1, place
        page = page.replace(place, content)
    return page.encode()


def _packaged(name: str) -> bytes:
    found = pkgutil.get_data(__package__, name)
    assert found is not None, name
    return found


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
