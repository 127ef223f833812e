"""What can be seen of a machine and of a data directory before it hurts: each with a verdict, and with what to do.

PASS     It is as it should be.
NOTE     It works, and somebody should know of it.
FAIL     It will cost rows, or already keeps the log from working.
PROMISE  Nothing is changed, and no owner is disturbed.
NOT HERE Whether the bytes of the log are right: `headwater log verify`.  A server: server_checks.py.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from headwater.cli.data_directory import require_topics
from headwater.cli.output import counted
from headwater.cli.plain_table import size_cell
from headwater.clock import Clock
from headwater.errors import HeadwaterError, InvalidRequest, Unavailable
from headwater.frames.segment_header import FORMAT
from headwater.settings import MIB, Settings
from headwater.storage.disk import file_system_of, may_write, mode_of, space_of
from headwater.storage.places import is_bucket

if TYPE_CHECKING:
    from headwater.topics.answers import Status

ROOM_BYTES = 1024 * MIB
CLOCK_US_MAX = 1_000_000
"""So far a clock may be behind the log's last time before rows are stamped with other times than their own."""
ELSEWHERE = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "ceph", "glusterfs", "lustre")
IN_MEMORY = ("tmpfs", "ramfs")
IN_LAYERS = ("overlay", "aufs")
OTHERS_WRITE, OTHERS_READ = 0o022, 0o044
TOKENS = "tokens.json"
"""Who may call a server: whoever may write it lets himself in.  Tokens stand in it as hashes."""
PACKAGES = {
    "pyarrow": "",
    "msgspec": "",
    "pyiceberg": "lake",
    "obstore": "objects",
    "duckdb": "duckdb",
    "pyspark": "spark",
    "uvicorn": "server",
}
"""What is used, and which extra brings it."""


class Verdict(StrEnum):
    PASS = "PASS"
    NOTE = "NOTE"
    FAIL = "FAIL"


@dataclass(frozen=True)
class Checked:
    """One thing that was looked at."""

    name: str
    verdict: Verdict
    detail: str
    advice: str = ""


def check_versions() -> Iterator[Checked]:
    """Of Python, of the packages, and of the format that is written."""
    try:
        own = metadata.version("headwater")
    except metadata.PackageNotFoundError:
        own = "(not installed: run from its sources)"
    there, missing = [], []
    for name, extra in PACKAGES.items():
        try:
            there.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            missing.append(f"{name} (headwater[{extra}])" if extra else name)
    python = f"Python {platform.python_version()}"
    yield Checked("versions", Verdict.PASS, f"headwater {own}, log format {FORMAT}, {python}, {', '.join(there)}")
    if missing:
        advice = "nothing needs to be done unless it is to be used: pip install 'headwater[...]'"
        yield Checked("packages", Verdict.NOTE, f"not installed: {', '.join(missing)}", advice)


