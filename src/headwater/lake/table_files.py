"""The files of a table: which its snapshots reference, which lie in its place, and taking some away.

PROMISE  `referenced_files` is complete: table metadata and its log, statistics, manifest lists, manifests, data and
         delete files of every snapshot that the table has.  It raises rather than leave one out.
         `remove_files` removes these and no others; one that is gone already is no trouble.
NOT HERE Which of them may go: upkeep.py.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import TypeVar

import pyarrow.fs as pafs
from pyiceberg.conversions import from_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import LongType, TimestamptzType

from headwater.errors import Unavailable
from headwater.lake.mark import MAIN
from headwater.lake.table_changes import COLUMN_LSN, COLUMN_TIME
from headwater.lake.tables import TableState
from headwater.lake.upkeep import DataFileFacts, ListedFile, Ref

_METADATA = ".metadata.json"
_FOLDERS = ("data", "metadata")
_SHARED = "gc.enabled"
"""Iceberg's own word for a table whose files may be those of another one, too."""

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


def refs_of(state: TableState) -> tuple[Ref, ...]:
    """Branches and tags."""
    return tuple(
        Ref(
            name,
            pointer.snapshot_id,
            pointer.snapshot_ref_type == SnapshotRefType.BRANCH,
            pointer.min_snapshots_to_keep or 1,
        )
        for name, pointer in _table(state).metadata.refs.items()
    )


def were_main(state: TableState) -> frozenset[int]:
    """The snapshots that main has pointed to, as far as the table remembers."""
    return frozenset(entry.snapshot_id for entry in _table(state).metadata.snapshot_log)


def may_lose_files(state: TableState) -> bool:
    """Whether the table's files are its own."""
    return state.properties.get(_SHARED, "true").lower() != "false"


# What is referenced -------------------------------------------------------------------------------------------------


def referenced_files(state: TableState) -> set[str]:
    """Every file that the table references, by any of its snapshots."""
    table = _table(state)
    metadata = table.metadata
    found = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    found.update(each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics))
    return found | _reading(state, lambda: _files_of(table, metadata.snapshots))


def snapshot_files(state: TableState, snapshots: Collection[int]) -> set[str]:
    """The manifest lists, manifests, data and delete files of these snapshots."""
    table = _table(state)
    wanted = [each for each in table.metadata.snapshots if each.snapshot_id in snapshots]
    return _reading(state, lambda: _files_of(table, wanted))


def _files_of(table: Table, snapshots: Iterable[Snapshot]) -> set[str]:
    found: set[str] = set()
    manifests = {}
    for snapshot in snapshots:
        found.add(snapshot.manifest_list)
        manifests.update({manifest.manifest_path: manifest for manifest in snapshot.manifests(table.io)})
    for path, manifest in manifests.items():
        found.add(path)
        found.update(
            entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        )
    return found


def added_files(state: TableState, snapshot_id: int) -> list[str]:
    """The data and delete files that a snapshot added."""
    table = _table(state)

    def read() -> list[str]:
        snapshot = table.metadata.snapshot_by_id(snapshot_id)
        assert snapshot is not None, "a snapshot of this table"
        return [
            entry.data_file.file_path
            for manifest in snapshot.manifests(table.io)
            if manifest.added_snapshot_id == snapshot_id
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
            if entry.status == ManifestEntryStatus.ADDED
        ]

    return _reading(state, read)


def data_files(state: TableState) -> tuple[list[DataFileFacts], int]:
    """What main's head says about its data files, and how many delete files it has beside them."""
    head = state.branches.get(MAIN)
    if head is None:
        return [], 0
    return _reading(state, lambda: _data_files(_table(state), head))


