"""Erasing from a table's head: which rows match, data files made again without some rows, and the commit of that.

    find       rows by a condition, those too that a delete file hides: their bytes are still in the data file
    rewrite    each data file that holds rows that are to go, made again without them, and read back
    stage      one commit on condition of the head: old files out, new ones in, and the mark, which says the same landed
               LSN once more

PROMISE  Rows that stay have every value that they had, the system's columns included.
         The new head's manifests say nothing of files that are out: their bounds are values of rows.  (Iceberg allows
         entries for files that a snapshot deletes, and does not need them.)
MEMORY   One data file at a time.
NOT HERE Older snapshots: erased_snapshots.py.  When and how often: erasing.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntry, ManifestEntryStatus, ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.table.update.snapshot import _OverwriteFiles

from headwater.errors import CorruptData, Unavailable
from headwater.lake.data_files import DataFileWriter, arrow_type, columns_of, read_data_file
from headwater.lake.digest import combine, digest_of
from headwater.lake.file_cache import FileCache, LiveFile
from headwater.lake.fitting import spelled
from headwater.lake.iceberg_tables import CommitRequest
from headwater.lake.mark import MAIN, Mark, property_name
from headwater.lake.offset_runs import OFFSET, PARTITION, OffsetRuns
from headwater.lake.shape import LSN_METRICS
from headwater.lake.table_changes import _with_retention
from headwater.lake.table_rows import PartReading
from headwater.lake.tables import Staged, TableState
from headwater.lake.view_plan import TablePart
from headwater.lake.where import Condition
from headwater.lake.work import Column, Digest, WrittenFile
from headwater.lake.write_target import data_file, encode_target

LSN = "_hw_lsn"
_PLACES = pa.schema([pa.field(PARTITION, pa.int32()), pa.field(OFFSET, pa.int64()), pa.field(LSN, pa.int64())])
_FIELD_ID = b"PARQUET:field_id"

# Finding ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileMatches:
    """Rows of one data file that fulfil a condition, by partition, offset and LSN."""

    file: LiveFile
    live: pa.Table
    hidden: pa.Table
    """A delete file says that they are gone; their bytes are there."""


def matches(
    state: TableState, columns: pa.Schema, where: Condition, lsn_to: int, cache: FileCache
) -> Iterator[FileMatches]:
    """The rows of main's head up to an LSN that fulfil the condition; those of no topic have no offset.  `columns` are
    those of the topic: one that the table does not have yet is null.

    Every file is read, in the columns that the condition looks at: what files say of themselves may be wrong about
    NaN, or rounded, and no row may be passed over here."""
    own = {field.name: field for field in _table(state).schema().fields}
    looked_at = [
        pa.field(name, arrow_type(own[name].field_type)) if name in own else columns.field(name)
        for name in sorted(where.columns - set(_PLACES.names))
    ]
    reading = _reading(state, pa.schema([*_PLACES, *looked_at]))
    for live in head_files(state, cache):
        shown = OffsetRuns.of_rows(_matching(reading.read(live), where, lsn_to)) if live.deletes else None
        found = _matching(reading.read(LiveFile(live.file)), where, lsn_to)
        is_shown = pa.array(shown.holds(found) if shown is not None else [True] * found.num_rows, pa.bool_())
        is_shown = pc.or_(is_shown, found.column(OFFSET).is_null())
        if found.num_rows:
            yield FileMatches(live, found.filter(is_shown), found.filter(pc.invert(is_shown)))


def _matching(tables: Sequence[pa.Table], where: Condition, lsn_to: int) -> pa.Table:
    of_no_topic_or_so_old = pc.field(LSN).is_null() | (pc.field(LSN) <= lsn_to)
    return _concat([rows.filter(where.expression & of_no_topic_or_so_old).select(_PLACES.names) for rows in tables])


def head_files(state: TableState, cache: FileCache) -> tuple[LiveFile, ...]:
    head = state.head()
    return cache.files(state, head.snapshot_id).data if head is not None else ()


def may_hold(state: TableState, file: DataFile, gone: OffsetRuns) -> bool:
    """Whether a data file may hold one of these rows, by its bounds."""
    field = next((each for each in _table(state).schema().fields if each.name == OFFSET), None)
    bounds = LiveFile(file).bounds(field.field_id) if field is not None else None
    return bounds is None or gone.reach_into(*bounds)


def _reading(state: TableState, columns: pa.Schema) -> PartReading:
    head = state.head()
    assert head is not None, "a table with a snapshot on main"
    return PartReading(TablePart(state, head.snapshot_id, 0, 0, whole=True), columns, None)


def _concat(tables: Sequence[pa.Table], schema: pa.Schema = _PLACES) -> pa.Table:
    return pa.concat_tables(tables) if tables else schema.empty_table()


# Making files again -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rewrite:
    replaced: tuple[DataFile, ...] = ()
    written: tuple[WrittenFile, ...] = ()
    max_row_lsn: int = 0
    """The greatest LSN of a row that stays."""


def rewrite_without(state: TableState, gone: OffsetRuns, commit_id: str, cache: FileCache) -> Rewrite:
    """Make the data files of the head again that hold these rows."""
    replaced: list[DataFile] = []
    written: list[WrittenFile] = []
    newest = 0
    lsn_id = next((field.field_id for field in _table(state).schema().fields if field.name == LSN), -1)
    for number, live in enumerate(head_files(state, cache)):
        if may_hold(state, live.file, gone) and _holds(state, live, gone):
            replaced.append(live.file)
            files, last = _made_again(state, live, gone, commit_id, number)
            written.extend(files)
        else:
            last = (live.bounds(lsn_id) or (0, 0))[1]
        newest = max(newest, last)
    return Rewrite(tuple(replaced), tuple(written), newest)


def _holds(state: TableState, live: LiveFile, gone: OffsetRuns) -> bool:
    return bool(gone.holds(_concat(_reading(state, _PLACES).read(LiveFile(live.file)))).any())


def _made_again(
    state: TableState, live: LiveFile, gone: OffsetRuns, commit_id: str, number: int
) -> tuple[list[WrittenFile], int]:
    """The file without these rows, and without those that delete files hide."""
    target = _target(state, live)
    columns = columns_of(target)
    rows = _concat(_reading(state, columns).read(live), columns)
    rows = rows.filter(pa.array(~gone.holds(rows)))
    files = DataFileWriter(target, commit_id, number).write(rows)
    stored = [piece for file in files for piece in read_data_file(target, file.path)]
    if combine(_digest(piece) for piece in stored) != _digest(rows):
        raise CorruptData("a data file was made again, and does not hold what was written", path=live.path)
    return files, pc.max(rows.column(LSN)).as_py() or 0


def _target(state: TableState, live: LiveFile) -> bytes:
    """How the file is made again: with those columns of the table that it has, and no others."""
    table = _table(state)
    with table.io.new_input(live.path).open() as stream:
        stored = pq.read_schema(stream)
    ids = {int(each) for field in stored if (each := (field.metadata or {}).get(_FIELD_ID)) is not None}
    fields = [
        field for field in table.schema().fields if (field.field_id in ids if ids else field.name in stored.names)
    ]
    columns = tuple(
        Column(field.field_id, field.name, spelled(field.field_type))
        for field in sorted(fields, key=lambda field: field.field_id)
    )
    metadata = table.metadata
    # The bound of LSNs is always kept, whatever the table's owner has set: it proves how far the table has come.
    kept = metadata.model_copy(update={"properties": {**metadata.properties, LSN_METRICS: "full"}})
    return encode_target(kept, table.schema(), table.io.properties, columns)


def _digest(rows: pa.Table) -> Digest:
    """Of rows that may be of no topic, and have no offset then."""
    for name in (PARTITION, OFFSET):
        rows = rows.set_column(rows.column_names.index(name), name, rows.column(name).fill_null(0))
    return digest_of(rows)


# Committing ---------------------------------------------------------------------------------------------------------


def speaks_of_files_that_are_out(state: TableState) -> bool:
    """Whether manifests of the head still have entries for data files that are no longer in it."""
    table = _table(state)
    return any(
        entry.status == ManifestEntryStatus.DELETED
        for manifest in _manifests(table)
        if manifest.content == ManifestContent.DATA and manifest.deleted_files_count != 0
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False)
    )


def stage_erasure(state: TableState, rewrite: Rewrite, mark: Mark) -> Staged:
    """The commit: these files go, those come, and the head has the mark."""
    table = _table(state)
    transaction = Transaction(table)
    try:
        made = _Erasure(Operation.OVERWRITE, transaction, table.io, snapshot_properties=mark.summary(), branch=MAIN)
        for old in rewrite.replaced:
            made.delete_data_file(old)
        for new in rewrite.written:
            made.append_data_file(data_file(new))
        made.commit()
    except Exception as error:  # manifests could not be read or written; nothing was sent
        raise Unavailable(
            f"a commit to {state.name!r} cannot be prepared", cause=f"{type(error).__name__}: {error}"
        ) from error
    updates: list[TableUpdate] = [
        *_with_retention(state, transaction._updates),
        SetPropertiesUpdate(updates={property_name(): mark.property_value(made.snapshot_id)}),
    ]
    requirements: tuple[TableRequirement, ...] = (
        AssertTableUUID(uuid=UUID(state.uuid)),
        AssertRefSnapshotId.model_validate({"ref": MAIN, "snapshot-id": state.branches[MAIN]}),
        AssertCurrentSchemaId.model_validate({"current-schema-id": state.schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": state.spec_id}),
    )
    return Staged(made.snapshot_id, state.branches[MAIN], CommitRequest(table, requirements, tuple(updates)))


class _Erasure(_OverwriteFiles):
    """An overwrite that leaves no entry of a file that is out, of its own or of an earlier commit."""

    def _deleted_entries(self) -> list[ManifestEntry]:
        super()._deleted_entries()  # which checks that each file is there
        return []

    def _existing_manifests(self) -> list[ManifestFile]:
        found = []
        for manifest in _manifests(self._transaction._table):
            entries = manifest.fetch_manifest_entry(self._io, discard_deleted=False)
            live = [
                entry
                for entry in entries
                if entry.status != ManifestEntryStatus.DELETED and entry.data_file not in self._deleted_data_files
            ]
            if manifest.content != ManifestContent.DATA or len(live) == len(entries):
                found.append(manifest)
            elif live:
                with self.new_manifest_writer(self.spec(manifest.partition_spec_id)) as writer:
                    for entry in live:
                        writer.existing(entry)
                found.append(writer.to_manifest_file())
        return found


def _manifests(table: Table) -> list[ManifestFile]:
    head = table.metadata.snapshot_by_name(MAIN)
    return head.manifests(table.io) if head is not None else []


def _table(state: TableState) -> Table:
    assert isinstance(state.native, Table), "loaded by pyiceberg"
    return state.native
