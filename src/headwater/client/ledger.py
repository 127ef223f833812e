"""The ledger of a log behind a server: records go there, and what it says is folded here.

PROMISE  A record is durable when `record` returns.  It is sent again where nobody knows what became of it: a record
         that stands in the ledger twice says what it said once.
         The state is what the server's ledger said when it was asked, as far as the principal may know of it.
THREADS  Safe for any number of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

from headwater.client.connection import Connection
from headwater.lake.ledger_records import LedgerRecord, pack_ledger_record, unpack_ledger_record
from headwater.lake.ledger_state import LedgerState
from headwater.protocol.lake_calls import LEDGER_AFTER, RECORD_IN_LEDGER, AtLsn, LedgerPage, RecordInLedger


class ServedLedger:
    """LakeLedger over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._reading = threading.Lock()
        self._state = LedgerState()
        self._rights = ""
        """By which rights it was folded."""

    def record(self, records: Sequence[LedgerRecord]) -> None:
        if records:
            packed = tuple(pack_ledger_record(each) for each in records)
            self._connection.call(RECORD_IN_LEDGER, RecordInLedger(packed))

    def state(self) -> LedgerState:
        with self._reading:
            for page in self._pages(self._state.lsn):
                if page.rights != self._rights:
                    # Lines that were kept from this principal before are among those that were passed over.
                    self._rights, self._state = page.rights, LedgerState()
                    for each in self._pages(0):
                        self._fold(each)
                    break
                self._fold(page)
            return self._state

    def _fold(self, page: LedgerPage) -> None:
        for each in page.records:
            self._state.apply(unpack_ledger_record(each))
        self._state.lsn = page.lsn

    def records(self) -> Iterator[LedgerRecord]:
        for page in self._pages(0):
            yield from map(unpack_ledger_record, page.records)

    def _pages(self, lsn: int) -> Iterator[LedgerPage]:
        more = True
        while more:
            page = self._connection.call(LEDGER_AFTER, AtLsn(lsn))
            yield page
            lsn, more = page.lsn, page.more

    def close(self) -> None:
        """Nothing is open here: the connection is its owner's."""
