"""Opening a data directory, on a disk or in a bucket."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.api.log import Log
from headwater.clock import Clock, Entropy, SystemClock, system_entropy
from headwater.errors import InvalidRequest
from headwater.lake.landing import Lake
from headwater.log.segment import Memory
from headwater.settings import Settings, bucket_settings
from headwater.storage.bucket_files import BucketFiles
from headwater.storage.files import Files
from headwater.storage.places import is_bucket, open_files
from headwater.storage.simulated import SimulatedFiles
from headwater.topics.batches import arrow_memory
from headwater.topics.embedded import EmbeddedEngine
from headwater.topics.retention import Landings
from headwater.topics.store_status import StoreWatch

MEMORY = ":memory:"


def open(
    where: str | os.PathLike[str] | Files,
    *,
    catalog: str | Mapping[str, Any] | None = None,
    spark_catalog: str | None = None,
    settings: Settings | None = None,
    take_over: bool = False,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
    landings: Landings | None = None,
) -> Log:
    """Open a data directory, or "s3://bucket/prefix"; it is made when something is first written.

    Reading claims nothing.  The first write takes the lock, and this process owns the log until it closes it.
    In a bucket an owner that gives no sign of life for some seconds is taken over by whoever writes next, and fenced;
    with `take_over` also one that seems to be alive.  docs/objects.md says what that owner is told, and the rest.
    ":memory:" keeps everything in memory, for trying things out: it is gone when the log is closed.

    `catalog` is where the tables are: a name of pyiceberg's configuration, or its properties; without it SQLite, in the
    data directory (a bucket has no place for it).  `spark_catalog` is what Spark calls it, where that is another name.
    """
    opened = open_engine(
        where,
        catalog=catalog,
        spark_catalog=spark_catalog,
        settings=settings,
        take_over=take_over,
        clock=clock,
        entropy=entropy,
        landings=landings,
    )
    return Log(opened.engine, opened.directory, opened.lake, opened.store)


@dataclass(frozen=True)
class Opened:
    """A log in this process, and the lake beside it."""

    engine: EmbeddedEngine
    lake: Lake
    directory: str
    store: StoreWatch | None


def open_engine(
    where: str | os.PathLike[str] | Files,
    *,
    catalog: str | Mapping[str, Any] | None = None,
    spark_catalog: str | None = None,
    settings: Settings | None = None,
    take_over: bool = False,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
    landings: Landings | None = None,
    memory: Memory = arrow_memory,
) -> Opened:
    """The same for whoever serves it to others, rather than using it as a Log.  `memory` is where rows that are read
    lie."""
    files: Files
    if isinstance(where, str) and where == MEMORY:
        files = SimulatedFiles(remember_calls=False)
        directory = MEMORY
    elif isinstance(where, str | os.PathLike):
        directory = _checked_place(os.fspath(where))
        files = open_files(directory, take_over=take_over)
    else:
        files = where
        directory = where.url if isinstance(where, BucketFiles) else type(where).__name__
    if isinstance(files, BucketFiles):
        files.take_over = files.take_over or take_over
    elif take_over:
        raise InvalidRequest(
            "take_over is for buckets: the lock of a directory is this machine's, and goes with the process that has "
            "it; stop that process",
            directory=directory,
        )
    clock = clock if clock is not None else SystemClock()
    if settings is None:
        settings = bucket_settings() if isinstance(files, BucketFiles) else Settings()
    lake = Lake(
        files,
        directory,
        catalog=catalog,
        spark_catalog=spark_catalog,
        clock=clock,
        entropy=entropy,
        landing=settings.landing,
    )
    try:
        engine = EmbeddedEngine(
            files,
            directory=directory,
            settings=settings,
            clock=clock,
            entropy=entropy,
            landings=landings if landings is not None else lake.landings,
            older=lake.older,
            memory=memory,
        )
    except NotADirectoryError as error:
        raise InvalidRequest(f"{directory} is a file, and a log is a directory", directory=directory) from error
    store = StoreWatch(files, clock) if isinstance(files, BucketFiles) else None
    return Opened(engine, lake, directory, store)


def _checked_place(where: str) -> str:
    if not where:
        raise InvalidRequest("say which directory is to be opened; '.' is this one")
    return where if is_bucket(where) else str(Path(where).expanduser())
