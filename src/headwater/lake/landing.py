"""The lake beside an open log: its catalog, its ledger, and one round of landing from that log.

    land       check the catalog if nobody has, land and verify (lander.py), then let the log go of what it may
    landing    how far each topic has come: landed LSN, lag, halts

PROMISE  Opening it reads nothing and needs none of the packages of the `lake` extra; landing without them is an
         InvalidRequest that names them.
         The log is cleaned up by its owner: by this engine if it is that, else by one that takes the lock for as long
         as it cleans up, else by whoever has the lock, later; the report says which.
NOT HERE Spark: whoever has a session gives a runner.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from headwater.clock import Clock, Entropy
from headwater.errors import HeadwaterError, InvalidRequest, LandingHalted, LogLocked
from headwater.lake.catalog import CatalogPlace, catalog_place
from headwater.lake.extra import from_the_extra
from headwater.lake.lag import Lag, due, lag_of
from headwater.lake.landings import LedgerLandings
from headwater.lake.ledger import Ledger
from headwater.lake.ledger_records import CheckedCatalog, Verification
from headwater.lake.older_rows import TablesOlderRows
from headwater.lake.report import LandingReport
from headwater.lake.runner import LocalProcesses, Runner
from headwater.lake.shape import landing_table
from headwater.lake.tables import Tables
from headwater.lake.view_source import SNAPSHOTS
from headwater.log.deletion import SegmentUse
from headwater.log.pins import Pins
from headwater.metadata.operations import TopicRecord
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files
from headwater.topics.answers import LandingStatus, Status
from headwater.topics.cleanup import CleanupReport
from headwater.topics.engine import Engine
from headwater.topics.retention import releases

if TYPE_CHECKING:
    from headwater.lake.catalog_check import CheckedProperty

logger = logging.getLogger("headwater.lake")

VERIFICATIONS: tuple[str, ...] = get_args(Verification)


class Lake:
    def __init__(
        self,
        files: Files,
        directory: str,
        *,
        clock: Clock,
        entropy: Entropy,
        catalog: str | Mapping[str, Any] | None = None,
        spark_catalog: str | None = None,
        audit_first: bool = False,
    ) -> None:
        self._files = files
        self._directory = directory
        self.clock = clock
        self.entropy = entropy
        self._catalog = catalog
        self.spark_catalog = spark_catalog
        self.ledger = Ledger(files, clock=clock, entropy=entropy)
        self.older = TablesOlderRows(self._connect, self.ledger)
        """Reads what the log has let go of from the tables."""
        self.landings = LedgerLandings(self.ledger, audit_first=audit_first)
        self._place: CatalogPlace | None = None
        self._processes: LocalProcesses | None = None

    @property
    def place(self) -> CatalogPlace:
        """The catalog that was meant; InvalidRequest where it cannot be landed in."""
        if self._place is None:
            if not isinstance(self._files, DiskFiles | BucketFiles):
                raise InvalidRequest(
                    "only a log on a disk or in a bucket can be landed: tasks read its files",
                    directory=self._directory,
                )
            self._place = catalog_place(self._catalog, directory=self._directory)
        return self._place

    def _connect(self) -> Tables:
        return self.place.connect()

    def close(self) -> None:
        """Let go of the ledger and end the processes that were started; twice is nothing."""
        self.older.close()
        self.ledger.close()
        if self._processes is not None:
            self._processes.close()

    def pinned(self) -> frozenset[int]:
        """The snapshots of tables that readers of this data directory hold now."""
        notes = [pin.note for pin in Pins(self._files, entropy=self.entropy).read()]
        named = [note.removeprefix(SNAPSHOTS).split(",") for note in notes if note.startswith(SNAPSHOTS)]
        return frozenset(int(each) for snapshots in named for each in snapshots if each.isdecimal())

    # Landing -----------------------------------------------------------------------------------

    def land(
        self,
        engine: Engine,
        topics: str | Iterable[str] | None,
        *,
        due_only: bool = False,
        runner: Runner | None = None,
        verify: Verification = "read-back",
        after_rollback: str | Iterable[str] = (),
        landed_lsn: Mapping[str, int] | None = None,
    ) -> LandingReport:
        """One round for these topics, all that have a table if none is named, and what follows from it; with `due_only`
        for those that are due by the settings' freshness and size."""
        if verify not in VERIFICATIONS:
            raise InvalidRequest(f"verify is one of {', '.join(VERIFICATIONS)}, not {verify!r}")
        wanted = chosen(engine, topics)
        decided = frozenset(_names(after_rollback))
        for name in sorted({*decided, *(landed_lsn or {})} - {topic.name for topic in wanted}):
            raise InvalidRequest(f"{name!r} is not among the topics that are landed, so nothing is decided about it")
        if due_only:
            wanted = self._due(engine, wanted)
        if not wanted:
            return LandingReport(lsn_to=engine.durable_lsn(), cleanup=self.let_go(engine) if due_only else "")
        with from_the_extra():
            from headwater.lake.lander import Lander
            from headwater.lake.source import EngineSource
            from headwater.lake.standing import Decisions
        self.check_catalog_once()
        lander = Lander(
            EngineSource(engine, self._directory),
            self.place.connect,
            self.ledger,
            runner if runner is not None else self._local(),
            clock=self.clock,
            entropy=self.entropy,
            settings=engine.settings.landing,
        )
        report = lander.round(wanted, decisions=Decisions(decided, dict(landed_lsn or {})), verify=verify)
        return replace(report, cleanup=self.let_go(engine))

    def _due(self, engine: Engine, wanted: list[TopicRecord]) -> list[TopicRecord]:
        numbers = {topic.number for topic in wanted}
        settings = engine.settings.landing
        return due(
            [lag for lag in self.lags(engine) if lag.topic.number in numbers],
            now_us=self.clock.now_us(),
            freshness_s=settings.freshness_s,
            target_bytes=settings.target_file_bytes,
        )

    def _local(self) -> LocalProcesses:
        if self._processes is None:
            self._processes = LocalProcesses()
        return self._processes

    # The catalog -------------------------------------------------------------------------------

    def check_catalog(self) -> tuple[CheckedProperty, ...]:
        """Race real commits on a table of its own and see what the catalog does; the ledger is told."""
        with from_the_extra():
            from headwater.lake.catalog_check import check_catalog
        found = check_catalog(self.place, self.clock, self.entropy)
        self.ledger.record(
            [
                CheckedCatalog(
                    catalog=_identity(self.place),
                    passed=all(each.passed for each in found),
                    properties={each.name: each.passed for each in found},
                    at_us=self.clock.now_us(),
                )
            ]
        )
        return found

    def check_catalog_once(self) -> None:
        """Before the first landing into a catalog it must have been seen to keep its word."""
        known = self.ledger.state().checked(_identity(self.place))
        if known is not None and known.passed:
            return
        logger.info("the catalog %s is checked before the first landing into it", self.place.name)
        broken = [each for each in self.check_catalog() if not each.passed]
        if broken:
            raise LandingHalted(
                "catalog",
                f"the catalog {self.place.name!r} does not keep what exactly-once needs: "
                + "; ".join(f"{each.name}: {each.detail}" for each in broken),
                catalog=self.place.name,
            )

    # Step 9 ------------------------------------------------------------------------------------

    def let_go(self, engine: Engine) -> str:
        """Clean up the log after a landing, if that can be done here; says what was done."""
        try:
            if engine.claimed:
                return _told(engine.cleanup())
            if not self._something_may_go(engine):
                return "nothing to delete yet"
            owner = Engine(
                self._files,
                directory=self._directory,
                settings=replace(engine.settings, upkeep_interval_s=0),
                clock=self.clock,
                entropy=self.entropy,
                landings=self.landings,
            )
            try:
                return _told(owner.cleanup())
            finally:
                owner.close()
        except LogLocked as error:
            return f"left to the log's owner, pid {error.facts.get('pid', 'unknown')}"
        except HeadwaterError as error:
            # The landing stands whatever becomes of the log's old files; the next round tries again.
            logger.warning("the log was not cleaned up: %s", error)
            return f"not done, the next round tries again: {error}"

    def _something_may_go(self, engine: Engine) -> bool:
        """Whether taking the lock would be worth it: some sealed segment has rows of a topic that may go."""
        device = engine.shard.log.device
        segments = engine.shard.log.segments()
        if not isinstance(self._files, BucketFiles):
            # On a disk a reader goes on showing segments that have gone, until the next one is begun.
            there = set(self._files.list("log"))
            segments = [segment for segment in segments if segment.name in there]
        uses = [SegmentUse(segment, device.topics_in(segment)) for segment in segments]
        metadata = engine.metadata()
        released = releases(
            metadata.topics.values(),
            metadata.deleted.values(),
            uses,
            now_us=self.clock.now_us(),
            landings=self.landings,
            may_expire_by_age=False,
            grace_s=engine.settings.log.deletion_grace_s,
        )
        return any(
            number in released and share.last_lsn <= released[number].lsn
            for use in uses
            if use.segment.sealed
            for number, share in use.topics.items()
        )

    # How far it has come -----------------------------------------------------------------------

    def lags(self, engine: Engine) -> list[Lag]:
        """How far each topic's table is behind, by the ledger."""
        state = self.ledger.state()
        found = []
        for topic in with_tables(engine.metadata().topics.values()):
            known = state.topic(topic.topic_id.hex())
            found.append(replace(lag_of(engine.shard.log, topic, known.landed_lsn), unverified=bool(known.unverified)))
        return found

    def completed(self, status: Status, engine: Engine) -> Status:
        """A status with what the ledger says; where it cannot be read, a note says so."""
        try:
            return replace(status, landing=self.status(engine))
        except (HeadwaterError, OSError) as error:
            return replace(status, notes=[*status.notes, f"the ledger cannot be read: {error}"])

    def status(self, engine: Engine) -> list[LandingStatus]:
        """One line a topic with a table, by name."""
        now_us = self.clock.now_us()
        found = []
        for lag in self.lags(engine):
            known = self.ledger.state().topic(lag.topic.topic_id.hex())
            assert lag.topic.table is not None
            found.append(
                LandingStatus(
                    topic=lag.topic.name,
                    table=lag.topic.table,
                    landed_lsn=known.landed_lsn,
                    verified_lsn=known.verified_lsn,
                    merged_lsn=(known.merged.lsn_to if known.merged is not None else 0) if lag.topic.key else None,
                    lag_rows=lag.rows,
                    lag_bytes=lag.bytes,
                    lag_s=lag.seconds(now_us),
                    halted=known.halted.cause if known.halted is not None else "",
                    message=known.halted.message if known.halted is not None else "",
                    log_first_lsn=_first_held(engine, lag.topic),
                    audited_lsn=known.audited.lsn_to if known.audited is not None else 0,
                    audited_us=known.audited.at_us if known.audited is not None else 0,
                )
            )
        return found


