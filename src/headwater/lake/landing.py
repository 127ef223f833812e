"""The lake beside an open log: its catalog, its ledger, and one round of landing from that log.

    land       check the catalog if nobody has, land and verify (lander.py), then let the log go of what it may
    landing    how far each topic has come: landed LSN, lag, halts

PROMISE  Opening it reads nothing and needs none of the packages of the `lake` extra; landing without them is an
         InvalidRequest that names them.
         Nothing here asks whether the log is in this process or behind a server: it is an OpenLog (source.py).
NOT HERE Spark: whoever has a session gives a runner.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from headwater.clock import Clock, Entropy
from headwater.errors import HeadwaterError, InvalidRequest, LandingHalted
from headwater.lake.catalog import CatalogPlace, catalog_place
from headwater.lake.extra import from_the_extra
from headwater.lake.lag import Lag, due
from headwater.lake.landings import LedgerLandings
from headwater.lake.ledger import LakeLedger, Ledger
from headwater.lake.ledger_records import CheckedCatalog, Verification
from headwater.lake.older_rows import TablesOlderRows
from headwater.lake.report import LandingReport
from headwater.lake.runner import LocalProcesses, Runner
from headwater.lake.shape import landing_table
from headwater.lake.source import OpenLog
from headwater.lake.tables import Tables
from headwater.metadata.operations import TopicRecord
from headwater.settings import LandingSettings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files
from headwater.topics.answers import LandingStatus, Status

if TYPE_CHECKING:
    from headwater.lake.catalog_check import CheckedProperty

logger = logging.getLogger("headwater.lake")

VERIFICATIONS: tuple[str, ...] = get_args(Verification)


class Lake:
    def __init__(
        self,
        files: Files | None,
        directory: str,
        *,
        clock: Clock,
        entropy: Entropy,
        catalog: str | Mapping[str, Any] | None = None,
        spark_catalog: str | None = None,
        landing: LandingSettings | None = None,
        ledger: LakeLedger | None = None,
        log: OpenLog | None = None,
    ) -> None:
        """`files` is where the log and its ledger lie; behind a server there are none, and both are given."""
        self._log = log
        self._files = files
        self._directory = directory
        self.clock = clock
        self.entropy = entropy
        self._catalog = catalog
        self.spark_catalog = spark_catalog
        self._settings = landing if landing is not None else LandingSettings()
        if ledger is None:
            assert files is not None
            ledger = Ledger(files, clock=clock, entropy=entropy)
        self.ledger = ledger
        self.older = TablesOlderRows(self._connect, self.ledger)
        """Reads what the log has let go of from the tables."""
        self.landings = LedgerLandings(self.ledger, audit_first=self._settings.audit_before_delete)
        self._place: CatalogPlace | None = None
        self._processes: LocalProcesses | None = None

    @property
    def place(self) -> CatalogPlace:
        """The catalog that was meant; InvalidRequest where it cannot be landed in."""
        if self._place is None:
            if self._files is not None and not isinstance(self._files, DiskFiles | BucketFiles):
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

    def log_of(self, engine: object) -> OpenLog:
        """The log of this engine, as the lake asks it; whoever asks for it closes it."""
        if self._log is not None:
            return self._log
        # Imported here: a client has a lake, and no engine.
        from headwater.lake.engine_log import EngineLog
        from headwater.topics.engine import Engine

        assert isinstance(engine, Engine) and self._files is not None
        return EngineLog(
            engine,
            self._directory,
            files=self._files,
            clock=self.clock,
            entropy=self.entropy,
            landings=self.landings,
        )

    # Landing -----------------------------------------------------------------------------------

    def land(
        self,
        log: OpenLog,
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
        wanted = chosen(log, topics)
        decided = frozenset(_names(after_rollback))
        for name in sorted({*decided, *(landed_lsn or {})} - {topic.name for topic in wanted}):
            raise InvalidRequest(f"{name!r} is not among the topics that are landed, so nothing is decided about it")
        if due_only:
            wanted = self._due(log, wanted)
        if not wanted:
            return LandingReport(lsn_to=log.durable_lsn(), cleanup=log.let_go() if due_only else "")
        with from_the_extra():
            from headwater.lake.lander import Lander
            from headwater.lake.standing import Decisions
        self.check_catalog_once()
        lander = Lander(
            log,
            self.place.connect,
            self.ledger,
            runner if runner is not None else self._local(),
            clock=self.clock,
            entropy=self.entropy,
            settings=self._settings,
        )
        report = lander.round(wanted, decisions=Decisions(decided, dict(landed_lsn or {})), verify=verify)
        return replace(report, cleanup=log.let_go())

    def _due(self, log: OpenLog, wanted: list[TopicRecord]) -> list[TopicRecord]:
        numbers = {topic.number for topic in wanted}
        return due(
            [lag for lag in self.lags(log) if lag.topic.number in numbers],
            now_us=self.clock.now_us(),
            freshness_s=self._settings.freshness_s,
            target_bytes=self._settings.target_file_bytes,
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
                + "; ".join(f"{each.name}: {each.detail}" for each in broken)
                + "; use another catalog, or a later version of this one",
                catalog=self.place.name,
            )

    # How far it has come -----------------------------------------------------------------------

    def lags(self, log: OpenLog) -> list[Lag]:
        """How far each topic's table is behind, by the ledger."""
        state = self.ledger.state()
        found = []
        for topic in with_tables(log.topics()):
            known = state.topic(topic.topic_id.hex())
            waiting = log.waiting(topic, known.landed_lsn)
            found.append(Lag(topic, known.landed_lsn, *waiting, unverified=bool(known.unverified)))
        return found

    def completed(self, status: Status, log: OpenLog) -> Status:
        """A status with what the ledger says; where it cannot be read, a note says so."""
        try:
            return replace(status, landing=self.status(log))
        except (HeadwaterError, OSError) as error:
            return replace(status, notes=[*status.notes, f"the ledger cannot be read: {error}"])

    def status(self, log: OpenLog) -> list[LandingStatus]:
        """One line a topic with a table, by name."""
        now_us = self.clock.now_us()
        found = []
        for lag in self.lags(log):
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
                    log_first_lsn=_first_held(log, lag.topic),
                    audited_lsn=known.audited.lsn_to if known.audited is not None else 0,
                    audited_us=known.audited.at_us if known.audited is not None else 0,
                )
            )
        return found


def _first_held(log: OpenLog, topic: TopicRecord) -> int:
    """The first LSN of the first segment that holds rows of a topic; 0: none."""
    shares = ((segment, segment.topics.get(topic.number)) for segment in log.segments())
    return next((segment.first_lsn for segment, share in shares if share is not None and share.rows), 0)


def chosen(log: OpenLog, topics: str | Iterable[str] | None) -> list[TopicRecord]:
    """These topics, each of which must have a table; all that have one if none is named."""
    if topics is None:
        return with_tables(log.topics())
    found = [log.topic(name) for name in dict.fromkeys(_names(topics))]
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
