"""How far a table holds a topic's rows: read from the table alone, by walking its history.

From the branch's head, by parent:

(a) the first snapshot with our mark says it; a cherry-picked snapshot counts as the one that it was picked from
(b) there is no snapshot, or the history ends without a mark and no file of the head has a row of any log: nothing is
    landed, whatever the property says, because it survives CREATE OR REPLACE and stays ahead after a rollback
(c) a parent has expired, or the history ends without a mark though there are rows: the property counts, but only with
    proof.  Its own snapshot is the one that is missing, or the newest row that it speaks of is the newest in the table.
    Without proof: halt.  (That a history seems to end proves nothing: some writers forget the parent of a snapshot when
    they expire it.)

PROMISE  The answer is never above what the table holds.  When it cannot be told, LandingHalted.
NOT HERE What the ledger says, and what follows if the two differ: lander.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headwater.errors import CorruptData, LandingHalted
from headwater.lake.mark import MAIN, Mark, mark_in_property, mark_in_summary, property_name
from headwater.lake.tables import TableSnapshot, TableState

SOURCE_SNAPSHOT = "source-snapshot-id"
"""In the summary of a cherry-picked snapshot: the one that it was picked from."""


@dataclass(frozen=True)
class Standing:
    """How far a table has come."""

    landed_lsn: int = 0
    max_row_lsn: int = 0
    watermark_us: int | None = None
    mark: Mark | None = None
    """The landing that says so; none where nothing is landed."""
    snapshot: int | None = None
    """The snapshot of that landing, as far as it is known."""
    by_property: bool = False
    """Its snapshot has expired, and the property was proven."""
    decided: bool = False
    """A person said so."""


def standing_of(
    state: TableState,
    *,
    log_id: str,
    topic_id: str,
    max_row_lsn: Callable[[], int],
    branch: str = MAIN,
) -> Standing:
    """How far this branch has come.  `max_row_lsn` reads the greatest bound of `_hw_lsn` over the head's files; it is
    asked only where a proof is needed."""
    try:
        return _walk(state, log_id, topic_id, max_row_lsn, branch)
    except CorruptData as error:
        raise LandingHalted(
            "mark-unproven",
            f"what {state.name!r} says about how far it has landed cannot be read: audit the table, then land with "
            "--landed-lsn",
            table=state.name,
            reason=str(error),
        ) from error


def _walk(state: TableState, log_id: str, topic_id: str, max_row_lsn: Callable[[], int], branch: str) -> Standing:
    snapshot = state.head(branch)
    while snapshot is not None:
        found, missing = _mark_or_missing(state, snapshot)
        if found is not None:
            mark, snapshot_id = found
            _check_ours(mark, state, log_id, topic_id)
            if snapshot_id != snapshot.snapshot_id:
                _check_follows(state, snapshot, mark, branch)
            return Standing(mark.lsn_to, mark.max_row_lsn, mark.watermark_us, mark, snapshot_id)
        if missing is not None or snapshot.parent_id is None:
            standing = _by_property(state, missing, log_id, topic_id, max_row_lsn, branch)
            if standing.mark is not None and missing is not None and missing != snapshot.parent_id:
                _check_follows(state, snapshot, standing.mark, branch)
            return standing
        snapshot = state.snapshots[snapshot.parent_id]
    return Standing()


def _check_follows(state: TableState, snapshot: TableSnapshot, mark: Mark, branch: str) -> None:
    """A landing that was picked from elsewhere must go on where the history that it was put on ends."""
    # A history that ends without a mark proves nothing about the rows in it, because some writers forget parents that
    # have expired; but without the property nothing has ever landed on the branch.
    never_landed = snapshot.parent_id is None or property_name(branch) not in state.properties
    before: int | None = 0 if never_landed else None
    parent_id = snapshot.parent_id
    while parent_id is not None:
        parent = state.snapshots.get(parent_id)
        found, missing = _mark_or_missing(state, parent) if parent is not None else (None, parent_id)
        if parent is None or found is not None or missing is not None:
            before = found[0].lsn_to if found is not None else None
            break
        parent_id = parent.parent_id
    if before == mark.lsn_from:
        return
    if before is None:
        raise _unproven(state, "a landing was cherry-picked onto what they were", mark.max_row_lsn)
    raise LandingHalted(
        "gap",
        f"a landing of rows after lsn {mark.lsn_from} was cherry-picked onto {state.name!r}, which holds rows up to "
        f"lsn {before}: roll it back to before that, then land with --after-rollback",
        table=state.name,
        landed_lsn=before,
    )


def landings_after(state: TableState, lsn: int, *, topic_id: str, branch: str = MAIN) -> list[tuple[Mark, int]]:
    """The landings of a topic above this LSN that the branch's history shows, the oldest first, each with its
    snapshot."""
    found: list[tuple[Mark, int]] = []
    snapshot = state.head(branch)
    while snapshot is not None:
        marked, _ = _mark_or_missing(state, snapshot)
        if marked is not None:
            if marked[0].lsn_to <= lsn or marked[0].topic_id != topic_id:
                break
            found.append(marked)
        snapshot = state.snapshots.get(snapshot.parent_id) if snapshot.parent_id is not None else None
    return found[::-1]


def landing_in_history(state: TableState, commit_id: str, branch: str = MAIN) -> TableSnapshot | None:
    """The snapshot of this very landing, if it is in the branch's history."""
    snapshot = state.head(branch)
    while snapshot is not None:
        found, _ = _mark_or_missing(state, snapshot)
        if found is not None and found[0].commit_id == commit_id:
            return state.snapshots[found[1]]
        snapshot = state.snapshots.get(snapshot.parent_id) if snapshot.parent_id is not None else None
    return None


