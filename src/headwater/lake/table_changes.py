"""Commits to a table that are not landings, each staged with its complete requirements and sent like one, once.

    make_branch     a branch at a snapshot, for a merge to work on
    move_main       main goes to what a merge made on its branch, and the branch is gone: one commit
    drop_branches   branches that nobody needs go
    expire          snapshots go
    drop_files      data files go, and the mark comes with it, so that the head has one

PROMISE  None of them is applied to a table whose main, or whose branch that it speaks of, is not as it was loaded.
         Nothing is sent here: `IcebergTables.commit` sends, and says what became of it.
NOT HERE Which snapshots and which files: upkeep.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from pyiceberg.expressions.parser import parse
from pyiceberg.table import Table, Transaction
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from headwater.errors import Unavailable
from headwater.lake.iceberg_tables import CommitRequest
from headwater.lake.mark import FORGOTTEN, MAIN, Mark, property_name
from headwater.lake.tables import Staged, TableState
from headwater.lake.upkeep import DataFileFacts

COLUMN_LSN, COLUMN_TIME = "_hw_lsn", "_hw_time"


def make_branch(state: TableState, name: str, properties: Mapping[str, str]) -> Staged:
    """A branch at main's head; properties of the table that differ are set in the same commit."""
    head = _head(state)
    changed = {key: value for key, value in properties.items() if state.properties.get(key) != value}
    updates: list[TableUpdate] = [_set_branch(state, name, head)]
    if changed:
        updates.append(SetPropertiesUpdate(updates=changed))
    return _staged(state, head, (_head_is(MAIN, head), _head_is(name, None)), updates)


def move_main(state: TableState, branch: str, base: int, mark: Mark) -> Staged:
    """Main goes from `base` to the branch's head, with the mark in its property, and the branch goes."""
    made = state.branches[branch]
    return _staged(
        state,
        made,
        (
            _head_is(MAIN, base),
            _head_is(branch, made),
            AssertCurrentSchemaId.model_validate({"current-schema-id": state.schema_id}),
            AssertDefaultSpecId.model_validate({"default-spec-id": state.spec_id}),
        ),
        [
            _set_branch(state, MAIN, made),
            SetPropertiesUpdate(updates={property_name(): mark.property_value(made)}),
            RemoveSnapshotRefUpdate.model_validate({"ref-name": branch}),
        ],
    )


def drop_branches(state: TableState, branches: Collection[str]) -> Staged:
    requirements = tuple(_head_is(branch, state.branches[branch]) for branch in branches)
    removals: list[TableUpdate] = [RemoveSnapshotRefUpdate.model_validate({"ref-name": branch}) for branch in branches]
    return _staged(state, state.branches.get(MAIN, 0), requirements, removals)


def expire(state: TableState, snapshots: Collection[int]) -> Staged:
    """These snapshots go.  Every branch and tag must be where it was: one that moved may need what is to go."""
    refs = _table(state).metadata.refs
    return _staged(
        state,
        _head(state),
        tuple(_head_is(name, ref.snapshot_id) for name, ref in refs.items()),
        [RemoveSnapshotsUpdate.model_validate({"snapshot-ids": sorted(snapshots)})],
    )


def drop_files(
    state: TableState, files: Collection[DataFileFacts], mark: Mark, *, lsn_to: int, before_us: int
) -> tuple[Staged, tuple[DataFileFacts, ...]] | None:
    """The data files of main that hold nothing but rows up to this LSN that were appended before this time go: a change
    of metadata alone.  Returns which; nothing where none does.  `files` are those that may go, and no other does."""
    before = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=before_us)
    transaction = Transaction(_table(state))
    try:
        deletion = transaction.update_snapshot(snapshot_properties=mark.summary(), branch=MAIN).delete()
        deletion.delete_by_predicate(parse(f"{COLUMN_LSN} <= {lsn_to} and {COLUMN_TIME} < '{before.isoformat()}'"))
        if not deletion.files_affected:
            return None
        paths = {file.file_path for file in deletion._deleted_data_files}
        deletion.commit()
    except Exception as error:  # manifests could not be read or written; nothing was sent
        raise Unavailable(
            f"a commit to {state.name!r} cannot be prepared", cause=f"{type(error).__name__}: {error}"
        ) from error
    dropped = tuple(file for file in files if file.path in paths)
    if len(dropped) != len(paths):
        raise Unavailable(f"the files of {state.name!r} that are old enough cannot be told", table=state.name)
    forgotten = max(int(state.properties.get(FORGOTTEN, "0")), *(file.lsn_max or 0 for file in dropped))
    made = deletion.snapshot_id
    properties = {property_name(): mark.property_value(made), FORGOTTEN: str(forgotten)}
    updates: list[TableUpdate] = [
        *_with_retention(state, transaction._updates),
        SetPropertiesUpdate(updates=properties),
    ]
    requirements = (
        _head_is(MAIN, _head(state)),
        AssertCurrentSchemaId.model_validate({"current-schema-id": state.schema_id}),
        AssertDefaultSpecId.model_validate({"default-spec-id": state.spec_id}),
    )
    return _staged(state, made, requirements, updates), dropped


def _staged(
    state: TableState, snapshot: int, requirements: tuple[TableRequirement, ...], updates: list[TableUpdate]
) -> Staged:
    complete = (AssertTableUUID(uuid=UUID(state.uuid)), *requirements)
    return Staged(snapshot, state.branches.get(MAIN), CommitRequest(_table(state), complete, tuple(updates)))


def _set_branch(state: TableState, name: str, snapshot: int) -> TableUpdate:
    update = SetSnapshotRefUpdate.model_validate(
        {"ref-name": name, "type": SnapshotRefType.BRANCH, "snapshot-id": snapshot}
    )
    return _with_retention(state, (update,))[0]


def _with_retention(state: TableState, updates: Collection[TableUpdate]) -> list[TableUpdate]:
    """What a branch's owner has set about its retention stays with it."""
    refs = _table(state).metadata.refs
    found: list[TableUpdate] = []
    for update in updates:
        pointer = refs.get(update.ref_name) if isinstance(update, SetSnapshotRefUpdate) else None
        kept = (
            {
                "max_ref_age_ms": pointer.max_ref_age_ms,
                "max_snapshot_age_ms": pointer.max_snapshot_age_ms,
                "min_snapshots_to_keep": pointer.min_snapshots_to_keep,
            }
            if pointer is not None
            else {}
        )
        found.append(update.model_copy(update=kept))
    return found


def _head_is(branch: str, snapshot: int | None) -> TableRequirement:
    return AssertRefSnapshotId.model_validate({"ref": branch, "snapshot-id": snapshot})


def _head(state: TableState) -> int:
    head = state.branches.get(MAIN)
    assert head is not None, "a table with a snapshot on main"
    return head


def _table(state: TableState) -> Table:
    assert isinstance(state.native, Table), "loaded by pyiceberg"
    return state.native
