"""Opening a data directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headwater.api.log import Log
from headwater.clock import Clock, Entropy, SystemClock, system_entropy
from headwater.errors import InvalidRequest
from headwater.lake.landing import Lake
from headwater.settings import Settings
from headwater.storage.disk import DiskFiles
from headwater.storage.files import Files
from headwater.storage.simulated import SimulatedFiles
from headwater.topics.engine import Engine
from headwater.topics.retention import Landings

if TYPE_CHECKING:
    pass


MEMORY = ":memory:"


def open(
    where: str | os.PathLike[str] | Files,
    *,
    catalog: str | Mapping[str, Any] | None = None,
    spark_catalog: str | None = None,
    settings: Settings | None = None,
    clock: Clock | None = None,
    entropy: Entropy = system_entropy,
    landings: Landings | None = None,
) -> Log:
    """Open a data directory; it is made when something is first written.

    Reading claims nothing.  The first write takes the lock, and this process owns the log until it closes it.
    ":memory:" keeps everything in memory, for trying things out: it is gone when the log is closed.

    `catalog` is where the tables are: a name of pyiceberg's configuration, or its properties; without it SQLite, in the
    data directory.  `spark_catalog` is what Spark calls it, where that is another name.
    """
    files: Files
    if isinstance(where, str) and where == MEMORY:
        files = SimulatedFiles(remember_calls=False)
        directory = MEMORY
    elif isinstance(where, str | os.PathLike):
        directory = _checked_directory(os.fspath(where))
        files = DiskFiles(directory)
    else:
        files = where
        directory = type(where).__name__
    clock = clock if clock is not None else SystemClock()
    settings = settings if settings is not None else Settings()
    lake = Lake(
        files,
        directory,
        catalog=catalog,
        spark_catalog=spark_catalog,
        clock=clock,
        entropy=entropy,
        audit_first=settings.landing.audit_before_delete,
    )
    try:
        engine = Engine(
            files,
            directory=directory,
            settings=settings,
            clock=clock,
            entropy=entropy,
            landings=landings if landings is not None else lake.landings,
            older=lake.older,
        )
    except NotADirectoryError as error:
        raise InvalidRequest(f"{directory} is a file, and a log is a directory", directory=directory) from error
    return Log(engine, directory, lake)


def _checked_directory(where: str) -> str:
    if not where:
        raise InvalidRequest("say which directory is to be opened; '.' is this one")
    if "://" in where:
        raise InvalidRequest(f"{where!r} is not a directory of this machine, and no other place can be opened yet")
    return str(Path(where).expanduser())
