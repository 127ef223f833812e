"""Steps 2 and 3 of a landing: what the table says, compared with what the ledger says.

equal          go on
table ahead    a landing of ours had succeeded and nobody wrote it down: it is adopted
table behind   somebody rolled it back, replaced or dropped it: land again from there if a person said so and the log
               still holds every row, else halt: gap

ORDER    The ledger is read before the table: a landing is in the table before it is in the ledger, so a table that is
         loaded afterwards cannot be behind for that reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from headwater.clock import Clock
from headwater.errors import LandingHalted
from headwater.lake.ledger_records import Decided, Landed, LedgerRecord
from headwater.lake.ledger_state import TopicLedger
from headwater.lake.mark import Mark
from headwater.lake.marks import Standing, landings_after, standing_of
from headwater.lake.shape import landing_table
from headwater.lake.source import LogSource
from headwater.lake.tables import Tables, TableShape, TableState
from headwater.lake.work import Column
from headwater.metadata.operations import TopicRecord


@dataclass(frozen=True)
class Decisions:
    """What a person has said, for topics by name."""

    after_rollback: frozenset[str] = frozenset()
    """Land again what a rolled back, replaced or dropped table no longer holds."""
    landed_lsn: Mapping[str, int] = field(default_factory=dict)
    """Where the table cannot say how far it has come: it holds everything up to this LSN."""


@dataclass(frozen=True)
class Owed:
    """Rows that had landed once and that the table does not hold: the log must still have every one of them."""

    lsn_to: int
    rows: int


@dataclass(frozen=True)
class Reading:
    """A table that can be landed into, and from where."""

    state: TableState
    standing: Standing
    records: tuple[LedgerRecord, ...] = ()
    """What the ledger is to be told before the landing goes on."""
    owed: Owed | None = None
    """What is to land again.  That the log has it is asked once more when it has been read: what the log still holds
    then, it held while it was read."""


class TableReader:
    """Reads tables for one lander."""

    def __init__(self, source: LogSource, clock: Clock, decisions: Decisions) -> None:
        self._source = source
        self._clock = clock
        self._decisions = decisions

    def read(self, connect: Callable[[], Tables], topic: TopicRecord, shape: TableShape, known: TopicLedger) -> Reading:
        """Load the table through `connect` and say where its landing goes on.  LandingHalted where it cannot."""
        reading = self._look(connect(), topic, shape, known)
        if reading.standing.landed_lsn < known.landed_lsn and not reading.standing.decided:
            # A cache between the catalog and us may have answered: ask once more before anything is said about it.
            reading = self._look(connect(), topic, shape, known)
        landed_lsn = reading.standing.landed_lsn
        if landed_lsn < known.landed_lsn and not reading.standing.decided:
            self._check_decided(topic, landed_lsn, known)
        owed = Owed(known.owed_lsn, known.rows_after(landed_lsn)) if known.owed_lsn > landed_lsn else None
        if owed is not None:
            check_log_has(self._source, topic, landed_lsn, owed)
        reading = replace(reading, owed=owed)
        if reading.standing.decided:
            return self._as_decided(topic, reading, known, "landed-lsn")
        if landed_lsn < known.landed_lsn:
            return self._as_decided(topic, reading, known, "after-rollback", self._unrecorded(topic, reading, known))
        return reading

    def _unrecorded(self, topic: TopicRecord, reading: Reading, known: TopicLedger) -> tuple[Landed, ...]:
        """Landings in a table that was set back which nobody has written down: a request that was thought lost can be
        applied after a rollback to its base.  They are to be verified like any other before the log forgets them."""
        verified = max((lsn for lsn, _ in known.verified if lsn <= reading.standing.landed_lsn), default=0)
        found = landings_after(reading.state, verified, topic_id=topic.topic_id.hex())
        first = next((at for at, (mark, _) in enumerate(found) if _is_new(mark, known)), len(found))
        return tuple(
            adopted(topic, reading.state, mark, snapshot, self._clock.now_us())
            for mark, snapshot in found[first:]
            if mark.rows
        )

    def _look(self, tables: Tables, topic: TopicRecord, shape: TableShape, known: TopicLedger) -> Reading:
        name = landing_table(topic)
        state = tables.load(name)
        if state is None:
            if known.landed_lsn:
                if topic.name not in self._decisions.after_rollback:
                    raise self._gap(topic, "is gone", known, 0)
                # Before anything stands where its owner may want to restore it.
                check_log_has(self._source, topic, 0, Owed(known.owed_lsn, known.rows_after(0)))
            state = tables.create(name, shape)
        standing = self._standing(tables, state, topic)
        if known.table_uuid and state.uuid != known.table_uuid and topic.name not in self._decisions.after_rollback:
            raise self._gap(topic, "is another table than the one that was landed into", known, standing.landed_lsn)
        return Reading(state, standing, self._adopted(state, standing, topic, known))

    def _standing(self, tables: Tables, state: TableState, topic: TopicRecord) -> Standing:
        try:
            return standing_of(
                state,
                log_id=self._source.log_id,
                topic_id=topic.topic_id.hex(),
                max_row_lsn=lambda: tables.max_row_lsn(state),
            )
        except LandingHalted as halt:
            lsn = self._decisions.landed_lsn.get(topic.name)
            if halt.cause != "mark-unproven" or lsn is None:
                raise
            newest = tables.max_row_lsn(state)
            if newest > lsn:
                raise LandingHalted(
                    "mark-unproven",
                    f"{state.name!r} holds a row of lsn {newest}, and --landed-lsn says {lsn}: rows would land twice; "
                    "audit the table, and say up to where it holds every row",
                    table=state.name,
                ) from halt
            return Standing(lsn, newest, decided=True)

    def _adopted(
        self, state: TableState, standing: Standing, topic: TopicRecord, known: TopicLedger
    ) -> tuple[LedgerRecord, ...]:
        """Landings that are in the table and not in the ledger, the oldest first."""
        found = landings_after(state, known.landed_lsn, topic_id=topic.topic_id.hex())
        mark = standing.mark
        if mark is not None and standing.by_property and mark.lsn_to > known.landed_lsn:
            found.append((mark, mark.snapshot or 0))
        return tuple(adopted(topic, state, *each, self._clock.now_us()) for each in found)

    def _check_decided(self, topic: TopicRecord, landed_lsn: int, known: TopicLedger) -> None:
        if topic.name not in self._decisions.after_rollback:
            raise self._gap(topic, "was rolled back or replaced", known, landed_lsn)

    def _as_decided(
        self,
        topic: TopicRecord,
        reading: Reading,
        known: TopicLedger,
        act: Literal["after-rollback", "landed-lsn"],
        unrecorded: tuple[Landed, ...] = (),
    ) -> Reading:
        record = Decided(
            topic_id=topic.topic_id.hex(),
            table=landing_table(topic),
            act=act,
            lsn=unrecorded[0].lsn_from if unrecorded else reading.standing.landed_lsn,
            lsn_before=known.landed_lsn,
            table_uuid=reading.state.uuid,
            at_us=self._clock.now_us(),
        )
        return replace(reading, records=(record, *unrecorded, *reading.records))

    @staticmethod
    def _gap(topic: TopicRecord, what: str, known: TopicLedger, landed_lsn: int) -> LandingHalted:
        return LandingHalted(
            "gap",
            f"the table of {topic.name!r} {what}: if that was meant, land with --after-rollback",
            topic=topic.name,
            table=landing_table(topic),
            table_lsn=landed_lsn,
            ledger_lsn=known.landed_lsn,
        )


def check_log_has(source: LogSource, topic: TopicRecord, landed_lsn: int, owed: Owed) -> None:
    """LandingHalted unless the log holds every row that is to land again."""
    if source.holds_all(topic.number, landed_lsn, owed.lsn_to):
        return
    held = source.rows_between(topic.number, landed_lsn, owed.lsn_to)
    if held != owed.rows:
        raise LandingHalted(
            "gap",
            f"the table of {topic.name!r} lacks {owed.rows} rows that had landed, and the log still holds {held} of "
            "them: restore the table",
            topic=topic.name,
            table=landing_table(topic),
            table_lsn=landed_lsn,
            ledger_lsn=owed.lsn_to,
        )


def _is_new(mark: Mark, known: TopicLedger) -> bool:
    return bool(mark.rows) and mark.commit_id not in known.unverified


def adopted(topic: TopicRecord, state: TableState, mark: Mark, snapshot: int, at_us: int) -> Landed:
    """What the ledger says of a landing that was found in its table."""
    return Landed(
        topic_id=mark.topic_id,
        topic=topic.name,
        table=state.name,
        table_uuid=state.uuid,
        commit_id=mark.commit_id,
        snapshot=snapshot,
        lsn_from=mark.lsn_from,
        lsn_to=mark.lsn_to,
        rows=mark.rows,
        digest=None,
        total=mark.digest,
        columns=tuple(Column(field_id, "", "") for field_id in mark.field_ids),
        max_row_lsn=mark.max_row_lsn,
        epoch=mark.epoch,
        adopted=True,
        at_us=at_us,
    )
