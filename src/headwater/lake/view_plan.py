"""Which snapshots and which LSNs of the log make up a topic at one LSN.  Pure.

    append-only   the cut's own snapshot while it exists, then the head for what has landed since, then the log:
                  [snapshot] [head: (its landed LSN, landed LSN]] [log: (landed LSN, cut]]
    keyed         the cut's own snapshots of state and changes while they exist, else the newest state that is merged no
                  further than the cut and the changes after it; then the log; the latest of each key:
                  [state: merged LSN] [changes: (merged LSN, landed LSN]] [log: (landed LSN, cut]]
    no table      the log alone

PROMISE  The parts are disjoint by LSN and together they are every LSN up to the cut: no row twice, none missing.
         Where a keyed topic's changes before the cut are past their retention and no state is old enough: CutExpired.
NOT HERE Whether the log still holds the tail, and pins: view.py.  Reading parts: table_rows.py, latest.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import CutExpired
from headwater.lake.cut import TopicCut
from headwater.lake.mark import mark_in_summary
from headwater.lake.tables import TableSnapshot, TableState


@dataclass(frozen=True)
class TableNow:
    """A table as one load showed it, and how far its main branch has come."""

    state: TableState
    lsn: int
    """Landed; of a state table merged."""
    forgotten_lsn: int = 0
    """Of a change table: its changes up to here may be gone, past their retention."""


@dataclass(frozen=True)
class TablePart:
    """Rows of one snapshot of a table."""

    state: TableState
    snapshot_id: int
    lsn_from: int
    """Rows after this LSN ..."""
    lsn_to: int
    """... and up to this one."""
    whole: bool
    """Every row of the snapshot is one of them: nothing needs to be asked of its rows."""
    unmarked: bool = True
    """Rows that no landing brought are among them: they were in the table before the topic, and have no LSN, or one
    that no row has."""


@dataclass(frozen=True)
class ViewPlan:
    """The parts of a topic at one LSN, in the order of their LSNs."""

    base: TablePart | None
    """Of a keyed topic: its state.  One row a key, no deletes."""
    tables: tuple[TablePart, ...]
    """Landed rows; of a keyed topic, its changes after the state."""
    tail: tuple[int, int]
    """Rows of the log after the first LSN and up to the second; none where they are equal."""

    @property
    def parts(self) -> tuple[TablePart, ...]:
        return (self.base, *self.tables) if self.base is not None else self.tables


def plan_rows(at_lsn: int, table: TableNow | None, cut: TopicCut | None = None) -> ViewPlan:
    """A topic without a key, or without a table."""
    parts: list[TablePart] = []
    covered = 0
    if table is not None:
        if cut is not None and cut.snapshot is not None and cut.snapshot in table.state.snapshots:
            parts.append(TablePart(table.state, cut.snapshot, 0, cut.landed_lsn, whole=True))
            covered = cut.landed_lsn
        covered = _add_head(parts, table, covered, at_lsn, unmarked=True)
    return ViewPlan(None, tuple(parts), (min(covered, at_lsn), at_lsn))


def plan_keyed(at_lsn: int, state: TableNow | None, changes: TableNow | None, cut: TopicCut | None = None) -> ViewPlan:
    """A keyed topic with a table: `state` is the merged table, if there is one, loaded before `changes`."""
    forgotten = changes.forgotten_lsn if changes is not None else 0
    own = _own_parts(state, changes, cut) if cut is not None and changes is not None else None
    if own is not None and own[1].lsn_to >= forgotten:
        base, parts, covered = own[0], [own[1]], own[1].lsn_to
    else:
        base, parts = _state_at(at_lsn, state, cut), []
        covered = base.lsn_to if base is not None else 0
    if covered < forgotten:
        raise CutExpired(
            "the changes that would show the topic at this point are past their retention, and no state is old enough: "
            "restore from a later one",
            lsn=at_lsn,
            changes_since_lsn=forgotten,
        )
    if changes is not None:
        covered = _add_head(parts, changes, covered, at_lsn, unmarked=False)
    return ViewPlan(base, tuple(parts), (min(covered, at_lsn), at_lsn))


def _own_parts(state: TableNow | None, changes: TableNow, cut: TopicCut) -> tuple[TablePart | None, TablePart] | None:
    """The state and the changes of the cut's own snapshots, if they are all still there."""
    if cut.snapshot is None or cut.snapshot not in changes.state.snapshots:
        return None
    base = None
    if cut.state_snapshot is not None:
        base = _own_state(state, cut)
        if base is None:
            return None
    upper = max(cut.landed_lsn, cut.merged_lsn)
    return base, TablePart(changes.state, cut.snapshot, cut.merged_lsn, upper, whole=False, unmarked=False)


def _add_head(parts: list[TablePart], table: TableNow, covered: int, at_lsn: int, *, unmarked: bool) -> int:
    """The head's rows that are not covered yet, and how far it then is.  `unmarked`: also rows that no landing brought
    are the topic's, so that a head with nothing landed is read too."""
    head = table.state.head()
    upper = min(table.lsn, at_lsn)
    if head is None:
        return covered
    first = unmarked and not parts
    if upper > covered or first:
        whole = first and table.lsn <= at_lsn
        parts.append(TablePart(table.state, head.snapshot_id, covered, upper, whole, unmarked=first))
    return max(covered, upper)


def _own_state(state: TableNow | None, cut: TopicCut | None) -> TablePart | None:
    """The cut's own state, if it is still there, in main's history or not."""
    snapshot = cut.state_snapshot if cut is not None else None
    if state is None or cut is None or snapshot is None or snapshot not in state.state.snapshots:
        return None
    return TablePart(state.state, snapshot, 0, cut.merged_lsn, whole=True)


def _state_at(at_lsn: int, state: TableNow | None, cut: TopicCut | None) -> TablePart | None:
    """The newest state that is merged no further than this: in main's history, or the cut's own."""
    found = [_in_history(at_lsn, state), _own_state(state, cut)]
    return max((each for each in found if each is not None), key=lambda each: each.lsn_to, default=None)


def _in_history(at_lsn: int, state: TableNow | None) -> TablePart | None:
    head = state.state.head() if state is not None else None
    if state is None or head is None:
        return None
    if state.lsn <= at_lsn:
        return TablePart(state.state, head.snapshot_id, 0, state.lsn, whole=True)
    snapshot: TableSnapshot | None = head
    while snapshot is not None:
        mark = mark_in_summary(snapshot.summary)
        if mark is not None and mark.lsn_to <= at_lsn:
            return TablePart(state.state, snapshot.snapshot_id, 0, mark.lsn_to, whole=True)
        snapshot = state.state.snapshots.get(snapshot.parent_id) if snapshot.parent_id is not None else None
    return None
