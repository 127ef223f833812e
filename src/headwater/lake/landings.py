"""What the ledger says the tables hold, for the log that may then forget it (topics/retention.py asks).

PROMISE  It never raises.  A ledger that cannot be read has verified nothing: that is logged, and among the notes, and
         the next question tries again.
         A topic whose table is in doubt has nothing verified while it is: what it lacks may have to be landed again.
         With `audit_first` nothing counts above what the last audit has passed over; if that one failed, nothing does.
"""

from __future__ import annotations

import logging

from headwater.errors import HeadwaterError
from headwater.lake.ledger import LakeLedger
from headwater.lake.ledger_state import LedgerState, TopicLedger
from headwater.metadata.operations import TopicRecord

logger = logging.getLogger("headwater.lake")

TABLE_STANDS = frozenset({"schema", "format-version", "spec"})
"""Causes of a halt that keep new rows out of a table, and say nothing against those in it."""


class LedgerLandings:
    """Landings, as a ledger tells them."""

    def __init__(self, ledger: LakeLedger, *, audit_first: bool = False) -> None:
        self._ledger = ledger
        self._audit_first = audit_first
        self._seen = LedgerState()
        self._trouble = ""

    def verified_lsn(self, topic: TopicRecord) -> int:
        known = self._known(topic)
        return min(known.verified_lsn, self._limit(known)) if known is not None else 0

    def verified_before(self, topic: TopicRecord, before_us: int) -> tuple[int, int] | None:
        known = self._known(topic)
        found = known.verified_before(before_us) if known is not None else None
        if known is None or found is None:
            return None
        lsn = min(found[0], self._limit(known))
        return (lsn, found[1]) if lsn else None

    def _limit(self, known: TopicLedger) -> int:
        """Up to here rows may be let go, if they are verified."""
        if not self._audit_first:
            return known.verified_lsn
        passed = known.audited is not None and known.audited is known.last_audit
        return known.audited.lsn_to if passed and known.audited is not None else 0

    def notes(self) -> tuple[str, ...]:
        """That it could not be read, or which topics are halted, as of the last question."""
        if self._trouble:
            return (f"nothing that has landed is let go of: {self._trouble}",)
        halts = [each.halted for each in tuple(self._seen.topics.values()) if each.halted is not None]
        return tuple(
            f"landing into {halt.table} is halted ({halt.cause}): {halt.message}"
            for halt in sorted(halts, key=lambda halt: halt.table)
        )

    def _known(self, topic: TopicRecord) -> TopicLedger | None:
        state = self._state()
        known = state.topic(topic.topic_id.hex()) if state is not None else None
        if known is None or (known.halted is not None and known.halted.cause not in TABLE_STANDS):
            return None
        return known

    def _state(self) -> LedgerState | None:
        try:
            self._seen = self._ledger.state()
        except (HeadwaterError, OSError) as error:
            trouble = f"the ledger cannot be read: {error}"
            if trouble != self._trouble:
                logger.warning("%s", trouble)
            self._trouble = trouble
            # What it had open may be what is wrong with it.
            self._ledger.close()
            return None
        self._trouble = ""
        return self._seen
