"""How a step of the release check ended: one line each."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Verdict(StrEnum):
    PASS = "PASS"
    FAIL = "FAIL"
    NOT_DONE = "NOT DONE"
    """It could not be tried here; the line says why.  No release hangs on it."""


class Step(NamedTuple):
    verdict: Verdict
    what: str
    detail: str

    def __str__(self) -> str:
        return f"{self.verdict:<8} {self.what}: {self.detail}"
