"""Upkeep when stores and catalogs give trouble: what was not done is said, and nothing that is needed goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.tables import TableState
from tests.unit.lake.kept_tables import TABLE, Kept, age, compact, kept


def refuse_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: PyArrowFileIO, location: Any) -> None:
        raise PermissionError(f"not yours: {location}")

    monkeypatch.setattr(PyArrowFileIO, "delete", refuse)


def old_orphan(lake: Kept) -> str:
    path = lake.folder / "lake" / "sales" / "orders" / "data" / "00000-0-deadbeef.parquet"
    path.write_bytes(b"x")
    age(str(path), 4)
    return str(path)


def test_files_of_expired_snapshots_that_cannot_be_removed_are_said_to_be_orphans_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2)
        compact(lake)
        lake.clock.advance(7200)
        refuse_removal(monkeypatch)

        told = lake.care(snapshots_kept=1)

        assert told.expired_snapshots and told.removed_files == 0
        assert any("could not be removed, and are orphans now" in left for left in told.left)
        assert lake.ids() == [1, 2]


def test_an_orphan_that_cannot_be_removed_stays_and_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        path = old_orphan(lake)
        refuse_removal(monkeypatch)

        told = lake.care()

        assert told.left == ["1 orphans could not be removed"] and told.orphans == ()
        assert path in lake.data_paths() and TABLE not in lake.ledger.state().kept


def test_a_store_that_cannot_be_listed_keeps_its_orphans(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        path = old_orphan(lake)
        with lake.pyiceberg().transaction() as change:
            change.set_properties({"py-io-impl": "pyiceberg.io.fsspec.FsspecFileIO"})

        told = lake.care()

        assert told.left == ["its files cannot be listed from here: orphans stay"]
        assert path in lake.data_paths()


def test_a_table_whose_references_cannot_be_read_loses_nothing_and_says_so(tmp_path: Path) -> None:
    with kept(tmp_path) as lake:
        lake.land(1, 2)
        path = old_orphan(lake)
        for manifest_list in (tmp_path / "lake" / "sales" / "orders" / "metadata").glob("snap-*.avro"):
            manifest_list.unlink()

        told = lake.care()

        assert "cannot be looked at" in told.left[0] and told.cause == ""
        assert path in lake.data_paths() and told.orphans == ()


def test_a_table_that_is_dropped_while_it_is_kept_halts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with kept(tmp_path) as lake:
        lake.land(1)
        load = IcebergTables.load
        loads: list[str] = []

        def drop_after_the_first(self: IcebergTables, name: str) -> TableState | None:
            loads.append(name)
            if len(loads) == 2:
                self.catalog.drop_table(name)
            return load(self, name)

        monkeypatch.setattr(IcebergTables, "load", drop_after_the_first)
        before = lake.data_paths()

        told = lake.care(snapshots_kept=1)

        assert (told.cause, told.left) == ("gap", [f"the table {TABLE!r} is gone: restore it"])
        assert before <= lake.data_paths()
