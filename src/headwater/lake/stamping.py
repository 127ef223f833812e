"""A stamp: a landing of no rows, which puts the mark on a table's head.

The mark of a landing lives in its snapshot.  When compactions and deletes have come on top of it and old snapshots are
about to expire, a stamp says the same once more: nothing after the landed LSN, up to the landed LSN.
It is committed like a landing, on condition of the head that was read.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from headwater.clock import Entropy
from headwater.lake.mark import MAIN, Mark, mark_in_property, mark_in_summary, property_name
from headwater.lake.marks import Standing, standing_of
from headwater.lake.tables import Staged, Tables, TableShape, TableState
from headwater.lake.upkeep import history

NO_ROWS = "0" * 16
"""The digest of no rows."""


def new_commit_id(entropy: Entropy) -> str:
    return str(uuid.UUID(bytes=entropy(16)))


def stamp_of(standing: Standing, commit_id: str) -> Mark:
    """The mark that says again how far the table has come."""
    assert standing.mark is not None, "a table that something has landed in"
    return replace(
        standing.mark,
        commit_id=commit_id,
        lsn_from=standing.landed_lsn,
        lsn_to=standing.landed_lsn,
        rows=0,
        digest=NO_ROWS,
        max_row_lsn=standing.max_row_lsn,
        watermark_us=standing.watermark_us,
        snapshot=None,
    )


def stage_stamp(tables: Tables, state: TableState, shape: TableShape, mark: Mark) -> Staged:
    """A commit of no files with this mark; the table's schema follows the shape in it, as in any landing."""
    return tables.stage(state, tables.fit(state, shape), (), mark)


def own_standing(tables: Tables, state: TableState, topic_id: str) -> Standing:
    """How far the table has come, by its own word about which log it is of.  LandingHalted where it cannot tell."""
    own = own_mark(state)
    if own is None:
        return Standing()
    return standing_of(state, log_id=own.log_id, topic_id=topic_id, max_row_lsn=lambda: tables.max_row_lsn(state))


def own_mark(state: TableState) -> Mark | None:
    """The newest mark that the table shows of any log, proven or not; None where it shows none."""
    head = state.branches.get(MAIN)
    for snapshot in history(state, head) if head is not None else ():
        mark = mark_in_summary(snapshot.summary)
        if mark is not None:
            return mark
    value = state.properties.get(property_name())
    return mark_in_property(value) if value is not None else None
