"""Files of no snapshot that hold rows which are to be gone: of commits that were refused, or never sent.

    a data file of a landing    its name has the landing's id, which the ledger knows: it goes.  No commit can bring it
                                in any more, because the table has landed past its rows
    any other                   is somebody's, and may be about to be committed: it stays, and is named.  Upkeep
                                removes it when it is old enough to be an orphan

PROMISE  The place is listed before the table is loaded: what a commit in between took in is referenced then.
NOT HERE Manifest lists and table metadata: of rows they hold no more than the values of partitions.
"""

from __future__ import annotations

from collections.abc import Collection

import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table

from headwater.lake.erased_snapshots import SnapshotsGone
from headwater.lake.file_cache import FileCache
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.offset_runs import OFFSET, PARTITION, OffsetRuns
from headwater.lake.table_erasing import head_files, may_hold
from headwater.lake.table_files import listed_files, place_of, referenced_files, remove_files
from headwater.lake.tables import TableState
from headwater.lake.upkeep import plain_path


def remove_orphans(
    tables: IcebergTables,
    state: TableState,
    gone: OffsetRuns,
    commit_ids: Collection[str],
    cache: FileCache,
    told: SnapshotsGone,
) -> None:
    """Look at every file in the table's place that no snapshot references; `commit_ids` are those of landings."""
    place = place_of(state)
    if place is None:
        told.left.append(f"{state.name}: its files cannot be listed from here, so those of no snapshot may hold rows")
        return
    listed = [file.path for file in listed_files(state, place)]
    loaded = tables.load(state.name)
    state = loaded if loaded is not None else state
    referenced = {plain_path(path) for path in referenced_files(state)}
    holders = [path for path in listed if plain_path(path) not in referenced and _holds(state, path, gone, cache)]
    own = [path for path in holders if any(each in path.rpartition("/")[2] for each in commit_ids)]
    removed, stayed = remove_files(state, own)
    told.removed += len(removed)
    for path in [*stayed, *(path for path in holders if path not in own)]:
        told.left.append(
            f"{path}: no snapshot references it, and it holds such rows or cannot be read; `headwater maintain` "
            "removes it when it is old enough"
        )


def _holds(state: TableState, path: str, gone: OffsetRuns, cache: FileCache) -> bool:
    """Whether a file holds one of these rows, or bounds of them; also where that cannot be told."""
    table = state.native
    assert isinstance(table, Table), "a table of pyiceberg"
    name = path.rpartition("/")[2]
    try:
        if name.endswith(".parquet"):
            return _data_holds(table.io, path, gone)
        if name.endswith(".avro") and not name.startswith("snap-"):
            live = {file.path for file in head_files(state, cache)}
            entries = _manifest(path).fetch_manifest_entry(table.io, discard_deleted=False)
            files = [entry.data_file for entry in entries if entry.data_file.file_path not in live]
            return any(may_hold(state, file, gone) for file in files)
    except FileNotFoundError:
        return False  # somebody has removed it since
    except Exception:  # noqa: BLE001  a file that is being written, or that nobody finished, is broken in any way
        return True
    return False


def _data_holds(io: FileIO, path: str, gone: OffsetRuns) -> bool:
    with io.new_input(path).open() as stream, pq.ParquetFile(stream) as file:
        if not {PARTITION, OFFSET} <= set(file.schema_arrow.names):
            return False  # no rows of a topic, as in a file that says which rows are deleted
        return bool(gone.holds(file.read([PARTITION, OFFSET])).any())


def _manifest(path: str) -> ManifestFile:
    return ManifestFile.from_args(
        manifest_path=path,
        manifest_length=0,
        partition_spec_id=0,
        content=ManifestContent.DATA,
        sequence_number=0,
        min_sequence_number=0,
        added_snapshot_id=0,
    )
