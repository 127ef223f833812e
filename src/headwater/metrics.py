"""Counters of one open log: plain numbers, added to by whoever does the work.

NOT HERE Exporting them: the server's metrics page reads them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass


@dataclass
class LogCounters:
    """Each only rises while the log is open.  They are for people, never for decisions."""

    appends: int = 0
    append_rows: int = 0
    append_bytes: int = 0
    commits: int = 0
    syncs: int = 0
    sync_seconds: float = 0.0
    rolls: int = 0
    segments_deleted: int = 0
    segments_rewritten: int = 0
    unlinks_failed: int = 0
    indexes_rebuilt: int = 0
    io_errors: int = 0
    requests_refused: int = 0

    def as_dict(self) -> dict[str, float]:
        return asdict(self)
