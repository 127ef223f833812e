"""Restoring a table by Spark: the rows of a scan, read, written and read back by tasks; one commit.

    log.restore("orders", as_of=cut, to="sales.orders_1041", spark=spark)

PROMISE  Files of a task that was tried again have names of their own, and only those of the attempt whose answer came
         back are in the table.  The new table is the same as one that was restored without Spark: in its columns, types
         and partitions, and made by one commit.
NOT HERE What is restored, and the comparison: lake/restoring.py.  The commit: lake/new_table.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from headwater.errors import Unavailable
from headwater.lake.copied_rows import CopiedTable, columns_by_id, together
from headwater.lake.digest_sql import digest_of_rows, sql_query
from headwater.lake.landing import Lake
from headwater.lake.restoring import Contents
from headwater.lake.scan import Scan
from headwater.lake.stamping import new_commit_id
from headwater.lake.tables import TableShape, TableState
from headwater.lake.work import LandDone, unpack_done
from headwater.spark.audit import collected, snapshot_rows
from headwater.spark.run import reason
from headwater.spark.scan import to_spark
from headwater.spark.session import check_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DONE = "done binary"


class SparkCopying:
    """lake/restoring.Copying in Spark.  A session that does not know the catalog is refused."""

    def __init__(self, spark: SparkSession, lake: Lake) -> None:
        self._spark = spark
        self._lake = lake
        self._catalog = check_session(spark, lake.place, lake.spark_catalog)

    def copy(self, scan: Scan, to: str, shape: TableShape) -> Contents:
        commit_id = new_commit_id(self._lake.entropy)
        with closing(CopiedTable(self._lake.place.connect, to, shape, commit_id)) as table:
            frame = to_spark(scan, self._spark)
            try:
                # Under plain names: Spark takes a name with a dot in it for a field of a struct.
                numbered = frame.toDF(*(f"c{number}" for number in range(len(frame.columns))))
                rows = numbered.mapInArrow(_task(table.target, commit_id, frame.columns), _DONE).collect()
            except Exception as error:  # classic, Connect and a JVM that has ended raise nothing in common
                raise Unavailable(f"the Spark job that copies {scan.topic.name!r} failed: {reason(error)}") from error
            files, given = together(_dones(bytes(row["done"]) for row in rows))
            table.add(files)
            table.commit()
        return given

    def contents(self, state: TableState) -> Contents:
        head = state.head()
        assert head is not None, "a table that was made with its rows"
        columns = columns_by_id(state)
        rows = snapshot_rows(self._catalog, state, head.snapshot_id, columns)
        digest = digest_of_rows(collected(self._spark, sql_query(columns, rows), state.name))
        ends = f"SELECT _hw_partition, min(_hw_offset), max(_hw_offset) FROM {rows} GROUP BY _hw_partition"
        return Contents(digest, {row[0]: (row[1], row[2]) for row in collected(self._spark, ends, state.name)})


def _dones(answers: Iterable[bytes]) -> Iterator[LandDone]:
    for answer in answers:
        done = unpack_done(answer)
        assert isinstance(done, LandDone)
        yield done


def _task(target: bytes, commit_id: str, names: Sequence[str]) -> Any:
    def write_each(batches: Iterable[Any]) -> Iterator[Any]:
        # Imported where it runs: a worker gets this function, and finds the rest by its names.
        import pyarrow
        from pyspark import TaskContext

        from headwater.lake.copied_rows import write_rows
        from headwater.lake.work import pack

        context = TaskContext.get()
        assert context is not None
        named = (batch.rename_columns(names) for batch in batches)
        done = pack(write_rows(target, commit_id, context.taskAttemptId(), named))
        yield pyarrow.RecordBatch.from_arrays([pyarrow.array([done], pyarrow.binary())], names=["done"])

    return write_each
