"""Golden files as the makers hand them over, and how they are written: once.

A golden file has its facts beside it as JSON, with its size and its SHA-256.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple


class GoldenFile(NamedTuple):
    name: str
    data: bytes
    facts: dict[str, Any]


def make_missing(files: Iterable[GoldenFile], directory: Path) -> list[Path]:
    """Make the golden files that are not there; one that is there stays as it is."""
    made = []
    for file in files:
        facts = file.facts | {"size_bytes": len(file.data), "sha256": hashlib.sha256(file.data).hexdigest()}
        for path, content in (
            (directory / file.name, file.data),
            (directory / f"{file.name}.json", (json.dumps(facts, indent=1) + "\n").encode()),
        ):
            if not path.exists():
                path.write_bytes(content)
                made.append(path)
    return made


def run_maker(main: Callable[..., list[Path]]) -> None:
    """A maker as a program: its argument is another directory than its own."""
    for path in main(*(Path(argument) for argument in sys.argv[1:])):
        print(path.name)
