"""Counts of what a server was asked for and how that ended, for the metrics page.  Safe for threads.

LABELS   Words of ours alone: what was asked, and `ok`, a status, or the name of an error.  Nobody can make more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from headwater.errors import HeadwaterError

OK = "ok"
BUG = "bug"


class RequestCounters:
    """Requests by what was asked and how it ended."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._requests: dict[tuple[str, str], int] = {}

    def answered(self, what: str, outcome: str) -> None:
        with self._guard:
            key = (what, outcome)
            self._requests[key] = self._requests.get(key, 0) + 1

    @contextmanager
    def counted(self, what: str) -> Iterator[None]:
        """Around an answer: it is counted as ok, or by the name of its error."""
        outcome = BUG
        try:
            yield
            outcome = OK
        except HeadwaterError as error:
            outcome = type(error).__name__
            raise
        finally:
            self.answered(what, outcome)

    def read(self) -> dict[tuple[str, str], int]:
        with self._guard:
            return dict(self._requests)
