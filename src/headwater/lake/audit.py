"""The audit: a topic's table against what landed in it, by the ledger, and by the log as far as it still has the rows.

    1 expect     what the ledger says that the table owes (audit_plan.py)
    2 look       through a new connection: how far the table has come, its history, its files
    3 measure    digests by block of the rows of each era, compared with what is owed; and the log's with both
    4 name       only where a block differs: missing, extra, doubled and altered rows by offset (audit_compare.py)
    5 record     what was audited, so that the next one reads only what has changed since

INCREMENTAL  Landings whose LSNs are in files that came, went or lost rows since the last audit that passed, and those
             that are new.  That all files are there, and that they hold together as many rows as are owed, is always
             asked.  Where the audited snapshot is gone the audit is a full one.
ORDER        The ledger is read before the table: a landing is in the table before it is in the ledger, so a table that
             is loaded afterwards is behind only if it was set back.
PROMISE      PASS is said only of rows that were looked at, or that had passed and whose files have not changed since.
             What cannot be looked at is told by name, and is no PASS.  Nothing but the ledger is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from headwater.clock import Clock
from headwater.errors import HeadwaterError, LandingHalted
from headwater.lake.audit_landed import LandedAudit
from headwater.lake.audit_measure import LocalMeasure, Looks, Measure
from headwater.lake.audit_plan import Expectation, expectation_of
from headwater.lake.audit_report import UNAVAILABLE, AuditReport, TopicAudit
from headwater.lake.audit_state import audit_state
from headwater.lake.ledger import LandingLedger
from headwater.lake.ledger_records import Audited, LedgerRecord
from headwater.lake.marks import Standing, standing_of
from headwater.lake.shape import landing_table
from headwater.lake.source import Hold, RowSource
from headwater.lake.tables import Tables, TableState
from headwater.metadata.operations import TopicRecord

logger = logging.getLogger("headwater.lake")


class AuditedLedger(LandingLedger, Protocol):
    def records(self) -> Iterable[LedgerRecord]: ...


class AuditedLog(RowSource, Protocol):
    def hold(self, lsn: int | None, snapshots: Sequence[int] = ()) -> Hold: ...


Counted = Callable[[TopicRecord], tuple[int, int, int]]
"""Of a topic: rows that it has ever accepted, rows that were rejected, and those of them that it accepted later."""


class Audit:
    def __init__(
        self,
        source: AuditedLog,
        connect: Callable[[], Tables],
        ledger: AuditedLedger,
        *,
        clock: Clock,
        measure: Measure | None = None,
        counted: Counted | None = None,
    ) -> None:
        self._source = source
        self._connect = connect
        self._ledger = ledger
        self._clock = clock
        self._measure = measure
        self._counted = counted

    def run(self, topics: Sequence[TopicRecord], *, full: bool = False) -> AuditReport:
        """Audit these topics, each of which has a table; one's trouble does not stop the others."""
        begun_s = self._clock.monotonic_s()
        hold = self._source.hold(None)
        try:
            records = list(self._ledger.records())
            found = [self._topic(topic, records, full) for topic in topics]
        finally:
            hold.release()
        return AuditReport(tuple(found), self._clock.monotonic_s() - begun_s, self._clock.now_us())

    def _topic(self, topic: TopicRecord, records: Sequence[LedgerRecord], full: bool) -> TopicAudit:
        begun_s = self._clock.monotonic_s()
        try:
            told, recorded = self._audited(topic, records, full)
            self._ledger.record([recorded] if recorded is not None else [])
        except LandingHalted as halt:
            told = TopicAudit(topic.name, landing_table(topic), cause=halt.cause, message=halt.message)
        except HeadwaterError as error:
            logger.warning("the audit of %s could not be made: %s", topic.name, error)
            told = TopicAudit(topic.name, landing_table(topic), cause=UNAVAILABLE, message=str(error))
        accepted, rejected, redriven = self._counted(topic) if self._counted is not None else (0, 0, 0)
        seconds = self._clock.monotonic_s() - begun_s
        return replace(told, accepted=accepted, rejected=rejected, redriven=redriven, seconds=seconds)

    def _audited(
        self, topic: TopicRecord, records: Sequence[LedgerRecord], full: bool
    ) -> tuple[TopicAudit, Audited | None]:
        expectation = expectation_of(records, topic.topic_id.hex())
        tables = self._connect()
        try:
            # The state before its changes, so that the changes are never behind it.
            merged = tables.load(topic.table) if topic.key and topic.table is not None else None
            state = tables.load(landing_table(topic))
            if state is None:
                return _no_table(topic, expectation), None
            standing, halt = self._standing(tables, state, topic)
            looks = Looks()
            measure = self._measure or LocalMeasure(looks.at)
            told = LandedAudit(topic, state, standing, expectation, records, looks, measure, self._source).audit(
                full=full
            )
            if halt is not None:
                told = replace(told, cause=halt.cause, message=halt.message)
            if merged is not None:
                merged_lsn = standing_of(
                    merged,
                    log_id=self._source.log_id,
                    topic_id=topic.topic_id.hex(),
                    max_row_lsn=lambda: tables.max_row_lsn(merged),
                ).landed_lsn
                told = replace(told, state=audit_state(topic, merged, merged_lsn, state, looks, measure))
        finally:
            tables.close()
        return told, self._record(topic, state, merged, told)

    def _standing(
        self, tables: Tables, state: TableState, topic: TopicRecord
    ) -> tuple[Standing | None, LandingHalted | None]:
        """How far the table has come.  Where it cannot tell, its rows are compared with the ledger all the same: that
        is what a person needs to know who has to decide."""
        try:
            found = standing_of(
                state,
                log_id=self._source.log_id,
                topic_id=topic.topic_id.hex(),
                max_row_lsn=lambda: tables.max_row_lsn(state),
            )
        except LandingHalted as halt:
            if halt.cause != "mark-unproven":
                raise
            return None, halt
        return found, None

    def _record(self, topic: TopicRecord, state: TableState, merged: TableState | None, told: TopicAudit) -> Audited:
        head = merged.head() if merged is not None else None
        return Audited(
            topic_id=topic.topic_id.hex(),
            table=state.name,
            table_uuid=state.uuid,
            snapshot=told.snapshot,
            lsn_to=told.lsn_to,
            rows=told.rows,
            full=told.full,
            passed=told.passed,
            differences=told.differences,
            state_snapshot=head.snapshot_id if head is not None else None,
            at_us=self._clock.now_us(),
        )


def _no_table(topic: TopicRecord, expectation: Expectation) -> TopicAudit:
    """A table that nobody has made yet owes nothing; one that is gone owes all."""
    name = landing_table(topic)
    if not expectation.known.landed_lsn:
        return TopicAudit(topic.name, name)
    raise LandingHalted(
        "gap",
        f"the table of {topic.name!r} is gone, with {expectation.rows} rows up to lsn {expectation.known.landed_lsn}: "
        "restore it, or land with --after-rollback what the log still has",
        topic=topic.name,
        table=name,
    )