def _mark_or_missing(state: TableState, snapshot: TableSnapshot) -> tuple[tuple[Mark, int] | None, int | None]:
    """The mark that this snapshot stands for, and whose it is; or the id of the snapshot that would have had to be
    looked at and is gone."""
    mark = mark_in_summary(snapshot.summary)
    if mark is not None:
        return (mark, snapshot.snapshot_id), None
    source = _source_of(snapshot)
    if source is not None:
        picked = state.snapshots.get(source)
        if picked is None:
            return None, source
        mark = mark_in_summary(picked.summary)
        if mark is not None:
            return (mark, picked.snapshot_id), None
    if snapshot.parent_id is not None and snapshot.parent_id not in state.snapshots:
        return None, snapshot.parent_id
    return None, None


def _source_of(snapshot: TableSnapshot) -> int | None:
    source = snapshot.summary.get(SOURCE_SNAPSHOT)
    if source is not None and not source.isdecimal():
        raise CorruptData("a snapshot says that it was picked from something that is none", source=source[:200])
    return int(source) if source is not None else None


def _by_property(
    state: TableState,
    missing: int | None,
    log_id: str,
    topic_id: str,
    max_row_lsn: Callable[[], int],
    branch: str,
) -> Standing:
    value = state.properties.get(property_name(branch))
    mark = mark_in_property(value) if value is not None else None
    if mark is None or missing is None or mark.snapshot != missing:
        bound = max_row_lsn()
        if missing is None and not bound:
            return Standing()
        if mark is None:
            if not bound:
                # Every landing writes the property, so there was none: the table has a history of its own.
                return Standing()
            raise _unproven(state, "it holds rows of a log, and nothing says of which and how far", bound)
        if bound != mark.max_row_lsn:
            # A table never holds rows above its landed LSN, so rows that are newer prove that the property is old, of
            # a history that main has left, as surely as rows that lack prove that it is ahead.
            raise _unproven(
                state,
                "its property says something else than its rows show",
                bound,
                property_lsn=mark.lsn_to,
                expected_row_lsn=mark.max_row_lsn,
            )
    _check_ours(mark, state, log_id, topic_id)
    return Standing(mark.lsn_to, mark.max_row_lsn, mark.watermark_us, mark, mark.snapshot, by_property=True)


def _unproven(state: TableState, why: str, newest_row_lsn: int, **facts: object) -> LandingHalted:
    return LandingHalted(
        "mark-unproven",
        f"the snapshots of {state.name!r} that would say how far it has landed are gone, and {why}: "
        "audit the table, then land with --landed-lsn",
        table=state.name,
        newest_row_lsn=newest_row_lsn,
        **facts,
    )


def _check_ours(mark: Mark, state: TableState, log_id: str, topic_id: str) -> None:
    if mark.is_of(log_id, topic_id):
        return
    what = "another log" if mark.log_id != log_id else "an earlier topic of this name"
    raise LandingHalted(
        "foreign-mark",
        f"{state.name!r} holds landings of {what}: give the topic a table of its own",
        table=state.name,
        mark_log_id=mark.log_id,
        mark_topic_id=mark.topic_id,
    )
