"""Tables over pyiceberg: the contract on SQLite, and what only shows when a catalog is looked at from inside."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitStateUnknownException, NamespaceAlreadyExistsError, TableAlreadyExistsError
from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import SetCurrentSchemaUpdate, SetPropertiesUpdate

import headwater.lake.catalog_connection
from headwater.errors import InvalidRequest, LandingHalted, Unavailable
from headwater.lake.catalog import CatalogPlace
from headwater.lake.iceberg_tables import IcebergTables, _lean
from headwater.lake.shape import LSN_METRICS, TABLE_PROPERTIES
from headwater.lake.tables import CommitRefused, CommitUncertain, TableShape
from tests.e2e_lake.tables_contract import ID, NAME, TablesContract, name, staged_landing, tables
from tests.unit.lake.scratch_tables import (
    ORDERS,
    TABLE,
    a_mark,
    change,
    connected,
    land,
    loaded,
    native,
    rows_in,
    shape_of,
    sqlite_place,
    written,
)

__all__ = ["name", "tables"]  # fixtures of the contract


@pytest.fixture
def place(tmp_path: Path) -> CatalogPlace:
    return sqlite_place(tmp_path)


class TestOnSqlite(TablesContract):
    """What Tables promises."""


# ----------------------------------------------------------------------------------------------------- requests


def test_a_commit_is_conditional_on_uuid_head_schema_and_spec(tables: IcebergTables) -> None:
    land(tables, lsn=1)
    state = loaded(tables)

    request: Any = staged_landing(tables, TABLE, lsn=2).native

    asked = {requirement.type: requirement for requirement in request.requirements}
    assert set(asked) == {
        "assert-table-uuid",
        "assert-ref-snapshot-id",
        "assert-current-schema-id",
        "assert-default-spec-id",
    }
    assert str(asked["assert-table-uuid"].uuid) == state.uuid
    assert asked["assert-ref-snapshot-id"].ref == "main"
    assert asked["assert-ref-snapshot-id"].snapshot_id == state.branches["main"]


def test_a_commit_that_adds_columns_also_needs_the_field_ids_to_be_free(tables: IcebergTables) -> None:
    state = tables.create(TABLE, ORDERS)
    fit = tables.fit(state, shape_of(ID, NAME, pa.field("note", pa.string())))

    request: Any = tables.stage(state, fit, [], a_mark(1)).native

    actions = [update.action for update in request.updates]
    assert actions == ["add-schema", "set-current-schema", "add-snapshot", "set-snapshot-ref", "set-properties"]
    assert request.requirements[-1].type == "assert-last-assigned-field-id"


def test_files_written_under_another_schema_are_not_even_sent(tables: IcebergTables) -> None:
    state = tables.create(TABLE, ORDERS)
    fit = tables.fit(state, ORDERS)
    land(tables, shape=shape_of(ID, NAME, pa.field("note", pa.string())))

    with pytest.raises(CommitRefused, match="has changed"):
        tables.stage(loaded(tables), fit, written(fit, 1, 2), a_mark(2))


def test_staging_the_same_files_again_writes_over_no_manifest(tables: IcebergTables) -> None:
    state = tables.create(TABLE, ORDERS)
    fit = tables.fit(state, ORDERS)
    files, mark = written(fit, 1, 1), a_mark(1)

    one: Any = tables.stage(state, fit, files, mark).native
    other: Any = tables.stage(state, fit, files, mark).native

    assert one.updates[0].snapshot.manifest_list != other.updates[0].snapshot.manifest_list
    folder = Path(native(state).location().removeprefix("file://")) / "metadata"
    assert len(list(folder.glob("*-m0.avro"))) == 2


def test_a_commit_is_staged_over_no_more_than_the_head(tables: IcebergTables) -> None:
    for lsn in range(1, 6):
        land(tables, lsn=lsn, rows=0)
    state = loaded(tables)

    lean = _lean(native(state), "main", state.branches["main"]).metadata

    assert [snapshot.snapshot_id for snapshot in lean.snapshots] == [state.branches["main"]]
    assert (lean.snapshot_log, lean.metadata_log) == ([], [])
    assert len(native(state).metadata.snapshots) == 5 and native(state).metadata.metadata_log


def test_old_metadata_files_go_as_the_tables_properties_say(tables: IcebergTables) -> None:
    for lsn in range(1, 26):
        land(tables, lsn=lsn, rows=0)

    folder = Path(native(loaded(tables)).location().removeprefix("file://")) / "metadata"

    kept = int(TABLE_PROPERTIES["write.metadata.previous-versions-max"])
    assert len(list(folder.glob("*.metadata.json"))) == kept + 1


def test_manifests_are_merged_and_what_a_landing_added_is_still_told(tables: IcebergTables) -> None:
    state = tables.create(TABLE, ORDERS)
    change(tables, SetPropertiesUpdate(updates={"commit.manifest.min-count-to-merge": "3"}))
    for lsn in range(1, 6):
        state = loaded(tables)
        fit = tables.fit(state, ORDERS)
        files = written(fit, 1, lsn)
        staged = tables.stage(state, fit, files, a_mark(lsn))
        tables.commit(staged)

        assert tables.added_files(loaded(tables), staged.snapshot_id) == [files[0].path]

    head = native(loaded(tables)).current_snapshot()
    assert head is not None and len(head.manifests(native(state).io)) < 5
    assert tables.max_row_lsn(loaded(tables)) == 5 and len(rows_in(tables)) == 5


# ----------------------------------------------------------------------------------------------------- outcomes


@contextmanager
def write_lock(database: Path) -> Iterator[None]:
    """Somebody else is in the middle of a write."""
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_a_database_that_stays_locked_leaves_the_outcome_open(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(headwater.lake.catalog_connection, "BUSY_TIMEOUT_S", 0.1)
    with connected(sqlite_place(tmp_path)) as tables:
        tables.create(TABLE, ORDERS)
        request = staged_landing(tables, TABLE, lsn=1)

        with write_lock(tmp_path / "catalog.db"), pytest.raises(CommitUncertain, match="database is locked"):
            tables.commit(request)

        tables.close()
        assert loaded(tables).head() is None
        tables.commit(request)
        assert len(rows_in(tables)) == 1


class Answering(SqlCatalog):
    """A catalog that says what it was told to say when it is asked to commit, instead of committing."""

    answer: Exception

    def commit_table(self, *request: Any) -> Any:
        raise self.answer


def answering(folder: Path, answer: Exception) -> IcebergTables:
    properties = sqlite_place(folder).properties
    catalog = Answering("headwater", **properties)
    catalog.answer = answer
    return IcebergTables(catalog)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (ValueError("Cannot add snapshot with sequence number 3 older than last sequence number 3"), CommitRefused),
        (ValueError("Expecting value: line 1 column 1"), CommitUncertain),
        (CommitStateUnknownException("Bad gateway"), CommitUncertain),
        (OSError("connection reset"), CommitUncertain),
        (KeyError("metadata"), CommitUncertain),
    ],
    ids=str,
)
def test_nothing_but_a_clear_no_is_a_refusal(answer: Exception, outcome: type[Exception], tmp_path: Path) -> None:
    with connected(sqlite_place(tmp_path)) as before:
        before.create(TABLE, ORDERS)
        request = staged_landing(before, TABLE, lsn=1)
    tables = answering(tmp_path, answer)

    with pytest.raises(outcome) as raised:
        tables.commit(request)

    tables.close()
    assert raised.value.__cause__ is answer


def test_a_failure_to_clear_up_after_a_commit_does_not_make_it_uncertain(
    monkeypatch: pytest.MonkeyPatch, tables: IcebergTables, caplog: pytest.LogCaptureFixture
) -> None:
    tables.create(TABLE, ORDERS)
    request = staged_landing(tables, TABLE, lsn=1)

    def refuse(*_: object) -> None:
        raise OSError("no such bucket")

    monkeypatch.setattr(tables.catalog, "_delete_old_metadata", refuse)
    tables.commit(request)

    assert len(rows_in(tables)) == 1 and "old metadata files" in caplog.text


def test_a_table_whose_metadata_cannot_be_read_is_unavailable(tables: IcebergTables) -> None:
    land(tables)
    state = loaded(tables)
    for file in (Path(native(state).location().removeprefix("file://")) / "metadata").iterdir():
        file.unlink()

    with pytest.raises(Unavailable, match="cannot be loaded"):
        tables.load(TABLE)
    with pytest.raises(Unavailable, match="cannot be read"):
        tables.max_row_lsn(state)
    with pytest.raises(Unavailable, match="cannot be prepared"):
        tables.stage(state, tables.fit(state, ORDERS), [], a_mark(2))


def test_a_snapshot_that_is_gone_is_unavailable(tables: IcebergTables) -> None:
    land(tables)

    with pytest.raises(Unavailable, match="no longer has this snapshot"):
        tables.added_files(loaded(tables), 7)


# --------------------------------------------------------------------------------------------------- newest row


def test_files_from_before_the_table_was_adopted_have_no_newest_row(tables: IcebergTables) -> None:
    adopted(tables, pa.table({"id": [1, 2]}))
    shape = shape_of(ID, NAME)

    land(tables, shape=shape, lsn=4)

    state = loaded(tables)
    assert state.properties[LSN_METRICS] == "full"
    assert tables.max_row_lsn(state) == 4


@pytest.mark.parametrize("setting", ["write.metadata.metrics.default", LSN_METRICS])
def test_files_of_a_landing_say_their_lsns_whatever_the_tables_owner_has_set(
    tables: IcebergTables, setting: str
) -> None:
    adopted(tables, pa.table({"id": [1, 2]}), **{setting: "none"})

    land(tables, lsn=4)

    assert tables.max_row_lsn(loaded(tables)) == 4


def test_a_file_that_does_not_say_its_lsns_proves_nothing(tables: IcebergTables) -> None:
    tables.catalog.create_namespace("sales")
    rows = pa.table({"_hw_lsn": pa.array([5], pa.int64())})
    hidden = {"write.metadata.metrics.default": "none"}
    tables.catalog.create_table(TABLE, rows.schema, properties=hidden).append(rows)

    with pytest.raises(Unavailable, match="does not say which LSNs"):
        tables.max_row_lsn(loaded(tables))


def test_a_file_whose_lsns_are_all_null_has_none(tables: IcebergTables) -> None:
    adopted(tables, pa.table({"id": [1], "_hw_lsn": pa.array([None], pa.int64())}))

    assert tables.max_row_lsn(loaded(tables)) == 0


def test_a_table_without_the_logs_columns_has_no_newest_row_and_no_files_of_a_landing(tables: IcebergTables) -> None:
    adopted(tables, pa.table({"id": [1, 2]}))
    state = loaded(tables)

    assert tables.max_row_lsn(state) == 0 and tables.max_row_lsn(state, "audit") == 0
    assert tables.files_between(state, 0, 9) == []


def test_a_file_that_does_not_say_its_lsns_may_hold_any(tables: IcebergTables) -> None:
    land(tables, lsn=4)
    (ours,) = tables.files_between(loaded(tables), 3, 4)
    hidden = {"write.metadata.metrics.default": "none", LSN_METRICS: "none"}
    change(tables, SetPropertiesUpdate(updates=hidden))
    table = native(loaded(tables))
    table.append(table.scan().to_arrow())

    found = tables.files_between(loaded(tables), 4, 9)

    assert len(found) == 1 and ours not in found


def test_files_with_deletes_are_no_files_with_rows(monkeypatch: pytest.MonkeyPatch, tables: IcebergTables) -> None:
    # Given a manifest of deletes beside that of the rows, as Spark writes one and pyiceberg does not.
    land(tables, lsn=4)
    state = loaded(tables)
    manifests = Snapshot.manifests

    def with_deletes(self: Snapshot, io: FileIO) -> list[ManifestFile]:
        deletes = ManifestFile.from_args(manifest_path="file:///nowhere/deletes.avro", content=ManifestContent.DELETES)
        return [deletes, *manifests(self, io)]

    monkeypatch.setattr(Snapshot, "manifests", with_deletes)

    assert tables.max_row_lsn(state) == 4
    assert len(tables.files_between(state, 3, 4)) == 1


# -------------------------------------------------------------------------------------------------- adoption


def adopted(tables: IcebergTables, rows: pa.Table, **properties: str) -> None:
    """A table of somebody else with rows in it."""
    tables.catalog.create_namespace("sales")
    tables.catalog.create_table(TABLE, rows.schema, properties=properties).append(rows)


def test_a_table_of_others_gets_the_columns_that_it_lacks(tables: IcebergTables) -> None:
    adopted(tables, pa.table({"name": ["old"], "extra": ["theirs"]}))

    land(tables, lsn=1)

    rows = rows_in(tables)
    assert [(row["name"], row["extra"], row["id"], row["_hw_lsn"]) for row in rows] == [
        ("row 0", None, 0, 1),
        ("old", "theirs", None, None),
    ]
    schema = native(loaded(tables)).schema()
    assert not any(field.required for field in schema.fields)
    assert [column.name for column in tables.fit(loaded(tables), ORDERS).columns] == [
        "name",
        "id",
        *ORDERS.schema.names[2:],
    ]


def test_a_name_mapping_learns_new_columns(tables: IcebergTables) -> None:
    mapping = json.dumps([{"field-id": 1, "names": ["id"]}])
    adopted(tables, pa.table({"id": [1]}), **{"schema.name-mapping.default": mapping})

    land(tables, lsn=1)

    known = json.loads(loaded(tables).properties["schema.name-mapping.default"])
    assert {"_hw_lsn", "name", "id"} <= {name for field in known for name in field["names"]}


@pytest.mark.parametrize("version", [1, 3])
def test_a_table_of_another_format_is_refused_by_name(tables: IcebergTables, version: int) -> None:
    tables.catalog.create_namespace("sales")
    table = tables.catalog.create_table(TABLE, ORDERS.schema, properties={"format-version": str(min(version, 2))})
    if version == 3:  # pyiceberg writes no such metadata by itself
        file = Path(table.metadata_location.removeprefix("file://"))
        file.write_text(json.dumps({**json.loads(file.read_text()), "format-version": 3, "next-row-id": 0}))

    with pytest.raises(LandingHalted, match=f"format version {version}") as halted:
        tables.fit(loaded(tables), ORDERS)

    assert halted.value.cause == "format-version"


@pytest.mark.parametrize(
    ("partition_by", "reason"),
    [
        (("day(name)",), "does not take string"),
        (("nothing",), "no column 'nothing'"),
        (("weekday(id)",), "weekday"),
        (("id", "bucket(4, id)"), "by a column once"),
        (("truncate(2, name)",), "the name of a column"),
    ],
    ids=str,
)
def test_a_partitioning_that_cannot_be_is_refused(
    tables: IcebergTables, partition_by: tuple[str, ...], reason: str
) -> None:
    shape = shape_of(ID, NAME, pa.field("name_trunc", pa.string()), partition_by=partition_by)

    with pytest.raises(InvalidRequest, match=reason):
        tables.create(TABLE, shape)

    assert tables.load(TABLE) is None


def test_a_table_without_a_namespace_is_refused(tables: IcebergTables) -> None:
    with pytest.raises(InvalidRequest, match=r"sales\.orders"):
        tables.create("orders", ORDERS)


def test_a_type_that_the_table_had_before_is_taken_up_again_and_not_added_twice(tables: IcebergTables) -> None:
    # Given a table whose owner has gone back to its schema from before a landing widened it.
    narrow, wide = (shape_of(pa.field("id", type_), NAME) for type_ in (pa.int32(), pa.int64()))
    land(tables, lsn=1, shape=narrow)
    before = loaded(tables).schema_id
    land(tables, lsn=2, shape=wide)
    widened = loaded(tables).schema_id
    change(tables, SetCurrentSchemaUpdate.model_validate({"schema-id": before}))
    assert loaded(tables).schema_id == before != widened

    land(tables, lsn=3, shape=wide)

    assert loaded(tables).schema_id == widened
    assert len(native(loaded(tables)).metadata.schemas) == 2 and len(rows_in(tables)) == 3


class Contended(SqlCatalog):
    """A catalog in which somebody else is always faster."""

    namespace_error: Exception | None = None
    made_by_another = True

    def namespace_exists(self, namespace: Any) -> bool:
        return self.made_by_another and super().namespace_exists(namespace)

    def create_namespace(self, namespace: Any, properties: Any = None) -> None:
        if self.made_by_another:
            super().create_namespace(namespace)
        if self.namespace_error is not None:
            raise self.namespace_error


@contextmanager
def contended(folder: Path) -> Iterator[tuple[IcebergTables, Contended]]:
    catalog = Contended("headwater", **sqlite_place(folder).properties)
    with closing(IcebergTables(catalog)) as tables:
        yield tables, catalog


@pytest.mark.parametrize("error", [NamespaceAlreadyExistsError("there"), OSError("unique constraint")], ids=str)
def test_a_namespace_that_another_has_made_meanwhile_is_as_good_as_ones_own(tmp_path: Path, error: Exception) -> None:
    with contended(tmp_path) as (tables, catalog):
        catalog.namespace_error = error

        assert tables.create(TABLE, ORDERS).name == TABLE


def test_a_namespace_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    with contended(tmp_path) as (tables, catalog):
        catalog.namespace_error, catalog.made_by_another = OSError("you may not"), False

        with pytest.raises(Unavailable, match="you may not"):
            tables.create(TABLE, ORDERS)


def test_a_table_that_another_has_made_and_dropped_meanwhile_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, tables: IcebergTables
) -> None:
    def there_already(*_: object, **__: object) -> None:
        raise TableAlreadyExistsError("there")

    monkeypatch.setattr(tables.catalog, "create_table", there_already)

    with pytest.raises(Unavailable, match="was there and is gone"):
        tables.create(TABLE, ORDERS)


def test_a_table_that_another_has_made_is_taken_also_where_a_catalog_says_so_by_an_error_of_its_database(
    monkeypatch: pytest.MonkeyPatch, tables: IcebergTables
) -> None:
    make = tables.catalog.create_table

    def after_another(*given: Any, **options: Any) -> None:
        make(*given, **options)
        raise OSError("unique constraint")

    monkeypatch.setattr(tables.catalog, "create_table", after_another)

    assert tables.create(TABLE, ORDERS).uuid == loaded(tables).uuid


def test_a_table_that_cannot_be_made_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file where the tables should be")

    with connected(sqlite_place(tmp_path)) as tables, pytest.raises(Unavailable, match="cannot be made"):
        tables.create(TABLE, TableShape(ORDERS.schema))
