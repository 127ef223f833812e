"""An open log of this process, as the lake and Spark ask it: an engine, which may own the log or only read it.

LET GO   The log is cleaned up by its owner: by this engine if it is that, else by one that takes the lock for as long
         as it cleans up, else by whoever has the lock, later; what is said of it says which.
NOT HERE The same behind a server: client/source.py.  Pins: view_source.py.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from headwater.clock import Clock, Entropy
from headwater.errors import Forgotten, HeadwaterError, LogLocked
from headwater.frames.frame import Header, Kind
from headwater.ids import Lsn
from headwater.lake.lag import Waiting, waiting_behind
from headwater.lake.view_source import SNAPSHOTS, EngineViewSource
from headwater.log.deletion import SegmentUse
from headwater.metadata.operations import TopicRecord
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.files import Files
from headwater.topics.cleanup import CleanupReport
from headwater.topics.engine import Engine
from headwater.topics.positions import Lsn as AtLsn
from headwater.topics.reading import Wanted, read_rows
from headwater.topics.retention import Landings, releases

logger = logging.getLogger("headwater.lake")


class EngineLog(EngineViewSource):
    """OpenLog over an engine."""

    def __init__(
        self, engine: Engine, directory: str, *, files: Files, clock: Clock, entropy: Entropy, landings: Landings
    ) -> None:
        super().__init__(engine, directory)
        self._given_directory = directory
        self._files = files
        self._clock = clock
        self._entropy = entropy
        self._landings = landings

    def topics(self) -> Sequence[TopicRecord]:
        return list(self._engine.metadata().topics.values())

    def topic(self, name: str) -> TopicRecord:
        return self._engine.topic(name)

    def pinned(self) -> frozenset[int]:
        notes = [pin.note for pin in self._engine.pins.read()]
        named = [note.removeprefix(SNAPSHOTS).split(",") for note in notes if note.startswith(SNAPSHOTS)]
        return frozenset(int(each) for snapshots in named for each in snapshots if each.isdecimal())

    # Reading -----------------------------------------------------------------------------------

    def next_write(self, lsn: int) -> tuple[int, int] | None:
        header = self._next_frame(lsn)
        return None if header is None else (header.lsn, header.lsn - header.write_index)

    def _next_frame(self, lsn: int) -> Header | None:
        """The first frame at this LSN or behind it that is left, gaps passed over."""
        while True:
            segments = self._log.segments()
            first = max(lsn, segments[0].first_lsn if segments else 0)
            try:
                frames = self._log.read(Lsn(first))
                return next((each.header for each in frames if each.header.kind != Kind.GAP), None)
            except Forgotten:
                continue  # the log began later between the two looks

    def find_time(self, time_us: int) -> int | None:
        return self._log.find_time(time_us)

    def tail(self, topic: TopicRecord, columns: pa.Schema, lsn_from: int, lsn_to: int) -> pa.Table:
        wanted = Wanted(
            start=AtLsn(lsn_from + 1),
            stop=AtLsn(lsn_to + 1),
            columns=[name for name in columns.names if name != "_hw_shard"] or ["_hw_lsn"],
            system_columns=True,
        )
        engine, number = self._engine, topic.number
        rows = read_rows(self._log, lambda: engine.metadata().topics.get(number), wanted).to_arrow()
        shard = pa.repeat(pa.scalar(self.shard, pa.int32()), rows.num_rows)
        return pa.table(
            [shard if field.name == "_hw_shard" else rows.column(field.name).cast(field.type) for field in columns],
            schema=columns,
        )

    def waiting(self, topic: TopicRecord, landed_lsn: int) -> Waiting:
        return waiting_behind(self._log, topic.number, landed_lsn)

    # Letting go --------------------------------------------------------------------------------

    def let_go(self) -> str:
        try:
            if self._engine.claimed:
                return _told(self._engine.cleanup())
            if not self._something_may_go():
                return "nothing to delete yet"
            owner = Engine(
                self._files,
                directory=self._given_directory,
                settings=replace(self._engine.settings, upkeep_interval_s=0),
                clock=self._clock,
                entropy=self._entropy,
                landings=self._landings,
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

    def _something_may_go(self) -> bool:
        """Whether taking the lock would be worth it: some sealed segment has rows of a topic that may go."""
        device = self._log.device
        segments = self._log.segments()
        if not isinstance(self._files, BucketFiles):
            # On a disk a reader goes on showing segments that have gone, until the next one is begun.
            there = set(self._files.list("log"))
            segments = [segment for segment in segments if segment.name in there]
        uses = [SegmentUse(segment, device.topics_in(segment)) for segment in segments]
        metadata = self._engine.metadata()
        released = releases(
            metadata.topics.values(),
            metadata.deleted.values(),
            uses,
            now_us=self._clock.now_us(),
            landings=self._landings,
            may_expire_by_age=False,
            grace_s=self._engine.settings.log.deletion_grace_s,
        )
        return any(
            number in released and share.last_lsn <= released[number].lsn
            for use in uses
            if use.segment.sealed
            for number, share in use.topics.items()
        )


def _told(report: CleanupReport) -> str:
    if report.failures:
        return f"not all of it could be done: {report.failures[0]}"
    if not report.rows_removed and not report.deleted:
        return "nothing to delete yet"
    return (
        f"{len(report.deleted)} segments deleted, {len(report.drained)} made smaller, {report.bytes_saved} bytes less"
    )
