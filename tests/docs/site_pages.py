"""What the site has besides docs/: a page for each file of the repository that a page of the docs links to.

    [the unit](../deploy/systemd/headwater.service)    a page with its text
    [Kubernetes](../deploy/kubernetes)                 a page that lists its files, each with a page of its own
    [SECURITY.md](../SECURITY.md)                      the same page, with its links bent

MkDocs loads this file as a hook (mkdocs.yml).  So a page has one form of link, which works in the repository, in a
clone and in the site.

PROMISE  A link to what is not there fails the build, as MkDocs's own links do.
NOT HERE Pages that are written down: tests/docs/references.py makes those, and they are committed.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs"
LEFT_OUT = {"__pycache__"}
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"
LANGUAGES = {".py": "python", ".yml": "yaml", ".yaml": "yaml", ".json": "json", ".toml": "toml", ".service": "ini"}

_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^(```+).*?^\1\s*$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Every file outside docs/ that is linked to, and what those link to in their turn, becomes a page."""
    waiting: list[str] = []
    for file in files.documentation_pages():
        waiting += outside(file.content_string, f"{DOCS}/{file.src_uri}")
    waiting += ["SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    made: set[str] = set()
    while waiting:
        path = waiting.pop()
        if path in made:
            continue
        made.add(path)
        text = text_of(path)
        waiting += outside(text, path)
        shown = InclusionLevel.INCLUDED if site_place(path).startswith("project/") else InclusionLevel.NOT_IN_NAV
        files.append(File.generated(config, site_place(path), content=bent(text, path), inclusion=shown))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    del config, files
    if page.file.generated_by is not None:
        return markdown
    return bent(markdown, f"{DOCS}/{page.file.src_uri}")


def outside(text: str, path: str) -> list[str]:
    """The paths of the repository outside docs/ that the text of `path` links to."""
    found = (target(path, link) for _, link, _ in _LINK.findall(_FENCE.sub("", text)))
    return [each for each in found if not within(each)]


def target(path: str, link: str) -> str:
    """What a link in `path` leads to, as a path in the repository."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def within(path: str) -> bool:
    return path.startswith(f"{DOCS}/")


def site_place(path: str) -> str:
    """The page of the site that shows a file of the repository."""
    if within(path):
        return path.removeprefix(f"{DOCS}/")
    if path.endswith(".md") and "/" not in path:
        return f"project/{path}" if path != "README.md" else "project/the-readme.md"
    return f"source/{path}.md" if not (ROOT / path).is_dir() else f"source/{path}/the-folder.md"


def bent(text: str, path: str) -> str:
    """The text with every link that leads out of docs/, or stands outside of it, led to its page."""
    here = site_place(path)
    fenced = [(found.start(), found.end()) for found in _FENCE.finditer(text)]

    def led(found: re.Match[str]) -> str:
        if any(begin <= found.start() < end for begin, end in fenced):
            return found[0]
        there = target(path, found[2])
        if within(path) and within(there):
            return found[0]
        return f"{found[1]}{posixpath.relpath(site_place(there), posixpath.dirname(here))}{found[3]}"

    return _LINK.sub(led, text)


def text_of(path: str) -> str:
    """A page of Markdown as it is; of other files their text, of a folder its files."""
    place = ROOT / path
    if not place.exists() or not place.is_relative_to(ROOT):
        raise PluginError(f"a page links to {path}, which is not there")
    if place.is_dir():
        names = sorted(each.name for each in place.iterdir() if each.name not in LEFT_OUT and each.is_file())
        listed = "\n".join(f"- [{name}]({place.name}/{name})" for name in names)
        return f"{UNSEARCHED}# `{path}/`\n\n{listed}\n"
    if place.suffix == ".md":
        return place.read_text(encoding="utf-8")
    text = place.read_text(encoding="utf-8").rstrip("\n")
    return f"{UNSEARCHED}# `{path}`\n\n````{LANGUAGES.get(place.suffix, 'text')}\n{text}\n````\n"