def _data_files(table: Table, head: int) -> tuple[list[DataFileFacts], int]:
    snapshot = table.metadata.snapshot_by_id(head)
    assert snapshot is not None, "the head is among the snapshots"
    ids = {field.name: field.field_id for field in table.schema().fields}
    found: list[DataFileFacts] = []
    deletes = 0
    for manifest in snapshot.manifests(table.io):
        entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
        if manifest.content != ManifestContent.DATA:
            deletes += len(entries)
            continue
        for entry in entries:
            file = entry.data_file
            lsn = _bound(file, ids.get(COLUMN_LSN))
            time = _bound(file, ids.get(COLUMN_TIME))
            found.append(
                DataFileFacts(
                    file.file_path,
                    file.file_size_in_bytes,
                    f"{file.spec_id}:{file.partition}",
                    None if lsn is None else int(from_bytes(LongType(), lsn)),
                    None if time is None else int(from_bytes(TimestamptzType(), time)),
                )
            )
    return found, deletes


def _bound(file: DataFile, field_id: int | None) -> bytes | None:
    return None if field_id is None else (file.upper_bounds or {}).get(field_id)


# What is there ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """The folders of a table, and a file system that shows them."""

    files: pafs.FileSystem
    folders: tuple[str, ...]
    spelled: Callable[[str], str]
    """A path of the file system as the table spells it."""


def place_of(state: TableState) -> Place | None:
    """Where the table's files lie; nothing where their store cannot be listed from here."""
    table = _table(state)
    io = table.io
    if not isinstance(io, PyArrowFileIO):
        return None
    scheme, netloc, path = io.parse_location(table.location(), io.properties)
    files = _reading(state, lambda: io.fs_by_scheme(scheme, netloc))
    base = path.rstrip("/")

    def spelled(found: str) -> str:
        return found if scheme == "file" else f"{scheme}://{found}"

    return Place(files, tuple(f"{base}/{folder}" for folder in _FOLDERS), spelled)


def listed_files(state: TableState, place: Place) -> list[ListedFile]:
    def read() -> list[ListedFile]:
        found: list[ListedFile] = []
        for folder in place.folders:
            for info in place.files.get_file_info(pafs.FileSelector(folder, allow_not_found=True, recursive=True)):
                if info.type == pafs.FileType.File:
                    # Without a time it counts as new: it stays.
                    modified_us = (info.mtime_ns or (1 << 62)) // 1000
                    found.append(ListedFile(place.spelled(info.path), info.size or 0, modified_us))
        return found

    return _reading(state, read)


def other_tables_among(state: TableState, files: Iterable[ListedFile]) -> tuple[str, ...]:
    """The ids of other tables whose metadata lies among these files: one that was dropped, and whose place this one
    has taken.  What it left may be all that there is of its rows."""
    table = _table(state)

    def uuid_in(path: str) -> str:
        with table.io.new_input(path).open() as stream:
            return str(json.loads(stream.read()).get("table-uuid", ""))

    def read() -> tuple[str, ...]:
        found = {uuid_in(file.path) for file in files if file.path.endswith(_METADATA)}
        return tuple(sorted(found - {state.uuid, ""}))

    return _reading(state, read)


def remove_files(state: TableState, paths: Iterable[str]) -> tuple[list[str], list[str]]:
    """Remove these files; returns those that are gone now and those that could not be removed."""
    io = _table(state).io
    gone: list[str] = []
    stayed: list[str] = []
    for path in paths:
        try:
            io.delete(path)
        except FileNotFoundError:
            pass  # somebody else has removed it
        except Exception:  # noqa: BLE001  each store has errors of its own, and the next upkeep tries again
            _log.warning("%s cannot be removed and stays", path, exc_info=True)
            stayed.append(path)
            continue
        gone.append(path)
    return gone, stayed


def _table(state: TableState) -> Table:
    assert isinstance(state.native, Table), "loaded by pyiceberg"
    return state.native


def _reading(state: TableState, read: Callable[[], Answer]) -> Answer:
    try:
        return read()
    except Exception as error:  # each store has errors of its own, and reading changes nothing
        raise Unavailable(
            f"the files of {state.name!r} cannot be looked at", cause=f"{type(error).__name__}: {error}"
        ) from error
