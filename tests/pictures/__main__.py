"""`python -m tests.pictures [--seconds N] [--out DIR]`: the pictures of the web page, of a real server, by Chromium.

It starts a server over a small shop's log (shop.py), lets it work for a while so that there is a history, and takes the
page in light, in dark and on a phone.  With a built docs site beside it (`site/`), pictures of that too.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
from pathlib import Path

from tests.pictures.png import smaller
from tests.pictures.shop import Shop
from tests.servers.chromium import Chromium
from tests.servers.headwater import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
OUT = ROOT / "docs" / "pictures"
SECONDS = 150.0
READY = "document.querySelectorAll('#topics tbody tr').length && document.querySelectorAll('.graph .line').length == 3"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.pictures", description=__doc__)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long the server works before it is shown")
    parser.add_argument("--out", type=Path, default=OUT, help="where the pictures go")
    parser.add_argument("--site", type=Path, default=ROOT / "site", help="the built docs, if there are any")
    parser.add_argument("--only-site", action="store_true", help="of the docs alone")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    out = given.out.resolve()
    site = given.site.resolve()
    if not given.only_site:
        _take_shop(given.seconds, out)
    if site.is_dir():
        with tempfile.TemporaryDirectory(prefix="headwater-pictures-") as scratch, Chromium(Path(scratch)) as browser:
            _take_site(browser, site, out)


def _take_shop(seconds: float, out: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="headwater-pictures-") as scratch:
        # Its name is seen on the page: there, and not where this machine keeps what is temporary.
        os.chdir(scratch)
        data = Path("shop")
        shop = Shop(data)
        shop.begin()
        with ServerProcess(data) as server, Chromium(Path(scratch)) as browser:
            working = threading.Thread(target=shop.day, args=(server.address, seconds), daemon=True)
            working.start()
            working.join(seconds - 3)
            _take_page(browser, server.url + "/", out)
            working.join()
    os.chdir(ROOT)


def _take_page(browser: Chromium, url: str, out: Path) -> None:
    browser.open(url, width=1280, height=1000)
    browser.wait_for(READY)
    _keep(browser.picture(), out / "page-light.png")
    browser.ask("document.querySelector('#landings-head').scrollIntoView()")
    _keep(browser.picture(), out / "page-light-below.png")
    browser.open(url, width=1280, height=1000, dark=True)
    browser.wait_for(READY)
    _keep(browser.picture(), out / "page-dark.png")
    browser.open(url, width=390, height=844)
    browser.wait_for(READY)
    _keep(browser.picture(), out / "page-phone.png")
    browser.ask("document.querySelector('#topics-head').scrollIntoView()")
    _keep(browser.picture(), out / "page-phone-topics.png")


def _take_site(browser: Chromium, site: Path, out: Path) -> None:
    """The docs as they are built: the first page in light and on a phone, a how-to in the dark."""
    for name, page, width, dark in (
        ("docs-light", "index.html", 1280, False),
        ("docs-dark", "howto/fastapi/index.html", 1280, True),
        ("docs-phone", "index.html", 390, False),
    ):
        browser.open((site / page).as_uri(), width=width, height=844 if width < 700 else 900, dark=dark)
        browser.wait_for("document.readyState == 'complete' && document.querySelector('article') != null")
        _keep(browser.picture(), out / f"{name}.png")
        browser.ask("localStorage.clear()")  # a site remembers its first visitor's colours


def _keep(picture: bytes, path: Path) -> None:
    path.write_bytes(smaller(picture))
    print(f"{path.name}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
