"""What the ledger says now: a fold of its records.  Pure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from headwater.lake.ledger_records import (
    Audited,
    Begun,
    CheckedCatalog,
    Decided,
    Ended,
    Erased,
    HaltedLanding,
    Intended,
    Kept,
    Landed,
    LedgerRecord,
    Merged,
    Restored,
    Verified,
)

IN_FLIGHT_US_MAX = 30 * 86_400 * 1_000_000
VERIFICATIONS_KEPT = 4096
"""A topic's latest verifications: with them a log can say since when a row might have been forgotten."""


@dataclass
class TopicLedger:
    """One topic's landings."""

    table: str = ""
    table_uuid: str = ""
    landed_lsn: int = 0
    """As far as the ledger knows; the table is what decides."""
    last: Landed | None = None
    landings: list[tuple[int, int, int]] = field(default_factory=list)
    """(from LSN, to LSN, rows) of every landing with rows, as far as the table is known to hold it."""
    owed: list[tuple[int, int, int]] = field(default_factory=list)
    """The same of landings that the table no longer holds: until they land again, the log must have their rows."""
    failures: int = 0
    """How often landing has failed since it last went well."""
    outcomes: dict[str, int] = field(default_factory=dict)
    """How landings ended, by word: `landed`, `halted`, and the words of Ended (a metric, for people)."""
    unverified: dict[str, Landed] = field(default_factory=dict)
    """Landings that nobody has read back yet, by commit-id."""
    hole_lsn: int | None = None
    """A landing after this LSN is in the table and was never written down here: nothing above it can be verified."""
    verified: list[tuple[int, int]] = field(default_factory=list)
    """(LSN, when it was verified), both rising."""
    epoch: int = 0
    in_flight: dict[str, Begun | Intended] = field(default_factory=dict)
    halted: HaltedLanding | None = None
    merged: Merged | None = None
    audited: Audited | None = None
    """The last audit that found nothing wrong, of the table as it is now known."""
    last_audit: Audited | None = None
    erasures: int = 0

    @property
    def verified_lsn(self) -> int:
        return self.verified[-1][0] if self.verified else 0

    def rows_after(self, lsn: int) -> int:
        """How many rows landed after this LSN."""
        return sum(rows for _, lsn_to, rows in (*self.landings, *self.owed) if lsn_to > lsn)

    def rows_up_to(self, lsn: int) -> int | None:
        """How many rows had landed up to this LSN, whether or not the table still holds them; none where a landing goes
        across it, or one was never written down."""
        ever = (*self.landings, *self.owed)
        if self.hole_lsn is not None or any(lsn_from < lsn < lsn_to for lsn_from, lsn_to, _ in ever):
            return None
        return sum(rows for _, lsn_to, rows in ever if lsn_to <= lsn)

    @property
    def owed_lsn(self) -> int:
        """Up to here rows had landed once, whether or not the table still holds them."""
        return max([self.landed_lsn, *(lsn_to for _, lsn_to, _ in self.owed)])

    def copy(self) -> TopicLedger:
        """As it is now: the ledger's own moves on when anybody asks for it."""
        return replace(
            self,
            landings=list(self.landings),
            owed=list(self.owed),
            verified=list(self.verified),
            unverified=dict(self.unverified),
            in_flight=dict(self.in_flight),
            outcomes=dict(self.outcomes),
        )

    def count(self, outcome: str) -> None:
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1

    def verified_before(self, before_us: int) -> tuple[int, int] | None:
        """The greatest LSN that was verified at or before this time, and when."""
        for lsn, at_us in reversed(self.verified):
            if at_us <= before_us:
                return lsn, at_us
        return None


