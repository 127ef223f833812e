"""Tables over pyiceberg: for every catalog that it knows.

A commit is staged in a pyiceberg transaction over a lean copy of the table's metadata (its head alone, without logs:
otherwise each commit costs more than the one before), in the order schema, append, property.  It is sent by
`catalog.commit_table` with requirements of our own, complete: a transaction keeps one requirement of each type, and its
`commit_transaction` retries and rebases, so that two landers both win, and deletes manifests that may be live.

PROMISE  What tables.py says.  Besides: a staged commit has names of its own for its manifests, so staging the same
         files again never writes over a manifest that a late request may still bring into the table.
NOT HERE Opening a catalog: catalog_connection.py.  Which columns go where: fitting.py.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from pyiceberg.catalog import Catalog
from pyiceberg.conversions import from_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
from pyiceberg.manifest import DataFile, ManifestContent, ManifestEntryStatus
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.name_mapping import update_mapping
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertLastAssignedFieldId,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import LongType

from headwater.errors import InvalidRequest, LandingHalted, Unavailable
from headwater.lake.fitting import Fitting, field_of, spelled
from headwater.lake.local_sync import sync_local
from headwater.lake.mark import MAIN, Mark, property_name
from headwater.lake.shape import CREATED_FOR, LSN_METRICS, lake_schema
from headwater.lake.tables import CommitRefused, CommitUncertain, Fit, Staged, TableShape, TableSnapshot, TableState
from headwater.lake.topic_description import FOLLOWED
from headwater.lake.work import Column, WrittenFile
from headwater.lake.write_target import data_file, encode_target
from headwater.topics.table_partitions import parse_part

FORMAT_VERSION = 2
_PARTITION_SUFFIXES = {"identity": "", "truncate": "_trunc"}
"""Partitions are named as Spark names them: created_at_day, id_bucket, name_trunc."""
_OLDER = "older than last sequence number"

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class _NativeFit:
    """What the landing's commit changes of the table, and the metadata that this was made for."""

    schema_id: int
    spec_id: int
    last_column_id: int
    schema: Schema | None
    """None: the table's stays."""
    properties: Mapping[str, str]


@dataclass(frozen=True)
class CommitRequest:
    """A commit as it is sent."""

    table: Table
    requirements: tuple[TableRequirement, ...]
    updates: tuple[TableUpdate, ...]


