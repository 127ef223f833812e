"""The names that columns had in a snapshot: a column is its field id, and its owner may have renamed it since.

PROMISE  A column that the table never had, or had not yet, has no name there: it is null in all its rows.  One that the
         owner dropped is an InvalidRequest: what it held can no longer be told from what it never held.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table import Table

from headwater.errors import InvalidRequest
from headwater.lake.tables import TableState


def names_in_snapshot(state: TableState, snapshot_id: int, names: Sequence[str]) -> list[str | None]:
    """For each of these columns of the table, its name in the snapshot's own schema."""
    table = state.native
    assert isinstance(table, Table), "a table of pyiceberg"
    metadata = table.metadata
    snapshot = metadata.snapshot_by_id(snapshot_id)
    assert snapshot is not None, "one that a plan was made of"
    schemas = {schema.schema_id: schema for schema in metadata.schemas}
    now = metadata.schema()
    then = schemas.get(snapshot.schema_id, now) if snapshot.schema_id is not None else now
    ids = {field.name: field.field_id for field in now.fields}
    stored = {field.field_id: field.name for field in then.fields}
    for name in names:
        if name not in ids and any(field.name == name for schema in metadata.schemas for field in schema.fields):
            raise InvalidRequest(
                f"{state.name!r} no longer has the column {name!r}, which its owner dropped: leave it out", column=name
            )
    return [stored.get(ids[name]) if name in ids else None for name in names]
