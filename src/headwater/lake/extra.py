"""The packages of the `lake` extra: what is missing is named, with what to install."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import InvalidRequest
from headwater.lake.catalog import INSTALL


@contextmanager
def from_the_extra() -> Iterator[None]:
    """Around imports of what needs the packages of the `lake` extra."""
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] == "headwater":
            raise  # that is our own mistake
        raise InvalidRequest(f"landing needs further packages: {INSTALL}", missing=error.name) from error
