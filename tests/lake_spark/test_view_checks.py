"""Audits and restores by Spark: they find, and make, what the ones without it do."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from headwater.errors import InvalidRequest
from headwater.lake.audit_report import AuditReport
from headwater.lake.catalog import catalog_place
from tests.lake_spark.sessions import PYSPARK_SOCKETS, local_spark
from tests.lake_spark.view_lakes import opened, session_for
from tests.unit.lake.every_type import EVERY_TYPE, odd_rows

pytestmark = PYSPARK_SOCKETS


def told(report: AuditReport) -> list[Any]:
    """What was found, without how long it took."""
    return [replace(each, seconds=0.0) for each in report]


def damage(folder: Path, table: str, change: Callable[[pa.Table], pa.Table]) -> None:
    """Write the rows of a table anew, with something changed, as a compaction that makes mistakes."""
    with closing(catalog_place(None, directory=str(folder)).connect()) as tables:
        native = tables.catalog.load_table(table)
        rows = native.scan().to_arrow().sort_by([("_hw_lsn", "ascending"), ("_hw_offset", "ascending")])
        native.overwrite(change(rows))


def one_less_and_one_twice(rows: pa.Table) -> pa.Table:
    return pa.concat_tables([rows.slice(1), rows.slice(4, 1)])


def other_name(rows: pa.Table) -> pa.Table:
    names = pc.if_else(pc.equal(rows["id"], 5), "other", rows["name"])
    return rows.set_column(1, rows.schema.field(1), names)


def test_an_audit_by_spark_finds_what_the_one_without_it_finds(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        spark = session_for(log)
        schema = pa.schema([("n", pa.int32()), ("s", pa.string())])
        plain = log.topic("plain", schema=schema, table="t.plain", partitions=2)
        keyed = log.topic("keyed", schema={"id": int, "name": str}, key="id", table="t.keyed")
        for at in (0, 10):
            plain.append([{"n": at + each, "s": f"row {each}"} for each in range(10)], partition=at // 10)
            keyed.upsert([{"id": each, "name": f"{at}"} for each in range(10)])
            keyed.delete([{"id": at // 3}])
            log.land()
        plain.alter(add={"more": str}, widen={"n": pa.int64()})  # another era, of other columns
        plain.append([{"n": 2**40, "s": None, "more": "x"}], partition=0)
        log.land()
        log.merge(spark=spark)
        spark.sql("ALTER TABLE headwater.t.plain RENAME COLUMN s TO renamed")

        honest = log.audit(spark=spark, full=True)
        assert honest.passed and told(honest) == told(log.audit(full=True))
        assert {each.topic: each.rows for each in honest} == {"plain": 21, "keyed": 22}

        damage(tmp_path, "t.plain", one_less_and_one_twice)
        damage(tmp_path, "t.keyed", other_name)
        found = log.audit(spark=spark, full=True)

        assert not found.passed and told(found) == told(log.audit(full=True))
        by_topic = {each.topic: each for each in found}
        assert {kind: by_topic["plain"].offsets(kind)[0].ranges for kind in ("missing", "doubled")} == {
            "missing": ((0, 0),),
            "doubled": ((4, 4),),
        }
        assert by_topic["keyed"].state is not None and not by_topic["keyed"].state.passed
        with pytest.raises(InvalidRequest, match=r"spark\.sql\.catalog\.headwater"):
            log.audit(spark=local_spark().newSession())


def test_a_table_restored_by_spark_is_the_one_restored_without_it(tmp_path: Path) -> None:
    with opened(tmp_path) as log:
        spark = session_for(log)
        plain = log.topic("plain", schema=EVERY_TYPE, table="t.plain", partition_by="bucket(2, id)")
        keyed = log.topic("keyed", schema={"id": int, "name": str}, key="id", table="t.keyed")
        plain.append(odd_rows(12))
        keyed.upsert([{"id": each, "name": "a"} for each in range(10)])
        log.land()
        log.merge(spark=spark)
        plain.append(odd_rows(12))
        keyed.upsert([{"id": 3, "name": "b"}])
        keyed.delete([{"id": 4}])
        cut = log.cut("plain", "keyed")
        plain.append(odd_rows(12))

        for name in ("plain", "keyed"):
            by_spark = log.restore(name, as_of=cut, to=f"copies.{name}_spark", spark=spark)
            without = log.restore(name, as_of=cut, to=f"copies.{name}")

            by_spark.raise_for_status()
            assert by_spark.passed and by_spark.source == by_spark.restored == without.restored
            assert by_spark.rows == log[name].scan(as_of=cut).count()
            one, other = (_table(tmp_path, f"copies.{name}{suffix}") for suffix in ("_spark", ""))
            assert one.schema() == other.schema() and one.spec() == other.spec()
            assert len(one.metadata.snapshots) == 1
        with pytest.raises(InvalidRequest, match=r"there is a table 'copies\.keyed' already"):
            log.restore("keyed", as_of=cut, to="copies.keyed", spark=spark)


def _table(folder: Path, name: str) -> Any:
    with closing(catalog_place(None, directory=str(folder)).connect()) as tables:
        return tables.catalog.load_table(name)