@dataclass
class LedgerState:
    lsn: int = 0
    """The ledger's own LSN up to which it was folded."""
    topics: dict[str, TopicLedger] = field(default_factory=dict)
    catalogs: dict[str, CheckedCatalog] = field(default_factory=dict)
    kept: dict[str, list[Kept]] = field(default_factory=dict)

    def topic(self, topic_id: str) -> TopicLedger:
        """What is known of a topic; an empty one where nothing is."""
        found = self.topics.get(topic_id)
        return found if found is not None else TopicLedger()

    def checked(self, catalog: str) -> CheckedCatalog | None:
        return self.catalogs.get(catalog)

    def apply(self, record: LedgerRecord) -> None:
        match record:
            case CheckedCatalog():
                self.catalogs[record.catalog] = record
            case Kept():
                self.kept.setdefault(record.table, []).append(record)
            case _:
                self._apply_to_topic(record, self.topics.setdefault(record.topic_id, TopicLedger()))

    @staticmethod
    def _apply_to_topic(
        record: Begun
        | Intended
        | Landed
        | Verified
        | HaltedLanding
        | Ended
        | Decided
        | Merged
        | Erased
        | Audited
        | Restored,
        topic: TopicLedger,
    ) -> None:
        match record:
            case Begun():
                _forget_old_attempts(topic, record.at_us)
                topic.in_flight[record.commit_id] = record
                topic.epoch = max(topic.epoch, record.epoch)
            case Intended():
                topic.in_flight[record.commit_id] = record
            case Ended():
                topic.count(record.why)
                if record.why != "unknown":
                    # Where the outcome is unknown the files stay in flight: a late request may still bring them in.
                    topic.in_flight.pop(record.commit_id, None)
                topic.failures = topic.failures + 1 if record.why in {"failed", "unknown"} else 0
                if record.why == "nothing" and topic.halted is not None and topic.halted.cause != "verification":
                    # It was read without a halt, and there was nothing to do.
                    topic.halted = None
            case Landed():
                _land(topic, record)
            case Verified():
                _verify(topic, record)
            case HaltedLanding():
                topic.count("halted")
                topic.halted = record
            case Decided():
                topic.landed_lsn = record.lsn
                topic.table_uuid = record.table_uuid or topic.table_uuid
                topic.halted = None
                if topic.hole_lsn is not None and record.lsn <= topic.hole_lsn:
                    topic.hole_lsn = None
                # What was shown to be in the table above this LSN is not known to be there any more.
                topic.verified = [each for each in topic.verified if each[0] <= record.lsn]
                topic.owed = [each for each in (*topic.owed, *topic.landings) if each[1] > record.lsn]
                topic.landings = [each for each in topic.landings if each[1] <= record.lsn]
                topic.audited = None
                if record.act == "landed-lsn":
                    # Whoever said so answers for the table up to here.
                    topic.unverified = {key: each for key, each in topic.unverified.items() if each.lsn_to > record.lsn}
                    topic.hole_lsn = None
                    if record.lsn > topic.verified_lsn:
                        topic.verified.append((record.lsn, record.at_us))
                topic.unverified = {key: each for key, each in topic.unverified.items() if each.lsn_to <= record.lsn}
            case Merged():
                topic.merged = record
            case Erased():
                topic.erasures += 1
            case Audited():
                topic.last_audit = record
                if record.passed:
                    topic.audited = record
            case _:
                _restore(topic, record)


def _restore(topic: TopicLedger, record: Restored) -> None:
    """What a lost log landed is in the table, and was read when it was taken over."""
    topic.table = record.table
    topic.table_uuid = record.table_uuid
    topic.landed_lsn = record.lsn_to
    topic.halted = None
    if record.rows:
        topic.landings.append((0, record.lsn_to, record.rows))
    topic.verified.append((record.lsn_to, record.at_us))


def _forget_old_attempts(topic: TopicLedger, now_us: int) -> None:
    """Whatever became of an attempt of weeks ago, no request of it is on its way any more."""
    before_us = now_us - IN_FLIGHT_US_MAX
    for commit_id in [each.commit_id for each in topic.in_flight.values() if each.at_us < before_us]:
        del topic.in_flight[commit_id]


def _land(topic: TopicLedger, record: Landed) -> None:
    topic.in_flight.pop(record.commit_id, None)
    if record.rows and record.lsn_from == topic.hole_lsn:
        _fill_hole(topic, record)
        return
    if record.rows and record.lsn_to <= topic.landed_lsn:
        # Two landers may both have found it, or it is told late, when others have landed over it: it landed once.
        return
    if record.lsn_from > topic.landed_lsn and topic.hole_lsn is None:
        topic.hole_lsn = topic.landed_lsn
    topic.table = record.table
    topic.table_uuid = record.table_uuid
    topic.landed_lsn = max(topic.landed_lsn, record.lsn_to)
    if topic.owed:
        # Landings join, and a landing of what was owed may end anywhere inside it.
        upper, rows = topic.owed_lsn, sum(rows for _, _, rows in topic.owed) - record.rows
        topic.owed = [(record.lsn_to, upper, rows)] if record.lsn_to < upper else []
    topic.failures = 0
    topic.count("landed")
    topic.last = record
    topic.halted = None
    if record.rows:
        topic.landings.append((record.lsn_from, record.lsn_to, record.rows))
        topic.unverified[record.commit_id] = record


def _fill_hole(topic: TopicLedger, record: Landed) -> None:
    """It was told late, after landings that others had found behind it."""
    topic.landings.append((record.lsn_from, record.lsn_to, record.rows))
    topic.unverified[record.commit_id] = record
    begins = {lsn_from for lsn_from, _, _ in topic.landings}
    topic.hole_lsn = None if record.lsn_to in begins or record.lsn_to >= topic.landed_lsn else record.lsn_to
    topic.landed_lsn = max(topic.landed_lsn, record.lsn_to)


def _verify(topic: TopicLedger, record: Verified) -> None:
    if topic.unverified.pop(record.commit_id, None) is None:
        # It was verified before; or a person has decided meanwhile that the table no longer holds it.
        return
    if record.lsn_to > topic.verified_lsn and (topic.hole_lsn is None or record.lsn_to <= topic.hole_lsn):
        topic.verified.append((record.lsn_to, record.at_us))
        del topic.verified[:-VERIFICATIONS_KEPT]
    if topic.halted is not None and topic.halted.cause == "verification":
        # They are verified in their order: it is the one that could not be.
        topic.halted = None