def _first_held(engine: Engine, topic: TopicRecord) -> int:
    """The first LSN of the first segment that holds rows of a topic; 0: none."""
    log = engine.shard.log
    shares = ((segment, log.device.topics_in(segment).get(topic.number)) for segment in log.segments())
    return next((segment.first_lsn for segment, share in shares if share is not None and share.rows), 0)


def chosen(engine: Engine, topics: str | Iterable[str] | None) -> list[TopicRecord]:
    """These topics, each of which must have a table; all that have one if none is named."""
    if topics is None:
        return with_tables(engine.metadata().topics.values())
    found = [engine.topic(name) for name in dict.fromkeys(_names(topics))]
    for topic in found:
        landing_table(topic)
    return found


def with_tables(topics: Iterable[TopicRecord]) -> list[TopicRecord]:
    """The topics that land, by name."""
    return sorted((topic for topic in topics if topic.table is not None), key=lambda topic: topic.name)


def _names(given: str | Iterable[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _identity(place: CatalogPlace) -> str:
    """By what a catalog is known in the ledger: its name, and where it is, without a password in clear."""
    where = f"{place.properties.get('uri', '')} {place.properties.get('warehouse', '')}"
    return f"{place.name} ({place.kind}, {hashlib.sha256(where.encode()).hexdigest()[:12]})"


def _told(report: CleanupReport) -> str:
    if report.failures:
        return f"not all of it could be done: {report.failures[0]}"
    if not report.rows_removed and not report.deleted:
        return "nothing to delete yet"
    return (
        f"{len(report.deleted)} segments deleted, {len(report.drained)} made smaller, {report.bytes_saved} bytes less"
    )
