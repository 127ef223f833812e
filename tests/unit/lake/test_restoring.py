"""A topic as of a point, as a table of its own: the same rows, compared; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import headwater as hw
from headwater.clock import ManualClock
from headwater.errors import Halted, InvalidRequest, Unavailable
from headwater.lake import new_table
from headwater.lake.catalog import CatalogPlace
from headwater.lake.catalog_connection import open_catalog
from headwater.lake.iceberg_tables import IcebergTables
from headwater.lake.restoring import Contents, LocalCopying, RestoreReport, restore_table
from headwater.lake.scan import Scan
from headwater.lake.tables import CommitUncertain, Staged, TableShape, TableState
from headwater.lake.work import Block, Digest
from tests.unit.lake.small_lakes import SmallLake, lakes

TO = "copies.orders"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[SmallLake]:
    yield from lakes(tmp_path)


def restored(lake: SmallLake, name: str = "orders", *, as_of: Any = None, to: str = TO, **parts: Any) -> RestoreReport:
    return restore_table(lake.log._viewed(), lake.record(name), as_of=as_of, to=to, **parts)


def rows(lake: SmallLake, table: str = TO) -> list[dict[str, Any]]:
    with closing(lake.place.connect()) as tables:
        found = tables.catalog.load_table(table).scan().to_arrow()
    told: list[dict[str, Any]] = found.sort_by([("_hw_lsn", "ascending"), ("_hw_offset", "ascending")]).to_pylist()
    return told


def test_a_topic_is_restored_as_it_was_at_an_lsn_with_the_columns_of_the_log(lake: SmallLake) -> None:
    lake.topic("orders", partitions=2)
    lake.append("orders", 3)
    lake.round()
    lake.append("orders", 2)
    before = hw.Lsn(lake.log._engine.durable_lsn())
    lake.append("orders", 4)
    lake.round()

    report = restored(lake, as_of=before)

    assert report.passed and report.differences() == [] and report.rows == 5
    assert str(report) == f"PASS orders as of lsn {int(before)}: 5 rows in copies.orders"
    report.raise_for_status()
    found = rows(lake)
    assert [row["x"] for row in found] == [0, 1, 2, 3, 4]
    whole = lake.log["orders"].scan(columns=[*found[0]], as_of=before).to_arrow()
    assert whole.sort_by([("_hw_lsn", "ascending"), ("_hw_offset", "ascending")]).to_pylist() == found
    assert report.lsn == int(before) and report.source.offsets == report.restored.offsets


def test_a_cut_and_a_time_are_points_too(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)
    lake.round()
    cut = lake.log.cut("orders")
    at = datetime.fromtimestamp(lake.clock.now_us() / 1e6, UTC)
    lake.clock.advance(60)
    lake.append("orders", 3)
    lake.round()

    assert restored(lake, as_of=str(cut)).rows == 2
    assert restored(lake, as_of=at, to="copies.then").rows == 2
    assert restored(lake, to="copies.now").rows == 5


def test_the_new_table_says_what_it_was_made_from_and_is_no_table_of_a_topic(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders")
    lake.round()

    report = restored(lake)

    with closing(lake.place.connect()) as tables:
        properties = tables.catalog.load_table(TO).properties
    told = json.loads(properties["headwater.restored"])
    assert (told["topic"], told["lsn"], told["cut"]) == ("orders", report.lsn, report.cut)
    assert told["log-id"] == lake.source().log_id and told["topic-id"] == lake.record("orders").topic_id.hex()
    assert not {"headwater.topic", "headwater.created-for", "headwater.landed.main"} & set(properties)


def test_a_keyed_topic_is_restored_as_its_state_at_the_point(lake: SmallLake) -> None:
    lake.topic("customers", schema={"id": int, "name": str}, key="id")
    customers = lake.log["customers"]
    customers.upsert([{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    lake.round()
    customers.upsert([{"id": 1, "name": "c"}])
    before = hw.Lsn(lake.log._engine.durable_lsn())
    customers.delete([{"id": 2}])
    lake.round()

    report = restored(lake, "customers", as_of=before)

    assert report.passed
    assert sorted((row["id"], row["name"]) for row in rows(lake)) == [(1, "c"), (2, "b")]
    assert "_hw_op" not in rows(lake)[0]


def test_a_topic_without_a_table_is_restored_from_the_log(lake: SmallLake) -> None:
    lake.log.topic("notes", schema={"x": int}).append([{"x": 1}])

    report = restored(lake, "notes")

    assert str(report) == f"PASS notes as of lsn {report.lsn}: 1 row in copies.orders"


def test_a_point_without_rows_gives_an_empty_table(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders")

    report = restored(lake, as_of=hw.Lsn(0))

    assert report.passed and report.rows == 0 and rows(lake) == []


def test_types_that_a_table_keeps_wider_are_restored_as_the_table_has_them(lake: SmallLake) -> None:
    schema = pa.schema([pa.field("a", pa.uint8()), pa.field("b", pa.float16()), pa.field("c", pa.list_(pa.uint32()))])
    lake.topic("orders", schema=schema)
    lake.log["orders"].append(pa.table({"a": [1], "b": pa.array([1.5], pa.float16()), "c": [[4]]}, schema=schema))
    lake.round()
    lake.log["orders"].append(pa.table({"a": [2], "b": pa.array([2.5], pa.float16()), "c": [None]}, schema=schema))

    assert restored(lake).passed
    assert [(row["a"], row["b"], row["c"]) for row in rows(lake)] == [(1, 1.5, [4]), (2, 2.5, None)]


def test_rows_that_were_there_before_the_topic_are_restored_too(lake: SmallLake) -> None:
    lake.topic("orders")
    with closing(lake.place.connect()) as tables:
        tables.catalog.create_namespace("lake")
        old = pa.table({"x": [-1, -2]}, schema=pa.schema([pa.field("x", pa.int64())]))
        tables.catalog.create_table("lake.orders", old.schema).append(old)
    lake.append("orders", 2)
    lake.round()

    report = restored(lake)

    assert report.passed and report.rows == 4
    assert report.restored.offsets == {-1: (-1, -1), 0: (0, 1)}
    assert sorted(row["x"] for row in rows(lake)) == [-2, -1, 0, 1]


def test_a_restored_table_is_partitioned_as_the_topics_own(lake: SmallLake) -> None:
    lake.topic("orders", partition_by="x")
    lake.append("orders", 3)

    assert restored(lake).passed
    with closing(lake.place.connect()) as tables:
        assert sorted(each.file.partition[0] for each in tables.catalog.load_table(TO).scan().plan_files()) == [0, 1, 2]


def test_many_rows_go_into_more_files_than_one(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_table, "BYTES_AT_ONCE", 1)
    lake.topic("orders")
    for _ in range(2):
        lake.append("orders", 2)
        lake.round()

    assert restored(lake).passed
    with closing(lake.place.connect()) as tables:
        assert len(list(tables.catalog.load_table(TO).scan().plan_files())) == 2


# ------------------------------------------------------------------------------------------------------- refusals


def test_a_table_that_is_there_is_never_written_to(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders")
    restored(lake)
    before = sorted(lake.folder.rglob("*.parquet"))

    with pytest.raises(InvalidRequest, match="already"):
        restored(lake)
    assert len(rows(lake)) == 1
    assert sorted(lake.folder.rglob("*.parquet")) == before


@pytest.mark.parametrize("to", ["lake.orders", "lake.customers", "lake.customers_changes"])
def test_the_table_of_a_topic_is_not_taken_for_a_restore(lake: SmallLake, to: str) -> None:
    lake.topic("orders")
    lake.topic("customers", schema={"id": int}, key="id")

    with pytest.raises(InvalidRequest, match="is the table of the topic"):
        restored(lake, to=to)


def test_a_table_is_named_with_its_namespace(lake: SmallLake) -> None:
    lake.topic("orders")

    with pytest.raises(InvalidRequest, match="namespace"):
        restored(lake, to="copy")


# --------------------------------------------------------------------------------------------------------- trouble


Commit = Callable[[Callable[[Staged], None], Staged], None]


def through(monkeypatch: pytest.MonkeyPatch, commit: Commit) -> None:
    """From now on connections say of commits what they are told to say."""

    class Answering(IcebergTables):
        def commit(self, staged: Staged) -> None:
            commit(super().commit, staged)

    monkeypatch.setattr(CatalogPlace, "connect", lambda place: Answering(open_catalog(place)))


def test_a_commit_whose_reply_is_lost_is_found_in_the_catalog(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.topic("orders")
    lake.append("orders")

    def commit(really: Any, staged: Staged) -> None:
        really(staged)
        raise CommitUncertain("who knows")

    through(monkeypatch, commit)

    assert restored(lake).passed


def test_a_commit_that_was_not_applied_is_unavailable_and_leaves_no_table(
    lake: SmallLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.topic("orders")
    lake.append("orders")

    def commit(really: Any, staged: Staged) -> None:
        raise CommitUncertain("who knows")

    through(monkeypatch, commit)

    with pytest.raises(Unavailable, match="was not made"):
        restored(lake)


def test_a_table_that_another_makes_meanwhile_is_left_alone(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.topic("orders")
    lake.append("orders")

    def commit(really: Any, staged: Staged) -> None:
        with closing(lake_tables) as tables:
            other = pa.table({"y": [1]})
            tables.catalog.create_table(TO, other.schema).append(other)
        really(staged)

    lake_tables = lake.place.connect()
    through(monkeypatch, commit)

    with pytest.raises(InvalidRequest, match="already"):
        restored(lake)


def test_a_catalog_that_cannot_make_it_is_unavailable(lake: SmallLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.topic("orders")

    def refuse(*_: object, **__: object) -> None:
        raise OSError("no")

    monkeypatch.setattr("pyiceberg.catalog.MetastoreCatalog.create_table_transaction", refuse)

    with pytest.raises(Unavailable, match="cannot be made"):
        restored(lake)


class Losing(LocalCopying):
    """Copies, and somebody removes the table at once."""

    def copy(self, scan: Scan, to: str, shape: TableShape) -> Contents:
        given = super().copy(scan, to, shape)
        with closing(self._views.lake.place.connect()) as tables:
            tables.catalog.drop_table(to)
        return given


class Altering(LocalCopying):
    """Reads back something else."""

    def __init__(self, lake: SmallLake, *blocks: Block) -> None:
        super().__init__(lake.log._viewed())
        self._blocks = blocks

    def contents(self, state: TableState) -> Contents:
        return Contents(Digest(self._blocks), super().contents(state).offsets)


def test_a_table_that_is_removed_meanwhile_halts(lake: SmallLake) -> None:
    lake.topic("orders")

    with pytest.raises(Halted, match="gone again"):
        restored(lake, copying=Losing(lake.log._viewed()))


def test_a_table_that_reads_back_otherwise_fails_by_block(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)

    report = restored(lake, copying=Altering(lake, Block(0, 0, 2, 1)))

    assert not report.passed
    assert report.differences() == ["partition 0, offsets 0 to 65535: rows are altered"]
    assert str(report).startswith("FAIL orders as of lsn") and "rows are altered" in str(report)
    with pytest.raises(Halted, match="rows are altered"):
        report.raise_for_status()


def test_rows_that_are_missing_or_too_many_are_told_by_block(lake: SmallLake) -> None:
    lake.topic("orders")
    lake.append("orders", 2)

    report = restored(lake, copying=Altering(lake, Block(0, 1, 3, 7)))

    assert report.differences() == [
        "partition 0, offsets 0 to 65535: 2 rows were given and 0 are there",
        "partition 0, offsets 65536 to 131071: 0 rows were given and 3 are there",
    ]


def test_how_long_it_took_is_told(lake: SmallLake) -> None:
    lake.topic("orders")

    class Slow(LocalCopying):
        def copy(self, scan: Scan, to: str, shape: TableShape) -> Contents:
            assert isinstance(lake.clock, ManualClock)
            lake.clock.advance(2)
            return super().copy(scan, to, shape)

    assert restored(lake, copying=Slow(lake.log._viewed())).seconds == 2
