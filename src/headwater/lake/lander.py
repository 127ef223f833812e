"""A round of landing: the nine steps of docs/landing.md, for many topics at once.

    1 read     what the table says                     2 compare   with the ledger (standing.py)
    3 begin    an epoch and a commit-id in the ledger, so that upkeep knows in-flight files
    4 write    tasks write data files (plan.py, task.py)
    5 intend   what will be committed, in the ledger   6 commit    once, on condition (committing.py)
    7 outcome  by the table, not by the exception      8 record and verify (verification.py)
    9 delete   by the owner of the log, from what the ledger says was verified

PROMISE  Every row at or below the landed LSN of a table is in it once, whoever else lands, dies or is late: the commit
         is conditional on the very snapshot from which the landed LSN was read.
         One topic's trouble never stops the others; it is in the report.
         No data file is ever deleted here: those of a commit that was refused, or of which nobody knows, are left for
         upkeep, because a request can still arrive when its sender has given it up.
THREADS  A Lander is used by one thread.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from headwater.clock import Clock, Entropy
from headwater.errors import HeadwaterError, LandingHalted, Unavailable
from headwater.lake.committing import Committed, Committing, NotCommitted
from headwater.lake.connections import Connections
from headwater.lake.digest import combine
from headwater.lake.ledger import LandingLedger
from headwater.lake.ledger_records import Begun, Ended, HaltedLanding, Intended, Landed, LedgerRecord, Verification
from headwater.lake.mark import Mark
from headwater.lake.plan import plan_landing
from headwater.lake.report import LandingReport, Outcome, TopicLanding
from headwater.lake.runner import Runner
from headwater.lake.shape import landing_table, table_shape
from headwater.lake.source import LogSource
from headwater.lake.standing import Decisions, Reading, TableReader, check_log_has
from headwater.lake.tables import Fit, Tables, TableShape
from headwater.lake.verification import Verifying
from headwater.lake.work import Digest, LandDone, LandWork, TopicDone, TopicWork, WrittenFile
from headwater.metadata.operations import TopicRecord
from headwater.settings import LandingSettings

logger = logging.getLogger("headwater.lake")


@dataclass
class _Attempt:
    """One topic on its way through the steps."""

    topic: TopicRecord
    table: str
    shape: TableShape
    commit_id: str
    epoch: int = 0
    """The landing epoch that it begins; before that, the one that it found."""
    reading: Reading | None = None
    fit: Fit | None = None
    files: list[WrittenFile] = field(default_factory=list)
    digests: list[Digest] = field(default_factory=list)
    max_lsn: int = 0
    time_max_us: int | None = None
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The first and the last offset of each partition."""
    error: str | None = None
    lsn_to: int = 0
    begun_us: int = 0
    known_lsn: int = 0
    """Up to here rows had landed, or once had, when the table was read."""

    @property
    def rows(self) -> int:
        return sum(digest.rows for digest in self.digests)

    @property
    def topic_id(self) -> str:
        return self.topic.topic_id.hex()

    @property
    def landed_lsn(self) -> int:
        assert self.reading is not None
        return self.reading.standing.landed_lsn

    def take(self, part: TopicDone) -> None:
        """What one task did for the topic."""
        self.files.extend(part.files)
        self.digests.append(part.digest)
        self.max_lsn = max(self.max_lsn, part.max_lsn)
        if part.time_max_us is not None:
            self.time_max_us = part.time_max_us if self.time_max_us is None else max(self.time_max_us, part.time_max_us)
        for partition, first, last in part.offsets:
            known = self.offsets.get(partition, (first, last))
            self.offsets[partition] = min(known[0], first), max(known[1], last)
        self.error = self.error or part.error


