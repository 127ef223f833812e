"""Tables as one load shows them, for tests of what is read of them."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.lake.mark import Mark
from headwater.lake.tables import TableSnapshot, TableState
from headwater.lake.view_plan import TableNow

LOG_ID, TOPIC_ID = "0a" * 16, "0b" * 16


def snapshot(number: int, parent: int | None = None, lsn: int | None = None) -> TableSnapshot:
    """A snapshot; with a mark up to an LSN, or of somebody else."""
    mark = Mark(LOG_ID, TOPIC_ID, f"c{number}", 0, 0, lsn, 1, "0" * 16, 1, lsn) if lsn is not None else None
    return TableSnapshot(number, parent, "append", mark.summary() if mark is not None else {})


def state(
    *snapshots: TableSnapshot,
    name: str = "lake.orders",
    head: int | None = None,
    properties: Mapping[str, str] | None = None,
) -> TableState:
    """A table whose head is its last snapshot, unless another is named."""
    last = head or (snapshots[-1].snapshot_id if snapshots else None)
    return TableState(
        name=name,
        uuid="u",
        format_version=2,
        schema_id=0,
        spec_id=0,
        properties=properties or {},
        branches={"main": last} if last is not None else {},
        snapshots={each.snapshot_id: each for each in snapshots},
    )


def table(*snapshots: TableSnapshot, lsn: int = 0, head: int | None = None, forgotten: int = 0) -> TableNow:
    """The same, with how far it has come."""
    return TableNow(state(*snapshots, head=head), lsn, forgotten)