class IcebergTables:
    """One connection to a catalog."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog

    # Looking ---------------------------------------------------------------------------------

    def load(self, name: str) -> TableState | None:
        try:
            table = self.catalog.load_table(name)
        except NoSuchTableError:
            return None
        except Exception as error:  # each catalog has errors of its own, and a load changes nothing
            raise _unavailable(f"the table {name!r} cannot be loaded", error) from error
        return _state(name, table)

    def max_row_lsn(self, state: TableState, branch: str = MAIN) -> int:
        head = state.branches.get(branch)
        if head is None:
            return 0
        table = _table(state)
        lsn = next((field for field in table.schema().fields if field.name == "_hw_lsn"), None)
        if lsn is None:
            return 0
        counted = LSN_METRICS in state.properties
        return _reading(
            state,
            lambda: max((_newest_row(file, lsn.field_id, counted) for file in _live_files(table, head)), default=0),
        )

    def added_files(self, state: TableState, snapshot_id: int) -> Sequence[str]:
        table = _table(state)
        return _reading(
            state,
            lambda: [
                entry.data_file.file_path
                for manifest in _snapshot(table, snapshot_id).manifests(table.io)
                if manifest.content == ManifestContent.DATA and manifest.added_snapshot_id == snapshot_id
                for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                if entry.status == ManifestEntryStatus.ADDED and entry.snapshot_id == snapshot_id
            ],
        )

    def files_between(self, state: TableState, lsn_from: int, lsn_to: int) -> Sequence[str]:
        head = state.branches.get(MAIN)
        table = _table(state)
        lsn = next((field for field in table.schema().fields if field.name == "_hw_lsn"), None)
        if head is None or lsn is None:
            return []

        def may_hold(file: DataFile) -> bool:
            lower = (file.lower_bounds or {}).get(lsn.field_id)
            upper = (file.upper_bounds or {}).get(lsn.field_id)
            if lower is None or upper is None:
                return True
            return int(from_bytes(LongType(), upper)) > lsn_from and int(from_bytes(LongType(), lower)) <= lsn_to

        return _reading(state, lambda: [file.file_path for file in _live_files(table, head) if may_hold(file)])

    def read_back_target(self, state: TableState, snapshot_id: int, columns: Sequence[Column]) -> bytes:
        table = _table(state)
        metadata = table.metadata
        snapshot = metadata.snapshot_by_id(snapshot_id)
        schema = metadata.schema()
        if snapshot is not None and snapshot.schema_id is not None:
            schema = next(each for each in metadata.schemas if each.schema_id == snapshot.schema_id)
        elif columns and all(column.type for column in columns):
            schema = Schema(*(field_of(column) for column in columns), schema_id=schema.schema_id)
        fields = {field.field_id: field for field in schema.fields}
        wanted = sorted(column.field_id for column in columns) or sorted(fields)
        if not set(wanted) <= set(fields):
            raise LandingHalted(
                "verification",
                f"columns that were landed in {state.name!r} are no longer in it: audit the table",
                table=state.name,
            )
        read = tuple(Column(each, fields[each].name, spelled(fields[each].field_type)) for each in wanted)
        return encode_target(metadata, schema, table.io.properties, read)

    def make_durable(self, state: TableState, snapshot_id: int, data_files: Sequence[str] = ()) -> None:
        table = _table(state)

        def sync() -> None:
            snapshot = _snapshot(table, snapshot_id)
            manifests = [manifest.manifest_path for manifest in snapshot.manifests(table.io)]
            sync_local([table.metadata_location, snapshot.manifest_list, *manifests, *data_files])

        _reading(state, sync)

    # Making ----------------------------------------------------------------------------------

    def create(self, name: str, shape: TableShape) -> TableState:
        namespace = Catalog.namespace_from(name)
        if not namespace:
            raise InvalidRequest(f"a table is named by its namespace and its name, as in 'sales.orders': not {name!r}")
        schema = iceberg_schema(shape)
        spec = partition_spec(schema, shape.partition_by)
        try:
            self.make_namespace(namespace)
            table = self.catalog.create_table(name, schema, partition_spec=spec, properties=dict(shape.properties))
        except TableAlreadyExistsError:
            there = self.load(name)
            if there is None:
                raise Unavailable(f"the table {name!r} was there and is gone", table=name) from None
            return there
        except Exception as error:  # some catalogs say by an error of their database that another was faster
            there = self.load(name)
            if there is None:
                raise _unavailable(f"the table {name!r} cannot be made", error) from error
            return there
        return _state(name, table)

    def make_namespace(self, namespace: tuple[str, ...]) -> None:
        """Make it if it is not there."""
        if self.catalog.namespace_exists(namespace):
            return
        try:
            self.catalog.create_namespace(namespace)
        except NamespaceAlreadyExistsError:
            pass  # somebody else was faster
        except Exception:  # some catalogs say the same by an error of their database
            if not self.catalog.namespace_exists(namespace):
                raise

    # Landing ---------------------------------------------------------------------------------

    def fit(self, state: TableState, shape: TableShape) -> Fit:
        table = _table(state)
        metadata = table.metadata
        if metadata.format_version != FORMAT_VERSION:
            raise LandingHalted(
                "format-version",
                f"{state.name!r} is a table of format version {metadata.format_version}, and only version "
                f"{FORMAT_VERSION} can be landed in: give the topic another table",
                table=state.name,
            )
        ours = CREATED_FOR in metadata.properties or property_name() in metadata.properties
        fitting = Fitting(state.name, metadata, iceberg_schema(shape), made_by_landing=ours)
        changes = fitting.changes_schema
        native = _NativeFit(
            metadata.current_schema_id,
            metadata.default_spec_id,
            metadata.last_column_id,
            fitting.schema if changes else None,
            _properties_beside(metadata, fitting, shape),
        )
        # Of the files that are written here the bound is always kept, whatever the table's owner has set.
        written_under = metadata.model_copy(update={"properties": {**metadata.properties, LSN_METRICS: "full"}})
        target = encode_target(written_under, fitting.schema, table.io.properties, fitting.columns)
        return Fit(target, fitting.columns, changes, native)

    def stage(
        self, state: TableState, fit: Fit, files: Sequence[WrittenFile], mark: Mark, *, branch: str = MAIN
    ) -> Staged:
        table = _table(state)
        native = fit.native
        assert isinstance(native, _NativeFit), "a fit of this kind of connection"
        if (state.schema_id, state.spec_id) != (native.schema_id, native.spec_id):
            raise CommitRefused("the table's schema or partitioning has changed since the files were written")
        base = state.branches.get(branch)
        try:
            lean = _lean(table, branch, base)
            updates, snapshot_id = _updates(lean, native, files, mark, branch)
        except Exception as error:  # manifests could not be written; nothing was sent
            raise _unavailable(f"a commit to {state.name!r} cannot be prepared", error) from error
        requirements: tuple[TableRequirement, ...] = (
            AssertTableUUID(uuid=UUID(state.uuid)),
            AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": base}),
            AssertCurrentSchemaId.model_validate({"current-schema-id": native.schema_id}),
            AssertDefaultSpecId.model_validate({"default-spec-id": native.spec_id}),
        )
        if native.schema is not None:
            # New columns took the next field ids: nobody else may have taken them.
            requirements += (
                AssertLastAssignedFieldId.model_validate({"last-assigned-field-id": native.last_column_id}),
            )
        return Staged(snapshot_id, base, CommitRequest(table, requirements, updates))

    def commit(self, staged: Staged) -> None:
        request = staged.native
        assert isinstance(request, CommitRequest), "staged by this kind of connection"
        # pyiceberg wraps this in a retry for some catalogs: what stands inside is called.
        send = inspect.unwrap(type(self.catalog).commit_table)
        try:
            response = send(self.catalog, request.table, request.requirements, request.updates)
        except CommitFailedException as error:
            raise CommitRefused("the catalog has refused the commit", cause=str(error)) from error
        except ValueError as error:
            if _OLDER in str(error):
                raise CommitRefused("the table has moved on", cause=str(error)) from error
            raise _uncertain(error) from error
        except Exception as error:  # a lost reply may have any form
            raise _uncertain(error) from error
        self._delete_old_metadata(request.table, response.metadata)

    def _delete_old_metadata(self, table: Table, metadata: TableMetadata) -> None:
        """As the table's properties wish; a REST catalog does it by itself, the others leave it to their caller."""
        try:
            self.catalog._delete_old_metadata(table.io, table.metadata, metadata)
        except Exception:  # noqa: BLE001  the commit stands; a file too many is found by upkeep
            _log.warning("old metadata files of %s stay", table.name(), exc_info=True)

    def close(self) -> None:
        self.catalog.close()