def check_disk(directory: str, settings: Settings) -> Checked:
    """Room for rows, and for the log to end what it has begun."""
    space = space_of(directory)
    needed = settings.log.segment_size_bytes_max + settings.log.reserve_bytes
    detail = f"{size_cell(space.free_bytes)} free of {size_cell(space.size_bytes)}"
    if space.free_bytes < needed:
        advice = f"make room: the next segment alone takes {size_cell(needed)} (docs/operating.md, A full disk)"
        return Checked("disk", Verdict.FAIL, detail, advice)
    if space.free_bytes < max(ROOM_BYTES, space.size_bytes // 20):
        return Checked("disk", Verdict.NOTE, detail, "make room soon, or land and clean up more often")
    return Checked("disk", Verdict.PASS, detail)


def check_file_system(directory: str) -> Checked:
    """Whether what is synced there stays, and whether a lock there holds."""
    kind = file_system_of(directory)
    if kind in ELSEWHERE:
        advice = "use a local disk, or a bucket: a lock over the network may not keep a second owner out"
        return Checked("file system", Verdict.FAIL, f"{kind}, on another machine", advice)
    if kind in IN_MEMORY:
        return Checked(
            "file system", Verdict.NOTE, f"{kind}: it is gone with the power", "use a disk, unless it is a test"
        )
    if kind in IN_LAYERS:
        return Checked("file system", Verdict.NOTE, f"{kind}: it is gone with the container", "mount a volume there")
    if kind.startswith("fuse"):
        return Checked("file system", Verdict.NOTE, f"{kind}: what a sync promises is up to it", "use a local disk")
    return Checked("file system", Verdict.PASS, kind or "of a kind that this system does not tell")


def check_permissions(directory: str) -> Iterator[Checked]:
    """Who else may change the log, or read what is secret."""
    if not may_write(directory):
        advice = "run it as the user who owns the directory, or only read"
        yield Checked("permissions", Verdict.NOTE, f"{directory} may not be written by this user", advice)
        return
    mode = mode_of(directory)
    if mode & OTHERS_WRITE:
        advice = f"chmod go-w {directory}"
        yield Checked("permissions", Verdict.FAIL, f"{directory} may be written by others ({mode:o})", advice)
    else:
        yield Checked("permissions", Verdict.PASS, f"{directory} is written by its owner alone ({mode:o})")
    tokens = Path(directory) / TOKENS
    if tokens.exists() and mode_of(str(tokens)) & OTHERS_WRITE:
        yield Checked("permissions", Verdict.FAIL, f"{tokens} may be written by others", f"chmod go-w {tokens}")


def check_secret(path: str, what: str) -> Checked:
    """A file that only its owner should read."""
    try:
        mode = mode_of(str(Path(path).expanduser()))
    except OSError as error:
        return Checked(what, Verdict.FAIL, f"{path}: {error.strerror}", "name a file that is there and may be read")
    if mode & (OTHERS_READ | OTHERS_WRITE):
        return Checked(what, Verdict.FAIL, f"{path} may be read or written by others ({mode:o})", f"chmod 600 {path}")
    return Checked(what, Verdict.PASS, f"{path} is read by its owner alone ({mode:o})")


def check_clock(later_lsn: int | None) -> Checked:
    """The machine's clock against the log's: given an LSN whose row is of a later time than now, if there is one."""
    if later_lsn is not None:
        advice = "set the clock right (NTP): until it has caught up, rows get the log's time and not their own"
        return Checked("clock", Verdict.FAIL, f"behind the log: LSN {later_lsn} is of a later time than now", advice)
    return Checked("clock", Verdict.PASS, "not behind the log's last row")


def check_log(data: str, settings: Settings, clock: Clock) -> Iterator[Checked]:
    """Whether it can be read by this version, how far its clock is, and what it says of itself."""
    from headwater import api
    from headwater.topics.engine import Engine

    try:
        require_topics(data)
        with api.open(data, settings=settings) as log:
            found = log.status()
            assert isinstance(log._engine, Engine)  # it was opened here, and not connected to
            later_lsn = log._engine.shard.log.find_time(clock.now_us() + CLOCK_US_MAX)
    except HeadwaterError as error:
        kind = type(error).__name__
        verdict = Verdict.NOTE if isinstance(error, Unavailable) else Verdict.FAIL
        # What is wrong with the call says itself what to do.
        advice = "" if isinstance(error, InvalidRequest) else f"headwater log verify {data}; docs/operating.md, Halts"
        yield Checked("log", verdict, f"{kind}: {error}", advice)
        return
    detail = f"LSN {found.first_lsn} to {found.durable_lsn}, format {FORMAT}, {counted(len(found.topics), 'topic')}"
    yield Checked("log", Verdict.PASS, detail)
    yield from check_status(found)
    yield check_clock(later_lsn)


def check_status(found: Status) -> Iterator[Checked]:
    """What a log says of itself: its notes, and each topic whose landing is halted."""
    for note in found.notes:
        yield Checked("log", Verdict.NOTE, note)
    for each in found.landing:
        if each.halted:
            advice = "docs/landing.md says what each halt asks for"
            yield Checked("landing", Verdict.FAIL, f"{each.topic} is halted: {each.halted}", advice)


def check_directory(data: str, settings: Settings, clock: Clock) -> Iterator[Checked]:
    """All that can be seen of a data directory, or of a prefix of a bucket."""
    yield from check_versions()
    if not is_bucket(data) and Path(data).is_dir():
        yield check_disk(data, settings)
        yield check_file_system(data)
        yield from check_permissions(data)
    yield from check_log(data, settings, clock)
