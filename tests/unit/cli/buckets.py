"""A bucket for the commands to work on: `s3://bucket/...` is a simulated store, and all else is as it is.

What an address means is asked in two places, by commands that look and by `headwater.open`; both are given the same
store.  Everything behind that is the product's own.
"""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headwater.api import opening
from headwater.cli import data_directory
from headwater.cli.main import app
from headwater.storage import places
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.disk import DiskFiles
from headwater.storage.simulated_store import SimulatedStore
from tests.unit.cli.topics import make_topics

URL = "s3://bucket/data"


def simulate(monkeypatch: pytest.MonkeyPatch) -> SimulatedStore:
    """The store behind every address, from now on."""
    store = SimulatedStore()
    store.url = URL

    def open_files(where: str, *, take_over: bool = False) -> DiskFiles | BucketFiles:
        if places.is_bucket(where):
            return BucketFiles(store, take_over=take_over)
        return places.open_files(where)

    monkeypatch.setattr(data_directory, "open_files", open_files)
    monkeypatch.setattr(opening, "open_files", open_files)
    return store


def fill(store: SimulatedStore) -> SimulatedStore:
    """`orders` with three rows, `customers` and `raw`, as in a directory."""
    where: Any = BucketFiles(store)
    make_topics(where)
    return store


def slots_of(store: SimulatedStore, directory: str = "log") -> list[str]:
    return [name for name in store.names() if name.startswith(f"{directory}/0") and "." not in name]


def run(*arguments: str, given: str | None = None, **environment: str) -> Result:
    """The command on the bucket."""
    return CliRunner().invoke(app, list(arguments), env={"HEADWATER_DATA": URL, **environment}, input=given)