# ----------------------------------------------------------------------------------------------------- states


def _state(name: str, table: Table) -> TableState:
    metadata = table.metadata
    snapshots = {snapshot.snapshot_id: _shown(snapshot) for snapshot in metadata.snapshots}
    branches = {
        ref: pointer.snapshot_id
        for ref, pointer in metadata.refs.items()
        if pointer.snapshot_ref_type == SnapshotRefType.BRANCH
    }
    return TableState(
        name=name,
        uuid=str(metadata.table_uuid),
        format_version=metadata.format_version,
        schema_id=metadata.current_schema_id,
        spec_id=metadata.default_spec_id,
        properties=dict(metadata.properties),
        branches=branches,
        snapshots=snapshots,
        native=table,
    )


def _shown(snapshot: Snapshot) -> TableSnapshot:
    summary = snapshot.summary
    return TableSnapshot(
        snapshot.snapshot_id,
        snapshot.parent_snapshot_id,
        (summary.operation if summary is not None else Operation.OVERWRITE).value,
        dict(summary.additional_properties) if summary is not None else {},
        snapshot.timestamp_ms,
    )


def _table(state: TableState) -> Table:
    assert isinstance(state.native, Table), "loaded by this kind of connection"
    return state.native


def _snapshot(table: Table, snapshot_id: int) -> Snapshot:
    found = table.metadata.snapshot_by_id(snapshot_id)
    if found is None:
        raise Unavailable("the table no longer has this snapshot", snapshot=snapshot_id)
    return found


def _live_files(table: Table, snapshot_id: int) -> Iterator[DataFile]:
    for manifest in _snapshot(table, snapshot_id).manifests(table.io):
        if manifest.content == ManifestContent.DATA:
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                yield entry.data_file


def _newest_row(file: DataFile, field_id: int, counted: bool) -> int:
    """The upper bound of a data file's LSNs; 0 where it is known to have none.

    A file that says nothing of the column does not have it, if files of this table are `counted`: if it is a property
    of the table that they say what they have."""
    bound = (file.upper_bounds or {}).get(field_id)
    if bound is not None:
        return int(from_bytes(LongType(), bound))
    values = (file.value_counts or {}).get(field_id)
    nulls = (file.null_value_counts or {}).get(field_id)
    if file.record_count == 0 or (counted if values is None else values == nulls):
        return 0
    raise Unavailable("a data file of the table does not say which LSNs are in it", path=file.file_path)


# -------------------------------------------------------------------------------------------------- new tables


def iceberg_schema(shape: TableShape) -> Schema:
    return assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(lake_schema(shape.schema)))


