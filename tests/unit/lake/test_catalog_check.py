"""The check of a catalog: one that keeps its word passes, and each way of breaking it is found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    RemoveSnapshotsUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
)

from headwater.clock import SystemClock, system_entropy
from headwater.errors import Unavailable
from headwater.lake.catalog import CatalogPlace
from headwater.lake.catalog_check import NAMESPACE, CheckedProperty, _delete_folder, check_catalog
from headwater.lake.iceberg_tables import IcebergTables
from tests.unit.lake.scratch_tables import connected, land, loaded, native, rows_in, sqlite_place

Request = tuple[Any, tuple[Any, ...], tuple[Any, ...]]


class Lying(SqlCatalog):
    """A catalog that does something else with a request than it was asked to."""

    lie: Callable[[Lying, Request], Any]

    def commit_table(self, *request: Any) -> Any:
        return type(self).lie(self, request)

    def truly(self, table: Any, requirements: tuple[Any, ...], updates: tuple[Any, ...]) -> Any:
        return super().commit_table(table, requirements, updates)


@dataclass(frozen=True)
class LyingPlace(CatalogPlace):
    lie: Callable[[Any, Request], Any] = field(default=lambda catalog, request: catalog.truly(*request))

    def connect(self) -> IcebergTables:
        kind = type("Lying", (Lying,), {"lie": staticmethod(self.lie)})
        return IcebergTables(kind(self.name, **self.properties))


def lying_place(folder: Path, lie: Callable[[Any, Request], Any]) -> LyingPlace:
    place = sqlite_place(folder)
    with connected(place):
        pass  # makes the database's tables
    return LyingPlace(place.name, place.properties, lie)


def check(place: CatalogPlace) -> Mapping[str, CheckedProperty]:
    return {each.name: each for each in check_catalog(place, SystemClock(), system_entropy)}


def broken(place: CatalogPlace) -> set[str]:
    return {name for name, each in check(place).items() if not each.passed}


# ------------------------------------------------------------------------------------------------------- lies


def rebases(catalog: Any, request: Request) -> Any:
    """Conditions are dropped and the snapshot is put onto whatever the head is: both of two racers win."""
    table, _, updates = request
    for _ in range(20):
        now = catalog.load_table(table.name()).metadata
        moved = tuple(
            update.model_copy(
                update={
                    "snapshot": update.snapshot.model_copy(
                        update={
                            "sequence_number": now.last_sequence_number + 1,
                            "parent_snapshot_id": now.current_snapshot_id,
                        }
                    )
                }
            )
            if isinstance(update, AddSnapshotUpdate)
            else update
            for update in updates
        )
        try:
            return catalog.truly(table, (), moved)
        except CommitFailedException:
            continue
    raise AssertionError("another was always faster")


def applies_again(catalog: Any, request: Request) -> Any:
    """As above, and a request that comes twice is applied twice, under another number."""
    table, requirements, updates = request
    there = {snapshot.snapshot_id for snapshot in catalog.load_table(table.name()).metadata.snapshots}
    renumbered: list[Any] = []
    for update in updates:
        if isinstance(update, AddSnapshotUpdate) and update.snapshot.snapshot_id in there:
            snapshot = update.snapshot.model_copy(update={"snapshot_id": update.snapshot.snapshot_id - 1})
            renumbered.append(update.model_copy(update={"snapshot": snapshot}))
        elif isinstance(update, SetSnapshotRefUpdate) and update.snapshot_id in there and len(updates) > 1:
            renumbered.append(update.model_copy(update={"snapshot_id": update.snapshot_id - 1}))
        else:
            renumbered.append(update)
    return rebases(catalog, (table, requirements, tuple(renumbered)))


def applies_again_and_says_no(catalog: Any, request: Request) -> Any:
    """A request that comes twice is applied twice, and the second time is told as a refusal."""
    known = {snapshot.snapshot_id for snapshot in catalog.load_table(request[0].name()).metadata.snapshots}
    again = any(isinstance(update, AddSnapshotUpdate) and update.snapshot.snapshot_id in known for update in request[2])
    if not again:
        return catalog.truly(*request)
    applies_again(catalog, request)
    raise CommitFailedException("no")


def rebases_and_says_no(catalog: Any, request: Request) -> Any:
    """A commit whose condition does not hold is applied, and told as a refusal."""
    try:
        return catalog.truly(*request)
    except (CommitFailedException, ValueError):
        rebases(catalog, request)
        raise


def drops_the_head(catalog: Any, request: Request) -> Any:
    """The one condition that matters is not looked at; sequence numbers are."""
    table, requirements, updates = request
    return catalog.truly(table, tuple(r for r in requirements if not isinstance(r, AssertRefSnapshotId)), updates)


def says_yes(catalog: Any, request: Request) -> Any:
    """A refusal is told as a success."""
    try:
        return catalog.truly(*request)
    except (CommitFailedException, ValueError):
        table = catalog.load_table(request[0].name())
        return type("Response", (), {"metadata": table.metadata})()


def says_no(catalog: Any, request: Request) -> Any:
    """A landing is applied, and told as a refusal."""
    response = catalog.truly(*request)
    if any(isinstance(update, SetPropertiesUpdate) for update in request[2]):
        raise CommitFailedException("no")
    return response


def keeps_what_expired(catalog: Any, request: Request) -> Any:
    table, requirements, updates = request
    kept = tuple(update for update in updates if not isinstance(update, RemoveSnapshotsUpdate))
    return catalog.truly(table, requirements, kept)


def does_not_roll_back(catalog: Any, request: Request) -> Any:
    if len(request[2]) == 1 and isinstance(request[2][0], SetSnapshotRefUpdate):
        return None
    return catalog.truly(*request)


def pretends_to_roll_back(catalog: Any, request: Request) -> Any:
    """The head stays where it was, and whatever comes after is refused."""
    table, _, updates = request
    if len(updates) == 1 and isinstance(updates[0], SetSnapshotRefUpdate):
        stopped.add(table.name())
        return None
    if table.name() in stopped:
        raise CommitFailedException("no")
    return catalog.truly(*request)


stopped: set[tuple[str, ...]] = set()


def loses_properties(catalog: Any, request: Request) -> Any:
    table, requirements, updates = request
    kept = tuple(update for update in updates if not isinstance(update, SetPropertiesUpdate))
    return catalog.truly(table, requirements, kept)


def forgets_marks(catalog: Any, request: Request) -> Any:
    """Snapshots are kept without what was written into their summaries."""
    table, requirements, updates = request
    empty = {"summary": Summary(Operation.APPEND)}
    plain = tuple(
        update.model_copy(update={"snapshot": update.snapshot.model_copy(update=empty)})
        if isinstance(update, AddSnapshotUpdate)
        else update
        for update in updates
    )
    return catalog.truly(table, requirements, plain)


def drops_the_table(catalog: Any, request: Request) -> Any:
    response = catalog.truly(*request)
    catalog.drop_table(request[0].name())
    return response


def always_fails(_catalog: Any, _request: Request) -> Any:
    raise PermissionError("you may not")


# ------------------------------------------------------------------------------------------------------ tests


def test_a_catalog_that_keeps_its_word_passes_and_nothing_is_left_of_it(tmp_path: Path) -> None:
    place = sqlite_place(tmp_path)
    with connected(place) as tables:
        land(tables)

    found = check(place)

    assert list(found) == ["raced", "late", "re-sent", "after expiry", "after rollback"]
    assert all(each.passed and each.detail and each.seconds > 0 for each in found.values()), found
    with connected(place) as tables:
        assert tables.catalog.list_namespaces() == [("sales",)] and len(rows_in(tables)) == 1
    assert list((tmp_path / "lake" / NAMESPACE).iterdir()) == []


def test_a_catalog_that_is_asked_honestly_through_the_same_door_passes(tmp_path: Path) -> None:
    assert broken(lying_place(tmp_path, lambda catalog, request: catalog.truly(*request))) == set()


@pytest.mark.parametrize(
    ("lie", "found"),
    [
        (rebases, {"raced", "late", "after expiry", "after rollback"}),
        (applies_again, {"raced", "late", "re-sent", "after expiry", "after rollback"}),
        (applies_again_and_says_no, {"re-sent"}),
        (rebases_and_says_no, {"raced", "late", "after expiry", "after rollback"}),
        (drops_the_head, {"after rollback"}),
        (says_yes, {"raced", "late", "re-sent", "after expiry", "after rollback"}),
        (says_no, {"raced", "late", "re-sent", "after expiry", "after rollback"}),
        (keeps_what_expired, {"after expiry"}),
        (does_not_roll_back, {"after rollback"}),
        (pretends_to_roll_back, {"after rollback"}),
        (loses_properties, {"after expiry"}),
        (forgets_marks, {"raced", "re-sent", "after rollback"}),
        (drops_the_table, {"raced", "late", "re-sent", "after expiry", "after rollback"}),
        (always_fails, {"raced", "late", "re-sent", "after expiry", "after rollback"}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_a_catalog_that_does_not_keep_its_word_is_found_out(
    tmp_path: Path, lie: Callable[[Any, Request], Any], found: set[str]
) -> None:
    place = lying_place(tmp_path, lie)

    assert broken(place) == found

    with connected(sqlite_place(tmp_path)) as tables:
        assert tables.catalog.list_namespaces() == []
    assert list((tmp_path / "lake" / NAMESPACE).iterdir()) == []


def test_what_is_broken_is_told(tmp_path: Path) -> None:
    found = check(lying_place(tmp_path, rebases))

    assert "of two commits on one base 2 are in the table" in found["raced"].detail
    assert "was acknowledged" in found["late"].detail
    assert "not found by its id" in check(lying_place(tmp_path, forgets_marks))["re-sent"].detail
    assert "the scratch table is gone" in check(lying_place(tmp_path, drops_the_table))["late"].detail
    assert "you may not" in check(lying_place(tmp_path, always_fails))["late"].detail


def test_a_catalog_that_does_not_answer_has_neither_passed_nor_failed(tmp_path: Path) -> None:
    place = CatalogPlace("lake", {"uri": f"sqlite:///{tmp_path}/no/such/folder.db", "warehouse": "file:///x"})

    with pytest.raises(Unavailable):
        check(place)


def test_a_folder_that_is_not_named_after_the_scratch_table_is_not_deleted(tmp_path: Path) -> None:
    with connected(sqlite_place(tmp_path)) as tables:
        land(tables)

        _delete_folder(native(loaded(tables)), f"{NAMESPACE}.t0123")

        assert len(rows_in(tables)) == 1
