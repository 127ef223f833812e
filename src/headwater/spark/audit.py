"""Measuring a table for an audit by Spark: one query for the rows of an era, whatever its size.

    log.audit(spark=spark)     audits by this where a session is given

PROMISE  The digest is the one that is found without Spark (lake/digest_sql.py): the snapshot is the one that was asked
         for, columns are found by field id, and a session's settings do not change it.
         A query that fails is Unavailable, with the reason in one line.
NOT HERE What is asked, and what a difference means: lake/audit.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from headwater.errors import Unavailable
from headwater.lake.audit_measure import Asked
from headwater.lake.digest_sql import digest_of_rows, sql_query
from headwater.lake.landing import Lake
from headwater.lake.snapshot_columns import names_in_snapshot
from headwater.lake.tables import TableState
from headwater.lake.work import Column, Digest
from headwater.spark.merge_sql import quoted
from headwater.spark.run import reason
from headwater.spark.session import catalog_table, check_session

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_PLACES = ("_hw_partition", "_hw_offset")


class SparkMeasure:
    """lake/audit_measure.Measure in Spark.  A session that does not know the catalog is refused."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._catalog = check_session(spark, lake.place, lake.spark_catalog)

    def digest(self, asked: Asked) -> Digest:
        if not asked.ranges:
            return Digest()
        rows = snapshot_rows(self._catalog, asked.state, asked.snapshot_id, asked.columns, also=_also(asked))
        within = " OR ".join(f"(_hw_lsn > {first} AND _hw_lsn <= {last})" for first, last in _joined(asked.ranges))
        if asked.latest_of:
            key = ", ".join(map(quoted, asked.latest_of))
            age = f"row_number() OVER (PARTITION BY {key} ORDER BY _hw_lsn DESC, _hw_offset DESC)"
            rows = f"(SELECT * FROM (SELECT *, {age} AS _hw_age FROM {rows} WHERE {within}) WHERE _hw_age = 1)"
            within = "_hw_op = 'U'"
        return digest_of_rows(collected(self._spark, sql_query(asked.columns, rows, within), asked.state.name))


def snapshot_rows(
    catalog: str, state: TableState, snapshot_id: int, columns: Sequence[Column], *, also: Iterable[str] = ()
) -> str:
    """Rows of a snapshot as SQL, in these columns under the names that the table has for them now; a row that is of no
    partition, or at no offset, is of -1."""
    names = list(dict.fromkeys((*(column.name for column in columns), *also)))
    stored = names_in_snapshot(state, snapshot_id, names)
    listed = ", ".join(f"{_read(name, then)} AS {quoted(name)}" for name, then in zip(names, stored, strict=True))
    return f"(SELECT {listed} FROM {catalog_table(catalog, state.name)} VERSION AS OF {snapshot_id})"


def collected(spark: SparkSession, query: str, table: str) -> list[Row]:
    try:
        return spark.sql(query).collect()
    except Exception as error:  # classic, Connect and a JVM that has ended raise nothing in common
        raise Unavailable(f"Spark could not read {table!r}: {reason(error)}") from error


def _read(name: str, stored: str | None) -> str:
    if stored is None:
        return "NULL"
    return f"coalesce({quoted(stored)}, -1)" if name in _PLACES else quoted(stored)


def _also(asked: Asked) -> list[str]:
    return [*_PLACES, "_hw_lsn", *asked.latest_of, *(["_hw_op"] if asked.latest_of else [])]


def _joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same LSNs in as few ranges as there can be: each landing begins where the one before it ended."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found