def partition_spec(schema: Schema, partition_by: Sequence[str]) -> PartitionSpec:
    fields = []
    for place, text in enumerate(partition_by):
        part = parse_part(text)
        source = next((field for field in schema.fields if field.name == part.column), None)
        if source is None:
            raise InvalidRequest(f"partition_by {text!r}: there is no column {part.column!r}")
        transform = parse_transform(part.transform if part.width is None else f"{part.transform}[{part.width}]")
        if not transform.can_transform(source.field_type):
            raise InvalidRequest(f"partition_by {text!r}: {part.transform} does not take {source.field_type}")
        name = part.column + _PARTITION_SUFFIXES.get(part.transform, f"_{part.transform}")
        fields.append(PartitionField(source.field_id, PARTITION_FIELD_ID_START + place, transform, name))
    if len({field.source_id for field in fields}) != len(fields):
        raise InvalidRequest("a table can be partitioned by a column once", partition_by=list(partition_by))
    taken = {field.name for field in fields if not isinstance(field.transform, IdentityTransform)}
    if not taken.isdisjoint(schema.column_names):
        raise InvalidRequest("a partition would have the name of a column", partition_by=list(partition_by))
    return PartitionSpec(*fields)


# ----------------------------------------------------------------------------------------------------- commits


def _properties_beside(metadata: TableMetadata, fitting: Fitting, shape: TableShape) -> dict[str, str]:
    """Properties that the landing's commit sets beside its mark: few, and only where they are not so already."""
    properties = {
        name: shape.properties[name]
        for name in FOLLOWED
        if name in shape.properties and metadata.properties.get(name) != shape.properties[name]
    }
    if LSN_METRICS not in metadata.properties:
        # Compactions by others must keep the bound too: it is what proves a mark whose snapshot has expired.
        properties[LSN_METRICS] = "full"
    mapping = metadata.name_mapping()
    if mapping is not None and fitting.added:
        updated = update_mapping(mapping, {}, fitting.added)
        properties[TableProperties.DEFAULT_NAME_MAPPING] = updated.model_dump_json()
    return properties


def _lean(table: Table, branch: str, base: int | None) -> Table:
    """The table with no more of its history than the branch's head."""
    metadata = table.metadata
    pointer = metadata.refs.get(branch)
    lean = metadata.model_copy(
        update={
            "snapshots": [] if base is None else [_snapshot(table, base)],
            "snapshot_log": [],
            "metadata_log": [],
            "refs": {} if pointer is None else {branch: pointer},
        }
    )
    return Table(table.name(), lean, table.metadata_location, table.io, table.catalog, table.config)


def _updates(
    lean: Table, native: _NativeFit, files: Sequence[WrittenFile], mark: Mark, branch: str
) -> tuple[tuple[TableUpdate, ...], int]:
    """The whole commit, and the id of its snapshot.  Writes the manifests."""
    transaction = Transaction(lean)
    if native.schema is not None:
        transaction._stage(_schema_updates(lean.metadata, native.schema))
    append = transaction.update_snapshot(snapshot_properties=mark.summary(), branch=branch).merge_append()
    for file in files:
        append.append_data_file(data_file(file))
    append.commit()
    pointer = lean.metadata.refs.get(branch)
    updates = tuple(
        update.model_copy(
            update={
                "max_ref_age_ms": pointer.max_ref_age_ms,
                "max_snapshot_age_ms": pointer.max_snapshot_age_ms,
                "min_snapshots_to_keep": pointer.min_snapshots_to_keep,
            }
        )
        if isinstance(update, SetSnapshotRefUpdate) and pointer is not None
        else update
        for update in transaction._updates
    )
    snapshot_id = append.snapshot_id
    properties = {**native.properties, property_name(branch): mark.property_value(snapshot_id)}
    return (*updates, SetPropertiesUpdate(updates=properties)), snapshot_id


def _schema_updates(metadata: TableMetadata, schema: Schema) -> tuple[TableUpdate, ...]:
    known = next((other.schema_id for other in metadata.schemas if other == schema), None)
    if known is not None:
        return (SetCurrentSchemaUpdate.model_validate({"schema-id": known}),)
    return (AddSchemaUpdate(schema=schema), SetCurrentSchemaUpdate.model_validate({"schema-id": -1}))


# ------------------------------------------------------------------------------------------------------ errors


def _reading(state: TableState, read: Callable[[], Answer]) -> Answer:
    """What manifests say; Unavailable where they cannot be read."""
    try:
        return read()
    except Unavailable:
        raise
    except Exception as error:  # each file system has errors of its own, and reading changes nothing
        raise _unavailable(f"the manifests of {state.name!r} cannot be read", error) from error


def _unavailable(message: str, error: Exception) -> Unavailable:
    return Unavailable(message, cause=f"{type(error).__name__}: {error}")


def _uncertain(error: Exception) -> CommitUncertain:
    return CommitUncertain("nobody knows whether the commit was applied", cause=f"{type(error).__name__}: {error}")
