"""Small engines on simulated files, for tests: one data directory that is opened, killed and opened again.

SEED     Files, entropy and clock are given: the same calls make the same bytes.
COMMITS  `together` holds the baton while requests are queued, so that a test says exactly which share a commit.
NOT HERE What a user has in hand: `World.log` gives the product's own Log over the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa

from headwater.api import Log
from headwater.clock import ManualClock
from headwater.frames.frame import Kind
from headwater.ids import Lsn
from headwater.log.device import Frame
from headwater.metadata.shard_state import ShardState, fold_frames
from headwater.settings import LogSettings, Settings
from headwater.storage.simulated import SimulatedFiles
from headwater.topics.embedded import EmbeddedEngine
from headwater.topics.engine import Engine
from headwater.topics.requests import GroupOffset, Identity, PartitionRows, SourceAt, Told, TopicRequest
from tests.unit.topics.known_landings import KnownLandings

WAIT_S = 20.0
"""Nothing in these tests takes long: whoever waits so long waits for ever."""

DAY_S = 86_400.0
PLAIN = pa.schema([pa.field("x", pa.int64())])
JOURNAL = LogSettings(reserve_bytes=0, mark_sync_idle_s=0.0, segment_age_s_max=float("inf"), scan_chunk_bytes=4096)
QUIET = Settings(
    log=LogSettings(reserve_bytes=0, mark_sync_idle_s=0.0, segment_age_s_max=float("inf"), scan_chunk_bytes=4096),
    journal=JOURNAL,
    upkeep_interval_s=0,
)
"""No thread but the writer's, no roll by age, no reserve."""


def with_log(settings: Settings = QUIET, **log: Any) -> Settings:
    """The same with other numbers for the log."""
    return replace(settings, log=replace(settings.log, **log))


@dataclass
class World:
    """A data directory and the clock beside it."""

    files: SimulatedFiles = field(default_factory=SimulatedFiles)
    clock: ManualClock = field(default_factory=ManualClock)
    settings: Settings = QUIET
    seed: int = 1
    landings: KnownLandings = field(default_factory=KnownLandings)
    engines: list[EmbeddedEngine] = field(default_factory=list)

    def engine(self) -> EmbeddedEngine:
        """Open the directory once more; all that were opened are in `engines`."""
        self.seed += 1
        engine = EmbeddedEngine(
            self.files,
            directory="small",
            settings=self.settings,
            clock=self.clock,
            entropy=Random(self.seed).randbytes,
            landings=self.landings,
        )
        self.engines.append(engine)
        return engine

    def log(self) -> Log:
        return Log(self.engine(), "small")

    def kill(self) -> World:
        """What the next process finds after this one was killed."""
        return replace(self, files=self.files.restart(), engines=[])

    def lose_power(self, seed: int) -> World:
        """What the next boot finds."""
        return replace(self, files=self.files.crash(Random(seed)), engines=[])


def engine_of(log: Log) -> EmbeddedEngine:
    """The engine of a log that is open in this process."""
    engine = log._engine
    assert isinstance(engine, EmbeddedEngine)
    return engine


def together(engine: Engine, *asks: Callable[[], Future[Any]]) -> list[Future[Any]]:
    """Queue what is asked for while nobody may commit, so that it becomes one commit; done when this returns."""
    engine.claim()
    futures = engine.shard.log.exclusively(lambda: [ask() for ask in asks])
    for future in futures:
        future.exception(WAIT_S)
    return futures


def appending(log: Log, topic: str, rows: object, **options: Any) -> Callable[[], Future[Any]]:
    return lambda: log[topic].append_future(rows, **options)


def identified(
    engine: Engine, topic: str, rows: object, identity: Identity, *, partition: int | None = None
) -> Callable[[], Future[Any]]:
    number = engine.topic(topic).number
    return lambda: engine.append_future(number, rows, identity=identity, partition=partition)


def transacting(
    engine: Engine,
    rows: Sequence[PartitionRows],
    *,
    groups: Sequence[GroupOffset] = (),
    sources: Sequence[SourceAt] = (),
    identity: Identity | None = None,
) -> Callable[[], Future[Told]]:
    """A transaction that is queued like any other request; its future gives what the log told."""

    def ask() -> Future[Told]:
        future: Future[Told] = Future()
        future.set_running_or_notify_cancel()
        request = engine.preparation.request(
            list(rows), identity=identity, groups=groups, sources=sources, transaction=True, future=future
        )
        engine.shard.log.submit_future(request)
        return future

    return ask


def queued(engine: Engine, *rows: PartitionRows) -> Callable[[], Future[Any]]:
    """A request of rows that are ready for their partitions."""

    def ask() -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        engine.shard.log.submit_future(engine.preparation.request(list(rows), future=future))
        return future

    return ask


def registering(engine: Engine, name: str) -> Callable[[], Future[Any]]:
    """A producer that begins its next epoch."""

    def ask() -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        engine.shard.log.submit_future(TopicRequest([], frame_bytes=0, registers=name, alone=True, future=future))
        return future

    return ask


def ranges(future: Future[Any]) -> dict[int, tuple[int, int]]:
    """Where the rows of an append are, by partition."""
    return {partition: tuple(each) for partition, each in future.result().offsets.items()}


def frames(engine: Engine, from_lsn: int = 1, *, kind: Kind | None = None) -> list[Frame]:
    """What the log holds, without the frames that begin an epoch."""
    found = [frame for frame in engine.shard.log.read(Lsn(from_lsn)) if frame.header.kind != Kind.EPOCH]
    return found if kind is None else [frame for frame in found if frame.header.kind == kind]


def kinds(engine: Engine, from_lsn: int = 1) -> list[Kind]:
    return [Kind(frame.header.kind) for frame in frames(engine, from_lsn)]


def values(log: Log, topic: str = "a", column: str = "x") -> list[Any]:
    """A topic's rows by one column, in the order of the log."""
    return [row[column] for row in log[topic].read().to_pylist()]


def folded(engine: Engine) -> ShardState:
    """The state as the whole log folds to it."""
    return fold_frames(ShardState(), engine.shard.log.read(Lsn(1)))


def checkpoint_names(files: SimulatedFiles) -> list[str]:
    return sorted(name for name in files.list("checkpoints") if name.endswith(".ckpt"))
