"""The reference pages that are written from the code: commands, settings, metrics, the Python API, errors.

    python -m tests.docs.references            writes docs/reference/*.md
    pages()                                    their texts by name, for the test that says when one is stale

WHY      What an option, a field or a method does is said once, in its help or docstring, and read from there.  Pages
         that tell when to use which, with examples, are written by hand and stand beside these.
PROMISE  The same code gives the same bytes, on every machine and every supported Python.
NOT HERE The protocol and the formats, which are written by hand and held to the code by tests of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.docs.reference_commands import commands_page
from tests.docs.reference_metrics import metrics_page
from tests.docs.reference_python import errors_page, python_page
from tests.docs.reference_settings import settings_page

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "reference"


def pages() -> Iterator[tuple[str, str]]:
    """Each page's name and what it should say."""
    yield "commands.md", commands_page()
    yield "settings.md", settings_page()
    yield "metrics.md", metrics_page()
    yield "python.md", python_page()
    yield "errors.md", errors_page()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(f"docs/reference/{name}: {text.count(chr(10)):,} lines")
