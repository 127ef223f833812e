"""A table that comes into being with its rows: one commit, which is refused if a table of the name is there.

PROMISE  Until the commit nobody sees anything; if it fails there is no table, and files that upkeep of the store finds.
         Its outcome is what the catalog shows, whatever an exception said.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import CreateTableTransaction, StagedTable
from pyiceberg.table.update import AssertCreate

from headwater.errors import InvalidRequest, Unavailable
from headwater.lake.data_files import DataFileWriter, columns_of
from headwater.lake.fitting import spelled
from headwater.lake.iceberg_tables import CommitRequest, IcebergTables, iceberg_schema, partition_spec
from headwater.lake.retyping import as_type
from headwater.lake.tables import CommitRefused, CommitUncertain, Staged, TableShape, TableState
from headwater.lake.work import Column, WrittenFile
from headwater.lake.write_target import data_file, encode_target

COMMIT_ID = "headwater.restore-id"
"""In the summary of its one snapshot: by it the table is known again after a lost reply."""
BYTES_AT_ONCE = 128 * 1024 * 1024


class NewTable:
    def __init__(self, connect: Callable[[], IcebergTables], name: str, shape: TableShape, commit_id: str) -> None:
        self._connect = connect
        self._name = name
        self._commit_id = commit_id
        self._files: list[WrittenFile] = []
        self._waiting: list[pa.Table] = []
        self._tables = connect()
        try:
            self._staged = self._stage(shape)
        except BaseException:
            self._tables.close()
            raise
        metadata = self._staged.metadata
        columns = tuple(
            Column(field.field_id, field.name, spelled(field.field_type)) for field in metadata.schema().fields
        )
        target = encode_target(metadata, metadata.schema(), self._staged.io.properties, columns)
        self.columns: pa.Schema = columns_of(target)
        self._writer = DataFileWriter(target, commit_id, 1)

    def _stage(self, shape: TableShape) -> StagedTable:
        namespace = Catalog.namespace_from(self._name)
        if not namespace:
            raise InvalidRequest(
                f"a table is named by its namespace and its name, as in 'sales.orders': not {self._name!r}"
            )
        if self._tables.load(self._name) is not None:
            raise _exists(self._name)
        schema = iceberg_schema(shape)
        spec = partition_spec(schema, shape.partition_by)
        try:
            self._tables.make_namespace(namespace)
            transaction = self._tables.catalog.create_table_transaction(
                self._name, schema, partition_spec=spec, properties=dict(shape.properties)
            )
        except Exception as error:  # each catalog has errors of its own, and nothing was made but a namespace
            raise Unavailable(
                f"the table {self._name!r} cannot be made", cause=f"{type(error).__name__}: {error}"
            ) from error
        staged = transaction._table
        assert isinstance(staged, StagedTable)
        return staged

    def write(self, rows: pa.Table) -> pa.Table:
        """Take these rows in; returns them as they will be in the table."""
        shaped = pa.table(
            [as_type(rows.column(field.name), field.type) for field in self.columns],
            schema=self.columns.remove_metadata(),
        )
        self._waiting.append(shaped)
        if sum(each.nbytes for each in self._waiting) >= BYTES_AT_ONCE:
            self._flush()
        return shaped

    def _flush(self) -> None:
        if self._waiting:
            self._files += self._writer.write(pa.concat_tables(self._waiting))
            self._waiting.clear()

    def commit(self) -> TableState:
        """Make the table, and load it through a new connection."""
        self._flush()
        transaction = CreateTableTransaction(self._staged)
        append = transaction.update_snapshot(snapshot_properties={COMMIT_ID: self._commit_id}).merge_append()
        for file in self._files:
            append.append_data_file(data_file(file))
        append.commit()
        request = CommitRequest(self._staged, (AssertCreate(),), transaction._updates)
        trouble: CommitRefused | CommitUncertain | None = None
        try:
            self._tables.commit(Staged(append.snapshot_id, None, request))
        except (CommitRefused, CommitUncertain) as error:
            trouble = error
        with closing(self._connect()) as tables:
            state = tables.load(self._name)
            if state is None:
                raise Unavailable(f"the table {self._name!r} was not made: try again", cause=str(trouble)) from trouble
            head = state.head()
            if head is None or head.summary.get(COMMIT_ID) != self._commit_id:
                raise _exists(self._name) from trouble
            tables.make_durable(state, head.snapshot_id, self.paths)
            return state

    @property
    def paths(self) -> list[str]:
        return [file.path for file in self._files]

    def close(self) -> None:
        self._tables.close()


def _exists(name: str) -> InvalidRequest:
    return InvalidRequest(f"there is a table {name!r} already: a restore makes a new one", table=name)
