"""What the ledger says of erasures, and under which columns rows landed.  Pure.

An erasure writes its record several times under one id: before anything is touched, with the rows that are to go, and
again as they are gone from one place after the other.  The last one counts.

PROMISE  A row is in at most one erasure of its topic: rows that an unfinished one names are not found a second time by
         the next, which finishes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headwater.lake.digest import combine
from headwater.lake.ledger_records import Erased, ErasedPart, Landed, LedgerRecord, Restored
from headwater.lake.work import Column


@dataclass(frozen=True)
class Era:
    """A landing, for the columns that it wrote."""

    lsn_from: int
    lsn_to: int
    snapshot: int
    columns: tuple[Column, ...]


def erasures_of(records: Iterable[LedgerRecord], topic_id: str) -> list[Erased]:
    """The erasures of a topic as they stand, in the order in which they began."""
    found: dict[str, Erased] = {}
    for record in records:
        if isinstance(record, Erased) and record.topic_id == topic_id:
            found[record.erasure_id] = record
    return list(found.values())


def unfinished(erasures: Iterable[Erased], places: Sequence[str]) -> list[Erased]:
    """Those whose rows are not known to be gone from all these places."""
    return [each for each in erasures if not set(places) <= set(each.done)]


def eras_of(records: Iterable[LedgerRecord], topic_id: str) -> list[Era]:
    """The landings of a topic that brought rows, and the taking over of what a lost log had landed."""
    found = []
    for record in records:
        if isinstance(record, Landed) and record.topic_id == topic_id and record.rows:
            found.append(Era(record.lsn_from, record.lsn_to, record.snapshot, record.columns))
        elif isinstance(record, Restored) and record.topic_id == topic_id:
            found.append(Era(0, record.lsn_to, record.snapshot, record.columns))
    return found


def combined(parts: Iterable[ErasedPart]) -> tuple[ErasedPart, ...]:
    """One part for all rows of the same columns."""
    by_columns: dict[tuple[Column, ...], list[ErasedPart]] = {}
    for part in parts:
        by_columns.setdefault(part.columns, []).append(part)
    return tuple(
        ErasedPart(columns=columns, digest=combine(each.digest for each in of_columns))
        for columns, of_columns in by_columns.items()
    )
