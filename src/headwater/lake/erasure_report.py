"""What an erasure did, or would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["complete", "incomplete", "nothing", "dry-run"]
"""
complete     the rows are gone from everywhere that Headwater keeps them
incomplete   they are gone from the present; `left` says where they still are, and calling again goes on
nothing      no row was found, and no erasure of this topic is unfinished
dry-run      nothing was changed
"""


@dataclass(frozen=True)
class ErasureReport:
    topic: str
    outcome: Outcome
    erasure_id: str = ""
    """By this the ledger knows it; empty where nothing was erased."""
    rows: int = 0
    """How many rows of the topic this call found; of a keyed topic changes."""
    offsets: tuple[tuple[int, int, int], ...] = ()
    """(partition, first offset, last offset) of runs of them."""
    lsn_to: int = 0
    """Rows up to this LSN were looked at."""
    rewritten_files: int = 0
    """Data files that were made again without them."""
    expired_snapshots: int = 0
    removed_files: int = 0
    segments: tuple[str, ...] = ()
    """Segments of the log that were made again without them, by their new names."""
    finished: tuple[str, ...] = ()
    """Earlier erasures of the topic that were not finished, and are now."""
    left: tuple[str, ...] = ()
    """Where rows still are, and why."""

    def __str__(self) -> str:
        rows = _counted(self.rows, "row")
        if self.outcome == "nothing":
            return f"{self.topic}: no row to erase"
        if self.outcome == "dry-run":
            return f"{self.topic}: {rows} would be erased"
        made = f"{_counted(self.rewritten_files, 'data file')} and {_counted(len(self.segments), 'segment')} made again"
        gone = f"{_counted(self.expired_snapshots, 'snapshot')} and {_counted(self.removed_files, 'file')} removed"
        text = f"{self.topic}: {rows} erased; {made}, {gone}"
        return text + (f"; not finished: {'; '.join(self.left)}" if self.left else "")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
