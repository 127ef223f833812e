"""A checkpoint: a state at an LSN, in a file of its own, so that opening need not replay what made it.

The file `<lsn, 20 digits>.ckpt`, little-endian; docs/formats/checkpoint.md has a worked example.

at   size  field        rule
0    4     magic        C8 48 57 43
4    4     header_crc   CRC-32C of the header from byte 8 to its end
8    2     version      1
10   2     kind         CheckpointKind
12   4     body_crc     CRC-32C of the body
16   8     lsn          the last LSN that the state holds; the file's name says the same
24   8     chain        the chain value of the frame at that LSN
32   8     journal_lsn  the last operation of the metadata journal that it was made with
40   8     created_us   when it was made
48   8     body_size    the file is 64 bytes longer, and no more
56   8     reserved     0
64         body         the state, in a form that its kind knows

VALID    If and only if every rule above holds.
READER   Takes the valid one with the highest LSN.  One that is not valid is reported with the rule it breaks and
         stays where it is; whether an older one will do is for whoever replays to say.
CHANGE   A new version number.  A whole header with another version is `unknown`, not damaged: nothing falls back
         behind the word of a later version.

PROMISE  A checkpoint is whole under its name or not there: written aside, synced, renamed, the directory synced.
         Each of the four fails by its own name, and the older ones stand.
NOT HERE What the body means, and which LSNs of a log may go once a checkpoint is there.
"""

from __future__ import annotations

import logging
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum

from headwater.errors import CheckpointFailed
from headwater.frames.checksum import crc32c
from headwater.storage.files import File, Files

logger = logging.getLogger("headwater.metadata")

MAGIC = b"\xc8HWC"
VERSION = 1
HEADER_BYTES = 64
SUFFIX = ".ckpt"
TEMPORARY = ".tmp"
KEPT = 2
"""One to use, and one to fall back to."""

_HEADER = struct.Struct("<4sIHHIQQQqQQ")
_SEALED_PART = struct.Struct("<HHIQQQqQQ")
_START = struct.Struct("<4sI")
assert _HEADER.size == HEADER_BYTES == _START.size + _SEALED_PART.size

_NAME = re.compile(r"(\d{20})\.ckpt")
_LISTINGS_MAX = 10


class CheckpointKind(IntEnum):
    JOURNAL = 1
    SHARD = 2


@dataclass(frozen=True)
class Checkpoint:
    """A state and where it stands."""

    kind: CheckpointKind
    lsn: int
    chain: int
    journal_lsn: int
    created_us: int
    body: bytes


@dataclass(frozen=True)
class CheckpointFile:
    """A checkpoint file as it was found."""

    name: str
    lsn: int
    """As its name says."""
    checkpoint: Checkpoint | None
    damage: str = ""
    """Which rule it breaks; empty where it is valid."""
    unknown: bool = False
    """It is whole, and of a version that this one does not understand."""


def name_of(lsn: int) -> str:
    return f"{lsn:020}{SUFFIX}"


def pack_checkpoint(checkpoint: Checkpoint) -> bytes:
    """The bytes of a checkpoint's file."""
    sealed = _SEALED_PART.pack(
        VERSION,
        checkpoint.kind,
        crc32c(checkpoint.body),
        checkpoint.lsn,
        checkpoint.chain,
        checkpoint.journal_lsn,
        checkpoint.created_us,
        len(checkpoint.body),
        0,
    )
    return _START.pack(MAGIC, crc32c(sealed)) + sealed + checkpoint.body


def unpack_checkpoint(data: bytes, kind: CheckpointKind) -> Checkpoint | str:
    """The checkpoint in these bytes, or the rule that they break."""
    if len(data) < HEADER_BYTES:
        return "the file is shorter than a header"
    magic, header_crc, version, found_kind, body_crc, lsn, chain, journal_lsn, created_us, body_size, reserved = (
        _HEADER.unpack_from(data)
    )
    if magic != MAGIC:
        return "it does not begin as a checkpoint does"
    if crc32c(memoryview(data)[_START.size : HEADER_BYTES]) != header_crc:
        return "the header does not match its checksum"
    if version != VERSION:
        return f"{_UNKNOWN} {version}, and this one reads {VERSION}"
    if reserved:
        return "its reserved bytes are not zero"
    if found_kind != kind:
        return f"it is of kind {found_kind}, and one of kind {int(kind)} belongs here"
    if len(data) != HEADER_BYTES + body_size:
        return f"the body has {len(data) - HEADER_BYTES} bytes where the header says {body_size}"
    body = data[HEADER_BYTES:]
    if crc32c(body) != body_crc:
        return "the body does not match its checksum"
    return Checkpoint(kind, lsn, chain, journal_lsn, created_us, body)


_UNKNOWN = "it was written in format version"


