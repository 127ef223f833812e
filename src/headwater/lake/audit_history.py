"""What a table's own history says of its landings, laid against the ledger's.

L1       Along the history each landing begins where the one before it ended.
MARKS    A landing's mark and its record in the ledger say the same.
ADOPTED  A landing that the history shows and that nobody wrote down is owed too: by its mark, which knows its total.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headwater.errors import CorruptData
from headwater.lake.audit_plan import Expectation, Owed, with_offsets
from headwater.lake.mark import Mark
from headwater.lake.marks import landings_after
from headwater.lake.tables import TableState
from headwater.lake.work import Column


@dataclass(frozen=True)
class History:
    expectation: Expectation
    findings: tuple[str, ...] = ()


def history_of(state: TableState, log_id: str, topic_id: str, expectation: Expectation) -> History:
    """The expectation with the landings that only the table knows of; and what is wrong with its history."""
    try:
        marked = landings_after(state, -1, topic_id=topic_id)
        shown = [(mark, snapshot, _total(mark)) for mark, snapshot in marked if mark.log_id == log_id]
    except CorruptData as error:
        return History(expectation, (f"history: {error}",))
    findings: list[str] = []
    owed = {each.commit_id: each for each in expectation.landings}
    adopted: list[Owed] = []
    before: Mark | None = None
    for mark, snapshot, total in shown:
        if before is not None and mark.lsn_from != before.lsn_to and not _answered(expectation, mark, before):
            findings.append(
                f"history: the landing {mark.commit_id} is of rows after lsn {mark.lsn_from}, and the one before it "
                f"ended at lsn {before.lsn_to}"
            )
        before = mark
        known = owed.get(mark.commit_id)
        if known is not None:
            if (known.lsn_from, known.lsn_to, known.rows, known.total) != (
                mark.lsn_from,
                mark.lsn_to,
                mark.rows,
                total,
            ):
                findings.append(
                    f"ledger: it says of the landing {mark.commit_id}: {known.rows} rows up to lsn {known.lsn_to} with "
                    f"digest {known.total or 0:016x}; its mark in the table: {mark.rows} up to lsn {mark.lsn_to} with "
                    f"{mark.digest}"
                )
            elif known.digest is not None and (known.digest.rows, known.digest.total) != (known.rows, known.total):
                findings.append(f"ledger: the blocks of the landing {mark.commit_id} do not add up to its total")
        elif mark.rows and not any(_overlaps(each, mark) for each in expectation.landings):
            adopted.append(_owed(mark, snapshot, total))
    if not adopted:
        return History(expectation, tuple(findings))
    landings = sorted((*expectation.landings, *adopted), key=lambda each: each.range)
    return History(replace(expectation, landings=with_offsets(landings)), tuple(findings))


def _answered(expectation: Expectation, mark: Mark, before: Mark) -> bool:
    return any(first <= before.lsn_to and mark.lsn_from <= last for first, last in expectation.answered)


def _overlaps(landing: Owed, mark: Mark) -> bool:
    return landing.lsn_from < mark.lsn_to and landing.lsn_to > mark.lsn_from


def _total(mark: Mark) -> int:
    try:
        return int(mark.digest, 16)
    except ValueError as error:
        raise CorruptData("the mark of a landing has no digest", commit_id=mark.commit_id) from error


def _owed(mark: Mark, snapshot: int, total: int) -> Owed:
    return Owed(
        mark.lsn_from,
        mark.lsn_to,
        mark.rows,
        total,
        None,
        tuple(Column(field_id, "", "") for field_id in mark.field_ids),
        (),
        mark.commit_id,
        snapshot,
    )
