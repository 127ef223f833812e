"""The latest landings and audits, as the ledger tells them: the page shows them with rows, digests and snapshots.

PROMISE  Each record is read once, and few are kept, whatever the length of the ledger.
THREADS  For one at a time.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from headwater.lake.ledger_records import Audited, Landed, LedgerRecord, Restored, Verified, unpack_ledger_record

LANDINGS_KEPT = 1_000
AUDITS_KEPT = 400
RECORDS_READ_MAX = 8_000
"""Of a ledger that was there before anybody looked: so many records at its end."""
PIECE_BYTES = 4 * 1024 * 1024


class LedgerPiece(Protocol):
    """Some records of the ledger, as they are stored."""

    @property
    def lsn(self) -> int: ...
    @property
    def records(self) -> Sequence[bytes]: ...
    @property
    def more(self) -> bool: ...


ReadAfter = Callable[[int], LedgerPiece]
"""The records after an LSN of the ledger's own, some of them."""


@dataclass(frozen=True)
class RecentLanding:
    at_us: int
    topic_id: str
    topic: str
    table: str
    commit_id: str
    snapshot: int
    lsn_from: int
    lsn_to: int
    rows: int
    digest: str
    adopted: bool
    verified_us: int | None = None
    """When it was read back; None: it was not, yet."""


class LedgerTail:
    def __init__(self, read_after: ReadAfter, *, end_lsn: int = 0) -> None:
        """`end_lsn` is where the ledger ends, if that is known: what lies far before it is not read."""
        self._read_after = read_after
        self._lsn = max(end_lsn - RECORDS_READ_MAX, 0)
        self._landings: OrderedDict[str, RecentLanding] = OrderedDict()
        self._audits: deque[Audited] = deque(maxlen=AUDITS_KEPT)
        self.names: dict[str, str] = {}
        """Topics by their ids, as their landings call them."""

    def read(self) -> None:
        """Take in what is new."""
        more = True
        while more:
            piece = self._read_after(self._lsn)
            for each in piece.records:
                self._apply(unpack_ledger_record(each))
            self._lsn, more = piece.lsn, piece.more

    def landings(self) -> list[RecentLanding]:
        """The latest first."""
        return list(reversed(self._landings.values()))

    def audits(self) -> list[Audited]:
        """The latest first."""
        return list(reversed(self._audits))

    def _apply(self, record: LedgerRecord) -> None:
        match record:
            case Landed():
                self.names[record.topic_id] = record.topic
                # Two landers may both have found it: it landed once.
                if record.rows and record.commit_id not in self._landings:
                    self._landings[record.commit_id] = _recent(record)
                    if len(self._landings) > LANDINGS_KEPT:
                        self._landings.popitem(last=False)
            case Verified():
                known = self._landings.get(record.commit_id)
                if known is not None and known.verified_us is None:
                    self._landings[record.commit_id] = replace(known, verified_us=record.at_us)
            case Audited():
                self._audits.append(record)
            case Restored():
                self.names[record.topic_id] = record.topic
            case _:
                pass


def _recent(record: Landed) -> RecentLanding:
    return RecentLanding(
        at_us=record.at_us,
        topic_id=record.topic_id,
        topic=record.topic,
        table=record.table,
        commit_id=record.commit_id,
        snapshot=record.snapshot,
        lsn_from=record.lsn_from,
        lsn_to=record.lsn_to,
        rows=record.rows,
        digest=record.total,
        adopted=record.adopted,
    )
