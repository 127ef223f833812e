"""The contract of Tables and the check of a catalog, on every kind of catalog that can be started here."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import headwater.lake.catalog_connection
from headwater.clock import SystemClock, system_entropy
from headwater.lake.catalog import CatalogPlace, catalog_place
from headwater.lake.catalog_check import check_catalog
from headwater.lake.tables import CommitUncertain
from tests.e2e_lake.catalog_servers import lake_catalog
from tests.e2e_lake.tables_contract import TablesContract, name, staged_landing, tables
from tests.unit.lake.scratch_tables import ORDERS, connected, loaded, rows_in

__all__ = ["name", "tables"]  # fixtures of the contract


@pytest.fixture(scope="module", params=["sqlite", "postgres", "rest"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CatalogPlace]:
    """A catalog that is started once for all tests."""
    folder: Path = tmp_path_factory.mktemp(request.param)
    with lake_catalog(request.param, folder) as properties:
        yield catalog_place(properties, directory=str(folder))


class TestEveryCatalog(TablesContract):
    """What Tables promises."""


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
def test_a_row_that_stays_locked_leaves_the_outcome_open(
    monkeypatch: pytest.MonkeyPatch, place: CatalogPlace, name: str
) -> None:
    monkeypatch.setattr(headwater.lake.catalog_connection, "BUSY_TIMEOUT_S", 1)
    with connected(place) as tables, connected(place) as paused:
        tables.create(name, ORDERS)
        request = staged_landing(tables, name, lsn=1)

        with paused.catalog.engine.begin() as transaction:  # type: ignore[attr-defined]
            transaction.exec_driver_sql("SELECT 1 FROM iceberg_tables FOR UPDATE")
            with pytest.raises(CommitUncertain, match="lock timeout"):
                tables.commit(request)

        tables.close()
        assert loaded(tables, name).head() is None
        tables.commit(request)
        assert len(rows_in(tables, name)) == 1


def test_every_catalog_keeps_its_word(place: CatalogPlace) -> None:
    begun_s = time.process_time()
    found = check_catalog(place, SystemClock(), system_entropy)
    cpu_s = time.process_time() - begun_s

    assert [each.name for each in found] == ["raced", "late", "re-sent", "after expiry", "after rollback"]
    assert all(each.passed for each in found), found
    assert cpu_s < 5, "under ten seconds on a machine that does little else"
    with_tables = place.connect()
    try:
        left = [name for name in with_tables.catalog.list_namespaces() if name[0] == "headwater_check"]
    finally:
        with_tables.close()
    assert not left