class Checkpoints:
    """The checkpoints of one log, in a directory of their own."""

    def __init__(self, files: Files, directory: str, kind: CheckpointKind) -> None:
        self._files = files
        self._directory = directory
        self._kind = kind
        self.unlinks_failed = 0
        """How often a file that was to go could not be unlinked; each is tried again by the next call."""

    # Writing ---------------------------------------------------------------------------------

    def write(self, checkpoint: Checkpoint) -> None:
        """Make it durable under its name.  CheckpointFailed names the stage; only after `sync directory` may it be
        there all the same."""
        assert checkpoint.kind is self._kind
        path = self._path(name_of(checkpoint.lsn))
        temporary = path + TEMPORARY
        data = pack_checkpoint(checkpoint)
        try:
            with _stage("write", checkpoint):
                file = self._create_anew(temporary)
            try:
                with _stage("write", checkpoint):
                    file.append([data])
                with _stage("sync", checkpoint):
                    # A sync that failed is not asked again: this file is given up, and the next attempt makes another.
                    file.sync_all()
            finally:
                file.close()
            with _stage("rename", checkpoint):
                self._files.rename(temporary, path)
        except CheckpointFailed:
            self._unlink(temporary)
            raise
        with _stage("sync directory", checkpoint):
            self._files.sync_directory(self._directory)
        logger.info("checkpoint at lsn %d: %d bytes", checkpoint.lsn, len(data))

    def _create_anew(self, temporary: str) -> File:
        """An empty file, whatever an attempt that failed has left there."""
        self._files.make_directory(self._directory)
        try:
            return self._files.create(temporary)
        except FileExistsError:
            self._files.unlink(temporary)
            return self._files.create(temporary)

    # Reading ---------------------------------------------------------------------------------

    def read(self) -> list[CheckpointFile]:
        """Every checkpoint file, the highest LSN first, each checked whole.  OSError where one cannot be read at all:
        that is not the same as damaged."""
        for _ in range(_LISTINGS_MAX - 1):
            try:
                return self._read()
            except FileNotFoundError:
                # An owner in another process has put a newer one in its place: list again.
                continue
        # A store may go on listing for a while what is gone.
        return self._read(pass_over_gone=True)

    def _read(self, *, pass_over_gone: bool = False) -> list[CheckpointFile]:
        names = sorted(filter(_NAME.fullmatch, self._files.list(self._directory)), reverse=True)
        found = []
        for name in names:
            try:
                found.append(self._read_one(name))
            except FileNotFoundError:
                if not pass_over_gone:
                    raise
        return found

    def _read_one(self, name: str) -> CheckpointFile:
        file = self._files.open(self._path(name))
        try:
            data = file.read_at(0, file.size())
        finally:
            file.close()
        lsn = int(name.removesuffix(SUFFIX))
        found = unpack_checkpoint(data, self._kind)
        if isinstance(found, str):
            return CheckpointFile(name, lsn, None, found, unknown=found.startswith(_UNKNOWN))
        if found.lsn != lsn:
            return CheckpointFile(name, lsn, None, f"its name is not its own: it is of lsn {found.lsn}")
        return CheckpointFile(name, lsn, found)

    # Letting go ------------------------------------------------------------------------------

    def keep_newest(self, count: int = KEPT) -> list[str]:
        """Unlink what the `count` newest valid ones make needless: older ones, damaged ones that are older than the
        newest valid one, and what attempts that failed have left.  Returns the names that are gone.  What cannot be
        unlinked is counted and tried again by the next call; what is not ours is never touched."""
        found = self.read()
        valid = [file.lsn for file in found if file.checkpoint is not None]
        going = [file.name for file in found if _is_needless(file, valid, count)]
        going += [name for name in self._files.list(self._directory) if _is_temporary(name)]
        gone = [name for name in going if self._unlink(self._path(name))]
        if gone:
            self._files.sync_directory(self._directory)
        return gone

    def _unlink(self, path: str) -> bool:
        try:
            self._files.unlink(path)
        except FileNotFoundError:
            return False
        except OSError as error:
            self.unlinks_failed += 1
            logger.warning("could not unlink %s, will try again: %s", path, error)
            return False
        return True

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


def _is_needless(file: CheckpointFile, valid: list[int], count: int) -> bool:
    """`valid` are the LSNs of the valid ones, the highest first."""
    if file.checkpoint is not None:
        return file.lsn not in valid[:count]
    return bool(valid) and file.lsn < valid[0] and not file.unknown


def _is_temporary(name: str) -> bool:
    return name.endswith(TEMPORARY) and _NAME.fullmatch(name.removesuffix(TEMPORARY)) is not None


@contextmanager
def _stage(stage: str, checkpoint: Checkpoint) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CheckpointFailed(
            f"a checkpoint could not be made: {error}; the older ones stand", stage=stage, lsn=checkpoint.lsn
        ) from error