class Lander:
    def __init__(
        self,
        source: LogSource,
        connect: Callable[[], Tables],
        ledger: LandingLedger,
        runner: Runner,
        *,
        clock: Clock,
        entropy: Entropy,
        settings: LandingSettings,
    ) -> None:
        self._source = source
        self._connections = Connections(connect, settings.commit_threads)
        self._ledger = ledger
        self._runner = runner
        self._clock = clock
        self._entropy = entropy
        self._settings = settings
        self._bytes_read = 0

    def round(
        self,
        topics: Sequence[TopicRecord],
        *,
        decisions: Decisions | None = None,
        verify: Verification = "read-back",
    ) -> LandingReport:
        """Land what these topics have, up to what is durable now or to what one round may read; then verify."""
        begun_s = self._clock.monotonic_s()
        self._bytes_read = 0
        durable_lsn = self._source.durable_lsn()
        decisions = decisions or Decisions()
        reader = TableReader(self._source, self._clock, decisions)
        try:
            told = {topic.number: self._nothing(topic) for topic in topics}
            for waiting in self._with_rows(topics, decisions):
                told.update(self._land_all(waiting, reader))
            landed_s = self._clock.monotonic_s()
            verifying = Verifying(
                self._connections, self._runner, self._ledger, self._clock, self._source.log_id, decisions
            )
            verdicts = verifying.verify(topics, verify)
        finally:
            self._connections.close()
        reports = []
        for topic in topics:
            verdict, outcome = verdicts[topic.number], told[topic.number]
            if verdict.halt is not None and outcome.outcome != "halted":
                outcome = replace(outcome, outcome="halted", cause=verdict.halt.cause, message=verdict.halt.message)
            elif verdict.message and not outcome.message:
                outcome = replace(outcome, message=verdict.message)
            reports.append(replace(outcome, verified=verdict.verified))
        ended_s = self._clock.monotonic_s()
        return LandingReport(
            tuple(reports),
            lsn_to=durable_lsn,
            bytes_read=self._bytes_read,
            seconds=ended_s - begun_s,
            verify_s=ended_s - landed_s,
        )

    # One pass ----------------------------------------------------------------------------------

    def _with_rows(self, topics: Sequence[TopicRecord], decisions: Decisions) -> list[list[TopicRecord]]:
        """The topics of which the log has rows that the ledger does not know as landed, and those that a person has
        decided about: the ledger may say that all is well with a table that was rolled back.

        In two parts: those that failed the last time come behind the others, with a plan of their own, so that what
        one cannot land does not use up what a round may read."""
        known = self._ledger.state()
        last_lsns: dict[int, int] = {}
        for segment in self._source.segments():
            for number, share in segment.topics.items():
                if share.rows:
                    last_lsns[number] = share.last_lsn
        parts: list[list[TopicRecord]] = [[], []]
        for topic in topics:
            ledger = known.topic(topic.topic_id.hex())
            if (
                last_lsns.get(topic.number, 0) > ledger.landed_lsn
                or (ledger.halted is not None and ledger.halted.cause != "verification")
                or topic.name in decisions.after_rollback
                or topic.name in decisions.landed_lsn
            ):
                parts[ledger.failures > 0].append(topic)
        return [part for part in parts if part]

    def _land_all(self, waiting: list[TopicRecord], reader: TableReader) -> dict[int, TopicLanding]:
        told: dict[int, TopicLanding] = {}
        for _ in range(self._settings.attempts_max):
            if not waiting:
                break
            outcomes = self._land(waiting, reader)
            told.update({topic.number: outcome for topic, outcome in outcomes if outcome is not None})
            waiting = [topic for topic, outcome in outcomes if outcome is None]
        for topic in waiting:
            told[topic.number] = self._told(topic, "failed", message="the catalog gave no clear answer; try again")
        return told

    def _land(
        self, topics: Sequence[TopicRecord], reader: TableReader
    ) -> list[tuple[TopicRecord, TopicLanding | None]]:
        """Steps 1 to 8 without the verification.  None for a topic that must begin anew."""
        attempts = [
            _Attempt(topic, landing_table(topic), table_shape(topic), str(uuid.UUID(bytes=self._entropy(16))))
            for topic in topics
        ]
        read = self._connections.each(lambda attempt: self._read(attempt, reader), attempts)
        told: dict[int, TopicLanding | None] = {}
        ready: list[_Attempt] = []
        ended: list[LedgerRecord] = []
        for attempt, trouble in zip(attempts, read, strict=True):
            if trouble is None:
                ready.append(attempt)
            else:
                told[attempt.topic.number] = trouble
                ended.extend(self._halt_record(attempt, trouble))
        ready = self._begin(ready, told)
        lsn_to = self._write(ready)
        intended: list[LedgerRecord] = []
        to_commit: list[_Attempt] = []
        for attempt in ready:
            trouble = self._trouble(attempt)
            if trouble is None:
                # A mark without rows, of what a person decided, may lie behind what this round could read.
                attempt.lsn_to = max(lsn_to, attempt.landed_lsn)
                intended.append(self._intent(attempt))
                to_commit.append(attempt)
            else:
                told[attempt.topic.number] = trouble
                ended.extend(self._end(attempt, trouble))
        self._ledger.record(intended)
        committing = Committing(self._connections, self._clock)
        outcomes = self._connections.each(lambda attempt: self._commit(committing, attempt), to_commit)
        landed: list[LedgerRecord] = []
        for attempt, (outcome, record) in zip(to_commit, outcomes, strict=True):
            told[attempt.topic.number] = outcome
            if record is not None:
                landed.append(record)
            else:
                ended.extend(self._end(attempt, outcome))
        self._ledger.record([*landed, *ended])
        return [(topic, told[topic.number]) for topic in topics]

    # The steps ---------------------------------------------------------------------------------

    def _read(self, attempt: _Attempt, reader: TableReader) -> TopicLanding | None:
        """Steps 1 and 2; nothing where the topic can go on."""
        # The ledger before the table: what was landed in between then shows as a table that is ahead, never behind.
        known = self._ledger.state().topic(attempt.topic_id).copy()
        attempt.epoch = known.epoch
        try:
            with ExitStack() as opened:
                last: list[Tables] = []

                def connect() -> Tables:
                    last[:] = [opened.enter_context(self._connections.new())]
                    return last[0]

                attempt.reading = reader.read(connect, attempt.topic, attempt.shape, known)
                attempt.fit = last[0].fit(attempt.reading.state, attempt.shape)
            self._check_same_log(attempt.reading)
            attempt.known_lsn = max(known.owed_lsn, attempt.landed_lsn)
        except LandingHalted as halt:
            return self._told(attempt.topic, "halted", cause=halt.cause, message=halt.message)
        except Exception as error:  # noqa: BLE001  one topic's trouble, whatever it is, must not stop the others
            return self._failed(attempt.topic, error)
        return None

    def _check_same_log(self, reading: Reading) -> None:
        """A log that was put back, and goes on from there, gives its LSNs to other rows than the table holds."""
        landed_lsn = reading.standing.landed_lsn
        mark = reading.standing.mark
        durable_lsn = self._source.durable_lsn()
        chain = self._source.chain_at(landed_lsn) if mark is not None and mark.chain else ""
        if landed_lsn <= durable_lsn and (not chain or mark is None or chain == mark.chain):
            return
        raise LandingHalted(
            "log-behind",
            f"{reading.state.name!r} holds rows up to lsn {landed_lsn} of another history than the log has: an older "
            "copy of the log was put back; put back the newer one, or give the topic another table",
            table=reading.state.name,
            durable_lsn=durable_lsn,
        )

    def _begin(self, ready: list[_Attempt], told: dict[int, TopicLanding | None]) -> list[_Attempt]:
        """Step 3, for those that no other lander has begun since they were read: a courtesy that saves the writing of
        files.  It is not asked again once they are written, so that two landers cannot stop each other for ever."""
        known = self._ledger.state()
        records: list[LedgerRecord] = []
        first = []
        for attempt in ready:
            assert attempt.reading is not None
            if known.topic(attempt.topic_id).epoch > attempt.epoch:
                told[attempt.topic.number] = self._told(attempt.topic, "lost", message="another lander has begun since")
                continue
            attempt.epoch += 1
            attempt.begun_us = self._clock.now_us()
            records.extend(attempt.reading.records)
            records.append(
                Begun(
                    topic_id=attempt.topic_id,
                    table=attempt.table,
                    epoch=attempt.epoch,
                    commit_id=attempt.commit_id,
                    at_us=attempt.begun_us,
                )
            )
            first.append(attempt)
        self._ledger.record(records)
        return first

    def _write(self, ready: Sequence[_Attempt]) -> int:
        """Step 4: the rows of all topics, by tasks; returns the LSN up to which they were read."""
        by_number = {attempt.topic.number: attempt for attempt in ready}
        lsn_to, works = self._planned(by_number)
        try:
            missing = len(works)
            for done in self._runner.run(works):
                assert isinstance(done, LandDone)
                missing -= 1
                self._bytes_read += done.bytes_read
                for part in done.topics:
                    by_number[part.number].take(part)
            if missing:
                raise Unavailable("not every task gave back what it did", missing=missing)
        except Unavailable as error:
            # The engine that runs the tasks is gone, so nobody knows what was written: none of it counts.
            for attempt in ready:
                attempt.error = str(error)
        return lsn_to

    def _trouble(self, attempt: _Attempt) -> TopicLanding | None:
        """Why there is nothing to commit; nothing where there is."""
        assert attempt.reading is not None
        if attempt.error is not None:
            return self._told(attempt.topic, "failed", message=attempt.error)
        if self._ledger.state().topic(attempt.topic_id).owed_lsn > attempt.known_lsn:
            # Another lander has landed what was read here, so the log may have let go of it before it was read; and a
            # table that is set back to the head that was read would let this commit in all the same.
            return self._told(attempt.topic, "lost", message="another lander was faster")
        if attempt.reading.owed is not None:
            try:
                check_log_has(self._source, attempt.topic, attempt.landed_lsn, attempt.reading.owed)
            except LandingHalted as halt:
                return self._told(attempt.topic, "halted", cause=halt.cause, message=halt.message)
            except Exception as error:  # noqa: BLE001  one topic's trouble, whatever it is, must not stop the others
                return self._failed(attempt.topic, error)
        if not attempt.rows and not attempt.reading.standing.decided:
            return self._nothing(attempt.topic)
        # What a person decided is left in the table as a mark, with or without rows.
        return None

    def _planned(self, by_number: Mapping[int, _Attempt]) -> tuple[int, list[LandWork]]:
        # First how far, then what there is: rows that come in between are above this LSN, and not missed below it.
        durable_lsn = self._source.durable_lsn()
        plan = plan_landing(
            {number: attempt.landed_lsn for number, attempt in by_number.items()},
            self._source.segments(),
            durable_lsn=durable_lsn,
            budget_bytes=self._settings.round_bytes_max,
            item_bytes=self._settings.item_bytes,
        )
        works: list[LandWork] = []
        for planned in plan.ranges:
            topics = tuple(self._work(by_number[number], plan.lsn_to) for number in planned.topics)
            works.extend(
                LandWork(self._source.directory, segment, runs, self._source.shard, topics, slots)
                for segment, runs, slots in self._source.runs(planned, planned.item_bytes)
            )
        return plan.lsn_to, works

    @staticmethod
    def _work(attempt: _Attempt, lsn_to: int) -> TopicWork:
        assert attempt.reading is not None and attempt.fit is not None
        return TopicWork(
            number=attempt.topic.number,
            commit_id=attempt.commit_id,
            lsn_from=attempt.reading.standing.landed_lsn,
            lsn_to=lsn_to,
            schemas=attempt.topic.schemas,
            target=attempt.fit.target,
            changes=bool(attempt.topic.key),
            time_column=attempt.topic.time_column is not None,
        )

    def _intent(self, attempt: _Attempt) -> Intended:
        assert attempt.reading is not None
        head = attempt.reading.state.head()
        return Intended(
            topic_id=attempt.topic_id,
            table=attempt.table,
            commit_id=attempt.commit_id,
            base=head.snapshot_id if head is not None else None,
            lsn_from=attempt.reading.standing.landed_lsn,
            lsn_to=attempt.lsn_to,
            files=tuple(file.path for file in attempt.files),
            at_us=self._clock.now_us(),
        )

    def _commit(self, committing: Committing, attempt: _Attempt) -> tuple[TopicLanding | None, Landed | None]:
        """Steps 6 and 7 for one topic: what to report, None to begin anew; and what landed."""
        assert attempt.reading is not None and attempt.fit is not None
        standing = attempt.reading.standing
        digest = combine(attempt.digests)
        watermarks = [each for each in (standing.watermark_us, attempt.time_max_us) if each is not None]
        begun_s = self._clock.monotonic_s()
        try:
            mark = Mark(
                log_id=self._source.log_id,
                topic_id=attempt.topic_id,
                commit_id=attempt.commit_id,
                shard=self._source.shard,
                lsn_from=standing.landed_lsn,
                lsn_to=attempt.lsn_to,
                rows=digest.rows,
                digest=str(digest),
                epoch=attempt.epoch,
                max_row_lsn=max(standing.max_row_lsn, attempt.max_lsn),
                chain=self._source.chain_at(attempt.lsn_to),
                columns=",".join(str(column.field_id) for column in attempt.fit.columns),
                watermark_us=max(watermarks, default=None),
            )
            result = committing.commit(
                attempt.reading.state, attempt.fit, attempt.files, mark, standing, attempt.begun_us
            )
        except LandingHalted as halt:
            return self._told(attempt.topic, "halted", cause=halt.cause, message=halt.message), None
        except Exception as error:  # noqa: BLE001  one topic's trouble, whatever it is, must not stop the others
            return self._failed(attempt.topic, error), None
        if result is NotCommitted.AGAIN:
            return None, None
        if result is NotCommitted.LOST:
            return self._told(attempt.topic, "lost", message="another lander was faster"), None
        assert isinstance(result, Committed)
        record = Landed(
            topic_id=attempt.topic_id,
            topic=attempt.topic.name,
            table=attempt.table,
            table_uuid=result.table_uuid,
            commit_id=attempt.commit_id,
            snapshot=result.snapshot_id,
            lsn_from=mark.lsn_from,
            lsn_to=mark.lsn_to,
            rows=mark.rows,
            digest=digest,
            total=mark.digest,
            columns=attempt.fit.columns,
            max_row_lsn=mark.max_row_lsn,
            epoch=attempt.epoch,
            adopted=result.adopted,
            offsets=tuple((partition, *attempt.offsets[partition]) for partition in sorted(attempt.offsets)),
            at_us=self._clock.now_us(),
        )
        told = TopicLanding(
            attempt.topic.name,
            attempt.table,
            "landed",
            rows=mark.rows,
            lsn_from=mark.lsn_from,
            lsn_to=mark.lsn_to,
            files=len(attempt.files),
            bytes=sum(file.size_bytes for file in attempt.files),
            snapshot=result.snapshot_id,
            commit_s=self._clock.monotonic_s() - begun_s,
            adopted=result.adopted,
        )
        return told, record

    # What is said about it ---------------------------------------------------------------------

    def _end(self, attempt: _Attempt, told: TopicLanding | None) -> list[LedgerRecord]:
        """What the ledger is told of an attempt that landed nothing of its own."""
        now_us = self._clock.now_us()
        why = told.outcome if told is not None else "unknown"
        ended = Ended(
            topic_id=attempt.topic_id, table=attempt.table, commit_id=attempt.commit_id, why=why, at_us=now_us
        )
        return [ended, *(self._halt_record(attempt, told) if told is not None else ())]

    def _halt_record(self, attempt: _Attempt, told: TopicLanding) -> list[LedgerRecord]:
        """A halt is written down once."""
        if told.outcome in {"halted", "failed"}:
            logger.warning("landing of %s %s: %s", attempt.topic.name, told.outcome, told.message)
        if told.outcome != "halted":
            return []
        known = self._ledger.state().topic(attempt.topic_id).halted
        if known is not None and (
            # What keeps the log from forgetting stays in view until it is verified.
            known.cause == "verification" or (known.cause, known.message) == (told.cause, told.message)
        ):
            return []
        return [
            HaltedLanding(
                topic_id=attempt.topic_id,
                table=attempt.table,
                cause=told.cause,
                message=told.message,
                at_us=self._clock.now_us(),
            )
        ]

    def _failed(self, topic: TopicRecord, error: Exception) -> TopicLanding:
        if not isinstance(error, HeadwaterError):
            logger.error("landing of %s failed", topic.name, exc_info=error)
        return self._told(topic, "failed", message=f"{type(error).__name__}: {error}")

    def _nothing(self, topic: TopicRecord) -> TopicLanding:
        return self._told(topic, "nothing")

    @staticmethod
    def _told(topic: TopicRecord, outcome: Outcome, *, cause: str = "", message: str = "") -> TopicLanding:
        return TopicLanding(topic.name, landing_table(topic), outcome, cause=cause, message=message)
