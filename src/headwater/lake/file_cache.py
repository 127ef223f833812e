"""Which files a snapshot shows: manifest lists and manifests are read once, because no writer changes one.

A new snapshot names mostly manifests that the one before it named, so looking at it costs its manifest list and what
is new in it.

PROMISE  The files of a snapshot are its live data files, each with the delete files that apply to it by partition and
         sequence number.  Equality deletes, which nothing here can apply, are refused by name.
THREADS  Safe for any number of them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile, DataFileContent, ManifestContent, ManifestEntry, ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.delete_file_index import DeleteFileIndex
from pyiceberg.types import LongType

from headwater.errors import Unavailable
from headwater.lake.tables import TableState

MANIFESTS_KEPT = 4096
SNAPSHOTS_KEPT = 64


@dataclass(frozen=True)
class LiveFile:
    """A data file, and what takes rows out of it."""

    file: DataFile
    deletes: tuple[DataFile, ...] = ()

    @property
    def path(self) -> str:
        return self.file.file_path

    def bounds(self, field_id: int) -> tuple[int, int] | None:
        """The least and the greatest value of a long column; None where the file does not say."""
        lower = (self.file.lower_bounds or {}).get(field_id)
        upper = (self.file.upper_bounds or {}).get(field_id)
        if lower is None or upper is None:
            return None
        return int(from_bytes(LongType(), lower)), int(from_bytes(LongType(), upper))


@dataclass(frozen=True)
class SnapshotFiles:
    data: tuple[LiveFile, ...] = ()

    @property
    def rows(self) -> int | None:
        """How many rows they hold; None where that takes reading delete files."""
        return None if any(each.deletes for each in self.data) else sum(each.file.record_count for each in self.data)


class FileCache:
    def __init__(self) -> None:
        self._manifests: OrderedDict[str, tuple[ManifestEntry, ...]] = OrderedDict()
        self._snapshots: OrderedDict[str, SnapshotFiles] = OrderedDict()
        self._lock = threading.Lock()

    def files(self, state: TableState, snapshot_id: int) -> SnapshotFiles:
        """The files that a snapshot shows; Unavailable where it, or its manifests, are gone."""
        table = state.native
        assert isinstance(table, Table), "a table of pyiceberg"
        snapshot = table.metadata.snapshot_by_id(snapshot_id)
        if snapshot is None:
            raise Unavailable(f"{state.name!r} no longer has this snapshot: scan again", snapshot=snapshot_id)
        name = snapshot.manifest_list
        with self._lock:
            known = self._snapshots.get(name)
            if known is not None:
                self._snapshots.move_to_end(name)
                return known
        try:
            found = self._read(table, snapshot.manifests(table.io))
        except Unavailable:
            raise
        except Exception as error:  # each file system has errors of its own, and reading changes nothing
            raise Unavailable(
                f"the manifests of {state.name!r} cannot be read: scan again", cause=f"{type(error).__name__}: {error}"
            ) from error
        with self._lock:
            self._snapshots[name] = found
            while len(self._snapshots) > SNAPSHOTS_KEPT:
                self._snapshots.popitem(last=False)
        return found

    def _read(self, table: Table, manifests: list[ManifestFile]) -> SnapshotFiles:
        data: list[ManifestEntry] = []
        deletes = DeleteFileIndex()
        for manifest in manifests:
            entries = self._entries(table, manifest)
            if manifest.content == ManifestContent.DATA:
                data.extend(entries)
                continue
            for entry in entries:
                if entry.data_file.content != DataFileContent.POSITION_DELETES:
                    raise Unavailable(
                        f"{'.'.join(table.name())!r} has equality deletes, which cannot be read here: compact it",
                        path=entry.data_file.file_path,
                    )
                deletes.add_delete_file(entry, partition_key=entry.data_file.partition)
        if deletes.is_empty():
            return SnapshotFiles(tuple(LiveFile(entry.data_file) for entry in data))
        return SnapshotFiles(
            tuple(
                LiveFile(
                    entry.data_file,
                    tuple(
                        deletes.for_data_file(
                            entry.sequence_number or 0, entry.data_file, partition_key=entry.data_file.partition
                        )
                    ),
                )
                for entry in data
            )
        )

    def _entries(self, table: Table, manifest: ManifestFile) -> tuple[ManifestEntry, ...]:
        path = manifest.manifest_path
        with self._lock:
            known = self._manifests.get(path)
            if known is not None:
                self._manifests.move_to_end(path)
                return known
        entries = tuple(manifest.fetch_manifest_entry(table.io, discard_deleted=True))
        with self._lock:
            self._manifests[path] = entries
            while len(self._manifests) > MANIFESTS_KEPT:
                self._manifests.popitem(last=False)
        return entries
